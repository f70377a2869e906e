//! Probes of the parts of Landlock beside files, and of what replaces a part that the kernel lacks. Init makes them:
//! before it is confined what must be possible then, afterwards the same once more, before any other process exists.
use super::path_sockets::Earlier;
use super::{Control, Probe, outcome};
use crate::root::DEVICES;
use bastle_contract::{
    AbsPath, Access, Guarantee, Handover, LandlockPart, LandlockParts, LaunchPlan, Mount, MountKind,
    OutOfReach, ProbeResult,
};
use bastle_sys::clone::Ended;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use std::os::fd::OwnedFd;

/// A file that its process may write and truncate, on a mount that is writable: only Landlock is in the way.
const OWN_NAME: &str = "/proc/self/comm";
/// Nodes that are readable and no more.
const READABLE: [&str; 2] = ["/dev/urandom", "/dev/random"];
/// Most files of read-only mounts of one kind that are tried; all mounts are made by the same code.
const FILES_TRIED: usize = 2;
/// Most names of a directory that are looked at for one.
const NAMES_SEEN: usize = 64;
/// How deep below a mount.
const DEPTH: usize = 3;

/// What was possible before Landlock, and what it will be tried on afterwards.
pub(crate) struct Before {
    parts: LandlockParts,
    truncated: Control,
    /// A node without the right to requests, where the plan leaves one.
    device: Option<&'static str>,
    asked: Control,
    /// A process that has ended outside the domain and is not waited for yet: it can still be signalled.
    ended: Option<Ended>,
    signalled: Control,
    /// An abstract socket that was made outside the domain.
    listener: Option<(OwnedFd, SocketAddrUnix)>,
    connected: Control,
    /// A socket with a path that was made outside the domain.
    path_socket: Option<Earlier>,
}

impl Before {
    /// Makes what is needed, and tries it.
    pub(crate) fn confinement(plan: &LaunchPlan) -> Self {
        let parts = plan.landlock_parts;
        let ended = if parts.has(LandlockPart::Scopes) {
            Ended::child().ok()
        } else {
            None
        };
        let listener = if parts.has(LandlockPart::Scopes) {
            listen().ok()
        } else {
            None
        };
        let device = READABLE.into_iter().find(|node| !is_writable(plan, node));
        let before = |text: &str, seen: &str, wanted: &[&str]| Control::new(text, wanted.contains(&seen));
        let reached = listener
            .as_ref()
            .map(|(_, name)| outcome(connect(name)))
            .unwrap_or_default();
        let signalled = ended
            .as_ref()
            .map(|ended| signal(ended.pid()))
            .unwrap_or_default();
        Self {
            parts,
            truncated: before("the same before Landlock", &truncate(OWN_NAME, 0), &["succeeded"]),
            device,
            asked: before(
                "no such request before Landlock",
                &device.map(ask).unwrap_or_default(),
                &["EINVAL", "ENOTTY"],
            ),
            ended,
            signalled: before("the same before Landlock", &signalled, &["succeeded"]),
            listener,
            connected: before("the same before Landlock", &reached, &["succeeded"]),
            path_socket: parts.has(LandlockPart::Unix).then(Earlier::make),
        }
    }

    /// Tries again, confined: what Landlock holds, and what something else holds in its place.
    pub(crate) fn again(mut self, handover: &Handover) -> Vec<ProbeResult> {
        let mut results = Vec::new();
        if let Some(earlier) = self.path_socket.take() {
            earlier.again(&mut results);
        }
        if self.parts.has(LandlockPart::Truncate) {
            let attempt = Probe::new(
                Guarantee::LandlockTruncate,
                format!("truncate {OWN_NAME}"),
                "EACCES",
            );
            results.push(attempt.judge(truncate(OWN_NAME, 0), &self.truncated));
        } else {
            truncate_by_mount(&handover.plan, &mut results);
        }
        match (self.parts.has(LandlockPart::Ioctl), self.device) {
            (true, Some(node)) => {
                let attempt = Probe::new(Guarantee::LandlockIoctl, format!("a request to {node}"), "EACCES");
                results.push(attempt.judge(ask(node), &self.asked));
            }
            // Without a node to try nothing is claimed, and the guarantee is required.
            (true, None) => {}
            (false, _) => ioctl_by_devices(&mut results),
        }
        if self.parts.has(LandlockPart::Scopes) {
            self.scopes(&mut results);
        } else {
            signals_by_namespace(&handover.out_of_reach, &mut results);
            sockets_by_namespace(&handover.out_of_reach, &mut results);
        }
        results
    }

