//! Probes of the constructed root, its masks, Landlock and the name guard.
use super::{Baseline, Control, Probe, outcome};
use bastle_contract::{Access, Guarantee, GuardedTree, LaunchPlan, Mount, MountKind, ProbeResult};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

/// Most masks that are tried; all are made by the same code.
const MASKS_TRIED: usize = 64;
const NAME: &str = ".bastle-probe";
/// Where the covers of masks and live grants wait, as the root names it.
const STAGED: &str = "/.mask";

/// What the mounts hold, for every process of the sandbox alike.
pub(super) fn of_place(plan: &LaunchPlan, baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    reads(plan, baseline, results);
    masks(plan, results);
    devices(results);
    proc(results);
}

/// What is tried from the agent's own place.
pub(super) fn of_agent(plan: &LaunchPlan, baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    if plan.is_without_landlock() {
        instead_of_landlock(baseline, results);
    } else {
        landlock(baseline, results);
    }
    let creates = writes(plan, results);
    names(plan, &creates, results);
}

fn reads(plan: &LaunchPlan, baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let seen = std::fs::metadata("/..").map(|meta| Some((meta.dev(), meta.ino())));
    let observed = match seen {
        Ok(seen) if seen == baseline.host_root => "the host's root".to_owned(),
        Ok(_) => "another directory".to_owned(),
        Err(error) => error.to_string(),
    };
    let control = Control::new("the host's root was seen before", baseline.host_root.is_some());
    results.push(
        Probe::new(Guarantee::ReadsConfined, "stat /..", "another directory").judge(observed, &control),
    );

    let wanted: BTreeSet<&str> = plan.mounts.iter().map(|mount| mount.at.as_str()).collect();
    let table = super::text_of("/proc/self/mountinfo");
    let places: Vec<String> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .collect();
    let stray: Vec<&String> = places.iter().filter(|place| !planned(&wanted, place)).collect();
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    let control = Control::new(
        "/proc is in the list",
        places.iter().any(|place| place == "/proc"),
    );
    results.push(
        Probe::new(
            Guarantee::ReadsConfined,
            "look for mounts that are not planned",
            "none",
        )
        .judge(observed, &control),
    );
}

/// Whether a mount point is planned, or lies below one that is.
fn planned(planned: &BTreeSet<&str>, place: &str) -> bool {
    let mut above = place;
    loop {
        if above.is_empty() || planned.contains(above) {
            // Only the root itself may be unplanned: it is what everything else is mounted on.
            return !above.is_empty() || place == "/";
        }
        above = above.rsplit_once('/').map_or("", |(head, _)| head);
    }
}

/// The kernel writes space, tab, newline and backslash as octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// Returns the control that later probes share: creating a file goes through the guard, wherever it is.
fn writes(plan: &LaunchPlan, results: &mut Vec<ProbeResult>) -> Control {
    let control = Control::new(
        "creating a file in /tmp through the guard",
        create("/tmp").is_ok(),
    );
    let read_only = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind {
            access: Access::ReadOnly,
            ..
        }
        | MountKind::Overlay {
            access: Access::ReadOnly,
            ..
        }
        | MountKind::Again {
            access: Access::ReadOnly,
            ..
        } => Some(mount.at.as_str()),
        _ => None,
    });
    let mut writable: Vec<&str> = Vec::new();
    let mut directory = None;
    for place in read_only {
        let flags = rustix::fs::statvfs(place).map(|stat| stat.f_flag);
        // What a mask covers cannot be looked at, and is read-only itself.
        if flags.is_ok_and(|flags| !flags.contains(StatVfsMountFlags::RDONLY)) {
            writable.push(place);
        }
        directory = directory.or_else(|| {
            std::fs::metadata(place)
                .is_ok_and(|meta| meta.is_dir())
                .then_some(place)
        });
    }
    let observed = if writable.is_empty() {
        "none".to_owned()
    } else {
        format!("{writable:?}")
    };
    results.push(
        Probe::new(
            Guarantee::WritesConfined,
            "look for read-only binds that are writable",
            "none",
        )
        .judge(observed, &control),
    );
    // Not by creating: that would be init's to do, and here this process itself is asked.
    let touched = Control::new("the same in /tmp", touch("/tmp").is_ok());
    for place in [Some("/"), directory].into_iter().flatten() {
        let attempt = format!("set the times of {place}");
        results.push(
            Probe::new(Guarantee::WritesConfined, attempt, "EROFS").judge(outcome(touch(place)), &touched),
        );
    }
    control
}

