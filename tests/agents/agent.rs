//! The agents: where each is, how it is started, what its tools are called.
use crate::model::{Call, HOST};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// opencode.
    Opencode,
    /// Gemini CLI.
    Gemini,
    /// aider, which has no tools: what its model says is what it writes.
    Aider,
}

/// What an agent's own permission layer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// To ask for nothing that the tests have it do: the fence is what holds.
    Nothing,
    /// To ask before it runs a command that could do harm.
    Commands,
}

/// Where `cargo xtask test` puts the agents: a directory for each.
fn place() -> PathBuf {
    std::env::var_os("BASTLE_AGENTS").map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("agents"),
        PathBuf::from,
    )
}

/// `PATH` of whoever starts an agent: the Node installed beside the agents first, which is there where the host's is too old.
pub(crate) fn search_path() -> String {
    let node = place().join("node/node_modules/.bin");
    format!("{}:/usr/local/bin:/usr/bin:/bin", node.display())
}

impl Agent {
    /// The directory that it is installed in, or why it is not.
    pub(crate) fn installed(self) -> Result<PathBuf, String> {
        let place = place().join(self.name());
        match self {
            Self::Claude | Self::Codex | Self::Opencode | Self::Gemini => {}
            // Its program is named, or on `PATH`.
            Self::Aider => return Ok(place),
        }
        if place.join("whole").is_file() {
            return place.canonicalize().map_err(|error| error.to_string());
        }
        let why = std::fs::read_to_string(place.join("why"))
            .unwrap_or_else(|_| "`cargo xtask agents` does that".to_owned());
        Err(format!(
            "{} is not installed in {}: {why}",
            self.name(),
            place.display()
        ))
    }

