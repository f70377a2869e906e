//! The judgement of a change by its names: the catalogue, the allow list, manifests, lock files and links.
//!
//! **Trust:** names are folded and come from [`Tree`]; contents are read by the parsers beside this file only.
use super::classify::{Text, finding};
use super::declared::{self, Declared};
use super::deploy::deploys;
use super::fold::fold;
use super::lock::{self, Locked};
use super::names::{Names, Tree};
use super::plain::{Around, Plain, PlainKinds, Unknown};
use super::removal::{Was, removal, weakened};
use super::rules::{Class, Finding, Rules, Tier};
use crate::audit_delta::Change;
use crate::git::is_git_name;
use crate::manifest::Kind;
use crate::path::{TreePath, visible};
use bastle_contract::{HostExecuted, HostExecutedKind as Of};
use std::collections::BTreeSet;

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
    Gone(Was),
    File,
    Link(Shape),
    Directory,
}

/// What a link leads to, by the two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    File,
    Directory,
    /// It leads out, to nothing, or through another link.
    Unknown,
}

fn becomes(tree: &Tree<'_>, change: &Change) -> Becomes {
    let was = match &change.before {
        None | Some(Kind::Dir) => Was::Directory,
        Some(Kind::Symlink { target }) => Was::Link(tree.behind(&change.path, &target.0)),
        Some(Kind::File { .. } | Kind::Submodule { .. } | Kind::Opaque { .. }) => Was::File,
    };
    match (&change.before, &change.after) {
        (_, None) => Becomes::Gone(was),
        (Some(Kind::Dir) | None, Some(Kind::Dir)) => Becomes::Directory,
        (Some(_), Some(Kind::Dir)) => Becomes::Gone(was),
        (_, Some(Kind::Symlink { target })) => Becomes::Link(tree.behind(&change.path, &target.0)),
        (_, Some(Kind::File { .. } | Kind::Submodule { .. } | Kind::Opaque { .. })) => Becomes::File,
    }
}

/// Judges a change by every name it can be reached by.
pub(super) fn names(rules: &Rules, tree: &Tree<'_>, change: &Change, before: &Text, after: &Text) -> Kinds {
    let becomes = becomes(tree, change);
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
        beside_program: &|| tree.has_beside(&change.path, &rules.plain.started_programs),
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
        beside_program: &|| true,
    };
    for (number, name) in names.iter().enumerate() {
        let own = number == 0;
        // A link gives its target the place of the link: the root of the project, or the root of a package.
        let place = TreePath::new(name.as_slice()).ok();
        let there = |list: &[String]| place.as_ref().is_some_and(|place| tree.has_beside(place, list));
        let through = Around {
            at_root: &|| (around.at_root)() || there(&rules.plain.package_markers),
            in_package: &|| false,
            beside_program: &|| (around.beside_program)() || there(&rules.plain.started_programs),
        };
        let around = match (own, name.contains(&b'/')) {
            (_, false) => &at_top,
            (true, true) => &around,
            (false, true) => &through,
        };
        let mut found = match becomes {
            Becomes::Gone(was) => removal(rules, name, was, around),
            Becomes::File | Becomes::Link(_) | Becomes::Directory => {
                one_name(rules, name, becomes, (before, after), around)
            }
        };
        let is_file = matches!(becomes, Becomes::File | Becomes::Link(_));
        if is_file && place.as_ref().is_some_and(|place| is_loaded_script(tree, place)) {
            let why = "executed by Hexo when the site is built: it loads every script beside its _config.yml";
            found.push(finding(
                Class::ExecutesOnHost,
                Tier::Approve,
                "docs-generator",
                why,
            ));
        }
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
        kinds
            .findings
            .extend(renamed_code(&rules.plain, change, &target.0));
    }
    kinds
}

