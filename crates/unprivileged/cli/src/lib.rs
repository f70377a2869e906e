//! The bastle command line: reads arguments, asks the other crates, shows the answer.
//!
//! **Trust:** runs as the invoking user. Arguments and environment are the user's own; policy files of a
//! workspace, audit logs and everything an agent said are untrusted and are shown escaped.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod fs_client;
mod render;

pub use bastle_control::grants::BROKER_VERB;
pub use bastle_control::{EGRESS_VERB, SPAWNER_VERB, offer_spawner};

pub use bastle_control::{StandaloneRequest, StandaloneWish, Wishes};
pub use commands::egress::{ServeStandalone, offer_standalone};

pub use fs_client::fs_client;

use args::{Cli, Command, Parsed};

/// Runs the command line; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    match args::parse(std::env::args_os().collect()) {
        Parsed::Command(cli) => run(*cli),
        Parsed::Ended(code) => code,
    }
}

fn run(cli: Cli) -> u8 {
    let Cli { color, command } = cli;
    let cx = context::Context::new(color);
    let format = commands::format_of(&command);
    let ended = match command {
        // These three report by themselves: their exit codes follow other rules.
        Command::Run(args) => return commands::run::run(args, &cx),
        Command::Demo(args) => return commands::demo::run(args, &cx),
        Command::Doctor(args) => return commands::doctor::run(args, &cx),
        Command::Policy(args) => commands::policy::run(args, &cx),
        Command::CanI(args) => commands::can_i::run(args, &cx),
        Command::Why(args) => commands::why::run(args, &cx),
        Command::Ls(args) => commands::ls::run(&args, &cx),
        Command::Diff(args) => commands::diff::run(&args, &cx),
        Command::Apply(args) => commands::apply::run(&args, &cx),
        Command::Snapshot(args) => commands::snapshot::take(&args, &cx),
        Command::Snapshots(args) => commands::snapshot::list(&args, &cx),
        Command::Rollback(args) => commands::snapshot::rollback(&args, &cx),
        Command::Fork(args) => commands::fork::run(&args, &cx),
        Command::Export(args) => commands::export::run(&args, &cx),
        Command::Rm(args) => commands::rm::run(&args, &cx),
        Command::Prune(args) => commands::prune::run(&args, &cx),
        Command::Ps(args) => commands::live::ps(&args, &cx),
        Command::Allow(args) => commands::live::allow(&args, &cx),
        Command::Deny(args) => commands::live::deny(&args, &cx),
        Command::Revoke(args) => commands::live::revoke(&args, &cx),
        Command::Grant(args) => commands::grant::run(&args, &cx),
        Command::Learn(args) => commands::learn::run(args, &cx),
        Command::Egress(args) => commands::egress::run(&args, &cx),
        Command::Secret(args) => commands::secret::run(args, &cx),
        Command::Cache(args) => commands::cache::run(args, &cx),
        Command::Audit(args) => commands::audit::run(args, &cx),
        Command::Explain(args) => commands::explain::run(args, &cx),
        Command::Completions(args) => commands::completions::run(&args, &cx),
        Command::Man(args) => commands::man::run(&args, &cx),
        Command::Version(args) => commands::version::run(&args, &cx),
        Command::BenchSpawner(args) => commands::bench_spawner::run(args, &cx),
        Command::BenchPolicy(args) => commands::bench::run(&args, &cx),
    };
    ended.unwrap_or_else(|failed| failed.tell(&cx, format))
}