    fn scopes(self, results: &mut Vec<ProbeResult>) {
        if let Some(ended) = &self.ended {
            let attempt = Probe::new(
                Guarantee::LandlockScopes,
                "signal a process outside the domain",
                "EPERM",
            );
            results.push(attempt.judge(signal(ended.pid()), &self.signalled));
        }
        if let Some((_, name)) = &self.listener {
            let attempt = Probe::new(
                Guarantee::LandlockScopes,
                "connect to an abstract socket outside the domain",
                "EPERM",
            );
            results.push(attempt.judge(outcome(connect(name)), &self.connected));
        }
        // A part that was not tried is not proven by the other.
        if self.ended.is_none() || self.listener.is_none() {
            let attempt = Probe::new(Guarantee::LandlockScopes, "make what is tried", "made");
            let control = Control::new("processes and sockets can be made", false);
            results.push(attempt.judge("not made", &control));
        }
    }
}

fn truncate_by_mount(plan: &LaunchPlan, results: &mut Vec<ProbeResult>) {
    let own = "/tmp/.bastle-probe";
    let made = std::fs::write(own, "x").is_ok() && emptied(own) == "succeeded";
    let control = Control::new("the same with an own file in /tmp", made);
    if let Err(error) = std::fs::remove_file(own) {
        let attempt = Probe::new(Guarantee::TruncateByMount, format!("remove {own}"), "removed");
        results.push(attempt.judge(error.to_string(), &control));
    }
    for path in read_only_files(plan) {
        let attempt = Probe::new(
            Guarantee::TruncateByMount,
            format!("open {path} to truncate it"),
            "EROFS",
        );
        results.push(attempt.judge(emptied(&path), &control));
    }
}

/// A file of each of some read-only mounts: of the host's, and of those that were made for the run.
fn read_only_files(plan: &LaunchPlan) -> impl Iterator<Item = String> + '_ {
    let shown = |mount: &&Mount| match &mount.kind {
        MountKind::Bind { access, .. }
        | MountKind::Overlay { access, .. }
        | MountKind::Again { access, .. } => *access == Access::ReadOnly,
        MountKind::File { .. }
        | MountKind::Attached { .. }
        | MountKind::Scratch { .. }
        | MountKind::Proc
        | MountKind::Dev
        | MountKind::Symlink { .. }
        | MountKind::Given { .. }
        | MountKind::Mask => false,
    };
    let made = |mount: &&Mount| matches!(mount.kind, MountKind::File { .. } | MountKind::Attached { .. });
    let file = |mount: &Mount| file_at(plan, mount.at.as_str(), DEPTH);
    let shown = plan
        .mounts
        .iter()
        .filter(shown)
        .filter_map(file)
        .take(FILES_TRIED);
    let made = plan.mounts.iter().filter(made).filter_map(file).take(FILES_TRIED);
    shown.chain(made)
}

/// The path itself, or the first file below it that is on the same mount.
fn file_at(plan: &LaunchPlan, path: &str, depth: usize) -> Option<String> {
    let stat = rustix::fs::lstat(path).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(path.to_owned()),
        FileType::Directory if depth > 0 => {
            let entries = std::fs::read_dir(path).ok()?.flatten().take(NAMES_SEEN);
            let mut below = entries.filter_map(|entry| entry.path().to_str().map(str::to_owned));
            below.find_map(|path| {
                let other = plan.mounts.iter().any(|mount| mount.at.as_str() == path);
                if other {
                    None
                } else {
                    file_at(plan, &path, depth - 1)
                }
            })
        }
        _ => None,
    }
}

