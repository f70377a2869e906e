//! A tree as the model holds it: names, contents, the right to execute, links of both kinds.
//!
//! Shares no code with the product: what it says of a tree is read with the plainest means of the standard library.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A path below the root, with `/` between its components. Any bytes, as the kernel has it.
pub(crate) type Name = Vec<u8>;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// A directory, empty or not.
    Dir,
    /// A file and whether its owner may execute it.
    File(Vec<u8>, bool),
    /// A symbolic link and its target.
    Link(Vec<u8>),
    /// `.git` of a repository in the project: nothing below it is looked at.
    Git,
}

/// A tree without hard links: what a reader sees.
pub(crate) type State = BTreeMap<Name, Thing>;

#[derive(Clone, Debug)]
enum Node {
    Dir,
    File(usize),
    Link(Vec<u8>),
    Git,
}

/// A tree with its hard links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<Name, Node>,
    inodes: Vec<(Vec<u8>, bool)>,
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dir => f.write_str("dir"),
            Self::File(bytes, executable) => {
                let bit = if *executable { " +x" } else { "" };
                write!(f, "file{bit} {:?}", String::from_utf8_lossy(bytes))
            }
            Self::Link(to) => write!(f, "link {:?}", String::from_utf8_lossy(to)),
            Self::Git => f.write_str("git"),
        }
    }
}

impl Tree {
    /// From what a reader sees: no two names are one file.
    pub(crate) fn of(state: &State) -> Self {
        let mut tree = Self::default();
        for (name, thing) in state {
            tree.set(name, Some(thing));
        }
        tree
    }

    /// What a reader sees.
    pub(crate) fn state(&self) -> State {
        self.nodes
            .keys()
            .filter_map(|name| Some((name.clone(), self.at(name)?)))
            .collect()
    }

    /// What is at a name.
    pub(crate) fn at(&self, name: &[u8]) -> Option<Thing> {
        Some(match self.nodes.get(name)? {
            Node::Dir => Thing::Dir,
            Node::File(inode) => Thing::File(self.inodes[*inode].0.clone(), self.inodes[*inode].1),
            Node::Link(to) => Thing::Link(to.clone()),
            Node::Git => Thing::Git,
        })
    }

    /// Replaces one name and nothing around it. A file becomes a new file: other names keep the old one.
    pub(crate) fn set(&mut self, name: &[u8], thing: Option<&Thing>) {
        let node = match thing {
            None => {
                self.nodes.remove(name);
                return;
            }
            Some(Thing::Dir) => Node::Dir,
            Some(Thing::Git) => Node::Git,
            Some(Thing::Link(to)) => Node::Link(to.clone()),
            Some(Thing::File(bytes, executable)) => {
                self.inodes.push((bytes.clone(), *executable));
                Node::File(self.inodes.len() - 1)
            }
        };
        self.nodes.insert(name.to_vec(), node);
    }

    /// Changes a file under all of its names.
    pub(crate) fn change(&mut self, name: &[u8], change: impl FnOnce(&mut Vec<u8>, &mut bool)) -> bool {
        let Some(Node::File(inode)) = self.nodes.get(name) else {
            return false;
        };
        let (bytes, executable) = &mut self.inodes[*inode];
        change(bytes, executable);
        true
    }

    /// Gives a file a second name.
    pub(crate) fn link(&mut self, from: &[u8], to: &[u8]) {
        if let Some(node @ Node::File(_)) = self.nodes.get(from).cloned() {
            self.nodes.insert(to.to_vec(), node);
        }
    }

    /// Removes a name with all that is below it.
    pub(crate) fn clear(&mut self, name: &[u8]) {
        self.nodes.retain(|one, _| !is_at_or_below(one, name));
    }

    /// Moves a name with all that is below it.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        let moved: Vec<Name> = self
            .nodes
            .keys()
            .filter(|one| is_at_or_below(one, from))
            .cloned()
            .collect();
        for old in moved {
            if let Some(node) = self.nodes.remove(&old) {
                let new = [to, &old[from.len()..]].concat();
                self.nodes.insert(new, node);
            }
        }
    }

    /// Whether anything is below a name.
    pub(crate) fn has_below(&self, name: &[u8]) -> bool {
        self.nodes
            .keys()
            .any(|one| one != name && is_at_or_below(one, name))
    }

    /// All other names of the file at a name.
    pub(crate) fn is_linked(&self, name: &[u8]) -> bool {
        let Some(Node::File(inode)) = self.nodes.get(name) else {
            return false;
        };
        let same = |one: &&Node| matches!(one, Node::File(other) if other == inode);
        self.nodes.values().filter(same).count() > 1
    }
}

