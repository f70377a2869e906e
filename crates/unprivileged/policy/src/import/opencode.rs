//! opencode's `permission`: for each tool an action, or patterns with actions of which the **last** match wins.
//!
//! Here the order of rules means nothing: deny comes before ask before allow. Where that makes a difference the result
//! refuses more, and the report says so.
use super::Became;
use super::draft::{Draft, Place};
use super::srt::directory;
use crate::json::{Node, Value};

/// What opencode calls a tool, and what agents call it here.
const TOOLS: &[(&str, &[&str])] = &[
    ("bash", &["Bash"]),
    ("edit", &["Edit", "Write", "MultiEdit", "Patch"]),
    ("read", &["Read"]),
    ("webfetch", &["WebFetch"]),
    ("websearch", &["WebSearch"]),
    ("codesearch", &["CodeSearch"]),
    ("glob", &["Glob"]),
    ("grep", &["Grep"]),
    ("list", &["LS"]),
    ("task", &["Task"]),
    ("todowrite", &["TodoWrite"]),
    ("todoread", &["TodoRead"]),
    ("skill", &["Skill"]),
    ("lsp", &["LSP"]),
];

pub(super) fn read(root: &Node, draft: &mut Draft) {
    let Value::Object(members) = &root.value else {
        return draft.left_out("the file", "it is not an object");
    };
    let mut others = Vec::new();
    for member in members {
        match member.key.as_str() {
            "permission" => permission(&member.value, draft),
            "tools" => tools(&member.value, draft),
            "agent" | "mode" => draft.left_out(&member.key, "permissions of single agents are not imported"),
            "$schema" => {}
            other => others.push(other),
        }
    }
    if !others.is_empty() {
        draft.left_out(&others.join(", "), "not about what is allowed");
    }
}

/// `tools`: a tool that is switched off is refused.
fn tools(node: &Node, draft: &mut Draft) {
    let Value::Object(members) = &node.value else {
        return;
    };
    for member in members {
        let source = format!("tools {}", member.key);
        match &member.value.value {
            Value::Bool(false) => refuse_tool(&source, &member.key, Place::ToolDeny, draft),
            _ => draft.report(&source, Became::Kept, &[], "a tool is there unless it is refused"),
        }
    }
}

fn names(tool: &str) -> Vec<String> {
    match TOOLS.iter().find(|(own, _)| *own == tool) {
        Some((_, names)) => names.iter().map(|name| (*name).to_owned()).collect(),
        None => vec![tool.to_owned()],
    }
}

fn refuse_tool(source: &str, tool: &str, place: Place, draft: &mut Draft) {
    let rules: Vec<(Place, String)> = names(tool).into_iter().map(|name| (place, name)).collect();
    draft.convert(source, &rules, "");
}

