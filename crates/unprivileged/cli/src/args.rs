//! The command line as it is typed. Values are checked by the verbs, which know what they mean.
use crate::commands::{
    a2a::A2aArgs,
    acp::AcpArgs,
    apply::ApplyArgs,
    approvals::ApprovalsArgs,
    attach::AttachArgs,
    audit::AuditArgs,
    batch::BatchArgs,
    bench::BenchArgs,
    bench_spawner::BenchSpawnerArgs,
    cache::CacheArgs,
    can_i::CanIArgs,
    completions::CompletionsArgs,
    context::ContextArgs,
    cp::CpArgs,
    daemon::DaemonArgs,
    demo::DemoArgs,
    diff::DiffArgs,
    doctor::DoctorArgs,
    egress::EgressArgs,
    exec::ExecArgs,
    explain::ExplainArgs,
    export::ExportArgs,
    fork::ForkArgs,
    grant::GrantArgs,
    inspect::InspectArgs,
    learn::LearnArgs,
    live::{AllowArgs, DenyArgs},
    logs::LogsArgs,
    ls::LsArgs,
    man::ManArgs,
    mcp::McpArgs,
    policy::PolicyArgs,
    port::PortArgs,
    preset::PresetArgs,
    profile::ProfileArgs,
    prune::PruneArgs,
    ps::PsArgs,
    recover::RecoverArgs,
    restore::RestoreArgs,
    rm::RmArgs,
    run_args::RunArgs,
    say::{InterruptArgs, SayArgs},
    seal::SealArgs,
    secret::SecretArgs,
    serve::ServeArgs,
    snapshot::{RollbackArgs, SnapshotArgs, SnapshotsArgs},
    spawn::SpawnArgs,
    spawner::SpawnerArgs,
    stats::StatsArgs,
    steer::{KillArgs, PauseArgs, ResumeArgs, StopArgs, WaitArgs},
    token::TokenArgs,
    top::TopArgs,
    version::VersionArgs,
    whoami::WhoamiArgs,
    why::WhyArgs,
};
use crate::render;
use bastle_contract::{Code, ExitCode, Fault};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};

const AFTER: &str = "\
Examples:
  bastle run -- claude                 run an agent inside the fence
  bastle can-i write ./src/main.rs     ask the policy (exit 0 allow, 1 deny, 10 ask)
  bastle why                           explain the last denial
  bastle doctor                        what this host can enforce

Exit codes: 0 ok, 1 failed or denied, 2 usage, 3 not found, 10 would ask.
`run` gives the command's own code; 75 budget, 124 timeout, 125 bastle failed, 126 and 127 not executed.";

/// Run AI coding agents inside a kernel-enforced fence.
#[derive(Debug, Parser)]
#[command(name = "bastle", version, after_help = AFTER, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every verb has.
#[derive(Debug, clap::Args)]
pub(crate) struct Everywhere {
    /// When to use colour: auto, always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub(crate) color: ColorWhen,
    /// The daemon that verbs speak to: unix:///PATH, https://HOST:PORT (before BASTLE_HOST and the context)
    #[arg(long, global = true, value_name = "ADDRESS", hide_short_help = true)]
    pub(crate) host: Option<String>,
}

/// The same with one verb: describing all of them takes longer than reading a policy, and only help and errors need it.
#[derive(Debug, Parser)]
#[command(name = "bastle")]
struct RunAlone {
    #[command(flatten)]
    everywhere: Everywhere,
    #[command(subcommand)]
    command: OnlyRun,
}

