//! `bastle attach`: a terminal at a run in the background. Leaving does not end it.
use super::kept::{code_of, find_kept, wait_for_end, wait_until};
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::remote;
use crate::render::clean;
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault};
use bastle_control::live::{self, Command, SessionEnd, SessionWish};
use std::time::{Duration, Instant};

/// How long a run may take to begin.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Arguments of `attach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle attach calm-otter               what it prints from now on, and its input
  bastle attach --replay calm-otter      from the beginning
  bastle attach --detach-keys ctrl-q calm-otter

The keys ctrl-] and then d leave; the run goes on. Without a terminal, ^C leaves.

Exit codes: the run's own when it ends; 0 when left; 1 failed; 3 no such run.")]
pub(crate) struct AttachArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// Keys that leave, separated by commas: letters, ctrl-a … ctrl-z, ctrl-[ \ ] ^ _
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d")]
    detach_keys: String,
    /// Only look
    #[arg(long)]
    no_input: bool,
    /// Show what it printed before, too
    #[arg(long)]
    replay: bool,
}

/// Attaches.
pub(crate) fn run(args: &AttachArgs, cx: &Context) -> Ended {
    let leave = keys(&args.detach_keys)?;
    if let Some(daemon) = remote::daemon()? {
        let how = remote::AttachWish {
            replay: args.replay,
            input: !args.no_input,
            leave,
        };
        return remote::attach(&daemon, &args.run, how, cx);
    }
    let state = state_dir()?;
    let dir = find_kept(&state, &args.run)?;
    let begun = |state: RunState| !matches!(state, RunState::Queued | RunState::Building);
    let file = wait_until(&dir, Some(Instant::now() + PATIENCE), |file| begun(file.state))?;
    if file.state.is_final() {
        return Err(Fault::new(
            Code::UsageArgument,
            format!("the run {} has ended", dir.name()),
            format!("it is {}", file.state),
        )
        .help(format!("bastle logs {}", dir.name()))
        .into());
    }
    let spec = dir.spec()?;
    let tty = spec.get().tty.is_some();
    let takes = tty || spec.get().open_input;
    let command = Command::Attach {
        since: args.replay.then_some(0),
        input: !args.no_input && takes,
    };
    let (stream, _) = live::stream(&state, dir.name(), &command)?;
    if !args.no_input && !takes {
        cx.note(&format!(
            "{} takes no input: it was started without -i and -t",
            dir.name()
        ));
    }
    let wish = SessionWish {
        input: !args.no_input && takes,
        tty,
        leave,
    };
    let end = live::session(stream, &wish).map_err(|error| {
        Fault::new(
            Code::FenceLost,
            format!("lost the connection to {}", dir.name()),
            error.to_string(),
        )
    })?;
    match end {
        SessionEnd::Left => {
            cx.note(&format!("left {}; it goes on", dir.name()));
            Ok(0)
        }
        // However it was heard of: the files say how it ended.
        SessionEnd::Ended(_) | SessionEnd::Broken => Ok(code_of(&wait_for_end(&dir, None)?)),
    }
}

/// `ctrl-],d` as the bytes that a terminal sends.
fn keys(text: &str) -> Result<Vec<u8>, Fault> {
    let wrong = |key: &str| {
        Fault::new(
            Code::UsageArgument,
            format!("{} is no key", clean(key)),
            "keys are single characters and ctrl-a … ctrl-z, ctrl-[ \\ ] ^ _",
        )
        .help("--detach-keys ctrl-],d")
    };
    let key = |word: &str| -> Result<u8, Fault> {
        let bytes = word.as_bytes();
        match (word.strip_prefix("ctrl-").map(str::as_bytes), bytes) {
            (Some([letter @ (b'a'..=b'z' | b'[' | b'\\' | b']' | b'^' | b'_')]), _) => Ok(letter & 0x1f),
            (None, [byte]) if byte.is_ascii_graphic() => Ok(*byte),
            _ => Err(wrong(word)),
        }
    };
    text.split(',').map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_terminal_sends_is_refused() {
        for bad in ["", "ctrl-", "ctrl-ab", "ctrl-1", "ab", "ctrl-],", "é"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
        assert_eq!(keys("ctrl-],d").unwrap(), [0x1d, b'd']);
        assert_eq!(keys("ctrl-p,ctrl-q").unwrap(), [0x10, 0x11]);
    }
}
