//! A living run, and words for what is done beside its agent.
use crate::agent::Agent;
use crate::support::{Background, Ended, Lab, Limit, bastle, run};
use std::process::Command;

/// A run in which commands are executed.
pub(crate) struct Living<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) agent: Agent<'a>,
}

impl<'a> Living<'a> {
    pub(crate) fn start(lab: &'a Lab) -> Self {
        Self::with(lab, &[])
    }

    pub(crate) fn with(lab: &'a Lab, flags: &[&str]) -> Self {
        let agent = Agent::with(lab, flags);
        Self { lab, agent }
    }

    /// `bastle VERB WORDS…` as the run's owner.
    pub(crate) fn bastle(&self, words: &[&str]) -> Command {
        let mut command = self.lab.command(bastle());
        command.args(words);
        command
    }

    /// The command line of `bastle exec FLAGS RUN -- COMMAND`.
    pub(crate) fn line(&self, flags: &[&str], command: &[&str]) -> Command {
        let mut line = self.bastle(&["exec"]);
        line.args(flags).arg(self.agent.name()).arg("--").args(command);
        line
    }

    /// Runs a command to its end.
    pub(crate) fn exec(&self, command: &[&str]) -> Ended {
        run(&mut self.line(&[], command), b"", Limit::HANG)
    }

    /// The same for a shell script.
    pub(crate) fn sh(&self, script: &str) -> Ended {
        self.exec(&["sh", "-c", script])
    }

    /// Attacks from a further command, one result each.
    pub(crate) fn attack(&self, attacks: &[&[&str]]) -> Vec<String> {
        let attacker = self.lab.attacker();
        let mut words = vec![attacker.to_str().expect("UTF-8"), "multi"];
        for attack in attacks {
            words.push(",");
            words.extend_from_slice(attack);
        }
        let ended = self.exec(&words);
        let lines: Vec<String> = ended.stdout.lines().map(str::to_owned).collect();
        assert_eq!(
            lines.len(),
            attacks.len(),
            "the attacker did not finish: {ended:?}"
        );
        lines
    }

    /// A command that goes on while the test does other things.
    pub(crate) fn background(&self, command: &[&str]) -> Background {
        Background::start(&mut self.line(&[], command))
    }
}

/// Fails where a printed object is not what its published schema says.
pub(crate) fn conforms(name: &str, value: &serde_json::Value) {
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let schema = std::fs::read_to_string(path).expect("a schema");
    let schema = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| error.to_string())
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?} in {value}");
}
