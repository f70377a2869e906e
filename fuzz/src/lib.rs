//! What is fuzzed: every place where bytes from a less trusted side are read.
//!
//! Each function takes any bytes and must return. Beyond "no panic" it asserts what must hold of everything
//! that was accepted, because a parser that accepts too much does not crash.
#![forbid(unsafe_code)]

use bastle_contract::grants::{FromBroker, ToBroker};
use bastle_contract::{FromInit, FromSpawner, LaunchPlan, MAX_FRAME, ToInit, ToSpawner, decode, encode};
use bastle_policy::command::{CommandOutcome, CommandRule, CommandRules, judge};

mod captains;
mod mutate;
mod net;
mod runs;
mod work;

pub use captains::{a2a_bodies, editor_lines, mcp_http, mcp_pipes, mcp_tools, rest_bodies};
pub use mutate::Mutator;
pub use net::{
    canonical_request, client_hello, dns_answer, dns_query, operations, pkt_line, proxy_answer, request_body,
    request_head, scrub, socks, sse_usage,
};
pub use runs::{agent_lines, launch_spec, stream_frames};
pub use work::{gate, work_contents, work_records};

/// A policy document from a workspace: untrusted, up to 64 KiB.
pub fn policy_document(data: &[u8]) {
    match bastle_policy::parse("agent-permissions.json", data) {
        Ok(document) => {
            assert!(
                data.len() <= 64 * 1024,
                "a document beyond the limit was accepted"
            );
            let printed = document.to_json();
            let again = bastle_policy::parse("printed.json", printed.as_bytes());
            let again = again.expect("what we print, we read").to_json();
            assert_eq!(again, printed, "printing and reading changed the document");
        }
        Err(faults) => assert!(!faults.is_empty(), "refused without a reason"),
    }
}

/// Settings of other tools, which may come with a project. The first byte chooses the tool.
pub fn import_settings(data: &[u8]) {
    bastle_policy::fuzzing::fuzz_import(data);
}

/// A shell command line written by an agent.
pub fn command_line(data: &[u8]) {
    let Ok(line) = std::str::from_utf8(data) else {
        return;
    };
    let rules = command_rules();
    let verdict = judge(line, &rules, CommandOutcome::Deny);
    let again = judge(line, &rules, CommandOutcome::Deny);
    assert_eq!(
        verdict.outcome, again.outcome,
        "the same line was judged twice differently"
    );
    // One denied command anywhere in a list denies the whole list, whatever stands before it.
    let compound = format!("sudo id\n{line}");
    let judged = judge(&compound, &rules, CommandOutcome::Deny).outcome;
    assert_eq!(
        judged,
        CommandOutcome::Deny,
        "a denied command was hidden by what follows it"
    );
}

fn command_rules() -> CommandRules {
    let allow = ["ls *", "cargo test *", "git status", "git log *"].map(CommandRule::parse);
    let ask = ["git push *"].map(CommandRule::parse_restriction);
    let deny = ["sudo", "git push --force *"].map(CommandRule::parse_restriction);
    let valid = |rule: Result<CommandRule, _>| rule.expect("a valid rule");
    CommandRules {
        allow: allow.map(valid).into(),
        ask: ask.map(valid).into(),
        deny: deny.map(valid).into(),
    }
}

/// Frames between the zones, and the plan that travels beside them.
pub fn frames(data: &[u8]) {
    frame::<ToSpawner>(data);
    frame::<FromSpawner>(data);
    frame::<ToInit>(data);
    frame::<FromInit>(data);
    frame::<ToBroker>(data);
    frame::<FromBroker>(data);
    if let Some(plan) = frame::<LaunchPlan>(data) {
        let first = plan.check();
        assert_eq!(first, plan.check(), "checking a plan changed it");
    }
}

/// Whoever accepts a frame must be able to pass it on unchanged.
fn frame<T>(data: &[u8]) -> Option<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let value = decode::<T>(data).ok()?;
    assert!(data.len() <= MAX_FRAME, "a frame beyond the limit was accepted");
    // Escapes can make the printed form longer than what was read.
    if let Ok(bytes) = encode(&value) {
        let again = decode::<T>(&bytes).expect("what we write, we read");
        assert_eq!(again, value, "a frame changed on its way");
    }
    Some(value)
}

/// An audit log and its index, read back from a disk that somebody may have written to.
pub fn audit_reader(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').count() as u64;
    let records = bastle_audit::fuzz_reader(data);
    assert!(records <= lines, "more records than lines");
    let entries = bastle_audit::fuzz_index(data);
    assert!(entries <= lines, "more entries than lines");
}

/// A path that a call of the agent names, judged by the write guard.
pub fn guard_path(data: &[u8]) {
    bastle_init::fuzzing::guard_path(data);
    bastle_init::fuzzing::guard_walk(data);
}
