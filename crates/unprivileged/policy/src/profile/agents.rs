//! What is known of agents: how each takes a model, tools and turns, and which of its switches give up its own questions.
//!
//! **Trust:** data of this binary. An agent that is not listed is a plain command: nothing is added to its command line.

/// One agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent {
    /// Its name in profiles.
    pub(super) name: &'static str,
    /// The switch before a model's name.
    pub(super) model: Option<&'static str>,
    /// The same where it is driven; without: its driver tells it, or its settings do.
    pub(super) driven_model: Option<&'static str>,
    /// The switches before a list of tools: allowed, denied.
    pub(super) tools: Option<(&'static str, &'static str)>,
    /// The switch before the number of turns.
    pub(super) turns: Option<&'static str>,
    /// Switches that make it act without asking.
    pub(super) skips: &'static [&'static str],
}

const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        model: Some("--model"),
        driven_model: Some("--model"),
        tools: Some(("--allowedTools", "--disallowedTools")),
        turns: Some("--max-turns"),
        skips: &[
            "--dangerously-skip-permissions",
            "--allow-dangerously-skip-permissions",
            "bypassPermissions",
            "--permission-mode=bypassPermissions",
        ],
    },
    Agent {
        name: "codex",
        model: Some("--model"),
        driven_model: None,
        tools: None,
        turns: None,
        skips: &[
            "--dangerously-bypass-approvals-and-sandbox",
            "--yolo",
            "danger-full-access",
            "--sandbox=danger-full-access",
        ],
    },
    Agent {
        name: "opencode",
        model: Some("--model"),
        driven_model: None,
        tools: None,
        turns: None,
        skips: &["--dangerously-skip-permissions", "--yolo"],
    },
    Agent {
        name: "gemini",
        model: Some("--model"),
        driven_model: Some("--model"),
        tools: None,
        turns: None,
        skips: &["--yolo", "-y", "yolo", "--approval-mode=yolo"],
    },
    Agent {
        name: "aider",
        model: Some("--model"),
        driven_model: None,
        tools: None,
        turns: None,
        skips: &["--yes-always", "--yes"],
    },
    Agent {
        name: "shell",
        model: None,
        driven_model: None,
        tools: None,
        turns: None,
        skips: &[],
    },
];

/// The agent of this name, if it is known.
pub(super) fn find(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().find(|agent| agent.name == name)
}
