//! Whether a path may be granted to a living run: by the same policy, the same planner and the same look around as at
//! the start, so that nothing can be granted later that could not have been granted on the command line.
//!
//! **Trust:** the path comes from the person. What lies at it and below may belong to the agent: names are looked at by
//! descriptor, contents never.
use crate::load::{Sources, merge_layers};
use crate::lookup::look_up;
use crate::place::Place;
use bastle_contract::grants::{Cover, CoverKind, GrantOrder, refuse_never};
use bastle_contract::{AbsPath, Access, BackendKind, Code, Fault, HostFacts, LaunchPlan, Mount, MountKind};
use bastle_policy::{Effective, LaunchRequest, Layer, LayerKind, Verdict};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// What judging needs: the policy as it was read at the start.
pub(crate) struct Judge {
    place: Place,
    sources: Sources,
    layers: Vec<Layer>,
    facts: HostFacts,
}

/// A path that may be granted.
pub(crate) struct Judged {
    pub(crate) order: GrantOrder,
    /// What was judged (`O_PATH`): the spawner compares it with what it opens.
    pub(crate) opened: OwnedFd,
    pub(crate) kind: FileType,
}

impl Judge {
    pub(crate) fn new(place: &Place, sources: Sources, layers: &[Layer], facts: &HostFacts) -> Self {
        Self {
            place: place.clone(),
            sources,
            layers: layers.to_vec(),
            facts: facts.clone(),
        }
    }

    /// Judges a path for a run that was started with `plan`.
    pub(crate) fn judge(
        &self,
        path: &AbsPath,
        access: Access,
        plan: &LaunchPlan,
    ) -> Result<Judged, Vec<Fault>> {
        refuse_never(path).map_err(|error| refused(path, error.to_string()))?;
        self.refuse_workspace(path)?;
        let (opened, kind) = open(path)?;
        if access == Access::ReadWrite && plan.limits.iter().any(|rule| rule.mechanism.counts_writes()) {
            let why = "the run has limits on files or bytes, and what is written to a grant is not counted";
            return Err(refused(path, why.to_owned()));
        }
        let effective = self.with(path, access)?;
        refuse_hidden(&effective, path)?;
        let planned = self.plan(&effective, path, plan)?;
        let order = order(path, access, planned)?;
        order.check().map_err(|error| refused(path, error.to_string()))?;
        // The look around took a while: it must have been about what was opened.
        let (again, _) = open(path)?;
        if identity(path, &again)? != identity(path, &opened)? {
            return Err(refused(path, "it changed while it was judged".to_owned()));
        }
        Ok(Judged { order, opened, kind })
    }

    /// The agent works in the workspace, or on a copy of it: a second way there would go around what protects it.
    fn refuse_workspace(&self, path: &AbsPath) -> Result<(), Vec<Fault>> {
        let workspace = &self.place.workspace;
        if path.is_within(workspace) || workspace.is_within(path) {
            let why = format!("it is part of the workspace {workspace}, or contains it");
            return Err(refused(path, why));
        }
        Ok(())
    }

    /// The policy as it would have been with the grant on the command line.
    fn with(&self, path: &AbsPath, access: Access) -> Result<Effective, Vec<Fault>> {
        let list = match access {
            Access::ReadOnly => "read",
            Access::ReadWrite => "write",
        };
        let name = "bastle grant";
        let text = serde_json::json!({ "version": 1, "fs": { list: [path.as_str()] } }).to_string();
        let document = bastle_policy::parse(name, text.as_bytes())?;
        let mut layers = self.layers.clone();
        // Before the project's own files, which only narrow.
        let at = layers
            .iter()
            .position(|layer| matches!(layer.kind, LayerKind::Project | LayerKind::ProjectLocal))
            .unwrap_or(layers.len());
        layers.insert(
            at,
            Layer {
                kind: LayerKind::Flags,
                name: name.to_owned(),
                document: document.into(),
            },
        );
        merge_layers(&self.place, &self.sources, &layers)
    }

