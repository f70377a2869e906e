//! The host backend: never by itself, never silent, never without its refusals.
use crate::support::{Lab, Output, for_each_identity};
use crate::{alive, eventually, follows, text};
use serde_json::Value;

const CONSENT: [&str; 3] = ["--backend", "host", "--i-understand-this-is-not-a-fence"];

fn unfenced(lab: &Lab, flags: &[&str], command: &[&str]) -> Output {
    lab.fence().flags(CONSENT).flags(flags).run(command)
}

#[test]
fn it_needs_consent_on_the_command_line_and_is_loud_even_when_quiet() {
    for_each_identity(|lab| {
        let ended = lab
            .fence()
            .flags(["--backend", "host"])
            .run(["touch", "ran"])
            .ended;
        assert!(
            ended.code == 125 && ended.stderr.contains("BST-HOST-001"),
            "{ended:?}"
        );
        let ended = lab
            .fence()
            .env("BASTLE_BACKEND", "host")
            .env("BASTLE_I_UNDERSTAND_THIS_IS_NOT_A_FENCE", "1")
            .run(["touch", "ran"])
            .ended;
        assert_eq!(
            ended.code, 125,
            "consent cannot come from the environment: {ended:?}"
        );
        assert!(!lab.workspace().join("ran").exists());
        let output = unfenced(lab, &["--quiet"], &["env"]);
        assert_eq!(output.ended.code, 0, "{:?}", output.ended);
        assert!(
            output.ended.stderr.contains("SOFT_SANDBOX=true"),
            "{}",
            output.ended.stderr
        );
        let env = &output.ended.stdout;
        assert!(
            env.contains("SOFT_SANDBOX=true")
                && !env.contains("AGENT_IN_SANDBOX")
                && !env.contains(&format!("HOME={}\n", lab.home().display())),
            "{env}"
        );
        assert_eq!(output.events("run-planned")[0]["backend"], "host");
        assert_eq!(
            output.events("statement")[0]["probes"].as_array().map(Vec::len),
            Some(0),
            "nothing is proven"
        );
        assert_eq!(output.events("ended").len(), 1);
    });
}

#[test]
fn shells_network_tools_deletion_and_paths_outside_are_refused() {
    for_each_identity(|lab| {
        lab.project("a", "a");
        for command in [
            &["sh", "-c", "true"][..],
            &["/bin/bash"],
            &["curl", "x"],
            &["env", "wget", "x"],
            &["timeout", "3", "nc", "-l"],
            &["ssh", "h"],
            &["rm", "-rf", "a"],
            &["sudo", "true"],
            &["docker", "ps"],
            &["cat", "/etc/passwd"],
            &["cat", "../outside"],
            &["cat", "--file=/etc/hosts"],
        ] {
            let ended = unfenced(lab, &[], command).ended;
            assert!(
                ended.code == 126 && ended.stderr.contains("BST-HOST-002"),
                "{command:?}: {ended:?}"
            );
        }
        assert!(lab.workspace().join("a").exists());
        assert_eq!(unfenced(lab, &[], &["cat", "a"]).said(), "a");
        assert_eq!(unfenced(lab, &[], &["no-such-program"]).ended.code, 127);
    });
}

#[test]
fn its_timeout_kills_the_whole_group_and_its_receipt_says_soft() {
    for_each_identity(|lab| {
        let mark = format!("8{:06}", std::process::id());
        let ended = unfenced(lab, &["--timeout", "500ms", "--json"], &["sleep", &mark]).ended;
        assert_eq!(ended.code, 124, "{ended:?}");
        eventually("the end of all", || alive(&format!("sleep {mark}")).is_empty());
        let receipt: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        assert_eq!(
            (receipt["soft_sandbox"].as_bool(), receipt["backend"].as_str()),
            (Some(true), Some("host"))
        );
        follows("run", &receipt);
        assert_eq!(receipt["statement"], Value::Null);
        assert!(
            !receipt["waivers"].as_array().expect("a list").is_empty(),
            "what is not held is named"
        );
        assert!(
            !lab.home()
                .join(".local/state/bastle/host")
                .read_dir()
                .is_ok_and(|mut left| left.next().is_some()),
            "private directories stay behind"
        );
    });
}

#[test]
fn its_limits_of_output_and_descriptors_hold() {
    for_each_identity(|lab| {
        lab.project("big", &"x".repeat(50_000));
        let ended = unfenced(lab, &["--max-output", "1K"], &["cat", "big"]).ended;
        assert_eq!(ended.stdout.len(), 1024, "{ended:?}");
        let input = lab.fence().flags(CONSENT).input(b"through").run(["cat"]);
        assert_eq!(input.said(), "through");
        assert!(text(&lab.workspace()).starts_with('/'));
    });
}
