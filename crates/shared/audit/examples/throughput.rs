//! Measures the log: what creating costs, and how many records per second a group commit takes.
//!
//! `cargo run --release -p bastle-audit --example throughput [DIRECTORY]`
use bastle_audit::{AuditEvent, AuditWriter, Committer, Verdict, verify};
use bastle_contract::{DenialKind, Denied, RunId};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PRODUCERS: u32 = 4;
const EACH: u32 = 25_000;
/// A producer waits for the disk after this many of its records.
const COMMIT_EVERY: u32 = 250;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let state = base.join(format!("bastle-audit-throughput-{}", std::process::id()));
    let measured = creation(&state).and_then(|()| throughput(&state));
    std::fs::remove_dir_all(&state)?;
    measured
}

fn creation(state: &Path) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for number in 0..200 {
        let run = RunId::try_from(format!("create-{number}"))?;
        let begin = Instant::now();
        let mut writer = AuditWriter::create(state, &run)?;
        writer.append(&event(0, 0))?;
        writer.flush()?;
        times.push(begin.elapsed());
    }
    let first = times[0];
    times.sort_unstable();
    println!(
        "create + first record, no sync: median {:?}, worst {:?}, first of all {first:?}",
        times[100], times[199]
    );
    let run = RunId::try_from("create-sync".to_owned())?;
    let begin = Instant::now();
    let mut writer = AuditWriter::create(state, &run)?;
    writer.append_durable(&event(0, 0))?;
    println!("create + first record, synced: {:?}", begin.elapsed());
    Ok(())
}

fn throughput(state: &Path) -> Result<(), Box<dyn Error>> {
    let run = RunId::try_from("throughput".to_owned())?;
    let handle = Committer::spawn(AuditWriter::create(state, &run)?)?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let handle = handle.clone();
                scope.spawn(move || {
                    for number in 0..EACH {
                        handle.append(&event(producer, number))?;
                        if number % COMMIT_EVERY == 0 {
                            handle.commit()?;
                        }
                    }
                    handle.commit()
                })
            })
            .collect();
        producers.into_iter().try_for_each(|p| {
            p.join()
                .map_err(|_| "a producer panicked")?
                .map_err(|e| e.to_string())
        })
    })?;
    let seal = handle.seal()?;
    let took = begin.elapsed();
    let rate = f64::from(PRODUCERS * EACH) / took.as_secs_f64();
    println!(
        "{} records, committed every {COMMIT_EVERY} by each of {PRODUCERS}: {took:?}, {rate:.0} records/s",
        seal.records
    );
    let begin = Instant::now();
    let report = verify(state, &run)?;
    let took = begin.elapsed();
    assert_eq!(report.verdict, Verdict::Sealed);
    println!(
        "verified: {took:?}, {:.0} records/s",
        f64::from(PRODUCERS * EACH) / took.as_secs_f64()
    );
    Ok(())
}

fn event(producer: u32, number: u32) -> AuditEvent {
    AuditEvent::Denied(Denied {
        kind: DenialKind::Write,
        operation: "openat".into(),
        target: format!("/etc/{producer}/{number}"),
        rule: "read-only mount".into(),
        errno: "EROFS".into(),
        pid: 42,
        comm: "sh".into(),
    })
}
