//! Group `daemon`: what a kept run and the daemon weigh, how fast runs start beside many others, how fast events reach
//! a client, and how long a restart with a large store takes.
//!
//! Everything goes through the real binary and its API. Figures that need many runs are taken with `--runs`.
mod api;
mod ground;

use super::results::GroupResult;
use super::sample::{Measured, rounded};
use super::version_of;
use crate::sh::{self, Failed};
use api::Api;
use ground::{Daemon, Ground, Heard};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Idle runs when nothing is said.
pub(super) const RUNS: u32 = 100;
/// More do not fit into one machine's process table beside everything else.
pub(super) const MOST_RUNS: u32 = 2000;
/// For how long runs are started as fast as they can be.
const CHURN: Duration = Duration::from_secs(5);
/// Runs that are asked for together beside the idle ones.
const CROWD: u32 = 100;
/// Events of a store that is restarted with, when nothing is said.
pub(super) const EVENTS: u64 = 1_000_000;
/// What an idle agent does.
const IDLE: &str = "exec sleep 100000";
/// A stream that says nothing for so long has nothing more to say.
const QUIET: Duration = Duration::from_secs(10);

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Idle runs.
    pub(super) runs: u32,
    /// Events in the store.
    pub(super) events: u64,
}

/// What is collected on the way.
#[derive(Default)]
struct Taken {
    measured: BTreeMap<String, Measured>,
    figures: BTreeMap<String, BTreeMap<String, f64>>,
    absent: BTreeMap<String, String>,
    ratios: BTreeMap<String, f64>,
}

impl Taken {
    /// Notes why something was not measured.
    fn unless(&mut self, what: &str, outcome: Result<(), Failed>) {
        if let Err(failed) = outcome {
            println!("{what:<28} not measured: {failed}");
            self.absent.insert(what.to_owned(), failed.to_string());
        }
    }

    /// One figure over another, where both were taken.
    fn ratio(&mut self, name: &str, figure: &str, (over, under): (&str, &str)) {
        let known = self.figures.get(figure);
        let of = |label: &str| known.and_then(|known| known.get(label)).copied();
        if let (Some(over), Some(under)) = (of(over), of(under))
            && under > 0.0
        {
            println!("{name:<28} {:<12} {:>14.3}", "", over / under);
            self.ratios.insert(name.to_owned(), rounded(over / under));
        }
    }

    fn figure(&mut self, name: &str, of: &str, value: f64) {
        println!("{name:<28} {of:<12} {value:>14.3}");
        self.figures
            .entry(name.to_owned())
            .or_default()
            .insert(of.to_owned(), rounded(value));
    }
}

/// Measures everything; the group ends with nothing of it left, also when it is cut short with ^C. Every figure is printed when
/// it is taken. What cannot be measured is told in `absent`, and what comes after it is measured all the same.
pub(super) fn run(bastle: &Path, samples: usize, load: Load) -> Result<GroupResult, Failed> {
    let Load { runs, events } = load;
    let ground = Ground::new(bastle, runs)?;
    let mut taken = Taken::default();
    let daemon = ground.start()?;
    let outcome = with_runs(&ground, &daemon, samples, runs, &mut taken);
    taken.unless("runs", outcome);
    println!("ending all runs");
    let begin = Instant::now();
    let cleared = daemon.clear();
    if cleared.is_ok() {
        taken.figure(
            "end_all_s",
            &format!("runs_{runs}"),
            begin.elapsed().as_secs_f64(),
        );
    }
    taken.unless("end_all_s", cleared);
    let outcome = held(&ground, &daemon, "after_all", &mut taken);
    taken.unless("after_all", outcome);
    daemon.stop()?;
    println!("a store with {events} events");
    let outcome = restart(&ground, events, &mut taken);
    taken.unless("restart_ms", outcome);
    println!("the audit log alone");
    let outcome = audit(&ground, &mut taken);
    taken.unless("audit_records_s", outcome);
    Ok(GroupResult {
        samples,
        measured: taken.measured,
        ratios: taken.ratios,
        versions: BTreeMap::from([("bastle".to_owned(), version_of(bastle))]),
        steps: BTreeMap::new(),
        absent: taken.absent,
        figures: taken.figures,
    })
}

