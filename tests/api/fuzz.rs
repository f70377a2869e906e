//! Generated requests against the published document.
use crate::daemon::Daemon;
use crate::support::{Limit, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What every answer is held to.
const CHECKS: &str =
    "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance";

/// The tool and its version.
const VERSION: &str = "4.32.5";

/// The tool: the one that is named, or one installed once beside what cargo builds.
fn schemathesis() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BASTLE_SCHEMATHESIS") {
        return Ok(named.into());
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("schemathesis-{VERSION}"));
    let (program, whole) = (place.join("bin/schemathesis"), place.join("whole"));
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
    step(Command::new(place.join("bin/pip")).args(["install", "-q", &format!("schemathesis=={VERSION}")]))?;
    std::fs::write(&whole, "").map_err(|error| error.to_string())?;
    Ok(program)
}

#[test]
fn generated_requests_never_make_the_daemon_fail() {
    let program = match schemathesis() {
        Ok(program) => program,
        Err(why) => {
            let reason = format!("no schemathesis {VERSION} can be installed: {why}");
            skip("generated_requests_never_make_the_daemon_fail", &reason);
            return;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("serve.json");
    std::fs::write(&config, "{\"requests_per_second\":100000,\"max_parallel\":1}").unwrap();
    let daemon = Daemon::start(&["--config", config.to_str().unwrap()]);
    let admin = daemon.role("admin");
    let mut command = Command::new(program);
    command
        .current_dir(dir.path())
        .arg("run")
        .arg(format!("http://{}/api/v1/openapi.json", daemon.address))
        .args(["--header", &format!("Authorization: Bearer {}", admin.0)])
        .args([
            "--checks",
            CHECKS,
            "--max-examples",
            "15",
            "--request-timeout",
            "20",
        ])
        .args([
            "--phases",
            "examples,fuzzing",
            "--seed",
            "1",
            "--no-color",
            "--workers",
            "2",
        ])
        // Streams do not end; the daemon's own tokens must stay.
        .args([
            "--exclude-path",
            "/api/v1/events",
            "--exclude-path",
            "/api/v1/tokens/{id}",
            // A protocol of its own, with a suite of its own: tests/mcp.
            "--exclude-path",
            "/mcp",
        ]);
    let ended = run(&mut command, b"", Limit(Duration::from_secs(400)));
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(daemon.own("GET", "/api/v1/health", None).status, 200);
}