    /// The name of its program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Gemini => "gemini",
            Self::Aider => "aider",
        }
    }

    /// The name of its driver.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            Self::Claude | Self::Codex | Self::Opencode => self.name(),
            Self::Gemini => "acp",
            Self::Aider => "plain",
        }
    }

    /// The variable in which it looks for its key.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Claude => "ANTHROPIC_API_KEY",
            Self::Codex | Self::Opencode => "LAB_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Aider => "OPENAI_API_KEY",
        }
    }

    /// The header in which a model of its kind wants the key.
    pub(crate) fn header(self) -> (&'static str, &'static str) {
        match self {
            Self::Claude => ("x-api-key", "x-api-key: {}"),
            Self::Codex | Self::Opencode | Self::Aider => ("authorization", "Authorization: Bearer {}"),
            Self::Gemini => ("x-goog-api-key", "x-goog-api-key: {}"),
        }
    }

    /// The words that start it, with the model at this port.
    pub(crate) fn words(self, installed: &Path, port: u16, asks: Asks) -> Vec<String> {
        let program = installed.join("node_modules/.bin").join(self.name());
        let mut words = vec![program.to_str().expect("UTF-8").to_owned()];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match self {
            Self::Claude => {
                add(&["-p", "--verbose", "--input-format", "stream-json"]);
                add(&[
                    "--output-format",
                    "stream-json",
                    "--permission-prompt-tool",
                    "stdio",
                ]);
                if asks == Asks::Nothing {
                    add(&["--dangerously-skip-permissions"]);
                }
            }
            Self::Codex => {
                let provider = Self::provider(&format!("https://{HOST}:{port}"));
                add(&[
                    "app-server",
                    "-c",
                    "model=\"lab-model\"",
                    "-c",
                    "model_provider=\"lab\"",
                ]);
                add(&["-c", &provider]);
            }
            Self::Opencode => add(&["acp", "--pure"]),
            Self::Aider => {}
            Self::Gemini => {
                add(&["--experimental-acp", "--model", "gemini-2.5-flash"]);
                if asks == Asks::Nothing {
                    add(&["--approval-mode", "yolo"]);
                }
            }
        }
        words
    }

    /// Variables that it needs.
    pub(crate) fn variables(self, port: u16, asks: Asks) -> Vec<(&'static str, String)> {
        match self {
            Self::Claude => vec![
                ("ANTHROPIC_BASE_URL", format!("https://{HOST}:{port}")),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ],
            Self::Codex => Vec::new(),
            Self::Aider => vec![("OPENAI_API_BASE", format!("https://{HOST}:{port}/v1"))],
            Self::Gemini => vec![("GOOGLE_GEMINI_BASE_URL", format!("https://{HOST}:{port}"))],
            Self::Opencode => {
                let may = match asks {
                    Asks::Nothing => "allow",
                    Asks::Commands => "ask",
                };
                let config = Self::opencode_config(&format!("https://{HOST}:{port}"), may);
                vec![
                    ("OPENCODE_CONFIG_CONTENT", config.to_string()),
                    ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
                    ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
                ]
            }
        }
    }

    /// The model as Codex is told of it.
    pub(crate) fn provider(base: &str) -> String {
        format!(
            "model_providers.lab={{name=\"lab\",base_url=\"{base}/v1\",env_key=\"LAB_KEY\",wire_api=\"responses\"}}"
        )
    }

    /// What opencode is told of the model, and of what it may do without asking.
    pub(crate) fn opencode_config(base: &str, may: &str) -> Value {
        let model = json!({ "limit": { "context": 100_000, "output": 4096 }, "tool_call": true });
        json!({
            "autoupdate": false, "share": "disabled", "snapshot": false,
            "model": "lab/lab-model", "small_model": "lab/lab-model",
            "provider": { "lab": { "npm": "@ai-sdk/openai-compatible", "models": { "lab-model": model },
                "options": { "baseURL": format!("{base}/v1"), "apiKey": "{env:LAB_KEY}" } } },
            "permission": { "bash": may, "edit": "allow", "external_directory": may },
        })
    }

    /// What it calls a tool of a server.
    pub(crate) fn tool_of(self, server: &str, tool: &str) -> String {
        match self {
            Self::Claude => format!("mcp__{server}__{tool}"),
            // Two words on the wire: a namespace and a name in it.
            Self::Codex => format!("mcp__{server}/{tool}"),
            Self::Opencode => format!("{server}_{tool}"),
            Self::Gemini => format!("mcp_{server}_{tool}"),
            Self::Aider => String::new(),
        }
    }

    /// Its tool for something, and what that is told.
    pub(crate) fn call(self, call: &Call) -> (String, Value) {
        let (name, input) = match (self, call) {
            (_, Call::Tool(name, input)) => return (name.clone(), input.clone()),
            (Self::Aider, Call::Shell(_) | Call::Write(..)) => ("", Value::Null),
            (Self::Claude, Call::Shell(command)) => {
                ("Bash", json!({ "command": command, "description": "a command" }))
            }
            (Self::Claude, Call::Write(path, text)) => {
                ("Write", json!({ "file_path": path, "content": text }))
            }
            (Self::Codex, Call::Shell(command)) => ("exec_command", json!({ "cmd": command })),
            // Its own tool takes patches; it is found inside as a command.
            (Self::Codex, Call::Write(path, text)) => {
                let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
                let patch = format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n");
                (
                    "exec_command",
                    json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}EOF\n") }),
                )
            }
            (Self::Gemini, Call::Shell(command)) => (
                "run_shell_command",
                json!({ "command": command, "description": "a command" }),
            ),
            (Self::Gemini, Call::Write(path, text)) => {
                ("write_file", json!({ "file_path": path, "content": text }))
            }
            (Self::Opencode, Call::Shell(command)) => {
                ("bash", json!({ "command": command, "description": "a command" }))
            }
            (Self::Opencode, Call::Write(path, text)) => {
                ("write", json!({ "filePath": path, "content": text }))
            }
        };
        (name.to_owned(), input)
    }
}
