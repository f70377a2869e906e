//! Removing runs that ended: their copy by the review code, which refuses while work is nowhere else; then their files
//! and their row. Events stay as long as events do.
use super::follow::Order;
use super::words::{allow, allow_on, missing, now_ms, run_id};
use super::{Caller, Inner, Verb, rows};
use crate::review::{self, Fate, PruneWish, Whereabouts};
use crate::runs::RunDir;
use crate::store::{Stop, int};
use bastle_contract::{Code, Fault, RunId};
use bastle_workspace::discard::Discard;
use bastle_workspace::retention::Prune;
use bastle_workspace::workspace::Workspace;
use rusqlite::params;
use std::time::Duration;

/// What the journal says of a run whose files and row are to go.
const REMOVE: &str = "remove ";

/// Removes one run.
pub(super) fn remove(
    inner: &Inner,
    caller: &Caller,
    name: &RunId,
    (discard, fate): (Option<String>, Fate),
) -> Result<(), Fault> {
    allow_on(caller, Verb::Remove, name)?;
    match inner.store.read(|db| rows::phase(db, name))?.as_deref() {
        None => return Err(missing(name.as_str())),
        Some("ended") => {}
        Some(_) => {
            return Err(Fault::new(
                Code::RunState,
                format!("the run {name} has not ended"),
                "only what ended is removed",
            )
            .help(format!("bastle stop {name}")));
        }
    }
    let discard = discard.map(Discard::try_from).transpose()?;
    // The copy first: its removal is the one that can be refused, and it finishes by itself after a crash.
    remove_copy(inner, name, (discard.as_ref(), fate), &caller.described())?;
    // Done here and by nobody else: two who remove the same files are in each other's way.
    let _in_hand = inner.take_in_hand(name, REMOVE);
    inner.store.write(|db| {
        db.prepare_cached("INSERT INTO journal(time_ms, run, act) VALUES (?1, ?2, ?3)")?
            .execute(params![int(now_ms()), name.as_str(), REMOVE])?;
        Ok(())
    })?;
    super::hooks::point("remove-committed");
    finish(inner, name, "")?;
    inner.store.write(|db| {
        db.prepare_cached("DELETE FROM journal WHERE run = ?1 AND act = ?2")?
            .execute([name.as_str(), REMOVE])?;
        Ok(())
    })
}

fn remove_copy(
    inner: &Inner,
    name: &RunId,
    how: (Option<&Discard>, Fate),
    principal: &str,
) -> Result<(), Fault> {
    let at = Whereabouts {
        state: inner.options.state.clone(),
        project: None,
    };
    match Workspace::open(&at.place(), name) {
        Ok(space) => review::remove(&at.state, space, how, principal).map(|_| ()),
        Err(fault) if fault.code == Code::WorkspaceMissing => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// The files and the row of a run whose copy is gone. Doing it twice is doing it once.
pub(super) fn finish(inner: &Inner, name: &RunId, _about: &str) -> Result<(), Fault> {
    inner.order(Order::Forget(name.clone()));
    if let Ok(dir) = RunDir::open(&inner.options.state, name) {
        review::remove_record(&inner.options.state, dir)?;
    }
    inner.store.write(|db| {
        rows::delete(db, name)?;
        let data = serde_json::json!({ "name": name.as_str() });
        rows::own_event(db, Some(name), "removed", &data, now_ms())
    })?;
    inner.told();
    Ok(())
}

/// Removes what ended more than `older` ago and holds nothing that is not elsewhere, and what has been in the trash for
/// long; gives the names of the first.
pub(super) fn prune(inner: &Inner, caller: &Caller, older: Duration) -> Result<Vec<RunId>, Fault> {
    allow(caller, Verb::Remove, "old runs")?;
    let at = Whereabouts {
        state: inner.options.state.clone(),
        project: None,
    };
    if at.place().work().exists() {
        let wish = PruneWish {
            age: older,
            trash_age: inner.options.keep_trash,
            what: Prune::Remove,
        };
        review::prune(&at, wish)?;
    }
    let before =
        super::words::steady_ms().saturating_sub(u64::try_from(older.as_millis()).unwrap_or(u64::MAX));
    let old: Vec<RunId> = inner.store.read(|db| {
        let mut statement = db.prepare_cached(
            "SELECT name FROM runs WHERE phase = 'ended' AND ended_ms IS NOT NULL AND ended_ms <= ?1 ORDER BY ord",
        )?;
        let mut rows = statement.query([int(before)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(run_id(row.get(0)?)?);
        }
        Ok::<_, Stop>(found)
    })?;
    let mut gone = Vec::new();
    for name in old.into_iter().filter(|name| caller.may_on(Verb::Remove, name)) {
        // A copy that is still there holds work that is nowhere else.
        match remove(inner, caller, &name, (None, Fate::Trash)) {
            Ok(()) => gone.push(name),
            Err(fault) if matches!(fault.code, Code::WorkspaceUnexported | Code::WorkspaceBusy) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(gone)
}
