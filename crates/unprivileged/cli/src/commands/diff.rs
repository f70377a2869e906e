//! `bastle diff`: what a run changed, with the import gate's reasons.
//!
//! **Trust:** everything compared is the agent's. For a terminal, its pager and every coloured output differences are
//! neutralised by the library that makes them. A pipe or a file gets the agent's bytes, as `git diff` writes them.
use super::review;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Style};
use bastle_contract::{Code, Fault};
use bastle_control::review::library::blobs::Blobs;
use bastle_control::review::library::diff::{
    FileDiff, Lacking, WhyLacking, exact_patch_for, json, name_only, reviewed,
};
use bastle_control::review::library::gate::{Assessed, Tier, set_hash};
use bastle_control::review::library::git::ObjectFormat;
use bastle_control::review::library::refs::{LeftRef, word};
use bastle_control::review::{End, Ignored, Look, look, look_at_ref, object_format, read_end};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle diff                            the last run of this project
  bastle diff calm-otter --stat
  bastle diff @last src/                 only what lies below src
  bastle diff @last --from 2 --to now    since snapshot 2
  bastle diff @last --from-branch fix    a branch that the agent left
  bastle diff @last --patch > p          for git apply; bastle apply --patch leaves out what is held

Exit codes: 0 ok; 1 with --exit-code when something changed, with --patch when the patch lacks a change; 3 no such run.")]
pub(crate) struct DiffArgs {
    /// The run (name, unique prefix, or @last of this project) [default: @last]
    run: Option<String>,
    /// Only these paths and what lies below them
    paths: Vec<PathBuf>,
    /// Lines added and removed per file
    #[arg(long, conflicts_with_all = ["name_only", "json"])]
    stat: bool,
    /// Names only
    #[arg(long, conflicts_with = "json")]
    name_only: bool,
    /// Write every byte as `git apply` takes it, files that are not text too; not to a terminal
    #[arg(long, conflicts_with_all = ["json", "name_only", "stat"])]
    patch: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 when something changed
    #[arg(long)]
    exit_code: bool,
    /// Compare from this snapshot (number, name, base) [default: base]
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
    /// Compare to this snapshot (number, name, last, now) [default: now]
    #[arg(long, value_name = "SNAPSHOT")]
    to: Option<String>,
    /// Show a branch, tag or stash that the agent left, against the commit that the copy began with
    #[arg(long, value_name = "AGENTBRANCH", conflicts_with_all = ["from", "to"])]
    from_branch: Option<String>,
    /// Also show what the project's ignore files name
    #[arg(long)]
    ignored: bool,
    /// Never start $PAGER
    #[arg(long)]
    no_pager: bool,
}

/// Shows the changes.
pub(crate) fn run(args: &DiffArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    let space = review::open(&at, args.run.as_deref(), cx)?;
    let paths = review::tree_paths(&space, &args.paths)?;
    let from = args.from.as_deref().map_or(Ok(End::Base), read_end)?;
    let to = args.to.as_deref().map_or(Ok(End::Now), read_end)?;
    let (seen, tree) = match &args.from_branch {
        None => (look(&space, &from, &to)?, None),
        Some(name) => {
            let (seen, tree) = look_at_ref(&space, name)?;
            (seen, Some(tree))
        }
    };
    let blobs: &dyn Blobs = match &tree {
        None => &space,
        Some(tree) => tree,
    };
    let left = match (&to, &tree) {
        (End::Now, None) => space.left_refs_in(&seen.after)?,
        (End::Base | End::At(_), _) | (End::Now, Some(_)) => Vec::new(),
    };
    let ignored = if args.ignored {
        Ignored::Shown
    } else {
        Ignored::Counted
    };
    let shown = seen.shown(&paths, ignored);
    let code = u8::from(args.exit_code && !shown.is_empty());
    let run = space.run().as_str();
    let diffs = seen.diffs(blobs, &shown)?;
    // What an approval is given to.
    let command = match &args.from_branch {
        None => run.to_owned(),
        Some(name) => format!("{run} --branch NAME --from-branch {}", word(name)),
    };
    let format = object_format(&space);
    if args.json {
        let mut value = as_json(&diffs, &shown, &command);
        if let Value::Object(members) = &mut value {
            members.insert("run".to_owned(), json!(run));
            members.insert("source".to_owned(), json!(space.source().to_string_lossy()));
            members.insert("state".to_owned(), json!(seen.digest));
            members.insert("ignored".to_owned(), json!(seen.ignored()));
            members.insert("refs".to_owned(), json!(left));
        }
        cx.print_json(&value)?;
        return Ok(code);
    }
    if args.patch {
        review::refuse_terminal("a patch")?;
        let (bytes, lacking) = as_patch((blobs, format), &diffs, &shown, &command)?;
        review::print_bytes(&bytes)?;
        for one in &lacking {
            cx.note(&review::lacking_line("patch", one));
        }
        cx.note(&summary(&seen, (&diffs, &shown), (run, &command), cx));
        tell_left(&left, run, cx);
        return Ok(code.max(u8::from(!lacking.is_empty())));
    }
    let read_by_program = !std::io::stdout().is_terminal() && !cx.out.paints();
    if args.name_only {
        show(&name_only(&diffs), args, cx)?;
    } else if args.stat {
        show(&stat(&diffs, &shown, cx.out), args, cx)?;
    } else if read_by_program {
        review::print_bytes(&exact((blobs, format), &diffs, &shown, &command)?)?;
    } else {
        show(&whole(&diffs, &shown, &command, cx.out), args, cx)?;
    }
    for finding in &seen.findings {
        cx.note(&format!("note: {finding}"));
    }
    if !args.name_only {
        cx.note(&summary(&seen, (&diffs, &shown), (run, &command), cx));
    }
    tell_left(&left, run, cx);
    Ok(code)
}

