//! The fleet from the daemon, and what keys ask of it.
use super::model::{Fleet, Line, Waiting};
use super::screen::Pane;
use crate::client::place::Host;
use crate::client::{Daemon, own_socket, part};
use crate::commands::source::state_dir;
use crate::remote::Listed;
use crate::render::{now_ms, timestamp};
use bastle_contract::Fault;
use bastle_contract::runs::RunState;
use bastle_control::fleet::{Approval, RunRecord, Verdict};
use bastle_control::processes::{self, Used};
use bastle_control::runs::RunDir;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of output that are asked for at once.
const PART: u64 = 1024 * 1024;
/// Most parts between two pictures.
const MOST_PARTS: usize = 8;

/// Whom the view asks.
pub(super) struct Source {
    daemon: Daemon,
    query: String,
    listed: Listed,
    /// What runs had used when they were looked at last, and when that was.
    before: BTreeMap<String, (u64, Used)>,
    /// The first process of each living run.
    firsts: BTreeMap<String, u32>,
}

impl Source {
    pub(super) fn new(daemon: Daemon, query: String, listed: Listed) -> Self {
        Self {
            daemon,
            query,
            listed,
            before: BTreeMap::new(),
            firsts: BTreeMap::new(),
        }
    }

    /// Everything that is shown.
    pub(super) fn fleet(&mut self) -> Result<Fleet, Vec<Fault>> {
        let runs: Vec<RunRecord> = self.daemon.list(&self.query)?;
        let mut questions: BTreeMap<String, Vec<Waiting>> = BTreeMap::new();
        if runs.iter().any(asks) {
            let open: Vec<Approval> = self.daemon.list("/api/v1/approvals?state=open&limit=1000")?;
            for approval in open {
                questions
                    .entry(approval.run.to_string())
                    .or_default()
                    .push(Waiting {
                        id: approval.id.to_string(),
                        hash: Some(approval.hash),
                        text: approval.text,
                    });
            }
        }
        let used = self.used(&runs);
        let ended = runs.iter().filter(|run| run.state.is_final()).count();
        let mut fleet = Fleet {
            lines: runs
                .into_iter()
                .filter(|run| self.listed == Listed::All || !run.state.is_final())
                .map(|run| line(run, &used, &mut questions))
                .collect(),
            address: self.daemon.host().to_string(),
            more: if self.listed == Listed::All { 0 } else { ended },
        };
        fleet.sort();
        Ok(fleet)
    }

    /// What living runs use: hundredths of a processor since the last look, or since the start, and memory. Only of
    /// this user's own daemon: the processes of others are not here, or not ours to know.
    fn used(&mut self, runs: &[RunRecord]) -> BTreeMap<String, (u32, u64)> {
        let (Ok(own), Ok(state)) = (own_socket(), state_dir()) else {
            return BTreeMap::new();
        };
        if *self.daemon.host() != Host::socket(own) {
            return BTreeMap::new();
        }
        let begun = |run: &&RunRecord| !run.state.is_final() && run.started_ms.is_some();
        let living: Vec<&RunRecord> = runs.iter().filter(begun).collect();
        for run in &living {
            if !self.firsts.contains_key(run.name.as_str())
                && let Ok(file) = RunDir::open(&state, &run.name).and_then(|dir| dir.file())
                && let Some(init) = file.init
            {
                self.firsts.insert(run.name.to_string(), init);
            }
        }
        self.firsts
            .retain(|name, _| living.iter().any(|run| run.name.as_str() == name));
        let pids: Vec<u32> = self.firsts.values().copied().collect();
        let seen = processes::look(&pids);
        let now = now_ms();
        let mut shown = BTreeMap::new();
        let mut next = BTreeMap::new();
        for run in living {
            let name = run.name.to_string();
            let Some(used) = self.firsts.get(&name).and_then(|pid| seen.get(pid)) else {
                continue;
            };
            let start = (run.started_ms.unwrap_or(now), Used::default());
            let (then, before) = self.before.get(&name).copied().unwrap_or(start);
            let spent = used.cpu_ms.saturating_sub(before.cpu_ms) * 100;
            let percent = spent.checked_div(now.saturating_sub(then)).unwrap_or(0);
            shown.insert(
                name.clone(),
                (u32::try_from(percent).unwrap_or(u32::MAX), used.memory),
            );
            next.insert(name, (now, *used));
        }
        self.before = next;
        shown
    }

