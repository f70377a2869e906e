//! Ending, pausing and resuming runs: the keeper does it, the fleet says so. One that waits is cancelled here.
use super::keepers::{self, Kept};
use super::words::{allow, allow_on, beginning, either_way, missing, now_ms, run_id, tag};
use super::{Acted, Caller, Inner, StopHow, Verb, Which, rows, talk};
use crate::runs::RunDir;
use crate::store::Stop;
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{Connection, params_from_iter};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a keeper may take to be reachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// Runs that are spoken to at once.
const AT_ONCE: usize = 8;

/// The full name for a name or a unique beginning of one.
pub(super) fn resolve(db: &Connection, text: &str) -> Result<RunId, Stop> {
    if let Ok(name) = RunId::try_from(text.to_owned())
        && rows::phase(db, &name)?.is_some()
    {
        return Ok(name);
    }
    let mut statement =
        db.prepare_cached("SELECT name FROM runs WHERE name LIKE ?1 ESCAPE '\\' ORDER BY name LIMIT 6")?;
    let found: Vec<String> = statement
        .query_map([beginning(text)], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    match found.as_slice() {
        [one] if !text.is_empty() => run_id(one.clone()),
        [] => {
            let mut statement = db.prepare_cached("SELECT name FROM runs ORDER BY ord DESC LIMIT 500")?;
            let names: Vec<String> = statement
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let mut fault = missing(text);
            if let Some(near) = bastle_policy::nearest(text, names.iter().map(String::as_str)) {
                fault.help.insert(0, format!("did you mean {near}?"));
            }
            Err(fault.into())
        }
        several => Err(Fault::new(
            Code::RunMissing,
            format!("several runs begin with {text:?}"),
            several.join(", "),
        )
        .help("type more of the name")
        .into()),
    }
}

/// Every run that is meant and has not ended. One that told its end is over, though its keeper may still be leaving.
fn meant(db: &Connection, which: &Which) -> Result<Vec<RunId>, Stop> {
    let (condition, values): (&str, Vec<String>) = match which {
        Which::Name(text) => return Ok(vec![resolve(db, text)?]),
        Which::All => ("1", Vec::new()),
        Which::Agents(None) => ("via = 'agents'", Vec::new()),
        Which::Agents(Some(caller)) => ("via = 'agents' AND caller = ?1", vec![caller.clone()]),
        Which::Batch(id) => ("batch = ?1", vec![id.clone()]),
        Which::Prefix(prefix) => ("name LIKE ?1 ESCAPE '\\'", vec![beginning(prefix)]),
        Which::Tag(text) => match tag(text) {
            (key, None) => (
                "name IN (SELECT run FROM tags WHERE key = ?1)",
                vec![key.to_owned()],
            ),
            (key, Some(value)) => (
                "name IN (SELECT run FROM tags WHERE key = ?1 AND value = ?2)",
                vec![key.to_owned(), value.to_owned()],
            ),
        },
    };
    let over: Vec<String> = RunState::ALL
        .iter()
        .filter(|state| state.is_final())
        .map(|state| format!("'{}'", state.word()))
        .collect();
    let sql = format!(
        "SELECT name FROM runs WHERE phase <> 'ended' AND state NOT IN ({}) AND {condition} ORDER BY ord DESC",
        over.join(", ")
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(run_id(row.get(0)?)?);
    }
    Ok(found)
}

/// Ends the runs that are meant. Those the caller may not touch are left out when many are meant, and refused when one is.
pub(super) fn stop(inner: &Inner, caller: &Caller, which: &Which, how: StopHow) -> Result<Vec<Acted>, Fault> {
    allow(caller, Verb::Control, "runs")?;
    let names = inner.store.read(|db| meant(db, which))?;
    if let (Which::Name(_), [one]) = (which, names.as_slice()) {
        allow_on(caller, Verb::Control, one)?;
    }
    let names: Vec<RunId> = names
        .into_iter()
        .filter(|name| caller.may_on(Verb::Control, name))
        .collect();
    // First those that wait: a place that gets free must not start one that is to be stopped as well.
    let living = cancel_waiting(inner, &names)?;
    let mut acted: Vec<Acted> = names
        .iter()
        .filter(|name| !living.contains(name))
        .map(|name| Acted {
            name: name.clone(),
            fault: None,
        })
        .collect();
    acted.extend(each(living, |name| end_one(inner, name, how).err()));
    if let (
        Which::Name(_),
        [
            Acted {
                fault: Some(fault), ..
            },
        ],
    ) = (which, acted.as_slice())
    {
        return Err(fault.clone());
    }
    // Of many, one that ended by itself meanwhile is like one that had ended before.
    acted.retain(|one| one.fault.as_ref() != Some(&ended(&one.name)));
    Ok(acted)
}

/// Cancels those of these runs that wait; gives the others.
fn cancel_waiting(inner: &Inner, names: &[RunId]) -> Result<Vec<RunId>, Fault> {
    let others = inner.store.write(|db| {
        let mut others = Vec::new();
        for name in names {
            if rows::phase(db, name)?.as_deref() == Some("queued") {
                rows::finish_unkept(db, name, ("cancelled", "stopped"), None, now_ms())?;
            } else {
                others.push(name.clone());
            }
        }
        Ok(others)
    })?;
    if others.len() < names.len() {
        inner.told();
        inner.wake_queue();
    }
    Ok(others)
}

/// Does something to each run, several at once.
fn each(names: Vec<RunId>, act: impl Fn(&RunId) -> Option<Fault> + Sync) -> Vec<Acted> {
    let workers = names.len().min(AT_ONCE);
    let left = Mutex::new(names.into_iter());
    let done = Mutex::new(Vec::new());
    let take = || left.lock().ok().and_then(|mut left| left.next());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(name) = take() {
                    let fault = act(&name);
                    if let Ok(mut done) = done.lock() {
                        done.push(Acted { name, fault });
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by(|a, b| a.name.cmp(&b.name));
    done
}

/// Ends one run, wherever it is in its life.
pub(super) fn end_one(inner: &Inner, name: &RunId, how: StopHow) -> Result<(), Fault> {
    let deadline = Instant::now() + PATIENCE;
    let mut asked_to_leave = false;
    loop {
        if cancel_waiting(inner, std::slice::from_ref(name))?.is_empty() {
            return Ok(());
        }
        match inner.store.read(|db| rows::phase(db, name))?.as_deref() {
            None => return Err(missing(name.as_str())),
            // It was this that ended it.
            Some("ended") if asked_to_leave => return Ok(()),
            Some("ended") => return Err(ended(name)),
            Some(_) => {}
        }
        let seen = inner.changes();
        match reach(inner, name, how)? {
            Reached::Yes => return Ok(()),
            Reached::Asked => asked_to_leave = true,
            Reached::No => {}
        }
        if Instant::now() >= deadline {
            return Err(Fault::new(
                Code::FenceLost,
                format!("the keeper of {name} cannot be reached"),
                "it neither listens nor is gone",
            )
            .help(format!("bastle inspect {name}")));
        }
        inner.wait_for_change(seen, Duration::from_millis(250));
    }
}

/// What became of an attempt to tell a keeper.
enum Reached {
    /// It ends, or has ended.
    Yes,
    /// It will find that it is to leave, but a process to kill was not to be seen yet.
    Asked,
    /// Not yet.
    No,
}

/// Tells the keeper, by its socket or by a signal; one that never came is forestalled.
fn reach(inner: &Inner, name: &RunId, how: StopHow) -> Result<Reached, Fault> {
    let state = &inner.options.state;
    let command = match how {
        StopHow::Stop { grace } => {
            let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            json!({"op": "stop", "grace_ms": grace})
        }
        StopHow::Kill => json!({"op": "kill"}),
    };
    match talk::ask(state, name, &command) {
        Ok(_) => return Ok(Reached::Yes),
        Err(fault) if fault.code == Code::RunState => {}
        // It heard and refused, or went while it was told: the next look says which.
        Err(fault) if fault.code != Code::FenceLost => return Err(fault),
        Err(_) => {}
    }
    let Ok(dir) = RunDir::open(state, name) else {
        return Ok(Reached::No);
    };
    let file = dir.file()?;
    let keeper = keepers::watch(&file);
    match keepers::kept(&dir) {
        // It has no socket any more: it is writing its last word, and must not lose it.
        Ok(Kept::Yes) if !matches!(file.state, RunState::Queued | RunState::Building) => Ok(Reached::Yes),
        // It builds and has no socket yet.
        Ok(Kept::Yes) => {
            crate::keeper::interrupt(&dir)?;
            match (how, keeper) {
                // It looks for the word before it hands its plan over, and from then on its signal ends it.
                (StopHow::Stop { .. }, _) => Ok(Reached::Yes),
                (StopHow::Kill, None) => Ok(Reached::Asked),
                (StopHow::Kill, Some(keeper)) => {
                    // The lock was held after the process was opened, so it is the keeper that the file names.
                    either_way(rustix::process::pidfd_send_signal(keeper, Signal::KILL));
                    Ok(Reached::Yes)
                }
            }
        }
        Ok(lock @ Kept::No(_)) => {
            if file.state == RunState::Queued {
                keepers::cancel(&dir, &lock)?;
            }
            Ok(Reached::Yes)
        }
        Err(_) => Ok(Reached::No),
    }
}

fn ended(name: &RunId) -> Fault {
    Fault::new(Code::RunState, format!("the run {name} has ended"), "").help(format!("bastle inspect {name}"))
}

/// Makes a run stand still, or go on.
pub(super) fn freeze(inner: &Inner, caller: &Caller, name: &RunId, op: &str) -> Result<(), Fault> {
    allow_on(caller, Verb::Control, name)?;
    match inner.store.read(|db| rows::phase(db, name))?.as_deref() {
        None => Err(missing(name.as_str())),
        Some("ended") => Err(ended(name)),
        Some("queued") => Err(Fault::new(
            Code::RunState,
            format!("the run {name} waits for its turn"),
            "nothing of it is there yet",
        )
        .help(format!("bastle stop {name}"))),
        Some(_) => talk::ask(&inner.options.state, name, &json!({ "op": op })).map(|_| ()),
    }
}
