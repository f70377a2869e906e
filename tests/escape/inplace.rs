//! Work in the project itself, while the host works there too: exceptions to the floor, repositories that lead elsewhere, and
//! names that the host replaces under a running agent.
use crate::support::{Lab, Limit, for_each_identity, git, text, wait_for};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

fn repository(lab: &Lab) -> PathBuf {
    lab.project("README", "read me\n");
    git(lab, &lab.workspace(), &["init", "-q"]);
    lab.project(".env", "TOKEN=canary\n");
    lab.project(".env.example", "TOKEN=example\n");
    git(
        lab,
        &lab.workspace(),
        &["add", "-f", "README", ".env", ".env.example"],
    );
    git(lab, &lab.workspace(), &["commit", "-qm", "first"]);
    lab.workspace()
}

#[test]
fn an_opened_file_shows_itself_and_no_other_hidden_name_in_any_mode() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let example = root.join(".env.example");
        for mode in ["in-place", "copy", "overlay", "worktree"] {
            let script = "cat .env.example; cat .env 2>/dev/null && echo LEAK; \
                          (echo x > .env.new) 2>/dev/null && echo MADE; echo own >> .env.example && echo WROTE";
            let output = lab
                .fence()
                .flags(["--workspace", mode, "--unprotect", text(&example)])
                .sh(script);
            assert_eq!(output.said(), "TOKEN=example\nWROTE", "{mode}: {output:?}");
            std::fs::write(&example, "TOKEN=example\n").expect("can be put back");
        }
        let closed = lab
            .fence()
            .flags(["--workspace", "in-place"])
            .sh("cat .env.example 2>/dev/null; true");
        assert_eq!(
            closed.said(),
            "",
            "control: without the flag it is hidden, {closed:?}"
        );
    });
}

#[test]
fn an_opening_by_pattern_by_directory_or_through_a_link_is_refused_with_what_to_type() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project(".env.d/one", "x");
        std::os::unix::fs::symlink(".env", root.join(".env.link")).expect("can be made");
        for (typed, said) in [
            (".env*", "not a pattern"),
            (".env.d", ".env.d/**"),
            (".env.d/one", ".env.d/**"),
            (".env.link", "symbolic link"),
        ] {
            let path = root.join(typed);
            let flags = ["--workspace", "in-place", "--unprotect", text(&path)];
            let output = lab.fence().flags(flags).run(["true"]);
            assert!(
                output.ended.code != 0 && output.ended.stderr.contains(said),
                "{typed}: {output:?}"
            );
        }
        let tree = format!("{}/.env.d/**", text(&root));
        let output = lab
            .fence()
            .flags(["--workspace", "in-place", "--unprotect", &tree])
            .sh("cat .env.d/one; cat .env 2>/dev/null; true");
        assert_eq!(output.said(), "x", "control: {output:?}");
        let shown = lab
            .fence()
            .flags([
                "--workspace",
                "in-place",
                "--dry-run-policy",
                "--unprotect",
                &tree,
            ])
            .run(["true"]);
        let line = shown
            .ended
            .stdout
            .lines()
            .find(|line| line.starts_with("fs.unprotect"));
        assert!(
            line.is_some_and(|line| line.contains("EXCEPTION") && line.contains("--unprotect")),
            "{shown:?}"
        );
    });
}

