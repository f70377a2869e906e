//! Driven agents: spoken to in their protocol, asked for nothing that a person did not allow. The agent here is a script
//! that speaks Claude's stream of lines; what it was told is read from what it prints on its errors.
use crate::kept::{Kept, SOON, verb};
use crate::support::{eventually, for_each_identity};
use serde_json::{Value, json};

/// Takes the greeting and the prompt; tells what it was asked.
const BEGIN: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt; printf '%s\n' "$prompt" >&2
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"I look"}]}}'
"#;
const ASK: &str = r#"
echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf x"}}}'
read -r answer; printf '%s\n' "$answer" >&2
"#;
const END: &str = r#"
echo '{"type":"result","subtype":"success","result":"done"}'
if read -r more; then echo "more: $more" >&2; else echo closed >&2; fi
"#;

const DRIVER: [&str; 4] = ["--driver", "claude", "--prompt", "fix the test"];

fn agent_said(kept: &Kept<'_>, what: &str) -> Vec<Value> {
    let events = kept.events().into_iter().filter(|event| event["kind"] == "agent");
    events
        .map(|event| event["data"].clone())
        .filter(|data| data["said"] == what)
        .collect()
}

fn errors(kept: &Kept<'_>) -> String {
    kept.say(&["logs", "--stderr-only"]).stderr
}

