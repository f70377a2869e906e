//! Merging what is said about files: grants, hidden and protected names, re-opened paths.
use super::{Merger, Role, origin, sourced};
use crate::document::{At, Document, Section};
use crate::effective::{Inactive, Origin, Sourced};
use crate::fsmap::{FsMap, Grade, Reach};
use crate::layers::{Layer, LayerKind};
use crate::names::NameSet;
use crate::pathrule::PathRule;
use bastle_contract::{AbsPath, Code, Fault, Opening};

impl Merger<'_> {
    /// The map after narrowing, and before.
    pub(super) fn fs(&mut self) -> Result<(FsMap, FsMap), Fault> {
        let mut base = FsMap::default();
        for layer in &self.layers_with(Some(Section::Fs), Role::Grants) {
            let fs = &layer.document.fs;
            let lists = [
                (&layer.document.system[..], Grade::Read, true),
                (fs.read.as_deref().unwrap_or_default(), Grade::Read, false),
                (fs.write.as_deref().unwrap_or_default(), Grade::Write, false),
            ];
            for (at, grade, system) in lists
                .iter()
                .flat_map(|(list, grade, system)| list.iter().map(move |at| (at, *grade, *system)))
            {
                let origin = origin(layer, at);
                base.grant(
                    self.resolve(layer, at)?,
                    Reach {
                        grade,
                        system,
                        origin,
                    },
                );
            }
        }
        let mut narrow = base.clone();
        for layer in &self.layers_with(Some(Section::Fs), Role::Narrows) {
            if let Some(filter) = self.fs_filter(layer, &base)? {
                narrow = narrow.narrowed_by(&filter);
            }
        }
        Ok((narrow, base))
    }

    pub(super) fn resolve(&self, layer: &Layer, at: &At<PathRule>) -> Result<AbsPath, Fault> {
        at.value.resolve(self.surroundings).map_err(|why| {
            Fault::new(
                Code::PolicySchema,
                format!("path {} at {} cannot be used", at.value, origin(layer, at)),
                why,
            )
        })
    }

    /// What a narrowing layer leaves over; `None` when it does not speak about grants.
    pub(super) fn fs_filter(&mut self, layer: &Layer, base: &FsMap) -> Result<Option<FsMap>, Fault> {
        let fs = &layer.document.fs;
        let mut filter = FsMap::default();
        // Reading alone leaves writing as it was, but only where is read; writing alone leaves all reading as it was.
        let read_grade = match (&fs.read, &fs.write) {
            (None, None) => return Ok(None),
            (Some(_), None) => Grade::Write,
            (Some(_), Some(_)) => Grade::Read,
            (None, Some(_)) => {
                let at = At::nowhere(());
                filter.grant(
                    AbsPath::root(),
                    Reach {
                        grade: Grade::Read,
                        system: false,
                        origin: origin(layer, &at),
                    },
                );
                Grade::Read
            }
        };
        let lists = [(&fs.read, read_grade, "read"), (&fs.write, Grade::Write, "write")];
        for (list, grade, name) in lists {
            for at in list.as_deref().unwrap_or_default() {
                let path = self.resolve(layer, at)?;
                let wanted = if name == "read" { Grade::Read } else { Grade::Write };
                if base.grade(&path) < wanted {
                    self.refuse(
                        layer,
                        Some(Section::Fs),
                        format!("fs.{name} {}", at.value),
                        at.line,
                    );
                }
                filter.grant(
                    path,
                    Reach {
                        grade,
                        system: false,
                        origin: origin(layer, at),
                    },
                );
            }
        }
        // Without the system's programs nothing runs: they stay, for reading.
        for (path, reach) in base.iter().filter(|(_, reach)| reach.system) {
            filter.grant(
                path.clone(),
                Reach {
                    grade: Grade::Read,
                    ..reach.clone()
                },
            );
        }
        Ok(Some(filter))
    }

    pub(super) fn names(
        &self,
        list: fn(&Document) -> &Vec<At<PathRule>>,
    ) -> (Vec<Sourced<PathRule>>, NameSet) {
        let all = self
            .layers
            .iter()
            .flat_map(|layer| list(&layer.document).iter().map(|at| sourced(layer, at)));
        let mut rules: Vec<Sourced<PathRule>> = all.collect();
        // The same rule of the floor and of another layer stays twice: re-opening the floor must not drop the other.
        rules.sort();
        rules.dedup_by(|later, first| {
            later.value == first.value
                && (later.origin.layer == LayerKind::Floor) == (first.origin.layer == LayerKind::Floor)
        });
        let mut set = NameSet::default();
        let slash = AbsPath::root();
        for (index, rule) in rules.iter().enumerate() {
            set.add(
                rule.value.root(self.surroundings, &slash),
                &rule.value.below,
                index,
            );
        }
        (rules, set)
    }

    /// What the command line opens: one file each, or a directory that is spelt as one.
    pub(super) fn openings(&mut self, typed: &[AbsPath]) -> Result<Vec<Opening>, Vec<Fault>> {
        let read = |path: &AbsPath| {
            Opening::parse(path).map_err(|why| {
                let what = format!("--unprotect {path} cannot be used");
                Fault::new(Code::UsageArgument, what, why)
                    .help("--unprotect FILE opens one file; --unprotect 'DIRECTORY/**' a directory with all that is in it")
            })
        };
        let (opened, faults): (Vec<_>, Vec<_>) = typed.iter().map(read).partition(Result::is_ok);
        let faults: Vec<Fault> = faults.into_iter().filter_map(Result::err).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut opened: Vec<Opening> = opened.into_iter().flatten().collect();
        self.lock_unprotect(&mut opened);
        Ok(opened)
    }

    /// A lock on files also holds against re-opening the floor.
    fn lock_unprotect(&mut self, unprotect: &mut Vec<Opening>) {
        let lock = self
            .locks
            .iter()
            .find(|lock| lock.value == Section::Fs && lock.origin.layer < LayerKind::Flags);
        if let Some(lock) = lock {
            let reason = format!("fs is locked by {}", lock.origin);
            let origin = Origin::unprotect();
            for path in unprotect.drain(..) {
                let what = format!("--unprotect {path}");
                self.inactive.push(Inactive {
                    what,
                    origin: origin.clone(),
                    reason: reason.clone(),
                });
            }
        }
        unprotect.sort();
        unprotect.dedup();
    }
}
