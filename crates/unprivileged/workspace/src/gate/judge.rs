//! The judgement of a change by its names: the catalogue, the allow list, manifests, lock files and removals.
//!
//! **Trust:** names are folded and come from [`Tree`]; contents are read by the parsers beside this file only.
use super::classify::{Text, finding};
use super::declared::{self, Declared};
use super::lock::{self, Locked};
use super::names::{Names, Tree};
use super::plain::{Around, Plain, Unknown};
use super::rules::{Class, Finding, Rules, Tier};
use crate::audit_delta::Change;
use crate::git::is_git_name;
use crate::manifest::Kind;
use crate::path::visible;
use bastle_contract::{HostExecuted, HostExecutedKind as Of};

/// Most entries of the catalogue that one name's findings tell.
const MOST_TOLD: usize = 3;

/// What the names of a change say.
pub(super) struct Kinds {
    /// Every reason.
    pub(super) findings: Vec<Finding>,
    /// The allowed kind of its own name, where it has one.
    pub(super) plain: Option<Plain>,
}

/// What stands under the name after the change, as far as a name is judged by it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Gone,
    File,
    Link,
    Directory,
}

/// Judges a change by every name it can be reached by.
pub(super) fn names(rules: &Rules, tree: &Tree<'_>, change: &Change, before: &Text, after: &Text) -> Kinds {
    let becomes = match (&change.before, &change.after) {
        (_, None) => Becomes::Gone,
        (Some(Kind::Dir) | None, Some(Kind::Dir)) => Becomes::Directory,
        (Some(_), Some(Kind::Dir)) => Becomes::Gone,
        (_, Some(Kind::Symlink { .. })) => Becomes::Link,
        (_, Some(Kind::File { .. } | Kind::Submodule { .. } | Kind::Opaque { .. })) => Becomes::File,
    };
    let mut kinds = Kinds {
        findings: Vec::new(),
        plain: None,
    };
    if becomes == Becomes::Directory {
        return kinds;
    }
    let around = Around {
        at_root: &|| change.path.depth() == 1 || tree.has_beside(&change.path, &rules.plain.package_markers),
        in_package: &|| tree.has_beside(&change.path, &["__init__.py".to_owned()]),
    };
    let Names::All(names) = tree.names(&change.path) else {
        kinds.findings.push(finding(
            Class::Symlink,
            Tier::Approve,
            "many-names",
            "links lead to it under more names than can be reviewed",
        ));
        return kinds;
    };
    let at_top = Around {
        at_root: &|| true,
        in_package: &|| false,
    };
    for (number, name) in names.iter().enumerate() {
        let own = number == 0;
        // A link at the root of the project gives its target the place of the link.
        let around = if name.contains(&b'/') { &around } else { &at_top };
        let mut found = match becomes {
            Becomes::Gone => removal(rules, name, before),
            Becomes::File | Becomes::Link | Becomes::Directory => {
                one_name(rules, name, becomes, (before, after), around)
            }
        };
        if own && becomes == Becomes::File {
            kinds.plain = rules.plain.judge(name, around).ok();
        }
        if !own {
            let shown = visible(name);
            for one in &mut found {
                one.why = format!("a link leads to it as {shown}: {}", one.why);
            }
        }
        kinds.findings.extend(found);
    }
    if let Some(Kind::Symlink { target }) = &change.after {
        kinds
            .findings
            .extend(through_link(rules, tree, change, &target.0));
    }
    kinds
}

