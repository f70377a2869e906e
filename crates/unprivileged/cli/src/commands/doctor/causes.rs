//! Why a kernel refuses namespaces: read from the host, told only where it matters. Trusts what the kernel shows.
use super::{Check, State};
use std::path::Path;

/// Known reasons, told as `state`: only facts when the fence works, likely causes when it does not.
pub(super) fn find(state: State) -> Vec<Check> {
    let root = rustix::process::geteuid().is_root();
    let mut found = Vec::new();
    let sysctl = |path: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(path))
            .ok()
            .map(|text| text.trim().to_owned())
    };
    if !root && sysctl("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        found.push(apparmor(state));
    }
    if !root && sysctl("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        found.push(
            Check::new(
                state,
                "userns",
                "switched off for ordinary users (kernel.unprivileged_userns_clone=0)",
            )
            .consequence("no user namespace, no fence")
            .fix("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        );
    }
    if sysctl("user/max_user_namespaces").as_deref() == Some("0") {
        found.push(
            Check::new(state, "userns", "none may exist (user.max_user_namespaces=0)")
                .consequence("no user namespace, no fence")
                .fix("sudo sysctl -w user.max_user_namespaces=15000"),
        );
    }
    found.extend(container(state));
    found.extend(filtered(state));
    if sysctl("kernel/osrelease").is_some_and(|release| release.to_ascii_lowercase().contains("microsoft")) {
        found.push(wsl(state));
    }
    // Where the fence works these are facts and nothing follows from them.
    for check in found.iter_mut().filter(|_| state == State::Info) {
        check.consequence.clear();
        check.fix.clear();
    }
    found
}

fn apparmor(state: State) -> Check {
    let binary = std::env::current_exe().map_or_else(
        |_| "/usr/bin/bastle".to_owned(),
        |path| path.display().to_string(),
    );
    Check::new(state, "apparmor", "restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns=1)")
        .consequence("the kernel takes all rights from the new namespace: no mount, no fence")
        .fix(format!("printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bastle {binary} flags=(unconfined) {{ userns, }}\\n' | sudo tee /etc/apparmor.d/bastle && sudo apparmor_parser -r /etc/apparmor.d/bastle"))
        .fix("or for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
}

fn container(state: State) -> Option<Check> {
    let marker = ["/.dockerenv", "/run/.containerenv"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let groups = std::fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let named = ["docker", "kubepods", "containerd", "lxc", "libpod"]
        .into_iter()
        .find(|name| groups.contains(name));
    let sign = marker.or(named)?;
    Some(
        Check::new(state, "container", format!("this is the inside of a container ({sign})"))
            .consequence("the container's own filter or masked /proc may refuse namespaces; its cgroups may be read-only")
            .fix("run bastle outside the container, or start it with: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"),
    )
}

/// A filter that is on already, and a `/proc` with covers, which the kernel does not let anybody mount afresh.
fn filtered(state: State) -> Vec<Check> {
    let mut found = Vec::new();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .map(str::trim);
    if mode == Some("2") {
        found.push(
            Check::new(
                state,
                "seccomp",
                "a system-call filter is already in force on this process",
            )
            .consequence("it may refuse unshare, mount or pivot_root")
            .fix("start bastle from a shell without that filter"),
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let covers: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with("/proc/") && *point != "/proc/sys/fs/binfmt_misc")
        .collect();
    if !covers.is_empty() {
        found.push(
            Check::new(
                state,
                "proc",
                format!("{} places of /proc are covered ({})", covers.len(), covers[0]),
            )
            .consequence("the kernel refuses a fresh /proc in a new namespace to ordinary users")
            .fix("docker run --security-opt systempaths=unconfined, or podman run --security-opt unmask=ALL"),
        );
    }
    found
}

fn wsl(state: State) -> Check {
    if Path::new("/proc/sys/fs/binfmt_misc/WSLInterop").exists()
        || std::env::var_os("WSL_DISTRO_NAME").is_some()
    {
        return Check::new(
            state,
            "wsl",
            "this is WSL; programs of Windows can be started from here",
        )
        .consequence("inside the fence they cannot: the interop socket is not visible")
        .fix("for cgroups put [boot] systemd=true into /etc/wsl.conf, then: wsl --shutdown");
    }
    Check::new(state, "wsl", "this is a Microsoft kernel")
        .consequence("Landlock may be missing from its lsm= list")
}
