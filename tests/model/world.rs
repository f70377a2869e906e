//! The project on the disk: made from a case, changed by scripts of the user, and read with plain means.
use super::random::{Case, GitDeed, Layout, Mode};
use super::support::{Ended, Lab, Limit, bastle, git, run, text};
use super::tree::{Name, State, Thing, Tree, read};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a check found wrong.
pub(crate) type Checked<T = ()> = Result<T, String>;

const ATTRIBUTES: &str =
    "crlf.txt text eol=crlf\n*.md text=auto\n*.c -text\n*.u16 working-tree-encoding=UTF-16LE\n";

/// Fails with a sentence unless it holds.
#[expect(
    clippy::fn_params_excessive_bools,
    reason = "an assertion takes what it asserts"
)]
pub(crate) fn ensure(holds: bool, told: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(told()) }
}

/// A script in a place where every identity can read it.
pub(crate) fn script(lab: &Lab, lines: &[u8]) -> PathBuf {
    let file = lab.tools().join("script.sh");
    let mut whole = b"set -e\n".to_vec();
    whole.extend(lines);
    std::fs::write(&file, whole).expect("can be written");
    file
}

/// A script of the user's, in a directory of theirs.
pub(crate) fn as_user(lab: &Lab, directory: &Path, lines: &[u8]) {
    let file = script(lab, lines);
    let mut command = lab.command(Path::new("/bin/sh"));
    command.current_dir(directory).arg(file);
    let ended = run(&mut command, b"", Limit::HANG);
    assert_eq!(ended.code, 0, "{}: {ended:?}", String::from_utf8_lossy(lines));
}

/// A script in the tree of a run that ended, as the agent's user.
pub(crate) fn as_agent(lab: &Lab, tree: &Path, lines: &[u8]) {
    let file = script(lab, lines);
    let owner = tree.metadata().expect("is there");
    // Only root reaches the tree of another user, and steps down in it.
    let mut command = Command::new("/bin/sh");
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let step = "cd \"$1\" && exec setpriv --reuid \"$2\" --regid \"$3\" --clear-groups sh \"$4\"";
    command.args(["-c", step, "sh"]).arg(tree);
    command
        .args([owner.uid().to_string(), owner.gid().to_string()])
        .arg(file);
    let ended = run(&mut command, b"", Limit::HANG);
    assert_eq!(ended.code, 0, "{}: {ended:?}", String::from_utf8_lossy(lines));
}

/// A verb in the project.
pub(crate) fn verb(lab: &Lab, words: &[OsString]) -> Ended {
    let mut command = lab.command(bastle());
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

/// Its answer.
pub(crate) fn answer(ended: &Ended) -> Checked<Value> {
    serde_json::from_str(&ended.stdout).map_err(|error| format!("{error}: {ended:?}"))
}

/// Names of a list in an answer.
pub(crate) fn names(list: &Value) -> Vec<Name> {
    list.as_array().into_iter().flatten().map(name).collect()
}

/// The name in one entry of an answer.
pub(crate) fn name(entry: &Value) -> Name {
    match (&entry["path"], entry["path"]["b64"].as_str()) {
        (Value::String(text), _) => text.clone().into_bytes(),
        (_, Some(encoded)) => decoded(encoded),
        _ => panic!("no path: {entry}"),
    }
}

fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let Some(value) = DIGITS.iter().position(|digit| *digit == byte) else {
            continue;
        };
        bits = (bits << 6 | u32::try_from(value).expect("is below 64")) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).expect("is a byte"));
        }
    }
    out
}

/// Makes the project of a case; what is in it then, with its hard links.
pub(crate) fn prepare(lab: &Lab, case: &Case) -> Tree {
    let root = lab.workspace();
    let home = lab.home();
    lab.plant(
        &home.join(".gitconfig"),
        "[user]\nname=Ada\nemail=ada@example.org\n[init]\ndefaultBranch=main\n[protocol \"file\"]\nallow=always\n[commit]\ngpgsign=false\n",
    );
    match case.layout {
        Layout::Linked => {
            let main = home.join("main");
            as_user(
                lab,
                &home,
                b"git init -q main; cd main; git commit -q --allow-empty -m first",
            );
            git(lab, &main, &["worktree", "add", "-q", "-b", "work", text(&root)]);
        }
        Layout::Submodule => {
            as_user(
                lab,
                &home,
                b"git init -q s; cd s; echo in > in.txt; git add -A; git commit -q -m first",
            );
            git(lab, &root, &["init", "-q"]);
            git(
                lab,
                &root,
                &["submodule", "add", "-q", text(&home.join("s")), "sub"],
            );
        }
        Layout::Plain | Layout::Unborn | Layout::Detached => {
            git(lab, &root, &["init", "-q"]);
        }
    }
    lab.project(".gitignore", "out/\n");
    if case.attributes {
        lab.project(".gitattributes", ATTRIBUTES);
    }
    let mut tree = from_disk(&root);
    let mut lines = Vec::new();
    for op in &case.committed {
        op.perform(&mut tree, &mut lines);
    }
    as_user(lab, &root, &lines);
    commit(lab, case, &mut tree);
    let mut lines = Vec::new();
    for op in &case.dirty {
        op.perform(&mut tree, &mut lines);
    }
    if case.staged {
        lines.extend(b"git add -A 2>/dev/null || true\n");
    }
    as_user(lab, &root, &lines);
    tree
}

