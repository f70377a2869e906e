//! Group `workspace`: from a repository of 20 000 files to an agent's tree in which `git status` has answered once,
//! and what the tree costs afterwards.
//!
//! A round moves gigabytes and takes a minute or more on a plain disk: there are few of them, each step is told with its
//! time while it happens, and what is known is printed before the next part begins.
use super::results::GroupResult;
use super::sample::{Contender, Measured, interleave_told, measured, ratios, table};
use super::{compile, version_of};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Rounds that are thrown away: one fills the page cache.
const WARM_UP: usize = 1;
const MEGABYTES: u64 = 424;
/// Files that the table is about; figures of fewer are no figures of this group.
pub(super) const FILES: u64 = 20_000;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Rounds that count.
    pub(super) rounds: usize,
    /// Files of the project, with their share of the bytes.
    pub(super) files: u64,
}

/// Everything the measured commands need.
struct Ground<'a> {
    stage: Stage,
    bastle: &'a Path,
    next: Cell<u32>,
    size: Size,
    began: Instant,
}

/// Measures every way of making a tree, then what is done with one.
pub(super) fn run(bastle: &Path, size: Size) -> Result<GroupResult, Failed> {
    let limit = compile("copy")?;
    let ground = Ground {
        stage: Stage::new("bench-workspace")?,
        bastle,
        next: Cell::new(0),
        size,
        began: Instant::now(),
    };
    ground.say(&format!("making a repository of {} files", size.files));
    generate(&ground.project(), size.files)?;
    let modes = ["copy", "overlay", "worktree"];
    let mut contenders: Vec<Contender<'_>> = vec![
        ground.plain("cp_a", |from, to| {
            let mut command = Command::new("cp");
            command.arg("-a").args([from, to]);
            command
        }),
        ground.plain("git_worktree", |from, to| {
            let mut command = Command::new("git");
            command.arg("-C").arg(from);
            command.args(["worktree", "add", "--quiet", "--detach"]).arg(to);
            command
        }),
        ground.plain("limit", |from, to| {
            let mut command = Command::new(&limit);
            command.args([from, to]);
            command
        }),
    ];
    contenders.extend(modes.map(|mode| ground.mode(mode)));
    let mut times = interleave_told(
        &mut contenders,
        (size.rounds, WARM_UP),
        &mut |round, name, time| {
            let which = match round.checked_sub(WARM_UP) {
                None => "warming up".to_owned(),
                Some(round) => format!("round {} of {}", round + 1, size.rounds),
            };
            ground.say(&format!("{which}: {name} {time:.0} ms"));
        },
    )?;
    drop(contenders);
    let shares = shares(&times);
    // What comes may fail or be interrupted; this much is known.
    print!("{}", table(&times, &shares));
    let mut figures = BTreeMap::new();
    for mode in modes {
        let used = ground.use_one(mode, &mut figures)?;
        print!("{}", table(&used, &BTreeMap::new()));
        times.extend(used);
    }
    println!("in all:\n{}", table(&times, &shares));
    Ok(GroupResult {
        samples: size.rounds,
        measured: times,
        ratios: shares,
        versions: BTreeMap::from([
            ("bastle".to_owned(), version_of(bastle)),
            ("git".to_owned(), version_of(Path::new("git"))),
        ]),
        steps: BTreeMap::new(),
        absent: BTreeMap::new(),
        figures,
    })
}

/// The ratios under the names that the table has.
fn shares(times: &BTreeMap<String, Measured>) -> BTreeMap<String, f64> {
    let mut shares = ratios(
        times,
        &[
            ("copy", "git_worktree"),
            ("copy", "limit"),
            ("overlay", "git_worktree"),
        ],
    );
    for (from, to) in [
        ("copy_over_git_worktree", "ready_over_worktree"),
        ("copy_over_limit", "ready_over_limit"),
    ] {
        if let Some(value) = shares.remove(from) {
            shares.insert(to.to_owned(), value);
        }
    }
    shares
}

