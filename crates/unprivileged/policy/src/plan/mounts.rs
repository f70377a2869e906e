//! The constructed root: what exists inside, parents first, and the Landlock rules over it.
use super::facts::{FsFacts, PathFact, PathKind, SHELLS, hidden_in_system};
use super::shown::refuse_whole;
use super::{PlanLine, built_in, openings};
use crate::decide::{MADE, PRIVATE};
use crate::effective::{Effective, Origin};
use crate::fsmap::{Grade, Reach};
use crate::layers::LayerKind;
use crate::text::quoted;
use bastle_contract::grants::refuse_never;
use bastle_contract::{
    AbsPath, Access, Code, ExecList, Fault, Guarantee, LandlockRule, Mechanism, Mount, MountKind,
};
use std::collections::BTreeMap;

/// The finished root.
pub(super) struct Root {
    pub(super) mounts: Vec<Mount>,
    pub(super) landlock: Vec<LandlockRule>,
    /// Writable binds: the path as typed (rules are about that) and the place inside.
    pub(super) writable: Vec<(AbsPath, AbsPath)>,
}

struct Builder<'b> {
    effective: &'b Effective,
    fs: &'b FsFacts,
    /// Keyed by place: text order puts parents before children, and no place is used twice.
    mounts: BTreeMap<AbsPath, MountKind>,
    writable: Vec<(AbsPath, AbsPath)>,
    listing: &'b mut Vec<PlanLine>,
}

