//! Codex as an app server over its standard streams: JSON-RPC without its version, threads and turns.
use crate::asking::{self, Waiting, name_of};
use crate::driver::{
    AgentDriver, AgentUsage, Answer, DriverError, Heard, Permission, Said, Session, Steering, ToolState,
    TurnEnd, bounded,
};
use crate::lines::Lines;
use crate::reading::{self, count, id, text};
use crate::rpc::{Dialect, Message, Rpc};
use serde_json::{Value, json};

/// The conversation with it.
#[derive(Debug)]
pub struct Codex {
    lines: Lines,
    rpc: Rpc,
    session: Session,
    thread: Option<String>,
    turn: Option<String>,
    working: bool,
    /// A prompt that came before it was ready.
    held: Option<String>,
    waiting: Waiting<(Value, Sort)>,
    usage: AgentUsage,
}

/// What kind of answer a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// `{decision}`.
    Decision,
    /// `{permissions}`: none is given, for the fence does not change by an agent's wish.
    Permissions,
}

impl Default for Codex {
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            rpc: Rpc::new(Dialect::Bare),
            session: Session::default(),
            thread: None,
            turn: None,
            working: false,
            held: None,
            waiting: Waiting::default(),
            usage: AgentUsage::default(),
        }
    }
}

impl Codex {
    fn hear(&mut self, value: &Value, heard: &mut Heard) {
        match self.rpc.read(value) {
            Message::Answered { asked, result } => self.answered(asked, result, heard),
            Message::Told { method, params } => self.told(&method, &params, heard),
            Message::Request { id, method, params } => self.request(id, &method, &params, heard),
            Message::Odd => heard.said.push(reading::noise(value.to_string().as_bytes())),
        }
    }

    fn answered(&mut self, asked: &'static str, result: Result<Value, String>, heard: &mut Heard) {
        let result = match result {
            Ok(result) => result,
            Err(why) => {
                match asked {
                    "turn/steer" => heard.said.push(Said::Steered {
                        how: Steering::Failed,
                    }),
                    // What was asked, or held back until it could be, is not done any more.
                    "initialize" | "thread/start" | "turn/start" => {
                        self.working = false;
                        self.held = None;
                        heard.said.push(Said::TurnEnded {
                            how: TurnEnd::Failed,
                            text: Some(why.clone()),
                        });
                    }
                    _ => {}
                }
                heard.said.push(Said::Trouble {
                    text: format!("{asked}: {why}"),
                });
                return;
            }
        };
        match asked {
            "initialize" => {
                heard.reply.extend(self.rpc.tell("initialized", &json!({})));
                // Its own sandbox cannot be built inside ours, and is not needed: asking is what it keeps. Without a
                // sandbox it asks about nothing but with this policy.
                let mut params = json!({ "cwd": self.session.cwd, "approvalPolicy": "untrusted",
                    "sandbox": "danger-full-access" });
                if let Some(model) = &self.session.model {
                    params["model"] = json!(model);
                }
                heard.reply.extend(self.rpc.ask("thread/start", &params));
            }
            "thread/start" => {
                self.thread = id(&result, "/thread/id");
                heard.said.push(Said::Ready {
                    session: self.thread.clone(),
                    agent: Some("codex".to_owned()),
                });
                if let Some(words) = self.held.take() {
                    heard.reply.extend(self.begin(&words));
                }
            }
            "turn/start" => self.turn = id(&result, "/turn/id"),
            "turn/steer" => heard.said.push(Said::Steered {
                how: Steering::Injected,
            }),
            _ => {}
        }
    }

    fn told(&mut self, method: &str, params: &Value, heard: &mut Heard) {
        match method {
            "turn/started" => {
                self.working = true;
                self.turn = id(params, "/turn/id").or(self.turn.take());
                heard.said.push(Said::TurnBegan);
            }
            "item/started" => heard.said.extend(item(params, ToolState::Running)),
            "item/completed" => heard.said.extend(item(params, ToolState::Completed)),
            "thread/tokenUsage/updated" => {
                self.usage.turns += 1;
                self.usage.input_tokens = count(params, "/tokenUsage/total/inputTokens");
                self.usage.output_tokens = count(params, "/tokenUsage/total/outputTokens");
                heard.said.push(Said::Usage(self.usage.clone()));
            }
            "serverRequest/resolved" => {
                if let Some(name) = params.get("requestId").map(name_of)
                    && self.waiting.remove(&name).is_some()
                {
                    heard.said.push(Said::Withdrawn { id: name });
                }
            }
            "turn/completed" => {
                self.working = false;
                self.turn = None;
                let how = match text(params, "/turn/status").as_deref() {
                    Some("completed") => TurnEnd::Done,
                    Some("interrupted") => TurnEnd::Interrupted,
                    Some(_) | None => TurnEnd::Failed,
                };
                let withdrawn = self.waiting.drain();
                heard
                    .said
                    .extend(withdrawn.into_keys().map(|id| Said::Withdrawn { id }));
                heard.said.push(Said::TurnEnded {
                    how,
                    text: text(params, "/turn/error/message"),
                });
            }
            "error" => heard.said.extend(
                text(params, "/error/message")
                    .or_else(|| text(params, "/message"))
                    .map(|text| Said::Trouble { text }),
            ),
            // Deltas, plans, diffs and what newer versions tell: the whole comes with the item.
            _ => {}
        }
    }

