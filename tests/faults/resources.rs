//! What a run may take: processes, memory, processors, descriptors, output. A neighbour must not notice the hog.
use crate::hog::hog;
use crate::host::{eventually, marker, names, status};
use crate::live::Live;
use crate::support::{Identity, Lab, Output, for_each_identity};
use serde_json::Value;
use std::time::Duration;

/// Hits of one limit in the audit log.
fn hits<'a>(output: &'a Output, limit: &str) -> Vec<&'a Value> {
    let mut hits = output.events("limit");
    hits.retain(|event| event["limit"] == limit);
    hits
}

/// Another run of the same user, with the same limits, that answers as long as it is well.
struct Neighbour(Live);

impl Neighbour {
    fn start(lab: &Lab, flags: &[&str]) -> Self {
        let mut live = Live::sh(
            &lab.fence().flags(flags),
            "echo GO; while read word; do sleep 0 && echo $word; done",
        );
        live.expect("GO");
        Self(live)
    }

    fn is_well(&mut self) -> bool {
        self.0.say("well\n");
        self.0.next(Duration::from_secs(60)).as_deref() == Some("well")
    }

    fn end(self) {
        assert_eq!(self.0.wait().code, 0, "the neighbour ends as it wants to");
    }
}

#[test]
fn a_fork_bomb_stops_at_the_process_limit_and_a_neighbour_still_forks() {
    for_each_identity(|lab| {
        lab.share();
        let mut neighbour = Neighbour::start(lab, &["--pids", "40"]);
        let (seen, output) = lab
            .fence()
            .flags(["--pids", "40"])
            .attack(&[&["fork-bomb", "300"]]);
        assert_eq!(seen, ["EAGAIN"], "{output:?}");
        let made = output
            .ended
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("forked: ")?.parse::<u32>().ok());
        assert!(
            made.is_some_and(|made| (20..40).contains(&made)),
            "{made:?} {output:?}"
        );
        assert!(neighbour.is_well());
        neighbour.end();
        if lab.identity == Identity::Root {
            assert_eq!(hits(&output, "pids").len(), 1, "{:?}", output.audit);
        }
        let control = lab
            .fence()
            .flags(["--pids", "400"])
            .attack(&[&["fork-bomb", "300"]])
            .0;
        assert_eq!(control, ["OK"], "control: with room");
    });
}

#[test]
fn a_thread_bomb_stops_at_the_process_limit() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        let output = lab
            .fence()
            .flags(["--pids", "40"])
            .run([hog.as_str(), "threads", "300"]);
        assert_eq!(output.ended.code, 10, "{output:?}");
        let words: Vec<&str> = output.said().split(' ').collect();
        assert_eq!((words[0], words[2]), ("threads", "EAGAIN"), "{output:?}");
        assert!(
            (20..40).contains(&words[1].parse::<u32>().expect("is a number")),
            "{output:?}"
        );
        let control = lab
            .fence()
            .flags(["--pids", "400"])
            .run([hog.as_str(), "threads", "300"]);
        assert_eq!(
            (control.ended.code, control.said()),
            (0, "TOOK"),
            "control: with room"
        );
    });
}

#[test]
fn one_process_that_wants_too_much_memory_does_not_get_it_and_a_neighbour_keeps_its_own() {
    for_each_identity(|lab| {
        lab.share();
        let hog = hog(lab);
        let mut neighbour = Neighbour::start(lab, &["--mem", "64M"]);
        let output = lab
            .fence()
            .flags(["--mem", "64M"])
            .run([hog.as_str(), "own", "300"]);
        assert_ne!(output.said(), "TOOK", "{output:?}");
        if lab.identity == Identity::Root {
            assert_eq!(
                (output.ended.code, hits(&output, "memory").len()),
                (137, 1),
                "{output:?}"
            );
        } else if output.ended.code == 10 {
            assert_eq!(output.said(), "mmap 0 ENOMEM");
        } else {
            assert_eq!(
                (output.ended.code, hits(&output, "memory").len()),
                (137, 1),
                "{output:?}"
            );
        }
        assert!(neighbour.is_well());
        neighbour.end();
        let control = lab
            .fence()
            .flags(["--mem", "600M"])
            .run([hog.as_str(), "own", "300"]);
        assert_eq!(
            (control.ended.code, control.said()),
            (0, "TOOK"),
            "control: with room"
        );
    });
}

#[test]
fn many_small_processes_that_together_want_too_much_memory_are_killed_and_the_event_says_so() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        // The second kind: the main thread has ended and answers nothing about memory.
        for kind in ["hold", "headless"] {
            // Each alone fits; six times 20 MiB do not.
            let script = format!("for i in 1 2 3 4 5 6; do {hog} {kind} 20 & done; wait");
            let output = lab
                .fence()
                .flags(["--mem", "64M", "--timeout", "40s"])
                .sh(&script);
            assert_eq!(hits(&output, "memory").len(), 1, "{kind}: {output:?}");
            assert!(output.ended.stderr.contains("BST-LIM-002"), "{kind}: {output:?}");
            if lab.identity != Identity::Root {
                assert_eq!(output.ended.code, 137, "the watchdog ends the run: {output:?}");
            }
        }
        let control = lab
            .fence()
            .flags(["--mem", "600M"])
            .sh(&format!("{hog} hold 20 & {hog} hold 20 & wait"));
        assert_eq!(
            (control.ended.code, hits(&control, "memory").len()),
            (0, 0),
            "control: with room"
        );
    });
}

