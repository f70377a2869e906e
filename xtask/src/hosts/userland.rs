//! The system of a guest with systemd: Debian's or Ubuntu's smallest, made once by debootstrap, which needs root.
use super::archive::{Arch, Publisher, make, write};
use super::image::{link, program};
use crate::sh::{self, Ended, Failed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the guests need besides the smallest system: a bus, sessions of users, git, and the loader of AppArmor profiles.
const PACKAGES: &str = "systemd-sysv,dbus,dbus-user-session,libpam-systemd,git,procps,iproute2,apparmor";

/// How debootstrap makes releases of Ubuntu's.
const UBUNTU_SCRIPT: &str = "/usr/share/debootstrap/scripts/gutsy";

/// A download and unpacking of some hundred packages on a slow machine, with room.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What has no use in a guest and costs time at every boot, or speaks on the console.
const MASKED: &[&str] = &[
    "serial-getty@ttyS0.service",
    "serial-getty@ttyAMA0.service",
    "getty@tty1.service",
    "console-getty.service",
    "apparmor.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-tmpfiles-clean.timer",
];

const SERVICE: &str = "\
[Unit]
Description=the checks of a guest
Wants=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service systemd-user-sessions.service

[Service]
ExecStart=/hosts/systemd.sh
";

/// A tree with the release, made unless it is there.
pub(super) fn tree(hosts: &Path, release: &str, arch: Arch) -> Result<PathBuf, Failed> {
    let tree = hosts.join("roots").join(format!("{release}-{}", arch.debian()));
    if tree.exists() {
        return Ok(tree);
    }
    if Arch::own() != Some(arch) {
        return Err(Failed::new(
            "debootstrap",
            "cannot run programs of another architecture",
        ));
    }
    let user = sh::stdout_of(Command::new("id").arg("-u"))?;
    if user.trim() != "0" {
        return Err(Failed::new("debootstrap", "needs root"));
    }
    let bootstrap = sh::which("debootstrap")
        .ok_or_else(|| Failed::new("debootstrap", "is missing; run: apt-get install debootstrap"))?;
    let partial = tree.with_extension("partial");
    if partial.exists() {
        std::fs::remove_dir_all(&partial).map_err(Failed::io(partial.display()))?;
    }
    make(&partial)?;
    let publisher = Publisher::of(release);
    let address = publisher.address(hosts)?;
    println!("  making a root of {release} with systemd (once)");
    let mut command = Command::new(bootstrap);
    command.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    if let Some(keys) = publisher.keys(hosts)? {
        command.arg(format!("--keyring={}", keys.display()));
    }
    command.arg(release).arg(&partial).arg(address);
    if publisher == Publisher::Ubuntu {
        // The script of every release; one older than a release has no name for it.
        command.arg(UBUNTU_SCRIPT);
    }
    let mut last = String::new();
    match sh::stream(&mut command, LIMIT, |line| line.clone_into(&mut last))? {
        Ended::Exited(status) if status.success() => {}
        other => return Err(Failed::new("debootstrap", format!("{other:?}: {last}"))),
    }
    std::fs::rename(&partial, &tree).map_err(Failed::io(tree.display()))?;
    Ok(tree)
}

/// A copy of a tree with a user, and with one service that runs the checks.
pub(super) fn copy(tree: &Path, root: &Path) -> Result<(), Failed> {
    let mut copy = Command::new("cp");
    sh::stdout_of(copy.args(["-a", "--reflink=auto"]).args([tree, root]))?;
    configure(root)
}

fn configure(root: &Path) -> Result<(), Failed> {
    let units = root.join("etc/systemd/system");
    for unit in MASKED {
        link("/dev/null", &units.join(unit))?;
    }
    write(&units.join("bastle-guest.service"), SERVICE)?;
    let wants = units.join("multi-user.target.wants");
    make(&wants)?;
    link("../bastle-guest.service", &wants.join("bastle-guest.service"))?;
    write(&root.join("etc/hostname"), "guest\n")?;
    // An empty one makes every boot the first, with its presets and questions.
    write(&root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    for (file, line) in [
        ("etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n"),
        ("etc/group", "ada:x:1000:\n"),
        ("etc/shadow", "ada:*:20000:0:99999:7:::\n"),
    ] {
        let path = root.join(file);
        let text = std::fs::read_to_string(&path).map_err(Failed::io(path.display()))?;
        write(&path, &format!("{text}{line}"))?;
    }
    make(&root.join("home/ada"))?;
    make(&root.join("hosts"))?;
    program(
        &root.join("hosts/systemd.sh"),
        include_str!("guest/systemd.sh"),
        0o755,
    )
}
