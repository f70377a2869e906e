//! The sections of a document, key by key.
use super::read::{MAX_ITEMS, Reader};
use super::{At, CommandLists, EnvSection, FsSection, Group, Reference, Section};
use crate::commands::List;
use crate::json::{Member, Node, Span, Value};
use crate::pathrule::{Globs, PathRule};
use bastle_contract::{Code, EnvName};

/// Most `extends`.
const MAX_EXTENDS: usize = 10;

impl Reader<'_> {
    pub(super) fn extends(&mut self, node: &Node) -> Vec<At<Reference>> {
        let mut found = Vec::new();
        for item in self.items(node, MAX_EXTENDS) {
            let Some(text) = self.text(item) else { continue };
            match reference(text) {
                Some(reference) => found.push(self.at(item.span, reference)),
                None => self.fault(
                    item.span,
                    format!("{text:?} is not preset:NAME[@VERSION] or group:NAME[@VERSION]"),
                ),
            }
        }
        found
    }

    pub(super) fn lock(&mut self, node: &Node) -> Vec<At<Section>> {
        let sections = [
            ("fs", Section::Fs),
            ("net", Section::Net),
            ("exec", Section::Exec),
            ("tools", Section::Tools),
            ("git", Section::Git),
            ("limits", Section::Limits),
        ];
        let items = self.items(node, MAX_ITEMS);
        items
            .iter()
            .filter_map(|item| self.choice(item, &sections))
            .collect()
    }

    pub(super) fn paths(&mut self, node: &Node, globs: Globs) -> Vec<At<PathRule>> {
        self.list(node, |reader, item, text| match PathRule::read(text, globs) {
            Ok(read) => {
                if let Some(note) = read.note {
                    reader
                        .notes
                        .push(reader.source.diagnostic(Code::PolicySchema, item.span, note));
                }
                Some(read.rule)
            }
            Err(why) => {
                reader.fault(item.span, format!("path {text:?}: {why}"));
                None
            }
        })
    }

    pub(super) fn system(&mut self, node: &Node) -> Vec<At<PathRule>> {
        let members = self.members(node, &["read"]);
        members
            .iter()
            .flat_map(|m| self.paths(&m.value, Globs::Refused))
            .collect()
    }

    pub(super) fn fs(&mut self, node: &Node) -> FsSection {
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

    pub(super) fn ports(&mut self, node: &Node) -> Vec<At<u16>> {
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

    pub(crate) fn strings(&mut self, node: &Node) -> Vec<At<String>> {
        self.list(node, |_, _, text| Some(text.to_owned()))
    }

    /// Names of the built-in table: a tool's cache is known by its places, so no other name means anything.
    pub(super) fn caches(&mut self, node: &Node) -> Vec<At<String>> {
        self.list(node, |reader, item, text| {
            if crate::caches::find(text).is_some() {
                return Some(text.to_owned());
            }
            let names = || crate::caches::all().iter().map(|cache| cache.name.as_str());
            let near = crate::text::nearest(text, names()).map(|near| format!("did you mean {near:?}?"));
            let all = format!("known caches: {}", names().collect::<Vec<_>>().join(", "));
            reader.fault_with_help(
                item.span,
                format!("there is no cache {text:?}"),
                Some(near.unwrap_or(all)),
            );
            None
        })
    }

    pub(crate) fn commands(
        &mut self,
        node: &Node,
        check: fn(&str, List) -> Result<(), crate::commands::RuleFault>,
    ) -> CommandLists {
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
                    let mut found = reader.source.diagnostic(
                        why.code,
                        item.span,
                        format!("rule {text:?}: {}", why.message),
                    );
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

    pub(crate) fn env_name(&mut self, span: Span, text: &str) -> Option<EnvName> {
        match EnvName::try_from(text.to_owned()) {
            Ok(name) => Some(name),
            Err(why) => {
                self.fault(span, why.to_string());
                None
            }
        }
    }

    pub(super) fn env(&mut self, node: &Node) -> EnvSection {
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
    let fits = !name.is_empty()
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    match kind {
        "preset" if fits => Some(Reference::Preset(name.to_owned(), version)),
        "group" if fits => Some(Reference::Group(Group {
            name: name.to_owned(),
            version,
        })),
        _ => None,
    }
}
