//! From text to [`Document`]: every key known, every value checked, every message at its place.
//!
//! **Trust:** reads a file of an untrusted workspace.
use super::{At, Document, Mode, Notes};
use crate::caches::CacheMerge;
use crate::commands::{check_exec_rule, check_tool_rule};
use crate::json::{Diagnostic, Member, Node, Source, Span, Value, read as read_json};
use crate::text::nearest;
use bastle_contract::Code;
use std::collections::HashSet;

/// Largest document: a person wrote it, and its longest list has 512 entries.
const MAX_BYTES: usize = 64 * 1024;

/// Longest list.
pub(crate) const MAX_ITEMS: usize = 512;

/// Longest string, in characters.
const MAX_TEXT: usize = 1024;

/// Who wrote the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// Anybody.
    Person,
    /// Part of bastle, or a preset that the operator keeps.
    Bastle,
}

pub(crate) fn document(name: &str, bytes: &[u8], author: Author) -> Result<Document, Vec<Diagnostic>> {
    let text = checked_text(name, bytes).map_err(|d| vec![d])?;
    let source = Source::new(name, text);
    let root = read_json(&source).map_err(|d| vec![d])?;
    let mut reader = Reader {
        source: &source,
        faults: Vec::new(),
        notes: Vec::new(),
    };
    let mut document = reader.root(&root, author);
    if reader.faults.is_empty() {
        document.notes = Notes(reader.notes);
        Ok(document)
    } else {
        Err(reader.faults)
    }
}

pub(crate) fn checked_text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Diagnostic> {
    let nowhere = Source::new(name, "");
    let fault = |message: String| nowhere.diagnostic(Code::PolicySyntax, Span::default(), message);
    if bytes.len() > MAX_BYTES {
        return Err(fault(format!(
            "the file has {} bytes; at most {MAX_BYTES} are accepted",
            bytes.len()
        )));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
    {
        return Err(fault(
            "the file starts with a byte-order mark; save it as plain UTF-8".to_owned(),
        ));
    }
    std::str::from_utf8(bytes).map_err(|e| {
        let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
        let at = Span {
            start: good.len(),
            end: good.len(),
        };
        Source::new(name, good).diagnostic(Code::PolicySyntax, at, "the file is not UTF-8 from here on")
    })
}

/// Reads one document and collects what is wrong with it.
pub(crate) struct Reader<'s> {
    pub(crate) source: &'s Source<'s>,
    pub(crate) faults: Vec<Diagnostic>,
    pub(crate) notes: Vec<Diagnostic>,
}

