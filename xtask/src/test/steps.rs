//! The steps of `cargo xtask test`, in order.
use super::stage::Stage;
use super::tally::{Selection, Tally, summary};
use super::{Advisories, Options, Scope, agents, packages, tools};
use crate::sh::{self, Ended, Failed};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// No step of a healthy tree comes near this on two slow cores; a step that does hangs.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The smallest test of the root package.
const SMALL_TEST: &str = "validation";

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// One step.
pub(super) struct Step {
    pub(super) name: &'static str,
    kind: Kind,
}

/// How a step ended when it did not fail.
pub(super) enum StepEnd {
    Passed,
    Counted(Tally),
    Skipped(String),
}

enum Kind {
    Packages,
    Format,
    Clippy { hooks: Hooks },
    Tidy,
    Deny(Advisories),
    Build { hooks: Hooks },
    UnitTests { filter: Option<String> },
    Agents,
    Kernels,
    IntegrationTests { filter: Option<String> },
    Aarch64,
    Fuzz,
}

/// Whether the feature that lets a test switch off one layer is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hooks {
    Shipped,
    Hooks,
}

/// What steps hand on to later ones.
pub(super) struct Ledger {
    /// How many tests any runner ran.
    pub(super) tests: u64,
    stage: Stage,
    shipped: Option<PathBuf>,
    hooks: Option<PathBuf>,
    skips: Vec<String>,
}

impl Ledger {
    pub(super) fn new() -> Result<Self, Failed> {
        Ok(Self {
            tests: 0,
            stage: Stage::new("test")?,
            shipped: None,
            hooks: None,
            skips: Vec::new(),
        })
    }

    pub(super) fn skip(&mut self, reason: String) {
        // A line is a test.
        self.skips.push(reason.trim().replace('\n', "; "));
    }

    pub(super) fn skips(&self) -> &[String] {
        &self.skips
    }
}

/// The steps for what was asked.
pub(super) fn plan(options: &Options) -> Vec<Step> {
    let step = |name, kind| Step { name, kind };
    let packages = step("packages", Kind::Packages);
    let shipped = Hooks::Shipped;
    let hooks = Hooks::Hooks;
    let checks = vec![
        step("fmt", Kind::Format),
        step("clippy", Kind::Clippy { hooks: shipped }),
        step("tidy", Kind::Tidy),
    ];
    let builds = vec![
        step("build with test hooks", Kind::Build { hooks }),
        step("build", Kind::Build { hooks: shipped }),
    ];
    let tests = |filter: Option<&String>| {
        let filter = filter.cloned();
        vec![
            step(
                "unit tests",
                Kind::UnitTests {
                    filter: filter.clone(),
                },
            ),
            step("agents", Kind::Agents),
            step("kernels", Kind::Kernels),
            step("integration tests", Kind::IntegrationTests { filter }),
        ]
    };
    let mut steps = vec![packages];
    match &options.scope {
        Scope::Fast => {
            steps.extend(checks);
            steps.push(step("unit tests", Kind::UnitTests { filter: None }));
        }
        Scope::Filter(filter) => {
            steps.extend(builds);
            steps.extend(tests(Some(filter)));
        }
        Scope::Whole => {
            steps.extend(checks);
            steps.push(step("clippy with test hooks", Kind::Clippy { hooks }));
            steps.push(step("deny", Kind::Deny(options.advisories)));
            steps.extend(builds);
            steps.extend(tests(None));
            steps.push(step("aarch64", Kind::Aarch64));
            steps.push(step("fuzz", Kind::Fuzz));
        }
    }
    steps
}

