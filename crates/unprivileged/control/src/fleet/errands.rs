//! What was begun and must be finished: ends of children, answers that were given. Each is in the journal before it is
//! done and leaves it after, so a crash between the two only repeats it, and repeating it changes nothing.
use super::acting::end_one;
use super::words::run_id;
use super::{Inner, StopHow, talk};
use crate::store::Stop;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::OptionalExtension;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long children may take to end when their parent has.
const GRACE: Duration = Duration::from_secs(10);

/// Does errands until the fleet is closed.
pub(super) fn work(inner: &Arc<Inner>) {
    while inner.wait_for_errand() {
        if let Err(fault) = all(inner) {
            inner.trouble(&fault.to_string());
        }
        if inner.is_time_to_prune() {
            super::housekeeping::forget_runs(inner);
        }
    }
}

/// Everything that is in the journal. What cannot be done stays there for the next time and holds up nothing else.
pub(super) fn all(inner: &Inner) -> Result<(), Fault> {
    let listed: Vec<(i64, RunId, String)> = inner.store.read(|db| {
        let mut statement = db.prepare_cached("SELECT id, run, act FROM journal ORDER BY id")?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((row.get(0)?, run_id(row.get(1)?)?, row.get(2)?));
        }
        Ok::<_, Stop>(found)
    })?;
    let mut first = Ok(());
    for (id, run, act) in listed {
        if inner.is_closing() {
            break;
        }
        if !inner.is_in_hand(&run, &act) {
            first = first.and(one(inner, id, &run, &act));
        }
    }
    first
}

/// Does one and strikes it out.
fn one(inner: &Inner, id: i64, run: &RunId, act: &str) -> Result<(), Fault> {
    match act.split_once(' ') {
        Some(("answer", question)) => send_answer(inner, run, question)?,
        Some(("remove", discard)) => super::removing::finish(inner, run, discard)?,
        None if act == "pause" => {
            // One that ended meanwhile stands still for ever.
            drop(talk::ask(
                &inner.options.state,
                run,
                &serde_json::json!({"op": "pause"}),
            ));
        }
        Some(_) | None => {
            // One that ended meanwhile is no failure.
            drop(end_one(inner, run, StopHow::Stop { grace: GRACE }));
        }
    }
    inner.store.write(|db| {
        db.prepare_cached("DELETE FROM journal WHERE id = ?1")?
            .execute([id])?;
        Ok(())
    })
}

/// Gives a recorded answer to the run. It knows its open question by the hash, so a second time it is refused.
fn send_answer(inner: &Inner, run: &RunId, question: &str) -> Result<(), Fault> {
    let Ok(id) = question.parse::<i64>() else {
        return Ok(());
    };
    let row: Option<Recorded> = inner.store.read(|db| {
        Ok(db
            .prepare_cached(
                "SELECT question, hash, state, scope, approver_kind || ' ' || coalesce(approver, '') \
                 FROM approvals WHERE id = ?1",
            )?
            .query_row([id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })
            .optional()?)
    })?;
    let Some((question, hash, state, scope, by)) = row else {
        return Ok(());
    };
    match talk::ask(
        &inner.options.state,
        run,
        &answer_line(
            &state,
            &question,
            &hash,
            scope.as_deref(),
            by.as_deref().map(str::trim),
        ),
    ) {
        Ok(_) => Ok(()),
        // The run ended, or it was answered elsewhere.
        Err(fault) if fault.code != Code::FenceLost => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// An answer as it was recorded: question, hash, state, scope, and by whom.
type Recorded = (String, String, String, Option<String>, Option<String>);

/// The command for an answer; `by` is what the run's own record says about who answered.
pub(super) fn answer_line(
    state: &str,
    question: &str,
    hash: &str,
    scope: Option<&str>,
    by: Option<&str>,
) -> Value {
    let mut line = if state == "approved" {
        serde_json::json!({"op": "allow", "target": question, "scope": scope.unwrap_or("once"), "hash": hash})
    } else {
        serde_json::json!({"op": "deny", "target": question, "hash": hash})
    };
    if let Some(by) = by.filter(|by| !by.is_empty()) {
        line["by"] = by.into();
    }
    line
}
