//! A run without any limit of its own: what the defaults hold, and the disk reserve.
use crate::support::{
    Background, Fence, Identity, Lab, Limit, bastle, eventually, for_each_identity, run, skip, text,
};
use std::path::{Path, PathBuf};
use std::process::Command;

fn policy(lab: &Lab, limits: &serde_json::Value) -> String {
    let document = serde_json::json!({ "version": 1, "limits": limits });
    text(&lab.plant(&lab.outside().join("policy.json"), &document.to_string())).to_owned()
}

#[test]
fn a_plain_run_says_and_has_limits_for_memory_processes_and_files() {
    for_each_identity(|lab| {
        let output = lab.fence().sh("ulimit -f; ulimit -u; df -k /tmp | tail -1");
        let line = output
            .ended
            .stderr
            .lines()
            .find(|line| line.trim_start().starts_with("limits:"));
        let line = line.unwrap_or_else(|| panic!("the first lines name the limits: {output:?}"));
        for limit in ["memory ", "pids 2048", "fileSize 32", "diskReserve 1"] {
            assert!(line.contains(limit), "{limit}: {line}");
        }
        assert!(
            !line.contains("timeout"),
            "no limit of time at a terminal: {line}"
        );
        let said: Vec<&str> = output.said().lines().collect();
        // Blocks of 512 bytes in sh, 1024 in others.
        assert!(["67108864", "33554432"].contains(&said[0]), "{output:?}");
        let dry = lab.fence().flags(["--dry-run-policy"]).run(["true"]);
        for limit in ["memory", "pids 2048", "fileSize", "diskReserve"] {
            assert!(dry.ended.stdout.contains(limit), "{limit}: {dry:?}");
        }
        let rules = policy(lab, &serde_json::json!({ "fileSize": "1MiB", "pids": 300 }));
        let narrowed = lab.fence().flags(["--policy", &rules]).sh("true");
        assert!(
            narrowed.ended.stderr.contains("pids 300") && narrowed.ended.stderr.contains("fileSize 1"),
            "a policy says otherwise: {narrowed:?}"
        );
    });
}

#[test]
fn a_huge_sparse_file_cannot_be_made_without_any_limit_being_set() {
    for_each_identity(|lab| {
        let script = "truncate -s 1T huge; truncate -s 1T /tmp/huge; truncate -s 1G large && echo large";
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(script);
        assert_eq!(output.said(), "large", "control: an ordinary size: {output:?}");
        let size = std::fs::metadata(lab.workspace().join("huge")).map_or(0, |meta| meta.len());
        assert_eq!(size, 0, "{output:?}");
    });
}

#[test]
fn preallocation_in_one_call_does_not_go_below_the_disk_reserve() {
    for_each_identity(|lab| {
        let space = rustix::fs::statvfs(lab.workspace()).expect("own directory");
        let free = space.f_bavail * space.f_frsize;
        // Below the default size of one file, and so much that what others write meanwhile decides nothing.
        let asked = (free / 4 * 3).min(30 << 30);
        let rules = policy(
            lab,
            &serde_json::json!({ "diskReserve": (free - asked / 2).to_string() }),
        );
        let script = format!("fallocate -l 16M small && echo small; fallocate -l {asked} big; echo $?; ls");
        for mode in ["in-place", "copy"] {
            let flags = ["--policy", &rules, "--workspace", mode];
            let output = lab.fence().flags(flags).sh(&script);
            let said = output.said();
            assert!(said.starts_with("small\n1\n"), "{mode}: {output:?}");
            assert!(
                output.ended.stderr.contains("No space left on device"),
                "{mode}: {output:?}"
            );
        }
        let rules = policy(lab, &serde_json::json!({ "diskReserve": "1MiB" }));
        let flags = ["--policy", &rules, "--workspace", "copy"];
        let output = lab.fence().flags(flags).sh("fallocate -l 64M f && stat -c %s f");
        assert_eq!(output.said(), "67108864", "control: with room: {output:?}");
    });
}

#[test]
fn a_fork_bomb_is_held_without_any_limit_being_set() {
    for_each_identity(|lab| {
        let (seen, output) = lab.fence().attack(&[&["fork-bomb", "5000"]]);
        assert_eq!(seen, ["EAGAIN"], "{output:?}");
        let (few, output) = lab.fence().attack(&[&["fork-bomb", "100"]]);
        assert_eq!(few, ["OK"], "control: {output:?}");
    });
}

