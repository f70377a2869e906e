//! A project with a run on it, both of which can be put back as they were, and what is compared of them.
use super::calls::{self, Ended, Fault};
use super::disk::Disk;
use super::support::{Identity, Lab, Limit, bastle, git, identities, run};
use super::types::Shape;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// One object of a tree.
#[derive(Clone, PartialEq, Eq)]
struct Node {
    mode: u32,
    owner: (u32, u32),
    bytes: Vec<u8>,
    /// When it was modified; none where any time will do.
    modified: Option<(i64, i64)>,
}

/// A directory and everything below it, by path from there. Equal means the same names, types, modes, owners, contents and
/// times of modification.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree(BTreeMap<PathBuf, Node>);

/// A tree with its times, to put it back.
struct Saved {
    root: PathBuf,
    tree: Tree,
    times: BTreeMap<PathBuf, (i64, i64)>,
}

/// The project and the state directory.
pub(crate) struct Ground {
    pub(crate) lab: Lab,
    /// The run whose copy holds the agent's work.
    pub(crate) run: String,
    saved: Vec<Saved>,
    /// Where the state is, when it is not in the home directory.
    elsewhere: Option<tempfile::TempDir>,
}

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

impl Node {
    fn of(meta: &fs::Metadata, bytes: Vec<u8>) -> Self {
        Self {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            bytes,
            modified: Some((meta.mtime(), meta.mtime_nsec())),
        }
    }

    fn is(&self, expected: &Self) -> bool {
        let time = expected.modified.is_none() || expected.modified == self.modified;
        time && (self.mode, self.owner, &self.bytes) == (expected.mode, expected.owner, &expected.bytes)
    }
}

impl Tree {
    pub(crate) fn of(root: &Path) -> Self {
        let mut found = Self::default();
        if let Ok(meta) = root.symlink_metadata() {
            found.0.insert(PathBuf::new(), Node::of(&meta, Vec::new()));
        }
        found.collect(root, Path::new(""));
        found
    }

    /// Whether it is what was expected; a time is as it was expected where one was.
    pub(crate) fn is(&self, expected: &Self) -> bool {
        let same = |path, node: &Node| {
            let wanted: Option<&Node> = expected.0.get(path);
            wanted.is_some_and(|wanted| node.is(wanted))
        };
        self.0.len() == expected.0.len() && self.0.iter().all(|(path, node)| same(path, node))
    }

    /// What a verb makes has a time of its own: only times that are as before are expected to stay so.
    pub(crate) fn with_free_times(mut self, before: &Self) -> Self {
        for (path, node) in &mut self.0 {
            let was = before.0.get(path).and_then(|node| node.modified);
            if was != node.modified {
                node.modified = None;
            }
        }
        self
    }

    pub(crate) fn without_times(mut self) -> Self {
        self.0.values_mut().for_each(|node| node.modified = None);
        self
    }

    fn collect(&mut self, root: &Path, below: &Path) {
        let Ok(listing) = fs::read_dir(root.join(below)) else {
            return;
        };
        for entry in listing {
            let path = below.join(entry.expect("can be listed").file_name());
            let full = root.join(&path);
            let meta = full.symlink_metadata().expect("is there");
            let bytes = if meta.is_symlink() {
                let target = fs::read_link(&full).expect("is a link");
                target.as_os_str().as_bytes().to_vec()
            } else if meta.is_file() {
                fs::read(&full).expect("can be read")
            } else {
                Vec::new()
            };
            self.0.insert(path.clone(), Node::of(&meta, bytes));
            if meta.is_dir() {
                self.collect(root, &path);
            }
        }
    }

    /// A value that is no tree of files, compared in the same way.
    pub(crate) fn told(text: String) -> Self {
        let node = Node {
            mode: 0,
            owner: (0, 0),
            bytes: text.into_bytes(),
            modified: None,
        };
        Self(BTreeMap::from([(PathBuf::new(), node)]))
    }

    /// Without the paths that somebody else is responsible for.
    pub(crate) fn without(&self, gone: impl Fn(&Path) -> bool) -> Self {
        let kept = self.0.iter().filter(|(path, _)| !gone(path));
        Self(kept.map(|(path, node)| (path.clone(), node.clone())).collect())
    }

