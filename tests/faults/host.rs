//! The host as the tests see it: processes, groups, mounts, claims. Nothing here changes it.
use crate::support::{Lab, bastle};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long something that must happen by itself may take on a slow, loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run could leave behind besides its processes, groups and files.
#[derive(Debug)]
pub(crate) struct Host {
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<String>,
}

impl Host {
    /// As it is now. What other tests mount in their places comes and goes with them.
    pub(crate) fn now(lab: &Lab) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("own mounts can be read");
        let place = lab
            .home()
            .parent()
            .expect("is in the place")
            .display()
            .to_string();
        let foreign = |line: &str| line.contains("/bastle-") && !line.contains(&place);
        Self {
            mounts: mounts
                .lines()
                .filter(|line| !foreign(line))
                .map(str::to_owned)
                .collect(),
            interfaces: names(Path::new("/sys/class/net")),
        }
    }

    /// What was not there before.
    pub(crate) fn added(&self, before: &Self) -> Vec<String> {
        let mounts = self.mounts.difference(&before.mounts);
        let interfaces = self.interfaces.difference(&before.interfaces);
        mounts.chain(interfaces).cloned().collect()
    }
}

/// The names in a directory; none when it is not there.
pub(crate) fn names(directory: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A word that stands in no other command line of this machine.
pub(crate) fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "bastle-mark-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Waits for `wanted`, a bounded time; says whether it came.
pub(crate) fn eventually(mut wanted: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    let pause = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    while !wanted() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        rustix::event::poll(&mut [], Some(&pause)).expect("can wait");
    }
    true
}

/// Lets that much time pass.
pub(crate) fn pass(time: Duration) {
    let time = rustix::event::Timespec::try_from(time).expect("a short time");
    rustix::event::poll(&mut [], Some(&time)).expect("can wait");
}

fn pids() -> Vec<u32> {
    names(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// The words of a process's command line.
fn words(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// Processes that carry the marker in their command line, the waiting bastle itself left out.
pub(crate) fn marked(marker: &str) -> Vec<u32> {
    let carries = |pid: &u32| {
        let words = words(*pid);
        let is_bastle = words.get(1).is_some_and(|word| word == "run");
        !is_bastle && words.iter().any(|word| word.contains(marker))
    };
    pids().into_iter().filter(carries).collect()
}

/// A field of `/proc/PID/status`.
pub(crate) fn status(pid: u32, field: &str) -> Option<String> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// The children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let parent = |child: &u32| status(*child, "PPid").and_then(|parent| parent.parse().ok()) == Some(pid);
    pids().into_iter().filter(parent).collect()
}

/// Spawners and inits whose bastle is gone. They must end by themselves.
pub(crate) fn orphans() -> Vec<u32> {
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let ours = |pid: &u32| {
        words(*pid).get(1).is_some_and(|verb| verb == "__spawner")
            && program(*pid).as_deref() == Some(bastle())
            && status(*pid, "State").is_some_and(|state| !state.starts_with('Z'))
    };
    let alone = |pid: &u32| {
        let parent = status(*pid, "PPid").and_then(|parent| parent.parse::<u32>().ok());
        parent.and_then(program).as_deref() != Some(bastle())
    };
    // Twice: between the two questions the process itself can end.
    pids()
        .into_iter()
        .filter(ours)
        .filter(alone)
        .filter(ours)
        .collect()
}

/// The control-group directories of a run.
pub(crate) fn groups(run: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("bastle-") && name.ends_with(&format!("-{run}")) {
                found.push(entry.path());
            } else {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Whether nothing of a run is left: no process, no group. Waits for what is still dying.
pub(crate) fn all_gone(marker: &str, run: &str) -> bool {
    let gone = eventually(|| marked(marker).is_empty() && groups(run).is_empty() && orphans().is_empty());
    if !gone {
        eprintln!("left: {:?} {:?} {:?}", marked(marker), groups(run), orphans());
    }
    gone
}

/// Claims on uids that no living spawner holds. The kernel releases a claim with its process.
pub(crate) fn stray_claims() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("the sockets can be listed");
    let claims = table.lines().filter(|line| line.contains("@bastle/uid/"));
    let held = |line: &&str| {
        let inode = line.split_whitespace().nth(6).unwrap_or_default();
        let wanted = PathBuf::from(format!("socket:[{inode}]"));
        pids().into_iter().any(|pid| {
            let folder = PathBuf::from(format!("/proc/{pid}/fd"));
            names(&folder)
                .iter()
                .any(|fd| std::fs::read_link(folder.join(fd)).is_ok_and(|target| target == wanted))
        })
    };
    claims.filter(|line| !held(line)).map(str::to_owned).collect()
}

/// Everything below a directory: kind, permission bits and bytes of each entry.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().expect("is there");
        let bytes = if meta.is_dir() {
            open.extend(names(&path).iter().map(|name| path.join(name)));
            Vec::new()
        } else if meta.is_symlink() {
            let target = std::fs::read_link(&path).expect("is a symlink");
            target.to_string_lossy().into_owned().into_bytes()
        } else if meta.is_file() {
            std::fs::read(&path).expect("own file")
        } else {
            // A pipe would wait for a writer.
            Vec::new()
        };
        found.insert(path, (meta.permissions().mode(), bytes));
    }
    found
}
