//! From text to [`Document`]: every key known, every value checked, every message at its place.
//!
//! **Trust:** reads a file of an untrusted workspace.
use super::{
    Approvals, At, AuditLevel, AuditSection, Budget, CommandLists, Decided, Document, EnvSection, FsSection, GitSection,
    Group, Limits, Mode, NetDefault, NetSection, Notes, OnExceed, OnTimeout, Reference, Secret, Section, TestCase,
};
use crate::commands::{List, check_exec_rule, check_tool_rule};
use crate::host::HostPattern;
use crate::json::{Diagnostic, Member, Node, Source, Span, Value, read as read_json};
use crate::netrule::{NetRule, NetTarget};
use crate::pathrule::{Globs, PathRule};
use crate::query::Query;
use crate::text::nearest;
use crate::units;
use bastle_contract::{Code, EnvName, LimitKind};
use std::collections::HashSet;

/// Largest document: a person wrote it, and its longest list has 512 entries.
const MAX_BYTES: usize = 64 * 1024;

/// Longest list.
const MAX_ITEMS: usize = 512;

/// Longest string, in characters.
const MAX_TEXT: usize = 1024;

/// Most `tests` and most `extends`.
const MAX_TESTS: usize = 200;
const MAX_EXTENDS: usize = 10;

/// Who wrote the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// Anybody.
    Person,
    /// Part of bastle.
    Bastle,
}

pub(super) fn document(name: &str, bytes: &[u8], author: Author) -> Result<Document, Vec<Diagnostic>> {
    let text = checked_text(name, bytes).map_err(|d| vec![d])?;
    let source = Source::new(name, text);
    let root = read_json(&source).map_err(|d| vec![d])?;
    let mut reader = Reader { source: &source, faults: Vec::new(), notes: Vec::new() };
    let mut document = reader.root(&root, author);
    if reader.faults.is_empty() {
        document.notes = Notes(reader.notes);
        Ok(document)
    } else {
        Err(reader.faults)
    }
}

fn checked_text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Diagnostic> {
    let nowhere = Source::new(name, "");
    let fault = |message: String| nowhere.diagnostic(Code::PolicySyntax, Span::default(), message);
    if bytes.len() > MAX_BYTES {
        return Err(fault(format!("the file has {} bytes; at most {MAX_BYTES} are accepted", bytes.len())));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(fault("the file starts with a byte-order mark; save it as plain UTF-8".to_owned()));
    }
    std::str::from_utf8(bytes).map_err(|e| {
        let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
        let at = Span { start: good.len(), end: good.len() };
        Source::new(name, good).diagnostic(Code::PolicySyntax, at, "the file is not UTF-8 from here on")
    })
}