pub(super) fn build(
    effective: &Effective,
    cwd: &AbsPath,
    (fs, programs): (&FsFacts, Option<&ExecList>),
    listing: &mut Vec<PlanLine>,
) -> Result<Root, Fault> {
    let mut builder = Builder {
        effective,
        fs,
        mounts: BTreeMap::new(),
        writable: Vec::new(),
        listing,
    };
    builder.workspace()?;
    for (at, target) in &fs.root_links {
        builder.mounts.insert(
            at.clone(),
            MountKind::Symlink {
                target: target.clone(),
            },
        );
    }
    for (path, reach) in effective.fs.iter().filter(|(_, reach)| reach.grade > Grade::None) {
        builder.bind(path, reach)?;
    }
    builder.drop_redundant();
    builder.own()?;
    builder.protect();
    openings::reopen(effective, fs, &mut builder.mounts)?;
    builder.hold(programs);
    builder.hide();
    builder.shims();
    let mut landlock = landlock(&builder.mounts)?;
    if builder.shown_by(cwd).is_none() {
        // Granted only in part, the directory is made for the grants below it; it must be there and can be listed.
        if !builder
            .mounts
            .iter()
            .any(|(at, kind)| at.is_within(cwd) && matches!(kind, MountKind::Bind { .. }))
        {
            let what = format!("the policy leaves the working directory {cwd} out");
            return Err(
                Fault::new(Code::WorkspaceInvalid, what, "nothing at or below it is granted")
                    .help("bastle policy show --origin names the layer; add the directory to its fs.read"),
            );
        }
        landlock.push(LandlockRule {
            path: cwd.clone(),
            access: Access::ReadOnly,
        });
        landlock.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let mounts = builder
        .mounts
        .into_iter()
        .map(|(at, kind)| Mount { at, kind })
        .collect();
    Ok(Root {
        mounts,
        landlock,
        writable: builder.writable,
    })
}

fn constant(path: &str) -> Result<AbsPath, Fault> {
    AbsPath::new(path).map_err(|e| Fault::new(Code::FenceStep, "a built-in path is malformed", e.to_string()))
}

impl Builder<'_> {
    fn fact(&self, path: &AbsPath) -> PathFact {
        let missing = || PathFact {
            resolved: path.clone(),
            kind: PathKind::Missing,
        };
        self.fs.paths.get(path).cloned().unwrap_or_else(missing)
    }

    fn workspace(&self) -> Result<(), Fault> {
        let workspace = &self.effective.surroundings.workspace;
        let fault = |why: &str| {
            Err(Fault::new(
                Code::WorkspaceInvalid,
                format!("workspace {workspace} cannot be used"),
                why,
            )
            .help("start in a project directory, or name one with --workspace-dir"))
        };
        if self.effective.surroundings.home.is_within(workspace) {
            return fault("it is the home directory or contains it; that is never handed over whole");
        }
        const WHOLE: &[&str] = &[
            "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var", "/opt", "/home", "/root", "/tmp",
            "/srv", "/mnt",
        ];
        if WHOLE.contains(&workspace.as_str()) || refuse_never(workspace).is_err() {
            return fault("it is a directory of the system; that is never handed over whole");
        }
        if self.effective.hidden_by(workspace).is_some() {
            return fault("a rule of the floor or of the policy hides it");
        }
        let fact = self.fact(workspace);
        match fact.kind {
            PathKind::Dir if fact.resolved == *workspace => Ok(()),
            PathKind::Dir => fault("a component of its path is a symlink"),
            PathKind::File => fault("it is not a directory"),
            PathKind::Missing => fault("it does not exist"),
        }
    }

    fn line(&mut self, section: &str, rule: &AbsPath, origin: &Origin, probe: Guarantee, note: &str) {
        self.listing.push(PlanLine {
            section: section.to_owned(),
            rule: rule.to_string(),
            origin: origin.clone(),
            mechanism: Mechanism::Mount,
            probe: Some(probe),
            note: note.to_owned(),
        });
    }

    fn bind(&mut self, path: &AbsPath, reach: &Reach) -> Result<(), Fault> {
        let fact = self.fact(path);
        let (section, probe) = match (reach.system, reach.grade) {
            (true, _) => ("system.read", Guarantee::ReadsConfined),
            (false, Grade::Write) => ("fs.write", Guarantee::WritesConfined),
            (false, Grade::None | Grade::Read) => ("fs.read", Guarantee::ReadsConfined),
        };
        if fact.kind == PathKind::Missing {
            if reach.origin.layer == LayerKind::Flags {
                return Err(Fault::new(
                    Code::FsRead,
                    format!("{path} is granted on the command line and does not exist"),
                    "",
                )
                .help("check the spelling, or create it first"));
            }
            self.line(section, path, &reach.origin, probe, "not on this host: skipped");
            return Ok(());
        }
        let hidden = self
            .effective
            .hidden_by(path)
            .or_else(|| self.effective.hidden_by(&fact.resolved));
        if let Some(rule) = hidden {
            let note = format!("not shown: {} hides it ({})", rule.value, rule.origin);
            if reach.origin.layer == LayerKind::Flags {
                return Err(
                    Fault::new(Code::FsFloor, format!("{path} cannot be granted"), note)
                        .help(format!(
                            "bastle run --ro {0} --unprotect {0} -- CMD   (opens exactly this file, if you mean it)",
                            quoted(path)
                        )),
                );
            }
            self.line(section, path, &reach.origin, probe, &note);
            return Ok(());
        }
        self.refuse_source(path, &fact.resolved, reach)?;
        let protected = self.effective.protected_by(path).is_some();
        let access = match reach.grade {
            Grade::Write if !protected => Access::ReadWrite,
            Grade::Write | Grade::Read | Grade::None => Access::ReadOnly,
        };
        self.place(path, &fact.resolved, access, reach);
        let note = if reach.grade == Grade::Write && protected {
            "protected: read-only"
        } else {
            ""
        };
        self.line(section, path, &reach.origin, probe, note);
        Ok(())
    }

    /// Refuses what must not be handed over, and links that lead out of what the rules grant.
    fn refuse_source(&self, path: &AbsPath, resolved: &AbsPath, reach: &Reach) -> Result<(), Fault> {
        refuse_whole((path, resolved), &reach.origin, &self.effective.surroundings.home)?;
        if resolved == path {
            return Ok(());
        }
        // Who can write the directory can turn the name into a link, and who names a path the operator did not type chose
        // it: either link shows only what is granted anyway. The map before narrowing tells what the operator typed.
        let base = &self.effective.base;
        let parent = path.parent().map_or(Grade::None, |parent| base.grade(&parent));
        let theirs = !reach.origin.layer.is_trusted() || !base.names(path) || parent == Grade::Write;
        if theirs && self.effective.fs.grade(resolved) < reach.grade {
            return Err(Fault::new(
                Code::FsRead,
                format!(
                    "{path} ({}) is a symlink that leads out of what is granted",
                    reach.origin
                ),
                format!("it leads to {resolved}"),
            )
            .help("remove the link, or grant its target by name"));
        }
        Ok(())
    }

    /// The bind that shows `path`, if one does.
    fn shown_by(&self, path: &AbsPath) -> Option<(&AbsPath, Access)> {
        let mut at = Some(path.clone());
        while let Some(place) = at {
            match self.mounts.get_key_value(&place) {
                Some((key, MountKind::Bind { access, .. })) => return Some((key, *access)),
                Some(_) => return None,
                None => at = place.parent(),
            }
        }
        None
    }

    fn place(&mut self, path: &AbsPath, resolved: &AbsPath, access: Access, reach: &Reach) {
        let inner = self.shown_by(resolved).is_none_or(|(_, outer)| outer != access);
        if inner {
            let kind = MountKind::Bind {
                source: resolved.clone(),
                access,
                owned: !reach.system,
            };
            self.mounts.insert(resolved.clone(), kind);
        }
        if access == Access::ReadWrite {
            let known = self.writable.iter().any(|(_, root)| resolved.is_within(root));
            if inner || !known {
                self.writable.push((path.clone(), resolved.clone()));
            }
        }
        // The typed name leads there, unless something mounted already shows it or a link stands above it.
        let free = !self.mounts.contains_key(path) && self.shown_by(path).is_none() && !self.below_link(path);
        if path != resolved && free {
            self.mounts.insert(
                path.clone(),
                MountKind::Symlink {
                    target: resolved.to_string(),
                },
            );
        }
    }

    /// A bind inside another that shows the same with the same access adds nothing.
    fn drop_redundant(&mut self) {
        let outer = |at: &AbsPath| {
            at.parent()
                .and_then(|parent| self.shown_by(&parent))
                .map(|(_, access)| access)
        };
        let redundant: Vec<AbsPath> = self
            .mounts
            .iter()
            .filter(|(at, kind)| matches!(kind, MountKind::Bind { access, .. } if outer(at) == Some(*access)))
            .map(|(at, _)| at.clone())
            .collect();
        self.mounts.retain(|at, _| !redundant.contains(at));
        self.writable.retain(|(_, root)| !redundant.contains(root));
    }

    fn below_link(&self, path: &AbsPath) -> bool {
        let link = |at: &AbsPath| matches!(self.mounts.get(at), Some(MountKind::Symlink { .. }));
        std::iter::successors(path.parent(), AbsPath::parent).any(|at| link(&at))
    }

    /// What every sandbox has of its own.
    fn own(&mut self) -> Result<(), Fault> {
        for (place, mode) in PRIVATE.iter().zip([0o700, 0o1777, 0o1777]) {
            self.add_own(constant(place)?, MountKind::Scratch { mode });
        }
        self.mounts.insert(constant("/proc")?, MountKind::Proc);
        self.mounts.insert(constant("/dev")?, MountKind::Dev);
        let etc = constant("/etc")?;
        // With the whole of /etc granted, a made file could stand on a name that is not there.
        if self.shown_by(&etc).is_none() {
            for place in MADE {
                self.mounts.insert(
                    constant(place)?,
                    MountKind::File {
                        contents: self.made(place),
                    },
                );
            }
        }
        let workspace = self.effective.surroundings.workspace.clone();
        let alias = constant("/workspace")?;
        if !workspace.is_within(&alias) {
            self.add_own(
                alias,
                MountKind::Symlink {
                    target: workspace.to_string(),
                },
            );
        }
        Ok(())
    }

    fn add_own(&mut self, at: AbsPath, kind: MountKind) {
        self.mounts.entry(at).or_insert(kind);
    }

    fn made(&self, place: &str) -> String {
        match place {
            "/etc/passwd" => format!(
                "root:x:0:0:root:/:/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:{}\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
                shell(self.fs)
            ),
            "/etc/group" => "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n".to_owned(),
            "/etc/hosts" => "127.0.0.1 localhost bastle\n::1 localhost bastle\n".to_owned(),
            "/etc/resolv.conf" => "# no resolver: the sandbox has no network\n".to_owned(),
            "/etc/hostname" => "bastle\n".to_owned(),
            _ => "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\nnetworks: files\n".to_owned(),
        }
    }

    /// Existing protected names in writable trees are bound over themselves, for reading.
    fn protect(&mut self) {
        for path in &self.fs.protected {
            let reopened = self.reopened(path) && self.effective.protected_by(path).is_none();
            if !reopened && matches!(self.shown_by(path), Some((_, Access::ReadWrite))) {
                let kind = MountKind::Bind {
                    source: path.clone(),
                    access: Access::ReadOnly,
                    owned: true,
                };
                self.mounts.insert(path.clone(), kind);
                let origin = self
                    .effective
                    .protected_by(path)
                    .map_or_else(built_in, |rule| rule.origin.clone());
                self.line("fs.protect", path, &origin, Guarantee::WritesConfined, "");
            }
        }
    }

    /// A listed program in a writable tree is bound over itself, for reading: whoever could change the file could put any
    /// program in its place.
    fn hold(&mut self, programs: Option<&ExecList>) {
        for path in programs.iter().flat_map(|list| &list.programs) {
            if matches!(self.shown_by(path), Some((_, Access::ReadWrite))) {
                let kind = MountKind::Bind {
                    source: path.clone(),
                    access: Access::ReadOnly,
                    owned: true,
                };
                self.mounts.insert(path.clone(), kind);
                let note = "read-only: exec.allow names it";
                self.line("exec.allow", path, &built_in(), Guarantee::WritesConfined, note);
            }
        }
    }

    fn reopened(&self, path: &AbsPath) -> bool {
        self.effective.unprotect.iter().any(|open| open.opens(path))
    }

    /// Covers over existing hidden names, and nothing mounted below a cover.
    fn hide(&mut self) {
        let system = hidden_in_system(self.effective)
            .into_iter()
            .map(|path| (self.fact(&path), path));
        let found = system
            .filter(|(fact, _)| fact.kind != PathKind::Missing)
            .map(|(fact, _)| fact.resolved);
        let mut hidden: Vec<AbsPath> = found.chain(self.fs.hidden.iter().cloned()).collect();
        hidden.sort();
        hidden.dedup();
        for path in hidden {
            let reopened = self.reopened(&path) && self.effective.hidden_by(&path).is_none();
            if !reopened && self.shown_by(&path).is_some() {
                let origin = self
                    .effective
                    .hidden_by(&path)
                    .map_or_else(built_in, |rule| rule.origin.clone());
                self.cover(&path);
                self.line("fs.hide", &path, &origin, Guarantee::SecretsHidden, "");
            }
        }
    }

    fn cover(&mut self, path: &AbsPath) {
        self.mounts.retain(|at, _| !at.is_within(path));
        self.writable.retain(|(_, root)| !root.is_within(path));
        self.mounts.insert(path.clone(), MountKind::Mask);
    }

    /// Program files of denied programs are covered.
    fn shims(&mut self) {
        for path in &self.fs.programs {
            if self.shown_by(path).is_some() {
                self.cover(path);
            }
        }
    }
}

