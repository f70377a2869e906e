//! The import gate on the way back: what would run, lead out or deceive on the host stays in the copy until its
//! content is approved, and some of it for ever.
use super::review::{
    everything, files, git, git_anywhere, json, leave, leave_link, paths, repository, say, says, tree, verb,
    work,
};
use super::support::{Lab, bastle, for_each_identity};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What an agent may leave behind, each of which something on the host would run or obey.
const HELD: &[(&str, &str)] = &[
    (".gitattributes", "*.c filter=evil diff=evil merge=evil\n"),
    ("src/.gitattributes", "* text diff=evil\n"),
    (
        ".gitmodules",
        "[submodule \"x\"]\n\tpath = x\r\n\turl = ext::sh -c touch% evil\n",
    ),
    (".husky/pre-commit", "touch evil\n"),
    (".pre-commit-config.yaml", "repos: []\n"),
    ("bare/HEAD", "ref: refs/heads/main\n"),
    (".github/workflows/ci.yml", "on: push\n"),
    (".gitlab-ci.yml", "x: {script: [evil]}\n"),
    ("sub/Jenkinsfile", "evil\n"),
    ("CODEOWNERS", "* @agent\n"),
    (".vscode/tasks.json", "{}\n"),
    (".idea/workspace.xml", "<x/>\n"),
    (
        ".devcontainer/devcontainer.json",
        "{\"initializeCommand\": \"evil\"}\n",
    ),
    (".envrc", "touch evil\n"),
    (".bashrc", "touch evil\n"),
    (".claude/settings.json", "{\"hooks\": {}}\n"),
    (".mcp.json", "{}\n"),
    (".codex/config.toml", "x = 1\n"),
    (".cursor/rules", "obey\n"),
    ("CLAUDE.md", "obey\n"),
    ("docs/AGENTS.md", "obey\n"),
    ("agent-permissions.json", "{\"version\": 1}\n"),
    ("Makefile", "all:\n\ttouch evil\n"),
    ("justfile", "all:\n  touch evil\n"),
    ("build.rs", "fn main() {}\n"),
    ("setup.py", "evil\n"),
    ("tests/conftest.py", "evil\n"),
    ("package.json", "{\"scripts\": {\"postinstall\": \"evil\"}}\n"),
    (
        "package-lock.json",
        "{\"resolved\": \"https://elsewhere.example/x.tgz\"}\n",
    ),
    (".npmrc", "registry=https://elsewhere.example/\n"),
    (".cargo/config.toml", "[build]\nrustc-wrapper = \"evil\"\n"),
    ("deploy.txt", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n"),
    ("src/hidden.c", "int a; /* \u{202e} } \u{2066} */\n"),
    ("esc\u{1b}[2Jape", "x\n"),
    ("right\u{202e}to-left", "x\n"),
    ("new\nline", "x\n"),
    ("-rf", "x\n"),
    ("run.sh", "#!/bin/sh\ntrue\n"),
    ("tools/helper.sh", "#!/bin/sh\ntrue\n"),
    ("bare/config", "[core]\n\tbare = true\n\tfsmonitor = touch evil\n"),
    // In no catalogue: held because their kind is unknown.
    (".unheard-of", "x\n"),
    ("unheard.toml", "x = 1\n"),
    ("sub/Unheardfile", "x\n"),
    ("sub/data.unheard", "x\n"),
];

/// What no approval brings back.
const REFUSED: &[(&str, &str)] = &[
    ("sub/.git/config", "[core]\n\tfsmonitor = touch evil\n"),
    ("sub/.git/hooks/post-checkout", "touch evil\n"),
    ("case/.GIT/config", "[core]\n\tfsmonitor = touch evil\n"),
    ("dos/git~1/config", "[core]\n\tfsmonitor = touch evil\n"),
];

/// Plain work, some of it pointed out.
const TAKEN: &[(&str, &str)] = &[
    ("src/new.c", "int b;\n"),
    ("docs/guide.md", "read\n"),
    ("-rf.txt", "x\n"),
    ("src/helper.sh", "#!/bin/sh\ntrue\n"),
];

fn plant(lab: &Lab, run: &str) {
    for (path, text) in HELD.iter().chain(REFUSED).chain(TAKEN) {
        leave(lab, run, path.as_bytes(), text.as_bytes());
    }
    leave(lab, run, b"not-\xff-utf8", b"x\n");
    let program = leave(lab, run, b"tool", b"\x7fELF\x02\x01\x01 and more\0");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("own file");
    let setuid = leave(lab, run, b"src/root.c", b"int c;\n");
    std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4644)).expect("own file");
    leave_link(lab, run, "leak", "/etc/passwd");
    leave_link(lab, run, "up", "../../outside");
    leave_link(lab, run, "into-git", ".git/config");
    leave_link(lab, run, "within.c", "src/main.c");
    let fifo = tree(lab, run).join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .expect("can be started");
    assert!(made.success());
    lab.hand_over(&fifo);
    // Larger than what is read as text.
    leave(lab, run, b"huge.txt", &b"0123456789abcde\n".repeat(600_000));
}

