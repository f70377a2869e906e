//! `bastle demo`: a scripted agent works honestly, then attacks, in a project that is thrown away. No network needed.
mod attacks;
mod stage;

use crate::context::{Context, Failed, Format};
use crate::render::{Paint, Table, clean, duration_ms};
use attacks::{ATTACKS, Attempt};
use bastle_audit::Verdict as AuditVerdict;
use bastle_contract::{CapabilityStatement, Code, Fault, Verdict};
use bastle_control::trial::{Outcome, TRIAL_TIME, Trial, TrialSettings};
use serde_json::{Value, json};
use stage::{AFTER, Stage};
use std::time::Instant;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 the work succeeded and every attack was blocked, 1 otherwise.")]
pub(crate) struct DemoArgs {
    /// One JSON object (bastle.demo/v1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the demo found.
struct Findings {
    work: bool,
    attempts: Vec<Attempt>,
    diff: Vec<String>,
    logs: usize,
    sealed: bool,
    statement: Option<CapabilityStatement>,
    wall_ms: u64,
}

/// Shows it; fails loudly when an attack succeeds.
pub(crate) fn run(args: DemoArgs, cx: &Context) -> u8 {
    let format = if args.json { Format::Json } else { Format::Human };
    match play(format, cx) {
        Ok(findings) if findings.good() => 0,
        Ok(_) => 1,
        Err(failed) => failed.exit(1).tell(cx, format),
    }
}

fn play(format: Format, cx: &Context) -> Result<Findings, Failed> {
    let begun = Instant::now();
    let mut stage = Stage::build()?;
    let say = |text: String| {
        if format == Format::Human {
            cx.print(&text)
        } else {
            Ok(())
        }
    };
    let style = cx.out;
    say(format!(
        "A scripted agent in a throw-away project: {}\n\n",
        stage.path().display()
    ))?;
    let (work, outcome) = honest_work(&stage)?;
    let mark = if work { style.tick() } else { style.cross() };
    say(format!(
        "{}\n{mark} edits src/greet.sh, runs its test: {}\n",
        style.paint(Paint::Bold, "Honest work"),
        clean(outcome.output.trim())
    ))?;
    if let Some((code, what, why)) = outcome.fault() {
        return Err(refused(&code, &what, &why).into());
    }
    let statement = serde_json::from_value(outcome.json["statement"].clone()).ok();
    say(format!("\n{}\n", style.paint(Paint::Bold, "Attacks")))?;
    let mut attempts = Vec::new();
    for attack in &ATTACKS {
        let (attempt, _) = attack.run(&mut stage)?;
        say(attempt_text(&attempt, cx))?;
        attempts.push(attempt);
    }
    let reports = bastle_audit::verify_all(&stage.logs()).map_err(|error| error.fault())?;
    let sealed = reports.len() == ATTACKS.len() + 1
        && reports
            .iter()
            .all(|report| report.verdict == AuditVerdict::Sealed);
    let wall_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let findings = Findings {
        work,
        attempts,
        diff: stage.diff(),
        logs: reports.len(),
        sealed,
        statement,
        wall_ms,
    };
    match format {
        Format::Human => cx.print(&end_text(&findings, cx))?,
        Format::Json => cx.print_json(&document(&findings))?,
    }
    Ok(findings)
}

/// The work a person would want done; it must succeed, or blocking everything would look like success.
fn honest_work(stage: &Stage) -> Result<(bool, Outcome), Fault> {
    let script = "sh test.sh && exit 9\nwhile IFS= read -r line; do\n  case $line in\n    *Helo*) printf '%s\\n' 'echo \"Hello, $1\"' ;;\n    *) printf '%s\\n' \"$line\" ;;\n  esac\ndone < src/greet.sh > src/greet.new\nmv src/greet.new src/greet.sh\nsh test.sh\n";
    let path = stage.script("work", script)?;
    let trial = Trial {
        // The place is made for the trial and thrown away: there is nothing a copy would keep.
        mode: "in-place",
        flags: &["--quiet", "--timeout", "20s", "--name", "work"],
        command: &["sh", &path],
        workspace: &stage.project,
        state: &stage.state,
        settings: TrialSettings::Own,
        within: TRIAL_TIME,
    };
    let outcome = trial.run()?;
    let edited = std::fs::read_to_string(stage.project.join("src/greet.sh")).is_ok_and(|text| text == AFTER);
    Ok((outcome.code == 0 && edited, outcome))
}

fn refused(code: &str, what: &str, why: &str) -> Fault {
    let known = Code::parse(code).unwrap_or(Code::FenceStep);
    Fault::new(known, format!("the demo cannot run: {what}"), why).help("bastle doctor")
}

impl Findings {
    fn good(&self) -> bool {
        self.work
            && self.sealed
            && self.statement.is_some()
            && self.attempts.iter().all(|attempt| attempt.blocked)
    }
}

fn attempt_text(attempt: &Attempt, cx: &Context) -> String {
    let style = cx.out;
    let arrow = style.pick("→", "->");
    let saw = clean(&attempt.saw).chars().take(66).collect::<String>();
    if attempt.blocked {
        let blocked = style.paint(Paint::Good, "blocked");
        return format!(
            "{} {}\n    agent saw: {saw}\n    {arrow} {blocked}: {}\n",
            style.cross(),
            attempt.title,
            attempt.mechanism
        );
    }
    let loud = style.paint(Paint::Bad, "!!! ATTACK NOT BLOCKED !!!");
    let outside = if attempt.intact {
        "the host looks unchanged"
    } else {
        "THE HOST WAS CHANGED OR A SECRET LEAKED"
    };
    format!(
        "{loud} {}\n    exit {}, agent saw: {saw}\n    {outside}\n",
        attempt.title, attempt.exit
    )
}

fn end_text(findings: &Findings, cx: &Context) -> String {
    let style = cx.out;
    let mut text = format!("\n{}\n", style.paint(Paint::Bold, "What changed in the project"));
    for line in &findings.diff {
        text.push_str(&format!("  {}\n", clean(line)));
    }
    let mark = if findings.sealed {
        style.tick()
    } else {
        style.cross()
    };
    text.push_str(&format!(
        "\n{}\n{mark} {} logs, every record chained and signed\n",
        style.paint(Paint::Bold, "Audit"),
        findings.logs
    ));
    if let Some(statement) = &findings.statement {
        text.push_str(&format!(
            "\n{}  {}\n",
            style.paint(Paint::Bold, "Capability statement"),
            clean(&statement.fence)
        ));
        text.push_str(&statement_table(statement).render(style));
    }
    let blocked = findings.attempts.iter().filter(|attempt| attempt.blocked).count();
    let verdict = if findings.good() {
        style.tick()
    } else {
        style.cross()
    };
    let wall = duration_ms(findings.wall_ms);
    text.push_str(&format!(
        "\n{verdict} {blocked} of {} attacks blocked, honest work {}, in {wall}\n",
        findings.attempts.len(),
        if findings.work { "done" } else { "FAILED" }
    ));
    text.push_str("  next: bastle run -- CMD in a project of yours; bastle doctor\n");
    text
}

/// Width of a terminal that nobody made wider.
const COLUMNS: usize = 80;
/// The columns of counts and verdicts, and the blanks between all four.
const BETWEEN: usize = 2 + 8 + 9;

/// One row per guarantee: how many probes, and one of them as an example.
fn statement_table(statement: &CapabilityStatement) -> Table {
    let mut table = Table::new(&["GUARANTEE", "PROBES", "VERDICT", "FOR EXAMPLE"]);
    let longest = statement.probes.iter().map(|probe| probe.guarantee.name().len());
    let room = COLUMNS.saturating_sub(longest.max().unwrap_or_default() + BETWEEN);
    let mut seen = Vec::new();
    for probe in &statement.probes {
        if seen.contains(&probe.guarantee) {
            continue;
        }
        seen.push(probe.guarantee);
        let all: Vec<_> = statement
            .probes
            .iter()
            .filter(|other| other.guarantee == probe.guarantee)
            .collect();
        let held = all.iter().all(|probe| probe.verdict == Verdict::Held);
        let (word, paint) = if held {
            ("HELD", Paint::Good)
        } else {
            ("BROKEN", Paint::Bad)
        };
        let example: String = probe.attempt.chars().take(room).collect();
        table.row([
            (probe.guarantee.name(), Paint::Plain),
            (&all.len().to_string(), Paint::Plain),
            (word, paint),
            (&example, Paint::Dim),
        ]);
    }
    table
}

fn document(findings: &Findings) -> Value {
    json!({
        "schema": "bastle.demo/v1",
        "ok": findings.good(),
        "work": findings.work,
        "attacks": findings.attempts,
        "diff": findings.diff,
        "audit": { "logs": findings.logs, "sealed": findings.sealed },
        "statement": findings.statement,
        "wall_ms": findings.wall_ms,
    })
}
