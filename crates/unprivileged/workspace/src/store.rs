//! Contents by digest, one store per source tree, shared by all runs on it.
//!
//! **Trust:** below the state directory; no sandbox reaches it and nothing in it is ever linked into a tree, because
//! writing through such a link would change what the digest stands for. Objects are complete and durable before
//! they get their name. A digest is checked again whenever content leaves the store for a tree.
use crate::durable::{Durable, Step};
use crate::faults::{damaged, io_fault};
use crate::manifest::{self, Content, Manifest};
use crate::path::TreePath;
use bastle_contract::Fault;
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Largest file whose content is read. A sparse file of any length costs the agent nothing and the host the time to
/// hash its zeros: 16 GiB are about ten seconds.
pub const MAX_FILE: u64 = 16 << 30;
/// Files up to here are read whole before anything is written, so that known content costs no writing.
const SMALL: u64 = 1 << 20;
/// Bytes per call for larger files; a multiple of what the hash works on at once.
const CHUNK: usize = 256 * 1024;
/// Largest stored manifest: the most entries with paths of average length.
const MAX_MANIFEST: u64 = 512 << 20;

/// The store of one source tree.
#[derive(Clone)]
pub struct Store {
    root: PathBuf,
    durable: Durable,
}

/// Held while objects are counted on: shared by writers, alone by the collector.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "the lock is held by the open file")] OwnedFd);

impl Store {
    /// Opens or makes it.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn open(root: PathBuf, durable: Durable) -> Result<Self, Fault> {
        let store = Self { root, durable };
        if !store.manifests().is_dir() {
            for digit in 0..16 {
                store
                    .durable
                    .make_dir(&store.root.join("objects").join(format!("{digit:x}")))?;
            }
            store.durable.make_dir(&store.manifests())?;
        }
        Ok(store)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    /// Sixteen directories: few enough to sync after every snapshot, and file systems index large ones.
    fn object(&self, content: &Content) -> PathBuf {
        let name = content.to_string();
        let (first, rest) = name.split_at(1);
        self.root.join("objects").join(first).join(rest)
    }

    /// Whether the content is kept.
    #[must_use]
    pub fn has(&self, content: &Content) -> bool {
        fs::symlink_metadata(self.object(content)).is_ok_and(|m| m.is_file())
    }

    /// Opens kept content; its bytes are what was hashed when it was taken in.
    ///
    /// # Errors
    /// The kernel's; not found when it is not kept.
    pub fn open_object(&self, content: &Content) -> io::Result<File> {
        File::open(self.object(content))
    }

    /// Waits for nobody to collect, then keeps the collector out.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn lock_shared(&self) -> Result<StoreLock, Fault> {
        self.lock(FlockOperation::LockShared)
    }

    /// Waits for all writers to finish.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn lock_alone(&self) -> Result<StoreLock, Fault> {
        self.lock(FlockOperation::LockExclusive)
    }

    fn lock(&self, how: FlockOperation) -> Result<StoreLock, Fault> {
        let path = self.root.join("lock");
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|e| io_fault("open", &path, e))?;
        rustix::fs::flock(&file, how).map_err(|e| io_fault("lock", &path, e))?;
        Ok(StoreLock(file.into()))
    }

    /// Reads a manifest and checks that it is the one asked for.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn manifest(&self, id: &Content) -> Result<Manifest, Fault> {
        let path = self.manifests().join(id.to_string());
        let file = File::open(&path).map_err(|e| io_fault("open", &path, e))?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_MANIFEST + 1).read_to_end(&mut bytes);
        read.map_err(|e| io_fault("read", &path, e))?;
        if Content::of(&bytes) != *id {
            return Err(damaged(&path, "its bytes do not have the digest of its name"));
        }
        manifest::decode(&bytes).map_err(|error| damaged(&path, error))
    }

    /// Removes every object and manifest that is not in `keep`, durably; returns what went.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn collect(&self, _lock: &StoreLock, keep: &BTreeSet<Content>) -> Result<Vec<PathBuf>, Fault> {
        let mut gone = Vec::new();
        for digit in 0..16 {
            let first = format!("{digit:x}");
            self.collect_in(&self.root.join("objects").join(&first), &first, keep, &mut gone)?;
        }
        self.collect_in(&self.manifests(), "", keep, &mut gone)?;
        Ok(gone)
    }

    fn collect_in(
        &self,
        dir: &Path,
        prefix: &str,
        keep: &BTreeSet<Content>,
        gone: &mut Vec<PathBuf>,
    ) -> Result<(), Fault> {
        let before = gone.len();
        for entry in fs::read_dir(dir).map_err(|e| io_fault("list", dir, e))? {
            let entry = entry.map_err(|e| io_fault("list", dir, e))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if Content::parse(&name).is_some_and(|content| keep.contains(&content)) {
                continue;
            }
            self.durable.show(Step::Remove(&entry.path()));
            fs::remove_file(entry.path()).map_err(|e| io_fault("remove", &entry.path(), e))?;
            gone.push(entry.path());
        }
        // The caller removes what tells that this store has to be collected: after a power cut nobody would come back for
        // names whose removal was lost.
        if gone.len() > before {
            self.durable.sync_dir(dir)?;
        }
        Ok(())
    }
}

