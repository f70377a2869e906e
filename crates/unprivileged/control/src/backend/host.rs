//! The host backend as a backend: it has no fence, keeps no sandbox and says so.
//!
//! **Deliberately absent:** a way to start anything. Without a fence a command is started by a person's own command line
//! and by nothing else ([`crate::host::NotAFence`]).
use super::{Destroyed, Health, IsolationBackend, Operation, Probe, Sandbox, unsupported};
use bastle_contract::runs::LaunchSpec;
use bastle_contract::{BackendKind, Code, Fault, RunId};

/// No fence at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostBackend;

impl IsolationBackend for HostBackend {
    fn name(&self) -> BackendKind {
        BackendKind::Host
    }

    fn probe(&self) -> Probe {
        Probe {
            available: true,
            fence: "none: SOFT_SANDBOX=true".to_owned(),
            fault: None,
        }
    }

    fn create(&self, _spec: &LaunchSpec) -> Result<Box<dyn Sandbox>, Vec<Fault>> {
        Err(vec![
            unsupported(
                "the host backend",
                Operation::Create,
                "nothing would fence it; only a person's own command line starts such a run",
            )
            .help("bastle run --backend host --i-understand-this-is-not-a-fence -- CMD"),
        ])
    }

    fn list(&self) -> Result<Vec<RunId>, Fault> {
        Ok(Vec::new())
    }

    fn get(&self, id: &RunId) -> Result<Box<dyn Sandbox>, Fault> {
        Err(Fault::new(
            Code::RunMissing,
            format!("there is no sandbox {id}"),
            "the host backend keeps none",
        ))
    }

    fn destroy_all(&self) -> Result<Vec<Destroyed>, Fault> {
        Ok(Vec::new())
    }

    fn health(&self) -> Health {
        Health {
            alive: 0,
            faults: Vec::new(),
        }
    }
}
