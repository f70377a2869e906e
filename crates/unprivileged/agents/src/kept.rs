//! An agent whose driver is in another process, the keeper of its run: what it said comes as events of the run, one JSON
//! object per line, and what is said to it goes as commands to the run's socket, one per line.
//!
//! **Trust:** the events are written by bastle; the text in them is the agent's.
use crate::driver::{
    AgentDriver, AgentUsage, Answer, DriverError, Heard, Permission, Said, Session, bounded,
};
use crate::lines::Lines;
use crate::reading::{self, id, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Questions that wait at once.
const MOST_QUESTIONS: usize = 256;

/// The conversation with it.
#[derive(Debug, Default)]
pub struct Kept {
    lines: Lines,
    /// Put before the first prompt.
    preamble: Option<String>,
    /// Open questions of the run, with the hash that binds an answer to what was shown.
    questions: BTreeMap<String, String>,
    working: bool,
    usage: AgentUsage,
}

impl Kept {
    /// One whose first prompt has this text before it.
    #[must_use]
    pub fn with_preamble(preamble: String) -> Self {
        Self {
            preamble: Some(preamble),
            ..Self::default()
        }
    }

    fn hear(&mut self, event: &Value, heard: &mut Heard) {
        let data = event.get("data").unwrap_or(&Value::Null);
        match event.get("kind").and_then(Value::as_str) {
            Some("agent") => {
                if let Ok(said) = serde_json::from_value::<Said>(data.clone()) {
                    self.said(said, heard);
                }
            }
            Some("question") => self.question(data, heard),
            Some("answered") => {
                if let Some(id) = id(data, "/id")
                    && self.questions.remove(&id).is_some()
                {
                    heard.said.push(Said::Withdrawn { id });
                }
            }
            // What bastle has to say about the run.
            Some("note") => {
                heard
                    .said
                    .extend(text(data, "/text").map(|text| Said::Thought { text }));
            }
            Some(_) | None => {}
        }
    }

    fn said(&mut self, said: Said, heard: &mut Heard) {
        match said {
            // They come again as questions of the run, which everybody can answer.
            Said::Permission(_) | Said::Withdrawn { .. } => return,
            Said::TurnBegan => self.working = true,
            Said::TurnEnded { .. } => self.working = false,
            Said::Usage(ref usage) => self.usage = usage.clone(),
            Said::Ready { .. }
            | Said::Text { .. }
            | Said::Thought { .. }
            | Said::Tool { .. }
            | Said::Steered { .. }
            | Said::Trouble { .. }
            | Said::Noise { .. } => {}
        }
        heard.said.push(said);
    }

    fn question(&mut self, data: &Value, heard: &mut Heard) {
        let (Some(name), Some(hash)) = (id(data, "/id"), id(data, "/hash")) else {
            return;
        };
        if self.questions.len() >= MOST_QUESTIONS {
            return;
        }
        // The same asked anew: an answer to what was shown before must not carry the digest of what is asked now.
        if self.questions.insert(name.clone(), hash).is_some() {
            heard.said.push(Said::Withdrawn { id: name.clone() });
        }
        heard.said.push(Said::Permission(Permission {
            id: name,
            tool: id(data, "/about/tool").unwrap_or_else(|| "fetch".to_owned()),
            title: text(data, "/text").unwrap_or_default(),
            input: reading::bounded(data.get("about")),
            words: None,
        }));
    }

    fn say(&mut self, words: &str) -> Vec<u8> {
        let words = match self.preamble.take() {
            Some(preamble) => format!("{preamble}\n\n{words}"),
            None => words.to_owned(),
        };
        reading::line(&json!({ "op": "say", "text": words }))
    }
}

impl AgentDriver for Kept {
    fn start(&mut self, _session: &Session) -> Vec<u8> {
        Vec::new()
    }

    fn prompt(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        if self.working {
            return Err(DriverError::Busy);
        }
        self.working = true;
        Ok(self.say(words))
    }

    fn steer(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        if !self.working {
            return Err(DriverError::Idle);
        }
        Ok(self.say(words))
    }

    fn interrupt(&mut self) -> Result<Vec<u8>, DriverError> {
        if !self.working {
            return Err(DriverError::Idle);
        }
        Ok(reading::line(&json!({ "op": "interrupt" })))
    }

    fn answer_permission(&mut self, id: &str, answer: &Answer) -> Result<Vec<u8>, DriverError> {
        // Whether it was the first answer is the run's word.
        let hash = self.questions.remove(id).ok_or(DriverError::Unknown)?;
        let allow = |scope: &str| json!({ "op": "allow", "target": id, "scope": scope, "hash": hash });
        Ok(reading::line(&match answer {
            Answer::Once => allow("once"),
            Answer::Session => allow("session"),
            Answer::No(_) => json!({ "op": "deny", "target": id, "hash": hash }),
        }))
    }

    fn take(&mut self, bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        for message in self.lines.messages(bytes) {
            match message {
                Ok(value) => self.hear(&value, &mut heard),
                Err(said) => heard.said.push(said),
            }
        }
        heard
    }

    fn usage(&self) -> AgentUsage {
        self.usage.clone()
    }

    fn is_working(&self) -> bool {
        self.working
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, data: Value) -> Vec<u8> {
        reading::line(&json!({ "seq": 1, "time_ms": 0, "kind": kind, "data": data }))
    }

    #[test]
    fn a_question_of_the_run_is_answered_once_and_only_as_it_was_shown() {
        let mut kept = Kept::default();
        let own = json!({ "said": "permission", "id": "u", "tool": "Bash", "title": "x", "input": {} });
        assert_eq!(
            kept.take(&event("agent", own)).said,
            [],
            "it is the run that asks"
        );
        let asked = json!({ "id": "p_1", "hash": "ab", "text": "rm x", "about": { "tool": "Bash" } });
        let heard = kept.take(&event("question", asked.clone()));
        assert!(matches!(heard.said.as_slice(), [Said::Permission(asked)] if asked.id == "p_1"));
        let yes = kept.answer_permission("p_1", &Answer::Once).unwrap();
        let yes: Value = serde_json::from_slice(&yes).unwrap();
        assert_eq!(
            yes,
            json!({ "op": "allow", "target": "p_1", "scope": "once", "hash": "ab" })
        );
        assert_eq!(
            kept.answer_permission("p_1", &Answer::Once),
            Err(DriverError::Unknown)
        );
        kept.take(&event("question", asked));
        let heard = kept.take(&event("answered", json!({ "id": "p_1" })));
        assert_eq!(heard.said, [Said::Withdrawn { id: "p_1".into() }]);
        assert_eq!(
            kept.answer_permission("p_1", &Answer::Once),
            Err(DriverError::Unknown)
        );
    }

    #[test]
    fn the_preamble_is_before_the_first_prompt_and_before_no_other() {
        let mut kept = Kept::with_preamble("RULES".into());
        assert_eq!(kept.interrupt(), Err(DriverError::Idle));
        let first = String::from_utf8(kept.prompt("go").unwrap()).unwrap();
        assert!(first.contains("RULES\\n\\ngo"), "{first}");
        assert_eq!(kept.prompt("again"), Err(DriverError::Busy));
        let steer = String::from_utf8(kept.steer("left").unwrap()).unwrap();
        assert!(!steer.contains("RULES"), "{steer}");
        kept.take(&event(
            "agent",
            json!({ "said": "turn-ended", "how": "done", "text": null }),
        ));
        assert!(!kept.is_working());
    }
}
