//! Entry points for fuzzing: any bytes to every parser of untrusted or stored bytes on the way out.

/// A git configuration file.
pub fn fuzz_git_config(bytes: &[u8]) {
    crate::git::fuzz_config(bytes);
}

/// Packed and loose references.
pub fn fuzz_git_references(bytes: &[u8]) {
    crate::git::fuzz_refs(bytes);
}

/// The gate's scans of contents.
pub fn fuzz_gate_content(bytes: &[u8]) {
    crate::gate::fuzz_content(bytes);
}

/// Comparison and three-way merge.
pub fn fuzz_merge(bytes: &[u8]) {
    crate::diff::fuzz_merge(bytes);
}
