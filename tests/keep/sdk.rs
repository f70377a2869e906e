//! The protocol's own Python client, as it is published, as an editor of `bastle acp`.
use crate::acp::AGENT;
use crate::support::{Lab, Limit, bastle, from_pypi, identities, run, skip};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the client.
const VERSION: &str = "0.12.1";

/// A Python with the client.
fn python() -> Result<PathBuf, String> {
    let package = format!("agent-client-protocol=={VERSION}");
    let place = format!("acp-sdk-{VERSION}");
    from_pypi("BASTLE_ACP_PYTHON", &place, &[&package], "python")
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