    fn request(&mut self, asked: Value, method: &str, params: &Value, heard: &mut Heard) {
        let (sort, tool) = match method {
            "item/commandExecution/requestApproval" => (Sort::Decision, "command"),
            "item/fileChange/requestApproval" => (Sort::Decision, "file change"),
            "item/permissions/requestApproval" => (Sort::Permissions, "permissions"),
            _ => {
                heard.reply.extend(self.rpc.refuse(&asked));
                return;
            }
        };
        let name = name_of(&asked);
        if let Err(why) = self.waiting.take_in(&name, (asked.clone(), sort)) {
            heard.reply.extend(self.rpc.refuse_as(&asked, why.words()));
            return;
        }
        heard.said.push(Said::Permission(Permission {
            id: name,
            tool: tool.to_owned(),
            title: asking::title(tool, params),
            input: reading::bounded(Some(params)),
            words: asking::words(params, "/reason"),
        }));
    }

    fn begin(&mut self, words: &str) -> Vec<u8> {
        self.working = true;
        self.rpc.ask(
            "turn/start",
            &json!({ "threadId": self.thread, "input": input(words) }),
        )
    }
}

fn input(words: &str) -> Value {
    json!([{ "type": "text", "text": words }])
}

/// What an item says, by its kind.
fn item(params: &Value, state: ToolState) -> Option<Said> {
    let item = params.get("item")?;
    let done = state == ToolState::Completed;
    match item.get("type").and_then(Value::as_str)? {
        "agentMessage" => done.then(|| text(item, "/text").map(|text| Said::Text { text }))?,
        "reasoning" => done.then(|| {
            let summary = item.get("summary").map(Value::to_string).unwrap_or_default();
            Said::Thought {
                text: reading::cut(&summary),
            }
        }),
        "userMessage" => None,
        kind => {
            let failed = matches!(text(item, "/status").as_deref(), Some("failed" | "declined"));
            Some(Said::Tool {
                id: id(item, "/id").unwrap_or_default(),
                name: kind.to_owned(),
                state: if failed { ToolState::Failed } else { state },
                input: reading::bounded(item.get("command").or_else(|| item.get("changes"))),
            })
        }
    }
}

impl AgentDriver for Codex {
    fn start(&mut self, session: &Session) -> Vec<u8> {
        self.session = session.clone();
        let info = json!({ "clientInfo": { "name": "bastle", "title": "bastle", "version": env!("CARGO_PKG_VERSION") } });
        self.rpc.ask("initialize", &info)
    }

    fn prompt(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        if self.working || self.held.is_some() {
            return Err(DriverError::Busy);
        }
        if self.thread.is_none() {
            self.held = Some(words.to_owned());
            return Ok(Vec::new());
        }
        Ok(self.begin(words))
    }

    fn steer(&mut self, words: &str) -> Result<Vec<u8>, DriverError> {
        let words = bounded(words)?;
        let Some(turn) = self.turn.as_ref().filter(|_| self.working) else {
            return Err(DriverError::Idle);
        };
        let params = json!({ "threadId": self.thread, "input": input(words), "expectedTurnId": turn });
        Ok(self.rpc.ask("turn/steer", &params))
    }

    fn interrupt(&mut self) -> Result<Vec<u8>, DriverError> {
        let Some(turn) = self.turn.as_ref().filter(|_| self.working) else {
            return Err(DriverError::Idle);
        };
        let params = json!({ "threadId": self.thread, "turnId": turn });
        Ok(self.rpc.ask("turn/interrupt", &params))
    }

