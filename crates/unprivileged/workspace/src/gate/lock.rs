//! Lock files: which hosts packages come from and which digests they must have, read from parsed values.
//!
//! **Trust:** any bytes. Hosts are looked for in decoded strings, so that no escape hides one; a lock file that does not
//! parse is held.
use super::content::hosts;
use super::document::{Form, leaves, nothing, parse};
use crate::path::visible;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Members that hold a digest.
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

/// What a change of a lock file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// The same packages from the same places.
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

struct Facts {
    hosts: BTreeSet<String>,
    digests: BTreeMap<String, BTreeSet<String>>,
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
    let old = before
        .and_then(|bytes| parse(form, bytes))
        .unwrap_or_else(|| nothing(form));
    let (old, new) = (facts(form, &old), facts(form, &new));
    let added: Vec<String> = new.hosts.difference(&old.hosts).take(5).cloned().collect();
    if !added.is_empty() {
        return Locked::Changed(format!(
            "packages would be fetched from places that were not used before: {}",
            added.join(", ")
        ));
    }
    let differ = |key: &&String| old.digests.get(*key) != new.digests.get(*key);
    let keys: BTreeSet<&String> = old.digests.keys().chain(new.digests.keys()).collect();
    let changed: Vec<String> = keys
        .into_iter()
        .filter(differ)
        .take(5)
        .map(|key| visible(key.chars().take(80).collect::<String>().as_bytes()))
        .collect();
    if changed.is_empty() {
        Locked::Same
    } else {
        Locked::Changed(format!(
            "digests or pinned revisions changed: {}",
            changed.join(", ")
        ))
    }
}

fn facts(form: Form, value: &Value) -> Facts {
    let mut facts = Facts {
        hosts: BTreeSet::new(),
        digests: BTreeMap::new(),
    };
    for (path, leaf) in leaves(value) {
        for text in path.iter().map(String::as_str).chain(strings(&leaf)) {
            facts.hosts.extend(hosts(text.as_bytes()));
        }
        match form {
            Form::Json | Form::Toml => {
                let last = path.last().map(|name| name.to_lowercase()).unwrap_or_default();
                // bun.lock keeps a package as a list with its digest at the end.
                let listed =
                    strings(&leaf).any(|text| text.starts_with("sha512-") || text.starts_with("sha256-"));
                if DIGESTS.contains(&last.as_str()) || listed {
                    let set = facts.digests.entry(path.join(" ")).or_default();
                    set.extend(strings(&leaf).map(str::to_owned));
                }
            }
            // Formats of lines: any statement counts, since a digest is not told from a version there.
            Form::Yaml | Form::Lines => {
                for text in strings(&leaf) {
                    let digest = [
                        "integrity",
                        "checksum",
                        "sha256",
                        "sha512",
                        "sha1",
                        "h1:",
                        "revision",
                        "ref:",
                    ];
                    if form == Form::Lines || digest.iter().any(|mark| text.contains(mark)) {
                        facts.digests.entry(text.trim().to_owned()).or_default();
                    }
                }
            }
        }
    }
    facts
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    let one = value.as_str();
    let many = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(many)
}
