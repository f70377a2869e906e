//! `bastle secret`: the encrypted store of values that agents never see. No verb prints a value.
use super::source::state_dir;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table, timestamp};
use bastle_contract::{Code, Fault};
use bastle_control::Store;
use bastle_control::live::{self, Command};
use serde_json::json;
use std::io::IsTerminal;

/// Arguments of `secret`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gh auth token | bastle secret set gh --from-stdin
  bastle secret set gh --from-env GH_TOKEN
  bastle secret ls
  bastle run --secret GH_TOKEN=store:gh@api.github.com -- gh pr list

Values are sealed with AES-256-GCM. The key comes from BASTLE_SECRET_PASSPHRASE, or from a file beside
the store that only you can read. Exit codes: 0 ok, 1 failed, 2 usage, 3 no such secret.")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    verb: SecretVerb,
}

#[derive(Debug, clap::Subcommand)]
enum SecretVerb {
    /// Keep a value; it is read from standard input (one line) or from a variable, never from the command line
    Set {
        /// Name, for `store:NAME`
        name: String,
        /// Read it from standard input (default where that is no terminal)
        #[arg(long, conflicts_with = "from_env")]
        from_stdin: bool,
        /// Read it from this variable
        #[arg(long, value_name = "VARIABLE")]
        from_env: Option<String>,
    },
    /// List names, never values
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a value
    Rm {
        /// Its name
        name: String,
    },
}

impl SecretArgs {
    pub(crate) fn json(&self) -> bool {
        matches!(self.verb, SecretVerb::Ls { json: true })
    }
}

/// Sets, lists or removes.
pub(crate) fn run(args: SecretArgs, cx: &Context) -> Ended {
    let mut store = Store::open(&state_dir()?)?;
    match args.verb {
        SecretVerb::Set {
            name,
            from_stdin,
            from_env,
        } => {
            let value = match from_env {
                Some(variable) => bastle_control::variable_secret(&variable)?,
                None => {
                    check(if from_stdin { Typed::Wished } else { Typed::Guessed })?;
                    bastle_control::typed_secret()?
                }
            };
            store.set(&name, &value)?;
            cx.note(&format!(
                "{} {name} is kept; use it as store:{name}",
                cx.err.tick()
            ));
            Ok(0)
        }
        SecretVerb::Ls { json } => list(&store, if json { Format::Json } else { Format::Human }, cx),
        SecretVerb::Rm { name } => {
            if store.remove(&name)? {
                cx.note(&format!("{} {name} is removed{}", cx.err.tick(), revoked(&name)?));
                Ok(0)
            } else {
                let fault = Fault::new(Code::AuditMissing, format!("there is no secret {name}"), "");
                Err(fault.help("bastle secret ls").into())
            }
        }
    }
}

/// Tells every living run that a value is gone; how many used it, in words.
fn revoked(name: &str) -> Result<String, Fault> {
    let state = state_dir()?;
    let (mut affected, mut unheard) = (0, Vec::new());
    for run in live::living(&state) {
        let command = Command::RevokeSecret {
            stored: name.to_owned(),
        };
        match live::ask(&state, &run, &command) {
            Ok(done) if done["revoked"].as_array().is_some_and(|names| !names.is_empty()) => affected += 1,
            Ok(_) => {}
            Err(_) => unheard.push(run.to_string()),
        }
    }
    let mut text = match affected {
        0 => "; no living run uses it".to_owned(),
        1 => "; revoked in 1 living run".to_owned(),
        count => format!("; revoked in {count} living runs"),
    };
    if !unheard.is_empty() {
        text.push_str(&format!(
            "; not reached, and may go on using it: {} (bastle stop RUN)",
            unheard.join(", ")
        ));
    }
    Ok(text)
}

/// Why standard input is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Typed {
    /// Somebody said so.
    Wished,
    /// Nothing else was named.
    Guessed,
}

/// Refuses to read from a terminal unless somebody said so: it would show the value.
fn check(typed: Typed) -> Result<(), Fault> {
    if std::io::stdin().is_terminal() && typed == Typed::Guessed {
        return Err(Fault::new(
            Code::UsageArgument,
            "standard input is a terminal, which would show the value",
            "",
        )
        .help("bastle secret set NAME --from-stdin < FILE, or --from-env VARIABLE"));
    }
    Ok(())
}

fn list(store: &Store, format: Format, cx: &Context) -> Ended {
    let secrets = store.list();
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.secrets/v1", "secrets": secrets }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "SET"]);
    for secret in &secrets {
        table.row([
            (&secret.name, Paint::Bold),
            (&timestamp(secret.set_ms), Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("the store is empty: bastle secret set NAME");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}
