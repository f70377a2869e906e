//! Ways around the gate that were found by attacking it, each beside a control that passes.
use super::structure_tests::{Files, SAMPLES, lab, why};
use super::*;
use crate::audit_delta::{Scope, delta};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Lock files in which only the host stays the same: name, before, after, and what the reason says.
type LockCase = (&'static str, &'static str, &'static str, &'static str);

const NPM: &str = r#"{"packages":{"":{"name":"x"},"node_modules/a":{"version":"1","resolved":"https://p.example/a.tgz","integrity":"sha512-A"}}}"#;
const NPM_GIT: &str =
    r#"{"packages":{"node_modules/a":{"version":"1","resolved":"git+ssh://git@p.example/a.git#1111"}}}"#;
const CARGO: &str = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1\"\nsource = \"git+https://p.example/a#1111\"\n[[package]]\nname = \"x\"\nversion = \"1\"\ndependencies = [\"a\"]\n";
const UV: &str =
    "[[package]]\nname = \"a\"\nversion = \"1\"\nsource = { git = \"https://p.example/a?rev=v1#1111\" }\n";
const PNPM: &str = "lockfileVersion: '9.0'\npackages:\n  a@https://p.example/o/a/tar.gz/1:\n    resolution: {tarball: https://p.example/o/a/tar.gz/1}\n    version: 1.0.0\n";
const YARN: &str = "a@^1:\n  version \"1\"\n  resolved \"https://p.example/a/-/a-1.tgz#aaaa\"\n";
const COMPOSER: &str = r#"{"packages":[{"name":"o/a","version":"1","dist":{"type":"zip","url":"https://p.example/o/a/zip/1","reference":"1","shasum":""},"autoload":{"files":["a.php"]}}]}"#;

#[expect(clippy::too_many_lines, reason = "a table of lock files")]
fn lock_cases() -> Vec<LockCase> {
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let swap =
        |text: &str, from: &str, to: &str| -> &'static str { leak(text.replacen(from, to, usize::MAX)) };
    vec![
        (
            "package-lock.json",
            NPM,
            swap(
                NPM,
                "}}}",
                r#"},"node_modules/b":{"version":"1","resolved":"https://p.example/b.tgz","hasInstallScript":true}}}"#,
            ),
            "without a digest",
        ),
        (
            "package-lock.json",
            NPM,
            swap(NPM, "a.tgz", "b.tgz"),
            "sources changed",
        ),
        (
            "package-lock.json",
            NPM_GIT,
            swap(NPM_GIT, "1111", "2222"),
            "sources changed",
        ),
        (
            "package-lock.json",
            NPM,
            swap(
                NPM,
                r#""version":"1","#,
                r#""version":"1","hasInstallScript":true,"#,
            ),
            "installation",
        ),
        (
            "package-lock.json",
            NPM,
            swap(NPM, r#""name":"x""#, r#""name":"x","dependencies":{"a":"1"}"#),
            "dependencies changed",
        ),
        (
            "Cargo.lock",
            CARGO,
            swap(CARGO, "1111", "2222"),
            "sources changed",
        ),
        (
            "Cargo.lock",
            CARGO,
            swap(CARGO, "[\"a\"]", "[\"a\", \"b\"]"),
            "dependencies changed",
        ),
        ("uv.lock", UV, swap(UV, "1111", "2222"), "sources changed"),
        (
            "pnpm-lock.yaml",
            PNPM,
            swap(PNPM, "/o/a/", "/evil/a/"),
            "lines added",
        ),
        (
            "pnpm-lock.yaml",
            PNPM,
            swap(
                PNPM,
                "    version: 1.0.0\n",
                "    version: 1.0.0\n    requiresBuild: true\n",
            ),
            "lines added",
        ),
        (
            "yarn.lock",
            YARN,
            swap(YARN, "/a/-/a-1.tgz#aaaa", "/b/-/b-1.tgz#bbbb"),
            "lines added",
        ),
        (
            "composer.lock",
            COMPOSER,
            swap(COMPOSER, "/o/a/zip", "/evil/a/zip"),
            "sources changed",
        ),
        (
            "composer.lock",
            COMPOSER,
            swap(COMPOSER, "a.php", "b.php"),
            "installation",
        ),
        (
            "Pipfile.lock",
            r#"{"_meta":{"sources":[{"name":"a","url":"https://a.example"},{"name":"b","url":"https://b.example"}]}}"#,
            r#"{"_meta":{"sources":[{"name":"b","url":"https://b.example"},{"name":"a","url":"https://a.example"}]}}"#,
            "sources",
        ),
        (
            "go.sum",
            "a v1 h1:x\nb v1 h1:y\n",
            "b v1 h1:y\na v1 h1:x\n",
            "order",
        ),
        (
            "Gemfile.lock",
            "GEM\n  remote: x\n",
            "GEM\n    remote: x\n",
            "lines added",
        ),
    ]
}

#[test]
fn a_lock_file_in_which_only_the_host_stays_the_same_is_held() {
    let lab = lab();
    for (name, before, after, told) in lock_cases() {
        assert_ne!(before, after, "{name}: the case changes something");
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
        assert!(why(&one).contains(told), "{name} {after}: {}", why(&one));
    }
    // The control: another layout of the same.
    for (name, before, after) in [
        ("package-lock.json", NPM, NPM.replace(":{", " : {\n  ")),
        ("Cargo.lock", CARGO, CARGO.replace(" = ", "=")),
        ("uv.lock", UV, format!("# made by a tool\n{UV}")),
        ("pnpm-lock.yaml", PNPM, PNPM.replace('\n', "\r\n")),
        ("yarn.lock", YARN, format!("\n{YARN}\n")),
        ("composer.lock", COMPOSER, COMPOSER.replace(',', ",\n")),
    ] {
        assert_eq!(lab.change(name, before, &after).tier(), Tier::Note, "{name}");
    }
}

/// Text that passed earlier, reached by a link that a later run makes.
const PLANTED: Files<'static> = &[
    ("docs/notes.txt", "import os\n"),
    ("lib/notes.md", "x\n"),
    ("lib/deep/a.txt", "x\n"),
];

