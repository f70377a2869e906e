//! What is said to an agent and what it says. Bytes in, bytes out: nothing here opens, starts or waits for anything.
//!
//! **Trust:** everything an agent prints is untrusted. It is bounded, read strictly, never executed; what is not of the
//! protocol becomes noise. Text is handed on as it came: show it escaped.
#![forbid(unsafe_code)]

mod acp;
mod asking;
mod call_name;
mod claude;
mod codex;
mod driver;
mod editor;
mod kept;
mod lines;
mod plain;
mod reading;
mod rpc;

pub use acp::Acp;
pub use claude::Claude;
pub use codex::Codex;
pub use driver::{
    AgentDriver, AgentUsage, Answer, DriverError, DriverKind, Heard, MAX_PROMPT, Permission, Said, Session,
    Steering, ToolState, TurnEnd, driver,
};
pub use editor::{Editor, Flow, Opening};
pub use kept::Kept;
pub use lines::MAX_LINE;
pub use plain::Plain;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [DriverKind; 5] = [
        DriverKind::Plain,
        DriverKind::Claude,
        DriverKind::Codex,
        DriverKind::Acp,
        DriverKind::Opencode,
    ];

    /// Lines as a hostile agent would write them: messages of every protocol, cut, mixed and nested.
    fn lines() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            Just(r#"{"type":"control_request","request_id":"u","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}"#.to_owned()),
            Just(r#"{"type":"result","subtype":"success"}"#.to_owned()),
            Just(r#"{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use"}],"usage":{"input_tokens":18446744073709551615}}}"#.to_owned()),
            Just(r#"{"id":5,"method":"session/request_permission","params":{"options":[{"optionId":"a","kind":"allow_once"}]}}"#.to_owned()),
            Just(r#"{"id":"x","method":"item/commandExecution/requestApproval","params":{}}"#.to_owned()),
            (0u8..6).prop_map(|id| format!(r#"{{"id":{id},"result":{{"thread":{{"id":"t"}},"sessionId":"s","stopReason":"end_turn"}}}}"#)),
            ".{0,80}",
            Just("[".repeat(5000)),
        ];
        proptest::collection::vec(word, 0..20).prop_map(|words| words.join("\n").into_bytes())
    }

    proptest! {
        #[test]
        fn whatever_an_agent_prints_nothing_is_allowed_that_nobody_answered(bytes in lines(), step in 1usize..200) {
            for kind in KINDS {
                let mut driver = driver(kind);
                driver.start(&Session::default());
                drop(driver.prompt("go"));
                for chunk in bytes.chunks(step) {
                    let heard = driver.take(chunk);
                    let reply = String::from_utf8_lossy(&heard.reply).into_owned();
                    for yes in ["\"allow\"", "accept", "selected"] {
                        prop_assert!(!reply.contains(yes), "{kind:?}: {reply}");
                    }
                }
                drop(driver.take(b"\n"));
            }
        }
    }
}
