//! The judgement of one change: every reason that applies, the strictest of which decides.
//!
//! **Trust:** reads contents only from the immutable store, by the digests that will be applied.
use super::content::{
    self, MAX_SCANNED, changed_keys, hosts, is_binary, is_deceptive, is_program, new_secret,
};
use super::rules::{Class, Finding, PathRule, Rules, Tier, When};
use crate::audit_delta::Change;
use crate::blobs::{Blobs, read_blob};
use crate::git::is_git_name;
use crate::manifest::{Content, Kind};
use crate::path::{TreePath, visible};
use bastle_contract::Fault;
use serde::Serialize;
use std::collections::BTreeSet;

/// Files above this are pointed out: they make a repository heavy for ever.
const LARGE: u64 = 5 << 20;

/// A change with all that was found about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assessed {
    /// The change.
    pub change: Change,
    /// Reasons, strictest first; never empty.
    pub findings: Vec<Finding>,
    /// Whether the project's ignore files name it: taken only when a person names it too.
    pub ignored: bool,
    /// The hash that approves exactly this change.
    pub approval: Content,
}

impl Assessed {
    /// The strictest tier.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.findings.first().map_or(Tier::Refuse, |finding| finding.tier)
    }
}

/// Judges every change; `ignored` are the paths that the project's ignore files name.
///
/// # Errors
/// When a content cannot be read.
pub fn assess_all(
    rules: &Rules,
    changes: &[Change],
    ignored: &BTreeSet<TreePath>,
    blobs: &dyn Blobs,
) -> Result<Vec<Assessed>, Fault> {
    changes
        .iter()
        .map(|change| {
            let mut assessed = assess(rules, change, blobs)?;
            if ignored.contains(&change.path) {
                let why = "the project's ignore files name it; it is taken only when named with --paths";
                assessed
                    .findings
                    .push(finding(Class::Ignored, Tier::Note, "ignored", why));
                assessed.ignored = true;
            }
            Ok(assessed)
        })
        .collect()
}

/// Judges one change.
///
/// # Errors
/// When a content cannot be read.
pub fn assess(rules: &Rules, change: &Change, blobs: &dyn Blobs) -> Result<Assessed, Fault> {
    // An old content that is not kept any more counts as unknown: everything in the new one is news then.
    let before = text_of(change.before.as_ref(), blobs).unwrap_or(Text::TooLarge);
    let after = text_of(change.after.as_ref(), blobs)?;
    let mut findings = name_findings(&change.path);
    findings.extend(kind_findings(change, &after));
    for rule in &rules.rules {
        findings.extend(rule_finding(rule, change, &before, &after));
    }
    if let Text::Whole(bytes) = &after {
        findings.extend(text_findings(rules, before.whole(), bytes));
    }
    if findings.is_empty() {
        findings.push(finding(Class::Source, Tier::Note, "source", "no rule names it"));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.tier));
    Ok(Assessed {
        approval: super::approve::change_hash(change),
        change: change.clone(),
        findings,
        ignored: false,
    })
}

/// The content of one side.
enum Text {
    /// There is no file.
    Absent,
    /// All of it.
    Whole(Vec<u8>),
    /// More than is scanned.
    TooLarge,
}

impl Text {
    fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Absent | Self::TooLarge => None,
        }
    }
}

fn text_of(kind: Option<&Kind>, blobs: &dyn Blobs) -> Result<Text, Fault> {
    match kind {
        Some(Kind::File { size, .. }) if *size > MAX_SCANNED => Ok(Text::TooLarge),
        Some(Kind::File { digest, .. }) => {
            Ok(read_blob(blobs, digest, MAX_SCANNED)?.map_or(Text::TooLarge, Text::Whole))
        }
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => {
            Ok(Text::Absent)
        }
    }
}

fn finding(class: Class, tier: Tier, rule: &str, why: impl Into<String>) -> Finding {
    Finding {
        class,
        tier,
        rule: rule.to_owned(),
        why: why.into(),
    }
}

fn name_findings(path: &TreePath) -> Vec<Finding> {
    let mut found = Vec::new();
    if path.components().any(is_git_name) {
        found.push(finding(
            Class::Forbidden,
            Tier::Refuse,
            "git-directory",
            "it lies in a git directory: hooks and settings there run on the host",
        ));
    }
    if visible(path.as_bytes()).as_bytes() != path.as_bytes() {
        found.push(finding(
            Class::Deceptive,
            Tier::Approve,
            "name",
            "its name holds characters that do not show as they are",
        ));
    }
    if path.components().any(|part| part.starts_with(b"-")) {
        found.push(finding(
            Class::Deceptive,
            Tier::Flag,
            "option-name",
            "its name reads as an option to commands given a wildcard",
        ));
    }
    found
}

