//! `cargo xtask bench`: comparisons with peers and with the lower bound, one run, interleaved.
//!
//! It measures and reports; it never judges. No figure here is asserted anywhere.
mod daemon;
mod egress;
mod policy;
mod results;
mod review;
mod sample;
mod start;
mod workspace;

use crate::sh::{self, Failed};
use crate::test::tools;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

/// Fewer samples say nothing on a shared machine.
const LEAST_SAMPLES: usize = 30;
/// Of a group in which one sample takes a minute: its figures come with that few, and the results say how many.
const LEAST_LONG: usize = 3;
/// And what it takes unless told otherwise.
const SAMPLES_LONG: usize = 5;
/// Of a group that tells of the slowest hundredth: two of these are slower.
const SAMPLES_TAIL: usize = 200;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    group: Group,
    samples: usize,
    peers: Peers,
    binary: Option<PathBuf>,
    /// Of the group that needs many runs.
    load: daemon::Load,
    /// Of the group that needs a large tree.
    files: u64,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Group {
    Start,
    Policy,
    Egress,
    Workspace,
    Review,
    Daemon,
}

/// Whether missing peers are installed from the system's packages.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Peers {
    AsFound,
    Install,
}

/// Runs one group, writes `bench/results.json` and prints a table.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    let options = parse(arguments)?;
    let mut not_installed = BTreeMap::new();
    if options.peers == Peers::Install {
        crate::test::packages::ensure_peers()?;
        if options.group == Group::Egress {
            crate::test::packages::ensure_proxies()?;
            not_installed = egress::install();
        }
    }
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => crate::dist::build()?,
    };
    let (name, group) = match options.group {
        Group::Start => {
            for (name, who) in start::Who::all()? {
                println!("as uid {}:", who.uid());
                write(name, &start::run(&binary, options.samples, who)?, who)?;
            }
            return Ok(());
        }
        Group::Policy => ("policy", policy::run(&binary, options.samples)?),
        Group::Egress => ("egress", egress::run(&binary, options.samples, &not_installed)?),
        Group::Workspace => {
            let size = workspace::Size {
                rounds: options.samples,
                files: options.files,
            };
            ("workspace", workspace::run(&binary, size)?)
        }
        Group::Review => ("review", review::run(&binary, options.samples)?),
        Group::Daemon => ("daemon", daemon::run(&binary, options.samples, options.load)?),
    };
    if options.files != workspace::FILES {
        println!(
            "not written: a project of {} files is none of the table",
            options.files
        );
        return Ok(());
    }
    write(name, &group, start::Who::caller()?)
}

fn write(name: &str, group: &results::GroupResult, who: start::Who) -> Result<(), Failed> {
    results::merge(&sh::root().join("bench/results.json"), name, group, who.uid())?;
    println!("written: bench/results.json, group {name}");
    Ok(())
}

/// Compiles the static programs of `bench/limit` and returns (`true`, `limit`).
fn compile_limit() -> Result<(PathBuf, PathBuf), Failed> {
    Ok((compile("true")?, compile("limit")?))
}

/// Compiles one static program of `bench/limit`.
fn compile(name: &str) -> Result<PathBuf, Failed> {
    let sources = sh::root().join("bench/limit");
    let build = tools::target_directory()?.join("bench");
    std::fs::create_dir_all(&build).map_err(Failed::io(build.display()))?;
    let program = build.join(name);
    let mut command = Command::new("cc");
    command
        .args(["-static", "-O2", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(sources.join(format!("{name}.c")));
    sh::stdout_of(&mut command).map(|_| program)
}

/// The first line a program prints about its version, or why there is none.
fn version_of(program: &Path) -> String {
    sh::stdout_of(Command::new(program).arg("--version"))
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Standard output and standard error of one run, or the reason why it cannot be used.
fn try_once(command: &mut Command) -> Result<(String, String), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok((text(&output.stdout), text(&output.stderr)))
    } else {
        let stderr = text(&output.stderr);
        let first = stderr.lines().next().unwrap_or_default();
        Err(format!("{}: {first}", output.status))
    }
}

fn parse(arguments: &[String]) -> Result<Options, Failed> {
    let mut words = arguments.iter();
    let group = match words.next().map(String::as_str) {
        Some("start") => Group::Start,
        Some("policy") => Group::Policy,
        Some("egress") => Group::Egress,
        Some("workspace") => Group::Workspace,
        Some("review") => Group::Review,
        Some("daemon") => Group::Daemon,
        other => {
            return Err(Failed::new(
                "bench",
                format!("group {other:?} is not one of start, policy, egress, workspace, review, daemon"),
            ));
        }
    };
    let (least, samples) = match group {
        Group::Start | Group::Policy | Group::Egress => (LEAST_SAMPLES, LEAST_SAMPLES),
        Group::Daemon => (LEAST_SAMPLES, SAMPLES_TAIL),
        Group::Workspace | Group::Review => (LEAST_LONG, SAMPLES_LONG),
    };
    let mut options = Options {
        group,
        samples,
        peers: Peers::AsFound,
        binary: None,
        load: daemon::Load {
            runs: daemon::RUNS,
            events: daemon::EVENTS,
        },
        files: workspace::FILES,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--install" => options.peers = Peers::Install,
            "--bin" => options.binary = words.next().map(PathBuf::from),
            "--runs" => options.load.runs = number(word, words.next(), 2..=daemon::MOST_RUNS)?,
            "--events" => options.load.events = number(word, words.next(), 1..=10_000_000)?,
            "--samples" => options.samples = number(word, words.next(), least..=usize::MAX)?,
            "--files" => options.files = number(word, words.next(), 10..=workspace::FILES)?,
            other => return Err(Failed::new("bench", format!("unexpected argument {other:?}"))),
        }
    }
    Ok(options)
}

fn number<T>(option: &str, value: Option<&String>, range: RangeInclusive<T>) -> Result<T, Failed>
where
    T: FromStr + PartialOrd + Display,
{
    let value = value.map(String::as_str).unwrap_or_default();
    value
        .parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Failed::new(
                format!("bench {option}"),
                format!("{value:?}: from {least} to {most}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_samples_and_unknown_groups_are_refused() {
        let parsed = |words: &[&str]| parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert!(parsed(&[]).is_err());
        assert!(parsed(&["speed"]).is_err());
        assert!(parsed(&["start", "--samples", "29"]).is_err());
        assert!(parsed(&["start", "--samples", "30", "--install"]).is_ok());
        assert_eq!(
            parsed(&["workspace"]).ok().map(|options| options.samples),
            Some(SAMPLES_LONG)
        );
        assert!(parsed(&["workspace", "--samples", "3", "--files", "400"]).is_ok());
        assert!(parsed(&["workspace", "--samples", "2"]).is_err());
        assert!(parsed(&["workspace", "--files", "20001"]).is_err());
        assert!(parsed(&["daemon", "--runs", "1000"]).is_ok());
        assert!(parsed(&["daemon", "--runs", "1"]).is_err());
        assert!(parsed(&["daemon", "--runs", "1000000"]).is_err());
    }

    #[test]
    fn a_program_that_fails_is_reported_with_its_first_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such verb >&2; exit 2"]);
        assert_eq!(
            try_once(&mut command),
            Err("exit status: 2: no such verb".to_owned())
        );
    }
}
