//! Admission: the last check before anything is done. Does not trust the plan; its types check themselves again here.
use bastle_contract::{BackendKind, Code, Fault, LaunchParts, LaunchPlan, ToSpawner, WIRE_VERSION};
use std::os::fd::OwnedFd;

/// A plan that may be executed. Made only here.
pub(crate) struct Admitted {
    plan: LaunchPlan,
}

impl Admitted {
    /// The plan, for the one function that executes it.
    pub(crate) fn into_plan(self) -> LaunchPlan {
        self.plan
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
    let plan = LaunchParts::read(descriptors).map_err(refused)?.plan;
    plan.check()
        .map_err(|error| Fault::new(Code::FenceStep, "the plan was refused", error.to_string()))?;
    if plan.backend != BackendKind::Native {
        return Err(Fault::new(
            Code::FenceBackend,
            format!("the spawner does not serve backend {}", plan.backend),
            "",
        ));
    }
    Ok(Admitted { plan })
}

/// The fault for bytes that are no frame.
pub(crate) fn malformed(error: &std::io::Error) -> Fault {
    refused(error.to_string())
}

fn refused(why: impl Into<String>) -> Fault {
    Fault::new(Code::FenceStep, "the spawner refused the launch", why)
}