    /// Reads what a run printed since, and keeps its end.
    pub(super) fn read_on(&self, pane: &mut Pane) -> Result<(), Vec<Fault>> {
        for _ in 0..MOST_PARTS {
            let part = self.daemon.get(&format!(
                "/api/v1/runs/{}/logs?limit={PART}&since={}",
                part(&pane.run),
                pane.next
            ))?;
            for record in part["records"].as_array().into_iter().flatten() {
                pane.add(record["text"].as_str().unwrap_or_default());
            }
            pane.next = part["next"].as_u64().unwrap_or(pane.next);
            if part["whole"] != Value::Bool(false) {
                break;
            }
        }
        Ok(())
    }

    /// Makes a run stand still, or go on.
    pub(super) fn pause_or_resume(&self, line: &Line) -> Result<String, Vec<Fault>> {
        let (verb, told) = if line.state == RunState::Suspended {
            ("resume", "goes on")
        } else {
            ("pause", "stands still")
        };
        self.act(&line.name, verb)?;
        Ok(format!("{} {told}", line.name))
    }

    /// Ends a run in order.
    pub(super) fn stop(&self, name: &str) -> Result<String, Vec<Fault>> {
        self.act(name, "stop")?;
        Ok(format!("{name} is asked to end"))
    }

    fn act(&self, name: &str, verb: &str) -> Result<Value, Vec<Fault>> {
        self.daemon
            .post(&format!("/api/v1/runs/{}/{verb}", part(name)), &json!({}))
    }

    /// Answers exactly what was shown.
    pub(super) fn answer(&self, question: &Waiting, verdict: Verdict) -> Result<String, Vec<Fault>> {
        let (verb, told) = match verdict {
            Verdict::Approve => ("approve", "allowed"),
            Verdict::Deny => ("deny", "denied"),
        };
        let body = json!({ "hash": question.hash });
        self.daemon
            .post(&format!("/api/v1/approvals/{}/{verb}", part(&question.id)), &body)?;
        Ok(format!("{told}: {}", question.text))
    }
}

fn asks(run: &RunRecord) -> bool {
    run.question.is_some() || matches!(run.state, RunState::NeedsInput | RunState::NeedsCredential)
}

fn line(
    run: RunRecord,
    used: &BTreeMap<String, (u32, u64)>,
    questions: &mut BTreeMap<String, Vec<Waiting>>,
) -> Line {
    let tags = run.tags.as_map().iter();
    let tags: Vec<String> = tags.map(|(key, value)| format!("{key}={value}")).collect();
    let now = used.get(run.name.as_str());
    let reason = match (&run.waits_for, run.reason) {
        (Some(holder), _) => format!("waits for {holder}"),
        (None, reason) => reason.unwrap_or_default(),
    };
    Line {
        questions: questions.remove(run.name.as_str()).unwrap_or_default(),
        name: run.name.to_string(),
        agent: run.agent,
        state: run.state,
        reason,
        started_ms: run.started_ms,
        ended_ms: run.ended_ms,
        cpu: now.map(|(cpu, _)| *cpu),
        memory: now.map(|(_, memory)| *memory),
        cost_micro_usd: run.micro_usd,
        denials: run.denials,
        findings: run
            .file
            .as_ref()
            .map(|file| &file.findings)
            .filter(|found| found.count > 0)
            .map(|found| format!("{} {}", found.count, found.worst.as_deref().unwrap_or_default()))
            .unwrap_or_default(),
        tags: tags.join(","),
    }
}

/// The lines for programs.
pub(super) fn as_json(fleet: &Fleet) -> Vec<Value> {
    fleet
        .lines
        .iter()
        .map(|line| {
            let questions: Vec<Value> = line
                .questions
                .iter()
                .map(|one| json!({ "id": one.id, "hash": one.hash, "text": one.text }))
                .collect();
            json!({
                "run": line.name, "agent": line.agent, "state": line.state, "needs": line.needs(),
                "started": line.started_ms.map(timestamp), "ended": line.ended_ms.map(timestamp),
                "cpu_percent": line.cpu, "memory": line.memory, "cost_micro_usd": line.cost_micro_usd,
                "denials": line.denials, "findings": line.findings, "tags": line.tags, "questions": questions,
            })
        })
        .collect()
}
