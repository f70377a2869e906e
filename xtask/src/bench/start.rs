//! Group `start`: from nothing to the end of a static `true` inside a fence.
mod parallel;
mod pool;
mod recipe;
mod who;

use super::results::GroupResult;
use super::sample::{Contender, interleave, measured, ratios, table};
use super::{compile_limit, try_once, version_of};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use parallel::Load;
use pool::{Pool, Served};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
pub(super) use who::Who;

/// Ratios worth looking at: ours over the peer and over what the kernel makes unavoidable.
const PAIRS: &[(&str, &str)] = &[
    ("spawner", "bwrap"),
    ("spawner", "limit"),
    ("run", "bwrap"),
    ("run_egress", "bwrap"),
    ("warm", "bwrap"),
    ("run", "limit"),
    ("run", "spawner"),
    ("bwrap", "limit"),
    ("unshare", "limit"),
];

/// Times of one launch as `bastle` prints them: `{"total_us":…,"steps_us":{"clone":…}}`.
#[derive(Deserialize)]
struct Launch {
    total_us: f64,
    #[serde(default)]
    steps_us: BTreeMap<String, f64>,
}

/// How often each step took how long.
type Steps = RefCell<BTreeMap<String, Vec<f64>>>;

/// One thing to run: its name, and a way to make the command.
struct Peer {
    name: &'static str,
    command: Box<dyn Fn() -> Command>,
}

/// Where everything happens, and as whom; removed at the end.
struct Place {
    stage: Stage,
    workspace: PathBuf,
    who: Who,
}

/// Measures everybody who is there.
pub(super) fn run(bastle: &Path, samples: usize, who: Who) -> Result<GroupResult, Failed> {
    let (program, limit) = compile_limit()?;
    let place = Place::new(&program, who)?;
    let limit = place.stage.put(&limit, "limit")?;
    // Where everybody can reach it.
    let bastle = &place.stage.put(bastle, "bastle")?;
    let ask = |arguments: &[&str]| place.bastle(bastle, arguments)();
    place.write("recipe", &recipe::of(&ask)?)?;
    let mut absent = BTreeMap::new();
    let mut usable = Vec::new();
    for peer in peers(&place, &limit, bastle) {
        match try_once(&mut (peer.command)()) {
            Ok(_) => usable.push(peer),
            Err(why) => {
                println!("{} is not measured: {why}", peer.name);
                absent.insert(peer.name.to_owned(), why);
            }
        }
    }
    let steps = Steps::default();
    let spawner = place.spawner(bastle);
    let pool = match Pool::start(&place, bastle, Served::BySystem) {
        Ok(pool) => Some(pool),
        Err(why) => {
            println!("the warm pool is not measured: {why}");
            absent.insert("warm".to_owned(), why.to_string());
            None
        }
    };
    let mut contenders: Vec<Contender<'_>> = usable.iter().map(timed).collect();
    match launch_once(&mut spawner(), &steps) {
        Ok(_) => contenders.push(Contender {
            name: "spawner",
            once: Box::new(|| launch_once(&mut spawner(), &steps).map_err(|why| Failed::new("launch", why))),
        }),
        Err(why) => {
            println!("spawner is not measured: {why}");
            absent.insert("spawner".to_owned(), why);
        }
    }
    if let Some(pool) = &pool {
        contenders.push(Contender {
            name: "warm",
            once: Box::new(|| pool.launch_once()),
        });
    }
    let times = interleave(&mut contenders, samples)?;
    drop(contenders);
    let mut ratios = ratios(&times, PAIRS);
    let mut figures = BTreeMap::new();
    if pool.is_some() && times.contains_key("bwrap") {
        drop(pool);
        let pool = Pool::start(&place, bastle, Served::ByThemselves)?;
        let peer = || place.who.start(bwrap(&place.workspace));
        for (load, name) in [
            (Load::Burst, "parallel8"),
            (Load::Sustained, "parallel8_sustained"),
        ] {
            let together = parallel::run(&pool, &peer, (samples, load))?;
            ratios.insert(format!("{name}_over_bwrap"), together.over_bwrap());
            figures.insert(format!("{name}_launches_s"), together.figures());
        }
    }
    print!("{}", table(&times, &ratios));
    let steps = all_steps(&place, &limit, bastle, steps, samples);
    print_steps(&steps);
    Ok(GroupResult {
        samples,
        measured: times,
        ratios,
        versions: versions(bastle, &place.stage)?,
        steps,
        absent,
        figures,
    })
}

