//! An agent's own sandbox, which cannot be built inside the fence: how a command line is kept from asking for it.
//!
//! **Trust:** what is known of an agent is data of its preset; the command line is the operator's own. Words are only
//! exchanged for words of the preset, and every exchange is told. The fence does not depend on any of it.
use super::{Agent, Way, pick};
use crate::document::read::Reader;
use crate::json::{Member, Node, Value as Written};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most switches of one kind.
const MOST: usize = 32;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inner {
    /// Switches with a value, and the value that means none: `--sandbox` → `danger-full-access`. Of a short one the value
    /// may follow at once.
    pub values: BTreeMap<String, String>,
    /// Switches before `KEY=VALUE`, and for each key the value that means none.
    pub pairs: BTreeMap<String, BTreeMap<String, String>>,
    /// Words that ask for it and are left out.
    pub drop: Vec<String>,
    /// Switches before settings as a JSON object, and what these must say. They are added where they are not there.
    pub settings: BTreeMap<String, Map<String, Value>>,
}

/// A command line without the agent's own sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switched {
    /// What is executed.
    pub argv: Vec<String>,
    /// What was exchanged, for people.
    pub told: Vec<String>,
}

/// One word, or two, as they are typed.
enum Found {
    /// Nothing to do.
    Other,
    /// As many words of the line are exchanged for these, or for none.
    Instead(usize, Vec<String>),
    /// Settings in a file, which is not looked into.
    File(String),
}

impl Inner {
    /// The command line with its own sandbox off; `None` where it is no command line of this agent, or fits as it is.
    #[must_use]
    pub fn switched(&self, agent: &Agent, argv: &[String]) -> Option<Switched> {
        let picked = pick(agent, argv)?;
        if picked.way != Way::Own {
            return None;
        }
        let program = picked.at;
        let (before, rest) = argv.split_at_checked(program + 1)?;
        // What follows is no switch any more.
        let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        let (mut after, mut told, mut at) = (Vec::new(), Vec::new(), 0);
        let mut named: Vec<&String> = Vec::new();
        while at < end {
            let words = &rest[at..end];
            named.extend(self.settings.keys().filter(|flag| is_flag(&words[0], flag)));
            match self.look(words) {
                Found::Other => {
                    after.push(words[0].clone());
                    at += 1;
                }
                Found::Instead(count, new) => {
                    let old = &words[..count];
                    if old != new {
                        told.push(exchange(old, &new));
                    }
                    after.extend(new);
                    at += count;
                }
                Found::File(file) => {
                    told.push(format!(
                        "whether {file} turns its own sandbox on is not known: commands would fail inside"
                    ));
                    after.push(words[0].clone());
                    at += 1;
                }
            }
        }
        let added = self
            .settings
            .iter()
            .filter(|(flag, _)| !named.contains(flag))
            .flat_map(|(flag, wanted)| [flag.clone(), Value::Object(wanted.clone()).to_string()]);
        let argv_now: Vec<String> = before
            .iter()
            .cloned()
            .chain(added)
            .chain(after)
            .chain(rest[end..].iter().cloned())
            .collect();
        (argv_now != argv || !told.is_empty()).then_some(Switched { argv: argv_now, told })
    }

    fn look(&self, words: &[String]) -> Found {
        let word = &words[0];
        if self.drop.contains(word) {
            return Found::Instead(1, Vec::new());
        }
        for (flag, off) in &self.values {
            if let Some((count, _)) = valued(words, flag) {
                return Found::Instead(count, respelt(word, flag, off));
            }
        }
        for (flag, keys) in &self.pairs {
            let Some((count, value)) = valued(words, flag) else {
                continue;
            };
            let key = value.split('=').next().unwrap_or_default().trim();
            if let Some(off) = keys.get(key) {
                return Found::Instead(count, respelt(word, flag, &format!("{key}={off}")));
            }
            // Not looked at again as a word of its own.
            return Found::Instead(count, words[..count].to_vec());
        }
        for (flag, wanted) in &self.settings {
            let Some((count, value)) = valued(words, flag) else {
                continue;
            };
            let Ok(mut said @ Value::Object(_)) = serde_json::from_str(value) else {
                return Found::File(format!("{flag} {value}"));
            };
            if super::filter::says(&said, wanted) {
                return Found::Instead(count, words[..count].to_vec());
            }
            super::filter::overlay(&mut said, wanted);
            return Found::Instead(count, respelt(word, flag, &said.to_string()));
        }
        Found::Other
    }
}

/// Whether a word is this switch, with its value or before it.
fn is_flag(word: &str, flag: &str) -> bool {
    word.strip_prefix(flag)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || is_short(flag))
}

fn is_short(flag: &str) -> bool {
    flag.len() == 2 && !flag.starts_with("--")
}

/// How many words a switch and its value are, and the value.
fn valued<'w>(words: &'w [String], flag: &str) -> Option<(usize, &'w str)> {
    let first = words.first()?;
    if !is_flag(first, flag) {
        return None;
    }
    match first.strip_prefix(flag)? {
        "" => words.get(1).map(|value| (2, value.as_str())),
        joined => Some((1, joined.strip_prefix('=').unwrap_or(joined))),
    }
}

/// A switch with another value, in as many words as before.
fn respelt(word: &str, flag: &str, value: &str) -> Vec<String> {
    if word == flag {
        return vec![flag.to_owned(), value.to_owned()];
    }
    let joint = if word.starts_with(&format!("{flag}=")) {
        "="
    } else {
        ""
    };
    vec![format!("{flag}{joint}{value}")]
}

