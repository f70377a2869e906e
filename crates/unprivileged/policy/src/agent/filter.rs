//! A copied configuration without the keys that hold secrets, and with those that the fence needs.
//!
//! **Trust:** the file is the person's own, but what is left of it goes to the agent: a file that cannot be read is
//! not copied at all, since nobody could say what is in it.
use super::CopiedFile;
use super::read::plain;
use crate::json::{Source, read as read_json};
use serde_json::{Map, Value};

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filtered {
    /// What the agent gets.
    pub bytes: Vec<u8>,
    /// Keys that were left out, each once.
    pub left_out: Vec<String>,
}

/// Deepest nesting that is followed; nobody writes deeper configuration.
const DEEPEST: usize = 64;

/// The copy of one file. `name` tells its format; only JSON and TOML can be looked into.
pub fn filtered(rule: &CopiedFile, name: &str, bytes: &[u8]) -> Result<Filtered, String> {
    if rule.without.is_empty() && rule.set.is_empty() {
        return Ok(Filtered {
            bytes: bytes.to_vec(),
            left_out: Vec::new(),
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut left_out = Vec::new();
    let bytes = match name.rsplit('.').next() {
        Some("json" | "jsonc") => {
            let source = Source::new(name, text);
            let root = read_json(&source).map_err(|found| format!("it cannot be read: {}", found.message))?;
            let mut root = plain(&root);
            drop_keys(&mut root, &rule.without, DEEPEST, &mut left_out);
            overlay(&mut root, &rule.set);
            format!("{root:#}\n").into_bytes()
        }
        Some("toml") => {
            let table: toml::Table =
                toml::from_str(text).map_err(|error| format!("it cannot be read: {}", error.message()))?;
            let mut root = serde_json::to_value(table).map_err(|error| error.to_string())?;
            drop_keys(&mut root, &rule.without, DEEPEST, &mut left_out);
            overlay(&mut root, &rule.set);
            toml::to_string(&root)
                .map_err(|error| error.to_string())?
                .into_bytes()
        }
        _ => return Err("only JSON and TOML can be looked into".to_owned()),
    };
    left_out.sort();
    left_out.dedup();
    Ok(Filtered { bytes, left_out })
}

fn drop_keys(value: &mut Value, names: &[String], depth: usize, left_out: &mut Vec<String>) {
    // What lies deeper than anybody writes is not looked at, so it is not handed over.
    if depth == 0 {
        *value = Value::Null;
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|key, _| {
                let gone = names.iter().any(|name| name.eq_ignore_ascii_case(key));
                if gone {
                    left_out.push(key.clone());
                }
                !gone
            });
            for inner in map.values_mut() {
                drop_keys(inner, names, depth - 1, left_out);
            }
        }
        Value::Array(items) => {
            for inner in items {
                drop_keys(inner, names, depth - 1, left_out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value says all of this already.
pub(super) fn says(root: &Value, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| match (root.get(key), value) {
        (Some(known), Value::Object(inner)) => says(known, inner),
        (known, value) => known == Some(value),
    })
}

/// Sets keys, each at its own depth.
pub(super) fn overlay(root: &mut Value, set: &Map<String, Value>) {
    let Value::Object(map) = root else { return };
    for (key, value) in set {
        match (map.get_mut(key), value) {
            (Some(known @ Value::Object(_)), Value::Object(inner)) => overlay(known, inner),
            _ => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule() -> CopiedFile {
        CopiedFile {
            from: ".x/settings.json".to_owned(),
            to: ".x/settings.json".to_owned(),
            most: 1000,
            without: vec!["env".to_owned(), "apiKey".to_owned()],
            set: json!({ "updates": { "auto": false } })
                .as_object()
                .cloned()
                .unwrap_or_default(),
        }
    }

    #[test]
    fn keys_that_hold_secrets_are_left_out_at_any_depth() {
        let json = br#"{ "model": "m", "env": {"A": "s3cret"}, "updates": {"auto": true, "when": 3},
            "servers": [{ "name": "x", "APIKEY": "s3cret" }] // note
        }"#;
        let copy = filtered(&rule(), "settings.json", json).unwrap();
        let text = String::from_utf8(copy.bytes).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({ "model": "m", "updates": { "auto": false, "when": 3 }, "servers": [{ "name": "x" }] })
        );
        assert_eq!(copy.left_out, ["APIKEY", "env"]);
        let toml = b"model = \"m\"\n[servers.x]\ncommand = \"c\"\n[servers.x.env]\nK = \"s3cret\"\n";
        let copy = filtered(&rule(), "config.toml", toml).unwrap();
        let text = String::from_utf8(copy.bytes).unwrap();
        assert!(
            !text.contains("s3cret") && text.contains("command") && text.contains("auto = false"),
            "{text}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_looked_into_is_not_copied() {
        for (name, bytes) in [
            ("a.json", &b"{ broken"[..]),
            ("a.toml", b"= 1"),
            ("a.yml", b"env: s3cret"),
            ("a.json", b"\xff"),
        ] {
            assert!(filtered(&rule(), name, bytes).is_err(), "{name}");
        }
    }
}
