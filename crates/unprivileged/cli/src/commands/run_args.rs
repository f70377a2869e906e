//! What may be typed after `bastle run`, and what it means. The operator's own word: trusted, but checked.
//!
//! Flags that speak about policy become one `agent-permissions` document, so that a flag and a file are read,
//! checked and explained by the same code. Every long flag has a variable `BASTLE_<FLAG>` (a flag that repeats
//! takes one value from it), except those that give protection up: they are for the command line alone.
mod limits;
mod network;
mod paths;
mod variables;

pub(crate) use variables::variable;

use bastle_contract::egress::BudgetKind;
use bastle_contract::{AbsPath, Argv, Code, Fault, RunId, Stdio, Waiver};
use bastle_control::workspaces::{self, Which, WorkMode};
use bastle_control::{AFTERWARDS, Sources, review};
use bastle_policy::SandboxMode;
use clap::builder::FalseyValueParser;
pub(crate) use network::NetArgs;
use paths::{absolute, pattern};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Runs a command inside the fence.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  bastle run -- claude                       fence an agent in this project
  bastle run --preset dev -- cargo test      toolchains of the home directory readable
  bastle run --rw ../shared --timeout 30m -- make
  bastle run --allow-net example.com -- curl https://example.com/
  bastle run --secret GH_TOKEN=store:gh@api.github.com -- gh pr list
  bastle run --dry-run-policy -- claude      show the plan, execute nothing
  bastle run -d --tag task=login -- claude -p 'fix the login test'

