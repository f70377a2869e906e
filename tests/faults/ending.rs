//! Ends that come in time: timeouts, signals, lost readers, suspension.
use crate::host::{all_gone, marker, names};
use crate::live::Live;
use crate::support::{Lab, Limit, for_each_identity, run};
use rustix::process::Signal;
use std::time::Duration;

/// A script whose shell carries the marker as long as it runs.
fn marked_script(script: &str, marker: &str) -> String {
    format!("{script}\n: {marker}")
}

#[test]
fn nothing_outlives_a_timeout_however_stubborn() {
    for_each_identity(|lab| {
        let attacker = lab.attacker();
        let attacker = attacker.to_str().expect("places of the tests are UTF-8");
        for attack in ["tree", "stubborn"] {
            let mark = marker();
            let fence = lab.fence().flags(["--timeout", "1500ms"]);
            let name = fence.name().to_owned();
            let output = fence.run([attacker, attack, if attack == "tree" { "6" } else { "0" }, &mark]);
            assert_eq!(output.ended.code, 124, "{attack}: {output:?}");
            assert!(
                output.ended.stdout.contains("planted"),
                "{attack} was at work: {output:?}"
            );
            assert_eq!(output.events("limit")[0]["limit"], "wall-time", "{output:?}");
            assert!(output.ended.stderr.contains("BST-LIM-001"), "{output:?}");
            assert!(all_gone(&mark, &name), "{attack}");
        }
        let mark = marker();
        let script = "trap '' TERM INT HUP QUIT; (trap '' TERM; setsid sh -c \"kill -STOP \\$\\$; : MARK\") & exec >&- 2>&-; while :; do sleep 1; done";
        let fence = lab.fence().flags(["--timeout", "1s"]);
        let name = fence.name().to_owned();
        let output = fence.sh(&marked_script(&script.replace("MARK", &mark), &mark));
        assert_eq!(output.ended.code, 124, "{output:?}");
        assert!(all_gone(&mark, &name));
        let control = lab.fence().flags(["--timeout", "50s"]).sh("exit 3");
        assert_eq!(control.ended.code, 3, "control: in time");
    });
}

#[test]
fn what_the_agent_left_in_the_background_ends_with_it() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = lab.fence();
        let name = fence.name().to_owned();
        let script = format!(
            "setsid sh -c 'sleep 600; : {mark}' & sh -c 'trap \"\" TERM; sleep 600; : {mark}' & sleep 0.2; exit 5"
        );
        let output = fence.sh(&script);
        assert_eq!(output.ended.code, 5, "{output:?}");
        assert!(all_gone(&mark, &name));
    });
}

#[test]
fn a_signal_to_bastle_reaches_the_agent_which_decides_how_to_end() {
    for_each_identity(|lab| {
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::INT, "INT"),
            (Signal::HUP, "HUP"),
            (Signal::QUIT, "QUIT"),
        ] {
            let mark = marker();
            // A run with a network takes a hang-up as the wish to read its rules again.
            let fence = lab.fence().flags(["--net", "none"]);
            let script =
                format!("trap 'echo got {name}; exit 7' {name}; echo GO; while :; do sleep 0.1; done");
            let mut live = Live::sh(&fence, &marked_script(&script, &mark));
            live.expect("GO");
            live.signal(signal);
            live.expect(&format!("got {name}"));
            assert_eq!(live.wait().code, 7, "{name}");
            assert!(all_gone(&mark, fence.name()), "{name}");
        }
        let mut live = Live::sh(&lab.fence(), "echo GO; exec sleep 600");
        live.expect("GO");
        live.signal(Signal::TERM);
        assert_eq!(live.wait().code, 143, "without a handler the signal is the end");
    });
}

#[test]
fn an_agent_that_ignores_three_signals_is_killed_with_everything_it_started() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = lab.fence();
        let script = "trap 'echo one' INT; trap 'echo two' TERM; trap '' HUP; (setsid sleep 600 &); echo GO; while :; do sleep 0.1; done";
        let mut live = Live::sh(&fence, &marked_script(script, &mark));
        live.expect("GO");
        // One after the other, each after the agent has answered: signals that meet become one.
        live.signal(Signal::INT);
        live.expect("one");
        live.signal(Signal::TERM);
        live.expect("two");
        live.signal(Signal::TERM);
        let ended = live.wait();
        assert_eq!(ended.code, 137, "{ended:?}");
        assert!(ended.errors().contains("killed: stopped"), "{ended:?}");
        assert!(all_gone(&mark, fence.name()));
    });
}

#[test]
fn suspending_bastle_freezes_the_whole_tree_and_continuing_thaws_it() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = lab.fence();
        let script = "setsid sh -c 'while :; do echo x >> ticks; sleep 0.02; done' & echo GO; while :; do echo tick; sleep 0.05; done";
        let mut live = Live::sh(&fence, &marked_script(script, &mark));
        live.expect("GO");
        live.expect("tick");
        live.signal(Signal::TSTP);
        assert!(stopped(live.pid()), "bastle itself stops");
        let ticks = || std::fs::metadata(lab.workspace().join("ticks")).map_or(0, |meta| meta.len());
        // The order to freeze was given before bastle stopped; it takes effect at once, but on another processor, and a
        // loaded one may let a tick through long after the last.
        let mut last = 0;
        let still = crate::host::eventually(|| {
            last = ticks();
            crate::host::pass(Duration::from_millis(800));
            ticks() == last
        });
        assert!(still, "the tree is still");
        live.signal(Signal::CONT);
        assert!(crate::host::eventually(|| ticks() > last), "the tree goes on");
        live.signal(Signal::TERM);
        assert_eq!(live.wait().code, 143);
        let kinds: Vec<String> = fence
            .audit()
            .iter()
            .map(|event| event["type"].to_string())
            .collect();
        assert!(
            kinds.contains(&"\"paused\"".to_owned()) && kinds.contains(&"\"resumed\"".to_owned()),
            "{kinds:?}"
        );
        assert!(all_gone(&mark, fence.name()));
    });
}

