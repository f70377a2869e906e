//! `bastle apply`: accepted changes go to the project, a branch or a patch; `--undo` takes the last ones back.
//!
//! **Trust:** takes what the import gate lets through and what a person approved by content. Every name is the agent's
//! and is shown escaped.
use super::review;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, clean};
use bastle_contract::{Code, Fault};
use bastle_control::review::library::apply::{Conflict, LeftOut, Reason, Resolve};
use bastle_control::review::library::gate::Tier;
use bastle_control::review::library::git::BranchName;
use bastle_control::review::library::path::visible;
use bastle_control::review::library::refs::word;
use bastle_control::review::library::workspace::Workspace;
use bastle_control::review::{
    self as control, Act, AppliedAs, Approval, Destination, Outcome, Replace, Wish,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Lines of one conflict that are shown.
const MOST_CONFLICT_LINES: usize = 60;
/// Conflicts that are shown with both versions; the message names the others.
const MOST_CONFLICTS: usize = 10;

/// Arguments of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle apply                                  the last run of this project, into the project
  bastle apply calm-otter --dry-run             only say what would happen
  bastle apply calm-otter --paths src tests
  bastle apply calm-otter --branch claude/login a commit on a new branch; the tree stays as it is
  bastle apply calm-otter --branch login-2 --from-branch feature   a branch that the agent left
  bastle apply calm-otter --patch work.patch
  bastle apply calm-otter --approve 1f2e3d4c5b6a7988
  bastle apply calm-otter --undo

What would run on the host is left out until its content is approved; bastle diff shows it.

Exit codes: 0 ok, 1 failed or conflicts (nothing is written) or a patch that lacks a change, 3 no such run.")]
pub(crate) struct ApplyArgs {
    /// The run (name, unique prefix, or @last of this project) [default: @last]
    run: Option<String>,
    /// Commit to a new branch instead
    #[arg(long, value_name = "NAME", conflicts_with_all = ["patch", "in_place", "undo"])]
    branch: Option<String>,
    /// Take a branch, tag or stash that the agent left, as bastle diff lists it, instead of its files
    #[arg(long, value_name = "AGENTBRANCH", conflicts_with_all = ["in_place", "undo", "theirs", "ours"])]
    from_branch: Option<String>,
    /// The message of the commit
    #[arg(long, short, value_name = "TEXT", requires = "branch")]
    message: Option<String>,
    /// Write a patch for `git apply` instead; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["in_place", "undo"])]
    patch: Option<PathBuf>,
    /// Replace a patch file that exists
    #[arg(long, requires = "patch")]
    force: bool,
    /// Write to the project's tree, merging with what changed there (the default)
    #[arg(long, conflicts_with = "undo")]
    in_place: bool,
    /// Only these paths and what lies below them, ignored ones too
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "undo")]
    paths: Vec<PathBuf>,
    /// Approve a change by its hash, as `bastle diff` prints it; or PATH=HASH
    #[arg(long, value_name = "HASH", conflicts_with = "undo")]
    approve: Vec<String>,
    /// Where both sides changed the same lines, take the agent's version
    #[arg(long, conflicts_with_all = ["ours", "branch", "patch", "undo"])]
    theirs: bool,
    /// Where both sides changed the same lines, keep the project's version
    #[arg(long, conflicts_with_all = ["branch", "patch", "undo"])]
    ours: bool,
    /// Only say what would happen
    #[arg(long, conflicts_with = "undo")]
    dry_run: bool,
    /// Take the last apply of the run back
    #[arg(long)]
    undo: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Applies or takes back.
