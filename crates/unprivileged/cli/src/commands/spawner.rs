//! `bastle spawner`, as the help, the completions and the manual know it. The daemon itself is started by the binary
//! before any argument is parsed here: the privileged zone links no command-line library.
use crate::context::Ended;
use bastle_contract::{Code, Fault};
use std::path::PathBuf;

/// Arguments of `spawner`, for the help alone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A socket handed over by the system (LISTEN_FDS) is used instead of --socket. SIGHUP reads the ceiling again.\nSee docs/spawner.md."
)]
pub(crate) struct SpawnerArgs {
    /// Instead of serving: list the runs it serves, show what you may have, or try a ceiling file
    #[arg(value_parser = ["ls", "probe", "check"])]
    action: Option<String>,
    /// The file to try
    #[arg(requires = "action")]
    file: Option<PathBuf>,
    /// Where it listens [root: /run/bastle/spawner.sock, else $XDG_RUNTIME_DIR/bastle/spawner.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Who may ask, and for what [root: /etc/bastle/ceiling.json, else only the own user]
    #[arg(long, value_name = "FILE")]
    ceiling: Option<PathBuf>,
    /// A group that may connect (mode 0660 instead of 0600)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Sandboxes begun ahead for anybody, and as many kept for callers served before [root: 2, else 0]
    #[arg(long, value_name = "N")]
    warm: Option<usize>,
    /// Where its audit log is kept [root: /var/lib/bastle/spawner]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Reached only with an option before the verb.
pub(crate) fn run() -> Ended {
    Err(Fault::new(
        Code::UsageArgument,
        "bastle spawner takes no option before its name",
        "it is started before options are read",
    )
    .help("bastle spawner --help")
    .into())
}
