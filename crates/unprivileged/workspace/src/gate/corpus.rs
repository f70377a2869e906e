//! Names that must pass and names that must be held, from the project's own corpus; most of the latter in no catalogue.
use super::*;
use crate::audit_delta::Change;
use crate::manifest::{Entry, Kind, Manifest, Mode};
use crate::path::TreePath;
use crate::testing::{Folder, path};
use std::collections::BTreeMap;

static RULES: std::sync::LazyLock<Rules> =
    std::sync::LazyLock::new(|| Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap());

/// Packages of the tree that the ordinary paths lie in.
const PACKAGES: &[&str] = &[
    "Cargo.toml",
    "crates/core/Cargo.toml",
    "crates/parser/Cargo.toml",
    "packages/core/package.json",
    "apps/web/package.json",
    "src/pkg/__init__.py",
];

/// Known names of every sort, to be spelled and placed in other ways.
#[rustfmt::skip]
const GUARDED: &[&str] = &[
    "Makefile", "build.rs", "setup.py", "conftest.py", "sitecustomize.py", "evil.pth", ".Rprofile", "Rakefile", "rules.mk",
    "CMakeLists.txt", "deps.cmake", "build.gradle", "app.csproj", "Directory.Build.targets", "Directory.Build.props",
    "rebar.config", "mix.exs", "dune", "tool.opam", "flake.nix", "shell.nix", "evil.service", "evil.desktop", "evil.ipynb",
    "evil.jar", "evil.zip", "evil.whl", ".envrc", ".bashrc", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".husky/pre-commit",
    ".vscode/tasks.json", ".idea/workspace.xml", ".vimrc", ".editorconfig", "AGENTS.md", "CLAUDE.md", "GEMINI.md",
    ".cursor/rules/a.mdc", ".cursorrules", ".mcp.json", ".claude/settings.json", ".npmrc", ".yarnrc.yml", "webpack.config.js",
    "Jenkinsfile", "Dockerfile", "docker-compose.yml", "Vagrantfile", "Justfile", ".pre-commit-config.yaml", ".gitattributes",
    ".gitmodules", "CODEOWNERS", ".tool-versions", ".gdbinit", ".eslintrc.js", "jest.config.ts", "tox.ini", "noxfile.py",
    ".cargo/config.toml", "rust-toolchain.toml", "Gemfile", "Podfile", "Package.swift", "build.sbt", "WORKSPACE",
    "BUILD.bazel", "meson.build", "SConstruct", "wscript", "Tiltfile", "Procfile", "devcontainer.json", "crontab",
];

fn corpus(text: &str) -> Vec<TreePath> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| TreePath::new(decode(line)).unwrap()).collect()
}

fn decode(line: &str) -> Vec<u8> {
    let mut parts = line.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    bytes
}

fn ordinary() -> Vec<TreePath> {
    corpus(include_str!("corpus/ordinary.txt"))
}

fn adversarial() -> Vec<TreePath> {
    corpus(include_str!("corpus/adversarial.txt"))
}

fn judge(name: &TreePath, content: &[u8], tree: &Tree<'_>, bits: u32) -> Assessed {
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().to_owned());
    let mut after = blobs.put(content);
    if let Kind::File { mode, .. } = &mut after {
        *mode = Mode::from_bits(bits);
    }
    let change = Change {
        path: name.clone(),
        before: None,
        after: Some(after),
    };
    assess(&RULES, tree, &change, &blobs).unwrap()
}

/// The ordinary paths and the packages they lie in, as one tree.
fn project() -> Manifest {
    let stage = tempfile::tempdir().unwrap();
    let file = Folder(stage.path().to_owned()).put(b"hello\n");
    let mut entries: BTreeMap<TreePath, Kind> = BTreeMap::new();
    for name in ordinary()
        .into_iter()
        .chain(PACKAGES.iter().map(|name| path(name)))
    {
        for above in std::iter::successors(name.parent(), TreePath::parent) {
            entries.insert(above, Kind::Dir);
        }
        entries.insert(name, file.clone());
    }
    let entries = entries.into_iter().map(|(path, kind)| Entry { path, kind });
    Manifest::new(entries.collect()).unwrap()
}

#[test]
fn ordinary_source_text_data_and_media_pass() {
    let names = ordinary();
    assert!(names.len() >= 300, "{}", names.len());
    let project = project();
    let tree = Tree::new(&project, &project);
    let held: Vec<_> = names
        .iter()
        .map(|name| (name.to_string(), judge(name, b"hello\n", &tree, 0o644)))
        .filter(|(_, found)| found.tier() != Tier::Note)
        .map(|(name, found)| (name, found.findings))
        .collect();
    assert!(held.is_empty(), "{} held: {held:#?}", held.len());
}

