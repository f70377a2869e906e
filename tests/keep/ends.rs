//! Ending and standing still: asked, then killed; paused for real; and nothing left.
use crate::kept::{Kept, SOON, alive, mark, verb};
use crate::support::{Limit, eventually, for_each_identity};
use std::time::Duration;

#[test]
fn an_agent_that_ignores_being_asked_is_killed_after_its_grace_with_everything_it_started() {
    for_each_identity(|lab| {
        let mark = mark();
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            &format!("trap '' TERM\n(trap '' TERM; setsid sleep {mark}) &\necho up; sleep {mark}\n"),
        );
        kept.printed("up");
        assert!(eventually(SOON, || !alive(&mark).is_empty()), "control");
        let stopped = kept.say(&["stop", "--grace", "300ms"]);
        assert_eq!(
            (stopped.code, stopped.stdout.trim()),
            (0, kept.name.as_str()),
            "{stopped:?}"
        );
        assert!(alive(&mark).is_empty(), "{:?}", alive(&mark));
        let file = kept.file();
        assert_eq!(
            (&file["state"], &file["reason"]),
            (&"cancelled".into(), &"stopped".into()),
            "{file}"
        );
        // Ending what has ended is no failure.
        assert_eq!(kept.say(&["stop"]).code, 0);
    });
}

#[test]
fn an_agent_that_obeys_ends_in_its_own_way_and_its_last_words_are_kept() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "trap 'echo farewell; exit 4' TERM\necho up; while :; do sleep 0.05; done\n",
        );
        kept.printed("up");
        assert_eq!(kept.say(&["stop", "--grace", "60s"]).code, 0);
        assert_eq!(kept.say(&["logs"]).stdout, "up\nfarewell\n");
        let file = kept.file();
        assert_eq!(
            (&file["state"], &file["code"]),
            (&"cancelled".into(), &4.into()),
            "{file}"
        );
    });
}

#[test]
fn a_signal_to_the_keeper_ends_the_run_in_order() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "trap 'echo farewell; exit 0' TERM\necho up; while :; do sleep 0.05; done\n",
        );
        kept.printed("up");
        let keeper = i32::try_from(kept.file()["keeper"].as_u64().expect("a keeper")).expect("a pid");
        let pid = rustix::process::Pid::from_raw(keeper).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is there");
        assert_eq!(kept.wait(), 0);
        assert_eq!(kept.states().last().map(String::as_str), Some("cancelled"));
        assert_eq!(kept.say(&["logs"]).stdout, "up\nfarewell\n");
    });
}

#[test]
fn a_paused_run_does_nothing_until_it_is_resumed_and_can_be_ended_while_it_stands() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "trap 'exit 0' TERM\nwhile :; do echo x >> count; sleep 0.01; done\n",
        );
        let count = lab.workspace().join("count");
        let size = || std::fs::metadata(&count).map_or(0, |meta| meta.len());
        assert!(eventually(SOON, || size() > 4), "control: it counts");
        assert_eq!(kept.say(&["pause"]).code, 0);
        assert_eq!(kept.file()["state"], "suspended");
        // Whatever was on its way when the freeze came is done at once; then nothing moves.
        let mut last = size();
        let still = eventually(SOON, || {
            // Long enough for many turns of the counter; nobody ever sends.
            let (_silent, clock) = std::sync::mpsc::channel::<()>();
            assert!(clock.recv_timeout(Duration::from_millis(300)).is_err());
            let now = size();
            std::mem::replace(&mut last, now) == now
        });
        assert!(still, "it goes on counting");
        let listed = verb(lab, &["ps"]).stdout;
        assert!(listed.contains("suspended"), "{listed}");
        assert_eq!(kept.say(&["resume"]).code, 0);
        assert!(eventually(SOON, || size() > last), "it does not go on");
        assert_eq!(kept.states(), ["building", "running", "suspended", "running"]);
        // Frozen, it hears no signal: to end it it is thawed first.
        assert_eq!(kept.say(&["pause"]).code, 0);
        let stopped = kept.say(&["stop", "--grace", "60s"]);
        assert_eq!(stopped.code, 0, "{stopped:?}");
        assert!(stopped.took < Duration::from_secs(50), "only the grace ended it");
        assert_eq!(kept.file()["code"], 0);
        assert_ne!(kept.say(&["pause"]).code, 0, "what has ended cannot be paused");
    });
}

#[test]
fn a_paused_run_is_killed_at_once_and_labels_choose_whom() {
    for_each_identity(|lab| {
        lab.share();
        let mark = mark();
        let sleeps = format!("echo up; sleep {mark}\n");
        let one = Kept::start(
            lab,
            &["--net", "none", "--tag", "batch=a7", "--tag", "i=1"],
            &sleeps,
        );
        let two = Kept::start(
            lab,
            &["--net", "none", "--tag", "batch=a7", "--tag", "i=2"],
            &sleeps,
        );
        let other = Kept::start(lab, &["--net", "none", "--tag", "batch=b1"], &sleeps);
        for kept in [&one, &two, &other] {
            kept.printed("up");
        }
        assert_eq!(one.say(&["pause"]).code, 0);
        let listed = verb(lab, &["ps", "--tag", "batch=a7"]).stdout;
        assert!(
            listed.contains(&one.name) && listed.contains(&two.name) && !listed.contains(&other.name),
            "{listed}"
        );
        let ended = verb(lab, &["kill", "--tag", "batch=a7"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(
            (&one.file()["state"], &two.file()["state"], &other.file()["state"]),
            (&"cancelled".into(), &"cancelled".into(), &"running".into())
        );
        assert_eq!(
            alive(&mark).len(),
            1,
            "only the other's is left: {:?}",
            alive(&mark)
        );
    });
}

#[test]
fn a_run_out_of_time_fails_for_that_reason_and_pausing_it_does_not_stop_the_clock() {
    for_each_identity(|lab| {
        let kept = Kept::start(lab, &["--net", "none", "--timeout", "3s"], "echo up; sleep 600\n");
        assert_eq!(kept.say(&["pause"]).code, 0);
        assert_eq!(kept.wait(), 124);
        let file = kept.file();
        assert_eq!(
            (&file["state"], &file["reason"]),
            (&"failed".into(), &"timeout".into()),
            "{file}"
        );
    });
}

#[test]
fn a_run_at_a_terminal_can_be_paused_and_ended_from_elsewhere_too() {
    for_each_identity(|lab| {
        let mark = mark();
        let fence = lab.fence().flags(["--net", "none"]);
        let name = fence.name().to_owned();
        let mut run = crate::support::Background::start(&mut fence.command(["sleep", &mark]));
        let listed = || verb(lab, &["ps"]).stdout;
        assert!(eventually(SOON, || listed().contains("running")), "{}", listed());
        assert_eq!(verb(lab, &["pause", &name]).code, 0);
        assert!(listed().contains("suspended"), "{}", listed());
        assert_eq!(verb(lab, &["resume", &name]).code, 0);
        assert_eq!(verb(lab, &["stop", &name]).code, 0);
        assert_eq!(run.end(Limit::HANG), Some(128 + 15));
        assert!(alive(&mark).is_empty());
    });
}
