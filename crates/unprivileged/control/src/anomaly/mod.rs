//! Anomalies: what is unusual in the events of runs, by rules that are data.
//!
//! **Trust:** events hold text of agents. Whatever they are, state is bounded, nothing panics, and the same events give the
//! same findings. A finding is a hint for a person; the fence does not rest on it.
mod baseline;
mod live;
mod rules;
#[cfg(test)]
mod tests;
mod watch;

pub use baseline::{Baseline, MAX_BASELINE};
pub(crate) use live::{LiveWatch, rules_of};
pub use rules::{Action, BUILT_IN, Rule, Rules, Severity, When};

use bastle_contract::RunId;
use bastle_contract::runs::RunEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use watch::{MAX_HOSTS, Watch};

/// Runs that are followed at once; the one unheard of for longest goes first.
const MAX_RUNS: usize = 4096;
/// How often one rule speaks about one run.
const MOST_FINDINGS: u32 = 16;
/// Earlier runs before an average means anything.
const LEARNED: u64 = 3;
/// An average below this is taken for it: ten times nothing is nothing unusual.
const LEAST_AVERAGE: u64 = 1024 * 1024;

/// Whose events they are.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its project, as a path.
    pub project: &'a str,
    /// Its agent or profile.
    pub agent: &'a str,
}

/// Something unusual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// The run.
    pub run: RunId,
    /// Number of the event within the run that made it so.
    pub seq: u64,
    /// How grave.
    pub severity: Severity,
    /// What follows.
    pub action: Action,
    /// What was seen, in one sentence. A host in it comes from the agent.
    pub text: String,
    /// How much was counted.
    pub count: u64,
    /// How much is too much.
    pub threshold: u64,
}

/// Follows the events of all runs.
#[derive(Debug)]
pub struct Anomalies {
    rules: Rules,
    baseline: Baseline,
    runs: HashMap<RunId, Watch>,
    heard: u64,
    learned: bool,
}

/// What one event says that rules ask about.
#[derive(Debug, Default)]
struct Seen<'e> {
    host: Option<&'e str>,
    denials: u64,
    canary: Option<&'e str>,
    bytes_out: Option<Bytes>,
    execs: u64,
    files: u64,
    over: bool,
}

/// Bytes out of the run so far.
#[derive(Clone, Copy, Debug)]
struct Bytes(u64);

impl Anomalies {
    /// Follows nothing yet.
    #[must_use]
    pub fn new(rules: Rules, baseline: Baseline) -> Self {
        Self {
            rules,
            baseline,
            runs: HashMap::new(),
            heard: 0,
            learned: false,
        }
    }

    /// What is remembered, for keeping.
    #[must_use]
    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Compares with another baseline from now on.
    pub(crate) fn replace_baseline(&mut self, baseline: Baseline) {
        self.baseline = baseline;
    }

    /// Whether the baseline changed since this was last asked: then it is worth keeping.
    pub fn take_learned(&mut self) -> bool {
        std::mem::take(&mut self.learned)
    }

    /// Looks at the next event of a run. One that was looked at before says nothing.
    pub fn observe(&mut self, subject: &Subject<'_>, event: &RunEvent) -> Vec<Finding> {
        self.heard = self.heard.saturating_add(1);
        self.make_room(subject.run);
        let rules = self.rules.as_slice();
        let heard = self.heard;
        let watch = self
            .runs
            .entry(subject.run.clone())
            .or_insert_with(|| Watch::new(rules.len()));
        if event.seq <= watch.seq {
            return Vec::new();
        }
        watch.seq = event.seq;
        watch.used = heard;
        watch.tick(event.time_ms);
        let seen = look(event);
        if let Some(Bytes(total)) = seen.bytes_out {
            watch.bytes_out = watch.bytes_out.max(total);
        }
        let key = key(subject);
        let known = self.baseline.known(&key);
        let fresh = seen.host.filter(|host| !watch.hosts.contains(*host));
        let mut findings = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let found = match rule.when {
                When::NewHost => new_host(rule, watch, known, fresh),
                When::DenialBurst => burst(rule, watch, index, seen.denials, "denials"),
                When::ExecBurst => burst(rule, watch, index, seen.execs, "programs started"),
                When::FileBurst => burst(rule, watch, index, seen.files, "files changed"),
                When::Canary => canary(rule, watch, index, seen.canary),
                When::BytesOut => bytes_out(rule, watch, index, known, seen.bytes_out),
            };
            let Some((count, text)) = found else { continue };
            if let Some(window) = watch.windows.get_mut(index) {
                window.forget();
                window.fired = window.fired.saturating_add(1);
                if window.fired > MOST_FINDINGS {
                    continue;
                }
            }
            watch.grave |= rule.severity == Severity::High;
            findings.push(Finding {
                rule: rule.id.clone(),
                run: subject.run.clone(),
                seq: event.seq,
                severity: rule.severity,
                action: rule.action,
                text,
                count,
                threshold: rule.threshold,
            });
        }
        if let Some(host) = fresh {
            if watch.hosts.len() < MAX_HOSTS {
                watch.hosts.insert(host.to_owned());
            } else {
                watch.overflowed = true;
            }
        }
        if seen.over {
            self.end(subject.run, &key);
        }
        findings
    }

    /// A run is over. What it did is usual from now on, unless something grave was found.
    fn end(&mut self, run: &RunId, key: &str) {
        let Some(watch) = self.runs.get_mut(run) else {
            return;
        };
        if !watch.grave {
            self.baseline.learn(key, watch.hosts.iter(), watch.bytes_out);
            self.learned = true;
        }
        // Its number stays, so that an event that comes twice is not taken for a new run.
        let seq = watch.seq;
        *watch = Watch::new(0);
        watch.seq = seq;
    }

    fn make_room(&mut self, run: &RunId) {
        if self.runs.len() < MAX_RUNS || self.runs.contains_key(run) {
            return;
        }
        let oldest = self
            .runs
            .iter()
            .min_by(|a, b| (a.1.used, a.0.as_str()).cmp(&(b.1.used, b.0.as_str())));
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.runs.remove(&name);
        }
    }
}

