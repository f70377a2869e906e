//! What was asked, why it is refused, and the answer that says so: one text for the agent, the audit and the person.
//!
//! **Trust:** hosts, methods and paths come from the agent. They are cleaned and cut here, in the one place where a
//! [`NetDecision`] is made; query strings and users never get in.
use crate::http1::{Answer, Persist};
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::{Face, LOCAL_NAME, NetDecision, NetVerdict};
use bastle_policy::Decision;
use serde_json::json;

/// Longest host shown: the longest name by DNS, with its port.
const MAX_HOST: usize = 256;
/// Longest path shown.
const MAX_PATH: usize = 1_024;
/// Longest method or operation shown.
const MAX_WORD: usize = 256;

/// What somebody wanted, cleaned for showing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    face: Face,
    method: Option<String>,
    host: String,
    port: u16,
    path: Option<String>,
    operation: Option<String>,
}

/// Why it was decided so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grounds {
    /// Code of a refusal.
    pub code: Option<Code>,
    /// The rule that decided, and where it stands.
    pub rule: Option<String>,
    /// One sentence.
    pub reason: String,
    /// What would allow it.
    pub help: Vec<String>,
}

/// A refusal that has been counted and reported: proof that nobody is refused in silence.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    decision: NetDecision,
    pace: Pace,
}

/// How fast the same denial comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As it should.
    Usual,
    /// In a loop.
    Looping,
    /// Among so many of its kind that it is not listed by itself.
    Flooding,
}

impl Asked {
    /// A whole connection.
    pub(crate) fn connection(via: &Via) -> Self {
        Self::raw(via.face, via.host.as_str(), via.port)
    }

    /// A destination that may be malformed.
    pub(crate) fn raw(face: Face, host: &str, port: u16) -> Self {
        Self {
            face,
            method: None,
            host: clean(host, MAX_HOST),
            port,
            path: None,
            operation: None,
        }
    }

    /// One request. The query string is cut off.
    pub(crate) fn request(via: &Via, method: &str, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Self {
            method: Some(clean(method, MAX_WORD)),
            path: Some(clean(path, MAX_PATH)),
            ..Self::connection(via)
        }
    }

    /// Through which face.
    pub(crate) fn face(&self) -> Face {
        self.face
    }

    /// The same with what is done inside.
    pub(crate) fn operation(mut self, operation: &str) -> Self {
        self.operation = Some(clean(operation, MAX_WORD));
        self
    }

    /// The record of it. The caller sets what is left: address, secret, held, id, count.
    pub(crate) fn decision(&self, verdict: NetVerdict, grounds: &Grounds) -> NetDecision {
        let Self {
            face,
            method,
            host,
            port,
            path,
            operation,
        } = self.clone();
        let Grounds {
            code,
            rule,
            reason,
            help,
        } = grounds.clone();
        NetDecision {
            seq: 0,
            id: String::new(),
            face,
            method,
            host,
            port,
            path,
            operation,
            verdict,
            code,
            rule,
            reason,
            address: None,
            secret: None,
            count: 1,
            held: false,
            help,
        }
    }
}

impl Grounds {
    /// A refusal of our own, without a rule.
    pub(crate) fn own(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code: Some(code),
            reason: reason.into(),
            help: vec![code.info().fix.to_owned()],
            ..Self::default()
        }
    }
}

impl From<&Decision> for Grounds {
    fn from(decision: &Decision) -> Self {
        let rule = decision.rule.as_ref();
        Self {
            code: decision.code,
            rule: rule.map(|(rule, origin)| format!("{rule} ({origin})")),
            reason: decision.reason.clone(),
            help: decision.help.clone(),
        }
    }
}

/// `text` on one line, without control or invisible characters, at most `most` bytes.
fn clean(text: &str, most: usize) -> String {
    let mut shown = bastle_audit::sanitize(text);
    if shown.len() > most {
        let cut = (0..=most)
            .rev()
            .find(|&at| shown.is_char_boundary(at))
            .unwrap_or(0);
        shown.truncate(cut);
    }
    shown
}

impl Denial {
    /// Made only where denials are counted.
    pub(crate) fn new(decision: NetDecision, pace: Pace) -> Self {
        Self { decision, pace }
    }

