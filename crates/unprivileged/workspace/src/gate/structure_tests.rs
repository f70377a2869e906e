//! The gate against structure: links, twins, removals, manifests and lock files.
use super::*;
use crate::audit_delta::{Change, Scope, delta};
use crate::manifest::{Entry, Kind, LinkTarget, Manifest};
use crate::path::TreePath;
use crate::testing::{Folder, path};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

static RULES: std::sync::LazyLock<Rules> =
    std::sync::LazyLock::new(|| Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap());

pub(super) struct Lab {
    pub(super) rules: &'static Rules,
    pub(super) blobs: Folder,
    _stage: tempfile::TempDir,
}

pub(super) fn lab() -> Lab {
    let stage = tempfile::tempdir().unwrap();
    Lab {
        rules: &RULES,
        blobs: Folder(stage.path().to_owned()),
        _stage: stage,
    }
}

/// `name -> target` is a link, anything else a file with that content.
pub(super) type Files<'a> = &'a [(&'a str, &'a str)];

impl Lab {
    pub(super) fn tree(&self, files: Files<'_>) -> Manifest {
        let mut entries: BTreeMap<TreePath, Kind> = BTreeMap::new();
        for (name, content) in files {
            let at = path(name);
            for above in std::iter::successors(at.parent(), TreePath::parent) {
                entries.insert(above, Kind::Dir);
            }
            let kind = match content.strip_prefix("-> ") {
                Some(target) => Kind::Symlink {
                    target: LinkTarget(target.as_bytes().to_vec()),
                },
                None => self.blobs.put(content.as_bytes()),
            };
            entries.insert(at, kind);
        }
        let entries = entries.into_iter().map(|(path, kind)| Entry { path, kind });
        Manifest::new(entries.collect()).unwrap()
    }

    pub(super) fn judge(&self, before: Files<'_>, after: Files<'_>) -> BTreeMap<String, Assessed> {
        let (old, new) = (self.tree(before), self.tree(after));
        let changes = delta(&old, &new, Scope::Work);
        let tree = Tree::new(&old, &new);
        let all = assess_all(self.rules, &tree, &changes, &BTreeSet::new(), &self.blobs).unwrap();
        all.into_iter()
            .map(|one| (one.change.path.to_string(), one))
            .collect()
    }

    pub(super) fn change(&self, name: &str, before: &str, after: &str) -> Assessed {
        self.judge(&[(name, before)], &[(name, after)])[name].clone()
    }
}

pub(super) fn why(one: &Assessed) -> String {
    one.findings
        .iter()
        .map(|finding| finding.why.clone())
        .collect::<Vec<_>>()
        .join(" | ")
}

#[test]
fn a_file_is_judged_by_every_name_that_a_link_gives_it() {
    let lab = lab();
    let text = "on: push\n";
    // The control: without the link the same file is a document.
    let alone = lab.judge(&[], &[("docs/workflows/ci.md", text)]);
    assert_eq!(alone["docs/workflows/ci.md"].tier(), Tier::Note);
    for (before, after) in [
        // The project has the link already.
        (
            &[(".github", "-> docs")][..],
            &[(".github", "-> docs"), ("docs/workflows/ci.md", text)][..],
        ),
        // The same change makes it.
        (&[], &[(".github", "-> docs"), ("docs/workflows/ci.md", text)]),
        // Through two links.
        (
            &[("mid", "-> docs")],
            &[
                ("mid", "-> docs"),
                (".github", "-> mid"),
                ("docs/workflows/ci.md", text),
            ],
        ),
        // A link to the directory above.
        (
            &[],
            &[("docs/workflows/ci.md", text), ("conf/.github", "-> ../docs")],
        ),
        // The target is spelled in another case.
        (&[], &[(".github", "-> DOCS"), ("docs/workflows/ci.md", text)]),
    ] {
        let found = lab.judge(before, after);
        let one = &found["docs/workflows/ci.md"];
        assert_eq!(one.tier(), Tier::Approve, "{after:?}: {:?}", one.findings);
        assert!(why(one).contains("a link leads to it as"), "{}", why(one));
    }
    let one = &lab.judge(
        &[("Makefile", "-> src/rules.txt")],
        &[("Makefile", "-> src/rules.txt"), ("src/rules.txt", "all:\n")],
    )["src/rules.txt"];
    assert_eq!(one.tier(), Tier::Approve);
}

