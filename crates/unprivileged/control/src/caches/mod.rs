//! Named caches that outlive a run: each run has a layer or a copy of its own, and what it adds is shared only by a
//! trusted step.
//!
//! **Trust:** the state directory is the user's own. A run's layer is the agent's in every name and byte: it is read by
//! descriptor, never executed, and nothing of it is moved into the shared tree, only copied after it was checked.
mod check;
mod git_shapes;
mod merge;
mod place;
#[cfg(test)]
mod tests;

pub use merge::{Fate, MergeWish, Merged, Told, merge};
pub use place::{CacheState, Candidate, list, remove};

use crate::place::Place as Surroundings;
use bastle_audit::AuditEvent;
use bastle_contract::{AbsPath, Code, EnvName, Fault, RunId};
use bastle_policy::caches::{Cache, CacheMerge, find, inside};
use bastle_policy::{Effective, LentCache, LentPlace, Planned};
use merge::Limits;
use place::{Layer, Place, Way};
use std::path::Path;

/// The caches of one run.
pub(crate) struct Caches {
    lent: Vec<Lent>,
    merge: CacheMerge,
    begun: bool,
}

/// One cache of a run.
struct Lent {
    cache: &'static Cache,
    place: Place,
    layer: Option<Layer>,
    run: RunId,
    files: u64,
}

/// What a run left above a cache.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CacheEnd {
    /// The cache.
    pub cache: String,
    /// Files that it does not have.
    pub new: u64,
    /// Files that were merged at once.
    pub merged: u64,
}

/// Whether directories are made or only named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending {
    /// Made: the run follows.
    Now,
    /// Only named: somebody asks what would be.
    Never,
}

impl Caches {
    /// Makes a layer for every cache that the policy names.
    pub(crate) fn lend(
        place: &Surroundings,
        effective: &Effective,
        run: &RunId,
        lending: Lending,
    ) -> Result<Self, Fault> {
        let mut caches = Self {
            lent: Vec::new(),
            merge: effective
                .cache_merge
                .as_ref()
                .map_or(CacheMerge::Never, |merge| merge.value),
            begun: false,
        };
        for cache in effective.caches.iter().filter_map(|name| find(&name.value)) {
            let at = Place::new(&place.state, cache);
            let (layer, files) = match lending {
                Lending::Now => {
                    let (layer, files) = at.lend(run, place.workspace.as_path(), way(at.root()))?;
                    (Some(layer), files)
                }
                Lending::Never => (None, 0),
            };
            caches.lent.push(Lent {
                cache,
                place: at,
                layer,
                run: run.clone(),
                files,
            });
        }
        Ok(caches)
    }

    /// Shows the layers where the tools look for their caches.
    pub(crate) fn put_into(&self, planned: &mut Planned) -> Result<(), Fault> {
        let lent = self
            .lent
            .iter()
            .map(Lent::planned)
            .collect::<Result<Vec<_>, _>>()?;
        if lent.is_empty() {
            return Ok(());
        }
        planned.with_caches(&lent)
    }

    /// The agent starts: from now on the layers hold what it does. For the record.
    pub(crate) fn begin(&mut self) -> Vec<AuditEvent> {
        self.begun = true;
        let event = |lent: &Lent| AuditEvent::CacheLent {
            cache: lent.cache.name.clone(),
            files: lent.files,
        };
        let how = |lent: &Lent| AuditEvent::Note {
            topic: format!("cache {}", lent.cache.name),
            text: match lent.layer.as_ref().and_then(Layer::generation) {
                Some(_) => "shared read-only, below a layer of the run's own".to_owned(),
                None => "a copy of the run's own".to_owned(),
            },
        };
        self.lent
            .iter()
            .flat_map(|lent| [event(lent), how(lent)])
            .collect()
    }

