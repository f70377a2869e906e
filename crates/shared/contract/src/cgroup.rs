//! Why limits cannot be held by cgroup v2 here, as a value that doctor, faults and records share.
use crate::{AbsPath, Controller};
use serde::{Deserialize, Serialize};

/// Who starts the units of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitManager {
    /// The system's systemd, process 1.
    System,
    /// A user's own `systemd --user`.
    User,
}

/// What keeps cgroup v2 from holding all limits of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "problem", deny_unknown_fields)]
pub enum CgroupProblem {
    /// No cgroup file system is mounted that shows the own group.
    NotMounted,
    /// The hierarchy is mounted read-only, as container engines do.
    ReadOnly {
        /// The group that was looked at.
        group: AbsPath,
    },
    /// The own group belongs to a unit of systemd without `Delegate=`: systemd may change or remove what is made in it.
    NotDelegated {
        /// The unit.
        unit: String,
        /// Whose unit it is.
        manager: UnitManager,
        /// Whether this process has user id 0.
        root: bool,
    },
    /// Only another user may make groups in the own group.
    NotWritable {
        /// The group that was looked at.
        group: AbsPath,
    },
    /// The group is part of a threaded subtree, which cannot limit memory (cgroups(7), "Thread mode").
    Threaded {
        /// The group that was looked at.
        group: AbsPath,
    },
    /// The group is delegated without these controllers.
    NoController {
        /// The delegated group.
        group: AbsPath,
        /// What it lacks.
        missing: Vec<Controller>,
        /// The user whose `user@UID.service` hands controllers down to this group, where there is one.
        user_manager: Option<u32>,
    },
}

impl Controller {
    /// Its name in `cgroup.controllers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Freezer => "freezer",
        }
    }
}

impl CgroupProblem {
    /// The cause in one clause.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::NotMounted => {
                "no cgroup file system is mounted that shows the group of this process".to_owned()
            }
            Self::ReadOnly { group } => format!("{group} is mounted read-only, as in most containers"),
            Self::NotDelegated { unit, .. } => {
                format!("the cgroup belongs to {unit} of systemd, which is not delegated (Delegate=yes)")
            }
            Self::NotWritable { group } => format!("{group} is not writable for this user"),
            Self::Threaded { group } => format!("{group} is a threaded cgroup, which cannot limit memory"),
            Self::NoController { group, missing, .. } => {
                format!("{group} was delegated without: {}", names(missing))
            }
        }
    }

    /// A command that removes the cause, where one is known. `CMD` stands for the command of the run.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::NotMounted => Some("sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup".to_owned()),
            Self::ReadOnly { .. } => Some(
                "docker run --security-opt writable-cgroups=true ... (Docker 28 or newer), or podman run --cgroupns=private \
                 --security-opt unmask=/sys/fs/cgroup ..."
                    .to_owned(),
            ),
            Self::NotDelegated { root: true, .. } => {
                Some("systemd-run --scope -p Delegate=yes bastle run -- CMD".to_owned())
            }
            // Whoever is in a session has a service manager of their own; the user of a system service need not have one.
            Self::NotDelegated {
                manager: UnitManager::System,
                unit,
                ..
            } if !is_session(unit) => Some(
                "sudo systemd-run --pty --same-dir --uid=\"$(id -u)\" -p Delegate=yes bastle run -- CMD".to_owned(),
            ),
            Self::NotDelegated { .. } => {
                Some("systemd-run --user --scope -p Delegate=yes bastle run -- CMD".to_owned())
            }
            // The process goes into a leaf: a group with processes of its own hands no controllers down (cgroups(7)).
            Self::NotWritable { .. } => Some(
                "sudo sh -c 'cd /sys/fs/cgroup && mkdir -p bastle/shell && echo \"+memory +pids +cpu\" > \
                 cgroup.subtree_control && chown -R '\"$(id -u)\"' bastle && echo '$$' > bastle/shell/cgroup.procs'"
                    .to_owned(),
            ),
            Self::NoController {
                user_manager: Some(_), ..
            } => Some(
                "sudo sh -c 'mkdir -p /etc/systemd/system/user@.service.d && printf \"[Service]\\nDelegate=cpu cpuset io memory \
                 pids\\n\" > /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload' and log in again"
                    .to_owned(),
            ),
            Self::Threaded { .. } | Self::NoController { .. } => None,
        }
    }
}

/// Whether the unit is that of a login session (systemd-logind.service(8)).
fn is_session(unit: &str) -> bool {
    unit.starts_with("session-") && unit.ends_with(".scope")
}

/// The controllers, separated by blanks.
fn names(controllers: &[Controller]) -> String {
    let names: Vec<&str> = controllers.iter().map(|one| one.name()).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_system_service_is_not_sent_to_a_service_manager_of_its_own() {
        let fix = |unit: &str, manager, root| {
            let unit = unit.to_owned();
            CgroupProblem::NotDelegated { unit, manager, root }
                .fix()
                .unwrap_or_default()
        };
        let own = "systemd-run --user --scope";
        assert!(fix("session-2.scope", UnitManager::System, false).starts_with(own));
        assert!(fix("run-1.service", UnitManager::User, false).starts_with(own));
        let service = fix("ci.service", UnitManager::System, false);
        assert!(service.starts_with("sudo systemd-run --pty"), "{service}");
        let root = fix("ci.service", UnitManager::System, true);
        assert!(root.starts_with("systemd-run --scope"), "{root}");
    }
}