/// Whether a site generator loads the script by its place: `scripts/x.js` beside the configuration of a site or theme.
fn is_loaded_script(tree: &Tree<'_>, path: &TreePath) -> bool {
    const SITE: [&str; 3] = ["_config.yml", "_config.yaml", "_config.json"];
    let loaded = [&b".js"[..], b".cjs", b".mjs"];
    loaded.iter().any(|end| path.as_bytes().ends_with(end))
        && std::iter::successors(path.parent(), TreePath::parent)
            .filter(|above| above.components().next_back() == Some(b"scripts"))
            .any(|above| tree.has_beside(&above, &SITE.map(str::to_owned)))
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
    entries.retain(|entry| !is_document_about(entry, name));
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
    let unknown = match becomes {
        Becomes::Link(shape) => unknown_link(&rules.plain, name, shape, around),
        Becomes::File | Becomes::Directory | Becomes::Gone(_) => rules.plain.judge(name, around).err(),
    };
    if !known && let Some(unknown) = unknown {
        found.push(finding(
            Class::Unknown,
            Tier::Approve,
            "unknown-kind",
            unknown.why(),
        ));
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
    // What a manifest or a list lost cannot be told without its old content.
    if matches!(before, Text::TooLarge) && entry.kind != Of::Script {
        return held(class_of(entry), entry.reason.clone());
    }
    match (entry.kind, becomes, after) {
        (Of::Manifest, Becomes::File, Text::Whole(new)) => match declared::judge(name, before.whole(), new) {
            Declared::Harmless => None,
            Declared::Changed(what) => held(class_of(entry), format!("{}; changed: {what}", entry.reason)),
            Declared::Twice(names) => held(
                class_of(entry),
                format!("{}; members that an object has twice: {names}", entry.reason),
            ),
            Declared::Unclear(why) => held(class_of(entry), format!("{}; {why}", entry.reason)),
        },
        (Of::LockFile, Becomes::File, Text::Whole(new)) => match lock::judge(name, before.whole(), new) {
            Locked::Same => None,
            Locked::Changed(what) => held(Class::Redirect, format!("{}; {what}", entry.reason)),
            Locked::Unclear => held(Class::Redirect, format!("{}; it does not parse", entry.reason)),
        },
        (Of::Advisory, Becomes::File, Text::Whole(new)) => match weakened(before.whole(), new) {
            None => Some(finding(
                class_of(entry),
                Tier::Flag,
                entry.kind.name(),
                entry.reason.clone(),
            )),
            Some(how) => {
                let why = format!("{how}: {}", entry.reason);
                Some(finding(
                    Class::RestrictionRemoved,
                    Tier::Approve,
                    "restriction",
                    why,
                ))
            }
        },
        (Of::Script, ..) => Some(finding(
            class_of(entry),
            Tier::Flag,
            entry.kind.name(),
            entry.reason.clone(),
        )),
        (_, Becomes::File | Becomes::Link(_) | Becomes::Directory | Becomes::Gone(_), _) => {
            held(class_of(entry), entry.reason.clone())
        }
    }
}

pub(super) fn class_of(entry: &HostExecuted) -> Class {
    match entry.kind {
        Of::Vcs if entry.pattern.as_str().ends_with(".gitmodules") => Class::Submodule,
        Of::LockFile => Class::Redirect,
        Of::Archive => Class::Binary,
        _ => Class::ExecutesOnHost,
    }
}

/// `Makefile.md` describes a Makefile: an entry that ends with a wildcard does not mean prose.
fn is_document_about(entry: &HostExecuted, name: &[u8]) -> bool {
    let program = matches!(entry.kind, Of::Build | Of::Ci | Of::Deploy | Of::TaskRunner);
    let last = entry.pattern.as_str().rsplit('/').next().unwrap_or_default();
    let prose = [&b".md"[..], b".rst", b".adoc"]
        .iter()
        .any(|end| name.ends_with(end));
    program && prose && last != "**" && last.ends_with('*') && !last.starts_with(['.', '*'])
}

/// Why the name of a link is on no list, as a file and as a directory where it can be one.
pub(super) fn unknown_link(
    plain: &PlainKinds,
    name: &[u8],
    shape: Shape,
    around: &Around<'_>,
) -> Option<Unknown> {
    let file = || plain.judge(name, around).err();
    let directory = || plain.judge(&[name, b"/.keep"].concat(), around).err();
    match shape {
        Shape::File => file(),
        // A directory needs no extension; what is below it is judged by its own name.
        Shape::Directory => file()
            .filter(|unknown| !matches!(unknown, Unknown::NoExtension | Unknown::Extension))
            .or_else(directory),
        Shape::Unknown => file().or_else(directory),
    }
}

/// A link that gives a file of another kind the name of a program: what it leads to was judged as text or data.
fn renamed_code(plain: &PlainKinds, change: &Change, target: &[u8]) -> Option<Finding> {
    let extension = |path: &[u8]| -> Option<String> {
        let folded = String::from_utf8_lossy(&fold(path)).into_owned();
        let name = folded.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map(|(_, extension)| extension.to_owned())
    };
    let own = extension(change.path.as_bytes())?;
    let renamed = plain.is_code(&own) && extension(target).as_ref() != Some(&own);
    renamed.then(|| {
        let why = format!(
            "it gives the name of a program (.{}) to what is none by its own name",
            visible(own.as_bytes())
        );
        finding(Class::Symlink, Tier::Approve, "link-kind", why)
    })
}

/// A new link gives names to what is behind it already.
fn through_link(rules: &Rules, tree: &Tree<'_>, change: &Change, target: &[u8]) -> Option<Finding> {
    let Some(names) = tree.below_link(&change.path, target) else {
        let why = "it leads to a directory with more names than can be reviewed";
        return Some(finding(Class::Symlink, Tier::Approve, "link-names", why));
    };
    let strict = |entry: &&'static HostExecuted| !matches!(entry.kind, Of::Script | Of::Advisory);
    let directory = |name: &[u8]| -> Vec<u8> {
        let end = name.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        name[..end].to_vec()
    };
    let holding = |wanted: &dyn Fn(&[u8]) -> bool| -> BTreeSet<Vec<u8>> {
        let with = names
            .iter()
            .filter(|name| wanted(&name[(directory(name).len() + 1).min(name.len())..]));
        with.map(|name| directory(name)).collect()
    };
    let listed = |list: &[String]| {
        let folded: BTreeSet<Vec<u8>> = list.iter().map(|name| fold(name.as_bytes())).collect();
        holding(&|name| folded.contains(name))
    };
    let (roots, programs) = (
        listed(&rules.plain.package_markers),
        listed(&rules.plain.started_programs),
    );
    let packages = holding(&|name| name == b"__init__.py");
    names.iter().find_map(|name| {
        let at = directory(name);
        let around = Around {
            at_root: &|| roots.contains(&at),
            in_package: &|| packages.contains(&at),
            beside_program: &|| programs.contains(&at),
        };
        let git = name.split(|byte| *byte == b'/').any(is_git_name);
        let mut entries = rules.catalogue.find(name).into_iter();
        let reason = match entries.find(strict) {
            Some(entry) => entry.reason.as_str(),
            None if git => Unknown::Dotfile.why(),
            None => rules.plain.judge(name, &around).err()?.why(),
        };
        let why = format!("through it {} can be reached: {reason}", visible(name));
        let tier = if git { Tier::Refuse } else { Tier::Approve };
        Some(finding(Class::Symlink, tier, "link-names", why))
    })
}
