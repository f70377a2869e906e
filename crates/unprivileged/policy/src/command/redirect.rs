//! Where a line writes by redirection, and which of those places a command rule covers.

use super::matching::climbs;
use super::reading;
use super::tables::PROTECTED_STEPS;
use super::walk::{self, Item, Redirect};
use super::word::{UNKNOWN, Word};
use serde::Serialize;

/// Which way a redirection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectDirection {
    /// `<`.
    Read,
    /// `>`, `>>`, `&>`, `>|`, …
    Write,
}

/// A file a line opens by redirection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedirectTarget {
    /// The name, with `…` where it is computed.
    pub path: String,
    /// Which way.
    pub direction: RedirectDirection,
    /// Whether the name is known in full.
    pub known: bool,
}

/// The files a line opens by redirection, in order; `Err` says why the line cannot be read. Shells inside it
/// (`sh -c '…'`) are not entered.
///
/// # Errors
/// When the line cannot be read for certain.
pub fn redirect_targets(line: &str) -> Result<Vec<RedirectTarget>, String> {
    if line.len() > super::MAX_LINE {
        return Err("the line is too long".into());
    }
    let tree = reading::read(line).map_err(|e| e.0)?;
    let walked = walk::walk(tree.root_node(), line);
    let mut targets = Vec::new();
    for item in &walked.items {
        if let Item::Redirect(redirect) = item
            && !copies_descriptor(redirect)
        {
            targets.push(RedirectTarget {
                path: redirect.target.shown(),
                direction: direction(redirect),
                known: redirect.target.known().is_some(),
            });
        }
    }
    Ok(targets)
}

fn direction(redirect: &Redirect) -> RedirectDirection {
    match redirect.operator.as_str() {
        "<" | "<&" => RedirectDirection::Read,
        _ => RedirectDirection::Write,
    }
}

/// `2>&1`, `>&-`, `<&3`: no file is opened.
fn copies_descriptor(redirect: &Redirect) -> bool {
    let text = redirect.target.text.trim_end_matches('-');
    redirect.operator.ends_with('&')
        && redirect.target.known().is_some()
        && text.bytes().all(|b| b.is_ascii_digit())
}

/// Where relative names start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Below the directory the line starts in, by these steps.
    Below(String),
    /// Somewhere else.
    Unknown,
}

impl Place {
    /// After `cd target`.
    pub(super) fn enter(&mut self, target: Option<&Word>) {
        let step = target
            .and_then(Word::known)
            .filter(|t| !t.is_empty() && !t.starts_with(['/', '~', '-']) && !climbs(t));
        *self = match (step, &self) {
            (Some(step), Self::Below(base)) => Self::Below(format!("{base}{step}/")),
            (Some(_) | None, Self::Below(_) | Self::Unknown) => Self::Unknown,
        };
    }
}

/// Why a redirection is not covered by the rule for its command.
pub(super) fn danger(redirect: &Redirect, place: &Place) -> Option<String> {
    let target = &redirect.target;
    if target.text.contains("/dev/tcp/") || target.text.contains("/dev/udp/") {
        return Some("the shell opens a network connection".into());
    }
    if copies_descriptor(redirect) || direction(redirect) == RedirectDirection::Read {
        return None;
    }
    write_danger(target, place)
}

/// Why writing to this name is not covered.
pub(super) fn write_danger(target: &Word, place: &Place) -> Option<String> {
    let shown = target.shown();
    let Some(text) = target.known() else {
        // Process substitutions are pipes; what they run is judged.
        let pipe = target.text == format!("/dev/fd/{UNKNOWN}");
        return (!pipe).then(|| format!("it writes to a computed place, `{shown}`"));
    };
    if matches!(
        text,
        "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty" | "/dev/fd/1" | "/dev/fd/2"
    ) {
        return None;
    }
    if text.is_empty() || climbs(text) || text.starts_with('~') {
        return Some(format!(
            "it writes to `{shown}`, outside the directory it starts in"
        ));
    }
    let scratch = text.starts_with("/tmp/") || text.starts_with("/var/tmp/");
    if text.starts_with('/') && !scratch {
        return Some(format!(
            "it writes to `{shown}`, outside the directory it starts in"
        ));
    }
    let whole = match place {
        Place::Below(base) if !scratch => format!("{base}{text}"),
        Place::Below(_) => text.to_owned(),
        Place::Unknown if scratch => text.to_owned(),
        Place::Unknown => return Some(format!("it writes to `{shown}` after a change of directory")),
    };
    whole
        .split('/')
        .find(|step| PROTECTED_STEPS.iter().any(|p| p.eq_ignore_ascii_case(step)) || step.starts_with(".env"))
        .map(|step| {
            format!("it writes to `{shown}`: `{step}` is read by other tools as code or configuration")
        })
}
