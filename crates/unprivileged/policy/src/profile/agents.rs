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
    /// Its own sandbox, where it has one that cannot be built inside the fence.
    pub(super) inner: Option<Inner>,
    /// Switches that make it act without asking.
    pub(super) skips: &'static [&'static str],
}

/// A sandbox of an agent's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    /// The word after its program for which the switches are meant; without: for all.
    pub(super) verb: Option<&'static str>,
    /// The switches that turn it off. Where it is driven its driver does, if this says so.
    pub(super) off: &'static [&'static str],
    /// Whether its driver turns it off.
    pub(super) by_driver: bool,
    /// What is said about it.
    pub(super) said: &'static str,
}

/// Codex builds it with namespaces, which nobody inside may make: every command would fail. Seen with 0.166.0.
const CODEX: Inner = Inner {
    verb: Some("exec"),
    off: &["--sandbox", "danger-full-access"],
    by_driver: true,
    said: "codex's own sandbox is switched off: it cannot be built inside the fence, which holds in its place",
};
/// The same; it is off unless somebody's settings turn it on.
const CLAUDE: Inner = Inner {
    verb: None,
    off: &["--settings", r#"{"sandbox":{"enabled":false}}"#],
    by_driver: false,
    said: "claude's own sandbox is switched off, whatever its settings say: it cannot be built inside the fence, which \
           holds in its place",
};
/// It starts containers. Its variable counts more than its settings.
const GEMINI: Inner = Inner {
    verb: None,
    off: &[],
    by_driver: false,
    said: "gemini's own sandbox is switched off (GEMINI_SANDBOX=false): it cannot be built inside the fence, which \
           holds in its place",
};

const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        model: Some("--model"),
        driven_model: Some("--model"),
        tools: Some(("--allowedTools", "--disallowedTools")),
        turns: Some("--max-turns"),
        inner: Some(CLAUDE),
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
        inner: Some(CODEX),
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
        inner: None,
        skips: &["--dangerously-skip-permissions", "--yolo"],
    },
    Agent {
        name: "gemini",
        model: Some("--model"),
        driven_model: Some("--model"),
        tools: None,
        turns: None,
        inner: Some(GEMINI),
        skips: &["--yolo", "-y", "yolo", "--approval-mode=yolo"],
    },
    Agent {
        name: "aider",
        model: Some("--model"),
        driven_model: None,
        tools: None,
        turns: None,
        inner: None,
        skips: &["--yes-always", "--yes"],
    },
    Agent {
        name: "shell",
        model: None,
        driven_model: None,
        tools: None,
        turns: None,
        inner: None,
        skips: &[],
    },
];

/// The agent of this name, if it is known.
pub(super) fn find(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().find(|agent| agent.name == name)
}
