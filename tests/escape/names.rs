//! Names that must not come into being: hidden and protected ones, by every call that can make a name.
use crate::support::{Lab, for_each_identity, text};
use std::os::unix::fs::symlink;
use std::path::Path;

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

/// Names in the workspace afterwards, as `find` lists them.
fn names(lab: &Lab) -> Vec<String> {
    fn walk(directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("can be listed") {
            let path = entry.expect("can be listed").path();
            found.push(text(&path).to_owned());
            if path.symlink_metadata().expect("is there").is_dir() {
                walk(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&lab.workspace(), &mut found);
    found
}

#[test]
fn a_guarded_name_that_does_not_exist_yet_cannot_be_created_by_any_call() {
    for_each_identity(|lab| {
        lab.project("source", "x");
        lab.project(".claude/notes", "x");
        lab.project(".git/HEAD", "x");
        lab.project(".ssh/known", "x");
        for guarded in [
            ".env",
            ".env.local",
            "deep/er/.env.production",
            ".claude/settings.json",
            ".git/hooks",
            ".mcp.json",
            ".ssh/id_ed25519",
        ] {
            let directory = Path::new(guarded).parent().expect("has one");
            std::fs::create_dir_all(lab.workspace().join(directory)).expect("can be made");
            let mut made = lab.workspace();
            for part in directory.components() {
                made.push(part);
                lab.hand_over(&made);
            }
            let harmless = directory.join("harmless");
            let attempt = |name: &str| -> Vec<Vec<String>> {
                let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
                vec![
                    words(&["write", name, "pwned"]),
                    words(&["mkdir", name]),
                    words(&["rename", "source", name]),
                    words(&["link", "source", name]),
                    words(&["link-fd", "source", name]),
                    words(&["symlink", "source", name]),
                    words(&["tmpfile", ".", name, "pwned"]),
                    words(&["exchange", "source", name]),
                ]
            };
            let run = |name: &str| {
                let attempts = attempt(name);
                let attempts: Vec<Vec<&str>> = attempts
                    .iter()
                    .map(|a| a.iter().map(String::as_str).collect())
                    .collect();
                let attempts: Vec<&[&str]> = attempts.iter().map(Vec::as_slice).collect();
                lab.fence().attack(&attempts)
            };
            let (seen, output) = run(guarded);
            let last = seen.last().expect("eight results").clone();
            assert_eq!(seen[..7], all("EACCES", 7), "{guarded}: {output:?}");
            assert!(
                ["EACCES", "ENOENT"].contains(&last.as_str()),
                "{guarded}: nothing there to exchange with"
            );
            assert!(
                lab.workspace().join(guarded).symlink_metadata().is_err(),
                "{guarded} exists on the host"
            );
            assert!(
                !output
                    .denials(&format!("{}/{guarded}", text(&lab.workspace())))
                    .is_empty(),
                "{guarded}: not told"
            );
            if guarded == ".env" {
                let (seen, _) = run(text(&harmless));
                assert_eq!(seen[0], "OK", "control: another name");
                assert!(lab.workspace().join(&harmless).exists());
                std::fs::remove_file(lab.workspace().join(&harmless)).expect("was made");
                if !lab.workspace().join("source").exists() {
                    lab.project("source", "x");
                }
            }
        }
    });
}

#[test]
fn a_socket_cannot_take_a_guarded_name() {
    for_each_identity(|lab| {
        let (seen, output) = lab
            .fence()
            .attack(&[&["bind-unix", ".env.sock"], &["bind-unix", "harmless.sock"]]);
        assert!(
            lab.workspace().join(".env.sock").symlink_metadata().is_err(),
            "a hidden name came into being: {output:?}"
        );
        assert_eq!(seen, ["EACCES", "OK"], "{output:?}");
    });
}

#[test]
fn directories_moved_about_do_not_bring_a_guarded_name_into_being() {
    for_each_identity(|lab| {
        lab.project(".git/hooks/pre-commit", "original");
        lab.project("a/.env", "CANARY");
        lab.project("plain/file", "x");
        let script = r#"
            try() { if "$@" 2>/dev/null; then echo "DONE $*"; fi; }
            # A hidden file does not show under a new parent, nor can its parent be replaced.
            mv a a2 2>/dev/null; cat a/.env a2/.env 2>/dev/null
            mkdir -p a; try sh -c 'echo pwned > a/.env'
            # A prepared tree cannot be renamed to the protected name, nor linked there.
            mkdir -p prepared/hooks; echo pwned > prepared/hooks/pre-commit
            try mv prepared .git
            try mv prepared/hooks .git/hooks
            mv .git moved 2>/dev/null
            try mv prepared .git
            try ln -s prepared .git
            try mkdir -p .git/hooks
            try sh -c 'mkdir -p .git; mv prepared/hooks .git/hooks'
            try sh -c 'echo pwned > moved/hooks/pre-commit'
            try rm -f moved/hooks/pre-commit .git/hooks/pre-commit
            [ -e moved ] && [ ! -e .git/HEAD ] && { rm -rf .git; mv moved .git; } 2>/dev/null
            # Works all the same.
            mv plain plain2 && echo CONTROL
        "#;
        let output = lab.fence().sh(script);
        let said: Vec<&str> = output.said().lines().collect();
        assert!(said.contains(&"CONTROL"), "{output:?}");
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        for name in names(lab) {
            let hook = name.ends_with("hooks/pre-commit") && !name.contains("/prepared/");
            if hook || name.ends_with("/.env") {
                let contents = std::fs::read_to_string(&name).expect("is there");
                assert!(!contents.contains("pwned"), "{name} was planted: {output:?}");
            }
            assert!(
                !name.ends_with(".git/hooks/pre-commit")
                    || std::fs::read_to_string(&name).expect("is there") == "original"
            );
        }
    });
}

#[test]
fn existing_protected_files_cannot_be_changed_replaced_or_removed() {
    for_each_identity(|lab| {
        let hook = lab.project(".git/hooks/pre-commit", "original");
        let config = lab.project(".git/config", "# original");
        let settings = lab.project(".claude/settings.json", "original");
        let ci = lab.project(".github/workflows/ci.yml", "original");
        lab.project("mine", "pwned");
        for path in [&hook, &config, &settings, &ci] {
            let path = text(path);
            let before = std::fs::read_to_string(path).expect("is there");
            let (seen, output) = lab.fence().attack(&[
                &["overwrite", path, "pwned"],
                &["rename", "mine", path],
                &["unlink", path],
                &["chmod", path, "0777"],
                &["read", path],
            ]);
            for errno in &seen[..4] {
                assert!(
                    ["EROFS", "EACCES", "EBUSY"].contains(&errno.as_str()),
                    "{path}: {seen:?} {output:?}"
                );
            }
            assert_eq!(seen[4], "OK", "control: reading is allowed");
            assert_eq!(std::fs::read_to_string(path).expect("is there"), before);
        }
        let own = lab.fenced(&[&["overwrite", "mine", "new"], &["unlink", "mine"]]);
        assert_eq!(own, all("OK", 2), "control: an ordinary file");
    });
}

#[test]
fn nested_rules_mean_the_same_in_every_order() {
    for_each_identity(|lab| {
        for name in ["a/w", "a/b/r", "a/b/c/w", "a/b/c/secret"] {
            lab.plant(&lab.outside().join(name), "x");
        }
        let path = |name: &str| text(&lab.outside().join(name)).to_owned();
        let rules = [
            ["--rw".to_owned(), path("a")],
            ["--ro".to_owned(), path("a/b")],
            ["--rw".to_owned(), path("a/b/c")],
            ["--hide".to_owned(), path("a/b/c/secret")],
        ];
        let attacks = [
            ["write".to_owned(), path("a/w"), "x".to_owned()],
            ["write".to_owned(), path("a/b/r"), "x".to_owned()],
            ["write".to_owned(), path("a/b/c/w"), "x".to_owned()],
            ["overwrite".to_owned(), path("a/b/c/secret"), "x".to_owned()],
        ];
        let attacks: Vec<Vec<&str>> = attacks
            .iter()
            .map(|a| a.iter().map(String::as_str).collect())
            .collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(Vec::as_slice).collect();
        for order in [
            [0, 1, 2, 3],
            [3, 2, 1, 0],
            [1, 3, 0, 2],
            [2, 0, 3, 1],
            [0, 2, 1, 3],
            [3, 0, 1, 2],
        ] {
            let flags = order.iter().flat_map(|index| rules[*index].clone());
            let (seen, output) = lab.fence().flags(flags).attack(&attacks);
            assert_eq!(seen, ["OK", "EROFS", "OK", "EACCES"], "{order:?}: {output:?}");
        }
    });
}

#[test]
fn a_rule_spelled_through_a_symlink_still_hides_the_file() {
    for_each_identity(|lab| {
        let real = lab.project("real/token", "CANARY");
        symlink("real", lab.workspace().join("alias")).expect("can be made");
        let attacks: [&[&str]; 2] = [&["read", "real/token"], &["read", "alias/token"]];
        assert_eq!(lab.fenced(&attacks), all("OK", 2), "control: without the rule");
        for spelling in [
            text(&real).to_owned(),
            text(&lab.workspace().join("alias/token")).to_owned(),
        ] {
            let output = lab.fence().flags(["--hide", &spelling]).attack(&attacks);
            assert_eq!(output.0, all("EACCES", 2), "hidden as {spelling}: {:?}", output.1);
        }
    });
}

#[test]
fn a_guarded_name_in_other_case_or_spelling_is_the_guarded_name() {
    for_each_identity(|lab| {
        let hook = lab.project(".git/hooks/pre-commit", "original");
        lab.project(".GIT/HEAD", "x");
        lab.project(".Claude/notes", "x");
        // On a file system that ignores case these would be the protected files themselves.
        let attacks: [&[&str]; 7] = [
            &["write", ".ENV", "pwned"],
            &["write", ".Env.Local", "pwned"],
            &["mkdir", ".GIT/hooks"],
            &["mkdir", ".GIT/HOOKS"],
            &["write", ".Claude/Settings.json", "pwned"],
            &["write", "./.git/../.MCP.json", "pwned"],
            &["write", ".environment", "a name the pattern covers too"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        assert_eq!(seen, all("EACCES", 7), "{output:?}");
        let spelled: [&[&str]; 3] = [
            &["overwrite", "./.git/../.git/hooks/pre-commit", "pwned"],
            &["overwrite", ".git//hooks/./pre-commit", "pwned"],
            &["write", "env.local", "control"],
        ];
        let (seen, output) = lab.fence().attack(&spelled);
        assert_eq!(seen, ["EACCES", "EACCES", "OK"], "{output:?}");
        assert_eq!(std::fs::read_to_string(hook).expect("is there"), "original");
        for name in [
            ".ENV",
            ".Env.Local",
            ".GIT/hooks",
            ".GIT/HOOKS",
            ".Claude/Settings.json",
            ".MCP.json",
            ".environment",
        ] {
            assert!(
                lab.workspace().join(name).symlink_metadata().is_err(),
                "{name} exists on the host"
            );
        }
    });
}