#[test]
fn a_link_is_judged_by_what_it_gives_a_name_to() {
    let lab = lab();
    let found = lab.judge(
        &[("data/workflows/ci.md", "on: push\n"), ("lib/a.rs", "")],
        &[
            ("data/workflows/ci.md", "on: push\n"),
            ("lib/a.rs", ""),
            ("project/.github", "-> ../data"),
            ("config", "-> hidden"),
            ("hidden/initializers/x.rb", "boom\n"),
            ("also", "-> lib"),
        ],
    );
    assert_eq!(found["project/.github"].tier(), Tier::Approve);
    assert_eq!(
        found["config"].tier(),
        Tier::Approve,
        "{:?}",
        found["config"].findings
    );
    assert_eq!(found["hidden/initializers/x.rb"].tier(), Tier::Approve);
    // The control: a link to plain source is pointed out and taken.
    assert_eq!(found["also"].tier(), Tier::Flag, "{:?}", found["also"].findings);
    assert_eq!(
        lab.judge(&[], &[("x", "-> .git/hooks")])["x"].tier(),
        Tier::Refuse
    );
}

#[test]
fn a_link_at_the_root_gives_its_target_the_place_of_the_link() {
    let lab = lab();
    let found = lab.judge(
        &[],
        &[
            ("newtool.toml", "-> deep/inner.toml"),
            ("deep/inner.toml", "a=1\n"),
            ("deep/other.toml", "a=1\n"),
        ],
    );
    assert_eq!(found["deep/inner.toml"].tier(), Tier::Approve);
    assert!(why(&found["deep/inner.toml"]).contains("newtool.toml"));
    assert_eq!(found["deep/other.toml"].tier(), Tier::Note, "the control");
}

#[test]
fn a_module_that_hides_one_of_the_interpreter_is_held_outside_a_package() {
    let lab = lab();
    let found = lab.judge(
        &[],
        &[
            ("tools/json.py", "x\n"),
            ("app/__init__.py", "\n"),
            ("app/json.py", "x\n"),
            ("email/__init__.py", "\n"),
            ("app/email/__init__.py", "\n"),
        ],
    );
    assert_eq!(found["tools/json.py"].tier(), Tier::Approve);
    assert_eq!(found["email/__init__.py"].tier(), Tier::Approve);
    assert_eq!(found["app/json.py"].tier(), Tier::Note, "a module of a package");
    assert_eq!(found["app/email/__init__.py"].tier(), Tier::Note);
}

#[test]
fn links_that_lead_in_circles_end_and_are_never_weaker() {
    let lab = lab();
    let found = lab.judge(
        &[],
        &[("a", "-> ."), ("b", "-> a"), ("c", "-> c"), ("src/x.rs", "x\n")],
    );
    assert_eq!(found.len(), 5, "{:?}", found.keys());
    let many: Vec<(String, String)> = (0..100).map(|n| (format!("l{n}"), "-> src".to_owned())).collect();
    let mut files: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    files.push(("src/x.rs", "x\n"));
    assert_eq!(lab.judge(&[], &files)["src/x.rs"].tier(), Tier::Approve);
}

