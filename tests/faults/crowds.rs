//! Large and odd trees, and several runs at once.
use crate::host::{marker, names};
use crate::live::Live;
use crate::support::for_each_identity;

#[test]
fn every_secret_of_a_large_tree_is_masked_and_everything_else_is_there() {
    for_each_identity(|lab| {
        for index in 0..5000 {
            let secret = index % 17 == 0 && index / 17 < 300;
            let name = if secret {
                ".env".to_owned()
            } else {
                "plain.txt".to_owned()
            };
            lab.project(
                &format!("d{}/e{index}/{name}", index % 50),
                if secret { "CANARY" } else { "plain" },
            );
        }
        let output = lab.fence().sh(
            "find . -name .env | wc -l; find . -name .env -exec cat {} + 2>/dev/null | grep -c CANARY; find . -name plain.txt -exec cat {} + | grep -o plain | wc -l",
        );
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines.len(), 3, "{output:?}");
        assert_eq!((lines[1], lines[2]), ("0", "4705"), "{output:?}");
        let ended = lab
            .command("/bin/sh".as_ref())
            .args(["-c", "cat d*/e*/.env | grep -o CANARY | wc -l"])
            .output()
            .expect("runs");
        assert_eq!(
            String::from_utf8_lossy(&ended.stdout).trim(),
            "295",
            "control: without the fence"
        );
    });
}

#[test]
fn a_deep_tree_is_searched_to_the_bottom_or_refused() {
    for_each_identity(|lab| {
        let bottomless = "e/".repeat(300);
        lab.project(&format!("{bottomless}.env"), "CANARY");
        let output = lab.fence().sh(&format!("cat {bottomless}.env; echo STARTED"));
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        let refused = output.ended.code == 125 && output.ended.stderr.contains("BST-WS-001");
        assert!(refused || output.said() == "STARTED", "{output:?}");
        std::fs::remove_dir_all(lab.workspace().join("e")).expect("own directory");
        let deep = "d/".repeat(150);
        lab.project(&format!("{deep}.env"), "CANARY");
        lab.project(&format!("{deep}plain"), "plain");
        let output = lab.fence().sh(&format!(
            "cat {deep}.env; cat {deep}plain; echo x > {deep}.env.new; echo $?"
        ));
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        assert!(output.ended.stdout.contains("plain"), "{output:?}");
        assert!(
            !names(&lab.workspace().join(&deep)).contains(".env.new"),
            "{output:?}"
        );
    });
}

#[test]
fn a_secret_with_a_second_name_is_masked_under_its_own_and_the_link_is_not_written_through() {
    for_each_identity(|lab| {
        let secret = lab.project(".env", "CANARY");
        let outside = lab.plant(&lab.outside().join("elsewhere"), "untouched");
        std::fs::hard_link(&outside, lab.workspace().join("linked")).expect("same file system");
        let output = lab.fence().sh("cat .env; echo changed > linked; echo $?");
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        if output.ended.code == 125 {
            assert!(output.ended.stderr.contains("BST-WS-002"), "{output:?}");
        }
        assert_eq!(
            std::fs::read_to_string(&outside).expect("is there"),
            "untouched",
            "{output:?}"
        );
        assert_eq!(std::fs::read_to_string(secret).expect("is there"), "CANARY");
    });
}

#[test]
fn runs_side_by_side_in_one_workspace_do_not_disturb_each_other() {
    for_each_identity(|lab| {
        lab.share();
        for round in 0..10 {
            let (one, two) = (
                lab.fence().flags(["--pids", "60"]),
                lab.fence().flags(["--pids", "60"]),
            );
            let (first, second) = (marker(), marker());
            let script = |mark: &str| {
                format!(
                    "echo {mark} > /tmp/own; echo {mark} > $HOME/own; echo {mark} > {mark}-{round}; echo GO; read word; \
                     cat /tmp/own $HOME/own; ls /tmp | grep -vc bastle-lab; ps ax 2>/dev/null | grep -c '[r]ead word'; : {mark}"
                )
            };
            let mut left = Live::sh(&one, &script(&first));
            let mut right = Live::sh(&two, &script(&second));
            left.expect("GO");
            right.expect("GO");
            left.say("go\n");
            right.say("go\n");
            for (live, mark) in [(left, &first), (right, &second)] {
                let ended = live.wait();
                assert!(ended.code <= 1, "{ended:?}");
                assert_eq!(
                    &ended.stdout[..3],
                    [mark.as_str(), mark.as_str(), "1"],
                    "{ended:?}"
                );
                assert!(
                    names(&lab.workspace()).contains(&format!("{mark}-{round}")),
                    "{ended:?}"
                );
            }
        }
    });
}
