//! Pure judgement and planning: documents, layers, merge, decide, plan, explain, lint.
//!
//! **Trust:** runs unprivileged and reads untrusted bytes (policy files of a workspace). It does no I/O, reads
//! no clock and no environment: everything it needs is handed in, so the same input gives the same answer for
//! the kernel plan, `why`, `can-i`, dry-run and lint.
#![forbid(unsafe_code)]

pub mod agent;
mod authority;
mod blocked;
pub mod caches;
mod canonical;
pub mod command;
mod commands;
mod decide;
mod diff;
mod document;
mod effective;
mod explain;
mod fsmap;
pub mod fuzzing;
mod groups;
mod host;
pub mod host_executed;
mod import;
mod json;
mod layers;
mod lint;
mod merge;
mod names;
mod net;
mod netrule;
mod pathrule;
mod permit;
mod plan;
mod preamble;
mod presets;
pub mod profile;
mod query;
mod request;
mod score;
mod selftest;
mod terms;
mod text;
mod tiers;
mod toolrule;
mod units;
mod urlpath;

pub use authority::{
    AskedPath, AuthorityCeiling, Bounded, CeilingForm, Excess, Wanted, WorkspaceMode, asked_paths, beyond,
    reserved,
};
pub use blocked::{BlockedEntry, BlockedList, blocked_list};
pub use decide::{Decision, Outcome, decide, judge};
pub use diff::{DiffLine, diff};
pub use document::{
    Approvals, At, AuditLevel, AuditSection, Budget, CommandLists, Decided, Document, EnvSection, FsSection,
    GitSection, Group, Limits, Mode, NetDefault, NetSection, OnExceed, OnTimeout, Reference, SCHEMA, Secret,
    Section, TestCase, diagnose, parse,
};
pub use effective::{
    Budgets, Effective, ExpansionSummary, GitRules, Inactive, NetRules, Origin, Request, Sourced,
};
pub use explain::explain;
pub use fsmap::{Grade, Reach};
pub use groups::{GroupHost, GroupSources, HostGroup, hosts_of};
pub use host::{Host, HostError, HostPattern};
pub use import::{Became, ImportFile, ImportLine, ImportTool, Imported, Standing as ImportStanding, import};
pub use json::Diagnostic;
pub use layers::{Layer, LayerKind, Surroundings};
pub use lint::{Finding, FindingKind, lint};
pub use merge::{Expansion, MergeOptions, merge};
pub use net::{
    BodyNeed, Cidr, ConnectVerdict, Declared, Force, ForgeWrite, GitPush, HostRole, ModelApi, ModelCall,
    ModelEndpoint, ModelPrice, NetBudget, NetMode, NetPolicy, NetRequest, PushKind, Remote, SecretHeader,
    SecretUse, UnlistedCall, UpstreamProxy, WriteKind,
};
pub use netrule::{NetRule, NetTarget};
pub use pathrule::{Anchor, PathRule};
pub use permit::{Permit, permit};
pub use plan::{
    EgressMaterial, FsFacts, GivenFile, HOME, Led, LedAs, LentCache, LentPlace, Needs, PROGRAMS, PathFact,
    PathKind, PlanLine, Planned, Rendered, TreeNeed, Ways, check_host, countable, egress_cpu, hidden_below,
    needs, needs_of, plan, refuse_shown, render_dry_run, uncounted_hosts, writes_below,
};
pub use preamble::{MAX_PREAMBLE, PreambleFacts, preamble, prompt_with};
pub use presets::{
    FOUND_HERE, SandboxMode, agent_presets, agent_presets_for, default_layers, find as find_preset, floor,
    names, preset, preset_text, read_preset, sandbox_preset, version as preset_version,
};
pub use profile::{PROFILE_SCHEMA, Profile, PromptBy};
pub use query::{NetQuery, Query};
pub use request::{Grant, LaunchAnswer, LaunchApproval, LaunchRequest, Verdict, decide_launch, launch_asks};
pub use score::{Contribution, Score, score, score_of};
pub use selftest::{TestReport, selftest};
pub use terms::{CREDENTIAL_HEADERS, Operation, Operations, Terms};
pub use text::nearest;
pub use tiers::{DangerEntry, Tier, danger_matrix, danger_matrix_page};
pub use units::duration as parse_duration;
pub use urlpath::{CanonicalPath, PathDemand, PathForm};