#[test]
fn a_timeout_also_ends_a_suspended_run() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = lab.fence().flags(["--timeout", "2s"]);
        let mut live = Live::sh(&fence, &marked_script("echo GO; sleep 600", &mark));
        live.expect("GO");
        live.signal(Signal::TSTP);
        assert!(stopped(live.pid()));
        assert!(
            crate::host::eventually(|| crate::host::marked(&mark).is_empty()),
            "the frozen tree is killed"
        );
        live.signal(Signal::CONT);
        let ended = live.wait();
        assert_eq!(ended.code, 124, "{ended:?}");
        assert!(all_gone(&mark, fence.name()));
    });
}

fn stopped(pid: u32) -> bool {
    crate::host::eventually(|| crate::host::status(pid, "State").is_some_and(|state| state.starts_with('T')))
}

#[test]
fn a_reader_that_goes_away_ends_the_agent_by_a_broken_pipe() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = lab.fence().flags(["-q"]);
        let line = fence.command([
            "sh",
            "-c",
            &marked_script("trap 'echo $? > ended' EXIT; yes; echo $? > code", &mark),
        ]);
        let program = line.get_program().to_owned();
        let words: Vec<_> = line.get_args().map(ToOwned::to_owned).collect();
        let mut shell = lab.command("/bin/sh".as_ref());
        shell
            .args(["-c", "\"$@\" | head -1", "sh"])
            .arg(program)
            .args(words);
        let ended = run(&mut shell, b"", Limit::HANG);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "y\n"), "{ended:?}");
        assert!(!ended.stderr.contains("panic"), "{ended:?}");
        assert!(all_gone(&mark, fence.name()));
        let code = std::fs::read_to_string(lab.workspace().join("code")).expect("the agent went on");
        assert_eq!(code.trim(), "141", "SIGPIPE, as without a fence");
    });
}

#[test]
fn a_run_without_input_or_terminal_never_waits_for_them() {
    for_each_identity(|lab| {
        for redirect in ["<&-", "</dev/null", "<&- >&-", "<&- >&- 2>&-"] {
            let fence = lab.fence().flags(["-q"]);
            let line = fence.command(["sh", "-c", "cat; echo through > through"]);
            let words: Vec<_> = line.get_args().map(ToOwned::to_owned).collect();
            let mut shell = lab.command("/bin/sh".as_ref());
            shell
                .args(["-c", &format!("exec \"$@\" {redirect}"), "sh"])
                .arg(line.get_program())
                .args(words);
            let ended = run(&mut shell, b"", Limit::HANG);
            assert_eq!(ended.code, 0, "{redirect}: {ended:?}");
            std::fs::remove_file(lab.workspace().join("through"))
                .unwrap_or_else(|_| panic!("{redirect}: {ended:?}"));
        }
    });
}

#[test]
fn the_exit_code_is_the_agents_own_or_says_why_there_is_none() {
    for_each_identity(|lab| {
        for code in [0, 1, 2, 77, 124, 125, 126, 127, 128, 255] {
            assert_eq!(lab.fence().sh(&format!("exit {code}")).ended.code, code);
        }
        assert_eq!(lab.fence().sh("kill -KILL $$").ended.code, 137);
        assert_eq!(lab.fence().sh("kill -SEGV $$").ended.code, 139);
        let absent = lab.fence().run(["no-such-program"]);
        assert_eq!(absent.ended.code, 127);
        assert!(absent.ended.stderr.contains("BST-EXEC-002"), "{absent:?}");
        lab.project("not-executable", "#!/bin/sh\n");
        let unusable = lab.fence().run(["./not-executable"]);
        assert_eq!(unusable.ended.code, 126);
        assert!(unusable.ended.stderr.contains("BST-EXEC-003"), "{unusable:?}");
        let denied = lab
            .fence()
            .flags(["--fail-on-deny"])
            .sh("echo x > /etc/bastle-planted; exit 0");
        assert_eq!(denied.ended.code, 77, "{denied:?}");
        assert_eq!(
            lab.fence().sh("echo x > /etc/bastle-planted; exit 0").ended.code,
            0,
            "control: denials alone fail nothing"
        );
        assert!(names(&lab.workspace()).contains("not-executable"));
    });
}

#[test]
fn input_reaches_the_agent_whole_and_its_end_is_seen() {
    for_each_identity(|lab: &Lab| {
        let input: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let output = lab.fence().input(&input).sh("cat > received; echo end");
        assert_eq!((output.ended.code, output.said()), (0, "end"), "{output:?}");
        assert_eq!(
            std::fs::read(lab.workspace().join("received")).expect("is there"),
            input
        );
        let unread = lab.fence().input(&input).sh("exit 4");
        assert_eq!(
            unread.ended.code, 4,
            "input that nobody reads holds nothing up: {unread:?}"
        );
    });
}
