//! Every object that a repository names, by any reference, reflog, worktree or state file: where a search for what it holds
//! begins.
//!
//! **Trust:** the files are the user's and bounded; ids are taken from them by their form alone, and git is told to pass over
//! those that it does not have.
use super::repo::{HostRepo, ObjectFormat, ObjectId, parse_id};
use super::unusable;
use crate::rooted::read_small;
use bastle_contract::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// A hundred bytes per reference, half a million references.
const MAX_PACKED_REFS: u64 = 64 << 20;
/// A reflog of a hundred thousand moves.
const MAX_REFLOG: u64 = 32 << 20;
/// State files have some lines.
const MAX_STATE: u64 = 1 << 20;
/// References, reflogs and worktrees visited.
const MAX_FILES: usize = 200_000;
/// Nesting of references; a name of 255 bytes has at most 128 components.
const MAX_DEPTH: usize = 128;

/// Where a repository says what it holds.
#[derive(Debug, Default)]
pub(super) struct Tips {
    /// Objects that something names.
    pub(super) ids: BTreeSet<ObjectId>,
    /// Index files: that of the repository and those of its worktrees.
    pub(super) indexes: Vec<PathBuf>,
}

impl Tips {
    /// Reads references of every space (also `refs/stash` and `refs/notes`), reflogs, and the heads, state files and indexes of
    /// all worktrees.
    pub(super) fn read(repo: &HostRepo) -> Result<Self, Fault> {
        let mut reader = Reader {
            format: repo.format,
            left: MAX_FILES,
            tips: Self::default(),
        };
        reader
            .repository(repo)
            .map_err(|error| unusable(&repo.common_dir, format!("references: {error}")))?;
        Ok(reader.tips)
    }

    /// The ids as lines for git.
    pub(super) fn lines(&self) -> Vec<u8> {
        let line = |id: &ObjectId| [id.as_str().as_bytes(), b"\n"].concat();
        self.ids.iter().flat_map(line).collect()
    }
}

/// References by their names, and the index files.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) refs: BTreeMap<String, ObjectId>,
    pub(super) indexes: Vec<PathBuf>,
}

/// Reads references of every space with the objects they name; loose ones win over packed ones.
pub(super) fn named(repo: &HostRepo) -> Result<Named, Fault> {
    let mut reader = Reader {
        format: repo.format,
        left: MAX_FILES,
        tips: Tips::default(),
    };
    let mut read = || -> io::Result<Named> {
        let packed = there(read_small(&repo.common_dir.join("packed-refs"), MAX_PACKED_REFS))?;
        let packed = packed.unwrap_or_default();
        let mut named = Named::default();
        for line in packed.split(|byte| *byte == b'\n') {
            let (id, name) = line.split_at(line.len().min(repo.format.digits()));
            if let (Some(id), Some(name)) = (parse_id(id, repo.format), name.strip_prefix(b" ")) {
                named.refs.insert(String::from_utf8_lossy(name).into_owned(), id);
            }
        }
        let mut places = vec![(String::new(), repo.common_dir.clone())];
        for entry in entries(&repo.common_dir.join("worktrees"))? {
            reader.count()?;
            if entry.file_type()?.is_dir() {
                let name = entry.file_name().to_string_lossy().into_owned();
                places.push((format!("worktrees/{name}/"), entry.path()));
            }
        }
        for (prefix, place) in places {
            reader.loose(&place.join("refs"), &format!("{prefix}refs"), 0, &mut named.refs)?;
            if !prefix.is_empty() {
                reader.one(&place.join("HEAD"), format!("{prefix}HEAD"), &mut named.refs)?;
            }
            named.indexes.push(place.join("index"));
        }
        Ok(named)
    };
    read().map_err(|error| unusable(&repo.common_dir, format!("references: {error}")))
}

struct Reader {
    format: ObjectFormat,
    left: usize,
    tips: Tips,
}

