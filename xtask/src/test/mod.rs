//! `cargo xtask test`: everything a change must pass, on a fresh Debian with only the Rust toolchain.
//!
//! Every step runs even when an earlier one failed, so that one run tells everything; `--fail-fast` stops at
//! the first. The last lines are a table of the steps and `N passed, N failed, N skipped`.
mod agents;
pub(crate) mod packages;
mod report;
pub(crate) mod stage;
mod steps;
mod tally;
pub(crate) mod tools;

use crate::sh::Failed;
use report::Report;
use std::time::Instant;
use steps::{Step, StepEnd};
use tally::Tally;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    scope: Scope,
    on_failure: OnFailure,
    advisories: Advisories,
}

/// How much is run.
#[derive(Debug, PartialEq, Eq)]
enum Scope {
    Whole,
    /// Format, lints, tidy and unit tests.
    Fast,
    /// Only tests whose name contains this.
    Filter(String),
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum OnFailure {
    GoOn,
    Stop,
}

/// The advisory database must be fetched, so it is consulted on demand only.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Advisories {
    Leave,
    Check,
}

/// Runs the steps and prints the closing line.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    if let Some((word, rest)) = arguments.split_first()
        && word == "--hosts"
    {
        return crate::hosts::main(rest);
    }
    let options = parse(arguments)?;
    let steps = steps::plan(&options);
    let mut report = Report::of(steps.iter().map(|step| step.name));
    let count = steps.len();
    let mut ledger = steps::Ledger::new()?;
    for (index, step) in steps.into_iter().enumerate() {
        let started = Instant::now();
        let tally = run_step(&step, &format!("[{}/{count}]", index + 1), &mut ledger);
        report.ended(index, tally, started.elapsed());
        if tally.failed > 0 && options.on_failure == OnFailure::Stop {
            break;
        }
    }
    if let Scope::Filter(filter) = &options.scope
        && ledger.tests == 0
        && report.total().failed == 0
    {
        println!("no test's name contains {filter:?}");
        report.add("filter", Tally::failed(1));
    }
    for line in ledger.skips() {
        println!("skipped: {line}");
    }
    // Before the closing lines, which must be the last: what was staged is removed, and may complain.
    drop(ledger);
    println!("{report}");
    if report.total().failed == 0 {
        Ok(())
    } else {
        Err(Failed::told())
    }
}

/// Installs the agents alone, for tests that are run by `cargo test`.
pub(crate) fn install_agents(arguments: &[String]) -> Result<(), Failed> {
    if let Some(argument) = arguments.first() {
        return Err(Failed::new("agents", format!("unexpected argument {argument:?}")));
    }
    let mut missing = Vec::new();
    for outcome in agents::ensure()? {
        match outcome.result {
            Ok(()) => println!("{}: installed", outcome.program),
            Err(failed) => missing.push(format!("{}: {failed}", outcome.program)),
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failed::new("not installed", missing.join("\n"))),
    }
}

/// Runs one step with a line before and after it.
fn run_step(step: &Step, number: &str, ledger: &mut steps::Ledger) -> Tally {
    println!("{number} {}", step.name);
    let started = Instant::now();
    let end = step.run(ledger);
    let seconds = started.elapsed().as_secs_f64();
    let (word, tally) = match end {
        Ok(StepEnd::Passed) => ("ok".to_owned(), Tally::passed(1)),
        Ok(StepEnd::Counted(tally)) => (tally.to_string(), tally),
        Ok(StepEnd::Skipped(reason)) => {
            ledger.skip(format!("{}: {reason}", step.name));
            (format!("skipped: {reason}"), Tally::skipped(1))
        }
        Err(failed) => (format!("FAILED: {failed}"), Tally::failed(1)),
    };
    println!("{number} {}: {word} ({seconds:.1} s)", step.name);
    tally
}

fn parse(arguments: &[String]) -> Result<Options, Failed> {
    let mut options = Options {
        scope: Scope::Whole,
        on_failure: OnFailure::GoOn,
        advisories: Advisories::Leave,
    };
    for argument in arguments {
        match (argument.as_str(), &options.scope) {
            ("--fail-fast", _) => options.on_failure = OnFailure::Stop,
            ("--advisories", _) => options.advisories = Advisories::Check,
            ("--fast", Scope::Whole) => options.scope = Scope::Fast,
            (filter, Scope::Whole) if !filter.starts_with('-') => {
                options.scope = Scope::Filter(filter.to_owned());
            }
            (other, _) => return Err(Failed::new("test", format!("unexpected argument {other:?}"))),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, Failed> {
        parse(&arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_word_is_a_filter_and_an_unknown_option_is_refused() {
        assert_eq!(
            parsed(&["--fail-fast", "symlink"]),
            Ok(Options {
                scope: Scope::Filter("symlink".to_owned()),
                on_failure: OnFailure::Stop,
                advisories: Advisories::Leave
            })
        );
        assert!(parsed(&["--quick"]).is_err());
        assert!(parsed(&["a", "b"]).is_err());
        assert!(parsed(&["--fast", "b"]).is_err());
    }

    #[test]
    fn a_filter_runs_tests_only_and_fast_never_builds_the_shipped_binary() {
        let names = |arguments: &[&str]| {
            let options = parsed(arguments).expect("valid");
            steps::plan(&options)
                .into_iter()
                .map(|step| step.name)
                .collect::<Vec<_>>()
        };
        let whole = names(&[]);
        let fast = names(&["--fast"]);
        let filter = names(&["x"]);
        assert!(
            whole.contains(&"fuzz") && whole.contains(&"aarch64") && whole.contains(&"clippy"),
            "{whole:?}"
        );
        assert!(fast.contains(&"clippy") && !fast.contains(&"build"), "{fast:?}");
        assert!(
            filter.contains(&"integration tests") && !filter.contains(&"clippy"),
            "{filter:?}"
        );
    }
}
