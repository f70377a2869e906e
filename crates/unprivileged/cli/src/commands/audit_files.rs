//! `bastle audit show --files`: what became of files in a run, one line each. Every name is the agent's.
use crate::context::{Context, Ended};
use crate::render::{Paint, bytes, clean};
use bastle_audit::{AuditEvent, Payload};
use bastle_contract::{ChangeSight, ChangeSort, FileSeen, FileState, FilesTold, ReadSight, RunId};
use serde_json::{Value, json};
use std::path::Path;

/// Shows the file records of a run; a damaged line ends it.
pub(super) fn show(state: &Path, run: &RunId, cx: &Context) -> Ended {
    let told = each(state, run, |seen| cx.print(&line(seen, cx)))?;
    match told {
        Some(told) => cx.note(&summary(&told)),
        None => cx.note("the run has not told of its files: it lives, or bastle was killed with it"),
    }
    Ok(0)
}

/// The same as one object.
pub(super) fn show_json(state: &Path, run: &RunId, cx: &Context) -> Ended {
    let mut files: Vec<Value> = Vec::new();
    let told = each(state, run, |seen| {
        files.push(json!(seen));
        Ok(())
    })?;
    cx.print_json(&json!({ "schema": "bastle.audit-files/v1", "run": run, "files": files, "told": told }))?;
    Ok(0)
}

fn each(
    state: &Path,
    run: &RunId,
    mut with: impl FnMut(&FileSeen) -> Result<(), crate::context::Failed>,
) -> Result<Option<FilesTold>, crate::context::Failed> {
    let mut told = None;
    for record in bastle_audit::show(state, run).map_err(|error| error.fault())? {
        let record = record.map_err(|error| error.fault())?;
        match record.payload() {
            Some(Payload::Event(AuditEvent::File(seen))) => with(&seen)?,
            Some(Payload::Event(AuditEvent::Files(files))) => told = Some(files),
            Some(Payload::Event(_) | Payload::Mark(_)) | None => {}
        }
    }
    Ok(told)
}

fn line(seen: &FileSeen, cx: &Context) -> String {
    let (word, paint) = match seen.change.as_ref().map(|change| change.sort) {
        Some(ChangeSort::Created) => ("created", Paint::Good),
        Some(ChangeSort::Changed) => ("changed", Paint::Warn),
        Some(ChangeSort::Deleted) => ("deleted", Paint::Bad),
        None => match &seen.used {
            Some(used) if used.written => ("wrote", Paint::Warn),
            Some(used) if used.executed => ("ran", Paint::Plain),
            Some(used) if used.read => ("read", Paint::Plain),
            Some(_) | None => ("opened", Paint::Dim),
        },
    };
    let mut parts = vec![
        cx.out.paint(paint, &format!("{word:<8}")),
        // A name with a backslash of its own must not look like an escaped one.
        clean(&seen.path),
    ];
    if let Some(change) = &seen.change {
        parts.push(states(change.before.as_ref(), change.after.as_ref()));
    }
    if let Some(used) = seen.used.as_ref().filter(|used| !used.process.is_empty()) {
        parts.push(cx.out.paint(Paint::Dim, &format!("by {}", clean(&used.process))));
    }
    parts.retain(|part| !part.is_empty());
    format!("{}\n", parts.join("  "))
}

fn states(before: Option<&FileState>, after: Option<&FileState>) -> String {
    let one = |state: &FileState| {
        let digest = state
            .digest
            .as_deref()
            .map(|digest| digest.get(..12).unwrap_or(digest));
        let size = state.size.map_or_else(|| clean(&state.kind), bytes);
        digest.map_or(size.clone(), |digest| format!("{size} {}", clean(digest)))
    };
    match (before.map(one), after.map(one)) {
        (Some(before), Some(after)) => format!("{before} → {after}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => String::new(),
    }
}

fn summary(told: &FilesTold) -> String {
    let mut text = match &told.changes {
        ChangeSight::Contents | ChangeSight::Listing => format!(
            "{} created, {} changed, {} deleted",
            told.created, told.changed, told.deleted
        ),
        ChangeSight::Times => format!("{} created or changed", told.changed),
        ChangeSight::Nothing { why } => format!("changes: not seen ({})", clean(why)),
    };
    match &told.reads {
        ReadSight::Fanotify => text.push_str(&format!(", {} read; reads: seen by fanotify", told.read)),
        ReadSight::Nothing { why } => text.push_str(&format!("; reads: not seen ({})", clean(why))),
    }
    match &told.changes {
        ChangeSight::Contents | ChangeSight::Nothing { .. } => {}
        ChangeSight::Listing => text.push_str("; in place: no digests of what was there before"),
        ChangeSight::Times => text.push_str(
            "; in place and too large to list: found by change times, new and changed are not told apart, \
             what was deleted is not named",
        ),
    }
    if told.left_out > 0 {
        text.push_str(&format!("; {} more were only counted", told.left_out));
    }
    if told.gaps > 0 {
        text.push_str(&format!(
            "; {} gaps: the kernel could not tell everything",
            told.gaps
        ));
    }
    if told.recovered {
        text.push_str("; told by a later start");
    }
    text
}
