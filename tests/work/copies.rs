//! Runs on a copy: what the agent sees, what the host keeps.
use crate::support::{Background, Ended, Lab, Limit, bastle, eventually, for_each_identity, git, run, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Everything of a tree: kind, mode, owner, inode, time of the last change, bytes.
type Everything = BTreeMap<Vec<u8>, (u32, u32, u64, i64, Vec<u8>)>;

/// What stands on the host, `.git` included.
fn everything(root: &Path) -> Everything {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().expect("is there");
        let bytes = if meta.is_dir() {
            for entry in std::fs::read_dir(&path).expect("can be listed") {
                open.push(entry.expect("can be listed").path());
            }
            Vec::new()
        } else if meta.is_symlink() {
            std::fs::read_link(&path)
                .expect("a link")
                .as_os_str()
                .as_bytes()
                .to_vec()
        } else if meta.is_file() {
            std::fs::read(&path).expect("can be read")
        } else {
            Vec::new()
        };
        let changed = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        found.insert(
            path.as_os_str().as_bytes().to_vec(),
            (meta.mode(), meta.uid(), meta.ino(), changed, bytes),
        );
    }
    found
}

/// A small repository in the workspace with one commit.
fn repository(lab: &Lab) -> PathBuf {
    repository_at(lab, lab.workspace())
}

fn repository_at(lab: &Lab, root: PathBuf) -> PathBuf {
    lab.plant(&root.join("src/main.c"), "int main(void) { return 0; }\n");
    lab.plant(&root.join("README"), "read me\n");
    lab.plant(&root.join(".gitignore"), "out/\n*.pem\n");
    git(lab, &root, &["init", "-q"]);
    git(lab, &root, &["config", "user.name", "Ada"]);
    git(lab, &root, &["config", "user.email", "ada@example.org"]);
    git(lab, &root, &["add", "-A"]);
    git(lab, &root, &["commit", "-qm", "first"]);
    root
}

fn work(lab: &Lab) -> PathBuf {
    lab.home().join(".local/state/bastle/work")
}

fn copies(lab: &Lab) -> Vec<PathBuf> {
    let listing = match std::fs::read_dir(work(lab)) {
        Ok(listing) => listing,
        Err(_) => return Vec::new(),
    };
    listing
        .map(|entry| entry.expect("can be listed").path())
        .collect()
}

fn receipt(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn state(lab: &Lab, name: &str) -> String {
    let path = work(lab).join(name).join("meta.json");
    let meta = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let meta: Value = serde_json::from_str(&meta).expect("a record");
    meta["state"].as_str().expect("a state").to_owned()
}

#[test]
fn a_run_that_was_not_applied_leaves_every_byte_of_the_repository_as_it_was() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project("src/main.c", "int main(void) { return 2; } // dirty\n");
        lab.project("untracked.txt", "not added\n");
        let before = everything(&root);
        let script = "set -e
            echo changed > src/main.c; rm README; mkdir new; echo n > new/file; ln -s /etc/passwd link
            chmod 755 untracked.txt; mv new moved
            git add -A; git commit -qm inside; git branch other; git tag t; git gc -q
            git checkout -q -b elsewhere; git status --porcelain";
        let fence = lab.fence().flags(["--json"]);
        let name = fence.name().to_owned();
        let output = fence.sh(script);
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert_eq!(everything(&root), before, "the host's tree changed");
        let receipt = receipt(&output.ended);
        let schema: Value = serde_json::from_str(include_str!(
            "../../crates/unprivileged/cli/schemas/run.schema.json"
        ))
        .expect("a schema");
        let valid = jsonschema::validate(&schema, &receipt);
        assert!(valid.is_ok(), "{:?} in {receipt}", valid.err());
        let workspace = &receipt["workspace"];
        assert_eq!(workspace["mode"], "copy", "{workspace}");
        assert_eq!(workspace["source"], text(&root), "{workspace}");
        assert!(
            workspace["changed"]["files"].as_u64() >= Some(4),
            "control: {workspace}"
        );
        let tree = PathBuf::from(workspace["tree"].as_str().expect("a path"));
        assert!(tree.starts_with(work(lab)), "{workspace}");
        assert_eq!(
            std::fs::read_to_string(tree.join("src/main.c")).expect("the agent's work"),
            "changed\n"
        );
        assert_eq!(state(lab, &name), "finished");
        assert_eq!(output.events("workspace-made").len(), 1, "{output:?}");
    });
}

