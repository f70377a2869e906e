//! Command rules through the real command line, and what holds when they are evaded: the fence.
use crate::host::names;
use crate::support::{Lab, Limit, bastle, for_each_identity, identities, run};

const POLICY: &str = r#"{ "version": 1, "exec": {
  "allow": ["ls *", "ls", "git status", "git log *", "cargo test *", "cargo test", "echo *", "find *", "sed *", "make", "sh script", "cat *"],
  "deny": ["curl *", "curl", "id", "rm -rf *", "sudo *", "docker *"],
  "ask": ["git push *", "git push"]
} }"#;

/// 0 allowed, 1 denied, 10 asks.
fn asked(lab: &Lab, line: &str) -> (i32, String) {
    let mut command = lab.command(bastle());
    command
        .args(["can-i", "exec", line, "--policy"])
        .arg(lab.outside().join("policy.json"));
    let ended = run(&mut command, b"", Limit::HANG);
    (ended.code, format!("{}{}", ended.stdout, ended.stderr))
}

#[test]
fn a_denied_command_is_seen_through_every_disguise() {
    let lab = Lab::new(identities()[0]);
    lab.plant(&lab.outside().join("policy.json"), POLICY);
    let evasions = [
        "ls; id",
        "ls && curl x",
        "ls || curl x",
        "ls | curl -T - x",
        "ls & curl x",
        "ls\ncurl x",
        "echo $(curl x)",
        "echo `curl x`",
        "cat <(curl x)",
        "env curl x",
        "env -S 'curl x'",
        "A=b curl x",
        "nice curl x",
        "timeout 5 curl x",
        "nohup setsid curl x",
        "xargs curl",
        "find . -exec curl {} +",
        "find . -delete",
        "sed '1e curl x' f",
        "sh -c 'curl x'",
        "bash <<'E'\ncurl x\nE",
        "git -c core.pager='curl x' log",
        "/usr/bin/curl x",
        "c''url x",
        "\\curl x",
        "eval curl x",
        "trap 'curl x' EXIT",
        "f() { curl x; }; f",
        "echo x > ~/.bashrc",
        "curl$IFS'x'",
        "command -p curl x",
        "if true; then curl x; fi",
        "PATH=.:$PATH ls",
        "git push",
        "ls && git push origin main",
    ];
    for line in evasions {
        let (code, said) = asked(&lab, line);
        assert!(
            [1, 10].contains(&code),
            "{line:?} was answered with {code}: {said}"
        );
    }
    for line in ["curl x", "id", "rm -rf /", "sudo ls", "ls; id"] {
        assert_eq!(asked(&lab, line).0, 1, "{line:?} is denied outright");
    }
    assert_eq!(asked(&lab, "git push origin main").0, 10);
    for line in [
        "ls -l",
        "git status",
        "cargo test --all",
        "ls && cargo test",
        "echo hello",
        "echo 'curl x'",
    ] {
        let (code, said) = asked(&lab, line);
        assert_eq!(code, 0, "control: {line:?}: {said}");
    }
}

#[test]
fn a_rule_that_would_allow_any_program_is_refused() {
    let lab = Lab::new(identities()[0]);
    for rule in ["*", "bash", "bash *", "sh *", "env *", "xargs *"] {
        lab.plant(
            &lab.outside().join("policy.json"),
            &format!("{{\"version\":1,\"exec\":{{\"allow\":[{rule:?}]}}}}"),
        );
        let (code, said) = asked(&lab, "ls");
        assert_eq!(code, 2, "{rule}: no answer under an unusable policy: {said}");
        assert!(said.contains("BST-POL-006"), "{rule}: {said}");
    }
}

#[test]
fn an_allowed_build_tool_still_cannot_touch_the_host() {
    for_each_identity(|lab| {
        let canary = lab.plant(&lab.outside().join("canary"), "CANARY");
        let ssh = lab.plant(&lab.home().join(".ssh/id_ed25519"), "CANARY");
        let policy = lab.plant(&lab.outside().join("policy.json"), POLICY);
        let steal = format!(
            "cat {c} {s}; echo x > {c}; echo x > {o}/planted; rm -rf {o} {h}/.ssh; echo x > /etc/bastle-planted; echo built > built",
            c = canary.display(),
            s = ssh.display(),
            o = lab.outside().display(),
            h = lab.home().display()
        );
        lab.project("Makefile", &format!("all:\n\t-{steal}\n"));
        lab.project("script", &steal);
        let policy = policy.display().to_string();
        for command in [&["make"][..], &["sh", "script"]] {
            let output = lab.fence().flags(["--policy", &policy]).run(command);
            assert!(!output.ended.stdout.contains("CANARY"), "{command:?}: {output:?}");
            assert_eq!(
                std::fs::read_to_string(&canary).expect("is there"),
                "CANARY",
                "{command:?}"
            );
            assert_eq!(
                std::fs::read_to_string(&ssh).expect("is there"),
                "CANARY",
                "{command:?}"
            );
            assert!(
                names(&lab.outside()).iter().eq(["canary", "policy.json"]),
                "{command:?}"
            );
            let built = lab.workspace().join("built");
            assert!(built.exists(), "control: it did run: {command:?}: {output:?}");
            std::fs::remove_file(built).expect("own file");
        }
    });
}

#[test]
fn a_script_that_cannot_be_read_for_certain_runs_when_no_rule_names_it() {
    for_each_identity(|lab| {
        for script in [
            "for f in true :; do \"$f\"; done",
            "mkdir -p .g; echo x > ./.g/../a",
            "eval 'echo x'",
        ] {
            let mut command = lab.command(bastle());
            command
                .current_dir(lab.workspace())
                .args(["run", "--", "sh", "-c", script]);
            let ended = run(&mut command, b"", Limit::HANG);
            assert_eq!(ended.code, 0, "{script}: {ended:?}");
        }
        // What a rule names is refused all the same.
        let mut command = lab.command(bastle());
        command
            .current_dir(lab.workspace())
            .args(["run", "--", "sh", "-c", "git push --force"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert!(ended.code != 0 && ended.stderr.contains("BST-EXEC"), "{ended:?}");
    });
}
