//! From text to [`Profile`]: every key known, every value checked, every message at its place.
//!
//! **Trust:** none in the bytes.
use super::argv::{MODEL, PROMPT};
use super::{
    DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_MS, DEFAULT_TURNS, MAX_TIMEOUT_MS, Profile, PromptBy, agents,
};
use crate::authority::AuthorityCeiling;
use crate::commands::check_tool_rule;
use crate::document::read::{Author, Reader, checked_text};
use crate::document::{CommandLists, Document};
use crate::json::{Diagnostic, Member, Node, Source, Span, Value, read as read_json};
use crate::units;
use bastle_contract::runs::DRIVERS;
use bastle_contract::{EnvName, LimitKind};
use std::ops::RangeInclusive;

const KNOWN: &[&str] = &[
    "$schema",
    "version",
    "name",
    "description",
    "agent",
    "command",
    "prompt",
    "driver",
    "driven",
    "tools",
    "skipPermissions",
    "timeout",
    "maxTurns",
    "model",
    "models",
    "concurrency",
    "preset",
    "policy",
    "env",
    "ceiling",
];

/// Most words of a command.
const MAX_WORDS: usize = 256;
/// Most models and variables.
const MAX_ENTRIES: usize = 64;

pub(super) fn profile(name: &str, bytes: &[u8]) -> Result<Profile, Vec<Diagnostic>> {
    let text = checked_text(name, bytes).map_err(|d| vec![d])?;
    let source = Source::new(name, text);
    let root = read_json(&source).map_err(|d| vec![d])?;
    let mut reader = Reader {
        source: &source,
        faults: Vec::new(),
        notes: Vec::new(),
    };
    let profile = reader.profile(&root);
    match profile {
        Some(profile) if reader.faults.is_empty() => Ok(profile),
        Some(_) => Err(reader.faults),
        None if reader.faults.is_empty() => Err(vec![source.diagnostic(
            bastle_contract::Code::PolicySchema,
            root.span,
            "this is no profile",
        )]),
        None => Err(reader.faults),
    }
}

/// A value without its places.
fn plain(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(is) => (*is).into(),
        Value::Number(number) => whole(*number).map_or_else(|| (*number).into(), Into::into),
        Value::String(text) => text.clone().into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => members
            .iter()
            .map(|member| (member.key.clone(), plain(&member.value)))
            .collect(),
    }
}

/// A whole number that every reader of JSON takes for the same.
fn whole(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and in range, see above"
    )]
    let whole = number as u64;
    fits.then_some(whole)
}

/// A profile whose name is not known yet.
fn blank() -> Profile {
    Profile {
        name: String::new(),
        description: None,
        agent: "shell".to_owned(),
        command: Vec::new(),
        prompt: PromptBy::Stdin,
        driver: None,
        driven: Vec::new(),
        tools: CommandLists::default(),
        timeout_ms: DEFAULT_TIMEOUT_MS,
        max_turns: DEFAULT_TURNS,
        model: None,
        models: Vec::new(),
        concurrency: DEFAULT_CONCURRENCY,
        preset: None,
        policy: Document::default(),
        env: Vec::new(),
        ceiling: AuthorityCeiling::default(),
    }
}

