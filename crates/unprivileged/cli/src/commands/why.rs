//! `bastle why`: the last denial, a recorded denial by its id, or the decision on a path, URL or command.
mod network;

use super::ask::{self, Kind};
use super::run_voice::denial_code;
use super::runs;
use super::source::{PolicySource, absolute, state_dir};
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, ago, clean, clean_lines, now_ms, timestamp};
use bastle_audit::{AuditEvent, Payload, Record};
use bastle_contract::{Code, Denied, Digest, Fault, RunId};
use bastle_policy::{Effective, Query, explain};
use serde_json::{Value, json};
use std::path::Path;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle why                       the last denial of the newest run that has one
  bastle why d_8f2k                a denial by its id
  bastle why ~/.ssh/id_ed25519     reading and writing a path
  bastle why write ./src
  bastle why https://example.com/
  bastle why 'git push --force'

Exit codes: 0 explained, 3 no such denial. The answer itself is the business of can-i.
Reads outside the policy are not recorded: the kernel answers ENOENT and tells bastle nothing.")]
pub(crate) struct WhyArgs {
    /// Denial id, [read|write|exec|net|tool] TARGET, or a path, URL or command
    #[arg(value_name = "WHAT")]
    what: Vec<String>,
    /// Look for denials in this run only (name, unique prefix or @last)
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    source: PolicySource,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A denial as it was recorded.
struct Recorded {
    run: RunId,
    record: Record,
    denied: Denied,
    /// Digest of the policy it was held under.
    policy: Option<Digest>,
}

/// Explains.
pub(crate) fn run(args: WhyArgs, cx: &Context) -> Ended {
    match args.what.as_slice() {
        [] => denial(&args, None, cx),
        [id] if is_id(id) => denial(&args, Some(id), cx),
        words => decisions(&args, words, cx),
    }
}

fn is_id(text: &str) -> bool {
    text.strip_prefix("d_")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn decisions(args: &WhyArgs, words: &[String], cx: &Context) -> Ended {
    let effective = args.source.load()?.effective;
    let queries = match words.split_first() {
        Some((verb, rest)) if !rest.is_empty() && Kind::parse(verb).is_some() => {
            let kind = Kind::parse(verb).unwrap_or(Kind::Exec);
            vec![ask::question(kind, rest, &effective)?]
        }
        Some(_) | None => guessed(words, &effective)?,
    };
    let answers: Vec<_> = queries
        .into_iter()
        .map(|query| ask::answer(query, &effective))
        .collect();
    if args.json {
        let decisions: Vec<Value> = answers.iter().map(ask::Answer::json).collect();
        cx.print_json(&json!({ "schema": "bastle.why/v1", "denial": null, "decisions": decisions }))?;
        return Ok(0);
    }
    for answer in &answers {
        cx.print(&format!(
            "{}\n",
            clean_lines(&explain(&answer.decision, &answer.query))
        ))?;
        if let Some(resolved) = &answer.resolved {
            cx.print(&format!(
                "  note: it is a symlink that leads to {}\n",
                clean(resolved.as_str())
            ))?;
        }
    }
    Ok(0)
}

/// What a bare word is about: an URL, a path (reading and writing), or a command line.
fn guessed(words: &[String], effective: &Effective) -> Result<Vec<Query>, Failed> {
    let line = words.join(" ");
    if words.len() == 1 && line.contains("://") {
        return Ok(vec![ask::question(Kind::Net, words, effective)?]);
    }
    let path_like = line.starts_with(['/', '.', '~']) || line.ends_with('/');
    if words.len() == 1 && !line.contains(' ') && (path_like || Path::new(&line).symlink_metadata().is_ok()) {
        let path = absolute(Path::new(&line))?;
        return Ok(vec![Query::Read(path.clone()), Query::Write(path)]);
    }
    Ok(vec![ask::question(Kind::Exec, words, effective)?])
}

fn denial(args: &WhyArgs, id: Option<&str>, cx: &Context) -> Ended {
    let state = state_dir()?;
    let runs = match &args.run {
        Some(name) => vec![runs::find(&state, name)?],
        None => runs::newest_first(&state)?
            .into_iter()
            .map(|entry| entry.run)
            .collect(),
    };
    for run in &runs {
        match search(&state, run, id)? {
            Some(Found::Attempt(found)) => return show(args, &found, cx),
            Some(Found::Request(found)) => return network::show(args, run, &found, cx),
            None => {}
        }
    }
    let what = match id {
        Some(id) => format!("no recorded run has a denial {}", clean(id)),
        None => "nothing was denied in any recorded run".to_owned(),
    };
    let why = "reads outside the policy are not recorded: the kernel answers ENOENT and tells bastle nothing";
    Err(Fault::new(Code::AuditMissing, what, why)
        .help("bastle why PATH, URL or COMMAND explains what the policy says about it")
        .into())
}

/// What was found in a log.
enum Found {
    /// An attempt that the kernel or init refused.
    Attempt(Box<Recorded>),
    /// A request that egress refused.
    Request(Box<network::Recorded>),
}

/// The last denial of a run, or the one with this id.
fn search(state: &Path, run: &RunId, id: Option<&str>) -> Result<Option<Found>, Failed> {
    let mut policy = None;
    let mut found = None;
    let records = match bastle_audit::show(state, run) {
        Ok(records) => records,
        // The index knows a run whose log is gone: `audit verify` is the verb that says so.
        Err(bastle_audit::AuditError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.fault().into()),
    };
    for record in records {
        // A torn last line is what a live or killed run leaves; what stands before it counts.
        let Ok(record) = record else { break };
        match record.payload() {
            Some(Payload::Event(AuditEvent::RunPlanned { policy: digest, .. })) => policy = Some(digest),
            Some(Payload::Event(AuditEvent::Denied(denied))) if id.is_none_or(|id| record.uid() == id) => {
                found = Some(Found::Attempt(Box::new(Recorded {
                    run: run.clone(),
                    record,
                    denied,
                    policy: policy.clone(),
                })));
            }
            Some(Payload::Event(AuditEvent::Net(decision)))
                if network::is_denial(&decision) && id.is_none_or(|id| decision.id == id) =>
            {
                let time_ms = record.time_ms();
                found = Some(Found::Request(Box::new(network::Recorded { decision, time_ms })));
            }
            Some(_) | None => {}
        }
    }
    Ok(found)
}

/// What today's policy says about the denied attempt, if it is the policy that was held then.
fn today(args: &WhyArgs, found: &Recorded) -> Option<ask::Answer> {
    let effective = args.source.load().ok()?.effective;
    if found.policy.as_ref() != Some(&effective.digest()) {
        return None;
    }
    let path = absolute(Path::new(&found.denied.target))
        .ok()
        .filter(|_| found.denied.target.starts_with('/'))?;
    Some(ask::answer(Query::Write(path), &effective))
}

fn show(args: &WhyArgs, found: &Recorded, cx: &Context) -> Ended {
    let Recorded {
        run, record, denied, ..
    } = found;
    let code = denial_code(denied);
    let today = match denied.kind {
        bastle_contract::DenialKind::Write
        | bastle_contract::DenialKind::Hidden
        | bastle_contract::DenialKind::Protected => today(args, found),
        bastle_contract::DenialKind::Syscall
        | bastle_contract::DenialKind::Exec
        | bastle_contract::DenialKind::Limit => None,
    };
    if args.json {
        let denial = json!({
            "id": record.uid(), "run": run, "time": timestamp(record.time_ms()), "code": code.info().code, "denied": denied,
            "fix": code.info().fix,
        });
        let decisions: Vec<Value> = today.iter().map(ask::Answer::json).collect();
        cx.print_json(&json!({ "schema": "bastle.why/v1", "denial": denial, "decisions": decisions }))?;
        return Ok(0);
    }
    let style = cx.out;
    let (top, side, foot) = (
        style.pick("╭─", ",-"),
        style.pick("│", "|"),
        style.pick("╰─", "`-"),
    );
    let arrow = style.pick("→", "->");
    let mut text = format!(
        "{} denied {} {}   {} {} {}\n",
        style.cross(),
        clean(&denied.operation),
        style.paint(Paint::Bold, &clean(&denied.target)),
        code.info().code,
        style.dot(),
        clean(record.uid())
    );
    text.push_str(&format!(
        "   {top} {run}, {}({})   {}\n",
        clean(&denied.comm),
        denied.pid,
        ago(record.time_ms(), now_ms())
    ));
    text.push_str(&format!(
        "   {side}  {} {arrow} the agent saw {}\n",
        clean(&denied.operation),
        clean(&denied.errno)
    ));
    text.push_str(&format!(
        "   {foot} {}: {}\n",
        code.info().title,
        clean(&denied.rule)
    ));
    match &today {
        Some(answer) => text.push_str(&format!(
            "\n{}\n",
            clean_lines(&explain(&answer.decision, &answer.query))
        )),
        None => text.push_str(&format!(
            "  {} {}\n",
            style.paint(Paint::Accent, "help:"),
            code.info().fix
        )),
    }
    cx.print(&text)?;
    Ok(0)
}
