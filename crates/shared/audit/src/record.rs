//! One record read back. Untrusted until the chain around it was checked.
use crate::canonical;
use crate::chain::{fingerprint, splice};
use crate::event::{AuditEvent, Mark, Payload};
use crate::finding::Defect;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A record that is whole in itself: well-formed, in the form it was written in, and fitting its own fingerprint.
/// Whether it belongs where it stands is for [`crate::verify`] to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    value: Map<String, Value>,
    sequence: u64,
    uid: String,
    chain: String,
    fingerprint: String,
    previous: Previous,
}

/// The link to the record before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) uid: String,
    pub(crate) fingerprint: String,
}

impl Record {
    /// A record from its line, without the line end.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Defect> {
        let mut value: Map<String, Value> =
            serde_json::from_slice(line).map_err(|e| Defect::Malformed(e.to_string()))?;
        let text = |pointer: &[&str]| {
            let found = at(&value, pointer).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| Defect::Malformed(format!("{} is missing", pointer.join("."))))
        };
        let chain = text(&["attestation_list", "0", "chain_uid"])?;
        let claimed = text(&["attestation_list", "0", "fingerprint", "value"])?;
        let previous = Previous {
            uid: text(&["attestation_list", "0", "prev_event", "uid"])?,
            fingerprint: text(&["attestation_list", "0", "prev_event", "fingerprint", "value"])?,
        };
        let uid = text(&["metadata", "uid"])?;
        let sequence = at(&value, &["metadata", "sequence"])
            .and_then(Value::as_u64)
            .ok_or_else(|| Defect::Malformed("metadata.sequence is missing".into()))?;
        let own = take_fingerprint(&mut value).ok_or(Defect::NotCanonical)?;
        let mut canonical = Vec::with_capacity(line.len());
        canonical::write_object(&value, &mut canonical).map_err(|e| Defect::Malformed(e.to_string()))?;
        let whole = splice(&canonical, &chain, &claimed).ok_or(Defect::NotCanonical)?;
        let mut written = Vec::with_capacity(line.len());
        canonical::write_line(&whole, &mut written);
        if written != line {
            return Err(Defect::NotCanonical);
        }
        if fingerprint(&canonical) != claimed {
            return Err(Defect::Changed);
        }
        put_fingerprint(&mut value, own);
        Ok(Self {
            value,
            sequence,
            uid,
            chain,
            fingerprint: claimed,
            previous,
        })
    }

    /// Its number, from 1.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Its short name; for a denial, the denial's id.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Name of its chain: the run.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.chain
    }

    /// Its own fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.number("time")
    }

    /// One line about it. Untrusted text: show it through [`crate::sanitize`].
    #[must_use]
    pub fn message(&self) -> &str {
        self.text("message")
    }

    /// The whole OCSF object.
    #[must_use]
    pub fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    /// What was recorded; `None` if another version of bastle wrote something this one does not know.
    #[must_use]
    pub fn payload(&self) -> Option<Payload> {
        let payload = at(&self.value, &["unmapped", "bastle"])?;
        match self.kind() {
            "opened" | "checkpoint" | "sealed" | "recovered" => {
                Mark::deserialize(payload).map(Payload::Mark).ok()
            }
            _ => AuditEvent::deserialize(payload).map(Payload::Event).ok(),
        }
    }

    /// The type of what was recorded, e.g. `denied`.
    #[must_use]
    pub fn kind(&self) -> &str {
        at(&self.value, &["unmapped", "bastle", "type"])
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn previous(&self) -> &Previous {
        &self.previous
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        self.value.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// The trace id.
    pub(crate) fn trace(&self) -> &str {
        at(&self.value, &["trace", "uid"])
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// The value at a path of keys and array indices.
pub(crate) fn at<'a>(object: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(object.get(*first)?, |value, key| match value {
            Value::Object(map) => map.get(*key),
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
}

/// The only attestation; more than one would leave parts of a record outside the checked form.
fn attestation(value: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    match value.get_mut("attestation_list")?.as_array_mut()?.as_mut_slice() {
        [only] => only.as_object_mut(),
        [] | [_, _, ..] => None,
    }
}

fn take_fingerprint(value: &mut Map<String, Value>) -> Option<Value> {
    attestation(value)?.remove("fingerprint")
}

fn put_fingerprint(value: &mut Map<String, Value>, fingerprint: Value) {
    if let Some(attestation) = attestation(value) {
        attestation.insert("fingerprint".into(), fingerprint);
    }
}
