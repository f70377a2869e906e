//! The rules of anomalies: data, part of this build or a file of the operator, read strictly.
//!
//! **Trust:** the file is the operator's; it is checked all the same, because a rule that is read wrongly is silent.
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The rules of this build.
pub const BUILT_IN: &str = include_str!("../../anomalies.json");
/// Largest file of rules.
const MAX_FILE: usize = 64 * 1024;
/// Most rules.
const MAX_RULES: usize = 64;
/// Longest window, in seconds: a week.
const MAX_WINDOW: u64 = 7 * 24 * 3600;

/// What a rule looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// A host that no earlier run of the same project and agent reached. `threshold`: how many earlier runs there must
    /// be before anything counts as new.
    NewHost,
    /// `threshold` denials within the window.
    DenialBurst,
    /// The decoy credential was seen on its way out, or read.
    Canary,
    /// `threshold` bytes out of one run, or `factor` times what earlier runs sent on average.
    BytesOut,
    /// `threshold` programs started within the window.
    ExecBurst,
    /// `threshold` files changed within the window.
    FileBurst,
}

/// How grave it is; the graver is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Low,
    /// Worth a look.
    Medium,
    /// Worth waking somebody.
    High,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is recorded.
    Note,
    /// It is told on every channel.
    Alert,
    /// It is told, and the run stands still until a person lets it go on.
    Pause,
}

impl Severity {
    /// The word used in listings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl Action {
    /// The word used in listings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Alert => "alert",
            Self::Pause => "pause",
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rule {
    /// Its name: `[a-z0-9][a-z0-9-]{0,63}`.
    pub id: String,
    /// What it looks for.
    pub when: When,
    /// How much is too much, at least 1.
    pub threshold: u64,
    /// Within how many seconds, 1 to 604800.
    pub window_seconds: u64,
    /// For `bytes-out`: how many times the average of earlier runs; left out: only the threshold counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u32>,
    /// How grave.
    pub severity: Severity,
    /// What follows.
    pub action: Action,
}

/// All rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    rules: Vec<Rule>,
}

impl Rules {
    /// The rules of this build.
    pub fn built_in() -> Result<Self, Fault> {
        Self::parse("built-in rules", BUILT_IN.as_bytes())
    }

    /// Reads a file; `name` is for messages.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, Fault> {
        let refuse = |why: String| {
            Fault::new(
                Code::PolicySchema,
                format!("the anomaly rules in {name} cannot be used"),
                why,
            )
            .help("the format is described in docs/anomalies.md")
        };
        if bytes.len() > MAX_FILE {
            return Err(refuse(format!(
                "{} bytes; at most {MAX_FILE} are accepted",
                bytes.len()
            )));
        }
        let file: File = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        if file.version != 1 {
            return Err(refuse("this build reads version 1 only".to_owned()));
        }
        if file.rules.len() > MAX_RULES {
            return Err(refuse(format!("at most {MAX_RULES} rules are accepted")));
        }
        let mut names = BTreeSet::new();
        for rule in &file.rules {
            rule.check()
                .map_err(|why| refuse(format!("rule {:?}: {why}", rule.id)))?;
            if !names.insert(rule.id.as_str()) {
                return Err(refuse(format!("rule {:?} is there twice", rule.id)));
            }
        }
        Ok(Self(file.rules))
    }

    /// The rules, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[Rule] {
        &self.0
    }
}

impl Rule {
    fn check(&self) -> Result<(), &'static str> {
        let named = self.id.len() <= 64
            && self
                .id
                .starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && self
                .id
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !named {
            return Err("an id is [a-z0-9][a-z0-9-]{0,63}");
        }
        if self.threshold == 0 {
            return Err("a threshold of 0 would always be passed");
        }
        if !(1..=MAX_WINDOW).contains(&self.window_seconds) {
            return Err("a window has 1 to 604800 seconds");
        }
        match (self.when, self.factor) {
            (_, None) => Ok(()),
            (When::BytesOut, Some(2..=1_000_000)) => Ok(()),
            (When::BytesOut, Some(_)) => Err("a factor lies between 2 and 1000000"),
            (
                When::NewHost | When::DenialBurst | When::Canary | When::ExecBurst | When::FileBurst,
                Some(_),
            ) => Err("a factor goes with bytes-out only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_are_readable_and_cover_every_kind() {
        let rules = Rules::built_in().unwrap();
        for when in [
            When::NewHost,
            When::DenialBurst,
            When::Canary,
            When::BytesOut,
            When::ExecBurst,
            When::FileBurst,
        ] {
            assert!(rules.as_slice().iter().any(|rule| rule.when == when), "{when:?}");
        }
    }

    #[test]
    fn a_rule_that_could_be_silent_or_loud_by_mistake_is_refused() {
        let good =
            r#"{"id":"a","when":"canary","threshold":1,"windowSeconds":60,"severity":"low","action":"note"}"#;
        let file = |rules: &str| format!(r#"{{"version":1,"rules":[{rules}]}}"#);
        assert!(Rules::parse("x", file(good).as_bytes()).is_ok());
        for bad in [
            good.replace("\"a\"", "\"A\""),
            good.replace(":1,", ":0,"),
            good.replace("60", "0"),
            good.replace("60", "604801"),
            good.replace("canary", "cannary"),
            good.replace("note", "stop"),
            good.replace("\"low\"", "\"low\",\"factor\":3"),
            good.replace("\"low\"", "\"low\",\"more\":3"),
            format!("{good},{good}"),
        ] {
            assert!(Rules::parse("x", file(&bad).as_bytes()).is_err(), "{bad}");
        }
        assert!(Rules::parse("x", br#"{"version":2,"rules":[]}"#).is_err());
        assert!(Rules::parse("x", &vec![b' '; MAX_FILE + 1]).is_err());
    }
}
