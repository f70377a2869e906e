//! What goes away: a name, or entries of a list of ignored names.
//!
//! **Trust:** names are folded; contents are the agent's bytes. A name that runs nothing by going away may still have been a
//! check, a pin or a limit, so only what is known to be none of these passes.
use super::classify::finding;
use super::judge::{Shape, class_of, unknown_link};
use super::plain::Around;
use super::rules::{Class, Finding, Rules, Tier};
use bastle_contract::{HostExecuted, HostExecutedKind as Of};
use std::collections::{BTreeMap, BTreeSet};

/// What stood under the name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    File,
    Link(Shape),
    /// Its files are judged by themselves.
    Directory,
}

/// Judges a name that goes away.
pub(super) fn removal(rules: &Rules, name: &[u8], was: Was, around: &Around<'_>) -> Vec<Finding> {
    let held = |why: String| {
        vec![finding(
            Class::RestrictionRemoved,
            Tier::Approve,
            "restriction",
            why,
        )]
    };
    let entries = rules.catalogue.find(name);
    if let Some(entry) = entries.iter().find(|entry| restricts(entry)) {
        return held(format!(
            "removed, and a restriction may go with it: {}",
            entry.reason
        ));
    }
    let mut policies = rules.plain.restrictions.iter();
    if policies.any(|pattern| pattern.matches(name)) {
        return held("removed: it states a policy of the project".to_owned());
    }
    let code = entries.iter().any(|entry| entry.kind != Of::Script);
    let unknown = match was {
        Was::Directory => None,
        Was::File | Was::Link(_) if code => None,
        Was::File => rules.plain.judge(name, around).err(),
        Was::Link(shape) => unknown_link(&rules.plain, name, shape, around),
    };
    if let Some(unknown) = unknown {
        return held(format!(
            "removed, and a restriction may go with it: {}",
            unknown.why()
        ));
    }
    let first = entries.first().map(|entry| {
        let why = format!("removed: {}", entry.reason);
        finding(class_of(entry), Tier::Flag, entry.kind.name(), why)
    });
    first.into_iter().collect()
}

/// Whether a file of the kind may limit what is run, built, reached or published.
fn restricts(entry: &HostExecuted) -> bool {
    match entry.kind {
        Of::Vcs
        | Of::VcsHook
        | Of::ReviewRules
        | Of::Ci
        | Of::Deploy
        | Of::Editor
        | Of::Shell
        | Of::VersionManager
        | Of::Debugger
        | Of::AgentSettings
        | Of::AgentInstructions
        | Of::Manifest
        | Of::LockFile
        | Of::PackageManager
        | Of::InstalledCode
        | Of::Build
        | Of::DevTool
        | Of::TestRunner
        | Of::TaskRunner
        | Of::Interpreter
        | Of::DocsGenerator
        | Of::SystemUnit
        | Of::Advisory => true,
        Of::Notebook | Of::Archive | Of::Compiled | Of::Script => false,
    }
}

/// How a list of ignored names ignores less than before. The last entry that matches decides, so order counts, and an
/// entry that takes another back is as good as its removal.
pub(super) fn weakened(before: Option<&[u8]>, after: &[u8]) -> Option<String> {
    let (old, new) = (entries(before.unwrap_or_default()), entries(after));
    let are: BTreeSet<&[u8]> = new.iter().copied().collect();
    let gone = old.iter().filter(|line| !are.contains(**line)).count();
    if gone > 0 {
        return Some(format!("{gone} entries are removed"));
    }
    let reversals = |lines: &[&[u8]]| {
        let mut count: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for line in lines.iter().filter(|line| reverses(line)) {
            *count.entry(line.to_vec()).or_default() += 1;
        }
        count
    };
    let (had, has) = (reversals(&old), reversals(&new));
    if has
        .iter()
        .any(|(line, count)| had.get(line).is_none_or(|old| old < count))
    {
        return Some("entries are added that take others back".to_owned());
    }
    let mut rest = new.iter();
    let ordered = old.iter().all(|line| rest.any(|other| other == line));
    (!ordered).then(|| "the order of its entries changes".to_owned())
}

/// Blanks at the start of an entry belong to it.
fn entries(bytes: &[u8]) -> Vec<&[u8]> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty() && line[0] != b'#').collect()
}

/// `!name` of git, and the lines of Mercurial that give those after them another meaning.
fn reverses(line: &[u8]) -> bool {
    line.starts_with(b"!") || line.trim_ascii_start().starts_with(b"syntax")
}