fn commit(lab: &Lab, case: &Case, tree: &mut Tree) {
    let root = lab.workspace();
    if case.layout == Layout::Unborn {
        return;
    }
    let mut lines =
        b"git add -A 2>/dev/null || { sed -i /u16/d .gitattributes; git add -A 2>/dev/null; }\n".to_vec();
    lines.extend(b"git commit -q --allow-empty -m second\n");
    lines.extend(b"git stash store -m mine $(git commit-tree -p HEAD -p $(git commit-tree -m index HEAD^{tree}) -m mine HEAD^{tree})\n");
    if case.attributes && case.layout != Layout::Submodule {
        // The files as a checkout by these attributes has them.
        lines.extend(b"git rm -r -q --cached .; git reset -q --hard\n");
    }
    if case.layout == Layout::Detached {
        lines.extend(b"git checkout -q --detach\n");
    }
    as_user(lab, &root, &lines);
    if case.attributes {
        *tree = from_disk(&root);
    }
}

/// What a run in this mode begins with, by git's own checkout where it is one.
pub(crate) fn beginning(lab: &Lab, case: &Case, host: &Tree) -> State {
    let root = lab.workspace();
    match case.mode {
        Mode::InPlace => host.state(),
        Mode::Copy | Mode::Overlay => {
            let mut state = host.state();
            // What a `.git` file leads to lies elsewhere and is not inside.
            state.retain(|name, thing| *thing != Thing::Git || super::tree::on_disk(&root, name).is_dir());
            state
        }
        Mode::Worktree => {
            let clone = lab.home().join("checkout");
            git(lab, &lab.home(), &["clone", "-q", text(&root), text(&clone)]);
            let state = read(&clone).0;
            std::fs::remove_dir_all(clone).expect("own files");
            state
        }
    }
}

/// What is on the disk, with its hard links.
pub(crate) fn from_disk(root: &Path) -> Tree {
    let (state, stamps) = read(root);
    let mut first: BTreeMap<u64, Name> = BTreeMap::new();
    let mut tree = Tree::default();
    for (name, thing) in &state {
        let inode = stamps.get(name).and_then(|stamp| stamp.inode);
        match (thing, inode.and_then(|inode| first.get(&inode))) {
            (Thing::File(..), Some(other)) => tree.link(other, name),
            _ => tree.set(name, Some(thing)),
        }
        if let Some(inode) = inode {
            first.entry(inode).or_insert_with(|| name.clone());
        }
    }
    tree
}

/// Index, references, reflogs and settings of the project's repository, objects not among them.
pub(crate) fn repository(lab: &Lab) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![lab.workspace().join(".git"), lab.home().join("main/.git")];
    while let Some(path) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        if meta.is_file() {
            found.insert(path.clone(), std::fs::read(&path).expect("can be read"));
        } else if meta.is_dir() && path.file_name().is_some_and(|name| name != "objects") {
            let entries = std::fs::read_dir(&path).expect("can be listed");
            open.extend(entries.map(|entry| entry.expect("can be listed").path()));
        }
    }
    found
}

/// What the agent does with git, as lines of its script. No file of the tree changes.
pub(crate) fn deed(deed: GitDeed) -> Vec<u8> {
    let lines = match deed {
        GitDeed::Commit => {
            "git add -A 2>/dev/null || true; git commit -q --allow-empty -m inside\n".to_owned()
        }
        GitDeed::Branch(n) => format!(
            "blob=$(echo side {n} | git hash-object -w --stdin)
            export GIT_INDEX_FILE=$PWD/.git/side-index
            test -z \"$first\" || git read-tree $first
            git update-index --add --cacheinfo 100644,$blob,side{n}.txt
            side=$(git commit-tree ${{first:+-p $first}} -m side $(git write-tree))
            rm .git/side-index; unset GIT_INDEX_FILE
            git branch -f side-{n} $side\n"
        ),
        GitDeed::Stash => "tree=$(git mktree < /dev/null)
            one=$(git commit-tree -m index $tree)
            two=$(git commit-tree -p $one -m other $tree)
            two=$(git commit-tree -p $one -p $two -m kept $tree)
            git stash store -m kept $two\n"
            .to_owned(),
    };
    lines.into_bytes()
}
