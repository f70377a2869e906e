//! Guarantees: the named controls a fence consists of, and what was really enforced.
use serde::{Deserialize, Serialize};
use std::fmt;

/// One named control. Each has at least one probe that runs inside the finished sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Only the paths of the plan exist inside; the host's root does not.
    ReadsConfined,
    /// Only the writable mounts can be written.
    WritesConfined,
    /// Hidden files that existed at start cannot be read.
    SecretsHidden,
    /// Names hidden or protected by pattern cannot be created later.
    NamesGuarded,
    /// Landlock restricts the process besides the mounts.
    #[serde(alias = "landlock-enforced")]
    LandlockFs,
    /// Landlock refuses to truncate what may not be written.
    LandlockTruncate,
    /// Landlock refuses requests to devices.
    LandlockIoctl,
    /// Landlock refuses signals and abstract sockets across its border.
    LandlockScopes,
    /// Landlock refuses connections to Unix sockets that have a path and were made outside its border.
    LandlockUnix,
    /// Read-only mounts refuse to truncate, where Landlock cannot.
    TruncateByMount,
    /// Only harmless device nodes can be opened, where Landlock does not see requests to devices.
    IoctlByDevices,
    /// The PID namespace keeps signals inside, where Landlock cannot.
    SignalsByPidNamespace,
    /// The network namespace keeps abstract sockets apart, where Landlock cannot.
    AbstractSocketsByNetNamespace,
    /// Unix sockets of the host have no path inside, where Landlock cannot refuse connections to them.
    PathSocketsByMountNamespace,
    /// `/proc` is mounted read-only, where Landlock cannot refuse writes to a process's own files there.
    ProcWritesByMount,
    /// The directory where a live grant waits is closed by its mode, where Landlock cannot close it.
    StagedGrantsByMode,
    /// Only the program files of `exec.allow` execute.
    ProgramsListed,
    /// No route, no interface but loopback.
    NetConfined,
    /// Egress reaches no file, no Unix socket and no other process of the host. Proven by egress itself.
    EgressConfined,
    /// Host processes cannot be seen or signalled.
    ProcessesHidden,
    /// Own System V and POSIX IPC.
    IpcIsolated,
    /// Own host name.
    UtsIsolated,
    /// Own cgroup root.
    CgroupIsolated,
    /// Own user namespace and an unprivileged identity outside it.
    UnprivilegedUid,
    /// No capability in any set.
    NoCapabilities,
    /// `no_new_privs` is set.
    NoNewPrivs,
    /// The system-call filter is in force, through every entry.
    SyscallsFiltered,
    /// No further user namespace can be made.
    NoNestedNamespaces,
    /// Own session; no way to push bytes into the caller's terminal.
    OwnSession,
    /// No descriptor above 2.
    NoInheritedDescriptors,
    /// Only the environment of the plan.
    EnvironmentCleared,
    /// Only the minimal device nodes.
    DevicesMinimal,
    /// Kernel files in `/proc` are masked or read-only.
    ProcMasked,
    /// Core dumps are off.
    NoCoreDumps,
    /// Number of processes is limited.
    PidsLimited,
    /// Memory is limited.
    MemoryLimited,
    /// Processor use is limited.
    CpuLimited,
    /// Open descriptors are limited.
    OpenFilesLimited,
    /// The size of a file is limited.
    FileSizeLimited,
    /// Private directories are limited in bytes and inodes; the workspace by the write guard.
    DiskLimited,
    /// The write guard counts and refuses.
    WritesCounted,
}

/// How a rule or guarantee is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A mount in the constructed root, or its absence.
    Mount,
    /// A Landlock rule.
    Landlock,
    /// The system-call filter.
    Seccomp,
    /// The write guard in init (seccomp user notification; the call is carried out by init).
    Guard,
    /// A cgroup.
    Cgroup,
    /// An rlimit.
    Rlimit,
    /// A namespace.
    Namespace,
    /// The network namespace has no way out.
    Netns,
    /// The egress proxy.
    Proxy,
    /// A masked program file: holds for that path, not for a copy of the program.
    Shim,
    /// Not enforced: advice to the agent.
    Advisory,
}

/// What a backend made of one guarantee. Must be read.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", deny_unknown_fields)]
pub enum Enforcement {
    /// Fully enforced.
    Full,
    /// Enforced with a gap.
    Partial {
        /// What is missing.
        gap: String,
    },
    /// Not enforced.
    Absent,
}

impl Guarantee {
    /// The name used in statements and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadsConfined => "reads-confined",
            Self::WritesConfined => "writes-confined",
            Self::SecretsHidden => "secrets-hidden",
            Self::NamesGuarded => "names-guarded",
            Self::LandlockFs => "landlock-fs",
            Self::LandlockTruncate => "landlock-truncate",
            Self::LandlockIoctl => "landlock-ioctl",
            Self::LandlockScopes => "landlock-scopes",
            Self::LandlockUnix => "landlock-unix",
            Self::TruncateByMount => "truncate-by-mount",
            Self::IoctlByDevices => "ioctl-by-devices",
            Self::SignalsByPidNamespace => "signals-by-pid-namespace",
            Self::AbstractSocketsByNetNamespace => "abstract-sockets-by-net-namespace",
            Self::PathSocketsByMountNamespace => "path-sockets-by-mount-namespace",
            Self::ProcWritesByMount => "proc-writes-by-mount",
            Self::StagedGrantsByMode => "staged-grants-by-mode",
            Self::ProgramsListed => "programs-listed",
            Self::NetConfined => "net-confined",
            Self::EgressConfined => "egress-confined",
            Self::ProcessesHidden => "processes-hidden",
            Self::IpcIsolated => "ipc-isolated",
            Self::UtsIsolated => "uts-isolated",
            Self::CgroupIsolated => "cgroup-isolated",
            Self::UnprivilegedUid => "unprivileged-uid",
            Self::NoCapabilities => "no-capabilities",
            Self::NoNewPrivs => "no-new-privs",
            Self::SyscallsFiltered => "syscalls-filtered",
            Self::NoNestedNamespaces => "no-nested-namespaces",
            Self::OwnSession => "own-session",
            Self::NoInheritedDescriptors => "no-inherited-descriptors",
            Self::EnvironmentCleared => "environment-cleared",
            Self::DevicesMinimal => "devices-minimal",
            Self::ProcMasked => "proc-masked",
            Self::NoCoreDumps => "no-core-dumps",
            Self::PidsLimited => "pids-limited",
            Self::MemoryLimited => "memory-limited",
            Self::CpuLimited => "cpu-limited",
            Self::OpenFilesLimited => "open-files-limited",
            Self::FileSizeLimited => "file-size-limited",
            Self::DiskLimited => "disk-limited",
            Self::WritesCounted => "writes-counted",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Mechanism {
    /// The name used in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Guard => "guard",
            Self::Cgroup => "cgroup",
            Self::Rlimit => "rlimit",
            Self::Namespace => "namespace",
            Self::Netns => "netns",
            Self::Proxy => "proxy",
            Self::Shim => "shim",
            Self::Advisory => "advisory",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