impl Ground<'_> {
    /// Where the measuring is, for whoever waits.
    fn say(&self, what: &str) {
        eprintln!("[{:>4} s] {what}", self.began.elapsed().as_secs());
    }

    fn project(&self) -> PathBuf {
        self.stage.path().join("project")
    }

    fn fresh(&self) -> String {
        self.next.set(self.next.get() + 1);
        format!("bench-{}", self.next.get())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.bastle);
        command
            .args(words)
            .current_dir(self.project())
            .env("XDG_STATE_HOME", self.stage.path().join("state"))
            .stdin(Stdio::null());
        command
    }

    /// A tree made by somebody else, and the first look of git at it.
    fn plain<'a>(&'a self, name: &'static str, make: impl Fn(&Path, &Path) -> Command + 'a) -> Contender<'a> {
        let once = move || {
            let to = self.stage.path().join(self.fresh());
            settle()?;
            let start = Instant::now();
            sh::stdout_of(&mut make(&self.project(), &to))?;
            sh::stdout_of(
                Command::new("git")
                    .arg("-C")
                    .arg(&to)
                    .args(["status", "--porcelain"]),
            )?;
            let time = start.elapsed().as_secs_f64() * 1000.0;
            std::fs::remove_dir_all(&to).map_err(Failed::io(to.display()))?;
            sh::stdout_of(
                Command::new("git")
                    .arg("-C")
                    .arg(self.project())
                    .args(["worktree", "prune"]),
            )?;
            Ok(time)
        };
        Contender {
            name,
            once: Box::new(once),
        }
    }

    /// A whole run in a tree of ours: process, policy, tree, fence, git, end.
    fn mode(&self, mode: &'static str) -> Contender<'_> {
        let once = move || {
            let name = self.fresh();
            settle()?;
            let words = [
                "run",
                "--quiet",
                "--net",
                "none",
                "--workspace",
                mode,
                "--name",
                &name,
                "--",
            ];
            let mut command = self.command(&words);
            command.args(["git", "status", "--porcelain"]);
            let start = Instant::now();
            sh::stdout_of(&mut command)?;
            let time = start.elapsed().as_secs_f64() * 1000.0;
            sh::stdout_of(&mut self.command(&["rm", &name]))?;
            Ok(time)
        };
        Contender {
            name: mode,
            once: Box::new(once),
        }
    }

    /// One tree with a change of one percent: snapshot, diff, rollback, disk.
    fn use_one(
        &self,
        mode: &str,
        figures: &mut BTreeMap<String, BTreeMap<String, f64>>,
    ) -> Result<BTreeMap<String, Measured>, Failed> {
        self.say(&format!("{mode}: a tree with a change of one percent"));
        let name = self.fresh();
        let before = self.disk()?;
        let words = [
            "run",
            "--quiet",
            "--net",
            "none",
            "--workspace",
            mode,
            "--name",
            &name,
            "--",
        ];
        let mut command = self.command(&words);
        command.args([
            "sh",
            "-c",
            &format!(
                "for f in $(find d* -name '*0.txt' | sort | head -{}); do echo changed > $f; done",
                (self.size.files / 100).max(1)
            ),
        ]);
        sh::stdout_of(&mut command)?;
        settle()?;
        let mut taken: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in 0..self.size.rounds {
            let mut line = format!("{mode}, round {} of {}:", round + 1, self.size.rounds);
            for (what, words) in [
                ("snapshot", vec!["snapshot", &name]),
                ("diff", vec!["diff", &name, "--stat"]),
                ("rollback", vec!["rollback", &name, "0"]),
                ("forward", vec!["rollback", &name, "1"]),
            ] {
                let start = Instant::now();
                sh::stdout_of(&mut self.command(&words))?;
                let time = start.elapsed().as_secs_f64() * 1000.0;
                line.push_str(&format!(" {what} {time:.0} ms"));
                taken.entry(what).or_default().push(time);
            }
            self.say(&line);
        }
        let mut times = BTreeMap::new();
        for (what, mut all) in taken {
            times.extend(measured(&mut all).map(|found| (format!("{what}_{mode}"), found)));
        }
        let disk = (self.disk()? - before).max(0.0);
        figures
            .entry("disk_mib".to_owned())
            .or_default()
            .insert(mode.to_owned(), disk);
        sh::stdout_of(&mut self.command(&["rollback", &name, "0"]))?;
        sh::stdout_of(&mut self.command(&["rm", &name]))?;
        Ok(times)
    }

    /// Mebibytes below the state directory.
    fn disk(&self) -> Result<f64, Failed> {
        let state = self.stage.path().join("state");
        std::fs::create_dir_all(&state).map_err(Failed::io(state.display()))?;
        let text = sh::stdout_of(Command::new("du").arg("-sk").arg(&state))?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<f64>().ok());
        first
            .map(|kibibytes| kibibytes / 1024.0)
            .ok_or_else(|| Failed::new("du", text))
    }
}

/// What earlier rounds left to be written must not fall on the next.
fn settle() -> Result<(), Failed> {
    sh::stdout_of(&mut Command::new("sync")).map(drop)
}

/// The same repository every time: one commit, sizes and bytes from a fixed seed.
fn generate(root: &Path, files: u64) -> Result<(), Failed> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mean = (MEGABYTES << 20) / FILES;
    for number in 0..files {
        let directory = root.join(format!("d{}/e{}", number % 40, number / 40 % 25));
        std::fs::create_dir_all(&directory).map_err(Failed::io(directory.display()))?;
        let length = usize::try_from(random() % (mean * 2)).unwrap_or_default();
        // Half of it repeats, as text does, so that git's own copy is smaller than the files.
        let line = format!("{:016x} the same words in every line of every file\n", random());
        let mut bytes = Vec::with_capacity(length + line.len() + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend((0..6).flat_map(|_| random().to_le_bytes()));
        }
        let file = directory.join(format!("f{number}.txt"));
        std::fs::write(&file, bytes).map_err(Failed::io(file.display()))?;
    }
    for words in [
        vec!["init", "--quiet"],
        // Housekeeping in the background would be measured with everybody.
        vec!["config", "gc.auto", "0"],
        vec!["config", "maintenance.auto", "false"],
        vec!["add", "--all"],
        vec![
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.org",
            "commit",
            "--quiet",
            "-m",
            "all",
        ],
    ] {
        sh::stdout_of(Command::new("git").arg("-C").arg(root).args(words))?;
    }
    Ok(())
}
