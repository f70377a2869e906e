//! The Agent Client Protocol, version 1, from the client's end: opencode, Gemini and many more.
use crate::asking::{self, NotTaken, Waiting, cancelled, name_of};
use crate::driver::{
    AgentDriver, AgentUsage, Answer, DriverError, Heard, Permission, Said, Session, Steering, ToolState,
    TurnEnd, bounded,
};
use crate::lines::Lines;
use crate::reading::{self, count, id, text};
use crate::rpc::{Dialect, Message, Rpc};
use serde_json::{Value, json};

/// How a working agent is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It cannot be reached before its turn is over.
    No,
    /// By another prompt.
    Prompt,
    /// By the extension `_session/steering`.
    Extension,
}

/// The conversation with it.
#[derive(Debug)]
pub struct Acp {
    lines: Lines,
    rpc: Rpc,
    cwd: String,
    session: Option<String>,
    agent: Option<String>,
    reach: Reach,
    /// Prompts that were not answered yet: more than one when it was steered by another.
    prompts: u32,
    held: Option<String>,
    waiting: Waiting<(Value, Vec<Choice>)>,
    /// Requests that an interruption answered: nobody else's answer reaches them any more.
    interrupted: Vec<String>,
    last_words: String,
    usage: AgentUsage,
}

/// One answer that a request offers.
#[derive(Debug)]
struct Choice {
    id: String,
    kind: String,
}

impl Default for Acp {
    fn default() -> Self {
        Self::new(Reach::No)
    }
}

impl Acp {
    /// An agent that takes a second prompt into the turn that works.
    #[must_use]
    pub fn prompts_steer() -> Self {
        Self::new(Reach::Prompt)
    }

    fn new(reach: Reach) -> Self {
        Self {
            lines: Lines::default(),
            rpc: Rpc::new(Dialect::Versioned),
            cwd: String::new(),
            session: None,
            agent: None,
            reach,
            prompts: 0,
            held: None,
            waiting: Waiting::default(),
            interrupted: Vec::new(),
            last_words: String::new(),
            usage: AgentUsage::default(),
        }
    }

    fn hear(&mut self, value: &Value, heard: &mut Heard) {
        match self.rpc.read(value) {
            Message::Answered { asked, result } => self.answered(asked, result, heard),
            Message::Told { method, params } if method == "session/update" => self.update(&params, heard),
            Message::Told { .. } => {}
            Message::Request { id, method, params } if method == "session/request_permission" => {
                self.request(id, &params, heard);
            }
            // Files and terminals of ours are not offered: what it does, it does inside.
            Message::Request { id, .. } => heard.reply.extend(self.rpc.refuse(&id)),
            Message::Odd => heard.said.push(reading::noise(value.to_string().as_bytes())),
        }
    }

    fn answered(&mut self, asked: &'static str, result: Result<Value, String>, heard: &mut Heard) {
        let result = match result {
            Ok(result) => result,
            Err(why) => {
                let text = format!("{asked}: {why}");
                match asked {
                    "session/prompt" => self.turn_ended(TurnEnd::Failed, heard),
                    // What was held back until it could be asked is not done any more.
                    "initialize" | "session/new" => {
                        self.held = None;
                        self.turn_ended(TurnEnd::Failed, heard);
                    }
                    "_session/steering" => heard.said.push(Said::Steered {
                        how: Steering::Failed,
                    }),
                    _ => {}
                }
                heard.said.push(Said::Trouble { text });
                return;
            }
        };
        match asked {
            "initialize" => {
                self.agent = text(&result, "/agentInfo/name");
                if result.pointer("/_meta/steering/supported") == Some(&Value::Bool(true)) {
                    self.reach = Reach::Extension;
                }
                let params = json!({ "cwd": self.cwd, "mcpServers": [] });
                heard.reply.extend(self.rpc.ask("session/new", &params));
            }
            "session/new" => {
                self.session = id(&result, "/sessionId");
                heard.said.push(Said::Ready {
                    session: self.session.clone(),
                    agent: self.agent.clone(),
                });
                if let Some(words) = self.held.take() {
                    heard.reply.extend(self.ask(&words));
                }
            }
            "session/prompt" => {
                self.used(&result, heard);
                let how = match text(&result, "/stopReason").as_deref() {
                    Some("end_turn") => TurnEnd::Done,
                    Some("cancelled") => TurnEnd::Interrupted,
                    Some("max_tokens" | "max_turn_requests") => TurnEnd::Limit,
                    Some("refusal") => TurnEnd::Refused,
                    Some(_) | None => TurnEnd::Failed,
                };
                self.turn_ended(how, heard);
            }
            "_session/steering" => {
                let how = match text(&result, "/outcome").as_deref() {
                    Some("injected") => Steering::Injected,
                    Some("startedNewTurn") => Steering::NewTurn,
                    Some(_) | None => Steering::Failed,
                };
                heard.said.push(Said::Steered { how });
            }
            _ => {}
        }
    }

