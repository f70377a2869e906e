//! `bastle run` as a person meets it: exit codes, streams, signals, first words, refusals. The real binary, as root
//! and as an ordinary user.
#![allow(clippy::expect_used, clippy::panic, unreachable_pub)] // Helpers of tests fail by panicking.

#[path = "../support/mod.rs"]
mod support;

mod charged;
mod codes;
mod host;
mod refusals;
mod signals;
mod streams;
mod voice;

use serde_json::Value;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A path as text.
fn text(path: &Path) -> &str {
    path.to_str().expect("places of the tests are UTF-8")
}

/// Looks again and again until `done`, at most a minute.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen");
        pause(20);
    }
}

/// Lets time pass: nothing is ever sent.
fn pause(ms: u64) {
    let (_keep, nothing) = mpsc::channel::<()>();
    assert!(nothing.recv_timeout(Duration::from_millis(ms)).is_err());
}

/// Processes of the host whose command line holds `mark`.
fn alive(mark: &str) -> Vec<String> {
    let commands = std::fs::read_dir("/proc")
        .expect("there is a /proc")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let line = std::fs::read(path.join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        });
    commands.filter(|line| line.contains(mark)).collect()
}

/// Fails unless `value` follows the schema of that name.
fn follows(name: &str, value: &Value) {
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).expect("the schema is there");
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
