//! Lists and sums for whoever looks. Only reads; pages are bounded whatever is asked for.
use super::words::{beginning, json, run_id, state, tag};
use super::{
    BatchRecord, EventFilter, Health, Inner, MetricsSnapshot, Page, RunQuery, RunRecord, Stats, StatsRow,
    StoredEvent, rows,
};
use crate::store::{Stop, int, uint};
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params, params_from_iter};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Most events that are given at once.
const MOST_EVENTS: usize = 10_000;
/// Labels that are summed: more would be a list of runs.
const MOST_GROUPS: usize = 1000;

fn page_size(limit: usize) -> usize {
    match limit {
        0 => 100,
        limit => limit.min(1000),
    }
}

/// Conditions and their values, joined by AND.
#[derive(Default)]
struct Where {
    text: String,
    values: Vec<Cell>,
}

impl Where {
    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Cell>) {
        self.text
            .push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
        self.values.extend(values);
    }

    /// Of runs with a label.
    fn tagged(&mut self, column: &str, text: &str) {
        match tag(text) {
            (key, None) => self.and(
                &format!("{column} IN (SELECT run FROM tags WHERE key = ?)"),
                [Cell::from(key.to_owned())],
            ),
            (key, Some(value)) => self.and(
                &format!("{column} IN (SELECT run FROM tags WHERE key = ? AND value = ?)"),
                [Cell::from(key.to_owned()), Cell::from(value.to_owned())],
            ),
        }
    }
}

/// Where the next page begins: the run's place in the order in which runs were asked for. A run that was removed meanwhile
/// does not end the list.
fn cursor(text: &str) -> Result<i64, Fault> {
    text.parse().map_err(|_| {
        Fault::new(
            Code::UsageArgument,
            "this is no cursor of a list of runs",
            "a cursor is `next` of the page before",
        )
    })
}

/// Runs, newest first, after the cursor.
pub(super) fn runs(inner: &Inner, query: &RunQuery) -> Result<Page<RunRecord>, Fault> {
    let most = page_size(query.limit);
    let mut conditions = Where::default();
    if !query.states.is_empty() {
        let marks = vec!["?"; query.states.len()].join(",");
        let words = query
            .states
            .iter()
            .map(|state| Cell::from(state.word().to_owned()));
        conditions.and(&format!("state IN ({marks})"), words);
    }
    if let Some(text) = &query.tag {
        conditions.tagged("name", text);
    }
    let like = "name LIKE ? ESCAPE '\\'";
    if let Some(prefix) = &query.prefix {
        conditions.and(like, [Cell::from(beginning(prefix))]);
    }
    if let Some(batch) = &query.batch {
        conditions.and("batch = ?", [Cell::from(batch.clone())]);
    }
    if let Some(parent) = &query.parent {
        conditions.and("parent = ?", [Cell::from(parent.as_str().to_owned())]);
    }
    if let Some(after) = &query.after {
        conditions.and("ord < ?", [Cell::from(cursor(after)?)]);
    }
    let sql = format!(
        "SELECT {}, ord FROM runs{} ORDER BY ord DESC LIMIT {}",
        rows::COLUMNS,
        conditions.text,
        most + 1
    );
    inner.store.read(|db| {
        let mut statement = db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(conditions.values))?;
        let mut items = Vec::new();
        let mut last = None;
        let mut next = None;
        while let Some(row) = rows.next()? {
            if items.len() == most {
                next = last;
                break;
            }
            items.push(rows::record(row)?);
            last = Some(row.get::<_, i64>("ord")?.to_string());
        }
        for item in &mut items {
            if item.state == RunState::Queued {
                item.waits_for = super::scopes::waits_for(db, &item.name)?;
            }
        }
        Ok(Page { items, next })
    })
}

/// Events after a number.
pub(super) fn events(
    inner: &Inner,
    since: u64,
    filter: &EventFilter,
    most: usize,
) -> Result<Vec<StoredEvent>, Fault> {
    some_events(inner, since, filter, ("ASC", most))
}

/// The newest events, newest last.
pub(super) fn recent(inner: &Inner, filter: &EventFilter, most: usize) -> Result<Vec<StoredEvent>, Fault> {
    let mut found = some_events(inner, 0, filter, ("DESC", most))?;
    found.reverse();
    Ok(found)
}

