//! Admission: the last check before anything is done. Does not trust the plan; its types check themselves again here.
use bastle_contract::{BackendKind, Code, Fault, LaunchPlan, MAX_PLAN, Stdio, ToSpawner, WIRE_VERSION};
use rustix::fs::SealFlags;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// A plan that may be executed. Made only here.
pub(crate) struct Admitted {
    plan: LaunchPlan,
    events: OwnedFd,
    attachments: Option<OwnedFd>,
    stdio: Vec<OwnedFd>,
}

impl Admitted {
    /// The parts, for the one function that executes them.
    pub(crate) fn into_parts(self) -> (LaunchPlan, OwnedFd, Option<OwnedFd>, Vec<OwnedFd>) {
        (self.plan, self.events, self.attachments, self.stdio)
    }
}

/// Checks a launch frame, its descriptors and the plan behind the first of them.
pub(crate) fn admit(frame: &ToSpawner, descriptors: Vec<OwnedFd>) -> Result<Admitted, Fault> {
    let ToSpawner::Launch { version } = frame else {
        return Err(refused("the first frame must be a launch"));
    };
    if *version != WIRE_VERSION {
        return Err(refused(format!(
            "frame version {version}, this spawner speaks {WIRE_VERSION}"
        )));
    }
    let mut descriptors = descriptors.into_iter();
    let (Some(document), Some(events)) = (descriptors.next(), descriptors.next()) else {
        return Err(refused("the launch frame lacks its descriptors"));
    };
    let plan = read_plan(document)?;
    let attachments = match &plan.attachments {
        Some(_) => {
            let attachments = descriptors.next().ok_or_else(|| refused("the attachments are missing"))?;
            sealed(&attachments, "the attachments")?;
            Some(attachments)
        }
        None => None,
    };
    let stdio: Vec<OwnedFd> = descriptors.collect();
    plan.check()
        .map_err(|error| Fault::new(Code::FenceStep, "the plan was refused", error.to_string()))?;
    if plan.backend != BackendKind::Native {
        return Err(Fault::new(
            Code::FenceBackend,
            format!("the spawner does not serve backend {}", plan.backend),
            "",
        ));
    }
    let expected = match plan.stdio {
        Stdio::Pipes => 3,
        Stdio::Pty { .. } => 0,
    };
    if stdio.len() != expected {
        return Err(refused(format!(
            "{} standard streams, {expected} expected",
            stdio.len()
        )));
    }
    Ok(Admitted {
        plan,
        events,
        attachments,
        stdio,
    })
}

/// The fault for bytes that are no frame.
pub(crate) fn malformed(error: &std::io::Error) -> Fault {
    refused(error.to_string())
}

/// Reads a plan that nobody can change any more.
fn read_plan(document: OwnedFd) -> Result<LaunchPlan, Fault> {
    sealed(&document, "the plan")?;
    let mut bytes = Vec::new();
    File::from(document)
        .take(MAX_PLAN as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| refused(format!("the plan cannot be read: {error}")))?;
    if bytes.len() > MAX_PLAN {
        return Err(refused(format!("the plan is larger than {MAX_PLAN} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| refused(format!("the plan is malformed: {error}")))
}

/// Checks that nobody can change a memory file any more.
fn sealed(document: &OwnedFd, what: &str) -> Result<(), Fault> {
    let needed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let seals = rustix::fs::fcntl_get_seals(document)
        .map_err(|error| refused(format!("{what}: no sealed memory file: {error}")))?;
    if seals.contains(needed) {
        Ok(())
    } else {
        Err(refused(format!(
            "{what} can still be changed: the memory file is not sealed"
        )))
    }
}

fn refused(why: impl Into<String>) -> Fault {
    Fault::new(Code::FenceStep, "the spawner refused the launch", why)
}
