//! What the verbs about a run's copy share: finding the run, reading paths, showing changes.
//!
//! **Trust:** names and contents are the agent's. Names are shown through `TreePath`, which escapes what acts on a
//! terminal; lines of our own begin with marks that no line of a difference begins with.
use crate::context::{Context, Failed};
use crate::render::{Paint, Style, clean};
use bastle_contract::{Code, Fault};
use bastle_control::Place;
use bastle_control::review::library::audit_delta::Change;
use bastle_control::review::library::diff::Lacking;
use bastle_control::review::library::gate::{Assessed, Tier};
use bastle_control::review::library::manifest::{Content, Kind};
use bastle_control::review::library::path::{TreePath, visible};
use bastle_control::review::library::workspace::Workspace;
use bastle_control::review::{self, Whereabouts};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Digits of a hash that are shown: as many as an approval needs.
const DIGITS: usize = 16;

/// Where copies are, and the project that the current directory belongs to.
pub(crate) fn whereabouts() -> Result<Whereabouts, Fault> {
    let project = Place::find(None)
        .ok()
        .map(|place| place.workspace.as_path().to_path_buf());
    Ok(Whereabouts {
        state: Place::without_project()?.state,
        project,
    })
}

/// Opens the run that a person means, and says what had to be repaired.
pub(crate) fn open(at: &Whereabouts, name: Option<&str>, cx: &Context) -> Result<Workspace, Failed> {
    let opened = review::open(at, name)?;
    tell(&opened.notes, cx);
    Ok(opened.space)
}

/// Notes on standard error.
pub(crate) fn tell(notes: &[String], cx: &Context) {
    for note in notes {
        cx.note(&format!("note: {}", clean(note)));
    }
}

/// Most files that are named because the project changed below an overlay.
const MOST_FROM_PROJECT: usize = 20;

/// Names the files whose content is the project's of now.
pub(crate) fn tell_from_project(paths: &[TreePath], what: &str, cx: &Context) {
    for path in paths.iter().take(MOST_FROM_PROJECT) {
        cx.note(&format!(
            "note: {path}: changed in the project since the run began; {what} has it as the project has it now"
        ));
    }
    let more = paths.len().saturating_sub(MOST_FROM_PROJECT);
    if more > 0 {
        cx.note(&format!("note: the same of {more} more"));
    }
}

/// Paths as typed: relative to the current directory when it is in the project, else to the project's root.
pub(crate) fn tree_paths(space: &Workspace, typed: &[PathBuf]) -> Result<Vec<TreePath>, Fault> {
    let source = space.source();
    let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
    let base = here.filter(|here| here.starts_with(source));
    let base = base.as_deref().unwrap_or(source);
    typed.iter().map(|path| tree_path(source, base, path)).collect()
}

fn tree_path(source: &Path, base: &Path, typed: &Path) -> Result<TreePath, Fault> {
    let fault = |why: String| {
        let what = format!(
            "{} is no path of the project",
            visible(typed.as_os_str().as_bytes())
        );
        Fault::new(Code::UsageArgument, what, why)
    };
    let full = folded(&base.join(typed));
    let below = full
        .strip_prefix(source)
        .map_err(|_| fault(format!("the project is {}", source.display())))?;
    TreePath::new(below.as_os_str().as_bytes()).map_err(|error| fault(error.to_string()))
}

/// Without `.` and `..`, by text: what is named need not exist, and the agent's names need not be UTF-8.
fn folded(path: &Path) -> PathBuf {
    let mut folded = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                folded.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => folded.push(part),
        }
    }
    folded
}

/// Exact bytes of the agent never go to a terminal.
pub(crate) fn refuse_terminal(what: &str) -> Result<(), Fault> {
    if !std::io::stdout().is_terminal() {
        return Ok(());
    }
    let why = format!("{what} holds the agent's bytes as they are, which a terminal would obey");
    Err(Fault::new(Code::UsageArgument, "standard output is a terminal", why).help("name a file, or pipe it"))
}

/// A patch is exact to the byte, so it does not pass the escaping of other output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Fault::new(
            Code::WorkspaceApply,
            "write to standard output",
            error.to_string(),
        )
        .into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A name for programs: exact where it shows as it is, and what a person sees.
pub(crate) fn path_json(path: &TreePath) -> Value {
    json!({ "path": path, "shown": path.to_string() })
}

/// Names for programs.
pub(crate) fn paths_json<'a>(paths: impl IntoIterator<Item = &'a TreePath>) -> Vec<Value> {
    paths.into_iter().map(path_json).collect()
}

/// The beginning of a hash, long enough for an approval.
pub(crate) fn short(hash: &Content) -> String {
    hash.to_string().chars().take(DIGITS).collect()
}

/// `A`dded, `M`odified, `D`eleted or another `T`ype.
pub(crate) fn letter(before: Option<&Kind>, after: Option<&Kind>) -> char {
    match (before, after) {
        (None, _) => 'A',
        (_, None) => 'D',
        (Some(Kind::File { .. }), Some(Kind::File { .. })) => 'M',
        (Some(Kind::Symlink { .. }), Some(Kind::Symlink { .. })) => 'M',
        (Some(_), Some(_)) => 'T',
    }
}

/// The letter of a change.
pub(crate) fn letter_of(change: &Change) -> char {
    letter(change.before.as_ref(), change.after.as_ref())
}

/// A change that a patch or branch does not have, or not as a whole.
pub(crate) fn lacking_line(form: &str, one: &Lacking) -> String {
    format!("note: not in the {form}: {}: {}", one.path, one.why)
}

/// The same for programs.
pub(crate) fn lacking_json(one: &Lacking) -> Value {
    let mut value = path_json(&one.path);
    value["why"] = json!(one.why.to_string());
    value
}

/// What the gate says of one change, a line each; nothing for plain source.
pub(crate) fn gate_lines(one: &Assessed, run: &str, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in one.findings.iter().filter(|finding| finding.tier > Tier::Note) {
        let (word, paint) = match finding.tier {
            Tier::Note | Tier::Flag => ("look", Paint::Warn),
            Tier::Approve => ("held", Paint::Bad),
            Tier::Refuse => ("refused", Paint::Bad),
        };
        let text = format!("!! {word}: {} ({})", clean(&finding.why), clean(&finding.rule));
        lines.push(style.paint(paint, &text));
    }
    if one.tier() == Tier::Approve {
        let text = format!("!! bastle apply {run} --approve {}", short(&one.approval));
        lines.push(style.paint(Paint::Accent, &text));
    }
    lines
}