impl Step {
    pub(super) fn run(&self, ledger: &mut Ledger) -> Result<StepEnd, Failed> {
        match &self.kind {
            Kind::Packages => packages::ensure_needed().map(|()| StepEnd::Passed),
            Kind::Format => {
                check(sh::cargo().args(["fmt", "--all", "--check", "--", "--color=never"]))?;
                check(
                    sh::cargo()
                        .args(["fmt", "--check", "--manifest-path=fuzz/Cargo.toml"])
                        .args(["--", "--color=never"]),
                )
            }
            Kind::Clippy { hooks } => check(sh::cargo().args(clippy_arguments(*hooks))),
            Kind::Tidy => crate::tidy::main(&[]).map(|()| StepEnd::Passed),
            Kind::Deny(advisories) => deny(*advisories),
            Kind::Build { hooks } => build(*hooks, ledger),
            Kind::UnitTests { filter } => test(&["--workspace", "--exclude", "bastle"], filter, ledger),
            Kind::IntegrationTests { filter } => test(&["--package", "bastle"], filter, ledger),
            Kind::Agents => agents(ledger),
            Kind::Kernels => Ok(match kernels() {
                Ok(()) => StepEnd::Passed,
                Err(failed) => StepEnd::Skipped(format!("guests have none: {failed}")),
            }),
            Kind::Aarch64 => aarch64(),
            Kind::Fuzz => {
                let mut command = crate::fuzz::builtin_command(None)?;
                match counted(&mut command, Selection::All)? {
                    StepEnd::Counted(tally) => some_ran(&command, tally).map(StepEnd::Counted),
                    other @ (StepEnd::Passed | StepEnd::Skipped(_)) => Ok(other),
                }
            }
        }
    }
}

/// With hooks only the libraries that they reach are looked at again: their tests, and all tests of the root package, are the
/// same. One of those tests is named so that every dependency has the features of the first time and is not checked anew.
fn clippy_arguments(hooks: Hooks) -> Vec<&'static str> {
    let mut arguments = vec!["clippy", "--workspace"];
    match hooks {
        Hooks::Shipped => arguments.push("--all-targets"),
        Hooks::Hooks => {
            arguments.extend(["--lib", "--test", SMALL_TEST, "--features", "test-hooks"]);
        }
    }
    arguments.extend(["--", "-D", "warnings"]);
    arguments
}

/// Installs the agents: those that cannot be had are counted as skipped, each for its own reason, and so are their tests.
fn agents(ledger: &mut Ledger) -> Result<StepEnd, Failed> {
    let mut tally = Tally::default();
    for outcome in agents::ensure()? {
        match outcome.result {
            Ok(()) => tally.passed += 1,
            Err(failed) => {
                ledger.skip(format!("agent {}: {failed}", outcome.program));
                tally.skipped += 1;
            }
        }
    }
    Ok(StepEnd::Counted(tally))
}

fn deny(advisories: Advisories) -> Result<StepEnd, Failed> {
    let mut command = Command::new(tools::cargo_deny()?);
    command
        .current_dir(sh::root())
        .args(["--color", "never", "check", "bans", "licenses", "sources"]);
    match advisories {
        Advisories::Leave => {}
        Advisories::Check => {
            command.arg("advisories");
        }
    }
    check(&mut command)
}

/// Builds the shipped binary, or the one with hooks, and puts a copy where every user can run it.
///
/// The one with hooks is a debug build, made as one of a test: it shares with the tests all that hooks do not reach. It does not
/// stay behind: it must never lie where a shipped one is looked for.
fn build(hooks: Hooks, ledger: &mut Ledger) -> Result<StepEnd, Failed> {
    let target = tools::target_directory()?;
    match hooks {
        Hooks::Shipped => {
            check(sh::cargo().args(["build", "--release", "--package", "bastle"]))?;
            ledger.shipped = Some(ledger.stage.put(&target.join("release/bastle"), "bastle")?);
        }
        Hooks::Hooks => {
            check(
                sh::cargo()
                    .args(["test", "--no-run", "--package", "bastle", "--test", SMALL_TEST])
                    .args(["--features", "test-hooks"]),
            )?;
            let built = target.join("debug/bastle");
            ledger.hooks = Some(ledger.stage.put(&built, "bastle-with-test-hooks")?);
            std::fs::remove_file(&built).map_err(Failed::io(built.display()))?;
        }
    }
    Ok(StepEnd::Passed)
}

