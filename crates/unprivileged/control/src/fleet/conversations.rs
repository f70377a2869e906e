//! What the agent protocol adds to runs: which conversation a run belongs to, what was said in it, and whom to tell.
//!
//! **Trust:** messages and addresses of receivers are a caller's; they are kept as they were checked, and shown only to
//! whoever may read the run. Everything is bounded per run and goes with the run.
use super::words::{beginning, json, now_ms, run_id, state, text};
use super::{Fleet, Inner};
use crate::store::{Stop, int, uint};
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::types::Value as Cell;
use rusqlite::{OptionalExtension, params, params_from_iter};
use serde_json::Value;

/// Messages of one run that are kept, and their bytes together; older ones go.
const MOST_MESSAGES: u64 = 100;
const MOST_BYTES: u64 = 1024 * 1024;
/// Receivers of one run, and of all runs that have not ended.
const MOST_RECEIVERS: u64 = 16;
const MOST_ALL: u64 = 256;

/// Somebody who is told about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The run.
    pub run: RunId,
    /// Its name within the run.
    pub id: String,
    /// Who asked for it.
    pub caller: String,
    /// Where to and with what, as the protocol's face understands it.
    pub config: Value,
    /// Number of the last event that was told.
    pub since: u64,
}

/// Which runs are listed, newest change of state first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// This run alone.
    pub run: Option<RunId>,
    /// Names that begin so.
    pub prefix: Option<String>,
    /// Of this conversation.
    pub context: Option<String>,
    /// In one of these states; all when empty.
    pub states: Vec<RunState>,
    /// Whose state changed at this time or later, milliseconds since 1970.
    pub changed_from: Option<u64>,
    /// After this one: when its state changed, and its name.
    pub after: Option<(u64, RunId)>,
    /// At most so many.
    pub limit: usize,
}

/// A run of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The name of the run.
    pub name: RunId,
    /// The state of the run.
    pub state: RunState,
    /// When it came there.
    pub changed_ms: u64,
}

/// When the state of a run changed last. Events older than what is kept are gone; then the times of the run itself.
const CHANGED: &str = "coalesce((SELECT e.time_ms FROM events e WHERE e.run = r.name AND e.kind = 'state' \
     ORDER BY e.seq DESC LIMIT 1), r.ended_ms, r.started_ms, r.created_ms)";
/// The conversation of a run; one that nobody began has a name of its own.
const CONTEXT: &str =
    "coalesce((SELECT c.context FROM conversations c WHERE c.run = r.name), 'run-' || r.name)";

/// What is known of a message id of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageClaim {
    /// It is new, and this caller's from now on.
    New,
    /// The same message came before and reached this run.
    Delivered(RunId),
    /// The same message came before and is on its way.
    InFlight,
}

/// The key of a message id among the keys of requests; no key of a request holds a space.
fn message_key(id: &str) -> String {
    format!("a2a message {id}")
}

