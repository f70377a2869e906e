//! The front end of a kept run: everything that is told becomes an event. What cannot be written ends the run.
use super::journal::Journal;
use super::keep::Notice;
use crate::voice::{AfterLoss, Question, Reply, Voice};
use bastle_contract::egress::{BudgetReached, NetDecision};
use bastle_contract::runs::{ModelsReported, RunState};
use bastle_contract::{CapabilityStatement, Denied, Fault, LaunchPlan, LimitHit};
use serde_json::{Value, json};

/// Decisions about requests that become events: about 10 MiB. The audit log has them all.
const MOST_NET: u32 = 20_000;

/// The front end.
pub(super) struct KeptVoice<'a> {
    pub(super) journal: &'a mut Journal,
    pub(super) notice: &'a mut Notice,
    /// The agent got the word.
    pub(super) begun: bool,
    /// Who ended it.
    pub(super) stopped: Option<String>,
    net: u32,
    trouble: Option<Fault>,
}

impl<'a> KeptVoice<'a> {
    pub(super) fn new(journal: &'a mut Journal, notice: &'a mut Notice) -> Self {
        Self {
            journal,
            notice,
            begun: false,
            stopped: None,
            net: 0,
            trouble: None,
        }
    }

    fn tell(&mut self, kind: &str, data: Value) {
        let told = self.journal.event(kind, data);
        self.mind(told);
    }

    fn note(&mut self, text: String) {
        self.tell("note", json!({ "text": text }));
    }

    fn mind(&mut self, told: Result<(), Fault>) {
        if let Err(fault) = told {
            self.trouble.get_or_insert(fault);
        }
    }
}

impl Voice for KeptVoice<'_> {
    fn proven(&mut self, _plan: &LaunchPlan, _statement: &CapabilityStatement) {
        self.begun = true;
        let told = self.journal.state(RunState::Running, None);
        self.mind(told);
    }

    fn executed(&mut self) {
        // Not before: a program that is not there is told to whoever waits, not found by them later.
        self.notice.give();
        // Policies and plans were made and are gone; a kept run may wait for days.
        bastle_sys::memory::give_back();
    }

    fn denied(&mut self, id: &str, denied: &Denied) {
        self.journal.file.denials += 1;
        let mut data = serde_json::to_value(denied).unwrap_or_default();
        data["id"] = json!(id);
        self.tell("denied", data);
    }

    fn limit(&mut self, hit: &LimitHit) {
        self.tell("limit", json!(hit));
    }

    fn net_decided(&mut self, decision: &NetDecision) {
        self.net += 1;
        if self.net <= MOST_NET {
            self.tell("net", json!(decision));
        } else if self.net == MOST_NET + 1 {
            self.note("further requests are in the audit log only".to_owned());
        }
    }

    fn asked(&mut self, question: &Question<'_>) {
        let data = json!({
            "id": question.id,
            "hash": question.hash,
            "text": question.about.words(),
            "about": question.about.document(),
        });
        let told = self.journal.durable("question", data);
        self.mind(told);
    }

    fn answered(&mut self, id: &str, answer: Reply, by: &str) {
        let data = json!({ "id": id, "verdict": answer.word(), "by": by });
        let told = self.journal.durable("answered", data);
        self.mind(told);
    }

    fn budget(&mut self, reached: &BudgetReached) {
        self.tell("budget", json!(reached));
    }

    fn changed(&mut self, change: &str, cut: u32, by: &str) {
        self.tell("rules", json!({ "change": change, "cut": cut, "by": by }));
    }

    fn unchanged(&mut self, fault: &Fault) {
        self.tell("rules", json!({ "refused": fault }));
    }

    fn wanted(&mut self, rule: &str, why: &str) {
        self.tell(
            "note",
            json!({ "text": "the agent asks for a rule", "rule": rule, "why": why }),
        );
    }

    fn egress_lost(&mut self, why: &str, after: AfterLoss) {
        let after = match after {
            AfterLoss::Replaced => "another takes its place",
            AfterLoss::Ended => "the run ends",
        };
        self.note(format!("the egress process is gone ({why}): {after}"));
    }

    fn launched(&mut self, pid: u32) {
        self.journal.file.init = Some(pid);
    }

    fn state(&mut self, state: RunState, reason: Option<&str>) {
        let told = self.journal.state(state, reason);
        self.mind(told);
    }

    fn stopping(&mut self, by: &str) {
        self.stopped.get_or_insert_with(|| by.to_owned());
    }

    fn reported(&mut self, reported: ModelsReported) {
        // On disk with the next change of its state, which the end of its turn is.
        self.journal.file.reported = Some(reported);
    }

    fn happened(&mut self, kind: &str, data: Value) {
        if kind == "anomaly" {
            let severity = data["severity"].as_str().unwrap_or_default();
            let counted = self.journal.finding(severity);
            self.mind(counted);
        }
        self.tell(kind, data);
    }

    fn audit_contradicted(&mut self, text: &str) {
        self.note(format!("audit: {text}"));
    }

    fn trouble(&mut self) -> Option<Fault> {
        self.trouble.take()
    }
}