#[test]
fn shared_memory_counts_against_the_memory_limit() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        for kind in ["shared", "memfd"] {
            let output = lab
                .fence()
                .flags(["--mem", "64M"])
                .run([hog.as_str(), kind, "300"]);
            assert_ne!(output.said(), "TOOK", "{kind}: {output:?}");
            let control = lab.fence().run([hog.as_str(), kind, "300"]);
            assert_eq!(
                (control.ended.code, control.said()),
                (0, "TOOK"),
                "control: without the limit"
            );
        }
    });
}

#[test]
fn opening_descriptors_stops_at_the_limit() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        let output = lab
            .fence()
            .flags(["--open-files", "64"])
            .run([hog.as_str(), "descriptors", "500"]);
        assert_eq!(
            (output.ended.code, output.said()),
            (10, "descriptors 64 EMFILE"),
            "{output:?}"
        );
        let control = lab
            .fence()
            .flags(["--open-files", "600"])
            .run([hog.as_str(), "descriptors", "500"]);
        assert_eq!(
            (control.ended.code, control.said()),
            (0, "TOOK"),
            "control: with room"
        );
        let raise = "ulimit -n 600 2>/dev/null && echo RAISED; ulimit -n";
        let raised = lab.fence().flags(["--open-files", "64"]).sh(raise);
        assert_eq!(raised.said(), "64", "the limit cannot be raised from inside");
    });
}

#[test]
fn a_flood_of_output_is_cut_at_the_limit_and_not_kept_in_memory() {
    for_each_identity(|lab| {
        let fence = lab.fence().flags(["--max-output", "1M"]);
        // 300 MB, and the agent says on the disk when they are through.
        let script = "echo GO; read word; yes | head -c 300000000; echo done > flooded; read word";
        let mut live = Live::sh(&fence, script);
        live.expect("GO");
        let peak = |live: &Live| -> u64 {
            let text = status(live.pid(), "VmHWM").expect("bastle runs");
            text.trim_end_matches(" kB").parse().expect("is a number")
        };
        let before = peak(&live);
        live.say("go\n");
        assert!(eventually(|| names(&lab.workspace()).contains("flooded")));
        let grown = peak(&live).saturating_sub(before);
        assert!(grown < 64 * 1024, "bastle grew by {grown} KiB");
        live.close();
        let ended = live.wait();
        let passed: usize = ended.stdout.iter().map(|line| line.len() + 1).sum();
        // "GO\n" was taken before, and the last line is cut before its end.
        assert_eq!(passed + 3 - 1, 1 << 20, "exactly the limit is passed on");
        assert!(ended.errors().contains("BST-LIM-007"), "{}", ended.errors());
        let audit = fence.audit();
        let truncated: Vec<_> = audit
            .iter()
            .filter(|event| event["type"] == "output-truncated")
            .collect();
        assert_eq!(truncated.len(), 1);
        assert_eq!(truncated[0]["bytes"].as_u64(), Some(300_000_000 + 3 - (1 << 20)));
        let control = lab
            .fence()
            .flags(["--max-output", "10M"])
            .sh("yes | head -c 2000000");
        assert_eq!(
            (control.ended.stdout.len(), hits(&control, "output").len()),
            (2_000_000, 0),
            "control: with room"
        );
    });
}

#[test]
fn half_a_processor_is_half_a_processor_or_refused() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        let burn = [hog.as_str(), "burn", "1000"];
        if lab.identity == Identity::Root {
            let output = lab.fence().flags(["--cpu", "0.5"]).run(burn);
            assert_eq!(output.said(), "TOOK", "{output:?}");
            let usage = &output.events("ended")[0]["usage"];
            let (cpu, wall) = (usage["cpu_ms"].as_u64(), usage["wall_ms"].as_u64());
            let (cpu, wall) = (cpu.expect("is counted"), wall.expect("is counted"));
            assert!(
                cpu >= 900 && cpu * 10 <= wall * 8,
                "{cpu} ms of processor in {wall} ms"
            );
            return;
        }
        let output = lab.fence().flags(["--cpu", "0.5"]).run(burn);
        assert_eq!((output.ended.code, output.said()), (125, ""), "{output:?}");
        assert!(output.ended.stderr.contains("BST-LIM-009"), "{output:?}");
        assert!(
            output.ended.stderr.contains("--waive cpu"),
            "the way out is told: {output:?}"
        );
        assert!(output.audit.is_empty(), "nothing was started");
        let waived = lab
            .fence()
            .flags(["--cpu", "0.5", "--waive", "cpu"])
            .run([hog.as_str(), "burn", "10"]);
        assert_eq!((waived.ended.code, waived.said()), (0, "TOOK"), "{waived:?}");
        assert!(
            waived
                .ended
                .stderr
                .contains("waived: limit cpu = 0.500 is not held"),
            "{waived:?}"
        );
        assert_eq!(waived.events("run-planned")[0]["waivers"][0]["limit"], "cpu");
    });
}

