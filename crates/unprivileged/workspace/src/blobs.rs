//! Contents by digest, as review, gate and apply read them.
//!
//! **Trust:** what is read is checked against its digest, so that a damaged store is an error and never a file.
use crate::manifest::Content;
use crate::rooted::each_chunk;
use bastle_contract::{Code, Fault};
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// Where contents come from: immutable, addressed by digest, so that the agent cannot swap one between its
/// classification and its use.
pub trait Blobs: Sync {
    /// Opens the content of this digest for reading from its start.
    ///
    /// # Errors
    /// When the content is not kept or cannot be read.
    fn open(&self, digest: &Content) -> Result<File, Fault>;
}

/// Reads a content of at most `most` bytes; `None` when it is larger.
///
/// # Errors
/// When it is not kept, cannot be read, or its bytes are not those of the digest.
pub fn read_blob(blobs: &dyn Blobs, digest: &Content, most: u64) -> Result<Option<Vec<u8>>, Fault> {
    let file = blobs.open(digest)?;
    // A vector that has to grow asks the kernel ten times for a small file.
    let length = file.metadata().map_or(0, |meta| meta.len().min(most));
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(64));
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|why| {
            Fault::new(
                Code::WorkspaceApply,
                format!("read content {digest}"),
                why.to_string(),
            )
        })?;
    if bytes.len() as u64 > most {
        return Ok(None);
    }
    if Content::of(&bytes) != *digest {
        return Err(Fault::new(
            Code::WorkspaceApply,
            format!("content {digest}"),
            "its bytes have changed in the store",
        ));
    }
    Ok(Some(bytes))
}

/// Whether copied bytes were those of their digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Checked {
    /// They were.
    Right,
    /// They were others; what was written must not be used.
    Wrong,
}

/// Copies a content and says whether it is that of the digest.
pub(crate) fn copy_checked(source: &File, mut target: &File, digest: &Content) -> io::Result<Checked> {
    let mut hasher = blake3::Hasher::new();
    let length = usize::try_from(source.metadata()?.len()).unwrap_or(usize::MAX);
    each_chunk(source, length, |bytes| {
        hasher.update(bytes);
        target.write_all(bytes)
    })?;
    let same = hasher.finalize().as_bytes() == digest.as_bytes();
    Ok(if same { Checked::Right } else { Checked::Wrong })
}

impl Blobs for crate::store::Store {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        self.open_object(digest).map_err(|error| {
            Fault::new(
                Code::WorkspaceApply,
                format!("content {digest}"),
                error.to_string(),
            )
            .help("The store of this project does not keep it; make a snapshot of the run first.")
        })
    }
}

/// Contents made here on top of others: results of a merge.
pub(crate) struct Layered<'a> {
    /// What was made.
    pub(crate) made: std::collections::BTreeMap<Content, Vec<u8>>,
    /// Everything else.
    pub(crate) under: &'a dyn Blobs,
}

impl Blobs for Layered<'_> {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        let Some(bytes) = self.made.get(digest) else {
            return self.under.open(digest);
        };
        let fail = |error: std::io::Error| {
            Fault::new(
                Code::WorkspaceApply,
                format!("content {digest}"),
                error.to_string(),
            )
        };
        let memory = rustix::fs::memfd_create("bastle-merge", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| fail(error.into()))?;
        let mut file = File::from(memory);
        file.write_all(bytes).map_err(fail)?;
        file.rewind().map_err(fail)?;
        Ok(file)
    }
}
