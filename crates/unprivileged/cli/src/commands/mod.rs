//! The verbs. Each reads its arguments, asks the library crates and returns an exit code.
pub(crate) mod a2a;
pub(crate) mod acp;
pub(crate) mod apply;
pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod attach;
pub(crate) mod audit;
mod audit_files;
pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod bench_spawner;
pub(crate) mod cache;
pub(crate) mod can_i;
pub(crate) mod ceiling;
pub(crate) mod completions;
pub(crate) mod context;
pub(crate) mod cp;
pub(crate) mod daemon;
pub(crate) mod demo;
mod detach;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod egress;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod grant;
pub(crate) mod host;
pub(crate) mod inspect;
mod kept;
mod launch_approval;
pub(crate) mod learn;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod port;
pub(crate) mod preset;
pub(crate) mod profile;
pub(crate) mod prune;
pub(crate) mod ps;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod review;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod run_args;
mod run_copying;
pub(crate) mod run_voice;
pub(crate) mod runs;
pub(crate) mod say;
pub(crate) mod seal;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod source;
pub(crate) mod spawn;
pub(crate) mod spawner;
pub(crate) mod stats;
pub(crate) mod steer;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod version;
pub(crate) mod whoami;
pub(crate) mod why;

use crate::args::Command;
use crate::context::Format;

/// Whether a verb may read or write a project or a run of this host: an interrupted apply is ended before it.
pub(crate) fn uses_projects(command: &Command) -> bool {
    !matches!(
        command,
        // Ends it in the way that a person chooses.
        Command::Recover(_)
            // Looks at its own project when it knows which one that is, and tells at its own place.
            | Command::Run(_)
            // Ends it at the start of the daemon.
            | Command::Serve(_)
            | Command::BenchPolicy(_)
            | Command::BenchSpawner(_)
            | Command::Completions(_)
            | Command::Context(_)
            | Command::Egress(_)
            | Command::Man(_)
            | Command::Spawner(_)
            | Command::Version(_)
    )
}

/// Whether a verb was asked for JSON; its errors then are JSON too.
pub(crate) fn format_of(command: &Command) -> Format {
    let json = match command {
        Command::Policy(args) => args.json(),
        Command::CanI(args) => args.json,
        Command::Why(args) => args.json,
        Command::Audit(args) => args.json(),
        Command::Explain(args) => args.json,
        Command::Version(args) => args.json,
        Command::Allow(args) => args.json,
        Command::Deny(args) | Command::Revoke(args) => args.json,
        Command::Grant(args) => args.json,
        Command::Ps(args) => args.json,
        Command::Logs(args) => args.json,
        Command::Stop(args) => args.json,
        Command::Kill(args) => args.json,
        Command::Pause(args) => args.json,
        Command::Resume(args) => args.pause.json,
        Command::Wait(args) => args.json,
        Command::Inspect(args) => args.json,
        Command::Cp(args) => args.json,
        Command::Port(args) => args.json,
        Command::Secret(args) => args.json(),
        Command::Cache(args) => args.json(),
        Command::Ls(args) => args.json,
        Command::Diff(args) => args.json,
        Command::Apply(args) => args.json,
        Command::Snapshot(args) => args.json,
        Command::Snapshots(args) => args.json,
        Command::Rollback(args) => args.json,
        Command::Fork(args) => args.json,
        Command::Recover(args) => args.json,
        Command::Export(args) => args.json,
        Command::Seal(args) => args.json,
        Command::Say(args) => args.json,
        Command::Interrupt(args) => args.json,
        Command::Rm(args) => args.json,
        Command::Restore(args) => args.json,
        Command::Prune(args) => args.json,
        Command::Learn(args) => args.json(),
        Command::Daemon(args) => args.json(),
        Command::Spawn(args) => args.json,
        Command::Batch(args) => args.json(),
        Command::Top(args) => args.json,
        Command::Stats(args) => args.json,
        Command::Approvals(args) => args.json(),
        Command::Token(args) => args.json(),
        Command::Whoami(args) => args.json,
        Command::Preset(args) => args.json(),
        Command::Profile(args) => args.json(),
        Command::Context(args) => args.json(),
        // The first three report by themselves; the others have no JSON.
        Command::Run(_)
        | Command::Exec(_)
        | Command::Demo(_)
        | Command::Doctor(_)
        | Command::Egress(_)
        | Command::Serve(_) => false,
        Command::A2a(_) => true,
        Command::Acp(_)
        | Command::Attach(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Mcp(_)
        | Command::BenchPolicy(_)
        | Command::BenchSpawner(_)
        | Command::Spawner(_) => false,
    };
    if json { Format::Json } else { Format::Human }
}
