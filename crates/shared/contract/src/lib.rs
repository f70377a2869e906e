//! Types that cross a trust boundary of bastle, and the socket framing that carries them. No unsafe.
//!
//! **Invariant:** every type here checks itself when built or parsed, so a value that exists is valid and
//! the privileged side re-checks by deserialising. Unknown fields are refused everywhere.
#![forbid(unsafe_code)]

mod authority;
mod bounds;
mod built_in_names;
mod cgroup;
mod code;
pub mod egress;
mod env;
mod event;
mod facts;
mod fault;
mod files;
pub mod grants;
mod guarantee;
mod handover;
mod host_executed;
mod id;
mod landlock;
mod launch;
mod limits;
mod name_pattern;
mod names;
mod path;
mod pattern_index;
mod plan;
pub mod runs;
pub mod socket;
pub mod spawner;
mod statement;
pub mod stream;
mod trace;
mod waiver;
mod wire;

pub use authority::{Authority, Lack};
pub use bounds::Bounds;
pub use built_in_names::{BuiltInNames, GIT_NAMES};
pub use cgroup::{CgroupProblem, UnitManager};
pub use code::{Code, CodeInfo, ExitCode};
pub use env::{Argv, ArgvError, EnvName, EnvNameError};
pub use event::{DenialKind, Denied, Event, ExecSeen, LimitHit, LimitLost, LossSign, Usage};
pub use facts::{CgroupFacts, CgroupFlavour, Controller, HostFacts, IdMapping};
pub use fault::Fault;
pub use files::{ChangeSight, ChangeSort, FileChange, FileSeen, FileState, FileUse, FilesTold, ReadSight};
pub use guarantee::{Enforcement, Guarantee, Mechanism};
pub use handover::{Birth, CgroupEvidence, Claim, FromChild, Handover, OutOfReach, ToChild};
pub use host_executed::{HostExecuted, HostExecutedKind};
pub use id::{Digest, DigestError, RunId, RunIdError};
pub use landlock::{LandlockPart, LandlockParts, LandlockTwice};
pub use launch::{LaunchParts, check_sealed, read_sealed, seal};
pub use limits::{LimitKind, LimitMechanism, LimitRule};
pub use name_pattern::{NamePattern, NamePatternError};
pub use names::{NameList, OpenName, OpenScope, Opening};
pub use path::{AbsPath, AbsPathError};
pub use pattern_index::PatternIndex;
pub use plan::{
    Access, BackendKind, ExecList, Guard, GuardedTree, LandlockRule, LaunchPlan, Mount, MountKind, Network,
    PlanError, Stdio, TreeKind,
};
pub use statement::{CapabilityStatement, ProbeResult, Verdict};
pub use trace::{TRACE_VARIABLE, TraceError, TraceParent};
pub use waiver::{WaivedLayer, Waiver};
pub use wire::{
    ExecWish, FromInit, FromSpawner, MAX_DIALS, MAX_EXECS, MAX_FRAME, MAX_PLAN, ToInit, ToSpawner,
    WIRE_VERSION, WireError, decode, encode,
};
