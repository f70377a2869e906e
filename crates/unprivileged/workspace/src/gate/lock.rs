//! Lock files: which packages come from where and which digests they must have.
//!
//! **Trust:** any bytes. A lock file pins what is downloaded and executed, and its formats have more ways to say from where
//! than can be listed. So the values of both versions are compared and any difference is held; only the layout may change:
//! what JSON has beside its values (the order of members, members with one name) counts as well.
//! Hosts are looked for in decoded strings, so that no escape hides one; a lock file that does not parse is held.
use super::content::hosts;
use super::document::{Form, ORDER, differing, leaves, nothing, parse, plain_json, written};
use super::written::without_layout;
use crate::path::visible;
use serde_json::Value;
use std::collections::BTreeSet;

/// Members that hold a digest or a revision.
const DIGESTS: &[&str] = &[
    "integrity",
    "checksum",
    "hash",
    "hashes",
    "sha256",
    "sha1",
    "sha512",
    "shasum",
    "narhash",
    "reference",
    "rev",
    "resolved_reference",
    "git-tree-sha1",
    "contenthash",
    "revision",
    "commit",
];

/// What a changed member is about, by the last part of its path that says so. The last row is for the rest.
const SUBJECTS: &[(&str, &[&str])] = &[
    (
        "sources changed",
        &[
            "resolved",
            "source",
            "url",
            "tarball",
            "dist",
            "git",
            "path",
            "type",
            "registry",
            "link",
            "editable",
            "directory",
        ],
    ),
    ("digests or pinned revisions changed", DIGESTS),
    (
        "what runs at installation or when it is loaded changed",
        &[
            "hasinstallscript",
            "scripts",
            "bin",
            "autoload",
            "autoload-dev",
            "extra",
            "plugin-api-version",
        ],
    ),
    (
        "dependencies changed",
        &[
            "dependencies",
            "devdependencies",
            "dev-dependencies",
            "optionaldependencies",
            "optional-dependencies",
            "peerdependencies",
            "require",
            "require-dev",
            "requires",
        ],
    ),
    ("changed", &[]),
];

/// Most names that one part of a reason tells.
const MOST_NAMED: usize = 5;

/// What a change of a lock file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// Nothing but its layout.
    Same,
    /// What changed.
    Changed(String),
    /// It does not parse.
    Unclear,
}

fn form(name: &str) -> Form {
    match name {
        "package-lock.json"
        | ".package-lock.json"
        | "npm-shrinkwrap.json"
        | "composer.lock"
        | "symfony.lock"
        | "pipfile.lock"
        | "packages.lock.json"
        | "deno.lock"
        | "bun.lock"
        | "package.resolved"
        | "renv.lock"
        | "project.assets.json" => Form::Json,
        "cargo.lock" | "poetry.lock" | "uv.lock" | "pdm.lock" | "manifest.toml" | "juliamanifest.toml" => {
            Form::Toml
        }
        _ if name.starts_with("pylock") => Form::Toml,
        "pnpm-lock.yaml" | "pubspec.lock" | "podfile.lock" | "conda-lock.yml" | "pixi.lock"
        | "stack.yaml.lock" | "shrinkwrap.yaml" | "yarn.lock" => Form::Yaml,
        _ => Form::Lines,
    }
}

/// Judges a lock file by its folded path.
pub(super) fn judge(folded: &[u8], before: Option<&[u8]>, after: &[u8]) -> Locked {
    let path = String::from_utf8_lossy(folded);
    let name = path.rsplit('/').next().unwrap_or(&path);
    let form = form(name);
    let Some(new) = parse(form, after) else {
        return Locked::Unclear;
    };
    // An old version that does not parse is as good as none: everything in the new one is news then.
    let old = before.and_then(|bytes| parse(form, bytes));
    let old_text = if old.is_some() {
        before.unwrap_or_default()
    } else {
        b""
    };
    let old = old.unwrap_or_else(|| nothing(form));
    let mut told = Vec::new();
    twice(&mut told, form, old_text, after);
    let were = places(&old);
    name_some(
        &mut told,
        "packages would be fetched from places that were not used before",
        places(&new).into_iter().filter(|place| !were.contains(place)),
    );
    match form {
        Form::Json | Form::Toml => members(&mut told, &old, &new),
        Form::Yaml | Form::Lines => lines(&mut told, old_text, after),
    }
    if told.is_empty() && form == Form::Json && layout_free(old_text) != layout_free(after) {
        told.push("the order of its members or the way they are written changed".to_owned());
    }
    if told.is_empty() {
        Locked::Same
    } else {
        Locked::Changed(told.join("; "))
    }
}