    /// What the answer to a prompt says of tokens: sums so far where the protocol says them, or those of this prompt where
    /// Gemini does.
    fn used(&mut self, result: &Value, heard: &mut Heard) {
        let told = self.usage.clone();
        if result.get("usage").is_some_and(Value::is_object) {
            self.usage.input_tokens = count(result, "/usage/inputTokens");
            self.usage.output_tokens = count(result, "/usage/outputTokens");
        } else {
            let more = |key: &str| count(result, &format!("/_meta/quota/token_count/{key}"));
            let (read, written) = (more("input_tokens"), more("output_tokens"));
            self.usage.input_tokens = self.usage.input_tokens.saturating_add(read);
            self.usage.output_tokens = self.usage.output_tokens.saturating_add(written);
        }
        if self.usage != told {
            heard.said.push(Said::Usage(self.usage.clone()));
        }
    }

    /// A prompt was answered; the turn is over with the last of them.
    fn turn_ended(&mut self, how: TurnEnd, heard: &mut Heard) {
        self.prompts = self.prompts.saturating_sub(1);
        if self.prompts > 0 {
            return;
        }
        let withdrawn = self.waiting.drain();
        heard
            .said
            .extend(withdrawn.into_keys().map(|id| Said::Withdrawn { id }));
        let words = std::mem::take(&mut self.last_words);
        heard.said.push(Said::TurnEnded {
            how,
            text: (!words.is_empty()).then_some(words),
        });
    }

    fn update(&mut self, params: &Value, heard: &mut Heard) {
        let Some(update) = params.get("update") else {
            return;
        };
        match update.get("sessionUpdate").and_then(Value::as_str) {
            Some("agent_message_chunk") => {
                if let Some(words) = text(update, "/content/text") {
                    if self.last_words.len() + words.len() <= 64 * 1024 {
                        self.last_words.push_str(&words);
                    }
                    heard.said.push(Said::Text { text: words });
                }
            }
            Some("agent_thought_chunk") => {
                heard
                    .said
                    .extend(text(update, "/content/text").map(|text| Said::Thought { text }));
            }
            Some("tool_call") => {
                self.usage.turns += 1;
                self.last_words.clear();
                heard.said.push(tool(update));
            }
            Some("tool_call_update") => heard.said.push(tool(update)),
            Some("usage_update") => {
                self.usage.input_tokens = count(update, "/used");
                self.usage.cost_usd = update.pointer("/cost/amount").and_then(Value::as_f64);
                heard.said.push(Said::Usage(self.usage.clone()));
            }
            Some(_) | None => {}
        }
    }

