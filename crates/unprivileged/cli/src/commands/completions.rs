//! `bastle completions SHELL`.
use crate::args::Cli;
use crate::context::{Context, Ended};
use clap::CommandFactory;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  bastle completions bash > ~/.local/share/bash-completion/completions/bastle\n  bastle completions fish > ~/.config/fish/completions/bastle.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, cx: &Context) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bastle", &mut script);
    cx.print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
