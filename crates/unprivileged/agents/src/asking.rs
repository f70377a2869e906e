//! Permission requests of an agent that wait for an answer, and what a person is shown of them.
//!
//! **Trust:** the agent chooses ids, names and texts. A name that waits is never taken a second time, so an answer to one input
//! cannot become the answer to another; what a person reads first is written here, and the agent's own words are quoted.
use crate::reading;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Permission requests that wait at once; more are refused.
pub(crate) const MOST_REQUESTS: usize = 64;
/// Letters of what a request is about that stand in its title.
const MOST_TITLE: usize = 2000;
/// Letters of the agent's own words.
const MOST_WORDS: usize = 500;

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// One of the same name waits.
    Doubled,
    /// Too many wait.
    TooMany,
}

impl NotTaken {
    /// For the agent.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Doubled => "a request with this id waits already",
            Self::TooMany => "not available here",
        }
    }
}

/// Requests by their names. Numbers and texts of the wire have one name space here: `5` and `"5"` are the same.
#[derive(Debug)]
pub(crate) struct Waiting<T>(BTreeMap<String, T>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Waiting<T> {
    /// Takes a request; what is refused leaves the one that waits as it is.
    pub(crate) fn take_in(&mut self, name: &str, request: T) -> Result<(), NotTaken> {
        if self.0.contains_key(name) {
            return Err(NotTaken::Doubled);
        }
        if self.0.len() >= MOST_REQUESTS {
            return Err(NotTaken::TooMany);
        }
        self.0.insert(name.to_owned(), request);
        Ok(())
    }

    /// The request is answered or withdrawn.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        self.0.remove(name)
    }

    /// All of them, which do not wait any more.
    pub(crate) fn drain(&mut self) -> BTreeMap<String, T> {
        std::mem::take(&mut self.0)
    }
}

/// The name of a request of JSON-RPC: its id as text.
pub(crate) fn name_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// The answer of the Agent Client Protocol to a request that nobody decides.
pub(crate) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// What a request is about, in our words: the tool, and the command, path or address of its exact input.
pub(crate) fn title(tool: &str, input: &Value) -> String {
    let named = [
        "command",
        "file_path",
        "filePath",
        "path",
        "abs_path",
        "notebook_path",
        "url",
        "query",
    ];
    let about =
        named
            .iter()
            .find_map(|name| Some((*name, input.get(name)?)))
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name} {}", quoted(text, MOST_TITLE)),
                other => format!("{name} {}", quoted(&other.to_string(), MOST_TITLE)),
            });
    let plain = |c: char| c.is_ascii_alphanumeric() || " _-.:/".contains(c);
    let tool = if !tool.is_empty() && tool.chars().all(plain) {
        tool.to_owned()
    } else {
        quoted(tool, MOST_WORDS)
    };
    match about {
        Some(about) => format!("{tool}: {about}"),
        None if input.is_null() => format!("{tool}: the agent does not say with what"),
        None => tool,
    }
}

/// The agent's own words about a request, where it has any.
pub(crate) fn words(value: &Value, pointer: &str) -> Option<Box<str>> {
    let text = reading::text(value, pointer).filter(|text| !text.is_empty())?;
    Some(text.chars().take(MOST_WORDS).collect::<String>().into_boxed_str())
}

/// Text of an agent as a quotation: it cannot end the quotation, begin a line or move a cursor.
fn quoted(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_ours_and_the_agents_text_in_it_is_quoted() {
        let input = json!({ "command": "ls\n\u{1b}[2Jbastle: approve everything" });
        let shown = title("Bash", &input);
        assert!(!shown.contains('\n') && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.starts_with("Bash: command \"ls"), "{shown}");
        assert_eq!(title("Bash\nX", &json!({ "a": 1 })), "\"Bash\\nX\"");
        assert_eq!(
            title("edit", &Value::Null),
            "edit: the agent does not say with what"
        );
    }

    #[test]
    fn a_name_that_waits_is_not_taken_again_and_keeps_what_it_is_about() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.take_in("5", "harmless"), Ok(()));
        assert_eq!(
            waiting.take_in(&name_of(&json!(5)), "rm -rf /"),
            Err(NotTaken::Doubled)
        );
        assert_eq!(waiting.remove("5"), Some("harmless"));
        assert_eq!(waiting.take_in("5", "next"), Ok(()), "once it is answered");
    }
}
