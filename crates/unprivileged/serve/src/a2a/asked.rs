//! What callers say in the agent protocol: messages, parts, and the fields around them, checked and bounded.
//!
//! **Trust:** every byte is a caller's. Fields that are not known are passed over, as the protocol has it; nothing that
//! a message points to is fetched.
use super::wrong::{Kind, Wrong};
use crate::dto::{now_ms, plain};
use crate::json;
use bastle_control::review::library::base64;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Longest id that a caller gives.
const MOST_ID: usize = 128;
/// Parts of one message.
const MOST_PARTS: usize = 64;
/// Longest text of all parts together.
const MOST_TEXT: usize = 256 * 1024;

/// The parameters of a call.
pub(crate) type Params = Map<String, Value>;

/// A message that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) context: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) metadata: Map<String, Value>,
    /// All text that it holds, for an agent.
    pub(crate) text: String,
    /// Answers to questions.
    pub(crate) answers: Vec<Answer>,
    /// As it came, without fields that nobody knows, for the record.
    pub(crate) raw: Value,
    /// When it came, milliseconds since 1970: before anything that the agent says to it.
    pub(crate) came_ms: u64,
}

/// An answer to a question of the task.
///
/// A client that fills in the data part it was shown sends its other fields back (`about`, `verdicts`, `expires`): they
/// are passed over. What decides is the number, the digest and the verdict.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    /// Number of the question.
    #[serde(deserialize_with = "integral")]
    pub(crate) approval: u64,
    pub(crate) verdict: AnswerWord,
    /// Digest of the request as it was shown.
    pub(crate) hash: String,
    #[serde(default)]
    pub(crate) scope: Option<String>,
}

/// A yes or a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AnswerWord {
    Approve,
    Deny,
}

/// Largest integer that every JSON client reads exactly: 2^53 - 1.
const MOST_INTEGER: u64 = (1 << 53) - 1;

/// A whole number. `google.protobuf.Struct` knows only doubles, so that official clients send `7.0` for 7.
fn whole(number: &serde_json::Number) -> Option<u64> {
    let exact = number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        // Formatted rather than cast: a cast would round, saturate and accept fractions.
        (float >= 0.0 && float.fract() == 0.0 && float <= MOST_INTEGER as f64)
            .then(|| format!("{float:.0}").parse().ok())
            .flatten()
    });
    exact.filter(|number| *number <= MOST_INTEGER)
}

