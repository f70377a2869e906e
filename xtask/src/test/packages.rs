//! Debian packages the tests need, each with its reason. Installs them where it may, else says what is missing.
use crate::sh::{self, Failed};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One package and how its presence is seen.
struct Package {
    name: &'static str,
    /// A program on PATH, or an absolute path.
    sign: &'static str,
    reason: &'static str,
}

/// Everything `cargo xtask test` needs besides the Rust toolchain.
const NEEDED: &[Package] = &[
    Package {
        name: "gcc",
        sign: "cc",
        reason: "links Rust programs and compiles the shell grammar",
    },
    Package {
        name: "libc6-dev",
        sign: "/usr/include/stdio.h",
        reason: "headers and start files for every program that is linked",
    },
    Package {
        name: "make",
        sign: "make",
        reason: "a build tool that agents call inside the fence",
    },
    Package {
        name: "git",
        sign: "git",
        reason: "tests work in git repositories",
    },
    Package {
        name: "util-linux",
        sign: "setpriv",
        reason: "tests run the fence as root and as an ordinary user",
    },
    Package {
        name: "btrfs-progs",
        sign: "mkfs.btrfs",
        reason: "copies on a file system that shares extents",
    },
    Package {
        name: "procps",
        sign: "ps",
        reason: "tests look for processes left behind",
    },
    Package {
        name: "python3",
        sign: "/usr/bin/python3",
        reason: "attack scripts that speak to the kernel directly run inside the fence",
    },
    Package {
        name: "python3-venv",
        sign: "/usr/share/doc/python3-venv",
        reason: "the daemon's interface is tried with generated requests; the tool is installed in a virtual environment",
    },
    Package {
        name: "curl",
        sign: "curl",
        reason: "the client that most programs of the network tests are",
    },
    Package {
        name: "openssl",
        sign: "openssl",
        reason: "makes the certificates of the servers in the network tests",
    },
    Package {
        name: "dnsmasq-base",
        sign: "dnsmasq",
        reason: "a real name server for the network tests; this package has no service",
    },
    Package {
        name: "squid",
        sign: "squid",
        reason: "the company proxy that egress is chained to",
    },
    Package {
        name: "dropbear-bin",
        sign: "dropbear",
        reason: "a real SSH server for the network tests; this package has no service",
    },
    Package {
        name: "openssh-client",
        sign: "ssh",
        reason: "the SSH client inside the fence",
    },
    Package {
        name: "nodejs",
        sign: "node",
        reason: "a client inside the fence that does not know about proxies",
    },
    Package {
        name: "npm",
        sign: "npm",
        reason: "installs the agents that run inside the fence",
    },
    Package {
        name: "python3-pip",
        sign: "/usr/bin/pip",
        reason: "fetches from the lab's package index inside the fence",
    },
    Package {
        name: "dbus-daemon",
        sign: "dbus-daemon",
        reason: "a message bus of the keyring tests' own; this package has no service",
    },
    Package {
        name: "gnome-keyring",
        sign: "gnome-keyring-daemon",
        reason: "a real Secret Service to fetch secrets from",
    },
    Package {
        name: "systemd",
        sign: "systemd-analyze",
        reason: "judges the service files, and is booted with them in a root of its own",
    },
    Package {
        name: "libsecret-tools",
        sign: "secret-tool",
        reason: "the client with which keyring secrets are stored and fetched",
    },
    Package {
        name: "podman",
        sign: "podman",
        reason: "starts containers in which doctor is tried; this package starts no service",
    },
    Package {
        name: "runc",
        sign: "/usr/sbin/runc",
        reason: "runs those containers also where control groups are of both versions",
    },
    Package {
        name: "qemu-system-x86",
        sign: "qemu-system-x86_64",
        reason: "boots other kernels by software emulation",
    },
    Package {
        name: "busybox-static",
        sign: "busybox",
        reason: "the programs in containers and in virtual machines",
    },
    Package {
        name: "attr",
        sign: "setfattr",
        reason: "marks a control group as delegated in virtual machines, as systemd does",
    },
];

/// Peers that `bench start` compares with.
const PEERS: &[Package] = &[
    Package {
        name: "bubblewrap",
        sign: "bwrap",
        reason: "the peer that bench start compares with",
    },
    Package {
        name: "util-linux",
        sign: "unshare",
        reason: "the smallest namespace launch",
    },
    Package {
        name: "libc6-dev",
        sign: "/usr/include/stdio.h",
        reason: "compiles the lower bound",
    },
];

/// Proxies that `bench egress` compares with, and what its load is compiled with.
const PROXIES: &[Package] = &[
    Package {
        name: "squid",
        sign: "squid",
        reason: "the proxy that bench egress compares with",
    },
    Package {
        name: "tinyproxy-bin",
        sign: "tinyproxy",
        reason: "a small proxy to compare with",
    },
    Package {
        name: "libssl-dev",
        sign: "/usr/include/openssl/ssl.h",
        reason: "the load speaks TLS",
    },
    Package {
        name: "openssl",
        sign: "openssl",
        reason: "makes the certificates of the load",
    },
    Package {
        name: "python3-venv",
        sign: "/usr/share/doc/python3-venv",
        reason: "mitmproxy is installed in a virtual environment",
    },
];