    /// Several as one, each below a name.
    pub(crate) fn joined<const N: usize>(parts: [(&str, Self); N]) -> Self {
        let each = parts.into_iter().flat_map(|(name, tree)| {
            let under = move |path: PathBuf| Path::new(name).join(path);
            tree.0.into_iter().map(move |(path, node)| (under(path), node))
        });
        Self(each.collect())
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    pub(crate) fn bytes(&self, path: &Path) -> Option<&[u8]> {
        self.0.get(path).map(|node| node.bytes.as_slice())
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.0
            .get(path)
            .is_some_and(|node| node.mode & 0o170_000 == 0o100_000)
    }

    /// What another tree has otherwise, for people.
    pub(crate) fn differences(&self, other: &Self) -> String {
        let mut text = String::new();
        let all = self.0.keys().chain(other.0.keys());
        let mut paths: Vec<&PathBuf> = all
            .filter(|path| match (self.0.get(*path), other.0.get(*path)) {
                (Some(one), Some(other)) => !other.is(one),
                (one, other) => one != other,
            })
            .collect();
        paths.sort();
        paths.dedup();
        for path in paths.iter().take(12) {
            let show = |tree: &Self| match tree.0.get(*path) {
                None => "nothing".to_owned(),
                Some(node) => {
                    let short = &node.bytes[..node.bytes.len().min(40)];
                    format!(
                        "{:o} {:?} {:?} {:?}",
                        node.mode,
                        node.owner,
                        node.modified,
                        String::from_utf8_lossy(short)
                    )
                }
            };
            writeln!(text, "    {}: {} | {}", path.display(), show(self), show(other)).expect("a string");
        }
        text
    }
}

impl Saved {
    fn of(root: &Path) -> Self {
        let tree = Tree::of(root);
        let times = tree
            .0
            .keys()
            .map(|path| (path.clone(), time_of(&root.join(path))));
        Self {
            root: root.to_owned(),
            times: times.collect(),
            tree,
        }
    }

    /// What is as it was keeps its inode.
    fn restore(&self) {
        let now = Tree::of(&self.root);
        for (path, node) in now.0.iter().rev() {
            let keeps = self.tree.0.get(path).is_some_and(|saved| {
                let is_dir = saved.mode & 0o170_000 == 0o040_000;
                let same_type = saved.mode & 0o170_000 == node.mode & 0o170_000;
                same_type && (is_dir || saved == node)
            });
            let full = self.root.join(path);
            match keeps {
                true => {}
                false if node.mode & 0o170_000 == 0o040_000 => {
                    fs::remove_dir(&full).expect("is empty by now")
                }
                false => fs::remove_file(&full).expect("own file"),
            }
        }
        for (path, node) in &self.tree.0 {
            self.put(path, node);
        }
        for path in self.tree.0.keys().rev() {
            set_time(&self.root.join(path), self.times[path]);
        }
    }

    fn put(&self, path: &Path, node: &Node) {
        let full = self.root.join(path);
        if full.symlink_metadata().is_err() {
            match node.mode & 0o170_000 {
                0o040_000 => fs::create_dir(&full).expect("can be made"),
                0o120_000 => symlink(OsStr::from_bytes(&node.bytes), &full).expect("can be made"),
                _ => fs::write(&full, &node.bytes).expect("can be written"),
            }
            lchown(&full, Some(node.owner.0), Some(node.owner.1)).expect("as before");
        }
        if node.mode & 0o170_000 != 0o120_000 {
            fs::set_permissions(&full, Permissions::from_mode(node.mode & 0o7777)).expect("own file");
        }
    }
}

fn time_of(path: &Path) -> (i64, i64) {
    let meta = path.symlink_metadata().expect("is there");
    (meta.mtime(), meta.mtime_nsec())
}

fn set_time(path: &Path, (seconds, nanoseconds): (i64, i64)) {
    if time_of(path) == (seconds, nanoseconds) {
        return;
    }
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("own file");
}

impl Ground {
    /// A project with these paths and a run whose agent left those.
    pub(crate) fn new(identity: Identity, before: &[(String, Shape)], after: &[(String, Shape)]) -> Self {
        Self::with(Lab::new(identity), None, before, after)
    }

