//! Manifests and lock files as values: JSON with comments, TOML, and a strict part of YAML.
//!
//! **Trust:** any bytes up to [`MAX_DOCUMENT`]. A document that does not parse has no value, and the caller holds it.
use super::written::Written;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Manifests and lock files above this are not parsed; the largest public lock files have about 3 MiB.
pub(super) const MAX_DOCUMENT: usize = 8 << 20;

/// The name under which the order of a list of tables is a leaf of its own: the first source of packages wins.
pub(super) const ORDER: &str = "(order)";

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON; comments and trailing commas where the tool takes them.
    Json,
    /// TOML.
    Toml,
    /// The part of YAML that lock files use: mappings, sequences and quoted or plain scalars of one line.
    Yaml,
    /// One statement per line.
    Lines,
}

/// The value of a document; `None` when it is not of that form.
pub(super) fn parse(form: Form, bytes: &[u8]) -> Option<Value> {
    if bytes.len() > MAX_DOCUMENT {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    match form {
        Form::Json => serde_json::from_str(&plain_json(text)?).ok(),
        Form::Toml => {
            let table: toml::Table = toml::from_str(text).ok()?;
            serde_json::to_value(table).ok()
        }
        Form::Yaml => yaml_lines(text),
        Form::Lines => Some(Value::Array(
            text.lines()
                .map(|line| Value::String(line.trim_end().to_owned()))
                .filter(|line| line != "")
                .collect(),
        )),
    }
}

/// The text of a document as JSON: as it is, or without comments and trailing commas where only that parses.
pub(super) fn plain_json(text: &str) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => Some(Cow::Borrowed(text)),
        Err(_) => without_comments(text).map(Cow::Owned),
    }
}

/// How a document of JSON is written; `None` for other forms and for what does not parse.
pub(super) fn written(form: Form, bytes: &[u8]) -> Option<Written> {
    match form {
        Form::Json => Written::read(&plain_json(std::str::from_utf8(bytes).ok()?)?),
        Form::Toml | Form::Yaml | Form::Lines => None,
    }
}

/// JSON without comments and without commas before a closing bracket; strings stay as they are.
fn without_comments(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' if in_string => {
                out.push(c);
                out.push(rest.next()?);
            }
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '/' if !in_string && rest.peek() == Some(&'/') => {
                while let Some(c) = rest.next_if(|c| *c != '\n') {
                    // Some readers end the line here and read on, others do not.
                    if matches!(c, '\u{2028}' | '\u{2029}') || c == '\r' && rest.peek() != Some(&'\n') {
                        return None;
                    }
                }
            }
            '/' if !in_string && rest.peek() == Some(&'*') => {
                rest.next();
                let mut last = ' ';
                loop {
                    let c = rest.next()?;
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                out.push(' ');
            }
            '}' | ']' if !in_string => {
                let kept = out.trim_end().len();
                if out[..kept].ends_with(',') {
                    out.truncate(kept - 1);
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    (!in_string).then_some(out)
}

/// Every line of a YAML document as decoded text, keys and values apart. Anchors, tags, block scalars and merged keys
/// are refused: lock files have none, and each could hide a value from a reader of lines.
fn yaml_lines(text: &str) -> Option<Value> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let body = line.trim();
        if body.is_empty() || body.starts_with('#') || body == "---" {
            continue;
        }
        if body.starts_with('%')
            || body == "..."
            || line.contains('\t') && line.trim_start_matches(' ').starts_with('\t')
        {
            return None;
        }
        let depth = line.len() - line.trim_start().len();
        let mut decoded = String::new();
        let mut rest = body;
        while let Some(below) = rest.strip_prefix("- ") {
            rest = below.trim_start();
        }
        // A scalar begins at the start of the line, after `: `, after `, `, and after an opening bracket.
        let mut begins = true;
        let mut chars = rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' if begins || decoded.ends_with(' ') => {
                    let (value, used) = double_quoted(&rest[at..])?;
                    decoded.push_str(&value);
                    while chars.next_if(|(next, _)| *next < at + used).is_some() {}
                    begins = false;
                }
                '\'' if begins => {
                    let end = rest[at + 1..].find('\'')?;
                    decoded.push_str(&rest[at + 1..at + 1 + end]);
                    while chars.next_if(|(next, _)| *next <= at + 1 + end).is_some() {}
                    begins = false;
                }
                '&' | '*' | '!' | '|' | '>' | '@' | '`' | '%' if begins => return None,
                ' ' => decoded.push(' '),
                ':' | ',' | '?' => {
                    begins = chars.peek().is_none_or(|(_, next)| *next == ' ');
                    decoded.push(c);
                }
                '{' | '[' => decoded.push(c),
                '#' if decoded.ends_with(' ') => break,
                other => {
                    decoded.push(other);
                    begins = false;
                }
            }
        }
        lines.push(Value::String(format!("{depth}:{}", decoded.trim_end())));
    }
    Some(Value::Array(lines))
}

