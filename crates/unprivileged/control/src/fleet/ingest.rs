//! What an event of a run changes in the records. Total: data of the wrong form changes nothing but is kept.
use super::PrincipalKind;
use super::words::text;
use crate::store::{Stop, int};
use bastle_contract::RunId;
use bastle_contract::runs::{RunEvent, RunState};
use rusqlite::{Connection, params};
use serde_json::Value;

/// Longest text of a question that is kept apart from its event.
const MOST_TEXT: usize = 8 * 1024;

/// New events of one run, in order, and where its file is read next.
pub(super) struct Fresh<'f> {
    pub(super) run: &'f RunId,
    pub(super) events: &'f [RunEvent],
    pub(super) at: u64,
}

/// Records them. Recording one twice changes nothing.
pub(super) fn take(db: &Connection, fresh: &Fresh<'_>, patience_ms: u64) -> Result<(), Stop> {
    let Some(last) = fresh.events.last() else {
        return Ok(());
    };
    for event in fresh.events {
        let added = db
            .prepare_cached(
                "INSERT OR IGNORE INTO events(run, run_seq, batch, time_ms, kind, data) \
                 VALUES (?1, ?2, (SELECT batch FROM runs WHERE name = ?1), ?3, ?4, ?5)",
            )?
            .execute(params![
                fresh.run.as_str(),
                int(event.seq),
                int(event.time_ms),
                event.kind,
                text(&event.data)?
            ])?;
        if added == 1 {
            apply(db, fresh.run, event, patience_ms)?;
        }
    }
    db.prepare_cached("UPDATE runs SET last_event = ?2, events_at = ?3 WHERE name = ?1")?
        .execute(params![fresh.run.as_str(), int(last.seq), int(fresh.at)])?;
    Ok(())
}