Exit codes: the command's own; 124 timeout; 125 bastle failed (also wrong use and bad policy);
126 cannot be executed; 127 not found; 128+N killed by signal N; 77 denials with --fail-on-deny;
75 a budget is used up.")]
pub(crate) struct RunArgs {
    /// Preset to start from; `none` refuses the one an agent brings; see `bastle preset ls`
    #[arg(
        long,
        value_name = "NAME[@VERSION]",
        env = "BASTLE_PRESET",
        help_heading = "Policy"
    )]
    pub(crate) preset: Option<String>,
    /// Policy file, taken as your own word (repeatable)
    #[arg(long, value_name = "FILE", env = "BASTLE_POLICY", help_heading = "Policy")]
    pub(crate) policy: Vec<PathBuf>,
    /// read-only | workspace-write | danger-full-access (refused: see --backend host)
    #[arg(long, value_name = "MODE", env = "BASTLE_SANDBOX", help_heading = "Policy")]
    pub(crate) sandbox: Option<String>,
    /// Path the agent may read (repeatable)
    #[arg(long, value_name = "PATH", env = "BASTLE_RO", help_heading = "Policy")]
    pub(crate) ro: Vec<PathBuf>,
    /// Path the agent may read and write (repeatable)
    #[arg(long, value_name = "PATH", env = "BASTLE_RW", help_heading = "Policy")]
    pub(crate) rw: Vec<PathBuf>,
    /// Path or pattern the agent never sees (repeatable)
    #[arg(long, value_name = "PATH", env = "BASTLE_HIDE", help_heading = "Policy")]
    pub(crate) hide: Vec<String>,
    /// Cache kept between runs: cargo, npm, yarn, pip, uv, go (repeatable)
    #[arg(long, value_name = "NAME", env = "BASTLE_CACHE", help_heading = "Policy")]
    pub(crate) cache: Vec<String>,
    /// Open one file of the hard floor, or a directory spelt 'DIR/**' (repeatable; command line only)
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) unprotect: Vec<PathBuf>,
    /// Give the copy a repository with one commit and no hidden names instead of the project's history
    #[arg(long, help_heading = "Policy")]
    pub(crate) hide_history: bool,
    /// Let the project's own policy file widen the policy (command line only)
    #[arg(long, help_heading = "Policy")]
    pub(crate) allow_user_expansion: bool,
    /// Show what would be enforced, execute nothing
    #[arg(long, env = "BASTLE_DRY_RUN_POLICY", value_parser = FalseyValueParser::new(), help_heading = "Policy")]
    pub(crate) dry_run_policy: bool,

    /// Variable for the agent; without a value yours is taken (repeatable)
    #[arg(
        short,
        long,
        value_name = "NAME[=VALUE]",
        env = "BASTLE_ENV",
        hide_env_values = true,
        help_heading = "Environment"
    )]
    pub(crate) env: Vec<String>,
    /// File of NAME=VALUE lines (repeatable)
    #[arg(
        long,
        value_name = "FILE",
        env = "BASTLE_ENV_FILE",
        help_heading = "Environment"
    )]
    pub(crate) env_file: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) net: NetArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// copy | overlay | worktree | in-place (default: a copy in a git repository, else in-place)
    #[arg(long, value_name = "MODE", env = "BASTLE_WORKSPACE", help_heading = "Run")]
    pub(crate) workspace: Option<String>,
    /// Name of the agent's branch after `AGENT/` (default: the name of the run)
    #[arg(long, value_name = "NAME", env = "BASTLE_BRANCH", help_heading = "Run")]
    pub(crate) branch: Option<String>,
    /// Begin with the tree of another run, as it is or as it was at a snapshot
    #[arg(
        long,
        value_name = "RUN[@SNAPSHOT]",
        env = "BASTLE_FROM",
        help_heading = "Run"
    )]
    pub(crate) from: Option<String>,
    /// The project (default: the git root above the current directory, else the current directory)
    #[arg(long, value_name = "DIR", env = "BASTLE_WORKSPACE_DIR", help_heading = "Run")]
    pub(crate) workspace_dir: Option<PathBuf>,
    /// auto | native | host; auto is native, never host
    #[arg(long, value_name = "KIND", env = "BASTLE_BACKEND", help_heading = "Run")]
    pub(crate) backend: Option<String>,
    /// Consent to run without a fence; only with --backend host (command line only)
    #[arg(long, help_heading = "Run")]
    pub(crate) i_understand_this_is_not_a_fence: bool,
    /// Name of the run
    #[arg(long, value_name = "NAME", env = "BASTLE_NAME", help_heading = "Run")]
    pub(crate) name: Option<String>,
    /// Run in the background: prints the name and returns when the agent works
    #[arg(short, long, env = "BASTLE_DETACH", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) detach: bool,
    /// Label of a run in the background (repeatable)
    #[arg(
        long,
        value_name = "KEY=VALUE",
        env = "BASTLE_TAG",
        requires = "detach",
        help_heading = "Run"
    )]
    pub(crate) tag: Vec<String>,
    /// Questions of a run in the background wait for `bastle allow`; else they are answered with no
    #[arg(long, env = "BASTLE_ATTENDED", value_parser = FalseyValueParser::new(), requires = "detach", help_heading = "Run")]
    pub(crate) attended: bool,
    /// Speak to the agent in its protocol: plain, claude, codex, acp, opencode (with --detach)
    #[arg(
        long,
        value_name = "NAME",
        env = "BASTLE_DRIVER",
        requires = "detach",
        help_heading = "Run"
    )]
    pub(crate) driver: Option<String>,
    /// What the agent is asked first: by its driver, else on its standard input (with --detach)
    #[arg(
        long,
        value_name = "TEXT",
        env = "BASTLE_PROMPT",
        requires = "detach",
        help_heading = "Run"
    )]
    pub(crate) prompt: Option<String>,
    /// With -d its input stays open for `bastle attach`; else standard input is always connected
    #[arg(short, long, env = "BASTLE_INTERACTIVE", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) interactive: bool,
    /// Give the agent a terminal of its own (default when input and output are one)
    #[arg(short, long, env = "BASTLE_TTY", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) tty: bool,
    /// Never give it a terminal
    #[arg(short = 'T', long, env = "BASTLE_NO_TTY", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) no_tty: bool,
    /// Refuse debugging calls between the agent's own processes
    #[arg(long, env = "BASTLE_NO_DEBUGGERS", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) no_debuggers: bool,
    /// Start although another run writes the same place
    #[arg(long, env = "BASTLE_SHARE_WORKSPACE", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) share_workspace: bool,
    /// Approve a command that asks: an ask rule names it, or tier 3 of the danger matrix
    #[arg(long, help_heading = "Run")]
    pub(crate) approve: bool,
    /// Exit 77 when anything was denied
    #[arg(long, env = "BASTLE_FAIL_ON_DENY", value_parser = FalseyValueParser::new(), help_heading = "Run")]
    pub(crate) fail_on_deny: bool,
    /// Say nothing but errors
    #[arg(short, long, env = "BASTLE_QUIET", value_parser = FalseyValueParser::new(), help_heading = "Output")]
    pub(crate) quiet: bool,
    /// One JSON object (bastle.run/v1) on standard output; the agent's output goes to standard error
    #[arg(long, env = "BASTLE_JSON", value_parser = FalseyValueParser::new(), help_heading = "Output")]
    pub(crate) json: bool,

    /// What to run; the first word that is no option ends the options
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Limits, in the units of policy files.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Processors, e.g. 2 or 1.5
    #[arg(long, value_name = "N", env = "BASTLE_CPU", help_heading = "Limits")]
    pub(crate) cpu: Option<f64>,
    /// Memory of the whole run, e.g. 4G
    #[arg(long, value_name = "SIZE", env = "BASTLE_MEM", help_heading = "Limits")]
    pub(crate) mem: Option<String>,
    /// Processes and threads at once
    #[arg(long, value_name = "N", env = "BASTLE_PIDS", help_heading = "Limits")]
    pub(crate) pids: Option<u64>,
    /// Bytes added to the workspace, and size of the private HOME and TMPDIR, e.g. 10G
    #[arg(long, value_name = "SIZE", env = "BASTLE_DISK", help_heading = "Limits")]
    pub(crate) disk: Option<String>,
    /// Wall time, e.g. 30m; then everything in the run is killed
    #[arg(long, value_name = "TIME", env = "BASTLE_TIMEOUT", help_heading = "Limits")]
    pub(crate) timeout: Option<String>,
    /// Distinct workspace files created, changed or removed
    #[arg(long, value_name = "N", env = "BASTLE_MAX_FILES", help_heading = "Limits")]
    pub(crate) max_files: Option<u64>,
    /// Files and directories created
    #[arg(long, value_name = "N", env = "BASTLE_MAX_INODES", help_heading = "Limits")]
    pub(crate) max_inodes: Option<u64>,
    /// Bytes written to workspace files in all
    #[arg(
        long,
        value_name = "SIZE",
        env = "BASTLE_MAX_WRITTEN",
        help_heading = "Limits"
    )]
    pub(crate) max_written: Option<String>,
    /// Output passed on; the rest is discarded
    #[arg(long, value_name = "SIZE", env = "BASTLE_MAX_OUTPUT", help_heading = "Limits")]
    pub(crate) max_output: Option<String>,
    /// Open descriptors of one process
    #[arg(long, value_name = "N", env = "BASTLE_OPEN_FILES", help_heading = "Limits")]
    pub(crate) open_files: Option<u64>,
    /// Give a limit up that this host cannot hold, a budget (turns, tokens, usd) that cannot be counted, or landlock where the
    /// kernel has none (repeatable)
    #[arg(long, value_name = "LIMIT", env = "BASTLE_WAIVE", help_heading = "Limits")]
    pub(crate) waive: Vec<String>,
}