#[test]
fn a_removed_restriction_is_held_and_a_removed_source_is_not() {
    let lab = lab();
    for name in [
        ".npmrc",
        "CODEOWNERS",
        ".github/CODEOWNERS",
        ".gitattributes",
        "package-lock.json",
        "Cargo.lock",
        ".pre-commit-config.yaml",
        ".claude/settings.json",
        "agent-permissions.json",
        "SECURITY.md",
        ".eslintrc.json",
        ".gitignore",
        ".github/workflows/ci.yml",
        "deny.toml",
        ".unheard-of",
    ] {
        let one = lab.judge(&[(name, "limit\n")], &[])[name].clone();
        assert_eq!(one.tier(), Tier::Approve, "{name}: {:?}", one.findings);
        assert_eq!(one.findings[0].class, Class::RestrictionRemoved, "{name}");
        // Replaced by a directory, it is gone as well.
        let one = lab.judge(&[(name, "limit\n")], &[(&format!("{name}/x.md"), "")])[name].clone();
        assert_eq!(one.tier(), Tier::Approve, "{name}: {:?}", one.findings);
    }
    for name in ["src/main.rs", "docs/a.md", "assets/logo.png"] {
        assert_eq!(
            lab.judge(&[(name, "x\n")], &[])[name].tier(),
            Tier::Note,
            "{name}"
        );
    }
    assert_eq!(
        lab.change(".gitignore", "target\n.env\n", "target\n").tier(),
        Tier::Approve
    );
    assert_eq!(
        lab.change(".gitignore", "target\n", "target\nout\n").tier(),
        Tier::Flag
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of manifests")]
fn a_manifest_is_held_by_what_changed_in_it_and_passes_where_nothing_runs() {
    let lab = lab();
    let held: &[(&str, &str, &str, &str)] = &[
        (
            "package.json",
            r#"{"name":"x"}"#,
            r#"{"name":"x","scripts":{"postinstall":"sh x"}}"#,
            "scripts.postinstall",
        ),
        (
            "package.json",
            r#"{"dependencies":{}}"#,
            r#"{"dependencies":{"b":"1"}}"#,
            "dependencies.b",
        ),
        (
            "package.json",
            "{}",
            r#"{"jest":{"globalSetup":"./x.js"}}"#,
            "jest.globalSetup",
        ),
        (
            "package.json",
            "{}",
            r#"{"lint-staged":{"*":"sh"}}"#,
            "lint-staged.*",
        ),
        (
            "package.json",
            "{}",
            r#"{"s\u0063ripts":{"test":"x"}}"#,
            "scripts.test",
        ),
        ("package.json", "{}", r#"{"somethingNew":true}"#, "somethingNew"),
        (
            "package.json",
            r#"{"scripts":{"prepare":"husky"}}"#,
            "{}",
            "scripts.prepare",
        ),
        ("package.json", "{}", "{broken", "does not parse"),
        ("package.json", "{}", "[]", "not an object"),
        ("Package.JSON", "{}", r#"{"bin":"x.js"}"#, "bin"),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nbuild='evil.rs'\n",
            "package.build",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nlinks='z'\n",
            "package.links",
        ),
        ("Cargo.toml", "", "[lib]\nproc-macro=true\n", "lib.proc-macro"),
        (
            "Cargo.toml",
            "",
            "[patch.crates-io]\nserde={path='x'}\n",
            "patch.crates-io.serde.path",
        ),
        (
            "Cargo.toml",
            "",
            "[dependencies]\nx={git='https://a.example/x'}\n",
            "dependencies.x.git",
        ),
        (
            "crates/a/Cargo.toml",
            "",
            "[build-dependencies]\nx='1'\n",
            "build-dependencies.x",
        ),
        ("Cargo.toml", "", "not toml [", "does not parse"),
        (
            "pyproject.toml",
            "",
            "[build-system]\nbuild-backend='evil'\nbackend-path=['.']\n",
            "build-system.backend-path",
        ),
        (
            "pyproject.toml",
            "",
            "[project.scripts]\nx='a:b'\n",
            "project.scripts.x",
        ),
        (
            "pyproject.toml",
            "",
            "[tool.pytest.ini_options]\naddopts='-p evil'\n",
            "tool.pytest.ini_options.addopts",
        ),
        (
            "composer.json",
            "{}",
            r#"{"scripts":{"post-install-cmd":"sh"}}"#,
            "scripts.post-install-cmd",
        ),
        (
            "composer.json",
            "{}",
            r#"{"repositories":[{"type":"vcs","url":"https://a.example"}]}"#,
            "repositories",
        ),
        (
            "go.mod",
            "module a\n",
            "module a\nreplace b => ../evil\n",
            "+ replace b => ../evil",
        ),
        (
            "go.mod",
            "module a\ngo 1.22\n",
            "module a\ngo 1.22\ntoolchain go1.99\n",
            "+ toolchain go1.99",
        ),
        (
            "tsconfig.json",
            "{}",
            r#"{"compilerOptions":{"plugins":[{"name":"evil"}]}}"#,
            "compilerOptions.plugins",
        ),
        ("tsconfig.json", "{ // c\n}", r#"{"extends":"./x"}"#, "extends"),
        (
            "tsconfig.base.json",
            "{}",
            r#"{"compilerOptions":{"paths":{"a":["b"]}}}"#,
            "compilerOptions.paths",
        ),
        (
            "requirements.txt",
            "a==1\n",
            "a==1\n--index-url https://a.example\n",
            "+ --index-url",
        ),
        ("Gemfile", "gem 'a'\n", "gem 'a'\n`sh x`\n", "+ `sh x`"),
        (
            "pom.xml",
            "<project/>",
            "<project><build/></project>",
            "executed by Maven",
        ),
    ];
    for (name, before, after, told) in held {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
        assert!(
            why(&one).contains(told),
            "{name}: {told:?} is not in {:?}",
            why(&one)
        );
    }
    let passed: &[(&str, &str, &str)] = &[
        (
            "package.json",
            r#"{"version":"1","scripts":{"a":"b"}}"#,
            r#"{"description":"d","version":"2","scripts":{"a":"b"}}"#,
        ),
        (
            "package.json",
            r#"{"keywords":["a"],"dependencies":{"x":"1"}}"#,
            r#"{"dependencies":{"x":"1"},"keywords":["b"]}"#,
        ),
        (
            "Cargo.toml",
            "[package]\nversion='1'\n[dependencies]\nx='1'\n",
            "# note\n[package]\nversion='2'\n[dependencies]\nx='1'\n",
        ),
        (
            "pyproject.toml",
            "[project]\nversion='1'\n",
            "[project]\nversion='2'\ndescription='d'\n",
        ),
        (
            "composer.json",
            r#"{"description":"a"}"#,
            r#"{"description":"b"}"#,
        ),
        (
            "tsconfig.json",
            "{\"compilerOptions\":{}}",
            "{\"compilerOptions\":{\"strict\":true,/* c */\"target\":\"es2022\",}}",
        ),
        ("go.mod", "module a\n", "// note\nmodule a\n"),
        ("requirements.txt", "a==1\n", "# why\na==1\n"),
    ];
    for (name, before, after) in passed {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Note, "{name} {after}: {:?}", one.findings);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of lock files")]
fn a_lock_file_is_parsed_before_hosts_are_looked_for() {
    let lab = lab();
    let npm = |url: &str, digest: &str| {
        format!(
            r#"{{"packages":{{"node_modules/a":{{"version":"1","resolved":"{url}","integrity":"{digest}"}}}}}}"#
        )
    };
    let old = npm("https://packages.example.org/a.tgz", "sha512-AAAA");
    for evil in [
        npm("https://evil.example.net/a.tgz", "sha512-AAAA"),
        npm("https:\\u002f\\u002fevil.example.net/a.tgz", "sha512-AAAA"),
        npm("https:\\/\\/evil.example.net\\/a.tgz", "sha512-AAAA"),
        npm(
            "https://packages.example.org@evil.example.net/a.tgz",
            "sha512-AAAA",
        ),
        npm("git+ssh://git@evil.example.net/a", "sha512-AAAA"),
        npm("file:../../x", "sha512-AAAA"),
        npm("https://packages.example.org:8443/a.tgz", "sha512-AAAA"),
        npm("https://packages.example.org/a.tgz", "sha512-BBBB"),
        "{broken".to_owned(),
    ] {
        let one = lab.change("package-lock.json", &old, &evil);
        assert_eq!(one.tier(), Tier::Approve, "{evil}: {:?}", one.findings);
        assert_eq!(one.findings[0].class, Class::Redirect);
    }
    // The control: the same places and digests in another order or layout.
    let same = old.replace(":{", ": {\n");
    assert_eq!(lab.change("package-lock.json", &old, &same).tier(), Tier::Note);
    let pairs = [
        (
            "yarn.lock",
            "a@^1:\n  version \"1\"\n  resolved \"https://p.example/a\"\n  integrity sha512-A\n",
            "a@^1:\n  version \"1\"\n  resolved \"https:\\u002f\\u002fevil.example/a\"\n  integrity sha512-A\n",
        ),
        (
            "pnpm-lock.yaml",
            "packages:\n  a@1:\n    resolution: {integrity: sha512-A}\n",
            "packages:\n  a@1:\n    resolution: {integrity: sha512-A, tarball: \"https:\\x2f/evil.example/a\"}\n",
        ),
        ("pnpm-lock.yaml", "packages:\n", "packages: &a\n  x: *a\n"),
        (
            "pnpm-lock.yaml",
            "packages:\n",
            "packages: !!binary aHR0cHM6Ly9l\n",
        ),
        (
            "Cargo.lock",
            "[[package]]\nname='a'\nversion='1'\nchecksum='aa'\n",
            "[[package]]\nname='a'\nversion='1'\nchecksum='bb'\n",
        ),
        (
            "Cargo.lock",
            "[[package]]\nname='a'\nversion='1'\n",
            "[[package]]\nname='a'\nversion='1'\nsource=\"git+https:\\u002f/evil.example/a\"\n",
        ),
        (
            "poetry.lock",
            "",
            "[[package]]\nname='a'\nversion='1'\n[package.source]\nurl='https://evil.example'\n",
        ),
        ("uv.lock", "", "not toml ["),
        (
            "Pipfile.lock",
            "{}",
            r#"{"_meta":{"sources":[{"url":"https://evil.example"}]}}"#,
        ),
        (
            "composer.lock",
            "{}",
            r#"{"packages":[{"name":"a","version":"1","dist":{"url":"https://evil.example/a"}}]}"#,
        ),
        ("go.sum", "a v1 h1:x\n", "a v1 h1:y\n"),
        ("Gemfile.lock", "GEM\n", "GEM\n  remote: https://evil.example/\n"),
        (
            "bun.lock",
            "{}",
            r#"{"packages":{"a":["a@1","",{},"sha512-A"],},}"#,
        ),
        ("bun.lockb", "x", "y"),
    ];
    for (name, before, after) in pairs {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
    }
}

#[test]
fn what_is_executable_or_is_not_what_its_name_says_is_held() {
    let lab = lab();
    let plain = lab.change("tools/gen.py", "a\n", "#!/usr/bin/python3\nb\n");
    assert_eq!(plain.tier(), Tier::Flag, "{:?}", plain.findings);
    for (name, content) in [
        ("docs/a.md", "#!/bin/sh\n"),
        ("data/a.csv", "#!/bin/sh\n"),
        ("src/a.c", "a\0b"),
        ("docs/a.txt", "MZ\u{1}"),
        ("deployment/app.yaml", "apiVersion: v1\nkind: Pod\n"),
        ("ops/run.yaml", "- hosts: all\n  tasks:\n    - shell: x\n"),
    ] {
        let one = lab.change(name, "", content);
        assert_eq!(one.tier(), Tier::Approve, "{name}: {:?}", one.findings);
    }
    let found = lab.judge(
        &[("sub/package.json", "{}")],
        &[
            ("sub/package.json", "{}"),
            ("sub/unheard.toml", ""),
            ("other/data.toml", ""),
        ],
    );
    assert_eq!(
        found["sub/unheard.toml"].tier(),
        Tier::Approve,
        "the root of a package"
    );
    assert_eq!(found["other/data.toml"].tier(), Tier::Note, "data elsewhere");
}

pub(super) const SAMPLES: &[&str] = &[
    "Makefile",
    ".github/workflows/ci.yml",
    "src/main.rs",
    "docs/a.md",
    ".foorc",
    "package.json",
    "build.rs",
    "a/b/c.json",
    "CLAUDE.md",
    "x.unknown",
    "scripts/run.sh",
    "Cargo.lock",
    ".vscode/tasks.json",
    "assets/logo.png",
    "kiss.cfg",
];

fn respell(name: &str, choice: u64) -> String {
    name.chars()
        .enumerate()
        .flat_map(|(at, c)| {
            let one = match (choice >> (at % 60)) & 3 {
                0 => c.to_uppercase().collect::<String>(),
                1 if c.is_ascii_alphanumeric() => {
                    char::from_u32(c as u32 + 0xfee0).map_or(c.to_string(), |wide| wide.to_string())
                }
                2 if c == 'k' || c == 'K' => "\u{212a}".to_owned(),
                _ => c.to_string(),
            };
            one.chars().collect::<Vec<_>>()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_twin_of_a_name_is_never_judged_weaker(at in 0..SAMPLES.len(), choice: u64) {
        let lab = lab();
        let name = SAMPLES[at];
        let twin = respell(name, choice);
        let plain = lab.judge(&[], &[(name, "text\n")])[name].clone();
        let change = Change { path: path(&twin), before: None, after: plain.change.after.clone() };
        let spelled = assess(lab.rules, &Tree::default(), &change, &lab.blobs).unwrap();
        prop_assert!(spelled.tier() >= plain.tier(), "{twin}: {:?}", spelled.findings);
        let rules = |one: &Assessed| -> BTreeSet<String> { one.findings.iter().map(|f| f.rule.clone()).filter(|r| r != "name").collect() };
        let (a, b) = (rules(&plain), rules(&spelled));
        prop_assert!(a == b || a.contains("source"), "{twin}: {a:?} {b:?}");
    }

    #[test]
    fn a_link_never_makes_the_judgement_of_a_file_weaker(at in 0..SAMPLES.len(), to in "[a-c]{1,2}", link in "[d-f]{1,2}") {
        let lab = lab();
        let name = SAMPLES[at];
        let inner = format!("{to}/{name}");
        let alone = lab.judge(&[], &[(&inner, "text\n")])[&inner].tier();
        let target = format!("-> {to}");
        let linked = lab.judge(&[], &[(&inner, "text\n"), (&link, &target)])[&inner].tier();
        prop_assert!(linked >= alone);
        // The other way round: reached by the name, the file is judged as the name is.
        let hidden = lab.judge(&[], &[("deep/inner.txt", "text\n"), (name, "-> deep/inner.txt")]);
        if let (Some(file), direct) = (hidden.get("deep/inner.txt"), lab.judge(&[], &[(name, "text\n")])[name].tier())
            && name.split('/').count() == 1
        {
            let expected = if direct == Tier::Approve { Tier::Approve } else { Tier::Note };
            prop_assert!(file.tier() >= expected, "{name}: {:?}", file.findings);
        }
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes: Vec<u8>, name in 0..SAMPLES.len()) {
        let lab = lab();
        let mut data = SAMPLES[name].as_bytes().to_vec();
        data.push(0);
        data.extend(bytes);
        fuzz_gate(lab.rules, &data);
    }
}
