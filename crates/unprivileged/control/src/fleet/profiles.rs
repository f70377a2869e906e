//! Profiles that are kept, and those that come with bastle. A kept one goes before a built-in one of the same name.
use super::words::{allow, json, now_ms, text};
use super::{Caller, Inner, ProfileRecord, Verb, rows};
use crate::store::{Stop, int, uint};
use bastle_contract::{Code, Fault, LimitKind};
use bastle_policy::profile::{self, builtin, builtins};
use bastle_policy::{AuthorityCeiling, Bounded, Profile};
use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use std::collections::BTreeMap;

fn missing(name: &str) -> Fault {
    let fault = Fault::new(Code::ProfileMissing, format!("there is no profile {name}"), "");
    match bastle_policy::nearest(name, builtins().iter().copied()) {
        Some(near) => fault.help(format!("did you mean {near}?")),
        None => fault.help("bastle profile ls"),
    }
}

fn kept(inner: &Inner, name: &str) -> Result<Option<ProfileRecord>, Fault> {
    inner.store.read(|db| {
        let row: Option<(i64, String, i64)> = db
            .prepare_cached("SELECT version, document, changed_ms FROM profiles WHERE name = ?1")?
            .query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        row.map(|(version, document, changed)| {
            Ok::<_, Stop>(ProfileRecord {
                name: name.to_owned(),
                version: uint(version),
                builtin: false,
                document: json(&document)?,
                changed_ms: uint(changed),
            })
        })
        .transpose()
    })
}

fn built_in(name: &str) -> Result<ProfileRecord, Fault> {
    if !builtins().contains(&name) {
        return Err(missing(name));
    }
    Ok(ProfileRecord {
        name: name.to_owned(),
        version: 0,
        builtin: true,
        document: builtin(name)?.to_json(),
        changed_ms: 0,
    })
}

pub(super) fn one(inner: &Inner, name: &str) -> Result<ProfileRecord, Fault> {
    match kept(inner, name)? {
        Some(record) => Ok(record),
        None => built_in(name),
    }
}

/// The profile itself, checked again as it is read.
pub(super) fn load(inner: &Inner, name: &str) -> Result<Profile, Vec<Fault>> {
    let record = one(inner, name).map_err(|fault| vec![fault])?;
    if record.builtin {
        return builtin(name).map_err(|fault| vec![fault]);
    }
    let mut profile = profile::parse(name, record.document.to_string().as_bytes())?;
    profile.ceiling = profile.ceiling.meet(&stated(&record.document, &profile));
    Ok(profile)
}

/// Time and turns that a kept profile states are what the operator gave its runs; unstated they are only defaults.
fn stated(document: &Value, profile: &Profile) -> AuthorityCeiling {
    let says = |key: &str, section: &str, inner: &str| {
        let policy = document
            .get("policy")
            .and_then(|policy| policy.get(section)?.get(inner));
        document.get(key).or(policy).is_some()
    };
    let time = (Bounded::Limit(LimitKind::WallTime), profile.timeout_ms);
    let turns = (Bounded::Turns, u64::from(profile.max_turns));
    let time = says("timeout", "limits", "timeout").then_some(time);
    let turns = says("maxTurns", "budget", "turns").then_some(turns);
    AuthorityCeiling::of_limits(time.into_iter().chain(turns))
}

pub(super) fn all(inner: &Inner) -> Result<Vec<ProfileRecord>, Fault> {
    let names: Vec<String> = inner.store.read(|db| {
        let mut statement = db.prepare_cached("SELECT name FROM profiles ORDER BY name")?;
        let names = statement
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(names)
    })?;
    let mut found = BTreeMap::new();
    for name in builtins() {
        found.insert(name.to_owned(), built_in(name)?);
    }
    for name in names {
        if let Some(record) = kept(inner, &name)? {
            found.insert(name, record);
        }
    }
    Ok(found.into_values().collect())
}

pub(super) fn put(
    inner: &Inner,
    caller: &Caller,
    name: &str,
    document: &Value,
) -> Result<ProfileRecord, Vec<Fault>> {
    let one_fault = |fault| vec![fault];
    allow(caller, Verb::Administer, "profiles").map_err(one_fault)?;
    let parsed = profile::parse(name, document.to_string().as_bytes())?;
    if parsed.name != name {
        return Err(vec![Fault::new(
            Code::UsageArgument,
            format!("the profile is kept as {name} and calls itself {}", parsed.name),
            "they must be the same",
        )]);
    }
    let now = now_ms();
    inner
        .store
        .write(|db| {
            db.prepare_cached(
                "INSERT INTO profiles(name, version, document, changed_ms) VALUES (?1, 1, ?2, ?3) \
                 ON CONFLICT(name) DO UPDATE SET version = version + 1, document = ?2, changed_ms = ?3",
            )?
            .execute(params![name, text(document)?, int(now)])?;
            let data = serde_json::json!({"name": name, "by": caller.id});
            rows::own_event(db, None, "profile", &data, now)
        })
        .map_err(one_fault)?;
    inner.told();
    one(inner, name).map_err(one_fault)
}

pub(super) fn remove(inner: &Inner, caller: &Caller, name: &str) -> Result<(), Fault> {
    allow(caller, Verb::Administer, "profiles")?;
    inner.store.write(|db| {
        let gone = db
            .prepare_cached("DELETE FROM profiles WHERE name = ?1")?
            .execute([name])?;
        if gone == 1 {
            let data = serde_json::json!({"name": name, "removed": true, "by": caller.id});
            return rows::own_event(db, None, "profile", &data, now_ms());
        }
        if builtins().contains(&name) {
            return Err(Fault::new(
                Code::UsageArgument,
                format!("the profile {name} comes with bastle"),
                "it cannot be removed",
            )
            .into());
        }
        Err(missing(name).into())
    })?;
    inner.told();
    Ok(())
}
