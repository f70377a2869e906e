//! The rules of anomalies held against one living run, by the process that relays it: in the foreground and in the
//! background, with or without a daemon.
//!
//! What earlier runs of the same project and agent did is kept in one small file for each such pair, so that a run reads only
//! what it is compared with, and only once something happens that is compared.
//! **Trust:** the files are the user's own. One that cannot be read is learned anew; it only says what is usual.
use super::{Anomalies, Baseline, Finding, Rules, Severity, Subject};
use crate::runs::now_ms;
use bastle_contract::runs::RunEvent;
use bastle_contract::{Fault, RunId};
use rustix::fs::FlockOperation;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Rules of the owner of the state directory, instead of the built-in ones.
const RULES: &str = "daemon/anomalies.json";
/// Where what is usual is kept, one file for each project and agent.
const BASELINES: &str = "baseline";
/// Largest of these files that is read.
const MOST_BYTES: u64 = 1 << 20;
/// Most of these files; the one that was not changed for longest goes first.
const MOST_FILES: usize = 1024;

/// The rules of a state directory, or the built-in ones. Rules that cannot be read are an error: nobody would be told of
/// anything.
pub(crate) fn rules_of(state: &Path) -> Result<Rules, Fault> {
    match read(&state.join(RULES)) {
        Some(bytes) => Rules::parse("anomalies.json", &bytes),
        None => Rules::built_in(),
    }
}

/// What was found in a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundSoFar {
    /// How many findings.
    pub(crate) count: u64,
    /// The highest severity among the findings.
    pub(crate) worst: Option<Severity>,
}

/// Follows one run.
pub(crate) struct LiveWatch {
    state: PathBuf,
    run: RunId,
    project: String,
    agent: String,
    /// Made when the first event comes that a rule could speak about.
    anomalies: Option<Anomalies>,
    seq: u64,
    /// Whether anything was seen that later runs are compared with.
    teaches: bool,
    pub(crate) found: FoundSoFar,
    /// Why the rules of the state directory could not be used, until it is told.
    pub(crate) trouble: Option<Fault>,
}

impl LiveWatch {
    /// Reads nothing yet.
    pub(crate) fn new(state: &Path, run: &RunId, project: &str, agent: &str) -> Self {
        Self {
            state: state.to_path_buf(),
            run: run.clone(),
            project: project.to_owned(),
            agent: agent.to_owned(),
            anomalies: None,
            seq: 0,
            teaches: false,
            found: FoundSoFar::default(),
            trouble: None,
        }
    }

    /// The state directory of the run.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Looks at something that happened.
    pub(crate) fn observe(&mut self, kind: &str, data: Value) -> Vec<Finding> {
        if self.anomalies.is_none() {
            self.anomalies = self.load();
        }
        let Some(anomalies) = &mut self.anomalies else {
            return Vec::new();
        };
        self.teaches |= matches!(kind, "net" | "traffic");
        self.seq += 1;
        let event = RunEvent {
            seq: self.seq,
            time_ms: now_ms(),
            kind: kind.to_owned(),
            data,
        };
        let subject = Subject {
            run: &self.run,
            project: &self.project,
            agent: &self.agent,
        };
        let findings = anomalies.observe(&subject, &event);
        for finding in &findings {
            self.found.count += 1;
            self.found.worst = self.found.worst.max(Some(finding.severity));
        }
        findings
    }

    /// The run is over: what it did is usual from now on, unless something grave was found. `bytes_out` is its total.
    pub(crate) fn finish(&mut self, bytes_out: u64) -> Vec<Finding> {
        if !self.teaches {
            return Vec::new();
        }
        let path = self.path();
        // A lock that cannot be had costs a lesson, and holds nobody up.
        let Some(_lock) = lock(&self.state.join(BASELINES)) else {
            return Vec::new();
        };
        // Another run of the pair may have ended meanwhile.
        if let Some(anomalies) = &mut self.anomalies {
            anomalies.replace_baseline(baseline(&path));
        }
        let ended = serde_json::json!({ "net": { "bytes_out": bytes_out } });
        let findings = self.observe("ended", ended);
        if let Some(anomalies) = &mut self.anomalies
            && anomalies.take_learned()
        {
            keep(&path, &anomalies.baseline().save());
        }
        findings
    }

