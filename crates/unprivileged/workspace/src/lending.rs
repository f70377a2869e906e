//! All contents of a run's tree for one reading of the whole, as an archive is: those that the store lacks are lent by
//! the trees that hold them, without a way through the store.
//!
//! **Trust:** a tree only lends. A file of the copy is believed when the kernel says that it is the one that was hashed;
//! any other is hashed before it is lent. Readers check the digest of what they read once more.
use crate::beneath::Dir;
use crate::blobs::Blobs;
use crate::contents::Lender;
use crate::manifest::{Content, Kind};
use crate::path::TreePath;
use crate::seen::{Alive, Seen};
use crate::workspace::Workspace;
use bastle_contract::Fault;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::OnceLock;

/// The store, and the trees that lend to it, found once.
pub struct Lending<'a> {
    space: &'a Workspace,
    trees: OnceLock<Trees>,
}

/// Found when the store lacks something for the first time.
struct Trees {
    tree: Option<Dir>,
    unchanged: HashMap<Content, (TreePath, Seen)>,
    lenders: Vec<Lender>,
}

impl Workspace {
    /// Contents of the tree as it was looked at last.
    #[must_use]
    pub fn lending(&self) -> Lending<'_> {
        Lending {
            space: self,
            trees: OnceLock::new(),
        }
    }

    fn trees(&self) -> Result<Trees, Fault> {
        let mut unchanged = HashMap::new();
        if let Some((manifest, seen)) = self.known() {
            for (entry, seen) in manifest.entries().iter().zip(&seen.seen) {
                if let (Kind::File { digest, .. }, Some(seen)) = (&entry.kind, seen) {
                    unchanged.insert(*digest, (entry.path.clone(), *seen));
                }
            }
        }
        Ok(Trees {
            tree: Dir::open_own(&self.tree()).ok(),
            unchanged,
            lenders: self.lenders()?,
        })
    }

    /// The trees that may hold what the store lacks.
    pub(crate) fn lenders(&self) -> Result<Vec<Lender>, Fault> {
        let mut lenders = Vec::new();
        lenders.extend(Lender::new(Dir::open(&self.source), &self.base()?));
        if let Some((manifest, _)) = self.known() {
            lenders.extend(Lender::new(Dir::open_own(&self.tree()), &manifest));
        }
        Ok(lenders)
    }
}

impl Lending<'_> {
    fn trees(&self) -> Result<&Trees, Fault> {
        match self.trees.get() {
            Some(trees) => Ok(trees),
            None => {
                let found = self.space.trees()?;
                Ok(self.trees.get_or_init(|| found))
            }
        }
    }
}

impl Trees {
    /// The file of the copy that was hashed, if the kernel says that it is still the same.
    fn unchanged(&self, content: &Content) -> Option<File> {
        let (path, seen) = self.unchanged.get(content)?;
        let dir = self.tree.as_ref()?.beneath(path.parent().as_ref()).ok()?;
        let (file, stat) = dir.open_regular(path.name()).ok()?;
        seen.still(&stat, Alive::No).then_some(file)
    }

    /// A file of any tree that has the content.
    fn lent(&self, content: &Content) -> Option<File> {
        let mut buffer = Vec::new();
        self.lenders.iter().find_map(|lender| {
            let (mut file, _) = lender.candidate(content)?;
            let (found, _) = crate::store::copy_hashing(&file, None, &mut buffer).ok()?;
            file.seek(SeekFrom::Start(0)).ok()?;
            (found == *content).then_some(file)
        })
    }
}

impl Blobs for Lending<'_> {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        if let Ok(file) = self.space.store.open_object(digest) {
            return Ok(file);
        }
        let trees = self.trees()?;
        match trees.unchanged(digest).or_else(|| trees.lent(digest)) {
            Some(file) => Ok(file),
            // Says which content is kept nowhere.
            None => self.space.open(digest),
        }
    }
}
