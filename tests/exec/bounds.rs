//! How many there can be at once, and when none is started.
use crate::living::Living;
use crate::support::{Limit, eventually, for_each_identity, identities, run};

#[test]
fn sixty_four_further_commands_run_at_once_and_one_more_is_refused() {
    let lab = crate::support::Lab::new(identities()[0]);
    let living = Living::with(&lab, &["--pids", "1000"]);
    let clients: Vec<_> = (0..64)
        .map(|_| living.background(&["sh", "-c", "echo up; exec sleep 300"]))
        .collect();
    for client in &clients {
        assert_eq!(client.line(), "up", "control: so many fit");
    }
    let more = living.exec(&["true"]);
    assert_eq!(more.code, 125, "{more:?}");
    assert!(more.stderr.contains("BST-EXEC-005"), "{more:?}");
    assert_eq!(living.agent.does("1 + 1"), "2", "the agent goes on");
    drop(clients);
    let again = || living.exec(&["true"]).code == 0;
    assert!(
        eventually(Limit::HANG, again),
        "when they are gone there is room again"
    );
}

#[test]
fn what_commands_leave_behind_counts_until_it_ends() {
    let lab = crate::support::Lab::new(identities()[0]);
    let living = Living::with(&lab, &["--pids", "1000"]);
    for _ in 0..64 {
        let left = living.sh("sleep 300 > /dev/null 2>&1 &");
        assert_eq!(left.code, 0, "control: {left:?}");
    }
    let more = living.exec(&["true"]);
    assert_eq!(more.code, 125, "{more:?}");
    assert!(more.stderr.contains("left behind"), "{more:?}");
    assert_eq!(living.agent.does("os.system('pkill sleep')"), "0");
    let again = || living.exec(&["true"]).code == 0;
    assert!(eventually(Limit::HANG, again));
}

#[test]
fn a_run_that_stands_still_starts_no_further_command_and_a_running_one_stands_still_with_it() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let client = living.background(&[
            "sh",
            "-c",
            "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done",
        ]);
        assert_eq!(client.line(), "1", "control: it counts");
        living.agent.gets("pause", &[]);
        let refused = living.exec(&["touch", "made"]);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("stands still"), "{refused:?}");
        assert!(!lab.workspace().join("made").exists());
        living.agent.gets("resume", &[]);
        assert!(client.line().parse::<u32>().is_ok());
        assert_eq!(living.exec(&["touch", "made"]).code, 0);
        assert!(lab.workspace().join("made").exists());
    });
}

#[test]
fn a_command_line_that_does_not_fit_is_refused_and_costs_nothing() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let long = "x".repeat(100_000);
        let ended = living.exec(&["echo", &long]);
        assert_eq!(ended.code, 125, "{}", ended.stderr);
        assert_eq!(
            living.exec(&["echo", &"x".repeat(30_000)]).stdout.len(),
            30_001,
            "control"
        );
        let usage = run(&mut living.bastle(&["exec", "--no-such-flag"]), b"", Limit::HANG);
        assert_eq!(usage.code, 125, "never an exit code of the command");
    });
}