fn one_name(
    rules: &Rules,
    name: &[u8],
    becomes: Becomes,
    (before, after): (&Text, &Text),
    around: &Around<'_>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    if name.split(|byte| *byte == b'/').any(is_git_name) {
        let why = "it lies in a git directory: hooks and settings there run on the host";
        found.push(finding(Class::Forbidden, Tier::Refuse, "git-directory", why));
    }
    let mut entries = rules.catalogue.find(name);
    if rules.plain.is_compiled(name) {
        entries.retain(|entry| entry.kind != Of::Script);
    }
    let known = entries.iter().any(|entry| entry.kind != Of::Script);
    for entry in entries.iter().take(MOST_TOLD) {
        found.extend(entry_finding(entry, name, becomes, before, after));
    }
    // An entry that is cut off must not be the strictest one.
    for entry in entries.iter().skip(MOST_TOLD) {
        let more = entry_finding(entry, name, becomes, before, after);
        found.extend(more.filter(|one| found.iter().all(|told| told.tier < one.tier)));
    }
    if !known && let Err(unknown) = rules.plain.judge(name, around) {
        // The name of a link does not say what is behind it; its target is judged under its own name.
        if becomes == Becomes::File || unknown == Unknown::Dotfile {
            found.push(finding(
                Class::Unknown,
                Tier::Approve,
                "unknown-kind",
                unknown.why(),
            ));
        }
    }
    if !known && let Some(why) = after.whole().and_then(|bytes| deploys(name, bytes)) {
        found.push(finding(Class::ExecutesOnHost, Tier::Approve, "deploy", why));
    }
    found
}

fn entry_finding(
    entry: &HostExecuted,
    name: &[u8],
    becomes: Becomes,
    before: &Text,
    after: &Text,
) -> Option<Finding> {
    let held = |class: Class, why: String| Some(finding(class, Tier::Approve, entry.kind.name(), why));
    match (entry.kind, becomes, after) {
        (Of::Manifest, Becomes::File, Text::Whole(new)) => match declared::judge(name, before.whole(), new) {
            Declared::Harmless => None,
            Declared::Changed(what) => held(class_of(entry), format!("{}; changed: {what}", entry.reason)),
            Declared::Unclear(why) => held(class_of(entry), format!("{}; {why}", entry.reason)),
        },
        (Of::LockFile, Becomes::File, Text::Whole(new)) => match lock::judge(name, before.whole(), new) {
            Locked::Same => None,
            Locked::Changed(what) => held(Class::Redirect, format!("{}; {what}", entry.reason)),
            Locked::Unclear => held(Class::Redirect, format!("{}; it does not parse", entry.reason)),
        },
        (Of::Advisory, Becomes::File, Text::Whole(new)) => {
            let gone = lines_gone(before.whole(), new);
            Some(if gone == 0 {
                finding(
                    class_of(entry),
                    Tier::Flag,
                    entry.kind.name(),
                    entry.reason.clone(),
                )
            } else {
                let why = format!("{gone} entries are removed: {}", entry.reason);
                finding(Class::RestrictionRemoved, Tier::Approve, "restriction", why)
            })
        }
        (Of::Script, ..) => Some(finding(
            class_of(entry),
            Tier::Flag,
            entry.kind.name(),
            entry.reason.clone(),
        )),
        (_, Becomes::File | Becomes::Link | Becomes::Directory | Becomes::Gone, _) => {
            held(class_of(entry), entry.reason.clone())
        }
    }
}

fn class_of(entry: &HostExecuted) -> Class {
    match entry.kind {
        Of::Vcs if entry.pattern.as_str().ends_with(".gitmodules") => Class::Submodule,
        Of::LockFile => Class::Redirect,
        Of::Archive => Class::Binary,
        _ => Class::ExecutesOnHost,
    }
}

fn lines_gone(before: Option<&[u8]>, after: &[u8]) -> usize {
    let statements = |bytes: &[u8]| -> std::collections::BTreeSet<Vec<u8>> {
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .map(|line| line.trim_ascii().to_vec());
        lines.filter(|line| !line.is_empty() && line[0] != b'#').collect()
    };
    let (old, new) = (statements(before.unwrap_or_default()), statements(after));
    old.difference(&new).count()
}

