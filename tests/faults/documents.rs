//! Policy files that cannot be trusted to mean what they say: refused with a place and a reason, and nothing starts.
use crate::host::names;
use crate::support::{Lab, Limit, Output, bastle, for_each_identity, run, skip};
use rustix::fs::{CWD, FileType, Mode};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const POLICY: &str = "agent-permissions.json";

fn attempt(lab: &Lab) -> Output {
    lab.fence().sh("echo x > started; echo STARTED")
}

fn assert_refused(lab: &Lab, what: &str) {
    let output = attempt(lab);
    assert_eq!(output.ended.code, 125, "{what}: {output:?}");
    assert!(output.ended.stderr.contains("BST-POL-00"), "{what}: {output:?}");
    assert!(
        !output.ended.stdout.contains("STARTED") && !output.ended.stderr.contains("panicked"),
        "{what}: {output:?}"
    );
    assert!(
        output.audit.is_empty() && !names(&lab.workspace()).contains("started"),
        "{what}: {output:?}"
    );
}

fn replace(lab: &Lab, bytes: &[u8]) {
    let path = lab.workspace().join(POLICY);
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(&path).expect("own file");
    }
    std::fs::write(&path, bytes).expect("own directory");
    lab.hand_over(&path);
}

#[test]
fn a_document_that_is_not_exactly_right_is_refused() {
    for_each_identity(|lab| {
        let deep = format!(
            "{{\"version\":1,\"fs\":{}{}}}",
            "[".repeat(5000),
            "]".repeat(5000)
        );
        let large = format!("{{\"version\":1}}{}", " ".repeat(65 * 1024));
        let cases: [(&str, &[u8]); 15] = [
            ("empty", b""),
            ("blank", b"  \n"),
            ("not JSON", b"hello"),
            ("cut off", b"{\"version\":1"),
            ("trailing", b"{\"version\":1} {}"),
            ("unknown key", b"{\"version\":1,\"fz\":{}}"),
            ("unknown nested key", b"{\"version\":1,\"fs\":{\"reed\":[\".\"]}}"),
            ("doubled key", b"{\"version\":1,\"version\":1}"),
            (
                "doubled nested key",
                b"{\"version\":1,\"fs\":{\"hide\":[\"a\"],\"hide\":[\"b\"]}}",
            ),
            ("wrong version", b"{\"version\":2}"),
            ("not UTF-8", b"{\"version\":1,\"mode\":\"\xff\"}"),
            ("NUL", b"{\"version\":1,\"fs\":{\"hide\":[\"a\\u0000b\"]}}"),
            ("raw NUL", b"{\"version\":1}\0"),
            ("deep", deep.as_bytes()),
            ("65 KiB", large.as_bytes()),
        ];
        for (what, bytes) in cases {
            replace(lab, bytes);
            assert_refused(lab, what);
        }
        for (what, bytes) in [
            ("plain", &b"{\"version\":1}"[..]),
            ("comment", b"// why\n{\"version\":1 /* one */}"),
        ] {
            replace(lab, bytes);
            assert_eq!(attempt(lab).said(), "STARTED", "control: {what}");
            std::fs::remove_file(lab.workspace().join("started")).expect("was written");
        }
    });
}

#[test]
fn a_byte_order_mark_is_refused_or_skipped_but_never_hides_the_rules_behind_it() {
    for_each_identity(|lab| {
        lab.project("secret.txt", "CANARY");
        replace(
            lab,
            b"\xef\xbb\xbf{\"version\":1,\"fs\":{\"hide\":[\"secret.txt\"]}}",
        );
        let output = lab.fence().sh("cat secret.txt");
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        replace(lab, b"{\"version\":1}");
        assert_eq!(
            lab.fence().sh("cat secret.txt").said(),
            "CANARY",
            "control: without the rule"
        );
    });
}

#[test]
fn a_pipe_or_device_in_place_of_a_document_is_refused_and_never_read() {
    for_each_identity(|lab| {
        let path = lab.workspace().join(POLICY);
        let fifo = lab.outside().join("fifo");
        for place in [&path, &fifo] {
            rustix::fs::mknodat(CWD, place, FileType::Fifo, Mode::RWXU, 0).expect("a pipe can be made");
            lab.hand_over(place);
        }
        assert_refused(lab, "pipe");
        for target in [
            fifo.as_path(),
            Path::new("/dev/zero"),
            Path::new("/proc/self/mem"),
            Path::new("."),
            Path::new(POLICY),
        ] {
            std::fs::remove_file(&path).expect("own file");
            symlink(target, &path).expect("own directory");
            assert_refused(lab, &format!("symlink to {}", target.display()));
        }
        std::fs::remove_file(&path).expect("own file");
        assert_eq!(attempt(lab).said(), "STARTED", "control: without one");
    });
}