/// Project and agent as one name of bounded length.
fn key(subject: &Subject<'_>) -> String {
    let whole = format!("{}\n{}", subject.agent, subject.project);
    if whole.len() <= 256 {
        return whole;
    }
    blake3::hash(whole.as_bytes()).to_hex().to_string()
}

fn look(event: &RunEvent) -> Seen<'_> {
    let data = &event.data;
    let text = |key: &str| data.get(key).and_then(Value::as_str);
    let number = |value: &Value| {
        value
            .as_u64()
            .or_else(|| value.as_array().map(|list| list.len() as u64))
    };
    let mut seen = Seen::default();
    match event.kind.as_str() {
        "denied" => seen.denials = data.get("count").and_then(Value::as_u64).unwrap_or(1).max(1),
        "net" => {
            let count = data.get("count").and_then(Value::as_u64).unwrap_or(1).max(1);
            match text("verdict") {
                Some("denied") => seen.denials = count,
                // A name that is looked up (port 0) was not reached yet.
                Some("allowed" | "learned") if data.get("port").and_then(Value::as_u64) != Some(0) => {
                    seen.host = text("host").filter(|host| host.len() <= 256);
                }
                Some(_) | None => {}
            }
        }
        "traffic" => seen.bytes_out = data.get("bytes_out").and_then(Value::as_u64).map(Bytes),
        "canary" => seen.canary = Some(text("where").unwrap_or("somewhere")),
        // A command that somebody starts in the run is told again when it ends.
        "exec" if text("state") != Some("ended") => seen.execs = 1,
        "programs" => seen.execs = data.get("more").and_then(Value::as_u64).unwrap_or(1),
        "files" => seen.files = data.get("changed").and_then(number).unwrap_or(1),
        "ended" => {
            let net = data.get("net").and_then(|net| net.get("bytes_out"));
            seen.bytes_out = net.and_then(Value::as_u64).map(Bytes);
            seen.over = true;
        }
        _ => {}
    }
    seen
}

type Found = Option<(u64, String)>;

fn burst(rule: &Rule, watch: &mut Watch, index: usize, amount: u64, what: &str) -> Found {
    if amount == 0 {
        return None;
    }
    let count = watch.count(index, rule.window_seconds, amount);
    (count >= rule.threshold).then(|| (count, format!("{count} {what} within {}s", rule.window_seconds)))
}

fn canary(rule: &Rule, watch: &mut Watch, index: usize, place: Option<&str>) -> Found {
    let place = place?;
    let count = watch.count(index, rule.window_seconds, 1);
    let place: String = place.chars().filter(|c| !c.is_control()).take(64).collect();
    (count >= rule.threshold).then(|| (count, format!("the decoy credential was seen: {place}")))
}

fn new_host(rule: &Rule, watch: &Watch, known: Option<&baseline::Known>, host: Option<&str>) -> Found {
    let (known, host) = (known?, host?);
    let told = !watch.overflowed && known.runs >= rule.threshold && !known.knows(host);
    let shown: String = host.chars().filter(|c| !c.is_control()).take(256).collect();
    told.then(|| {
        (
            known.runs,
            format!("{shown} was reached by none of {} earlier runs", known.runs),
        )
    })
}

fn bytes_out(
    rule: &Rule,
    watch: &Watch,
    index: usize,
    known: Option<&baseline::Known>,
    seen: Option<Bytes>,
) -> Found {
    seen?;
    // Once per run: a total does not go down again.
    if watch.windows.get(index).is_some_and(|window| window.fired > 0) {
        return None;
    }
    let sent = watch.bytes_out;
    if sent >= rule.threshold {
        return Some((sent, format!("{sent} bytes went out")));
    }
    let known = known.filter(|known| known.runs >= LEARNED)?;
    let factor = u64::from(rule.factor?);
    let usual = known.bytes_out.max(LEAST_AVERAGE);
    (sent >= usual.saturating_mul(factor)).then(|| {
        (
            sent,
            format!(
                "{sent} bytes went out, {factor} times what {} earlier runs sent",
                known.runs
            ),
        )
    })
}