/// That verb.
#[derive(Debug, Subcommand)]
enum OnlyRun {
    /// Run a command inside the fence
    Run(RunArgs),
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR or TERM=dumb says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value per process")]
pub(crate) enum Command {
    /// Run a command inside the fence
    Run(RunArgs),
    /// Watch a scripted agent work, attack and fail, in a throw-away project
    Demo(DemoArgs),
    /// Show what this host can enforce, and how to fix what it cannot
    Doctor(DoctorArgs),
    /// Show, check and compare policies
    Policy(PolicyArgs),
    /// Ask whether the policy allows something (exit 0 allow, 1 deny, 10 ask)
    CanI(CanIArgs),
    /// Explain a denial or a decision
    Why(WhyArgs),
    /// List runs that have a copy
    Ls(LsArgs),
    /// Show what a run changed in its copy, and what the import gate says
    Diff(DiffArgs),
    /// Bring a run's changes to the project, a branch or a patch; or take them back
    Apply(ApplyArgs),
    /// Keep a run's copy as it is now
    Snapshot(SnapshotArgs),
    /// List the kept states of a run's copy
    Snapshots(SnapshotsArgs),
    /// Make a run's copy what it was at a snapshot
    Rollback(RollbackArgs),
    /// Make the copy of a new run from a state of another
    Fork(ForkArgs),
    /// End an interrupted apply, or write out what applies replaced
    Recover(RecoverArgs),
    /// Write a run's work to an archive
    Export(ExportArgs),
    /// Make a signed statement of a finished run, or check one
    Seal(SealArgs),
    /// Remove a run's copy to the trash, unless work would be lost
    Rm(RmArgs),
    /// Take a removed run back out of the trash
    Restore(RestoreArgs),
    /// Remove old copies whose work is elsewhere, and empty the trash
    Prune(PruneArgs),
    /// List runs that live, and with -a those in the background that ended
    Ps(PsArgs),
    /// Show what a run in the background prints, or what happened to it
    Logs(LogsArgs),
    /// Sit down at a run in the background
    Attach(AttachArgs),
    /// Ask runs to end, and kill them after a grace
    Stop(StopArgs),
    /// End runs at once
    Kill(KillArgs),
    /// Say something to a driven agent, also while it works
    Say(SayArgs),
    /// Have a driven agent stop what it does; its run goes on
    Interrupt(InterruptArgs),
    /// Serve an editor: it speaks the Agent Client Protocol, a fenced agent does the work
    Acp(AcpArgs),
    /// Make runs stand still
    Pause(PauseArgs),
    /// Let runs go on
    Resume(ResumeArgs),
    /// Wait for the end of a run in the background
    Wait(WaitArgs),
    /// Show everything that is known of a run in the background
    Inspect(InspectArgs),
    /// Run a further command in a living run, in the same fence
    Exec(ExecArgs),
    /// Copy a file into or out of a living run
    Cp(CpArgs),
    /// Reach a server inside a living run at an address here
    Port(PortArgs),
    /// Allow a living run a host, or answer its question
    Allow(AllowArgs),
    /// Deny a living run a host, or answer its question
    Deny(DenyArgs),
    /// Grant a living run a file or directory
    Grant(GrantArgs),
    /// Take back a path or a rule that was granted, allowed or denied while the run lives
    Revoke(DenyArgs),
    /// Propose rules from what a run that learned did
    Learn(LearnArgs),
    /// Start, stop and show the daemon that keeps many runs
    Daemon(DaemonArgs),
    /// Start many runs at once, kept by the daemon
    Spawn(SpawnArgs),
    /// Show runs that were asked for together
    Batch(BatchArgs),
    /// Show the fleet on one screen
    Top(TopArgs),
    /// Show what runs used and met, summed
    Stats(StatsArgs),
    /// List and answer what runs ask
    Approvals(ApprovalsArgs),
    /// Make, list and revoke tokens for the daemon's API
    Token(TokenArgs),
    /// Show who the daemon takes you for, and the most you may give to a run
    Whoami(WhoamiArgs),
    /// Cards of the daemon for other agents (A2A)
    #[command(name = "a2a")]
    A2a(A2aArgs),
    /// List, show, keep and start from presets
    Preset(PresetArgs),
    /// Agents as data: list, show, keep and remove profiles
    Profile(ProfileArgs),
    /// Name daemons and choose one
    Context(ContextArgs),
    /// Run the egress proxy by itself, in front of other sandboxes
    Egress(EgressArgs),
    /// Run the daemon here: REST, WebSocket and events, on this machine only unless told otherwise
    Serve(ServeArgs),
    /// Offer the daemon's runs as tools of the Model Context Protocol, on standard input and output
    Mcp(McpArgs),
    /// Run the daemon that makes sandboxes for users that its ceiling names
    Spawner(SpawnerArgs),
    /// Keep secrets that agents never see
    Secret(SecretArgs),
    /// List, merge and remove caches that runs share
    Cache(CacheArgs),
    /// List, show, verify and export audit logs
    Audit(AuditArgs),
    /// Explain an error code
    Explain(ExplainArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them
    Man(ManArgs),
    /// Print the version
    Version(VersionArgs),
    #[command(name = "__bench-spawner", hide = true)]
    BenchSpawner(BenchSpawnerArgs),
    #[command(name = "__bench-policy", hide = true)]
    BenchPolicy(BenchArgs),
}

/// What came of reading the arguments.
pub(crate) enum Parsed {
    /// A verb.
    Command(Box<Cli>),
    /// Nothing to do: help, version or a usage error was told.
    Ended(u8),
}

/// Reads the arguments. Usage errors end with 2, those of `run` with 125: there, 2 would be the agent's own code.
pub(crate) fn parse(words: Vec<OsString>) -> Parsed {
    // Where this fails, all verbs are described, and the same failure is told in full.
    if verb(&words).is_some_and(|verb| verb == "run")
        && let Ok(RunAlone {
            everywhere,
            command: OnlyRun::Run(args),
        }) = RunAlone::try_parse_from(&words)
    {
        return Parsed::Command(Box::new(Cli {
            everywhere,
            command: Command::Run(args),
        }));
    }
    let mut command = Cli::command().color(color_of(&words));
    let read = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let error = match read {
        Ok(cli) => return Parsed::Command(Box::new(cli)),
        Err(error) => error,
    };
    let told = if error.use_stderr() && asks_json(&words) {
        let text = error.to_string();
        let what = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned();
        let fault = Fault::new(Code::UsageArgument, what, "").help("bastle help");
        eprintln!("{}", render::json(&render::fault_json(&fault)));
        Ok(())
    } else {
        error.print()
    };
    match (error.exit_code(), told) {
        (0, Ok(())) => Parsed::Ended(0),
        (0, Err(_)) => Parsed::Ended(1),
        _ if verb(&words).is_some_and(|verb| verb == "run" || verb == "exec") => {
            Parsed::Ended(ExitCode::Failed as u8)
        }
        _ => Parsed::Ended(2),
    }
}

/// The words before `--`, without the program's name.
fn own_words(words: &[OsString]) -> impl Iterator<Item = &OsStr> {
    words
        .iter()
        .skip(1)
        .map(OsString::as_os_str)
        .take_while(|word| *word != "--")
}

fn asks_json(words: &[OsString]) -> bool {
    own_words(words).any(|word| word == "--json")
}

/// The first word that is no option of the program itself.
fn verb(words: &[OsString]) -> Option<&OsStr> {
    let mut words = own_words(words);
    while let Some(word) = words.next() {
        if word == "--color" || word == "--host" {
            words.next()?;
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return Some(word);
        }
    }
    None
}

/// Help and usage errors are painted before the arguments are read, so the choice is looked up by hand.
fn color_of(words: &[OsString]) -> clap::ColorChoice {
    let mut words = own_words(words);
    while let Some(word) = words.next() {
        let value = match word.to_str() {
            Some("--color") => words.next().and_then(OsStr::to_str),
            Some(word) => word.strip_prefix("--color="),
            None => None,
        };
        match value {
            Some("always") => return clap::ColorChoice::Always,
            Some("never") => return clap::ColorChoice::Never,
            Some(_) | None => {}
        }
    }
    clap::ColorChoice::Auto
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("bastle")
            .chain(line.split(' '))
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_use_of_run_never_looks_like_an_exit_code_of_the_agent() {
        let code = |line: &str| match parse(words(line)) {
            Parsed::Ended(code) => Some(code),
            Parsed::Command(_) => None,
        };
        assert_eq!(code("run --no-such-flag -- true"), Some(125));
        assert_eq!(code("--color never run --no-such-flag"), Some(125));
        assert_eq!(code("explain --no-such-flag run"), Some(2));
        assert_eq!(code("rnu"), Some(2));
    }

    #[test]
    fn run_is_read_alone_as_it_is_read_among_all_verbs() {
        for line in [
            "run -- true",
            "run true --json -- x",
            "--color never run --quiet --net none -- ./true",
            "--host unix:///x run --color always --json -d --tag a --tag b -- sh -c x",
            "run --ro /a --rw b --hide c --env A=b --timeout 5s --mem 1GiB --dry-run-policy -- x --help",
            "run --policy p --preset dev --allow-net a.example --deny-net b.example:1 --unprotect q -- x",
            "run --learn=f -- x",
            "run --help",
            "run --no-such-flag -- x",
            "run",
            "run --net",
            "run --quiet --quiet -- x",
            "runs -- x",
        ] {
            let words = words(line);
            let alone = RunAlone::try_parse_from(&words).ok().map(|read| {
                let OnlyRun::Run(args) = read.command;
                format!("{:?} {args:?}", read.everywhere)
            });
            let among_all = Cli::try_parse_from(&words)
                .ok()
                .and_then(|read| match read.command {
                    Command::Run(args) => Some(format!("{:?} {args:?}", read.everywhere)),
                    _ => None,
                });
            assert_eq!(alone, among_all, "{line}");
        }
    }

    #[test]
    fn what_stands_behind_the_two_dashes_belongs_to_the_agent() {
        assert!(!asks_json(&words("run -- tool --json")));
        assert_eq!(verb(&words("--color always can-i")), Some(OsStr::new("can-i")));
        assert_eq!(
            color_of(&words("run -- x --color=always")),
            clap::ColorChoice::Auto
        );
    }
}
