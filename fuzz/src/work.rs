//! What is read of a copy and of a repository.
use bastle_workspace::fuzzing;

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