pub(crate) fn run(args: &ApplyArgs, cx: &Context) -> Ended {
    let to_stdout = args.patch.as_deref() == Some(Path::new("-"));
    if to_stdout && args.json {
        let what = "--json and --patch - both want standard output";
        return Err(Fault::new(Code::UsageArgument, what, "")
            .help("--patch FILE")
            .into());
    }
    if to_stdout {
        review::refuse_terminal("a patch")?;
    }
    let at = review::whereabouts()?;
    let space = review::open(&at, args.run.as_deref(), cx)?;
    if args.undo {
        return undo(&at, &space, args, cx);
    }
    let wish = wish(args, &space)?;
    let outcome = control::carry(&at.place(), &at.state, &space, &wish)?;
    review::tell(&outcome.notes, cx);
    if let (Some(file), Act::Do, false) = (&args.patch, wish.act, to_stdout) {
        let replace = if args.force {
            Replace::Allowed
        } else {
            Replace::Never
        };
        control::patch_to(&space, &outcome, file, replace)?;
    }
    if let (AppliedAs::Patch(bytes, _), true) = (&outcome.taken, to_stdout) {
        review::print_bytes(bytes)?;
    }
    let conflicts = match &outcome.taken {
        AppliedAs::Tree(plan) => plan.conflict_fault(),
        AppliedAs::Branch(..) | AppliedAs::Patch(..) => None,
    };
    if args.json {
        cx.print_json(&as_json(args, &space, &outcome))?;
    } else {
        show(args, &space, &outcome, cx)?;
    }
    match conflicts {
        Some(fault) => Err(fault.into()),
        None => Ok(u8::from(is_short(&outcome))),
    }
}

/// Whether accepted changes are not, or not as a whole, in the patch.
fn is_short(outcome: &Outcome) -> bool {
    matches!(&outcome.taken, AppliedAs::Patch(_, lacking) if !lacking.is_empty())
}

fn wish(args: &ApplyArgs, space: &Workspace) -> Result<Wish, Fault> {
    let destination = match (&args.branch, &args.patch) {
        (Some(name), _) => Destination::Branch {
            name: BranchName::new(name.clone()).map_err(|error| {
                Fault::new(Code::UsageArgument, "unusable branch name", error.to_string())
            })?,
            message: args.message.clone(),
        },
        (None, Some(_)) => Destination::Patch,
        (None, None) => Destination::Tree(match (args.theirs, args.ours) {
            (true, _) => Resolve::Theirs,
            (false, true) => Resolve::Ours,
            (false, false) => Resolve::Refuse,
        }),
    };
    Ok(Wish {
        from_ref: args.from_branch.clone(),
        destination,
        paths: review::tree_paths(space, &args.paths)?,
        approvals: args
            .approve
            .iter()
            .map(|text| approval(space, text))
            .collect::<Result<_, _>>()?,
        act: if args.dry_run { Act::DryRun } else { Act::Do },
        principal: control::local_person(),
    })
}

/// `HASH` or `PATH=HASH`; a path may hold `=` itself.
fn approval(space: &Workspace, text: &str) -> Result<Approval, Fault> {
    let Some((path, hash)) = text.rsplit_once('=') else {
        return Ok(Approval {
            path: None,
            hash: text.to_owned(),
        });
    };
    let path = review::tree_paths(space, &[PathBuf::from(path)])?.pop();
    Ok(Approval {
        path,
        hash: hash.to_owned(),
    })
}

fn undo(at: &control::Whereabouts, space: &Workspace, args: &ApplyArgs, cx: &Context) -> Ended {
    let (paths, notes) = control::undo(&at.place(), &at.state, space, &control::local_person())?;
    review::tell(&notes, cx);
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.apply/v1", "run": space.run(), "source": space.source().to_string_lossy(),
            "to": "undo", "dry_run": false, "paths": review::paths_json(&paths),
            "merged": [], "already": [], "left_out": [], "conflicts": [],
        }))?;
        return Ok(0);
    }
    // One write for all: standard output keeps nothing back.
    cx.print(&paths.iter().map(|path| format!("{path}\n")).collect::<String>())?;
    cx.note(&format!(
        "{} {} taken back in {}",
        cx.err.tick(),
        counted(paths.len(), "path"),
        shown(space.source())
    ));
    Ok(0)
}

