//! The parts of Landlock that a kernel has or has not, and what replaces a part that is missing.
//!
//! **Invariant:** a part is either enforced or replaced, and both have a guarantee that is probed in the sandbox.
use crate::Guarantee;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One part. In the order in which kernels got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandlockPart {
    /// Files and directories: without it there is no native fence.
    Fs,
    /// Truncating a file by its path.
    Truncate,
    /// `ioctl` on devices.
    Ioctl,
    /// Signals to and abstract sockets of processes outside.
    Scopes,
    /// Connecting to Unix sockets that have a path and were made outside.
    Unix,
}

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<LandlockPart>", into = "Vec<LandlockPart>")]
pub struct LandlockParts(u8);

/// Why a list is no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the part {0} of Landlock is listed twice")]
pub struct LandlockTwice(LandlockPart);

/// What stands in for a part, and the words for it in the first line of a run.
struct Replacement {
    guarantee: Guarantee,
    what: &'static str,
    by: &'static str,
}

impl LandlockPart {
    /// Every part.
    pub const ALL: [Self; 5] = [Self::Fs, Self::Truncate, Self::Ioctl, Self::Scopes, Self::Unix];

    /// The Landlock ABI that brought it.
    #[must_use]
    pub const fn abi(self) -> u32 {
        match self {
            // The right to move files between directories: without it many tools break.
            Self::Fs => 2,
            Self::Truncate => 3,
            Self::Ioctl => 5,
            Self::Scopes => 6,
            Self::Unix => 9,
        }
    }

    /// What is proven where it is enforced.
    #[must_use]
    pub const fn guarantee(self) -> Guarantee {
        match self {
            Self::Fs => Guarantee::LandlockFs,
            Self::Truncate => Guarantee::LandlockTruncate,
            Self::Ioctl => Guarantee::LandlockIoctl,
            Self::Scopes => Guarantee::LandlockScopes,
            Self::Unix => Guarantee::LandlockUnix,
        }
    }

    fn replacements(self) -> &'static [Replacement] {
        const fn by(guarantee: Guarantee, what: &'static str, by: &'static str) -> Replacement {
            Replacement { guarantee, what, by }
        }
        const FS: &[Replacement] = &[
            by(Guarantee::ProcWritesByMount, "writes to /proc", "read-only mount"),
            by(Guarantee::StagedGrantsByMode, "staged grants", "mode 0"),
        ];
        const TRUNCATE: &[Replacement] = &[by(Guarantee::TruncateByMount, "truncate", "mount")];
        const IOCTL: &[Replacement] = &[by(Guarantee::IoctlByDevices, "ioctl", "device list")];
        const SCOPES: &[Replacement] = &[
            by(Guarantee::SignalsByPidNamespace, "signals", "pid-ns"),
            by(
                Guarantee::AbstractSocketsByNetNamespace,
                "abstract sockets",
                "net-ns",
            ),
        ];
        const UNIX: &[Replacement] = &[by(
            Guarantee::PathSocketsByMountNamespace,
            "path sockets",
            "mount-ns",
        )];
        match self {
            Self::Fs => FS,
            Self::Truncate => TRUNCATE,
            Self::Ioctl => IOCTL,
            Self::Scopes => SCOPES,
            Self::Unix => UNIX,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl LandlockParts {
    /// No Landlock at all.
    pub const NONE: Self = Self(0);

    /// The lowest ABI whose parts the native fence is built with.
    pub const FLOOR: u32 = LandlockPart::Fs.abi();

    /// The parts of an ABI.
    #[must_use]
    pub fn up_to(abi: u32) -> Self {
        Self::found(|part| part.abi() <= abi)
    }

    /// The parts of an ABI, or those that a list names: for tests, which say what a kernel lacks.
    #[must_use]
    pub fn named(word: &str) -> Self {
        match word.parse() {
            Ok(abi) => Self::up_to(abi),
            Err(_) => Self::found(|part| word.split(',').any(|name| name == part.to_string())),
        }
    }

    /// Those that somebody says are there.
    #[must_use]
    pub fn found(is_there: impl Fn(LandlockPart) -> bool) -> Self {
        let found = LandlockPart::ALL.into_iter().filter(|part| is_there(*part));
        found.fold(Self::NONE, Self::with)
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, part: LandlockPart) -> Self {
        Self(self.0 | part.bit())
    }

    /// Whether a part is among them.
    #[must_use]
    pub const fn has(self, part: LandlockPart) -> bool {
        self.0 & part.bit() != 0
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the native fence can be built with them.
    #[must_use]
    pub const fn reach_the_floor(self) -> bool {
        self.has(LandlockPart::Fs)
    }

    /// The highest ABI of which nothing is missing; 0 when there is none.
    #[must_use]
    pub fn abi(self) -> u32 {
        let whole = LandlockPart::ALL.into_iter().take_while(|part| self.has(*part));
        whole.last().map_or(0, LandlockPart::abi)
    }

    /// What is to be proven in every sandbox that is built with them: each part, or what replaces it. Files are never replaced
    /// here: that takes a waiver, see [`crate::LaunchPlan::landlock_guarantees`].
    #[must_use]
    pub fn guarantees(self) -> Vec<Guarantee> {
        let of = |part: LandlockPart| match self.has(part) || part == LandlockPart::Fs {
            true => vec![part.guarantee()],
            false => part.replacements().iter().map(|one| one.guarantee).collect(),
        };
        LandlockPart::ALL.into_iter().flat_map(of).collect()
    }

    /// What is to be proven where a person gave all of Landlock up.
    #[must_use]
    pub fn replacements() -> Vec<Guarantee> {
        let all = LandlockPart::ALL.into_iter().flat_map(LandlockPart::replacements);
        all.map(|one| one.guarantee).collect()
    }

    /// What replaces the missing ones: `signals: pid-ns, truncate: mount`. Empty when nothing does.
    #[must_use]
    pub fn replaced(self) -> String {
        let missing = LandlockPart::ALL
            .into_iter()
            .rev()
            .filter(|part| !self.has(*part));
        let words: Vec<String> = missing
            .flat_map(LandlockPart::replacements)
            .map(|one| format!("{}: {}", one.what, one.by))
            .collect();
        words.join(", ")
    }

    /// The fence that is built with them and `more`: `namespaces+landlock v2+seccomp+cgroup v2 (signals: pid-ns, …)`.
    #[must_use]
    pub fn fence(self, more: &str) -> String {
        let mut fence = match self.reach_the_floor() {
            true => format!("namespaces+landlock v{}+seccomp", self.abi()),
            false => "namespaces+seccomp".to_owned(),
        };
        if !more.is_empty() {
            fence.push('+');
            fence.push_str(more);
        }
        let replaced = self.replaced();
        match (self.reach_the_floor(), replaced.is_empty()) {
            (true, true) => {}
            (true, false) => fence.push_str(&format!(" ({replaced})")),
            (false, _) => fence.push_str(&format!(" (WITHOUT LANDLOCK: {replaced})")),
        }
        fence
    }
}

impl From<LandlockParts> for Vec<LandlockPart> {
    fn from(parts: LandlockParts) -> Self {
        let all = LandlockPart::ALL.into_iter();
        all.filter(|part| parts.has(*part)).collect()
    }
}

impl TryFrom<Vec<LandlockPart>> for LandlockParts {
    type Error = LandlockTwice;

    fn try_from(list: Vec<LandlockPart>) -> Result<Self, Self::Error> {
        list.into_iter().try_fold(Self::NONE, |parts, part| {
            if parts.has(part) {
                Err(LandlockTwice(part))
            } else {
                Ok(parts.with(part))
            }
        })
    }
}

impl fmt::Display for LandlockPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fs => "fs",
            Self::Truncate => "truncate",
            Self::Ioctl => "ioctl",
            Self::Scopes => "scopes",
            Self::Unix => "unix",
        })
    }
}

