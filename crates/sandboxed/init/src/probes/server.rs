//! Probes of a process of bastle itself, made by it while it confines itself: what it can reach of the host although it is
//! in no sandbox.
use super::{Control, Probe, outcome};
use bastle_contract::{Guarantee, ProbeResult};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// A file that every process has, and that needs no permission.
const OWN_FILE: &str = "/proc/self/status";

/// What was possible before.
pub(crate) struct Unconfined {
    file: bool,
    socket: bool,
    parent: libc::c_long,
    signalled: bool,
}

impl Unconfined {
    /// Tries everything once.
    pub(crate) fn look() -> Self {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let parent = libc::c_long::from(parent);
        Self {
            file: open(OWN_FILE).is_ok(),
            socket: unix().is_ok(),
            parent,
            signalled: signal(parent) == "succeeded",
        }
    }

    /// In the empty root, before any other layer.
    pub(crate) fn without_files(&self, results: &mut Vec<ProbeResult>) {
        let control = Control::new("the same in the host's root", self.file);
        let attempt = Probe::new(
            Guarantee::EgressConfined,
            format!("egress: open {OWN_FILE}"),
            "ENOENT",
        );
        results.push(attempt.judge(outcome(open(OWN_FILE)), &control));
        // By way of `/..` the host's root would show where it is still mounted.
        let names = std::fs::read_dir("/..").map(|entries| entries.flatten().count());
        let observed = names.map_or_else(|error| error.to_string(), |count| count.to_string());
        let attempt = Probe::new(
            Guarantee::EgressConfined,
            "egress: count the files of its root",
            "0",
        );
        results.push(attempt.judge(observed, &control));
    }

    /// The last layers are in force. `before`: what could be opened before Landlock; `None` without Landlock.
    pub(crate) fn confined(&self, before: Option<BeforeLandlock>, results: &mut Vec<ProbeResult>) {
        if let Some(BeforeLandlock { path, opened }) = before {
            let control = Control::new("the same before Landlock", opened);
            let attempt = Probe::new(
                Guarantee::EgressConfined,
                format!("egress: open {path}"),
                "EACCES",
            );
            results.push(attempt.judge(outcome(open(path)), &control));
        }
        let pair = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let control = Control::new(
            "the same before the filter, and a connected pair",
            self.socket && pair.is_ok(),
        );
        let attempt = Probe::new(
            Guarantee::EgressConfined,
            "egress: make a Unix socket",
            "EAFNOSUPPORT",
        );
        results.push(attempt.judge(outcome(unix()), &control));
        let own = libc::c_long::from(rustix::process::getpid().as_raw_nonzero().get());
        let control = Control::new(
            "the same before the filter, and itself",
            self.signalled && signal(own) == "succeeded",
        );
        let attempt = Probe::new(
            Guarantee::EgressConfined,
            "egress: signal the process that started it",
            "EPERM",
        );
        results.push(attempt.judge(signal(self.parent), &control));
    }
}

/// A path that Landlock has to refuse, and whether it could be opened before.
pub(crate) struct BeforeLandlock {
    path: &'static str,
    opened: bool,
}

impl BeforeLandlock {
    /// In the empty root there is nothing but the root itself.
    pub(crate) fn in_empty_root() -> Self {
        Self::of("/")
    }

    /// In the host's root a file: Ubuntu's AppArmor profile for user namespaces without rights allows `/**`, which is every file
    /// and not `/`.
    pub(crate) fn in_host_root() -> Self {
        Self::of(OWN_FILE)
    }

    fn of(path: &'static str) -> Self {
        Self {
            path,
            opened: open(path).is_ok(),
        }
    }
}

fn open(path: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn unix() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Whether a signal to the main thread of a process would be let through; none is sent.
fn signal(pid: libc::c_long) -> String {
    bastle_sys::probe::by_number(libc::SYS_tgkill, [pid, pid, 0])
        .map_or_else(super::name, |_| "succeeded".to_owned())
}
