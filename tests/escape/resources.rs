//! Attacks on what is shared: processes, memory, disk, descriptors, output, time. And what stays behind: nothing.
use crate::support::{Background, Identity, Lab, Limit, Output, eventually, for_each_identity, text};
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

/// The number behind a word of the attacker's, e.g. `forked: 61`.
fn count(output: &Output, word: &str) -> u64 {
    let found = output
        .ended
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix(word));
    found
        .and_then(|rest| rest.trim_start_matches(':').trim().parse().ok())
        .unwrap_or_else(|| panic!("{word} was not said: {output:?}"))
}

/// Host processes whose command line holds `mark`.
fn survivors(mark: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("is there").flatten();
    let numbered = processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    numbered
        .filter_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(mark).then_some(line)
        })
        .collect()
}

/// cgroups of the host whose name holds that of the run.
pub(super) fn cgroups(run: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, depth: u32, run: &str, found: &mut Vec<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        for entry in entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        {
            if entry.file_name().to_string_lossy().contains(run) {
                found.push(entry.path());
            }
            if depth > 0 {
                walk(&entry.path(), depth - 1, run, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), 4, run, &mut found);
    found
}

#[test]
fn a_fork_bomb_stops_at_the_limit_and_is_told() {
    for_each_identity(|lab| {
        let (seen, output) = lab
            .fence()
            .flags(["--pids", "64"])
            .attack(&[&["fork-bomb", "3000"]]);
        assert_eq!(seen, all("EAGAIN", 1), "{output:?}");
        let made = count(&output, "forked");
        assert!((40..64).contains(&made), "{made} processes in spite of 64");
        let (seen, output) = lab
            .fence()
            .flags(["--pids", "400"])
            .attack(&[&["fork-bomb", "100"]]);
        assert_eq!(seen, all("OK", 1), "control: below the limit: {output:?}");
    });
}

#[test]
fn a_memory_hog_harms_only_itself() {
    for_each_identity(|lab| {
        lab.share();
        let mut other =
            Background::start(
                &mut lab
                    .fence()
                    .command([text(&lab.attacker()), "tree", "1", "other-run"]),
            );
        assert_eq!(other.line(), "planted");
        let hog = lab
            .fence()
            .flags(["--mem", "64M"])
            .run([text(&lab.attacker()), "eat", "512"]);
        // By cgroup the kernel kills it; by rlimit the memory is refused.
        let refused = hog.ended.code == 10 && hog.said() == "ENOMEM";
        assert!(hog.ended.code == 137 || refused, "{hog:?}");
        if hog.ended.code == 137 {
            let told = hog.events("limit").iter().any(|event| event["limit"] == "memory");
            assert!(told, "the kill is not explained: {hog:?}");
        }
        assert!(other.is_alive(), "another run was harmed");
        let modest = lab
            .fence()
            .flags(["--mem", "64M"])
            .run([text(&lab.attacker()), "eat", "16"]);
        assert_eq!(modest.ended.code, 0, "control: below the limit: {modest:?}");
    });
}

#[test]
fn filling_the_workspace_or_the_private_directories_stops_at_the_disk_limit() {
    for_each_identity(|lab| {
        const LIMIT: u64 = 8 << 20;
        let fence = || lab.fence().flags(["--disk", "8M"]);
        for place in ["big", "/tmp/big", "/dev/shm/big"] {
            let (seen, output) = fence().attack(&[&["fill", place, "65536", "67108864"]]);
            assert!(
                ["ENOSPC", "EDQUOT", "EFBIG"].contains(&seen[0].as_str()),
                "{place}: {output:?}"
            );
            assert!(count(&output, "filled") <= LIMIT, "{place}: {output:?}");
        }
        let on_host = lab.workspace().join("big").metadata().expect("was made").len();
        assert!(on_host <= LIMIT, "{on_host} bytes on the host");
        let (seen, output) = fence().attack(&[&["fill", "small", "65536", "1048576"]]);
        assert_eq!(seen, all("OK", 1), "control: below the limit: {output:?}");
    });
}

#[test]
fn bytes_do_not_pass_the_count_by_other_ways_of_writing() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 3] = [
            &["aio-write", "aio", "4194304"],
            &["reserve", "reserved", "33554432"],
            &["fill", "small", "4096", "16384"],
        ];
        let (seen, output) = lab.fence().flags(["--disk", "1M"]).attack(&attacks);
        for name in ["aio", "reserved"] {
            let blocks = lab
                .workspace()
                .join(name)
                .metadata()
                .map_or(0, |meta| meta.blocks());
            assert!(
                blocks * 512 <= 1 << 20,
                "{name} takes {} bytes on the host: {output:?}",
                blocks * 512
            );
        }
        assert!(!seen[..2].contains(&"OK".to_owned()), "{seen:?}: {output:?}");
        assert_eq!(seen[2], "OK", "control: an ordinary write");
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
    });
}

