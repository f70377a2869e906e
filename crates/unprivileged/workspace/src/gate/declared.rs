//! Manifests of packages: what changed in them, named member by member.
//!
//! **Trust:** any bytes. Only members on a list of harmless ones pass; a member that is not known, a document that does
//! not parse and a manifest without a parser are held. In JSON the order of members counts as well, but of harmless ones,
//! and an object with two members of one name is held: which of them holds depends on who reads it.
use super::document::{Form, ORDER, differing, nothing, parse, written};
use crate::path::visible;
use serde_json::Value;
use std::collections::BTreeSet;

/// What a change of a manifest means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// Only members that nothing executes or fetches by.
    Harmless,
    /// These members, by name.
    Changed(String),
    /// These members stand twice in their object, in the new version or in the old one.
    Twice(String),
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

/// Tables that say nothing while they are empty.
const IDLE_WHILE_EMPTY: &[&str] = &[
    "dependencies",
    "devDependencies",
    "dev-dependencies",
    "build-dependencies",
    "scripts",
    "features",
    "compilerOptions",
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
        Reader::Members(form, harmless) => members(form, before, after, |path, old, new| {
            harmless.iter().any(|one| is_within(path, one)) && !publishes_other_file(path, new)
                || is_idle(path, old, new)
                || narrows(name, path, old, new)
        }),
        Reader::TypeScript => members(Form::Json, before, after, |path, old, new| {
            let switch = path.len() == 2 && path[0] == "compilerOptions" && plain(old) && plain(new);
            switch || is_idle(path, old, new) || TSCONFIG.iter().any(|one| is_within(path, one))
        }),
        Reader::Statements(comment) => statements(before, after, comment),
        Reader::None => Declared::Unclear("it is a program or a format of its own"),
    }
}

/// Booleans and numbers name nothing that could be loaded.
fn plain(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Bool(_) | Value::Number(_)))
}

fn is_idle(path: &[String], old: Option<&Value>, new: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| {
        value.is_none_or(|value| value.as_object().is_some_and(serde_json::Map::is_empty))
    };
    path.len() == 1 && IDLE_WHILE_EMPTY.contains(&path[0].as_str()) && empty(old) && empty(new)
}

/// Whether a member that limits where a package is published limits it no less than before.
fn narrows(name: &str, path: &[String], old: Option<&Value>, new: Option<&Value>) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (name, path.as_slice()) {
        ("package.json", ["private"]) => new == Some(&Value::Bool(true)),
        ("cargo.toml", ["package", "publish"]) => match new {
            Some(Value::Bool(false)) => true,
            Some(Value::Array(to)) => to.is_empty() || matches!(old, None | Some(Value::Bool(true))),
            None | Some(_) => false,
        },
        // An index refuses a package with a classifier that begins so.
        ("pyproject.toml", ["project", "classifiers"] | ["tool", "poetry", "classifiers"]) => {
            let private = |value: Option<&Value>| {
                let all = value.and_then(Value::as_array).into_iter().flatten();
                all.filter_map(Value::as_str)
                    .any(|one| one.starts_with("Private"))
            };
            !private(old) || private(new)
        }
        _ => false,
    }
}

/// Members that name files which are read into the published package.
const PUBLISHED_FILES: &[&str] = &[
    "package.readme",
    "package.license-file",
    "project.readme",
    "project.license",
    "project.license-files",
    "tool.poetry.readme",
];

/// Whether a member that names a file names one outside the package, or a hidden one: publishing makes it public.
fn publishes_other_file(path: &[String], new: Option<&Value>) -> bool {
    let text = path
        .last()
        .is_some_and(|last| last == "text" || last == "content-type");
    !text && PUBLISHED_FILES.iter().any(|one| is_within(path, one)) && new.is_some_and(names_other_file)
}