fn ioctl_by_devices(results: &mut Vec<ProbeResult>) {
    let table = super::text_of("/proc/self/mountinfo");
    let control = Control::new(
        "/proc is listed without devices",
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split(' ').take(6).collect();
            fields.get(4) == Some(&"/proc") && fields.get(5).is_some_and(|options| has_no_devices(options))
        }),
    );
    let attempt = Probe::new(
        Guarantee::IoctlByDevices,
        "look for mounts that have devices, beside the known nodes",
        "none",
    );
    results.push(attempt.judge(none_or(&mounts_with_devices(&table)), &control));
    let known = Control::new("/dev/null is a node", node("/dev/null").is_some());
    let attempt = Probe::new(
        Guarantee::IoctlByDevices,
        "look for other nodes under the known names",
        "none",
    );
    let stray: Vec<String> = DEVICES.iter().filter_map(|name| stray_node(name)).collect();
    results.push(attempt.judge(none_or(&stray), &known));
}

fn has_no_devices(options: &str) -> bool {
    options.split(',').any(|option| option == "nodev")
}

/// Mount points where a device node could be opened, beside the nodes that every sandbox has and its own terminals.
fn mounts_with_devices(table: &str) -> Vec<String> {
    let known = |place: &str| {
        place == "/dev/pts"
            || place
                .strip_prefix("/dev/")
                .is_some_and(|name| DEVICES.contains(&name))
    };
    let with = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let (place, options) = (fields.next()?, fields.next()?);
        (!has_no_devices(options) && !known(place)).then(|| place.to_owned())
    });
    with.collect()
}

/// Major and minor number of a character device.
fn node(path: &str) -> Option<(u32, u32)> {
    let stat = rustix::fs::stat(path).ok()?;
    let device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    device.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
}

/// The name, where what is there is not what the name says.
fn stray_node(name: &str) -> Option<String> {
    let numbers = match name {
        "null" => (1, 3),
        "zero" => (1, 5),
        "full" => (1, 7),
        "random" => (1, 8),
        "urandom" => (1, 9),
        "tty" => (5, 0),
        _ => return Some(name.to_owned()),
    };
    (node(&format!("/dev/{name}")) != Some(numbers)).then(|| name.to_owned())
}

fn none_or(found: &[String]) -> String {
    if found.is_empty() {
        "none".to_owned()
    } else {
        format!("{found:?}")
    }
}

fn signals_by_namespace(outside: &OutOfReach, results: &mut Vec<ProbeResult>) {
    let own = rustix::process::getpid();
    // The first process of a namespace is always there: its number inside says nothing about the one outside.
    let pid = Pid::from_raw(outside.pid).filter(|pid| !pid.is_init());
    let control = Control::new(
        "a process outside is known, and this one can be signalled",
        pid.is_some() && signal(own) == "succeeded",
    );
    let observed = pid.map(signal).unwrap_or_default();
    let attempt = Probe::new(
        Guarantee::SignalsByPidNamespace,
        "signal a process outside by its number there",
        "ESRCH",
    );
    results.push(attempt.judge(observed, &control));
}

fn sockets_by_namespace(outside: &OutOfReach, results: &mut Vec<ProbeResult>) {
    let named = |name: &[u8]| SocketAddrUnix::new_abstract_name(name).ok();
    let name = outside.abstract_name.as_deref().and_then(named);
    let inside = listen().is_ok_and(|(_held, name)| connect(&name).is_ok());
    let control = Control::new(
        "a name is held outside, and one that is held inside answers",
        name.is_some() && inside,
    );
    let observed = name.map(|name| outcome(connect(&name))).unwrap_or_default();
    let attempt = Probe::new(
        Guarantee::AbstractSocketsByNetNamespace,
        "connect to an abstract name held outside",
        "ECONNREFUSED",
    );
    results.push(attempt.judge(observed, &control));
}

