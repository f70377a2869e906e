//! Parameters of tools: one list says what is taken, checks it, puts it in its place in the request and describes it.
use super::content::escaped;
use super::door::Rest;
use axum::http::Method;
use serde_json::{Map, Value, json};

/// Largest integer that every JSON client reads exactly (RFC 8259, section 6).
pub(super) const MOST_INTEGER: u64 = (1 << 53) - 1;

/// What a parameter is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Text of at most so many bytes.
    Text(usize),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within bounds.
    Number(u64, u64),
    /// Yes or no.
    Flag,
    /// At most so many texts.
    Texts(usize),
    /// Names with texts.
    Labels,
    /// Any object; the operation checks it.
    Object,
    /// At most so many objects; the operation checks them.
    Objects(usize),
}

/// Whether it may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Always,
    Maybe,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Into the address, in place of `{id}`.
    Path,
    /// Behind the address.
    Query,
    /// Into the body.
    Body,
    /// Nowhere: the tool itself uses it.
    Here,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) given: Given,
    pub(super) at: At,
    pub(super) about: &'static str,
}

/// A parameter that must be given.
pub(super) const fn must(name: &'static str, kind: Kind, at: At, about: &'static str) -> Param {
    Param {
        name,
        kind,
        given: Given::Always,
        at,
        about,
    }
}

/// A parameter that may be left out.
pub(super) const fn may(name: &'static str, kind: Kind, at: At, about: &'static str) -> Param {
    Param {
        name,
        kind,
        given: Given::Maybe,
        at,
        about,
    }
}

/// The schema of the parameters.
pub(super) fn schema(params: &[Param]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for param in params {
        let mut form = match param.kind {
            Kind::Text(most) => json!({ "type": "string", "maxLength": most }),
            Kind::Words(words) => json!({ "type": "string", "enum": words }),
            Kind::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Texts(most) => json!({ "type": "array", "items": { "type": "string" }, "maxItems": most }),
            Kind::Labels => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            Kind::Object => json!({ "type": "object" }),
            Kind::Objects(most) => {
                json!({ "type": "array", "items": { "type": "object" }, "minItems": 1, "maxItems": most })
            }
        };
        form["description"] = param.about.into();
        properties.insert(param.name.to_owned(), form);
        if param.given == Given::Always {
            required.push(param.name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Checks the arguments against the list.
pub(super) fn check(params: &[Param], arguments: &Map<String, Value>) -> Result<(), String> {
    for name in arguments.keys() {
        if !params.iter().any(|param| param.name == name) {
            let known: Vec<&str> = params.iter().map(|param| param.name).collect();
            return Err(format!(
                "{}: there is no such argument; there are {}",
                crate::dto::plain(name),
                known.join(", ")
            ));
        }
    }
    for param in params {
        match (arguments.get(param.name), param.given) {
            (None | Some(Value::Null), Given::Maybe) => {}
            (None | Some(Value::Null), Given::Always) => return Err(format!("{}: missing", param.name)),
            (Some(value), _) => fits(param, value)?,
        }
    }
    Ok(())
}

fn fits(param: &Param, value: &Value) -> Result<(), String> {
    let texts = |value: &Value| {
        value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_string))
    };
    let (good, wanted) = match param.kind {
        Kind::Text(most) => (
            value.as_str().is_some_and(|text| text.len() <= most),
            format!("text of at most {most} bytes"),
        ),
        Kind::Words(words) => (
            value.as_str().is_some_and(|text| words.contains(&text)),
            format!("one of {}", words.join(", ")),
        ),
        Kind::Number(least, most) => (
            value
                .as_u64()
                .is_some_and(|number| (least..=most).contains(&number)),
            format!("a whole number from {least} to {most}"),
        ),
        Kind::Flag => (value.is_boolean(), "true or false".to_owned()),
        Kind::Texts(most) => (
            texts(value) && value.as_array().is_some_and(|items| items.len() <= most),
            format!("at most {most} texts"),
        ),
        Kind::Labels => (
            value
                .as_object()
                .is_some_and(|members| members.values().all(Value::is_string)),
            "names with texts".to_owned(),
        ),
        Kind::Object => (value.is_object(), "an object".to_owned()),
        Kind::Objects(most) => (
            value
                .as_array()
                .is_some_and(|items| (1..=most).contains(&items.len()) && items.iter().all(Value::is_object)),
            format!("1 to {most} objects"),
        ),
    };
    if good {
        Ok(())
    } else {
        Err(format!("{}: {wanted}", param.name))
    }
}

/// The request that the arguments, already checked, make of an operation `METHOD /path/{id}`.
pub(super) fn request(operation: &str, params: &[Param], arguments: &Map<String, Value>) -> Rest {
    let (method, path) = operation.split_once(' ').unwrap_or(("GET", operation));
    let mut path = path.to_owned();
    let mut query = String::new();
    let mut body = Map::new();
    for param in params {
        let Some(value) = arguments.get(param.name).filter(|value| !value.is_null()) else {
            continue;
        };
        match param.at {
            At::Path => path = path.replace("{id}", &escaped(&word(value))),
            At::Query => {
                query.push(if query.is_empty() { '?' } else { '&' });
                query.push_str(&format!("{}={}", param.name, escaped(&word(value))));
            }
            At::Body => {
                body.insert(param.name.to_owned(), value.clone());
            }
            At::Here => {}
        }
    }
    path.push_str(&query);
    match method {
        "POST" => Rest {
            method: Method::POST,
            path,
            body: Some(Value::Object(body)),
        },
        _ => Rest::get(path),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
