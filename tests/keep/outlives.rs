//! A run belongs to nobody's terminal: its output is whole, its end is recorded once, and the kernel ends it with its
//! keeper.
use crate::kept::{Kept, SOON, alive, mark, verb};
use crate::support::{Limit, bastle, eventually, for_each_identity, run};
use rustix::process::{Pid, Signal};

#[test]
fn what_a_run_prints_after_its_starter_is_gone_is_kept_byte_by_byte() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "until [ -e go ]; do sleep 0.02; done\n\
             i=0; while [ $i -lt 20000 ]; do echo \"line $i of the output\"; i=$((i+1)); done\n\
             printf 'a\\000b\\033[31m\\377' ; echo problem >&2; exit 3\n",
        );
        // `run -d` has returned: nothing of it is there any more, and only now the agent prints.
        lab.project("go", "");
        assert_eq!(kept.wait(), 3);
        let mut expected: Vec<u8> = Vec::new();
        for i in 0..20_000 {
            expected.extend_from_slice(format!("line {i} of the output\n").as_bytes());
        }
        expected.extend_from_slice(b"a\0b\x1b[31m\xff");
        let mut command = lab.command(bastle());
        let raw = command
            .args(["logs", &kept.name])
            .output()
            .expect("can be started");
        assert!(raw.stdout == expected, "{} bytes came", raw.stdout.len());
        assert_eq!(raw.stderr, b"problem\n");
        assert_eq!(kept.states(), ["building", "running", "failed"]);
        let file = kept.file();
        assert_eq!(
            (&file["code"], &file["reason"]),
            (&3.into(), &"exit 3".into()),
            "{file}"
        );
        assert!(
            file["usage"]["wall_ms"].as_u64() > Some(0) && file["ended_ms"].is_u64(),
            "{file}"
        );
        let only = kept.say(&["logs", "--stderr-only"]);
        assert_eq!((only.stdout.as_str(), only.stderr.as_str()), ("", "problem\n"));
        // What ended stays until it is removed, and then its name is free.
        assert!(verb(lab, &["ps", "-a"]).stdout.contains(&kept.name));
        assert!(!verb(lab, &["ps"]).stdout.contains(&kept.name));
        assert_eq!(kept.say(&["rm"]).code, 0);
        assert!(!kept.directory().exists());
    });
}

#[test]
fn a_killed_keeper_takes_every_process_along_and_the_run_is_lost_not_running() {
    for_each_identity(|lab| {
        let mark = mark();
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            &format!("sleep {mark} & (setsid sleep {mark} &) ; trap '' TERM HUP; echo up; wait\n"),
        );
        kept.printed("up");
        assert!(
            eventually(SOON, || alive(&mark).len() >= 2),
            "control: {:?}",
            alive(&mark)
        );
        let keeper = kept.file()["keeper"].as_u64().expect("a keeper");
        let pid = Pid::from_raw(i32::try_from(keeper).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, Signal::KILL).expect("is there");
        assert!(eventually(SOON, || alive(&mark).is_empty()), "{:?}", alive(&mark));
        // The kernel releases the lock of a killed keeper when all its files are closed, which may be after
        // the end of its run: closing an inotify instance waits for a grace period.
        let listed = || verb(lab, &["ps", "-a"]).stdout;
        assert!(
            eventually(SOON, || listed().contains("failed (lost)")),
            "{}",
            listed()
        );
        assert_eq!(kept.states(), ["building", "running", "failed"]);
        // Whoever asks again finds the same, and nothing more is written.
        let before = kept.events().len();
        assert_eq!(verb(lab, &["ps", "-a"]).code, 0);
        assert_eq!((kept.events().len(), kept.wait()), (before, 125));
        // What it printed is there.
        assert_eq!(kept.say(&["logs"]).stdout, "up\n");
    });
}

#[test]
fn a_second_keeper_of_a_run_does_nothing_whether_it_lives_or_has_ended() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "echo once >> times; until [ -e go ]; do sleep 0.02; done\n",
        );
        let keeper = kept.file()["keeper"].clone();
        let again = || {
            let mut command = lab.command(bastle());
            command.arg("__keep").arg(kept.state()).arg(&kept.name);
            run(&mut command, b"", Limit::HANG).code
        };
        assert_ne!(again(), 0);
        assert_eq!(
            (kept.file()["keeper"].clone(), kept.file()["state"].as_str()),
            (keeper, Some("running"))
        );
        lab.project("go", "");
        assert_eq!(kept.wait(), 0);
        let events = kept.events().len();
        assert_ne!(again(), 0);
        assert_eq!((kept.events().len(), kept.wait()), (events, 0));
        let times = std::fs::read_to_string(lab.workspace().join("times")).expect("the agent ran");
        assert_eq!(times, "once\n");
    });
}

#[test]
fn following_shows_everything_until_the_end_and_events_are_numbered() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "cat /etc/shadow 2>/dev/null; for i in 1 2 3 4 5; do echo tick $i; sleep 0.1; done\n",
        );
        let followed = kept.say(&["logs", "-f"]);
        assert_eq!(followed.stdout, "tick 1\ntick 2\ntick 3\ntick 4\ntick 5\n");
        let events = kept.say(&["logs", "--events", "--json", "-f"]);
        let kinds: Vec<String> = events
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("is JSON"))
            .map(|event| event["kind"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(kinds.first().map(String::as_str), Some("state"), "{kinds:?}");
        assert_eq!(kinds.last().map(String::as_str), Some("state"), "{kinds:?}");
        assert!(kinds.iter().any(|kind| kind == "ended"), "{kinds:?}");
        kept.events();
        let stamped = kept.say(&["logs", "-t"]).stdout;
        assert!(
            stamped
                .lines()
                .all(|line| line.starts_with("20") && line.contains("Z tick")),
            "{stamped}"
        );
    });
}
