//! The gate against planted files, one table per class.
use super::*;
use crate::audit_delta::Change;
use crate::manifest::{Kind, LinkTarget, Mode, Opaque};
use crate::testing::{Folder, path};
use proptest::prelude::*;
use std::collections::BTreeSet;

struct Bench {
    rules: Rules,
    blobs: Folder,
    _stage: tempfile::TempDir,
}

fn bench() -> Bench {
    let stage = tempfile::tempdir().unwrap();
    Bench {
        rules: Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap(),
        blobs: Folder(stage.path().to_owned()),
        _stage: stage,
    }
}

impl Bench {
    fn judge(&self, name: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Assessed {
        let change = Change {
            path: path(name),
            before: before.map(|b| self.blobs.put(b)),
            after: after.map(|b| self.blobs.put(b)),
        };
        assess(&self.rules, &Tree::default(), &change, &self.blobs).unwrap()
    }

    fn judge_kind(&self, name: &str, after: Kind) -> Assessed {
        assess(
            &self.rules,
            &Tree::default(),
            &Change {
                path: path(name),
                before: None,
                after: Some(after),
            },
            &self.blobs,
        )
        .unwrap()
    }
}

fn has(assessed: &Assessed, class: Class) -> bool {
    assessed.findings.iter().any(|finding| finding.class == class)
}

#[test]
fn files_that_run_on_the_host_need_approval_at_every_depth_and_in_every_case() {
    let bench = bench();
    for name in [
        ".gitattributes",
        ".husky/pre-commit",
        ".githooks/post-merge",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        "Jenkinsfile",
        "azure-pipelines.yml",
        ".forgejo/workflows/x.yml",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/workspace.xml",
        "x.code-workspace",
        ".nvim.lua",
        ".dir-locals.el",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".gitpod.yml",
        ".envrc",
        ".bashrc",
        ".zshenv",
        "mise.toml",
        ".mise.toml",
        "flake.nix",
        ".gdbinit",
        "CLAUDE.md",
        "AGENTS.md",
        "GEMINI.md",
        ".claude/settings.json",
        ".claude/commands/x.md",
        ".codex/config.toml",
        ".cursor/rules/x.mdc",
        ".mcp.json",
        ".gemini/settings.json",
        "opencode.json",
        ".opencode/agent/x.md",
        ".cursorrules",
        ".github/copilot-instructions.md",
        "agent-permissions.json",
        "build.rs",
        "setup.py",
        "conftest.py",
        "Makefile",
        "justfile",
        "CMakeLists.txt",
        "gradlew",
        "gradle/wrapper/gradle-wrapper.properties",
        "build.gradle.kts",
        "vite.config.ts",
        "Dockerfile",
        "docker-compose.yml",
        ".npmrc",
        ".yarnrc.yml",
        ".cargo/config.toml",
        "pip.conf",
        "rust-toolchain.toml",
        "node_modules/.bin/x",
        "evil.pth",
        "lib.so",
        "nested.git/config",
        "sub/HEAD",
    ] {
        for spelled in [name.to_owned(), format!("deep/er/{name}"), name.to_uppercase()] {
            let found = bench.judge(&spelled, None, Some(b"text\n"));
            assert_eq!(found.tier(), Tier::Approve, "{spelled}: {:?}", found.findings);
            assert!(has(&found, Class::ExecutesOnHost), "{spelled}");
        }
    }
}

#[test]
fn plain_source_passes_without_approval() {
    let bench = bench();
    for name in [
        "src/main.rs",
        "README.md",
        "docs/a.md",
        "lib/x.py",
        "src/makefiles.txt",
        "claude.rs",
        "a/b/c.json",
    ] {
        let found = bench.judge(name, None, Some(b"hello\n"));
        assert_eq!(
            (found.tier(), found.findings[0].class),
            (Tier::Note, Class::Source),
            "{name}: {:?}",
            found.findings
        );
    }
}

#[test]
fn a_git_directory_is_refused_in_every_spelling_and_cannot_be_approved() {
    let bench = bench();
    for name in [
        ".git/hooks/pre-commit",
        "sub/.git/config",
        ".GIT/config",
        "a/.git",
        "git~1/config",
        ".git./x",
        "sub/.g\u{200c}it/config",
    ] {
        let found = bench.judge(name, None, Some(b"x"));
        assert_eq!(found.tier(), Tier::Refuse, "{name}");
        let mut approvals = Approvals::default();
        approvals.add(&found.approval.to_string()).unwrap();
        assert!(
            !approvals.allow(&found, &set_hash(std::slice::from_ref(&found))),
            "{name}"
        );
    }
}

#[test]
fn links_that_leave_the_tree_or_enter_git_are_held_or_refused() {
    let bench = bench();
    let link = |at: &str, to: &str| {
        bench
            .judge_kind(
                at,
                Kind::Symlink {
                    target: LinkTarget(to.as_bytes().to_vec()),
                },
            )
            .tier()
    };
    for (at, to) in [
        ("a", "/etc/passwd"),
        ("a", ".."),
        ("d/a", "../../x"),
        ("a", "x/../../y"),
        ("a", "x/../y"),
        ("a", ""),
    ] {
        assert_eq!(link(at, to), Tier::Approve, "{at} -> {to}");
    }
    assert_eq!(
        (
            link("a.md", "b.md"),
            link("d/a.rs", "../b.rs"),
            link("d/a.md", "./b.md"),
        ),
        (Tier::Flag, Tier::Flag, Tier::Flag)
    );
    assert_eq!(
        (link("a", ".git/hooks/x"), link("d/a", "../.GIT")),
        (Tier::Refuse, Tier::Refuse)
    );
}

#[test]
fn attributes_are_pointed_out_and_part_of_what_is_approved() {
    let bench = bench();
    let Kind::File {
        digest, size, mode, ..
    } = bench.blobs.put(b"text")
    else {
        panic!()
    };
    let file = |set: Option<&[u8]>| Kind::File {
        digest,
        size,
        mode,
        attributes: set.map(crate::manifest::Content::of),
    };
    let judged = [None, Some(&b"one"[..]), Some(b"two")].map(|set| bench.judge_kind("x.txt", file(set)));
    assert!(!has(&judged[0], Class::Attributes));
    assert!(has(&judged[1], Class::Attributes) && judged[1].tier() == Tier::Flag);
    assert_ne!(judged[0].approval, judged[1].approval);
    assert_ne!(judged[1].approval, judged[2].approval);
}

#[test]
fn programs_modes_special_files_and_submodules_are_seen() {
    let bench = bench();
    assert_eq!(bench.judge("x", None, Some(b"\x7fELF\x02")).tier(), Tier::Approve);
    assert_eq!(
        bench.judge("x.png", None, Some(b"\x89PNG\0\0")).tier(),
        Tier::Flag
    );
    let Kind::File { digest, size, .. } = bench.blobs.put(b"text") else {
        panic!()
    };
    let file = |executable, special| Kind::File {
        digest,
        size,
        mode: Mode { executable, special },
        attributes: None,
    };
    assert!(has(&bench.judge_kind("x", file(true, false)), Class::Mode));
    assert_eq!(bench.judge_kind("x", file(false, true)).tier(), Tier::Approve);
    assert_eq!(
        bench.judge_kind("x", Kind::Opaque { why: Opaque::Fifo }).tier(),
        Tier::Refuse
    );
    assert_eq!(
        bench
            .judge_kind(
                "x",
                Kind::Submodule {
                    commit: String::new()
                }
            )
            .tier(),
        Tier::Refuse
    );
    assert!(has(
        &bench.judge(
            ".gitmodules",
            None,
            Some(b"[submodule \"x\"]\n url = ext::sh -c x\n")
        ),
        Class::Submodule
    ));
}

#[test]
fn credentials_are_found_without_being_repeated() {
    let bench = bench();
    let key = format!("{}{}", "AKIA", "Z7Q2M4X8L1B9C3D5");
    let token = format!("{}{}", "ghp_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let header = ["-----BEGIN OPENSSH PRIV", "ATE KEY-----"].concat();
    for line in [
        format!("k = {key}"),
        format!("x: {token}"),
        header,
        "API_TOKEN = \"q9Zk3vX7Lm2Rt8Yw5Bn1Hc6D\"".to_owned(),
    ] {
        let found = bench.judge("notes.txt", Some(b"a\n"), Some(format!("a\n{line}\n").as_bytes()));
        assert!(
            found.tier() == Tier::Approve && has(&found, Class::Secret),
            "{line}"
        );
        assert!(
            found
                .findings
                .iter()
                .all(|finding| !finding.why.contains("Z7Q2") && !finding.why.contains("q9Zk"))
        );
        // What the host has already is no news.
        let old = format!("{line}\n");
        assert!(!has(
            &bench.judge(
                "notes.txt",
                Some(old.as_bytes()),
                Some(format!("{line}\nb\n").as_bytes())
            ),
            Class::Secret
        ));
    }
    for line in [
        "token = next_token(lexer)",
        "password: String,",
        "let secret_name = \"database-password-name\";",
        "tokens: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
    ] {
        assert!(
            !has(&bench.judge("a.rs", None, Some(line.as_bytes())), Class::Secret),
            "{line}"
        );
    }
}

#[test]
fn text_that_hides_itself_and_names_that_deceive_are_held() {
    let bench = bench();
    assert_eq!(
        bench
            .judge("a.c", None, Some("if (x) { /*\u{202e} } */".as_bytes()))
            .tier(),
        Tier::Approve
    );
    assert_eq!(
        bench.judge("a.c", None, Some(b"x\x1b[8mhidden")).tier(),
        Tier::Approve
    );
    assert_eq!(bench.judge("a\u{202e}b", None, Some(b"x")).tier(), Tier::Approve);
    assert!(has(&bench.judge("-rf", None, Some(b"x")), Class::Deceptive));
}

#[test]
fn an_approval_of_one_content_does_not_approve_another() {
    let bench = bench();
    let (good, evil) = (
        bench.judge("Makefile", None, Some(b"all:\n")),
        bench.judge("Makefile", None, Some(b"evil\n")),
    );
    let elsewhere = bench.judge("sub/Makefile", None, Some(b"all:\n"));
    let mut approvals = Approvals::default();
    approvals.add(&good.approval.to_string()[..16]).unwrap();
    let all = |one: &Assessed| set_hash(std::slice::from_ref(one));
    assert!(approvals.allow(&good, &all(&good)));
    assert!(!approvals.allow(&evil, &all(&evil)) && !approvals.allow(&elsewhere, &all(&elsewhere)));
    let mut set = Approvals::default();
    set.add(&set_hash(&[good.clone(), elsewhere.clone()]).to_string())
        .unwrap();
    assert!(set.allow(&good, &set_hash(&[elsewhere.clone(), good.clone()])));
    assert!(!set.allow(&good, &set_hash(&[good.clone(), evil])));
    for bad in [
        "",
        "abc",
        "0123456789abcde",
        &"g".repeat(64),
        &"A".repeat(64),
        &"0".repeat(65),
    ] {
        assert!(Approvals::default().add(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn ignored_paths_are_marked() {
    let bench = bench();
    let change = Change {
        path: path("target/x"),
        before: None,
        after: Some(bench.blobs.put(b"x")),
    };
    let ignored = BTreeSet::from([path("target/x")]);
    assert!(
        assess_all(&bench.rules, &Tree::default(), &[change], &ignored, &bench.blobs).unwrap()[0].ignored
    );
}

proptest! {
    #[test]
    fn no_bytes_make_a_scan_panic(bytes: Vec<u8>) { fuzz_content(&bytes); }

    #[test]
    fn no_text_with_marks_of_secrets_and_hosts_makes_a_scan_panic(text in "(token|=|://|@|é|git@|:|\"|-----BEGIN |AKIA|\n|a){0,40}") {
        fuzz_content(text.as_bytes());
    }
}