/// Runs tests with nextest, which is installed where it is missing. The binaries under test are named in the environment.
fn test(packages: &[&str], filter: &Option<String>, ledger: &mut Ledger) -> Result<StepEnd, Failed> {
    let mut command = Command::new(tools::cargo_nextest()?);
    command
        .current_dir(sh::root())
        .args(["nextest", "run", "--no-fail-fast", "--no-tests=pass"])
        .args(packages);
    let selection = match filter {
        Some(filter) => {
            command.arg(filter);
            Selection::Filtered
        }
        None => Selection::All,
    };
    for (variable, binary) in [
        ("BASTLE_BIN", &ledger.shipped),
        ("BASTLE_HOOKS_BIN", &ledger.hooks),
    ] {
        if let Some(binary) = binary {
            command.env(variable, binary);
        }
    }
    // A test that finds this host unable to run it appends `name: reason` here, and is counted as skipped.
    let skips = ledger.stage.path().join("skips");
    std::fs::write(&skips, "").map_err(Failed::io(skips.display()))?;
    command.env("BASTLE_SKIPS", &skips);
    let end = counted(&mut command, selection)?;
    let written = std::fs::read_to_string(&skips).map_err(Failed::io(skips.display()))?;
    // Once for each test, although it may say so for every user that it runs as.
    let reasons: BTreeSet<&str> = written.lines().collect();
    ledger.skips.extend(reasons.iter().map(|line| (*line).to_owned()));
    match end {
        StepEnd::Counted(mut tally) => {
            ledger.tests += tally.passed + tally.failed + tally.skipped;
            tally.move_to_skipped(reasons.len() as u64);
            match selection {
                Selection::All => some_ran(&command, tally).map(StepEnd::Counted),
                Selection::Filtered => Ok(StepEnd::Counted(tally)),
            }
        }
        other @ (StepEnd::Passed | StepEnd::Skipped(_)) => Ok(other),
    }
}

/// Single tests may be skipped; a step in which none ran proves nothing.
fn some_ran(command: &Command, tally: Tally) -> Result<Tally, Failed> {
    match tally.passed + tally.failed {
        0 => Err(Failed::new(
            sh::shown(command),
            format!("no test ran ({} skipped): that proves nothing", tally.skipped),
        )),
        _ => Ok(tally),
    }
}

/// The kernels that `tests/vm` boots: one with every part of Landlock and one without.
fn kernels() -> Result<(), Failed> {
    for suite in ["trixie", "bookworm"] {
        println!("  {}", crate::hosts::kernel_image(suite)?.display());
    }
    Ok(())
}

fn aarch64() -> Result<StepEnd, Failed> {
    if let Err(failed) = tools::ensure_target(AARCH64) {
        return Ok(StepEnd::Skipped(format!("{AARCH64} cannot be had: {failed}")));
    }
    let mut command = sh::cargo();
    command.args(["check", "--target", AARCH64]);
    for package in ["contract", "sys", "audit", "spawner", "init"] {
        command.args(["--package", &format!("bastle-{package}")]);
    }
    command.args(["--features", "bastle-audit/portable"]);
    check(&mut command)
}

/// A command that must succeed; its output is passed on.
fn check(command: &mut Command) -> Result<StepEnd, Failed> {
    println!("  $ {}", sh::shown(command));
    let ended = sh::stream(command, STEP_LIMIT, |line| println!("  {line}"))?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(StepEnd::Passed),
        Ended::Exited(status) => Err(Failed::new(sh::shown(command), status.to_string())),
        Ended::TooLong(limit) => Err(too_long(command, limit)),
    }
}