fn left_out<'a>(value: &'a Value, reason: &str) -> BTreeSet<&'a str> {
    let all = value["left_out"].as_array().expect("a list").iter();
    all.filter(|one| one["reason"] == reason)
        .map(|one| one["shown"].as_str().expect("a name"))
        .collect()
}

#[test]
fn what_would_run_on_the_host_is_left_out_until_its_content_is_approved() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        let before = everything(&lab.workspace());
        plant(lab, &run);
        let value = json(lab, &format!("apply {run}"), 0);
        let (held, refused) = (left_out(&value, "needs-approval"), left_out(&value, "refused"));
        let mut expected: BTreeSet<String> = HELD.iter().map(|(path, _)| shown(path)).collect();
        expected
            .extend(["not-\\xff-utf8", "tool", "src/root.c", "leak", "up", "huge.txt"].map(str::to_owned));
        assert_eq!(
            held.iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>(),
            expected
        );
        for (path, _) in REFUSED {
            assert!(refused.contains(path), "{path} in {refused:?}");
        }
        assert!(
            refused.contains("into-git") && refused.contains("fifo"),
            "{refused:?}"
        );

        // The positive control: plain work is there, and nothing else.
        let root = lab.workspace();
        let mut after = everything(&root);
        for path in before.keys() {
            assert_eq!(
                after.remove(path),
                before.get(path).cloned(),
                "{}",
                path.display()
            );
        }
        let names: BTreeSet<&Path> = after
            .keys()
            .map(|path| path.strip_prefix(&root).expect("below"))
            .collect();
        let mut expected: BTreeSet<&Path> = TAKEN.iter().map(|(path, _)| Path::new(path)).collect();
        expected.extend(["within.c", "docs"].map(Path::new));
        // Directories that only held what was left out came as plain directories.
        let unexpected: Vec<&&Path> = names
            .difference(&expected)
            .filter(|path| !root.join(path).is_dir())
            .collect();
        assert_eq!(unexpected, Vec::<&&Path>::new());
        assert_eq!(
            expected.difference(&names).collect::<Vec<_>>(),
            Vec::<&&Path>::new()
        );

        // Approved by the hash of exactly this set, it comes; the rest never does.
        let approval = value["approval"].as_str().expect("a hash").to_owned();
        let said = says(lab, &format!("apply {run} --dry-run"), 0);
        assert!(
            said.stderr.contains(&format!("--approve {}", &approval[..16])),
            "{said:?}"
        );
        let value = json(lab, &format!("apply {run} --approve {approval}"), 0);
        assert_eq!(left_out(&value, "needs-approval"), BTreeSet::new());
        for (path, text) in HELD {
            let bytes = std::fs::read(root.join(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert_eq!(bytes, text.as_bytes(), "{path:?}");
        }
        for (path, _) in REFUSED {
            assert!(!root.join(path).exists(), "{path}");
        }
        let mode = root
            .join("src/root.c")
            .metadata()
            .expect("applied")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7000, 0, "special bits travelled");
        assert!(!root.join("fifo").exists() && root.join("into-git").symlink_metadata().is_err());
        json(lab, &format!("apply {run} --undo"), 0);
        json(lab, &format!("apply {run} --undo"), 0);
        assert_eq!(everything(&root), before);
    });
}