fn linked(link: &str, target: &str) -> Assessed {
    let to = format!("-> {target}");
    let mut after = PLANTED.to_vec();
    after.push((link, &to));
    lab().judge(PLANTED, &after)[link].clone()
}

#[test]
fn a_new_link_is_judged_as_a_file_of_its_name() {
    for (link, target) in [
        ("json.py", "docs/notes.txt"),
        ("postinstall.js", "docs/notes.txt"),
        ("build.json", "docs/notes.txt"),
        ("sometool.yaml", "docs/notes.txt"),
        ("dev-reqs.txt", "docs/notes.txt"),
        ("Zfile", "docs/notes.txt"),
        ("src/data.unheard", "../docs/notes.txt"),
        ("vendor", "lib"),
        ("META-INF", "lib"),
        ("src/conf.d", "../lib"),
        ("AI_RULES.md", "lib/notes.md"),
        ("AI_RULES.md", "lib"),
        // Source by its name, text by what it leads to.
        ("src/parse.rs", "../docs/notes.txt"),
        ("src/helper.py", "../docs/notes.txt"),
        ("src/view.js", "../lib/notes.md"),
        ("scripts/run.sh", "../docs/notes.txt"),
        // To nothing that is there.
        ("src/unheard", "nothing"),
        ("vendor", "nothing"),
    ] {
        let one = linked(link, target);
        assert_eq!(
            one.tier(),
            Tier::Approve,
            "{link} -> {target}: {:?}",
            one.findings
        );
    }
    for (link, target) in [
        ("docs/more.md", "../lib/notes.md"),
        ("docs/more.txt", "notes.txt"),
        ("src/also", "../lib"),
        ("also", "lib/deep"),
    ] {
        let one = linked(link, target);
        assert_eq!(one.tier(), Tier::Flag, "{link} -> {target}: {:?}", one.findings);
    }
}

