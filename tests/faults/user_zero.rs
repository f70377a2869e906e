//! User id 0 that is no root of a host: of a container without capabilities, of a user namespace.
use crate::support::{Identity, Lab, Output, bastle, for_each_identity, skip, text};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program that starts bastle in the way a container would, and passes its arguments on.
fn started_by(lab: &Lab, name: &str, prefix: &str) -> PathBuf {
    let script = format!("#!/bin/sh\nexec {prefix} '{}' \"$@\"\n", text(bastle()));
    let file = lab.plant(&lab.tools().join(name), &script);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("own file");
    file
}

/// Whether the host lets this identity do that at all.
fn works(lab: &Lab, words: &[&str]) -> bool {
    let mut command = lab.command("/usr/bin/env".as_ref());
    command.args(words).arg("true");
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// `inside outside` of the agent's user id and all its capability sets, as it reads them.
const LOOK: &str = "read inside outside count < /proc/self/uid_map; echo $inside $outside $count; \
    grep -c '^Cap.*:.0000000000000000$' /proc/self/status";

fn statement(output: &Output) -> String {
    output.events("statement")[0]["fence"]
        .as_str()
        .expect("is told")
        .to_owned()
}

#[test]
fn user_id_0_of_a_user_namespace_runs_as_an_ordinary_user_does() {
    let name = "user_id_0_of_a_user_namespace_runs_as_an_ordinary_user_does";
    for_each_identity(|lab| {
        if lab.identity == Identity::Root {
            return;
        }
        if !works(lab, &["unshare", "-Ur"]) {
            return skip(name, "unshare -Ur does not work here");
        }
        let inside = started_by(lab, "in-userns", "unshare -Ur");
        let output = lab.fence().binary(&inside).flags(["--pids", "60"]).sh(LOOK);
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert_eq!(output.said(), "1000 0 1\n5", "{output:?}");
        assert!(
            statement(&output).ends_with("(uid 0 outside, without capabilities)"),
            "{output:?}"
        );
        let control = lab.fence().flags(["--pids", "60"]).sh(LOOK);
        assert_eq!(control.ended.code, 0, "control: {control:?}");
        assert!(!statement(&control).contains("uid 0"), "control: {control:?}");
    });
}

#[test]
fn root_without_the_capability_to_mount_builds_as_an_ordinary_user_and_says_so() {
    let name = "root_without_the_capability_to_mount_builds_as_an_ordinary_user_and_says_so";
    for_each_identity(|lab| {
        if lab.identity != Identity::Root {
            return;
        }
        let prefix = ["setpriv", "--bounding-set", "-sys_admin"];
        if !works(lab, &prefix) {
            return skip(name, "setpriv does not work here");
        }
        let bounded = started_by(lab, "bounded", &prefix.join(" "));
        let output = lab.fence().binary(&bounded).flags(["--pids", "60"]).sh(LOOK);
        let held = output.ended.code == 0;
        if held {
            assert_eq!(output.said(), "1000 0 1\n5", "{output:?}");
            assert!(
                statement(&output).ends_with("(uid 0 outside, without capabilities)"),
                "{output:?}"
            );
        } else {
            // Without a cgroup nothing counts the processes of user id 0.
            assert!(
                output.ended.stderr.contains("does not bind user id 0"),
                "{output:?}"
            );
        }
        let control = lab.fence().flags(["--pids", "60"]).sh(LOOK);
        assert_eq!(control.ended.code, 0, "control: {control:?}");
        assert!(
            !control.said().starts_with("1000 0 "),
            "control: root gives a uid of its own: {control:?}"
        );
    });
}

#[test]
fn root_that_may_not_map_its_own_id_is_refused_with_that_cause() {
    let name = "root_that_may_not_map_its_own_id_is_refused_with_that_cause";
    for_each_identity(|lab| {
        if lab.identity != Identity::Root {
            return;
        }
        let prefix = ["setpriv", "--bounding-set", "-sys_admin,-setfcap"];
        // The rule is Linux 5.12's.
        let refuses = Command::new("setpriv")
            .args(&prefix[1..])
            .args(["unshare", "-Ur", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| !status.success());
        if !works(lab, &prefix) || !refuses {
            return skip(name, "this kernel lets it");
        }
        let bounded = started_by(lab, "bounded", &prefix.join(" "));
        let output = lab
            .fence()
            .binary(&bounded)
            .flags(["--waive", "pids"])
            .sh("echo x > started");
        assert_eq!(output.ended.code, 125, "{output:?}");
        for words in [
            "BST-FENCE-001",
            "without CAP_SYS_ADMIN",
            "CAP_SETFCAP",
            "--user 1000:1000",
        ] {
            assert!(output.ended.stderr.contains(words), "{words}: {output:?}");
        }
        assert!(!lab.workspace().join("started").exists());
    });
}
