//! `bench/results.json`: one object per group; a run replaces its own group and leaves the others.
use super::sample::{Measured, rounded};
use crate::sh::{self, Failed};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One group's result.
pub(super) struct GroupResult {
    pub(super) samples: usize,
    pub(super) measured: BTreeMap<String, Measured>,
    pub(super) ratios: BTreeMap<String, f64>,
    /// Program → version, for what was compared.
    pub(super) versions: BTreeMap<String, String>,
    /// Contender → step → median microseconds, where it tells.
    pub(super) steps: BTreeMap<String, BTreeMap<String, f64>>,
    /// Contender → why it was not measured.
    pub(super) absent: BTreeMap<String, String>,
    /// Measure → contender → median, for what is not a time in milliseconds; the measure's name ends with its unit.
    pub(super) figures: BTreeMap<String, BTreeMap<String, f64>>,
}

impl GroupResult {
    fn to_json(&self, uid: u32) -> Value {
        let by = |pick: fn(&Measured) -> f64| -> Map<String, Value> {
            self.measured
                .iter()
                .map(|(name, times)| (name.clone(), json!(rounded(pick(times)))))
                .collect()
        };
        json!({
            "samples": self.samples,
            "median_ms": by(|times| times.median),
            "min_ms": by(|times| times.min),
            "ratios": self.ratios,
            "steps_us": self.steps,
            "figures": self.figures,
            "absent": self.absent,
            "versions": self.versions,
            "kernel": asked(Command::new("uname").arg("-r")),
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "uid": uid.to_string(),
            "commit": commit(),
        })
    }
}

fn asked(command: &mut Command) -> String {
    sh::stdout_of(command).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The commit, with a mark when the tree differs from it: such a figure cannot be had again.
fn commit() -> String {
    let mut describe = Command::new("git");
    describe
        .current_dir(sh::root())
        .args(["describe", "--always", "--dirty", "--abbrev=12"]);
    asked(&mut describe)
}

/// Puts `group`, measured as the user `uid`, into the file under `name`.
pub(super) fn merge(file: &Path, name: &str, group: &GroupResult, uid: u32) -> Result<(), Failed> {
    let before = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}".to_owned(),
        Err(error) => return Err(Failed::new(file.display().to_string(), error.to_string())),
    };
    let merged = merged(&before, name, group.to_json(uid))?;
    std::fs::write(file, merged).map_err(Failed::io(file.display()))
}

fn merged(before: &str, name: &str, group: Value) -> Result<String, Failed> {
    let malformed = |error: serde_json::Error| Failed::new("bench/results.json", error.to_string());
    let mut whole: Map<String, Value> = serde_json::from_str(before).map_err(malformed)?;
    whole.insert(name.to_owned(), group);
    let mut text = serde_json::to_string_pretty(&whole).map_err(malformed)?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_replaces_itself_and_leaves_the_others() {
        let before = r#"{"policy":{"samples":30},"start":{"samples":1}}"#;
        let after = merged(before, "start", json!({ "samples": 40 })).expect("merges");
        let after: Value = serde_json::from_str(&after).expect("JSON");
        assert_eq!(
            after,
            json!({ "policy": { "samples": 30 }, "start": { "samples": 40 } })
        );
    }

    #[test]
    fn a_damaged_file_is_refused_and_not_overwritten() {
        assert!(merged("{ not json", "start", json!({})).is_err());
        assert!(merged("[]", "start", json!({})).is_err());
    }

    #[test]
    fn a_group_has_the_documented_keys() {
        let group = GroupResult {
            samples: 30,
            measured: BTreeMap::from([(
                "bwrap".to_owned(),
                Measured {
                    median: 6.4321,
                    min: 5.0,
                },
            )]),
            ratios: BTreeMap::from([("run_over_bwrap".to_owned(), 1.5)]),
            versions: BTreeMap::new(),
            steps: BTreeMap::new(),
            absent: BTreeMap::new(),
            figures: BTreeMap::new(),
        };
        let json = group.to_json(1000);
        assert_eq!(json["samples"], 30);
        assert_eq!(json["median_ms"]["bwrap"], 6.432);
        assert_eq!(json["min_ms"]["bwrap"], 5.0);
        assert_eq!(json["ratios"]["run_over_bwrap"], 1.5);
        assert_eq!(json["uid"], "1000");
        assert!(json["kernel"].is_string() && json["commit"].is_string());
    }
}
