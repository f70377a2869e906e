//! `bastle approvals`: what runs ask a person, and the answers. With the daemon through it, without over the runs' sockets.
mod question;

use crate::client::{Daemon, rest, short};
use crate::context::{Context, Ended, Failed, Format};
use crate::render::{Paint, Table, ago, clean, duration_ms, now_ms, timestamp};
use bastle_control::fleet::{Approval, PrincipalKind};
use bastle_control::live::Scope;
use bastle_serve::client::Waited;
use question::{Answer, Channel, Question};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Without the daemon nobody tells: how often the runs are asked.
const LOOK: Duration = Duration::from_secs(1);

/// Arguments of `approvals`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle approvals ls
  bastle approvals ls --all
  bastle approvals watch
  bastle approvals approve 12 --scope session
  bastle approvals deny 13 -m 'use the mirror'

An answer holds for exactly what was asked: --hash binds it to what you saw. The first answer wins.
Exit codes: 0 ok, 1 refused or stale, 2 usage, 3 no such question, 4 not permitted.")]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    verb: Option<ApprovalsVerb>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum ApprovalsVerb {
    /// List open questions
    #[command(visible_alias = "list")]
    Ls {
        /// Also those that were answered: by whom, and whether a person or a program; needs the daemon
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show questions as they are asked
    Watch {
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
    /// Say yes
    Approve {
        /// Number of the question, or its id within the run
        id: String,
        /// For this request, or for the same until the run ends
        #[arg(long, value_enum, default_value = "once", value_name = "HOW")]
        scope: ScopeWord,
        #[command(flatten)]
        more: AnswerArgs,
    },
    /// Say no
    Deny {
        /// Number of the question, or its id within the run
        id: String,
        #[command(flatten)]
        more: AnswerArgs,
    },
}

/// What both answers have.
#[derive(Debug, clap::Args)]
struct AnswerArgs {
    /// A word to the record
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Beginning of the hash that was shown: another question is not answered
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long a yes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ScopeWord {
    /// For this request
    Once,
    /// For the same until the run ends
    Session,
}

impl ApprovalsArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            None => self.json,
            Some(ApprovalsVerb::Ls { json, .. } | ApprovalsVerb::Watch { json }) => *json || self.json,
            Some(ApprovalsVerb::Approve { more, .. } | ApprovalsVerb::Deny { more, .. }) => {
                more.json || self.json
            }
        }
    }
}

/// Does it.
pub(crate) fn run(args: &ApprovalsArgs, cx: &Context) -> Ended {
    let format = Format::from(args.json());
    match &args.verb {
        Some(ApprovalsVerb::Ls { all: true, .. }) => ls_all(format, cx),
        None | Some(ApprovalsVerb::Ls { .. }) => ls(format, cx),
        Some(ApprovalsVerb::Watch { .. }) => watch(format, cx),
        Some(ApprovalsVerb::Approve { id, scope, more }) => {
            let scope = match scope {
                ScopeWord::Once => Scope::Once,
                ScopeWord::Session => Scope::Session,
            };
            let answer = Answer {
                yes: true,
                scope,
                message: more.message.as_deref(),
            };
            say(id, &answer, more, format, cx)
        }
        Some(ApprovalsVerb::Deny { id, more }) => {
            let answer = Answer {
                yes: false,
                scope: Scope::Once,
                message: more.message.as_deref(),
            };
            say(id, &answer, more, format, cx)
        }
    }
}

