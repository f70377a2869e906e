//! What a repository's stash holds: commits that no branch names and no file shows.
//!
//! **Trust:** the repository is the agent's. Its files are read by descriptor, bounded, and only object names and the
//! first words of messages are taken from them; git is not asked.
use crate::beneath::Dir;
use crate::git::ObjectId;
use crate::path::TreePath;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// What is read of one file: some ten thousand entries.
const MOST: u64 = 4 << 20;
const REFERENCE: &str = ".git/refs/stash";
const LOG: &str = ".git/logs/refs/stash";
const PACKED: &str = ".git/packed-refs";

/// The entries by the names of their commits, with what git wrote beside them.
pub(crate) type Entries = BTreeMap<ObjectId, String>;

/// Whether a path is the stash's own reference.
pub(crate) fn is_reference(path: &[u8]) -> bool {
    path == REFERENCE.as_bytes()
}

/// The entries, by what reads a file of the repository; `None` from it when there is none.
pub(crate) fn entries(read: &mut dyn FnMut(&str) -> io::Result<Option<Vec<u8>>>) -> io::Result<Entries> {
    let mut found = Entries::new();
    let packed = read(PACKED)?.unwrap_or_default();
    for line in String::from_utf8_lossy(&packed).lines() {
        let named = line.strip_suffix(" refs/stash").and_then(ObjectId::parse);
        found.extend(named.map(|id| (id, String::new())));
    }
    let loose = read(REFERENCE)?.unwrap_or_default();
    let named = ObjectId::parse(String::from_utf8_lossy(&loose).trim_end());
    found.extend(named.map(|id| (id, String::new())));
    if found.is_empty() {
        // A log without a reference is left over: git shows no entries either.
        return Ok(found);
    }
    let log = read(LOG)?.unwrap_or_default();
    for line in String::from_utf8_lossy(&log).lines() {
        let (names, message) = line.split_once('\t').unwrap_or((line, ""));
        let named = names.split(' ').nth(1).and_then(ObjectId::parse);
        found.extend(named.map(|id| (id, message.to_owned())));
    }
    Ok(found)
}

/// Reads a file of a tree.
pub(crate) fn read_in(tree: &Dir, path: &str) -> io::Result<Option<Vec<u8>>> {
    let Ok(path) = TreePath::new(path) else {
        return Ok(None);
    };
    let opened = tree
        .beneath(path.parent().as_ref())
        .and_then(|dir| dir.open_regular(path.name()));
    match opened {
        Ok((file, _)) => {
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        }
        // A directory or link in its place is no reference to git either.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => Err(error),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
        };
        let found = entries(&mut read).unwrap();
        found
            .into_iter()
            .map(|(id, message)| (id.as_str()[..1].to_owned(), message))
            .collect()
    }

    #[test]
    fn every_entry_of_the_log_counts_and_a_log_that_nothing_names_does_not() {
        let (a, b, none) = ("a".repeat(40), "b".repeat(40), "0".repeat(40));
        let log =
            format!("{none} {a} x <x> 1 +0000\tWIP on main: one\n{a} {b} x <x> 2 +0000\tOn main: two\n");
        let both = vec![
            ("a".to_owned(), "WIP on main: one".to_owned()),
            ("b".to_owned(), "On main: two".to_owned()),
        ];
        assert_eq!(of(&[(REFERENCE, &format!("{b}\n")), (LOG, &log)]), both);
        let packed = format!("# pack-refs with: peeled\n{a} refs/heads/x\n{b} refs/stash\n");
        assert_eq!(of(&[(PACKED, &packed), (LOG, &log)]), both);
        assert_eq!(of(&[(PACKED, &packed)]), [("b".to_owned(), String::new())]);
        assert_eq!(of(&[(LOG, &log)]), []);
        assert_eq!(of(&[(REFERENCE, "ref: refs/heads/main\n")]), []);
    }
}