#[test]
fn no_mode_but_in_place_writes_the_repository_or_shows_a_hidden_file() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project(".env", "CANARY\n");
        let before = everything(&root);
        for mode in ["copy", "overlay", "worktree"] {
            let output = lab.fence().flags(["--workspace", mode, "--json"]).sh(
                "set -e; cat .env >&2 && exit 9; echo changed > src/main.c; rm README; echo n > new; mv new moved
                 git add -A; git commit -qm inside; git status --porcelain >&2",
            );
            if output.ended.stderr.contains("BST-WS-008") {
                crate::support::skip("a workspace mode", &output.ended.stderr);
                continue;
            }
            assert_eq!(output.ended.code, 0, "{mode}: {output:?}");
            assert!(!output.ended.stderr.contains("CANARY"), "{mode}: {output:?}");
            assert_eq!(everything(&root), before, "{mode}");
            let workspace = &receipt(&output.ended)["workspace"];
            assert_eq!(workspace["mode"], mode, "{workspace}");
            assert_eq!(workspace["changed"]["files"], 3, "control: {mode}: {workspace}");
        }
    });
}

#[test]
fn a_run_in_place_does_change_the_repository() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let output = lab
            .fence()
            .flags(["--workspace", "in-place", "--json"])
            .sh("echo changed > README");
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert_eq!(
            std::fs::read_to_string(root.join("README")).expect("is there"),
            "changed\n"
        );
        assert_eq!(receipt(&output.ended)["workspace"]["mode"], "in-place");
        assert!(copies(lab).is_empty(), "nothing was copied");
    });
}

#[test]
fn nothing_is_copied_for_a_plain_directory_a_read_only_run_or_a_dry_run() {
    for_each_identity(|lab| {
        lab.project("README", "plain\n");
        let plain = lab.fence().flags(["--json"]).sh("true");
        assert_eq!(
            receipt(&plain.ended)["workspace"]["mode"],
            "in-place",
            "{plain:?}"
        );
        repository(lab);
        let reading = lab.fence().flags(["--sandbox", "read-only", "--json"]).sh("true");
        assert_eq!(
            receipt(&reading.ended)["workspace"]["mode"],
            "in-place",
            "{reading:?}"
        );
        let dry = lab.fence().flags(["--dry-run-policy"]).sh("true");
        assert!(dry.said().contains("workspace: copy"), "{dry:?}");
        let json = lab.fence().flags(["--dry-run-policy", "--json"]).sh("true");
        assert_eq!(receipt(&json.ended)["workspace"]["mode"], "copy", "{json:?}");
        assert!(copies(lab).is_empty(), "something was copied");
        let told = lab.fence().sh("true");
        assert!(
            told.ended.stderr.contains("workspace: copy of"),
            "control: {told:?}"
        );
        assert_eq!(copies(lab).len(), 1, "control: a copy is seen here");
    });
}

#[test]
fn no_mount_inside_shows_the_repository_even_when_a_directory_above_it_is_granted() {
    for_each_identity(|lab| {
        let root = repository_at(lab, lab.outside().join("all/project"));
        let inode = root.join("README").metadata().expect("is there").ino();
        let above = text(root.parent().expect("has one")).to_owned();
        let look = format!(
            "stat -c %i {0}/README /workspace/README; cut -d' ' -f4,5 /proc/self/mountinfo; echo x > {0}/README",
            text(&root)
        );
        let before = everything(&root);
        let below = root.join("src");
        let grants: [&[&str]; 4] = [&[], &["--rw", &above], &["--ro", &above], &["--rw", text(&below)]];
        for grant in grants {
            let output = lab.fence().cwd(&root).flags(grant).sh(&look);
            assert_eq!(output.ended.code, 0, "{grant:?} {output:?}");
            assert_eq!(everything(&root), before, "{grant:?}");
            let lines: Vec<&str> = output.said().lines().collect();
            assert!(
                lines[..2].iter().all(|line| *line != inode.to_string()),
                "{grant:?} {output:?}"
            );
            let shown = lines[2..].iter().filter_map(|line| line.split_once(' '));
            let theirs = shown.filter(|(_, at)| Path::new(at).starts_with(&root));
            for (root_of_mount, at) in theirs {
                assert!(
                    root_of_mount.contains("bastle/work/"),
                    "{at} shows {root_of_mount}: {output:?}"
                );
            }
        }
        let control = lab
            .fence()
            .cwd(&root)
            .flags(["--workspace", "in-place"])
            .sh(&look);
        assert!(
            control.said().starts_with(&inode.to_string()),
            "control: in place it is seen: {control:?}"
        );
    });
}

