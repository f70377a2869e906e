//! Why a fence cannot be built: one code for each cause, the same in `--json`, in text and in `docs/doctor.md`.
use serde::Serialize;

/// The proven cause of a trial that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    AlreadyFenced,
    ApparmorProfileDenies,
    ApparmorProfileNotLoaded,
    ApparmorProfileOtherPath,
    ApparmorRestriction,
    Chroot,
    IdmapUnsupported,
    KernelTooOld,
    LandlockNotBuilt,
    LandlockOff,
    LsmDenies,
    NamespaceLimitReached,
    NamespaceLimitZero,
    NamespacesNotBuilt,
    PolicyUnusable,
    ProbeFailed,
    ProcCovered,
    PtraceScope,
    RootWithoutCapabilities,
    SeccompFilter,
    SeccompNotifyMissing,
    SpawnerService,
    StateUnwritable,
    Unknown,
    UnmappedUser,
    UserNamespacesOff,
}

/// How a cause is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// A command line that removes it on this host; `doctor --fix` runs it as it is printed.
    Command(String),
    /// What a person has to do elsewhere, or decide.
    Instruction(String),
}

/// A cause with what proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) cause: Cause,
    pub(crate) proof: String,
    pub(crate) fix: Fix,
}

impl Cause {
    /// The code as it is written in JSON and in text.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::AlreadyFenced => "already-fenced",
            Self::ApparmorProfileDenies => "apparmor-profile-denies",
            Self::ApparmorProfileNotLoaded => "apparmor-profile-not-loaded",
            Self::ApparmorProfileOtherPath => "apparmor-profile-other-path",
            Self::ApparmorRestriction => "apparmor-restriction",
            Self::Chroot => "chroot",
            Self::IdmapUnsupported => "idmap-unsupported",
            Self::KernelTooOld => "kernel-too-old",
            Self::LandlockNotBuilt => "landlock-not-built",
            Self::LandlockOff => "landlock-off",
            Self::LsmDenies => "lsm-denies",
            Self::NamespaceLimitReached => "namespace-limit-reached",
            Self::NamespaceLimitZero => "namespace-limit-zero",
            Self::NamespacesNotBuilt => "namespaces-not-built",
            Self::PolicyUnusable => "policy-unusable",
            Self::ProbeFailed => "probe-failed",
            Self::ProcCovered => "proc-covered",
            Self::PtraceScope => "ptrace-scope",
            Self::RootWithoutCapabilities => "root-without-capabilities",
            Self::SeccompFilter => "seccomp-filter",
            Self::SeccompNotifyMissing => "seccomp-notify-missing",
            Self::SpawnerService => "spawner-service",
            Self::StateUnwritable => "state-unwritable",
            Self::Unknown => "unknown",
            Self::UnmappedUser => "unmapped-user",
            Self::UserNamespacesOff => "user-namespaces-off",
        }
    }

    #[cfg(test)]
    pub(crate) const ALL: &[Self] = &[
        Self::AlreadyFenced,
        Self::ApparmorProfileDenies,
        Self::ApparmorProfileNotLoaded,
        Self::ApparmorProfileOtherPath,
        Self::ApparmorRestriction,
        Self::Chroot,
        Self::IdmapUnsupported,
        Self::KernelTooOld,
        Self::LandlockNotBuilt,
        Self::LandlockOff,
        Self::LsmDenies,
        Self::NamespaceLimitReached,
        Self::NamespaceLimitZero,
        Self::NamespacesNotBuilt,
        Self::PolicyUnusable,
        Self::ProbeFailed,
        Self::ProcCovered,
        Self::PtraceScope,
        Self::RootWithoutCapabilities,
        Self::SeccompFilter,
        Self::SeccompNotifyMissing,
        Self::SpawnerService,
        Self::StateUnwritable,
        Self::Unknown,
        Self::UnmappedUser,
        Self::UserNamespacesOff,
    ];
}

impl Fix {
    /// What is printed.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Command(text) | Self::Instruction(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_written_alike_in_json_in_the_schema_and_in_the_documentation() {
        let page = include_str!("../../../../../../docs/doctor.md");
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../schemas/doctor.schema.json")).unwrap();
        let published: Vec<&str> = schema["$defs"]["cause"]["enum"]
            .as_array()
            .unwrap()
            .iter()
            .map(|code| code.as_str().unwrap())
            .collect();
        let codes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
        assert_eq!(published, codes);
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.code());
            let row = format!("| `{}` |", cause.code());
            assert_eq!(page.matches(&row).count(), 1, "{row}");
        }
    }
}
