//! The protocol's own Python client, as it is published, as an editor of `bastle acp`.
use crate::acp::AGENT;
use crate::support::{Lab, Limit, bastle, identities, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of the client.
const VERSION: &str = "0.12.1";

/// A Python with the client: the one that is named, or one installed once beside what cargo builds.
fn python() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BASTLE_ACP_PYTHON") {
        return Ok(named.into());
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("acp-sdk-{VERSION}"));
    let (program, whole) = (place.join("bin/python"), place.join("whole"));
    if whole.is_file() {
        return Ok(program);
    }
    let step = |command: &mut Command| {
        let ended = command.output().map_err(|error| error.to_string())?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        }
    };
    step(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&place),
    )?;
    let package = format!("agent-client-protocol=={VERSION}");
    step(Command::new(place.join("bin/pip")).args(["install", "-q", &package]))?;
    std::fs::write(&whole, "").map_err(|error| error.to_string())?;
    Ok(program)
}

#[test]
fn the_published_client_opens_prompts_answers_permissions_and_cancels() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            let test = "the_published_client_opens_prompts_answers_permissions_and_cancels";
            skip(
                test,
                &format!("no agent-client-protocol {VERSION} can be installed: {why}"),
            );
            return;
        }
    };
    let lab = Lab::new(identities().remove(0));
    lab.project("agent.sh", AGENT);
    let mut command = lab.command(&python);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keep/client.py"))
        .arg(bastle())
        .arg(lab.workspace())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = run(&mut command, b"", Limit(Duration::from_secs(240)));
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let steps: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(
        steps,
        ["opened", "prompted", "allowed", "denied", "cancelled"],
        "{}",
        ended.stderr
    );
    assert!(
        !lab.workspace().join("made.txt").exists(),
        "its work is in a copy"
    );
}
