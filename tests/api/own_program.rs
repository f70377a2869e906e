//! The preset of an agent, and its credential, in a request of somebody who is no admin: for the agent's own program alone.
use crate::daemon::{Daemon, Token};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const TELLS: &str = "echo key=${OPENAI_API_KEY:+there}.";

fn executable(file: &Path) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, format!("#!/bin/sh\n{TELLS}\n")).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A daemon on whose host the owner of the agent Codex is logged in; its program, and a file of the project of that name.
fn stage() -> (Daemon, String) {
    let daemon = Daemon::start(&[]);
    let login = daemon.root.join("home/.codex/auth.json");
    std::fs::create_dir_all(login.parent().unwrap()).unwrap();
    std::fs::write(login, json!({ "OPENAI_API_KEY": "sk-lab-0f6f2a9d" }).to_string()).unwrap();
    let program = daemon.root.join("home/tools/codex");
    executable(&program);
    executable(&daemon.root.join("ws/bin/codex"));
    let program = program.canonicalize().unwrap().display().to_string();
    (daemon, program)
}

/// What a request printed, and the notes of its answer; without a run, why.
fn asked(daemon: &Daemon, token: Option<&Token>, more: Value) -> Result<(String, String), (u16, String)> {
    let mut wish = json!({ "workspace": daemon.workspace(), "mode": "copy" });
    for (key, value) in more.as_object().unwrap() {
        wish[key] = value.clone();
    }
    let made = match token {
        Some(token) => daemon.with(token, "POST", "/api/v1/runs", Some(&wish)),
        None => daemon.own("POST", "/api/v1/runs", Some(&wish)),
    };
    if made.status != 201 {
        return Err((made.status, String::from_utf8_lossy(&made.body).into_owned()));
    }
    let answer = made.json()["runs"][0].clone();
    let run = answer["name"].as_str().unwrap().to_owned();
    daemon.until(&run, &["completed", "failed"]);
    let logs = daemon
        .own("GET", &format!("/api/v1/runs/{run}/logs"), None)
        .json();
    let records = logs["records"].as_array().cloned().unwrap_or_default();
    let text = records
        .iter()
        .map(|record| record["text"].as_str().unwrap_or_default());
    Ok((text.collect(), answer["notes"].to_string()))
}

#[test]
fn the_credential_of_a_preset_goes_to_no_command_of_a_client_that_does_not_name_its_agent() {
    let (daemon, program) = stage();
    let operator = daemon.role("operator");
    let shell = json!({ "argv": ["sh", "-c", TELLS], "preset": "codex" });
    let (printed, _) = asked(&daemon, Some(&operator), shell.clone()).unwrap();
    assert!(printed.contains("key=."), "{printed}");
    // Controls: the agent's program has it, and so has what an admin means by the preset.
    let own = json!({ "argv": [program], "preset": "codex" });
    let (printed, _) = asked(&daemon, Some(&operator), own).unwrap();
    assert!(printed.contains("key=there."), "{printed}");
    let (printed, _) = asked(&daemon, None, shell).unwrap();
    assert!(printed.contains("key=there."), "{printed}");
}

#[test]
fn children_have_the_credential_of_a_preset_as_their_parent_has_it() {
    let (daemon, program) = stage();
    let operator = daemon.role("operator");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    for (name, command, printed) in [
        ("of-shell", json!(["sleep", "600"]), "key=."),
        ("of-agent", json!([program]), "key=there."),
    ] {
        let wish = json!({
            "name": name, "argv": command, "preset": "codex", "workspace": daemon.workspace(), "mode": "copy",
        });
        let made = daemon.with(&operator, "POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{made:?}");
        daemon.until(name, &["running"]);
        let child = json!({ "argv": ["sh", "-c", TELLS], "parent": name });
        let (said, _) = asked(&daemon, Some(&operator), child).unwrap();
        assert!(said.contains(printed), "{name}: {said}");
    }
}

#[test]
fn variables_of_a_request_do_not_make_a_file_of_the_project_the_agent() {
    let (daemon, program) = stage();
    let operator = daemon.role("operator");
    let bin = format!("{}/bin", daemon.workspace());
    let planted = json!({ "argv": ["codex"], "env": { "PATH": bin } });
    let (printed, notes) = asked(&daemon, Some(&operator), planted).unwrap();
    assert!(!printed.contains("key=there."), "{printed}");
    assert!(
        notes.contains("codex") && notes.contains("PATH"),
        "it is said: {notes}"
    );
    for (name, value) in [("PATH", bin.as_str()), ("NODE_PATH", "x"), ("ANY", "./bin/codex")] {
        let named = json!({ "argv": ["codex"], "preset": "codex", "env": { name: value } });
        let (status, why) = asked(&daemon, Some(&operator), named).unwrap_err();
        assert_eq!(status, 403, "{why}");
        assert!(why.contains("BST-TOK-003") && why.contains(name), "{why}");
    }
    // Controls: other variables, no preset, and an admin.
    let plain = json!({ "argv": [program], "env": { "TASK": "fix the bug", "URL": "https://a.example/v1" } });
    let (printed, notes) = asked(&daemon, Some(&operator), plain).unwrap();
    assert!(printed.contains("key=there."), "{printed} {notes}");
    let without = json!({ "argv": ["true"], "env": { "PATH": "/usr/bin" } });
    assert!(asked(&daemon, Some(&operator), without).is_ok());
    let meant = json!({ "argv": [program], "env": { "PATH": "/usr/bin" } });
    let (printed, _) = asked(&daemon, None, meant).unwrap();
    assert!(printed.contains("key=there."), "{printed}");
}