fn ls(format: Format, cx: &Context) -> Ended {
    let open = Channel::open()?.questions()?;
    if format == Format::Json {
        let listed: Vec<Value> = open.iter().map(as_value).collect();
        cx.print_json(&json!({ "schema": "bastle.approvals/v1", "approvals": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["ID", "RUN", "ABOUT", "ASKED", "HASH", "WHAT"]);
    let now = now_ms();
    for one in &open {
        table.row([
            (&one.id, Paint::Bold),
            (&one.run, Paint::Plain),
            (&one.about, Paint::Plain),
            (
                &one.asked_ms.map(|ms| ago(ms, now)).unwrap_or_default(),
                Paint::Plain,
            ),
            (&brief(one), Paint::Dim),
            (&one.text, Paint::Warn),
        ]);
    }
    if table.is_empty() {
        cx.note("nothing waits for an answer");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

/// All questions that the daemon has on record, with who answered each.
fn ls_all(format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let all: Vec<Approval> = daemon.list("/api/v1/approvals?limit=1000")?;
    if format == Format::Json {
        let listed: Vec<Value> = all.into_iter().map(recorded).collect();
        cx.print_json(&json!({ "schema": "bastle.approvals/v1", "approvals": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["ID", "RUN", "ABOUT", "STATE", "BY", "KIND", "WHAT"]);
    for one in &all {
        let state = json!(one.state);
        table.row([
            (&one.id.to_string(), Paint::Bold),
            (one.run.as_str(), Paint::Plain),
            (&one.about, Paint::Plain),
            (state.as_str().unwrap_or_default(), Paint::Plain),
            (one.approver.as_deref().unwrap_or("-"), Paint::Plain),
            (one.approver_kind.map_or("-", PrincipalKind::word), Paint::Plain),
            (&one.text, Paint::Warn),
        ]);
    }
    if table.is_empty() {
        cx.note("no question is on record");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

/// A question with what became of it.
fn recorded(approval: Approval) -> Value {
    let (state, answered) = (json!(approval.state), approval.answered_ms.map(timestamp));
    let (approver, kind) = (approval.approver.clone(), approval.approver_kind);
    let mut value = as_value(&Question::from(approval));
    value["state"] = state;
    value["answered"] = json!(answered);
    value["approver"] = json!(approver);
    value["approver_kind"] = json!(kind);
    value
}

/// The hash as it is shown: what `--hash` takes.
fn brief(question: &Question) -> String {
    let hash = question.hash.as_deref().unwrap_or_default();
    hash.chars().take(12).collect()
}

fn say(id: &str, answer: &Answer<'_>, more: &AnswerArgs, format: Format, cx: &Context) -> Ended {
    let channel = Channel::open()?;
    let open = channel.questions()?;
    let question = question::find(&open, id)?;
    question::same(question, more.hash.as_deref())?;
    channel.answer(question, answer)?;
    let verdict = if answer.yes { "approved" } else { "denied" };
    if format == Format::Json {
        cx.print_json(&json!({
            "schema": "bastle.approval/v1", "verdict": verdict, "approval": as_value(question),
        }))?;
        return Ok(0);
    }
    if let (Channel::Sockets, Some(_)) = (&channel, answer.message) {
        cx.note("the message is kept by the daemon alone, and none is running: it was not passed on");
    }
    let what = if question.text.is_empty() {
        String::new()
    } else {
        format!(": {}", clean(&question.text))
    };
    cx.note(&format!(
        "{} {verdict} {} of {}{what}",
        cx.err.tick(),
        short(&question.id),
        short(&question.run)
    ));
    Ok(0)
}

/// Shows what is open and what comes, until it is interrupted.
fn watch(format: Format, cx: &Context) -> Ended {
    let channel = Channel::open()?;
    let mut shown = BTreeSet::new();
    match &channel {
        Channel::Daemon(daemon) => loop {
            // The stream first: what is asked before it begins is in the list.
            let mut events = daemon.events(None, "kind=question,answered,state")?;
            tell_new(&channel, &mut shown, format, cx)?;
            while let Waited::Event(_) | Waited::Late = events.wait(Duration::from_secs(30)) {
                tell_new(&channel, &mut shown, format, cx)?;
            }
        },
        Channel::Sockets => loop {
            tell_new(&channel, &mut shown, format, cx)?;
            rest(LOOK);
        },
    }
}

/// Tells questions that were not told yet, and forgets those that are over.
fn tell_new(
    channel: &Channel,
    shown: &mut BTreeSet<(String, Option<String>)>,
    format: Format,
    cx: &Context,
) -> Result<(), Failed> {
    let open = channel.questions()?;
    let key = |one: &Question| (one.id.clone(), one.hash.clone());
    shown.retain(|told| open.iter().any(|one| key(one) == *told));
    for one in &open {
        if !shown.insert(key(one)) {
            continue;
        }
        if format == Format::Json {
            cx.print_json(
                &json!({ "schema": "bastle.approval/v1", "verdict": null, "approval": as_value(one) }),
            )?;
        } else {
            cx.print(&told(one, cx))?;
        }
    }
    Ok(())
}

/// A question in words, with the commands that answer it.
fn told(question: &Question, cx: &Context) -> String {
    let dot = cx.out.dot();
    let left = question
        .expires_ms
        .map(|until| format!(" {dot} {} left", duration_ms(until.saturating_sub(now_ms()))));
    let text = if question.text.is_empty() {
        "asks; bastle why tells what"
    } else {
        &question.text
    };
    let (id, hash) = (short(&question.id), clean(&brief(question)));
    let bind = if hash.is_empty() {
        String::new()
    } else {
        format!(" --hash {hash}")
    };
    format!(
        "{} {} {} {dot} {}{}\n  yes: bastle approvals approve {id}{bind}\n  no:  bastle approvals deny {id}{bind}\n",
        cx.out.query(),
        cx.out.paint(Paint::Bold, &short(&question.run)),
        clean(text),
        clean(&question.about),
        left.unwrap_or_default(),
    )
}

fn as_value(question: &Question) -> Value {
    json!({
        "id": question.id, "run": question.run, "question": question.question, "hash": question.hash,
        "text": question.text, "about": question.about,
        "asked": question.asked_ms.map(timestamp), "expires": question.expires_ms.map(timestamp),
    })
}