impl Place {
    fn new(program: &Path, who: Who) -> Result<Self, Failed> {
        // ext4 does not use the number of an inode again that it freed minutes ago, and looks at each of them for
        // every new file: on a disk where files were just removed, a run that creates five takes milliseconds more.
        let stage = Stage::on_tmpfs("bench")?;
        let workspace = stage.path().join("workspace");
        for directory in ["workspace", "state", "spawner-state"] {
            let path = stage.path().join(directory);
            std::fs::create_dir(&path).map_err(Failed::io(path.display()))?;
            who.owns(&path)?;
        }
        let program = stage.put(program, "workspace/true")?;
        who.owns(&program)?;
        Ok(Self {
            stage,
            workspace,
            who,
        })
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failed> {
        let path = self.stage.path().join(name);
        std::fs::write(&path, text).map_err(Failed::io(path.display()))?;
        Ok(path)
    }

    /// `bastle` in the workspace, keeping its records out of the developer's own.
    fn bastle(&self, binary: &Path, arguments: &[&str]) -> impl Fn() -> Command + use<> {
        let binary = binary.to_path_buf();
        let workspace = self.workspace.clone();
        let state = self.stage.path().join("state");
        let who = self.who;
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        move || {
            let mut command = Command::new(&binary);
            command
                .args(&arguments)
                .current_dir(&workspace)
                .env("HOME", &state)
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_RUNTIME_DIR")
                .env("XDG_STATE_HOME", &state);
            who.start(command)
        }
    }

    fn spawner(&self, binary: &Path) -> impl Fn() -> Command + use<> {
        self.bastle(binary, &["__bench-spawner", "--count", "1", "--", "./true"])
    }
}

fn peers(place: &Place, limit: &Path, bastle: &Path) -> Vec<Peer> {
    let workspace = place.workspace.clone();
    let program = workspace.join("true");
    let unshare = {
        let program = program.clone();
        move || {
            let mut command = Command::new("unshare");
            command.args(["-Urpfmn", "--mount-proc"]).arg(&program);
            command
        }
    };
    let lower_bound = {
        let (limit, workspace) = (limit.to_path_buf(), workspace.clone());
        let recipe = place.stage.path().join("recipe");
        move || {
            let mut command = Command::new(&limit);
            command.arg(&recipe).arg(&workspace).arg("./true");
            command
        }
    };
    let peer = |name, command| Peer { name, command };
    let who = place.who;
    vec![
        peer("fork_exec", Box::new(move || who.start(Command::new(&program)))),
        peer("unshare", Box::new(move || who.start(unshare()))),
        peer("limit", Box::new(move || who.start(lower_bound()))),
        peer("bwrap", Box::new(move || who.start(bwrap(&workspace)))),
        peer(
            "run",
            Box::new(place.bastle(bastle, &["run", "--quiet", "--net", "none", "--", "./true"])),
        ),
        peer(
            "run_egress",
            Box::new(place.bastle(bastle, &["run", "--quiet", "--", "./true"])),
        ),
    ]
}

/// bubblewrap with the isolation it can give: no Landlock and no filter, so its work is the smaller one.
fn bwrap(workspace: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
    }
    command
        .args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind"])
        .arg(workspace)
        .args(["/workspace", "--chdir", "/workspace"])
        .args(["--clearenv", "--die-with-parent", "--new-session", "--", "./true"]);
    command
}

fn timed(peer: &Peer) -> Contender<'_> {
    Contender {
        name: peer.name,
        once: Box::new(|| {
            let mut command = (peer.command)();
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let started = Instant::now();
            let status = command.status().map_err(Failed::io(peer.name))?;
            let elapsed = started.elapsed();
            if status.success() {
                Ok(elapsed.as_secs_f64() * 1000.0)
            } else {
                Err(Failed::new(sh::shown(&command), status.to_string()))
            }
        }),
    }
}

