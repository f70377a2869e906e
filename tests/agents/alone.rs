//! An agent that a person starts by its name alone: its preset finds it, nothing drives it, and its own sandbox, which cannot
//! be built inside, is switched off whatever its command line and the project say; that is said before it starts.
use crate::agent::{Agent, Asks};
use crate::model::{Call, HOST, KEY, Turn};
use crate::scene::{Scene, Who};
use crate::support::skip;
use std::path::PathBuf;

/// What every agent is told to do by its model: commands that its own sandbox would have to run.
fn script() -> Vec<Turn> {
    vec![
        Turn::runs("echo hello from inside > greet.txt; printf 'wrote-%s\\n' 42"),
        Turn::does(Call::Shell("cat /proc/self/status | grep Seccomp:".to_owned())),
        Turn::says("It is done."),
    ]
}

/// Runs it; what is said before it starts.
fn works(scene: &Scene, words: &[&str], variables: &[(&str, String)]) -> String {
    let (name, ended) = scene.alone(words, variables);
    assert_eq!(ended.code, 0, "{ended:?}");
    let turns = scene.model.turns();
    assert_eq!(turns.len(), 3, "{ended:?}");
    let results = turns[2].results();
    assert!(
        results.len() == 2 && results[0].contains("wrote-42"),
        "{results:#?}\n{ended:?}"
    );
    let (header, _) = scene.agent.header();
    for request in scene.model.requests() {
        let sent = request.header(header).unwrap_or_default();
        assert!(sent.ends_with(KEY), "{request:?}");
        assert!(!request.body.to_string().contains(KEY), "the agent saw its key");
    }
    let diff = scene.verb(&["diff", &name]).stdout;
    assert!(diff.contains("+hello from inside"), "{diff}");
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    ended.stderr
}

#[test]
fn gemini_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_asked_for() {
    let test = "gemini_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_asked_for";
    let Some(scene) = Scene::new(test, Who::Ordinary, Agent::Gemini, script()) else {
        return;
    };
    let words = [
        "gemini",
        "--sandbox",
        "--model",
        "gemini-2.5-flash",
        "--approval-mode",
        "yolo",
        "-p",
        "greet",
    ];
    let variables = Agent::Gemini.variables(scene.model.port, Asks::Nothing);
    let said = works(&scene, &words, &variables);
    assert!(said.contains("preset: gemini@1 (from the command)"), "{said}");
    assert!(said.contains("Gemini CLI 0.61.0"), "{said}");
    assert!(said.contains("its own sandbox is switched off"), "{said}");
}

#[test]
fn codex_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_asked_for() {
    let test = "codex_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_asked_for";
    let Some(scene) = Scene::new(test, Who::Foremost, Agent::Codex, script()) else {
        return;
    };
    let provider = Agent::provider(&format!("https://{HOST}:{}", scene.model.port));
    let words = [
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "workspace-write",
        "-c",
        "model=\"lab-model\"",
        "-c",
        "model_provider=\"lab\"",
        "-c",
        &provider,
        "greet",
    ];
    let said = works(&scene, &words, &[]);
    assert!(said.contains("preset: codex@1 (from the command)"), "{said}");
    assert!(
        said.contains("its own sandbox is switched off") && said.contains("workspace-write"),
        "{said}"
    );
}

#[test]
fn claude_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_the_project_asks_for_it() {
    let test =
        "claude_by_its_name_alone_works_inside_and_its_own_sandbox_is_off_even_when_the_project_asks_for_it";
    let Some(scene) = Scene::new(test, Who::Ordinary, Agent::Claude, script()) else {
        return;
    };
    let settings = r#"{ "sandbox": { "enabled": true, "failIfUnavailable": true } }"#;
    scene.lab.project(".claude/settings.json", settings);
    scene.git(&["add", "-A"]);
    scene.git(&["commit", "-qm", "settings"]);
    let words = ["claude", "-p", "greet", "--dangerously-skip-permissions"];
    let variables = Agent::Claude.variables(scene.model.port, Asks::Nothing);
    let said = works(&scene, &words, &variables);
    assert!(said.contains("preset: claude@1 (from the command)"), "{said}");
    assert!(said.contains("its own sandbox is switched off"), "{said}");
}

/// The aider that is named, or the one on `PATH`: it is too large to be installed for every run of the tests.
fn aider() -> Result<PathBuf, String> {
    let named = std::env::var_os("BASTLE_AIDER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut known = std::env::split_paths(&path).map(|place| place.join("aider"));
    named
        .or_else(|| known.find(|file| file.is_file()))
        .ok_or_else(|| "there is no aider on PATH; BASTLE_AIDER=/path/to/aider names one".to_owned())
}

#[test]
fn aider_edits_a_file_inside_with_a_key_it_never_sees() {
    let test = "aider_edits_a_file_inside_with_a_key_it_never_sees";
    let program = match aider() {
        Ok(program) => program,
        Err(reason) => return skip(test, &reason),
    };
    let script = vec![Turn::says("greet.sh\n```\necho hello\n```\n")];
    let Some(scene) = Scene::new(test, Who::Foremost, Agent::Aider, script) else {
        return;
    };
    let program = program.to_str().expect("UTF-8");
    let words = [
        program,
        "--model",
        "openai/lab-model",
        "--yes-always",
        "--no-auto-commits",
        "--message",
        "greet",
        "greet.sh",
    ];
    let variables = Agent::Aider.variables(scene.model.port, Asks::Nothing);
    let (name, ended) = scene.alone(&words, &variables);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.stderr.contains("preset: aider@1 (from the command)"),
        "{ended:?}"
    );
    let requests = scene.model.requests();
    assert!(!requests.is_empty(), "{ended:?}");
    for request in &requests {
        let sent = request.header("authorization").unwrap_or_default();
        assert!(sent.ends_with(KEY), "{request:?}");
        assert!(!request.body.to_string().contains(KEY), "the agent saw its key");
    }
    assert!(!format!("{ended:?}").contains(KEY));
    let diff = scene.verb(&["diff", &name]).stdout;
    assert!(diff.contains("+echo hello"), "{diff}\n{ended:?}");
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    // What it would ask the world besides its model is switched off.
    assert!(!ended.stderr.contains("denied net"), "{ended:?}");
}
