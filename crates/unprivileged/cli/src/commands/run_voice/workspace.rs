//! The tree that an agent works in, in words: at the start and in the receipt. Names come from the host and are cleaned.
use super::count;
use crate::render::{bytes, duration_ms};
use bastle_audit::sanitize;
use bastle_control::workspaces::{self, WorkEnd, WorkFacts};

/// Where the agent works, on one line, and below it what should be known of it.
pub(super) fn headline(work: &WorkFacts) -> String {
    let mode = workspaces::word(work.mode);
    let source = sanitize(work.source.as_str());
    let (Some(tree), Some(made)) = (&work.tree, &work.made) else {
        return with_notes(format!("{mode} {source}"), &work.notes);
    };
    let mut words = format!(
        "{mode} of {source} → {} ({}, {}, {})",
        sanitize(tree.as_str()),
        count(made.files, "file", "files"),
        bytes(made.bytes),
        duration_ms(made.millis)
    );
    if made.left_out > 0 {
        words.push_str(&format!(" · {} left out", made.left_out));
    }
    if let Some(branch) = &made.branch {
        words.push_str(&format!(" · branch {}", sanitize(branch)));
    }
    with_notes(with_notes(words, &work.notes), &made.notes)
}

fn with_notes(mut words: String, notes: &[String]) -> String {
    for note in notes {
        words.push_str(&format!("\n  note: {}", sanitize(note)));
    }
    words
}

/// What became of the agent's tree, and what can be done with it.
pub(super) fn receipt(run: &str, work: &WorkEnd) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(summary) = work.summary.as_ref().filter(|_| work.kept) {
        let mut parts = vec![format!(
            "{} changed (+{} −{})",
            count(summary.files as u64, "file", "files"),
            summary.added,
            summary.removed
        )];
        if summary.held > 0 {
            parts.push(format!("{} held until approved", summary.held));
        }
        if summary.refused > 0 {
            parts.push(format!("{} never applied", summary.refused));
        }
        if summary.ignored > 0 {
            parts.push(format!("{} ignored", summary.ignored));
        }
        let next = if summary.files > 0 {
            format!("; bastle diff {run} · bastle apply {run}")
        } else {
            String::new()
        };
        lines.push(format!("  {}{next}", parts.join(" · ")));
    }
    if !work.in_git.is_empty() {
        lines.push(
            "  ! GIT HAS GUARDED NAMES OTHERWISE THAN AT THE START; the files are as they were:".to_owned(),
        );
        lines.extend(work.in_git.iter().map(|name| format!("    {}", sanitize(name))));
        lines.push("  help: git diff --cached · git log --all -p".to_owned());
    }
    if let Some(fault) = &work.fault {
        lines.push(format!(
            "  ✗ the changes could not be summed up: {}",
            sanitize(&fault.to_string())
        ));
        lines.push(format!("  help: bastle diff {run}"));
    }
    lines
}
