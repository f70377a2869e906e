//! The Agent Client Protocol from the agent's end: an editor speaks to it, and a fenced agent behind it does the work.
//!
//! **Trust:** the editor is its user's. The agent is not: what it says reaches the editor as text and tool calls only,
//! and no request of it for a file or a terminal of the host is passed on.
mod prompt;

use self::prompt::{kind_of, words};
use crate::call_name::CallName;
use crate::driver::{AgentDriver, Answer, DriverError, Heard, Permission, Said, Session, ToolState, TurnEnd};
use crate::lines::Lines;
use crate::reading::{self, id, text};
use crate::rpc::{Dialect, Message, Rpc};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The one conversation of this process.
/// Id of a session whose run has no name.
const UNNAMED: &str = "bastle";
/// Tool calls whose beginning was told; older ones are told anew, which an editor understands.
const MOST_TOOLS: usize = 4096;
/// Questions to the editor that wait at once.
const MOST_QUESTIONS: usize = 64;

/// What has to be written where, and what the person answered.
#[derive(Debug, Default, PartialEq)]
pub struct Flow {
    /// To the editor.
    pub editor: Vec<u8>,
    /// To the agent.
    pub agent: Vec<u8>,
    /// Answers to questions that were put by [`Editor::ask`].
    pub answers: Vec<(String, Answer)>,
    /// A conversation that waits for [`Editor::opened`].
    pub opening: Option<Opening>,
    /// The request that ended the conversation: it waits for [`Editor::closed`].
    pub closing: Option<Value>,
}

/// A conversation that an editor wants to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    asked: Value,
    /// The directory of the project, as the editor names it.
    pub cwd: String,
    /// Servers of the editor that the agent should use.
    pub servers: usize,
}

/// Who asked what the editor shows.
#[derive(Debug)]
enum Asker {
    /// The agent's own permission layer.
    Agent(String),
    /// bastle.
    Fence(String),
}

/// Between an editor and a driven agent.
pub struct Editor {
    lines: Lines,
    rpc: Rpc,
    driver: Box<dyn AgentDriver>,
    /// The project: the directory an editor may ask for. Without: it names one, and somebody starts the agent there.
    cwd: Option<String>,
    /// Its id: the name of the run, so that an editor with several processes never mixes two conversations up.
    session: String,
    open: bool,
    /// Prompts of the editor that wait for the end of the turn.
    prompts: Vec<Value>,
    /// Tool calls of the agent, by its names for them, and our numbers. The editor only ever sees ours: an agent that calls
    /// something like one of our questions cannot change what the person is shown there.
    tools: BTreeMap<String, u64>,
    numbered: u64,
    questions: BTreeMap<String, Asker>,
    asked: u64,
}

impl Editor {
    /// An agent that works in `cwd`, and what is written to it first.
    #[must_use]
    pub fn new(mut driver: Box<dyn AgentDriver>, session: &Session) -> (Self, Vec<u8>) {
        let first = driver.start(session);
        let mut editor = Self::unopened(driver);
        editor.cwd = Some(session.cwd.clone());
        (editor, first)
    }

    /// An agent that is started when the editor has named its project: see [`Flow::opening`].
    #[must_use]
    pub fn unopened(driver: Box<dyn AgentDriver>) -> Self {
        Self {
            lines: Lines::default(),
            rpc: Rpc::new(Dialect::Versioned),
            driver,
            cwd: None,
            session: UNNAMED.to_owned(),
            open: false,
            prompts: Vec::new(),
            tools: BTreeMap::new(),
            numbered: 0,
            questions: BTreeMap::new(),
            asked: 0,
        }
    }

    /// The agent of a conversation was started in the run of this name and is behind this driver, or it was not.
    pub fn opened(
        &mut self,
        opening: &Opening,
        begun: Result<(String, Box<dyn AgentDriver>), String>,
    ) -> Vec<u8> {
        match begun {
            Ok((run, driver)) => {
                self.driver = driver;
                self.session = run;
                self.cwd = Some(opening.cwd.clone());
                self.open = true;
                self.rpc
                    .answer(&opening.asked, &json!({ "sessionId": self.session }))
            }
            Err(why) => error(&opening.asked, -32603, &why),
        }
    }