#[test]
fn the_state_directory_is_not_seen_inside_but_for_the_copy() {
    for_each_identity(|lab| {
        repository(lab);
        let state = lab.home().join(".local/state/bastle");
        let output = lab.fence().sh(&format!(
            "cd {0} && ls -aR; ls -a {0}/*; ls -a ..; cat /workspace/README",
            text(&state)
        ));
        assert_eq!(
            output.said().lines().last(),
            Some("read me"),
            "control: {output:?}"
        );
        for secret in ["meta.json", "snapshots", "tree.seen", "log.jsonl"] {
            assert!(!output.said().contains(secret), "{output:?}");
        }
    });
}

#[test]
fn four_runs_at_once_on_one_repository_do_not_meet() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let before = everything(&root);
        let script = "set -e; test ! -e mine; echo $1 > mine; echo $1 >> README
            git add -A; git commit -qm $1; sleep 0.3; cat mine; git log --format=%s; git branch --show-current";
        let file = lab.tools().join("parallel.sh");
        std::fs::write(&file, script).expect("can be written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("own file");
        let fences: Vec<_> = (0..4).map(|_| lab.fence()).collect();
        let outputs: Vec<(String, Ended)> = std::thread::scope(|scope| {
            let start = |fence: crate::support::Fence<'_>| {
                let name = fence.name().to_owned();
                let mut command = fence.command(["sh", text(&file), &name]);
                scope.spawn(move || (name, run(&mut command, b"", Limit::HANG)))
            };
            let running: Vec<_> = fences.into_iter().map(start).collect();
            running
                .into_iter()
                .map(|one| one.join().expect("the thread ends"))
                .collect()
        });
        for (name, ended) in &outputs {
            assert_eq!(ended.code, 0, "{ended:?}");
            let expected = format!("{name}\n{name}\nfirst\nsh/{name}\n");
            assert_eq!(ended.stdout, expected, "{ended:?}");
        }
        assert_eq!(everything(&root), before);
        assert_eq!(copies(lab).len(), 4);
    });
}

#[test]
fn a_dirty_tree_is_dirty_inside_and_the_branch_carries_the_agents_name() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project("src/main.c", "changed\n");
        lab.project("staged", "staged\n");
        git(lab, &root, &["add", "staged"]);
        lab.project("untracked", "untracked\n");
        let outside = git(lab, &root, &["status", "--porcelain"]);
        let output = lab.fence().flags(["--branch", "parser/fix"]).sh(
            "git status --porcelain; git branch --show-current; git log -1 --format='%an %ae'; git remote",
        );
        assert_eq!(
            output.ended.stdout,
            format!("{outside}\nsh/parser/fix\nAda ada@example.org\n"),
            "{output:?}"
        );
        let refused = lab.fence().flags(["--branch", "a..b"]).sh("true");
        assert_eq!(refused.ended.code, 125, "{refused:?}");
        assert!(refused.ended.stderr.contains("branch"), "{refused:?}");
    });
}

#[test]
fn hidden_files_and_ignored_secrets_are_not_in_the_copy() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project(".env", "CANARY-1");
        lab.project("service/.env.local", "CANARY-2");
        lab.project("server.pem", "CANARY-3");
        lab.project("private/notes", "CANARY-4");
        lab.project("real/key", "CANARY-5");
        symlink("real", root.join("alias")).expect("a fresh link");
        lab.project("public.pem", "tracked");
        git(lab, &root, &["add", "-f", "public.pem"]);
        git(lab, &root, &["commit", "-qm", "a certificate"]);
        let script = "grep -r CANAR[Y]- . ; ls -a . service private; git status --porcelain";
        let hiding = ["--hide", "private", "--hide", "alias/key"];
        let output = lab.fence().flags(hiding).sh(script);
        for gone in ["CANARY", ".env", "server.pem"] {
            assert!(!output.said().contains(gone), "{gone}: {output:?}");
        }
        assert!(output.said().contains("public.pem"), "control: {output:?}");
        assert!(
            !output.said().contains(" D "),
            "what is left out does not look deleted: {output:?}"
        );
        for copy in copies(lab) {
            let found = everything(&copy.join("tree"));
            let told = found
                .values()
                .any(|(_, _, _, _, bytes)| bytes.windows(7).any(|window| window == b"CANARY-"));
            assert!(!told, "{} holds a secret", copy.display());
        }
        let later = lab.fence().sh("echo x > .env && echo WROTE");
        assert_eq!(later.said(), "", "a hidden name comes into being: {later:?}");
    });
}