fn apply(db: &Connection, run: &RunId, event: &RunEvent, patience_ms: u64) -> Result<(), Stop> {
    let name = run.as_str();
    let data = &event.data;
    match event.kind.as_str() {
        "state" => state(db, name, event),
        "denied" => add(db, name, "denials", 1),
        "net" if data.get("verdict").and_then(Value::as_str) == Some("denied") => add(db, name, "denials", 1),
        "question" => question(db, name, event, patience_ms),
        "anomaly" => anomaly(db, data),
        "answered" => answered(db, name, event),
        "budget" | "usage" => usage(db, name, data),
        "ended" => {
            usage(db, name, data)?;
            let code = data.get("code").and_then(Value::as_u64);
            db.prepare_cached("UPDATE runs SET code = coalesce(?2, code), question = NULL WHERE name = ?1")?
                .execute(params![name, code.map(int)])?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Counts a finding by its severity. What a run says of itself becomes no other name of a counter.
pub(super) fn anomaly(db: &Connection, data: &Value) -> Result<(), Stop> {
    let counter = match data.get("severity").and_then(Value::as_str) {
        Some("high") => "anomalies high",
        Some("medium") => "anomalies medium",
        Some(_) | None => "anomalies low",
    };
    db.prepare_cached(
        "INSERT INTO counters(name, value) VALUES (?1, 1) ON CONFLICT(name) DO UPDATE SET value = value + 1",
    )?
    .execute([counter])?;
    Ok(())
}

fn add(db: &Connection, name: &str, column: &str, by: u64) -> Result<(), Stop> {
    db.prepare_cached(&format!(
        "UPDATE runs SET {column} = {column} + ?2 WHERE name = ?1"
    ))?
    .execute(params![name, int(by)])?;
    Ok(())
}

fn state(db: &Connection, name: &str, event: &RunEvent) -> Result<(), Stop> {
    let word = event.data.get("state").and_then(Value::as_str);
    let Some(state) = RunState::ALL.into_iter().find(|state| Some(state.word()) == word) else {
        return Ok(());
    };
    let reason = event.data.get("reason").and_then(Value::as_str);
    let started = (state == RunState::Running).then(|| int(event.time_ms));
    let ended = state.is_final().then(|| int(event.time_ms));
    db.prepare_cached(
        "UPDATE runs SET state = ?2, reason = ?3, started_ms = coalesce(started_ms, ?4), \
         ended_ms = coalesce(ended_ms, ?5) WHERE name = ?1 AND phase <> 'ended'",
    )?
    .execute(params![name, state.word(), reason, started, ended])?;
    Ok(())
}

fn question(db: &Connection, name: &str, event: &RunEvent, patience_ms: u64) -> Result<(), Stop> {
    let field = |key: &str| event.data.get(key).and_then(Value::as_str);
    let (Some(id), Some(hash)) = (field("id"), field("hash")) else {
        return Ok(());
    };
    let words = field("text").unwrap_or_default();
    let words: String = words.chars().take(MOST_TEXT).collect();
    // The same question asked anew takes the place of the one before it.
    db.prepare_cached(
        "UPDATE approvals SET state = 'stale' WHERE run = ?1 AND question = ?2 AND state = 'open'",
    )?
    .execute(params![name, id])?;
    db.prepare_cached(
        "INSERT INTO approvals(run, question, hash, text, about, asked_ms, expires_ms, state) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'open')",
    )?
    .execute(params![
        name,
        id,
        hash,
        words,
        about(event.data.get("about")),
        int(event.time_ms),
        int(super::words::steady_ms().saturating_add(patience_ms)),
    ])?;
    db.prepare_cached("UPDATE runs SET question = ?2 WHERE name = ?1")?
        .execute(params![name, words])?;
    Ok(())
}

/// One word for what is asked.
fn about(told: Option<&Value>) -> &str {
    match told {
        Some(Value::String(word)) => word,
        Some(Value::Object(of)) if of.contains_key("host") => "request",
        Some(Value::Object(of)) if of.contains_key("limit") => "budget",
        Some(_) | None => "",
    }
}

fn answered(db: &Connection, name: &str, event: &RunEvent) -> Result<(), Stop> {
    let field = |key: &str| event.data.get(key).and_then(Value::as_str);
    let Some(id) = field("id") else {
        return Ok(());
    };
    let state = match field("verdict") {
        Some("allow" | "approve" | "allowed" | "approved" | "yes") => "approved",
        Some("expired" | "timeout") => "expired",
        Some(_) | None => "denied",
    };
    db.prepare_cached(
        "UPDATE approvals SET state = ?3, approver = coalesce(approver, ?4), answered_ms = ?5, \
         approver_kind = coalesce(approver_kind, ?6) WHERE run = ?1 AND question = ?2 AND state = 'open'",
    )?
    .execute(params![
        name,
        id,
        state,
        field("by"),
        int(event.time_ms),
        field("by").map(|by| kind_of(by).word())
    ])?;
    db.prepare_cached(
        "UPDATE runs SET question = (SELECT text FROM approvals WHERE run = ?1 AND state = 'open' \
         ORDER BY id DESC LIMIT 1) WHERE name = ?1",
    )?
    .execute([name])?;
    Ok(())
}

/// The kind of approver that a run tells: `person` at its terminal or its socket, or what the run decided by itself. A text
/// with a kind before it came through a daemon.
fn kind_of(by: &str) -> PrincipalKind {
    match by.split(' ').next().unwrap_or_default() {
        "person" => PrincipalKind::LocalPerson,
        word => PrincipalKind::of(word).unwrap_or(PrincipalKind::Automatic),
    }
}

/// What an event may tell to be used, as it is called when a budget is reached, and in the totals at the end.
const SPENT: &[(&str, &[&str])] = &[
    ("turns", &["turns"]),
    ("tokens", &["tokens", "model_tokens"]),
    ("cost", &["cost_micro_usd", "micro_usd"]),
    ("bytes-out", &["bytes_out"]),
    ("bytes-in", &["bytes_in"]),
    ("requests", &["requests"]),
    ("connections", &["connections"]),
];

/// Sums, where an event tells them: one budget that was reached, or the totals at the end. They only grow.
fn usage(db: &Connection, name: &str, data: &Value) -> Result<(), Stop> {
    let kind = data.get("kind").and_then(Value::as_str);
    let totals = data.get("net").unwrap_or(data);
    for (what, keys) in SPENT {
        let used = if kind == Some(what) {
            data.get("used").and_then(Value::as_u64)
        } else {
            keys.iter()
                .find_map(|key| totals.get(key).and_then(Value::as_u64))
        };
        let Some(used) = used.filter(|used| *used > 0) else {
            continue;
        };
        db.prepare_cached(
            "INSERT INTO spent(run, what, used) SELECT name, ?2, ?3 FROM runs WHERE name = ?1 \
             ON CONFLICT(run, what) DO UPDATE SET used = max(used, excluded.used)",
        )?
        .execute(params![name, what, int(used)])?;
        let column = match *what {
            "turns" => "turns",
            "tokens" => "model_tokens",
            "cost" => "micro_usd",
            _ => continue,
        };
        db.prepare_cached(&format!(
            "UPDATE runs SET {column} = max({column}, ?2) WHERE name = ?1"
        ))?
        .execute(params![name, int(used)])?;
    }
    Ok(())
}
