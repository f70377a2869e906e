//! Claude Code over its standard streams: JSON lines with a control channel for permissions and interruption.
use crate::asking::{self, Waiting};
use crate::driver::{
    AgentDriver, AgentUsage, Answer, DriverError, Heard, Permission, Said, Session, ToolState, TurnEnd,
    bounded,
};
use crate::lines::Lines;
use crate::reading::{self, count, id, text};
use serde_json::{Value, json};

/// Name of our first request.
const HELLO: &str = "bastle-hello";

/// The conversation with it.
#[derive(Debug, Default)]
pub struct Claude {
    lines: Lines,
    /// Requests that wait for our answer, with what they were about.
    waiting: Waiting<Value>,
    asked: u64,
    working: bool,
    interrupted: bool,
    last_message: Option<String>,
    usage: AgentUsage,
}

impl Claude {
    fn hear(&mut self, value: &Value, heard: &mut Heard) {
        match value.get("type").and_then(Value::as_str) {
            Some("control_response") if text(value, "/response/request_id").as_deref() == Some(HELLO) => {
                heard.said.push(Said::Ready {
                    session: None,
                    agent: Some("claude".to_owned()),
                });
            }
            Some("system") if text(value, "/subtype").as_deref() == Some("init") => {
                heard.said.push(Said::Ready {
                    session: id(value, "/session_id"),
                    agent: text(value, "/model").map(|model| format!("claude, {}", model)),
                });
            }
            Some("assistant") => self.message(value, heard),
            Some("user") => results(value, heard),
            Some("control_request") => self.request(value, heard),
            Some("control_cancel_request") => {
                if let Some(id) = id(value, "/request_id")
                    && self.waiting.remove(&id).is_some()
                {
                    heard.said.push(Said::Withdrawn { id });
                }
            }
            Some("result") => self.ended(value, heard),
            // Answers to interrupts, partial messages, hooks: nothing that is not said elsewhere too.
            Some("control_response" | "system" | "stream_event" | "keep_alive" | "rate_limit_event") => {}
            Some(_) | None => heard.said.push(reading::noise(value.to_string().as_bytes())),
        }
    }

    fn message(&mut self, value: &Value, heard: &mut Heard) {
        self.working = true;
        let name = id(value, "/message/id");
        // One message of the model comes in several lines, one for each block.
        if name.is_none() || name != self.last_message {
            self.usage.turns += 1;
            let (input, output) = ("/message/usage/input_tokens", "/message/usage/output_tokens");
            self.usage.input_tokens = self.usage.input_tokens.saturating_add(count(value, input));
            self.usage.output_tokens = self.usage.output_tokens.saturating_add(count(value, output));
            self.last_message = name;
            heard.said.push(Said::Usage(self.usage.clone()));
        }
        let blocks = value.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            match block.get("type").and_then(Value::as_str) {
                Some("text") => heard
                    .said
                    .extend(text(block, "/text").map(|text| Said::Text { text })),
                Some("thinking") => {
                    heard
                        .said
                        .extend(text(block, "/thinking").map(|text| Said::Thought { text }));
                }
                Some("tool_use") => heard.said.push(Said::Tool {
                    id: id(block, "/id").unwrap_or_default(),
                    name: id(block, "/name").unwrap_or_default(),
                    state: ToolState::Pending,
                    input: reading::bounded(block.get("input")),
                }),
                Some(_) | None => {}
            }
        }
    }

    fn request(&mut self, value: &Value, heard: &mut Heard) {
        let Some(request) = id(value, "/request_id") else {
            return;
        };
        let is_tool = text(value, "/request/subtype").as_deref() == Some("can_use_tool");
        let refuse = |why: &str| {
            reading::line(&json!({ "type": "control_response", "response": {
                "subtype": "error", "request_id": request, "error": why } }))
        };
        if !is_tool {
            heard.reply.extend(refuse("not available here"));
            return;
        }
        let tool = id(value, "/request/tool_name").unwrap_or_default();
        let input = value.pointer("/request/input").cloned().unwrap_or(Value::Null);
        if let Err(why) = self.waiting.take_in(&request, input.clone()) {
            heard.reply.extend(refuse(why.words()));
            return;
        }
        heard.said.push(Said::Permission(Permission {
            id: request,
            title: asking::title(&tool, &input),
            tool,
            input: reading::bounded(Some(&input)),
            words: asking::words(value, "/request/title"),
        }));
    }

    fn ended(&mut self, value: &Value, heard: &mut Heard) {
        self.working = false;
        let how = match value.get("subtype").and_then(Value::as_str) {
            _ if std::mem::take(&mut self.interrupted) => TurnEnd::Interrupted,
            Some("success") if value.get("is_error") != Some(&Value::Bool(true)) => TurnEnd::Done,
            Some("error_max_turns" | "error_max_budget_usd") => TurnEnd::Limit,
            Some(_) | None => TurnEnd::Failed,
        };
        if let Some(cost) = value.get("total_cost_usd").and_then(Value::as_f64) {
            self.usage.cost_usd = Some(cost);
        }
        let withdrawn = self.waiting.drain();
        heard
            .said
            .extend(withdrawn.into_keys().map(|id| Said::Withdrawn { id }));
        heard.said.push(Said::Usage(self.usage.clone()));
        heard.said.push(Said::TurnEnded {
            how,
            text: text(value, "/result"),
        });
    }

    fn say(&mut self, words: &str) -> Vec<u8> {
        reading::line(
            &json!({ "type": "user", "session_id": "", "parent_tool_use_id": null,
            "message": { "role": "user", "content": words } }),
        )
    }
}