/// Whether a name is the other one or lies below it.
pub(crate) fn is_at_or_below(name: &[u8], above: &[u8]) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The names above a name, the topmost first.
pub(crate) fn above(name: &[u8]) -> Vec<Name> {
    let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    ends.map(|(end, _)| name[..end].to_vec()).collect()
}

/// Whether a name is `.git`, or lies in one.
pub(crate) fn is_git(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').any(|part| part == b".git")
}

/// A tree without names of git.
pub(crate) fn without_git(state: &State) -> State {
    state
        .iter()
        .filter(|(name, _)| !is_git(name))
        .map(|(name, thing)| (name.clone(), thing.clone()))
        .collect()
}

/// Names that differ.
pub(crate) fn differing(one: &State, other: &State) -> BTreeSet<Name> {
    let names: BTreeSet<&Name> = one.keys().chain(other.keys()).collect();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .cloned()
        .collect()
}

/// A difference for people.
pub(crate) fn told(expected: &State, found: &State) -> String {
    let lines = differing(expected, found).into_iter().map(|name| {
        format!(
            "  {:?}: expected {:?}, found {:?}",
            String::from_utf8_lossy(&name),
            expected.get(&name),
            found.get(&name)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where a name is on the disk.
pub(crate) fn on_disk(root: &Path, name: &[u8]) -> std::path::PathBuf {
    root.join(std::ffi::OsStr::from_bytes(name))
}

/// Everything that identifies what is at a name, not only what a reader sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Kind and permissions.
    pub(crate) mode: u32,
    /// Modification time in seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
    /// The very object; none for a directory, which an undo makes anew.
    pub(crate) inode: Option<u64>,
    /// How many names it has.
    pub(crate) names: u64,
}

/// Reads a tree from the disk: what a reader sees, and what identifies it. The `.git` at the root is not part of it.
pub(crate) fn read(root: &Path) -> (State, BTreeMap<Name, Stamp>) {
    let (mut state, mut stamps) = (State::new(), BTreeMap::new());
    let mut open = vec![Vec::new()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(on_disk(root, &at)).expect("can be listed") {
            let entry = entry.expect("can be listed");
            let last = entry.file_name().into_vec();
            let name = if at.is_empty() {
                last.clone()
            } else {
                [&at[..], b"/", &last].concat()
            };
            let meta = entry.path().symlink_metadata().expect("is there");
            let thing = if last == b".git" {
                if at.is_empty() {
                    continue;
                }
                Thing::Git
            } else if meta.is_dir() {
                open.push(name.clone());
                Thing::Dir
            } else if meta.is_symlink() {
                Thing::Link(
                    fs::read_link(entry.path())
                        .expect("is a link")
                        .into_os_string()
                        .into_vec(),
                )
            } else {
                let bytes = fs::read(entry.path()).expect("can be read");
                Thing::File(bytes, meta.permissions().mode() & 0o100 != 0)
            };
            let is_dir = meta.is_dir();
            let stamp = Stamp {
                mode: meta.mode(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                inode: (!is_dir).then(|| meta.ino()),
                names: if is_dir { 0 } else { meta.nlink() },
            };
            if thing != Thing::Git {
                stamps.insert(name.clone(), stamp);
            }
            state.insert(name, thing);
        }
    }
    (state, stamps)
}

/// Writes a tree to an empty directory.
pub(crate) fn write(root: &Path, state: &State) {
    for (name, thing) in state {
        let path = on_disk(root, name);
        match thing {
            Thing::Dir => fs::create_dir_all(path).expect("can be made"),
            Thing::Git => {}
            Thing::Link(to) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(to), path).expect("can be made")
            }
            Thing::File(bytes, executable) => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).expect("can be made");
                }
                fs::write(&path, bytes).expect("can be written");
                let mode = if *executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("own file");
            }
        }
    }
}
