//! What an agent's own permission layer asks for is asked of a person: allowed it is done, refused it is not.
use crate::agent::{Agent, Asks};
use crate::model::Turn;
use crate::scene::{Scene, Who, Working};
use serde_json::{Value, json};

/// Waits for a question; what it is about.
fn question(working: &Working<'_>, id: &str) -> Value {
    let asked = || {
        let events = working.kept.events().into_iter();
        let mut asked = events.filter(|event| event["kind"] == "question" && event["data"]["id"] == id);
        asked.next().map(|event| event["data"].clone())
    };
    working.until("it asks nobody", || asked().is_some());
    asked().expect("was seen")
}

fn asks(test: &str, agent: Agent) {
    // Commands of a kind that every agent asks about.
    let script = vec![
        Turn::runs("rm -rf greet.sh"),
        Turn::runs("rm -rf test.sh"),
        Turn::says("That is all."),
    ];
    let Some(scene) = Scene::new(test, Who::Foremost, agent, script) else {
        return;
    };
    let working = scene.start(Asks::Commands, &["--attended"], &json!({}));
    let asked = question(&working, "p_1");
    assert!(asked["about"].to_string().contains("rm -rf greet.sh"), "{asked}");
    assert_eq!(scene.model.turns().len(), 1, "it waits for the answer");
    let allowed = scene.verb(&["allow", &working.kept.name, "p_1"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let asked = question(&working, "p_2");
    assert!(asked["about"].to_string().contains("rm -rf test.sh"), "{asked}");
    let refused = scene.verb(&["deny", &working.kept.name, "p_2"]);
    assert_eq!(refused.code, 0, "{refused:?}");
    assert_eq!(working.ends(), 0, "{:#?}", working.kept.events());
    let diff = scene.verb(&["diff", "--name-only", &working.kept.name]).stdout;
    assert!(diff.contains("greet.sh"), "{diff}");
    assert!(!diff.contains("test.sh"), "{diff}");
    let record = working.record();
    assert!(record.contains("the agent asks for permission"), "{record}");
}

#[test]
fn claude_does_what_a_person_allows_and_not_what_a_person_refuses() {
    let test = "claude_does_what_a_person_allows_and_not_what_a_person_refuses";
    asks(test, Agent::Claude);
}

#[test]
fn codex_does_what_a_person_allows_and_not_what_a_person_refuses() {
    let test = "codex_does_what_a_person_allows_and_not_what_a_person_refuses";
    asks(test, Agent::Codex);
}

#[test]
fn opencode_does_what_a_person_allows_and_not_what_a_person_refuses() {
    let test = "opencode_does_what_a_person_allows_and_not_what_a_person_refuses";
    asks(test, Agent::Opencode);
}

#[test]
fn gemini_does_what_a_person_allows_and_not_what_a_person_refuses() {
    let test = "gemini_does_what_a_person_allows_and_not_what_a_person_refuses";
    asks(test, Agent::Gemini);
}