#[test]
fn a_document_that_cannot_be_read_is_no_reason_to_go_on_without_it() {
    for_each_identity(|lab| {
        if lab.identity.uid() == 0 {
            return;
        }
        let path = lab.project(POLICY, "{\"version\":1}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).expect("own file");
        assert_refused(lab, "the project's");
        std::fs::remove_file(&path).expect("own file");
        let own = lab.plant(&lab.home().join(".config/bastle/policy.json"), "{\"version\":1}");
        std::fs::set_permissions(&own, PermissionsExt::from_mode(0o000)).expect("own file");
        assert_refused(lab, "the user's");
        std::fs::set_permissions(&own, PermissionsExt::from_mode(0o600)).expect("own file");
        assert_eq!(attempt(lab).said(), "STARTED", "control: readable");
        let absent = lab
            .fence()
            .flags(["--policy", "no-such-file.json"])
            .sh("echo STARTED");
        assert_eq!(absent.ended.code, 125, "{absent:?}");
        assert!(absent.ended.stderr.contains("BST-POL-004"), "{absent:?}");
    });
}

#[test]
fn a_managed_document_that_cannot_be_read_stops_everybody() {
    for_each_identity(|lab| {
        if rustix::process::geteuid().as_raw() != 0 {
            skip(
                "a_managed_document_that_cannot_be_read_stops_everybody",
                "only root can put one in place",
            );
            return;
        }
        let managed = lab.outside().join("etc-bastle");
        std::fs::create_dir(&managed).expect("can be made");
        let policy = managed.join("policy.json");
        // In a mount namespace of its own: the host's /etc stays as it is.
        let script = "mount -t tmpfs none /etc -o mode=755 && mkdir /etc/bastle && mount --bind \"$1\" /etc/bastle && shift && exec \"$@\"";
        let within = || {
            let mut command = lab.command("/usr/bin/unshare".as_ref());
            let uid = lab.identity.uid().to_string();
            command.uid_of_root();
            command
                .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
                .arg(&managed);
            command.args(["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"]);
            command
                .arg(bastle())
                .args(["run", "--", "sh", "-c", "echo STARTED"]);
            run(&mut command, b"", Limit::HANG)
        };
        for (what, contents, mode, code) in [
            ("readable", "{\"version\":1}", 0o644, 0),
            (
                "closed",
                "{\"version\":1}",
                0o000,
                if lab.identity.uid() == 0 { 0 } else { 125 },
            ),
            ("broken", "{\"version\":", 0o644, 125),
            ("unknown key", "{\"version\":1,\"x\":1}", 0o644, 125),
        ] {
            std::fs::write(&policy, contents).expect("can be written");
            std::fs::set_permissions(&policy, PermissionsExt::from_mode(mode)).expect("own file");
            let ended = within();
            assert_eq!(ended.code, code, "{what}: {ended:?}");
            assert_eq!(ended.stdout.contains("STARTED"), code == 0, "{what}: {ended:?}");
            assert!(
                code == 0 || ended.stderr.contains("/etc/bastle/policy.json"),
                "{what}: {ended:?}"
            );
        }
        std::fs::remove_file(&policy).expect("was written");
        assert_eq!(within().code, 0, "control: an empty directory");
    });
}

/// Starts as whoever runs the tests, where the command drops privilege itself.
trait AsRoot {
    fn uid_of_root(&mut self);
}

impl AsRoot for std::process::Command {
    fn uid_of_root(&mut self) {
        use std::os::unix::process::CommandExt;
        self.uid(0).gid(0);
    }
}

#[test]
fn a_project_that_asks_for_more_is_listed_and_not_granted_unless_the_person_says_so() {
    for_each_identity(|lab| {
        let canary = lab.plant(&lab.outside().join("canary"), "CANARY");
        let outside = lab.outside().display().to_string();
        replace(
            lab,
            format!("{{\"version\":1,\"fs\":{{\"read\":[\".\",{outside:?}]}}}}").as_bytes(),
        );
        let read = format!("cat {}", canary.display());
        let output = lab.fence().sh(&read);
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        let told = output
            .ended
            .stderr
            .lines()
            .any(|line| line.contains("requested, not granted") && line.contains(&outside));
        assert!(told, "{output:?}");
        let granted = lab.fence().flags(["--allow-user-expansion"]).sh(&read);
        assert_eq!(granted.said(), "CANARY", "control: with consent: {granted:?}");
        assert!(
            granted.ended.stderr.contains("EXPANDED"),
            "the first output says so: {granted:?}"
        );
        let by_variable = lab.fence().env("BASTLE_ALLOW_USER_EXPANSION", "1").sh(&read);
        assert!(
            !by_variable.ended.stdout.contains("CANARY"),
            "consent is for the command line alone: {by_variable:?}"
        );
    });
}