/// A double-quoted scalar with its escapes decoded, and how many bytes it took.
fn double_quoted(text: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, at + 1)),
            '\\' => {
                let (_, kind) = chars.next()?;
                let digits = match kind {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    'n' => {
                        out.push('\n');
                        continue;
                    }
                    't' => {
                        out.push('\t');
                        continue;
                    }
                    '"' | '\\' | '/' | ' ' => {
                        out.push(kind);
                        continue;
                    }
                    _ => return None,
                };
                let hex: String = (0..digits).filter_map(|_| chars.next().map(|(_, c)| c)).collect();
                out.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
            }
            other => out.push(other),
        }
    }
    None
}

/// Every leaf of a value with its path; a sequence of plain values is one leaf, so that order and length count.
pub(super) fn leaves(value: &Value) -> Vec<(Vec<String>, Value)> {
    let mut out = Vec::new();
    collect(value, &mut Vec::new(), &mut out);
    out
}

fn collect(value: &Value, at: &mut Vec<String>, out: &mut Vec<(Vec<String>, Value)>) {
    let below = |name: String, value: &Value, at: &mut Vec<String>, out: &mut Vec<_>| {
        at.push(name);
        collect(value, at, out);
        at.pop();
    };
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                below(name.clone(), value, at, out);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let mut order = Vec::new();
            for (number, item) in items.iter().enumerate() {
                let label = label(item, number);
                order.push(Value::String(label.clone()));
                below(label, item, at, out);
            }
            below(ORDER.to_owned(), &Value::Array(order), at, out);
        }
        // A table without members is a leaf: `package = {}` names a package, and `[workspace]` makes one.
        other => out.push((at.clone(), other.clone())),
    }
}

/// Items of a list of tables are known by their name where they have one.
fn label(item: &Value, number: usize) -> String {
    let part = |key: &str| item.get(key).and_then(Value::as_str);
    match (part("name"), part("version")) {
        (Some(name), Some(version)) => format!("{name}@{version}"),
        (Some(name), None) => name.to_owned(),
        (None, _) => number.to_string(),
    }
}

/// The paths of leaves that two values do not share, each once, in order. A table that was empty and has members now,
/// or the other way round, is told by its members.
pub(super) fn differing(before: &Value, after: &Value) -> Vec<Vec<String>> {
    let (old, new) = (leaves(before), leaves(after));
    let index = |leaves: Vec<(Vec<String>, Value)>| {
        let mut map: std::collections::BTreeMap<Vec<String>, Vec<Value>> = std::collections::BTreeMap::new();
        for (path, value) in leaves {
            map.entry(path).or_default().push(value);
        }
        map
    };
    let (old, new) = (index(old), index(new));
    let mut paths: Vec<Vec<String>> = old
        .keys()
        .chain(new.keys())
        .filter(|path| old.get(*path) != new.get(*path))
        .cloned()
        .collect();
    paths.sort();
    paths.dedup();
    let bare = |values: Option<&Vec<Value>>| {
        values.is_none_or(|all| all.iter().all(|one| one.as_object().is_some_and(Map::is_empty)))
    };
    let told = |at: usize| {
        let path = &paths[at];
        let members = paths.get(at + 1).is_some_and(|next| next.starts_with(path));
        !(members && bare(old.get(path)) && bare(new.get(path)))
    };
    (0..paths.len())
        .filter(|at| told(*at))
        .map(|at| paths[at].clone())
        .collect()
}

/// The value of nothing: what a new file is compared with.
pub(super) fn nothing(form: Form) -> Value {
    match form {
        Form::Json | Form::Toml => Value::Object(Map::new()),
        Form::Yaml | Form::Lines => Value::Array(Vec::new()),
    }
}
