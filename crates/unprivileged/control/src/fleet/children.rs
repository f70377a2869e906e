//! Runs that runs start: within what their parent may do, charged to every ancestor, not deep and not many.
//!
//! A child inherits its parent's policy word for word. It may add refusals and lower limits; whatever could grant is
//! refused, so that nothing has to be compared that could be compared wrongly.
use super::words::{missing, run_id};
use super::{RunRequest, rows};
use crate::store::{Stop, int, uint};
use bastle_contract::runs::LaunchSpec;
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::Effective;
use rusqlite::{Connection, OptionalExtension};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How deep runs may start runs.
pub(super) const MAX_DEPTH: u64 = 3;
/// How many children of one run may live.
pub(super) const MAX_CHILDREN: usize = 16;

/// The budgets that are counted.
pub(super) const KINDS: [&str; 7] = [
    "turns",
    "tokens",
    "cost",
    "bytes-out",
    "bytes-in",
    "requests",
    "connections",
];

/// Budgets by their names.
pub(super) type Amounts = BTreeMap<&'static str, u64>;

/// Keys under which a child may say more, because more there is less reach.
const NARROWING: &[(&str, &str)] = &[
    ("fs", "hide"),
    ("fs", "protect"),
    ("net", "deny"),
    ("exec", "deny"),
    ("tools", "deny"),
];
/// Sections in which a child may name a smaller number.
const LOWERING: &[&str] = &["limits", "budget"];