impl Reader<'_> {
    fn profile(&mut self, node: &Node) -> Option<Profile> {
        let members = self.members(node, KNOWN);
        if !matches!(node.value, Value::Object(_)) {
            return None;
        }
        let start = Span {
            start: node.span.start,
            end: node.span.start + 1,
        };
        for needed in ["version", "name"] {
            if !members.iter().any(|member| member.key == needed) {
                self.fault(start, format!("\"{needed}\" is missing"));
            }
        }
        let mut profile = blank();
        let mut prompt = None;
        for Member { key, value, .. } in members {
            match key.as_str() {
                "prompt" => {
                    let ways = [
                        ("stdin", PromptBy::Stdin),
                        ("argument", PromptBy::Argument),
                        ("none", PromptBy::None),
                    ];
                    prompt = self.choice(value, &ways).map(|at| at.value);
                }
                key => self.entry(&mut profile, key, value),
            }
        }
        let placed = profile.command.iter().any(|word| word == PROMPT);
        profile.prompt = prompt.unwrap_or(if placed {
            PromptBy::Argument
        } else {
            PromptBy::Stdin
        });
        let place = |key: &str| {
            members
                .iter()
                .find(|member| member.key == key)
                .map_or(start, |member| member.value.span)
        };
        self.agree(&mut profile, members, &place);
        Some(profile)
    }

    fn entry(&mut self, profile: &mut Profile, key: &str, value: &Node) {
        match key {
            "version" => match value.value {
                Value::Number(1.0) => {}
                _ => self.fault(value.span, "this build reads version 1 only"),
            },
            "name" => profile.name = self.name(value).unwrap_or_default(),
            "description" => profile.description = self.text(value).map(str::to_owned),
            "agent" => profile.agent = self.name(value).unwrap_or_default(),
            "command" => profile.command = self.words(value),
            "driver" => {
                let ways = DRIVERS.map(|name| (name, name));
                profile.driver = self.choice(value, &ways).map(|at| at.value.to_owned());
            }
            "driven" => profile.driven = self.words(value),
            "tools" => profile.tools = self.tools(value),
            "skipPermissions" => match value.value {
                Value::Bool(false) => {}
                _ => self.fault_with_help(
                    value.span,
                    "an agent's own questions are not skipped".to_owned(),
                    Some("leave it out, and allow tools by name in \"tools\"".to_owned()),
                ),
            },
            "timeout" => {
                if let Some(at) = self.unit(value, units::duration, "\"15m\"") {
                    self.within(value, at.value, 1000..=MAX_TIMEOUT_MS, "between 1s and 24h");
                    profile.timeout_ms = at.value;
                }
            }
            "maxTurns" => profile.max_turns = self.counted(value, 1..=1000),
            "concurrency" => profile.concurrency = self.counted(value, 1..=64),
            "model" => profile.model = self.model(value),
            "models" => {
                let items = self.items(value, MAX_ENTRIES);
                profile.models = items.iter().filter_map(|item| self.model(item)).collect();
            }
            "preset" => profile.preset = self.preset(value),
            "policy" => profile.policy = self.root(value, Author::Person),
            "env" => profile.env = self.variables(value),
            "ceiling" => profile.ceiling = self.ceiling(value),
            // `$schema` is for editors; anything else was refused with its key.
            _ => {}
        }
    }

    fn name(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let fits = text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'));
        if !fits {
            self.fault(node.span, format!("{text:?} is not [a-z0-9][a-z0-9._-]{{0,63}}"));
        }
        fits.then(|| text.to_owned())
    }

    fn words(&mut self, node: &Node) -> Vec<String> {
        let mut words = Vec::new();
        for item in self.items(node, MAX_WORDS) {
            let Some(word) = self.text(item) else { continue };
            if word.contains('\0') {
                self.fault(item.span, "a word of a command has no NUL byte");
            }
            // Inside another word the prompt could become part of a script or of a switch.
            for stand_in in [PROMPT, MODEL] {
                if word.contains(stand_in) && word != stand_in {
                    self.fault(
                        item.span,
                        format!("{stand_in} stands alone, as a word of its own"),
                    );
                }
            }
            words.push(word.to_owned());
        }
        if words.first().is_some_and(|word| word == PROMPT || word == MODEL) {
            self.fault(node.span, "a command begins with its program");
        }
        words
    }

    fn tools(&mut self, node: &Node) -> CommandLists {
        if let Value::Object(members) = &node.value {
            for member in members.iter().filter(|member| member.key == "ask") {
                self.fault(
                    member.key_span,
                    "tools of a profile are allowed or denied: a profile cannot ask a person",
                );
            }
        }
        let lists = self.commands(node, check_tool_rule);
        for rule in lists.allow.iter().flatten().chain(&lists.deny) {
            // It becomes a word of the agent's command line, where a dash makes a switch.
            if rule.value.starts_with('-') {
                self.fault(node.span, format!("{:?} is not the name of a tool", rule.value));
            }
        }
        lists
    }

    fn within(&mut self, node: &Node, value: u64, range: RangeInclusive<u64>, words: &str) -> bool {
        let fits = range.contains(&value);
        if !fits {
            self.fault(node.span, format!("it lies {words}"));
        }
        fits
    }

    fn counted(&mut self, node: &Node, range: RangeInclusive<u64>) -> u32 {
        let least = u32::try_from(*range.start()).unwrap_or(1);
        let Some(at) = self.whole(node) else { return least };
        let words = format!("between {} and {}", range.start(), range.end());
        if !self.within(node, at.value, range, &words) {
            return least;
        }
        u32::try_from(at.value).unwrap_or(least)
    }

    fn model(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let fits = text.len() <= 128
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| {
                b.is_ascii_alphanumeric()
                    || matches!(b, b'.' | b'_' | b':' | b'/' | b'@' | b'[' | b']' | b'-')
            });
        if !fits {
            self.fault(node.span, format!("{text:?} is not the name of a model"));
        }
        fits.then(|| text.to_owned())
    }

    fn preset(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        // Refuses the preset that the command would bring.
        if text == "none" {
            return Some(text.to_owned());
        }
        match crate::presets::preset(text) {
            Ok(_) => Some(text.to_owned()),
            Err(fault) => {
                self.fault_with_help(node.span, fault.what, fault.help.into_iter().next());
                None
            }
        }
    }

    fn ceiling(&mut self, node: &Node) -> AuthorityCeiling {
        let read = serde_json::from_value(plain(node)).map_err(|error| error.to_string());
        match read {
            Ok(ceiling) => ceiling,
            Err(why) => {
                self.fault(node.span, format!("ceiling: {why}"));
                AuthorityCeiling::default()
            }
        }
    }

    fn variables(&mut self, node: &Node) -> Vec<(EnvName, String)> {
        let Value::Object(members) = &node.value else {
            self.wrong(node, "an object");
            return Vec::new();
        };
        if members.len() > MAX_ENTRIES {
            self.fault(node.span, format!("at most {MAX_ENTRIES} variables are accepted"));
        }
        let mut variables = Vec::new();
        for member in members.iter().take(MAX_ENTRIES) {
            let Value::String(text) = &member.value.value else {
                self.wrong(&member.value, "a string");
                continue;
            };
            if text.contains('\0') || text.len() > 4096 {
                self.fault(
                    member.value.span,
                    "a variable's value has no NUL byte and at most 4096 bytes",
                );
            }
            if let Some(name) = self.env_name(member.key_span, &member.key) {
                variables.push((name, text.clone()));
            }
        }
        variables
    }

    /// What the entries must say together.
    fn agree(&mut self, profile: &mut Profile, members: &[Member], place: &dyn Fn(&str) -> Span) {
        let placed = profile.command.iter().filter(|word| *word == PROMPT).count();
        match (profile.prompt, placed) {
            (PromptBy::Argument, 1) | (PromptBy::Stdin | PromptBy::None, 0) => {}
            (PromptBy::Argument, _) => self.fault(
                place("command"),
                "a prompt that is an argument has exactly one {prompt} in the command",
            ),
            (PromptBy::Stdin | PromptBy::None, _) => self.fault(
                place("command"),
                format!(
                    "{{prompt}} has no meaning with \"prompt\": \"{}\"",
                    profile.prompt.word()
                ),
            ),
        }
        let agent = agents::find(&profile.agent);
        let skips = agent.map_or(&[][..], |agent| agent.skips);
        for (key, words) in [("command", &profile.command), ("driven", &profile.driven)] {
            if let Some(skip) = words.iter().find(|word| skips.contains(&word.as_str())) {
                self.fault_with_help(
                    place(key),
                    format!("{skip} makes {} act without asking", profile.agent),
                    Some("leave it out, and allow tools by name in \"tools\"".to_owned()),
                );
            }
        }
        self.agree_driven(profile, place);
        let takes_model = profile.command.iter().any(|word| word == MODEL)
            || agent.is_some_and(|agent| agent.model.is_some() && !profile.command.is_empty());
        if (profile.model.is_some() || !profile.models.is_empty()) && !takes_model {
            self.fault_with_help(
                place(if profile.model.is_some() {
                    "model"
                } else {
                    "models"
                }),
                format!("nothing is known of how {:?} takes a model", profile.agent),
                Some("put {model} into the command where its name belongs".to_owned()),
            );
        }
        if profile.command.iter().any(|word| word == MODEL) && profile.model.is_none() {
            self.fault(place("command"), "{model} needs a \"model\" to stand for");
        }
        let said = |key: &str| members.iter().any(|member| member.key == key);
        self.said_once(profile, place("policy"), &said);
    }

    /// Whoever is spoken to in a protocol gets the prompt there, and a command for it has to be there.
    fn agree_driven(&mut self, profile: &Profile, place: &dyn Fn(&str) -> Span) {
        if profile.driver.is_none() && !profile.driven.is_empty() {
            self.fault(place("driven"), "a command to be driven needs a \"driver\"");
        }
        if profile.driven.iter().any(|word| word == PROMPT) {
            self.fault(
                place("driven"),
                "a driven agent gets its prompt in its protocol, not as {prompt}",
            );
        }
        if profile.driven.iter().any(|word| word == MODEL) && profile.model.is_none() {
            self.fault(place("driven"), "{model} needs a \"model\" to stand for");
        }
        let by_argument = profile.driven.is_empty() && profile.prompt == PromptBy::Argument;
        if profile.driver.is_some() && by_argument {
            self.fault_with_help(
                place("driver"),
                "its command takes the prompt as an argument".to_owned(),
                Some("name the command of the protocol in \"driven\"".to_owned()),
            );
        }
    }

    /// Time, turns, tools and variables have a place in the profile and one in its policy: only one of them is used.
    fn said_once(&mut self, profile: &mut Profile, place: Span, said: &dyn Fn(&str) -> bool) {
        let time = profile
            .policy
            .limits
            .0
            .iter()
            .find(|(kind, _)| *kind == LimitKind::WallTime)
            .map(|(_, at)| at.value);
        match time {
            Some(_) if said("timeout") => {
                self.fault(place, "limits.timeout is said twice: here and as timeout")
            }
            Some(ms) if !(1000..=MAX_TIMEOUT_MS).contains(&ms) => {
                self.fault(place, "limits.timeout lies between 1s and 24h");
            }
            Some(ms) => profile.timeout_ms = ms,
            None => {}
        }
        match profile.policy.budget.turns.as_ref().map(|at| at.value) {
            Some(_) if said("maxTurns") => {
                self.fault(place, "budget.turns is said twice: here and as maxTurns")
            }
            Some(turns @ 1..=1000) => profile.max_turns = u32::try_from(turns).unwrap_or(DEFAULT_TURNS),
            Some(_) => self.fault(place, "budget.turns lies between 1 and 1000"),
            None => {}
        }
        profile.policy.budget.turns = None;
        let limits = &mut profile.policy.limits.0;
        limits.retain(|(kind, _)| *kind != LimitKind::WallTime);
        if profile.policy.tools != CommandLists::default() {
            self.fault(place, "tools belong into the profile itself, not into its policy");
        }
        let twice = profile
            .env
            .iter()
            .find(|(name, _)| profile.policy.env.set.iter().any(|(own, _)| own.value == *name));
        if let Some((name, _)) = twice {
            self.fault(place, format!("variable {} is set twice", name.as_str()));
        }
    }
}
