//! Findings of the anomaly rules: recorded, told, and where the rule says so the run is paused.
//!
//! `note` is recorded and counted. `alert` is on disk before anything else goes on, and every channel shows it. `pause` is an
//! alert after which the run is paused until a person resumes it; in the foreground only at a terminal, because elsewhere
//! nobody would.
use super::Relay;
use crate::anomaly::{Action, Finding};
use crate::runs::{Durable, append_finding};
use bastle_audit::AuditEvent;
use bastle_contract::Fault;
use bastle_contract::egress::{NetDecision, NetVerdict};
use serde_json::{Value, json};

impl Relay<'_> {
    /// Holds the rules against something that happened.
    pub(super) fn notice(&mut self, kind: &str, data: Value) -> Result<(), Fault> {
        let findings = self.unusual.observe(kind, data);
        if let Some(fault) = self.unusual.trouble.take() {
            let text = format!("the anomaly rules cannot be used, the built-in ones hold: {fault}");
            self.note_durably("anomaly", &text)?;
            self.voice.happened("note", json!({ "text": text }));
        }
        findings.iter().try_for_each(|finding| self.found(finding))
    }

    /// The same for a decision about a request, with what rules ask about.
    pub(super) fn notice_request(&mut self, decision: &NetDecision) -> Result<(), Fault> {
        let verdict = match decision.verdict {
            NetVerdict::Denied => "denied",
            NetVerdict::Learned => "learned",
            NetVerdict::Allowed => "allowed",
            NetVerdict::Asked => return Ok(()),
        };
        let data = json!({
            "verdict": verdict, "host": decision.host, "port": decision.port, "count": decision.count,
        });
        self.notice("net", data)
    }

    /// The run is over.
    pub(super) fn notice_end(&mut self) -> Result<(), Fault> {
        let sent = self.net.as_ref().map_or(0, |net| net.totals.bytes_out);
        let findings = self.unusual.finish(sent);
        findings.iter().try_for_each(|finding| self.found(finding))
    }

    fn found(&mut self, finding: &Finding) -> Result<(), Fault> {
        let pauses = match finding.action {
            Action::Pause => !self.ended && (!self.front.is_own() || self.had_terminal),
            Action::Note | Action::Alert => false,
        };
        let text = format!(
            "{} {} {}: {}",
            finding.severity.word(),
            finding.action.word(),
            finding.rule,
            finding.text
        );
        match finding.action {
            Action::Note => self.record.append(&AuditEvent::Note {
                topic: "anomaly".to_owned(),
                text,
            })?,
            Action::Alert | Action::Pause => self.note_durably("anomaly", &text)?,
        }
        let mut data = serde_json::to_value(finding).unwrap_or_default();
        data["paused"] = json!(pauses);
        if self.front.is_own() {
            // A kept run has a journal, into which its voice writes; this one has none.
            let durable = match finding.action {
                Action::Note => Durable::No,
                Action::Alert | Action::Pause => Durable::Yes,
            };
            append_finding(self.unusual.state(), &self.plan.run, data.clone(), durable)?;
        }
        self.voice.happened("anomaly", data);
        if pauses {
            // One that is being ended is not paused any more.
            drop(self.pause()?);
        }
        Ok(())
    }
}