#[test]
fn files_cannot_be_created_or_bytes_rewritten_without_end() {
    for_each_identity(|lab| {
        let (seen, output) = lab
            .fence()
            .flags(["--max-inodes", "32"])
            .attack(&[&["fill-files", ".", "200"]]);
        assert!(["EDQUOT", "ENOSPC"].contains(&seen[0].as_str()), "{output:?}");
        assert!(count(&output, "created") <= 32, "{output:?}");
        let (seen, output) = lab
            .fence()
            .flags(["--max-written", "64K"])
            .attack(&[&["fill", "f0", "4096", "1048576"]]);
        assert!(["EDQUOT", "ENOSPC"].contains(&seen[0].as_str()), "{output:?}");
        assert!(count(&output, "filled") <= 64 << 10, "{output:?}");
        let told = output.events("limit");
        assert!(!told.is_empty(), "{output:?}");
        let (seen, output) = lab.fence().attack(&[&["fill-files", ".", "200"]]);
        assert_eq!(seen, all("OK", 1), "control: without the limit: {output:?}");
    });
}

#[test]
fn descriptors_run_out_at_the_limit() {
    for_each_identity(|lab| {
        let (seen, output) = lab
            .fence()
            .flags(["--open-files", "64"])
            .attack(&[&["open-many", "5000"]]);
        assert_eq!(seen, all("EMFILE", 1), "{output:?}");
        assert!(count(&output, "opened") <= 64, "{output:?}");
        assert_eq!(
            lab.fenced(&[&["open-many", "100"]]),
            all("OK", 1),
            "control: below the limit"
        );
    });
}

#[test]
fn output_beyond_the_limit_is_discarded_and_told() {
    for_each_identity(|lab| {
        let output = lab
            .fence()
            .flags(["--max-output", "1M"])
            .run(["head", "-c", "16777216", "/dev/zero"]);
        assert_eq!(output.ended.code, 0, "the run goes on: {}", output.ended.stderr);
        assert!(
            output.ended.stdout.len() <= 1 << 20,
            "{} bytes",
            output.ended.stdout.len()
        );
        assert!(
            !output.events("output-truncated").is_empty(),
            "{:?}",
            output.events("ended")
        );
        let output = lab.fence().run(["head", "-c", "2097152", "/dev/zero"]);
        assert_eq!(output.ended.stdout.len(), 2 << 20, "control: without the limit");
    });
}

/// Runs something that never ends and must be ended.
fn must_be_ended(lab: &Lab, command: &[&str], mark: &str) {
    let mut seen = Vec::new();
    // On a loaded machine it may not be under way when its time is over, or be ended late: then it gets more time.
    for seconds in [2, 6, 18] {
        let time = format!("{seconds}s");
        let fence = lab.fence().flags(["--timeout", &time, "--pids", "1000"]);
        let run = fence.name().to_owned();
        let output = fence.run(command.iter().copied());
        assert_eq!(output.ended.code, 124, "{output:?}");
        let ended = output.events("ended");
        let wall = ended.first().and_then(|event| event["usage"]["wall_ms"].as_u64());
        let wall = wall.unwrap_or_else(|| panic!("no end in the audit: {output:?}"));
        assert!(wall >= seconds * 1000, "ended after {wall} ms of {time}");
        let told = output
            .events("limit")
            .iter()
            .any(|event| event["limit"] == "wall-time");
        assert!(told, "{output:?}");
        assert_eq!(survivors(mark), Vec::<String>::new());
        assert_eq!(cgroups(&run), Vec::<PathBuf>::new());
        let planted = output.ended.stdout.starts_with("planted");
        if planted && wall < seconds * 1000 + 2000 {
            return;
        }
        seen.push((time, planted, wall));
    }
    panic!("never under way and ended 2 s after its time: {seen:?}");
}