/// What tools gave back.
fn results(value: &Value, heard: &mut Heard) {
    let blocks = value.pointer("/message/content").and_then(Value::as_array);
    for block in blocks.into_iter().flatten() {
        if block.get("type").and_then(Value::as_str) != Some("tool_result") {
            continue;
        }
        let failed = block.get("is_error") == Some(&Value::Bool(true));
        heard.said.push(Said::Tool {
            id: id(block, "/tool_use_id").unwrap_or_default(),
            name: String::new(),
            state: if failed {
                ToolState::Failed
            } else {
                ToolState::Completed
            },
            input: Value::Null,
        });
    }
}

impl AgentDriver for Claude {
    fn start(&mut self, _session: &Session) -> Vec<u8> {
        reading::line(&json!({ "type": "control_request", "request_id": HELLO,
            "request": { "subtype": "initialize", "hooks": null } }))
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
        self.interrupted = true;
        self.asked += 1;
        let request = format!("bastle-{}", self.asked);
        Ok(reading::line(
            &json!({ "type": "control_request", "request_id": request,
            "request": { "subtype": "interrupt" } }),
        ))
    }

    fn answer_permission(&mut self, id: &str, answer: &Answer) -> Result<Vec<u8>, DriverError> {
        let input = self.waiting.remove(id).ok_or(DriverError::Unknown)?;
        let response = match answer {
            // What was shown is what is done: the input goes back as it came.
            Answer::Once | Answer::Session => json!({ "behavior": "allow", "updatedInput": input }),
            Answer::No(why) => json!({ "behavior": "deny", "message": why, "interrupt": false }),
        };
        Ok(reading::line(&json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": id, "response": response } })))
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

    fn said(claude: &mut Claude, line: Value) -> Heard {
        claude.take(&reading::line(&line))
    }

    fn asks(name: &str) -> Value {
        json!({ "type": "control_request", "request_id": name, "request": { "subtype": "can_use_tool",
            "tool_name": "Bash", "input": { "command": "rm -rf /" }, "tool_use_id": "t1" } })
    }

    #[test]
    fn a_permission_is_answered_once_with_the_input_that_was_shown_and_never_twice() {
        let mut claude = Claude::default();
        let heard = said(&mut claude, asks("u1"));
        let [Said::Permission(asked)] = heard.said.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!((asked.tool.as_str(), asked.id.as_str()), ("Bash", "u1"));
        assert_eq!(
            asked.title, "Bash: command \"rm -rf /\"",
            "what it is about, not what the agent calls it"
        );
        let answer = claude.answer_permission("u1", &Answer::Once).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            answer.pointer("/response/response"),
            Some(&json!({ "behavior": "allow", "updatedInput": { "command": "rm -rf /" } }))
        );
        assert_eq!(
            claude.answer_permission("u1", &Answer::Once),
            Err(DriverError::Unknown)
        );
        assert_eq!(
            claude.answer_permission("u2", &Answer::Once),
            Err(DriverError::Unknown)
        );
    }

    #[test]
    fn an_answer_to_one_input_is_never_given_to_another_of_the_same_id() {
        let mut claude = Claude::default();
        let mut harmless = asks("u1");
        harmless["request"]["input"] = json!({ "command": "ls" });
        harmless["request"]["title"] = json!("bastle: nothing to worry about");
        let heard = said(&mut claude, harmless);
        let [Said::Permission(asked)] = heard.said.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!(asked.title, "Bash: command \"ls\"", "ours");
        assert_eq!(asked.words.as_deref(), Some("bastle: nothing to worry about"));
        let second = said(&mut claude, asks("u1"));
        assert!(second.said.is_empty(), "{second:?}");
        assert!(String::from_utf8(second.reply).unwrap().contains("waits already"));
        let answer = claude.answer_permission("u1", &Answer::Once).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let given = answer.pointer("/response/response/updatedInput");
        assert_eq!(given, Some(&json!({ "command": "ls" })), "what was shown");
    }

    #[test]
    fn a_request_that_is_withdrawn_or_outlives_its_turn_cannot_be_answered() {
        let mut claude = Claude::default();
        said(&mut claude, asks("u1"));
        let gone = said(
            &mut claude,
            json!({ "type": "control_cancel_request", "request_id": "u1" }),
        );
        assert_eq!(gone.said, [Said::Withdrawn { id: "u1".into() }]);
        said(&mut claude, asks("u2"));
        said(&mut claude, json!({ "type": "result", "subtype": "success" }));
        assert_eq!(
            claude.answer_permission("u2", &Answer::Once),
            Err(DriverError::Unknown)
        );
    }

    #[test]
    fn what_it_asks_of_us_beside_permissions_is_refused_and_a_flood_of_requests_too() {
        let mut claude = Claude::default();
        let hook = json!({ "type": "control_request", "request_id": "h", "request": { "subtype": "hook_callback" } });
        let heard = said(&mut claude, hook);
        assert!(heard.said.is_empty());
        assert!(String::from_utf8(heard.reply).unwrap().contains("\"error\""));
        for n in 0..asking::MOST_REQUESTS {
            assert_eq!(said(&mut claude, asks(&format!("u{n}"))).said.len(), 1);
        }
        let heard = said(&mut claude, asks("more"));
        assert!(heard.said.is_empty() && !heard.reply.is_empty());
    }

    #[test]
    fn turns_are_counted_by_message_and_an_interrupted_turn_is_told_as_one() {
        let mut claude = Claude::default();
        assert_eq!(claude.steer("too early"), Err(DriverError::Idle));
        claude.prompt("go").unwrap();
        assert_eq!(claude.prompt("again"), Err(DriverError::Busy));
        let block = |id: &str| {
            json!({ "type": "assistant", "message": { "id": id, "content": [{ "type": "text", "text": "x" }],
                "usage": { "input_tokens": 10, "output_tokens": 2 } } })
        };
        for id in ["m1", "m1", "m2"] {
            said(&mut claude, block(id));
        }
        assert_eq!(claude.usage().turns, 2);
        assert_eq!(claude.usage().input_tokens, 20);
        claude.steer("rather this").unwrap();
        claude.interrupt().unwrap();
        let ended = said(
            &mut claude,
            json!({ "type": "result", "subtype": "error_during_execution", "total_cost_usd": 0.5 }),
        );
        let how = TurnEnd::Interrupted;
        assert_eq!(ended.said.last(), Some(&Said::TurnEnded { how, text: None }));
        assert_eq!(claude.usage().cost_usd, Some(0.5));
        assert!(!claude.is_working());
    }
}
