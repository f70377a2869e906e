//! Grants to a run that lives: what control orders from the spawner, and what it and the file broker say to each other.
//!
//! **Trust:** the spawner re-checks an order by type and opens the path itself. The broker reads the agent's bytes:
//! control trusts nothing in [`FromBroker`] but its shape, and gives the broker copies, never a descriptor of a file.
use crate::{AbsPath, AbsPathError, Access, LaunchPlan, MAX_FRAME};
use serde::{Deserialize, Serialize};

/// Where grants appear inside: a directory of the constructed root that only the spawner can change.
pub const GRANTS: &str = "/grants";
/// A file that says so, in every sandbox that can be granted something.
pub const GRANTS_README: &str = "/grants/README";
/// The socket of the file broker inside.
pub const BROKER_SOCKET: &str = "/run/bastle/fs.sock";
/// The client of the file broker inside.
pub const BROKER_CLIENT: &str = "/run/bastle/bin/bastle-fs";
/// Largest file that passes through the broker.
pub const MAX_BROKER_FILE: u64 = 16 << 20;
/// Longest name that the broker passes on.
pub const MAX_BROKER_NAME: usize = 4096;
/// Most names in one grant that are covered one by one; an order has to fit into a frame.
pub const MAX_COVERS: usize = 128;

/// What a frame needs around an order: its type and a few signs.
const ENVELOPE: usize = 1024;

/// Host directories of which nothing is ever shown: the kernel's, and those of running services.
const NEVER: &[&str] = &["/proc", "/sys", "/dev", "/run", "/boot", GRANTS];
/// Host directories that are never shown as a whole: everybody's files lie side by side in them, with the sockets of services, and
/// every sandbox has some of them of its own.
const NEVER_WHOLE: &[&str] = &["/tmp", "/var", "/var/tmp", "/home", "/root"];

/// What the spawner is to bring into a sandbox. Beside it comes a descriptor (`O_PATH`) of what was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantOrder {
    /// Path on the host, without a symlink in it.
    pub path: AbsPath,
    /// Reading or also writing.
    pub access: Access,
    /// Names inside it that the policy hides or protects.
    pub covers: Vec<Cover>,
}

/// A name inside a grant that is not shown as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cover {
    /// Path on the host, below the grant's.
    pub at: AbsPath,
    /// How.
    pub kind: CoverKind,
}

/// How a name is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoverKind {
    /// By something empty and unreadable.
    Hidden,
    /// By itself, for reading.
    ReadOnly,
}

/// Why an order is refused by anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Never handed over.
    #[error("{0} is the host's root, or belongs to the kernel or to running services")]
    Never(AbsPath),
    /// Never handed over as a whole.
    #[error("{0} holds the files of everybody, and is never handed over whole")]
    NeverWhole(AbsPath),
    /// Not below the grant.
    #[error("{0} does not lie in what is granted")]
    Outside(AbsPath),
    /// Too many.
    #[error("{0} names in it are hidden or protected; at most {MAX_COVERS} can be covered")]
    TooMany(usize),
    /// More than a frame holds: an order that cannot be sent would hold up those behind it, revocations among them.
    #[error("the names in it that are hidden or protected are too long to be covered one by one")]
    TooLong,
    /// Longer than a path may be.
    #[error("its place inside is no path: {0}")]
    Place(AbsPathError),
}

impl GrantOrder {
    /// Checks what no single field can check. The spawner calls it again after parsing.
    pub fn check(&self) -> Result<(), OrderError> {
        refuse_never(&self.path)?;
        if self.covers.len() > MAX_COVERS {
            return Err(OrderError::TooMany(self.covers.len()));
        }
        place_of(&self.path)?;
        let length = serde_json::to_vec(self).map_or(usize::MAX, |bytes| bytes.len());
        if length > MAX_FRAME - ENVELOPE {
            return Err(OrderError::TooLong);
        }
        let stray = |cover: &&Cover| cover.at == self.path || !cover.at.is_within(&self.path);
        match self.covers.iter().find(stray) {
            Some(cover) => Err(OrderError::Outside(cover.at.clone())),
            None => Ok(()),
        }
    }
}

