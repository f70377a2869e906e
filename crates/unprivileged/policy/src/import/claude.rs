//! Claude Code's `settings.json`: `permissions` and `sandbox`.
//!
//! There, deny comes before ask before allow, whatever is more specific: as here. A tool that no rule names asks there;
//! here a list of allowed tools is closed, so it is refused.
use super::draft::{Draft, Place};
use super::srt::{directory, refuse_host, sandbox};
use super::{Became, Standing};
use crate::agent::read::plain;
use crate::json::Node;
use serde_json::{Map, Value};

/// Tools that Claude uses without asking.
const FREE: &[&str] = &["Read", "Glob", "Grep", "LS", "NotebookRead", "TodoWrite", "Task"];
/// Tools that it asks about when nothing is said.
const ASKED: &[&str] = &[
    "Bash",
    "Edit",
    "Write",
    "MultiEdit",
    "NotebookEdit",
    "WebFetch",
    "WebSearch",
];

pub(super) fn read(root: &Node, draft: &mut Draft) {
    let Value::Object(settings) = plain(root) else {
        return draft.left_out("the file", "it is not an object");
    };
    if let Some(Value::Object(permissions)) = settings.get("permissions") {
        self::permissions(permissions, draft);
    }
    if let Some(Value::Object(section)) = settings.get("sandbox") {
        sandbox(section, draft);
    }
    let others: Vec<&str> = settings
        .keys()
        .map(String::as_str)
        .filter(|key| !["permissions", "sandbox", "$schema"].contains(key))
        .collect();
    if !others.is_empty() {
        draft.left_out(&others.join(", "), "not about what is allowed");
    }
}

fn permissions(permissions: &Map<String, Value>, draft: &mut Draft) {
    for (key, place) in [
        ("deny", Place::ToolDeny),
        ("ask", Place::ToolAsk),
        ("allow", Place::ToolAllow),
    ] {
        let items = permissions.get(key).and_then(Value::as_array);
        for rule in items.into_iter().flatten() {
            match rule.as_str() {
                Some(text) => self::rule(&format!("{key} {text}"), place, text, draft),
                None => draft.left_out(key, "a rule that is not a text"),
            }
        }
    }
    defaults(permissions, draft);
    for path in list(permissions, "additionalDirectories") {
        let source = format!("additionalDirectories {path}");
        let why = "for reading: what may be written there is named in fs.write";
        draft.convert(&source, &[(Place::Read, path.to_owned())], why);
    }
    for key in permissions.keys() {
        let known = ["allow", "ask", "deny", "additionalDirectories", "defaultMode"];
        if !known.contains(&key.as_str()) {
            draft.left_out(&format!("permissions.{key}"), "it is not known");
        }
    }
}

/// What holds for tools that no rule names.
fn defaults(permissions: &Map<String, Value>, draft: &mut Draft) {
    let mode = permissions.get("defaultMode").and_then(Value::as_str);
    if draft.has(Place::ToolAllow) {
        for tool in FREE {
            // They are allowed there without a rule; with a closed list they need one.
            drop(draft.put(Place::ToolAllow, tool));
        }
        if mode == Some("acceptEdits") {
            for tool in ["Edit", "Write", "MultiEdit", "NotebookEdit"] {
                drop(draft.put(Place::ToolAllow, tool));
            }
        }
        draft.report(
            "tools that no rule names",
            Became::Narrowed,
            &[],
            "there they ask; here a list of allowed tools is closed, so they are refused",
        );
        return;
    }
    match mode {
        Some("plan" | "dontAsk") => {
            draft.close_tools();
            for tool in FREE {
                drop(draft.put(Place::ToolAllow, tool));
            }
            draft.report("defaultMode", Became::Kept, &[], "only tools that read");
        }
        Some("bypassPermissions") => {
            draft.left_out(
                "defaultMode bypassPermissions",
                "no question is asked in either case, and the fence holds",
            );
        }
        mode => {
            let edits = mode == Some("acceptEdits");
            for tool in ASKED {
                if !(edits && ["Edit", "Write", "MultiEdit", "NotebookEdit"].contains(tool)) {
                    drop(draft.put(Place::ToolAsk, tool));
                }
            }
            draft.report(
                "defaultMode",
                Became::Kept,
                &[],
                "tools that change something ask",
            );
        }
    }
}

