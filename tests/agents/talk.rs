//! What is said to a working agent reaches its model, an interruption ends its turn and not its run, and turns are counted
//! outside of it.
use crate::agent::{Agent, Asks};
use crate::model::Turn;
use crate::scene::{Scene, Who, Working};
use serde_json::{Value, json};

/// Turns that the run may take; the script has more.
const MAY: usize = 8;

fn say(scene: &Scene, working: &Working<'_>, words: &str) -> String {
    let ended = scene.verb(&["say", &working.kept.name, words, "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let value: Value = serde_json::from_str(&ended.stdout).expect("is JSON");
    value["how"].as_str().unwrap_or_default().to_owned()
}

/// Waits for the end of as many turns; how the last ended.
fn ended(working: &Working<'_>, turns: usize) -> String {
    working.until("its turn does not end", || {
        working.said("turn-ended").len() >= turns
    });
    let ends = working.said("turn-ended");
    assert_eq!(ends.len(), turns, "{ends:?}");
    ends[turns - 1]["how"].as_str().unwrap_or_default().to_owned()
}

fn is_talked_to(test: &str, agent: Agent) {
    let mut script = vec![
        Turn::runs("echo first").held(),
        Turn::says("As you say."),
        Turn::runs("echo third").held(),
    ];
    script.extend(vec![Turn::runs("echo again"); 40]);
    let Some(scene) = Scene::new(test, Who::Ordinary, agent, script) else {
        return;
    };
    let working = scene.start(Asks::Nothing, &["-i"], &json!({ "budget": { "turns": MAY } }));
    // Steered: the words are in the very next request.
    scene.model.asked(1);
    assert_eq!(say(&scene, &working, "rather say good morning"), "steered");
    scene.model.release(1);
    scene.model.asked(2);
    let told = scene.model.turns()[1].body.to_string();
    assert!(told.contains("rather say good morning"), "{told}");
    assert_eq!(ended(&working, 1), "done");
    // Interrupted: the turn ends, the run does not.
    assert_eq!(say(&scene, &working, "now wait"), "asked");
    scene.model.asked(3);
    let stopped = scene.verb(&["interrupt", &working.kept.name]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    assert_eq!(ended(&working, 2), "interrupted");
    scene.model.release(3);
    assert_eq!(scene.model.turns().len(), 3, "an interrupted agent asks nothing");
    // Held to its turns: the model would have it go on, and is not asked again.
    assert_eq!(say(&scene, &working, "go on without end"), "asked");
    assert_eq!(working.ends(), 75, "{:#?}", working.kept.events());
    let asked = scene.model.requests().len();
    assert!(
        (MAY..=MAY + 1).contains(&asked),
        "{asked}: the interrupted one is no turn"
    );
    let record = working.record();
    assert!(
        record.contains("\"turns\"") && record.contains("\"stop\""),
        "{record}"
    );
}

#[test]
fn claude_is_steered_interrupted_and_held_to_its_turns() {
    let test = "claude_is_steered_interrupted_and_held_to_its_turns";
    is_talked_to(test, Agent::Claude);
}

#[test]
fn codex_is_steered_interrupted_and_held_to_its_turns() {
    let test = "codex_is_steered_interrupted_and_held_to_its_turns";
    is_talked_to(test, Agent::Codex);
}

#[test]
fn opencode_is_steered_interrupted_and_held_to_its_turns() {
    let test = "opencode_is_steered_interrupted_and_held_to_its_turns";
    is_talked_to(test, Agent::Opencode);
}

#[test]
fn gemini_is_interrupted_and_goes_on_with_what_it_is_told_next() {
    let test = "gemini_is_interrupted_and_goes_on_with_what_it_is_told_next";
    let script = vec![Turn::runs("echo first").held(), Turn::says("As you say.")];
    let Some(scene) = Scene::new(test, Who::Ordinary, Agent::Gemini, script) else {
        return;
    };
    let working = scene.start(Asks::Nothing, &["-i"], &json!({}));
    scene.model.asked(1);
    // Its protocol has no way to reach it while it works, and that is said.
    let steered = scene.verb(&["say", &working.kept.name, "rather say good morning"]);
    assert_ne!(steered.code, 0, "{steered:?}");
    assert!(
        steered.stderr.contains("cannot be steered while it works"),
        "{steered:?}"
    );
    let stopped = scene.verb(&["interrupt", &working.kept.name]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    assert_eq!(ended(&working, 1), "interrupted");
    scene.model.release(1);
    assert_eq!(say(&scene, &working, "say good morning"), "asked");
    assert_eq!(ended(&working, 2), "done");
    let turns = scene.model.turns();
    assert_eq!(turns.len(), 2, "an interrupted agent asks nothing");
    assert!(turns[1].body.to_string().contains("say good morning"));
    let finished = scene.verb(&["stop", &working.kept.name]);
    assert_eq!(finished.code, 0, "{finished:?}");
}
