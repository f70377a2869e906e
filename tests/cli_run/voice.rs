//! What is said on standard error: the first words, denials, the receipt. Never an escape sequence of the agent's.
use crate::support::{Limit, bastle, for_each_identity, run};
use std::path::Path;
use std::process::Command;

#[test]
fn the_first_output_says_what_holds_and_the_receipt_what_happened() {
    for_each_identity(|lab| {
        let ended = lab.fence().run(["true"]).ended;
        let said = &ended.stderr;
        for part in [
            "bastle 0.",
            "fence: namespaces+landlock",
            "net: proxy (0 hosts)",
            "preset: default@1",
            "workspace: in-place",
            "probes held",
            "audit ",
            "finished 0 in",
            "sealed (",
        ] {
            assert!(said.contains(part), "{part:?} is missing: {said}");
        }
        assert_eq!(ended.stdout, "");
        assert!(!said.contains('\x1b') && !said.contains('\r'), "{said:?}");
        let quiet = lab
            .fence()
            .flags(["--quiet"])
            .sh("touch .env.x 2>/dev/null; true")
            .ended;
        assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
        let ascii = lab
            .fence()
            .env("LC_ALL", "C")
            .sh("touch .env.x 2>/dev/null")
            .ended;
        assert!(
            ascii.stderr.is_ascii() && ascii.stderr.contains("BST-FS-002"),
            "{}",
            ascii.stderr
        );
    });
}

#[test]
fn a_denial_names_what_who_why_and_the_command_that_changes_it() {
    for_each_identity(|lab| {
        let other = lab.plant(&lab.outside().join("x"), "");
        let script = format!("echo > {}; echo y > /usr/x; mkdir .husky", other.display());
        let ended = lab
            .fence()
            .flags([
                "--ro",
                other.parent().and_then(|dir| dir.to_str()).expect("UTF-8"),
            ])
            .sh(&script)
            .ended;
        let said = &ended.stderr;
        assert!(
            said.contains(&format!("denied write {}", other.display())),
            "{said}"
        );
        assert!(
            said.contains(&format!("bastle run --rw {}", other.display())),
            "{said}"
        );
        assert!(
            said.contains("BST-FS-001") && said.contains("BST-FS-003") && said.contains("bastle why d_"),
            "{said}"
        );
        assert!(
            !said.contains("--rw /usr"),
            "a system directory is never proposed: {said}"
        );
        assert!(
            said.contains("reads outside the policy are not reported"),
            "{said}"
        );
        assert!(said.contains("3 denied"), "{said}");
    });
}

#[test]
fn an_agents_escape_sequences_and_line_ends_never_reach_the_terminal() {
    for_each_identity(|lab| {
        let script = "n=$(printf '.env\\033[2J\\n\\342\\200\\256x'); touch \"$n\" 2>/dev/null";
        let ended = lab.fence().sh(script).ended;
        assert!(ended.stderr.contains("BST-FS-002"), "{}", ended.stderr);
        assert!(!ended.stderr.contains(['\x1b', '\u{202e}']), "{:?}", ended.stderr);
        assert!(ended.stderr.contains("\\x1b[2J\\n\\u{202e}x"), "{}", ended.stderr);
    });
}

#[test]
fn a_flood_of_denials_is_counted_and_not_shown() {
    for_each_identity(|lab| {
        let ended = lab
            .fence()
            .sh("i=0; while [ $i -lt 60 ]; do touch .env.$i 2>/dev/null; i=$((i+1)); done")
            .ended;
        assert_eq!(
            ended.stderr.matches("denied write").count(),
            20,
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stderr.matches("more denials follow").count(), 1);
        assert!(ended.stderr.contains("60 denied"), "{}", ended.stderr);
    });
}

#[test]
fn what_a_project_asks_for_and_does_not_get_is_said() {
    for_each_identity(|lab| {
        let outside = lab.outside();
        let wish = format!(
            "{{\"version\": 1, \"fs\": {{\"write\": [\".\", \"{}\"]}}}}",
            outside.display()
        );
        lab.project("agent-permissions.json", &wish);
        let ended = lab.fence().sh(&format!("echo x > {}/x", outside.display())).ended;
        assert!(
            ended.stderr.contains("requested, not granted:"),
            "{}",
            ended.stderr
        );
        assert!(!outside.join("x").exists());
        let ended = lab
            .fence()
            .flags(["--allow-user-expansion"])
            .sh(&format!("echo x > {}/x", outside.display()))
            .ended;
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(outside.join("x").exists());
    });
}

/// Copies a directory and leaves everything to its owner.
fn copied(from: &Path, to: &Path) {
    let copy = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copy.expect("cp is there").success());
}

#[test]
fn a_run_after_a_rollback_says_so_and_the_anchor_elsewhere_keeps_the_alarm() {
    for_each_identity(|lab| {
        let state = lab.home().join(".local/state/bastle");
        let elsewhere = lab.plant(&lab.outside().join("anchor"), "");
        let named = format!("{}\n", elsewhere.display());
        lab.plant(&state.join("audit.anchor-file"), &named);
        let verified = || {
            let mut verify = lab.command(bastle());
            verify.args(["audit", "verify", "--all"]);
            run(&mut verify, b"", Limit::HANG)
        };
        let warned = |flags: &[&str]| {
            let output = lab.fence().flags(flags).run(["true"]);
            let noted = output.events("note").iter().any(|note| note["topic"] == "anchor");
            let said = output.ended.stderr.contains("line 4 of the index, of run");
            assert_eq!((output.ended.code, noted), (0, said), "{}", output.ended.stderr);
            said
        };
        let (audit, kept) = (state.join("audit"), state.join("kept"));
        assert!(!warned(&[]), "control");
        copied(&audit, &kept);
        assert!(!warned(&[]), "control");
        assert_eq!(verified().code, 0, "control");
        std::fs::remove_dir_all(&audit).expect("it was there");
        std::fs::rename(&kept, &audit).expect("on one file system");
        std::fs::remove_file(state.join("audit.anchor")).expect("it was there");
        // Said once, also to those who want to hear nothing: later runs append lines that fit.
        assert!(warned(&["--quiet"]));
        for _ in 0..2 {
            assert!(!warned(&[]));
            let alarm = verified();
            assert!(
                alarm.code == 1 && alarm.stderr.contains("line 3 of the index is not the one"),
                "{}: {}",
                alarm.code,
                alarm.stderr
            );
        }
    });
}