    fn is_ours(&self, params: &Value) -> bool {
        params.get("sessionId").and_then(Value::as_str) == Some(self.session.as_str())
    }

    /// The conversation is over: what waits is answered, and so is who ended it.
    pub fn closed(&mut self, asked: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        for prompt in std::mem::take(&mut self.prompts) {
            let stopped = json!({ "stopReason": "cancelled" });
            bytes.extend(self.rpc.answer(&prompt, &stopped));
        }
        bytes.extend(self.rpc.answer(asked, &json!({})));
        self.open = false;
        bytes
    }

    /// A message of bastle itself.
    #[must_use]
    pub fn message(&self, text: &str) -> Vec<u8> {
        self.chunk("agent_message_chunk", text)
    }

    /// A remark of bastle itself.
    #[must_use]
    pub fn thought(&self, text: &str) -> Vec<u8> {
        self.chunk("agent_thought_chunk", text)
    }

    /// What was said to the agent was not taken: whatever waits for it is answered.
    pub fn refused(&mut self, why: &str) -> Vec<u8> {
        let waiting = std::mem::take(&mut self.prompts);
        waiting
            .iter()
            .flat_map(|asked| error(asked, -32603, why))
            .collect()
    }

    /// What the agent behind it used.
    #[must_use]
    pub fn driver(&self) -> &dyn AgentDriver {
        &*self.driver
    }

    /// Takes what the editor wrote.
    pub fn from_editor(&mut self, bytes: &[u8]) -> Flow {
        let mut flow = Flow::default();
        for message in self.lines.messages(bytes) {
            match message {
                Ok(value) => self.hear(&value, &mut flow),
                Err(_) => {
                    let why = "not a JSON object on one line, or too long";
                    flow.editor.extend(error(&Value::Null, -32700, why));
                }
            }
        }
        flow
    }

    /// Takes what the agent printed.
    pub fn from_agent(&mut self, bytes: &[u8]) -> Flow {
        let Heard { said, reply } = self.driver.take(bytes);
        let mut flow = Flow {
            agent: reply,
            ..Flow::default()
        };
        for said in said {
            self.tell(said, &mut flow);
        }
        flow
    }

    /// Puts a question of the fence to the person; the answer comes with a later [`Flow`]. `None`: too many wait, or
    /// nobody opened a conversation.
    pub fn ask(&mut self, question: &str, title: &str, input: &Value) -> Option<Vec<u8>> {
        let asker = Asker::Fence(question.to_owned());
        self.put(asker, title, "other", input)
    }

    /// The agent is gone: whatever waits is answered.
    pub fn agent_gone(&mut self) -> Vec<u8> {
        self.refused("the agent ended; bastle logs tells more")
    }

    fn hear(&mut self, value: &Value, flow: &mut Flow) {
        match self.rpc.read_named(value) {
            Message::Request { id, method, params } => self.request(&id, &method, &params, flow),
            Message::Told { method, params } if method == "session/cancel" && self.is_ours(&params) => {
                if let Ok(bytes) = self.driver.interrupt() {
                    flow.agent.extend(bytes);
                }
            }
            Message::Told { .. } | Message::Answered { .. } => {}
            Message::Odd => self.answered(value, flow),
        }
    }

    fn request(&mut self, asked: &Value, method: &str, params: &Value, flow: &mut Flow) {
        match method {
            "initialize" => {
                // Another version is answered with ours, and the editor decides; what is no version is a mistake.
                let known = params.get("protocolVersion").is_some_and(Value::is_u64);
                flow.editor.extend(if known {
                    self.rpc.answer(asked, &hello())
                } else {
                    error(asked, -32602, "protocolVersion is a number")
                });
            }
            "authenticate" => flow.editor.extend(self.rpc.answer(asked, &json!({}))),
            "session/new" => self.begin(asked, params, flow),
            "session/prompt" | "session/close" | "_session/steering"
                if !self.open || !self.is_ours(params) =>
            {
                flow.editor
                    .extend(error(asked, -32602, "no such session: call session/new first"));
            }
            "session/prompt" => self.prompt(asked, params, flow),
            "session/close" if self.cwd.is_some() => flow.closing = Some(asked.clone()),
            "_session/steering" => {
                let outcome = match self.driver.steer(&words(params)) {
                    Ok(bytes) => {
                        flow.agent.extend(bytes);
                        "injected"
                    }
                    Err(DriverError::Idle) => "promptRequired",
                    Err(_) => "failed",
                };
                flow.editor
                    .extend(self.rpc.answer(asked, &json!({ "outcome": outcome })));
            }
            _ => flow.editor.extend(self.rpc.refuse(asked)),
        }
    }

