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

/// A stored manifest.
pub fn fuzz_manifest(bytes: &[u8]) {
    if let Ok(manifest) = crate::manifest::decode(bytes) {
        assert_eq!(crate::manifest::encode(&manifest), bytes);
    }
}

/// A stored set of a file's attributes.
pub fn fuzz_attributes(bytes: &[u8]) {
    crate::attributes::fuzz(bytes);
}

/// A stored list of what files looked like.
pub fn fuzz_seen(bytes: &[u8]) {
    if let Some(seen) = crate::seen::SeenList::decode(bytes) {
        assert_eq!(seen.encode(), bytes);
    }
}

/// The records of a copy and of a snapshot.
pub fn fuzz_records(bytes: &[u8]) {
    if let Ok(meta) = serde_json::from_slice::<crate::meta::Meta>(bytes) {
        assert!(meta.source.as_path().is_absolute());
    }
    if let Ok(snapshot) = serde_json::from_slice::<crate::meta::Snapshot>(bytes) {
        assert_eq!(snapshot.manifest.to_string().len(), 64);
    }
}
