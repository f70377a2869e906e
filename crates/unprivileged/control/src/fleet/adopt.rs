//! Finding runs again: after a restart, and those that somebody started beside the daemon.
//!
//! A row is written before anything is made, so at every moment a crash leaves one of these: a row and no directory (it
//! never began), a directory that waits (its keeper never began), a lock that is held (it lives), or a free lock (it
//! ended, or its keeper was lost).
use super::follow::Follower;
use super::keepers::{self, Kept};
use super::rows::{self, NewRun};
use super::words::{now_ms, run_id};
use super::{Inner, Via, scopes};
use crate::runs::RunDir;
use crate::store::Stop;
use bastle_contract::runs::{LaunchSpec, RunFile, RunState};
use bastle_contract::{Code, Fault, RunId};
use std::collections::BTreeSet;

/// Takes a run in that the records do not know; `false` when they do.
pub(super) fn unknown(inner: &Inner, dir: &RunDir) -> Result<bool, Fault> {
    let known = inner.store.read(|db| rows::phase(db, dir.name()))?;
    if known.as_deref().is_some_and(|phase| phase != "ended") {
        return Ok(false);
    }
    let file = dir.file()?;
    // One that ended under this name was removed by hand, and the name was given again.
    let anew = known.is_some() && !file.state.is_final();
    if known.is_some() && !anew {
        return Ok(false);
    }
    let spec = dir.spec()?;
    let place = in_place(&spec);
    inner.store.write(|db| {
        match rows::phase(db, dir.name())?.as_deref() {
            None => {}
            Some("ended") if anew => {
                rows::delete(db, dir.name())?;
            }
            Some(_) => return Ok(false),
        }
        let new = NewRun {
            spec: &spec,
            batch: None,
            preamble: None,
            priority: 0,
            created_ms: file.created_ms,
            depth: 0,
            caller: "beside the daemon",
            caller_kind: None,
            phase: "kept",
            at_once: None,
            principal: "beside the daemon",
            via: Via::Runs,
        };
        rows::insert(db, &new)?;
        scopes::insert(db, dir.name(), &place)?;
        let data = serde_json::json!({ "by": "beside the daemon" });
        rows::own_event(db, Some(dir.name()), "adopted", &data, now_ms())?;
        Ok(true)
    })
}

/// The scope of a run that works in the project itself.
pub(super) fn in_place(spec: &LaunchSpec) -> Vec<String> {
    let raw = spec.get();
    let itself = match raw.mode.as_deref() {
        Some(mode) => mode == "in-place",
        // A repository is copied, anything else is used in place.
        None => !raw.workspace.as_path().join(".git").exists(),
    };
    if itself {
        vec![raw.workspace.as_str().to_owned()]
    } else {
        Vec::new()
    }
}

/// Brings records and runs together, before the daemon works.
pub(super) fn recover(inner: &Inner, follower: &mut Follower) -> Result<(), Fault> {
    for dir in RunDir::all(&inner.options.state) {
        // One unreadable directory must not keep the daemon from the others.
        if let Err(fault) = unknown(inner, &dir) {
            inner.trouble(&fault.to_string());
        }
    }
    let unended: Vec<(RunId, String)> = inner.store.read(|db| {
        let mut statement =
            db.prepare_cached("SELECT name, phase FROM runs WHERE phase <> 'ended' ORDER BY ord")?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((run_id(row.get(0)?)?, row.get(1)?));
        }
        Ok::<_, Stop>(found)
    })?;
    let mut dirty = BTreeSet::new();
    for (name, phase) in unended {
        match settle(inner, &name, &phase) {
            Ok(Found::Waits) => {}
            Ok(Found::Follow) => {
                follower.follow(&name, None);
                dirty.insert(name);
            }
            Err(fault) => inner.trouble(&format!("{name}: {fault}")),
        }
    }
    follower.catch_up(dirty);
    Ok(())
}

enum Found {
    Waits,
    Follow,
}

fn settle(inner: &Inner, name: &RunId, phase: &str) -> Result<Found, Fault> {
    let Ok(dir) = RunDir::open(&inner.options.state, name) else {
        if phase == "kept" {
            // Its directory was there and was removed by hand.
            inner
                .store
                .write(|db| rows::finish_unkept(db, name, ("failed", "lost"), None, now_ms()))?;
        } else {
            // What is half made holds no request; it is made anew under the same name.
            clear_half_made(inner, name)?;
            inner.store.write(|db| rows::set_phase(db, name, "queued"))?;
        }
        return Ok(Found::Waits);
    };
    let fail = |error: std::io::Error| {
        Fault::new(
            Code::StateDir,
            format!("cannot look at the lock of {name}"),
            error.to_string(),
        )
    };
    match keepers::kept(&dir).map_err(fail)? {
        Kept::Yes => {
            inner.store.write(|db| rows::set_phase(db, name, "kept"))?;
            Ok(Found::Follow)
        }
        lock @ Kept::No(_) => {
            let file: RunFile = dir.file()?;
            if file.state == RunState::Queued {
                inner.store.write(|db| rows::set_phase(db, name, "queued"))?;
                return Ok(Found::Waits);
            }
            keepers::bury(&dir, &lock, "lost")?;
            // The follower records the rest of its events and its end.
            Ok(Found::Follow)
        }
    }
}

/// Removes a directory that was begun and holds no request yet: nobody was promised it.
pub(super) fn clear_half_made(inner: &Inner, name: &RunId) -> Result<(), Fault> {
    let path = inner.options.state.join("runs").join(name.as_str());
    match std::fs::remove_dir_all(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Fault::new(
            Code::StateDir,
            format!("cannot remove {}", path.display()),
            error.to_string(),
        )),
    }
}