#[test]
fn no_new_repository_comes_into_being_in_place_as_a_directory_a_file_or_a_link() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project("sub/file", "x");
        lab.project("bare/HEAD", "ref: refs/heads/main\n");
        let attempts: Vec<Vec<&str>> = ["sub/.git", "sub/.GIT"]
            .iter()
            .flat_map(|name| {
                [
                    vec!["write", name, "gitdir: ../bare\n"],
                    vec!["mkdir", name],
                    vec!["rename", "sub/file", name],
                    vec!["link", "sub/file", name],
                    vec!["symlink", "../bare", name],
                ]
            })
            .collect();
        let attempts: Vec<&[&str]> = attempts.iter().map(Vec::as_slice).collect();
        let (seen, output) = lab.fence().flags(["--workspace", "in-place"]).attack(&attempts);
        assert_eq!(seen, vec!["EACCES"; 10], "{output:?}");
        let script = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m inside && echo COMMITTED; \
            mv .git moved 2>/dev/null && echo MOVED; rm -f .git/config 2>/dev/null; test -e .git/config || echo GONE; \
            mkdir -p .git/rebase-merge 2>/dev/null && echo 'exec touch pwned' > .git/rebase-merge/git-rebase-todo; \
            echo /tmp/evil > .git/objects/info/alternates; true";
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(script);
        assert_eq!(output.said(), "COMMITTED", "control: a commit works, {output:?}");
        assert!(
            !root.join(".git/rebase-merge").exists() && !root.join(".git/objects/info/alternates").exists()
        );
    });
}

#[test]
fn a_repository_that_a_git_file_leads_to_is_held_like_a_git_directory() {
    for_each_identity(|lab| {
        let root = lab.workspace();
        lab.project("README", "read me\n");
        git(lab, &root, &["init", "-q", "--separate-git-dir=meta"]);
        assert!(root.join(".git").is_file(), "control: it is a file");
        let script = "for f in .git meta/config meta/hooks/x meta/info/attributes meta/rebase-merge; do \
            (echo pwned > $f) 2>/dev/null && echo WROTE $f; done; rm -f .git 2>/dev/null; mv .git x 2>/dev/null; \
            mkdir meta/rebase-merge 2>/dev/null && echo MADE; echo ok > meta/description && echo free; test -f .git && echo there";
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(script);
        assert_eq!(output.said(), "free\nthere", "{output:?}");
    });
}

#[test]
fn a_name_that_the_host_replaces_is_covered_again_and_never_written() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let script = "touch ready; while ! test -e go; do sleep 0.01; done; \
            cat .env 2>/dev/null && echo LEAK; \
            (echo '[core] fsmonitor = touch pwned' >> .git/config) 2>/dev/null && echo WROTE; \
            cat nested/.env.new 2>/dev/null && echo LEAK; cat README; echo own > mine && echo wrote";
        let fence = lab.fence().flags(["--workspace", "in-place"]);
        let mut living = fence.sh_beside(script);
        wait_for("the agent", || root.join("ready").exists());
        // As an editor saves, as git writes its configuration, and a directory that is moved in.
        lab.project("tmp-1", "TOKEN=changed-canary\n");
        std::fs::rename(root.join("tmp-1"), root.join(".env")).expect("can be renamed");
        git(lab, &root, &["config", "core.abbrev", "12"]);
        lab.plant(&lab.outside().join("nested/.env.new"), "TOKEN=third-canary\n");
        std::fs::rename(lab.outside().join("nested"), root.join("nested")).expect("can be renamed");
        let noted = || {
            let notes = fence.audit();
            let notes: Vec<&str> = notes.iter().filter_map(|event| event["text"].as_str()).collect();
            ["/.env was", "/.git/config", "nested/.env.new was"]
                .iter()
                .all(|name| notes.iter().any(|note| note.contains(name)))
        };
        wait_for("covering", || noted() || !living.is_alive());
        lab.project("go", "");
        let ended = living.end(Limit::HANG);
        assert_eq!(
            (ended, living.rest().join("\n").as_str()),
            (Some(0), "read me\nwrote"),
            "{:?}",
            fence.audit()
        );
        let config = std::fs::read_to_string(root.join(".git/config")).expect("can be read");
        assert!(
            config.contains("abbrev = 12") && !config.contains("pwned"),
            "{config}"
        );
    });
}