#[test]
fn a_tree_of_deaf_stopped_and_daemonised_processes_does_not_outlive_the_timeout() {
    for_each_identity(|lab| {
        let mark = format!("deaf-tree-{}-{}", std::process::id(), lab.identity.uid());
        must_be_ended(lab, &[text(&lab.attacker()), "tree", "500", &mark], &mark);
    });
}

#[test]
fn a_process_that_ignores_signals_renames_and_executes_itself_does_not_outlive_the_timeout() {
    for_each_identity(|lab| {
        let mark = format!("stubborn-{}-{}", std::process::id(), lab.identity.uid());
        must_be_ended(lab, &[text(&lab.attacker()), "stubborn", "0", &mark], &mark);
    });
}

#[test]
fn nothing_outlives_a_bastle_that_is_killed_or_told_to_stop() {
    for_each_identity(|lab| {
        for signal in [Signal::KILL, Signal::TERM] {
            let mark = format!(
                "orphan-{}-{}-{}",
                std::process::id(),
                lab.identity.uid(),
                signal.as_raw()
            );
            let fence = lab.fence();
            let run = fence.name().to_owned();
            let mut bastle =
                Background::start(&mut fence.command([text(&lab.attacker()), "tree", "50", &mark]));
            assert_eq!(bastle.line(), "planted");
            assert!(survivors(&mark).len() > 50, "control: they run");
            bastle.signal(signal);
            // Told to stop, it gives the agent its grace of 10 s first; the agent is deaf.
            let gone = eventually(Limit::HANG, || {
                survivors(&mark).is_empty() && cgroups(&run).is_empty()
            });
            assert!(gone, "{signal:?}: {:?} {:?}", survivors(&mark), cgroups(&run));
            assert!(
                bastle.end(Limit::HANG).is_some(),
                "{signal:?}: bastle itself is still there"
            );
        }
    });
}

#[test]
fn a_finished_run_leaves_nothing_but_its_audit_log() {
    for_each_identity(|lab| {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("can be read");
        lab.project(".env", "CANARY");
        let fence = lab.fence().flags(["--pids", "50", "--disk", "4M"]);
        let run = fence.name().to_owned();
        let output = fence
            .sh("echo private > /tmp/left; echo private > ~/left; mkdir -p sub; echo result > sub/result");
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert_eq!(
            std::fs::read_to_string("/proc/self/mountinfo").expect("can be read"),
            mounts
        );
        assert_eq!(cgroups(&run), Vec::<PathBuf>::new());
        assert_eq!(survivors(&run), Vec::<String>::new());
        let mut names: Vec<String> = std::fs::read_dir(lab.workspace())
            .expect("can be listed")
            .map(|entry| {
                entry
                    .expect("can be listed")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        assert_eq!(names, [".env", "sub"], "no probe file, no mount point");
        assert_eq!(
            std::fs::read_to_string(lab.workspace().join(".env")).expect("is there"),
            "CANARY"
        );
        let next = lab.fence().sh("ls -A /tmp ~ | grep left; true");
        assert_eq!(next.said(), "", "the next run starts clean");
        let kept = lab.fence().sh("cat sub/result");
        assert_eq!(kept.said(), "result", "control: the work is kept");
        if lab.identity == Identity::Root {
            // Every name the run's own uid owned is gone with it: the workspace is mapped, the rest was private.
            let owned = lab
                .workspace()
                .join("sub/result")
                .metadata()
                .expect("is there")
                .uid();
            assert_eq!(owned, 0);
        }
    });
}
