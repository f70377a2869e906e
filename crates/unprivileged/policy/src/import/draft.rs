//! The policy under construction: rules are checked by the parsers that will read them, and every step is reported.
use super::{Became, ImportFile, ImportLine, Imported, Standing};
use crate::layers::{Layer, LayerKind, Surroundings};
use crate::merge::{MergeOptions, merge};
use crate::presets::default_layers;
use crate::selftest::selftest;
use bastle_contract::{AbsPath, Code, Fault};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most entries of one list of a policy.
const MOST: usize = 512;
/// Most words of a command rule.
const MOST_WORDS: usize = 48;
/// Longest path of a policy.
const LONGEST: usize = 1024;
/// Most lines of a report.
const MOST_LINES: usize = 4096;

/// A list of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Read,
    Write,
    Hide,
    Protect,
    NetAllow,
    NetDeny,
    ExecDeny,
    ToolAllow,
    ToolAsk,
    ToolDeny,
}

impl Place {
    fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("fs", "read"),
            Self::Write => ("fs", "write"),
            Self::Hide => ("fs", "hide"),
            Self::Protect => ("fs", "protect"),
            Self::NetAllow => ("net", "allow"),
            Self::NetDeny => ("net", "deny"),
            Self::ExecDeny => ("exec", "deny"),
            Self::ToolAllow => ("tools", "allow"),
            Self::ToolAsk => ("tools", "ask"),
            Self::ToolDeny => ("tools", "deny"),
        }
    }

    fn refuses(self) -> bool {
        match self {
            Self::Hide | Self::Protect | Self::NetDeny | Self::ExecDeny | Self::ToolAsk | Self::ToolDeny => {
                true
            }
            Self::Read | Self::Write | Self::NetAllow | Self::ToolAllow => false,
        }
    }

    /// Whether a policy file could say it: asked of the reader of policy files itself.
    fn check(self, rule: &str) -> Result<(), String> {
        let (section, key) = self.keys();
        let text = json!({ "version": 1, section: { key: [rule] } }).to_string();
        match crate::document::parse("rule", text.as_bytes()) {
            Ok(_) => Ok(()),
            Err(faults) => Err(faults.first().map(|fault| fault.what.clone()).unwrap_or_default()),
        }
    }
}

/// What was gathered so far.
#[derive(Default)]
pub(super) struct Draft {
    lists: BTreeMap<Place, Vec<String>>,
    /// Sections whose allow list is closed even when it is empty.
    closed: bool,
    tests: Vec<(String, &'static str)>,
    secrets: Vec<Value>,
    report: Vec<ImportLine>,
    file: String,
    standing: Option<Standing>,
    /// A refusal had no room any more, or cannot be said: then there is no honest result.
    overflow: bool,
    /// A refused host that cannot be said: then no host is allowed.
    no_net: bool,
    /// The home is refused as a whole: then nothing of it is granted.
    no_home: bool,
}

impl Draft {
    pub(super) fn begin(&mut self, file: &ImportFile) {
        self.file.clone_from(&file.name);
        self.standing = Some(file.standing);
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.unwrap_or(Standing::Project)
    }

    /// Notes what became of a rule.
    pub(super) fn report(&mut self, rule: &str, became: Became, into: &[String], why: &str) {
        if self.report.len() >= MOST_LINES {
            self.overflow = true;
            return;
        }
        self.report.push(ImportLine {
            file: self.file.clone(),
            rule: rule.to_owned(),
            became,
            into: into.to_vec(),
            why: why.to_owned(),
        });
    }

    pub(super) fn left_out(&mut self, rule: &str, why: &str) {
        self.report(rule, Became::LeftOut, &[], why);
    }

    /// Adds a rule if it can be said; gives back how it reads in the document.
    pub(super) fn put(&mut self, place: Place, rule: &str) -> Result<String, String> {
        if self.overflow {
            return Err("there is no result".to_owned());
        }
        if matches!(place, Place::Read | Place::Write) && rule == "/" {
            return Err("the host as a whole is never shown".to_owned());
        }
        place.check(rule)?;
        let list = self.lists.entry(place).or_default();
        if !list.iter().any(|known| known == rule) {
            if list.len() >= MOST {
                self.overflow |= place.refuses();
                return Err(format!("the list has {MOST} entries already"));
            }
            list.push(rule.to_owned());
        }
        let (section, key) = place.keys();
        Ok(format!("{section}.{key} {rule}"))
    }

