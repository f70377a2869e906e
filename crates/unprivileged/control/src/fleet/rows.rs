//! Runs as rows: written when they are asked for, read for everybody who looks.
use super::words::{json, missing, run_id, state, text};
use super::{PrincipalKind, RunRecord, Via, scopes};
use crate::runs::RunDir;
use crate::store::{Stop, int, uint};
use bastle_contract::RunId;
use bastle_contract::runs::{LaunchSpec, RunFile};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use std::path::Path;

/// The columns of [`record`], in order.
pub(super) const COLUMNS: &str = "name, batch, idx, state, reason, created_ms, started_ms, ended_ms, code, fault, \
     spec, profile, agent, workspace, parent, caller, denials, question, model_tokens, micro_usd, last_event, phase";

/// What a new row holds.
pub(super) struct NewRun<'n> {
    pub(super) spec: &'n LaunchSpec,
    pub(super) batch: Option<(&'n str, usize)>,
    pub(super) preamble: Option<&'n str>,
    pub(super) priority: i32,
    pub(super) created_ms: u64,
    pub(super) depth: u64,
    pub(super) caller: &'n str,
    /// `None` where the daemon did not see who started it.
    pub(super) caller_kind: Option<PrincipalKind>,
    pub(super) phase: &'n str,
    /// Most runs of its profile at once.
    pub(super) at_once: Option<u32>,
    /// Whose authority it uses up.
    pub(super) principal: &'n str,
    /// By which way it was asked for.
    pub(super) via: Via,
}

/// Writes a run and its labels.
pub(super) fn insert(db: &Connection, new: &NewRun<'_>) -> Result<(), Stop> {
    let raw = new.spec.get();
    let agent = raw.argv.as_slice().first().map_or("", String::as_str);
    let agent = Path::new(agent)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    db.prepare_cached(
        "INSERT INTO runs(name, batch, idx, phase, state, spec, preamble, priority, created_ms, agent, workspace, \
         profile, parent, depth, caller, at_once, caller_kind, principal, via) \
         VALUES (?1,?2,?3,?4,'queued',?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)",
    )?
    .execute(params![
        raw.name.as_str(),
        new.batch.map(|(id, _)| id),
        new.batch.map(|(_, index)| int(index as u64)),
        new.phase,
        text(new.spec)?,
        new.preamble,
        new.priority,
        int(new.created_ms),
        agent,
        raw.workspace.as_str(),
        raw.profile,
        raw.parent.as_ref().map(RunId::as_str),
        int(new.depth),
        new.caller,
        new.at_once,
        new.caller_kind.map(PrincipalKind::word),
        new.principal,
        new.via.word(),
    ])?;
    for (key, value) in raw.tags.as_map() {
        db.prepare_cached("INSERT INTO tags(run, key, value) VALUES (?1, ?2, ?3)")?
            .execute(params![raw.name.as_str(), key, value])?;
    }
    db.prepare_cached(
        "INSERT INTO counters(name, value) VALUES ('spawned', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1",
    )?
    .execute([])?;
    Ok(())
}

/// A row with [`COLUMNS`].
pub(super) fn record(row: &Row<'_>) -> Result<RunRecord, Stop> {
    let number = |at: usize| row.get::<_, i64>(at).map(uint);
    let maybe = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.map(uint));
    let spec: LaunchSpec = json(&row.get::<_, String>(10)?)?;
    let fault: Option<String> = row.get(9)?;
    let parent: Option<String> = row.get(14)?;
    Ok(RunRecord {
        name: run_id(row.get(0)?)?,
        batch: row.get(1)?,
        index: maybe(2)?.and_then(|index| u32::try_from(index).ok()),
        state: state(&row.get::<_, String>(3)?)?,
        reason: row.get(4)?,
        waits_for: None,
        created_ms: number(5)?,
        started_ms: maybe(6)?,
        ended_ms: maybe(7)?,
        code: maybe(8)?.and_then(|code| u8::try_from(code).ok()),
        fault: fault.map(|fault| json(&fault)).transpose()?,
        tags: spec.get().tags.clone(),
        profile: row.get(11)?,
        agent: row.get(12)?,
        workspace: row.get(13)?,
        parent: parent.map(run_id).transpose()?,
        caller: row.get(15)?,
        denials: number(16)?,
        question: row.get(17)?,
        model_tokens: number(18)?,
        micro_usd: number(19)?,
        last_event: number(20)?,
        file: None,
    })
}

/// One run.
pub(super) fn one(db: &Connection, name: &RunId) -> Result<RunRecord, Stop> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE name = ?1"))?;
    let mut rows = statement.query([name.as_str()])?;
    match rows.next()? {
        Some(row) => {
            let mut found = record(row)?;
            found.waits_for = scopes::waits_for(db, name)?;
            Ok(found)
        }
        None => Err(missing(name.as_str()).into()),
    }
}

