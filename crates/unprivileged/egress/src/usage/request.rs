//! What a request to a model asks for: which model, and how much of an answer at most.
//!
//! **Trust:** reads the agent's body and path. What it says is used for estimates and for finding a price; what is
//! counted in the end is the server's word.
use super::fields::Fields;
use super::{BYTES_PER_TOKEN, DEFAULT_OUTPUT, clean_name};

/// What was found in the body and the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    /// Name of the model.
    pub(crate) model: Option<String>,
    /// Most tokens of one answer.
    pub(crate) most: Option<u64>,
    /// How many answers are asked for.
    pub(crate) choices: Option<u64>,
    /// Whether the answer comes later, by another request.
    pub(crate) background: bool,
}

/// Reads the body of a request piece by piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestReader {
    fields: Fields,
    length: usize,
    wide: bool,
}

impl RequestReader {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        // Zeros among the first four bytes are how readers of JSON tell UTF-16 and UTF-32 (RFC 4627, 3).
        let start = 4_usize.saturating_sub(self.length);
        self.wide |= bytes.iter().take(start).any(|byte| *byte == 0);
        self.length = self.length.saturating_add(bytes.len());
        self.fields.feed(bytes);
    }

    /// Whether what came so far asks for an answer that comes by another request.
    pub(crate) fn is_background(&self) -> bool {
        self.fields.is_background()
    }

    /// Whether it would be another text to a reader of JSON.
    pub(crate) fn is_wide(&self) -> bool {
        self.wide
    }

    /// What was found so far.
    pub(crate) fn facts(&self, path: &str) -> RequestFacts {
        let found = self.fields.clone().take();
        let named = found
            .model
            .and_then(|text| serde_json::from_slice::<String>(&text).ok());
        RequestFacts {
            model: named
                .or_else(|| in_path(path))
                .map(|name| clean_name(&name))
                .filter(|name| !name.is_empty()),
            most: found.most,
            choices: found.choices,
            background: found.background,
        }
    }
}

impl RequestFacts {
    /// Tokens in and out that it may use, for a body of this length.
    pub(crate) fn tokens(&self, length: u64) -> (u64, u64) {
        let one = self.most.unwrap_or(DEFAULT_OUTPUT);
        let output = one.saturating_mul(self.choices.unwrap_or(1).max(1));
        (length / BYTES_PER_TOKEN, output)
    }
}

/// APIs that name the model in the path: `models/NAME:method`, `model/NAME/invoke`, `deployments/NAME/…`.
fn in_path(path: &str) -> Option<String> {
    let mut segments = path.split('/');
    while let Some(segment) = segments.next() {
        match segment {
            "models" | "model" | "deployments" => {
                let name = segments.next()?;
                let name = if segment == "models" {
                    name.rsplit_once(':').map_or(name, |(name, _)| name)
                } else {
                    name
                };
                return Some(name.replace("%3A", ":").replace("%3a", ":"));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(body: &str, path: &str) -> RequestFacts {
        let mut reader = RequestReader::default();
        body.as_bytes().chunks(3).for_each(|piece| reader.feed(piece));
        reader.facts(path)
    }

    #[test]
    fn the_model_and_the_most_tokens_are_found_wherever_an_api_puts_them() {
        for (body, path, model, most) in [
            (
                r#"{"messages":[{"max_tokens":9,"model":"x"}],"model":"m","max_tokens":100}"#,
                "/v1/messages",
                Some("m"),
                Some(100),
            ),
            (
                r#"{"model":"m","max_completion_tokens": 7 }"#,
                "/v1/chat/completions",
                Some("m"),
                Some(7),
            ),
            (
                r#"{"model":"m","options":{"num_predict":5}}"#,
                "/api/chat",
                Some("m"),
                Some(5),
            ),
            (
                r#"{"generationConfig":{"maxOutputTokens":6}}"#,
                "/v1beta/models/gemini-2.5-pro:generateContent",
                Some("gemini-2.5-pro"),
                Some(6),
            ),
            (
                r#"{"inferenceConfig":{"maxTokens":8}}"#,
                "/model/anthropic.claude-3-haiku-v1%3A0/converse",
                Some("anthropic.claude-3-haiku-v1:0"),
                Some(8),
            ),
            (
                "{}",
                "/openai/deployments/gpt-4o/chat/completions",
                Some("gpt-4o"),
                None,
            ),
            ("no json", "/v1/messages", None, None),
        ] {
            let found = facts(body, path);
            assert_eq!(
                (found.model.as_deref(), found.most),
                (model, most),
                "{body} {path}"
            );
        }
        for background in [
            r#"true"#,
            "1",
            r#""True""#,
            r#"" on""#,
            r#"true,"background":false"#,
        ] {
            assert!(
                facts(&format!(r#"{{"background": {background}}}"#), "/").background,
                "{background}"
            );
        }
        assert!(facts(r#"{"model":"m","deferred":true}"#, "/").background);
        for not in [
            "false",
            "null",
            "0",
            r#""transparent""#,
            r#"[true]"#,
            r#"{"background":true}"#,
        ] {
            assert!(
                !facts(&format!(r#"{{"background": {not}}}"#), "/").background,
                "{not}"
            );
        }
    }

    #[test]
    fn the_largest_number_holds_whatever_its_name_its_place_or_its_spelling() {
        for (body, output) in [
            (r#"{"max_completion_tokens":2000,"max_tokens":1}"#, 2_000),
            (r#"{"max_tokens":1,"max_completion_tokens":2000}"#, 2_000),
            (r#"{"max_tokens":2000,"max_tokens":1}"#, 2_000),
            (r#"{"max_tokens":2000,"options":{"num_predict":5}}"#, 2_000),
            (r#"{"max_tokens":10,"n":30}"#, 300),
            (r#"{"n":30,"best_of":2,"max_tokens":10}"#, 300),
            (r#"{"max_tokens":10,"n":0}"#, 10),
            (r#"{"n":2}"#, 2 * DEFAULT_OUTPUT),
            (
                r#"{"generationConfig":{"maxOutputTokens":6,"candidateCount":3}}"#,
                18,
            ),
            (r#"{"max_tokens":1,"\u006e":30}"#, 30),
            (r#"{"max_tokens":1,"max_completion_\u0074okens":7}"#, 7),
            (r#"{"max_tokens":1e9}"#, u64::MAX),
            (
                r#"{"max_tokens":9000000000000000000,"n":9000000000000000000}"#,
                u64::MAX,
            ),
            (r#"{"max_tokens":10,"messages":[{"n":30}],"tools":{"n":30}}"#, 10),
        ] {
            assert_eq!(
                facts(body, "/v1/chat/completions").tokens(400),
                (100, output),
                "{body}"
            );
        }
    }
}
