//! What is read of a copy and of a repository.
use bastle_workspace::fuzzing;
use bastle_workspace::gate::{Rules, fuzz_gate};
use std::sync::LazyLock;

/// Records that lie beside a copy, and git's own files: written by us or by git, found as anybody may have left them.
pub fn work_records(data: &[u8]) {
    fuzzing::fuzz_git_config(data);
    fuzzing::fuzz_git_references(data);
    fuzzing::fuzz_manifest(data);
    fuzzing::fuzz_attributes(data);
    fuzzing::fuzz_seen(data);
    fuzzing::fuzz_records(data);
}

/// Contents that the agent wrote: judged by the import gate, compared and merged.
pub fn work_contents(data: &[u8]) {
    fuzzing::fuzz_gate_content(data);
    fuzzing::fuzz_merge(data);
}

static RULES: LazyLock<Option<Rules>> = LazyLock::new(|| {
    bastle_policy::host_executed::catalogue()
        .and_then(Rules::new)
        .ok()
});

/// A path, an old and a new content, with a NUL between: the import gate's whole judgement.
pub fn gate(data: &[u8]) {
    let rules = RULES.as_ref();
    assert!(rules.is_some(), "the rules of this build do not load");
    if let Some(rules) = rules {
        fuzz_gate(rules, data);
    }
}