/// Creates a file and removes it again.
fn create(directory: &str) -> Result<(), Errno> {
    let path = if directory == "/" {
        format!("/{NAME}")
    } else {
        format!("{directory}/{NAME}")
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(path.as_str(), flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::unlink(path.as_str())
}

/// Sets a directory's times to what they are.
fn touch(directory: &str) -> Result<(), Errno> {
    let stat = rustix::fs::stat(directory)?;
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    let times = Timestamps {
        last_access: time(stat.st_atime as _, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec as _),
    };
    rustix::fs::utimensat(CWD, directory, &times, AtFlags::empty())
}

pub(super) fn masks(plan: &LaunchPlan, results: &mut Vec<ProbeResult>) {
    let masked: Vec<&Mount> = plan
        .mounts
        .iter()
        .filter(|mount| mount.kind == MountKind::Mask)
        .take(MASKS_TRIED)
        .collect();
    if masked.is_empty() {
        return;
    }
    let control = Control::new(
        "reading /etc/passwd",
        std::fs::read("/etc/passwd").is_ok_and(|bytes| !bytes.is_empty()),
    );
    for mount in masked {
        let observed = match rustix::fs::open(
            mount.at.as_path(),
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            // Gone since the plan was made: there is nothing to read, and the guard keeps the name from coming back.
            Err(Errno::NOENT) => "EACCES".to_owned(),
            other => outcome(other),
        };
        results.push(
            Probe::new(Guarantee::SecretsHidden, format!("read {}", mount.at), "EACCES")
                .judge(observed, &control),
        );
    }
}

fn names(plan: &LaunchPlan, control: &Control, results: &mut Vec<ProbeResult>) {
    if !plan.guarantees.contains(&Guarantee::NamesGuarded) {
        return;
    }
    for tree in &plan.guard.trees {
        let Some(path) = guarded_path(tree) else { continue };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let result = rustix::fs::open(path.as_str(), flags, Mode::from_raw_mode(0o600));
        if result.is_ok() && rustix::fs::unlink(path.as_str()).is_err() {
            results.push(
                Probe::new(Guarantee::NamesGuarded, format!("remove {path}"), "removed")
                    .judge("left behind", control),
            );
        }
        results.push(
            Probe::new(Guarantee::NamesGuarded, format!("create {path}"), "EACCES")
                .judge(outcome(result), control),
        );
    }
}

/// A name in the tree's root that one of its own patterns covers and that does not exist. Built from patterns of one
/// component, with or without a `*` at the end; the other forms are the same code with more components.
fn guarded_path(tree: &GuardedTree) -> Option<String> {
    tree.hide
        .patterns()
        .chain(tree.protect.patterns())
        .find_map(|pattern| {
            let text = pattern.as_str();
            let last = text.strip_prefix("**/").unwrap_or(text);
            let name = last
                .strip_suffix('*')
                .map_or_else(|| last.to_owned(), |stem| format!("{stem}{NAME}"));
            let path = format!("{}/{name}", tree.root);
            let guarded = tree.hide.matches(name.as_bytes()) || tree.protect.matches(name.as_bytes());
            let plain = guarded && !name.contains(['*', '?', '/']);
            (plain && std::fs::symlink_metadata(&path).is_err()).then_some(path)
        })
}

fn landlock(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let control = Control::new("the same before Landlock", baseline.wrote_proc);
    let result = rustix::fs::open("/proc/self/comm", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    results.push(
        Probe::new(
            Guarantee::LandlockFs,
            "open /proc/self/comm for writing",
            "EACCES",
        )
        .judge(outcome(result), &control),
    );
}

/// What held writes to a process's own files in `/proc`, and what waits to be granted, where Landlock does not.
fn instead_of_landlock(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let control = Control::new("the same in the host's /proc", baseline.wrote_host_proc);
    for name in ["/proc/self/comm", "/proc/thread-self/comm"] {
        let result = rustix::fs::open(name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let attempt = Probe::new(
            Guarantee::ProcWritesByMount,
            format!("open {name} for writing"),
            "EROFS",
        );
        results.push(attempt.judge(outcome(result), &control));
    }
    let list = |path: &str| {
        rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let there = rustix::fs::lstat(STAGED).is_ok();
    let control = Control::new("it is there, and / can be listed", there && list("/").is_ok());
    for path in [STAGED.to_owned(), format!("{STAGED}/directory")] {
        let attempt = Probe::new(Guarantee::StagedGrantsByMode, format!("list {path}"), "EACCES");
        results.push(attempt.judge(outcome(list(&path)), &control));
    }
}

fn devices(results: &mut Vec<ProbeResult>) {
    let control = Control::new(
        "opening /dev/null",
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok(),
    );
    let known = ["ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"];
    let stray: Vec<String> = std::fs::read_dir("/dev")
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        })
        .unwrap_or_else(|error| vec![error.to_string()])
        .into_iter()
        .filter(|name| !known.contains(&name.as_str()) && !crate::root::DEVICES.contains(&name.as_str()))
        .collect();
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    results.push(
        Probe::new(Guarantee::DevicesMinimal, "look for other device nodes", "none")
            .judge(observed, &control),
    );
}

fn proc(results: &mut Vec<ProbeResult>) {
    let control = Control::new(
        "reading /proc/self/status",
        std::fs::read("/proc/self/status").is_ok(),
    );
    let mut reachable = Vec::new();
    for name in crate::root::PROC_MASKED {
        let path = format!("/proc/{name}");
        let open = rustix::fs::open(
            path.as_str(),
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        );
        if !matches!(open, Err(Errno::ACCESS | Errno::NOENT)) {
            reachable.push(path);
        }
    }
    for name in crate::root::PROC_READ_ONLY {
        let path = format!("/proc/{name}");
        if rustix::fs::statvfs(path.as_str())
            .is_ok_and(|stat| !stat.f_flag.contains(StatVfsMountFlags::RDONLY))
        {
            reachable.push(path);
        }
    }
    let observed = if reachable.is_empty() {
        "none".to_owned()
    } else {
        format!("{reachable:?}")
    };
    results.push(
        Probe::new(Guarantee::ProcMasked, "open kernel files in /proc", "none").judge(observed, &control),
    );
}