fn shown(path: &str) -> String {
    path.replace('\u{1b}', "\\u{1b}")
        .replace('\u{202e}', "\\u{202e}")
        .replace('\n', "\\u{a}")
}

#[test]
fn an_approval_is_for_the_content_that_was_seen_and_for_nothing_else() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        leave(lab, &run, b"Makefile", b"all:\n\ttrue\n");
        leave(lab, &run, b"justfile", b"all:\n  true\n");
        let seen = json(lab, "diff", 0);
        let hash = |name: &str| {
            let changes = seen["changes"].as_array().expect("a list");
            let one = changes
                .iter()
                .find(|one| one["shown"] == name)
                .expect("is listed");
            one["approval"].as_str().expect("a hash").to_owned()
        };
        let before = everything(&lab.workspace());
        let both = seen["approval"].as_str().expect("a hash").to_owned();

        // The agent swaps the content after it was seen.
        leave(lab, &run, b"Makefile", b"all:\n\tevil\n");
        for approval in [
            hash("Makefile"),
            both.clone(),
            format!("Makefile={}", hash("Makefile")),
        ] {
            let ended = say(lab, &format!("apply {run} --approve {approval}"));
            assert_eq!(ended.code, 1, "{ended:?}");
            assert!(ended.stderr.contains("BST-WS-012"), "{ended:?}");
        }
        // The hash of one path does not approve another, and nothing short or empty approves anything.
        let ended = say(
            lab,
            &format!("apply {run} --approve Makefile={}", hash("justfile")),
        );
        assert_eq!(ended.code, 1, "{ended:?}");
        for bad in ["", "0", "all", "*", &hash("justfile")[..15]] {
            let ended = verb(lab, ["apply", &run, "--approve", bad]);
            assert_eq!(ended.code, 2, "{bad:?}: {ended:?}");
        }
        assert_eq!(everything(&lab.workspace()), before);

        // The positive control: what did not change is approved by its own hash.
        let value = json(
            lab,
            &format!("apply {run} --approve justfile={}", hash("justfile")),
            0,
        );
        assert_eq!(paths(&value["paths"]), ["justfile"]);
        assert_eq!(left_out(&value, "needs-approval"), BTreeSet::from(["Makefile"]));
        // What is left out is still nowhere else.
        says(lab, &format!("rm {run}"), 1);
    });
}