/// Refuses what is never shown to an agent: the one list for flags and policies at the start of a run, and for grants to
/// one that lives.
pub fn refuse_never(path: &AbsPath) -> Result<(), OrderError> {
    let below = |never: &str| {
        path.as_str()
            .strip_prefix(never)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if path.as_str() == "/" || NEVER.iter().any(|never| below(never)) {
        Err(OrderError::Never(path.clone()))
    } else if NEVER_WHOLE.contains(&path.as_str()) {
        Err(OrderError::NeverWhole(path.clone()))
    } else {
        Ok(())
    }
}

/// Where a granted host path is inside.
pub fn place_of(path: &AbsPath) -> Result<AbsPath, OrderError> {
    AbsPath::new(format!("{GRANTS}{path}")).map_err(OrderError::Place)
}

/// Whether a sandbox has room for grants.
#[must_use]
pub fn has_room(plan: &LaunchPlan) -> bool {
    plan.mounts.iter().any(|mount| mount.at.as_str() == GRANTS_README)
}

/// From control to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToBroker {
    /// First frame. Descriptor: the listener, made inside the sandbox.
    Serve {
        /// [`crate::WIRE_VERSION`].
        version: u32,
    },
    /// The answer to a listing.
    Listed {
        /// Which question.
        ask: u64,
        /// What can be read and written.
        files: Vec<BrokerFile>,
    },
    /// The answer to a reading, after it was recorded. Descriptor: a sealed copy of the file.
    Read {
        /// Which question.
        ask: u64,
        /// The number of its grant: when that is withdrawn, what is not sent yet is not sent.
        grant: u64,
    },
    /// The file has the new content.
    Written {
        /// Which question.
        ask: u64,
    },
    /// It cannot be.
    Refused {
        /// Which question.
        ask: u64,
        /// Status for the agent: 403, 404, 409, 413, 500.
        status: u16,
        /// Why, for the agent.
        why: String,
    },
    /// A grant is over: nothing more of it is sent.
    Withdrawn {
        /// Which.
        grant: u64,
    },
}

/// From the broker to control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromBroker {
    /// The agent asks for something. For a writing, a descriptor: the new content, sealed.
    Ask {
        /// Number of the question.
        ask: u64,
        /// What.
        op: FileOp,
        /// Which file, as the agent spells it: untrusted, at most [`MAX_BROKER_NAME`] bytes; empty for a listing.
        name: String,
    },
}

/// By which way a granted path reaches the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantWay {
    /// Mounted below [`GRANTS`].
    Mount,
    /// Served by the file broker, copy by copy.
    Broker,
}

/// What can be done through the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOp {
    /// All that is granted.
    List,
    /// A file's content.
    Read,
    /// New content.
    Write,
}

/// A file that the broker serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerFile {
    /// Its path on the host, which is its name.
    pub name: AbsPath,
    /// Reading or also writing.
    pub access: Access,
    /// Its size now; `None`: it is not there, or is no file any more.
    pub size: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn order(at: &str, covers: &[&str]) -> GrantOrder {
        GrantOrder {
            path: path(at),
            access: Access::ReadOnly,
            covers: covers
                .iter()
                .map(|at| Cover {
                    at: path(at),
                    kind: CoverKind::Hidden,
                })
                .collect(),
        }
    }

    #[test]
    fn an_order_about_the_kernels_places_or_with_a_cover_elsewhere_is_refused() {
        for never in [
            "/",
            "/proc",
            "/proc/1/root",
            "/sys/fs",
            "/dev/sda",
            "/run/x.sock",
            "/boot",
            "/grants/a",
        ] {
            assert!(order(never, &[]).check().is_err(), "{never}");
        }
        for stray in ["/etc/x", "/home/me/data", "/home/me/dataset/x"] {
            assert!(order("/home/me/data", &[stray]).check().is_err(), "{stray}");
        }
        assert_eq!(order("/home/me/data", &["/home/me/data/.env"]).check(), Ok(()));
        assert_eq!(
            order("/runs", &[]).check(),
            Ok(()),
            "a name that only begins alike"
        );
    }

    #[test]
    fn an_order_with_more_covers_than_a_frame_holds_is_refused() {
        let many: Vec<String> = (0..=MAX_COVERS).map(|n| format!("/d/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(order("/d", &many).check(), Err(OrderError::TooMany(_))));
        assert!(order("/d", &many[1..]).check().is_ok());
        // As many as are accepted, but with long names: it could not be sent.
        let long: Vec<String> = (0..MAX_COVERS)
            .map(|n| format!("/d/{n}/{}", vec!["x".repeat(200); 3].join("/")))
            .collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let refused = order("/d", &long);
        assert_eq!(refused.check(), Err(OrderError::TooLong));
        assert!(crate::encode(&crate::ToSpawner::Grant { order: refused }).is_err());
        let fits = order("/d", &long[..90]);
        assert_eq!(fits.check(), Ok(()));
        assert!(crate::encode(&crate::ToSpawner::Grant { order: fits }).is_ok());
    }
}