#[test]
fn links_out_special_files_and_shared_inodes_lead_nowhere() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let outside = lab.plant(&lab.outside().join("theirs"), "theirs\n");
        symlink(&outside, root.join("out-link")).expect("a fresh link");
        symlink(root.join("README"), root.join("in-link")).expect("a fresh link");
        std::fs::hard_link(&outside, root.join("shared")).expect("a fresh link");
        let mut fifo = lab.command(Path::new("/usr/bin/mkfifo"));
        assert_eq!(run(fifo.arg("pipe"), b"", Limit::HANG).code, 0);
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a fresh socket");
        if lab.identity.uid() == 0 {
            let mut node = lab.command(Path::new("/usr/bin/mknod"));
            assert_eq!(run(node.args(["disk", "b", "7", "0"]), b"", Limit::HANG).code, 0);
        }
        let before = everything(&root);
        let output = lab.fence().sh(
            "cat out-link; cat in-link; ls; echo mine > shared; echo mine > in-link; echo mine > out-link",
        );
        let said: Vec<&str> = output.said().lines().collect();
        assert_eq!(
            said.first(),
            Some(&"read me"),
            "the link stays in the copy: {output:?}"
        );
        for gone in ["pipe", "socket", "disk", "theirs"] {
            assert!(!said.contains(&gone), "{gone}: {output:?}");
        }
        assert!(
            said.contains(&"shared") && said.contains(&"out-link"),
            "control: {output:?}"
        );
        assert_eq!(everything(&root), before);
        assert_eq!(std::fs::read_to_string(&outside).expect("is there"), "theirs\n");
    });
}

#[test]
fn submodules_worktrees_shallow_clones_and_unborn_branches_work_inside_and_stay_untouched() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let outside = lab.outside();
        git(lab, &outside, &["clone", "-q", text(&root), "library"]);
        git(
            lab,
            &root,
            &["submodule", "--quiet", "add", "../outside/library", "sub"],
        );
        git(lab, &root, &["commit", "-qm", "submodule"]);
        git(lab, &root, &["worktree", "add", "-q", "../outside/first"]);
        git(
            lab,
            &outside.join("first"),
            &["worktree", "add", "-q", "../second"],
        );
        git(
            lab,
            &outside,
            &[
                "clone",
                "-q",
                "--depth",
                "1",
                &format!("file://{}", text(&root)),
                "shallow",
            ],
        );
        lab.plant(&outside.join("unborn/file"), "x\n");
        git(lab, &outside.join("unborn"), &["init", "-q"]);
        for name in ["first", "second", "shallow", "unborn", "../ws"] {
            let project = outside.join(name);
            let before = (everything(&root), everything(&outside));
            let script = "set -e; echo work > work; git add -A; git commit -qm inside; git log -1 --format=%s; git fsck --connectivity-only 2>/dev/null >/dev/null; git status --porcelain";
            let output = lab.fence().cwd(&project).sh(script);
            assert_eq!(output.said(), "inside", "{name}: {output:?}");
            assert_eq!((everything(&root), everything(&outside)), before, "{name}");
        }
        assert_eq!(copies(lab).len(), 5);
    });
}

#[test]
fn odd_names_holes_and_modes_come_through() {
    for_each_identity(|lab| {
        let root = repository(lab);
        for name in [
            &b"new\nline"[..],
            b"\xff\xfe",
            b" leading",
            b"-dash",
            b"esc\x1b[31m",
        ] {
            let path = root.join(std::ffi::OsStr::from_bytes(name));
            std::fs::write(&path, "odd\n").expect("can be written");
            lab.hand_over(&path);
        }
        let hole = lab.project("hole", "");
        std::fs::File::options()
            .write(true)
            .open(&hole)
            .and_then(|file| file.set_len(64 << 20))
            .expect("a hole");
        let tool = lab.project("tool", "#!/bin/sh\necho tool\n");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("own file");
        let output = lab
            .fence()
            .sh("cat ./*new* ./-dash ./*leading ./esc* | sort -u; ls | wc -l; ./tool; stat -c %s hole; rm ./*new*");
        let count = std::fs::read_dir(&root).expect("can be listed").count();
        // `.git` and `.gitignore` are not listed; the name with a line end counts twice.
        let expected = format!("odd\n{}\ntool\n{}", count - 2 + 1, 64 << 20);
        assert_eq!(output.said(), expected, "{output:?}");
        assert!(!output.ended.stderr.contains('\u{1b}'), "{output:?}");
    });
}

