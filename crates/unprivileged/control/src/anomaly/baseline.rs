//! What earlier runs of a project and agent did: the hosts they reached and how much they sent. Bounded, plain JSON.
//!
//! **Trust:** hosts come from agents through egress, which has checked their shape. A run with a grave finding teaches nothing.
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most pairs of project and agent that are remembered; the one unused for longest goes first.
const MAX_SUBJECTS: usize = 1024;
/// Most hosts of one pair.
const MAX_HOSTS: usize = 512;
/// Longest host name that is kept.
const MAX_HOST: usize = 256;
/// Largest file.
pub const MAX_BASELINE: usize = 64 * 1024 * 1024;
/// Earlier runs that count for the average; more let it follow slowly.
const MEMORY: u64 = 64;

/// What is remembered of all pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    version: u32,
    /// Runs learned from, ever: the clock of this file.
    learned: u64,
    subjects: BTreeMap<String, Known>,
}

/// What is remembered of one pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Runs learned from.
    pub(super) runs: u64,
    /// Bytes out of a run, on average.
    pub(super) bytes_out: u64,
    /// Hosts reached.
    hosts: BTreeSet<String>,
    /// When it was last learned from, by the file's clock.
    used: u64,
}

impl Baseline {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            version: 1,
            ..Self::default()
        }
    }

    /// Reads what [`Baseline::save`] wrote.
    pub fn load(bytes: &[u8]) -> Result<Self, Fault> {
        let refuse = |why: String| {
            Fault::new(
                Code::PolicySchema,
                "the baseline of anomalies cannot be read",
                why,
            )
            .help("remove the file: it is learned anew, and until then no host counts as new")
        };
        if bytes.len() > MAX_BASELINE {
            return Err(refuse(format!("{} bytes are too many", bytes.len())));
        }
        let read: Self = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        let bounded = read.subjects.len() <= MAX_SUBJECTS
            && read.subjects.values().all(|known| known.hosts.len() <= MAX_HOSTS);
        if read.version != 1 || !bounded {
            return Err(refuse(
                "another version, or more entries than are kept".to_owned(),
            ));
        }
        Ok(read)
    }

    /// As JSON.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        // Plain data with text keys: it always prints. An empty file is refused when it is read.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn known(&self, subject: &str) -> Option<&Known> {
        self.subjects.get(subject)
    }

    /// A run is over: what it did is usual from now on.
    pub(super) fn learn<'h>(
        &mut self,
        subject: &str,
        hosts: impl Iterator<Item = &'h String>,
        bytes_out: u64,
    ) {
        self.learned = self.learned.saturating_add(1);
        if !self.subjects.contains_key(subject) && self.subjects.len() >= MAX_SUBJECTS {
            let oldest = self.subjects.iter().min_by_key(|(_, known)| known.used);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                self.subjects.remove(&name);
            }
        }
        let known = self.subjects.entry(subject.to_owned()).or_default();
        known.used = self.learned;
        let weight = known.runs.min(MEMORY);
        let sum = u128::from(known.bytes_out) * u128::from(weight) + u128::from(bytes_out);
        known.bytes_out = u64::try_from(sum / u128::from(weight + 1)).unwrap_or(u64::MAX);
        known.runs = known.runs.saturating_add(1);
        for host in hosts.filter(|host| host.len() <= MAX_HOST) {
            if known.hosts.len() < MAX_HOSTS {
                known.hosts.insert(host.clone());
            }
        }
    }

    #[cfg(test)]
    pub(super) fn subjects(&self) -> usize {
        self.subjects.len()
    }
}

impl Known {
    /// Whether an earlier run reached it. A full list cannot tell: everything counts as known then.
    pub(super) fn knows(&self, host: &str) -> bool {
        self.hosts.len() >= MAX_HOSTS || self.hosts.contains(host)
    }
}
