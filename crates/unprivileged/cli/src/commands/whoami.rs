//! `bastle whoami`: who the daemon takes you for, and the most you may give to a run.
use super::ceiling;
use crate::client::{Daemon, short};
use crate::context::{Context, Ended};
use bastle_policy::AuthorityCeiling;
use serde::Deserialize;
use serde_json::json;

/// Arguments of `whoami`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle whoami
  BASTLE_TOKEN=bst_… bastle --host https://build.example:8443 whoami --json

Exit codes: 0 ok, 1 failed, 2 usage, 4 not permitted.")]
pub(crate) struct WhoamiArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the daemon answers.
#[derive(Deserialize)]
struct Known {
    id: String,
    role: String,
    run: Option<String>,
    prefix: Option<String>,
    ceiling: Option<AuthorityCeiling>,
}

/// Asks the daemon who the caller is and prints the answer.
pub(crate) fn run(args: &WhoamiArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let known: Known = daemon.read(daemon.get("/api/v1/whoami")?)?;
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.whoami/v1", "id": known.id, "role": known.role, "run": known.run,
            "run_prefix": known.prefix, "ceiling": known.ceiling,
        }))?;
        return Ok(0);
    }
    let runs = match (&known.run, &known.prefix) {
        (Some(run), _) => short(run),
        (None, Some(prefix)) => format!("{}*", short(prefix)),
        (None, None) => "all".to_owned(),
    };
    let mut text = format!(
        "id        {}\nrole      {}\nruns      {runs}\n",
        short(&known.id),
        short(&known.role)
    );
    match &known.ceiling {
        None => text.push_str("ceiling   none: an admin is held to nothing\n"),
        Some(ceiling) => {
            text.push_str("ceiling\n");
            for line in ceiling::lines(ceiling, "as the daemon's configuration grants") {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
    cx.print(&text)?;
    Ok(0)
}