#[test]
fn a_killed_bastle_leaves_work_that_the_next_start_finds() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let before = everything(&root);
        let fence = lab.fence();
        let name = fence.name().to_owned();
        let file = lab.tools().join("wait.sh");
        std::fs::write(&file, "echo kept > work; echo ready; exec sleep 60").expect("can be written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("own file");
        let mut run_of = Background::start(&mut fence.command(["sh", text(&file)]));
        assert_eq!(run_of.line(), "ready");
        assert_eq!(state(lab, &name), "running");
        run_of.signal(rustix::process::Signal::KILL);
        assert!(run_of.end(Limit::HANG).is_some());
        assert_eq!(state(lab, &name), "running", "nobody could record its end");
        let kept = work(lab).join(&name).join("tree/work");
        assert_eq!(
            std::fs::read_to_string(&kept).expect("the agent's work"),
            "kept\n"
        );
        assert_eq!(lab.fence().sh("true").ended.code, 0);
        let next = lab.fence().flags(["--from", &name]).sh("cat work");
        assert_eq!(next.said(), "kept", "{next:?}");
        assert_eq!(state(lab, &name), "finished");
        assert_eq!(everything(&root), before);
    });
}

#[test]
fn a_signal_while_the_project_is_copied_leaves_nothing() {
    for_each_identity(|lab| {
        repository(lab);
        // Holes take time to read and no place on the disk.
        for number in 0..6 {
            let hole = lab.project(&format!("holes/{number}"), "");
            std::fs::File::options()
                .write(true)
                .open(&hole)
                .and_then(|file| file.set_len(64 << 20))
                .expect("a hole");
        }
        let fence = lab.fence();
        let tree = work(lab).join(fence.name()).join("tree");
        let mut copying = Background::start(&mut fence.command(["true"]));
        assert!(
            eventually(Limit::HANG, || tree.exists() || !copying.is_alive()),
            "the copy never began"
        );
        if !copying.is_alive() {
            crate::support::skip(
                "a_signal_while_the_project_is_copied_leaves_nothing",
                "the copy was too fast",
            );
            return;
        }
        copying.signal(rustix::process::Signal::INT);
        let code = copying.end(Limit::HANG);
        assert_eq!(code, Some(130), "it ends by the signal");
        let left: Vec<PathBuf> = copies(lab);
        assert!(left.is_empty(), "{left:?}");
        let control = lab.fence().run(["true"]);
        assert_eq!(control.ended.code, 0, "control: undisturbed it runs: {control:?}");
    });
}

#[test]
fn a_run_that_never_starts_leaves_no_copy() {
    for_each_identity(|lab| {
        repository(lab);
        let refused = lab.fence().flags(["--max-inodes", "1"]).sh("true");
        assert_eq!(refused.ended.code, 125, "{refused:?}");
        assert!(copies(lab).is_empty(), "{:?}", copies(lab));
        let missing = lab.fence().flags(["--json"]).run(["no-such-program"]);
        assert_eq!(missing.ended.code, 127, "{missing:?}");
        assert_eq!(receipt(&missing.ended)["workspace"]["kept"], false, "{missing:?}");
        assert!(copies(lab).is_empty(), "{:?}", copies(lab));
        let failing = lab.fence().flags(["--json"]).sh("exit 3");
        assert_eq!(failing.ended.code, 3, "{failing:?}");
        assert_eq!(receipt(&failing.ended)["workspace"]["kept"], true, "{failing:?}");
        assert_eq!(copies(lab).len(), 1, "control: what an agent has seen stays");
    });
}

