//! Questions of a run that nobody sits at: it stands still, the answer must be to what was asked, and states nest.
use crate::kept::{Kept, SOON};
use crate::support::{eventually, for_each_identity};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

const ASKS: &str = r#"{"version":1,"net":{"ask":["one.example","two.example"]}}"#;
const AGENT: &str = "curl -s -o /dev/null --max-time 60 -w 'first %{http_code}\\n' http://one.example/\n\
                     curl -s -o /dev/null --max-time 60 -w 'second %{http_code}\\n' http://two.example/\necho over\n";

fn say(kept: &Kept<'_>, command: &Value) -> Value {
    let mut line = String::new();
    BufReader::new(kept.connect(&command.to_string()))
        .read_line(&mut line)
        .expect("it answers");
    serde_json::from_str(&line).expect("is JSON")
}

/// The open question.
fn question(kept: &Kept<'_>) -> Value {
    let asks = || say(kept, &json!({"op": "status"}))["result"]["asks"][0].clone();
    assert!(
        eventually(SOON, || asks().is_object()),
        "nothing is asked: {:?}",
        kept.events()
    );
    asks()
}

#[test]
fn an_answer_to_another_question_is_refused_and_a_paused_run_does_not_go_on_by_an_answer() {
    for_each_identity(|lab| {
        let policy = lab.project("ask.json", ASKS).display().to_string();
        let waits = format!("{AGENT}until [ -e go ]; do sleep 0.02; done\n");
        let kept = Kept::start(lab, &["--attended", "--policy", &policy], &waits);
        let asked = question(&kept);
        assert_eq!(kept.file()["state"], "needs-input");
        let events = kept.events();
        let event = events
            .iter()
            .find(|event| event["kind"] == "question")
            .expect("an event");
        assert_eq!(event["data"]["hash"], asked["hash"]);
        assert!(
            asked["text"]
                .as_str()
                .is_some_and(|text| text.contains("one.example")),
            "{asked}"
        );
        // The right id with the hash of something else: whoever answered was shown something else.
        let stale = "0".repeat(64);
        for op in ["allow", "deny"] {
            let refused = say(&kept, &json!({"op": op, "target": asked["id"], "hash": stale}));
            assert_eq!(refused["ok"], false, "{refused}");
        }
        assert_eq!(question(&kept)["hash"], asked["hash"], "it is still open");
        // Paused and asked at once: the answer alone does not let it go on.
        assert_eq!(kept.say(&["pause"]).code, 0);
        let answered = say(
            &kept,
            &json!({"op": "deny", "target": asked["id"], "hash": asked["hash"]}),
        );
        assert_eq!(answered["ok"], true, "{answered}");
        assert_eq!(kept.file()["state"], "suspended");
        assert_eq!(kept.say(&["logs"]).stdout, "");
        assert_eq!(kept.say(&["resume"]).code, 0);
        kept.printed("first 403");
        // The other way round: resumed while it asks, it still stands.
        let asked = question(&kept);
        assert_eq!(kept.say(&["pause"]).code, 0);
        let resumed = kept.say(&["resume"]);
        assert!(resumed.stdout.contains("needs-input"), "{resumed:?}");
        assert_eq!(kept.file()["state"], "needs-input");
        // An answer that comes twice is stale the second time.
        let command = json!({"op": "deny", "target": asked["id"], "hash": asked["hash"]});
        assert_eq!(say(&kept, &command)["ok"], true);
        assert_eq!(say(&kept, &command)["ok"], false);
        lab.project("go", "");
        assert_eq!(kept.wait(), 0);
        let answers: Vec<Value> = kept.events();
        let answers = answers.iter().filter(|event| event["kind"] == "answered");
        assert_eq!(answers.count(), 2);
    });
}

#[test]
fn a_question_that_nobody_can_answer_is_answered_with_no() {
    for_each_identity(|lab| {
        let policy = lab.project("ask.json", ASKS).display().to_string();
        let kept = Kept::start(lab, &["--policy", &policy], AGENT);
        assert_eq!(kept.wait(), 0);
        assert_eq!(kept.say(&["logs"]).stdout, "first 403\nsecond 403\nover\n");
        assert!(!kept.states().iter().any(|state| state == "needs-input"));
    });
}
