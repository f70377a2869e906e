//! Signals and terminals: passed on, suspended, resumed, given back.
use crate::support::{Lab, Limit, for_each_identity, run, skip};
use crate::{eventually, pause, text};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Stdio};

/// Starts a script and waits for its first line.
fn started(lab: &Lab, script: &str) -> (Child, BufReader<ChildStdout>) {
    started_with(lab, &["-q"], script)
}

fn started_with(lab: &Lab, flags: &[&str], script: &str) -> (Child, BufReader<ChildStdout>) {
    let fence = lab.fence().flags(flags);
    let mut command = fence.command(["sh", "-c", script]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("is piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("can be read");
    assert_eq!(line, "ready\n");
    (child, lines)
}

fn code(child: &mut Child) -> Option<i32> {
    let mut ended = None;
    eventually("the end of the run", || {
        ended = child.try_wait().expect("own child");
        ended.is_some()
    });
    ended.and_then(|status| status.code())
}

#[test]
fn a_signal_to_bastle_is_passed_on_and_the_agent_decides() {
    for_each_identity(|lab| {
        for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
            // A run with a network takes a hang-up as the wish to read its rules again.
            let (mut child, _lines) = started_with(
                lab,
                &["-q", "--net", "none"],
                &format!("trap 'exit 7' {name}; echo ready; while :; do sleep 0.05; done"),
            );
            kill_process(Pid::from_child(&child), signal).expect("own child");
            assert_eq!(code(&mut child), Some(7), "{name}");
        }
        let (mut child, _lines) = started(lab, "echo ready; exec sleep 60");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("own child");
        assert_eq!(code(&mut child), Some(143));
    });
}

#[test]
fn a_signal_while_the_sandbox_is_built_ends_the_run_as_that_signal_ends_a_program() {
    for_each_identity(|lab| {
        for delay in 0..24 {
            let fence = lab.fence().flags(["-q"]);
            let mut command = fence.command(["sleep", "60"]);
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            pause(delay);
            kill_process(Pid::from_child(&child), Signal::TERM).expect("own child");
            let mut ended = None;
            eventually("the end of the run", || {
                ended = child.try_wait().expect("own child");
                ended.is_some()
            });
            let ended = ended.expect("was waited for");
            // Before bastle has a handler, the signal ends bastle itself.
            let told = ended.code() == Some(143) || ended.signal() == Some(15);
            assert!(told, "after {delay} ms: {ended:?}");
        }
    });
}

#[test]
fn a_hang_up_signal_reloads_the_rules_of_a_run_with_a_network_and_does_not_end_it() {
    for_each_identity(|lab| {
        let script = "trap 'echo got HUP; exit 7' HUP; echo ready; read line; echo $line; exit 5";
        let fence = lab.fence();
        let mut command = fence.command(["sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("is piped"));
        let mut said = BufReader::new(child.stderr.take().expect("is piped"));
        lines.read_line(&mut String::new()).expect("can be read");
        kill_process(Pid::from_child(&child), Signal::HUP).expect("own child");
        let mut line = String::new();
        while !line.contains("network rules: reload") {
            line.clear();
            assert_ne!(
                said.read_line(&mut line).expect("can be read"),
                0,
                "no reload was told"
            );
        }
        drop(child.stdin.take().map(|mut input| input.write_all(b"on\n")));
        assert_eq!(code(&mut child), Some(5));
    });
}

#[test]
fn a_key_at_the_terminal_reaches_the_agent_and_not_bastles_own_processes() {
    for_each_identity(|lab| {
        let fence = lab.fence().flags(["-q"]);
        let mut command = fence.command([
            "sh",
            "-c",
            "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done",
        ]);
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("is piped"));
        lines.read_line(&mut String::new()).expect("can be read");
        // What a terminal does with ^C when the streams are pipes.
        kill_process_group(Pid::from_child(&child), Signal::INT).expect("own group");
        assert_eq!(code(&mut child), Some(7));
    });
}

#[test]
fn an_agent_that_ignores_every_request_is_killed_at_the_third() {
    for_each_identity(|lab| {
        let (mut child, _lines) = started(lab, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        for _ in 0..3 {
            kill_process(Pid::from_child(&child), Signal::TERM).expect("own child");
            pause(300);
        }
        assert_eq!(code(&mut child), Some(137));
    });
}

#[test]
fn a_suspended_run_stands_still_and_goes_on() {
    for_each_identity(|lab| {
        let (mut child, _lines) = started(
            lab,
            "echo ready; i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i > count; sleep 0.02; done; exit 5",
        );
        let pid = Pid::from_child(&child);
        let count = || {
            std::fs::read_to_string(lab.workspace().join("count"))
                .unwrap_or_default()
                .trim()
                .parse::<u64>()
                .unwrap_or_default()
        };
        eventually("work", || count() > 3);
        kill_process(pid, Signal::TSTP).expect("own child");
        let state = || {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
        };
        eventually("the stop of bastle", || state() == Some('T'));
        // Whatever was on its way when the order came may come late on a loaded machine; then nothing moves.
        let mut before = 0;
        eventually("the stillness of the agent", || {
            before = count();
            pause(700);
            count() == before
        });
        kill_process(pid, Signal::CONT).expect("own child");
        eventually("more work", || count() > before);
        lab.project("stop", "");
        assert_eq!(code(&mut child), Some(5));
    });
}

#[test]
fn on_a_terminal_the_agent_has_one_of_its_own_with_the_same_size() {
    if !std::path::Path::new("/usr/bin/script").exists() {
        return skip(
            "on_a_terminal_the_agent_has_one_of_its_own_with_the_same_size",
            "script (util-linux) is not there",
        );
    }
    for_each_identity(|lab| {
        let bastle = text(crate::support::bastle());
        let inside = format!(
            "stty rows 45 cols 123; {bastle} run -q -- sh -c 'tty; stty size'; echo code $?; stty -a | head -n 1"
        );
        let mut command = lab.command("/usr/bin/script".as_ref());
        command.args(["-qec", &inside, "/dev/null"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert!(
            ended.stdout.contains("/dev/pts/") && ended.stdout.contains("45 123"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("code 0"), "{ended:?}");
        let piped = lab.fence().flags(["-q"]).sh("tty").ended;
        assert!(piped.stdout.contains("not a tty"), "{piped:?}");
        let forced = lab.fence().flags(["-q", "-t"]).sh("tty").ended;
        assert!(forced.stdout.contains("/dev/pts/"), "{forced:?}");
        let inside = format!("{bastle} run -q -T -- sh -c tty");
        let mut command = lab.command("/usr/bin/script".as_ref());
        command.args(["-qec", &inside, "/dev/null"]);
        assert!(run(&mut command, b"", Limit::HANG).stdout.contains("not a tty"));
    });
}