    fn load(&mut self) -> Option<Anomalies> {
        let rules = rules_of(&self.state).or_else(|fault| {
            self.trouble.get_or_insert(fault);
            Rules::built_in()
        });
        Some(Anomalies::new(rules.ok()?, baseline(&self.path())))
    }

    fn path(&self) -> PathBuf {
        let name = blake3::hash(format!("{}\n{}", self.agent, self.project).as_bytes()).to_hex();
        self.state.join(BASELINES).join(format!("{}.json", &name[..32]))
    }
}

fn baseline(path: &Path) -> Baseline {
    match read(path).map(|bytes| Baseline::load(&bytes)) {
        Some(Ok(baseline)) => baseline,
        Some(Err(_)) | None => Baseline::new(),
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn lock(directory: &Path) -> Option<File> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .ok()?;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join("lock"))
        .ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Keeps a file, and room for it. It is a hint: one that cannot be kept is learned again.
fn keep(path: &Path, bytes: &[u8]) {
    if !path.exists() {
        make_room(path.parent().unwrap_or(path));
    }
    let beside = path.with_extension("new");
    let written = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes));
    drop(written.and_then(|()| std::fs::rename(&beside, path)));
}

fn make_room(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let mut files: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    if files.len() < MOST_FILES {
        return;
    }
    files.sort();
    for (_, path) in files.iter().take(files.len() + 1 - MOST_FILES) {
        drop(std::fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(state: &Path, hosts: &[&str]) -> Vec<Finding> {
        let name = RunId::try_from("r-1".to_owned()).unwrap();
        let mut watch = LiveWatch::new(state, &name, "/p", "sh");
        let mut found = Vec::new();
        for host in hosts {
            found.extend(watch.observe("net", json!({ "verdict": "allowed", "host": host, "port": 443 })));
        }
        found.extend(watch.finish(1000));
        found
    }

    #[test]
    fn a_host_that_no_earlier_run_reached_is_found_without_a_daemon() {
        let home = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            assert_eq!(run(home.path(), &["a.example"]), []);
        }
        assert_eq!(run(home.path(), &["a.example"]), [], "it is usual");
        let found = run(home.path(), &["a.example", "b.example"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("b.example"), "{found:?}");
    }

    #[test]
    fn a_run_that_nothing_is_compared_with_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let name = RunId::try_from("r-1".to_owned()).unwrap();
        let mut watch = LiveWatch::new(home.path(), &name, "/p", "sh");
        assert_eq!(watch.observe("denied", json!({ "count": 1 })), []);
        assert_eq!(watch.finish(0), []);
        assert!(!home.path().join(BASELINES).exists());
    }

    #[test]
    fn rules_of_the_owner_hold_and_bad_ones_are_told() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("daemon")).unwrap();
        let rule = r#"{"version":1,"rules":[{"id":"few","when":"file-burst","threshold":64,"windowSeconds":60,"severity":"high","action":"alert"}]}"#;
        std::fs::write(home.path().join(RULES), rule).unwrap();
        let name = RunId::try_from("r-1".to_owned()).unwrap();
        let mut watch = LiveWatch::new(home.path(), &name, "/p", "sh");
        assert_eq!(watch.observe("files", json!({ "changed": 64 })).len(), 1);
        assert_eq!(
            watch.found,
            FoundSoFar {
                count: 1,
                worst: Some(Severity::High)
            }
        );
        std::fs::write(home.path().join(RULES), "{").unwrap();
        assert!(rules_of(home.path()).is_err());
        let mut watch = LiveWatch::new(home.path(), &name, "/p", "sh");
        assert_eq!(
            watch.observe("canary", json!({ "where": "x" })).len(),
            1,
            "built-in rules hold"
        );
        assert!(watch.trouble.is_some());
    }
}
