//! What time does: questions expire, old events and answered keys go.
use super::words::{run_id, steady_ms};
use super::{Caller, Inner, PrincipalKind, removing, rows};
use crate::store::{Stop, int};
use bastle_contract::Fault;
use rusqlite::params;

/// Events that are removed in one transaction.
const AT_ONCE: i64 = 10_000;
/// How long a key is remembered.
const KEYS_MS: u64 = 7 * 24 * 3600 * 1000;

/// Does all of it; what cannot be done is done the next time.
pub(super) fn tidy_up(inner: &Inner) {
    let done = expire(inner).and_then(|()| forget_events(inner)).and_then(|()| {
        inner.store.write(|db| {
            db.prepare_cached("DELETE FROM idempotency WHERE created_ms < ?1")?
                .execute([int(steady_ms().saturating_sub(KEYS_MS))])?;
            Ok(())
        })
    });
    if let Err(fault) = done {
        inner.trouble(&fault.to_string());
    }
}

/// Runs that ended long ago go, unless their work is nowhere else. Walks over copies, so it is an errand.
pub(super) fn forget_runs(inner: &Inner) {
    let daemon = Caller {
        id: "daemon".to_owned(),
        kind: PrincipalKind::Automatic,
        ..Caller::owner(0)
    };
    if let Err(fault) = removing::prune(inner, &daemon, inner.options.keep_runs) {
        inner.trouble(&fault.to_string());
    }
}

/// A question that nobody answered is answered with no.
fn expire(inner: &Inner) -> Result<(), Fault> {
    let now = steady_ms();
    let expired = inner.store.write(|db| {
        let mut statement =
            db.prepare_cached("SELECT id, run FROM approvals WHERE state = 'open' AND expires_ms <= ?1")?;
        let mut found = Vec::new();
        let mut rows = statement.query([int(now)])?;
        while let Some(row) = rows.next()? {
            found.push((row.get::<_, i64>(0)?, run_id(row.get(1)?)?));
        }
        for (id, run) in &found {
            db.prepare_cached("UPDATE approvals SET state = 'expired', answered_ms = ?2, approver_kind = 'automatic' WHERE id = ?1")?
                .execute(params![id, int(now)])?;
            db.prepare_cached("INSERT INTO journal(time_ms, run, act) VALUES (?1, ?2, ?3)")?
                .execute(params![int(now), run.as_str(), format!("answer {id}")])?;
            let data = serde_json::json!({"id": id, "state": "expired", "kind": PrincipalKind::Automatic});
            rows::own_event(db, Some(run), "approval", &data, now)?;
        }
        Ok::<_, Stop>(found.len())
    })?;
    if expired > 0 {
        inner.told();
        inner.errand();
    }
    Ok(())
}

/// The oldest events go when there are more than are kept.
fn forget_events(inner: &Inner) -> Result<(), Fault> {
    loop {
        let removed = inner.store.write(|db| {
            let oldest: i64 = db.query_row("SELECT coalesce(max(seq), 0) FROM events", [], |row| row.get(0))?;
            let until = oldest.saturating_sub(int(inner.options.keep_events));
            let removed = db
                .prepare_cached(
                    "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq <= ?1 ORDER BY seq LIMIT ?2)",
                )?
                .execute(params![until, AT_ONCE])?;
            Ok(removed)
        })?;
        if removed == 0 || inner.is_closing() {
            return Ok(());
        }
    }
}