/// Adds what its keeper wrote last, where that can be read.
pub(super) fn with_file(state: &Path, mut record: RunRecord) -> RunRecord {
    record.file = RunDir::open(state, &record.name).and_then(|dir| dir.file()).ok();
    record
}

/// The phase of a run; `None` when there is none.
pub(super) fn phase(db: &Connection, name: &RunId) -> Result<Option<String>, Stop> {
    Ok(db
        .prepare_cached("SELECT phase FROM runs WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))
        .optional()?)
}

/// What was asked for.
pub(super) fn spec(db: &Connection, name: &RunId) -> Result<LaunchSpec, Stop> {
    let found: Option<String> = db
        .prepare_cached("SELECT spec FROM runs WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))
        .optional()?;
    json(&found.ok_or_else(|| missing(name.as_str()))?)
}

/// Whose authority a run uses up.
pub(super) fn principal(db: &Connection, name: &RunId) -> Result<Option<String>, Stop> {
    let found: Option<Option<String>> = db
        .prepare_cached("SELECT principal FROM runs WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))
        .optional()?;
    Ok(found.flatten())
}

/// Runs of somebody's authority that wait or live.
pub(super) fn unended_of(db: &Connection, principal: &str) -> Result<u64, Stop> {
    let count: i64 = db
        .prepare_cached("SELECT count(*) FROM runs WHERE principal = ?1 AND phase <> 'ended'")?
        .query_row([principal], |row| row.get(0))?;
    Ok(uint(count))
}

/// Sets the phase.
pub(super) fn set_phase(db: &Connection, name: &RunId, phase: &str) -> Result<(), Stop> {
    db.prepare_cached("UPDATE runs SET phase = ?2 WHERE name = ?1")?
        .execute(params![name.as_str(), phase])?;
    Ok(())
}

/// Records how a run ended, gives its places back, and lets its questions go. Its own file is the last word.
pub(super) fn finish(db: &Connection, file: &RunFile) -> Result<(), Stop> {
    let name = file.name.as_str();
    let fault = file.fault.as_ref().map(text).transpose()?;
    db.prepare_cached(
        "UPDATE runs SET phase = 'ended', state = ?2, reason = ?3, started_ms = ?4, ended_ms = ?5, code = ?6, \
         fault = ?7, wall_ms = ?8, cpu_ms = ?9, denials = max(denials, ?10), question = NULL WHERE name = ?1",
    )?
    .execute(params![
        name,
        file.state.word(),
        file.reason,
        file.started_ms.map(int),
        file.ended_ms.map(int),
        file.code,
        fault,
        int(file.usage.wall_ms),
        int(file.usage.cpu_ms),
        int(file.denials),
    ])?;
    release(db, name)
}

/// Removes the row of a run that ended. Its events stay, without their numbers: the name may be given again.
pub(super) fn delete(db: &Connection, name: &RunId) -> Result<(), Stop> {
    super::children::hand_up(db, name)?;
    db.prepare_cached("UPDATE events SET run_seq = NULL WHERE run = ?1")?
        .execute([name.as_str()])?;
    db.prepare_cached("DELETE FROM runs WHERE name = ?1 AND phase = 'ended'")?
        .execute([name.as_str()])?;
    Ok(())
}

/// Records an end that no keeper ever saw.
pub(super) fn finish_unkept(
    db: &Connection,
    name: &RunId,
    end: (&str, &str),
    fault: Option<&bastle_contract::Fault>,
    ended_ms: u64,
) -> Result<(), Stop> {
    let (state, reason) = end;
    db.prepare_cached(
        "UPDATE runs SET phase = 'ended', state = ?2, reason = ?3, ended_ms = ?4, fault = ?5, question = NULL \
         WHERE name = ?1",
    )?
    .execute(params![
        name.as_str(),
        state,
        reason,
        int(ended_ms),
        fault.map(text).transpose()?
    ])?;
    let data = serde_json::json!({"state": state, "reason": reason});
    own_event(db, Some(name), "state", &data, ended_ms)?;
    release(db, name.as_str())
}

fn release(db: &Connection, name: &str) -> Result<(), Stop> {
    db.prepare_cached("DELETE FROM locks WHERE run = ?1")?
        .execute([name])?;
    db.prepare_cached("UPDATE approvals SET state = 'stale' WHERE run = ?1 AND state = 'open'")?
        .execute([name])?;
    Ok(())
}

/// An event of the fleet itself.
pub(super) fn own_event(
    db: &Connection,
    run: Option<&RunId>,
    kind: &str,
    data: &Value,
    time_ms: u64,
) -> Result<(), Stop> {
    db.prepare_cached(
        "INSERT INTO events(run, batch, time_ms, kind, data) \
         VALUES (?1, (SELECT batch FROM runs WHERE name = ?1), ?2, ?3, ?4)",
    )?
    .execute(params![run.map(RunId::as_str), int(time_ms), kind, text(data)?])?;
    Ok(())
}
