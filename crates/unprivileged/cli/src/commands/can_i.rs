//! `bastle can-i`: one question, one line, one exit code.
use super::ask::{self, Answer, Kind};
use super::source::PolicySource;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, clean};
use bastle_policy::Outcome;

/// Arguments of `can-i`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle can-i read ~/.ssh/id_ed25519
  bastle can-i write ./src/main.rs --preset read-only
  bastle can-i exec 'cargo test && git push'
  bastle can-i net GET https://example.com/a
  bastle can-i tool 'Bash(git push *)'

Exit codes: 0 allow, 1 deny, 10 ask (a person decides), 2 no answer (usage, or a policy that cannot be used).")]
pub(crate) struct CanIArgs {
    /// What is asked about
    #[arg(value_enum)]
    kind: Kind,
    /// Path, command line, URL or tool
    #[arg(required = true, value_name = "TARGET")]
    target: Vec<String>,
    #[command(flatten)]
    source: PolicySource,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Answers.
pub(crate) fn run(args: CanIArgs, cx: &Context) -> Ended {
    // 1 means "denied" here, so a question without an answer must be something else.
    answer(&args, cx).map_err(|failed| failed.exit(2))
}

fn answer(args: &CanIArgs, cx: &Context) -> Result<u8, Failed> {
    let effective = args.source.load()?.effective;
    let answer = ask::answer(ask::question(args.kind, &args.target, &effective)?, &effective);
    if args.json {
        let mut value = answer.json();
        value["schema"] = "bastle.can-i/v1".into();
        cx.print_json(&value)?;
    } else {
        cx.print(&format!("{}\n", line(&answer, cx)))?;
        if answer.decision.outcome != Outcome::Allow {
            cx.note(&cx.err.paint(Paint::Dim, "more: bastle why KIND TARGET"));
        }
    }
    Ok(ask::exit_code(answer.decision.outcome))
}

fn line(answer: &Answer, cx: &Context) -> String {
    let decision = &answer.decision;
    let (mark, paint) = match decision.outcome {
        Outcome::Allow => (cx.out.tick(), Paint::Good),
        Outcome::Ask => (cx.out.query(), Paint::Warn),
        Outcome::Deny => (cx.out.cross(), Paint::Bad),
    };
    let rule = match &decision.rule {
        Some((rule, origin)) => format!("rule {rule} ({origin})"),
        None => decision.reason.clone(),
    };
    let held = if decision.enforced {
        format!("enforced by {}", decision.mechanism)
    } else {
        "advisory".to_owned()
    };
    let dot = cx.out.dot();
    let mut line = format!(
        "{mark} {} {} {dot} {} {dot} {held}",
        cx.out.paint(paint, decision.outcome.name()),
        clean(&answer.query.to_string()),
        clean(&rule)
    );
    if let Some(code) = decision.code {
        line.push_str(&format!(" {dot} {code}"));
    }
    if let Some(resolved) = &answer.resolved {
        line.push_str(&format!(" {dot} it leads to {}", clean(resolved.as_str())));
    }
    line
}