/// The word of an action; one that is not known refuses.
fn action(node: &Node) -> Option<Place> {
    match &node.value {
        Value::String(word) => Some(match word.as_str() {
            "allow" => Place::ToolAllow,
            "ask" => Place::ToolAsk,
            _ => Place::ToolDeny,
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn permission(node: &Node, draft: &mut Draft) {
    if let Some(place) = action(node) {
        return whole("permission", "*", place, draft);
    }
    let Value::Object(members) = &node.value else {
        return draft.left_out("permission", "it is neither a word nor an object");
    };
    // Of two words for one tool the later holds, and `*` holds for all tools before it.
    let start = members.iter().rposition(|member| member.key == "*").unwrap_or(0);
    for (index, member) in members.iter().enumerate() {
        let tool = member.key.as_str();
        let source = format!("permission {tool}");
        let later = members[index + 1..].iter().any(|other| other.key == tool);
        if index < start || later {
            draft.left_out(&source, "a later word holds instead of it");
            continue;
        }
        match action(&member.value) {
            Some(place) => whole(&source, tool, place, draft),
            None => patterns(tool, &member.value, draft),
        }
    }
}

/// One action for a whole tool.
fn whole(source: &str, tool: &str, place: Place, draft: &mut Draft) {
    match (tool, place) {
        (_, Place::ToolAllow) if tool != "external_directory" => draft.report(
            source,
            Became::Kept,
            &[],
            "a tool that no rule refuses is allowed; the fence holds all the same",
        ),
        ("external_directory", Place::ToolAllow) => {
            draft.left_out(
                source,
                "every directory of the host: name those that are needed in fs.read",
            );
        }
        ("external_directory", _) => draft.report(source, Became::Kept, &[], "nothing outside is shown"),
        ("doom_loop", _) => draft.left_out(source, "limits and budgets hold instead"),
        // Asking about each tool at once would stop reading too; those that change something are meant.
        ("*", Place::ToolAsk) => {
            let rules: Vec<(Place, String)> = TOOLS
                .iter()
                .flat_map(|(_, names)| names.iter())
                .map(|name| (Place::ToolAsk, (*name).to_owned()))
                .collect();
            draft.convert(source, &rules, "");
        }
        ("*", _) => draft.convert(source, &[(Place::ToolDeny, "*".to_owned())], ""),
        (tool, place) => refuse_tool(source, tool, place, draft),
    }
}

/// Patterns of one tool, in their order.
fn patterns(tool: &str, node: &Node, draft: &mut Draft) {
    let Value::Object(members) = &node.value else {
        let source = format!("permission {tool}");
        return refuse_tool(&source, tool, Place::ToolDeny, draft);
    };
    let rules: Vec<(&str, Place)> = members
        .iter()
        .map(|member| {
            let place = action(&member.value).unwrap_or(Place::ToolDeny);
            (member.key.as_str(), place)
        })
        .collect();
    // Nothing before the last pattern that matches everything is ever the last match.
    let all = rules
        .iter()
        .rposition(|(pattern, _)| matches!(*pattern, "*" | "**"));
    let (dead, alive) = rules.split_at(all.unwrap_or(0));
    for (pattern, _) in dead {
        draft.left_out(
            &format!("{tool} {pattern}"),
            "the later \"*\" holds instead of it",
        );
    }
    let default = alive
        .first()
        .filter(|_| all.is_some())
        .map_or(Place::ToolAsk, |(_, place)| *place);
    let alive = if all.is_some() { &alive[1..] } else { alive };
    if matches!(tool, "read" | "edit") {
        return files(tool, alive, all.map(|_| default), draft);
    }
    let only_refusals = alive.iter().all(|(_, place)| *place != Place::ToolAllow);
    match (tool, default) {
        (_, Place::ToolAllow) => {}
        // A word for all would beat every allow here, so it is said only where there is none.
        (_, place) if only_refusals => refuse_default(tool, place, draft),
        _ => {}
    }
    for (index, (pattern, place)) in alive.iter().enumerate() {
        let source = format!("{tool} {pattern}");
        let earlier =
            *place == Place::ToolAllow && alive[..index].iter().any(|(_, other)| *other != Place::ToolAllow);
        let why = if earlier {
            "an earlier pattern that refuses is not overruled here: where both match, it refuses"
        } else {
            ""
        };
        one(tool, (pattern, *place), (&source, why), default, draft);
    }
    if !only_refusals && default != Place::ToolAllow {
        draft.close_tools();
        for (own, names) in TOOLS.iter().filter(|(own, _)| *own != tool) {
            if !matches!(*own, "bash" | "edit") {
                for name in *names {
                    drop(draft.put(Place::ToolAllow, name));
                }
            }
        }
        draft.report(
            &format!("{tool} that no pattern names"),
            Became::Narrowed,
            &[],
            "a list of what is allowed is closed here: it is refused, and so are tools that change something unless they are named",
        );
    }
}

/// Paths that may not be read or changed.
fn files(tool: &str, rules: &[(&str, Place)], default: Option<Place>, draft: &mut Draft) {
    let list = if tool == "read" {
        Place::Hide
    } else {
        Place::Protect
    };
    let closed = default.is_some_and(|word| word != Place::ToolAllow);
    if closed {
        draft.refuse_path(&format!("{tool} *"), list, "**/*", "");
    }
    let mut refused = false;
    for (pattern, place) in rules {
        let source = format!("{tool} {pattern}");
        if *place == Place::ToolAllow {
            let why = match (closed, refused) {
                (true, _) => "all files are refused, and an exception cannot be said here",
                (false, true) => "an earlier pattern that refuses is not overruled here",
                (false, false) => "it is allowed unless refused",
            };
            draft.left_out(&source, why);
            continue;
        }
        refused = true;
        let path = directory(pattern);
        // `*` crosses directories there, so a pattern that begins with it holds at any depth.
        let path = if path.starts_with(['/', '~']) || path.starts_with("**/") {
            path
        } else {
            format!("**/{}", path.trim_start_matches("./").trim_start_matches("*/"))
        };
        draft.refuse_path(&source, list, &path, "");
    }
}

fn refuse_default(tool: &str, place: Place, draft: &mut Draft) {
    if tool != "external_directory" {
        refuse_tool(&format!("{tool} *"), tool, place, draft);
    }
}

/// One pattern.
fn one(
    tool: &str,
    (pattern, place): (&str, Place),
    (source, why): (&str, &str),
    default: Place,
    draft: &mut Draft,
) {
    match (tool, place) {
        ("bash", Place::ToolAllow) if default == Place::ToolAllow => {
            draft.report(source, Became::Kept, &[], "commands are allowed unless refused");
        }
        ("bash", _) => draft.command(source, place, pattern, why),
        ("external_directory", Place::ToolAllow) => {
            let path = directory(pattern);
            if path.contains(['*', '?']) {
                draft.left_out(source, "a pattern grants nothing here: name the directory");
            } else {
                draft.convert(source, &[(Place::Read, path)], "for reading");
            }
        }
        ("external_directory", _) => draft.refuse_path(source, Place::Hide, &directory(pattern), ""),
        (_, Place::ToolAllow) => {
            draft.report(source, Became::Kept, &[], "a tool is there unless it is refused")
        }
        (tool, place) => {
            let why = "its pattern is not known here, so the tool as a whole is meant";
            let rules: Vec<(Place, String)> = names(tool).into_iter().map(|name| (place, name)).collect();
            draft.convert(source, &rules, why);
        }
    }
}
