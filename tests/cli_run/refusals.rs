//! Input that cannot be honoured is refused by name, with 125, before anything runs.
use crate::support::{Identity, Lab, Limit, for_each_identity, run};
use crate::text;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs `touch ran` with these flags: it must be refused with the code, and must not have run.
fn refused(lab: &Lab, flags: &[&str], code: &str) {
    let ended = lab.fence().flags(flags).run(["touch", "ran"]).ended;
    assert_eq!(ended.code, 125, "{flags:?}: {ended:?}");
    assert!(
        ended.stderr.contains(&format!("error[{code}]")),
        "{flags:?} wants {code}: {}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("more: bastle explain"),
        "{flags:?}: {}",
        ended.stderr
    );
    assert!(!lab.workspace().join("ran").exists(), "{flags:?} ran");
}

#[test]
fn impossible_limits_are_refused() {
    for_each_identity(|lab| {
        for flags in [
            ["--pids", "1"],
            ["--mem", "1K"],
            ["--timeout", "0s"],
            ["--open-files", "3"],
            ["--disk", "1K"],
            ["--mem", "8000T"],
        ] {
            refused(lab, &flags, "BST-LIM-010");
        }
        for flags in [
            ["--timeout", "5"],
            ["--mem", "1.5G"],
            ["--mem", "lots"],
            ["--disk", "-"],
            ["--cpu", "0"],
            ["--cpu", "nan"],
        ] {
            refused(lab, &flags, "BST-POL-002");
        }
        for flags in [["--pids", "many"], ["--pids", "-3"], ["--cpu", "x"]] {
            let ended = lab.fence().flags(flags).run(["true"]).ended;
            assert_eq!(ended.code, 125, "{flags:?}: {ended:?}");
        }
    });
}

#[test]
fn what_this_build_does_not_have_is_refused_and_never_ignored() {
    for_each_identity(|lab| {
        refused(lab, &["--net", "wide"], "BST-USE-001");
        refused(
            lab,
            &["--net", "none", "--allow-net", "example.com"],
            "BST-USE-001",
        );
        refused(lab, &["--workspace", "clone"], "BST-USE-001");
        refused(lab, &["--backend", "docker"], "BST-FENCE-007");
        refused(lab, &["--sandbox", "danger-full-access"], "BST-USE-001");
        refused(lab, &["--sandbox", "readonly"], "BST-USE-001");
        refused(lab, &["--sandbox", "read-only", "--preset", "dev"], "BST-USE-001");
        refused(lab, &["--preset", "clade"], "BST-POL-005");
        refused(lab, &["--waive", "nonsense"], "BST-USE-001");
        refused(lab, &["-t", "-T"], "BST-USE-001");
        refused(lab, &["--i-understand-this-is-not-a-fence"], "BST-USE-001");
        refused(lab, &["--ro", "not-there"], "BST-USE-001");
        refused(lab, &["--policy", "not-there.json"], "BST-POL-004");
        assert_eq!(
            lab.fence()
                .flags(["--net", "none", "--workspace", "in-place", "--backend", "auto"])
                .run(["true"])
                .ended
                .code,
            0
        );
    });
}

#[test]
fn a_bad_name_an_unknown_flag_and_a_missing_command_are_125() {
    for_each_identity(|lab| {
        for words in [
            &["run", "--name", "Bad_Name", "--", "true"][..],
            &["run", "--no-such", "--", "true"],
            &["run"],
            &["run", "--"],
            &["run", "--", ""],
        ] {
            let mut command = lab.command(crate::support::bastle());
            let ended = run(command.args(words), b"", Limit::HANG);
            assert_eq!(ended.code, 125, "{words:?}: {ended:?}");
            assert_ne!(ended.stderr, "", "{words:?}");
        }
    });
}

#[test]
fn a_directory_that_is_no_project_is_never_handed_over() {
    for_each_identity(|lab| {
        let file = lab.project("file", "x");
        let home = lab.home();
        for place in ["/", "/etc", "/tmp", "/usr", text(&home), "not-there", text(&file)] {
            refused(lab, &["--workspace-dir", place], "BST-WS-001");
        }
        let ended = lab.fence().cwd(&home).run(["true"]).ended;
        assert_eq!(
            ended.code, 125,
            "the home directory as current directory: {ended:?}"
        );
        if lab.identity != Identity::Root {
            let locked = lab.plant(Path::new("locked/x"), "");
            let locked = locked.parent().expect("has one");
            std::fs::set_permissions(locked, std::fs::Permissions::from_mode(0o000)).expect("own directory");
            refused(lab, &["--workspace-dir", text(locked)], "BST-WS-001");
            std::fs::set_permissions(locked, std::fs::Permissions::from_mode(0o755)).expect("own directory");
        }
    });
}

#[test]
fn variables_are_refused_with_their_place() {
    for_each_identity(|lab| {
        let file = lab.project("vars", "# a comment\n\nGOOD=1\n1BAD=2\n");
        let ended = lab
            .fence()
            .flags(["--env-file", text(&file)])
            .run(["touch", "ran"])
            .ended;
        assert_eq!(ended.code, 125);
        assert!(ended.stderr.contains("vars:4"), "{}", ended.stderr);
        for flags in [
            ["--env", "LD_PRELOAD=x"],
            ["--env", "A-B=1"],
            ["--env", "=x"],
            ["--env", "NOT_SET_ANYWHERE"],
            ["--env-file", "not-there"],
            ["--env-file", "/dev/zero"],
        ] {
            refused(lab, &flags, "BST-USE-002");
        }
        let fifo = lab.workspace().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o666),
            0,
        )
        .expect("a FIFO");
        lab.hand_over(&fifo);
        refused(lab, &["--env-file", text(&fifo)], "BST-USE-002");
        refused(lab, &["--policy", text(&fifo)], "BST-POL-004");
    });
}

#[test]
fn a_broken_policy_of_the_project_stops_the_run() {
    for_each_identity(|lab| {
        lab.project("agent-permissions.json", "{\"version\": 1, \"fsx\": {}}");
        refused(lab, &[], "BST-POL-002");
        lab.project("agent-permissions.json", "{\"version\": 1");
        refused(lab, &[], "BST-POL-001");
    });
}
