//! How a run gets control groups of its own, for the kind of hierarchy and of user that this is.
use std::path::{Path, PathBuf};

/// Where the hierarchies are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// A user's own service manager, below its runtime directory.
const MANAGER: &str = "systemd/private";

/// What decides which fix works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    root: bool,
    container: bool,
    systemd: bool,
    /// The service manager of the user's own, where one runs.
    user_manager: Option<Manager>,
    /// Controllers are on hierarchies of version 1.
    version_1: bool,
}

/// How `systemd-run --user` finds the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    /// By `XDG_RUNTIME_DIR` of this process.
    ByEnvironment,
    /// It runs, and this process was started without the variable, as by su or in a system service.
    OfUser(u32),
}

/// The fix for this host; none where it cannot be had from inside.
pub(super) fn fix(uid: u32) -> Option<String> {
    let (runtime, manager) = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(named) => (PathBuf::from(named), Manager::ByEnvironment),
        None => (runtime_of(uid), Manager::OfUser(uid)),
    };
    let version_1 = ["memory", "pids"]
        .iter()
        .any(|name| Path::new(CGROUPS).join(name).is_dir());
    choose(Host {
        root: uid == 0,
        container: super::observe::container().is_some(),
        systemd: Path::new("/run/systemd/system").is_dir(),
        user_manager: runtime.join(MANAGER).exists().then_some(manager),
        version_1,
    })
}

fn runtime_of(uid: u32) -> PathBuf {
    Path::new("/run/user").join(uid.to_string())
}

fn choose(host: Host) -> Option<String> {
    let sudo = if host.root { "" } else { "sudo " };
    let Host {
        root,
        container,
        systemd,
        user_manager,
        version_1,
    } = host;
    if container {
        return Some(
            "limit the container itself: docker run --memory 4g --pids-limit 512 --cpus 2 ...".to_owned(),
        );
    }
    Some(if version_1 {
        format!(
            "for c in memory pids cpu freezer; do {sudo}mkdir -p {CGROUPS}/$c/bastle && {sudo}chown -R \"$(id -u)\" {CGROUPS}/$c/bastle && echo $$ | {sudo}tee {CGROUPS}/$c/bastle/cgroup.procs; done"
        )
    } else if systemd && root {
        "systemd-run --scope -p Delegate=yes bastle run -- CMD".to_owned()
    } else if let (true, Some(manager)) = (systemd, user_manager) {
        let variable = match manager {
            Manager::ByEnvironment => String::new(),
            Manager::OfUser(uid) => format!("XDG_RUNTIME_DIR={} ", runtime_of(uid).display()),
        };
        format!("{variable}systemd-run --user --scope -p Delegate=yes bastle run -- CMD")
    } else if systemd {
        "sudo systemd-run --pty --same-dir --uid=\"$(id -u)\" -p Delegate=yes bastle run -- CMD".to_owned()
    } else {
        // The shell goes into a group below: a group with processes in it cannot hand controllers down.
        let make = format!(
            "cd {CGROUPS} && mkdir -p bastle/shell && echo $1 >bastle/shell/cgroup.procs && echo +memory +pids +cpu | tee cgroup.subtree_control >bastle/cgroup.subtree_control && chown $2 bastle bastle/shell bastle/cgroup.procs bastle/cgroup.subtree_control bastle/shell/cgroup.procs"
        );
        format!("{sudo}sh -c '{make}' sh $$ \"$(id -u)\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host {
        root: false,
        container: false,
        systemd: true,
        user_manager: Some(Manager::ByEnvironment),
        version_1: false,
    };

    #[test]
    fn root_is_not_told_to_use_a_users_service_manager_and_a_user_without_one_is_not_either() {
        let text = |host| choose(host).unwrap_or_default();
        assert!(text(HOST).starts_with("systemd-run --user --scope"));
        let unnamed = text(Host {
            user_manager: Some(Manager::OfUser(1000)),
            ..HOST
        });
        assert!(
            unnamed.starts_with("XDG_RUNTIME_DIR=/run/user/1000 systemd-run --user --scope"),
            "{unnamed}"
        );
        let root = text(Host { root: true, ..HOST });
        assert!(!root.contains("--user") && !root.contains("sudo"), "{root}");
        let alone = text(Host {
            user_manager: None,
            ..HOST
        });
        assert!(alone.starts_with("sudo systemd-run --pty"), "{alone}");
    }

    #[test]
    fn without_systemd_the_shell_is_moved_below_before_controllers_are_handed_down() {
        let text = choose(Host {
            systemd: false,
            ..HOST
        })
        .unwrap_or_default();
        let moved = text.find(">bastle/shell/cgroup.procs").unwrap();
        let handed = text.find(">bastle/cgroup.subtree_control").unwrap();
        assert!(moved < handed, "{text}");
        assert!(!text.contains(">bastle/cgroup.procs"), "{text}");
    }

    #[test]
    fn inside_a_container_the_containers_own_limits_are_named() {
        let text = choose(Host {
            container: true,
            ..HOST
        })
        .unwrap_or_default();
        assert!(text.contains("--memory"), "{text}");
    }
}
