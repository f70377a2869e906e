//! The system-call filter of the agent: an allow-list for one architecture and one entry.
//!
//! Own generator instead of a crate, because the filter needs user notification, an errno per call (`clone3` must
//! answer `ENOSYS` so that C libraries fall back) and a refusal, not a kill, for foreign architectures.
mod program;
mod rules;
mod server;
mod table;

use bastle_contract::{GuardedTree, LaunchPlan, LimitKind, LimitMechanism, TreeKind};
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
    /// Programs are listed: Landlock does not see memory files, so none may be made that could be executed.
    pub(crate) listed: bool,
    /// The host changes a guarded tree meanwhile: writing and removing is judged by name, too.
    pub(crate) live: bool,
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
            listed: plan.exec.is_some(),
            live: plan.guard.trees.iter().any(is_live),
        }
    }
}

/// Whether the host's processes change names in a tree that must be held. The place of grants is not asked: it is empty at
/// the start, and what is mounted there comes with covers of its own.
fn is_live(tree: &GuardedTree) -> bool {
    let named = !tree.hide.is_empty() || !tree.protect.is_empty();
    named && tree.kind == TreeKind::Live && tree.root.as_str() != bastle_contract::grants::GRANTS
}

/// Assembled once: whoever makes many sandboxes by copying itself does it before.
static AHEAD: OnceLock<Filters> = OnceLock::new();

/// The filters of one run, assembled before its plan is there.
pub(crate) struct Filters {
    usual: [(FilterSpec, Vec<Instruction>); 2],
    init: Vec<Instruction>,
}

impl Filters {
    /// For the plans that most runs have: debuggers, no counting, no watchdog; in a copy or in place.
    pub(crate) fn ahead() -> &'static Self {
        AHEAD.get_or_init(Self::assemble)
    }

    fn assemble() -> Self {
        let spec = FilterSpec {
            debuggers: true,
            counting: false,
            watched: false,
            pinned: false,
            listed: false,
            live: false,
        };
        let in_place = FilterSpec { live: true, ..spec };
        Self {
            usual: [spec, in_place].map(|spec| (spec, for_agent(spec))),
            init: for_init(),
        }
    }

    /// The filter of the agent and all its children.
    pub(crate) fn agent(&self, spec: FilterSpec) -> Cow<'_, [Instruction]> {
        match self.usual.iter().find(|(usual, _)| *usual == spec) {
            Some((_, filter)) => Cow::Borrowed(filter),
            None => Cow::Owned(for_agent(spec)),
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

/// The filter of egress, for a process of this number.
pub(crate) fn for_server(own: u32) -> Vec<Instruction> {
    program::assemble(&server::rules(own))
}