/// A test runner: what it reports is summed. One that fails without a failed test counts as one failure.
fn counted(command: &mut Command, selection: Selection) -> Result<StepEnd, Failed> {
    println!("  $ {}", sh::shown(command));
    let mut tally = Tally::default();
    let ended = sh::stream(command, STEP_LIMIT, |line| {
        println!("  {line}");
        if let Some(counts) = summary(line, selection) {
            tally.add(&counts);
        }
    })?;
    match ended {
        Ended::Exited(status) if status.success() => {}
        Ended::Exited(status) => {
            println!("  {}: {status}", sh::shown(command));
            tally.failed = tally.failed.max(1);
        }
        Ended::TooLong(limit) => {
            println!("  {}", too_long(command, limit));
            tally.failed += 1;
        }
    }
    Ok(StepEnd::Counted(tally))
}

fn too_long(command: &Command, limit: Duration) -> Failed {
    Failed::new(sh::shown(command), Ended::TooLong(limit).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally_of(script: &str) -> Tally {
        match counted(Command::new("sh").args(["-c", script]), Selection::All) {
            Ok(StepEnd::Counted(tally)) => tally,
            Ok(StepEnd::Passed | StepEnd::Skipped(_)) | Err(_) => panic!("a runner always counts"),
        }
    }

    #[test]
    fn a_runner_that_fails_before_any_test_counts_as_a_failure() {
        assert_eq!(
            tally_of("echo 'error: could not compile'; exit 101"),
            Tally::failed(1)
        );
    }

    #[test]
    fn the_summaries_of_several_binaries_are_summed() {
        let line = |p, f| format!("echo 'test result: x. {p} passed; {f} failed; 0 ignored';");
        assert_eq!(
            tally_of(&format!("{}{}exit 101", line(3, 0), line(1, 2))),
            Tally {
                passed: 4,
                failed: 2,
                skipped: 0
            }
        );
    }

    #[test]
    fn a_step_in_which_every_test_was_skipped_is_a_failure() {
        let command = Command::new("fuzz");
        for nothing in [Tally::default(), Tally::skipped(7)] {
            let failed = some_ran(&command, nothing)
                .expect_err("proves nothing")
                .to_string();
            assert!(failed.contains("fuzz: no test ran"), "{failed}");
        }
        let mut some = Tally::failed(1);
        some.add(&Tally::skipped(7));
        assert_eq!(some_ran(&command, some), Ok(some));
    }

    #[test]
    fn hooks_are_in_libraries_alone_so_that_nothing_else_needs_to_be_checked_with_them() {
        let mut found = Vec::new();
        let mut places: Vec<PathBuf> = ["crates", "src", "tests"]
            .map(|name| sh::root().join(name))
            .into();
        while let Some(place) = places.pop() {
            for entry in std::fs::read_dir(&place).expect("can be listed") {
                let path = entry.expect("can be listed").path();
                if path.is_dir() {
                    places.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let rust = path.extension().is_some_and(|end| end == "rs");
                if rust
                    && text
                        .lines()
                        .any(|line| line.contains("cfg") && line.contains("\"test-hooks\""))
                {
                    found.push(path.strip_prefix(sh::root()).expect("is below").to_path_buf());
                }
            }
        }
        assert!(!found.is_empty());
        for file in found {
            let words: Vec<&str> = file.iter().filter_map(std::ffi::OsStr::to_str).collect();
            assert!(
                words[0] == "crates" && words[3] == "src" && words[4] != "main.rs",
                "{}",
                file.display()
            );
        }
        let small = sh::root().join("tests").join(SMALL_TEST).with_extension("rs");
        assert!(small.is_file());
    }

    #[test]
    fn a_check_that_fails_is_an_error_with_its_command() {
        let failed = check(Command::new("sh").args(["-c", "exit 4"]));
        assert!(matches!(failed, Err(failed) if failed.to_string().contains("sh -c exit 4")));
    }
}
