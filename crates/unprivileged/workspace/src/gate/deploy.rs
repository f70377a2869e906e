//! YAML and JSON that a deployment tool executes wherever it lies, told by the keys in it.
//!
//! **Trust:** any bytes. JSON is parsed; YAML has more spellings of a key than a reader of lines can follow (quotes, escapes,
//! flow style, explicit keys, aliases), so a key counts wherever it is written, and where a key may be hidden from a reader
//! of text the word alone counts.
use super::document::{Form, written};
use serde_json::Value;
use std::collections::BTreeSet;

/// What the judgement goes by, in lower case.
const KEYS: &[&str] = &[
    "apiversion",
    "kind",
    "hosts",
    "import_playbook",
    "awstemplateformatversion",
    "resources",
    "tasks",
    "pre_tasks",
    "post_tasks",
    "handlers",
    "roles",
    "gather_facts",
    "vars",
    "vars_files",
    "vars_prompt",
    "environment",
    "become",
    "connection",
    "strategy",
    "module_defaults",
    "collections",
];

/// Those of them that make a mapping with `hosts` a play.
const PLAY: &[&str] = &[
    "tasks",
    "pre_tasks",
    "post_tasks",
    "handlers",
    "roles",
    "gather_facts",
    "vars",
    "vars_files",
    "vars_prompt",
    "environment",
    "become",
    "connection",
    "strategy",
    "module_defaults",
    "collections",
];

/// Why the content is executed by a deployment tool, for a folded name.
pub(super) fn deploys(name: &[u8], bytes: &[u8]) -> Option<&'static str> {
    let ends = [&b".yaml"[..], b".yml", b".json"];
    if !ends.iter().any(|end| name.ends_with(end)) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let keys = json_keys(bytes).unwrap_or_else(|| text_keys(&text));
    let has = |key: &str| keys.contains(key);
    if has("apiversion") && has("kind") {
        return Some("executed by a cluster when the manifest is applied");
    }
    // A template in the list of hosts is evaluated, with what it looks up by running a command.
    let play = PLAY.iter().any(|key| has(key)) || text.contains("{{") || text.contains("{%");
    if has("import_playbook") || has("hosts") && play {
        return Some("executed by Ansible when the playbook runs");
    }
    (has("awstemplateformatversion") || has("resources") && text.contains("AWS::"))
        .then_some("executed by a cloud when the template is deployed")
}

/// The keys of a JSON document; `None` when it is none, or when a key hides another of its name. What JSON readers with comments
/// pass over is content to a reader of YAML.
fn json_keys(bytes: &[u8]) -> Option<BTreeSet<&'static str>> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    if !written(Form::Json, bytes)?.twice.is_empty() {
        return None;
    }
    let mut keys = BTreeSet::new();
    collect(&value, &mut keys);
    Some(keys)
}

fn collect(value: &Value, keys: &mut BTreeSet<&'static str>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let name = name.to_ascii_lowercase();
                // `ansible.builtin.import_playbook`: the collection is written before the name.
                let name = name.rsplit('.').next().unwrap_or(&name);
                keys.extend(KEYS.iter().find(|key| **key == name));
                collect(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The keys that a text of YAML may have.
fn text_keys(text: &str) -> BTreeSet<&'static str> {
    let lower = text.to_ascii_lowercase();
    let evidence = if hides_keys(&lower) {
        Evidence::Word
    } else {
        Evidence::Colon
    };
    let mut keys = BTreeSet::new();
    // A backslash is itself outside double quotes, and joins lines inside them: each reading may show a key.
    let mut readings = vec![lower.clone()];
    if lower.contains('\\') {
        readings.extend(
            [Break::Stays, Break::Joins].map(|at_end| unescaped(&lower, at_end).to_ascii_lowercase()),
        );
    }
    for reading in &readings {
        for key in KEYS {
            if !keys.contains(key) && has_key(reading, key, evidence) {
                keys.insert(*key);
            }
        }
    }
    // The bytes of a binary scalar are not read here.
    if ["!!binary", ":binary", "%tag"]
        .iter()
        .any(|mark| lower.contains(mark))
    {
        keys.extend(KEYS);
    }
    keys
}

/// Whether a key may stand away from its colon: an explicit key (`? key`), or an alias as a key (`*key :`).
fn hides_keys(text: &str) -> bool {
    let explicit = text.match_indices('?').any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + 1..].chars().next();
        before.is_none_or(|c| c.is_whitespace() || "-{[,?:".contains(c))
            && after.is_none_or(char::is_whitespace)
    });
    let alias = |line: &str| {
        line.match_indices('*').any(|(at, _)| {
            let rest = &line[at + 1..];
            let end = rest
                .find(|c: char| c.is_whitespace() || ",[]{}".contains(c))
                .unwrap_or(rest.len());
            end > 0 && (rest[end..].trim_start().starts_with(':') || rest[..end].ends_with(':'))
        })
    };
    explicit || text.lines().any(alias)
}

/// What shows that a text has a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// It is written before a colon.
    Colon,
    /// Its word is somewhere: the text has a way to separate the colon from it.
    Word,
}

