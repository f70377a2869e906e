//! The judgement of one change: every reason that applies, the strictest of which decides.
//!
//! **Trust:** reads contents only from the immutable store, by the digests that will be applied.
use super::content::{MAX_SCANNED, is_binary, is_deceptive, is_program, new_secret};
use super::fold::mixes_scripts;
use super::judge::{self, Kinds};
use super::names::Tree;
use super::plain::Plain;
use super::rules::{Class, Finding, Rules, Tier};
use crate::audit_delta::Change;
use crate::blobs::{Blobs, read_blob};
use crate::crew::by_piece;
use crate::git::is_git_name;
use crate::manifest::{Content, Kind, Mode};
use crate::path::{TreePath, visible};
use bastle_contract::{Code, Fault};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;

/// Files above this are pointed out: they make a repository heavy for ever.
const LARGE: u64 = 5 << 20;
/// What is read of a file that is too large to be read whole: the kernel looks for an interpreter or a format there.
const HEAD: u64 = 4096;

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
    /// The command that approves exactly this content, where it is held.
    #[must_use]
    pub fn approve_command(&self, run: &str) -> Option<String> {
        (self.tier() == Tier::Approve).then(|| format!("bastle apply {run} --approve {}", self.approval))
    }

    /// The reason that decides.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.findings.first().map_or("", |finding| finding.why.as_str())
    }

    /// The strictest tier.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.findings.first().map_or(Tier::Refuse, |finding| finding.tier)
    }
}

/// Judges every change between the two states of `tree`; `ignored` are the paths that the project's ignore files name.
///
/// # Errors
/// When a content cannot be read.
pub fn assess_all(
    rules: &Rules,
    tree: &Tree<'_>,
    changes: &[Change],
    ignored: &BTreeSet<TreePath>,
    blobs: &dyn Blobs,
) -> Result<Vec<Assessed>, Fault> {
    let one = |change: &Change| {
        let mut assessed = assess(rules, tree, change, blobs)?;
        if ignored.contains(&change.path) {
            let why = "the project's ignore files name it; it is taken only when named with --paths";
            assessed
                .findings
                .push(finding(Class::Ignored, Tier::Note, "ignored", why));
            assessed.ignored = true;
        }
        Ok(assessed)
    };
    by_piece(changes, |piece| piece.iter().map(one).collect())
}

