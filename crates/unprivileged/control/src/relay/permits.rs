//! What the agent's own permission layer asks: answered by the rules of the run, by what a person said before about the
//! same, by a person, or with no.
//!
//! **Trust:** what it asks is untrusted text. A yes widens nothing: the fence holds whatever is answered.
use super::Relay;
use crate::live::Scope;
use crate::voice::{Reply, ToolWish};
use bastle_agents::{Answer, Permission};
use bastle_audit::AuditEvent;
use bastle_contract::Fault;
use bastle_policy::Permit;
use serde_json::json;

/// Permission requests that are recorded one by one: an agent must not fill the disk with its own wishes.
const MOST_RECORDED: u64 = 5_000;
/// Bytes of what was asked in a record.
const MOST_USED: usize = 1024;
/// Answers for the rest of the run that are kept.
const MOST_REMEMBERED: usize = 256;

/// Who answered.
struct Settled {
    answer: Answer,
    by: &'static str,
    rule: Option<String>,
}

impl Relay<'_> {
    /// The rules settle it, or a person is asked, or the answer is no.
    pub(super) fn permission(&mut self, permission: Permission) -> Result<(), Fault> {
        let Some(driven) = self.driven() else {
            return Ok(());
        };
        driven.asked += 1;
        let number = driven.asked;
        let question = format!("p_{number}");
        let used = permission.used(&driven.cwd);
        let settled = driven.settled(&permission, &used);
        let Permission {
            id,
            tool,
            title,
            input,
            words,
        } = permission;
        driven.waiting.insert(question.clone(), id);
        let wish = ToolWish {
            tool,
            title,
            input,
            words: words.map(String::from),
        };
        let hash = blake3::Hash::from(same(&wish.tool, &wish.input))
            .to_hex()
            .to_string();
        // Before anybody can say yes to it.
        if number <= MOST_RECORDED {
            let text = format!("{question} {}: {} {}", wish.tool, wish.title, wish.input);
            self.note_durably("the agent asks for permission", &text)?;
        }
        if let Some(settled) = settled {
            return self.settle_permission((&question, &hash), &used, settled);
        }
        if self.ask_tool(question.clone(), wish)? {
            return Ok(());
        }
        let settled = Settled {
            answer: Answer::No("nobody can be asked".to_owned()),
            by: "unattended",
            rule: None,
        };
        self.settle_permission((&question, &hash), &used, settled)
    }

    /// An answer without a person: recorded, told, given.
    fn settle_permission(&mut self, asked: (&str, &str), used: &str, settled: Settled) -> Result<(), Fault> {
        let (question, hash) = asked;
        let Settled { answer, by, rule } = settled;
        let allow = !matches!(answer, Answer::No(_));
        let used = &used[..used.floor_char_boundary(MOST_USED)];
        let number = self.driven().map_or(0, |driven| driven.asked);
        if number <= MOST_RECORDED {
            self.record.durable(&AuditEvent::ToolAnswered {
                id: question.to_owned(),
                used: used.to_owned(),
                allow,
                by: by.to_owned(),
                rule: rule.clone(),
                hash: Some(hash.to_owned()),
            })?;
            let verdict = if allow { "allowed" } else { "denied" };
            let data = json!({ "id": question, "used": used, "verdict": verdict, "by": by, "rule": rule, "hash": hash });
            self.voice.happened("permit", data);
        }
        self.answer_agent(question, &answer);
        Ok(())
    }

    pub(super) fn withdrawn_permission(&mut self, request: &str) -> Result<(), Fault> {
        let Some(driven) = self.driven() else {
            return Ok(());
        };
        let question = driven.waiting.iter().find(|(_, waits)| *waits == request);
        let Some(question) = question.map(|(question, _)| question.clone()) else {
            return Ok(());
        };
        driven.waiting.remove(&question);
        self.forget_question(&question)
    }

    /// What a person said about a permission. For the rest of the run it holds for exactly the same.
    pub(super) fn permit(&mut self, question: &str, wish: &ToolWish, reply: Reply, scope: Scope) {
        let answer = match (reply, scope) {
            (Reply::Yes, Scope::Once) => Answer::Once,
            (Reply::Yes, Scope::Session) => {
                if let Some(driven) = self.driven()
                    && driven.remembered.len() < MOST_REMEMBERED
                    && is_known(&wish.input)
                {
                    driven.remembered.insert(same(&wish.tool, &wish.input));
                }
                Answer::Session
            }
            (Reply::No, _) => Answer::No("refused".to_owned()),
        };
        self.answer_agent(question, &answer);
    }

    fn answer_agent(&mut self, question: &str, answer: &Answer) {
        let Some(driven) = self.driven() else {
            return;
        };
        let Some(request) = driven.waiting.remove(question) else {
            return;
        };
        // One that does not wait any more needs no answer.
        if let Ok(bytes) = driven.driver.answer_permission(&request, answer) {
            self.pending.extend(bytes);
        }
    }
}

/// What two requests have in common that are the same.
fn same(tool: &str, input: &serde_json::Value) -> [u8; 32] {
    *blake3::hash(format!("{tool}\n{input}").as_bytes()).as_bytes()
}

/// Whether an input says what is wanted. One that was too long to be shown, or that says nothing (ACP has it as an option),
/// is not known to be the same as another.
fn is_known(input: &serde_json::Value) -> bool {
    use serde_json::Value;
    match input {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty() && !fields.contains_key("left_out"),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

impl crate::keeper::Driven {
    /// What is known about it without asking anybody.
    fn settled(&self, permission: &Permission, used: &str) -> Option<Settled> {
        let settled = |answer, by, rule| Some(Settled { answer, by, rule });
        let ruled = self
            .policy
            .as_ref()
            .map(|policy| bastle_policy::permit(policy, used));
        match ruled {
            // What a rule denies stays denied, whatever a person said before.
            Some(Permit::Denied { reason }) => settled(Answer::No(reason.clone()), "rule", Some(reason)),
            Some(Permit::Allowed { rule }) => settled(Answer::Once, "rule", rule),
            Some(Permit::Ask) | None => {
                let known = self
                    .remembered
                    .contains(&same(&permission.tool, &permission.input));
                if known && is_known(&permission.input) {
                    return settled(Answer::Once, "person", None);
                }
                None
            }
        }
    }
}