/// Memory and starting times beside 1 and beside `runs` idle ones, and starting as fast as it goes.
fn with_runs(
    ground: &Ground,
    daemon: &Daemon<'_>,
    samples: usize,
    runs: u32,
    taken: &mut Taken,
) -> Result<(), Failed> {
    let mut api = Api::connect(&ground.socket())?;
    let mut heard = Heard::listen(ground, 0)?;
    let begin = Instant::now();
    let mut idle = 0;
    let mut steps = vec![1, runs.div_ceil(10), runs];
    steps.dedup();
    for beside in steps {
        while idle < beside {
            let many = (beside - idle).min(50);
            for name in start(ground, &mut api, IDLE, many)? {
                heard.when(&name, "running")?;
            }
            idle += many;
            println!(
                "{idle} of {runs} idle runs after {:.0} s",
                begin.elapsed().as_secs_f64()
            );
        }
        let label = format!("runs_{beside}");
        let (own, others) = ground.weigh(daemon.pid())?;
        taken.figure("daemon_pss_kib", &label, own);
        taken.figure("kept_run_pss_kib", &label, others / f64::from(idle));
        if beside == 1 || beside == runs {
            let times = spawn_times(ground, &mut api, &mut heard, samples)?;
            taken.figure("spawn_p50_ms", &label, quantile(&times, 50));
            taken.figure("spawn_p99_ms", &label, quantile(&times, 99));
            if let Some(measured) = super::sample::measured(&mut times.clone()) {
                taken.measured.insert(format!("spawn_{label}"), measured);
            }
        }
    }
    let (one, all) = ("runs_1".to_owned(), format!("runs_{runs}"));
    taken.ratio("spawn_p99_all_over_one", "spawn_p99_ms", (&all, &one));
    taken.ratio("spawn_p50_all_over_one", "spawn_p50_ms", (&all, &one));
    held(ground, daemon, "before_churn", taken)?;
    println!("starting runs as fast as they end, beside {runs} idle ones");
    let (started, took) = churn(ground, &mut api, &mut heard)?;
    taken.figure(
        "spawns_s",
        &format!("runs_{runs}"),
        f64::from(started) / took.as_secs_f64(),
    );
    println!("{CROWD} runs at once, again and again");
    let crowd = crowd(ground, &mut api, &mut heard)?;
    taken.figure("spawns_s", &format!("crowd_{CROWD}"), crowd);
    held(ground, daemon, "after_churn", taken)
}

/// What runs that ended must have given back.
fn held(ground: &Ground, daemon: &Daemon<'_>, when: &str, taken: &mut Taken) -> Result<(), Failed> {
    let (own, _) = ground.weigh(daemon.pid())?;
    taken.figure("daemon_pss_kib", when, own);
    for (what, count) in ground.count(daemon.pid())? {
        taken.figure(what, when, count);
    }
    Ok(())
}

/// As many runs at once as [`CROWD`] says, again and again; how many ended each second.
fn crowd(ground: &Ground, api: &mut Api, heard: &mut Heard) -> Result<f64, Failed> {
    let begin = Instant::now();
    let mut ended = 0;
    while begin.elapsed() < CHURN {
        for name in start(ground, api, "exit 0", CROWD)? {
            heard.when(&name, "completed")?;
            ended += 1;
        }
    }
    Ok(f64::from(ended) / begin.elapsed().as_secs_f64())
}

