//! The profiles that are part of this build.
use super::{Profile, read};
use crate::text::nearest;
use bastle_contract::{Code, Fault};

const TEXTS: [(&str, &str); 6] = [
    ("default", include_str!("../../profiles/default.json")),
    ("claude", include_str!("../../profiles/claude.json")),
    ("codex", include_str!("../../profiles/codex.json")),
    ("opencode", include_str!("../../profiles/opencode.json")),
    ("gemini", include_str!("../../profiles/gemini.json")),
    ("aider", include_str!("../../profiles/aider.json")),
];

/// The names of all built-in profiles.
#[must_use]
pub fn builtins() -> Vec<&'static str> {
    TEXTS.iter().map(|(name, _)| *name).collect()
}

/// A built-in profile.
pub fn builtin(name: &str) -> Result<Profile, Fault> {
    let Some((_, text)) = TEXTS.iter().find(|(own, _)| *own == name) else {
        let mut fault = Fault::new(
            Code::PolicyReference,
            format!("no profile is called {name:?}"),
            "",
        );
        if let Some(near) = nearest(name, builtins()) {
            fault = fault.help(format!("did you mean {near}?"));
        }
        return Err(fault.help(format!("built in: {}", builtins().join(", "))));
    };
    read::profile(name, text.as_bytes()).map_err(|found| {
        let why = found.first().map(|d| d.snippet.clone()).unwrap_or_default();
        Fault::new(
            Code::PolicySchema,
            format!("built-in profile {name} is broken"),
            why,
        )
    })
}
