//! Doctor where the kernel refuses a fence: each test makes one refusal in namespaces of its own.
use super::support::{Ended, Identity, Lab, Limit, bastle, identities, run, skip, text};
use super::{check, follows};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// An ordinary user, and root to prepare the host for it.
fn ordinary(test: &str) -> Option<(Lab, u32)> {
    let found = identities().into_iter().find_map(|identity| match identity {
        Identity::Ordinary(uid) => Some((Lab::new(identity), uid)),
        Identity::Root | Identity::Current => None,
    });
    if found.is_none() {
        skip(test, "making a namespace refuse needs root");
    }
    found
}

fn script(name: &str) -> String {
    format!("{}/tests/cli_doctor/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A shell script as the user, where no network namespace may be made.
fn without_networks(lab: &Lab, uid: u32, script_text: &str) -> Ended {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh"]);
    command.arg(script("limits.sh")).arg(uid.to_string());
    command.arg(lab.outside()).arg(script_text);
    command.env_clear().current_dir(lab.workspace());
    command.env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    command.env("HOME", lab.home()).env("BASTLE", bastle());
    run(&mut command, b"", Limit::HANG)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_namespace_limit_of_zero_is_named_its_fix_is_run_as_printed_and_the_trial_is_made_again() {
    let name = "a_namespace_limit_of_zero_is_named_its_fix_is_run_as_printed_and_the_trial_is_made_again";
    let Some((lab, uid)) = ordinary(name) else { return };
    let found = without_networks(&lab, uid, "exec \"$BASTLE\" doctor --json");
    let before = json(&found.stdout);
    follows("doctor", &before);
    assert_eq!(
        (found.code, before["cause"].as_str(), before["native"].as_bool()),
        (1, Some("namespace-limit-zero"), Some(false)),
        "{before}"
    );
    let fence = check(&before, "fence");
    assert!(
        fence["proof"]
            .as_str()
            .is_some_and(|proof| proof.contains("user.max_net_namespaces is 0"))
    );
    assert_eq!(
        (
            fence["fix"].as_array().map(Vec::len),
            fence["automatic"].as_bool()
        ),
        (Some(1), Some(true)),
        "{fence}"
    );
    let fixed = without_networks(
        &lab,
        uid,
        "\"$BASTLE\" doctor --fix --yes --json && cat /proc/sys/user/max_net_namespaces >&2",
    );
    let after = json(&fixed.stdout);
    follows("doctor", &after);
    assert_eq!(
        (fixed.code, after["native"].as_bool()),
        (0, Some(true)),
        "{after}"
    );
    assert_eq!(after["fixes"][0]["result"], "worked");
    assert_eq!(
        after["fixes"][0]["command"], fence["fix"][0],
        "what is run is what is printed"
    );
    assert!(fixed.stderr.ends_with("15000\n"), "{}", fixed.stderr);
}

#[test]
fn without_a_terminal_nothing_is_run_and_a_no_is_a_no() {
    let name = "without_a_terminal_nothing_is_run_and_a_no_is_a_no";
    let Some((lab, uid)) = ordinary(name) else { return };
    let asked = without_networks(
        &lab,
        uid,
        "\"$BASTLE\" doctor --fix; echo code=$?; cat /proc/sys/user/max_net_namespaces",
    );
    assert!(asked.stdout.ends_with("code=2\n0\n"), "{asked:?}");
    assert!(
        asked.stderr.contains("no fix was run") && asked.stderr.contains("it would run: echo 15000 |"),
        "{}",
        asked.stderr
    );
    let answer = |word: &str| {
        without_networks(
            &lab,
            uid,
            &format!(
                "echo {word} | script -qec '\"$BASTLE\" doctor --fix; echo code=$?' /dev/null; cat /proc/sys/user/max_net_namespaces"
            ),
        )
        .stdout
    };
    let no = answer("n");
    assert!(
        no.contains("[y/N]") && no.contains("code=1") && no.ends_with("\n0\n"),
        "{no}"
    );
    let yes = answer("y");
    assert!(
        yes.contains("fixed: namespace-limit-zero") && yes.contains("code=0") && yes.ends_with("\n15000\n"),
        "{yes}"
    );
}

/// Doctor as the user after root has changed the mounts of a namespace.
fn after(lab: &Lab, change: &str, start: &str) -> Value {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!(
        "set -e\n{change}\nset +e\n{start} \"$BASTLE\" doctor --json"
    ));
    command.env_clear().current_dir(lab.workspace());
    command.env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    command.env("HOME", lab.home()).env("BASTLE", bastle());
    command.env("PLACE", lab.outside());
    let ended = run(&mut command, b"", Limit::HANG);
    let found = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    follows("doctor", &found);
    found
}

#[test]
fn a_chroot_and_a_covered_proc_are_named() {
    let Some((lab, uid)) = ordinary("a_chroot_and_a_covered_proc_are_named") else {
        return;
    };
    let user = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    // One whole /proc anywhere in the namespace would do for the kernel: there may be others on this machine.
    let cover = "grep -- ' - proc ' /proc/self/mountinfo | cut -d ' ' -f 5 | grep -v '^/proc$' | while read -r other; do umount -l \"$other\"; done\n\
                 mount --bind /dev/null /proc/version";
    let covered = after(&lab, cover, &user);
    assert_eq!(covered["cause"], "proc-covered", "{covered}");
    // The whole tree again, at a place that is not the root of the namespace.
    let chroot = after(
        &lab,
        "mount --rbind / \"$PLACE\"",
        &format!("chroot --userspec={uid}:{uid} --groups= \"$PLACE\""),
    );
    assert_eq!(chroot["cause"], "chroot", "{chroot}");
    let neither = after(&lab, ":", &user);
    assert_eq!(
        (neither["cause"].as_str(), neither["native"].as_bool()),
        (None, Some(true))
    );
}

#[test]
fn a_temporary_directory_that_cannot_be_mapped_is_not_taken_for_a_fault_of_the_host() {
    let name = "a_temporary_directory_that_cannot_be_mapped_is_not_taken_for_a_fault_of_the_host";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only runs by root map the owner");
    }
    let lab = Lab::new(Identity::Root);
    let found = after(
        &lab,
        "mount -t ramfs none \"$PLACE\"; export TMPDIR=\"$PLACE\"",
        "",
    );
    assert_eq!(
        (found["cause"].as_str(), found["native"].as_bool()),
        (None, Some(true)),
        "{found}"
    );
    let told = check(&found, "idmap")["fact"].as_str().unwrap_or_default();
    assert!(told.contains(text(&lab.outside())), "{found}");
    assert!(Path::new("/var/tmp").is_dir());
}
