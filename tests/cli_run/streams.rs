//! Input, output, environment and the JSON receipt.
use crate::support::{Limit, for_each_identity, run};
use crate::{follows, text};
use serde_json::Value;

#[test]
fn input_and_output_of_any_size_pass_unchanged() {
    for_each_identity(|lab| {
        let input: Vec<u8> = (0..2_000_000u32).map(|n| b'a' + (n % 23) as u8).collect();
        let ended = lab.fence().flags(["-q"]).input(&input).run(["cat"]).ended;
        assert_eq!(ended.code, 0);
        assert!(
            ended.stdout.as_bytes() == input,
            "{} bytes came back",
            ended.stdout.len()
        );
        let ended = lab
            .fence()
            .flags(["-q"])
            .sh("head -c 9000000 /dev/zero | tr '\\0' x; echo err >&2")
            .ended;
        assert_eq!((ended.stdout.len(), ended.stderr.as_str()), (9_000_000, "err\n"));
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    for_each_identity(|lab| {
        let mut command = lab.command("/bin/sh".as_ref());
        command.args([
            "-c",
            "\"$0\" run -q -- yes | head -n 2",
            text(crate::support::bastle()),
        ]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.stdout, "y\ny\n", "{ended:?}");
    });
}

#[test]
fn output_beyond_its_limit_is_discarded_and_told() {
    for_each_identity(|lab| {
        let ended = lab
            .fence()
            .flags(["--max-output", "1K"])
            .sh("head -c 50000 /dev/zero | tr '\\0' x; exit 4")
            .ended;
        assert_eq!((ended.code, ended.stdout.len()), (4, 1024), "{}", ended.stderr);
        assert!(ended.stderr.contains("BST-LIM-007"), "{}", ended.stderr);
    });
}

#[test]
fn nothing_of_the_callers_environment_crosses_the_fence_unasked() {
    for_each_identity(|lab| {
        let vars = lab.project("vars", "# comment\nFROM_FILE=a b=c\nBOTH=file\n");
        let fence = lab
            .fence()
            .env("SECRET_TOKEN", "canary")
            .env("LD_BIND_NOW", "1")
            .env("HTTP_PROXY", "http://proxy")
            .env("WANTED", "yes")
            .env("LANG", "C.UTF-8");
        let ended = fence
            .flags(["--env", "WANTED", "--env", "BOTH=flag", "--env-file", text(&vars)])
            .run(["env"])
            .ended;
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(
            !ended.stdout.contains("canary")
                && !ended.stdout.contains("http://proxy")
                && !ended.stdout.contains("LD_"),
            "{}",
            ended.stdout
        );
        for line in [
            "WANTED=yes",
            "BOTH=flag",
            "FROM_FILE=a b=c",
            "AGENT_IN_SANDBOX=1",
            "HOME=/home/agent",
            "LANG=C.UTF-8",
        ] {
            assert!(
                ended.stdout.lines().any(|have| have == line),
                "{line} is missing: {}",
                ended.stdout
            );
        }
    });
}

#[test]
fn the_json_receipt_is_alone_on_standard_output() {
    for_each_identity(|lab| {
        let ended = lab
            .fence()
            .flags(["--json"])
            .sh("echo from-the-agent; touch .env.x; exit 6")
            .ended;
        assert_eq!(ended.code, 6, "{ended:?}");
        let receipt: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        assert!(ended.stderr.contains("from-the-agent"), "{}", ended.stderr);
        follows("run", &receipt);
        assert_eq!(
            (receipt["exit"].as_u64(), receipt["backend"].as_str()),
            (Some(6), Some("native"))
        );
        assert_eq!(receipt["denials"]["count"], 1);
        assert_eq!(receipt["denials"]["first"][0]["code"], "BST-FS-002");
        let probes = receipt["statement"]["probes"]
            .as_array()
            .expect("the capability statement");
        assert!(probes.len() > 20 && probes.iter().all(|probe| probe["verdict"] == "HELD"));
        assert!(
            receipt["usage"]["wall_ms"].as_u64().is_some_and(|ms| ms > 0),
            "{}",
            receipt["usage"]
        );
        let log = receipt["audit"]["log"].as_str().expect("a path");
        assert_eq!(
            std::fs::read_to_string(log).expect("the log").lines().count() as u64,
            receipt["audit"]["records"].as_u64().expect("a count")
        );
        let failed = lab.fence().flags(["--json", "--net", "wide"]).run(["true"]).ended;
        let fault: Value = serde_json::from_str(failed.stderr.trim()).expect("a JSON error");
        assert_eq!(
            (failed.code, fault["schema"].as_str(), failed.stdout.as_str()),
            (125, Some("bastle.error/v1"), "")
        );
    });
}

#[test]
fn a_dry_run_executes_nothing_and_records_nothing() {
    for_each_identity(|lab| {
        let output = lab
            .fence()
            .flags(["--dry-run-policy", "--timeout", "5m", "--env", "TOKEN=canary"])
            .run(["touch", "ran"]);
        assert_eq!(output.ended.code, 0, "{:?}", output.ended);
        assert!(
            output.ended.stdout.contains("nothing was executed")
                && output.ended.stdout.contains("timeout 5m"),
            "{}",
            output.ended.stdout
        );
        let json = lab
            .fence()
            .flags(["--dry-run-policy", "--json", "--env", "TOKEN=canary"])
            .run(["touch", "ran"])
            .ended;
        let plan: Value = serde_json::from_str(&json.stdout).expect("one JSON object");
        assert_eq!(plan["schema"], "bastle.plan/v1");
        assert!(
            !json.stdout.contains("canary") && !output.ended.stdout.contains("canary"),
            "a value is shown"
        );
        assert!(!lab.workspace().join("ran").exists() && output.audit.is_empty());
        assert!(
            !lab.home().join(".local/state/bastle/audit").exists(),
            "a dry run leaves no record"
        );
    });
}

#[test]
fn grants_and_hiding_on_the_command_line_hold_relative_to_the_current_directory() {
    for_each_identity(|lab| {
        let given = lab.plant(&lab.outside().join("given/data"), "data\n");
        lab.project("sub/secret.pem", "canary\n");
        lab.project("sub/open.txt", "open\n");
        let folder = lab.workspace().join("sub");
        let script =
            "cat ../../outside/given/data; echo more >> ../../outside/given/data; cat secret.pem open.txt";
        let before = lab
            .fence()
            .cwd(&folder)
            .flags(["--workspace-dir", ".."])
            .sh(script)
            .ended;
        assert!(
            before.stdout.contains("canary") && !before.stdout.contains("data"),
            "{before:?}"
        );
        let flags = [
            "--workspace-dir",
            "..",
            "--rw",
            "../../outside/given",
            "--hide",
            "*.pem",
        ];
        let ended = lab.fence().cwd(&folder).flags(flags).sh(script).ended;
        assert_eq!(ended.stdout, "data\nopen\n", "{ended:?}");
        assert_eq!(std::fs::read_to_string(given).expect("is there"), "data\nmore\n");
        let ended = lab
            .fence()
            .flags(["--ro", "../outside"])
            .sh("echo x >> ../outside/given/data")
            .ended;
        assert_ne!(ended.code, 0, "a reading grant does not write: {ended:?}");
        let ended = lab
            .fence()
            .flags(["--sandbox", "read-only"])
            .sh("echo x > new")
            .ended;
        assert_ne!(ended.code, 0);
        assert!(!lab.workspace().join("new").exists());
    });
}