    /// Puts a rule into lists and reports it in one line. With `why` it is narrowed, else kept.
    pub(super) fn convert(&mut self, source: &str, rules: &[(Place, String)], why: &str) {
        let (mut into, mut refused) = (Vec::new(), Vec::new());
        for (place, rule) in rules {
            match self.put(*place, rule) {
                Ok(text) => into.push(text),
                Err(reason) => refused.push((*place, rule.clone(), reason)),
            }
        }
        let kept = |place: &Place| into.iter().any(|text| text.starts_with(place.keys().0));
        for (place, _, _) in refused.iter().filter(|(place, ..)| place.refuses()) {
            match place {
                Place::NetDeny => self.no_net = true,
                // The tool's own rule is the one that counts; covering a file is more than was asked for.
                Place::ExecDeny => {}
                place => self.overflow |= !kept(place),
            }
        }
        let lost = refused
            .iter()
            .map(|(_, rule, reason)| format!("{rule}: {reason}"))
            .collect::<Vec<_>>()
            .join("; ");
        let why = match (why.is_empty(), lost.is_empty()) {
            (_, true) => why.to_owned(),
            (true, false) => lost,
            (false, false) => format!("{why}; {lost}"),
        };
        let became = match (into.is_empty(), why.is_empty()) {
            (true, _) => Became::LeftOut,
            (false, true) => Became::Kept,
            (false, false) => Became::Narrowed,
        };
        self.report(source, became, &into, &why);
    }

    /// A command rule. One that refuses is never lost: cut to a prefix that can be said, it refuses more; where not even
    /// its program can be named, every command asks.
    pub(super) fn command(&mut self, source: &str, place: Place, line: &str, why: &str) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let whole = words.join(" ");
        if place.check(&format!("Bash({whole})")).is_ok() || !place.refuses() {
            return self.convert(source, &commands(place, &whole), why);
        }
        for count in (1..words.len().min(MOST_WORDS)).rev() {
            let prefix = format!("{} *", words[..count].join(" "));
            if place.check(&format!("Bash({prefix})")).is_ok() {
                let wider = format!("it cannot be said exactly, so all of {prefix:?} is meant");
                return self.convert(source, &commands(place, &prefix), &wider);
            }
        }
        let rules = [(Place::ToolAsk, "Bash".to_owned())];
        self.convert(source, &rules, "it cannot be said, so every command asks");
    }

