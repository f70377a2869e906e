//! Generated requests against the published document.
use crate::daemon::Daemon;
use crate::support::{Limit, from_pypi, run, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What every answer is held to.
const CHECKS: &str =
    "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance";

/// The tool and its version.
const VERSION: &str = "4.32.5";

fn schemathesis() -> Result<PathBuf, String> {
    let package = format!("schemathesis=={VERSION}");
    let place = format!("schemathesis-{VERSION}");
    from_pypi("BASTLE_SCHEMATHESIS", &place, &[&package], "schemathesis")
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