fn names_other_file(value: &Value) -> bool {
    match value {
        Value::String(path) => {
            // `..`, a hidden name, or a pattern that may begin with a dot.
            let outside = |part: &str| part != "." && part.starts_with(['.', '[', '{', '?', '~']);
            path.starts_with('/') || path.contains(['\\', ':']) || path.split('/').any(outside)
        }
        Value::Array(items) => items.iter().any(names_other_file),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name != "text" && name != "content-type" && names_other_file(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
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
    let mut paths = differing(&old, &new);
    let counts = |path: &[String]| !path.is_empty() && !harmless(path, at(&old, path), at(&new, path));
    paths.retain(|path| counts(path));
    let were = written(form, before.unwrap_or_default()).unwrap_or_default();
    let are = written(form, after).unwrap_or_default();
    let twice = are.twice.iter().chain(&were.twice).map(|path| path.join("."));
    if let Declared::Changed(names) = name_them(twice) {
        return Declared::Twice(names);
    }
    paths.extend(were.reordered(&are, counts).into_iter().map(|mut path| {
        path.push(ORDER.to_owned());
        path
    }));
    name_them(paths.iter().map(|path| path.join(".")))
}

fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

fn statements(before: Option<&[u8]>, after: &[u8], comment: &str) -> Declared {
    let read = |bytes| std::str::from_utf8(bytes).ok();
    let (Some(old), Some(new)) = (read(before.unwrap_or_default()), read(after)) else {
        return Declared::Unclear("it is not text");
    };
    let comments = if declares_encoding(old, comment) || declares_encoding(new, comment) {
        Comments::Count
    } else {
        Comments::SayNothing
    };
    let read = |text| statement_lines(text, comment, comments);
    let (old, new) = (read(old), read(new));
    if old == new {
        return Declared::Harmless;
    }
    let (were, are): (BTreeSet<&str>, BTreeSet<&str>) =
        (old.iter().copied().collect(), new.iter().copied().collect());
    let gone = old
        .iter()
        .filter(|line| !are.contains(**line))
        .map(|line| format!("- {line}"));
    let came = new
        .iter()
        .filter(|line| !were.contains(**line))
        .map(|line| format!("+ {line}"));
    match name_them(came.chain(gone)) {
        Declared::Harmless => Declared::Changed("the order of its lines".to_owned()),
        other => other,
    }
}

/// Whether a line that begins as a comment may be a statement to some reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comments {
    Count,
    SayNothing,
}

/// The lines that say something, with the blanks before them: in some formats they say where a line belongs.
fn statement_lines<'a>(text: &'a str, comment: &str, comments: Comments) -> Vec<&'a str> {
    // Ruby evaluates the first where the line lies in a string; the others end a line for some readers.
    let live = [
        "#{", "#$", "#@", "\r", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}",
        "\u{2029}",
    ];
    let mut kept = Vec::new();
    let mut continued = false;
    for whole in text.lines() {
        let line = whole.trim_end();
        let body = line.trim_start();
        // Only a whole line is taken for a comment: inside a string the mark means something else.
        let note = comments == Comments::SayNothing
            && body.starts_with(comment)
            && !live.iter().any(|mark| body.contains(mark));
        // What stands after a line that goes on decides where it ends.
        if continued || !body.is_empty() && !note {
            // A blank after the last backslash decides whether the line goes on.
            kept.push(if line.ends_with('\\') { whole } else { line });
        }
        continued = !note && line.ends_with('\\');
    }
    kept
}

/// Whether a comment at the start declares an encoding other than UTF-8: pip, Python and Ruby decode the whole file by it
/// (PEP 263), so that any later comment can hold statements.
fn declares_encoding(text: &str, comment: &str) -> bool {
    let leading = |(number, line): &(usize, &str)| {
        let body = line.trim_start();
        *number < 2 || body.is_empty() || body.starts_with(comment)
    };
    let mut lines = text.lines().enumerate().take_while(leading);
    comment == "#" && lines.any(|(_, line)| names_other_encoding(&line.to_ascii_lowercase()))
}

fn names_other_encoding(line: &str) -> bool {
    line.match_indices("coding").any(|(at, mark)| {
        let value = line[at + mark.len()..].trim_start();
        let Some(value) = value.strip_prefix([':', '=']) else {
            return false;
        };
        let name = value.trim_start();
        let end = name.find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')));
        !matches!(&name[..end.unwrap_or(name.len())], "utf-8" | "utf8" | "utf_8")
    })
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
