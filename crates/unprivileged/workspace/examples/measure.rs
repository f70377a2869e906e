//! Measures copies, snapshots and rollbacks on a generated tree: `measure DIRECTORY [FILES] [MEGABYTES]`.
//!
//! Prints one line per figure, in milliseconds: the median of several and each of them. The tree is made from a fixed
//! seed, so that two runs of this program see the same files.
use bastle_contract::{Fault, RunId};
use bastle_workspace::meta::{Reason, Which, WorkMode};
use bastle_workspace::place::Place;
use bastle_workspace::rollback::Quiet;
use bastle_workspace::workspace::{CreateRequest, GitMade, Workspace};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Small and the same everywhere; quality does not matter for file sizes and bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn generate(root: &Path, files: u64, megabytes: u64) -> Result<(), Box<dyn Error>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mean = (megabytes << 20) / files;
    for i in 0..files {
        let dir = root.join(format!("d{}/e{}", i % 40, i / 40 % 25));
        fs::create_dir_all(&dir)?;
        let length = random.next() % (mean * 2);
        let mut bytes = Vec::with_capacity(usize::try_from(length)? + 8);
        while (bytes.len() as u64) < length {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        fs::write(dir.join(format!("f{i}.txt")), bytes)?;
    }
    Ok(())
}

fn report(name: &str, mut figures: Vec<f64>) {
    let all = figures
        .iter()
        .map(|f| format!("{f:.0}"))
        .collect::<Vec<_>>()
        .join(" ");
    figures.sort_by(f64::total_cmp);
    println!("{name:32} {:8.1} ms   ({all})", figures[figures.len() / 2]);
}

fn timed<T>(act: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<(T, f64), Box<dyn Error>> {
    let start = Instant::now();
    let value = act()?;
    Ok((value, start.elapsed().as_secs_f64() * 1000.0))
}

fn run(program: &str, args: &[&Path]) -> Result<(), Box<dyn Error>> {
    let status = Command::new(program).args(args).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program}: {status}").into())
    }
}

/// What every copy must do, with two threads and nothing else: open, read, create, write.
fn bare_copy(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut tops: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(from)? {
        tops.push(entry?.path());
    }
    fs::create_dir(to)?;
    let (left, right) = tops.split_at(tops.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| left.iter().try_for_each(|top| bare_tree(top, to)));
        right.iter().try_for_each(|top| bare_tree(top, to))?;
        other.join().map_err(|_| "a thread ended")??;
        Ok(())
    })
}

fn bare_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    let to = to.join(from.file_name().unwrap_or_default());
    fs::create_dir(&to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.is_dir() {
            bare_tree(&path, &to)?;
        } else {
            fs::write(to.join(path.file_name().unwrap_or_default()), fs::read(&path)?)?;
        }
    }
    Ok(())
}

fn create(place: &Place, source: &Path, mode: WorkMode, name: String) -> Result<Workspace, Fault> {
    let run = RunId::try_from(name)
        .map_err(|e| Fault::new(bastle_contract::Code::UsageArgument, e.to_string(), ""))?;
    let request = CreateRequest {
        run,
        source,
        hidden: &|_| false,
        git: &mut |_| Ok(GitMade::default()),
        progress: &mut |_| {},
    };
    Workspace::create_as(place, mode, request)
}

fn change(tree: &Path, one_in: u64, files: u64, round: u64) -> Result<(), Box<dyn Error>> {
    for i in (0..files).step_by(usize::try_from(one_in)?) {
        let path = tree.join(format!("d{}/e{}/f{i}.txt", i % 40, i / 40 % 25));
        fs::write(path, format!("changed {i} in round {round}\n").repeat(500))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let root = PathBuf::from(args.next().ok_or("which directory?")?);
    let mut number = |default: u64| match args.next() {
        Some(text) => text.to_string_lossy().parse(),
        None => Ok(default),
    };
    let (files, megabytes) = (number(20_000)?, number(424)?);
    let source = root.join("source");
    fs::create_dir_all(&root)?;
    if !source.exists() {
        generate(&source, files, megabytes)?;
    }
    let place = Place::new(root.join("state"));
    let (mut cp, mut bare, mut ours, mut layered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..3 {
        let (there, beside) = (root.join("cp"), root.join("bare"));
        run("sync", &[])?;
        cp.push(timed(|| run("cp", &[Path::new("-a"), &source, &there]))?.1);
        run("rm", &[Path::new("-rf"), &there])?;
        run("sync", &[])?;
        bare.push(timed(|| bare_copy(&source, &beside))?.1);
        run("rm", &[Path::new("-rf"), &beside])?;
        run("sync", &[])?;
        let name = format!("run-{round}");
        ours.push(timed(|| Ok(create(&place, &source, WorkMode::Copy, name)?))?.1);
        run("sync", &[])?;
        let name = format!("layered-{round}");
        let (space, time) = timed(|| Ok(create(&place, &source, WorkMode::Overlay, name)?))?;
        layered.push(time);
        space.remove(None)?;
        if round > 0 {
            run(
                "rm",
                &[
                    Path::new("-rf"),
                    &root.join("state/work").join(format!("run-{round}")),
                ],
            )?;
        }
    }
    report("cp -a", cp);
    report("two threads, bare", bare);
    report("copy", ours);
    report("overlay, the first one reads all", layered);
    let run_id = RunId::try_from("run-0".to_owned())?;
    let space = Workspace::open(&place, &run_id)?;
    let (mut unchanged, mut changed, mut back) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..5 {
        unchanged.push(timed(|| Ok(space.snapshot(None, Reason::Turn)?))?.1);
        change(&space.tree(), 100, files, round)?;
        changed.push(timed(|| Ok(space.snapshot(None, Reason::Turn)?))?.1);
        back.push(timed(|| Ok(space.rollback(&Which::Number(0), Quiet::Unknown)?))?.1);
    }
    report("snapshot, unchanged", unchanged);
    report("snapshot, 1 % changed", changed);
    report("rollback of 1 %", back);
    let fork = timed(|| Ok(space.fork(&Which::Number(0), RunId::try_from("fork".to_owned())?)?))?;
    report("fork", vec![fork.1]);
    let removed = timed(|| Ok(fork.0.remove(None)?))?;
    report("remove", vec![removed.1]);
    Ok(())
}
