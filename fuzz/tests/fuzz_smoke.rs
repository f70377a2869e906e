//! The mutation loop that every machine can run: seeds first, then a fixed number of mutations of them.
//!
//! `BASTLE_FUZZ_SECONDS` makes it go on until that much time has passed, with inputs never seen before.
use bastle_fuzz::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Enough to pass every arm of the mutator many times, few enough for every run of the tests.
const ROUNDS: u64 = 20_000;

/// A little over the largest input that any target accepts.
const MOST: usize = 70_000;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the seeds are there")
        .map(|entry| entry.expect("can be listed").path())
        .collect();
    // Directory order differs between machines; the inputs must not.
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("can be read"))
        .collect()
}

fn fuzz(target: &str, rounds: u64, run: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for seed in &seeds {
        try_one(target, seed, run);
    }
    let seconds = std::env::var("BASTLE_FUZZ_SECONDS")
        .ok()
        .and_then(|value| value.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut mutator = Mutator::new(0x5eed);
    let mut done = 0;
    while done < rounds || until.is_some_and(|until| Instant::now() < until) {
        try_one(target, &mutator.next(&seeds, MOST), run);
        done += 1;
    }
    println!("{target}: {} seeds, {done} mutations", seeds.len());
}

fn try_one(target: &str, data: &[u8], run: fn(&[u8])) {
    if catch_unwind(AssertUnwindSafe(|| run(data))).is_err() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("artifacts")
            .join(target);
        std::fs::create_dir_all(&folder).expect("artifacts can be kept");
        let file = folder.join("builtin-failure");
        std::fs::write(&file, data).expect("artifacts can be kept");
        panic!(
            "{target} failed on {} (first bytes: {:?})",
            file.display(),
            shown(data)
        );
    }
}

fn shown(data: &[u8]) -> String {
    String::from_utf8_lossy(&data[..data.len().min(300)]).into_owned()
}

#[test]
fn policy_document() {
    fuzz("policy_document", ROUNDS, bastle_fuzz::policy_document);
}

#[test]
fn import_settings() {
    fuzz("import_settings", ROUNDS / 8, bastle_fuzz::import_settings);
}

#[test]
fn command_line() {
    fuzz("command_line", ROUNDS / 2, bastle_fuzz::command_line);
}

#[test]
fn frames() {
    fuzz("frames", ROUNDS * 2, bastle_fuzz::frames);
}

#[test]
fn agent_lines() {
    fuzz("agent_lines", ROUNDS / 2, bastle_fuzz::agent_lines);
}

#[test]
fn stream_frames() {
    fuzz("stream_frames", ROUNDS, bastle_fuzz::stream_frames);
}

#[test]
fn launch_spec() {
    fuzz("launch_spec", ROUNDS, bastle_fuzz::launch_spec);
}

#[test]
fn audit_reader() {
    fuzz("audit_reader", ROUNDS, bastle_fuzz::audit_reader);
}

#[test]
fn request_head() {
    fuzz("request_head", ROUNDS, bastle_fuzz::request_head);
}

#[test]
fn request_body() {
    fuzz("request_body", ROUNDS, bastle_fuzz::request_body);
}

#[test]
fn client_hello() {
    fuzz("client_hello", ROUNDS, bastle_fuzz::client_hello);
}

#[test]
fn dns_query() {
    fuzz("dns_query", ROUNDS, bastle_fuzz::dns_query);
}

#[test]
fn dns_answer() {
    fuzz("dns_answer", ROUNDS, bastle_fuzz::dns_answer);
}

#[test]
fn socks() {
    fuzz("socks", ROUNDS, bastle_fuzz::socks);
}

#[test]
fn proxy_answer() {
    fuzz("proxy_answer", ROUNDS, bastle_fuzz::proxy_answer);
}

#[test]
fn pkt_line() {
    fuzz("pkt_line", ROUNDS, bastle_fuzz::pkt_line);
}

#[test]
fn canonical_request() {
    fuzz("canonical_request", ROUNDS, bastle_fuzz::canonical_request);
}

#[test]
fn scrub() {
    fuzz("scrub", ROUNDS, bastle_fuzz::scrub);
}

#[test]
fn operations() {
    fuzz("operations", ROUNDS, bastle_fuzz::operations);
}

#[test]
fn work_records() {
    fuzz("work_records", ROUNDS, bastle_fuzz::work_records);
}

#[test]
fn gate() {
    fuzz("gate", ROUNDS / 10, bastle_fuzz::gate);
}

#[test]
fn work_contents() {
    fuzz("work_contents", ROUNDS, bastle_fuzz::work_contents);
}

#[test]
fn sse_usage() {
    fuzz("sse_usage", ROUNDS, bastle_fuzz::sse_usage);
}

#[test]
fn mcp_pipes() {
    fuzz("mcp_pipes", ROUNDS / 4, bastle_fuzz::mcp_pipes);
}

#[test]
fn mcp_http() {
    fuzz("mcp_http", ROUNDS / 4, bastle_fuzz::mcp_http);
}

#[test]
fn mcp_tools() {
    fuzz("mcp_tools", ROUNDS, bastle_fuzz::mcp_tools);
}

#[test]
fn rest_bodies() {
    fuzz("rest_bodies", ROUNDS, bastle_fuzz::rest_bodies);
}

#[test]
fn a2a_bodies() {
    fuzz("a2a_bodies", ROUNDS / 2, bastle_fuzz::a2a_bodies);
}

#[test]
fn editor_lines() {
    fuzz("editor_lines", ROUNDS / 4, bastle_fuzz::editor_lines);
}

#[test]
fn guard_path() {
    fuzz("guard_path", ROUNDS, bastle_fuzz::guard_path);
}

#[test]
fn every_frame_seed_is_accepted_by_somebody() {
    use bastle_contract::grants::{FromBroker, ToBroker};
    use bastle_contract::{FromInit, FromSpawner, LaunchPlan, ToInit, ToSpawner, decode};
    for seed in seeds("frames") {
        let accepted = [
            decode::<ToSpawner>(&seed).is_ok(),
            decode::<FromSpawner>(&seed).is_ok(),
            decode::<ToInit>(&seed).is_ok(),
            decode::<FromInit>(&seed).is_ok(),
            decode::<ToBroker>(&seed).is_ok(),
            decode::<FromBroker>(&seed).is_ok(),
            decode::<LaunchPlan>(&seed).is_ok(),
        ];
        assert!(
            accepted.contains(&true),
            "a seed nobody reads finds nothing: {}",
            shown(&seed)
        );
    }
}

#[test]
fn the_audit_seeds_hold_records_and_index_entries() {
    let seeds = seeds("audit_reader");
    let read = |count: fn(&[u8]) -> u64| seeds.iter().map(|seed| count(seed)).sum::<u64>();
    assert!(
        read(bastle_audit::fuzz_reader) > 0,
        "seeds nobody reads find nothing"
    );
    assert!(
        read(bastle_audit::fuzz_index) > 0,
        "seeds nobody reads find nothing"
    );
}

#[test]
fn half_of_the_policy_seeds_are_documents_that_are_accepted() {
    let seeds = seeds("policy_document");
    let accepted = seeds
        .iter()
        .filter(|seed| bastle_policy::parse("seed.json", seed).is_ok())
        .count();
    assert!(
        accepted * 2 >= seeds.len(),
        "{accepted} of {} accepted",
        seeds.len()
    );
}