/// A name that goes away runs nothing, but a check, a pin or a limit may go with it.
fn removal(rules: &Rules, name: &[u8], before: &Text) -> Vec<Finding> {
    let entries = rules.catalogue.find(name);
    let restricts = |entry: &&&'static HostExecuted| match entry.kind {
        Of::Vcs
        | Of::VcsHook
        | Of::ReviewRules
        | Of::Ci
        | Of::AgentSettings
        | Of::AgentInstructions
        | Of::LockFile
        | Of::PackageManager
        | Of::VersionManager
        | Of::DevTool
        | Of::Advisory => true,
        Of::Deploy
        | Of::Editor
        | Of::Shell
        | Of::Debugger
        | Of::Manifest
        | Of::InstalledCode
        | Of::Build
        | Of::TestRunner
        | Of::TaskRunner
        | Of::Interpreter
        | Of::DocsGenerator
        | Of::Notebook
        | Of::SystemUnit
        | Of::Archive
        | Of::Compiled
        | Of::Script => false,
    };
    if let Some(entry) = entries.iter().find(restricts) {
        let why = format!("removed, and a restriction may go with it: {}", entry.reason);
        return vec![finding(
            Class::RestrictionRemoved,
            Tier::Approve,
            "restriction",
            why,
        )];
    }
    if rules
        .plain
        .restrictions
        .iter()
        .any(|pattern| pattern.matches(name))
    {
        let why = "removed: it states a policy of the project";
        return vec![finding(
            Class::RestrictionRemoved,
            Tier::Approve,
            "restriction",
            why,
        )];
    }
    if let Some(entry) = entries.first() {
        let why = format!("removed: {}", entry.reason);
        return vec![finding(class_of(entry), Tier::Flag, entry.kind.name(), why)];
    }
    let dotfile = rules.plain.is_dotfile(name);
    if dotfile && !matches!(before, Text::Absent) {
        let why = "removed: a setting of a tool that is not known, and a restriction may go with it";
        return vec![finding(
            Class::RestrictionRemoved,
            Tier::Approve,
            "restriction",
            why,
        )];
    }
    Vec::new()
}

/// A new link gives names to what is behind it already.
fn through_link(rules: &Rules, tree: &Tree<'_>, change: &Change, target: &[u8]) -> Option<Finding> {
    let Some(names) = tree.below_link(&change.path, target) else {
        let why = "it leads to a directory with more names than can be reviewed";
        return Some(finding(Class::Symlink, Tier::Approve, "link-names", why));
    };
    let strict = |entry: &&'static HostExecuted| !matches!(entry.kind, Of::Script | Of::Advisory);
    names.iter().find_map(|name| {
        let dotfile = rules.plain.is_dotfile(name);
        let git = name.split(|byte| *byte == b'/').any(is_git_name);
        let reason = match rules.catalogue.find(name).into_iter().find(strict) {
            Some(entry) => entry.reason.as_str(),
            None if git || dotfile => Unknown::Dotfile.why(),
            None => return None,
        };
        let why = format!("through it {} can be reached: {reason}", visible(name));
        let tier = if git { Tier::Refuse } else { Tier::Approve };
        Some(finding(Class::Symlink, tier, "link-names", why))
    })
}

/// YAML and JSON that a deployment tool executes wherever it lies.
fn deploys(name: &[u8], bytes: &[u8]) -> Option<&'static str> {
    if ![&b".yaml"[..], b".yml", b".json"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let has = |mark: &str| {
        text.lines()
            .any(|line| line.trim_start_matches(['-', ' ', '"', '{']).starts_with(mark))
    };
    if has("apiVersion") && has("kind") {
        return Some("executed by a cluster when the manifest is applied");
    }
    if has("hosts:") && (has("tasks:") || has("roles:")) {
        return Some("executed by Ansible when the playbook runs");
    }
    has("AWSTemplateFormatVersion").then_some("executed by a cloud when the template is deployed")
}
