//! What a command says and how it ends arrives exactly, is recorded, and ends with its client or its run.
use crate::living::Living;
use crate::support::{Limit, eventually, for_each_identity, run};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn output_errors_and_exit_code_of_a_further_command_are_exact() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let both = living.sh("printf 'a\\nb'; printf 'c\\000d' >&2; exit 7");
        assert_eq!(
            (both.code, both.stdout.as_str(), both.stderr.as_str()),
            (7, "a\nb", "c\0d")
        );
        assert_eq!(living.sh("kill -9 $$").code, 137);
        assert_eq!(living.exec(&["true"]).code, 0);
        let missing = living.exec(&["no-such-program"]);
        assert_eq!(missing.code, 127);
        assert!(missing.stderr.contains("BST-EXEC-002"), "{missing:?}");
        let refused = living.exec(&["/etc/passwd"]);
        assert_eq!(refused.code, 126);
        assert!(refused.stderr.contains("BST-EXEC-003"), "{refused:?}");
        let nowhere = run(
            &mut living.line(&["--cwd", "/no/such"], &["true"]),
            b"",
            Limit::HANG,
        );
        assert_eq!(nowhere.code, 125, "{nowhere:?}");
        // Without -i there is no input, with it there is all of it and its end.
        assert_eq!(living.exec(&["wc", "-c"]).stdout.trim(), "0");
        let megabytes = vec![b'x'; 3_000_000];
        let counted = run(&mut living.line(&["-i"], &["wc", "-c"]), &megabytes, Limit::HANG);
        assert_eq!(counted.stdout.trim(), "3000000");
        let echoed = run(&mut living.line(&["-i"], &["cat"]), &megabytes, Limit::HANG);
        assert_eq!(echoed.stdout.len(), 3_000_000);
        let set = run(
            &mut living.line(
                &["-e", "COLOUR=green", "-e", "HOME=/tmp", "--cwd", "/tmp"],
                &["sh", "-c", "echo $COLOUR $HOME; pwd"],
            ),
            b"",
            Limit::HANG,
        );
        assert_eq!(set.stdout, "green /tmp\n/tmp\n");
        let loads = run(
            &mut living.line(&["-e", "LD_PRELOAD=/tmp/x.so"], &["true"]),
            b"",
            Limit::HANG,
        );
        assert_eq!(loads.code, 125, "{loads:?}");
    });
}

#[test]
fn output_that_outlives_its_command_does_not_hold_the_client() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let ended = living.sh("(sleep 300 &) ; echo first");
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "first\n"));
        assert!(ended.took < Duration::from_secs(60));
        // What it left behind is still guarded: its calls are served after the command is gone.
        let left = living.sh("(while ! test -e go; do sleep 0.05; done; echo x > .env.late; echo $? > outcome) > /dev/null 2>&1 &");
        assert_eq!(left.code, 0);
        lab.project("go", "");
        let outcome = lab.workspace().join("outcome");
        let told = || std::fs::read_to_string(&outcome).is_ok_and(|text| !text.is_empty());
        assert!(eventually(Limit::HANG, told), "it was answered");
        assert!(!lab.workspace().join(".env.late").exists());
    });
}

#[test]
fn a_further_command_is_recorded_before_it_starts_and_when_it_ended() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let log = "$(dirname $0)";
        assert_eq!(living.sh(&format!("true {log}; exit 3")).code, 3);
        let failed = living.exec(&["no-such-program"]);
        assert_eq!(failed.code, 127);
        let asked = living.agent.events("exec-requested");
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert_eq!(
            (&asked[0]["by"], &asked[0]["argv"][2]),
            (&"socket".into(), &"true $(dirname $0); exit 3".into())
        );
        let ended = living.agent.events("exec-ended");
        assert_eq!(ended[0]["exit"]["code"], 3, "{ended:?}");
        assert_eq!(ended[0]["id"], asked[0]["id"]);
        assert!(
            ended[1]["reason"]
                .as_str()
                .is_some_and(|why| why.contains("not found")),
            "{ended:?}"
        );
        let seen = living.agent.events("exec");
        assert!(
            seen.iter()
                .any(|exec| exec["argv"][2] == "true $(dirname $0); exit 3"),
            "{seen:?}"
        );
        let verified = run(
            &mut living.bastle(&["audit", "verify", living.agent.name()]),
            b"",
            Limit::HANG,
        );
        assert!(
            verified.code == 0 || verified.stdout.contains("open"),
            "{verified:?}"
        );
    });
}

