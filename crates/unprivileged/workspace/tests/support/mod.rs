//! What the tests of copies share: a project to copy, a state directory, and looking at trees independently.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part, and what cannot be prepared must fail the test"
)]

pub(crate) mod modes;

use bastle_contract::RunId;
use bastle_workspace::copy::Progress;
use bastle_workspace::durable::Durable;
use bastle_workspace::path::TreePath;
use bastle_workspace::place::Place;
use bastle_workspace::workspace::{CreateRequest, GitMade, Workspace};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) struct Ground {
    pub(crate) root: TempDir,
    pub(crate) place: Place,
}

pub(crate) fn run_id(name: &str) -> RunId {
    RunId::try_from(name.to_owned()).unwrap()
}

impl Ground {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        let source = root.path().join("source");
        fs::create_dir(&source).unwrap();
        write(&source, "src/main.rs", b"fn main() {}\n");
        write(&source, "src/deep/er/lib.rs", b"// lib\n");
        write(&source, "README", b"read me\n");
        write(&source, "run.sh", b"#!/bin/sh\n");
        write(&source, ".env", b"TOKEN=1\n");
        fs::create_dir(source.join("empty")).unwrap();
        fs::set_permissions(source.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("src/main.rs", source.join("link")).unwrap();
        tag(&source.join("src/deep/er/lib.rs"), "user.mark", b"kept");
        let place = Place::new(root.path().join("state"));
        Self { root, place }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.root.path().join("source")
    }

    pub(crate) fn observed(&self, durable: Durable) -> Place {
        Place::observed(self.root.path().join("state"), durable)
    }

    pub(crate) fn create(&self, run: &str) -> Workspace {
        create(&self.place, &self.source(), run).unwrap()
    }
}

pub(crate) fn hides_env(path: &TreePath) -> bool {
    path.name().starts_with(b".env")
}

pub(crate) fn create(place: &Place, source: &Path, run: &str) -> Result<Workspace, bastle_contract::Fault> {
    let request = CreateRequest {
        run: run_id(run),
        source,
        hidden: &hides_env,
        git: &mut |_| Ok(GitMade::default()),
        progress: &mut |_: Progress| {},
    };
    Workspace::create(place, request)
}

pub(crate) fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Gives a file an attribute; `false` where the file system of the tests has none.
pub(crate) fn tag(path: &Path, name: &str, value: &[u8]) -> bool {
    match rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()) {
        Ok(()) => true,
        Err(rustix::io::Errno::NOTSUP) => false,
        Err(errno) => panic!("{path:?}: {errno}"),
    }
}

/// The attributes of a file, written as the store writes them; nothing where it has none.
pub(crate) fn tags(path: &Path) -> Vec<u8> {
    let mut names = vec![0_u8; 64 * 1024];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else {
        return Vec::new();
    };
    let mut names: Vec<&[u8]> = names[..length].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    let mut out = Vec::new();
    // Marks of an overlay are its own and no part of what it shows.
    names.retain(|name| name.starts_with(b"user.") && !name.starts_with(b"user.overlay."));
    for name in names {
        let mut value = vec![0_u8; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        out.extend(tag_bytes(name, &value[..length]));
    }
    out
}

/// One attribute, written as the store writes it.
pub(crate) fn tag_bytes(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(name.len()).unwrap()];
    out.extend_from_slice(name);
    out.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
    out.extend_from_slice(value);
    out
}

/// Everything in a tree by the plainest means: kind, mode bits that count, bytes with attributes behind them, or target.
pub(crate) fn look(root: &Path) -> BTreeMap<Vec<u8>, (char, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let value = if meta.is_dir() {
                open.push(path.clone());
                ('d', 0, Vec::new())
            } else if meta.is_symlink() {
                (
                    'l',
                    0,
                    fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                )
            } else if meta.is_file() {
                let bytes = [fs::read(&path).unwrap(), tags(&path)].concat();
                ('f', meta.mode() & 0o100, bytes)
            } else {
                ('?', 0, Vec::new())
            };
            found.insert(name, value);
        }
    }
    found
}
