//! Findings of the anomaly rules, at a terminal: alerts are shown, notes are kept for the receipt.
use super::RunVoice;
use crate::render::Paint;
use bastle_audit::sanitize;
use serde_json::Value;

/// Findings that the receipt holds. There are at most 16 of one rule.
const MOST_FINDINGS: usize = 256;

impl RunVoice<'_> {
    /// Something unusual was found.
    pub(super) fn unusual(&mut self, finding: &Value) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding.clone());
        }
        let word = |key: &str| sanitize(finding[key].as_str().unwrap_or_default());
        if self.quiet || word("action") == "note" {
            return;
        }
        let mark = self.style.paint(Paint::Warn, "!");
        let mut lines = vec![format!(
            "{mark} unusual ({}): {} [{}]",
            word("severity"),
            word("text"),
            word("rule")
        )];
        if finding["paused"] == true {
            lines.push(format!("  the run is paused: bastle resume {}", self.run));
        }
        self.say(&lines);
    }
}