    /// Name of the denial.
    pub(crate) fn id(&self) -> &str {
        &self.decision.id
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.decision.code.unwrap_or(Code::NetDenied)
    }

    /// One line for protocols that have room for text.
    pub(crate) fn line(&self) -> String {
        format!(
            "bastle: denied {} {}: {}",
            self.id(),
            self.code(),
            self.decision.reason
        )
    }

    /// Whether policy meant it; otherwise a retry may help.
    fn deliberate(&self) -> bool {
        !matches!(
            self.code(),
            Code::NetResolve | Code::NetUpstream | Code::NetLost | Code::NetLimit
        )
    }

    /// The HTTP status that says it best.
    pub(crate) fn status(&self) -> u16 {
        match self.code() {
            Code::NetProtocol => 400,
            Code::NetMismatch => 421,
            Code::NetResolve | Code::NetUpstream => 502,
            Code::NetLimit | Code::NetLost => 503,
            _ => 403,
        }
    }

    /// The machine-readable body.
    pub(crate) fn json(&self) -> Vec<u8> {
        let decision = &self.decision;
        let guidance = if self.deliberate() {
            format!(
                "Blocked by policy, not a fault. Do not retry or route around. Ask via POST http://{LOCAL_NAME}/v1/requests"
            )
        } else {
            format!("Not a policy decision: {}", self.code().info().fix)
        };
        let code = match self.pace {
            Pace::Usual | Pace::Flooding => self.code(),
            Pace::Looping => Code::NetLoop,
        };
        let body = json!({
            "error": if self.deliberate() { "policy_denied" } else { "egress_failed" },
            "id": decision.id,
            "code": code.info().code,
            "layer": "proxy",
            "host": decision.host,
            "port": decision.port,
            "method": decision.method,
            "path": decision.path,
            "operation": decision.operation,
            "rule": decision.rule,
            "reason": decision.reason,
            "deliberate": self.deliberate(),
            "guidance": guidance,
            "help": decision.help,
            "retry": !self.deliberate(),
        });
        let mut bytes = body.to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }

    /// The whole answer.
    pub(crate) fn answer(&self) -> Answer {
        self.answer_as(self.status())
    }

    /// The whole answer, with another status.
    pub(crate) fn answer_as(&self, status: u16) -> Answer {
        Answer::json(status, self.json()).field("X-Bastle-Denied", self.id())
    }

    /// The bytes of the whole answer.
    pub(crate) fn http1(&self, persist: Persist) -> Vec<u8> {
        self.answer().bytes(persist)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_policy::Host;
    use proptest::prelude::*;

    fn via() -> Via {
        Via {
            host: Host::new("a.example").unwrap(),
            port: 443,
            face: Face::Https,
        }
    }

    #[test]
    fn query_strings_never_reach_a_record_and_hostile_text_is_made_visible_and_cut() {
        let asked = Asked::request(&via(), "GET", "/a?token=hidden#hidden").operation("x\x1b[2J\u{202e}");
        let record = asked.decision(NetVerdict::Denied, &Grounds::own(Code::NetDenied, "no"));
        assert_eq!(record.path.as_deref(), Some("/a"));
        assert!(!format!("{record:?}").contains("hidden"));
        let operation = record.operation.unwrap();
        assert!(
            !operation.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{operation:?}"
        );
        let long = Asked::request(&via(), "GET", &"/\u{e4}".repeat(2_000));
        let path = long
            .decision(NetVerdict::Denied, &Grounds::default())
            .path
            .unwrap();
        assert!((1_000..=1_024).contains(&path.len()), "{}", path.len());
    }

    proptest! {
        #[test]
        fn whatever_was_asked_the_answer_is_one_valid_response(host in "\\PC{0,80}", path in "\\PC{0,80}") {
            let asked = Asked::raw(Face::Http, &host, 80);
            let mut record = asked.decision(NetVerdict::Denied, &Grounds::own(Code::NetDenied, &path));
            record.id = "d_abcde".to_owned();
            let answer = Denial::new(record, Pace::Usual).http1(Persist::Close);
            let text = String::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            prop_assert_eq!(head.lines().count(), 6);
            let length = format!("Content-Length: {}", body.len());
            prop_assert!(head.contains(&length));
            prop_assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
        }
    }
}