/// Events in an order, of which the word is written here and nowhere else.
fn some_events(
    inner: &Inner,
    since: u64,
    filter: &EventFilter,
    (order, most): (&str, usize),
) -> Result<Vec<StoredEvent>, Fault> {
    let mut conditions = Where::default();
    conditions.and("seq > ?", [Cell::from(int(since))]);
    if let Some(run) = &filter.run {
        conditions.and("run = ?", [Cell::from(run.as_str().to_owned())]);
    }
    if let Some(prefix) = &filter.prefix {
        conditions.and("run LIKE ? ESCAPE '\\'", [Cell::from(beginning(prefix))]);
    }
    if let Some(batch) = &filter.batch {
        conditions.and("batch = ?", [Cell::from(batch.clone())]);
    }
    if let Some(text) = &filter.tag {
        conditions.tagged("run", text);
    }
    if !filter.kinds.is_empty() {
        let marks = vec!["?"; filter.kinds.len()].join(",");
        let kinds = filter.kinds.iter().map(|kind| Cell::from(kind.clone()));
        conditions.and(&format!("kind IN ({marks})"), kinds);
    }
    let sql = format!(
        "SELECT seq, run, run_seq, batch, time_ms, kind, data FROM events{} ORDER BY seq {order} LIMIT {}",
        conditions.text,
        most.min(MOST_EVENTS)
    );
    inner.store.read(|db| {
        let mut statement = db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(conditions.values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let run: Option<String> = row.get(1)?;
            found.push(StoredEvent {
                seq: uint(row.get(0)?),
                run: run.map(run_id).transpose()?,
                run_seq: row.get::<_, Option<i64>>(2)?.map(uint),
                batch: row.get(3)?,
                time_ms: uint(row.get(4)?),
                kind: row.get(5)?,
                data: json(&row.get::<_, String>(6)?)?,
            });
        }
        Ok(found)
    })
}

/// The newest number.
pub(super) fn newest(db: &Connection) -> Result<u64, Stop> {
    Ok(uint(
        db.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?
            .query_row([], |row| row.get(0))?,
    ))
}

/// Batches, newest first; the cursor is an id.
pub(super) fn batches(inner: &Inner, after: Option<&str>, limit: usize) -> Result<Page<BatchRecord>, Fault> {
    let most = page_size(limit);
    inner.store.read(|db| {
        let mut statement = db.prepare_cached(
            "SELECT id FROM batches WHERE ?1 IS NULL OR ord < (SELECT ord FROM batches WHERE id = ?1) \
             ORDER BY ord DESC LIMIT ?2",
        )?;
        let mut ids: Vec<String> = statement
            .query_map(params![after, int(most as u64 + 1)], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let more = ids.len() > most;
        ids.truncate(most);
        let mut items = Vec::with_capacity(ids.len());
        for id in &ids {
            items.push(one_batch(db, id)?);
        }
        let next = more.then(|| ids.last().cloned()).flatten();
        Ok(Page { items, next })
    })
}

/// One batch.
pub(super) fn one_batch(db: &Connection, id: &str) -> Result<BatchRecord, Stop> {
    let mut statement = db
        .prepare_cached("SELECT prefix, caller, created_ms, size, max_parallel FROM batches WHERE id = ?1")?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else {
        return Err(
            Fault::new(Code::RunMissing, format!("there is no batch {id}"), "")
                .help("bastle batch ls")
                .into(),
        );
    };
    Ok(BatchRecord {
        id: id.to_owned(),
        prefix: row.get(0)?,
        caller: row.get(1)?,
        created_ms: uint(row.get(2)?),
        size: uint(row.get(3)?),
        max_parallel: row.get(4)?,
        states: states(db, Some(id))?,
    })
}

fn states(db: &Connection, batch: Option<&str>) -> Result<BTreeMap<RunState, u64>, Stop> {
    let mut statement =
        db.prepare_cached("SELECT state, count(*) FROM runs WHERE ?1 IS NULL OR batch = ?1 GROUP BY state")?;
    let mut rows = statement.query([batch])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        found.insert(state(&row.get::<_, String>(0)?)?, uint(row.get(1)?));
    }
    Ok(found)
}

