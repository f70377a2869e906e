//! The client that others use, as it is published, against a real daemon with fenced workers.
use crate::support::{Limit, from_pypi, run, skip};
use crate::world::World;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of the client.
const VERSION: &str = "1.3.0";
/// What it verifies signatures with.
const ALSO: &str = "pyjwt==2.15.1";

/// A Python with the client.
fn python() -> Result<PathBuf, String> {
    let package = format!("a2a-sdk[signing]=={VERSION}");
    let place = format!("a2a-sdk-{VERSION}-signing");
    from_pypi("BASTLE_A2A_PYTHON", &place, &[&package, ALSO], "python")
}

#[test]
fn the_published_client_sends_streams_steers_lists_and_cancels_over_both_bindings() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            let test = "the_published_client_sends_streams_steers_lists_and_cancels_over_both_bindings";
            skip(test, &format!("no a2a-sdk {VERSION} can be installed: {why}"));
            return;
        }
    };
    let world = World::usual();
    let approver = world.daemon.role("approver");
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let mut command = Command::new(&python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/a2a/client.py"))
            .args([
                &format!("http://{}", world.daemon.address),
                &world.token.0,
                &world.daemon.workspace(),
                binding,
                &approver.0,
            ])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let ended = run(&mut command, b"", Limit(Duration::from_secs(240)));
        assert_eq!(ended.code, 0, "{binding}: {}\n{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout.lines().count(), 10, "{binding}: {}", ended.stdout);
    }
}
