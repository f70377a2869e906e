//! `bastle context`: daemons by name, and which one is meant.
use crate::client::contexts::{Contexts, LOCAL, Named};
use crate::client::place::{Host, read_token};
use crate::client::{own_socket, short};
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table};
use bastle_contract::Fault;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `context`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle context add lab https://lab.example:7717 --token-file ~/.config/bastle/lab.token
  bastle context use lab
  BASTLE_CONTEXT=local bastle ps

A context is an address and the name of a file with a token; the file must be yours alone.
BASTLE_HOST and --host go before it. Exit codes: 0 ok, 1 failed, 2 usage, 3 no such context.")]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    verb: ContextVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ContextVerb {
    /// List contexts
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Speak to this daemon from now on
    Use {
        /// The context; local is this machine
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a daemon
    Add {
        /// Its name here
        name: String,
        /// unix:///PATH, https://HOST:PORT, or http:// for this machine
        #[arg(value_name = "ADDRESS")]
        host: String,
        /// File whose first line is the token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a daemon
    Rm {
        /// The context
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl ContextArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            ContextVerb::Ls { json }
            | ContextVerb::Use { json, .. }
            | ContextVerb::Add { json, .. }
            | ContextVerb::Rm { json, .. } => *json,
        }
    }
}

/// Does it, and shows what is there then.
pub(crate) fn run(args: &ContextArgs, cx: &Context) -> Ended {
    let mut contexts = Contexts::load()?;
    let done = match &args.verb {
        ContextVerb::Ls { .. } => None,
        ContextVerb::Use { name, .. } => {
            contexts.choose(name)?;
            Some(format!("{} is used from now on", short(name)))
        }
        ContextVerb::Add {
            name,
            host,
            token_file,
            ..
        } => {
            contexts.add(name, named(host, token_file.as_ref())?)?;
            Some(format!(
                "{} is added; bastle context use {}",
                short(name),
                short(name)
            ))
        }
        ContextVerb::Rm { name, .. } => {
            contexts.remove(name)?;
            Some(format!("{} is forgotten", short(name)))
        }
    };
    if let Some(done) = done {
        contexts.save()?;
        if !args.json() {
            cx.note(&format!("{} {done}", cx.err.tick()));
            return Ok(0);
        }
    }
    show(&contexts, args.json().into(), cx)
}

fn named(host: &str, token_file: Option<&PathBuf>) -> Result<Named, Fault> {
    let token_file = match token_file {
        Some(path) => {
            // One that cannot be used is better found now.
            read_token(path)?;
            Some(super::source::absolute(path)?.as_path().to_owned())
        }
        None => None,
    };
    Ok(Named {
        host: Host::parse(host)?,
        token_file,
    })
}

fn show(contexts: &Contexts, format: Format, cx: &Context) -> Ended {
    let own = Host::socket(own_socket()?).to_string();
    let mut rows = vec![(LOCAL.to_owned(), own, String::new())];
    rows.extend(contexts.all().map(|(name, named)| {
        let file = named.token_file.as_ref().map(|path| path.display().to_string());
        (name.to_owned(), named.host.to_string(), file.unwrap_or_default())
    }));
    if format == Format::Json {
        let listed: Vec<Value> = rows
            .iter()
            .map(|(name, host, file)| {
                json!({
                    "name": name, "host": host, "current": name == contexts.current(),
                    "token_file": if file.is_empty() { Value::Null } else { Value::from(file.as_str()) },
                })
            })
            .collect();
        cx.print_json(&json!({ "schema": "bastle.contexts/v1", "contexts": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["", "NAME", "ADDRESS", "TOKEN FILE"]);
    for (name, host, file) in &rows {
        let mark = if name == contexts.current() { "*" } else { " " };
        table.row([
            (mark, Paint::Good),
            (name, Paint::Bold),
            (host, Paint::Plain),
            (file, Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}
