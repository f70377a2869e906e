//! Attacks on the file system: paths, links, devices, mounts, ownership. The host is looked at after each.
use crate::support::{Lab, for_each_identity};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("places of the tests are UTF-8")
}

pub(crate) fn below(directory: &Path, name: &str) -> String {
    text(&directory.join(name)).to_owned()
}

/// A name that no other test and no host has.
pub(crate) fn unique(prefix: &str) -> String {
    format!(
        "{prefix}/bastle-escape-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    )
}

pub(crate) fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

#[test]
fn a_write_by_absolute_path_outside_the_workspace_is_refused_told_once_and_leaves_the_host_alone() {
    for_each_identity(|lab| {
        let home = below(&lab.home(), "x");
        let outside = below(&lab.outside(), "x");
        let (etc, usr, scratch) = (unique("/etc"), unique("/usr"), unique("/var/tmp"));
        let attacks: Vec<[&str; 3]> = [&etc, &usr, &home, &outside, &scratch]
            .map(|path| ["write", path.as_str(), "pwned"])
            .to_vec();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let (seen, output) = lab.fence().attack(&attacks);
        // The last is the sandbox's own /var/tmp: written there, and nowhere else.
        assert_eq!(seen, ["EROFS", "EROFS", "ENOENT", "ENOENT", "OK"], "{output:?}");
        for path in [&etc, &usr, &home, &outside, &scratch] {
            assert!(!Path::new(path).exists(), "{path} was written on the host");
        }
        for path in [&etc, &usr] {
            let told = output.denials(path);
            assert_eq!(told.len(), 1, "{path}: {output:?}");
            assert_eq!(
                (told[0]["kind"].as_str(), told[0]["errno"].as_str()),
                (Some("write"), Some("EROFS"))
            );
        }
        assert_eq!(
            lab.unfenced(&[attacks[2], attacks[3]]),
            all("OK", 2),
            "control: without the fence"
        );
        let granted = lab
            .fence()
            .flags(["--rw", text(&lab.outside())])
            .attack(&[attacks[3]])
            .0;
        assert_eq!(granted, all("OK", 1), "control: with the grant");
        assert_eq!(
            std::fs::read_to_string(&outside).expect("was written"),
            "pwnedpwned"
        );
    });
}

#[test]
fn secrets_of_the_home_directory_and_of_other_projects_cannot_be_read() {
    for_each_identity(|lab| {
        let canaries = [
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".config/gh/hosts.yml",
            ".gnupg/private-keys-v1.d/k.key",
            ".netrc",
        ]
        .map(|name| lab.plant(&lab.home().join(name), "CANARY"));
        let other = lab.plant(&lab.outside().join("project/.env"), "CANARY");
        let own = lab.project(".env", "CANARY");
        let nested = lab.project("sub/dir/.env.production", "CANARY");
        let attacks: Vec<[&str; 2]> = canaries
            .iter()
            .chain([&other, &own, &nested])
            .map(|path| ["read", text(path)])
            .collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        assert_eq!(lab.unfenced(&attacks), all("OK", 8), "control: without the fence");
        let (seen, output) = lab.fence().attack(&attacks);
        let expected = [all("ENOENT", 6), all("EACCES", 2)].concat();
        assert_eq!(seen, expected, "{output:?}");
        assert!(!output.ended.stderr.contains("CANARY"), "{output:?}");
        let readable = lab.project("README", "CANARY");
        assert_eq!(
            lab.fenced(&[&["read", text(&readable)]]),
            all("OK", 1),
            "control: an ordinary file"
        );
    });
}

#[test]
fn climbing_with_dots_or_descriptors_does_not_leave_the_root() {
    for_each_identity(|lab| {
        let canary = lab.plant(&lab.outside().join("canary"), "CANARY");
        let attacks: [&[&str]; 4] = [
            &["climb", text(&canary)],
            &["climb-fd", text(&canary)],
            &["climb", "/etc/shadow"],
            &["climb-fd", "/root/.bashrc"],
        ];
        assert_eq!(lab.fenced(&attacks), all("ENOENT", 4));
        assert_eq!(
            lab.unfenced(&attacks[..2]),
            all("OK", 2),
            "control: without the fence"
        );
        let granted = lab
            .fence()
            .flags(["--ro", text(&lab.outside())])
            .attack(&attacks[..2])
            .0;
        assert_eq!(granted, all("OK", 2), "control: climbing itself works");
    });
}

#[test]
fn a_symlink_out_of_the_workspace_is_judged_by_where_it_lands() {
    for_each_identity(|lab| {
        let canary = lab.plant(&lab.outside().join("canary"), "CANARY");
        let ready = lab.workspace().join("ready-made");
        let outside = lab.outside();
        symlink(&outside, &ready).expect("can be made");
        let attacks: [&[&str]; 6] = [
            &["symlink", text(&outside), "made-inside"],
            &["write", "made-inside/x", "pwned"],
            &["read", "made-inside/canary"],
            &["write", "ready-made/x", "pwned"],
            &["overwrite", "ready-made/canary", "pwned"],
            &["read", "ready-made/canary"],
        ];
        let seen = lab.fenced(&attacks);
        assert_eq!(seen, ["OK", "ENOENT", "ENOENT", "ENOENT", "ENOENT", "ENOENT"]);
        assert!(!lab.outside().join("x").exists());
        assert_eq!(std::fs::read_to_string(&canary).expect("is there"), "CANARY");
        let granted = lab
            .fence()
            .flags(["--rw", text(&lab.outside())])
            .attack(&attacks[3..])
            .0;
        assert_eq!(granted, all("OK", 3), "control: with the target granted");
    });
}

#[test]
fn a_workspace_file_cannot_be_renamed_or_exchanged_out_of_it() {
    for_each_identity(|lab| {
        lab.project("mine", "mine");
        let theirs = lab.plant(&lab.outside().join("theirs"), "theirs");
        let fresh = below(&lab.outside(), "fresh");
        let attacks: [&[&str]; 3] = [
            &["rename", "mine", &fresh],
            &["exchange", "mine", text(&theirs)],
            &["rename", text(&theirs), "stolen"],
        ];
        assert_eq!(
            lab.fenced(&attacks),
            all("ENOENT", 3),
            "not granted: does not exist"
        );
        let read_only = lab
            .fence()
            .flags(["--ro", text(&lab.outside())])
            .attack(&attacks)
            .0;
        for errno in &read_only {
            assert!(
                ["EXDEV", "EROFS"].contains(&errno.as_str()),
                "granted for reading: {read_only:?}"
            );
        }
        assert_eq!(std::fs::read_to_string(&theirs).expect("is there"), "theirs");
        assert!(!Path::new(&fresh).exists());
        assert_eq!(
            lab.fenced(&[&["rename", "mine", "mine2"]]),
            all("OK", 1),
            "control: within the workspace"
        );
        lab.project("mine", "mine");
        assert_eq!(
            lab.unfenced(&attacks[1..]),
            all("OK", 2),
            "control: without the fence"
        );
    });
}

#[test]
fn a_file_outside_cannot_be_hard_linked_into_the_workspace() {
    for_each_identity(|lab| {
        let theirs = lab.plant(&lab.outside().join("theirs"), "theirs");
        let attacks: [&[&str]; 2] = [
            &["link", text(&theirs), "one"],
            &["link-fd", text(&theirs), "two"],
        ];
        let seen = lab
            .fence()
            .flags(["--ro", text(&lab.outside())])
            .attack(&attacks)
            .0;
        assert_eq!(seen, all("EXDEV", 2));
        assert_eq!(theirs.metadata().expect("is there").nlink(), 1);
        lab.project("own", "own");
        assert_eq!(
            lab.fenced(&[&["link", "own", "own2"]]),
            all("OK", 1),
            "control: within the workspace"
        );
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
    });
}

#[test]
fn a_workspace_file_with_a_hard_link_elsewhere_cannot_be_written_through() {
    for_each_identity(|lab| {
        let shared = lab.plant(&lab.outside().join("shared"), "precious");
        std::fs::hard_link(&shared, lab.workspace().join("shared")).expect("same file system");
        lab.project("own", "own");
        let attacks: [&[&str]; 4] = [
            &["overwrite", "shared", "pwned"],
            &["chmod", "shared", "0777"],
            &["read", "shared"],
            &["overwrite", "own", "new"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        assert_eq!(seen, ["EROFS", "EROFS", "OK", "OK"], "{output:?}");
        assert_eq!(std::fs::read_to_string(&shared).expect("is there"), "precious");
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
        assert_eq!(std::fs::read_to_string(&shared).expect("is there"), "pwnedous");
    });
}

#[test]
fn a_workspace_full_of_shared_files_is_refused_before_the_start() {
    for_each_identity(|lab| {
        let shared = lab.plant(&lab.outside().join("shared"), "precious");
        for index in 0..300 {
            std::fs::hard_link(&shared, lab.workspace().join(format!("l{index}"))).expect("same file system");
        }
        let output = lab.fence().sh("echo started > marker");
        assert_eq!(output.ended.code, 125, "{output:?}");
        assert!(output.ended.stderr.contains("BST-WS-002"), "{output:?}");
        assert!(!lab.workspace().join("marker").exists());
        for index in 1..300 {
            std::fs::remove_file(lab.workspace().join(format!("l{index}"))).expect("own link");
        }
        assert_eq!(lab.fence().sh("exit 0").ended.code, 0, "control: few of them");
    });
}

#[test]
fn a_working_directory_behind_proc_or_a_symlink_to_too_much_is_refused() {
    for_each_identity(|lab| {
        let link = lab.outside().join("etc");
        symlink("/etc", &link).expect("can be made");
        for directory in [
            "/proc/self/fd/0/../..",
            "/proc/1/cwd",
            "/proc/self/root",
            text(&link),
            "/proc/self/cwd/../..",
        ] {
            let output = lab
                .fence()
                .flags(["--workspace-dir", directory])
                .run(["sh", "-c", "echo started"]);
            assert_eq!(output.ended.code, 125, "{directory}: {output:?}");
            assert!(
                output.ended.stderr.contains("BST-WS-001"),
                "{directory}: {output:?}"
            );
            assert_eq!(output.said(), "", "{directory}");
        }
        let alias = lab.outside().join("alias");
        symlink(lab.workspace(), &alias).expect("can be made");
        let output = lab.fence().flags(["--workspace-dir", text(&alias)]).sh("pwd -P");
        assert_eq!(
            output.said(),
            text(&lab.workspace()),
            "control: a symlink to a project is resolved"
        );
    });
}

#[test]
fn a_hidden_file_is_not_reached_by_another_name() {
    for_each_identity(|lab| {
        let secret = lab.project("sub/.env", "CANARY");
        lab.project("mine", "x");
        let inside = text(&secret);
        let attacks: [&[&str]; 9] = [
            &["link", inside, "leak1"],
            &["link-fd", inside, "leak2"],
            &["rename", inside, "leak3"],
            &["exchange", inside, "mine"],
            &["rename", "mine", inside],
            &["unlink", inside],
            &["chmod", inside, "0644"],
            &[
                "read",
                Box::leak(format!("/proc/self/root{inside}").into_boxed_str()),
            ],
            &["read", "/proc/self/cwd/sub/.env"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        for (attack, errno) in attacks.iter().zip(&seen) {
            let refused = ["EACCES", "EBUSY", "EXDEV", "EROFS"].contains(&errno.as_str());
            assert!(refused, "{attack:?}: {errno} {output:?}");
        }
        assert_eq!(std::fs::read_to_string(&secret).expect("is there"), "CANARY");
        let moved = lab
            .fence()
            .sh("mv sub elsewhere; cat elsewhere/.env sub/.env; mv elsewhere sub; echo done");
        assert_eq!(moved.said(), "done", "{moved:?}");
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
    });
}

#[test]
fn the_sibling_of_a_granted_directory_is_not_granted() {
    for_each_identity(|lab| {
        let evil = lab.plant(&lab.outside().with_file_name("ws-evil").join("canary"), "CANARY");
        let wide = lab.plant(&lab.outside().join("allowed-not/canary"), "CANARY");
        lab.plant(&lab.outside().join("allowed/canary"), "CANARY");
        let allowed = below(&lab.outside(), "allowed");
        let inside = below(&lab.outside(), "allowed/canary");
        let attacks: [&[&str]; 4] = [
            &["read", text(&evil)],
            &["read", text(&wide)],
            &["write", text(&evil), "x"],
            &["read", &inside],
        ];
        let seen = lab.fence().flags(["--rw", &allowed]).attack(&attacks).0;
        assert_eq!(seen, ["ENOENT", "ENOENT", "ENOENT", "OK"]);
        assert_eq!(lab.unfenced(&attacks), all("OK", 4), "control: without the fence");
    });
}

#[test]
fn odd_names_are_taken_as_data() {
    for_each_identity(|lab| {
        for name in [
            "--rw",
            "a b",
            "quo'te\"d",
            "-rf",
            "$(touch pwned)",
            "tab\there",
            "ünï",
            "back\\slash",
        ] {
            let project = lab.plant(&lab.outside().join(name).join("file"), "hello");
            let project = project.parent().expect("has one").to_path_buf();
            let script = "cat file && echo made > -- && echo made > './--rw' && pwd -P";
            let output = lab.fence().cwd(&project).sh(script);
            assert_eq!(output.ended.code, 0, "{name:?}: {output:?}");
            assert_eq!(output.said(), format!("hello{}", text(&project)), "{name:?}");
            assert!(
                project.join("--rw").exists() && project.join("--").exists(),
                "{name:?}"
            );
        }
        assert!(!lab.outside().join("pwned").exists() && !lab.workspace().join("pwned").exists());
    });
}

#[test]
fn the_audit_log_is_out_of_reach_even_when_the_state_directory_lies_in_the_workspace() {
    for_each_identity(|lab| {
        let reach = |lab: &Lab, state: &Path| {
            let script = format!(
                "ls -R {0} 2>&1; for f in $(find {0} -type f 2>/dev/null); do echo x >> $f; done",
                text(state)
            );
            lab.fence().env("XDG_STATE_HOME", text(state)).sh(&script)
        };
        let normal = reach(lab, &lab.home().join("state"));
        assert!(
            !normal.events("ended").is_empty(),
            "control: the log exists: {normal:?}"
        );
        assert!(!normal.ended.stdout.contains("log.jsonl"), "{normal:?}");
        let inside = lab.workspace().join("state");
        std::fs::create_dir(&inside).expect("can be made");
        lab.hand_over(&inside);
        let output = reach(lab, &inside);
        let untouched = output.ended.code == 125 || !output.ended.stdout.contains("log.jsonl");
        assert!(untouched, "the agent sees its own audit log: {output:?}");
    });
}
