//! Findings of runs that the daemon did not start and that have no directory: those in the foreground. They become events of
//! the fleet, so that streams, webhooks, the desktop and the metrics have them as they have those of other runs.
//!
//! **Trust:** the files are written by processes of the same user. Nothing but the kind `anomaly` is taken.
use super::{Inner, ingest, rows};
use crate::runs::{findings_path, read_events, with_findings};
use crate::store::{int, uint};
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeSet;

/// Events that are read of one file: more than all rules together say about a run.
const MOST: usize = 4096;
/// Before the name of a run, the counter of what was taken from its file.
const TAKEN: &str = "taken in the foreground ";

/// Takes what all files have, and forgets how far those were read that are gone.
pub(super) fn recover(inner: &Inner) -> BTreeSet<RunId> {
    let there: BTreeSet<RunId> = with_findings(&inner.options.state).into_iter().collect();
    let forgotten = inner.store.write(|db| {
        let mut statement = db.prepare_cached("SELECT name FROM counters WHERE substr(name, 1, ?1) = ?2")?;
        let mut rows = statement.query(params![int(TAKEN.len() as u64), TAKEN])?;
        let mut gone = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let run = RunId::try_from(name[TAKEN.len()..].to_owned());
            if run.is_ok_and(|run| !there.contains(&run)) {
                gone.push(name);
            }
        }
        for name in gone {
            db.prepare_cached("DELETE FROM counters WHERE name = ?1")?
                .execute([name])?;
        }
        Ok(())
    });
    if let Err(fault) = forgotten {
        inner.trouble(&fault.to_string());
    }
    take(inner, there)
}

/// Takes what is new in the files of these runs; those that are to be tried again.
pub(super) fn take(inner: &Inner, runs: BTreeSet<RunId>) -> BTreeSet<RunId> {
    let mut again = BTreeSet::new();
    for run in runs {
        if let Err(fault) = take_one(inner, &run) {
            inner.trouble(&fault.to_string());
            again.insert(run);
        }
    }
    again
}

fn take_one(inner: &Inner, run: &RunId) -> Result<(), Fault> {
    let path = findings_path(&inner.options.state, run);
    let events = match read_events(&path, 0, MOST) {
        Ok(events) => events,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let what = format!("cannot read {}", path.display());
            return Err(Fault::new(Code::StateDir, what, error.to_string()));
        }
    };
    // The number that was taken and the events are one transaction: none is told twice, and none is lost.
    let taken = inner.store.write(|db| {
        let counter = format!("{TAKEN}{run}");
        let before: Option<i64> = db
            .prepare_cached("SELECT value FROM counters WHERE name = ?1")?
            .query_row([&counter], |row| row.get(0))
            .optional()?;
        let before = before.map_or(0, uint);
        let fresh: Vec<_> = events.iter().filter(|event| event.seq > before).collect();
        let Some(last) = fresh.last() else {
            return Ok(false);
        };
        for event in fresh.iter().filter(|event| event.kind == "anomaly") {
            // Without a number within the run: the daemon has no such run, and its name may be given to one.
            rows::own_event(db, Some(run), &event.kind, &event.data, event.time_ms)?;
            ingest::anomaly(db, &event.data)?;
        }
        db.prepare_cached(
            "INSERT INTO counters(name, value) VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![counter, int(last.seq)])?;
        Ok(true)
    })?;
    if taken {
        inner.told();
    }
    Ok(())
}
