//! Bad surroundings: places that cannot be used, records that cannot be kept, names that cannot be trusted. Nothing may start.
use crate::host::{names, pass};
use crate::live::Live;
use crate::support::{Ended, Identity, Lab, Limit, bastle, for_each_identity, run, skip};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A plain `bastle run`, for what the harness takes care of otherwise.
fn plain(lab: &Lab, directory: &Path) -> Command {
    let mut command = lab.command(bastle());
    command.current_dir(directory).args(["run", "--"]);
    command
}

/// `sh -c 'echo STARTED'` behind it.
fn started(command: &mut Command) -> Ended {
    run(
        command.args(["sh", "-c", "echo STARTED; echo x > written"]),
        b"",
        Limit::HANG,
    )
}

fn assert_refused(ended: &Ended, code: &str, what: &str) {
    assert_eq!(ended.code, 125, "{what}: {ended:?}");
    assert!(ended.stderr.contains(code), "{what}: {ended:?}");
    assert!(!ended.stdout.contains("STARTED"), "{what}: {ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{what}: {ended:?}");
}

fn folder(lab: &Lab, name: &OsStr) -> PathBuf {
    let place = lab.outside().join(name);
    std::fs::create_dir_all(&place).expect("can be made");
    lab.hand_over(&place);
    place
}

#[test]
fn a_workspace_that_cannot_be_read_is_refused() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Root {
            return;
        }
        let place = folder(lab, OsStr::new("closed"));
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o000)).expect("own directory");
        let mut command = lab.command(bastle());
        command.args(["run", "--workspace-dir"]).arg(&place).arg("--");
        let ended = started(&mut command);
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("own directory");
        assert_refused(&ended, "BST-WS-001", "mode 000");
        assert_eq!(started(&mut plain(lab, &place)).code, 0, "control: readable");
    });
}

#[test]
fn a_workspace_removed_while_starting_is_refused_or_seen_empty_and_never_hangs() {
    for_each_identity(|lab| {
        for delay in [0, 5, 10, 20, 30, 40, 60] {
            let place = folder(lab, OsStr::new("vanishing"));
            let live = Live::start(plain(lab, &place).args(["sh", "-c", "echo STARTED"]));
            pass(Duration::from_millis(delay));
            std::fs::remove_dir_all(&place).expect("own directory");
            let ended = live.wait();
            assert!([0, 125].contains(&ended.code), "{ended:?}");
            assert!(!ended.errors().contains("panicked"), "{ended:?}");
            assert!(!place.exists(), "it is not made again");
        }
    });
}

#[test]
fn odd_names_of_workspaces_are_names_and_nothing_else() {
    for_each_identity(|lab| {
        let odd = [
            "with space",
            "quo\"te'",
            "$(touch pwned)",
            "; touch pwned",
            "--help",
            "-rf",
            "naïve-日本",
            "tab\there",
            "back\\slash",
            "*",
            "#x",
        ];
        for name in odd {
            let place = folder(lab, OsStr::new(name));
            let ended = started(&mut plain(lab, &place));
            assert_eq!(
                (ended.code, ended.stdout.as_str()),
                (0, "STARTED\n"),
                "{name:?}: {ended:?}"
            );
            assert!(
                names(&place).iter().eq(["written"]),
                "{name:?}: {:?}",
                names(&place)
            );
            let mut named = lab.command(bastle());
            let joined = format!("--workspace-dir={}", place.display());
            named.args(["run", &joined, "--"]);
            assert_eq!(started(&mut named).code, 0, "{name:?}");
        }
        assert!(!names(&lab.workspace()).contains("pwned"));
    });
}

#[test]
fn a_workspace_name_that_no_record_can_hold_is_refused_clearly() {
    for_each_identity(|lab| {
        for name in [&b"bad\xff\xfename"[..], b"line\nbreak", b"esc\x1b[31m"] {
            let place = folder(lab, OsStr::from_bytes(name));
            let ended = started(&mut plain(lab, &place));
            if ended.code == 0 {
                // Control bytes may be accepted, but must never reach a terminal raw.
                assert!(
                    !ended.stderr.contains('\u{1b}') && std::str::from_utf8(name).is_ok(),
                    "{ended:?}"
                );
                continue;
            }
            assert_refused(&ended, "BST-WS-001", &format!("{name:?}"));
            assert!(!ended.stderr.contains("\u{1b}[31m"), "{ended:?}");
            assert!(names(&place).is_empty());
        }
    });
}

#[test]
fn a_directory_that_holds_more_than_a_project_is_refused() {
    for_each_identity(|lab| {
        for place in ["/", "/etc", "/usr", "/tmp", "/proc", "/sys", "/dev"]
            .map(PathBuf::from)
            .into_iter()
            .chain([lab.home()])
        {
            let mut command = lab.command(bastle());
            command.args(["run", "--workspace-dir"]).arg(&place).arg("--");
            let ended = run(command.args(["sh", "-c", "echo STARTED"]), b"", Limit::HANG);
            assert_refused(&ended, "BST-WS-001", &format!("{}", place.display()));
        }
    });
}