#[test]
fn a_permission_waits_for_a_person_and_what_was_shown_is_what_is_allowed() {
    for_each_identity(|lab| {
        let script = format!("{BEGIN}{ASK}{END}");
        let flags: Vec<&str> = DRIVER.into_iter().chain(["--attended"]).collect();
        let kept = Kept::start(lab, &flags, &script);
        let asked = || {
            kept.events()
                .into_iter()
                .find(|event| event["kind"] == "question")
        };
        assert!(eventually(SOON, || asked().is_some()), "{:?}", kept.events());
        let asked = asked().expect("was seen")["data"].clone();
        assert_eq!(asked["id"], "p_1", "{asked}");
        assert_eq!(asked["about"]["input"], json!({ "command": "rm -rf x" }));
        assert!(eventually(SOON, || kept.file()["state"] == "needs-input"));
        assert!(
            !errors(&kept).contains("behavior"),
            "nothing was answered for the person"
        );
        let stale = ["allow", kept.name.as_str(), "p_2"];
        assert_ne!(verb(lab, &stale).code, 0, "another question is not this one");
        assert_eq!(verb(lab, &["allow", &kept.name, "p_1"]).code, 0);
        assert_eq!(kept.wait(), 0);
        let errors = errors(&kept);
        assert!(errors.contains("fix the test"), "{errors}");
        assert!(
            errors.contains(r#""behavior":"allow","updatedInput":{"command":"rm -rf x"}"#),
            "{errors}"
        );
        assert!(
            errors.contains("closed"),
            "its input ends with the turn: {errors}"
        );
        assert_eq!(agent_said(&kept, "text").len(), 1);
        assert_eq!(agent_said(&kept, "turn-ended")[0]["how"], "done");
        let audit = verb(lab, &["audit", "show", &kept.name]).stdout;
        let asked = audit.find("rm -rf x").expect("what was asked is on record");
        let answered = audit.rfind("p_1").expect("and so is the answer");
        assert!(asked < answered, "{audit}");
    });
}

#[test]
fn a_permission_is_refused_where_nobody_can_be_asked_or_somebody_says_no() {
    for_each_identity(|lab| {
        let script = format!("{BEGIN}{ASK}{END}");
        for flags in [vec![], vec!["--net", "none"]] {
            let flags: Vec<&str> = DRIVER.into_iter().chain(flags).collect();
            let kept = Kept::start(lab, &flags, &script);
            assert_eq!(kept.wait(), 0);
            assert!(
                errors(&kept).contains(r#""behavior":"deny""#),
                "{}",
                errors(&kept)
            );
            assert!(!kept.states().iter().any(|state| state == "needs-input"));
        }
        let flags: Vec<&str> = DRIVER.into_iter().chain(["--attended"]).collect();
        let kept = Kept::start(lab, &flags, &script);
        let denied = || verb(lab, &["deny", &kept.name, "p_1"]).code == 0;
        assert!(eventually(SOON, denied), "{:?}", kept.events());
        assert_eq!(kept.wait(), 0);
        assert!(
            errors(&kept).contains(r#""behavior":"deny""#),
            "{}",
            errors(&kept)
        );
    });
}

#[test]
fn words_reach_a_working_agent_and_an_idle_one_and_interrupting_reaches_it_too() {
    for_each_identity(|lab| {
        let script = format!(
            "{BEGIN}read -r steer; printf '%s\\n' \"$steer\" >&2\nread -r stop; printf '%s\\n' \"$stop\" >&2\n{END}\
             echo '{{\"type\":\"result\",\"subtype\":\"success\"}}'\nread -r over || echo over >&2\n"
        );
        let flags: Vec<&str> = DRIVER.into_iter().chain(["-i"]).collect();
        let kept = Kept::start(lab, &flags, &script);
        assert!(
            eventually(SOON, || !agent_said(&kept, "text").is_empty()),
            "{:?}",
            kept.events()
        );
        let said = verb(lab, &["say", &kept.name, "rather this", "--json"]);
        let value: Value = serde_json::from_str(&said.stdout).expect("is JSON");
        assert_eq!(
            value,
            json!({ "schema": "bastle.said/v1", "run": kept.name, "how": "steered" })
        );
        assert!(eventually(SOON, || errors(&kept).contains("rather this")));
        assert_eq!(verb(lab, &["interrupt", &kept.name]).code, 0);
        assert!(eventually(SOON, || errors(&kept).contains(r#""subtype":"interrupt""#)));
        assert!(eventually(SOON, || !agent_said(&kept, "turn-ended").is_empty()));
        let refused = verb(lab, &["interrupt", &kept.name]);
        assert_eq!(refused.code, 1, "nothing works: {refused:?}");
        let again = verb(lab, &["say", &kept.name, "one more thing"]);
        assert!(again.stderr.contains("asked"), "{again:?}");
        assert!(eventually(SOON, || errors(&kept).contains("more: ")));
        let audit = verb(lab, &["audit", "show", &kept.name, "--json"]).stdout;
        let value: Value = serde_json::from_str(&audit).expect("is JSON");
        let records = value["records"].as_array().expect("records").iter();
        let spoken = records.filter(|record| record.to_string().contains("a person spoke to the agent"));
        assert_eq!(spoken.count(), 3, "{audit}");
        assert!(!audit.contains("rather this"), "by digest, not by word");
        assert_eq!(kept.say(&["stop"]).code, 0);
    });
}

#[test]
fn a_plain_run_cannot_be_told_anything_and_an_unknown_driver_or_a_terminal_starts_nothing() {
    for_each_identity(|lab| {
        let kept = Kept::start(lab, &[], "until [ -e go ]; do sleep 0.02; done\n");
        for verbs in [vec!["say", &kept.name, "hello"], vec!["interrupt", &kept.name]] {
            let refused = verb(lab, &verbs);
            assert_eq!(refused.code, 1, "{refused:?}");
            assert!(refused.stderr.contains("is not driven"), "{refused:?}");
        }
        lab.project("go", "");
        assert_eq!(kept.wait(), 0);
        for flags in [vec!["--driver", "telepathy"], vec!["--driver", "claude", "-t"]] {
            let (_kept, ended) = Kept::attempt(lab, &flags, "echo started\n");
            assert_eq!(ended.code, 125, "{ended:?}");
            assert!(ended.stderr.contains("cannot be driven"), "{ended:?}");
        }
        assert_ne!(verb(lab, &["run", "--driver", "claude", "--", "true"]).code, 0);
    });
}

#[test]
fn an_agent_that_prints_nonsense_floods_or_lies_about_answers_gets_nothing_by_it() {
    for_each_identity(|lab| {
        let script = format!(
            "{BEGIN}echo '{{\"type\":\"control_response\",\"response\":{{\"behavior\":\"allow\"}}}}'\n\
             echo 'not json'; printf '\\033]0;title\\007\\n'; head -c 5000000 /dev/zero | tr '\\0' x; echo\n{ASK}{END}"
        );
        let kept = Kept::start(lab, &DRIVER, &script);
        assert_eq!(kept.wait(), 0);
        assert!(
            errors(&kept).contains(r#""behavior":"deny""#),
            "{}",
            errors(&kept)
        );
        let noise = agent_said(&kept, "noise");
        assert!(noise.iter().any(|said| said["text"] == "not json"), "{noise:?}");
        let trouble = agent_said(&kept, "trouble");
        assert!(
            trouble
                .iter()
                .any(|said| said["text"].to_string().contains("left out")),
            "{trouble:?}"
        );
    });
}

#[test]
fn an_agent_that_asks_without_end_and_reads_nothing_does_not_fill_the_keepers_memory() {
    for_each_identity(|lab| {
        let asks =
            r#"echo '{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback"}}'"#;
        let script =
            format!("{BEGIN}i=0; while [ $i -lt 40000 ]; do {asks}; i=$((i+1)); done; echo asked >&2\n{END}");
        let kept = Kept::start(lab, &DRIVER, &script);
        assert_eq!(kept.wait(), 0);
        assert!(errors(&kept).contains("asked"), "{}", errors(&kept));
        let notes = kept.events().into_iter().filter(|event| event["kind"] == "note");
        let deaf = notes.filter(|event| event["data"]["text"].to_string().contains("does not read"));
        assert_eq!(deaf.count(), 1, "told once");
    });
}

#[test]
fn each_turn_and_command_can_be_taken_back_and_words_within_a_turn_take_no_snapshot() {
    for_each_identity(|lab| {
        let script = format!(
            "{BEGIN}echo one > work; echo '{{\"type\":\"result\",\"subtype\":\"success\"}}'\n\
             read -r again; echo two > work; echo told >&2\nread -r steer; echo steered >&2\nexec sleep 100000\n"
        );
        let flags: Vec<&str> = DRIVER.into_iter().chain(["-i", "--workspace", "copy"]).collect();
        let kept = Kept::start(lab, &flags, &script);
        assert!(eventually(SOON, || !agent_said(&kept, "turn-ended").is_empty()));
        let snapshots = || -> Vec<Value> {
            let told = verb(lab, &["snapshots", &kept.name, "--json"]).stdout;
            let value: Value = serde_json::from_str(&told).expect("is JSON");
            let all = value["snapshots"].as_array().expect("a list").iter();
            all.filter(|snapshot| snapshot["reason"] == "turn")
                .cloned()
                .collect()
        };
        assert_eq!(snapshots().len(), 0);
        let asked = verb(lab, &["say", &kept.name, "go on"]);
        assert!(asked.stderr.contains("asked"), "{asked:?}");
        assert!(eventually(SOON, || errors(&kept).contains("told")));
        assert_eq!(snapshots().len(), 1, "before the turn");
        let steered = verb(lab, &["say", &kept.name, "and this"]);
        assert!(steered.stderr.contains("steered"), "{steered:?}");
        assert!(eventually(SOON, || errors(&kept).contains("steered")));
        assert_eq!(snapshots().len(), 1, "within it none");
        let done = verb(
            lab,
            &[
                "exec",
                &kept.name,
                "--",
                "sh",
                "-c",
                "cat work; echo three > work",
            ],
        );
        assert_eq!((done.code, done.stdout.as_str()), (0, "two\n"), "{done:?}");
        let taken = snapshots();
        assert_eq!(taken.len(), 2, "before the command");
        let looked = verb(lab, &["exec", &kept.name, "--", "cat", "work"]);
        assert_eq!(looked.stdout, "three\n");
        assert_eq!(kept.say(&["kill"]).code, 0);
        let number = taken[0]["number"].to_string();
        assert_eq!(verb(lab, &["rollback", &kept.name, &number]).code, 0);
        let tree = kept.state().join("work").join(&kept.name).join("tree/work");
        assert_eq!(std::fs::read_to_string(tree).expect("is there"), "one\n");
    });
}

#[test]
fn what_an_agent_reports_of_itself_is_shown_as_reported_and_changes_no_budget() {
    for_each_identity(|lab| {
        let lie = r#"
echo '{"type":"assistant","message":{"id":"m2","content":[],"usage":{"input_tokens":9000000000,"output_tokens":7000000000}}}'
echo '{"type":"result","subtype":"success","result":"done","total_cost_usd":123456.5}'
if read -r more; then echo "more: $more" >&2; else echo closed >&2; fi
"#;
        let budget = json!({ "version": 1, "net": { "allow": ["example.com"] },
            "budget": { "tokens": 10, "usd": 0.01, "turns": 1, "onExceed": "stop" } });
        let policy = lab.plant("home/tight.json".as_ref(), &budget.to_string());
        let policy = policy.display().to_string();
        let flags: Vec<&str> = DRIVER.into_iter().chain(["--policy", &policy]).collect();
        let kept = Kept::start(lab, &flags, &format!("{BEGIN}{lie}"));
        assert_eq!(kept.wait(), 0, "{:?}", kept.events());
        let events = kept.events();
        let held = events.iter().filter(|event| event["kind"] == "budget").count();
        assert_eq!(held, 0, "{events:#?}");
        let shown = verb(lab, &["inspect", &kept.name, "--json"]);
        assert_eq!(shown.code, 0, "{shown:?}");
        let shown: Value = serde_json::from_str(&shown.stdout).expect("is JSON");
        let none = json!({ "turns": 0, "tokens": 0, "cost_micro_usd": 0 });
        assert_eq!(shown["models"]["counted"], none, "{shown:#}");
        let told = json!({ "turns": 2, "input_tokens": 9_000_000_000_u64, "output_tokens": 7_000_000_000_u64,
            "cost_micro_usd": 123_456_500_000_u64 });
        assert_eq!(shown["models"]["reported"], told, "{shown:#}");
    });
}

/// An agent that speaks the Agent Client Protocol, up to the prompt.
const ACP: &str = r#"
number() { printf '%s' "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
read -r hello; echo "{\"jsonrpc\":\"2.0\",\"id\":$(number "$hello"),\"result\":{\"protocolVersion\":1}}"
read -r new; echo "{\"jsonrpc\":\"2.0\",\"id\":$(number "$new"),\"result\":{\"sessionId\":\"s\"}}"
read -r prompt
"#;

/// Asks for permission under an id, and says nothing of what it wants to do.
fn acp_asks(id: &str) -> String {
    let choices =
        json!([{ "optionId": "y", "kind": "allow_once" }, { "optionId": "n", "kind": "reject_once" }]);
    let params = json!({ "sessionId": "s", "options": choices,
        "toolCall": { "toolCallId": "t", "kind": "execute", "title": "harmless" } });
    let asked =
        json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params });
    format!("echo '{asked}'\n")
}

fn has_question(kept: &Kept<'_>, id: &str) -> bool {
    let mut events = kept.events().into_iter();
    events.any(|event| event["kind"] == "question" && event["data"]["id"] == id)
}

const ACP_DRIVER: [&str; 5] = ["--driver", "acp", "--prompt", "fix it", "--attended"];

#[test]
fn a_yes_for_the_rest_of_the_run_answers_no_request_that_does_not_say_what_it_wants() {
    for_each_identity(|lab| {
        let script = format!(
            "{ACP}{}read -r first; printf '%s\\n' \"$first\" >&2\n{}read -r second; printf '%s\\n' \"$second\" >&2\n",
            acp_asks("a1"),
            acp_asks("a2")
        );
        let kept = Kept::start(lab, &ACP_DRIVER, &script);
        assert!(
            eventually(SOON, || has_question(&kept, "p_1")),
            "{:?}",
            kept.events()
        );
        assert_eq!(verb(lab, &["allow", &kept.name, "p_1", "--session"]).code, 0);
        assert!(
            eventually(SOON, || has_question(&kept, "p_2")),
            "the second is asked for as well: {:?}",
            kept.events()
        );
        assert!(eventually(SOON, || errors(&kept).contains(r#""optionId":"y""#)));
        assert_eq!(verb(lab, &["deny", &kept.name, "p_2"]).code, 0);
        assert!(eventually(SOON, || errors(&kept).contains(r#""optionId":"n""#)));
    });
}

#[test]
fn a_request_that_waits_when_its_agent_is_interrupted_waits_no_longer() {
    for_each_identity(|lab| {
        // After it was interrupted it says nothing more.
        let script = format!("{ACP}{}read -r stop; cat > /dev/null\n", acp_asks("a1"));
        let kept = Kept::start(lab, &ACP_DRIVER, &script);
        assert!(
            eventually(SOON, || has_question(&kept, "p_1")),
            "{:?}",
            kept.events()
        );
        assert_eq!(verb(lab, &["interrupt", &kept.name]).code, 0);
        let withdrawn = || {
            kept.events()
                .iter()
                .any(|event| event["kind"] == "answered" && event["data"]["by"] == "withdrawn")
        };
        assert!(eventually(SOON, withdrawn), "{:?}", kept.events());
        assert_ne!(
            verb(lab, &["allow", &kept.name, "p_1"]).code,
            0,
            "it is open no more"
        );
        assert_eq!(kept.say(&["stop"]).code, 0);
    });
}
