//! JSON-RPC, single and batch. For MCP's `tools/call` the tool's name is part of what is asked.
use super::key::{is_word, poses_as};
use super::{Asks, MAX_BODY, MAX_OPERATIONS, is_plain};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Methods whose parameter `name` says which of many things is asked for.
const NAMED: [&str; 2] = ["tools/call", "prompts/get"];

/// Reads a body: `method` for each call, `tools/call:NAME` where a tool is called. Answers that a client sends back
/// (no method, but a result or an error) are `response`.
pub(crate) fn read(body: &[u8]) -> Asks {
    if body.len() > MAX_BODY {
        return Asks::Unreadable;
    }
    match serde_json::from_slice::<Body>(body) {
        Ok(Body(calls)) if !calls.is_empty() => {
            let names: Option<Vec<String>> = calls.into_iter().map(Call::name).collect();
            names.map_or(Asks::Unreadable, Asks::For)
        }
        Ok(Body(_)) | Err(_) => Asks::Unreadable,
    }
}

struct Body(Vec<Call>);

/// One call. A key that stands twice is an error: readers differ on which one counts.
#[derive(Default)]
struct Call {
    method: Option<String>,
    params: Option<Params>,
    answers: bool,
}

#[derive(Default)]
struct Params {
    name: Option<String>,
}

impl Call {
    fn name(self) -> Option<String> {
        let Some(method) = self.method else {
            return self.answers.then(|| "response".to_owned());
        };
        // A colon would let a method pass for a method with a name.
        if !is_plain(&method) || method.contains(':') {
            return None;
        }
        if !NAMED.contains(&method.as_str()) {
            return Some(method);
        }
        let name = self.params?.name.filter(|name| !name.is_empty())?;
        let joined = format!("{method}:{name}");
        is_plain(&joined).then_some(joined)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Body;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a call or a list of calls")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Body, A::Error> {
                CallVisitor.visit_map(map).map(|call| Body(vec![call]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Body, A::Error> {
                let mut calls = Vec::new();
                while let Some(call) = list.next_element::<Call>()? {
                    if calls.len() >= MAX_OPERATIONS {
                        return Err(A::Error::custom("too many calls"));
                    }
                    calls.push(call);
                }
                Ok(Body(calls))
            }
        }
        source.deserialize_any(Read)
    }
}

struct CallVisitor;

impl<'de> Visitor<'de> for CallVisitor {
    type Value = Call;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Call, A::Error> {
        let mut call = Call::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "method" => once(&mut call.method, map.next_value()?)?,
                "params" => once(&mut call.params, map.next_value()?)?,
                "result" | "error" => {
                    call.answers = true;
                    map.next_value::<IgnoredAny>()?;
                }
                // Readers that ignore case would take these for the real ones.
                other if !is_word(other) || ["method", "params"].iter().any(|k| poses_as(other, k)) => {
                    return Err(A::Error::custom("ambiguous key"));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(call)
    }
}

impl<'de> Deserialize<'de> for Call {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(CallVisitor)
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Params;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut params = Params::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "name" {
                        let value: serde_json::Value = map.next_value()?;
                        once(
                            &mut params.name,
                            value.as_str().map(str::to_owned).unwrap_or_default(),
                        )?;
                    } else if poses_as(&key, "name") {
                        return Err(A::Error::custom("ambiguous key"));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(params)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Params, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Params::default())
            }
            fn visit_unit<E: Error>(self) -> Result<Params, E> {
                Ok(Params::default())
            }
        }
        source.deserialize_any(Read)
    }
}

fn once<T, E: Error>(slot: &mut Option<T>, value: T) -> Result<(), E> {
    if slot.replace(value).is_some() {
        return Err(E::custom("a key stands twice"));
    }
    Ok(())
}
