//! Group `review`: 5 000 changed files on their way to the project and back, beside `git checkout` of the same change, and
//! an archive of the work, also just after a rollback, beside `tar`.
use super::results::GroupResult;
use super::sample::{Contender, interleave_told, ratios, table};
use super::version_of;
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const FILES: u64 = 5_000;
/// Bytes of a file: the mean of source files.
const LENGTH: usize = 8 << 10;
const WARM_UP: usize = 1;
const RUN: &str = "bench-review";
/// The snapshot with the change.
const CHANGED: &str = "changed";
/// The change, made by the agent in its copy and by hand in the repository that git checks out.
const CHANGE: &str = "find d* -name '*.txt' -print0 | xargs -0 sed -i 1s/^/changed/";

/// Measures the way back.
pub(super) fn run(bastle: &Path, rounds: usize) -> Result<GroupResult, Failed> {
    let stage = Stage::new("bench-review")?;
    let ground = Ground {
        bastle,
        project: stage.path().join("project"),
        peer: stage.path().join("peer"),
        state: stage.path().join("state"),
        archive: stage.path().join("work.tar"),
    };
    ground.prepare()?;
    let tree = ground.state.join("bastle/work").join(RUN).join("tree");
    let archive = ground.archive.to_string_lossy().into_owned();
    let mut tar = Command::new("tar");
    tar.arg("--exclude=.git")
        .arg("-cf")
        .arg(&ground.archive)
        .arg("-C")
        .arg(&tree)
        .arg(".");
    let mut contenders = vec![
        timed(
            "checkout",
            ground.git(&["checkout", "--quiet", "changed"]),
            Some(ground.git(&["checkout", "--quiet", "main"])),
        ),
        timed("apply", ground.bastle(&["apply", RUN]), None),
        timed("undo", ground.bastle(&["apply", RUN, "--undo"]), None),
        timed("tar", tar, None),
        timed(
            "export",
            ground.bastle(&["export", RUN, &archive, "--force"]),
            None,
        ),
        timed_after(
            "export-rolled-back",
            // Away and back: what the next contender needs is there again, and nothing known of the tree still holds.
            vec![
                ground.bastle(&["rollback", RUN, "base"]),
                ground.bastle(&["rollback", RUN, CHANGED]),
            ],
            ground.bastle(&["export", RUN, &archive, "--force"]),
            None,
        ),
    ];
    let mut told = |round: usize, name: &str, time: f64| eprintln!("round {round}: {name} {time:.0} ms");
    let times = interleave_told(&mut contenders, (rounds, WARM_UP), &mut told)?;
    drop(contenders);
    let shares = ratios(
        &times,
        &[
            ("apply", "checkout"),
            ("undo", "checkout"),
            ("export", "tar"),
            ("export-rolled-back", "tar"),
        ],
    );
    print!("{}", table(&times, &shares));
    Ok(GroupResult {
        samples: rounds,
        measured: times,
        ratios: shares,
        versions: BTreeMap::from([
            ("bastle".to_owned(), version_of(bastle)),
            ("git".to_owned(), version_of(Path::new("git"))),
            ("tar".to_owned(), version_of(Path::new("tar"))),
        ]),
        steps: BTreeMap::new(),
        absent: BTreeMap::new(),
        figures: BTreeMap::new(),
    })
}

/// One command after a `sync`, with another one behind it that brings back what was before.
fn timed(name: &'static str, command: Command, back: Option<Command>) -> Contender<'static> {
    timed_after(name, Vec::new(), command, back)
}

/// The same with commands before it that are not measured.
fn timed_after(
    name: &'static str,
    mut before: Vec<Command>,
    mut command: Command,
    mut back: Option<Command>,
) -> Contender<'static> {
    let once = move || {
        for one in &mut before {
            sh::stdout_of(one)?;
        }
        sh::stdout_of(&mut Command::new("sync"))?;
        let start = Instant::now();
        sh::stdout_of(&mut command)?;
        let time = start.elapsed().as_secs_f64() * 1000.0;
        if let Some(back) = &mut back {
            sh::stdout_of(back)?;
        }
        Ok(time)
    };
    Contender {
        name,
        once: Box::new(once),
    }
}

struct Ground<'a> {
    bastle: &'a Path,
    project: PathBuf,
    /// A clone of it with the change as a branch.
    peer: PathBuf,
    state: PathBuf,
    archive: PathBuf,
}

impl Ground<'_> {
    fn prepare(&self) -> Result<(), Failed> {
        generate(&self.project)?;
        let all = ["init", "--quiet", "--initial-branch=main"];
        sh::stdout_of(Command::new("git").arg("-C").arg(&self.project).args(all))?;
        commit(&self.project)?;
        let mut clone = Command::new("git");
        clone
            .args(["clone", "--quiet"])
            .arg(&self.project)
            .arg(&self.peer);
        sh::stdout_of(&mut clone)?;
        sh::stdout_of(&mut self.git(&["checkout", "--quiet", "-b", "changed"]))?;
        sh::stdout_of(Command::new("sh").args(["-c", CHANGE]).current_dir(&self.peer))?;
        commit(&self.peer)?;
        sh::stdout_of(&mut self.git(&["checkout", "--quiet", "main"]))?;
        let words = [
            "run",
            "--quiet",
            "--net",
            "none",
            "--workspace",
            "copy",
            "--name",
            RUN,
        ];
        sh::stdout_of(self.bastle(&words).args(["--", "sh", "-c", CHANGE]))?;
        sh::stdout_of(&mut self.bastle(&["snapshot", RUN, CHANGED]))?;
        Ok(())
    }

    fn git(&self, words: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.peer).args(words);
        command
    }

    fn bastle(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.bastle);
        command
            .args(words)
            .current_dir(&self.project)
            .env("XDG_STATE_HOME", &self.state)
            .stdin(Stdio::null());
        command
    }
}

fn commit(repository: &Path) -> Result<(), Failed> {
    for words in [
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
        sh::stdout_of(Command::new("git").arg("-C").arg(repository).args(words))?;
    }
    Ok(())
}

fn generate(root: &Path) -> Result<(), Failed> {
    for number in 0..FILES {
        let directory = root.join(format!("d{}/e{}", number % 20, number / 20 % 10));
        std::fs::create_dir_all(&directory).map_err(Failed::io(directory.display()))?;
        let line = format!("the same words in every line of file {number}\n");
        let text = line.repeat(LENGTH / line.len());
        let file = directory.join(format!("f{number}.txt"));
        std::fs::write(&file, text).map_err(Failed::io(file.display()))?;
    }
    Ok(())
}