fn show(args: &ApplyArgs, space: &Workspace, outcome: &Outcome, cx: &Context) -> Result<(), Failed> {
    let verb = |done: &'static str, would: &'static str| if args.dry_run { would } else { done };
    match &outcome.taken {
        AppliedAs::Tree(plan) if !plan.conflicts().is_empty() => {
            show_conflicts(plan.conflicts(), cx);
            return Ok(());
        }
        AppliedAs::Tree(plan) => {
            let mut lines = String::new();
            for one in plan.operations() {
                let letter = review::letter(one.before.as_ref(), one.after.as_ref());
                let merged = if plan.merged().contains(&one.path) {
                    "  (merged)"
                } else {
                    ""
                };
                lines.push_str(&format!("{letter} {}{merged}\n", one.path));
            }
            cx.print(&lines)?;
            for directory in plan.kept() {
                cx.note(&format!(
                    "  {directory}/ stays: it holds files that the agent never saw"
                ));
            }
            let mut text = format!(
                "{} {} {} {}",
                cx.err.tick(),
                counted(plan.operations().len(), "path"),
                verb("written to", "would be written to"),
                shown(space.source())
            );
            if !plan.already().is_empty() {
                text.push_str(&format!(
                    "; {} there already",
                    counted(plan.already().len(), "path")
                ));
            }
            cx.note(&text);
            if !plan.without_attributes().is_empty() {
                cx.note(&format!(
                    "  {} without new extended attributes: the project's file system cannot hold them",
                    counted(plan.without_attributes().len(), "path")
                ));
            }
            if !args.dry_run && !plan.operations().is_empty() {
                cx.note(&format!("  take it back: bastle apply {} --undo", space.run()));
            }
        }
        AppliedAs::Branch(name, commit, lacking) => {
            for path in outcome.carried() {
                cx.print(&format!("{path}\n"))?;
            }
            for one in lacking {
                cx.note(&review::lacking_line("branch", one));
            }
            let id = commit.as_ref().map_or("", |id| id.as_str());
            let text = verb("committed to branch", "would be committed to branch");
            cx.note(&format!(
                "{} {} {text} {name} {id}",
                cx.err.tick(),
                counted(outcome.carried().count(), "path")
            ));
            if commit.is_some() {
                cx.note(&format!("  git -C {} merge {name}", shown(space.source())));
            }
        }
        AppliedAs::Patch(_, lacking) => {
            for one in lacking {
                cx.note(&review::lacking_line("patch", one));
            }
            let text = verb("in the patch", "would be in the patch");
            let count = counted(outcome.carried().count(), "path");
            cx.note(&format!("{} {count} {text}", cx.err.tick()));
        }
    }
    show_left_out(args, space, outcome, cx);
    Ok(())
}

fn show_left_out(args: &ApplyArgs, space: &Workspace, outcome: &Outcome, cx: &Context) {
    let run = space.run();
    let from = args
        .from_branch
        .as_ref()
        .map_or_else(String::new, |name| format!(" --from-branch {}", word(name)));
    // The branch that this apply made is there already.
    let to = match (&args.branch, from.is_empty()) {
        (Some(branch), false) => format!(" --branch {branch}-2{from}"),
        (_, true) | (None, false) => from.clone(),
    };
    let mut held = Table::default();
    let (mut count, mut ignored, mut unnamed) = (0, 0, 0);
    for one in &outcome.left_out {
        match &one.reason {
            Reason::Ignored => ignored += 1,
            Reason::NotNamed => unnamed += 1,
            Reason::KeptOurs => cx.note(&format!("  kept as the project has it: {}", one.path)),
            Reason::Refused => {
                cx.note(&format!(
                    "  never applied: {}: {}",
                    one.path,
                    clean(why(outcome, one))
                ));
            }
            Reason::NeedsApproval { approval } => {
                count += 1;
                let hash = format!("--approve {}", review::short(approval));
                held.row([
                    (" ", Paint::Plain),
                    (&one.path.to_string(), Paint::Bold),
                    (why(outcome, one), Paint::Plain),
                    (&hash, Paint::Accent),
                ]);
            }
        }
    }
    if count > 0 {
        let text = format!("! {} left out until approved:", counted(count, "change"));
        cx.note(&cx.err.paint(Paint::Warn, &text));
        cx.note(held.render(cx.err).trim_end());
        cx.note(&format!(
            "  look: bastle diff {run}{from}\n  approve all of them: bastle apply {run}{to} --approve {}",
            review::short(&outcome.approval)
        ));
    }
    if ignored > 0 {
        cx.note(&format!(
            "  {} left out: the project's ignore files name them (--paths takes them)",
            counted(ignored, "change")
        ));
    }
    if unnamed > 0 {
        cx.note(&format!("  {} left out: not named", counted(unnamed, "change")));
    }
}

