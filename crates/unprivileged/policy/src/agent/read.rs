//! Reading the `agent` section of a preset.
//!
//! **Trust:** presets are the operator's, but a file that is kept is checked like any other.
use super::{Agent, CopiedFile, Credential, MadeFile, Take, numbers};
use crate::document::read::Reader;
use crate::json::{Member, Node, Span, Value};
use crate::units;
use serde_json::Map;

/// Largest file that is copied, unless it says less.
const MOST_BYTES: u64 = 1 << 20;
/// Most files of a preset.
const MOST_FILES: usize = 64;

impl Reader<'_> {
    pub(crate) fn agent(&mut self, node: &Node) -> Agent {
        const KNOWN: &[&str] = &[
            "title",
            "programs",
            "packages",
            "versions",
            "credentials",
            "take",
            "files",
            "make",
            "inner",
            "tells",
            "notes",
        ];
        let mut agent = Agent::default();
        for Member { key, value, .. } in self.members(node, KNOWN) {
            match key.as_str() {
                "title" => agent.title = self.text(value).unwrap_or_default().to_owned(),
                "programs" => agent.programs = self.names_of(value),
                "packages" => agent.packages = self.names_of(value),
                "versions" => agent.versions = self.versions(value),
                "credentials" => {
                    for item in self.items(value, MOST_FILES) {
                        agent.credentials.extend(self.credential(item));
                    }
                }
                "take" => {
                    let choice = self.choice(value, &[("first", Take::First), ("all", Take::All)]);
                    agent.take = choice.map(|at| at.value).unwrap_or_default();
                }
                "files" => {
                    for item in self.items(value, MOST_FILES) {
                        agent.files.extend(self.copied(item));
                    }
                }
                "make" => {
                    for item in self.items(value, MOST_FILES) {
                        agent.make.extend(self.made(item));
                    }
                }
                "inner" => agent.inner = self.inner(value),
                "tells" => agent.tells = self.strings(value).into_iter().map(|at| at.value).collect(),
                "notes" => agent.notes = self.strings(value).into_iter().map(|at| at.value).collect(),
                _ => {}
            }
        }
        if agent.title.is_empty() || agent.programs.is_empty() {
            self.fault(node.span, "an agent has a title and programs");
        }
        agent
    }

    fn names_of(&mut self, node: &Node) -> Vec<String> {
        let words = self.list(node, |reader, item, text| {
            let fits = text.len() <= 128
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"@/._-".contains(&b))
                && !text.split('/').any(|part| part == "..");
            if !fits {
                reader.fault(
                    item.span,
                    format!("{text:?} is not the name of a program or package"),
                );
            }
            fits.then(|| text.to_owned())
        });
        words.into_iter().map(|at| at.value).collect()
    }

    fn versions(&mut self, node: &Node) -> Option<(String, String)> {
        let (mut from, mut to) = (None, None);
        for Member { key, value, .. } in self.members(node, &["from", "to"]) {
            let text = self.text(value)?;
            if numbers(text).is_none() {
                self.fault(value.span, format!("{text:?} is not a version such as 1.2.3"));
            }
            match key.as_str() {
                "from" => from = Some(text.to_owned()),
                _ => to = Some(text.to_owned()),
            }
        }
        if from.is_none() || to.is_none() {
            self.fault(node.span, "versions have \"from\" and \"to\"");
        }
        from.zip(to)
    }

    /// A secret whose `from` is a list.
    fn credential(&mut self, node: &Node) -> Option<Credential> {
        let mut one = node.clone();
        let mut from = Vec::new();
        if let Value::Object(members) = &mut one.value {
            for member in members.iter_mut().filter(|member| member.key == "from") {
                from = self
                    .strings(&member.value)
                    .into_iter()
                    .map(|at| at.value)
                    .collect();
                let first = from.first().cloned().unwrap_or_default();
                member.value.value = Value::String(first);
            }
        }
        let secret = self.secret(&one)?;
        Some(Credential { secret, from })
    }

    fn copied(&mut self, node: &Node) -> Option<CopiedFile> {
        let (mut from, mut to, mut most) = (None, None, MOST_BYTES);
        let (mut without, mut set) = (Vec::new(), Map::new());
        for Member { key, value, .. } in self.members(node, &["from", "to", "most", "without", "set"]) {
            match key.as_str() {
                "from" => {
                    let text = self.text(value)?;
                    match text.strip_prefix("~/") {
                        Some(below) => from = self.below(value.span, below, Stars::Last),
                        None => self.fault(value.span, format!("{text:?} does not begin with ~/")),
                    }
                }
                "to" => {
                    let text = self.text(value)?;
                    to = self.below(value.span, text, Stars::None);
                }
                "most" => {
                    let read = self.unit(value, units::size, "\"256KiB\"")?;
                    if read.value > MOST_BYTES {
                        self.fault(value.span, format!("at most {MOST_BYTES} bytes are copied"));
                    }
                    most = read.value.min(MOST_BYTES);
                }
                "without" => without = self.strings(value).into_iter().map(|at| at.value).collect(),
                "set" => match plain(value) {
                    serde_json::Value::Object(map) => set = map,
                    _ => self.wrong(value, "an object"),
                },
                _ => {}
            }
        }
        let from = from?;
        // Where nothing is said it keeps its place below the home.
        let to = match to {
            Some(to) => to,
            None if from.contains('*') => from.rsplit_once('/').map(|(above, _)| above.to_owned())?,
            None => from.clone(),
        };
        Some(CopiedFile {
            from,
            to,
            most,
            without,
            set,
        })
    }

    fn made(&mut self, node: &Node) -> Option<MadeFile> {
        let (mut to, mut text) = (None, None);
        for Member { key, value, .. } in self.members(node, &["to", "text"]) {
            match key.as_str() {
                "to" => {
                    let path = self.text(value)?;
                    to = self.below(value.span, path, Stars::None);
                }
                _ => text = self.text(value).map(str::to_owned),
            }
        }
        match (to, text) {
            (Some(to), Some(text)) => Some(MadeFile { to, text }),
            _ => {
                self.fault(node.span, "a made file has \"to\" and \"text\"");
                None
            }
        }
    }

    /// A plain path below a home.
    fn below(&mut self, span: Span, text: &str, stars: Stars) -> Option<String> {
        let parts: Vec<&str> = text.split('/').collect();
        let last = parts.len().saturating_sub(1);
        let fits = parts.len() <= 16
            && parts.iter().enumerate().all(|(index, part)| {
                let plain = part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
                let star = stars == Stars::Last
                    && index == last
                    && index > 0
                    && part
                        .strip_prefix("*.")
                        .is_some_and(|end| !end.is_empty() && end.bytes().all(|b| b.is_ascii_alphanumeric()));
                !part.is_empty() && *part != "." && *part != ".." && (plain || star)
            });
        if !fits {
            self.fault(
                span,
                format!("{text:?} is not a plain path below a home directory"),
            );
        }
        fits.then(|| text.to_owned())
    }
}

/// Whether a path may name all files of a directory with one ending.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stars {
    None,
    Last,
}

/// A value without its places. Bounded by the parser that made it.
pub(crate) fn plain(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => whole(*number),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => members
            .iter()
            .map(|member| (member.key.clone(), plain(&member.value)))
            .collect(),
    }
}

fn whole(number: f64) -> serde_json::Value {
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range, see above")]
        let whole = number as i64;
        return whole.into();
    }
    serde_json::Number::from_f64(number).map_or(serde_json::Value::Null, serde_json::Value::Number)
}