/// The timings among what was printed.
fn timings(printed: &str) -> Result<Launch, String> {
    printed
        .lines()
        .find_map(|line| serde_json::from_str::<Launch>(line).ok())
        .ok_or_else(|| "it printed no timings".to_owned())
}

/// One launch by the spawner alone, timed by itself.
fn launch_once(command: &mut Command, steps: &Steps) -> Result<f64, String> {
    let (stdout, _) = try_once(command)?;
    let launch = timings(&stdout)?;
    record(steps, launch.steps_us);
    Ok(launch.total_us / 1000.0)
}

fn record(steps: &Steps, launch: BTreeMap<String, f64>) {
    let mut steps = steps.borrow_mut();
    for (step, microseconds) in launch {
        steps.entry(step).or_default().push(microseconds);
    }
}

fn medians(steps: Steps) -> BTreeMap<String, f64> {
    steps
        .into_inner()
        .into_iter()
        .filter_map(|(step, mut times)| Some((step, measured(&mut times)?.median)))
        .collect()
}

/// Where the time goes, in a second pass: a contender that prints is slower than one that does not.
fn all_steps(
    place: &Place,
    limit: &Path,
    bastle: &Path,
    spawner: Steps,
    samples: usize,
) -> BTreeMap<String, BTreeMap<String, f64>> {
    let lower_bound = Steps::default();
    let whole = Steps::default();
    let run = place.bastle(
        bastle,
        &["run", "--quiet", "--net", "none", "--timings", "--", "./true"],
    );
    for _ in 0..samples {
        let mut command = Command::new(limit);
        command.arg("-t").arg(place.stage.path().join("recipe"));
        command.arg(&place.workspace).arg("./true");
        if let Ok((_, stderr)) = try_once(&mut place.who.start(command)) {
            stderr
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .for_each(|launch| record(&lower_bound, launch));
        }
        // A bastle that does not know the option says so once; there is nothing to add then.
        let Ok((_, stderr)) = try_once(&mut run()) else {
            continue;
        };
        stderr
            .lines()
            .filter_map(|line| serde_json::from_str::<Launch>(line).ok())
            .for_each(|launch| record(&whole, launch.steps_us));
    }
    [
        ("limit", medians(lower_bound)),
        ("spawner", medians(spawner)),
        ("run", medians(whole)),
    ]
    .into_iter()
    .filter(|(_, steps)| !steps.is_empty())
    .map(|(name, steps)| (name.to_owned(), steps))
    .collect()
}

fn print_steps(steps: &BTreeMap<String, BTreeMap<String, f64>>) {
    for (name, steps) in steps {
        println!("where the time of {name} goes (median µs):");
        let mut rows: Vec<(&String, &f64)> = steps.iter().collect();
        rows.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        for (step, microseconds) in rows {
            println!("  {step:<20} {microseconds:>10.0}");
        }
    }
}

fn versions(bastle: &Path, stage: &Stage) -> Result<BTreeMap<String, String>, Failed> {
    let versions = ["bwrap", "unshare"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), version_of(&sh::which(name)?))))
        .chain([
            ("bastle".to_owned(), version_of(bastle)),
            ("file system".to_owned(), stage.file_system()?),
        ]);
    Ok(versions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_read_from_the_line_that_has_them() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            r#"echo note; echo '{"total_us":1500,"steps_us":{"clone":700}}'"#,
        ]);
        let steps = Steps::default();
        assert_eq!(launch_once(&mut command, &steps), Ok(1.5));
        assert_eq!(medians(steps), BTreeMap::from([("clone".to_owned(), 700.0)]));
    }

    #[test]
    fn a_bastle_without_the_hidden_verb_is_a_reason_and_not_a_failure() {
        let steps = Steps::default();
        let mut silent = Command::new("true");
        assert_eq!(
            launch_once(&mut silent, &steps),
            Err("it printed no timings".to_owned())
        );
        let mut unknown = Command::new("sh");
        unknown.args(["-c", "echo unknown verb >&2; exit 2"]);
        assert!(launch_once(&mut unknown, &steps).is_err_and(|why| why.contains("unknown verb")));
    }

    #[test]
    fn a_contender_that_fails_stops_the_measurement() {
        let peer = Peer {
            name: "broken",
            command: Box::new(|| Command::new("false")),
        };
        assert!((timed(&peer).once)().is_err());
    }
}
