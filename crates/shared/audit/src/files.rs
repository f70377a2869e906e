//! Records about files: what became of them and how they were used. Paths and program names come from the agent.
use crate::objects;
use crate::ocsf::{Class, Control, INFORMATIONAL, OTHER, Shape};
use bastle_contract::{ChangeSight, ChangeSort, FileSeen, FilesTold, ReadSight, RunId};
use serde_json::{Map, Value};

/// File System Activity: 1 create, 2 read, 3 update, 4 delete.
pub(crate) fn shape(seen: &FileSeen) -> Shape {
    let (activity, caption) = match seen.change.as_ref().map(|change| change.sort) {
        Some(ChangeSort::Created) => (1, "Create"),
        Some(ChangeSort::Changed) => (3, "Update"),
        Some(ChangeSort::Deleted) => (4, "Delete"),
        None => match &seen.used {
            Some(used) if used.written => (3, "Update"),
            Some(_) => (2, "Read"),
            None => (OTHER, "Seen"),
        },
    };
    Shape {
        class: Class::File,
        activity,
        caption,
        severity: INFORMATIONAL,
        control: Control::Logged,
    }
}

pub(crate) fn fill(seen: &FileSeen, run: &RunId, body: &mut Map<String, Value>) -> String {
    let actor = match &seen.used {
        Some(used) if !used.process.is_empty() => objects::actor_agent(run, used.pid, &used.process),
        Some(_) | None => objects::actor_run(run),
    };
    body.insert("actor".into(), actor);
    let mut file = objects::file(&seen.path);
    let change = seen.change.as_ref();
    let state = change.and_then(|change| change.after.as_ref().or(change.before.as_ref()));
    if let (Some(object), Some(state)) = (file.as_object_mut(), state) {
        object.insert("type_id".into(), kind(&state.kind).into());
        if let Some(size) = state.size {
            object.insert("size".into(), size.into());
        }
    }
    body.insert("file".into(), file);
    let word = match change.map(|change| change.sort) {
        Some(ChangeSort::Created) => "created",
        Some(ChangeSort::Changed) => "changed",
        Some(ChangeSort::Deleted) => "deleted",
        None => match &seen.used {
            Some(used) if used.written => "wrote",
            Some(used) if used.executed => "executed",
            Some(used) if used.read => "read",
            Some(_) | None => "opened",
        },
    };
    let by = match &seen.used {
        Some(used) if !used.process.is_empty() => format!(" (by {})", used.process),
        Some(_) | None => String::new(),
    };
    format!("{word} {}{by}", seen.path)
}

/// OCSF's number for a kind of file.
fn kind(kind: &str) -> u8 {
    match kind {
        "file" => 1,
        "dir" | "submodule" => 2,
        "device" => 3,
        "socket" => 5,
        "fifo" => 6,
        "symlink" => 7,
        _ => 99,
    }
}

pub(crate) fn message(told: &FilesTold) -> String {
    let changes = match &told.changes {
        ChangeSight::Contents | ChangeSight::Listing => format!(
            "{} files created, {} changed, {} deleted",
            told.created, told.changed, told.deleted
        ),
        ChangeSight::Times => format!("{} names created or changed", told.changed),
        ChangeSight::Nothing { why } => format!("changes of files not seen ({why})"),
    };
    let reads = match &told.reads {
        ReadSight::Fanotify => format!("{} read", told.read),
        ReadSight::Nothing { why } => format!("reading not seen ({why})"),
    };
    let mut text = format!("{changes}; {reads}");
    if told.left_out > 0 {
        text.push_str(&format!(
            "; {} counted and not recorded one by one",
            told.left_out
        ));
    }
    if told.gaps > 0 {
        text.push_str(&format!("; {} gaps in what was seen", told.gaps));
    }
    if told.recovered {
        text.push_str("; told by a later start");
    }
    text
}