#[test]
fn without_a_group_a_whole_processor_is_given_by_an_affinity_that_cannot_be_widened() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Root {
            return;
        }
        let hog = hog(lab);
        let output = lab
            .fence()
            .flags(["--cpu", "1"])
            .sh(&format!("nproc; {hog} processors 0; nproc"));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines, ["1", "affinity 0 EPERM", "1"], "{output:?}");
        let control = lab.fence().run([hog.as_str(), "processors", "0"]);
        assert_eq!(control.said(), "TOOK", "control: without the limit");
    });
}

#[test]
fn a_crash_leaves_no_core() {
    for_each_identity(|lab| {
        let hog = hog(lab);
        let before = names(&lab.workspace());
        let output = lab.fence().sh(&format!(
            "ulimit -c unlimited 2>/dev/null; ulimit -c; {hog} abort 0; echo $?"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[lines.len() - 1], "134", "it crashed: {output:?}");
        assert!(["0", "1"].contains(&lines[0]), "{output:?}");
        assert_eq!(names(&lab.workspace()), before);
        assert!(!output.ended.stderr.contains("core dumped"), "{output:?}");
    });
}

#[test]
fn every_limit_is_listed_with_what_holds_it() {
    for_each_identity(|lab| {
        let flags = [
            ["--pids", "40"],
            ["--mem", "64M"],
            ["--cpu", "1"],
            ["--disk", "1M"],
            ["--timeout", "5s"],
            ["--max-output", "1M"],
            ["--open-files", "64"],
            ["--max-files", "5"],
            ["--max-inodes", "20"],
            ["--max-written", "1M"],
        ];
        let mark = marker();
        let flags = flags.concat();
        let output = lab
            .fence()
            .flags(flags)
            .flags(["--dry-run-policy", "--json"])
            .sh(&format!("echo > {mark}"));
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(!names(&lab.workspace()).contains(&mark), "nothing was started");
        let shown: Value = serde_json::from_str(&output.ended.stdout).expect("is JSON");
        let limits = shown["plan"]["limits"].as_array().expect("limits are listed");
        let held = |name: &str| {
            let rule = limits.iter().find(|rule| rule["limit"] == name);
            rule.and_then(|rule| rule["mechanism"].as_str())
                .unwrap_or("missing")
                .to_owned()
        };
        let group = |name: &str| held(name).starts_with("cgroup-");
        if lab.identity == Identity::Root {
            assert!(group("pids") && group("memory") && group("cpu"), "{limits:?}");
        } else if !group("pids") {
            assert_eq!(held("pids"), "rlimit");
            assert_eq!(held("memory"), "rlimit-and-watchdog");
            assert_eq!(held("cpu"), "affinity");
        }
        assert_eq!(held("wall-time"), "timer");
        assert_eq!(held("output"), "relay");
        assert_eq!(held("open-files"), "rlimit");
        assert_eq!(held("disk"), "tmpfs-and-write-guard");
        assert_eq!(held("inodes"), "tmpfs-and-write-guard");
        assert_eq!(held("files"), "write-guard");
        assert_eq!(held("bytes-written"), "write-guard");
    });
}

#[test]
fn an_impossible_limit_starts_nothing() {
    for_each_identity(|lab| {
        let huge = format!("1{}", "0".repeat(30));
        let impossible = [
            ("--pids", "0", "BST-LIM-010"),
            ("--mem", "1K", "BST-LIM-010"),
            ("--timeout", "0s", "BST-LIM-010"),
            ("--timeout", "0", "BST-POL-002"),
            ("--disk", "0", "BST-LIM-010"),
            ("--max-inodes", "0", "BST-LIM-010"),
            ("--open-files", "0", "BST-LIM-010"),
            ("--timeout", "99999999d", "BST-LIM-010"),
            ("--timeout", "9999999999d", "BST-POL-002"),
            ("--mem", "8000T", "BST-LIM-010"),
            ("--mem", "99999T", "BST-POL-002"),
            ("--mem", &huge, "BST-POL-002"),
            ("--disk", "-1", "unexpected argument"),
            ("--pids", &huge, "invalid value"),
            ("--cpu", "1e30", "BST-POL-002"),
            ("--cpu", "0", "BST-POL-002"),
            ("--cpu", "nan", "BST-POL-002"),
        ];
        for (flag, value, code) in impossible {
            let output = lab.fence().flags([flag, value]).sh("echo STARTED > started");
            assert_eq!(output.ended.code, 125, "{flag} {value}: {output:?}");
            assert!(output.ended.stderr.contains(code), "{flag} {value}: {output:?}");
            assert!(
                output.audit.is_empty() && names(&lab.workspace()).is_empty(),
                "{flag} {value}: {output:?}"
            );
        }
        let control = lab
            .fence()
            .flags(["--pids", "40", "--timeout", "30s"])
            .sh("echo STARTED");
        assert_eq!(control.said(), "STARTED", "control: possible ones");
    });
}
