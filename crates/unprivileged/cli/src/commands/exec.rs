//! `bastle exec`: a further command in a living run, in the same fence.
use super::kept::duration;
use super::live::find;
use super::run_args::variable;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed};
use crate::remote;
use bastle_contract::{AbsPath, Argv, Code, ExitCode, Fault};
use bastle_control::backend::{ExecRequest, IsolationBackend, NativeBackend};
use bastle_control::beside::{self, Ends, Finished, Heed};
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Arguments of `exec`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle exec calm-otter -- cargo test
  bastle exec -t calm-otter -- bash            a shell beside the agent
  echo data | bastle exec -i @last -- wc -c
  bastle exec --timeout 5m @last -- cargo test

It has the agent's user, files, network and limits: what the agent may not do, it may not do either. It sees the
agent's processes and they see it. It is recorded before it starts, and ends with the run or with this command.

Exit codes: the command's own; 124 its time was over, 125 bastle failed, 126 and 127 not executed.")]
pub(crate) struct ExecArgs {
    /// A terminal of its own for the command, ours in raw mode
    #[arg(short, long)]
    tty: bool,
    /// Pass our standard input on (implied by --tty)
    #[arg(short, long)]
    interactive: bool,
    /// A variable for the command: NAME=VALUE, or NAME for its value here
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Where it starts inside; default where the agent started
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<String>,
    /// Kill it after this time: 500ms, 30s, 10m, 2h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// The run (name, unique prefix, or @last for the only one)
    run: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Starts it and stays with it. A failure of bastle's own never looks like an exit code of the command.
pub(crate) fn run(args: ExecArgs, cx: &Context) -> Ended {
    let finished = start(args).map_err(|failed| failed.exit(ExitCode::Failed as u8))?;
    if let Some(fault) = &finished.fault {
        cx.report(std::slice::from_ref(fault), crate::context::Format::Human);
    }
    Ok(finished.code)
}

fn start(args: ExecArgs) -> Result<Finished, Failed> {
    let request = wish(&args)?;
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    if args.tty && !(stdin.is_terminal() && stdout.is_terminal()) {
        let why = "standard input or output is none";
        return Err(
            Fault::new(Code::UsageArgument, "--tty needs a terminal here", why)
                .help("bastle exec -i RUN -- COMMAND")
                .into(),
        );
    }
    let input = (args.interactive || args.tty).then(|| stdin.as_fd());
    let ends = Ends {
        input,
        output: &mut stdout.lock(),
        errors: &mut std::io::stderr().lock(),
        terminal: args.tty,
        signals: Heed::Ours,
        within: request.timeout,
    };
    if let Some(daemon) = remote::daemon()? {
        return remote::exec(&daemon, &args.run, &request, ends);
    }
    let state = state_dir()?;
    let run = find(&state, &args.run)?;
    let sandbox = NativeBackend::new(&state).get(&run)?;
    Ok(sandbox.exec_streaming(&request, ends)?)
}

fn wish(args: &ExecArgs) -> Result<ExecRequest, Fault> {
    let usage = |what: &str, why: String| Fault::new(Code::UsageArgument, what, why).help("bastle help exec");
    let argv = Argv::try_from(args.command.clone())
        .map_err(|error| usage("the command cannot be used", error.to_string()))?;
    let mut env = Vec::new();
    for text in &args.env {
        env.push(variable(text).map_err(|why| usage("--env: variable refused", why))?);
    }
    // A terminal without a name is drawn on by nobody.
    if args.tty
        && !env.iter().any(|(name, _)| name.as_str() == "TERM")
        && let Ok(term) = variable("TERM")
    {
        env.push(term);
    }
    let cwd = args.cwd.clone().map(AbsPath::try_from).transpose();
    let cwd = cwd.map_err(|error| usage("--cwd cannot be used", error.to_string()))?;
    Ok(ExecRequest {
        argv,
        env,
        cwd,
        tty: args.tty.then(beside::terminal_size),
        timeout: args.timeout.as_deref().map(duration).transpose()?,
    })
}