#[test]
fn a_new_link_to_a_directory_is_judged_by_every_name_below_it() {
    let lab = lab();
    let before: Files<'_> = &[
        ("lib/workflows/a.txt", "x\n"),
        ("tpl/pkg/package.json", "{}"),
        ("tpl/pkg/x.md", "x\n"),
        ("more/tool.unheard", "x\n"),
        ("plain/a.rs", "x\n"),
    ];
    let mut after = before.to_vec();
    after.extend([
        ("src/fine", "-> ../plain"),
        ("src/held", "-> ../more"),
        ("one/pkg", "-> ../tpl/pkg"),
    ]);
    let found = lab.judge(before, &after);
    assert_eq!(found["src/fine"].tier(), Tier::Flag);
    for held in ["src/held", "one/pkg"] {
        assert_eq!(
            found[held].tier(),
            Tier::Approve,
            "{held}: {:?}",
            found[held].findings
        );
    }
}

#[test]
fn a_link_of_the_host_gives_a_file_the_place_of_the_link() {
    let lab = lab();
    let before: Files<'_> = &[
        ("packages/x/package.json", "{}"),
        ("packages/x/newtool.toml", "-> ../../deep/inner.toml"),
        ("deep/inner.toml", "a=1\n"),
        ("deep/other.toml", "a=1\n"),
    ];
    let mut after = before.to_vec();
    after[2].1 = "a=2\n";
    after[3].1 = "a=2\n";
    let found = lab.judge(before, &after);
    assert_eq!(found["deep/inner.toml"].tier(), Tier::Approve);
    assert_eq!(found["deep/other.toml"].tier(), Tier::Note, "the control");
}

#[test]
fn an_absolute_link_of_the_host_into_the_project_gives_names_as_any_other() {
    let lab = lab();
    for (target, tier) in [
        ("-> /abs/project/docs", Tier::Approve),
        ("-> /abs//./project/docs/", Tier::Approve),
        ("-> /abs/project/src/../docs", Tier::Approve),
        // The control: it leads elsewhere.
        ("-> /abs/project2/docs", Tier::Note),
        ("-> /elsewhere/docs", Tier::Note),
    ] {
        let before = lab.tree(&[(".github", target)]);
        let after = lab.tree(&[(".github", target), ("docs/workflows/ci.md", "on: push\n")]);
        let tree = Tree::rooted(&before, &after, &[Path::new("/abs/project")]);
        let changes = delta(&before, &after, Scope::Work);
        let all = assess_all(lab.rules, &tree, &changes, &BTreeSet::new(), &lab.blobs).unwrap();
        let one = all
            .iter()
            .find(|one| one.change.path.to_string() == "docs/workflows/ci.md")
            .unwrap();
        assert_eq!(one.tier(), tier, "{target}: {:?}", one.findings);
    }
}

#[test]
fn what_may_have_been_a_restriction_is_held_when_it_goes_away() {
    let lab = lab();
    for name in [
        ".htaccess",
        ".dockerignore",
        ".helmignore",
        "firestore.rules",
        "storage.rules",
        "nginx.conf",
        "web.config",
        "jest.config.js",
        "pytest.ini",
        "k8s/netpol.yaml",
        "seccomp.json",
        "security/seccomp.json",
        "pg_hba.conf",
        "kyverno.yaml",
        "Makefile",
        "package.json",
        ".vscode/settings.json",
        "limits.unheard",
        "hooks/check.sh",
    ] {
        let one = lab.judge(&[(name, "limit\n")], &[])[name].clone();
        assert_eq!(one.tier(), Tier::Approve, "{name}: {:?}", one.findings);
        assert_eq!(one.findings[0].class, Class::RestrictionRemoved, "{name}");
    }
    let links: Files<'_> = &[
        ("docs/a.md", "x\n"),
        (".unheard", "-> docs/a.md"),
        (".htaccess", "-> docs/a.md"),
        ("unheard.conf", "-> docs/a.md"),
        ("more.md", "-> docs/a.md"),
        ("also", "-> docs"),
    ];
    let found = lab.judge(links, &[("docs/a.md", "x\n")]);
    for name in [".unheard", ".htaccess", "unheard.conf"] {
        assert_eq!(
            found[name].tier(),
            Tier::Approve,
            "{name}: {:?}",
            found[name].findings
        );
    }
    for name in ["more.md", "also"] {
        assert!(
            found[name].tier() < Tier::Approve,
            "{name}: {:?}",
            found[name].findings
        );
    }
    for name in [
        "assets/a.zip",
        "nb/a.ipynb",
        "lib/a.so",
        "src/tool.sh",
        "src/a.rs",
    ] {
        let one = lab.judge(&[(name, "x\n")], &[])[name].clone();
        assert!(one.tier() < Tier::Approve, "{name}: {:?}", one.findings);
    }
}

