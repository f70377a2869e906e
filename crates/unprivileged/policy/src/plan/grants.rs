//! What a plan gets so that paths can be granted while the run lives: an empty place for them, and the broker's client.
//!
//! **Trust:** the place is part of the constructed root, which nobody inside can change. Landlock lets the agent do there
//! what the mounts let it do; without a grant there is nothing to do.
use super::facts::{Names, patterns};
use super::{PlanLine, Planned, built_in};
use crate::effective::Effective;
use bastle_contract::grants::{BROKER_CLIENT, BROKER_SOCKET, GRANTS, GRANTS_README};
use bastle_contract::{
    AbsPath, Access, BackendKind, Code, Fault, Guarantee, GuardedTree, LandlockRule, Mechanism, Mount,
    MountKind, TreeKind,
};

/// Told to whoever looks there.
const README: &str = "Files and directories that a person grants to this run while it lives appear below this directory,\n\
    under their path outside. Single files are served by: bastle-fs ls, bastle-fs cat NAME, bastle-fs put NAME\n";

impl Planned {
    /// Makes room for grants. `client` is this binary on the host, where it can be shown inside.
    pub fn with_grants(&mut self, effective: &Effective, client: Option<AbsPath>) -> Result<(), Fault> {
        if self.plan.backend != BackendKind::Native {
            return Ok(());
        }
        let place = constant(GRANTS)?;
        // What a person granted at the start has a right to its own name.
        if self.plan.mounts.iter().any(|mount| mount.at.is_within(&place)) {
            return Ok(());
        }
        self.made_file(GRANTS_README, README)?;
        self.rule(place.clone(), Access::ReadWrite);
        // Names hold there as they do everywhere: below the place lies the host's root, as far as it is granted.
        let slash = AbsPath::root();
        self.plan.guard.trees.push(GuardedTree {
            root: place,
            hide: patterns(effective, &slash, Names::Hidden),
            protect: patterns(effective, &slash, Names::Protected),
            pinned: super::live::pinned().into(),
            kind: TreeKind::Live,
        });
        if let Some(client) = client {
            self.client(client)?;
        }
        self.listing.push(PlanLine {
            section: "fs".to_owned(),
            rule: GRANTS.to_owned(),
            origin: built_in(),
            mechanism: Mechanism::Mount,
            probe: Some(Guarantee::WritesConfined),
            note: format!("empty until somebody grants something; the broker listens on {BROKER_SOCKET}"),
        });
        self.plan.check().map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "the policy compiles to a plan that nobody can execute",
                error.to_string(),
            )
        })
    }

    fn client(&mut self, client: AbsPath) -> Result<(), Fault> {
        let at = constant(BROKER_CLIENT)?;
        let Some(directory) = at.parent() else {
            return Ok(());
        };
        self.plan.mounts.push(Mount {
            at,
            kind: MountKind::Bind {
                source: client,
                access: Access::ReadOnly,
                owned: false,
            },
        });
        self.rule(directory.clone(), Access::ReadOnly);
        // Last: a program of the same name that the policy shows comes first.
        if let Some((_, path)) = self.plan.env.iter_mut().find(|(name, _)| name.as_str() == "PATH") {
            path.push(':');
            path.push_str(directory.as_str());
        }
        Ok(())
    }

    fn made_file(&mut self, at: &str, contents: &str) -> Result<(), Fault> {
        self.plan.mounts.push(Mount {
            at: constant(at)?,
            kind: MountKind::File {
                contents: contents.to_owned(),
            },
        });
        Ok(())
    }

    fn rule(&mut self, path: AbsPath, access: Access) {
        self.plan.landlock.push(LandlockRule { path, access });
        self.plan.landlock.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

fn constant(path: &str) -> Result<AbsPath, Fault> {
    AbsPath::new(path)
        .map_err(|error| Fault::new(Code::FenceStep, "a built-in path is malformed", error.to_string()))
}