/// Asks for `many` runs at once and returns their names.
fn start(ground: &Ground, api: &mut Api, command: &str, many: u32) -> Result<Vec<String>, Failed> {
    let wishes = (0..many)
        .map(|_| ground.wish(command))
        .collect::<Result<Vec<_>, _>>()?;
    let report = api.ask(
        "POST",
        "/api/v1/runs",
        Some(&json!({ "prefix": "bench", "runs": wishes })),
    )?;
    let names: Vec<String> = report["runs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|run| run["name"].as_str().map(str::to_owned))
        .collect();
    if names.len() == many as usize {
        Ok(names)
    } else {
        Err(Failed::new("POST /api/v1/runs", report.to_string()))
    }
}

/// Milliseconds from the request to the news that the agent runs, one after another.
fn spawn_times(
    ground: &Ground,
    api: &mut Api,
    heard: &mut Heard,
    samples: usize,
) -> Result<Vec<f64>, Failed> {
    let mut times = Vec::new();
    for _ in 0..samples {
        let begin = Instant::now();
        let names = start(ground, api, "exit 0", 1)?;
        for name in names {
            let at = heard.when(&name, "running")?;
            times.push(at.saturating_duration_since(begin).as_secs_f64() * 1000.0);
            heard.when(&name, "completed")?;
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Starts short runs as fast as they end; how many were completed, and in what time.
fn churn(ground: &Ground, api: &mut Api, heard: &mut Heard) -> Result<(u32, Duration), Failed> {
    let begin = Instant::now();
    let mut completed = 0;
    let mut waiting: Vec<String> = Vec::new();
    while begin.elapsed() < CHURN {
        let names = start(ground, api, "exit 0", 10)?;
        // The next are asked for while these still run.
        for name in std::mem::replace(&mut waiting, names) {
            heard.when(&name, "completed")?;
            completed += 1;
        }
    }
    for name in waiting {
        heard.when(&name, "completed")?;
        completed += 1;
    }
    Ok((completed, begin.elapsed()))
}

/// Starts with a large store, and reads it all over one WebSocket.
fn restart(ground: &Ground, events: u64, taken: &mut Taken) -> Result<(), Failed> {
    ground.fill(events)?;
    let label = format!("events_{events}");
    let daemon = ground.start()?;
    taken.figure("restart_ms", &label, daemon.ready.as_secs_f64() * 1000.0);
    let mut heard = Heard::listen(ground, 0)?;
    let begin = Instant::now();
    let (mut count, mut last, mut end) = (0_u64, 0, begin);
    while count < events
        && let Some(event) = heard.next(QUIET)
    {
        let seq = event.seq().unwrap_or(0);
        if seq <= last {
            return Err(Failed::new("events", format!("{seq} after {last}")));
        }
        (last, end) = (seq, event.at);
        count += 1;
    }
    drop(heard);
    let (own, _) = ground.weigh(daemon.pid())?;
    taken.figure("daemon_pss_kib", &label, own);
    if count < events {
        return Err(Failed::new("events", format!("{count} of {events} arrived")));
    }
    let rate = count as f64 / end.saturating_duration_since(begin).as_secs_f64();
    taken.figure("events_s", "websocket", rate);
    daemon.stop()
}

/// The audit log's own measurement.
fn audit(ground: &Ground, taken: &mut Taken) -> Result<(), Failed> {
    let mut command = sh::cargo();
    command
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "bastle-audit",
            "--example",
            "throughput",
            "--",
        ])
        .arg(ground.path("state"));
    let text = sh::stdout_of(&mut command)?;
    let rate = records_per_second(&text)
        .ok_or_else(|| Failed::new("audit throughput", format!("not understood: {text}")))?;
    taken.figure("audit_records_s", "group_commit", rate);
    Ok(())
}

/// `… 123456 records/s` of the line about committing.
fn records_per_second(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("committed every"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "records/s")?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

/// The value below which `percent` of the sorted times lie; the largest where there are too few to tell.
fn quantile(times: &[f64], percent: usize) -> f64 {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let times: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&times, 50).to_bits(), 100.0_f64.to_bits());
        assert_eq!(quantile(&times, 99).to_bits(), 198.0_f64.to_bits());
        assert_eq!(quantile(&times[..3], 99).to_bits(), 3.0_f64.to_bits());
        assert_eq!(quantile(&[], 99).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn the_rate_of_the_log_is_read_from_its_own_line() {
        let text = "create: 1\n100000 records, committed every 250 by each of 4: 1.2s, 83333 records/s\nverified: 1s, 9 records/s\n";
        assert_eq!(records_per_second(text), Some(83333.0));
        assert_eq!(records_per_second("verified: 1s, 9 records/s"), None);
    }
}