    /// The same with the state on another file system than the project; the reason where this host has none.
    pub(crate) fn elsewhere(
        identity: Identity,
        before: &[(String, Shape)],
        after: &[(String, Shape)],
    ) -> Result<Self, String> {
        let lab = Lab::new(identity);
        let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
        let (here, there) = (device(&lab.workspace()), device(Path::new(MEMORY)));
        if there.is_none() || here == there {
            return Err(format!(
                "{MEMORY} is not another file system than that of temporary files"
            ));
        }
        let state = tempfile::Builder::new()
            .prefix("bastle-crash-")
            .tempdir_in(MEMORY);
        let state = state.map_err(|error| format!("{MEMORY} cannot be written: {error}"))?;
        lab.hand_over(state.path());
        Ok(Self::with(lab, Some(state), before, after))
    }

    fn with(
        lab: Lab,
        elsewhere: Option<tempfile::TempDir>,
        before: &[(String, Shape)],
        after: &[(String, Shape)],
    ) -> Self {
        let mut ground = Self {
            lab,
            run: String::new(),
            saved: Vec::new(),
            elsewhere,
        };
        ground.make_project(before);
        ground.run = ground.make_run(after);
        ground
    }

    /// Who works in most tests: whoever has the least rights.
    pub(crate) fn usual() -> Identity {
        *identities().last().expect("somebody runs the tests")
    }

    /// Whether the state is on another file system than the project.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.lab.workspace()
    }

    pub(crate) fn state(&self) -> PathBuf {
        let usual = || self.lab.home().join(".local/state");
        let home = self
            .elsewhere
            .as_ref()
            .map_or_else(usual, |place| place.path().to_owned());
        home.join("bastle")
    }

    /// Where the agent's files of a run lie.
    pub(crate) fn copy_of(&self, run: &str) -> PathBuf {
        self.state().join("work").join(run).join("tree")
    }

    fn make_project(&self, before: &[(String, Shape)]) {
        let project = self.project();
        self.lab.project("README", "one\ntwo\nthree\nfour\nfive\n");
        let part = self.lab.outside().join("part");
        fs::create_dir(&part).expect("a fresh place");
        fs::write(part.join("part.c"), "int part;\n").expect("can be written");
        self.give(&part);
        git(&self.lab, &part, &["init", "-q", "--template="]);
        git(&self.lab, &part, &["add", "-A"]);
        git(&self.lab, &part, &["commit", "-qm", "part"]);
        let tip = git(&self.lab, &part, &["rev-parse", "HEAD"]);
        git(&self.lab, &project, &["init", "-q", "--template="]);
        for (path, shape) in before.iter().filter(|(_, shape)| !shape.has_repository()) {
            shape.make(&project.join(path), path, None);
        }
        self.give(&project);
        git(&self.lab, &project, &["add", "-A"]);
        for (path, shape) in before.iter().filter(|(_, shape)| shape.has_repository()) {
            if *shape == Shape::Submodule {
                let link = format!("160000,{tip},{path}");
                git(
                    &self.lab,
                    &project,
                    &["update-index", "--add", "--cacheinfo", &link],
                );
            }
        }
        git(&self.lab, &project, &["commit", "-qm", "first"]);
        for (path, shape) in before.iter().filter(|(_, shape)| shape.has_repository()) {
            shape.make(&project.join(path), path, Some(&part.join(".git")));
        }
        self.give(&project);
    }

