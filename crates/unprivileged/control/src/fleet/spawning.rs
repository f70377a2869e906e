//! One or many runs, asked for together: checked as a whole, written in one transaction, answered once per key.
use super::planning::{Planned, Planner, Spot};
use super::rows::{self, NewRun};
use super::scopes::{self, Held};
use super::words::{allow, json, now_ms, steady_ms, text};
use super::{
    BatchReport, Caller, Inner, MAX_BATCH, OnConflict, PrincipalKind, Role, SpawnRequest, Spawned, TokenWish,
    Verb, children, naming, tokens,
};
use crate::store::{Stop, int, uint};
use crate::writers::overlap;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;

/// Longest key of a request.
const MAX_KEY: usize = 128;
/// Longest first part of names: with the batch and the index it fits a name.
const MAX_PREFIX: usize = 40;
/// So many runs that what planning them took together is worth giving back.
const MANY: usize = 8;

/// A run of the request: what it becomes, or why not.
type Checked = Result<Planned, Vec<Fault>>;

pub(super) fn spawn(
    inner: &Inner,
    caller: &Caller,
    request: &SpawnRequest,
) -> Result<BatchReport, Vec<Fault>> {
    let one = |fault| vec![fault];
    allow(caller, Verb::Spawn, "runs").map_err(one)?;
    check(request).map_err(one)?;
    let hash = digest(request).map_err(one)?;
    if let Some(key) = &request.key {
        let known = inner
            .store
            .read(|db| earlier(db, caller, key, &hash))
            .map_err(one)?;
        if let Some(report) = known {
            return Ok(report);
        }
    }
    let batch = batch_id().map_err(one)?;
    let mut planner = Planner::new(inner, caller);
    let mut checked: Vec<Checked> = Vec::with_capacity(request.runs.len());
    for (index, run) in request.runs.iter().enumerate() {
        let spot = Spot {
            request,
            batch: &batch,
            index,
        };
        checked.push(planner.plan(&spot, run).map_err(|faults| located(index, faults)));
    }
    refuse_if_needed(request, &checked)?;
    let mut refused = Vec::new();
    let report = inner.store.write(|db| {
        if let Some(key) = &request.key
            && let Some(report) = earlier(db, caller, key, &hash)?
        {
            return Ok(report);
        }
        let report = write(db, inner, caller, request, &batch, &checked);
        let report = report.inspect_err(|stop| {
            if let Stop::Refused(fault) = stop {
                refused.push(fault.clone());
            }
        })?;
        let all = || report.runs.iter().flat_map(|run| run.faults.iter().cloned());
        let none = report.runs.iter().all(|run| run.name.is_none());
        if none || (!request.partial && all().next().is_some()) {
            refused.extend(all());
            return Err(Fault::new(Code::RunState, "nothing of it can be started", "").into());
        }
        if let Some(key) = &request.key {
            remember(db, caller, key, &hash, &report)?;
        }
        Ok(report)
    });
    let report = report.map_err(|fault| if refused.is_empty() { vec![fault] } else { refused })?;
    super::hooks::point("spawn-committed");
    inner.told();
    inner.wake_queue();
    if checked.len() >= MANY {
        drop((checked, planner));
        bastle_sys::memory::give_back();
    }
    Ok(report)
}

fn check(request: &SpawnRequest) -> Result<(), Fault> {
    let bad = |what: &str, why: &str| Err(Fault::new(Code::UsageArgument, what, why));
    if request.runs.is_empty() {
        return bad("a request without runs", "it needs at least one");
    }
    if request.runs.len() > MAX_BATCH {
        return Err(Fault::new(
            Code::RunCrowd,
            format!("{} runs at once", request.runs.len()),
            format!("one request holds at most {MAX_BATCH}"),
        )
        .help("send several"));
    }
    if let Some(key) = &request.key
        && (key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| b.is_ascii_graphic()))
    {
        return bad("unusable key", "1 to 128 visible ASCII characters");
    }
    if let Some(prefix) = &request.prefix
        && (prefix.len() > MAX_PREFIX || RunId::try_from(prefix.clone()).is_err())
    {
        return bad(
            "unusable prefix",
            "1 to 40 characters of a-z, 0-9 and '-', not starting with '-'",
        );
    }
    if request.max_parallel == Some(0) {
        return bad("max_parallel 0", "nothing of it would ever start");
    }
    let mut names = BTreeSet::new();
    for name in request.runs.iter().filter_map(|run| run.name.as_ref()) {
        if !names.insert(name) {
            return bad(&format!("the name {name} is given twice"), "");
        }
    }
    Ok(())
}

