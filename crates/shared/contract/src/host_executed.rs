//! One entry of the catalogue of names that programs on the host system execute or obey.
//!
//! **Trust:** a type only. The data and its reader are in the policy crate; the import gate and the list of names
//! protected in place are both made of it, so that the two cannot disagree.
use crate::NamePattern;
use serde::{Deserialize, Serialize};

/// What kind of program executes or obeys a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostExecutedKind {
    /// A version control system reads it as its own data or configuration.
    Vcs,
    /// A hook manager runs it on a version control event.
    VcsHook,
    /// It decides who reviews, what is scanned and what is merged.
    ReviewRules,
    /// A build service runs it.
    Ci,
    /// It describes or performs a deployment.
    Deploy,
    /// An editor, a language server or a cloud workspace obeys it.
    Editor,
    /// A shell, a terminal program or an environment loader runs it.
    Shell,
    /// It selects the interpreter or compiler that runs next.
    VersionManager,
    /// A debugger runs it when it starts.
    Debugger,
    /// Settings, hooks, servers or permissions of an agent.
    AgentSettings,
    /// Text that the next agent takes as instructions.
    AgentInstructions,
    /// Declares packages, scripts or plugins; judged by what changed in it.
    Manifest,
    /// Pins packages to places and digests; judged by what changed in it.
    LockFile,
    /// Configures a package manager.
    PackageManager,
    /// Code that was installed and is run without review.
    InstalledCode,
    /// A build tool runs it.
    Build,
    /// A linter, formatter or generator runs or obeys it.
    DevTool,
    /// A test runner loads it.
    TestRunner,
    /// A task runner runs it.
    TaskRunner,
    /// An interpreter loads it without being asked.
    Interpreter,
    /// A documentation generator runs or obeys it.
    DocsGenerator,
    /// A notebook.
    Notebook,
    /// The system or the desktop runs it.
    SystemUnit,
    /// An archive.
    Archive,
    /// Compiled or serialised code.
    Compiled,
    /// A script that somebody may start by hand.
    Script,
    /// Tools read it and run nothing of it.
    Advisory,
}

impl HostExecutedKind {
    /// The name that the catalogue, `diff` and the API use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vcs => "vcs",
            Self::VcsHook => "vcs-hook",
            Self::ReviewRules => "review-rules",
            Self::Ci => "ci",
            Self::Deploy => "deploy",
            Self::Editor => "editor",
            Self::Shell => "shell",
            Self::VersionManager => "version-manager",
            Self::Debugger => "debugger",
            Self::AgentSettings => "agent-settings",
            Self::AgentInstructions => "agent-instructions",
            Self::Manifest => "manifest",
            Self::LockFile => "lock-file",
            Self::PackageManager => "package-manager",
            Self::InstalledCode => "installed-code",
            Self::Build => "build",
            Self::DevTool => "dev-tool",
            Self::TestRunner => "test-runner",
            Self::TaskRunner => "task-runner",
            Self::Interpreter => "interpreter",
            Self::DocsGenerator => "docs-generator",
            Self::Notebook => "notebook",
            Self::SystemUnit => "system-unit",
            Self::Archive => "archive",
            Self::Compiled => "compiled",
            Self::Script => "script",
            Self::Advisory => "advisory",
        }
    }
}

/// One name, or family of names, with the reason why it is in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostExecuted {
    /// Which paths below a project it names; `DIR/**` names the directory itself and everything below it.
    pub pattern: NamePattern,
    /// The kind.
    pub kind: HostExecutedKind,
    /// One sentence: executed by whom, and when.
    pub reason: String,
    /// Title of the documentation page or manual page that says so.
    pub reference: String,
    /// Whether an agent that works in place may not change it.
    pub protect_in_place: bool,
    /// A path that the pattern names, where its wildcards stand inside a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}