/// Which backend was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The fence.
    Native,
    /// None, with consent.
    Host,
}

impl RunArgs {
    /// What these flags say about policy.
    pub(crate) fn sources(&self, here: &Path, home: &AbsPath) -> Result<Sources, Vec<Fault>> {
        self.work_mode().map_err(|fault| vec![fault])?;
        let preset = self.chosen_preset().map_err(|fault| vec![fault])?;
        let unprotect = self
            .unprotect
            .iter()
            .map(|path| Ok(bastle_control::opened_path(&absolute(path, here, home)?)))
            .collect::<Result<_, _>>();
        let document = self.document(here, home).map_err(|fault| vec![fault])?;
        let mut flags = document
            .map(|text| bastle_policy::parse("command line", text.as_bytes()))
            .transpose()?;
        if let Some(mode) = self.net.mode().map_err(|fault| vec![fault])? {
            // No file can say this, so it has no text.
            flags.get_or_insert_default().net.mode = Some(bastle_policy::At::nowhere(mode));
        }
        Ok(Sources {
            scopes: Vec::new(),
            preset,
            argv: Vec::new(),
            files: self.policy.clone(),
            flags,
            expand: self.allow_user_expansion,
            unprotect: unprotect.map_err(|fault| vec![fault])?,
            learn: self.net.learn.is_some(),
            waived: network::waived(&self.limits.waive),
            ..Sources::default()
        })
    }