    /// One conversation, in the project that is fenced.
    fn begin(&mut self, asked: &Value, params: &Value, flow: &mut Flow) {
        let wanted = text(params, "/cwd").unwrap_or_default();
        if self.open || flow.opening.is_some() {
            let why = "one conversation each: start another bastle acp for another";
            flow.editor.extend(error(asked, -32603, why));
            return;
        }
        let upwards = wanted.split('/').any(|part| part == "..");
        let Some(cwd) = &self.cwd else {
            if upwards || !wanted.starts_with('/') {
                let why = "cwd is an absolute path without ..";
                flow.editor.extend(error(asked, -32602, why));
                return;
            }
            let servers = params.get("mcpServers").and_then(Value::as_array);
            flow.opening = Some(Opening {
                asked: asked.clone(),
                cwd: wanted,
                servers: servers.map_or(0, Vec::len),
            });
            return;
        };
        let within = wanted == *cwd
            || wanted
                .strip_prefix(cwd.as_str())
                .is_some_and(|rest| rest.starts_with('/'));
        if !within || upwards {
            let why = format!("{wanted} is not within the fenced project {cwd}");
            flow.editor.extend(error(asked, -32602, &why));
            return;
        }
        self.open = true;
        flow.editor
            .extend(self.rpc.answer(asked, &json!({ "sessionId": self.session })));
    }

    fn prompt(&mut self, asked: &Value, params: &Value, flow: &mut Flow) {
        let words = words(params);
        let sent = match self.driver.prompt(&words) {
            // An editor that asks while the agent works means it for now.
            Err(DriverError::Busy) => self.driver.steer(&words),
            other => other,
        };
        match sent {
            Ok(bytes) => {
                flow.agent.extend(bytes);
                self.prompts.push(asked.clone());
            }
            Err(why) => flow.editor.extend(error(asked, -32602, &why.to_string())),
        }
    }

    /// The editor answered a request of ours.
    fn answered(&mut self, value: &Value, flow: &mut Flow) {
        let Some(asker) = id(value, "/id").and_then(|name| self.questions.remove(&name)) else {
            return;
        };
        let answer = match text(value, "/result/outcome/optionId").as_deref() {
            Some("once") => Answer::Once,
            Some("session") => Answer::Session,
            Some(_) | None => Answer::No("refused by the person at the editor".to_owned()),
        };
        match asker {
            Asker::Fence(question) => flow.answers.push((question, answer)),
            Asker::Agent(request) => {
                if let Ok(bytes) = self.driver.answer_permission(&request, &answer) {
                    flow.agent.extend(bytes);
                }
            }
        }
    }

    fn tell(&mut self, said: Said, flow: &mut Flow) {
        match said {
            Said::Text { text } => flow.editor.extend(self.chunk("agent_message_chunk", &text)),
            Said::Thought { text } | Said::Trouble { text } => {
                flow.editor.extend(self.chunk("agent_thought_chunk", &text));
            }
            Said::Tool {
                id,
                name,
                state,
                input,
            } => flow.editor.extend(self.tool(&id, &name, state, &input)),
            Said::Permission(Permission {
                id,
                tool,
                title,
                input,
                words,
            }) => {
                let asker = Asker::Agent(id.clone());
                let title = match words {
                    Some(words) => format!("{title} (the agent says: {words:?})"),
                    None => title,
                };
                match self.put(asker, &title, kind_of(&tool), &input) {
                    Some(bytes) => flow.editor.extend(bytes),
                    None => {
                        let no = Answer::No("nobody can be asked".to_owned());
                        flow.agent
                            .extend(self.driver.answer_permission(&id, &no).unwrap_or_default());
                    }
                }
            }
            Said::Withdrawn { id } => self.withdrawn(&id, flow),
            Said::TurnEnded { how, .. } => {
                let reason = match how {
                    TurnEnd::Done | TurnEnd::Failed => "end_turn",
                    TurnEnd::Interrupted => "cancelled",
                    TurnEnd::Limit => "max_turn_requests",
                    TurnEnd::Refused => "refusal",
                };
                for asked in std::mem::take(&mut self.prompts) {
                    flow.editor
                        .extend(self.rpc.answer(&asked, &json!({ "stopReason": reason })));
                }
            }
            Said::Ready { .. }
            | Said::TurnBegan
            | Said::Steered { .. }
            | Said::Usage(_)
            | Said::Noise { .. } => {}
        }
    }