#[test]
fn git_on_the_host_runs_nothing_that_the_agent_planted() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        let proof = lab.outside().join("ran");
        let evil = lab.plant(
            &lab.outside().join("evil"),
            &format!("#!/bin/sh\ntouch {}\ncat\n", proof.display()),
        );
        std::fs::set_permissions(&evil, PermissionsExt::from_mode(0o755)).expect("own file");
        let evil = evil.to_str().expect("UTF-8").to_owned();
        let settings = format!(
            "[core]\n\tfsmonitor = {evil}\n\tpager = {evil}\n\tsshCommand = {evil}\n[filter \"evil\"]\n\tclean = {evil}\n\tsmudge = {evil}\n[diff \"evil\"]\n\ttextconv = {evil}\n\tcommand = {evil}\n"
        );
        let config = std::fs::read_to_string(tree(lab, &run).join(".git/config")).expect("the copy's own");
        leave(
            lab,
            &run,
            b".git/config",
            format!("{config}{settings}").as_bytes(),
        );
        let hook = leave(
            lab,
            &run,
            b".git/hooks/post-index-change",
            format!("#!/bin/sh\ntouch {}\n", proof.display()).as_bytes(),
        );
        std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).expect("own file");
        leave(lab, &run, b".git/info/attributes", b"* filter=evil diff=evil\n");
        leave(lab, &run, b".gitattributes", b"* filter=evil diff=evil\n");
        leave(lab, &run, b"README", b"changed\n");
        for (path, text) in [
            ("HEAD", "ref: refs/heads/main\n"),
            ("config", &settings),
            ("objects/x", ""),
            ("refs/x", ""),
        ] {
            leave(lab, &run, format!("vendor/{path}").as_bytes(), text.as_bytes());
        }
        // The positive control: in the copy itself git would run it.
        git_anywhere(lab, &tree(lab, &run), &["status"]);
        assert!(proof.exists(), "the plant does not work");
        std::fs::remove_file(&proof).expect("was made");

        let seen = json(lab, "diff", 0);
        for line in [
            "diff".to_owned(),
            "apply --dry-run".to_owned(),
            "apply --branch agent/one".to_owned(),
            format!("apply --approve {}", seen["approval"].as_str().expect("a hash")),
            "snapshot".to_owned(),
        ] {
            says(lab, &line, 0);
            assert!(!proof.exists(), "bastle {line} ran it");
        }
        assert!(lab.workspace().join(".gitattributes").exists(), "was approved");
        git(lab, &["status"]);
        git(lab, &["diff"]);
        git(lab, &["log", "-p", "--all"]);
        git(lab, &["checkout", "-q", "agent/one", "--", "README"]);
        git_anywhere(lab, &lab.workspace().join("vendor"), &["status"]);
        assert!(!proof.exists(), "git ran what the agent planted");
    });
}

/// What a verb writes to a terminal, without its carriage returns before newlines.
fn at_a_terminal(lab: &Lab, words: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("a terminal");
    unlockpt(&master).expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("a terminal");
    let slave = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().expect("UTF-8"))
        .expect("a terminal");
    let mut command = lab.command(bastle());
    command
        .args(words)
        .env("NO_COLOR", "1")
        .env("PAGER", "cat")
        .stdout(slave);
    let mut child = command.spawn().expect("can be started");
    // The command holds the other end of the terminal, and reading ends when the last holder closes it.
    drop(command);
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    let mut master = std::fs::File::from(master);
    // A terminal without holders reads as an error.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().expect("ends").success());
    String::from_utf8_lossy(&text).replace("\r\n", "\n")
}

/// The bytes that a verb writes to a pipe.
fn piped(lab: &Lab, words: &[&str]) -> Vec<u8> {
    let ended = lab
        .command(bastle())
        .args(words)
        .output()
        .expect("can be started");
    assert!(ended.status.success(), "{ended:?}");
    ended.stdout
}

/// Whether `git apply --check` takes these bytes.
fn git_takes(lab: &Lab, bytes: &[u8]) -> std::process::Output {
    let file = lab.outside().join("shown.patch");
    std::fs::write(&file, bytes).expect("own directory");
    let mut git = std::process::Command::new("git");
    git.args(["apply", "--check"])
        .arg(&file)
        .current_dir(lab.workspace());
    git.env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory");
    git.env("GIT_CONFIG_VALUE_0", "*")
        .output()
        .expect("can be started")
}

#[test]
fn a_difference_in_a_pipe_is_taken_by_git_with_any_bytes() {
    for_each_identity(|lab| {
        repository(lab);
        std::fs::write(lab.workspace().join("dos.txt"), b"one\r\ntwo\r\n").expect("own directory");
        let run = work(lab, "true\n");
        leave(lab, &run, b"dos.txt", b"one\r\n2\r\nthree\r\n");
        leave(lab, &run, b"escape.txt", b"a\x1b[2Jb\n");
        leave(lab, &run, b"data.png", b"\x89PNG\0\n\0\xff");
        leave(lab, &run, b"lone.txt", b"a\rb\n");
        let bytes = piped(lab, &["diff"]);
        let checked = git_takes(lab, &bytes);
        assert!(checked.status.success(), "{checked:?} {}", bytes.escape_ascii());
        for exact in [&b"+2\r\n"[..], b"+a\x1b[2Jb\n", b"GIT binary patch\n"] {
            assert!(
                bytes.windows(exact.len()).any(|part| part == exact),
                "{}",
                exact.escape_ascii()
            );
        }
        // At a terminal, and with colour for one, the same is shown with escapes.
        let coloured = piped(lab, &["diff", "--color", "always"]);
        assert!(
            !coloured.windows(4).any(|part| part == b"\x1b[2J"),
            "{}",
            coloured.escape_ascii()
        );
        let shown = at_a_terminal(lab, &["diff"]);
        assert!(!shown.contains(['\u{1b}', '\r', '\0']), "{shown:?}");
    });
}