    /// How the workspace is handed over; `None`: as fits the project.
    pub(crate) fn work_mode(&self) -> Result<Option<WorkMode>, Fault> {
        let Some(word) = self.workspace.as_deref() else {
            return Ok(None);
        };
        match workspaces::mode(word) {
            Some(mode) => Ok(Some(mode)),
            None => Err(usage(
                format!("there is no workspace mode {word:?}"),
                "modes are copy, overlay, worktree and in-place",
            )
            .help("leave --workspace out: a git repository is copied, anything else is used in place")),
        }
    }

    /// The run and snapshot whose tree this run begins with.
    pub(crate) fn origin(&self) -> Result<Option<(&str, Which)>, Fault> {
        let Some(text) = self.from.as_deref() else {
            return Ok(None);
        };
        match text.rsplit_once('@') {
            Some((run, snapshot)) if !run.is_empty() => {
                review::read_which(snapshot).map(|which| Some((run, which)))
            }
            Some(_) | None => Ok(Some((text, Which::Last))),
        }
    }

    fn chosen_preset(&self) -> Result<Option<String>, Fault> {
        let Some(word) = &self.sandbox else {
            return Ok(self.preset.clone());
        };
        let meant = bastle_policy::sandbox_preset(SandboxMode::parse(word)?)?;
        match &self.preset {
            Some(preset) if preset.split('@').next() != Some(meant) => {
                let what = format!("--sandbox {word} and --preset {preset} contradict each other");
                Err(
                    usage(what, format!("--sandbox {word} stands for --preset {meant}"))
                        .help("name one of them"),
                )
            }
            Some(preset) => Ok(Some(preset.clone())),
            None => Ok(Some(meant.to_owned())),
        }
    }

    /// The flags as a policy document, or `None` when they say nothing.
    pub(super) fn document(&self, here: &Path, home: &AbsPath) -> Result<Option<String>, Fault> {
        let mut fs = Map::new();
        // The path itself and, where it is a symlink, the place it leads to: one without the other is a dead end.
        let existing = |paths: &[PathBuf]| -> Result<Vec<Value>, Fault> {
            let mut found = Vec::new();
            for path in paths {
                let typed = absolute(path, here, home)?;
                let real = std::fs::canonicalize(typed.as_path())
                    .map_err(|error| usage(format!("cannot grant {}", path.display()), error.to_string()))?;
                let real =
                    AbsPath::from_path(&real).map_err(|error| usage("unusable path", error.to_string()))?;
                for path in [typed, real] {
                    let value = Value::String(path.to_string());
                    if !found.contains(&value) {
                        found.push(value);
                    }
                }
            }
            Ok(found)
        };
        if !self.ro.is_empty() {
            fs.insert("read".to_owned(), Value::Array(existing(&self.ro)?));
        }
        if !self.rw.is_empty() {
            fs.insert("write".to_owned(), Value::Array(existing(&self.rw)?));
        }
        if !self.hide.is_empty() {
            let hidden = self
                .hide
                .iter()
                .map(|path| pattern(path, here, home))
                .collect::<Result<Vec<_>, _>>()?;
            fs.insert("hide".to_owned(), json!(hidden));
        }
        let limits = self.limits.document();
        let network = self.net.sections()?;
        if fs.is_empty() && limits.is_empty() && network.is_empty() && self.cache.is_empty() {
            return Ok(None);
        }
        let mut document = Map::from_iter([("version".to_owned(), json!(1))]);
        for (key, section) in [("fs", fs), ("limits", limits)] {
            if !section.is_empty() {
                document.insert(key.to_owned(), Value::Object(section));
            }
        }
        if !self.cache.is_empty() {
            document.insert("cache".to_owned(), json!(self.cache));
        }
        for (key, section) in network {
            document.insert(key.to_owned(), section);
        }
        // One value per line, so that a message points at the flag's own value.
        serde_json::to_string_pretty(&Value::Object(document))
            .map(Some)
            .map_err(|error| usage("unusable flags", error.to_string()))
    }