impl Reader {
    fn repository(&mut self, repo: &HostRepo) -> io::Result<()> {
        let common = &repo.common_dir;
        let packed = there(read_small(&common.join("packed-refs"), MAX_PACKED_REFS))?;
        self.ids(&packed.unwrap_or_default());
        let mut places = vec![common.clone()];
        if repo.git_dir != *common {
            places.push(repo.git_dir.clone());
        }
        for entry in entries(&common.join("worktrees"))? {
            self.count()?;
            if entry.file_type()?.is_dir() {
                places.push(entry.path());
            }
        }
        places.sort_unstable();
        places.dedup();
        for place in places {
            self.place(&place)?;
        }
        Ok(())
    }

    /// The directory of the repository or of one worktree.
    fn place(&mut self, place: &Path) -> io::Result<()> {
        self.walk(&place.join("refs"), 0, MAX_STATE)?;
        self.walk(&place.join("logs"), 0, MAX_REFLOG)?;
        // `HEAD`, `ORIG_HEAD`, `FETCH_HEAD`, `MERGE_HEAD`, `CHERRY_PICK_HEAD`, `AUTO_MERGE` and what comes after them.
        for entry in entries(place)? {
            let name = entry.file_name();
            let state = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
            if name.as_encoded_bytes().iter().all(state) && entry.file_type()?.is_file() {
                self.file(&entry.path(), MAX_STATE)?;
            }
        }
        for state in [
            "rebase-merge/orig-head",
            "rebase-merge/autostash",
            "rebase-apply/orig-head",
            "rebase-apply/autostash",
        ] {
            self.file(&place.join(state), MAX_STATE)?;
        }
        let index = place.join("index");
        if index.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            self.tips.indexes.push(index);
        }
        Ok(())
    }

    fn walk(&mut self, directory: &Path, depth: usize, most: u64) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(
                "references are nested deeper than any name allows",
            ));
        }
        for entry in entries(directory)? {
            self.count()?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(&entry.path(), depth + 1, most)?;
            } else if kind.is_file() {
                self.file(&entry.path(), most)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, most: u64) -> io::Result<()> {
        // What git removes meanwhile, it has named elsewhere before.
        if let Some(bytes) = there(read_small(path, most))? {
            self.ids(&bytes);
        }
        Ok(())
    }

    fn loose(
        &mut self,
        directory: &Path,
        prefix: &str,
        depth: usize,
        found: &mut BTreeMap<String, ObjectId>,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(
                "references are nested deeper than any name allows",
            ));
        }
        for entry in entries(directory)? {
            self.count()?;
            let kind = entry.file_type()?;
            let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            if kind.is_dir() {
                self.loose(&entry.path(), &name, depth + 1, found)?;
            } else if kind.is_file() {
                self.one(&entry.path(), name, found)?;
            }
        }
        Ok(())
    }

    fn one(&self, path: &Path, name: String, found: &mut BTreeMap<String, ObjectId>) -> io::Result<()> {
        let bytes = there(read_small(path, MAX_STATE))?.unwrap_or_default();
        if let Some(id) = parse_id(&bytes, self.format) {
            found.insert(name, id);
        }
        Ok(())
    }

    /// Every word that has the form of an id: a reference has one, a line of a reflog two.
    fn ids(&mut self, bytes: &[u8]) {
        let digits = self.format.digits();
        for line in bytes.split(|byte| *byte == b'\n') {
            // What follows the tab of a reflog is text.
            let line = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
            for word in line.split(|byte| byte.is_ascii_whitespace() || *byte == b'^') {
                let none = || word.iter().all(|byte| *byte == b'0');
                if word.len() == digits
                    && !none()
                    && let Some(id) = parse_id(word, self.format)
                {
                    self.tips.ids.insert(id);
                }
            }
        }
    }

    fn count(&mut self) -> io::Result<()> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("more references than any repository has"))?;
        Ok(())
    }
}

/// The entries of a directory; none where there is no such directory, or a link in its place.
fn entries(directory: &Path) -> io::Result<Vec<std::fs::DirEntry>> {
    if !directory.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Ok(Vec::new());
    }
    there(std::fs::read_dir(directory))?.map_or_else(|| Ok(Vec::new()), Iterator::collect)
}

fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