fn exchange(old: &[String], new: &[String]) -> String {
    let old = old.join(" ");
    let became = if new.is_empty() {
        "is left out".to_owned()
    } else {
        format!("became {}", new.join(" "))
    };
    format!("{old} {became}: its own sandbox cannot be built inside, and the fence holds in its place")
}

impl Reader<'_> {
    /// The `inner` member of an agent.
    pub(super) fn inner(&mut self, node: &Node) -> Inner {
        let mut inner = Inner::default();
        for Member { key, value, .. } in self.members(node, &["values", "pairs", "drop", "settings"]) {
            match key.as_str() {
                "drop" => inner.drop = self.strings(value).into_iter().map(|at| at.value).collect(),
                "values" => inner.values = self.texts(value),
                "pairs" => {
                    for Member { key, value, .. } in self.switches(value) {
                        inner.pairs.insert(key.clone(), self.texts(value));
                    }
                }
                _ => {
                    for Member { key, value, .. } in self.switches(value) {
                        match super::read::plain(value) {
                            Value::Object(wanted) => {
                                inner.settings.insert(key.clone(), wanted);
                            }
                            _ => self.wrong(value, "an object"),
                        }
                    }
                }
            }
        }
        let flags = inner.values.keys().chain(inner.pairs.keys());
        let flags = flags.chain(inner.settings.keys()).chain(&inner.drop);
        if let Some(flag) = flags.into_iter().find(|flag| !flag.starts_with('-')) {
            self.fault(
                node.span,
                format!("{flag:?} is no switch: it does not begin with -"),
            );
        }
        inner
    }

    /// Members whose keys are not known here.
    fn switches<'n>(&mut self, node: &'n Node) -> &'n [Member] {
        match &node.value {
            Written::Object(members) if members.len() <= MOST => members,
            _ => {
                self.wrong(node, "an object with few members");
                &[]
            }
        }
    }

    /// The same with text.
    fn texts(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for Member { key, value, .. } in self.switches(node) {
            if let Some(text) = self.text(value) {
                texts.insert(key.clone(), text.to_owned());
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        let text = r#"{ "version": 1, "agent": { "title": "X", "programs": ["x"], "packages": ["@x/x"], "inner": {
            "values": { "--sandbox": "none", "-s": "none" },
            "pairs": { "-c": { "mode": "none" } },
            "drop": ["--auto"],
            "settings": { "--settings": { "sandbox": { "enabled": false } } } } } }"#;
        let layer = crate::read_preset("x", 1, text.as_bytes()).unwrap();
        *layer.document.agent.clone().unwrap()
    }

    fn switched(line: &[&str]) -> Option<(String, usize)> {
        let agent = agent();
        let argv: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let switched = agent.inner.switched(&agent, &argv)?;
        Some((switched.argv.join(" "), switched.told.len()))
    }

    #[test]
    fn no_spelling_of_its_switch_leaves_an_inner_sandbox_on_and_each_is_told() {
        let off = r#"--settings {"sandbox":{"enabled":false}}"#;
        for (line, told, became) in [
            (vec!["x", "--sandbox", "full"], 1, "--sandbox none"),
            (vec!["x", "--sandbox=full"], 1, "--sandbox=none"),
            (vec!["x", "-s", "full"], 1, "-s none"),
            (vec!["x", "-sfull"], 1, "-snone"),
            (vec!["x", "go", "-c", "mode=full"], 1, "go -c mode=none"),
            (vec!["x", "-cmode = full"], 1, "-cmode=none"),
            (vec!["x", "--auto", "go"], 1, "go"),
            (vec!["x", "--sandbox", "none"], 0, "--sandbox none"),
            // A value that looks like a switch is one no more.
            (vec!["x", "-c", "--auto"], 0, "-c --auto"),
            (vec!["x", "--", "--sandbox", "full"], 0, "-- --sandbox full"),
        ] {
            let (now, said) = switched(&line).unwrap();
            assert_eq!(now, format!("x {off} {became}"), "{line:?}");
            assert_eq!(said, told, "{line:?}");
        }
        let (now, said) = switched(&["env", "A=1", "x", "--settings", r#"{"a":1}"#]).unwrap();
        assert_eq!(now, r#"env A=1 x --settings {"a":1,"sandbox":{"enabled":false}}"#);
        assert_eq!(said, 1);
    }

    #[test]
    fn settings_in_a_file_are_told_of_and_what_fits_or_is_another_command_stays_as_it_is() {
        let file = switched(&["x", "--settings", "mine.json"]).unwrap();
        assert_eq!(file, ("x --settings mine.json".to_owned(), 1));
        let fits = r#"{"sandbox":{"enabled":false},"b":2}"#;
        assert_eq!(switched(&["x", "--settings", fits]), None);
        assert_eq!(switched(&["y", "--sandbox", "full"]), None);
        assert_eq!(switched(&["sh", "-c", "x --sandbox full"]), None);
    }

    #[test]
    fn a_preset_whose_switch_is_none_is_refused() {
        for inner in [
            r#"{ "values": { "sandbox": "none" } }"#,
            r#"{ "drop": ["exec"] }"#,
            r#"{ "settings": { "--settings": 1 } }"#,
            r#"{ "more": 1 }"#,
        ] {
            let text = format!(
                r#"{{ "version": 1, "agent": {{ "title": "X", "programs": ["x"], "inner": {inner} }} }}"#
            );
            assert!(crate::read_preset("x", 1, text.as_bytes()).is_err(), "{inner}");
        }
    }
}
