//! The processes of a fleet, as the kernel shows them: who belongs to whom, and what each is.
use std::collections::BTreeMap;
use std::path::Path;

/// A process, told from a later one of the same number by when it began.
pub(crate) type Known = BTreeMap<u32, String>;

/// What a process of bastle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Keeper,
    Egress,
    Worker,
    Init,
}

fn words(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// Fields of `stat` behind the name: the state, the parent, and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// When it began; nothing for one that has ended, also while nobody has taken its status.
pub(crate) fn began(pid: u32) -> Option<String> {
    let fields = stat(pid)?;
    (fields.first()? != "Z").then(|| fields.get(19).cloned())?
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Whether a process was begun by another one, or by one of those that it began.
pub(crate) fn descends(pid: u32, from: u32) -> bool {
    std::iter::successors(parent(pid), |above| parent(*above))
        .take(8)
        .any(|above| above == from)
}

/// Adds everything that these began, and what those began that are known.
pub(crate) fn grow(known: &mut Known, roots: &[u32]) {
    known.retain(|pid, since| began(*pid).as_ref() == Some(since));
    let mut next: Vec<u32> = roots.iter().copied().chain(known.keys().copied()).collect();
    while let Some(pid) = next.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
                if !known.contains_key(&child)
                    && let Some(since) = began(child)
                {
                    known.insert(child, since);
                    next.push(child);
                }
            }
        }
    }
}

/// What it is.
pub(crate) fn part(pid: u32) -> Option<Part> {
    let words = words(pid);
    let first = words.first()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match words.get(1).map(String::as_str) {
        Some("__keep") => Some(Part::Keeper),
        Some("__egress") => Some(Part::Egress),
        // A copy of the worker that took another name.
        _ if name.trim() == "bastle-init" => Some(Part::Init),
        _ if first.starts_with("bastle-spawner") => Some(Part::Worker),
        _ => None,
    }
}

/// The run that a process belongs to: by its keeper, or by the spawner's own list of workers.
pub(crate) fn run_of(pid: u32, workers: &Path) -> Option<String> {
    let mut at = pid;
    for _ in 0..8 {
        let words = words(at);
        if words.get(1).is_some_and(|word| word == "__keep") {
            return words.get(3).cloned();
        }
        if let Ok(text) = std::fs::read_to_string(workers.join(at.to_string())) {
            let entry: serde_json::Value = serde_json::from_str(&text).ok()?;
            return entry["run"].as_str().map(str::to_owned);
        }
        at = parent(at)?;
    }
    None
}

/// What can be seen of a process, for whoever must find out why it is still there.
pub(crate) fn described(pid: u32) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    format!(
        "{pid} of {:?}: {:?} {:?} state {:?} waits in {:?} {:?}",
        parent(pid).map(|above| (above, words(above))),
        read("comm").trim(),
        words(pid),
        stat(pid).and_then(|fields| fields.first().cloned()),
        read("wchan"),
        read("syscall").trim(),
    )
}
