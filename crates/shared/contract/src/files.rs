//! What is told about the files of a run: which changed, which were used, and how much of that could be seen.
use serde::{Deserialize, Serialize};

/// Whether the reading of files is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "by", deny_unknown_fields)]
pub enum ReadSight {
    /// The kernel tells every opening, reading, writing and executing through the run's own mounts.
    Fanotify,
    /// It is not seen.
    Nothing {
        /// Why not.
        why: String,
    },
}

/// How changes were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "by", deny_unknown_fields)]
pub enum ChangeSight {
    /// The tree before and after was compared content by content.
    Contents,
    /// The listing before and after was compared, with sizes and times: no digest of what was there before.
    Listing,
    /// By the times at which the kernel says that names were changed, because there are too many to list before a start:
    /// new and changed names are not told apart, and of names that went only their directory is told.
    Times,
    /// Not at all.
    Nothing {
        /// Why not.
        why: String,
    },
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeSort {
    /// It is new.
    Created,
    /// It is another.
    Changed,
    /// It is gone.
    Deleted,
}

/// What stood under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileState {
    /// `file`, `symlink`, `dir`, `fifo`, `socket`, `device`, `submodule`, `other`.
    pub kind: String,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// BLAKE3 of a file's bytes, where it was read.
    pub digest: Option<String>,
}

/// A change of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// Its sort.
    pub sort: ChangeSort,
    /// Before.
    pub before: Option<FileState>,
    /// After.
    pub after: Option<FileState>,
}

/// How one file was used. The names of processes are the agent's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileUse {
    /// Bytes were read from it.
    pub read: bool,
    /// Bytes were written to it.
    pub written: bool,
    /// It was executed.
    pub executed: bool,
    /// How often the kernel told something of it.
    pub count: u64,
    /// The first program that used it; empty when it could not be told.
    pub process: String,
    /// Its process id on the host; 0 when it could not be told.
    pub pid: u32,
}

/// All that is recorded about one file. Its path is untrusted text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSeen {
    /// Where it is inside; bytes that are not text come out as escapes.
    pub path: String,
    /// The bytes of the path in hexadecimal, where they are not text.
    pub raw: Option<String>,
    /// What became of it.
    pub change: Option<FileChange>,
    /// How it was used, where that is seen.
    pub used: Option<FileUse>,
}

/// The file operations of a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesTold {
    /// How changes were found.
    pub changes: ChangeSight,
    /// Whether reading was seen.
    pub reads: ReadSight,
    /// Names that are new.
    pub created: u64,
    /// Names that are another.
    pub changed: u64,
    /// Names that are gone.
    pub deleted: u64,
    /// Files that were read or executed.
    pub read: u64,
    /// Changes, and uses of files beyond the most that are kept, that were counted and not recorded one by one.
    pub left_out: u64,
    /// Times that the kernel told of lost events, or an event could not be read.
    pub gaps: u64,
    /// Told by a later start, because bastle itself was killed.
    pub recovered: bool,
}
