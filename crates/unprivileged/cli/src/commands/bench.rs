//! The hidden verb that times the evaluator on the largest policy the format accepts, for `cargo xtask bench`.
use crate::context::{Context, Ended};
use bastle_contract::{AbsPath, Code, Fault};
use bastle_policy::{Effective, Layer, LayerKind, MergeOptions, Query, Surroundings, judge};
use serde_json::json;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `__bench-policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// A document to use instead of a generated one
    file: Option<PathBuf>,
}

/// Largest document the format accepts.
const LARGEST: usize = 64 * 1024;
/// How often each step is repeated; the fastest counts, as it is the one least disturbed.
const ROUNDS: usize = 7;
/// Decisions per round.
const DECISIONS: u32 = 200;

/// Measures and prints one line.
pub(crate) fn run(args: &BenchArgs, cx: &Context) -> Ended {
    let text = match &args.file {
        Some(path) => std::fs::read(path).map_err(|error| {
            Fault::new(
                Code::PolicyUnreadable,
                format!("cannot read {}", path.display()),
                error.to_string(),
            )
        })?,
        None => generated().into_bytes(),
    };
    let path = |text: &str| {
        AbsPath::new(text)
            .map_err(|error| Fault::new(Code::UsageArgument, "unusable path", error.to_string()))
    };
    let surroundings = Surroundings {
        home: path("/home/someone")?,
        workspace: path("/home/someone/project")?,
    };
    // Presets are parsed once per process in any case; what is timed is the person's document and the merge.
    let effective = compile(&text, &surroundings)?;
    let mut compile_us = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        black_box(compile(black_box(&text), &surroundings)?);
        compile_us = compile_us.min(started.elapsed().as_secs_f64() * 1e6);
    }
    let asked =
        |question: &str| Query::parse(question, &surroundings).map(|query| nanoseconds(&effective, &query));
    let path_ns = asked("write ./src/deeply/nested/module/main.rs")?;
    let host_ns = asked("net GET https://api.example.com/v1/things")?;
    let url_ns = asked("net POST https://api.example.com:8443/v1/things/by/name")?;
    let command_ns = asked("exec cargo test --workspace --no-fail-fast")?;
    // Three commands and their shell syntax: the grammar is parsed, and each is judged.
    let line_ns = asked("exec cargo test --workspace && git commit -m done | tee out.txt")?;
    cx.print_json(&json!({
        "compile_us": compile_us,
        "decide_path_ns": path_ns,
        "decide_host_ns": host_ns,
        "decide_command_ns": command_ns,
        "decide_line_ns": line_ns,
        "decide_us": {
            "path": path_ns / 1000.0,
            "host": host_ns / 1000.0,
            "url": url_ns / 1000.0,
            "command": command_ns / 1000.0,
            "line": line_ns / 1000.0,
        },
    }))?;
    Ok(0)
}

fn compile(text: &[u8], surroundings: &Surroundings) -> Result<Effective, Vec<Fault>> {
    let document = bastle_policy::parse("bench", text)?;
    let mut layers = bastle_policy::default_layers("default").map_err(|fault| vec![fault])?;
    layers.push(Layer {
        kind: LayerKind::User,
        name: "bench".to_owned(),
        document: document.into(),
    });
    let options = MergeOptions::default();
    bastle_policy::merge(&layers, surroundings, &options)
}

fn nanoseconds(effective: &Effective, query: &Query) -> f64 {
    let round = || {
        let started = Instant::now();
        for _ in 0..DECISIONS {
            // The answer is looked at, so that making it cannot be left out.
            black_box(judge(black_box(effective), black_box(query)).outcome);
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// A valid document as near to the limit as whole rules come, with rules of every kind.
fn generated() -> String {
    let list = |count: usize, rule: &dyn Fn(usize) -> String| {
        (0..count)
            .map(|n| format!("\"{}\"", rule(n)))
            .collect::<Vec<_>>()
            .join(",")
    };
    let text = |count: usize| {
        format!(
            "{{\"version\":1,\"fs\":{{\"hide\":[{}],\"read\":[{}]}},\"net\":{{\"allow\":[{}]}},\"exec\":{{\"deny\":[{}]}}}}",
            list(count, &|n| format!("**/generated-name-{n:04}.secret")),
            list(count, &|n| format!("/srv/data/set-{n:04}")),
            list(count, &|n| format!("host-{n:04}.example.com/v1/**")),
            list(count, &|n| format!("tool{n:04} --flag *")),
        )
    };
    // 512 entries is the most a list takes.
    let most = (1..=512)
        .take_while(|count| text(*count).len() <= LARGEST)
        .last()
        .unwrap_or(1);
    text(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_document_is_valid_and_near_the_limit() {
        let text = generated();
        assert!(
            text.len() <= LARGEST && text.len() > LARGEST / 2,
            "{}",
            text.len()
        );
        assert!(bastle_policy::parse("bench", text.as_bytes()).is_ok());
    }
}