struct Reader<'s> {
    source: &'s Source<'s>,
    faults: Vec<Diagnostic>,
    notes: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn fault(&mut self, span: Span, message: impl Into<String>) {
        // A file that is wrong everywhere is told about in one screen.
        if self.faults.len() < 50 {
            self.faults.push(self.source.diagnostic(Code::PolicySchema, span, message));
        }
    }

    fn fault_with_help(&mut self, span: Span, message: String, help: Option<String>) {
        self.fault(span, message);
        if let (Some(last), Some(help)) = (self.faults.pop(), help) {
            self.faults.push(last.help(help));
        }
    }

    fn at<T>(&self, span: Span, value: T) -> At<T> {
        let (line, column) = self.source.place(span.start);
        At { value, line, column }
    }

    fn wrong(&mut self, node: &Node, expected: &str) {
        self.fault(node.span, format!("expected {expected}, found {}", node.value.kind()));
    }

    /// The members of an object whose keys are all in `known`.
    fn members<'n>(&mut self, node: &'n Node, known: &[&str]) -> &'n [Member] {
        let Value::Object(members) = &node.value else {
            self.wrong(node, "an object");
            return &[];
        };
        for member in members.iter().filter(|m| !known.contains(&m.key.as_str())) {
            let help = nearest(&member.key, known.iter().copied()).map(|near| format!("did you mean {near:?}?"));
            let all = format!("known keys: {}", known.join(", "));
            self.fault_with_help(member.key_span, format!("unknown key {:?}", member.key), Some(help.unwrap_or(all)));
        }
        members
    }

    fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
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

    fn items<'n>(&mut self, node: &'n Node, most: usize) -> &'n [Node] {
        match &node.value {
            Value::Array(items) if items.len() > most => {
                self.fault(node.span, format!("{} entries; at most {most} are accepted", items.len()));
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
    fn list<T: PartialEq>(
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

    fn choice<T: Copy>(&mut self, node: &Node, choices: &[(&str, T)]) -> Option<At<T>> {
        let text = self.text(node)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(self.at(node.span, *value));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let help = nearest(text, names.iter().copied()).map(|near| format!("did you mean {near:?}?"));
        self.fault_with_help(node.span, format!("{text:?} is not one of {}", names.join(", ")), help);
        None
    }

    fn number(&mut self, node: &Node) -> Option<f64> {
        match node.value {
            Value::Number(number) => Some(number),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(node, "a number");
                None
            }
        }
    }

    fn whole(&mut self, node: &Node) -> Option<At<u64>> {
        let number = self.number(node)?;
        // 2^53: beyond it two different numbers are read as one.
        if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range, see above")]
            let value = number as u64;
            return Some(self.at(node.span, value));
        }
        self.fault(node.span, "expected a whole number of 0 or more");
        None
    }

    fn root(&mut self, node: &Node, author: Author) -> Document {
        const KNOWN: &[&str] = &[
            "$schema", "version", "extends", "mode", "lock", "fs", "net", "exec", "tools", "env", "secrets", "git", "limits",
            "budget", "approvals", "audit", "tests", "system",
        ];
        let known = match author {
            Author::Bastle => KNOWN,
            Author::Person => &KNOWN[..KNOWN.len() - 1],
        };
        let mut document = Document::default();
        let members = self.members(node, known);
        if matches!(node.value, Value::Object(_)) && !members.iter().any(|m| m.key == "version") {
            let start = Span { start: node.span.start, end: node.span.start + 1 };
            self.fault_with_help(start, "\"version\" is missing".to_owned(), Some("add \"version\": 1".to_owned()));
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

    fn section(&mut self, document: &mut Document, key: &str, value: &Node) {
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
                let modes = [("enforce", Mode::Enforce), ("audit", Mode::Audit), ("learn", Mode::Learn)];
                document.mode = self.choice(value, &modes);
            }
            "lock" => document.lock = self.lock(value),
            "system" => document.system = self.system(value),
            "fs" => document.fs = self.fs(value),
            "net" => document.net = self.net(value),
            "exec" => document.exec = self.commands(value, check_exec_rule),
            "tools" => document.tools = self.commands(value, check_tool_rule),
            "env" => document.env = self.env(value),
            "secrets" => document.secrets = self.secrets(value),
            "git" => document.git = self.git(value),
            "limits" => document.limits = self.limits(value),
            "budget" => document.budget = self.budget(value),
            "approvals" => document.approvals = self.approvals(value),
            "audit" => document.audit = self.audit(value),
            "tests" => document.tests = self.tests(value),
            _ => {}
        }
    }

    fn extends(&mut self, node: &Node) -> Vec<At<Reference>> {
        let mut found = Vec::new();
        for item in self.items(node, MAX_EXTENDS) {
            let Some(text) = self.text(item) else { continue };
            match reference(text) {
                Some(reference) => found.push(self.at(item.span, reference)),
                None => self.fault(item.span, format!("{text:?} is not preset:NAME[@VERSION] or group:NAME[@VERSION]")),
            }
        }
        found
    }

    fn lock(&mut self, node: &Node) -> Vec<At<Section>> {
        let sections = [
            ("fs", Section::Fs),
            ("net", Section::Net),
            ("exec", Section::Exec),
            ("tools", Section::Tools),
            ("git", Section::Git),
            ("limits", Section::Limits),
        ];
        let items = self.items(node, MAX_ITEMS);
        items.iter().filter_map(|item| self.choice(item, &sections)).collect()
    }

    fn paths(&mut self, node: &Node, globs: Globs) -> Vec<At<PathRule>> {
        self.list(node, |reader, item, text| match PathRule::read(text, globs) {
            Ok(read) => {
                if let Some(note) = read.note {
                    reader.notes.push(reader.source.diagnostic(Code::PolicySchema, item.span, note));
                }
                Some(read.rule)
            }
            Err(why) => {
                reader.fault(item.span, format!("path {text:?}: {why}"));
                None
            }
        })
    }

    fn system(&mut self, node: &Node) -> Vec<At<PathRule>> {
        let members = self.members(node, &["read"]);
        members.iter().flat_map(|m| self.paths(&m.value, Globs::Refused)).collect()
    }

    fn fs(&mut self, node: &Node) -> FsSection {
        let mut fs = FsSection::default();
        for Member { key, value, .. } in self.members(node, &["read", "write", "hide", "protect"]) {
            match key.as_str() {
                "read" => fs.read = Some(self.paths(value, Globs::Refused)),
                "write" => fs.write = Some(self.paths(value, Globs::Refused)),
                "hide" => fs.hide = self.paths(value, Globs::Taken),
                "protect" => fs.protect = self.paths(value, Globs::Taken),
                _ => {}
            }
        }
        fs
    }

    fn net_rules(&mut self, node: &Node) -> Vec<At<NetRule>> {
        self.list(node, |reader, item, text| match NetRule::new(text) {
            Ok(rule) => Some(rule),
            Err(why) => {
                reader.fault(item.span, format!("network rule {text:?}: {why}"));
                None
            }
        })
    }

    fn net_allow(&mut self, node: &Node) -> Vec<At<NetRule>> {
        let rules = self.net_rules(node);
        for rule in &rules {
            let NetTarget::Host(pattern) = &rule.value.target else { continue };
            if pattern.host().is_forbidden() {
                let message = format!("{} names this machine or a metadata service and cannot be allowed", rule.value);
                self.fault(node.span, message);
            }
        }
        rules
    }

    /// IP addresses in rules, when the document does not say `ipLiterals: true`.
    fn refuse_literals(&mut self, root: &Node) {
        let lists = child(root, "net").into_iter().flat_map(|net| ["allow", "ask"].map(|list| child(net, list)));
        let items: Vec<&Node> = lists.flatten().flat_map(elements).collect();
        for item in items {
            let Value::String(text) = &item.value else { continue };
            let literal = NetRule::new(text)
                .is_ok_and(|rule| matches!(&rule.target, NetTarget::Host(pattern) if pattern.host().is_literal()));
            if literal {
                let help = Some("set net.ipLiterals to true to name addresses".to_owned());
                self.fault_with_help(item.span, format!("{text:?} is an IP address"), help);
            }
        }
    }

    fn ports(&mut self, node: &Node) -> Vec<At<u16>> {
        let items = self.items(node, MAX_ITEMS);
        let mut ports = Vec::new();
        for item in items {
            let Some(number) = self.whole(item) else { continue };
            match u16::try_from(number.value) {
                Ok(port) if port > 0 => ports.push(self.at(item.span, port)),
                Ok(_) | Err(_) => self.fault(item.span, "a port lies between 1 and 65535"),
            }
        }
        ports
    }

    fn net(&mut self, node: &Node) -> NetSection {
        let mut net = NetSection::default();
        let known = ["default", "allow", "ask", "deny", "ipLiterals", "ports", "listen"];
        for Member { key, value, .. } in self.members(node, &known) {
            match key.as_str() {
                "default" => {
                    net.default = self.choice(value, &[("deny", NetDefault::Deny), ("ask", NetDefault::Ask)]);
                }
                "allow" => net.allow = Some(self.net_allow(value)),
                "ask" => net.ask = self.net_rules(value),
                "deny" => net.deny = self.net_rules(value),
                "ipLiterals" => match value.value {
                    Value::Bool(flag) => net.ip_literals = Some(self.at(value.span, flag)),
                    _ => self.wrong(value, "true or false"),
                },
                "ports" => net.ports = Some(self.ports(value)),
                "listen" => net.listen = Some(self.ports(value)),
                _ => {}
            }
        }
        net
    }

    fn strings(&mut self, node: &Node) -> Vec<At<String>> {
        self.list(node, |_, _, text| Some(text.to_owned()))
    }

    fn commands(&mut self, node: &Node, check: fn(&str, List) -> Result<(), crate::commands::RuleFault>) -> CommandLists {
        let mut lists = CommandLists::default();
        for Member { key, value, .. } in self.members(node, &["allow", "ask", "deny"]) {
            let which = match key.as_str() {
                "allow" => List::Allow,
                "ask" => List::Ask,
                _ => List::Deny,
            };
            let rules = self.list(value, |reader, item, text| match check(text, which) {
                Ok(()) => Some(text.to_owned()),
                Err(why) => {
                    let mut found = reader.source.diagnostic(why.code, item.span, format!("rule {text:?}: {}", why.message));
                    if why.code == Code::PolicyCommandRule {
                        found = found.help("name the commands, e.g. \"cargo test *\"");
                    }
                    reader.faults.push(found);
                    None
                }
            });
            match key.as_str() {
                "allow" => lists.allow = Some(rules),
                "ask" => lists.ask = rules,
                "deny" => lists.deny = rules,
                _ => {}
            }
        }
        lists
    }

    fn env_name(&mut self, span: Span, text: &str) -> Option<EnvName> {
        match EnvName::try_from(text.to_owned()) {
            Ok(name) => Some(name),
            Err(why) => {
                self.fault(span, why.to_string());
                None
            }
        }
    }

    fn env(&mut self, node: &Node) -> EnvSection {
        let mut env = EnvSection::default();
        for Member { key, value, .. } in self.members(node, &["pass", "set"]) {
            match (key.as_str(), &value.value) {
                ("pass", _) => env.pass = Some(self.list(value, |r, item, text| r.env_name(item.span, text))),
                ("set", Value::Object(members)) => {
                    for member in members {
                        let Value::String(text) = &member.value.value else {
                            self.wrong(&member.value, "a string");
                            continue;
                        };
                        if text.contains('\0') {
                            self.fault(member.value.span, "a variable's value has no NUL byte");
                        }
                        if let Some(name) = self.env_name(member.key_span, &member.key) {
                            env.set.push((self.at(member.key_span, name), text.clone()));
                        }
                    }
                }
                ("set", _) => self.wrong(value, "an object"),
                _ => {}
            }
        }
        env
    }

    fn secrets(&mut self, node: &Node) -> Vec<At<Secret>> {
        let mut secrets = Vec::new();
        for item in self.items(node, MAX_ITEMS) {
            if let Some(secret) = self.secret(item) {
                secrets.push(self.at(item.span, secret));
            }
        }
        secrets
    }

    fn secret(&mut self, node: &Node) -> Option<Secret> {
        let members = self.members(node, &["name", "from", "hosts", "methods"]);
        let (mut name, mut from, mut hosts, mut methods) = (None, None, None, Vec::new());
        for Member { key, value, .. } in members {
            match key.as_str() {
                "name" => {
                    let text = self.text(value)?;
                    if text.bytes().any(|b| b.is_ascii_lowercase()) {
                        self.fault(value.span, "a secret's name is upper case");
                    }
                    name = self.env_name(value.span, text);
                }
                "from" => from = self.text(value).map(str::to_owned),
                "hosts" => hosts = Some(self.list(value, host_pattern).into_iter().map(|at| at.value).collect()),
                "methods" => methods = self.list(value, method).into_iter().map(|at| at.value).collect(),
                _ => {}
            }
        }
        match (name, from, hosts) {
            (Some(name), Some(from), Some(hosts)) => Some(Secret { name, from, hosts, methods }),
            (name, from, hosts) => {
                let missing = [("name", name.is_none()), ("from", from.is_none()), ("hosts", hosts.is_none())];
                let names: Vec<&str> = missing.iter().filter(|(_, gone)| *gone).map(|(n, _)| *n).collect();
                self.fault(node.span, format!("a secret needs {}", names.join(", ")));
                None
            }
        }
    }

    fn decided(&mut self, node: &Node) -> Option<At<Decided>> {
        self.choice(node, &[("allow", Decided::Allow), ("ask", Decided::Ask), ("deny", Decided::Deny)])
    }

    fn git(&mut self, node: &Node) -> GitSection {
        let mut git = GitSection::default();
        for Member { key, value, .. } in self.members(node, &["push", "forcePush", "branches", "remotes"]) {
            match key.as_str() {
                "push" => git.push = self.decided(value),
                "forcePush" => git.force_push = self.decided(value),
                "branches" => git.branches = Some(self.strings(value)),
                "remotes" => git.remotes = Some(self.strings(value)),
                _ => {}
            }
        }
        git
    }

    fn unit(&mut self, node: &Node, read: fn(&str) -> Option<u64>, example: &str) -> Option<At<u64>> {
        let text = self.text(node)?;
        if let Some(value) = read(text) {
            return Some(self.at(node.span, value));
        }
        self.fault(node.span, format!("{text:?} is not understood; write it like {example}"));
        None
    }

    fn limits(&mut self, node: &Node) -> Limits {
        let names = LimitKind::ALL.map(LimitKind::name);
        let mut limits = Vec::new();
        for Member { key, value, .. } in self.members(node, &names) {
            let Some(kind) = LimitKind::ALL.into_iter().find(|kind| kind.name() == key) else { continue };
            let read = match kind {
                LimitKind::WallTime => self.unit(value, units::duration, "\"30m\""),
                LimitKind::CpuTime => self.unit(value, units::duration, "\"10m\"").map(|at| At { value: at.value.div_ceil(1000), ..at }),
                LimitKind::Cpu => self.cpu(value),
                LimitKind::Memory | LimitKind::Disk | LimitKind::BytesWritten | LimitKind::Output => {
                    self.unit(value, units::size, "\"4GiB\"")
                }
                LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => self.whole(value),
            };
            limits.extend(read.map(|at| (kind, at)));
        }
        limits.sort_by_key(|(kind, _)| *kind);
        Limits(limits)
    }

    fn cpu(&mut self, node: &Node) -> Option<At<u64>> {
        let number = self.number(node)?;
        let thousandths = (number * 1000.0).ceil();
        if number > 0.0 && thousandths <= 1e12 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and in range, see above")]
            let value = thousandths as u64;
            return Some(self.at(node.span, value));
        }
        self.fault(node.span, "expected a number of processors above 0, e.g. 1.5");
        None
    }

    fn budget(&mut self, node: &Node) -> Budget {
        let mut budget = Budget::default();
        for Member { key, value, .. } in self.members(node, &["usd", "tokens", "turns", "onExceed"]) {
            match key.as_str() {
                "usd" => match self.number(value) {
                    Some(usd) if usd >= 0.0 => budget.usd = Some(self.at(value.span, usd)),
                    Some(_) => self.fault(value.span, "a budget is 0 or more"),
                    None => {}
                },
                "tokens" => budget.tokens = self.whole(value),
                "turns" => budget.turns = self.whole(value),
                "onExceed" => {
                    budget.on_exceed = self.choice(value, &[("pause", OnExceed::Pause), ("stop", OnExceed::Stop)]);
                }
                _ => {}
            }
        }
        budget
    }

    fn approvals(&mut self, node: &Node) -> Approvals {
        let mut approvals = Approvals::default();
        for Member { key, value, .. } in self.members(node, &["timeout", "onTimeout", "reviewers"]) {
            match key.as_str() {
                "timeout" => approvals.timeout = self.unit(value, units::duration, "\"15m\""),
                "onTimeout" => {
                    approvals.on_timeout = self.choice(value, &[("deny", OnTimeout::Deny), ("pause", OnTimeout::Pause)]);
                }
                "reviewers" => approvals.reviewers = self.strings(value),
                _ => {}
            }
        }
        approvals
    }

    fn audit(&mut self, node: &Node) -> AuditSection {
        let mut audit = AuditSection::default();
        for Member { key, value, .. } in self.members(node, &["level", "redact"]) {
            match key.as_str() {
                "level" => {
                    audit.level = self.choice(value, &[("metadata", AuditLevel::Metadata), ("full", AuditLevel::Full)]);
                }
                "redact" => audit.redact = self.strings(value),
                _ => {}
            }
        }
        audit
    }

    fn tests(&mut self, node: &Node) -> Vec<At<TestCase>> {
        let mut tests = Vec::new();
        for item in self.items(node, MAX_TESTS) {
            let (mut can, mut is) = (None, None);
            for Member { key, value, .. } in self.members(item, &["can", "is"]) {
                match key.as_str() {
                    "can" => can = self.question(value),
                    "is" => is = self.decided(value),
                    _ => {}
                }
            }
            match (can, is) {
                (Some(can), Some(is)) => tests.push(self.at(item.span, TestCase { can, is: is.value })),
                _ => self.fault(item.span, "a test needs \"can\" and \"is\""),
            }
        }
        tests
    }

    fn question(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        match Query::check(text) {
            Ok(()) => Some(text.to_owned()),
            Err(why) => {
                self.fault(node.span, why);
                None
            }
        }
    }
}

fn host_pattern(reader: &mut Reader<'_>, item: &Node, text: &str) -> Option<HostPattern> {
    match HostPattern::new(text) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            reader.fault(item.span, why.to_string());
            None
        }
    }
}

fn method(reader: &mut Reader<'_>, item: &Node, text: &str) -> Option<String> {
    if text.len() <= 20 && text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Some(text.to_owned());
    }
    reader.fault(item.span, format!("{text:?} is not a method such as GET"));
    None
}

fn child<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Object(members) => members.iter().find(|m| m.key == key).map(|m| &m.value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

fn elements(node: &Node) -> &[Node] {
    match &node.value {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => &[],
    }
}

fn reference(text: &str) -> Option<Reference> {
    let (kind, rest) = text.split_once(':')?;
    let (name, version) = match rest.split_once('@') {
        Some((name, version)) => {
            let plain = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
            (name, Some(version.parse::<u32>().ok().filter(|_| plain)?))
        }
        None => (rest, None),
    };
    let fits = !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    match kind {
        "preset" if fits => Some(Reference::Preset(name.to_owned(), version)),
        "group" if fits => Some(Reference::Group(Group { name: name.to_owned(), version })),
        _ => None,
    }
}