    /// A path that is refused: a pattern that cannot be said is cut to the directory above it.
    pub(super) fn refuse_path(&mut self, source: &str, place: Place, path: &str, why: &str) {
        if path == "~" {
            self.no_home = true;
            return self.report(source, Became::Kept, &[], "nothing of the home is shown");
        }
        let mut path = path.to_owned();
        let mut why = why.to_owned();
        // What is too long is cut without asking each time whether it fits now.
        while path.len() > LONGEST
            && let Some(cut) = path.rfind('/').filter(|cut| *cut > 0)
        {
            path.truncate(cut);
            why = "it is too long, so the directory above is meant".to_owned();
        }
        while let Err(reason) = place.check(&path) {
            let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) else {
                // Nothing of it can be said; a refusal that is lost must not look like a result.
                self.overflow = true;
                return self.left_out(source, &reason);
            };
            why = format!("it cannot be said exactly ({reason}), so all of {above} is meant");
            path = above.to_owned();
        }
        self.convert(source, &[(place, path)], &why);
    }

    /// Whether it is known that there is no honest result: then nothing more needs to be read.
    pub(super) fn is_lost(&self) -> bool {
        self.overflow
    }

    /// Says that tools which no rule names are not allowed.
    pub(super) fn close_tools(&mut self) {
        self.closed = true;
    }

    /// Whether a list has anything.
    pub(super) fn has(&self, place: Place) -> bool {
        self.lists.get(&place).is_some_and(|list| !list.is_empty())
    }

    pub(super) fn test(&mut self, can: String, is: &'static str) {
        if self.tests.len() < 200 {
            self.tests.push((can, is));
        }
    }

    pub(super) fn secret(&mut self, secret: Value) {
        self.secrets.push(secret);
    }

    fn document(&self) -> String {
        let mut root = Map::from_iter([("version".to_owned(), json!(1))]);
        for (place, rules) in &self.lists {
            let (section, key) = place.keys();
            let entry = root.entry(section.to_owned()).or_insert_with(|| json!({}));
            entry[key] = json!(rules);
        }
        if self.closed {
            let tools = root.entry("tools".to_owned()).or_insert_with(|| json!({}));
            if tools.get("allow").is_none() {
                tools["allow"] = json!([]);
            }
        }
        if !self.secrets.is_empty() {
            root.insert("secrets".to_owned(), json!(self.secrets));
        }
        if !self.tests.is_empty() {
            let tests = self.tests.iter().map(|(can, is)| json!({ "can": can, "is": is }));
            root.insert("tests".to_owned(), tests.collect());
        }
        format!("{:#}\n", Value::Object(root))
    }

    /// Takes back grants that a refusal without words of its own meant.
    fn withdraw(&mut self) {
        let mut gone = Vec::new();
        if self.no_net {
            gone.extend(self.lists.remove(&Place::NetAllow).unwrap_or_default());
        }
        if self.no_home {
            for place in [Place::Read, Place::Write] {
                let list = self.lists.entry(place).or_default();
                gone.extend(list.extract_if(.., |path| path.starts_with("~/")));
            }
            self.lists.retain(|_, list| !list.is_empty());
        }
        for rule in gone {
            self.left_out(
                &rule,
                "something that cannot be said here refuses it, so it is not allowed",
            );
        }
    }

    /// The document, read back once: what we write must be what we read. Tests that its rules do not meet are left out.
    pub(super) fn finish(mut self) -> Result<Imported, Vec<Fault>> {
        if self.overflow {
            return Err(vec![
                Fault::new(
                    Code::PolicySchema,
                    "these settings cannot be imported",
                    "they refuse something that no policy of ours can say, or more than one holds",
                )
                .help("write the policy by hand: bastle preset init default"),
            ]);
        }
        self.withdraw();
        let text = self.document();
        let document = crate::document::parse("import", text.as_bytes())?;
        if !self.tests.is_empty() {
            let failed = failing(document)?;
            let all = std::mem::take(&mut self.tests);
            for (can, is) in all {
                if failed.contains(&can) {
                    self.left_out(&can, "as a test it does not hold together with the other rules");
                } else {
                    self.tests.push((can, is));
                }
            }
        }
        Ok(Imported {
            text: self.document(),
            report: self.report,
        })
    }
}

/// The rules of a command: as a tool's, and where a whole program is refused its file is covered too.
fn commands(place: Place, line: &str) -> Vec<(Place, String)> {
    let mut rules = vec![(place, format!("Bash({line})"))];
    let program = line
        .strip_suffix(" *")
        .or_else(|| line.strip_suffix(":*"))
        .unwrap_or(line);
    if place == Place::ToolDeny && line != program && !program.contains([' ', '/', '*']) {
        rules.push((Place::ExecDeny, program.to_owned()));
    }
    rules
}

/// The questions whose answer is not what the document's tests say.
fn failing(document: crate::document::Document) -> Result<Vec<String>, Vec<Fault>> {
    let one = |why: String| vec![Fault::new(Code::PolicySchema, "the import cannot be tried", why)];
    let path = |text: &str| AbsPath::new(text).map_err(|error| one(error.to_string()));
    let surroundings = Surroundings {
        home: path("/home/user")?,
        workspace: path("/home/user/project")?,
    };
    let mut layers = default_layers("default").map_err(|fault| vec![fault])?;
    layers.push(Layer {
        kind: LayerKind::User,
        name: "import".to_owned(),
        document: document.into(),
    });
    let effective = merge(&layers, &surroundings, &MergeOptions::default())?;
    Ok(selftest(&effective)
        .iter()
        .filter(|report| report.fault().is_some())
        .map(|report| report.can.clone())
        .collect())
}
