//! Trees of every mode: a project, the agent's work in it, and what the agent sees.
#![allow(dead_code, reason = "each test file uses a part")]
use super::{Ground, hides_env, look, run_id, write};
use bastle_contract::Fault;
use bastle_workspace::copy::Progress;
use bastle_workspace::git::{BranchName, History, HostGit, Prepare, prepare};
use bastle_workspace::meta::WorkMode;
use bastle_workspace::mounting::Mounting;
use bastle_workspace::place::Place;
use bastle_workspace::workspace::{CreateRequest, Fresh, GitMade, Workspace};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const MODES: [WorkMode; 3] = [WorkMode::Copy, WorkMode::Overlay, WorkMode::Worktree];
pub(crate) type Tree = BTreeMap<Vec<u8>, (char, u32, Vec<u8>)>;

/// Changes of every sort; each line is one that an overlay keeps in a way of its own.
pub(crate) const WORK: &str = r"
set -e
echo changed > README
rm src/main.rs
rm -r src/deep
mkdir -p src/deep/er && echo other > src/deep/er/new.rs
rm -r lib && echo 'a file now' > lib
rm notes && mkdir notes && echo inside > notes/inside
mv data data2
chmod +x plain
ln -sf elsewhere link
mkdir fresh && echo new > fresh/file
rm -r a && echo 'beside a-b' > a
printf 'x' >> a-b/c
";

pub(crate) fn git(dir: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

pub(crate) fn ground() -> Ground {
    let ground = Ground::new();
    let source = ground.source();
    fs::remove_dir(source.join("empty")).unwrap();
    // A work tree comes out of git, which knows no attributes.
    write(&source, "lib.rs", b"// lib\n");
    fs::rename(source.join("lib.rs"), source.join("src/deep/er/lib.rs")).unwrap();
    for (path, bytes) in [
        ("lib/one", "one\n"),
        ("lib/two", "two\n"),
        ("notes", "note\n"),
        ("data/big", "data\n"),
        ("plain", "plain\n"),
        ("a/b", "below a\n"),
        ("a-b/c", "sorts between a and a/b\n"),
        ("sub/.env.local", "SECRET=2\n"),
        ("sub/kept", "kept\n"),
    ] {
        write(&source, path, bytes.as_bytes());
    }
    git(&source, &["init", "-q", "-b", "main"]);
    git(&source, &["add", "-A"]);
    git(&source, &["commit", "-q", "-m", "first"]);
    write(&source, ".git/hooks/post-checkout", b"#!/bin/sh\n");
    git(
        &source,
        &[
            "config",
            "remote.origin.url",
            "https://user:password@example.org/",
        ],
    );
    ground
}

pub(crate) fn give_repository(fresh: &Fresh<'_>) -> Result<GitMade, Fault> {
    let branch = BranchName::of_agent("agent", "one").unwrap();
    let request = Prepare {
        source: fresh.source,
        tree: fresh.tree,
        scratch: fresh.scratch,
        branch: &branch,
        user_configs: &[],
        absent: fresh.absent,
        history: History::Full,
    };
    let prepared = prepare(&HostGit::find()?, &request)?;
    Ok(prepared.map_or_else(GitMade::default, |prepared| prepared.made(&branch)))
}

pub(crate) fn make(place: &Place, source: &Path, mode: WorkMode, run: &str) -> Result<Workspace, Fault> {
    let request = CreateRequest {
        run: run_id(run),
        source,
        hidden: &hides_env,
        git: &mut give_repository,
        progress: &mut |_: Progress| {},
    };
    Workspace::create_as(place, mode, request)
}

/// Runs a shell script in the tree as the agent sees it.
pub(crate) fn inside(ground: &Ground, space: &Workspace, script: &str) {
    let mut command = match space.mounting() {
        Mounting::Tree(tree) => {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(tree);
            command
        }
        Mounting::Layered { lower, layer } => {
            let at = ground.root.path().join("merged");
            fs::create_dir_all(&at).unwrap();
            let (upper, work) = (layer.join("upper"), layer.join("work"));
            let mount = format!(
                "mount -t overlay overlay -o userxattr,lowerdir={},upperdir={},workdir={} {at} && cd {at} && ",
                lower.display(),
                upper.display(),
                work.display(),
                at = at.display()
            );
            let mut command = Command::new("unshare");
            command.args(["-Urm", "--propagation", "private", "sh", "-c"]);
            command.arg(format!("{mount} ({script})"));
            command
        }
    };
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{:?}: {output:?}", space.mode());
}

/// What the agent sees, without its repository.
pub(crate) fn seen(ground: &Ground, space: &Workspace) -> Tree {
    let out = ground.root.path().join("seen");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    inside(ground, space, &format!("cp -a . {}", out.display()));
    without_git(look(&out))
}

pub(crate) fn without_git(tree: Tree) -> Tree {
    tree.into_iter()
        .filter(|(path, _)| !path.starts_with(b".git/") && path != b".git")
        .collect()
}

pub(crate) fn expected(ground: &Ground) -> Tree {
    let mut tree = without_git(look(&ground.source()));
    tree.retain(|path, _| !path.rsplit(|b| *b == b'/').next().unwrap().starts_with(b".env"));
    tree
}

/// The recorded state of the tree as [`look`] would show it.
pub(crate) fn recorded(space: &Workspace) -> Tree {
    use bastle_workspace::blobs::{Blobs, read_blob};
    use bastle_workspace::manifest::Kind;
    let (_, manifest) = space.current().unwrap();
    let blobs: &dyn Blobs = space;
    let each = |entry: &bastle_workspace::manifest::Entry| {
        let value = match &entry.kind {
            Kind::File {
                digest,
                mode,
                attributes,
                ..
            } => {
                let mut bytes = read_blob(blobs, digest, 1 << 20).unwrap().unwrap();
                if let Some(id) = attributes {
                    bytes.extend(read_blob(blobs, id, 1 << 20).unwrap().unwrap());
                }
                ('f', if mode.executable { 0o100 } else { 0 }, bytes)
            }
            Kind::Dir => ('d', 0, Vec::new()),
            Kind::Symlink { target } => ('l', 0, target.0.clone()),
            other => panic!("{}: {other:?}", entry.path),
        };
        (entry.path.as_bytes().to_vec(), value)
    };
    without_git(manifest.entries().iter().map(each).collect())
}
