//! Findings of runs in the foreground: such a run has no directory of its own, so each one with a finding has a small file
//! of numbered events beside those of the others.
//!
//! ```text
//! STATE/findings/NAME.jsonl   appended by the process of the run alone, made with its first finding
//! ```
//! The form is that of `runs/NAME/events.jsonl`, so that `bastle logs --events` and the daemon read both alike.
//!
//! **Trust:** the directory is its owner's alone. A finding may quote a host that the agent chose. Rules speak at most 16 times
//! each, so a file is small; the files are bounded in number.
use super::events::EventLog;
use bastle_contract::{Code, Fault, RunId};
use serde_json::Value;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most of these files; the one that was written longest ago goes first.
const MOST_FILES: usize = 1024;

/// Where they all are.
#[must_use]
pub fn findings_directory(state: &Path) -> PathBuf {
    state.join("findings")
}

/// The file of one run. It is there once something was found.
#[must_use]
pub fn findings_path(state: &Path, run: &RunId) -> PathBuf {
    findings_directory(state).join(format!("{run}.jsonl"))
}

/// The run whose findings a file of this name holds.
#[must_use]
pub fn run_of_findings(file_name: &str) -> Option<RunId> {
    RunId::try_from(file_name.strip_suffix(".jsonl")?.to_owned()).ok()
}

/// Every run with such a file.
#[must_use]
pub fn with_findings(state: &Path) -> Vec<RunId> {
    let Ok(entries) = std::fs::read_dir(findings_directory(state)) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut runs: Vec<RunId> = names.filter_map(|name| run_of_findings(&name)).collect();
    runs.sort();
    runs
}

/// Makes the directory, where it is not there.
pub(crate) fn make_findings_directory(state: &Path) -> std::io::Result<PathBuf> {
    let directory = findings_directory(state);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    Ok(directory)
}

/// Whether a finding is on disk before the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    Yes,
    No,
}

/// Appends a finding of a run in the foreground.
pub(crate) fn append_finding(
    state: &Path,
    run: &RunId,
    finding: Value,
    durable: Durable,
) -> Result<(), Fault> {
    let path = findings_path(state, run);
    let write = || -> std::io::Result<()> {
        make_findings_directory(state)?;
        if !path.exists() {
            make_room(state);
        }
        let mut log = EventLog::open(&path)?;
        log.append("anomaly", finding)?;
        if durable == Durable::Yes {
            log.sync()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        Fault::new(
            Code::StateDir,
            format!("cannot write {}", path.display()),
            error.to_string(),
        )
        .help("free disk space, or set XDG_STATE_HOME to a writable directory")
    })
}

/// The audit log of the run keeps what is removed here.
fn make_room(state: &Path) {
    let mut files: Vec<_> = with_findings(state)
        .iter()
        .map(|run| findings_path(state, run))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    if files.len() < MOST_FILES {
        return;
    }
    files.sort();
    for (_, path) in files.iter().take(files.len() + 1 - MOST_FILES) {
        // One that stays is one more than wanted.
        drop(std::fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::read_events;
    use serde_json::json;

    #[test]
    fn findings_are_numbered_and_the_oldest_file_goes_when_there_are_too_many() {
        let state = tempfile::tempdir().unwrap();
        let run = |n: usize| RunId::try_from(format!("run-{n}")).unwrap();
        for n in 0..3 {
            append_finding(state.path(), &run(0), json!({ "n": n }), Durable::Yes).unwrap();
        }
        let events = read_events(&findings_path(state.path(), &run(0)), 0, 100).unwrap();
        assert_eq!(
            events.iter().map(|event| event.seq).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        let old = std::time::SystemTime::UNIX_EPOCH;
        let file = std::fs::File::options()
            .write(true)
            .open(findings_path(state.path(), &run(0)));
        file.unwrap().set_modified(old).unwrap();
        for n in 1..=MOST_FILES {
            append_finding(state.path(), &run(n), json!({}), Durable::No).unwrap();
        }
        assert_eq!(with_findings(state.path()).len(), MOST_FILES);
        assert!(!findings_path(state.path(), &run(0)).exists(), "the oldest goes");
        std::fs::write(findings_directory(state.path()).join("Not A Run.jsonl"), "").unwrap();
        assert_eq!(
            with_findings(state.path()).len(),
            MOST_FILES,
            "no other name is a run's"
        );
    }
}