/// What a backslash at the end of a line does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    Stays,
    /// The next line goes on without its first blanks, as in double quotes.
    Joins,
}

fn has_key(text: &str, key: &str, evidence: Evidence) -> bool {
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '$');
    text.match_indices(key).any(|(at, _)| {
        if text[..at].ends_with(word) {
            return false;
        }
        let rest = &text[at + key.len()..];
        if evidence == Evidence::Word {
            return !rest.starts_with(word);
        }
        let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        rest.trim_start().starts_with(':')
    })
}

/// The text with the escapes of double-quoted scalars decoded wherever they stand.
fn unescaped(text: &str, at_end: Break) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let digits = match escape.as_bytes().first() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            _ => 0,
        };
        let code = |digits: usize| {
            let hex = escape.get(1..=digits)?;
            char::from_u32(u32::from_str_radix(hex, 16).ok()?)
        };
        // The text is in lower case, so that `\U` with eight digits reads as `\u`; its first four are zero.
        let long = escape.starts_with("u0000").then(|| code(8)).flatten();
        let end = escape.strip_prefix("\r\n").or_else(|| escape.strip_prefix('\n'));
        if let Some(c) = long {
            out.push(c);
            rest = &escape[9..];
        } else if let Some(c) = (digits > 0).then(|| code(digits)).flatten() {
            out.push(c);
            rest = &escape[digits + 1..];
        } else if let Some(next) = end.filter(|_| at_end == Break::Joins) {
            rest = next.trim_start_matches([' ', '\t']);
        } else {
            out.push('\\');
            rest = escape;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_found_in_every_spelling_of_its_keys() {
        for (name, text) in [
            ("a.yaml", "apiVersion: v1\nkind: Pod\n"),
            ("a.json", r#"{"kind":"Pod","apiVersion":"v1"}"#),
            ("a.yaml", r#"{"kind":"Pod","apiVersion":"v1"}"#),
            ("a.json", "{\"kind\":\"Pod\"}\n{\"apiVersion\":\"v1\"}\n"),
            (
                "a.json",
                r#"{"items":[{"apiVersion":"v1"}],"kind":"x","items":[]}"#,
            ),
            ("a.json", r#"{"k\u0069nd":"Pod","apiVersion":"v1"}"#),
            (
                "a.json",
                "{\"a\": 1\n//, \"apiVersion\": \"v1\", \"kind\": \"Pod\"\n}",
            ),
            ("a.yaml", "'apiVersion': v1\n'kind': Pod\n"),
            ("a.yaml", "{apiVersion: v1, kind: Pod}\n"),
            ("a.yaml", "apiVersion : v1\nkind\t: Pod\n"),
            ("a.yml", "!!str apiVersion: v1\n&a kind: Pod\n"),
            ("a.yml", "? apiVersion\n: v1\n? kind\n: Pod\n"),
            ("a.yml", "a: &x apiVersion\nb: &y kind\n*x : v1\n*y : Pod\n"),
            ("a.yml", "\"api\\x56ersion\": v1\n\"\\u006bind\": Pod\n"),
            ("a.yml", "\"api\\U00000056ersion\": v1\nkind: Pod\n"),
            ("a.yml", "\"api\\\n  Version\": v1\nkind: Pod\n"),
            ("a.yml", "a: b\\\napiVersion: v1\n\"ki\\\n nd\": Pod\n"),
            ("a.yml", "!!binary YXBpVmVyc2lvbg==: v1\n"),
            ("a.yaml", "- hosts: all\n  tasks: []\n"),
            ("a.yaml", "- hosts : all\n  roles : []\n"),
            ("a.json", r#"[{"hosts": "all", "pre_tasks": []}]"#),
            ("a.yaml", "- \"hosts\": all\n  \"vars\": {}\n"),
            ("a.yaml", "- hosts: \"{{ lookup('pipe', 'sh x') }}\"\n"),
            ("a.yaml", "- import_playbook: evil.yml\n"),
            ("a.yaml", "- ansible.builtin.import_playbook: evil.yml\n"),
            ("a.yaml", "AWSTemplateFormatVersion: 2010-09-09\n"),
            ("a.json", r#"{"Resources":{"a":{"Type":"AWS::EC2::Instance"}}}"#),
        ] {
            assert!(
                deploys(name.as_bytes(), text.as_bytes()).is_some(),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn ordinary_data_is_none() {
        for (name, text) in [
            ("a.json", r#"{"kind":"x","text":"apiVersion: v1"}"#),
            ("a.yaml", "kind: x\nversion: 1\n"),
            ("a.yaml", "hosts:\n  - a\n  - b\n"),
            ("a.yaml", "# what kind of apiVersion it is\nname: x\n"),
            ("a.yaml", "text: which kind? the apiVersion one\n"),
            ("a.txt", "apiVersion: v1\nkind: Pod\n"),
            ("a.json", r#"{"hosts":["a"],"resources":[]}"#),
        ] {
            assert_eq!(deploys(name.as_bytes(), text.as_bytes()), None, "{name}: {text}");
        }
    }
}