#[test]
fn another_runs_tree_is_begun_with_and_not_changed() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let first = lab.fence();
        let name = first.name().to_owned();
        assert_eq!(
            first
                .sh("echo one > work; git add -A; git commit -qm one")
                .ended
                .code,
            0
        );
        let tree = work(lab).join(&name).join("tree");
        let before = (everything(&root), everything(&tree));
        let next = lab
            .fence()
            .flags(["--from", &name, "--json"])
            .sh("cat work >&2; git log --format=%s >&2; echo two > work");
        assert_eq!(next.ended.code, 0, "{next:?}");
        assert!(next.ended.stderr.contains("one\none\nfirst\n"), "{next:?}");
        let base = lab.fence().flags(["--from", &format!("{name}@0")]).sh("ls");
        assert_eq!(base.said(), "README\nsrc", "{base:?}");
        assert_eq!((everything(&root), everything(&tree)), before);
        let elsewhere = lab
            .fence()
            .cwd(&lab.outside())
            .flags(["--from", &name])
            .sh("cat work; pwd");
        assert_eq!(elsewhere.said(), format!("one\n{}", text(&root)), "{elsewhere:?}");
        let unknown = lab.fence().flags(["--from", "no-such-run"]).sh("true");
        assert_ne!(unknown.ended.code, 0, "{unknown:?}");
        assert!(unknown.ended.stderr.contains("no-such-run"), "{unknown:?}");
    });
}

#[test]
fn a_very_large_history_is_read_from_the_host_and_never_written() {
    for_each_identity(|lab| {
        let root = repository(lab);
        // Nothing refers to it, so git never reads it: only its size counts.
        let pack = root.join(".git/objects/pack/pack-0123456789abcdef0123456789abcdef01234567.pack");
        std::fs::File::create(&pack)
            .and_then(|file| file.set_len(600 << 20))
            .expect("a hole");
        lab.hand_over(&pack);
        let objects = root.join(".git/objects");
        let sizes = |root: &Path| -> Vec<(PathBuf, u64, i64)> {
            let mut found: Vec<_> = everything_named(root);
            found.sort();
            found
        };
        let before = sizes(&root);
        let fence = lab.fence();
        let name = fence.name().to_owned();
        let output = fence.sh(
            "set -e; git log -1 --format=%s; git fsck --connectivity-only >/dev/null 2>&1; echo w > w; git add w; git commit -qm inside
             git log -1 --format=%s; for d in /run/bastle/git-objects/*; do echo x 2>/dev/null > $d/planted && echo WROTE; done; true",
        );
        assert_eq!(output.said(), "first\ninside", "{output:?}");
        assert_eq!(sizes(&root), before);
        assert!(objects.exists());
        let next = lab.fence().flags(["--from", &name]).sh("git log --format=%s");
        assert_eq!(next.said(), "inside\nfirst", "{next:?}");
    });
}

/// Names, sizes and times, without reading a hole of 600 MiB.
fn everything_named(root: &Path) -> Vec<(PathBuf, u64, i64)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().expect("is there");
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path).expect("can be listed") {
                open.push(entry.expect("can be listed").path());
            }
        }
        found.push((path, meta.len(), meta.mtime() * 1_000_000_000 + meta.mtime_nsec()));
    }
    found
}

#[test]
fn a_state_directory_inside_the_project_is_not_copied_into_itself() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let state = root.join("state");
        let fence = lab.fence().env("XDG_STATE_HOME", text(&state));
        let output = fence.sh("find . -name meta.json -o -name log.jsonl; ls");
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(!output.said().contains("meta.json"), "{output:?}");
        assert!(!output.said().contains("log.jsonl"), "{output:?}");
    });
}

#[test]
fn an_unusable_repository_is_refused_with_a_way_out_and_never_worked_in_place_instead() {
    for_each_identity(|lab| {
        let root = repository(lab);
        std::fs::rename(root.join(".git"), lab.outside().join("elsewhere.git")).expect("can be moved");
        symlink(lab.outside().join("elsewhere.git"), root.join(".git")).expect("a fresh link");
        let before = everything(&root);
        let refused = lab.fence().sh("echo x > README");
        assert_eq!(refused.ended.code, 125, "{refused:?}");
        assert!(refused.ended.stderr.contains("BST-WS-010"), "{refused:?}");
        assert_eq!(everything(&root), before);
        assert!(copies(lab).is_empty());
        let asked = lab
            .fence()
            .flags(["--workspace", "in-place"])
            .sh("echo x > README");
        assert_eq!(asked.ended.code, 0, "control: {asked:?}");
    });
}

#[test]
fn a_backend_without_a_fence_makes_no_copy() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let mut command = lab.command(bastle());
        command
            .current_dir(&root)
            .args(["run", "--backend", "host", "--i-understand-this-is-not-a-fence"])
            .args(["--workspace", "copy", "--", "true"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 125, "{ended:?}");
        assert!(copies(lab).is_empty());
    });
}
