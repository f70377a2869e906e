//! `bastle say` and `bastle interrupt`: words to a driven agent while its run lives.
use super::kept::find_kept;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed, Format};
use bastle_control::live::{self, Command};
use serde_json::{Value, json};

/// Arguments of `say`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle run -d -i --driver claude --prompt 'fix the login test' -- claude -p --verbose \\
      --input-format stream-json --output-format stream-json --permission-prompt-tool stdio
  bastle say calm-otter 'and add a test for it'
  bastle spawn --profile codex --keep-open --prompt 'look at the parser'
  bastle say run-k3v9q2-0 'now fix it' --host unix:///run/bastle.sock

A working agent sees it at its next request to the model; an idle one begins a new turn.

Exit codes: 0 said, 1 not taken, 3 no such run.")]
pub(crate) struct SayArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// What is said
    text: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `interrupt`.
#[derive(Debug, clap::Args)]
pub(crate) struct InterruptArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Says something to the agent.
pub(crate) fn say(args: &SayArgs, cx: &Context) -> Ended {
    let text = args.text.clone();
    tell(&args.run, &Command::Say { text }, args.json.into(), cx)
}

/// Has the agent stop what it does.
pub(crate) fn interrupt(args: &InterruptArgs, cx: &Context) -> Ended {
    tell(&args.run, &Command::Interrupt {}, args.json.into(), cx)
}

fn tell(name: &str, command: &Command, format: Format, cx: &Context) -> Ended {
    let (run, answer) = match crate::remote::daemon()? {
        Some(daemon) => crate::remote::tell(&daemon, name, command)?,
        None => {
            let state = state_dir()?;
            let dir = find_kept(&state, name)?;
            let answer = live::ask(&state, dir.name(), command).map_err(Failed::from)?;
            (dir.name().clone(), answer)
        }
    };
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.said/v1", "run": run, "how": answer["how"] }))?;
    } else {
        let how = answer.get("how").and_then(Value::as_str).unwrap_or("told");
        cx.note(&format!("{} {run}: {how}", cx.err.tick()));
    }
    Ok(0)
}