/// Whether a rule of the plan gives more than reading there.
fn is_writable(plan: &LaunchPlan, path: &str) -> bool {
    let Ok(path) = AbsPath::new(path) else { return true };
    let writes = |rule: &&bastle_contract::LandlockRule| rule.access == Access::ReadWrite;
    plan.landlock
        .iter()
        .filter(writes)
        .any(|rule| path.is_within(&rule.path))
}

fn truncate(path: &str, length: u64) -> String {
    outcome(bastle_sys::probe::truncate(path, length).map_err(Errno::from_raw_os_error))
}

/// Opens a file for writing from an empty beginning. Asked for so, the kernel looks at the mount first, then at permissions,
/// then at Landlock, and truncates last: where one layer is missing the next one refuses, and nothing is lost.
fn emptied(path: &str) -> String {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NONBLOCK;
    outcome(rustix::fs::open(path, flags, Mode::empty()))
}

/// A request that no such device knows: it fails in the device, or before.
fn ask(node: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let asked =
        rustix::fs::open(node, flags, Mode::empty()).map(|fd| rustix::termios::tcgetwinsize(fd).map(drop));
    match asked {
        Ok(answer) => outcome(answer),
        Err(errno) => format!("cannot be opened: {}", outcome::<()>(Err(errno))),
    }
}

/// Whether a signal would be let through; none is sent.
fn signal(pid: Pid) -> String {
    outcome(rustix::process::test_kill_process(pid))
}

/// An abstract socket with a name that the kernel chose.
fn listen() -> rustix::io::Result<(OwnedFd, SocketAddrUnix)> {
    let socket = stream()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&socket, 4)?;
    let name = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, name))
}

pub(super) fn connect(name: &SocketAddrUnix) -> rustix::io::Result<()> {
    rustix::net::connect(&stream()?, name)
}

pub(super) fn stream() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_has_devices_is_found_beside_the_known_nodes() {
        let line = |place: &str, options: &str| format!("1 2 0:3 / {place} {options} - tmpfs none rw\n");
        let good = [
            line("/", "ro,nosuid,nodev"),
            line("/dev/null", "rw,nosuid,noexec"),
            line("/dev/pts", "rw,nosuid,noexec"),
        ];
        assert!(mounts_with_devices(&good.concat()).is_empty());
        let bad = [good.concat(), line("/srv/x", "rw,nosuid"), line("/dev/kvm", "rw")];
        assert_eq!(mounts_with_devices(&bad.concat()), ["/srv/x", "/dev/kvm"]);
    }

    #[test]
    fn a_process_or_name_that_is_not_known_outside_proves_nothing() {
        let nobody = OutOfReach {
            pid: 1,
            abstract_name: None,
        };
        let mut results = Vec::new();
        signals_by_namespace(&nobody, &mut results);
        sockets_by_namespace(&nobody, &mut results);
        let verdicts: Vec<_> = results.iter().map(|result| result.verdict).collect();
        assert_eq!(verdicts, [bastle_contract::Verdict::Inconclusive; 2]);
    }

    #[test]
    fn what_is_not_apart_is_broken() {
        let (_held, name) = listen().unwrap();
        let here = OutOfReach {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            abstract_name: name.abstract_name().map(<[u8]>::to_vec),
        };
        let mut results = Vec::new();
        signals_by_namespace(&here, &mut results);
        sockets_by_namespace(&here, &mut results);
        let verdicts: Vec<_> = results.iter().map(|result| result.verdict).collect();
        assert_eq!(verdicts, [bastle_contract::Verdict::Broken; 2], "{results:?}");
    }
}