#[test]
fn an_ignore_file_that_ignores_less_is_held() {
    let lab = lab();
    for (name, before, after) in [
        (".gitignore", ".env\n", ".env\n!.env\n"),
        (".gitignore", "", "!.env\n"),
        (".gitignore", "!a\n*.key\n", "*.key\n!a\n"),
        (".gitignore", "!a\nb\n!a\n", "!a\nb\n!a\n!a\n"),
        (".gitignore", ".env\n", " .env\n"),
        (".hgignore", "a\n", "syntax: regexp\na\n"),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{after:?}: {:?}", one.findings);
        assert_eq!(one.findings[0].class, Class::RestrictionRemoved);
    }
    let one = &lab.judge(
        &[("sub/x.md", "")],
        &[("sub/x.md", ""), ("sub/.gitignore", "!.env\n")],
    )["sub/.gitignore"];
    assert_eq!(
        one.tier(),
        Tier::Approve,
        "a new file takes entries of the one above back"
    );
    let linked = lab.judge(&[(".gitignore", "-> shared.txt")], &[(".gitignore", "target\n")]);
    assert_eq!(
        linked[".gitignore"].tier(),
        Tier::Approve,
        "what the link led to is not known"
    );
    for (before, after) in [("a\n!b\n", "a\n!b\nc\n"), ("a\r\nb\r\n", "# why\na\n\nb\nc\n")] {
        assert_eq!(
            lab.change(".gitignore", before, after).tier(),
            Tier::Flag,
            "{after:?}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of manifests")]
fn a_manifest_hides_no_change_in_an_empty_table_an_order_an_indentation_or_a_comment() {
    let lab = lab();
    let index = |first: &str, second: &str| {
        format!(
            "[[tool.uv.index]]\nname='{first}'\nurl='https://{first}.example'\n[[tool.uv.index]]\nname='{second}'\nurl='https://{second}.example'\n"
        )
    };
    let (one, other) = (index("own", "public"), index("public", "own"));
    for (name, before, after, told) in [
        (
            "Pipfile",
            "[packages]\n",
            "[packages]\nevil-package = {}\n",
            "evil-package",
        ),
        (
            "pixi.toml",
            "[dependencies]\na='1'\n",
            "[dependencies]\na='1'\nevil={}\n",
            "evil",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\n[workspace]\n",
            "workspace",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n[workspace]\n",
            "[package]\nname='a'\n",
            "workspace",
        ),
        (
            "package.json",
            "{}",
            r#"{"dependencies":{"a":{}}}"#,
            "dependencies.a",
        ),
        ("pyproject.toml", &one, &other, "tool.uv.index"),
        (
            "pubspec.yaml",
            "dependencies:\n  a:\n    path: ../evil\n  b:\n",
            "dependencies:\n  a:\n  b:\n    path: ../evil\n",
            "order",
        ),
        (
            "pubspec.yaml",
            "dependencies:\n  a:\n  path: ../evil\n",
            "dependencies:\n  a:\n    path: ../evil\n",
            "path: ../evil",
        ),
        (
            "Gemfile",
            "x = <<~END\n  text\nEND\n",
            "x = <<~END\n  text\n  #{system('sh x')}\nEND\n",
            "system",
        ),
        ("requirements.txt", "a==1\n", "a==1\n# note\revil\n", "evil"),
        (
            "requirements.txt",
            "a==1 \\\n  --hash=sha256:x\n",
            "a==1 \\\n# note\n  --hash=sha256:x\n",
            "note",
        ),
        (
            "tsconfig.json",
            "{}",
            "{// note\r\"extends\":\"./x\"\n}",
            "does not parse",
        ),
        ("package.json", r#"{"private":true}"#, "{}", "private"),
        (
            "package.json",
            r#"{"private":true}"#,
            r#"{"private":false}"#,
            "private",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\npublish=false\n",
            "[package]\nname='a'\n",
            "publish",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\npublish=['own']\n",
            "[package]\nname='a'\npublish=['own','other']\n",
            "publish",
        ),
        (
            "pyproject.toml",
            "[project]\nname='a'\nclassifiers=['Private :: Do Not Upload']\n",
            "[project]\nname='a'\n",
            "classifiers",
        ),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
        assert!(why(&one).contains(told), "{name} {after}: {}", why(&one));
    }
    for (name, before, after) in [
        ("package.json", "{}", r#"{"private":true,"dependencies":{}}"#),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\npublish=false\n[dependencies]\n",
        ),
        (
            "pyproject.toml",
            "[project]\nname='a'\n",
            "[project]\nname='a'\nclassifiers=['Private :: Do Not Upload']\n",
        ),
        ("Gemfile", "gem 'a'\n", "# why\ngem 'a'\n"),
        ("pubspec.yaml", "name: a\n", "name: a   \n  # note\n"),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Note, "{name} {after}: {:?}", one.findings);
    }
}

/// Names for links: those that tools load, and plain ones.
const NAMES: &[&str] = &[
    "json.py",
    "postinstall.js",
    "build.json",
    "sometool.yaml",
    "dev-reqs.txt",
    "Zfile",
    "AI_RULES.md",
    "notes.md",
    "data.csv",
    "META-INF/x.md",
    "conf.d/x.txt",
    "vendor/x.md",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_link_is_never_judged_weaker_than_a_file_of_its_name(
        at in 0..SAMPLES.len() + NAMES.len(),
        place in "([a-c]/|src/|docs/|tests/fixtures/){0,2}",
        target in "(docs/notes\\.txt|lib/x\\.rs|nothing)",
    ) {
        let lab = lab();
        let name = SAMPLES.iter().chain(NAMES).nth(at).unwrap();
        let link = format!("{place}{name}");
        let up = "../".repeat(link.matches('/').count());
        let to = format!("-> {up}{target}");
        let there: Files<'_> = &[("docs/notes.txt", "text\n"), ("lib/x.rs", "text\n")];
        let with = |content| { let mut all = there.to_vec(); all.push((link.as_str(), content)); all };
        let file = lab.judge(there, &with("text\n"))[link.as_str()].tier();
        let linked = &lab.judge(there, &with(&to))[link.as_str()];
        prop_assert!(linked.tier() >= file, "{link} {to}: {:?}", linked.findings);
        // What may not come without approval may not go without it either, unless it only is code that goes.
        let gone = lab.judge(&with("text\n"), there)[link.as_str()].tier();
        prop_assert!(gone >= file, "{link}: removal {gone:?}, file {file:?}");
    }

    #[test]
    fn a_lock_file_passes_only_with_the_same_values(old in proptest::array::uniform4(0..2_u8), new in proptest::array::uniform4(0..2_u8), blanks in "[ \n]{1,3}") {
        let lab = lab();
        let made = |[version, place, script, edge]: [u8; 4], blank: &str| {
            format!(
                r#"{{"packages":{blank}{{"node_modules/a":{{"version":"{version}","resolved":"https://p.example/{place}","hasInstallScript":{},{blank}"dependencies":{{"b":"{edge}"}}}}}}}}"#,
                script == 1
            )
        };
        let one = lab.change("package-lock.json", &made(old, ""), &made(new, &blanks));
        prop_assert_eq!(one.tier() < Tier::Approve, old == new, "{:?}", one.findings);
    }
}
