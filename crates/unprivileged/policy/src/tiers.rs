//! The danger matrix: which tools and operations pass silently, are recorded, or stop for a person. Published data.
use crate::names::glob;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// How much attention an operation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Tier {
    /// 1: silent.
    Silent,
    /// 2: silent and recorded.
    Logged,
    /// 3: asks or is refused.
    Stops,
}

/// One row of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DangerEntry {
    /// `tool` or `exec` or `fs` or `net`.
    pub kind: String,
    /// Tool name, program or operation; `*` stands for any text.
    pub name: String,
    /// Its tier when a policy allows it.
    pub tier: Tier,
    /// Why.
    pub why: String,
}

const TEXT: &str = include_str!("../danger-matrix.json");

impl Tier {
    /// 1, 2 or 3.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Silent => 1,
            Self::Logged => 2,
            Self::Stops => 3,
        }
    }
}

impl TryFrom<u8> for Tier {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            1 => Ok(Self::Silent),
            2 => Ok(Self::Logged),
            3 => Ok(Self::Stops),
            other => Err(format!("tier {other} does not exist")),
        }
    }
}

impl From<Tier> for u8 {
    fn from(tier: Tier) -> Self {
        tier.number()
    }
}

/// The whole matrix.
#[must_use]
pub fn danger_matrix() -> &'static [DangerEntry] {
    static MATRIX: OnceLock<Vec<DangerEntry>> = OnceLock::new();
    // A test reads the data; were it broken after all, an empty matrix makes everything tier 2, which is recorded.
    MATRIX.get_or_init(|| serde_json::from_str(TEXT).unwrap_or_default())
}

/// The highest tier that any row gives; an operation nobody classified is recorded.
pub(crate) fn tier_of(kind: &str, name: &str) -> Tier {
    let rows = danger_matrix().iter().filter(|row| row.kind == kind);
    rows.filter(|row| glob(row.name.as_bytes(), name.as_bytes()))
        .map(|row| row.tier)
        .max()
        .unwrap_or(Tier::Logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_readable_and_covers_every_kind_and_tier() {
        let rows: Vec<DangerEntry> = serde_json::from_str(TEXT).unwrap();
        for kind in ["tool", "exec", "fs", "net"] {
            assert!(rows.iter().any(|row| row.kind == kind), "{kind}");
        }
        for tier in [Tier::Silent, Tier::Logged, Tier::Stops] {
            assert!(rows.iter().any(|row| row.tier == tier), "{tier:?}");
        }
        assert!(rows.iter().all(|row| !row.why.is_empty()));
    }

    #[test]
    fn what_goes_outward_is_never_silent_and_the_unknown_is_recorded() {
        assert_eq!(tier_of("exec", "git push origin main"), Tier::Stops);
        assert_eq!(tier_of("exec", "cargo test"), Tier::Silent);
        assert_eq!(tier_of("exec", "frobnicate"), Tier::Logged);
        assert_eq!(tier_of("tool", "Read"), Tier::Silent);
    }
}
