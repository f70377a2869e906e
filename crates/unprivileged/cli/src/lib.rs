//! The bastle command line: reads arguments, asks the other crates, shows the answer.
//!
//! **Trust:** runs as the invoking user. Arguments and environment are the user's own; policy files of a
//! workspace, audit logs and everything an agent said are untrusted and are shown escaped.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod render;

pub use bastle_control::{EGRESS_VERB, SPAWNER_VERB, offer_spawner};

pub use bastle_control::{StandaloneRequest, StandaloneWish};
pub use commands::egress::{ServeStandalone, offer_standalone};

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
        Command::Ps(args) => commands::live::ps(&args, &cx),
        Command::Allow(args) => commands::live::allow(&args, &cx),
        Command::Deny(args) => commands::live::deny(&args, &cx),
        Command::Revoke(args) => commands::live::revoke(&args, &cx),
        Command::Learn(args) => commands::learn::run(args, &cx),
        Command::Egress(args) => commands::egress::run(&args, &cx),
        Command::Secret(args) => commands::secret::run(args, &cx),
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