/// The gate's strictest reason for a change.
fn why<'a>(outcome: &'a Outcome, left: &LeftOut) -> &'a str {
    let assessed = outcome
        .look
        .assessed
        .iter()
        .find(|one| one.change.path == left.path);
    assessed
        .and_then(|one| one.findings.first())
        .filter(|finding| finding.tier >= Tier::Approve)
        .map_or("", |finding| finding.why.as_str())
}

/// Both versions between markers, escaped.
fn show_conflicts(conflicts: &[Conflict], cx: &Context) {
    for conflict in conflicts.iter().take(MOST_CONFLICTS) {
        cx.note(
            &cx.err
                .paint(Paint::Bad, &format!("== {}: {}", conflict.path, conflict.why)),
        );
        let Some(marked) = &conflict.marked else { continue };
        let mut inside = false;
        let mut lines = 0;
        for line in marked.split(|byte| *byte == b'\n') {
            inside |= line.starts_with(b"<<<<<<< ");
            if inside {
                lines += 1;
                if lines > MOST_CONFLICT_LINES {
                    cx.note(".. and more");
                    break;
                }
                let parts: Vec<String> = line.split(|byte| *byte == b'\t').map(visible).collect();
                cx.note(&format!("   {}", parts.join("\t")));
            }
            if line.starts_with(b">>>>>>> ") {
                inside = false;
            }
        }
    }
}

fn as_json(args: &ApplyArgs, space: &Workspace, outcome: &Outcome) -> Value {
    let mut value = json!({
        "schema": "bastle.apply/v1", "run": space.run(), "source": space.source().to_string_lossy(),
        "dry_run": args.dry_run, "paths": review::paths_json(outcome.carried()), "merged": [], "already": [],
        "conflicts": [], "approval": outcome.approval,
        "left_out": outcome.left_out.iter().map(|one| left_out_json(outcome, one)).collect::<Vec<_>>(),
    });
    match &outcome.taken {
        AppliedAs::Tree(plan) => {
            value["to"] = json!("tree");
            // What conflicts was not written, nor was anything else.
            let written = plan.operations().iter().map(|one| &one.path);
            value["paths"] = match plan.conflicts() {
                [] => json!(review::paths_json(written)),
                _ => json!([]),
            };
            value["kept"] = json!(review::paths_json(plan.kept()));
            value["merged"] = json!(review::paths_json(plan.merged()));
            value["already"] = json!(review::paths_json(plan.already()));
            let conflict = |one: &Conflict| {
                let mut conflict = review::path_json(&one.path);
                conflict["why"] = json!(one.why);
                conflict
            };
            value["conflicts"] = plan.conflicts().iter().map(conflict).collect();
        }
        AppliedAs::Branch(name, commit, lacking) => {
            value["to"] = json!("branch");
            value["not_in_branch"] = lacking.iter().map(review::lacking_json).collect();
            value["branch"] = json!(name);
            value["commit"] = json!(commit.as_ref().map(|id| id.as_str()));
        }
        AppliedAs::Patch(_, lacking) => {
            value["to"] = json!("patch");
            value["file"] = json!(args.patch.as_ref().map(|file| file.to_string_lossy()));
            value["not_in_patch"] = lacking.iter().map(review::lacking_json).collect();
        }
    }
    value
}

fn left_out_json(outcome: &Outcome, one: &LeftOut) -> Value {
    let mut value = review::path_json(&one.path);
    let (reason, approval) = match &one.reason {
        Reason::NotNamed => ("not-named", None),
        Reason::Ignored => ("ignored", None),
        Reason::NeedsApproval { approval } => ("needs-approval", Some(approval)),
        Reason::Refused => ("refused", None),
        Reason::KeptOurs => ("kept-ours", None),
    };
    value["reason"] = json!(reason);
    value["why"] = json!(why(outcome, one));
    if let Some(approval) = approval {
        value["approval"] = json!(approval);
    }
    value
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}

fn shown(path: &Path) -> String {
    visible(path.as_os_str().as_encoded_bytes())
}