    /// The agent is gone: what the caches have already is taken out of the layers, and the rest is kept or merged.
    pub(crate) fn end(self) -> (Vec<CacheEnd>, Vec<AuditEvent>) {
        let (mut ends, mut events) = (Vec::new(), Vec::new());
        let merge = self.merge;
        let mut this = self;
        for lent in std::mem::take(&mut this.lent) {
            let (name, place, run) = (lent.cache.name.clone(), lent.place, lent.run);
            let Some(layer) = lent.layer else { continue };
            let new = match layer.reduce(&place, &run) {
                Ok(new) => new,
                Err(fault) => {
                    events.push(note(&name, &fault));
                    continue;
                }
            };
            drop(layer);
            let mut end = CacheEnd {
                cache: name.clone(),
                new,
                merged: 0,
            };
            if merge == CacheMerge::NewFiles && new > 0 {
                match merge::merge_one(&place, &run, MergeWish::Everything, Limits::default()) {
                    Ok(told) => {
                        end.merged = told.count(Fate::is_merged);
                        events.push(AuditEvent::CacheMerged {
                            cache: name,
                            merged: end.merged,
                            refused: told.count(|fate| !fate.is_merged()),
                        });
                    }
                    Err(fault) => events.push(note(&name, &fault)),
                }
            }
            ends.push(end);
        }
        (ends, events)
    }
}

impl Drop for Caches {
    /// Layers in which no agent has worked hold nothing.
    fn drop(&mut self) {
        if self.begun {
            return;
        }
        for layer in self.lent.iter_mut().filter_map(|lent| lent.layer.take()) {
            // Should it fail, the next `cache rm` or `cache merge` finds it.
            drop(layer.discard());
        }
    }
}

impl Lent {
    fn planned(&self) -> Result<LentCache, Fault> {
        let fault = |why: String| {
            Fault::new(
                Code::CacheUnusable,
                format!("cache {} cannot be used", self.cache.name),
                why,
            )
        };
        let mut places = Vec::new();
        let real = |path: &Path| AbsPath::from_path(path).map_err(|error| fault(error.to_string()));
        let generation = self.layer.as_ref().and_then(Layer::generation);
        for (index, place) in self.cache.places.iter().enumerate() {
            let at = AbsPath::new(inside(place)).map_err(|error| fault(error.to_string()))?;
            let layer = self.place.over(&self.run, index);
            let source = match generation {
                Some(generation) if layer.is_dir() => LentPlace::Layered {
                    lower: real(&generation.join(relative(place)))?,
                    layer: real(&layer)?,
                },
                Some(_) | None => LentPlace::Own(real(&self.place.tree(&self.run).join(relative(place)))?),
            };
            places.push((at, source));
        }
        let mut env = Vec::new();
        for (name, value) in &self.cache.env {
            let name = EnvName::try_from(name.clone()).map_err(|error| fault(error.to_string()))?;
            env.push((name, inside(value)));
        }
        Ok(LentCache {
            name: self.cache.name.clone(),
            places,
            env,
            settings: self.cache.settings.clone(),
        })
    }
}

/// Layers where the kernel makes them for an ordinary user. Where it tells which files are read, a run has a copy: what is
/// opened below a layer is not told, and what is claimed must hold.
fn way(root: &Path) -> Way {
    /// `ext4`, `xfs`, `btrfs`, `tmpfs`: they keep the marks of a layer.
    const LAYERED: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
    let reads_told = bastle_contract::Authority::of_this_process().is_root() || crate::has_spawner_daemon();
    let kind = || {
        rustix::fs::statfs(root)
            .ok()
            .and_then(|stat| u64::try_from(stat.f_type).ok())
    };
    match kind() {
        Some(kind) if !reads_told && LAYERED.contains(&kind) => Way::Layers,
        Some(_) | None => Way::Copy,
    }
}

/// A place of the table below the home directory.
fn relative(place: &str) -> &Path {
    Path::new(place.strip_prefix("~/").unwrap_or(place))
}

fn note(cache: &str, fault: &Fault) -> AuditEvent {
    AuditEvent::Note {
        topic: format!("cache {cache}"),
        text: fault.to_string(),
    }
}

fn unusable(what: &str, path: &Path, error: impl Into<std::io::Error>) -> Fault {
    Fault::new(
        Code::CacheUnusable,
        format!("cannot {what} {}", path.display()),
        error.into().to_string(),
    )
    .help("bastle cache ls")
}
