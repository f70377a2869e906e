//! An agent does its work inside, with a key it never sees, and the project outside stays as it was.
use crate::agent::{Agent, Asks};
use crate::model::{Call, KEY, Turn};
use crate::scene::{Scene, Who};
use serde_json::json;

fn edits_and_tests(test: &str, agent: Agent) {
    let key = agent.key();
    let script = vec![
        Turn::does(Call::Shell(format!("rm greet.sh; echo \"key: ${key}\""))),
        Turn::does(Call::Write("greet.sh".to_owned(), "echo hello\n".to_owned())),
        Turn::runs("sh test.sh"),
        Turn::says("It passes."),
    ];
    let Some(scene) = Scene::new(test, Who::Foremost, agent, script) else {
        return;
    };
    let working = scene.start(Asks::Nothing, &["--attended"], &json!({}));
    assert_eq!(working.ends(), 0, "{:#?}", working.kept.events());
    let turns = scene.model.turns();
    assert_eq!(turns.len(), 4, "{turns:#?}");
    let results = turns[3].results();
    assert!(
        results.len() == 3 && results[2].contains("passed-42"),
        "{results:#?}"
    );
    // The key: the model got it with every request, and what the agent has in its place is another.
    let (header, _) = agent.header();
    for request in scene.model.requests() {
        let sent = request.header(header).unwrap_or_default();
        assert!(sent.ends_with(KEY), "{request:?}");
        assert!(!request.body.to_string().contains(KEY), "the agent saw its key");
    }
    assert!(
        results[0].contains("key: sk-"),
        "a stand-in of the same shape: {results:#?}"
    );
    assert!(!working.record().contains(KEY));
    // The work: in the run's copy, not in the project.
    let diff = scene.verb(&["diff", &working.kept.name]).stdout;
    assert!(
        diff.contains("+echo hello") && diff.contains("-echo good evening"),
        "{diff}"
    );
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    let outside = std::fs::read_to_string(scene.lab.workspace().join("greet.sh")).unwrap();
    assert_eq!(outside, "echo good evening\n");
}

#[test]
fn claude_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was() {
    edits_and_tests(
        "claude_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was",
        Agent::Claude,
    );
}

#[test]
fn codex_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was() {
    edits_and_tests(
        "codex_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was",
        Agent::Codex,
    );
}

#[test]
fn opencode_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was() {
    edits_and_tests(
        "opencode_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was",
        Agent::Opencode,
    );
}

#[test]
fn gemini_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was() {
    edits_and_tests(
        "gemini_works_inside_with_a_key_it_never_sees_and_the_project_stays_as_it_was",
        Agent::Gemini,
    );
}
