//! What an editor sends as a prompt, and how tools are named to it.
//!
//! **Trust:** the prompt is the editor's; names of tools are the agent's.
use crate::reading::text;
use serde_json::Value;

/// The text of a prompt: text as it is, files that came along under their names, links as links.
pub(super) fn words(params: &Value) -> String {
    let blocks = params.get("prompt").and_then(Value::as_array);
    let mut parts = Vec::new();
    for block in blocks.into_iter().flatten() {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => parts.extend(block.get("text").and_then(Value::as_str).map(str::to_owned)),
            Some("resource_link") => parts.extend(text(block, "/uri").map(|uri| format!("<{uri}>"))),
            Some("resource") => {
                let uri = text(block, "/resource/uri").unwrap_or_default();
                let whole = block.pointer("/resource/text").and_then(Value::as_str);
                parts.extend(whole.map(|whole| format!("<{uri}>:\n{whole}")));
            }
            Some(_) | None => {}
        }
    }
    parts.join("\n")
}

/// The protocol's word for a kind of tool.
pub(super) fn kind_of(tool: &str) -> &'static str {
    match tool {
        "Bash" | "bash" | "shell" | "command" | "commandExecution" | "execute" => "execute",
        "Read" | "read" => "read",
        "Edit" | "Write" | "MultiEdit" | "edit" | "fileChange" | "file change" => "edit",
        "Grep" | "Glob" | "search" => "search",
        "WebFetch" | "fetch" => "fetch",
        _ => "other",
    }
}