fn list<'m>(map: &'m Map<String, Value>, key: &str) -> Vec<&'m str> {
    let items = map.get(key).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn rule(source: &str, place: Place, text: &str, draft: &mut Draft) {
    let (tool, argument) = match text.split_once('(') {
        Some((tool, rest)) => (tool.trim(), rest.trim_end().strip_suffix(')').map(str::trim)),
        None => (text.trim(), None),
    };
    let argument =
        argument.filter(|argument| !argument.is_empty() && !matches!(*argument, "*" | "**" | ":*"));
    match (tool, argument) {
        ("Bash", Some(line)) => draft.command(source, place, line, ""),
        ("Read" | "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "Glob" | "Grep", Some(path)) => {
            file(source, place, (tool, path), draft);
        }
        ("WebFetch", Some(domain)) => fetch(source, place, domain, draft),
        _ => {
            // A tool as a whole; an argument that nobody knows is dropped from refusals, which then refuse more.
            let bare = match argument {
                Some(_) if place != Place::ToolAllow => tool,
                Some(_) | None => text,
            };
            let why = if bare == text {
                ""
            } else {
                "its argument is not known here"
            };
            draft.convert(source, &[(place, bare.to_owned())], why);
        }
    }
}

/// A path as Claude writes it: `//x` is absolute, `/x` is relative to the settings, a bare name is anywhere below.
fn path(text: &str, standing: Standing) -> String {
    if let Some(rest) = text.strip_prefix("//") {
        return format!("/{rest}");
    }
    match (text.strip_prefix('/'), standing) {
        (Some(rest), Standing::Project) => format!("./{rest}"),
        (Some(rest), Standing::Home) => format!("~/.claude/{rest}"),
        (None, _) => text.to_owned(),
    }
}

fn file(source: &str, place: Place, (tool, text): (&str, &str), draft: &mut Draft) {
    let own = directory(&path(text, draft.standing()));
    let reads = matches!(tool, "Read" | "Glob" | "Grep");
    match place {
        Place::ToolDeny | Place::ToolAsk => {
            // A name without a slash holds at any depth there, as in .gitignore.
            let bare = !own.contains('/') && own != "." && own != "~";
            let own = if bare { format!("**/{own}") } else { own };
            let (list, why) = match (reads, place) {
                (true, Place::ToolDeny) => (Place::Hide, ""),
                (true, _) => (Place::Hide, "reading cannot ask, so it is refused"),
                (false, _) if tool == "Edit" => (Place::Protect, ""),
                (false, _) => (Place::Protect, "there such a rule has no effect; here it holds"),
            };
            draft.refuse_path(source, list, &own, why);
        }
        _ if tool == "Write" => {
            draft.left_out(source, "there such a rule is never consulted: Edit(…) is meant")
        }
        _ if own.contains(['*', '?']) => {
            draft.left_out(source, "a pattern grants nothing here: name the directory");
        }
        _ => {
            let list = if reads { Place::Read } else { Place::Write };
            let tools = if reads { "Read" } else { "Edit" };
            draft.convert(
                source,
                &[(list, own), (Place::ToolAllow, format!("{tools}({text})"))],
                "",
            );
        }
    }
}

fn fetch(source: &str, place: Place, argument: &str, draft: &mut Draft) {
    let Some(domain) = argument.strip_prefix("domain:") else {
        let why = "only domain: is known here";
        return match place {
            Place::ToolAllow => draft.left_out(source, why),
            _ => draft.convert(source, &[(place, "WebFetch".to_owned())], why),
        };
    };
    match place {
        Place::ToolAllow => {
            let rules = [
                (
                    Place::NetAllow,
                    format!("GET,HEAD {}", domain.to_ascii_lowercase()),
                ),
                (place, format!("WebFetch(domain:{domain})")),
            ];
            draft.convert(source, &rules, "");
        }
        Place::ToolAsk => draft.convert(source, &[(place, format!("WebFetch(domain:{domain})"))], ""),
        _ => refuse_host(source, domain, draft),
    }
}
