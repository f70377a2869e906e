//! `cargo xtask fuzz`: coverage-guided where nightly is installed, else the built-in mutation loop.
//!
//! The built-in loop is an ordinary test on the pinned compiler with a fixed seed, so every machine can run it.
use crate::sh::{self, Ended, Failed};
use crate::test::tools;
use std::process::Command;
use std::time::Duration;

/// Every target, as named in `fuzz/Cargo.toml`.
const TARGETS: &[&str] = &[
    "policy_document",
    "command_line",
    "frames",
    "audit_reader",
    "request_head",
    "request_body",
    "client_hello",
    "dns_query",
    "dns_answer",
    "socks",
    "proxy_answer",
    "pkt_line",
    "sse_usage",
    "work_contents",
    "gate",
    "work_records",
    "operations",
    "canonical_request",
    "scrub",
    "agent_lines",
    "stream_frames",
    "launch_spec",
    "import_settings",
    "mcp_pipes",
    "mcp_http",
    "mcp_tools",
    "rest_bodies",
    "a2a_bodies",
    "editor_lines",
    "guard_path",
];

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    seconds: u64,
    engine: Engine,
    target: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Engine {
    /// cargo-fuzz if nightly is there.
    Best,
    Builtin,
}

/// Fuzzes one target or all.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    let options = parse(arguments)?;
    if options.engine == Engine::Best {
        match guided_tool() {
            Ok(()) => return guided(&options),
            Err(why) => println!("fuzz: using the built-in loop, because {why}"),
        }
    }
    let mut command = builtin_command(options.target.as_deref())?;
    command.env("BASTLE_FUZZ_SECONDS", options.seconds.to_string());
    run(&mut command, Duration::from_secs(1800))
}

/// The built-in loop as a command: `cargo test` in `fuzz/`.
pub(crate) fn builtin_command(target: Option<&str>) -> Result<Command, Failed> {
    // A target directory of its own: its lock file differs, and sharing would rebuild both each time.
    let directory = tools::target_directory()?.join("fuzz");
    let mut command = sh::cargo();
    command
        .args([
            "test",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--test",
            "fuzz_smoke",
        ])
        .arg("--target-dir")
        .arg(directory);
    if let Some(target) = target {
        command.arg(target);
    }
    Ok(command)
}

/// Whether coverage-guided fuzzing can run; the error is the reason why not.
fn guided_tool() -> Result<(), Failed> {
    let toolchains = sh::stdout_of(Command::new("rustup").args(["toolchain", "list"]))?;
    if !toolchains.lines().any(|line| line.starts_with("nightly")) {
        return Err(Failed::new(
            "no nightly toolchain",
            "rustup toolchain install nightly",
        ));
    }
    if sh::which("c++").is_none() {
        return Err(Failed::new(
            "no C++ compiler",
            "libFuzzer is compiled from source",
        ));
    }
    tools::installed("cargo-fuzz", None).map(drop)
}

fn guided(options: &Options) -> Result<(), Failed> {
    let tool = tools::installed("cargo-fuzz", None)?;
    let root = sh::root();
    let targets = TARGETS
        .iter()
        .filter(|target| options.target.as_deref().is_none_or(|only| only == **target));
    for target in targets {
        let mut command = Command::new("rustup");
        command
            .current_dir(&root)
            .args(["run", "nightly"])
            .arg(&tool)
            .args(["fuzz", "run", "--features", "libfuzzer"])
            .arg("--target-dir")
            .arg(tools::target_directory()?.join("fuzz-guided"))
            .arg(target)
            .arg(root.join("fuzz/corpus").join(target))
            .arg(root.join("fuzz/seeds").join(target))
            .arg("--")
            .arg(format!("-max_total_time={}", options.seconds))
            .args(["-max_len=70000", "-timeout=10"])
            // Set by the cargo that started us; they would pin the wrong compiler.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO");
        std::fs::create_dir_all(root.join("fuzz/corpus").join(target)).map_err(Failed::io("fuzz/corpus"))?;
        run(&mut command, Duration::from_secs(1800 + options.seconds))?;
    }
    Ok(())
}

fn run(command: &mut Command, limit: Duration) -> Result<(), Failed> {
    println!("$ {}", sh::shown(command));
    match sh::stream(command, limit, |line| println!("{line}"))? {
        Ended::Exited(status) if status.success() => Ok(()),
        other => Err(Failed::new(sh::shown(command), format!("{other:?}"))),
    }
}

fn parse(arguments: &[String]) -> Result<Options, Failed> {
    let mut options = Options {
        seconds: 20,
        engine: Engine::Best,
        target: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--builtin" => options.engine = Engine::Builtin,
            "--seconds" => {
                let value = words.next().map(String::as_str).unwrap_or_default();
                options.seconds = value
                    .parse()
                    .map_err(|_| Failed::new("fuzz --seconds", format!("{value:?} is not a number")))?;
            }
            target if TARGETS.contains(&target) => options.target = Some(target.to_owned()),
            other => {
                return Err(Failed::new(
                    format!("fuzz: unknown target {other:?}"),
                    format!("one of {}", TARGETS.join(", ")),
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_target_or_a_bad_number_is_refused() {
        let parsed = |words: &[&str]| parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert!(parsed(&["nonsense"]).is_err());
        assert!(parsed(&["--seconds"]).is_err());
        assert!(parsed(&["--seconds", "-1"]).is_err());
        assert_eq!(
            parsed(&["--seconds", "5", "frames"]),
            Ok(Options {
                seconds: 5,
                engine: Engine::Best,
                target: Some("frames".to_owned())
            })
        );
    }

    #[test]
    fn every_target_has_a_program_and_seeds() {
        for target in TARGETS {
            let fuzz = sh::root().join("fuzz");
            assert!(
                fuzz.join(format!("fuzz_targets/{target}.rs")).is_file(),
                "{target}"
            );
            let seeds = std::fs::read_dir(fuzz.join("seeds").join(target)).map(Iterator::count);
            assert!(matches!(seeds, Ok(1..)), "{target}");
        }
    }
}