/// Children that have not ended.
pub(super) fn living(db: &Connection, parent: &RunId) -> Result<Vec<RunId>, Stop> {
    let mut statement =
        db.prepare_cached("SELECT name FROM runs WHERE parent = ?1 AND phase <> 'ended' ORDER BY ord")?;
    let mut rows = statement.query([parent.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(run_id(row.get(0)?)?);
    }
    Ok(found)
}

fn refused(parent: &RunId, why: impl Into<String>) -> Fault {
    Fault::new(Code::RunChild, format!("{parent} may not start this child"), why)
        .help("ask for less, or let a person start it")
}

/// What the request of a child becomes: its parent's policy, narrowed by what it asks for.
pub(super) fn within(parent: &LaunchSpec, request: &RunRequest) -> Result<RunRequest, Fault> {
    let raw = parent.get();
    let name = &raw.name;
    let real = std::fs::canonicalize(&request.workspace)
        .map_err(|error| refused(name, format!("its project {:?}: {error}", request.workspace)))?;
    // Rules such as `./secret` are about the project: in another one they would hide something else.
    if real != raw.workspace.as_path() {
        return Err(refused(name, "its project is not the parent's"));
    }
    let itself = raw.mode.as_deref() == Some("in-place");
    let copied = request
        .mode
        .as_deref()
        .map_or_else(|| real.join(".git").exists(), |mode| mode != "in-place");
    if !itself && !copied {
        return Err(refused(
            name,
            "the parent works in a copy, so the child has to: \"mode\": \"copy\"",
        ));
    }
    let same = |what: &str, own: Option<&str>, parents: Option<&str>| match own {
        Some(own) if Some(own) != parents => {
            Err(refused(name, format!("its {what} differs from the parent's")))
        }
        Some(_) | None => Ok(()),
    };
    same("preset", request.preset.as_deref(), raw.preset.as_deref())?;
    if !matches!(request.net.as_deref(), Some("none" | "offline")) {
        same("network mode", request.net.as_deref(), raw.net.as_deref())?;
    }
    if let Some(from) = &request.from {
        let run = from.split('@').next().unwrap_or_default();
        if run != name.as_str() {
            return Err(refused(name, "it may begin with the parent's tree only"));
        }
    }
    if !raw.policy_files.is_empty() || raw.expand || !raw.unprotect.is_empty() || !raw.waive.is_empty() {
        return Err(refused(
            name,
            "the parent has rights from the command line that cannot be handed on",
        ));
    }
    let mut child = request.clone();
    child.preset.clone_from(&raw.preset);
    if child.net.is_none() {
        child.net.clone_from(&raw.net);
    }
    child.parent = Some(name.clone());
    let base = raw.policy.clone().unwrap_or_else(|| Value::Object(Map::new()));
    child.policy = Some(narrowed(name, base, request.policy.as_ref())?);
    Ok(child)
}

/// The parent's document with the child's refusals and limits. Whether the limits are lower is compared after merging.
fn narrowed(parent: &RunId, base: Value, own: Option<&Value>) -> Result<Value, Fault> {
    let unreadable = || refused(parent, "a policy is no object");
    let Value::Object(mut whole) = base else {
        return Err(unreadable());
    };
    let Some(own) = own else {
        return Ok(Value::Object(whole));
    };
    for (section, content) in own.as_object().ok_or_else(unreadable)? {
        if section == "$schema" {
            continue;
        }
        let could_grant = |what: &str| refused(parent, format!("its policy names {what}, which could grant"));
        let content = content.as_object().ok_or_else(|| could_grant(section))?;
        let slot = whole
            .entry(section.clone())
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
            .ok_or_else(unreadable)?;
        for (key, value) in content {
            if NARROWING.contains(&(section.as_str(), key.as_str())) {
                let more = value.as_array().ok_or_else(unreadable)?;
                slot.entry(key.clone())
                    .or_insert_with(|| Value::Array(Vec::new()))
                    .as_array_mut()
                    .ok_or_else(unreadable)?
                    .extend(more.iter().cloned());
            } else if LOWERING.contains(&section.as_str()) && key != "onExceed" {
                slot.insert(key.clone(), value.clone());
            } else {
                return Err(could_grant(&format!("{section}.{key}")));
            }
        }
    }
    Ok(Value::Object(whole))
}

/// Compares what came out of merging: nothing of the child may reach further.
pub(super) fn compare(name: &RunId, parent: &Effective, child: &Effective) -> Result<(), Fault> {
    if let Some(line) = bastle_policy::diff(parent, child)
        .into_iter()
        .find(|line| line.wider)
    {
        return Err(refused(name, format!("{}: {}", line.section, line.what)));
    }
    let (a, b) = (&parent.budgets, &child.budgets);
    let numbers = [
        ("tokens", &a.tokens, &b.tokens),
        ("turns", &a.turns, &b.turns),
        ("bytesOut", &a.bytes_out, &b.bytes_out),
        ("bytesIn", &a.bytes_in, &b.bytes_in),
        ("requests", &a.requests, &b.requests),
        ("connections", &a.connections, &b.connections),
    ];
    for (what, parents, own) in numbers {
        let most = parents.as_ref().map(|most| most.value);
        if most.is_some_and(|most| own.as_ref().is_none_or(|own| own.value > most)) {
            return Err(refused(name, format!("budget.{what} is more than the parent's")));
        }
    }
    let most = a.usd.as_ref().map(|most| most.value);
    let fits = |most: f64| b.usd.as_ref().is_some_and(|own| own.value <= most);
    if !most.is_none_or(fits) {
        return Err(refused(name, "budget.usd is more than the parent's"));
    }
    Ok(())
}

/// Checks depth, number and budget against every ancestor, in the transaction that makes the child; gives its depth.
pub(super) fn charge(db: &Connection, parent: &RunId, wanted: &Amounts, more: usize) -> Result<u64, Stop> {
    let alive = living(db, parent)?.len();
    if alive + more > MAX_CHILDREN {
        return Err(refused(
            parent,
            format!("it has {alive} living children; {MAX_CHILDREN} are the most"),
        )
        .into());
    }
    let mut depth = 0;
    let mut at = Some(parent.clone());
    while let Some(name) = at {
        depth += 1;
        if depth > MAX_DEPTH {
            return Err(refused(
                parent,
                format!("it would be {depth} deep; {MAX_DEPTH} is the most"),
            )
            .into());
        }
        let row: Option<(String, Option<String>)> = db
            .prepare_cached("SELECT phase, parent FROM runs WHERE name = ?1")?
            .query_row([name.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((phase, above)) = row else {
            return Err(missing(name.as_str()).into());
        };
        if phase == "ended" || phase == "queued" {
            return Err(refused(&name, "it does not live").into());
        }
        left(db, &name, wanted)?;
        at = above.map(run_id).transpose()?;
    }
    Ok(depth)
}

/// What an ancestor may still spend of each budget it has: its own, less what it used and what all below it used or may use.
pub(super) fn left(db: &Connection, name: &RunId, wanted: &Amounts) -> Result<(), Stop> {
    let own = amounts_of(&rows::spec(db, name)?)?;
    for (what, most) in own {
        let gone = spent(db, name, what)?.saturating_add(promised(db, name, what)?);
        let left = most.saturating_sub(gone);
        match wanted.get(what) {
            Some(wanted) if *wanted <= left => {}
            Some(wanted) => {
                let why = format!(
                    "it asks for {wanted} {}, and {left} of {most} are left",
                    word(what)
                );
                return Err(refused(name, why).into());
            }
            None => {
                let why = format!("it names no {}, and the parent's are counted", word(what));
                return Err(refused(name, why).into());
            }
        }
    }
    Ok(())
}

/// What the children of a run used or may use, and theirs in turn.
fn promised(db: &Connection, parent: &RunId, what: &'static str) -> Result<u64, Stop> {
    let mut children = Vec::new();
    let mut statement = db.prepare_cached("SELECT name, spec, phase FROM runs WHERE parent = ?1")?;
    let mut rows = statement.query([parent.as_str()])?;
    while let Some(row) = rows.next()? {
        let spec: LaunchSpec = super::words::json(&row.get::<_, String>(1)?)?;
        children.push((run_id(row.get(0)?)?, spec, row.get::<_, String>(2)?));
    }
    let mut sum = forgotten(db, parent, what)?;
    for (child, spec, phase) in children {
        let gone = spent(db, &child, what)?.saturating_add(promised(db, &child, what)?);
        let holds = match phase.as_str() {
            "ended" => gone,
            // It may still use all that it was given.
            _ => amounts_of(&spec)?.get(what).copied().unwrap_or(gone).max(gone),
        };
        sum = sum.saturating_add(holds);
    }
    Ok(sum)
}

/// What children used that are not on record any more.
fn forgotten(db: &Connection, parent: &RunId, what: &str) -> Result<u64, Stop> {
    spent(db, parent, &format!("below {what}"))
}

/// A run goes from the records: what it used stays with its parent.
pub(super) fn hand_up(db: &Connection, name: &RunId) -> Result<(), Stop> {
    let parent: Option<Option<String>> = db
        .prepare_cached("SELECT parent FROM runs WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))
        .optional()?;
    let Some(parent) = parent.flatten().map(run_id).transpose()? else {
        return Ok(());
    };
    for what in KINDS {
        let gone = spent(db, name, what)?.saturating_add(promised(db, name, what)?);
        if gone > 0 {
            db.prepare_cached(
                "INSERT INTO spent(run, what, used) SELECT name, ?2, ?3 FROM runs WHERE name = ?1 \
                 ON CONFLICT(run, what) DO UPDATE SET used = used + excluded.used",
            )?
            .execute(rusqlite::params![
                parent.as_str(),
                format!("below {what}"),
                int(gone)
            ])?;
        }
    }
    Ok(())
}

/// What a run is known to have used. Its children's use is not in it.
fn spent(db: &Connection, name: &RunId, what: &str) -> Result<u64, Stop> {
    let found: Option<i64> = db
        .prepare_cached("SELECT used FROM spent WHERE run = ?1 AND what = ?2")?
        .query_row([name.as_str(), what], |row| row.get(0))
        .optional()?;
    Ok(uint(found.unwrap_or(0)))
}

/// How people call it.
fn word(what: &str) -> &str {
    match what {
        "cost" => "millionths of a dollar",
        "bytes-out" => "bytes out",
        "bytes-in" => "bytes in",
        other => other,
    }
}

/// The budgets that a request names, in whole numbers; money in millionths of a dollar.
pub(super) fn amounts_of(spec: &LaunchSpec) -> Result<Amounts, Fault> {
    let Some(policy) = &spec.get().policy else {
        return Ok(Amounts::new());
    };
    let unreadable = |faults: Vec<Fault>| {
        faults
            .into_iter()
            .next()
            .unwrap_or_else(|| refused(&spec.get().name, "its policy cannot be read"))
    };
    let budget = bastle_policy::parse("request", policy.to_string().as_bytes())
        .map_err(unreadable)?
        .budget;
    let number = |at: &Option<bastle_policy::At<u64>>| at.as_ref().map(|at| at.value);
    // A number of dollars that was checked to be finite and not negative; the cast saturates.
    let usd = budget.usd.as_ref().map(|at| (at.value * 1_000_000.0) as u64);
    let named = [
        ("turns", number(&budget.turns)),
        ("tokens", number(&budget.tokens)),
        ("cost", usd),
        ("bytes-out", number(&budget.bytes_out)),
        ("bytes-in", number(&budget.bytes_in)),
        ("requests", number(&budget.requests)),
        ("connections", number(&budget.connections)),
    ];
    Ok(named
        .into_iter()
        .filter_map(|(what, amount)| Some((what, amount?)))
        .collect())
}
