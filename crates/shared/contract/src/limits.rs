//! Limits of a run and the mechanism that holds each.
use serde::{Deserialize, Serialize};
use std::fmt;

/// One kind of limit. The unit of its value is part of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// Wall-clock time, milliseconds, by the host's monotonic clock.
    WallTime,
    /// Processor time of one process, seconds.
    CpuTime,
    /// Processors, in thousandths (1500 = one and a half).
    Cpu,
    /// Memory of the whole run, bytes.
    Memory,
    /// Processes and threads at once.
    Pids,
    /// Open descriptors of one process.
    OpenFiles,
    /// Bytes the run may add to the workspace, and the size of its private HOME and TMPDIR.
    Disk,
    /// Files and directories the run may create.
    Inodes,
    /// Distinct existing or new files the run may create, change, rename or remove in the workspace.
    Files,
    /// Bytes the run may write to workspace files in all, overwriting included.
    BytesWritten,
    /// Bytes of standard output and standard error passed on.
    Output,
    /// Bytes of one file.
    FileSize,
    /// Bytes that stay free on every file system the run can write to; more is stricter.
    DiskReserve,
}

/// What holds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitMechanism {
    /// A cgroup v2 controller.
    CgroupV2,
    /// A cgroup v1 controller.
    CgroupV1,
    /// A per-process or per-user-namespace rlimit.
    Rlimit,
    /// An rlimit per process, and a watchdog inside the sandbox for the sum.
    RlimitAndWatchdog,
    /// CPU affinity, with the calls that change it refused.
    Affinity,
    /// The size of a tmpfs, enforced by the kernel.
    Tmpfs,
    /// The write guard: calls that create or write are carried out by init, which counts first.
    WriteGuard,
    /// A tmpfs for private directories and the write guard for the workspace.
    TmpfsAndWriteGuard,
    /// The relay between the agent and the terminal.
    Relay,
    /// A timer in the spawner, then a kill of the whole tree.
    Timer,
    /// A watchdog inside the sandbox that looks at the host's memory, and at the run's when that becomes scarce.
    Watchdog,
    /// Control looks at the free space, the more often the less there is, and freezes the run.
    FreeSpace,
    /// The same, with at most a twentieth of each file system kept free: what a preset asks for on any host.
    FreeSpaceShare,
    /// Nothing: only with a named waiver.
    Waived,
}

/// One limit of a plan: what, how much, held how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRule {
    /// What is limited.
    pub limit: LimitKind,
    /// How much, in the kind's unit.
    pub value: u64,
    /// What holds it.
    pub mechanism: LimitMechanism,
}

impl LimitRule {
    /// What a disk reserve keeps free of a file system of this size. `None`: this is none, or it is not held.
    #[must_use]
    pub fn kept_free(&self, size: u64) -> Option<u64> {
        match (self.limit, self.mechanism) {
            (LimitKind::DiskReserve, LimitMechanism::FreeSpace) => Some(self.value),
            (LimitKind::DiskReserve, LimitMechanism::FreeSpaceShare) => Some(self.value.min(size / 20)),
            _ => None,
        }
    }
}

impl LimitMechanism {
    /// Whether the write guard must see every writing call for it.
    #[must_use]
    pub fn counts_writes(self) -> bool {
        matches!(self, Self::WriteGuard | Self::TmpfsAndWriteGuard)
    }
}

impl LimitKind {
    /// Every kind, in the order they are shown.
    pub const ALL: [Self; 13] = [
        Self::WallTime,
        Self::CpuTime,
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::OpenFiles,
        Self::Disk,
        Self::Inodes,
        Self::Files,
        Self::BytesWritten,
        Self::Output,
        Self::FileSize,
        Self::DiskReserve,
    ];

    /// Of two values, which one binds more comes first.
    #[must_use]
    pub fn stricter_first(self, one: &u64, other: &u64) -> std::cmp::Ordering {
        match self {
            Self::DiskReserve => other.cmp(one),
            Self::WallTime
            | Self::CpuTime
            | Self::Cpu
            | Self::Memory
            | Self::Pids
            | Self::OpenFiles
            | Self::Disk
            | Self::Inodes
            | Self::Files
            | Self::BytesWritten
            | Self::Output
            | Self::FileSize => one.cmp(other),
        }
    }

    /// The name used in policies, events and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WallTime => "timeout",
            Self::CpuTime => "cpuTime",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::OpenFiles => "openFiles",
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Files => "files",
            Self::BytesWritten => "bytesWritten",
            Self::Output => "output",
            Self::FileSize => "fileSize",
            Self::DiskReserve => "diskReserve",
        }
    }

    /// The smallest and largest value that can be held.
    #[must_use]
    pub fn range(self) -> (u64, u64) {
        const TIB: u64 = 1 << 40;
        match self {
            Self::WallTime => (1, 30 * 24 * 3600 * 1000),
            Self::CpuTime => (1, 30 * 24 * 3600),
            Self::Cpu => (10, 4096 * 1000),
            // Below 8 MiB not even init and a shell start.
            Self::Memory => (8 << 20, 64 * TIB),
            // init, the agent and one child.
            Self::Pids => (3, 4_194_304),
            Self::OpenFiles => (16, 1_048_576),
            Self::Disk => (64 << 10, 64 * TIB),
            Self::Inodes => (16, 1 << 40),
            Self::Files => (0, 1 << 40),
            Self::BytesWritten => (0, 64 * TIB),
            Self::Output => (0, 64 * TIB),
            Self::FileSize => (64 << 10, 64 * TIB),
            Self::DiskReserve => (0, 64 * TIB),
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