    fn answer_permission(&mut self, id: &str, answer: &Answer) -> Result<Vec<u8>, DriverError> {
        let (asked, sort) = self.waiting.remove(id).ok_or(DriverError::Unknown)?;
        let result = match (sort, answer) {
            (Sort::Decision, Answer::Once) => json!({ "decision": "accept" }),
            (Sort::Decision, Answer::Session) => json!({ "decision": "acceptForSession" }),
            (Sort::Decision, Answer::No(_)) => json!({ "decision": "decline" }),
            (Sort::Permissions, _) => json!({ "permissions": {} }),
        };
        Ok(self.rpc.answer(&asked, &result))
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

    fn ready() -> Codex {
        let mut codex = Codex::default();
        codex.start(&Session {
            cwd: "/w".into(),
            model: None,
        });
        let heard = codex.take(b"{\"id\":0,\"result\":{}}\n");
        let asked = String::from_utf8(heard.reply).unwrap();
        assert!(
            asked.contains("\"initialized\"") && asked.contains("thread/start"),
            "{asked}"
        );
        assert!(!asked.contains("jsonrpc"), "{asked}");
        let heard = codex.take(b"{\"id\":1,\"result\":{\"thread\":{\"id\":\"t\"}}}\n");
        assert!(matches!(heard.said.as_slice(), [Said::Ready { .. }]));
        codex
    }

    #[test]
    fn a_prompt_before_it_is_ready_is_held_and_a_second_one_is_refused() {
        let mut codex = Codex::default();
        codex.start(&Session::default());
        assert_eq!(codex.prompt("first"), Ok(Vec::new()));
        assert_eq!(codex.prompt("second"), Err(DriverError::Busy));
        codex.take(b"{\"id\":0,\"result\":{}}\n");
        let heard = codex.take(b"{\"id\":1,\"result\":{\"thread\":{\"id\":\"t\"}}}\n");
        assert!(String::from_utf8(heard.reply).unwrap().contains("first"));
    }

    #[test]
    fn it_is_steered_only_within_the_turn_that_works() {
        let mut codex = ready();
        assert_eq!(codex.steer("x"), Err(DriverError::Idle));
        codex.prompt("go").unwrap();
        codex.take(b"{\"method\":\"turn/started\",\"params\":{\"turn\":{\"id\":\"u\"}}}\n");
        let steer: Value = serde_json::from_slice(&codex.steer("rather").unwrap()).unwrap();
        assert_eq!(steer.pointer("/params/expectedTurnId"), Some(&json!("u")));
        let id = steer["id"].clone();
        let late = json!({ "id": id, "error": { "code": -32600, "message": "no active turn to steer" } });
        let heard = codex.take(&reading::line(&late));
        assert_eq!(
            heard.said.first(),
            Some(&Said::Steered {
                how: Steering::Failed
            })
        );
        let done = json!({ "method": "turn/completed", "params": { "turn": { "id": "u", "status": "interrupted" } } });
        let heard = codex.take(&reading::line(&done));
        let how = TurnEnd::Interrupted;
        assert_eq!(heard.said.last(), Some(&Said::TurnEnded { how, text: None }));
        assert_eq!(codex.interrupt(), Err(DriverError::Idle));
    }

    #[test]
    fn a_number_and_the_same_number_as_text_are_one_id_that_waits_once() {
        let mut codex = ready();
        let asks = |id: Value, command: &str| {
            reading::line(
                &json!({ "id": id, "method": "item/commandExecution/requestApproval",
                "params": { "command": command, "reason": "bastle says: safe", "threadId": "t" } }),
            )
        };
        let heard = codex.take(&asks(json!(10), "ls"));
        let [Said::Permission(asked)] = heard.said.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!(asked.title, "command: command \"ls\"");
        assert_eq!(asked.words.as_deref(), Some("bastle says: safe"));
        for id in [json!(10), json!("10")] {
            let heard = codex.take(&asks(id, "rm -rf /"));
            assert!(heard.said.is_empty(), "{heard:?}");
            assert!(String::from_utf8(heard.reply).unwrap().contains("waits already"));
        }
        let yes = codex.answer_permission("10", &Answer::Once).unwrap();
        let yes: Value = serde_json::from_slice(&yes).unwrap();
        assert_eq!(yes["id"], json!(10), "the request that was shown");
        assert_eq!(
            codex.answer_permission("10", &Answer::Once),
            Err(DriverError::Unknown)
        );
    }

    #[test]
    fn a_wish_for_wider_permissions_is_never_granted_and_unknown_requests_are_refused() {
        let mut codex = ready();
        let wish = json!({ "id": "p1", "method": "item/permissions/requestApproval",
            "params": { "permissions": { "fileSystem": { "write": ["/"] } } } });
        codex.take(&reading::line(&wish));
        let answer: Value =
            serde_json::from_slice(&codex.answer_permission("p1", &Answer::Session).unwrap()).unwrap();
        assert_eq!(answer, json!({ "id": "p1", "result": { "permissions": {} } }));
        let odd = json!({ "id": 9, "method": "attestation/generate", "params": {} });
        let heard = codex.take(&reading::line(&odd));
        assert!(String::from_utf8(heard.reply).unwrap().contains("-32601"));
        let command = json!({ "id": 10, "method": "item/commandExecution/requestApproval",
            "params": { "command": "rm -rf /", "threadId": "t" } });
        let heard = codex.take(&reading::line(&command));
        assert!(matches!(heard.said.as_slice(), [Said::Permission(asked)] if asked.id == "10"));
        let no = codex.answer_permission("10", &Answer::No("no".into())).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&no).unwrap(),
            json!({ "id": 10, "result": { "decision": "decline" } })
        );
    }
}
