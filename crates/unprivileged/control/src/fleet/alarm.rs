//! Unusual events: what the rules for anomalies find is recorded with the event, and a run that is to stand still is told so.
use super::Inner;
use super::rows;
use super::words::now_ms;
use crate::anomaly::{Action, Anomalies, Baseline, Finding, MAX_BASELINE, Rules, Subject};
use crate::store::{Stop, int};
use bastle_contract::runs::RunEvent;
use bastle_contract::{Fault, RunId};
use rusqlite::{Connection, params};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Where what is usual is kept, in the daemon's directory.
const FILE: &str = "baseline.json";
/// Rules of the owner of the state directory, instead of the built-in ones.
const RULES: &str = "anomalies.json";

/// Follows the events of all runs.
pub(super) struct Alarm {
    anomalies: Anomalies,
    path: PathBuf,
}

impl Alarm {
    /// With the rules of this state directory, or the built-in ones. Rules that cannot be read are an error: nobody
    /// would be told of anything.
    pub(super) fn new(inner: &Inner) -> Result<Self, Fault> {
        let directory = inner.options.state.join("daemon");
        let rules = match read(&directory.join(RULES)) {
            Some(bytes) => Rules::parse(RULES, &bytes)?,
            None => Rules::built_in()?,
        };
        let path = directory.join(FILE);
        let baseline = match read(&path).map(|bytes| Baseline::load(&bytes)) {
            Some(Ok(baseline)) => baseline,
            // One that is damaged is learned anew: it only says what is usual.
            Some(Err(_)) | None => Baseline::new(),
        };
        Ok(Self {
            anomalies: Anomalies::new(rules, baseline),
            path,
        })
    }

    /// What is unusual in new events of a run.
    pub(super) fn look(
        &mut self,
        run: &RunId,
        about: &(String, String),
        events: &[RunEvent],
    ) -> Vec<Finding> {
        let subject = Subject {
            run,
            project: &about.0,
            agent: &about.1,
        };
        let each = events.iter();
        each.flat_map(|event| self.anomalies.observe(&subject, event))
            .collect()
    }

    /// Keeps what is usual, when it changed. It is a hint: one that cannot be kept is learned again.
    pub(super) fn keep(&mut self) {
        if !self.anomalies.take_learned() {
            return;
        }
        let beside = self.path.with_extension("new");
        let bytes = self.anomalies.baseline().save();
        let written = std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| file.write_all(&bytes));
        drop(written.and_then(|()| std::fs::rename(&beside, &self.path)));
    }
}

fn read(path: &std::path::Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BASELINE).unwrap_or(u64::MAX);
    let file = std::fs::File::open(path).ok()?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Records findings; whether a run is to stand still.
pub(super) fn record(db: &Connection, findings: &[Finding]) -> Result<bool, Stop> {
    let mut pauses = false;
    for finding in findings {
        let data = serde_json::to_value(finding).unwrap_or_default();
        rows::own_event(db, Some(&finding.run), "anomaly", &data, now_ms())?;
        match finding.action {
            Action::Note | Action::Alert => {}
            Action::Pause => {
                db.prepare_cached("INSERT INTO journal(time_ms, run, act) VALUES (?1, ?2, 'pause')")?
                    .execute(params![int(now_ms()), finding.run.as_str()])?;
                pauses = true;
            }
        }
    }
    Ok(pauses)
}