/// Contents on their way into a store: hashed and written, not yet durable, not yet named.
pub struct Batch<'a> {
    store: &'a Store,
    temporary: PathBuf,
    keep: Keep,
    next: AtomicU64,
    pending: Mutex<Vec<(PathBuf, PathBuf)>>,
}

/// Which contents a batch keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    All,
    /// Small ones; of large ones only the digest is told, because the source still has them.
    Small,
    /// None: for judging a tree where nothing can or shall be written.
    Nothing,
}

impl<'a> Batch<'a> {
    /// `temporary` belongs to one run alone and lies on the store's file system.
    #[must_use]
    pub fn new(store: &'a Store, temporary: PathBuf, keep: Keep) -> Self {
        Self {
            store,
            temporary,
            keep,
            next: AtomicU64::new(0),
            pending: Mutex::default(),
        }
    }

    fn fresh(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.temporary.join(format!("object-{number}"))
    }

    fn promise(&self, temporary: PathBuf, to: PathBuf) {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((temporary, to));
    }

    /// Takes in what the file holds now and tells its digest and length: the digest is of the bytes that are kept,
    /// whatever happens to the file meanwhile. No more than `size`, which it had: one that somebody makes longer while it is
    /// read would else be read for as long as they like.
    ///
    /// # Errors
    /// The kernel's; `FileTooLarge` beyond [`MAX_FILE`].
    pub fn take(&self, file: &File, size: u64, buffer: &mut Vec<u8>) -> io::Result<(Content, u64)> {
        if size > MAX_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.keep == Keep::Nothing {
            return copy_hashing(file.take(size), None, buffer);
        }
        if size > SMALL {
            return self.take_large(file, size, buffer);
        }
        buffer.clear();
        file.take(size).read_to_end(buffer)?;
        Ok((self.take_bytes(buffer)?, buffer.len() as u64))
    }

    /// The same for a file of a tree. Of a fresh copy git's objects are told and not kept: the source has them under the same
    /// names, nobody changes them, and thousands of them would each have to be synced before the agent starts.
    ///
    /// # Errors
    /// See [`Self::take`].
    pub(crate) fn take_of(
        &self,
        path: &TreePath,
        file: &File,
        size: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<(Content, u64)> {
        if self.keep == Keep::Small && path.as_bytes().starts_with(b".git/objects/") {
            return copy_hashing(file.take(size), None, buffer);
        }
        self.take(file, size, buffer)
    }

    /// Takes in bytes.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn take_bytes(&self, bytes: &[u8]) -> io::Result<Content> {
        let content = Content::of(bytes);
        if self.keep != Keep::Nothing && !self.store.has(&content) {
            let path = self.fresh();
            self.store.durable.show(Step::Write(&path));
            let mut kept = create(&path)?;
            kept.write_all(bytes).map_err(NotKept::of)?;
            self.store.durable.sync_soon(&kept);
            self.promise(path, self.store.object(&content));
        }
        Ok(content)
    }

