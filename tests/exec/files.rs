//! Files in and out of a living run.
use crate::agent::shown;
use crate::living::{Living, conforms};
use crate::support::{Ended, Limit, for_each_identity, run};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn cp(living: &Living<'_>, words: &[&str]) -> Ended {
    let mut line = living.bastle(&["cp"]);
    run(line.args(words), b"", Limit::HANG)
}

#[test]
fn a_file_is_copied_out_and_in_to_the_last_byte() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let bytes: String = (0..200_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        lab.project("big file", &bytes);
        let run = living.agent.name();
        let target = lab.outside().join("copy");
        let out = cp(&living, &[&format!("{run}:big file"), &shown(&target)]);
        assert_eq!(out.code, 0, "{out:?}");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), bytes);
        let meta = target.metadata().unwrap();
        assert_eq!(
            (meta.uid(), meta.mode() & 0o111),
            (lab.identity.uid(), 0),
            "never executable"
        );
        let source = lab.plant(&lab.outside().join("in.sh"), "#!/bin/sh\necho ran\n");
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
        let json = cp(
            &living,
            &["--json", &shown(&source), &format!("{run}:/tmp/in.sh")],
        );
        assert_eq!(json.code, 0, "{json:?}");
        let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(
            (&value["schema"], &value["bytes"]),
            (&"bastle.cp/v1".into(), &19.into())
        );
        conforms("cp", &value);
        assert_eq!(living.exec(&["/tmp/in.sh"]).stdout, "ran\n");
        // Into a directory under its own name.
        let into = cp(&living, &[&format!("{run}:big file"), &shown(&lab.outside())]);
        assert_eq!(into.code, 0, "{into:?}");
        assert!(lab.outside().join("big file").exists());
    });
}

#[test]
fn directories_devices_secrets_and_what_is_too_large_are_not_copied_and_leave_nothing() {
    for_each_identity(|lab| {
        lab.project("dir/f", "x");
        lab.project("large", &"x".repeat(5000));
        let secret = lab.plant(&lab.home().join(".ssh/id"), "SECRET");
        let living = Living::start(lab);
        let run = living.agent.name();
        let target = lab.outside().join("copy");
        let directory = cp(&living, &[&format!("{run}:dir"), &shown(&target)]);
        assert_eq!(directory.code, 1, "{directory:?}");
        assert!(directory.stderr.contains("bastle export"), "{directory:?}");
        for name in ["/dev/zero", "nothing", &shown(&secret)] {
            let refused = cp(&living, &[&format!("{run}:{name}"), &shown(&target)]);
            assert_eq!(refused.code, 1, "{name}: {refused:?}");
            assert!(refused.stderr.contains("BST-EXEC-006"), "{name}: {refused:?}");
        }
        let large = cp(
            &living,
            &["--max-size", "4K", &format!("{run}:large"), &shown(&target)],
        );
        assert_eq!(large.code, 1, "{large:?}");
        assert!(large.stderr.contains("larger"), "{large:?}");
        assert_eq!(
            std::fs::read_dir(lab.outside()).unwrap().count(),
            0,
            "nothing is left behind"
        );
        let fits = cp(
            &living,
            &["--max-size", "5000", &format!("{run}:large"), &shown(&target)],
        );
        assert_eq!(fits.code, 0, "control: {fits:?}");
        let outside = cp(&living, &[&shown(&target), &format!("{run}:/etc/made")]);
        assert_eq!(outside.code, 1, "{outside:?}");
        let hidden = cp(&living, &[&shown(&target), &format!("{run}:.env")]);
        assert_eq!(
            hidden.code, 1,
            "the fence holds for what is copied in: {hidden:?}"
        );
        assert!(!lab.workspace().join(".env").exists());
        let whole = cp(&living, &[&shown(&lab.outside()), &format!("{run}:x")]);
        assert_eq!(whole.code, 1, "{whole:?}");
        for words in [["a", "b"], ["x:a", "y:b"]] {
            assert_eq!(cp(&living, &words).code, 2);
        }
    });
}

#[test]
fn a_file_that_never_ends_is_cut_off_at_the_bound() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        // What looks like a file and grows while it is read.
        let growing = living.background(&[
            "sh",
            "-c",
            "echo x > grows; echo up; while :; do head -c 100000 /dev/zero >> grows; done",
        ]);
        assert_eq!(growing.line(), "up");
        let target = lab.outside().join("copy");
        let name = format!("{}:grows", living.agent.name());
        let cut = cp(&living, &["--max-size", "1M", &name, &shown(&target)]);
        assert!(
            cut.code == 1 || target.metadata().is_ok_and(|meta| meta.len() <= 1 << 20),
            "{cut:?}"
        );
        drop(growing);
    });
}