    /// The entries of the root that the grant would have had.
    fn plan(
        &self,
        effective: &Effective,
        path: &AbsPath,
        plan: &LaunchPlan,
    ) -> Result<Vec<Mount>, Vec<Fault>> {
        let request = LaunchRequest {
            run: plan.run.clone(),
            argv: plan.argv.clone(),
            cwd: self.place.cwd.clone(),
            stdio: plan.stdio,
            env: Vec::new(),
            host_env: Vec::new(),
            backend: BackendKind::Native,
            waivers: plan.waivers.clone(),
            debuggers: plan.debuggers,
            // The run was launched with this line.
            approval: bastle_policy::LaunchApproval::Person,
        };
        let grant = match bastle_policy::decide_launch(effective, request) {
            Verdict::Granted(grant) => grant,
            Verdict::NeedsApproval(fault) | Verdict::Denied(fault) => return Err(vec![fault]),
        };
        bastle_policy::refuse_shown(effective).map_err(|fault| vec![fault])?;
        let mut needs = bastle_policy::needs(effective);
        // The other trees were searched at the start.
        needs
            .trees
            .retain(|tree| path.is_within(&tree.root) || tree.root.is_within(path));
        let one = |fault| vec![fault];
        let facts = look_up(&needs).map_err(one)?;
        let planned = bastle_policy::plan(grant, &self.facts, &facts).map_err(one)?;
        let mut mounts = planned.plan.mounts;
        mounts.retain(|mount| mount.at.is_within(path));
        Ok(mounts)
    }
}

/// Before the look around, which finds nothing at a hidden path.
fn refuse_hidden(effective: &Effective, path: &AbsPath) -> Result<(), Vec<Fault>> {
    let Some(rule) = effective.hidden_by(path) else {
        return Ok(());
    };
    let code = match rule.origin.layer {
        LayerKind::Floor => Code::FsFloor,
        _ => Code::FsHidden,
    };
    let why = format!("{} hides it ({})", rule.value, rule.origin);
    Err(vec![Fault::new(code, format!("{path} cannot be granted"), why)])
}

fn order(path: &AbsPath, access: Access, mounts: Vec<Mount>) -> Result<GrantOrder, Vec<Fault>> {
    let mut covers = Vec::new();
    let mut found = None;
    for Mount { at, kind } in mounts {
        match kind {
            MountKind::Bind { access, .. } if at == *path => found = Some(access),
            MountKind::Mask => covers.push(Cover {
                at,
                kind: CoverKind::Hidden,
            }),
            MountKind::Bind {
                access: Access::ReadOnly,
                ..
            } if access == Access::ReadWrite => covers.push(Cover {
                at,
                kind: CoverKind::ReadOnly,
            }),
            // Whatever else the plan has there has its own place in the run already.
            _ => {}
        }
    }
    match found {
        Some(granted) if granted == access => Ok(GrantOrder {
            path: path.clone(),
            access,
            covers,
        }),
        Some(_) => Err(refused(
            path,
            "the policy protects it: it can be granted for reading".to_owned(),
        )),
        None => Err(refused(
            path,
            "the policy hides it, or shows it already with the same access".to_owned(),
        )),
    }
}

/// Opens exactly this path: a link on the way is the business of whoever typed it.
fn open(path: &AbsPath) -> Result<(OwnedFd, FileType), Vec<Fault>> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat2(rustix::fs::CWD, path.as_path(), flags, Mode::empty(), resolve) {
        Ok(opened) => opened,
        Err(Errno::LOOP) => {
            let why = "a component of it is a symlink".to_owned();
            let fault = fault(path, why).help(match std::fs::canonicalize(path.as_path()) {
                Ok(real) => format!("name where it leads, if you mean that: {}", real.display()),
                Err(_) => "name where it leads, if you mean that".to_owned(),
            });
            return Err(vec![fault]);
        }
        Err(error) => return Err(refused(path, error.to_string())),
    };
    match identity(path, &opened)?.2 {
        kind @ (FileType::Directory | FileType::RegularFile) => Ok((opened, kind)),
        _ => Err(refused(path, "it is neither a file nor a directory".to_owned())),
    }
}

fn identity(path: &AbsPath, opened: &OwnedFd) -> Result<(u64, u64, FileType), Vec<Fault>> {
    let stat = rustix::fs::fstat(opened).map_err(|error| refused(path, error.to_string()))?;
    Ok((stat.st_dev, stat.st_ino, FileType::from_raw_mode(stat.st_mode)))
}

pub(super) fn refused(path: &AbsPath, why: String) -> Vec<Fault> {
    vec![fault(path, why)]
}

fn fault(path: &AbsPath, why: String) -> Fault {
    Fault::new(Code::GrantRefused, format!("{path} cannot be granted"), why)
}
