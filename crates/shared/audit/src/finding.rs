//! What is wrong with a log, and where.
use bastle_contract::RunId;
use std::fmt;

/// The first thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which run.
    pub run: Option<RunId>,
    /// In which file.
    pub file: LogFile,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: u64,
    /// Where that line begins, in bytes.
    pub offset: u64,
    /// The record's number as it stands there, if it can be read.
    pub sequence: Option<u64>,
    /// What does not fit.
    pub defect: Defect,
}

/// The files that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// `log.jsonl` of a run.
    Log,
    /// `heads.jsonl`.
    Index,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Longer than a line may be.
    #[error("the line is longer than {} bytes", crate::MAX_LINE)]
    TooLong,
    /// The last line has no end.
    #[error("the line is incomplete")]
    Incomplete,
    /// Not JSON, or not an object of the expected form.
    #[error("the line is not a record: {0}")]
    Malformed(String),
    /// JSON, but not byte for byte what a writer produces.
    #[error("the line is not in the form it was written in")]
    NotCanonical,
    /// A record is missing, doubled or moved.
    #[error("record {expected} should stand here")]
    Order {
        /// The number that should be here.
        expected: u64,
    },
    /// Copied from another log.
    #[error("the record belongs to another chain: {0}")]
    ForeignChain(String),
    /// The link to the record before does not fit.
    #[error("the record does not continue the one before it")]
    BrokenLink,
    /// The content does not fit its fingerprint.
    #[error("the record was changed: its fingerprint does not fit its content")]
    Changed,
    /// The first record is not an opening.
    #[error("the log does not begin with its opening record")]
    NotOpened,
    /// An opening in the middle.
    #[error("the log has a second opening record")]
    OpenedTwice,
    /// Signed by, or opened for, another key.
    #[error("the log names signing key {0}, not the one of this directory")]
    ForeignKey(String),
    /// A checkpoint or seal that signs something else.
    #[error("the signature does not fit the chain")]
    BadSignature,
    /// More unsigned records than a writer leaves.
    #[error("a checkpoint is missing here")]
    CheckpointMissing,
    /// Something follows the seal.
    #[error("the record stands after the seal")]
    AfterSeal,
    /// The seal counts otherwise.
    #[error("the seal counts {0} records")]
    WrongCount(u64),
    /// The index knows a longer log.
    #[error("the log was sealed with {count} records and has {found}: it was cut off")]
    CutOff {
        /// Records when it was sealed.
        count: u64,
        /// Records now.
        found: u64,
    },
    /// The index knows another last record.
    #[error("the last record is not the one the index was given when the log was sealed")]
    OtherHead,
    /// The index knows the run, the log is gone.
    #[error("the log is gone, although the index has the run and no removal")]
    LogGone,
    /// The log is there, the index does not know it.
    #[error("the index does not have this run: the index was cut off or replaced, or the log was brought in")]
    NotIndexed,
    /// The anchor is newer than the index.
    #[error(
        "the index ends at line {found}, but {anchor} has line {expected}: the newest runs were removed, or an older copy was put in its place"
    )]
    RolledBack {
        /// Line that the anchor has.
        expected: u64,
        /// Last line of the index.
        found: u64,
        /// The name of the anchor that was compared with the log.
        anchor: String,
    },
    /// The anchor has another line.
    #[error("line {sequence} of the index is not the one that {anchor} has: the index was replaced")]
    Replaced {
        /// The sequence number that the anchor states.
        sequence: u64,
        /// The name of the anchor that was compared with the log.
        anchor: String,
    },
    /// The anchor is signed by another key.
    #[error("{anchor} is signed by another key than that of the directory: the directory was replaced")]
    AnchorForeign {
        /// The name of the anchor that was compared with the log.
        anchor: String,
    },
    /// There is an anchor and nothing else.
    #[error("the directory is empty, but {anchor} has a line of its index: it was emptied")]
    Emptied {
        /// The name of the anchor that was compared with the log.
        anchor: String,
    },
    /// The run was opened twice without a removal between.
    #[error("the index has the run opened twice: its first log was removed behind bastle's back")]
    IndexedTwice,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "audit log of run {run}, ")?,
            None => write!(f, "audit log, ")?,
        }
        f.write_str(match self.file {
            LogFile::Log => "log.jsonl",
            LogFile::Index => "heads.jsonl",
        })?;
        if self.line > 0 {
            write!(f, " line {} (byte {}", self.line, self.offset)?;
            if let Some(sequence) = self.sequence {
                write!(f, ", record {sequence}")?;
            }
            f.write_str(")")?;
        }
        write!(f, ": {}", self.defect)
    }
}