    /// A run in a copy, whose agent leaves these paths so.
    pub(crate) fn make_run(&self, after: &[(String, Shape)]) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "r{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let words = ["run", "--workspace", "copy", "--name", &name, "--", "true"];
        let mut started = self.command(&words.map(str::to_owned));
        let ended = run(&mut started, b"", Limit::HANG);
        assert_eq!(ended.code, 0, "{ended:?}");
        self.work(&name, after);
        name
    }

    /// The agent leaves these paths so.
    pub(crate) fn work(&self, run: &str, after: &[(String, Shape)]) {
        let tree = self.copy_of(run);
        let owner = tree.symlink_metadata().expect("is there");
        for (path, shape) in after {
            let full = tree.join(path);
            let there = full.symlink_metadata();
            if there.as_ref().is_ok_and(fs::Metadata::is_dir) {
                fs::remove_dir_all(&full).expect("own tree");
            } else if there.is_ok() {
                fs::remove_file(&full).expect("own tree");
            }
            shape.make(&full, path, Some(&self.lab.outside().join("part/.git")));
        }
        for path in Tree::of(&tree).paths() {
            lchown(tree.join(path), Some(owner.uid()), Some(owner.gid())).expect("root may");
        }
    }

    /// Gives a tree to who works here.
    fn give(&self, root: &Path) {
        self.lab.hand_over(root);
        if self.lab.identity != Identity::Current {
            let uid = self.lab.identity.uid();
            for path in Tree::of(root).paths() {
                lchown(root.join(path), Some(uid), Some(uid)).expect("root may");
            }
        }
    }

    /// Remembers everything as it is.
    pub(crate) fn save(&mut self) {
        let elsewhere = self.elsewhere.as_ref().map(|place| place.path().to_owned());
        let roots = [self.project(), self.lab.home(), self.lab.outside()];
        let roots = roots.into_iter().chain(elsewhere);
        self.saved = roots.map(|root| Saved::of(&root)).collect();
    }

    /// The disk as it is now: everything on it is durable.
    pub(crate) fn disk(&self) -> Disk {
        let roots = vec![self.project(), self.lab.home(), self.lab.outside()];
        Disk::of(roots, self.project().with_file_name("limbo"))
    }

    /// Puts everything back.
    pub(crate) fn restore(&self) {
        self.saved.iter().for_each(Saved::restore);
    }

    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut command = self.lab.command(bastle());
        command.args(words);
        if let Some(place) = &self.elsewhere {
            command.env("XDG_STATE_HOME", place.path());
        }
        command
    }

    pub(crate) fn say(&self, line: &str) -> Ended {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        calls::run(&mut self.command(&words), usize::MAX, Fault::Nothing, &mut || {})
    }

    #[track_caller]
    pub(crate) fn says(&self, line: &str) -> Ended {
        let ended = self.say(line);
        assert_eq!(ended.code, Some(0), "bastle {line}: {ended:#?}");
        ended
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        let ended = self.says(&format!("{line} --json"));
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {ended:?}"))
    }

    /// The verb that takes all of the agent's work, whatever the gate holds back.
    pub(crate) fn apply_all(&self, flags: &str) -> String {
        self.apply_after(&[0], flags)
    }

    /// The same of work that an apply refuses as a whole. The dry run refuses as well, unless the cause of the refusal is itself
    /// held for approval.
    pub(crate) fn apply_refused(&self) -> String {
        self.apply_after(&[0, 1], "")
    }

    /// The verb with the approval that a dry run names, which ends with one of these codes.
    fn apply_after(&self, codes: &[i32], flags: &str) -> String {
        let run = &self.run;
        let line = format!("apply {run} --dry-run --json");
        let ended = self.say(&line);
        let ends = ended.code.is_some_and(|code| codes.contains(&code));
        assert!(ends, "bastle {line}: {ended:#?}");
        let shown: Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {ended:?}"));
        let approval = shown["approval"].as_str().expect("a hash of all that is held");
        format!("apply {run} --approve {approval}{flags}")
    }

    /// Lets go of everything: afterwards the state directory holds nothing of any run.
    pub(crate) fn let_go(&self) {
        let work = self.state().join("work");
        let runs: Vec<String> = fs::read_dir(&work)
            .expect("is there")
            .map(|entry| {
                entry
                    .expect("can be listed")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        for run in runs.iter().filter(|run| !run.starts_with('.')) {
            let refused = self.say(&format!("rm {run} --now"));
            if refused.code != Some(0) {
                let word = refused.stderr.split("--discard ").nth(1);
                let word = word.and_then(|rest| rest.split_whitespace().next());
                let word = word.unwrap_or_else(|| panic!("rm {run}: {refused:#?}"));
                self.says(&format!("rm {run} --now --discard {word}"));
            }
        }
        self.says("prune --older-than 0s --trash-older-than 0s");
        for place in ["work", "trash", "applying", "store"] {
            let left = Tree::of(&self.state().join(place));
            let files: Vec<&Path> = left
                .paths()
                .filter(|path| left.is_file(path) && !path.ends_with("lock"))
                .collect();
            assert!(files.is_empty(), "left behind in {place}: {files:?}");
        }
    }
}