    fn request(&mut self, asked: Value, params: &Value, heard: &mut Heard) {
        let options = params.get("options").and_then(Value::as_array);
        let choices: Vec<Choice> = options
            .into_iter()
            .flatten()
            .take(16)
            .filter_map(|option| {
                Some(Choice {
                    id: id(option, "/optionId")?,
                    kind: id(option, "/kind")?,
                })
            })
            .collect();
        if choices.is_empty() {
            heard.reply.extend(self.rpc.answer(&asked, &cancelled()));
            return;
        }
        let name = name_of(&asked);
        if let Err(why) = self.waiting.take_in(&name, (asked.clone(), choices)) {
            heard.reply.extend(match why {
                NotTaken::TooMany => self.rpc.answer(&asked, &cancelled()),
                NotTaken::Doubled => self.rpc.refuse_as(&asked, why.words()),
            });
            return;
        }
        let tool = id(params, "/toolCall/kind").unwrap_or_else(|| "tool".to_owned());
        let input = params.pointer("/toolCall/rawInput");
        heard.said.push(Said::Permission(Permission {
            id: name,
            title: asking::title(&tool, input.unwrap_or(&Value::Null)),
            tool,
            input: reading::bounded(input),
            words: asking::words(params, "/toolCall/title"),
        }));
    }

    fn ask(&mut self, words: &str) -> Vec<u8> {
        self.prompts += 1;
        self.rpc.ask("session/prompt", &self.words(words))
    }

    fn words(&self, words: &str) -> Value {
        json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": words }] })
    }
}

fn tool(update: &Value) -> Said {
    Said::Tool {
        id: id(update, "/toolCallId").unwrap_or_default(),
        name: text(update, "/title").unwrap_or_default(),
        state: match text(update, "/status").as_deref() {
            Some("in_progress") => ToolState::Running,
            Some("completed") => ToolState::Completed,
            Some("failed") => ToolState::Failed,
            Some(_) | None => ToolState::Pending,
        },
        input: reading::bounded(update.get("rawInput")),
    }
}

impl AgentDriver for Acp {
    fn start(&mut self, session: &Session) -> Vec<u8> {
        self.cwd.clone_from(&session.cwd);
        let params = json!({ "protocolVersion": 1,
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "bastle", "version": env!("CARGO_PKG_VERSION") } });
        self.rpc.ask("initialize", &params)
    }

    fn prompt(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        if self.prompts > 0 || self.held.is_some() {
            return Err(DriverError::Busy);
        }
        if self.session.is_none() {
            self.held = Some(words.to_owned());
            return Ok(Vec::new());
        }
        Ok(self.ask(words))
    }

    fn steer(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        if self.prompts == 0 {
            return Err(DriverError::Idle);
        }
        match self.reach {
            Reach::No => Err(DriverError::Unsupported("steered while it works")),
            Reach::Prompt => Ok(self.ask(words)),
            Reach::Extension => Ok(self.rpc.ask("_session/steering", &self.words(words))),
        }
    }

    fn interrupt(&mut self) -> Result<Vec<u8>, DriverError> {
        if self.prompts == 0 {
            return Err(DriverError::Idle);
        }
        let mut bytes = self
            .rpc
            .tell("session/cancel", &json!({ "sessionId": self.session }));
        for (id, (asked, _)) in self.waiting.drain() {
            bytes.extend(self.rpc.answer(&asked, &cancelled()));
            self.interrupted.push(id);
        }
        Ok(bytes)
    }

    fn answer_permission(&mut self, id: &str, answer: &Answer) -> Result<Vec<u8>, DriverError> {
        let (asked, choices) = self.waiting.remove(id).ok_or(DriverError::Unknown)?;
        let kinds: &[&str] = match answer {
            Answer::Once => &["allow_once"],
            Answer::Session => &["allow_always", "allow_once"],
            Answer::No(_) => &["reject_once", "reject_always"],
        };
        let choice = kinds
            .iter()
            .find_map(|kind| choices.iter().find(|choice| choice.kind == *kind));
        // An agent that offers no way to say this once gets no answer that says more.
        let result = choice.map_or_else(
            cancelled,
            |choice| json!({ "outcome": { "outcome": "selected", "optionId": choice.id } }),
        );
        Ok(self.rpc.answer(&asked, &result))
    }

    fn take(&mut self, bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        let interrupted = self.interrupted.drain(..);
        heard.said.extend(interrupted.map(|id| Said::Withdrawn { id }));
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
        self.prompts > 0
    }
}

#[cfg(test)]
mod tests;