/// What boots guests.
const GUESTS: &[Package] = &[
    Package {
        name: "qemu-system-x86",
        sign: "qemu-system-x86_64",
        reason: "boots other kernels by software emulation",
    },
    Package {
        name: "e2fsprogs",
        sign: "mkfs.ext4",
        reason: "makes the disks of guests",
    },
    Package {
        name: "debootstrap",
        sign: "debootstrap",
        reason: "makes the guests that have systemd",
    },
    Package {
        name: "zstd",
        sign: "zstd",
        reason: "unpacks the modules of Ubuntu's kernels",
    },
];

/// What builds for aarch64 and boots it.
const AARCH64_GUESTS: &[Package] = &[
    Package {
        name: "qemu-system-arm",
        sign: "qemu-system-aarch64",
        reason: "boots kernels for aarch64",
    },
    Package {
        name: "gcc-aarch64-linux-gnu",
        sign: "aarch64-linux-gnu-gcc",
        reason: "links programs for aarch64",
    },
    Package {
        name: "libc6-dev-arm64-cross",
        sign: "/usr/aarch64-linux-gnu/include/stdio.h",
        reason: "the C library for aarch64",
    },
];

/// Installs what the tests need and is not there.
pub(super) fn ensure_needed() -> Result<(), Failed> {
    ensure(NEEDED)
}

/// Installs what boots guests of this machine's processor.
pub(crate) fn ensure_guests() -> Result<(), Failed> {
    ensure(GUESTS)
}

/// Installs what builds for aarch64 and boots guests of it.
pub(crate) fn ensure_aarch64_guests() -> Result<(), Failed> {
    ensure(AARCH64_GUESTS)
}

/// Installs the peers of the benchmarks.
pub(crate) fn ensure_peers() -> Result<(), Failed> {
    ensure(PEERS)
}

/// Installs the proxies of the benchmarks.
pub(crate) fn ensure_proxies() -> Result<(), Failed> {
    ensure(PROXIES)
}

fn ensure(table: &[Package]) -> Result<(), Failed> {
    let missing = missing(table, present);
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("  missing package {}: {}", package.name, package.reason);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let Some(prefix) = may_install() else {
        return Err(Failed::new(
            "missing system packages",
            format!(
                "not root and no sudo without a password; run: apt-get install {}",
                names.join(" ")
            ),
        ));
    };
    println!("  installing {}", names.join(" "));
    apt(&prefix, &["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&names);
    apt(&prefix, &install)?;
    let still: Vec<&str> = self::missing(table, present)
        .iter()
        .map(|package| package.name)
        .collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(Failed::new("still missing after installing", still.join(" ")))
    }
}

fn missing(table: &[Package], present: impl Fn(&str) -> bool) -> Vec<&Package> {
    table.iter().filter(|package| !present(package.sign)).collect()
}

fn present(sign: &str) -> bool {
    if sign.starts_with('/') {
        Path::new(sign).exists()
    } else {
        sh::which(sign).is_some()
    }
}

/// What must stand before `apt-get`, or nothing when we may not install.
fn may_install() -> Option<Vec<&'static str>> {
    sh::which("apt-get")?;
    let user = sh::stdout_of(Command::new("id").arg("-u")).ok()?;
    if user.trim() == "0" {
        return Some(Vec::new());
    }
    // -n: a password prompt would wait for a person.
    let allowed = sh::stdout_of(Command::new("sudo").args(["-n", "true"])).is_ok();
    allowed.then(|| vec!["sudo", "-n"])
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Result<(), Failed> {
    let words: Vec<&str> = prefix
        .iter()
        .copied()
        .chain(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"])
        .chain(arguments.iter().copied())
        .collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let what = sh::shown(&command);
    let mut tail = Vec::new();
    let ended = sh::stream(&mut command, Duration::from_secs(900), |line| {
        tail.push(line.to_owned());
    })?;
    match ended {
        sh::Ended::Exited(status) if status.success() => Ok(()),
        other => {
            let from = tail.len().saturating_sub(8);
            Err(Failed::new(
                what,
                format!("{other:?}\n{}", tail[from..].join("\n")),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_named_and_what_is_there_is_not() {
        let names = |present: fn(&str) -> bool| {
            missing(NEEDED, present)
                .iter()
                .map(|package| package.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(|_| true), Vec::<&str>::new());
        assert_eq!(names(|sign| sign != "cc"), ["gcc"]);
    }

    #[test]
    fn presence_is_seen_by_program_or_by_path() {
        assert!(present("sh") && present("/bin"));
        assert!(!present("no-such-program-here") && !present("/no/such/path"));
    }
}