/// A workspace on a small file system of its own, in a mount namespace that ends with the run.
struct Small<'a> {
    lab: &'a Lab,
    living: Background,
    name: String,
}

impl<'a> Small<'a> {
    const SIZE: &'static str = "128m";

    /// Starts a writer there that fills it slowly.
    fn start(lab: &'a Lab, reserve: &str) -> Self {
        let rules = policy(lab, &serde_json::json!({ "diskReserve": reserve }));
        let script = lab.plant(
            &lab.outside().join("fill.sh"),
            "i=0; while [ $i -lt 250 ]; do head -c 2097152 /dev/zero >> filler || { echo full; exit 3; }; i=$((i+1)); sleep 0.01; done; echo end",
        );
        let fence: Fence<'_> = lab.fence().flags([
            "--workspace",
            "in-place",
            "--ro",
            text(&lab.outside()),
            "--policy",
            &rules,
        ]);
        let name = fence.name().to_owned();
        let line = fence.command(["sh", text(&script)]);
        let uid = lab.identity.uid().to_string();
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        // The shell's directory must be looked up again: it would still be the one below the new mount.
        command.arg("mount -t tmpfs -o size=$1,uid=$2,gid=$2 none \"$3\" && cd \"$3\" && shift 3 && exec setpriv --reuid \"$0\" --regid \"$0\" --clear-groups \"$@\"");
        command.args([&uid, Self::SIZE, &uid, text(&lab.workspace())]);
        command.arg(line.get_program()).args(line.get_args());
        command.env_clear();
        for (name, value) in line.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        Self {
            lab,
            living: Background::start(&mut command),
            name,
        }
    }

    /// The filler, as the run's own mounts show it.
    fn filler(&self) -> PathBuf {
        let workspace = self.lab.workspace();
        let below = workspace.strip_prefix("/").expect("absolute");
        Path::new("/proc")
            .join(self.living.pid().to_string())
            .join("root")
            .join(below)
            .join("filler")
    }

    fn tells(&self, words: &[&str]) -> crate::support::Ended {
        run(
            self.lab.command(bastle()).args(words).arg(&self.name),
            b"",
            Limit::HANG,
        )
    }

    fn is_paused(&self) -> bool {
        let mut command = self.lab.command(bastle());
        let ended = run(command.args(["ps", "--json"]), b"", Limit::HANG);
        ended.stdout.contains("kept in reserve") && ended.stdout.contains(&self.name)
    }
}

#[test]
fn a_run_is_paused_before_the_file_system_under_its_workspace_is_full() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            skip(
                "a_run_is_paused_before_the_file_system",
                "needs root to mount a small file system",
            );
            return;
        }
        let mut small = Small::start(lab, "32MiB");
        assert!(eventually(Limit::HANG, || small.is_paused()), "it is paused");
        let written = || std::fs::metadata(small.filler()).expect("is there").len();
        let then = written();
        assert!(then < 127 << 20, "there is room left: {then}");
        let refused = small.tells(&["resume"]);
        assert!(
            refused.code != 0 && refused.stderr.contains("resume --force"),
            "{refused:?}"
        );
        assert_eq!(written(), then, "nobody writes");
        // Room is made, and the run goes on; it fills the place again.
        std::fs::OpenOptions::new()
            .write(true)
            .open(small.filler())
            .and_then(|file| file.set_len(0))
            .expect("can be emptied");
        let resumed = small.tells(&["resume"]);
        assert_eq!(resumed.code, 0, "{resumed:?}");
        assert!(
            eventually(Limit::HANG, || small.is_paused()),
            "it is paused again"
        );
        let forced = small.tells(&["resume", "--force"]);
        assert_eq!(forced.code, 0, "{forced:?}");
        assert_eq!(small.living.line(), "full", "who insists gets what the disk has");
        assert_eq!(small.living.end(Limit::HANG), Some(3));
    });
}

#[test]
fn without_a_reserve_the_file_system_fills_up() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            skip(
                "without_a_reserve_the_file_system_fills_up",
                "needs root to mount a small file system",
            );
            return;
        }
        let mut small = Small::start(lab, "0");
        assert_eq!(small.living.line(), "full", "control of the test above");
        assert_eq!(small.living.end(Limit::HANG), Some(3));
    });
}