#[test]
fn a_name_that_is_on_no_list_is_held() {
    let names = adversarial();
    assert!(names.len() >= 400, "{}", names.len());
    let judged: Vec<_> = names
        .iter()
        .map(|name| (name, judge(name, b"hello\n", &Tree::default(), 0o644)))
        .collect();
    let passed: Vec<_> = judged
        .iter()
        .filter(|(_, found)| found.tier() < Tier::Approve)
        .map(|(name, _)| name.to_string())
        .collect();
    assert!(passed.is_empty(), "{} passed: {passed:#?}", passed.len());
    let unknown = judged
        .iter()
        .filter(|(_, found)| found.findings.iter().any(|one| one.class == Class::Unknown))
        .count();
    assert!(
        unknown >= 400,
        "{unknown} of them are held because their kind is unknown"
    );
}

#[test]
fn a_guarded_name_is_held_in_every_spelling_and_in_every_place() {
    let wide = |name: &str| -> String {
        let widen = |c: char| match c {
            'a'..='z' | 'A'..='Z' => char::from_u32(c as u32 + 0xfee0).unwrap(),
            other => other,
        };
        name.chars().map(widen).collect()
    };
    // The first letter that has a look-alike in another script.
    let alike = |name: &str| -> String {
        let at = name
            .find(['a', 'e', 'o', 'c', 'p', 'i', 'A', 'E', 'C', 'M'])
            .unwrap();
        let twin = match &name[at..=at] {
            "a" => '\u{430}',
            "e" => '\u{435}',
            "o" => '\u{43e}',
            "c" => '\u{441}',
            "p" => '\u{440}',
            "i" => '\u{456}',
            "A" => '\u{410}',
            "E" => '\u{415}',
            "C" => '\u{421}',
            _ => '\u{41c}',
        };
        format!("{}{twin}{}", &name[..at], &name[at + 1..])
    };
    for name in GUARDED {
        let spelled = [
            (*name).to_owned(),
            name.to_uppercase(),
            name.to_lowercase(),
            wide(name),
            alike(name),
            format!("{name}."),
            format!("{name} "),
            format!("{name} . ."),
            format!("{}\u{200b}{}", &name[..1], &name[1..]),
            format!("{name}\u{fe0f}"),
            format!("{name}\u{301}"),
            name.replace(['i', 'I'], "\u{131}"),
            name.replace('k', "\u{212a}").replace('s', "\u{17f}"),
        ];
        for spelling in spelled {
            for place in [
                "",
                "sub/",
                "src/deep/er/",
                "tests/fixtures/",
                "docs/",
                "crates/a/",
            ] {
                let at = path(&format!("{place}{spelling}"));
                let found = judge(&at, b"\x01 broken {", &Tree::default(), 0o644);
                assert!(found.tier() >= Tier::Approve, "{at}: {:?}", found.findings);
            }
        }
    }
}

#[test]
fn an_executable_bit_holds_every_ordinary_name_and_an_interpreter_line_those_of_no_program() {
    for name in ordinary() {
        let found = judge(&name, b"hello\n", &Tree::default(), 0o755);
        assert!(found.tier() >= Tier::Approve, "{name}: {:?}", found.findings);
        let found = judge(&name, b"#!/bin/sh\n", &Tree::default(), 0o644);
        assert!(found.tier() >= Tier::Flag, "{name}: {:?}", found.findings);
    }
    for name in [
        "README",
        "docs/a.md",
        "tests/fixtures/request",
        "logs/.gitkeep",
        "data/a.csv",
    ] {
        let found = judge(&path(name), b"#!/bin/sh\n", &Tree::default(), 0o644);
        assert!(found.tier() >= Tier::Approve, "{name}: {:?}", found.findings);
    }
}

#[test]
fn every_entry_of_the_catalogue_is_held_pointed_out_or_judged_by_its_content() {
    use bastle_contract::HostExecutedKind as Of;
    for entry in bastle_policy::host_executed::catalogue().unwrap() {
        let pattern = entry.pattern.as_str();
        let plain = pattern.strip_prefix("**/").unwrap_or(pattern);
        let plain = plain
            .strip_suffix("/**")
            .map_or_else(|| plain.replace("/**/", "/x/"), |dir| format!("{dir}/x"));
        let example = entry.example.clone().unwrap_or(plain);
        let expected = match entry.kind {
            Of::Script | Of::Advisory => Tier::Flag,
            _ => Tier::Approve,
        };
        let found = judge(&path(&example), b"\x01 broken {", &Tree::default(), 0o644);
        assert!(
            found.tier() >= expected,
            "{pattern}: {example}: {:?}",
            found.findings
        );
    }
}