#[test]
fn a_protected_name_is_held_by_name_in_the_moment_in_which_no_mount_is_on_it() {
    for_each_identity(|lab| {
        let root = repository(lab);
        // Writes without end, so that some attempts fall into the moment between rename and cover.
        let script = "touch ready; while ! test -e go; do (echo pwned >> .git/config) 2>/dev/null && touch WROTE; done; \
            echo ok > mine && echo wrote";
        let fence = lab.fence().flags(["--workspace", "in-place"]);
        let mut living = fence.sh_beside(script);
        wait_for("the agent", || root.join("ready").exists());
        for round in 0..20 {
            git(lab, &root, &["config", "core.abbrev", &format!("{}", 10 + round)]);
        }
        lab.project("go", "");
        assert_eq!(living.end(Limit::HANG), Some(0), "{:?}", fence.audit());
        let config = std::fs::read_to_string(root.join(".git/config")).expect("can be read");
        assert!(
            config.contains("abbrev = 29") && !config.contains("pwned"),
            "{config}"
        );
        assert!(root.join("mine").exists() && !root.join("WROTE").exists());
    });
}

#[test]
fn a_name_that_the_host_replaces_while_the_sandbox_is_built_delays_the_agent_and_is_covered() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let (_keep, nothing) = mpsc::channel::<()>();
        let mut started = 0;
        for round in 0..12 {
            let fence = lab.fence().flags(["--workspace", "in-place"]);
            // Read once the host has changed its last name: in the milliseconds between a rename and the stop of a living
            // agent it could be read, and that is no matter of the start.
            let script = "sleep 0.3; cat .env 2>/dev/null && echo LEAK; cat README";
            let mut living = fence.sh_beside(script);
            // Over a part of building, over all of it, and into the first moments of the agent.
            for change in 0..[1, 4, 8, 15][round % 4] {
                lab.project("tmp-1", &format!("TOKEN=canary-{round}-{change}\n"));
                std::fs::rename(root.join("tmp-1"), root.join(".env")).expect("can be renamed");
                assert!(nothing.recv_timeout(Duration::from_millis(2)).is_err());
            }
            let ended = living.end(Limit::HANG);
            let said = living.rest().join("\n");
            // Replaced between its cover and the probe that reads it, or while it is covered: nothing starts, and that is told.
            let audit = fence.audit();
            let unproven = || {
                audit.iter().any(|event| {
                    let code = event["code"].as_str().unwrap_or_default();
                    code.starts_with("BST-FENCE-")
                })
            };
            match ended {
                Some(0) => started += 1,
                _ => assert!(
                    ended == Some(125) && unproven(),
                    "round {round}: {ended:?} {audit:?}"
                ),
            }
            let expected = if ended == Some(0) { "read me" } else { "" };
            assert_eq!(said, expected, "round {round}");
        }
        assert!(started > 0, "control");
    });
}

/// Names that the floor hides in any directory, one for each of its patterns, and directories that are protected as a whole.
const HIDDEN: [&str; 9] = [
    ".env",
    ".env.local",
    ".netrc",
    ".git-credentials",
    ".aws/credentials",
    ".ssh/id_any",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
];
const PROTECTED: [&str; 10] = [
    ".vscode",
    ".idea",
    ".devcontainer",
    ".claude",
    ".github/workflows",
    ".ssh",
    ".aws",
    ".husky",
    ".config",
    ".git/hooks",
];

#[test]
fn a_hidden_name_below_a_protected_directory_is_readable_in_no_mode() {
    for_each_identity(|lab| {
        let root = repository(lab);
        for directory in PROTECTED {
            for name in HIDDEN {
                lab.project(&format!("{directory}/{name}"), "canary\n");
                lab.project(&format!("{directory}/deep/{name}"), "canary\n");
            }
            lab.project(&format!("{directory}/plain"), "plain\n");
        }
        std::fs::hard_link(root.join(".env"), root.join(".vscode/linked")).expect("can be linked");
        for mode in ["in-place", "copy", "overlay"] {
            let script = "grep -rlE 'canary' .[a-z]* 2>/dev/null | grep -v '^.git/objects' | sort; \
                cat .ssh/id_any .vscode/.env .aws/credentials .git/hooks/.env 2>/dev/null; \
                cat .vscode/plain .github/workflows/plain .ssh/plain";
            let output = lab.fence().flags(["--workspace", mode]).sh(script);
            assert_eq!(output.said(), "plain\nplain\nplain", "{mode}: {output:?}");
        }
    });
}