/// The shell of the agent's account.
pub(super) fn shell(fs: &FsFacts) -> &'static str {
    let exists = |shell: &&str| {
        AbsPath::new(*shell).is_ok_and(|path| {
            fs.paths
                .get(&path)
                .is_some_and(|fact| fact.kind == PathKind::File)
        })
    };
    SHELLS.into_iter().find(exists).unwrap_or("/bin/sh")
}

/// One grant per place; never `/` as a whole.
fn landlock(mounts: &BTreeMap<AbsPath, MountKind>) -> Result<Vec<LandlockRule>, Fault> {
    let mut rules: BTreeMap<AbsPath, Access> = BTreeMap::new();
    for place in ["/proc", "/dev", "/etc"] {
        rules.insert(constant(place)?, Access::ReadOnly);
    }
    for place in [
        "/dev/shm",
        "/dev/pts",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/tty",
        "/dev/ptmx",
    ] {
        rules.insert(constant(place)?, Access::ReadWrite);
    }
    for (at, kind) in mounts {
        match kind {
            MountKind::Bind { access, .. } => {
                rules.insert(at.clone(), *access);
            }
            MountKind::Scratch { .. } => {
                rules.insert(at.clone(), Access::ReadWrite);
            }
            MountKind::Proc
            | MountKind::Dev
            | MountKind::Symlink { .. }
            | MountKind::File { .. }
            | MountKind::Attached { .. }
            | MountKind::Given { .. }
            // Put in the place of binds after planning, and the rules of those stay.
            | MountKind::Overlay { .. }
            | MountKind::Again { .. }
            | MountKind::Mask => {}
        }
    }
    // Grants add up along a path: one that a directory above gives already would only cost time at every start.
    let given = |path: &AbsPath, access: Access| {
        rules.iter().any(|(above, wider)| {
            above != path && path.is_within(above) && (*wider == access || *wider == Access::ReadWrite)
        })
    };
    let needed = rules.iter().filter(|(path, access)| !given(path, **access));
    Ok(needed
        .map(|(path, access)| LandlockRule {
            path: path.clone(),
            access: *access,
        })
        .collect())
}