/// Judges one change.
///
/// # Errors
/// When a content cannot be read.
pub fn assess(rules: &Rules, tree: &Tree<'_>, change: &Change, blobs: &dyn Blobs) -> Result<Assessed, Fault> {
    // An old content that is not kept any more counts as unknown: everything in the new one is news then.
    let before = match &change.before {
        // What it led to is not read here.
        Some(Kind::Symlink { .. }) => Text::TooLarge,
        other => text_of(other.as_ref(), blobs).unwrap_or(Text::TooLarge),
    };
    let after = text_of(change.after.as_ref(), blobs)?;
    let mut findings = name_findings(&change.path);
    let kinds = judge::names(rules, tree, change, &before, &after);
    let head = match &after {
        Text::Whole(_) | Text::Absent => None,
        Text::TooLarge => Some(head_of(change.after.as_ref(), blobs)?),
    };
    findings.extend(kind_findings(change, &after, head.as_deref(), &kinds));
    findings.extend(kinds.findings);
    if let Text::Whole(bytes) = &after {
        findings.extend(text_findings(rules, before.whole(), bytes, kinds.plain));
    }
    // A large file differs from its old version in ways that are not looked for: its first line is as good as new.
    findings.extend(head.and_then(|head| interpreter(None, &head, kinds.plain)));
    if findings.is_empty() {
        findings.push(finding(
            Class::Source,
            Tier::Note,
            "source",
            "plain source, text or data",
        ));
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
pub(super) enum Text {
    /// There is no file.
    Absent,
    /// All of it.
    Whole(Vec<u8>),
    /// More than is scanned, or not known.
    TooLarge,
}

impl Text {
    pub(super) fn whole(&self) -> Option<&[u8]> {
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

/// The first bytes of a file that is too large to be read whole.
fn head_of(kind: Option<&Kind>, blobs: &dyn Blobs) -> Result<Vec<u8>, Fault> {
    let Some(Kind::File { digest, .. }) = kind else {
        return Ok(Vec::new());
    };
    let mut head = Vec::new();
    let file = blobs.open(digest)?;
    match file.take(HEAD).read_to_end(&mut head) {
        Ok(_) => Ok(head),
        Err(error) => Err(Fault::new(
            Code::WorkspaceIo,
            digest.to_string(),
            error.to_string(),
        )),
    }
}

pub(super) fn finding(class: Class, tier: Tier, rule: &str, why: impl Into<String>) -> Finding {
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
    if path.components().any(mixes_scripts) {
        found.push(finding(
            Class::Deceptive,
            Tier::Approve,
            "look-alike",
            "its name mixes letters of scripts that look alike and reads as another name",
        ));
    }
    if path.components().any(is_short_name) {
        found.push(finding(
            Class::Deceptive,
            Tier::Approve,
            "short-name",
            "its name is of the form by which some file systems know another file",
        ));
    }
    if path
        .components()
        .any(|part| part.ends_with(b".") || part.ends_with(b" "))
    {
        found.push(finding(
            Class::Deceptive,
            Tier::Approve,
            "trailing-dot",
            "its name ends with a dot or a blank, which some file systems drop: it is the name of another file there",
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

/// `NAME~1`: FAT and NTFS answer to it for a longer name.
fn is_short_name(part: &[u8]) -> bool {
    let stem = part.split(|byte| *byte == b'.').next().unwrap_or(part);
    let mut halves = stem.rsplitn(2, |byte| *byte == b'~');
    match (halves.next(), halves.next()) {
        (Some(number), Some(name)) => {
            !number.is_empty() && !name.is_empty() && number.iter().all(u8::is_ascii_digit)
        }
        (_, None) | (None, _) => false,
    }
}

/// `large` is the head of a file that is too large to be read whole.
fn kind_findings(change: &Change, after: &Text, large: Option<&[u8]>, kinds: &Kinds) -> Vec<Finding> {
    let mut found = Vec::new();
    if attributes(change.before.as_ref()) != attributes(change.after.as_ref()) && change.after.is_some() {
        found.push(finding(
            Class::Attributes,
            Tier::Flag,
            "attributes",
            "its extended attributes change, which a patch or a branch does not carry",
        ));
    }
    match &change.after {
        None | Some(Kind::Dir) => {}
        Some(Kind::File { size, mode, .. }) => {
            let head = after.whole().or(large).unwrap_or_default();
            let program = is_program(head);
            if program {
                found.push(finding(
                    Class::Binary,
                    Tier::Approve,
                    "program",
                    "it is a compiled program",
                ));
            } else if matches!(after, Text::TooLarge) || is_binary(head) {
                let (tier, why) = binary_tier(*mode, after, kinds.plain);
                found.push(finding(Class::Binary, tier, "binary", why));
            }
            if mode.executable {
                found.push(finding(
                    Class::Mode,
                    Tier::Approve,
                    "executable",
                    "it is executable: a person or a tool can start it by its name",
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
        Some(Kind::Symlink { target }) => {
            found.push(link_finding(&change.path, &target.0));
        }
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

/// Bytes under the name of a picture or a font are pointed out; under the name of a text they are held.
fn binary_tier(mode: Mode, after: &Text, plain: Option<Plain>) -> (Tier, &'static str) {
    let text = matches!(
        plain,
        Some(Plain::Source | Plain::Script | Plain::Text | Plain::Data)
    );
    match after {
        Text::Whole(_) if text => (
            Tier::Approve,
            "its name is that of a text and its content is not text",
        ),
        Text::TooLarge if text => (
            Tier::Approve,
            "its name is that of a text, and it is too large to be read whole and checked",
        ),
        Text::Whole(_) | Text::Absent | Text::TooLarge if mode.executable => {
            (Tier::Approve, "it cannot be reviewed as text")
        }
        Text::Whole(_) | Text::Absent | Text::TooLarge => (Tier::Flag, "it cannot be reviewed as text"),
    }
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

fn text_findings(rules: &Rules, before: Option<&[u8]>, after: &[u8], plain: Option<Plain>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(secret) = new_secret(&rules.secrets, before, after) {
        let why = format!("line {} looks like {}", secret.line, secret.why);
        found.push(finding(Class::Secret, Tier::Approve, &secret.rule, why));
    }
    if !is_binary(after) {
        let deceptive = |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => is_deceptive(text),
            Err(_) => is_deceptive(&String::from_utf8_lossy(bytes)),
        };
        if deceptive(after) && !before.is_some_and(deceptive) {
            found.push(finding(
                Class::Deceptive,
                Tier::Approve,
                "hidden-text",
                "it holds characters that hide or reorder text",
            ));
        }
        found.extend(interpreter(before, after, plain));
    }
    found
}

/// What a new interpreter line at the start of a file means.
fn interpreter(before: Option<&[u8]>, after: &[u8], plain: Option<Plain>) -> Option<Finding> {
    if !after.starts_with(b"#!") || before.is_some_and(|bytes| bytes.starts_with(b"#!")) {
        return None;
    }
    let tier = match plain {
        Some(Plain::Source | Plain::Script) => Tier::Flag,
        Some(Plain::Text | Plain::Data | Plain::Media | Plain::Fixture) | None => Tier::Approve,
    };
    let why = "it names an interpreter and can be started as a program";
    Some(finding(Class::ExecutesOnHost, tier, "interpreter", why))
}
