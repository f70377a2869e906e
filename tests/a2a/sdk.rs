//! The client that others use, as it is published, against a real daemon with fenced workers.
use crate::support::{Limit, run, skip};
use crate::world::World;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of the client.
const VERSION: &str = "1.3.0";
/// What it verifies signatures with.
const ALSO: &str = "pyjwt==2.15.1";

/// A Python with the client: the one that is named, or one installed once beside what cargo builds.
fn python() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BASTLE_A2A_PYTHON") {
        return Ok(named.into());
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("a2a-sdk-{VERSION}-signing"));
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
    let wanted = format!("a2a-sdk[signing]=={VERSION}");
    step(Command::new(place.join("bin/pip")).args(["install", "-q", &wanted, ALSO]))?;
    std::fs::write(&whole, "").map_err(|error| error.to_string())?;
    Ok(program)
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
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let mut command = Command::new(&python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/a2a/client.py"))
            .args([
                &format!("http://{}", world.daemon.address),
                &world.token.0,
                &world.daemon.workspace(),
                binding,
            ])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let ended = run(&mut command, b"", Limit(Duration::from_secs(240)));
        assert_eq!(ended.code, 0, "{binding}: {}\n{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout.lines().count(), 9, "{binding}: {}", ended.stdout);
    }
}
