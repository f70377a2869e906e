//! Append-only, hash-chained, signed log of one run, kept outside the sandbox.
//!
//! Trust: the writer is trusted, the text inside events is not (it comes from the agent), and every byte read
//! back from disk is not either until [`verify`] has judged it.
//!
//! Layout below the state directory:
//!
//! ```text
//! audit/                 0700
//!   key.ed25519          0600  signing key, made once
//!   key.pub              0644  its public half
//!   heads.jsonl          0600  index of all runs: one signed, chained line when a log is opened and sealed
//!   RUN/log.jsonl        0600  the records of one run, one OCSF object per line
//! audit.anchor           0600  a copy of the last line of the index
//! ```
//!
//! **Invariant:** a record's fingerprint is the BLAKE3 hash of its RFC 8785 form without that fingerprint but with
//! the fingerprint of the record before it. Checkpoints sign the chain so far; the seal signs all of it.
//!
//! **Deliberately absent:** protection against somebody who holds the signing key and may write the directory.
//! Whoever needs that copies the seal (head, count, key id) to a place of their own and compares.
#![forbid(unsafe_code)]

mod anchor;
mod attest;
mod canonical;
mod chain;
mod committer;
mod dir;
mod error;
mod event;
mod export;
#[cfg(test)]
mod failure_tests;
mod files;
mod finding;
mod fuzz;
mod heads;
mod key;
mod medium;
mod net;
mod objects;
mod ocsf;
mod read;
mod record;
mod resume;
mod sanitize;
mod system;
mod tail;
mod verify;
mod walk;
mod writer;

pub use attest::{Attestation, attest, is_attested, public_key};
pub use canonical::canonical;
pub use chain::RecordId;
pub use committer::{Committer, Handle};
pub use error::AuditError;
pub use event::{AuditEvent, Exit, Mark, Payload};
pub use export::{Format, export};
pub use finding::{Defect, Finding, LogFile};
pub use fuzz::{fuzz_index, fuzz_reader};
pub use heads::{RunEntry, RunState, list};
pub use key::KeyId;
pub use read::{MAX_LINE, Records, show};
pub use record::Record;
pub use resume::Recovery;
pub use sanitize::sanitize;
pub use system::System;
pub use verify::{Report, Unsealed, Verdict, verify, verify_all};
pub use writer::{AuditWriter, Seal, remove};