fn kind_findings(change: &Change, after: &Text) -> Vec<Finding> {
    let mut found = Vec::new();
    if attributes(change.before.as_ref()) != attributes(change.after.as_ref()) && change.after.is_some() {
        found.push(finding(
            Class::Attributes,
            Tier::Flag,
            "attributes",
            "its extended attributes change, which a patch or a branch does not carry",
        ));
    }
    let was_executable = matches!(&change.before, Some(Kind::File { mode, .. }) if mode.executable);
    match &change.after {
        None | Some(Kind::Dir) => {}
        Some(Kind::File { size, mode, .. }) => {
            let head = after.whole().unwrap_or_default();
            let program = is_program(head);
            if program {
                found.push(finding(
                    Class::Binary,
                    Tier::Approve,
                    "program",
                    "it is a compiled program",
                ));
            } else if matches!(after, Text::TooLarge) || is_binary(head) {
                let tier = if mode.executable {
                    Tier::Approve
                } else {
                    Tier::Flag
                };
                found.push(finding(
                    Class::Binary,
                    tier,
                    "binary",
                    "it cannot be reviewed as text",
                ));
            }
            if mode.executable && !was_executable {
                found.push(finding(
                    Class::Mode,
                    Tier::Flag,
                    "executable",
                    "it becomes executable",
                ));
            }
            if mode.special {
                found.push(finding(
                    Class::Mode,
                    Tier::Approve,
                    "special-bits",
                    "it carries set-uid, set-gid or sticky bits, which are never applied",
                ));
            }
            if *size > LARGE {
                found.push(finding(
                    Class::Large,
                    Tier::Flag,
                    "large",
                    format!("it has {size} bytes"),
                ));
            }
        }
        Some(Kind::Symlink { target }) => found.push(link_finding(&change.path, &target.0)),
        Some(Kind::Submodule { .. }) => {
            found.push(finding(
                Class::Submodule,
                Tier::Refuse,
                "submodule",
                "a nested repository is not carried over; its files are",
            ));
        }
        Some(Kind::Opaque { .. }) => {
            found.push(finding(
                Class::Forbidden,
                Tier::Refuse,
                "not-a-file",
                "it is no file, link or directory that can be carried over",
            ));
        }
    }
    found
}

/// The digest of the attributes, where it is a file with some.
fn attributes(kind: Option<&Kind>) -> Option<Content> {
    match kind {
        Some(Kind::File { attributes, .. }) => *attributes,
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => None,
    }
}

/// A link that stays in the tree is pointed out; one that leaves it or enters a git directory needs approval.
fn link_finding(path: &TreePath, target: &[u8]) -> Finding {
    let shown = visible(target);
    if target.split(|byte| *byte == b'/').any(is_git_name) {
        return finding(
            Class::Symlink,
            Tier::Refuse,
            "link-to-git",
            format!("it leads into a git directory: {shown}"),
        );
    }
    if leaves(path, target) {
        return finding(
            Class::Symlink,
            Tier::Approve,
            "link-outward",
            format!("it leads out of the project: {shown}"),
        );
    }
    finding(Class::Symlink, Tier::Flag, "link", format!("it leads to {shown}"))
}

/// Whether a link leaves the tree by its text at any point on the way.
fn leaves(path: &TreePath, target: &[u8]) -> bool {
    if target.starts_with(b"/") || target.is_empty() {
        return true;
    }
    let mut depth = path.depth() - 1;
    // A name before `..` may itself be a link to elsewhere, so `a/../b` cannot be judged by its text.
    let mut named = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named || depth == 0 => return true,
            b".." => depth -= 1,
            _ => named = true,
        }
    }
    false
}

fn rule_finding(rule: &PathRule, change: &Change, before: &Text, after: &Text) -> Option<Finding> {
    if !rule
        .paths
        .iter()
        .any(|pattern| pattern.matches(change.path.as_bytes()))
    {
        return None;
    }
    let detail = match (&rule.when, &change.after, after) {
        // A removed file runs nothing, but a check or a setting may be gone.
        (_, None, _) => {
            return Some(finding(
                rule.class,
                rule.tier.min(Tier::Flag),
                &rule.id,
                format!("removed: {}", rule.why),
            ));
        }
        (_, Some(Kind::Dir), _) => return None,
        (When::Changed, Some(_), _) => String::new(),
        (When::NewHosts, Some(_), Text::Whole(new)) => {
            let old = before.whole().map(hosts).unwrap_or_default();
            let added: Vec<String> = hosts(new).difference(&old).take(5).cloned().collect();
            if added.is_empty() {
                return None;
            }
            format!(": {}", added.join(", "))
        }
        (When::JsonKeys(keys), Some(_), Text::Whole(new)) => {
            let changed = changed_keys(before.whole(), new, keys);
            if changed.is_empty() {
                return None;
            }
            format!(": {}", changed.join(", "))
        }
        // A link, or too large to be compared.
        (When::NewHosts | When::JsonKeys(_), Some(_), Text::Absent | Text::TooLarge) => String::new(),
    };
    Some(finding(
        rule.class,
        rule.tier,
        &rule.id,
        format!("{}{detail}", rule.why),
    ))
}

fn text_findings(rules: &Rules, before: Option<&[u8]>, after: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(secret) = new_secret(rules, before, after) {
        let why = format!("line {} looks like {}", secret.line, secret.why);
        found.push(finding(Class::Secret, Tier::Approve, &secret.rule, why));
    }
    if !is_binary(after) {
        let was = before.is_some_and(|bytes| is_deceptive(&String::from_utf8_lossy(bytes)));
        if !was && content::is_deceptive(&String::from_utf8_lossy(after)) {
            found.push(finding(
                Class::Deceptive,
                Tier::Approve,
                "hidden-text",
                "it holds characters that hide or reorder text",
            ));
        }
        if after.starts_with(b"#!") && !before.is_some_and(|bytes| bytes.starts_with(b"#!")) {
            found.push(finding(
                Class::ExecutesOnHost,
                Tier::Flag,
                "interpreter",
                "it names an interpreter and can be started as a program",
            ));
        }
    }
    found
}