/// Most references that are named.
const MOST_LEFT: usize = 20;

/// Commits that the files above do not show.
fn tell_left(left: &[LeftRef], run: &str, cx: &Context) {
    for one in left.iter().take(MOST_LEFT) {
        cx.note(&format!(
            "! {} is not in these files\n  look: bastle diff {run} --from-branch {2}\n  take: bastle apply {run} --branch {1} --from-branch {2}",
            one.shown(),
            one.branch_name(),
            one.word(),
        ));
    }
    let more = left.len().saturating_sub(MOST_LEFT);
    if more > 0 {
        cx.note(&format!("! {more} more are not in these files either (--json)"));
    }
}

fn as_json(diffs: &[FileDiff], shown: &[&Assessed], run: &str) -> Value {
    let shown: Vec<Assessed> = shown.iter().map(|one| (*one).clone()).collect();
    json(diffs, &shown, run)
}

/// Every change as git takes it; what the gate says stands in lines before each, which git passes over.
fn as_patch(
    (blobs, format): (&dyn Blobs, ObjectFormat),
    diffs: &[FileDiff],
    shown: &[&Assessed],
    run: &str,
) -> Result<(Vec<u8>, Vec<Lacking>), Fault> {
    let (mut bytes, mut lacking) = (Vec::new(), Vec::new());
    for (diff, one) in diffs.iter().zip(shown) {
        for line in review::gate_lines(one, run, Style::PLAIN) {
            bytes.extend_from_slice(format!("{line}\n").as_bytes());
        }
        if one.tier() == Tier::Refuse {
            lacking.push(Lacking {
                path: diff.path.clone(),
                why: WhyLacking::Refused,
            });
            continue;
        }
        let part = exact_patch_for(std::slice::from_ref(diff), blobs, format)?;
        bytes.extend_from_slice(&part.bytes);
        let filled = |one: &Lacking| {
            let below = |other: &FileDiff| other.path != one.path && other.path.starts_with(&one.path);
            one.why == WhyLacking::EmptyDirectory && diffs.iter().any(below)
        };
        lacking.extend(part.left_out.into_iter().filter(|one| !filled(one)));
    }
    Ok((bytes, lacking))
}

