//! Exit codes: the command's own, and those that are bastle's.
use crate::support::{Limit, for_each_identity, run};
use crate::{alive, eventually, text};
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_commands_own_exit_code_and_signal_come_through() {
    for_each_identity(|lab| {
        for code in [0, 1, 42, 255] {
            assert_eq!(lab.fence().sh(&format!("exit {code}")).ended.code, code);
        }
        for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
            let ended = lab.fence().sh(&format!("kill -{signal} $$")).ended;
            assert_eq!(ended.code, code, "{ended:?}");
        }
    });
}

#[test]
fn a_program_that_is_missing_is_127_and_one_that_cannot_be_executed_is_126() {
    for_each_identity(|lab| {
        let ended = lab.fence().run(["no-such-program"]).ended;
        assert_eq!(ended.code, 127, "{ended:?}");
        assert!(ended.stderr.contains("BST-EXEC-002"), "{}", ended.stderr);
        lab.project("plain.txt", "no program\n");
        for program in ["./plain.txt", "./"] {
            let ended = lab.fence().run([program]).ended;
            assert_eq!(ended.code, 126, "{program}: {ended:?}");
            assert!(
                ended.stderr.contains("BST-EXEC-003"),
                "{program}: {}",
                ended.stderr
            );
        }
        let script = lab.project("lost.sh", "#!/no/such/interpreter\n");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("own file");
        assert!(matches!(lab.fence().run(["./lost.sh"]).ended.code, 126 | 127));
    });
}

#[test]
fn a_timeout_is_124_and_leaves_nothing_alive() {
    for_each_identity(|lab| {
        let mark = format!("9{:06}", std::process::id());
        let script = format!(
            "sleep {mark} & setsid sleep {mark} & (trap '' TERM HUP INT; sleep {mark}) & sleep {mark}"
        );
        let ended = lab.fence().flags(["--timeout", "3s"]).sh(&script).ended;
        assert_eq!(ended.code, 124, "{ended:?}");
        assert!(ended.stderr.contains("BST-LIM-001"), "{}", ended.stderr);
        eventually("the end of all", || alive(&format!("sleep {mark}")).is_empty());
    });
}

#[test]
fn denials_change_the_exit_code_only_when_asked_to() {
    for_each_identity(|lab| {
        let script = "touch .env.new; exit 3";
        assert_eq!(lab.fence().sh(script).ended.code, 3);
        let ended = lab.fence().flags(["--fail-on-deny"]).sh(script).ended;
        assert_eq!(ended.code, 77, "{ended:?}");
        assert_eq!(lab.fence().flags(["--fail-on-deny"]).sh("exit 3").ended.code, 3);
        let slow = lab
            .fence()
            .flags(["--fail-on-deny", "--timeout", "3s"])
            .sh("touch .env.new; sleep 60")
            .ended;
        assert_eq!(slow.code, 124, "a timeout says more than a denial: {slow:?}");
    });
}

#[test]
fn bastle_does_not_nest() {
    for_each_identity(|lab| {
        let ended = lab.fence().env("AGENT_IN_SANDBOX", "1").run(["true"]).ended;
        assert_eq!(ended.code, 125);
        assert!(ended.stderr.contains("BST-FENCE-006"), "{}", ended.stderr);
        let inside = lab.fence().sh("echo $AGENT_IN_SANDBOX").ended;
        assert_eq!(
            inside.stdout.trim(),
            "1",
            "the guard's own variable is set inside"
        );
    });
}

#[test]
fn options_end_at_the_first_word_of_the_command() {
    for_each_identity(|lab| {
        let mut command = lab.command(crate::support::bastle());
        command.args(["run", "-q", "echo", "--name", "x", "-t", "--", "y"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(
            (ended.code, ended.stdout.trim()),
            (0, "--name x -t -- y"),
            "{}",
            ended.stderr
        );
    });
}

#[test]
fn every_flag_has_a_variable_except_those_that_give_protection_up() {
    for_each_identity(|lab| {
        let ended = lab.fence().env("BASTLE_TIMEOUT", "3s").run(["sleep", "60"]).ended;
        assert_eq!(ended.code, 124, "{ended:?}");
        let ended = lab.fence().env("BASTLE_QUIET", "1").run(["true"]).ended;
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        let ended = lab
            .fence()
            .env("BASTLE_FAIL_ON_DENY", "0")
            .sh("touch .env.x")
            .ended;
        assert_eq!(ended.code, 1, "0 means no: {ended:?}");
        let ssh = lab.home().join(".ssh/id");
        lab.plant(&ssh, "canary\n");
        let ended = lab
            .fence()
            .env("BASTLE_UNPROTECT", text(&ssh))
            .env("BASTLE_RO", text(&ssh))
            .run(["cat", text(&ssh)])
            .ended;
        assert_ne!(
            ended.code, 0,
            "the floor is opened on the command line only: {ended:?}"
        );
        assert!(!ended.stdout.contains("canary"));
    });
}