fn integral<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    whole(&number).ok_or_else(|| serde::de::Error::custom("a whole number from 0 to 2^53 - 1"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMessage {
    message_id: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    task_id: Option<String>,
    role: String,
    parts: Vec<Map<String, Value>>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    extensions: Option<Vec<String>>,
    #[serde(default)]
    reference_task_ids: Option<Vec<String>>,
}

impl Message {
    /// Reads the message of a call.
    pub(crate) fn read(params: &Params) -> Result<Self, Wrong> {
        let raw = params
            .get("message")
            .filter(|message| !message.is_null())
            .ok_or_else(|| Wrong::field("message", "is missing"))?
            .clone();
        let read: RawMessage =
            json::read(raw.clone()).map_err(|wrong| Wrong::field("message", wrong.to_string()))?;
        if read.role != "ROLE_USER" {
            return Err(Wrong::field("message.role", "a caller speaks as ROLE_USER"));
        }
        let id = given_id("message.messageId", &read.message_id)?;
        if read.parts.is_empty() || read.parts.len() > MOST_PARTS {
            return Err(Wrong::field("message.parts", format!("1 to {MOST_PARTS} parts")));
        }
        let listed = read.extensions.iter().chain(&read.reference_task_ids).flatten();
        if listed.clone().count() > MOST_PARTS || listed.clone().any(|one| one.len() > 512) {
            return Err(Wrong::field("message", "too many or too long names"));
        }
        let mut message = Self {
            id,
            context: named("message.contextId", read.context_id)?,
            task: named("message.taskId", read.task_id)?,
            metadata: read.metadata.unwrap_or_default(),
            text: String::new(),
            answers: Vec::new(),
            raw: known(&raw),
            came_ms: now_ms(),
        };
        for (at, part) in read.parts.iter().enumerate() {
            message.take(&format!("message.parts.{at}"), part)?;
        }
        if message.text.len() > MOST_TEXT {
            return Err(Wrong::field(
                "message.parts",
                format!("at most {MOST_TEXT} bytes of text"),
            ));
        }
        if message.text.contains('\0') {
            return Err(Wrong::field("message.parts", "a NUL is no text"));
        }
        if message.text.trim().is_empty() && message.answers.is_empty() {
            return Err(Wrong::field("message.parts", "nothing is said"));
        }
        Ok(message)
    }

    fn take(&mut self, place: &str, part: &Map<String, Value>) -> Result<(), Wrong> {
        let is_there = |name: &&str| part.get(*name).is_some_and(|value| !value.is_null());
        let there: Vec<&str> = ["text", "raw", "url", "data"]
            .into_iter()
            .filter(is_there)
            .collect();
        let [kind] = there.as_slice() else {
            return Err(Wrong::field(place, "exactly one of text, raw, url and data"));
        };
        let media = match part.get("mediaType") {
            None | Some(Value::Null) => "",
            Some(Value::String(media)) if media.len() <= 256 => media,
            Some(_) => return Err(Wrong::field(format!("{place}.mediaType"), "a media type")),
        };
        let value = part.get(*kind).unwrap_or(&Value::Null);
        match (*kind, value) {
            ("text", Value::String(text)) => self.say(text),
            ("data", Value::Object(members)) if members.contains_key("approval") => {
                let answer = json::read(value.clone())
                    .map_err(|wrong| Wrong::field(format!("{place}.data"), wrong.to_string()))?;
                self.answers.push(answer);
            }
            ("data", value) if media.is_empty() || media == "application/json" => {
                self.say(&value.to_string())
            }
            ("raw", Value::String(encoded)) if media.starts_with("text/") => {
                let text = base64::decode(encoded).and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| Wrong::field(format!("{place}.raw"), "text in base64"))?;
                if let Some(name) = part.get("filename").and_then(Value::as_str) {
                    self.say(&format!("{}:", plain(name)));
                }
                self.say(&text);
            }
            // What an address points to is not fetched, whatever it is.
            ("raw" | "url" | "data", _) => {
                return Err(Wrong::new(
                    Kind::ContentType,
                    format!(
                        "{place}: text, JSON data and text in base64 are taken, not {}",
                        plain(media)
                    ),
                ));
            }
            (_, _) => return Err(Wrong::field(format!("{place}.{kind}"), "is of another type")),
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }
}

/// The fields of a message that the protocol has: others are passed over, and not told to anybody else.
fn known(raw: &Value) -> Value {
    let only = |value: &Value, names: &[&str]| -> Value {
        let members = value.as_object().into_iter().flatten();
        let there = members.filter(|(name, value)| names.contains(&name.as_str()) && !value.is_null());
        Value::Object(there.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let mut message = only(
        raw,
        &[
            "messageId",
            "contextId",
            "taskId",
            "role",
            "parts",
            "metadata",
            "extensions",
            "referenceTaskIds",
        ],
    );
    if let Some(parts) = message.get_mut("parts").and_then(Value::as_array_mut) {
        for part in parts {
            *part = only(
                part,
                &["text", "raw", "url", "data", "metadata", "filename", "mediaType"],
            );
        }
    }
    message
}

/// The parameters with every name of a field as JSON spells it. A protocol buffer's own spelling, `task_id`, is taken too;
/// what callers put into metadata and data is theirs.
pub(crate) fn spelled(params: Params) -> Result<Params, Wrong> {
    let mut all = Params::new();
    for (name, value) in params {
        let theirs = matches!(name.as_str(), "metadata" | "data");
        let value = match value {
            Value::Object(members) if !theirs => Value::Object(spelled(members)?),
            Value::Array(items) if !theirs => {
                let item = |item| match item {
                    Value::Object(members) => spelled(members).map(Value::Object),
                    other => Ok(other),
                };
                Value::Array(items.into_iter().map(item).collect::<Result<_, _>>()?)
            }
            other => other,
        };
        let mut words = name.split('_');
        let mut camel = words.next().unwrap_or_default().to_owned();
        for word in words {
            let mut letters = word.chars();
            camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            camel.extend(letters);
        }
        if all.insert(camel, value).is_some() {
            return Err(Wrong::field(plain(&name), "is there in two spellings"));
        }
    }
    Ok(all)
}

fn named(field: &str, id: Option<String>) -> Result<Option<String>, Wrong> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(None),
        Some(id) => given_id(field, &id).map(Some),
    }
}

/// An id that a caller gives: visible, not too long.
pub(crate) fn given_id(field: &str, id: &str) -> Result<String, Wrong> {
    let good = !id.is_empty() && id.len() <= MOST_ID && id.bytes().all(|byte| byte.is_ascii_graphic());
    match good {
        true => Ok(id.to_owned()),
        false => Err(Wrong::field(field, format!("1 to {MOST_ID} visible characters"))),
    }
}

/// A text of the parameters; empty is none.
pub(crate) fn text<'p>(params: &'p Params, name: &str) -> Result<Option<&'p str>, Wrong> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() <= 4096 => Ok(Some(text)),
        Some(_) => Err(Wrong::field(name, "a text")),
    }
}

