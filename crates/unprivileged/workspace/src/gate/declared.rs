//! Manifests of packages: what changed in them, named member by member.
//!
//! **Trust:** any bytes. Only members on a list of harmless ones pass; a member that is not known, a document that does
//! not parse and a manifest without a parser are held.
use super::document::{Form, differing, nothing, parse};
use crate::path::visible;
use serde_json::Value;

/// What a change of a manifest means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// Only members that nothing executes or fetches by.
    Harmless,
    /// These members, by name.
    Changed(String),
    /// It cannot be told.
    Unclear(&'static str),
}

/// Most members that a reason names.
const MOST_NAMED: usize = 6;

/// Members of package.json that no tool executes, resolves or fetches by.
const PACKAGE_JSON: &[&str] = &[
    "description",
    "version",
    "keywords",
    "author",
    "contributors",
    "maintainers",
    "license",
    "licenses",
    "homepage",
    "bugs",
    "funding",
    "private",
    "repository",
    "displayName",
    "icon",
    "categories",
    "badges",
    "readme",
    "$schema",
    "sideEffects",
    "types",
    "typings",
    "name",
    "publisher",
    "preview",
    "galleryBanner",
    "qna",
];
const COMPOSER_JSON: &[&str] = &[
    "description",
    "version",
    "keywords",
    "homepage",
    "license",
    "authors",
    "support",
    "funding",
    "readme",
    "time",
    "name",
    "$schema",
    "abandoned",
];
const DENO_JSON: &[&str] = &["name", "version", "description", "license", "fmt", "$schema"];
const CARGO_TOML: &[&str] = &[
    "package.name",
    "package.version",
    "package.description",
    "package.authors",
    "package.license",
    "package.license-file",
    "package.readme",
    "package.keywords",
    "package.categories",
    "package.homepage",
    "package.repository",
    "package.documentation",
    "package.edition",
    "package.rust-version",
    "package.publish",
    "package.exclude",
    "package.include",
    "badges",
    "workspace.package.version",
    "workspace.package.description",
    "workspace.package.authors",
    "workspace.package.license",
    "workspace.package.edition",
    "workspace.package.rust-version",
    "workspace.package.repository",
    "workspace.package.homepage",
];
const PYPROJECT: &[&str] = &[
    "project.name",
    "project.version",
    "project.description",
    "project.readme",
    "project.requires-python",
    "project.license",
    "project.license-files",
    "project.authors",
    "project.maintainers",
    "project.keywords",
    "project.classifiers",
    "project.urls",
    "tool.poetry.name",
    "tool.poetry.version",
    "tool.poetry.description",
    "tool.poetry.authors",
    "tool.poetry.license",
    "tool.poetry.readme",
    "tool.poetry.homepage",
    "tool.poetry.repository",
    "tool.poetry.keywords",
    "tool.poetry.classifiers",
];
const TSCONFIG: &[&str] = &[
    "$schema",
    "display",
    "include",
    "exclude",
    "files",
    "compilerOptions.target",
    "compilerOptions.module",
    "compilerOptions.moduleResolution",
    "compilerOptions.lib",
    "compilerOptions.jsx",
    "compilerOptions.newLine",
    "compilerOptions.moduleDetection",
];

/// How a manifest is read, by its folded name.
enum Reader {
    Members(Form, &'static [&'static str]),
    /// `tsconfig.json`: its switches are harmless besides.
    TypeScript,
    /// Statements, one per line, with this mark before a comment.
    Statements(&'static str),
    None,
}

fn reader(name: &str) -> Reader {
    match name {
        "package.json" | "bower.json" => Reader::Members(Form::Json, PACKAGE_JSON),
        "composer.json" => Reader::Members(Form::Json, COMPOSER_JSON),
        "deno.json" | "deno.jsonc" | "jsr.json" => Reader::Members(Form::Json, DENO_JSON),
        "cargo.toml" => Reader::Members(Form::Toml, CARGO_TOML),
        "pyproject.toml" => Reader::Members(Form::Toml, PYPROJECT),
        "pipfile" | "pixi.toml" | "rye.toml" | "project.toml" | "juliaproject.toml" => {
            Reader::Members(Form::Toml, &[])
        }
        "go.mod" | "go.work" => Reader::Statements("//"),
        "gemfile" | "gems.rb" | "pubspec.yaml" | "pubspec_overrides.yaml" => Reader::Statements("#"),
        _ if name.starts_with("tsconfig") || name.starts_with("jsconfig") => Reader::TypeScript,
        _ if name.ends_with(".txt") || name.ends_with(".in") => Reader::Statements("#"),
        _ => Reader::None,
    }
}