/// Says which run of the request a fault is about.
fn located(index: usize, faults: Vec<Fault>) -> Vec<Fault> {
    let at = |mut fault: Fault| {
        fault.what = format!("run {index}: {}", fault.what);
        fault
    };
    faults.into_iter().map(at).collect()
}

fn refuse_if_needed(request: &SpawnRequest, checked: &[Checked]) -> Result<(), Vec<Fault>> {
    let faults: Vec<Fault> = checked
        .iter()
        .filter_map(|run| run.as_ref().err())
        .flatten()
        .cloned()
        .collect();
    let some = checked.iter().any(Result::is_ok);
    if faults.is_empty() || (request.partial && some) {
        return Ok(());
    }
    Err(faults)
}

fn digest(request: &SpawnRequest) -> Result<[u8; 32], Fault> {
    let bytes = serde_json::to_vec(request)
        .map_err(|error| Fault::new(Code::UsageArgument, "unusable request", error.to_string()))?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

/// The answer that was given under this key, if one was.
fn earlier(
    db: &Connection,
    caller: &Caller,
    key: &str,
    hash: &[u8; 32],
) -> Result<Option<BatchReport>, Stop> {
    let row: Option<(Vec<u8>, String)> = db
        .prepare_cached("SELECT hash, report FROM idempotency WHERE caller = ?1 AND key = ?2")?
        .query_row(params![caller.id, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((known, report)) = row else {
        return Ok(None);
    };
    if known != hash {
        return Err(Fault::new(
            Code::RunKey,
            format!("the key {key} was used for another request"),
            "a different request needs a key of its own",
        )
        .help("choose another key")
        .into());
    }
    let mut report: BatchReport = json(&report)?;
    report.repeated = true;
    Ok(Some(report))
}

fn remember(
    db: &Connection,
    caller: &Caller,
    key: &str,
    hash: &[u8; 32],
    report: &BatchReport,
) -> Result<(), Stop> {
    let mut without = report.clone();
    // Secrets are told once and kept nowhere.
    without.runs.iter_mut().for_each(|run| run.token = None);
    db.prepare_cached(
        "INSERT INTO idempotency(caller, key, hash, report, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        caller.id,
        key,
        hash.as_slice(),
        text(&without)?,
        int(steady_ms())
    ])?;
    Ok(())
}

/// Eight characters that nobody guesses by accident.
fn batch_id() -> Result<String, Fault> {
    tokens::random_word(8).map_err(|why| Fault::new(Code::StateDir, "cannot name the batch", why))
}

fn write(
    db: &Connection,
    inner: &Inner,
    caller: &Caller,
    request: &SpawnRequest,
    batch: &str,
    checked: &[Checked],
) -> Result<BatchReport, Stop> {
    let now = now_ms();
    let waiting: i64 = db.query_row("SELECT count(*) FROM runs WHERE phase = 'queued'", [], |row| {
        row.get(0)
    })?;
    if uint(waiting).saturating_add(checked.len() as u64) > u64::from(inner.options.max_queued) {
        return Err(Fault::new(
            Code::RunCrowd,
            format!("{waiting} runs wait already"),
            format!("{} are the most", inner.options.max_queued),
        )
        .help("bastle ps")
        .into());
    }
    db.prepare_cached(
        "INSERT INTO batches(id, ord, prefix, caller, created_ms, size, max_parallel) \
         VALUES (?1, (SELECT coalesce(max(ord), 0) + 1 FROM batches), ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        batch,
        naming::beginning(caller, request),
        caller.id,
        int(now),
        int(checked.len() as u64),
        request.max_parallel
    ])?;
    let beside = match request.on_conflict {
        OnConflict::Refuse => scopes::beside(db, &inner.options.state)?,
        OnConflict::Queue => Vec::new(),
    };
    let mut runs = Vec::with_capacity(checked.len());
    for (index, run) in checked.iter().enumerate() {
        let made = match run {
            Ok(planned) => one(db, caller, request, (batch, index), (planned, &beside)),
            Err(faults) => {
                runs.push(refusal(index, faults.clone()));
                continue;
            }
        };
        match made {
            Ok(token) => runs.push(Spawned {
                index,
                name: run.as_ref().ok().map(|planned| planned.spec.get().name.clone()),
                faults: Vec::new(),
                token,
                notes: run
                    .as_ref()
                    .map(|planned| planned.spec.get().notes.clone())
                    .unwrap_or_default(),
            }),
            // Refused before anything of it was written.
            Err(Stop::Refused(fault)) => runs.push(refusal(index, located(index, vec![fault]))),
            Err(stop @ Stop::Sql(_)) => return Err(stop),
        }
    }
    let data = serde_json::json!({"batch": batch, "size": checked.len(), "caller": caller.id});
    rows::own_event(db, None, "batch", &data, now)?;
    Ok(BatchReport {
        batch: batch.to_owned(),
        runs,
        repeated: false,
    })
}

fn refusal(index: usize, faults: Vec<Fault>) -> Spawned {
    Spawned {
        index,
        name: None,
        faults,
        token: None,
        notes: Vec::new(),
    }
}

/// Whose authority a run uses up, which has room for it. In the transaction that adds the run: requests side by side cannot
/// each find the last place free.
fn charged(db: &Connection, caller: &Caller, planned: &Planned) -> Result<String, Stop> {
    let principal = match &caller.run {
        Some(run) => rows::principal(db, run)?.unwrap_or_else(|| caller.id.clone()),
        None => caller.id.clone(),
    };
    if let Some(most) = planned.max_runs
        && rows::unended_of(db, &principal)? >= u64::from(most)
    {
        return Err(Fault::new(
            Code::RunCrowd,
            format!("{principal} has {most} runs that wait or live"),
            "its authority ceiling allows no more",
        )
        .help("wait until one has ended, or an admin: bastle token create --role operator --max-runs NUMBER")
        .into());
    }
    Ok(principal)
}

/// Writes one run, after everything that could refuse it was asked. Its own token, where one is wanted.
fn one(
    db: &Connection,
    caller: &Caller,
    request: &SpawnRequest,
    place: (&str, usize),
    (planned, beside): (&Planned, &[Held]),
) -> Result<Option<String>, Stop> {
    let raw = planned.spec.get();
    if rows::phase(db, &raw.name)?.is_some() {
        return Err(
            Fault::new(Code::UsageArgument, format!("the name {} is taken", raw.name), "")
                .help("bastle ps -a")
                .into(),
        );
    }
    if request.on_conflict == OnConflict::Refuse {
        for path in &planned.scopes {
            // A child writes where its parent may: that is no conflict with it.
            let held = scopes::at(db, path)?;
            let beside = beside.iter().filter(|held| overlap(&held.path, path));
            let mut all = held.iter().chain(beside);
            let other = all.find(|held| Some(&held.run) != raw.parent.as_ref());
            if let Some(other) = other {
                return Err(match caller.may_on(Verb::Read, &other.run) {
                    true => scopes::conflict(path, other),
                    // Whoever may not see it is not told its name.
                    false => scopes::conflict_unseen(path),
                }
                .into());
            }
        }
    }
    let principal = charged(db, caller, planned)?;
    let depth = match &raw.parent {
        Some(parent) => children::charge(db, parent, &children::amounts_of(&planned.spec)?, 1)?,
        None => 0,
    };
    let now = now_ms();
    let new = NewRun {
        spec: &planned.spec,
        batch: Some(place),
        preamble: Some(&planned.preamble),
        priority: request.priority,
        created_ms: now,
        depth,
        caller: &caller.id,
        caller_kind: Some(caller.kind),
        phase: "queued",
        at_once: planned.at_once,
        principal: &principal,
        via: request.via,
    };
    rows::insert(db, &new)?;
    scopes::insert(db, &raw.name, &planned.scopes)?;
    let own = raw
        .env
        .iter()
        .find(|(name, _)| name.as_str() == bastle_contract::TRACE_VARIABLE);
    let data =
        serde_json::json!({"state": "queued", "reason": null, "traceparent": own.map(|(_, value)| value)});
    rows::own_event(db, Some(&raw.name), "state", &data, now)?;
    let Some(ceiling) = planned.token.clone() else {
        return Ok(None);
    };
    let wish = TokenWish {
        kind: PrincipalKind::Program,
        run: Some(raw.name.clone()),
        // Its children are named as whoever starts it may name runs.
        prefix: caller.prefix.clone(),
        ceiling,
        ..TokenWish::new(Role::Run, format!("of the run {}", raw.name))
    };
    let (_, secret) = tokens::insert(db, &caller.id, &wish)?;
    Ok(Some(secret))
}