#[test]
fn without_a_usable_home_nothing_starts() {
    for_each_identity(|lab| {
        let mut without = plain(lab, &lab.workspace());
        without.env_remove("HOME");
        assert_refused(&started(&mut without), "BST-WS-001", "unset");
        for home in ["", "relative/home", "."] {
            let mut odd = plain(lab, &lab.workspace());
            odd.env("HOME", home);
            assert_refused(&started(&mut odd), "BST-WS-001", home);
        }
        assert!(names(&lab.workspace()).is_empty(), "nothing was started");
        assert_eq!(
            started(&mut plain(lab, &lab.workspace())).code,
            0,
            "control: with one"
        );
    });
}

#[test]
fn no_record_no_run() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("file"), "");
        let mut places = vec![file, PathBuf::from("/dev/full"), PathBuf::from("/proc/self")];
        if lab.identity != Identity::Root {
            let closed = folder(lab, OsStr::new("read-only"));
            std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).expect("own directory");
            places.push(closed);
        }
        for state in places {
            let mut command = plain(lab, &lab.workspace());
            command.env("XDG_STATE_HOME", &state);
            let ended = started(&mut command);
            assert_refused(&ended, "BST-", &format!("{}", state.display()));
            assert!(
                ["BST-STA-001", "BST-AUD-001"]
                    .iter()
                    .any(|code| ended.stderr.contains(code)),
                "{ended:?}"
            );
            assert!(names(&lab.workspace()).is_empty(), "nothing was started");
        }
        assert_eq!(
            started(&mut plain(lab, &lab.workspace())).code,
            0,
            "control: a usable one"
        );
    });
}

#[test]
fn a_disk_that_fills_up_under_the_record_ends_the_run() {
    for_each_identity(|lab| {
        if lab.identity != Identity::Root {
            if lab.identity == Identity::Current {
                skip(
                    "a_disk_that_fills_up_under_the_record_ends_the_run",
                    "only root can mount a small file system",
                );
            }
            return;
        }
        let state = folder(lab, OsStr::new("state"));
        // With a reserve the run would be paused before the file system is full.
        let rules = lab.outside().join("no-reserve.json");
        std::fs::write(&rules, r#"{"version":1,"limits":{"diskReserve":"0"}}"#).expect("can be written");
        // In a mount namespace of its own: nothing is left of the mount, whatever happens.
        let script = "mount -t tmpfs -o size=$1 none \"$2\" && shift 2 && exec \"$@\"";
        let within = |size: &str, agent: &str| {
            let mut command = lab.command("/usr/bin/unshare".as_ref());
            command
                .args(["-m", "--propagation", "private", "sh", "-c", script, "sh", size])
                .arg(&state);
            command
                .arg(bastle())
                .args(["run", "--policy"])
                .arg(&rules)
                .args(["--", "sh", "-c", agent])
                .env("XDG_STATE_HOME", &state);
            run(&mut command, b"", Limit::HANG)
        };
        let loud = "i=0; while [ $i -lt 4000 ]; do /bin/true; i=$((i+1)); done; echo SURVIVED";
        let full = within("64k", loud);
        assert_refused(&full, "BST-AUD-001", "full disk");
        assert!(!full.stdout.contains("SURVIVED"), "{full:?}");
        let control = within("64m", "for i in 1 2 3 4 5; do /bin/true; done; echo SURVIVED");
        assert_eq!(
            (control.code, control.stdout.as_str()),
            (0, "SURVIVED\n"),
            "control: with room: {control:?}"
        );
    });
}

#[test]
fn a_name_that_could_be_mistaken_for_something_else_is_refused() {
    for_each_identity(|lab| {
        let long = "a".repeat(65);
        for name in [
            "a\n",
            "\na",
            "../x",
            "a/b",
            ".",
            "..",
            "",
            "A",
            "Abc",
            "-x",
            "a b",
            "a_b",
            "é",
            "a;b",
            "a\u{202e}b",
            long.as_str(),
        ] {
            let mut command = lab.command(bastle());
            command.args(["run", &format!("--name={name}"), "--"]);
            assert_refused(&started(&mut command), "BST-USE-001", &format!("{name:?}"));
        }
        assert!(names(&lab.workspace()).is_empty(), "nothing was started");
        let longest = "a".repeat(64);
        for name in ["a", "0", "calm-otter", longest.as_str()] {
            let mut command = lab.command(bastle());
            command.args(["run", &format!("--name={name}"), "--"]);
            assert_eq!(started(&mut command).code, 0, "control: {name}");
        }
        let mut again = lab.command(bastle());
        again.args(["run", "--name=a", "--"]);
        assert_refused(&started(&mut again), "BST-", "a name that was used already");
    });
}

#[test]
fn a_caller_that_cannot_gain_privileges_itself_is_fenced_like_any_other() {
    for_each_identity(|lab| {
        let mut command = lab.command(Path::new("setpriv"));
        command.args(["--no-new-privs"]).arg(bastle()).args(["run", "--"]);
        command.current_dir(lab.workspace());
        let ended = started(&mut command);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stdout.contains("STARTED"), "{ended:?}");
    });
}
