//! The capability statement: what probes inside the finished sandbox found.
use crate::{Guarantee, IdMapping};
use serde::{Deserialize, Serialize};

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeResult {
    /// What it proves.
    pub guarantee: Guarantee,
    /// What was tried.
    pub attempt: String,
    /// What must come of it.
    pub expected: String,
    /// What came of it.
    pub observed: String,
    /// The twin that must succeed, and what came of that.
    pub control: String,
    /// The judgement.
    pub verdict: Verdict,
}

/// The judgement on one probe.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The attempt failed as it must and the control succeeded.
    Held,
    /// The attempt succeeded, or failed for another reason.
    Broken,
    /// The control failed: the probe says nothing.
    Inconclusive,
}

/// The verdict on a whole sandbox: first record of its audit chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityStatement {
    /// What enforced it, e.g. `namespaces+landlock v6+seccomp+cgroup v1`.
    pub fence: String,
    /// Identity inside and outside.
    pub identity: IdMapping,
    /// Every probe.
    pub probes: Vec<ProbeResult>,
}

impl CapabilityStatement {
    /// Whether every required guarantee was proven and nothing was broken or left open.
    #[must_use]
    pub fn proves(&self, required: &[Guarantee]) -> bool {
        self.failures(required).is_empty()
    }

    /// What stands against starting: broken or inconclusive probes, and required guarantees nobody probed.
    #[must_use]
    pub fn failures(&self, required: &[Guarantee]) -> Vec<String> {
        let bad = self
            .probes
            .iter()
            .filter(|p| p.verdict != Verdict::Held)
            .map(|p| {
                format!(
                    "{}: {:?}: {} gave {} (expected {}; control: {})",
                    p.guarantee, p.verdict, p.attempt, p.observed, p.expected, p.control
                )
            });
        let unprobed = required
            .iter()
            .filter(|g| !self.probes.iter().any(|p| p.guarantee == **g))
            .map(|g| format!("{g}: INCONCLUSIVE: no probe ran"));
        bad.chain(unprobed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(verdict: Verdict) -> ProbeResult {
        let text = String::new;
        ProbeResult {
            guarantee: Guarantee::NetConfined,
            attempt: text(),
            expected: text(),
            observed: text(),
            control: text(),
            verdict,
        }
    }

    #[test]
    fn a_dead_probe_or_a_missing_one_never_proves_a_guarantee() {
        let statement = |probes| CapabilityStatement {
            fence: String::new(),
            identity: IdMapping {
                inside: 1,
                outside: 1,
            },
            probes,
        };
        let required = [Guarantee::NetConfined];
        assert!(statement(vec![probe(Verdict::Held)]).proves(&required));
        assert!(!statement(vec![probe(Verdict::Held), probe(Verdict::Inconclusive)]).proves(&required));
        assert!(!statement(vec![probe(Verdict::Broken)]).proves(&required));
        assert!(!statement(vec![]).proves(&required));
    }
}