#[test]
fn names_and_lines_of_the_agent_never_reach_a_terminal_as_they_are() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        leave(
            lab,
            &run,
            b"README",
            b"\x1b]0;title\x07\n== A fake  +0 -0\n\xe2\x80\xae\xc2\x9b2J\r\x08\n",
        );
        leave(lab, &run, "a\u{1b}[31m\nb\u{202e}".as_bytes(), b"x\n");
        leave_link(lab, &run, "link.md", "\u{1b}[2J");
        let hostile =
            |c: char| (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202e}' | '\u{9b}');
        let digest = says(lab, &format!("rm {run}"), 1);
        let shown = at_a_terminal(lab, &["diff"]);
        assert!(shown.contains("== A link"), "{shown:?}");
        assert!(!shown.contains(hostile), "bastle diff: {shown:?}");
        for line in [
            "diff --name-only".to_owned(),
            "diff --stat".to_owned(),
            "diff --json".to_owned(),
            "apply --dry-run".to_owned(),
            "apply --dry-run --json".to_owned(),
            "apply --branch a/b".to_owned(),
            "snapshots".to_owned(),
            "prune --older-than 0s".to_owned(),
        ] {
            let ended = says(lab, &line, 0);
            for text in [&ended.stdout, &ended.stderr, &digest.stderr] {
                assert!(!text.contains(hostile), "bastle {line}: {text:?}");
            }
        }
        // A line of a difference cannot pass as a heading of ours.
        for text in [shown, says(lab, "diff", 0).stdout] {
            assert!(!text.lines().any(|line| line == "== A fake  +0 -0"), "{text:?}");
            assert!(text.lines().any(|line| line == "+== A fake  +0 -0"), "{text:?}");
        }
        let approval = json(lab, "diff", 0)["approval"]
            .as_str()
            .expect("a hash")
            .to_owned();
        json(lab, &format!("apply {run} --approve {approval}"), 0);
        assert_eq!(
            std::fs::read(lab.workspace().join("README")).expect("there")[0],
            0x1b,
            "exact to the byte"
        );
    });
}

#[test]
fn a_link_in_the_way_is_never_followed_in_the_project_or_in_the_copy() {
    for_each_identity(|lab| {
        repository(lab);
        lab.project("data/a.txt", "a\n");
        lab.plant(&lab.outside().join("a.txt"), "outside\n");
        let run = work(lab, "true\n");
        leave(lab, &run, b"data/a.txt", b"agent\n");
        leave(lab, &run, b"data/new.txt", b"agent\n");
        let outside = everything(&lab.outside());
        // On the host, the directory is a link to elsewhere by now.
        std::fs::remove_dir_all(lab.workspace().join("data")).expect("own directory");
        std::os::unix::fs::symlink(lab.outside(), lab.workspace().join("data")).expect("can be made");
        for line in ["apply", "apply --theirs", "apply --paths data/new.txt"] {
            let ended = says(lab, line, 1);
            assert!(ended.stderr.contains("BST-WS-011"), "{ended:?}");
            assert_eq!(everything(&lab.outside()), outside, "{line} wrote through a link");
        }
        std::fs::remove_file(lab.workspace().join("data")).expect("own link");
        lab.project("data/a.txt", "a\n");

        // In the copy, a directory of the base is a link to elsewhere: nothing outside is read.
        std::fs::remove_dir_all(tree(lab, &run).join("data")).expect("own directory");
        leave_link(lab, &run, "data", lab.outside().to_str().expect("UTF-8"));
        let before = files(&lab.workspace());
        let ended = says(lab, "diff", 0);
        assert!(!ended.stdout.contains("+outside"), "{ended:?}");
        let ended = say(lab, "apply");
        assert!(
            lab.workspace()
                .join("data")
                .symlink_metadata()
                .expect("there")
                .is_dir()
                || ended.code == 1,
            "{ended:?}"
        );
        assert!(
            !lab.workspace().join("data").is_symlink(),
            "a link out came without approval"
        );
        if ended.code != 0 {
            assert_eq!(files(&lab.workspace()), before);
        }
    });
}

