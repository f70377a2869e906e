//! `bastle man`: the manual pages, made from the same text as `--help`.
use crate::args::Cli;
use crate::context::{Context, Ended, Failed};
use bastle_contract::{Code, Fault};
use clap::CommandFactory;
use std::path::PathBuf;

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  bastle man | man -l -\n  bastle man --dir ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write all pages into this directory instead of printing bastle.1
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints or writes the pages.
pub(crate) fn run(args: &ManArgs, cx: &Context) -> Ended {
    let failed = |what: String, error: std::io::Error| {
        Failed::from(Fault::new(Code::UsageArgument, what, error.to_string())).exit(1)
    };
    let command = Cli::command();
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map_err(|error| failed("cannot make the manual page".to_owned(), error))?;
            cx.print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            let told = |error| failed(format!("cannot write manual pages to {}", dir.display()), error);
            std::fs::create_dir_all(dir).map_err(told)?;
            clap_mangen::generate_to(command, dir).map_err(told)?;
            cx.note(&format!("manual pages written to {}", dir.display()));
        }
    }
    Ok(0)
}