impl Fleet {
    /// Takes a message id for the content with this digest.
    ///
    /// # Errors
    /// When the caller used the id for another content.
    pub fn message_claim(&self, caller: &str, id: &str, digest: &[u8; 32]) -> Result<MessageClaim, Fault> {
        let since_ms = self.inner.since_ms;
        self.inner.store.write(|db| {
            let key = message_key(id);
            let known: Option<(Vec<u8>, String, i64)> = db
                .prepare_cached("SELECT hash, report, created_ms FROM idempotency WHERE caller = ?1 AND key = ?2")?
                .query_row(params![caller, key], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()?;
            match known {
                None => {
                    db.prepare_cached(
                        "INSERT INTO idempotency(caller, key, hash, report, created_ms) VALUES (?1, ?2, ?3, '', ?4)",
                    )?
                    .execute(params![caller, key, digest, int(now_ms())])?;
                    Ok(MessageClaim::New)
                }
                Some((hash, ..)) if hash != digest => Err(Fault::new(
                    Code::RunKey,
                    "this message id was used for another message",
                    "a different message needs an id of its own",
                )
                .into()),
                // Whoever brought it before this daemon started does not bring it any more.
                Some((_, run, at)) if run.is_empty() && uint(at) < since_ms => Ok(MessageClaim::New),
                Some((_, run, _)) if run.is_empty() => Ok(MessageClaim::InFlight),
                Some((_, run, _)) => Ok(MessageClaim::Delivered(run_id(run)?)),
            }
        })
    }

    /// The message of this id reached a run, or (`None`) did not and may be sent again with any content.
    pub fn message_settle(&self, caller: &str, id: &str, run: Option<&RunId>) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            let key = message_key(id);
            match run {
                Some(run) => db
                    .prepare_cached("UPDATE idempotency SET report = ?3 WHERE caller = ?1 AND key = ?2")?
                    .execute(params![caller, key, run.as_str()])?,
                None => db
                    .prepare_cached("DELETE FROM idempotency WHERE caller = ?1 AND key = ?2")?
                    .execute(params![caller, key])?,
            };
            Ok(())
        })
    }

    /// Notes the conversation that a run belongs to; the first word holds.
    pub fn conversation_begin(&self, run: &RunId, context: &str) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            db.prepare_cached(
                "INSERT INTO conversations(run, context, created_ms) VALUES (?1, ?2, ?3) ON CONFLICT(run) DO NOTHING",
            )?
            .execute(params![run.as_str(), context, int(now_ms())])?;
            Ok(())
        })
    }

    /// The conversation of a run.
    pub fn conversation(&self, run: &RunId) -> Result<String, Fault> {
        let found: Option<String> = self.inner.store.read(|db| {
            Ok(db
                .prepare_cached("SELECT context FROM conversations WHERE run = ?1")?
                .query_row([run.as_str()], |row| row.get(0))
                .optional()?)
        })?;
        Ok(found.unwrap_or_else(|| format!("run-{run}")))
    }

    /// Keeps what somebody said to a run, and when it came. The oldest go when there are too many.
    pub fn message_add(&self, run: &RunId, came_ms: u64, message: &Value) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            db.prepare_cached("INSERT INTO messages(run, time_ms, message) VALUES (?1, ?2, ?3)")?
                .execute(params![run.as_str(), int(came_ms), text(message)?])?;
            // The newest stays whatever its size.
            db.prepare_cached(
                "DELETE FROM messages WHERE run = ?1 AND seq IN (SELECT seq FROM (SELECT seq, \
                 row_number() OVER newest AS place, sum(length(message)) OVER newest AS bytes FROM messages \
                 WHERE run = ?1 WINDOW newest AS (ORDER BY seq DESC)) WHERE place > 1 AND (place > ?2 OR bytes > ?3))",
            )?
            .execute(params![run.as_str(), int(MOST_MESSAGES), int(MOST_BYTES)])?;
            Ok(())
        })
    }

    /// What was said to a run, oldest first, with the time in milliseconds since 1970.
    pub fn messages(&self, run: &RunId) -> Result<Vec<(u64, Value)>, Fault> {
        self.inner.store.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT time_ms, message FROM messages WHERE run = ?1 ORDER BY seq")?;
            let mut rows = statement.query([run.as_str()])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push((uint(row.get(0)?), json(&row.get::<_, String>(1)?)?));
            }
            Ok(found)
        })
    }

    /// Keeps a receiver; one of the same name is replaced.
    pub fn receiver_put(&self, receiver: &Receiver) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            let count = |sql: &str, run: &str| -> Result<u64, Stop> {
                Ok(uint(
                    db.prepare_cached(sql)?
                        .query_row(params![run, receiver.id], |row| row.get(0))?,
                ))
            };
            let own = count(
                "SELECT count(*) FROM receivers WHERE run = ?1 AND id <> ?2",
                receiver.run.as_str(),
            )?;
            let all = count(
                "SELECT count(*) FROM receivers p JOIN runs r ON r.name = p.run WHERE r.phase <> 'ended' \
                 AND NOT (p.run = ?1 AND p.id = ?2)",
                receiver.run.as_str(),
            )?;
            if own >= MOST_RECEIVERS || all >= MOST_ALL {
                return Err(Fault::new(
                    Code::RunCrowd,
                    "too many receivers",
                    format!("{MOST_RECEIVERS} of one run and {MOST_ALL} of all are the most"),
                )
                .into());
            }
            db.prepare_cached(
                "INSERT INTO receivers(run, id, caller, config, since, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                 ON CONFLICT(run, id) DO UPDATE SET caller = ?3, config = ?4",
            )?
            .execute(params![
                receiver.run.as_str(),
                receiver.id,
                receiver.caller,
                text(&receiver.config)?,
                int(receiver.since),
                int(now_ms())
            ])?;
            Ok(())
        })
    }

    /// The receivers of a run, or of all runs, by name.
    pub fn receivers(&self, run: Option<&RunId>) -> Result<Vec<Receiver>, Fault> {
        self.inner.store.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT run, id, caller, config, since FROM receivers WHERE ?1 IS NULL OR run = ?1 ORDER BY run, id",
            )?;
            let mut rows = statement.query([run.map(RunId::as_str)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(Receiver {
                    run: run_id(row.get(0)?)?,
                    id: row.get(1)?,
                    caller: row.get(2)?,
                    config: json(&row.get::<_, String>(3)?)?,
                    since: uint(row.get(4)?),
                });
            }
            Ok(found)
        })
    }

    /// Removes a receiver; doing it twice is doing it once.
    pub fn receiver_remove(&self, run: &RunId, id: &str) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            db.prepare_cached("DELETE FROM receivers WHERE run = ?1 AND id = ?2")?
                .execute(params![run.as_str(), id])?;
            Ok(())
        })
    }

    /// Notes up to which event a receiver was told.
    pub fn receiver_told(&self, run: &RunId, id: &str, since: u64) -> Result<(), Fault> {
        self.inner.store.write(|db| {
            db.prepare_cached("UPDATE receivers SET since = max(since, ?3) WHERE run = ?1 AND id = ?2")?
                .execute(params![run.as_str(), id, int(since)])?;
            Ok(())
        })
    }

    /// Runs by when their state changed, newest first, and how many there are in all.
    pub fn tasks(&self, query: &TaskQuery) -> Result<(Vec<TaskRow>, u64), Fault> {
        tasks(&self.inner, query)
    }
}

