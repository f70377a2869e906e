//! Shared pieces of this crate's tests: a small store, trees on disk, repositories and canaries.
use crate::attributes::{self, Attributes, Has};
use crate::blobs::Blobs;
use crate::manifest::{Content, Entry, Kind, LinkTarget, Manifest, Mode};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Contents in a directory, by digest.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Blobs for Folder {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        File::open(self.0.join(digest.to_string()))
            .map_err(|error| Fault::new(Code::WorkspaceApply, "open", error.to_string()))
    }
}

impl Folder {
    pub(crate) fn put(&self, bytes: &[u8]) -> Kind {
        let digest = Content::of(bytes);
        std::fs::write(self.0.join(digest.to_string()), bytes).unwrap();
        Kind::File {
            digest,
            size: bytes.len() as u64,
            mode: Mode::default(),
            attributes: None,
        }
    }
}

pub(crate) fn path(text: &str) -> TreePath {
    TreePath::new(text).unwrap()
}

/// A whole tree as a manifest, contents put into `blobs`; the `.git` at the root is passed over.
pub(crate) fn manifest(root: &Path, blobs: &Folder) -> Manifest {
    let mut entries = Vec::new();
    collect(root, None, blobs, &mut entries);
    Manifest::new(entries).unwrap()
}

fn collect(directory: &Path, above: Option<&TreePath>, blobs: &Folder, entries: &mut Vec<Entry>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = TreePath::join(above, entry.file_name().as_bytes()).unwrap();
        if path.in_git() {
            continue;
        }
        let kind = entry.file_type().unwrap();
        let kind = if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            Kind::Symlink {
                target: LinkTarget(target.as_os_str().as_bytes().to_vec()),
            }
        } else if kind.is_dir() {
            collect(&entry.path(), Some(&path), blobs, entries);
            Kind::Dir
        } else {
            let Kind::File { digest, size, .. } = blobs.put(&std::fs::read(entry.path()).unwrap()) else {
                unreachable!()
            };
            Kind::File {
                digest,
                size,
                mode: Mode::from_bits(entry.metadata().unwrap().permissions().mode()),
                attributes: attributes_of(&entry.path()).map(|set| {
                    drop(blobs.put(&set.encode()));
                    set.id()
                }),
            }
        };
        entries.push(Entry { path, kind });
    }
}

fn attributes_of(path: &Path) -> Option<Attributes> {
    match attributes::of(&File::open(path).unwrap()).unwrap() {
        Has::These(set) => Some(set),
        Has::Nothing | Has::TooMuch => None,
    }
}

/// Gives a file an attribute, where its file system has any.
pub(crate) fn tag(root: &Path, name: &str, attribute: &str) {
    let path = root.join(name);
    match rustix::fs::setxattr(path, attribute, b"value", rustix::fs::XattrFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOTSUP) => {}
        Err(errno) => panic!("{name}: {errno}"),
    }
}

/// Every file of a tree with its mode, bytes and attributes, `.git` included: equal means identical.
pub(crate) fn fingerprint(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let bytes = if meta.is_symlink() {
                std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else if meta.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else {
                let set = attributes_of(&path).map(|set| set.encode());
                [std::fs::read(&path).unwrap(), set.unwrap_or_default()].concat()
            };
            found.push((path, meta.permissions().mode(), bytes));
        }
    }
    found.sort();
    found
}

pub(crate) fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Plain git, as the user's own: without the user's configuration.
pub(crate) fn user_git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/var/empty")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args([
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with one commit.
pub(crate) fn repository(root: &Path) {
    std::fs::create_dir_all(root).unwrap();
    user_git(root, &["init", "-q"]);
    write(root, "a.txt", b"one\ntwo\nthree\n");
    write(root, "src/main.c", b"int main(void) { return 0; }\n");
    write(root, ".gitignore", b"target/\n");
    user_git(root, &["add", "-A"]);
    user_git(root, &["commit", "-q", "-m", "first"]);
}