/// Sums over all runs that are recorded.
pub(super) fn stats(inner: &Inner) -> Result<Stats, Fault> {
    let day = "strftime('%Y-%m-%d', created_ms / 1000, 'unixepoch')";
    inner.store.read(|db| {
        Ok(Stats {
            total: sums(db, "''", "runs")?.remove("").unwrap_or_default(),
            by_agent: sums(db, "agent", "runs")?,
            by_tag: sums(db, "t.key || '=' || t.value", "runs JOIN tags t ON t.run = name")?,
            by_day: sums(db, day, "runs")?,
            by_batch: sums(db, "coalesce(batch, '')", "runs")?,
        })
    })
}

/// Sums by an expression over a table; both are written here and nowhere else.
fn sums(db: &Connection, by: &str, from: &str) -> Result<BTreeMap<String, StatsRow>, Stop> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {by} AS grp, state, count(*), sum(wall_ms), sum(cpu_ms), sum(denials), sum(model_tokens), sum(micro_usd) \
         FROM {from} GROUP BY grp, state ORDER BY grp DESC"
    ))?;
    let mut rows = statement.query([])?;
    let mut found: BTreeMap<String, StatsRow> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let group: String = row.get(0)?;
        if found.len() >= MOST_GROUPS && !found.contains_key(&group) {
            break;
        }
        let sum = found.entry(group).or_default();
        let count = uint(row.get(2)?);
        sum.runs += count;
        sum.states.insert(state(&row.get::<_, String>(1)?)?, count);
        sum.wall_ms += uint(row.get(3)?);
        sum.cpu_ms += uint(row.get(4)?);
        sum.denials += uint(row.get(5)?);
        sum.model_tokens += uint(row.get(6)?);
        sum.micro_usd += uint(row.get(7)?);
    }
    Ok(found)
}

/// How many live and how many wait.
fn counts(db: &Connection) -> Result<(u64, u64), Stop> {
    let count = |phases: &str| -> Result<u64, Stop> {
        let sql = format!("SELECT count(*) FROM runs WHERE phase IN ({phases})");
        Ok(uint(db.prepare_cached(&sql)?.query_row([], |row| row.get(0))?))
    };
    Ok((count("'starting','kept'")?, count("'queued'")?))
}

pub(super) fn health(inner: &Inner) -> Health {
    let counted = inner.store.read(counts);
    let problem = inner.store.problem().or_else(|| inner.last_trouble());
    Health {
        store: counted.is_ok() && inner.store.problem().is_none(),
        problem,
        since_ms: inner.since_ms,
        living: counted.as_ref().map_or(0, |(living, _)| *living),
        queued: counted.as_ref().map_or(0, |(_, queued)| *queued),
        max_parallel: inner.max_parallel.load(std::sync::atomic::Ordering::Relaxed),
        store_bytes: inner.store.bytes(),
    }
}

/// Findings by severity; one that never occurred is 0.
fn anomalies(db: &Connection) -> Result<BTreeMap<String, u64>, Stop> {
    let mut found = BTreeMap::new();
    let mut statement = db.prepare_cached("SELECT coalesce(sum(value), 0) FROM counters WHERE name = ?1")?;
    for severity in ["low", "medium", "high"] {
        let count = statement.query_row([format!("anomalies {severity}")], |row| row.get(0))?;
        found.insert(severity.to_owned(), uint(count));
    }
    Ok(found)
}

pub(super) fn metrics(inner: &Inner) -> Result<MetricsSnapshot, Fault> {
    let (commits, store_errors) = inner.store.counts();
    inner.store.read(|db| {
        let number = |sql: &str| -> Result<u64, Stop> {
            Ok(uint(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
        };
        let (_, queued) = counts(db)?;
        Ok(MetricsSnapshot {
            runs: states(db, None)?,
            spawned: number("SELECT coalesce(sum(value), 0) FROM counters WHERE name = 'spawned'")?,
            spawn_failures: inner.spawn_failures.load(Ordering::Relaxed),
            denials: number("SELECT coalesce(sum(denials), 0) FROM runs")?,
            anomalies: anomalies(db)?,
            events: newest(db)?,
            queued,
            questions: number("SELECT count(*) FROM approvals WHERE state = 'open'")?,
            store_errors,
            commits,
        })
    })
}

/// The preamble that was put before the prompt of a run.
pub(super) fn preamble(db: &Connection, name: &RunId) -> Result<Option<String>, Stop> {
    rows::phase(db, name)?.ok_or_else(|| super::words::missing(name.as_str()))?;
    Ok(db
        .prepare_cached("SELECT preamble FROM runs WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))?)
}
