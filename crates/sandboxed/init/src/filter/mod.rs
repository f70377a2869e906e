//! The system-call filter of the agent: an allow-list for one architecture and one entry.
//!
//! Own generator instead of a crate, because the filter needs user notification, an errno per call (`clone3` must
//! answer `ENOSYS` so that C libraries fall back) and a refusal, not a kill, for foreign architectures.
mod program;
mod rules;
mod server;
mod table;

use bastle_contract::{LaunchPlan, LimitKind, LimitMechanism};
use bastle_sys::seccomp::Instruction;
use std::borrow::Cow;
use std::sync::OnceLock;

pub(crate) use rules::{Guarded, guarded, told};

/// What the plan asks of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterSpec {
    /// `ptrace` and `process_vm_*` between the agent's own processes.
    pub(crate) debuggers: bool,
    /// The write guard counts bytes and files, so writing calls are handed over too.
    pub(crate) counting: bool,
    /// Memory is held by the watchdog, which cannot see memory files that are not mapped.
    pub(crate) watched: bool,
    /// Processors are pinned: changing the affinity is refused.
    pub(crate) pinned: bool,
}

impl FilterSpec {
    /// Reads it off the plan.
    pub(crate) fn of(plan: &LaunchPlan) -> Self {
        Self {
            debuggers: plan.debuggers,
            counting: plan.limits.iter().any(|rule| rule.mechanism.counts_writes()),
            watched: plan
                .limit(LimitKind::Memory)
                .is_some_and(|rule| rule.mechanism == LimitMechanism::RlimitAndWatchdog),
            pinned: plan
                .limit(LimitKind::Cpu)
                .is_some_and(|rule| rule.mechanism == LimitMechanism::Affinity),
        }
    }
}

/// Assembled once: whoever makes many sandboxes by copying itself does it before.
static AHEAD: OnceLock<Filters> = OnceLock::new();

/// The filters of one run, assembled before its plan is there.
pub(crate) struct Filters {
    usual: (FilterSpec, Vec<Instruction>),
    init: Vec<Instruction>,
}

impl Filters {
    /// For the plan that most runs have: debuggers, no counting, no watchdog.
    pub(crate) fn ahead() -> &'static Self {
        AHEAD.get_or_init(Self::assemble)
    }

    fn assemble() -> Self {
        let spec = FilterSpec {
            debuggers: true,
            counting: false,
            watched: false,
            pinned: false,
        };
        Self {
            usual: (spec, for_agent(spec)),
            init: for_init(),
        }
    }

    /// The filter of the agent and all its children.
    pub(crate) fn agent(&self, spec: FilterSpec) -> Cow<'_, [Instruction]> {
        if spec == self.usual.0 {
            Cow::Borrowed(&self.usual.1)
        } else {
            Cow::Owned(for_agent(spec))
        }
    }

    /// The filter of init itself.
    pub(crate) fn init(&self) -> &[Instruction] {
        &self.init
    }
}

/// The filter of the agent and all its children.
pub(crate) fn for_agent(spec: FilterSpec) -> Vec<Instruction> {
    program::assemble(&rules::for_agent(spec))
}

/// The filter of init itself, once the agent runs: the same without hand-over, and with the calls the guard needs.
fn for_init() -> Vec<Instruction> {
    program::assemble(&rules::for_init())
}

/// The filter of egress.
pub(crate) fn for_server() -> Vec<Instruction> {
    program::assemble(&server::rules())
}
