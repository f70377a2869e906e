//! `bastle a2a`: what the daemon tells other agents about itself and its workers.
use crate::client::{Daemon, part};
use crate::context::{Context, Ended};

/// Arguments of `a2a`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle a2a card
  bastle a2a card a2a-k3v9q2-0

Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct A2aArgs {
    #[command(subcommand)]
    verb: A2aVerb,
}

#[derive(Debug, clap::Subcommand)]
enum A2aVerb {
    /// Print the card of the door, or of one worker, as JSON
    Card {
        /// The run (name or unique prefix)
        run: Option<String>,
    },
}

/// Asks and shows.
pub(crate) fn run(args: &A2aArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let A2aVerb::Card { run } = &args.verb;
    let path = match run {
        None => "/.well-known/agent-card.json".to_owned(),
        Some(run) => format!("/a2a/workers/{}/.well-known/agent-card.json", part(run)),
    };
    cx.print_json(&daemon.get(&path)?)?;
    Ok(0)
}