    /// Somebody else answered, or nobody has to: the editor need not ask any more.
    fn withdrawn(&mut self, request: &str, flow: &mut Flow) {
        let of = |asker: &Asker| matches!(asker, Asker::Agent(asked) if asked == request);
        let gone: Vec<String> = self
            .questions
            .iter()
            .filter(|(_, asker)| of(asker))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.questions.remove(&name);
            flow.editor
                .extend(self.rpc.tell("$/cancel_request", &json!({ "requestId": name })));
        }
    }

    fn tool(&mut self, id: &str, name: &str, state: ToolState, input: &Value) -> Vec<u8> {
        if self.tools.len() >= MOST_TOOLS {
            self.tools.clear();
        }
        let status = match state {
            ToolState::Pending => "pending",
            ToolState::Running => "in_progress",
            ToolState::Completed => "completed",
            ToolState::Failed => "failed",
        };
        let known = self.tools.get(id).copied();
        let number = known.unwrap_or_else(|| {
            self.numbered += 1;
            self.tools.insert(id.to_owned(), self.numbered);
            self.numbered
        });
        let mut update = json!({ "toolCallId": CallName::Agent(number).to_string(), "status": status });
        if known.is_none() {
            update["sessionUpdate"] = json!("tool_call");
            update["title"] = json!(name);
            update["kind"] = json!(kind_of(name));
        } else {
            update["sessionUpdate"] = json!("tool_call_update");
        }
        if !input.is_null() {
            update["rawInput"] = input.clone();
        }
        self.update(&update)
    }

    fn chunk(&self, kind: &str, text: &str) -> Vec<u8> {
        self.update(&json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
    }

    fn update(&self, update: &Value) -> Vec<u8> {
        if !self.open {
            return Vec::new();
        }
        self.rpc.tell(
            "session/update",
            &json!({ "sessionId": self.session, "update": update }),
        )
    }

    fn put(&mut self, asker: Asker, title: &str, kind: &str, input: &Value) -> Option<Vec<u8>> {
        if !self.open || self.questions.len() >= MOST_QUESTIONS {
            return None;
        }
        self.asked += 1;
        let name = format!("bastle-{}", self.asked);
        let options = json!([
            { "optionId": "once", "name": "Allow once", "kind": "allow_once" },
            { "optionId": "session", "name": "Allow for this run", "kind": "allow_always" },
            { "optionId": "no", "name": "Deny", "kind": "reject_once" },
        ]);
        let call = json!({ "toolCallId": CallName::Question(self.asked).to_string(), "title": title, "kind": kind, "status": "pending", "rawInput": input });
        let request = json!({ "jsonrpc": "2.0", "id": name, "method": "session/request_permission",
            "params": { "sessionId": self.session, "toolCall": call, "options": options } });
        self.questions.insert(name, asker);
        Some(reading::line(&request))
    }
}

fn hello() -> Value {
    json!({ "protocolVersion": 1,
        "agentCapabilities": { "loadSession": false,
            "promptCapabilities": { "image": false, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": false, "sse": false },
            "sessionCapabilities": { "close": {} } },
        "agentInfo": { "name": "bastle", "title": "bastle", "version": env!("CARGO_PKG_VERSION") },
        "authMethods": [], "_meta": { "steering": { "supported": true } } })
}

fn error(asked: &Value, code: i32, why: &str) -> Vec<u8> {
    reading::line(&json!({ "jsonrpc": "2.0", "id": asked, "error": { "code": code, "message": why } }))
}