impl Reader<'_> {
    pub(crate) fn fault(&mut self, span: Span, message: impl Into<String>) {
        // A file that is wrong everywhere is told about in one screen.
        if self.faults.len() < 50 {
            self.faults
                .push(self.source.diagnostic(Code::PolicySchema, span, message));
        }
    }

    pub(crate) fn fault_with_help(&mut self, span: Span, message: String, help: Option<String>) {
        let known = self.faults.len();
        self.fault(span, message);
        if let (Some(last), Some(help)) = (self.faults.get_mut(known), help) {
            last.help.push(help);
        }
    }

    pub(crate) fn at<T>(&self, span: Span, value: T) -> At<T> {
        let (line, column) = self.source.place(span.start);
        At { value, line, column }
    }

    pub(crate) fn wrong(&mut self, node: &Node, expected: &str) {
        self.fault(
            node.span,
            format!("expected {expected}, found {}", node.value.kind()),
        );
    }

    /// The members of an object whose keys are all in `known`.
    pub(crate) fn members<'n>(&mut self, node: &'n Node, known: &[&str]) -> &'n [Member] {
        let Value::Object(members) = &node.value else {
            self.wrong(node, "an object");
            return &[];
        };
        for member in members.iter().filter(|m| !known.contains(&m.key.as_str())) {
            let help =
                nearest(&member.key, known.iter().copied()).map(|near| format!("did you mean {near:?}?"));
            let all = format!("known keys: {}", known.join(", "));
            self.fault_with_help(
                member.key_span,
                format!("unknown key {:?}", member.key),
                Some(help.unwrap_or(all)),
            );
        }
        members
    }

    pub(crate) fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::String(text) if text.is_empty() => {
                self.fault(node.span, "an empty string says nothing here");
                None
            }
            Value::String(text) if text.chars().count() > MAX_TEXT => {
                self.fault(node.span, format!("longer than {MAX_TEXT} characters"));
                None
            }
            Value::String(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(node, "a string");
                None
            }
        }
    }

    pub(crate) fn items<'n>(&mut self, node: &'n Node, most: usize) -> &'n [Node] {
        match &node.value {
            Value::Array(items) if items.len() > most => {
                self.fault(
                    node.span,
                    format!("{} entries; at most {most} are accepted", items.len()),
                );
                &[]
            }
            Value::Array(items) => items,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.wrong(node, "a list");
                &[]
            }
        }
    }

    /// A list of distinct strings, each taken by `take`; entries that say the same are kept once.
    pub(crate) fn list<T: PartialEq>(
        &mut self,
        node: &Node,
        mut take: impl FnMut(&mut Self, &Node, &str) -> Option<T>,
    ) -> Vec<At<T>> {
        let mut seen = HashSet::new();
        let mut taken: Vec<At<T>> = Vec::new();
        for item in self.items(node, MAX_ITEMS) {
            let Some(text) = self.text(item) else { continue };
            if !seen.insert(text) {
                self.fault(item.span, format!("{text:?} is listed twice"));
                continue;
            }
            if let Some(value) = take(self, item, text) {
                let entry = self.at(item.span, value);
                if !taken.contains(&entry) {
                    taken.push(entry);
                }
            }
        }
        taken
    }

    pub(crate) fn choice<T: Copy>(&mut self, node: &Node, choices: &[(&str, T)]) -> Option<At<T>> {
        let text = self.text(node)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(self.at(node.span, *value));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let help = nearest(text, names.iter().copied()).map(|near| format!("did you mean {near:?}?"));
        self.fault_with_help(
            node.span,
            format!("{text:?} is not one of {}", names.join(", ")),
            help,
        );
        None
    }

    pub(crate) fn number(&mut self, node: &Node) -> Option<f64> {
        match node.value {
            Value::Number(number) => Some(number),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(node, "a number");
                None
            }
        }
    }

    pub(crate) fn whole(&mut self, node: &Node) -> Option<At<u64>> {
        let number = self.number(node)?;
        // 2^53: beyond it two different numbers are read as one.
        if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and in range, see above"
            )]
            let value = number as u64;
            return Some(self.at(node.span, value));
        }
        self.fault(node.span, "expected a whole number of 0 or more");
        None
    }

    pub(crate) fn root(&mut self, node: &Node, author: Author) -> Document {
        const KNOWN: &[&str] = &[
            "$schema",
            "version",
            "extends",
            "mode",
            "minLandlockAbi",
            "lock",
            "fs",
            "net",
            "exec",
            "tools",
            "env",
            "secrets",
            "git",
            "limits",
            "cache",
            "cacheMerge",
            "budget",
            "approvals",
            "audit",
            "tests",
            "system",
            "agent",
        ];
        let known = match author {
            Author::Bastle => KNOWN,
            Author::Person => &KNOWN[..KNOWN.len() - 2],
        };
        let mut document = Document::default();
        let members = self.members(node, known);
        if matches!(node.value, Value::Object(_)) && !members.iter().any(|m| m.key == "version") {
            let start = Span {
                start: node.span.start,
                end: node.span.start + 1,
            };
            self.fault_with_help(
                start,
                "\"version\" is missing".to_owned(),
                Some("add \"version\": 1".to_owned()),
            );
        }
        for Member { key, value, .. } in members {
            self.section(&mut document, key, value);
        }
        let literals = document.net.ip_literals.as_ref().is_some_and(|at| at.value);
        if !literals {
            self.refuse_literals(node);
        }
        document
    }

    pub(crate) fn section(&mut self, document: &mut Document, key: &str, value: &Node) {
        match key {
            "$schema" => match &value.value {
                Value::String(text) => document.schema = Some(text.clone()),
                _ => self.wrong(value, "a string"),
            },
            "version" => match value.value {
                Value::Number(1.0) => {}
                _ => self.fault(value.span, "this build reads version 1 only"),
            },
            "extends" => document.extends = self.extends(value),
            "mode" => {
                let modes = [
                    ("enforce", Mode::Enforce),
                    ("audit", Mode::Audit),
                    ("learn", Mode::Learn),
                ];
                document.mode = self.choice(value, &modes);
            }
            "minLandlockAbi" => document.min_landlock_abi = self.landlock_abi(value),
            "lock" => document.lock = self.lock(value),
            "system" => document.system = self.system(value),
            "agent" => document.agent = Some(Box::new(self.agent(value))),
            "fs" => document.fs = self.fs(value),
            "net" => document.net = self.net(value),
            "exec" => document.exec = self.commands(value, check_exec_rule),
            "tools" => document.tools = self.commands(value, check_tool_rule),
            "env" => document.env = self.env(value),
            "secrets" => document.secrets = self.secrets(value),
            "git" => document.git = self.git(value),
            "limits" => document.limits = self.limits(value),
            "cache" => document.cache = self.caches(value),
            "cacheMerge" => {
                let choices = [("never", CacheMerge::Never), ("new-files", CacheMerge::NewFiles)];
                document.cache_merge = self.choice(value, &choices);
            }
            "budget" => document.budget = self.budget(value),
            "approvals" => document.approvals = self.approvals(value),
            "audit" => document.audit = self.audit(value),
            "tests" => document.tests = self.tests(value),
            _ => {}
        }
    }
}