/// Judges a manifest by its folded path; `before` is empty for a new file.
pub(super) fn judge(folded: &[u8], before: Option<&[u8]>, after: &[u8]) -> Declared {
    let path = String::from_utf8_lossy(folded);
    let name = path.rsplit('/').next().unwrap_or(&path);
    match reader(name) {
        Reader::Members(form, harmless) => members(form, before, after, |path, _, _| {
            harmless.iter().any(|one| is_within(path, one))
        }),
        Reader::TypeScript => members(Form::Json, before, after, |path, old, new| {
            let switch = path.len() == 2 && path[0] == "compilerOptions" && plain(old) && plain(new);
            switch || TSCONFIG.iter().any(|one| is_within(path, one))
        }),
        Reader::Statements(comment) => statements(before, after, comment),
        Reader::None => Declared::Unclear("it is a program or a format of its own"),
    }
}

/// Booleans and numbers name nothing that could be loaded.
fn plain(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Bool(_) | Value::Number(_)))
}

fn is_within(path: &[String], dotted: &str) -> bool {
    let mut parts = dotted.split('.');
    let mut at = 0;
    loop {
        match parts.next() {
            None => return true,
            Some(part) if path.get(at).is_some_and(|name| name == part) => at += 1,
            Some(_) => return false,
        }
    }
}

fn members(
    form: Form,
    before: Option<&[u8]>,
    after: &[u8],
    harmless: impl Fn(&[String], Option<&Value>, Option<&Value>) -> bool,
) -> Declared {
    const NOT_PARSED: Declared = Declared::Unclear("it does not parse, so its effect cannot be told");
    let Some(new) = parse(form, after) else {
        return NOT_PARSED;
    };
    let old = match before {
        None => nothing(form),
        Some(bytes) => match parse(form, bytes) {
            Some(old) => old,
            None => return NOT_PARSED,
        },
    };
    if !new.is_object() || !old.is_object() {
        return Declared::Unclear("it is not an object, so its effect cannot be told");
    }
    let at = |value: &Value, path: &[String]| {
        path.iter()
            .try_fold(value.clone(), |value, name| value.get(name).cloned())
    };
    let paths = differing(&old, &new);
    let told = paths
        .iter()
        .filter(|path| !path.is_empty() && !harmless(path, at(&old, path).as_ref(), at(&new, path).as_ref()));
    name_them(told.map(|path| path.join(".")))
}

fn statements(before: Option<&[u8]>, after: &[u8], comment: &str) -> Declared {
    let lines = |bytes: &[u8]| -> Option<Vec<String>> {
        let text = std::str::from_utf8(bytes).ok()?;
        // Only a whole line is taken for a comment: inside a string the mark means something else.
        let whole = text.lines().map(str::trim);
        Some(
            whole
                .filter(|line| !line.is_empty() && !line.starts_with(comment))
                .map(str::to_owned)
                .collect(),
        )
    };
    let (Some(old), Some(new)) = (before.map_or(Some(Vec::new()), lines), lines(after)) else {
        return Declared::Unclear("it is not text");
    };
    if old == new {
        return Declared::Harmless;
    }
    let gone = old
        .iter()
        .filter(|line| !new.contains(line))
        .map(|line| format!("- {line}"));
    let came = new
        .iter()
        .filter(|line| !old.contains(line))
        .map(|line| format!("+ {line}"));
    match name_them(came.chain(gone)) {
        Declared::Harmless => Declared::Changed("the order of its lines".to_owned()),
        other => other,
    }
}

fn name_them(all: impl Iterator<Item = String>) -> Declared {
    let mut named: Vec<String> = all.take(MOST_NAMED + 1).collect();
    if named.is_empty() {
        return Declared::Harmless;
    }
    let more = named.len() > MOST_NAMED;
    named.truncate(MOST_NAMED);
    let shown: Vec<String> = named
        .iter()
        .map(|name| visible(name.chars().take(80).collect::<String>().as_bytes()))
        .collect();
    let end = if more { " and more" } else { "" };
    Declared::Changed(format!("{}{end}", shown.join(", ")))
}