#[test]
fn killing_the_client_ends_the_command() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let mut client = living.background(&[
            "sh",
            "-c",
            "echo $$; trap '' TERM HUP INT; while :; do sleep 0.1; done",
        ]);
        let pid = client.line();
        let alive = format!("os.path.exists('/proc/{pid}')");
        assert_eq!(living.agent.does(&alive), "True", "control");
        client.signal(rustix::process::Signal::KILL);
        assert_eq!(client.end(Limit::HANG), Some(137));
        let gone = || living.agent.does(&alive) == "False";
        assert!(eventually(Limit::HANG, gone), "it lives on without anybody");
        let ended = || living.agent.events("exec-ended").len() == 1;
        assert!(eventually(Limit::HANG, ended), "its end is recorded");
    });
}

#[test]
fn a_signal_to_the_client_is_passed_on_and_the_second_one_ends_both() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let mut polite = living.background(&[
            "sh",
            "-c",
            "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done",
        ]);
        assert_eq!(polite.line(), "up");
        polite.signal(rustix::process::Signal::TERM);
        assert_eq!(polite.end(Limit::HANG), Some(5));
        let mut deaf = living.background(&[
            "sh",
            "-c",
            "trap 'echo heard' TERM; echo up; while :; do sleep 0.05; done",
        ]);
        assert_eq!(deaf.line(), "up");
        deaf.signal(rustix::process::Signal::TERM);
        assert_eq!(deaf.line(), "heard");
        deaf.signal(rustix::process::Signal::TERM);
        assert_eq!(deaf.end(Limit::HANG), Some(143));
    });
}

#[test]
fn when_the_agent_ends_a_further_command_ends_with_it_and_none_is_started_afterwards() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let mut client = living.background(&["sh", "-c", "echo up; exec sleep 300"]);
        assert_eq!(client.line(), "up");
        lab.project("last.py", "");
        living.agent.told("kill", &[]);
        let agent_is_gone = client.end(Limit::HANG);
        assert_eq!(agent_is_gone, Some(137), "it is told how it ended");
        let name = living.agent.name().to_owned();
        let gone = || {
            let mut late = living.bastle(&["exec", &name, "--", "touch", "late"]);
            run(&mut late, b"", Limit::HANG).code == 125
        };
        assert!(eventually(Limit::HANG, gone), "refused after the end");
        assert!(!lab.workspace().join("late").exists());
    });
}

#[test]
fn a_client_that_does_not_read_holds_up_neither_the_run_nor_others() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let mut slow = living.line(&["-i"], &["sh", "-c", "head -c 20000000 /dev/zero; echo end >&2"]);
        let mut slow = slow
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("can be started");
        assert_eq!(living.exec(&["echo", "others"]).stdout, "others\n");
        assert_eq!(living.agent.does("1 + 1"), "2", "the agent goes on");
        // Its own input still arrives nowhere, and that is its own matter.
        drop(slow.stdin.as_mut().map(|stdin| stdin.write_all(b"x")));
        let mut all = 0;
        let mut stdout = slow.stdout.take().expect("is piped");
        let mut part = vec![0; 65536];
        loop {
            let count = std::io::Read::read(&mut stdout, &mut part).expect("can be read");
            if count == 0 {
                break;
            }
            all += count;
        }
        drop(slow.stdin.take());
        assert_eq!(all, 20_000_000, "and gets every byte when it reads");
        assert!(slow.wait().expect("own child").success());
    });
}