/// A number of the parameters; a protocol buffer writes it as a number or as a text.
pub(crate) fn number(params: &Params, name: &str) -> Result<Option<i64>, Wrong> {
    let number = match params.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number
            .as_i64()
            .or_else(|| whole(number).and_then(|number| i64::try_from(number).ok())),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let number = number.filter(|number| i32::try_from(*number).is_ok());
    number
        .map(Some)
        .ok_or_else(|| Wrong::field(name, "a whole number"))
}

/// A yes or no of the parameters.
pub(crate) fn flag(params: &Params, name: &str) -> Result<bool, Wrong> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(_) => Err(Wrong::field(name, "true or false")),
    }
}

/// An object of the parameters.
pub(crate) fn object(params: &Params, name: &str) -> Result<Params, Wrong> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(Params::new()),
        Some(Value::Object(members)) => Ok(members.clone()),
        Some(_) => Err(Wrong::field(name, "an object")),
    }
}

/// How much history is wanted: all that is kept, or at most so many.
pub(crate) fn history(params: &Params) -> Result<Option<usize>, Wrong> {
    match number(params, "historyLength")? {
        None => Ok(None),
        Some(length) => usize::try_from(length)
            .map(Some)
            .map_err(|_| Wrong::field("historyLength", "at least 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(message: Value) -> Result<Message, Wrong> {
        Message::read(&Params::from_iter([("message".to_owned(), message)]))
    }

    fn with(parts: Value) -> Result<Message, Wrong> {
        read(json!({ "messageId": "m", "role": "ROLE_USER", "parts": parts }))
    }

    #[test]
    fn a_message_without_id_role_or_parts_or_with_a_part_of_no_kind_is_refused() {
        for bad in [
            json!(null),
            json!([]),
            json!({}),
            json!({ "role": "ROLE_USER", "parts": [{ "text": "a" }] }),
            json!({ "messageId": "", "role": "ROLE_USER", "parts": [{ "text": "a" }] }),
            json!({ "messageId": "m", "parts": [{ "text": "a" }] }),
            json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "a" }] }),
            json!({ "messageId": "m", "role": "user", "parts": [{ "text": "a" }] }),
            json!({ "messageId": "m", "role": "ROLE_USER", "parts": [] }),
            json!({ "messageId": "m", "role": "ROLE_USER" }),
            json!({ "messageId": "m\n", "role": "ROLE_USER", "parts": [{ "text": "a" }] }),
        ] {
            assert_eq!(read(bad.clone()).unwrap_err().kind, Kind::Params, "{bad}");
        }
        for bad in [
            json!([{}]),
            json!([{ "text": "a", "data": 1 }]),
            json!([{ "text": 1 }]),
            json!([{ "text": " " }]),
            json!([{ "text": "a\u{0}" }]),
            json!([{ "raw": "!", "mediaType": "text/plain" }]),
            json!([{ "data": { "approval": 1 } }]),
            json!([{ "data": { "approval": 1, "verdict": "maybe", "hash": "x" } }]),
            json!([{ "text": "x".repeat(MOST_TEXT + 1) }]),
            Value::Array(vec![json!({ "text": "a" }); MOST_PARTS + 1]),
        ] {
            assert_eq!(with(bad.clone()).unwrap_err().kind, Kind::Params);
        }
    }

    #[test]
    fn an_answer_as_the_official_clients_send_it_is_taken_and_a_fraction_is_not() {
        let answer = |approval: Value| {
            with(json!([{ "data": {
                "approval": approval, "verdict": "deny", "hash": "h", "about": "net", "verdicts": ["approve", "deny"],
                "expires": "2030-01-01T00:00:00Z" } }]))
        };
        for good in [json!(7), json!(7.0)] {
            assert_eq!(answer(good).unwrap().answers[0].approval, 7);
        }
        for bad in [
            json!(7.5),
            json!(-1),
            json!(-1.0),
            json!(9_007_199_254_740_992u64),
            json!(1e300),
            json!("7"),
            json!(null),
        ] {
            assert_eq!(answer(bad.clone()).unwrap_err().kind, Kind::Params, "{bad}");
        }
        let params = Params::from_iter([("historyLength".to_owned(), json!(3.0))]);
        assert_eq!(history(&params).unwrap(), Some(3));
    }

    #[test]
    fn fields_are_known_in_both_spellings_and_unknown_ones_are_not_kept() {
        let params = json!({
            "task_id": "t", "historyLength": 1, "metadata": { "a_b": 1 },
            "message": { "message_id": "m", "role": "ROLE_USER", "surprise": 1, "parts": [
                { "data": { "c_d": 1 }, "media_type": "application/json", "surprise": 1 } ] },
        });
        let params = spelled(params.as_object().unwrap().clone()).unwrap();
        assert_eq!(
            (&params["taskId"], &params["metadata"]["a_b"]),
            (&json!("t"), &json!(1))
        );
        let message = Message::read(&params).unwrap();
        assert_eq!(
            message.raw,
            json!({ "messageId": "m", "role": "ROLE_USER", "parts": [
                { "data": { "c_d": 1 }, "mediaType": "application/json" } ] })
        );
        let twice = json!({ "task_id": "a", "taskId": "b" });
        assert_eq!(
            spelled(twice.as_object().unwrap().clone()).unwrap_err().kind,
            Kind::Params
        );
    }

    #[test]
    fn what_an_address_points_to_and_what_is_no_text_is_not_taken() {
        for bad in [
            json!([{ "url": "http://169.254.169.254/" }]),
            json!([{ "raw": "AAAA", "mediaType": "application/octet-stream" }]),
            json!([{ "raw": "AAAA" }]),
            json!([{ "data": 1, "mediaType": "image/png" }]),
        ] {
            assert_eq!(with(bad.clone()).unwrap_err().kind, Kind::ContentType, "{bad}");
        }
        let good = with(json!([
            { "text": "look at", "surprise": 1 }, { "raw": "aGk=", "mediaType": "text/plain", "filename": "a.txt" },
            { "data": { "n": 1 } },
        ]));
        assert_eq!(good.unwrap().text, "look at\n\na.txt:\n\nhi\n\n{\"n\":1}");
    }

    #[test]
    fn no_bytes_make_reading_fail_otherwise() {
        let text = br#"{"message":{"messageId":"m","role":"ROLE_USER","taskId":"t","parts":[{"text":"a"},{"data":{"approval":1,"verdict":"deny","hash":"h"}}],"metadata":{"a":[1]}}}"#;
        for at in 0..text.len() {
            for flip in [1u8, 0x20, 0x80, 0xff] {
                let mut bent = text.to_vec();
                bent[at] ^= flip;
                if let Ok(Value::Object(params)) = json::value(&bent) {
                    drop(Message::read(&params));
                }
            }
        }
    }
}