    /// Takes in small contents that are at hand.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub(crate) fn take_all(&self, contents: &BTreeMap<Content, Vec<u8>>) -> Result<(), Fault> {
        for bytes in contents.values() {
            self.take_bytes(bytes)
                .map_err(|e| io_fault("keep", &self.temporary, e))?;
        }
        Ok(())
    }

    fn take_large(&self, file: &File, size: u64, buffer: &mut Vec<u8>) -> io::Result<(Content, u64)> {
        if self.keep == Keep::Small {
            return copy_hashing(file.take(size), None, buffer);
        }
        let path = self.fresh();
        self.store.durable.show(Step::Write(&path));
        let mut kept = create(&path)?;
        let (content, size) = if rustix::fs::ioctl_ficlone(&kept, file).is_ok() {
            // The clone cannot change any more; the file can.
            copy_hashing(&mut kept, None, buffer)?
        } else {
            copy_hashing(file.take(size), Some(&mut kept), buffer)?
        };
        if self.store.has(&content) {
            fs::remove_file(&path)?;
        } else {
            self.store.durable.sync_soon(&kept);
            self.promise(path, self.store.object(&content));
        }
        Ok((content, size))
    }

    /// Takes in a manifest.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn take_manifest(&self, manifest: &Manifest) -> Result<Content, Fault> {
        let bytes = manifest::encode(manifest);
        let id = Content::of(&bytes);
        let to = self.store.manifests().join(id.to_string());
        if !to.is_file() {
            let path = self.fresh();
            self.store.durable.write_new(&path, &bytes)?;
            self.promise(path, to);
        }
        Ok(id)
    }

    /// Makes everything durable, then named. All files first and then all names: the first sync commits the
    /// file system's journal for the rest.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn commit(self) -> Result<(), Fault> {
        let pending = self.pending.into_inner().unwrap_or_else(PoisonError::into_inner);
        let durable = &self.store.durable;
        crate::crew::wait(pending.iter().collect(), |(from, _)| durable.sync_file(from))?;
        let mut touched = BTreeSet::new();
        for (from, to) in &pending {
            durable.rename(from, to)?;
            touched.extend(to.parent());
        }
        crate::crew::wait(touched.into_iter().collect(), |dir| durable.sync_dir(dir))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(NotKept::of)
}

/// A failure on the side of the store, not of the file that was read: a content that could not be kept is no file that
/// cannot be read, and a snapshot without it would be no snapshot.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotKept(#[source] io::Error);

impl NotKept {
    fn of(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }
}

/// Whether an error of taking a content in is one of the store.
pub(crate) fn is_not_kept(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotKept>())
}

/// Reads to the end, hashing, and writes what it reads; runs of zeros become holes.
///
/// # Errors
/// The kernel's; `FileTooLarge` beyond [`MAX_FILE`].
pub(crate) fn copy_hashing(
    mut from: impl Read,
    mut to: Option<&mut File>,
    buffer: &mut Vec<u8>,
) -> io::Result<(Content, u64)> {
    buffer.resize(CHUNK, 0);
    let mut hasher = blake3::Hasher::new();
    let mut size = 0_u64;
    loop {
        let count = match from.read(buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &buffer[..count];
        hasher.update(bytes);
        size += count as u64;
        if size > MAX_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let Some(to) = to.as_deref_mut() else { continue };
        if count == CHUNK && bytes.iter().all(|b| *b == 0) {
            to.seek(SeekFrom::Current(i64::try_from(count).unwrap_or(0)))
                .map_err(NotKept::of)?;
        } else {
            to.write_all(bytes).map_err(NotKept::of)?;
        }
    }
    if let Some(to) = to {
        // A hole at the end has no bytes that would have set the length.
        to.set_len(size).map_err(NotKept::of)?;
    }
    Ok((Content::from_bytes(*hasher.finalize().as_bytes()), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that somebody makes longer after it was looked at, and before it is read.
    fn grown(path: &Path, size: u64) -> File {
        let mut file = File::create_new(path).unwrap();
        file.write_all(&vec![b'a'; usize::try_from(size).unwrap()])
            .unwrap();
        file.write_all(&[b'b'; 3_000_000]).unwrap();
        File::open(path).unwrap()
    }

    #[test]
    fn a_file_that_grows_is_read_no_further_than_it_reached() {
        let stage = tempfile::tempdir().unwrap();
        let store = Store::open(stage.path().join("store"), Durable::default()).unwrap();
        let inner = TreePath::new(".git/objects/00/0").unwrap();
        let outer = TreePath::new("log").unwrap();
        let mut buffer = Vec::new();
        for (at, keep) in [Keep::All, Keep::Small].into_iter().enumerate() {
            let own = stage.path().join(format!("tmp-{at}"));
            fs::create_dir(&own).unwrap();
            let batch = Batch::new(&store, own, keep);
            for size in [0, 10, SMALL, SMALL + 1, 2 * SMALL + 7] {
                let expected = Content::of(&vec![b'a'; usize::try_from(size).unwrap()]);
                for path in [&inner, &outer] {
                    let name = format!("{at}-{size}-{}", path.depth());
                    let file = grown(&stage.path().join(name), size);
                    let taken = batch.take_of(path, &file, size, &mut buffer).unwrap();
                    assert_eq!(taken, (expected, size), "{path} {size}");
                }
            }
        }
    }
}