/// Tells members whose object has another of the same name: which of them holds depends on who reads it.
fn twice(told: &mut Vec<String>, form: Form, before: &[u8], after: &[u8]) {
    for (bytes, what) in [
        (after, "members that an object has twice"),
        (before, "members that an object had twice"),
    ] {
        let names = written(form, bytes).map(|written| written.twice);
        let names = names.into_iter().flatten().map(|path| path.join(" "));
        name_some(told, what, names);
        if !told.is_empty() {
            return;
        }
    }
}

fn layout_free(bytes: &[u8]) -> Option<String> {
    Some(without_layout(&plain_json(std::str::from_utf8(bytes).ok()?)?))
}

/// The hosts and local places that decoded strings name.
fn places(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, leaf) in leaves(value) {
        for text in path.iter().map(String::as_str).chain(strings(&leaf)) {
            found.extend(hosts(text.as_bytes()));
        }
    }
    found
}

fn members(told: &mut Vec<String>, old: &Value, new: &Value) {
    let known = packages(old);
    let digested = digested(new);
    let unpinned = packages(new)
        .into_iter()
        .filter(|package| !known.contains(package) && !digested.contains(package))
        .map(|package| package.join(" "));
    name_some(told, "packages without a digest were added", unpinned);
    let mut changed = differing(old, new);
    let orders = |path: &Vec<String>| path.last().is_some_and(|name| name == ORDER);
    // A package that comes or goes changes the order as well.
    if !changed.iter().all(orders) {
        changed.retain(|path| !orders(path));
    }
    for (at, (subject, _)) in SUBJECTS.iter().enumerate() {
        let about = changed.iter().filter(|path| subject_of(path) == at);
        let named = about.map(|path| match path.as_slice() {
            [] => "the whole".to_owned(),
            some => some.join(" "),
        });
        name_some(told, subject, named);
    }
}

fn subject_of(path: &[String]) -> usize {
    let rest = SUBJECTS.len() - 1;
    path.iter()
        .rev()
        .find_map(|part| {
            let part = part.to_lowercase();
            SUBJECTS
                .iter()
                .position(|(_, names)| names.contains(&part.as_str()))
        })
        .unwrap_or(rest)
}

/// The paths of what has a version.
fn packages(value: &Value) -> BTreeSet<Vec<String>> {
    let all = leaves(value).into_iter();
    all.filter_map(|(path, _)| match path.as_slice() {
        [package @ .., last] if last == "version" && !package.is_empty() => Some(package.to_vec()),
        _ => None,
    })
    .collect()
}

/// The paths of what has a digest in it.
fn digested(value: &Value) -> BTreeSet<Vec<String>> {
    let all = leaves(value).into_iter();
    all.filter(|(path, _)| {
        path.last()
            .is_some_and(|name| DIGESTS.contains(&name.to_lowercase().as_str()))
    })
    .flat_map(|(path, _)| (1..path.len()).map(move |end| path[..end].to_vec()))
    .collect()
}

/// Formats of lines: every line counts, since a place is not told from a version there, and so does its indentation.
fn lines(told: &mut Vec<String>, before: &[u8], after: &[u8]) {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let statements = |text: &'_ str| -> Vec<String> {
        let whole = text.lines().map(str::trim_end);
        whole.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let (old, new) = (statements(&before), statements(&after));
    if old == new {
        return;
    }
    let (were, are): (BTreeSet<&String>, BTreeSet<&String>) = (old.iter().collect(), new.iter().collect());
    let came = new.iter().filter(|line| !were.contains(line));
    let gone = old.iter().filter(|line| !are.contains(line));
    name_some(told, "lines added", came.map(|line| line.trim_start().to_owned()));
    name_some(
        told,
        "lines removed",
        gone.map(|line| line.trim_start().to_owned()),
    );
    if told.is_empty() {
        told.push("the order of its lines changed".to_owned());
    }
}

/// Adds a part of the reason with its first names, where there are any.
fn name_some(told: &mut Vec<String>, what: &str, names: impl Iterator<Item = String>) {
    let mut named: Vec<String> = names
        .take(MOST_NAMED + 1)
        .map(|name| visible(name.chars().take(80).collect::<String>().as_bytes()))
        .collect();
    if named.is_empty() {
        return;
    }
    let more = if named.len() > MOST_NAMED { " and more" } else { "" };
    named.truncate(MOST_NAMED);
    told.push(format!("{what}: {}{more}", named.join(", ")));
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    let one = value.as_str();
    let many = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(many)
}
