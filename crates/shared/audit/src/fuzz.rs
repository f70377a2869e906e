//! Entry points for fuzzing: everything that reads bytes from disk, on any bytes, without a panic.
use crate::event::Payload;
use crate::export::{Format, export_reader};
use crate::heads::scan_reader;
use crate::key::PublicKey;
use crate::read::Records;
use crate::sanitize::sanitize;
use crate::walk::{WalkEnd, walk};
use std::path::{Path, PathBuf};

/// Reads, verifies and exports `bytes` as a log. Returns how many records it has.
#[must_use]
pub fn fuzz_reader(bytes: &[u8]) -> u64 {
    let key = PublicKey::nobody();
    let mut records = 0;
    for record in Records::new(bytes, None, PathBuf::new()).flatten() {
        records += 1;
        let shown = sanitize(record.message());
        debug_assert!(!shown.contains('\n'));
        if let Some(Payload::Event(event)) = record.payload() {
            drop(event);
        }
    }
    if let Ok(found) = walk(bytes, None, &key) {
        // Nobody holds the key, so nothing can be signed with it.
        debug_assert!(!found.checker.sealed);
        if let WalkEnd::Bad { finding, .. } = found.end {
            debug_assert!(!finding.to_string().is_empty());
        }
    }
    for format in [Format::Jsonl, Format::Ocsf, Format::Csv] {
        let mut out = Vec::new();
        if let Ok(count) = export_reader(bytes, None, format, &mut out, Path::new("")) {
            debug_assert_eq!(count, records);
        }
    }
    records
}

/// Reads `bytes` as an index. Returns how many lines fit together.
#[must_use]
pub fn fuzz_index(bytes: &[u8]) -> u64 {
    let mut lines = 0;
    match scan_reader(bytes, &PublicKey::nobody(), |_| lines += 1) {
        Ok(_) | Err(_) => lines,
    }
}
