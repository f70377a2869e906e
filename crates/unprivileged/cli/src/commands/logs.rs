//! `bastle logs`: what a run in the background prints or printed, and what happened to it; of a run in the foreground, what was
//! found in it.
//!
//! **Trust:** the bytes are the agent's. A pipe gets them as they are; a terminal gets them escaped, unless the run has
//! a terminal itself, whose bytes mean nothing otherwise.
use super::kept::{self, find_kept, find_unusual};
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::remote;
use crate::render::{clean, now_ms, timestamp};
use bastle_contract::runs::RunEvent;
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, Fault, RunId};
use bastle_control::keeper;
use bastle_control::runs::{
    EventReader, OutputReader, OutputRecord, RunDir, Waiter, findings_path, read_events,
};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// How often a run whose keeper may have been killed is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle logs calm-otter                what it printed so far
  bastle logs -f calm-otter             and what it prints, until it ends
  bastle logs --since 5m -t calm-otter
  bastle logs --events calm-otter       what happened to it; in the foreground, what was unusual

Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct LogsArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// Go on until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Only what is younger, e.g. 5m; a bare number is a place in the log
    #[arg(long, value_name = "TIME | OFFSET")]
    since: Option<String>,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr_only")]
    stdout_only: bool,
    /// Only standard error
    #[arg(long)]
    stderr_only: bool,
    /// When each piece was printed
    #[arg(short, long)]
    timestamps: bool,
    /// What happened to it, instead of what it printed
    #[arg(long)]
    events: bool,
    /// Events as JSON, one object on a line
    #[arg(long, requires = "events")]
    pub(crate) json: bool,
}

/// From where on.
#[derive(Clone, Copy)]
enum Since {
    Start,
    Time(u64),
    Offset(u64),
}

/// Shows them.
pub(crate) fn run(args: &LogsArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::logs(&daemon, &args.run, &elsewhere(args)?);
    }
    let state = state_dir()?;
    let unusual = args.events.then(|| find_unusual(&state, &args.run)).flatten();
    let dir = match &unusual {
        Some(run) if args.follow => return Err(not_followed(run).into()),
        Some(_) => None,
        None => Some(find_kept(&state, &args.run)?),
    };
    let since = match &args.since {
        None => Since::Start,
        Some(text) => match text.parse() {
            Ok(offset) => Since::Offset(offset),
            Err(_) => {
                let age = u64::try_from(kept::duration(text)?.as_millis()).unwrap_or(u64::MAX);
                Since::Time(now_ms().saturating_sub(age))
            }
        },
    };
    let dir = match (dir, unusual) {
        (Some(dir), _) if !args.events => dir,
        (Some(dir), _) => return events(args, &dir, since, cx),
        (None, Some(run)) => return findings(args, (&state, &run), since, cx),
        (None, None) => return Ok(0),
    };
    let raw = dir.spec().is_ok_and(|spec| spec.get().tty.is_some());
    let mut printer = Printer {
        escape_output: io::stdout().is_terminal() && !raw,
        escape_errors: io::stderr().is_terminal() && !raw,
        timestamps: args.timestamps,
        only: only(args),
    };
    let mut reader = dir.printed()?;
    let from = match since {
        Since::Start => 0,
        Since::Time(time) => time,
        Since::Offset(offset) => {
            reader.seek(offset).map_err(|error| unreadable(&dir, &error))?;
            0
        }
    };
    follow(&dir, args.follow.then(|| dir.waiter()), || {
        while let Some(record) = next(&mut reader, &dir)? {
            if record.time_ms >= from && !printer.print(&record) {
                return Ok(Shown::NobodyReads);
            }
        }
        Ok(Shown::All)
    })?;
    Ok(0)
}

/// The same of a daemon's run.
fn elsewhere(args: &LogsArgs) -> Result<remote::LogsWish, Fault> {
    let cannot = |flag: &str| {
        Fault::new(
            Code::UsageArgument,
            format!("{flag} is not known through a daemon"),
            "it gives output by its place in the log",
        )
        .help("bastle logs RUN --since OFFSET")
    };
    let since = match args.since.as_deref().map(str::parse) {
        None => 0,
        Some(Ok(offset)) => offset,
        Some(Err(_)) => return Err(cannot("--since TIME")),
    };
    if args.events {
        return Err(cannot("--events"));
    }
    Ok(remote::LogsWish {
        follow: args.follow,
        since,
        only: only(args),
        timestamps: args.timestamps,
    })
}

fn only(args: &LogsArgs) -> Option<StreamKind> {
    match (args.stdout_only, args.stderr_only) {
        (true, _) => Some(StreamKind::Output),
        (_, true) => Some(StreamKind::Errors),
        (false, false) => None,
    }
}

/// Whether somebody still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    All,
    NobodyReads,
}

/// Shows what there is; with somebody who waits, again whenever there is more, until the run is over.
fn follow(
    dir: &RunDir,
    waiter: Option<Waiter>,
    mut show: impl FnMut() -> Result<Shown, Fault>,
) -> Result<(), Fault> {
    loop {
        // Asked before it is shown: what an ended run printed is all there.
        let over = keeper::settle(dir)?.state.is_final();
        if show()? == Shown::NobodyReads {
            return Ok(());
        }
        match &waiter {
            Some(waiter) if !over => waiter.wait(LOOK_AGAIN),
            Some(_) | None => return Ok(()),
        }
    }
}

