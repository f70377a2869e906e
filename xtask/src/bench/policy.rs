//! Group `policy`: compiling the largest policy, deciding, and the whole `can-i` process.
use super::results::GroupResult;
use super::sample::{Contender, interleave, ratios, table};
use super::{compile_limit, try_once, version_of};
use crate::sh::Failed;
use crate::test::stage::Stage;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Largest document the format accepts.
const LARGEST: usize = 64 * 1024;

/// What the hidden verb prints: microseconds to compile, and microseconds of one decision by kind.
#[derive(Deserialize)]
struct Compiled {
    compile_us: f64,
    #[serde(default)]
    decide_us: BTreeMap<String, f64>,
}

/// Measures what this binary offers.
pub(super) fn run(bastle: &Path, samples: usize) -> Result<GroupResult, Failed> {
    let (program, _) = compile_limit()?;
    let stage = Stage::new("bench-policy")?;
    let document = stage.path().join("agent-permissions.json");
    std::fs::write(&document, largest_policy()).map_err(Failed::io(document.display()))?;
    let program = stage.put(&program, "true")?;
    let bastle_command = |arguments: &[&str]| {
        let mut command = Command::new(bastle);
        command
            .args(arguments)
            .current_dir(stage.path())
            .env("XDG_STATE_HOME", stage.path().join("state"));
        command
    };
    let decisions = RefCell::new(BTreeMap::new());
    let compile = || {
        // Its own generated document: rules of every kind, so that no decision is easy for want of rules.
        compiled_once(&mut bastle_command(&["__bench-policy"]), &decisions)
    };
    let can_i = || timed(&mut bastle_command(&["can-i", "read", "./src/main.rs"]));
    let mut absent = BTreeMap::new();
    let mut contenders = vec![Contender {
        name: "fork_exec",
        once: Box::new(|| timed(&mut Command::new(&program))),
    }];
    offer(&mut contenders, &mut absent, "compile", &compile);
    offer(&mut contenders, &mut absent, "can_i", &can_i);
    let measured = interleave(&mut contenders, samples)?;
    drop(contenders);
    let ratios = ratios(&measured, &[("can_i", "fork_exec"), ("compile", "can_i")]);
    print!("{}", table(&measured, &ratios));
    let decisions = decisions.into_inner();
    for (kind, microseconds) in &decisions {
        println!("one {kind} decision: {microseconds:.3} µs");
    }
    Ok(GroupResult {
        samples,
        measured,
        ratios,
        versions: BTreeMap::from([("bastle".to_owned(), version_of(bastle))]),
        steps: BTreeMap::from([("decide".to_owned(), decisions)]),
        absent,
        figures: BTreeMap::new(),
    })
}

/// Takes part when it works once; otherwise the reason is kept.
fn offer<'a>(
    contenders: &mut Vec<Contender<'a>>,
    absent: &mut BTreeMap<String, String>,
    name: &'static str,
    once: &'a dyn Fn() -> Result<f64, Failed>,
) {
    match once() {
        Ok(_) => contenders.push(Contender {
            name,
            once: Box::new(once),
        }),
        Err(failed) => {
            println!("{name} is not measured: {failed}");
            absent.insert(name.to_owned(), failed.to_string());
        }
    }
}

fn compiled_once(command: &mut Command, decisions: &RefCell<BTreeMap<String, f64>>) -> Result<f64, Failed> {
    let (stdout, _) = try_once(command).map_err(|why| Failed::new("__bench-policy", why))?;
    let compiled = stdout
        .lines()
        .find_map(|line| serde_json::from_str::<Compiled>(line).ok())
        .ok_or_else(|| Failed::new("__bench-policy", "it printed no timings"))?;
    *decisions.borrow_mut() = compiled.decide_us;
    Ok(compiled.compile_us / 1000.0)
}

/// Times a command that must succeed: one that fails early would look fast.
fn timed(command: &mut Command) -> Result<f64, Failed> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().map_err(Failed::io("start"))?;
    let elapsed = started.elapsed();
    if status.success() {
        Ok(elapsed.as_secs_f64() * 1000.0)
    } else {
        Err(Failed::new("it ended", status.to_string()))
    }
}

/// A valid document as close to the limit as whole rules come.
fn largest_policy() -> String {
    const HEAD: &str = "{\"version\":1,\"fs\":{\"hide\":[";
    const TAIL: &str = "]}}";
    let mut text = HEAD.to_owned();
    for number in 0.. {
        // Long enough that the list stays within the 512 entries the format takes.
        let separator = if number == 0 { "" } else { "," };
        let rule = format!("{separator}\"**/{}-{number:04}.secret\"", "generated".repeat(13));
        if text.len() + rule.len() + TAIL.len() > LARGEST || number == 512 {
            break;
        }
        text.push_str(&rule);
    }
    text.push_str(TAIL);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_policy_is_valid_json_just_below_the_limit() {
        let text = largest_policy();
        assert!(
            text.len() <= LARGEST && text.len() > LARGEST - 1024,
            "{}",
            text.len()
        );
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let rules = value["fs"]["hide"].as_array().map_or(0, Vec::len);
        assert!((100..=512).contains(&rules), "{rules}");
    }

    #[test]
    fn a_process_that_fails_is_not_timed() {
        assert!(timed(&mut Command::new("true")).is_ok());
        assert!(timed(&mut Command::new("false")).is_err());
    }
}
