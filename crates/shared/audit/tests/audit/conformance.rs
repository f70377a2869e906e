//! Every exported record follows OCSF 1.8.0: nothing required is missing, nothing unknown is there.
//!
//! `data/ocsf-1.8.0.json` holds the facts of the schema (Apache-2.0, ocsf-schema 1.8.0).
use crate::common::*;
use bastle_audit::{AuditWriter, Format, export};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

fn check(what: &str, facts: &Value, value: &Map<String, Value>, profiles: &[&str], wrong: &mut Vec<String>) {
    let attributes = facts["attributes"].as_object().unwrap();
    let in_force = |fact: &Value| fact["profile"].as_str().is_none_or(|p| profiles.contains(&p));
    for (name, fact) in attributes {
        if fact["required"] == true && in_force(fact) && !value.contains_key(name) {
            wrong.push(format!("{what}.{name} is required"));
        }
    }
    if let Some(choice) = facts["at_least_one"].as_array()
        && !choice
            .iter()
            .any(|name| value.contains_key(name.as_str().unwrap()))
    {
        wrong.push(format!("{what} has none of {choice:?}"));
    }
    for (name, inner) in value {
        match attributes.get(name) {
            Some(fact) if in_force(fact) => {
                check_value(&format!("{what}.{name}"), fact, inner, profiles, wrong)
            }
            Some(fact) => wrong.push(format!("{what}.{name} needs profile {}", fact["profile"])),
            None => wrong.push(format!("{what}.{name} is not defined")),
        }
    }
}

fn check_value(what: &str, fact: &Value, value: &Value, profiles: &[&str], wrong: &mut Vec<String>) {
    if fact["array"] == true {
        match value.as_array() {
            Some(items) => items
                .iter()
                .for_each(|item| check_one(what, fact, item, profiles, wrong)),
            None => wrong.push(format!("{what} is not an array")),
        }
    } else {
        check_one(what, fact, value, profiles, wrong);
    }
}

fn check_one(what: &str, fact: &Value, value: &Value, profiles: &[&str], wrong: &mut Vec<String>) {
    let kind = fact["type"].as_str().unwrap();
    let fits = match kind {
        "json_t" => true,
        "integer_t" | "long_t" | "port_t" | "timestamp_t" => value.is_u64(),
        "boolean_t" => value.is_boolean(),
        text if text.ends_with("_t") => value.is_string(),
        object => match (schema()["objects"].get(object), value.as_object()) {
            (Some(facts), Some(inner)) => {
                check(what, facts, inner, profiles, wrong);
                true
            }
            (None, _) | (_, None) => false,
        },
    };
    if !fits {
        wrong.push(format!("{what} is not a {kind}: {value}"));
    }
    if let Some(allowed) = fact["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong.push(format!("{what} has no value {value}"));
    }
}

fn schema() -> &'static Value {
    static SCHEMA: std::sync::LazyLock<Value> =
        std::sync::LazyLock::new(|| serde_json::from_str(include_str!("data/ocsf-1.8.0.json")).unwrap());
    &SCHEMA
}

fn exported() -> Vec<Map<String, Value>> {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    for event in every_event() {
        writer.append(&event).unwrap();
    }
    drop(writer);
    let (writer, _) = AuditWriter::resume(state.path(), &run("a")).unwrap();
    writer.seal().unwrap();
    let mut out = Vec::new();
    export(state.path(), &run("a"), Format::Ocsf, &mut out).unwrap();
    String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_exported_record_has_what_its_class_requires_and_nothing_it_does_not_define() {
    let mut wrong = Vec::new();
    let mut classes = BTreeSet::new();
    for record in exported() {
        let class = record["class_uid"].as_u64().unwrap();
        let activity = record["activity_id"].as_u64().unwrap();
        classes.insert(class);
        let profiles: Vec<_> = record["metadata"]["profiles"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p.as_str().unwrap())
            .collect();
        let facts = &schema()["classes"][class.to_string()];
        check(
            &format!("{} ({})", facts["name"], record["message"]),
            facts,
            &record,
            &profiles,
            &mut wrong,
        );
        assert_eq!(record["type_uid"].as_u64().unwrap(), class * 100 + activity);
        assert_eq!(record["metadata"]["version"], "1.8.0");
        assert_eq!(record["metadata"]["product"]["name"], "bastle");
        assert!(!record.contains_key("unmapped"));
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(
        classes,
        BTreeSet::from([0, 1001, 1007, 4001, 4002, 4003, 6002, 6003]),
        "every class in use was seen"
    );
}

#[test]
fn the_check_itself_notices_missing_unknown_and_wrong_attributes() {
    let good = exported().into_iter().find(|r| r["class_uid"] == 1001).unwrap();
    let faults = |edit: &dyn Fn(&mut Map<String, Value>)| {
        let mut record = good.clone();
        edit(&mut record);
        let mut wrong = Vec::new();
        check(
            "r",
            &schema()["classes"]["1001"],
            &record,
            &["security_control"],
            &mut wrong,
        );
        wrong.len()
    };
    assert_eq!(faults(&|_| {}), 0);
    assert_eq!(faults(&|r| drop(r.remove("device"))), 1);
    assert_eq!(
        faults(&|r| drop(r.insert("attestation_list".into(), Value::Null))),
        1
    );
    assert_eq!(faults(&|r| drop(r.insert("activity_id".into(), 77.into()))), 1);
    assert_eq!(
        faults(&|r| drop(r["file"].as_object_mut().unwrap().remove("type_id"))),
        1
    );
    assert_eq!(faults(&|r| drop(r.insert("time".into(), "now".into()))), 1);
}

#[test]
fn a_denial_is_exported_as_denied_and_blocked_by_the_effective_policy() {
    let denials: Vec<_> = exported()
        .into_iter()
        .filter(|r| {
            r["message"].as_str().unwrap().starts_with("denied") && r["actor"].get("process").is_some()
        })
        .collect();
    assert_eq!(denials.len(), 17);
    for record in denials {
        assert_eq!(
            (&record["action_id"], &record["disposition_id"]),
            (&2.into(), &2.into())
        );
        assert_eq!(record["policy"]["uid"], "a".repeat(64));
        assert_eq!(record["actor"]["process"]["pid"], 42);
    }
}

#[test]
fn a_denied_request_is_exported_as_blocked_with_its_host_and_without_a_query() {
    let denials: Vec<_> = exported()
        .into_iter()
        .filter(|r| r["category_uid"] == 4 && r["message"].as_str().unwrap().starts_with("denied"))
        .collect();
    assert_eq!(denials.len(), 6, "one for each face");
    for record in denials {
        assert_eq!(
            (&record["action_id"], &record["disposition_id"]),
            (&2.into(), &2.into())
        );
        assert_eq!(record["dst_endpoint"]["hostname"], "api.example.com");
        assert_eq!(record["status_code"], "BST-NET-001");
        assert!(record["message"].as_str().unwrap().ends_with("(d_8f2k)"));
    }
}