#[test]
fn a_file_is_held_by_the_name_that_a_link_gives_it() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        leave(lab, &run, b"docs/workflows/ci.md", b"on: push\n");
        leave(lab, &run, b"docs/plain.md", b"read\n");
        leave_link(lab, &run, ".github", "docs");
        leave_link(lab, &run, "x", ".git/hooks");
        let value = json(lab, &format!("apply {run}"), 0);
        let held = left_out(&value, "needs-approval");
        assert!(
            held.contains("docs/workflows/ci.md") && held.contains(".github"),
            "{held:?}"
        );
        assert!(left_out(&value, "refused").contains("x"), "{value}");
        assert!(
            !lab.workspace().join(".github").exists()
                && !lab.workspace().join("docs/workflows/ci.md").exists()
        );
    });
}

#[test]
fn the_difference_is_a_patch_for_git_and_names_the_approval_of_what_is_held() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        leave(lab, &run, b"src/new.c", b"int b;\n");
        leave(lab, &run, b"odd name.txt", b"no newline");
        leave(lab, &run, b"README", b"changed\n");
        leave(lab, &run, b"logo.png", b"\x89PNG\0\n\0\xff");
        leave(lab, &run, b"Makefile", b"all:\n\ttrue\n");
        leave_link(lab, &run, "within", "src/main.c");
        let seen = json(lab, "diff", 0);
        let changes = seen["changes"].as_array().expect("a list");
        let one = changes
            .iter()
            .find(|one| one["shown"] == "Makefile")
            .expect("is listed");
        let hash = one["approval"].as_str().expect("a hash");
        assert_eq!(one["approve"], format!("bastle apply {run} --approve {hash}"));
        let plain = changes
            .iter()
            .find(|one| one["shown"] == "src/new.c")
            .expect("is listed");
        assert_eq!(
            plain["approve"],
            Value::Null,
            "what is not held needs no approval"
        );
        let text = says(lab, "diff", 0).stdout;
        assert!(
            text.contains("!! held: executed by make")
                && text.contains(&format!("--approve {}", &hash[..16])),
            "{text}"
        );
        // What is written to a pipe applies as it is, the picture too.
        let at = lab.workspace();
        let checked = git_takes(lab, &piped(lab, &["diff"]));
        assert!(checked.status.success(), "{checked:?}");
        // The exact form, by a shell, as a person would.
        let before = files(&at);
        let patch = lab.outside().join("exact.patch");
        let exact = say(
            lab,
            &format!(
                "apply {run} --approve {} --patch {}",
                seen["approval"].as_str().expect("a hash"),
                patch.display()
            ),
        );
        assert_eq!(exact.code, 0, "{exact:?}");
        git(lab, &["apply", patch.to_str().expect("UTF-8")]);
        let after = files(&at);
        assert_ne!(before, after);
        assert_eq!(
            std::fs::read(at.join("logo.png")).expect("applied"),
            b"\x89PNG\0\n\0\xff"
        );
        assert_eq!(
            std::fs::read(at.join("odd name.txt")).expect("applied"),
            b"no newline"
        );
        assert_eq!(
            std::fs::read_link(at.join("within")).expect("applied"),
            Path::new("src/main.c")
        );
    });
}