fn next(reader: &mut OutputReader, dir: &RunDir) -> Result<Option<OutputRecord>, Fault> {
    reader.next_record().map_err(|error| unreadable(dir, &error))
}

fn unreadable(dir: &RunDir, error: &io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        format!("cannot read what {} printed", dir.name()),
        error.to_string(),
    )
    .help(format!("bastle logs {}, without --since", dir.name()))
}

struct Printer {
    escape_output: bool,
    escape_errors: bool,
    timestamps: bool,
    only: Option<StreamKind>,
}

impl Printer {
    /// `false` when nobody reads any more.
    fn print(&mut self, record: &OutputRecord) -> bool {
        if self.only.is_some_and(|only| only != record.kind) {
            return true;
        }
        let errors = record.kind == StreamKind::Errors;
        let escape = if errors {
            self.escape_errors
        } else {
            self.escape_output
        };
        let mut bytes = if escape {
            escaped(&record.bytes).into_bytes()
        } else {
            record.bytes.clone()
        };
        if self.timestamps {
            bytes = stamped(&bytes, &timestamp(record.time_ms));
        }
        if errors {
            let mut err = io::stderr().lock();
            err.write_all(&bytes).and_then(|()| err.flush()).is_ok()
        } else {
            let mut out = io::stdout().lock();
            out.write_all(&bytes).and_then(|()| out.flush()).is_ok()
        }
    }
}

/// Text whose control characters are shown and do nothing; lines and tabs stay.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let (words, end) = match part.strip_suffix(['\n', '\t']) {
            Some(words) => (words, &part[words.len()..]),
            None => (part, ""),
        };
        // Programs that know a pipe from a terminal end lines with both.
        shown.push_str(&clean(words.strip_suffix('\r').unwrap_or(words)));
        shown.push_str(end);
    }
    shown
}

/// The time before every line of a piece.
pub(crate) fn stamped(bytes: &[u8], time: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + time.len() + 1);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(time.as_bytes());
        out.push(b' ');
        out.extend_from_slice(line);
    }
    out
}

impl Since {
    /// The number after which events are shown, and the time from which on.
    fn of_events(self) -> (u64, u64) {
        match self {
            Self::Start => (0, 0),
            Self::Time(time) => (0, time),
            Self::Offset(number) => (number, 0),
        }
    }
}

fn events(args: &LogsArgs, dir: &RunDir, since: Since, cx: &Context) -> Ended {
    let (number, from) = since.of_events();
    let mut reader =
        EventReader::open(&dir.events_path(), number).map_err(|error| unreadable(dir, &error))?;
    follow(dir, args.follow.then(|| dir.waiter()), || {
        while let Some(event) = reader.next_event().map_err(|error| unreadable(dir, &error))? {
            if event.time_ms >= from && !tell(args, &event, cx) {
                return Ok(Shown::NobodyReads);
            }
        }
        Ok(Shown::All)
    })?;
    Ok(0)
}

/// What was found in a run in the foreground: the only events of it that are kept beside its audit log.
fn findings(args: &LogsArgs, (state, run): (&Path, &RunId), since: Since, cx: &Context) -> Ended {
    let (number, from) = since.of_events();
    let path = findings_path(state, run);
    let events = match read_events(&path, number, usize::MAX) {
        Ok(events) => events,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let what = format!("cannot read {}", path.display());
            return Err(Fault::new(Code::StateDir, what, error.to_string())
                .help(format!("bastle audit show {run}"))
                .into());
        }
    };
    if events.is_empty() {
        cx.note(&format!(
            "nothing unusual was found in {run}; bastle audit show {run} tells the rest"
        ));
    }
    for event in events.iter().filter(|event| event.time_ms >= from) {
        if !tell(args, event, cx) {
            break;
        }
    }
    Ok(0)
}

/// Prints an event; `false` when nobody reads any more.
fn tell(args: &LogsArgs, event: &RunEvent, cx: &Context) -> bool {
    let line = if args.json {
        serde_json::to_string(event).unwrap_or_default()
    } else {
        shown(event)
    };
    cx.print(&format!("{line}\n")).is_ok()
}

fn not_followed(run: &RunId) -> Fault {
    Fault::new(
        Code::UsageArgument,
        format!("the run {run} has a terminal or pipes of its own"),
        "its events are shown there; only what was found in it is kept",
    )
    .help(format!("bastle logs --events {run}"))
}

/// An event for people: number, time, kind, and its values. Text of the agent is escaped.
fn shown(event: &RunEvent) -> String {
    let words: Vec<String> = match event.data.as_object() {
        Some(data) => data
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| match value.as_str() {
                Some(text) => format!("{key}={}", clean(text)),
                None => format!("{key}={}", clean(&value.to_string())),
            })
            .collect(),
        None => vec![clean(&event.data.to_string())],
    };
    format!(
        "{:>5} {} {:<9} {}",
        event.seq,
        timestamp(event.time_ms),
        clean(&event.kind),
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_sequence_of_the_agent_does_nothing_at_a_terminal() {
        let shown = escaped(b"a\x1b[31mred\x07\nb\tc\r\n\xff\x9b2J");
        assert!(
            !shown.contains('\x1b') && !shown.contains('\x07') && !shown.contains('\u{9b}'),
            "{shown:?}"
        );
        assert!(
            shown.starts_with("a") && shown.contains("red") && shown.contains("\nb\tc\n"),
            "{shown:?}"
        );
    }
}
