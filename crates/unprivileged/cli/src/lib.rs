//! The bastle command line: reads arguments, asks the other crates, shows the answer.
//!
//! **Trust:** runs as the invoking user. Arguments and environment are the user's own; policy files of a
//! workspace, audit logs and everything an agent said are untrusted and are shown escaped.
#![forbid(unsafe_code)]

mod args;
mod client;
mod commands;
mod context;
mod fs_client;
mod remote;
mod render;

pub use bastle_control::fence_steps::{FENCE_STEPS_VERB, try_fence_steps};
pub use bastle_control::grants::BROKER_VERB;
pub use bastle_control::keeper::{Born, KEEP_VERB, Keeping, MOTHER_VERB, bear};
pub use bastle_control::{EGRESS_VERB, SPAWNER_VERB, has_spawner_daemon, offer_spawner};

pub use bastle_control::{StandaloneRequest, StandaloneWish, Wishes};
pub use commands::egress::{ServeStandalone, offer_standalone};

pub use fs_client::fs_client;

use args::{Cli, Command, Everywhere, Parsed};

/// Runs the command line; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    match args::parse(std::env::args_os().collect()) {
        Parsed::Command(cli) => run(*cli),
        Parsed::Ended(code) => code,
    }
}

fn run(cli: Cli) -> u8 {
    let Cli {
        everywhere: Everywhere { color, host },
        command,
    } = cli;
    client::choose(host);
    let cx = context::Context::new(color);
    let format = commands::format_of(&command);
    if commands::uses_projects(&command) {
        commands::recover::interrupted(&cx);
    }
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
        Command::Recover(args) => commands::recover::run(&args, &cx),
        Command::Export(args) => commands::export::run(&args, &cx),
        Command::Seal(args) => commands::seal::run(&args, &cx),
        Command::Say(args) => commands::say::say(&args, &cx),
        Command::Acp(args) => commands::acp::run(&args, &cx),
        Command::Interrupt(args) => commands::say::interrupt(&args, &cx),
        Command::Rm(args) => commands::rm::run(&args, &cx),
        Command::Restore(args) => commands::restore::run(&args, &cx),
        Command::Prune(args) => commands::prune::run(&args, &cx),
        Command::Ps(args) => commands::ps::run(&args, &cx),
        Command::Logs(args) => commands::logs::run(&args, &cx),
        Command::Attach(args) => commands::attach::run(&args, &cx),
        Command::Stop(args) => commands::steer::stop(&args, &cx),
        Command::Kill(args) => commands::steer::kill(&args, &cx),
        Command::Pause(args) => commands::steer::pause(&args, &cx),
        Command::Resume(args) => commands::steer::resume(&args, &cx),
        Command::Wait(args) => commands::steer::wait(&args, &cx),
        Command::Inspect(args) => commands::inspect::run(&args, &cx),
        Command::Exec(args) => commands::exec::run(args, &cx),
        Command::Cp(args) => commands::cp::run(&args, &cx),
        Command::Port(args) => commands::port::run(&args, &cx),
        Command::Allow(args) => commands::live::allow(&args, &cx),
        Command::Deny(args) => commands::live::deny(&args, &cx),
        Command::Revoke(args) => commands::live::revoke(&args, &cx),
        Command::Grant(args) => commands::grant::run(&args, &cx),
        Command::Learn(args) => commands::learn::run(args, &cx),
        Command::Daemon(args) => commands::daemon::run(&args, &cx),
        Command::Spawn(args) => commands::spawn::run(&args, &cx),
        Command::Batch(args) => commands::batch::run(&args, &cx),
        Command::Top(args) => commands::top::run(&args, &cx),
        Command::Stats(args) => commands::stats::run(&args, &cx),
        Command::Approvals(args) => commands::approvals::run(&args, &cx),
        Command::A2a(args) => commands::a2a::run(&args, &cx),
        Command::Token(args) => commands::token::run(&args, &cx),
        Command::Whoami(args) => commands::whoami::run(&args, &cx),
        Command::Preset(args) => commands::preset::run(args, &cx),
        Command::Profile(args) => commands::profile::run(&args, &cx),
        Command::Context(args) => commands::context::run(&args, &cx),
        Command::Egress(args) => commands::egress::run(&args, &cx),
        Command::Serve(args) => commands::serve::run(args, &cx),
        Command::Spawner(_) => commands::spawner::run(),
        Command::Secret(args) => commands::secret::run(args, &cx),
        Command::Cache(args) => commands::cache::run(args, &cx),
        Command::Audit(args) => commands::audit::run(args, &cx),
        Command::Explain(args) => commands::explain::run(args, &cx),
        Command::Completions(args) => commands::completions::run(&args, &cx),
        Command::Mcp(args) => commands::mcp::run(&args, &cx),
        Command::Man(args) => commands::man::run(&args, &cx),
        Command::Version(args) => commands::version::run(&args, &cx),
        Command::BenchSpawner(args) => commands::bench_spawner::run(args, &cx),
        Command::BenchPolicy(args) => commands::bench::run(&args, &cx),
    };
    ended.unwrap_or_else(|failed| failed.tell(&cx, format))
}