fn tasks(inner: &Inner, query: &TaskQuery) -> Result<(Vec<TaskRow>, u64), Fault> {
    let mut conditions: Vec<String> = Vec::new();
    let mut values: Vec<Cell> = Vec::new();
    if let Some(run) = &query.run {
        conditions.push("name = ?".to_owned());
        values.push(Cell::from(run.as_str().to_owned()));
    }
    if let Some(prefix) = &query.prefix {
        conditions.push("name LIKE ? ESCAPE '\\'".to_owned());
        values.push(Cell::from(beginning(prefix)));
    }
    if let Some(context) = &query.context {
        conditions.push("context = ?".to_owned());
        values.push(Cell::from(context.clone()));
    }
    if !query.states.is_empty() {
        conditions.push(format!("state IN ({})", vec!["?"; query.states.len()].join(",")));
        let words = query
            .states
            .iter()
            .map(|state| Cell::from(state.word().to_owned()));
        values.extend(words);
    }
    if let Some(from) = query.changed_from {
        conditions.push("changed >= ?".to_owned());
        values.push(Cell::from(int(from)));
    }
    let filter = |conditions: &[String]| match conditions {
        [] => String::new(),
        all => format!(" WHERE {}", all.join(" AND ")),
    };
    let from = format!(
        "FROM (SELECT r.name AS name, r.state AS state, {CHANGED} AS changed, {CONTEXT} AS context FROM runs r)"
    );
    inner.store.read(|db| {
        let total: i64 = db
            .prepare_cached(&format!("SELECT count(*) {from}{}", filter(&conditions)))?
            .query_row(params_from_iter(values.iter()), |row| row.get(0))?;
        if let Some((changed, name)) = &query.after {
            conditions.push("(changed < ? OR (changed = ? AND name > ?))".to_owned());
            values.extend([Cell::from(int(*changed)), Cell::from(int(*changed))]);
            values.push(Cell::from(name.as_str().to_owned()));
        }
        let sql = format!(
            "SELECT name, state, changed {from}{} ORDER BY changed DESC, name LIMIT {}",
            filter(&conditions),
            query.limit.min(1000)
        );
        let mut statement = db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter()))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(TaskRow {
                name: run_id(row.get(0)?)?,
                state: state(&row.get::<_, String>(1)?)?,
                changed_ms: uint(row.get(2)?),
            });
        }
        Ok((found, uint(total)))
    })
}
