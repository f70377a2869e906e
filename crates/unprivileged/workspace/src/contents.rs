//! Where the bytes of a digest come from: the store, or a tree that still holds the file they were read from.
//!
//! **Trust:** a tree only lends. Whatever it gives is hashed while it is taken, and bytes with another digest are as
//! good as none; so neither the agent nor an edit of the source can put other bytes in the place of recorded ones.
use crate::attributes::Attributes;
use crate::beneath::Dir;
use crate::faults::io_fault;
use crate::manifest::{Content, Kind, Manifest};
use crate::path::{TreePath, visible};
use crate::scan::length;
use crate::store::{Batch, Store};
use bastle_contract::{Code, Fault};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A tree that may still hold the files of a manifest.
pub(crate) struct Lender {
    root: Dir,
    by_content: HashMap<Content, (TreePath, u64)>,
}

impl Lender {
    /// `None` when the tree is gone.
    #[must_use]
    pub(crate) fn new(root: io::Result<Dir>, manifest: &Manifest) -> Option<Self> {
        let root = root.ok()?;
        let mut by_content = HashMap::with_capacity(manifest.entries().len());
        for entry in manifest.entries() {
            if let Kind::File { digest, size, .. } = &entry.kind {
                by_content.insert(*digest, (entry.path.clone(), *size));
            }
        }
        Some(Self { root, by_content })
    }

    /// A file that may hold the content: the right length, not yet hashed.
    pub(crate) fn candidate(&self, content: &Content) -> Option<(File, u64)> {
        let (path, size) = self.by_content.get(content)?;
        let dir = self.root.beneath(path.parent().as_ref()).ok()?;
        let (file, stat) = dir.open_regular(path.name()).ok()?;
        (length(&stat) == *size).then_some((file, *size))
    }
}

/// Finds the lenders; only asked when the store does not have something.
type Find<'a> = Box<dyn Fn() -> Result<Vec<Lender>, Fault> + Sync + 'a>;

/// The store and those who lend to it.
pub(crate) struct Contents<'a> {
    store: &'a Store,
    find: Find<'a>,
    lenders: OnceLock<Vec<Lender>>,
    temporary: PathBuf,
}

impl<'a> Contents<'a> {
    /// `temporary` belongs to the run alone.
    #[must_use]
    pub(crate) fn new(store: &'a Store, find: Find<'a>, temporary: PathBuf) -> Self {
        Self {
            store,
            find,
            lenders: OnceLock::new(),
            temporary,
        }
    }

    fn lenders(&self) -> Result<&[Lender], Fault> {
        if let Some(lenders) = self.lenders.get() {
            return Ok(lenders);
        }
        let found = (self.find)()?;
        Ok(self.lenders.get_or_init(|| found))
    }

    /// Sees to it that the store keeps the content once the batch is committed; `false` when nobody has it.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) fn ensure(
        &self,
        content: &Content,
        batch: &Batch<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        if self.store.has(content) {
            return Ok(true);
        }
        for lender in self.lenders()? {
            let Some((file, size)) = lender.candidate(content) else {
                continue;
            };
            let (found, _) = batch
                .take(&file, size, buffer)
                .map_err(|e| io_fault("take content into", &self.temporary, e))?;
            if found == *content {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a set of attributes is kept; nobody lends those.
    #[must_use]
    pub(crate) fn has(&self, attributes: &Content) -> bool {
        self.store.has(attributes)
    }

    /// Sets kept attributes on a file that has just been written.
    ///
    /// # Errors
    /// When they are not kept, or the kernel refuses them. A tree that has no room for them had none when they were
    /// taken: it holds what it can hold.
    pub(crate) fn give_attributes(&self, id: &Content, to: &File, path: &TreePath) -> Result<(), Fault> {
        let set = Attributes::open(self.store, id, path.as_path())?;
        set.set(to)
            .map(drop)
            .map_err(|e| io_fault("set the attributes of", path.as_path(), e))
    }

    /// Opens a content: kept, or lent and not yet checked.
    ///
    /// # Errors
    /// When nobody has it.
    pub(crate) fn open(&self, content: &Content, path: &TreePath) -> Result<File, Fault> {
        if let Ok(file) = self.store.open_object(content) {
            return Ok(file);
        }
        let lent = self
            .lenders()?
            .iter()
            .find_map(|lender| lender.candidate(content));
        lent.map(|(file, _)| file)
            .ok_or_else(|| not_kept(std::slice::from_ref(path)))
    }
}

/// Nobody has the content of these files any more.
pub(crate) fn not_kept(paths: &[TreePath]) -> Fault {
    let shown: Vec<String> = paths
        .iter()
        .take(10)
        .map(|path| visible(path.as_bytes()))
        .collect();
    let more = paths.len().saturating_sub(shown.len());
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Fault::new(
        Code::WorkspaceDamaged,
        format!(
            "the recorded content of {}{tail} is not kept any more",
            shown.join(", ")
        ),
        "the file was changed in the source and in the copy before a snapshot could take its first content",
    )
}