/// The heading of a file and what the gate says about it, which git passes over.
fn head(diff: &FileDiff, one: &Assessed, run: &str, style: Style) -> String {
    let heading = format!(
        "== {} {}  +{} -{}",
        review::letter_of(&one.change),
        diff.path,
        diff.added,
        diff.removed
    );
    let mut out = style.paint(Paint::Bold, &heading);
    out.push('\n');
    for line in review::gate_lines(one, run, style) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Every file under a heading, with the bytes of the agent as git takes them. What no patch can carry is named so that
/// git refuses the whole instead of losing it.
fn exact(
    (blobs, format): (&dyn Blobs, ObjectFormat),
    diffs: &[FileDiff],
    shown: &[&Assessed],
    run: &str,
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    for (diff, one) in diffs.iter().zip(shown) {
        out.extend_from_slice(head(diff, one, run, Style::PLAIN).as_bytes());
        if one.tier() == Tier::Refuse {
            continue;
        }
        let part = exact_patch_for(std::slice::from_ref(diff), blobs, format)?;
        if !part.bytes.is_empty() {
            out.extend_from_slice(&part.bytes);
        } else {
            out.extend_from_slice(reviewed(diff).as_bytes());
        }
    }
    Ok(out)
}

/// Every file under a heading that no line of a difference can imitate, with escapes for what acts on a terminal.
fn whole(diffs: &[FileDiff], shown: &[&Assessed], run: &str, style: Style) -> String {
    let mut out = String::new();
    for (diff, one) in diffs.iter().zip(shown) {
        out.push_str(&head(diff, one, run, style));
        if one.tier() == Tier::Refuse {
            // Never part of a patch: git refuses the whole of one that names a git directory.
            continue;
        }
        for line in reviewed(diff).lines() {
            let paint = match line.as_bytes().first() {
                _ if line.starts_with("--- ") || line.starts_with("+++ ") => Paint::Dim,
                Some(b'+') => Paint::Good,
                Some(b'-') => Paint::Bad,
                Some(b'@') => Paint::Accent,
                Some(_) | None => Paint::Plain,
            };
            out.push_str(&style.paint(paint, line));
            out.push('\n');
        }
    }
    out
}

fn stat(diffs: &[FileDiff], shown: &[&Assessed], style: Style) -> String {
    let mut table = crate::render::Table::default();
    for (diff, one) in diffs.iter().zip(shown) {
        let (mark, paint) = match one.tier() {
            Tier::Note => ("", Paint::Plain),
            Tier::Flag => ("look", Paint::Warn),
            Tier::Approve => ("held", Paint::Bad),
            Tier::Refuse => ("refused", Paint::Bad),
        };
        let reason = one.findings.first().filter(|first| first.tier > Tier::Note);
        let lines = format!("+{} -{}", diff.added, diff.removed);
        table.row([
            (&review::letter_of(&one.change).to_string(), Paint::Plain),
            (&diff.path.to_string(), Paint::Plain),
            (&lines, Paint::Plain),
            (mark, paint),
            (reason.map_or("", |reason| &reason.why), Paint::Dim),
        ]);
    }
    table.render(style)
}

fn summary(
    seen: &Look,
    (diffs, shown): (&[FileDiff], &[&Assessed]),
    (run, command): (&str, &str),
    cx: &Context,
) -> String {
    let (added, removed) = diffs
        .iter()
        .fold((0, 0), |(a, r), diff| (a + diff.added, r + diff.removed));
    let dot = cx.err.dot();
    let mut text = format!("{run}: {} changed, +{added} -{removed}", files(diffs.len()));
    let held: Vec<Assessed> = shown
        .iter()
        .filter(|one| one.tier() == Tier::Approve)
        .map(|one| (*one).clone())
        .collect();
    let refused = shown.iter().filter(|one| one.tier() == Tier::Refuse).count();
    if refused > 0 {
        text.push_str(&format!(" {dot} {refused} never applied"));
    }
    let hidden = seen.assessed.iter().filter(|one| one.ignored).count();
    if hidden > 0 {
        text.push_str(&format!(" {dot} {hidden} ignored (--ignored)"));
    }
    if !held.is_empty() {
        text.push_str(&format!(
            " {dot} {} held\n  approve all of them: bastle apply {command} --approve {}",
            held.len(),
            review::short(&set_hash(&held))
        ));
    }
    text
}

fn files(count: usize) -> String {
    if count == 1 {
        "1 file".to_owned()
    } else {
        format!("{count} files")
    }
}

/// Through the pager on a terminal, otherwise as it is.
fn show(text: &str, args: &DiffArgs, cx: &Context) -> Result<(), Failed> {
    let pager = std::env::var("PAGER").unwrap_or_default();
    let mut words = pager.split_ascii_whitespace();
    let program = match words.next() {
        Some(program) if !args.no_pager && std::io::stdout().is_terminal() && program != "cat" => program,
        Some(_) | None => return cx.print(text),
    };
    let mut command = Command::new(program);
    // Words, not a shell line. `R` passes our own colours, `F` ends at once when all fits, `X` keeps the screen.
    command.args(words).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            cx.note(&format!("note: $PAGER does not start: {error}"));
            return cx.print(text);
        }
    };
    if let Some(mut pipe) = child.stdin.take() {
        // A reader that has seen enough closes its end.
        match pipe.write_all(text.as_bytes()) {
            Ok(()) | Err(_) => {}
        }
    }
    child
        .wait()
        .map(|_| ())
        .map_err(|error| Fault::new(Code::WorkspaceIo, "wait for $PAGER", error.to_string()).into())
}
