//! What this process may do on the host. Decided by effective capabilities and by which user ids are mapped, never by
//! user id 0 alone: root of a container and root of a user namespace have that id too.
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What sandboxes can be built with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Authority {
    /// Everything that root of a host can do: each run gets a uid of its own, binds are opened and mapped from outside.
    Root,
    /// Nothing beyond a user namespace of one's own: the agent has the invoking user's uid outside.
    User,
    /// User id 0 without what it takes: treated as an ordinary user.
    UserZero {
        /// What is missing.
        lack: Lack,
    },
}

/// Why user id 0 is not root of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "lack", deny_unknown_fields)]
pub enum Lack {
    /// These capabilities are not effective, as in a container.
    Capabilities {
        /// Their names, `CAP_SYS_ADMIN`.
        names: Vec<String>,
    },
    /// The user namespace does not map the uids that runs are given.
    UnmappedIds,
}

/// What building as root takes: namespaces, mounts and idmaps; the maps of runs, and opening files with the caller's rights.
/// Over the namespaces that it makes itself it has every capability (user_namespaces(7)). The spawner's unit leaves no more, and
/// what its daemon keeps must cover it.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
];

/// First and last of the uids that root gives to runs, fronts and egress.
const GIVEN: (u32, u32) = (0x6ba5_0000, 0x6dff_ffff);

impl Authority {
    /// That of this process: two system calls for an ordinary user.
    #[must_use]
    pub fn of_this_process() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::User;
        }
        // Where they cannot be read nothing is known to be there.
        let effective =
            rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let map = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        Self::of_user_zero(effective, &map("/proc/self/uid_map"), &map("/proc/self/gid_map"))
    }

    fn of_user_zero(effective: CapabilitySet, uids: &str, gids: &str) -> Self {
        let names: Vec<String> = NEEDED
            .iter()
            .filter(|(capability, _)| !effective.contains(*capability))
            .map(|(_, name)| (*name).to_owned())
            .collect();
        let lack = if !maps(uids) || !maps(gids) {
            Lack::UnmappedIds
        } else if !names.is_empty() {
            Lack::Capabilities { names }
        } else {
            return Self::Root;
        };
        Self::UserZero { lack }
    }

    /// Whether sandboxes are built as root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        match self {
            Self::Root => true,
            Self::User | Self::UserZero { .. } => false,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capabilities { names } => write!(f, "user id 0 without {}", names.join(", ")),
            Self::UnmappedIds => f.write_str("user id 0 of a user namespace that maps few ids"),
        }
    }
}

/// Whether one line of a map (user_namespaces(7)) holds all ids that are given to runs.
fn maps(table: &str) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        match (fields.next().flatten(), fields.nth(1).flatten()) {
            (Some(first), Some(count)) => {
                first <= u64::from(GIVEN.0) && u64::from(GIVEN.1) < first.saturating_add(count)
            }
            (None, _) | (_, None) => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";

    fn all() -> CapabilitySet {
        NEEDED
            .iter()
            .fold(CapabilitySet::empty(), |sum, (one, _)| sum.union(*one))
    }

    #[test]
    fn user_id_0_is_root_of_a_host_only_with_every_capability_and_every_id() {
        assert_eq!(Authority::of_user_zero(all(), WHOLE, WHOLE), Authority::Root);
        for (capability, name) in NEEDED {
            let names = vec![name.to_owned()];
            let lack = Lack::Capabilities { names };
            assert_eq!(
                Authority::of_user_zero(all().difference(capability), WHOLE, WHOLE),
                Authority::UserZero { lack }
            );
        }
    }

    #[test]
    fn user_id_0_of_a_user_namespace_is_an_ordinary_user_whatever_capabilities_it_has_there() {
        let few = Authority::UserZero {
            lack: Lack::UnmappedIds,
        };
        for map in [
            "         0       1000          1\n",
            "         0       1000          1\n         1     100000      65536\n",
            "",
            "0 nonsense\n",
        ] {
            assert_eq!(Authority::of_user_zero(all(), map, WHOLE), few, "{map}");
            assert_eq!(Authority::of_user_zero(all(), WHOLE, map), few, "{map}");
        }
    }
}