impl fmt::Display for LandlockParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = Vec::from(*self).iter().map(ToString::to_string).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_proven_or_replaced_and_never_both() {
        for abi in 0..10 {
            let parts = LandlockParts::up_to(abi);
            let proven = parts.guarantees();
            assert!(
                proven.contains(&Guarantee::LandlockFs),
                "{abi}: the floor is always required"
            );
            for part in &LandlockPart::ALL[1..] {
                let enforced = proven.contains(&part.guarantee());
                let mut stand_ins = part.replacements().iter().map(|one| one.guarantee);
                assert_eq!(enforced, parts.has(*part), "{abi}: {part}");
                assert!(
                    stand_ins.all(|one| proven.contains(&one) != enforced),
                    "{abi}: {part}"
                );
            }
        }
    }

    #[test]
    fn the_fence_names_what_is_enforced_and_what_replaces_the_rest() {
        let fence = |abi| LandlockParts::up_to(abi).fence("cgroup v2");
        assert_eq!(fence(9), "namespaces+landlock v9+seccomp+cgroup v2");
        assert_eq!(
            fence(7),
            "namespaces+landlock v6+seccomp+cgroup v2 (path sockets: mount-ns)"
        );
        assert_eq!(
            fence(2),
            "namespaces+landlock v2+seccomp+cgroup v2 (path sockets: mount-ns, signals: pid-ns, abstract sockets: \
             net-ns, ioctl: device list, truncate: mount)"
        );
        assert!(
            LandlockParts::NONE
                .fence("")
                .starts_with("namespaces+seccomp (WITHOUT LANDLOCK: path sockets: mount-ns, "),
            "loud"
        );
        let gap = LandlockParts::up_to(2).with(LandlockPart::Scopes);
        assert_eq!(
            gap.fence(""),
            "namespaces+landlock v2+seccomp (path sockets: mount-ns, ioctl: device list, truncate: mount)",
            "an ABI with a hole is not named"
        );
    }

    #[test]
    fn parts_are_a_list_on_the_wire_and_a_doubled_or_unknown_one_is_refused() {
        let parts = LandlockParts::up_to(3);
        let text = serde_json::to_string(&parts).unwrap();
        assert_eq!(text, r#"["fs","truncate"]"#);
        assert_eq!(serde_json::from_str::<LandlockParts>(&text).unwrap(), parts);
        for bad in [r#"["fs","fs"]"#, r#"["net"]"#, "6"] {
            assert!(serde_json::from_str::<LandlockParts>(bad).is_err(), "{bad}");
        }
    }
}