#[test]
fn what_a_held_link_leads_to_is_held_like_the_link_in_place() {
    for_each_identity(|lab| {
        let root = lab.workspace();
        for name in [
            "docs/ag.txt",
            "docs/workflows/ci.yml",
            "docs/free",
            "ide/tasks.json",
            "hop/x",
            "conf/real.txt",
            "conf/free",
            "cloud/credentials",
            "cloud/free",
            "plain",
        ] {
            lab.project(name, "canary\n");
        }
        for (target, link) in [
            ("docs/ag.txt", "CLAUDE.md"),
            ("docs/later.txt", "GEMINI.md"),
            ("ide", ".vscode"),
            ("docs", ".github"),
            ("conf/real.txt", ".env"),
            ("cloud", ".aws"),
            ("way", ".idea"),
            ("hop", "way"),
            ("plain", "other"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).expect("can be made");
        }
        let script = "for f in CLAUDE.md GEMINI.md .vscode/x.json docs/workflows/ci.yml docs/workflows/new.yml \
                .github/workflows/y.yml ide/tasks.json docs/ag.txt docs/later.txt .idea/x hop/x cloud/new; do \
                (echo pwned > $f) 2>/dev/null && echo WROTE $f; done; \
            rm -f way 2>/dev/null && echo REMOVED; ln -sfn conf way 2>/dev/null && echo LED; \
            mv ide moved 2>/dev/null && echo MOVED; mv docs moved 2>/dev/null && echo MOVED; \
            cat .env conf/real.txt .aws/credentials cloud/credentials 2>/dev/null; \
            for f in docs/free conf/free other; do echo own > $f || echo HELD $f; done; cat plain";
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(script);
        assert_eq!(output.said(), "own", "{output:?}");
        assert!(
            output.ended.stderr.contains("held because links lead there"),
            "{output:?}"
        );
        let script = "cat .env conf/real.txt 2>/dev/null; cat conf/free";
        for mode in ["copy", "overlay"] {
            let output = lab.fence().flags(["--workspace", mode]).sh(script);
            assert_eq!(output.said(), "own", "{mode}: {output:?}");
        }
    });
}

#[test]
fn no_directory_becomes_a_bare_repository_in_place() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project("old/HEAD", "ref: refs/heads/main\n");
        lab.project("old/file", "x");
        git(lab, &root, &["init", "-q", "--bare", "store"]);
        let attempts: [&[&str]; 10] = [
            &["write", "q/HEAD", "ref: refs/heads/main\n"],
            &["rename", "old/file", "q/HEAD"],
            &["link", "old/HEAD", "q/HEAD"],
            &["symlink", "../old/HEAD", "q/HEAD"],
            &["write", ".git/q/HEAD", "ref: refs/heads/main\n"],
            &["write", "old/config", "[core]"],
            &["rename", "old/file", "old/config"],
            &["rename", "old", "moved"],
            &["write", ".git/logs/config", "[core]"],
            &["write", "store/config", "[core]"],
        ];
        lab.project("q/file", "x");
        lab.project(".git/q/file", "x");
        let (seen, output) = lab.fence().flags(["--workspace", "in-place"]).attack(&attempts);
        let held = seen
            .iter()
            .all(|errno| matches!(errno.as_str(), "EACCES" | "EROFS"));
        assert!(held && seen.len() == attempts.len(), "{seen:?} {output:?}");
        let script = "git init -q --bare z 2>/dev/null; test -e z/HEAD && echo MADE; \
            mkdir -p q/objects q/refs; echo x > q/config && echo free; echo 'ref: refs/heads/x' > old/HEAD && echo kept; \
            for n in 1 2; do git -c user.name=a -c user.email=a@b commit -q --allow-empty -m inside && echo COMMITTED; done; \
            git pack-refs --all && git checkout -q -b side && git -C store symbolic-ref HEAD refs/heads/side && echo MOVED";
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(script);
        assert_eq!(
            output.said(),
            "free\nkept\nCOMMITTED\nCOMMITTED\nMOVED",
            "control: known repositories work, {output:?}"
        );
    });
}

