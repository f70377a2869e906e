//! Control's side of egress: the process, what it is told, and what the sandbox needs to trust it.
mod git_config;
mod groups;
mod process;
mod remotes;
mod rules;
mod surroundings;
mod totals;
mod trust;

pub use process::{EGRESS_VERB, Egress};
pub use rules::Rules;
pub use rules::digest as table_digest;
pub(crate) use rules::reaches;
pub use totals::NetTotals;

pub(crate) use process::Ready;
pub(crate) use trust::Trusted;

use crate::secrets::{Canary, Secrets};
use bastle_contract::egress::Faces;
use bastle_contract::{Fault, ProbeResult, RunId};
use bastle_policy::NetPolicy;
use std::os::fd::OwnedFd;

/// Who can answer a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attendance {
    /// Nobody: asking is denying.
    #[default]
    Nobody,
    /// The person at the keyboard of this process, or at another terminal.
    Keyboard,
    /// A person at another terminal.
    Elsewhere,
}

/// Everything that configures an egress process, kept so that another can take its place.
pub(crate) struct Setup {
    pub(crate) run: RunId,
    pub(crate) attendance: Attendance,
    /// Sustained processor time of egress in thousandths of a processor.
    pub(crate) cpu: u64,
    pub(crate) table: NetPolicy,
    pub(crate) secrets: Secrets,
    pub(crate) canary: Option<Canary>,
    pub(crate) authority: Option<String>,
    pub(crate) kept: Vec<OwnedFd>,
    /// What the first process found out about its own fence; one that takes its place proves it again or ends.
    pub(crate) probes: Vec<ProbeResult>,
    pub(crate) faces: Faces,
}

/// A configured egress process and what can change its rules.
pub(crate) struct Outlet {
    pub(crate) egress: Egress,
    pub(crate) setup: Setup,
    pub(crate) rules: Rules,
}

impl Setup {
    /// Tells a process everything; [`Egress::answer`] has its reply.
    pub(crate) fn ask(&self, egress: &Egress) -> Result<(), Fault> {
        egress.ask(self)
    }

    /// Configures a process, and waits until it is.
    pub(crate) fn configure(&self, egress: &Egress) -> Result<Ready, Fault> {
        self.ask(egress)?;
        egress.answer()
    }
}
