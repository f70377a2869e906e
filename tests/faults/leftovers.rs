//! The host after a run is the host before it, whatever became of the run.
use crate::host::{Host, all_gone, eventually, marker, names, stray_claims, tree};
use crate::support::{Lab, for_each_identity};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Runs `work` and compares the host before and after it. Its place for temporary files is the directory outside, which
/// is its own: what lies in the host's comes and goes with other tests.
fn leaves_nothing(lab: &Lab, what: &str, work: impl FnOnce(&str) -> String) {
    let mark = marker();
    let before = (Host::now(lab), names(&lab.home()), tree(&lab.outside()));
    let run = work(&mark);
    assert!(all_gone(&mark, &run), "{what}");
    assert!(
        eventually(|| stray_claims().is_empty()),
        "{what}: {:?}",
        stray_claims()
    );
    let mut home = names(&lab.home());
    // The state directory is the one thing a run may leave.
    home.remove(".local");
    let mut home_before = before.1;
    home_before.remove(".local");
    assert_eq!((home, tree(&lab.outside())), (home_before, before.2), "{what}");
    // Other tests mount and unmount at the same time; what this run left would stay.
    assert!(
        eventually(|| Host::now(lab).added(&before.0).is_empty()),
        "{what}: {:?}",
        Host::now(lab).added(&before.0)
    );
    let mut left = names(&std::env::temp_dir());
    left.retain(|name| name.contains(&run) || name.contains(&mark));
    assert!(left.is_empty(), "{what}: {left:?}");
    let state = lab.home().join(".local/state/bastle");
    let entries = names(&state);
    assert!(
        entries.is_empty() || entries.iter().eq(["audit", "audit.anchor"]),
        "{what}: {entries:?}"
    );
}

fn temporary(lab: &Lab) -> String {
    lab.outside().to_str().expect("UTF-8").to_owned()
}

#[test]
fn nothing_is_left_after_success_failure_refusal_or_timeout() {
    for_each_identity(|lab| {
        lab.plant(&lab.outside().join("file"), "outside");
        let cases: [(&str, &[&str], &[&str], i32); 7] = [
            (
                "success",
                &["--pids", "60"],
                &["sh", "-c", "echo hi > /tmp/x; : MARK"],
                0,
            ),
            ("failure", &["--pids", "60"], &["sh", "-c", "exit 9; : MARK"], 9),
            (
                "background",
                &["--pids", "60"],
                &["sh", "-c", "setsid sleep 600 & exit 0; : MARK"],
                0,
            ),
            ("no program", &["--pids", "60"], &["no-such-program", "MARK"], 127),
            ("refused limit", &["--pids", "0"], &["sh", "-c", ": MARK"], 125),
            (
                "refused policy",
                &["--preset", "no-such-preset"],
                &["sh", "-c", ": MARK"],
                125,
            ),
            (
                "timeout",
                &["--timeout", "700ms", "--pids", "60"],
                &["sh", "-c", "sleep 600; : MARK"],
                124,
            ),
        ];
        for (what, flags, command, code) in cases {
            leaves_nothing(lab, what, |mark| {
                let fence = lab.fence().flags(flags).env("TMPDIR", &temporary(lab));
                let name = fence.name().to_owned();
                let output = fence.run(command.iter().map(|word| word.replace("MARK", mark)));
                assert_eq!(output.ended.code, code, "{what}: {output:?}");
                name
            });
        }
    });
}

#[test]
fn nothing_is_left_after_a_fence_that_was_not_proven() {
    let Some(binary) = std::env::var_os("BASTLE_HOOKS_BIN") else {
        crate::support::skip(
            "nothing_is_left_after_a_fence_that_was_not_proven",
            "BASTLE_HOOKS_BIN is not set",
        );
        return;
    };
    for_each_identity(|lab| {
        for layer in ["seccomp", "landlock", "net-namespace", "rlimits"] {
            leaves_nothing(lab, layer, |mark| {
                let fence = lab
                    .fence()
                    .flags(["--pids", "60"])
                    .binary(Path::new(&binary))
                    .env("BASTLE_TEST_WITHOUT", layer)
                    .env("TMPDIR", &temporary(lab));
                let name = fence.name().to_owned();
                let output = fence.sh(&format!("echo x > started; : {mark}"));
                assert_eq!(output.ended.code, 125, "{layer}: {output:?}");
                name
            });
            assert!(names(&lab.workspace()).is_empty(), "{layer}");
        }
    });
}

#[test]
fn a_run_that_only_tried_denied_things_leaves_the_workspace_as_it_was() {
    for_each_identity(|lab| {
        for (path, contents) in [
            (".git/config", "[core]\n\tbare = false\n"),
            (".git/hooks/pre-commit", "#!/bin/sh\n"),
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".env", "SECRET=1"),
            ("agent-permissions.json", "{ \"version\": 1 }"),
            (".github/workflows/ci.yml", "on: push\n"),
            ("src/main.rs", "fn main() {}\n"),
        ] {
            lab.project(path, contents);
        }
        symlink(lab.outside(), lab.workspace().join("out")).expect("can be made");
        let before = (tree(&lab.workspace()), tree(&lab.outside()));
        let attempts = "echo x > .env; echo x >> .git/config; echo x > .git/hooks/pre-commit; echo x > .git/hooks/post-checkout; rm -f .env; \
            mv .env env; mv .git git; rm -rf .git/hooks; echo '{}' > agent-permissions.json; rm agent-permissions.json; \
            echo x > .env.local; mkdir .env.d; ln -s x .env.link; echo x > out/file; chmod 777 .git/hooks/pre-commit; \
            echo x > .github/workflows/ci.yml; truncate -s 0 .git/config; ln .git/config stolen-config; echo x > /etc/bastle-planted; echo end";
        let output = lab.fence().sh(attempts);
        assert_eq!(output.said(), "end", "{output:?}");
        let after = (tree(&lab.workspace()), tree(&lab.outside()));
        let differing: Vec<_> = after
            .0
            .iter()
            .filter(|(path, entry)| before.0.get(*path) != Some(*entry))
            .collect();
        let missing: Vec<_> = before
            .0
            .keys()
            .filter(|path| !after.0.contains_key(*path))
            .collect();
        assert!(
            differing.is_empty() && missing.is_empty() && before.1 == after.1,
            "{differing:?} {missing:?}: {output:?}"
        );
        let control = lab.fence().sh("echo x > src/main.rs");
        assert_eq!(control.ended.code, 0);
        assert_ne!(
            tree(&lab.workspace()),
            before.0,
            "control: what is allowed is seen"
        );
    });
}