#[test]
fn a_hidden_name_that_the_host_makes_in_any_directory_is_covered() {
    for_each_identity(|lab| {
        let root = lab.workspace();
        lab.project("a/b/c/plain", "plain\n");
        lab.project(".vscode/deep/plain", "plain\n");
        let script = "touch ready; while ! test -e go; do sleep 0.01; done; \
            cat a/b/c/.env .vscode/deep/.env 2>/dev/null && echo LEAK; cat a/b/c/plain";
        let fence = lab.fence().flags(["--workspace", "in-place"]);
        let mut living = fence.sh_beside(script);
        wait_for("the agent", || root.join("ready").exists());
        lab.project("a/b/c/.env", "TOKEN=canary\n");
        lab.project(".vscode/deep/.env", "TOKEN=canary\n");
        let noted = || {
            let notes = fence.audit();
            let notes: Vec<&str> = notes.iter().filter_map(|event| event["text"].as_str()).collect();
            ["a/b/c/.env was", ".vscode/deep/.env was"]
                .iter()
                .all(|name| notes.iter().any(|note| note.contains(name)))
        };
        wait_for("covering", || noted() || !living.is_alive());
        lab.project("go", "");
        let ended = living.end(Limit::HANG);
        assert_eq!(
            (ended, living.rest().join("\n").as_str()),
            (Some(0), "plain"),
            "{:?}",
            fence.audit()
        );
    });
}

#[test]
fn opening_the_whole_floor_is_told_and_a_link_is_refused_in_every_mode() {
    for_each_identity(|lab| {
        let root = repository(lab);
        std::os::unix::fs::symlink(".env", root.join(".env.link")).expect("can be made");
        std::os::unix::fs::symlink(".env.gone", root.join(".env.dangling")).expect("can be made");
        let whole = format!("{}/**", text(&root));
        for mode in ["in-place", "copy", "overlay"] {
            let opened = lab
                .fence()
                .flags(["--workspace", mode, "--unprotect", &whole])
                .sh("true");
            assert!(
                opened.ended.code == 0 && opened.ended.stderr.contains("THE WHOLE FLOOR IS OPEN"),
                "{mode}: {opened:?}"
            );
            for link in [".env.link", ".env.dangling"] {
                let path = root.join(link);
                let flags = ["--workspace", mode, "--unprotect", text(&path)];
                let refused = lab.fence().flags(flags).run(["true"]);
                assert!(
                    refused.ended.code != 0 && refused.ended.stderr.contains("symbolic link"),
                    "{mode} {link}: {refused:?}"
                );
            }
        }
    });
}

#[test]
fn a_guarded_name_that_only_git_has_is_in_the_receipt_and_the_record() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let commit = "git -c user.name=A -c user.email=a@example.org commit -qm work";
        let quiet = lab.fence().flags(["--workspace", "in-place"]).sh(&format!(
            "echo more >> README && git add README && {commit} && echo DONE"
        ));
        assert_eq!(quiet.said(), "DONE", "control: {quiet:?}");
        assert!(
            !quiet.ended.stderr.contains("GIT HAS GUARDED NAMES"),
            "control: {quiet:?}"
        );
        let script = format!(
            "mkdir -p .github/workflows 2>/dev/null && echo MADE
            id=$(echo 'on: push' | git hash-object -w --stdin) &&
            git update-index --add --cacheinfo 100644,$id,.github/workflows/x.yml && {commit} && echo DONE"
        );
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(&script);
        assert!(output.said().ends_with("DONE"), "{output:?}");
        assert!(!root.join(".github/workflows/x.yml").exists(), "{output:?}");
        let stderr = &output.ended.stderr;
        assert!(
            stderr.contains("GIT HAS GUARDED NAMES OTHERWISE THAN AT THE START")
                && stderr.contains(".github/workflows/x.yml (HEAD, index, refs/heads/"),
            "{output:?}"
        );
        let notes = output.events("note");
        let recorded = notes.iter().any(|note| {
            note["topic"] == "git" && note["text"].to_string().contains(".github/workflows/x.yml")
        });
        assert!(recorded, "{output:?}");
    });
}