    /// Where the run is to be enforced.
    pub(crate) fn chosen_backend(&self) -> Result<Backend, Fault> {
        let consent = self.i_understand_this_is_not_a_fence;
        match self.backend.as_deref() {
            None | Some("auto" | "native") if !consent => Ok(Backend::Native),
            None | Some("auto" | "native") => Err(usage(
                "--i-understand-this-is-not-a-fence belongs to --backend host",
                "the native backend is a fence, and auto never chooses another",
            )),
            Some("host") if consent => Ok(Backend::Host),
            Some("host") => Err(Fault::new(
                Code::HostSoft,
                "--backend host is not a fence",
                "nothing is enforced by the kernel; it needs your consent on the command line",
            )
            .help("bastle run --backend host --i-understand-this-is-not-a-fence -- CMD")),
            Some(other) => Err(Fault::new(
                Code::FenceBackend,
                format!("there is no backend {other:?}"),
                "this build has native and host",
            )
            .help("leave --backend out: native is the default")),
        }
    }

    /// Terminal or pipes.
    pub(crate) fn stdio(&self) -> Result<Stdio, Fault> {
        match (self.tty, self.no_tty) {
            (true, true) => Err(usage(
                "-t and -T contradict each other",
                "one asks for a terminal, the other refuses it",
            )),
            (false, true) => Ok(Stdio::Pipes),
            (true, false) => Ok(match bastle_control::choose_stdio() {
                Stdio::Pipes => Stdio::Pty { rows: 24, cols: 80 },
                pty @ Stdio::Pty { .. } => pty,
            }),
            (false, false) => Ok(bastle_control::choose_stdio()),
        }
    }

    /// The name of the run.
    pub(crate) fn run_id(&self) -> Result<RunId, Fault> {
        match &self.name {
            Some(name) if name.starts_with(AFTERWARDS) => Err(usage(
                format!("--name {name} cannot be used"),
                format!("names that begin with {AFTERWARDS} are for records of what becomes of a run's work"),
            )),
            Some(name) => RunId::try_from(name.clone())
                .map_err(|error| usage("--name cannot be used", error.to_string())),
            None => bastle_control::new_run_id(),
        }
    }

    /// The command line of the agent.
    pub(crate) fn argv(&self) -> Result<Argv, Fault> {
        let word = |word: &OsString| {
            word.clone().into_string().map_err(|word| {
                usage(
                    format!("argument {word:?} is not UTF-8"),
                    "records and policies hold text",
                )
            })
        };
        let words = self.command.iter().map(word).collect::<Result<Vec<_>, _>>()?;
        Argv::try_from(words).map_err(|error| usage("the command cannot be used", error.to_string()))
    }

    /// What is given up by name.
    pub(crate) fn waivers(&self) -> Result<Vec<Waiver>, Fault> {
        let waiver = |name: &String| {
            Waiver::named(name).ok_or_else(|| {
                let names: Vec<&str> = Waiver::names()
                    .chain(BudgetKind::OF_MODELS.map(BudgetKind::name))
                    .collect();
                usage(format!("--waive {name}: there is no such limit"), "")
                    .help(format!("limits: {}", names.join(", ")))
            })
        };
        let limits = self.limits.waive.iter();
        limits
            .filter(|name| BudgetKind::waivable(name).is_none())
            .map(waiver)
            .collect()
    }
}

/// A wrong use of the command line.
pub(crate) fn usage(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(Code::UsageArgument, what, why)
}
