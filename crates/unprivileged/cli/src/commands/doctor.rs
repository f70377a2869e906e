//! `bastle doctor`: what this host can enforce, found by trying, and the exact fix for what it cannot.
mod causes;
mod checks;

use crate::context::{Context, Format};
use crate::render::{Paint, clean};
use bastle_contract::{BackendKind, Fault, HostFacts};
use bastle_control::containment::{Containment, ContainmentVerdict};
use bastle_control::trial::{Scratch, TRIAL_TIME, Trial, TrialSettings};
use bastle_control::{Place, Sources, Spawner};
use bastle_policy::Score;
use serde::Serialize;
use serde_json::{Value, json};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 the native fence works here, 1 it does not.")]
pub(crate) struct DoctorArgs {
    /// One JSON object (bastle.doctor/v1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// Works, with less than there could be.
    Warning,
    /// The fence cannot be built, or not kept.
    Problem,
    /// Worth knowing.
    Info,
}

/// One line: state, fact, consequence, fix.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) state: State,
    pub(crate) name: &'static str,
    pub(crate) fact: String,
    pub(crate) consequence: String,
    pub(crate) fix: Vec<String>,
}

/// All that was found.
struct Findings {
    checks: Vec<Check>,
    facts: Option<HostFacts>,
    statement: Value,
    probe: Containment,
    native: bool,
    score: Option<Score>,
}

impl Check {
    pub(crate) fn new(state: State, name: &'static str, fact: impl Into<String>) -> Self {
        Self {
            state,
            name,
            fact: fact.into(),
            consequence: String::new(),
            fix: Vec::new(),
        }
    }

    pub(crate) fn consequence(mut self, text: impl Into<String>) -> Self {
        self.consequence = text.into();
        self
    }

    pub(crate) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }
}

/// Looks, tells, and says with its exit code whether the native fence works.
pub(crate) fn run(args: DoctorArgs, cx: &Context) -> u8 {
    let format = if args.json { Format::Json } else { Format::Human };
    let findings = match examine() {
        Ok(findings) => findings,
        Err(fault) => {
            cx.report(&[fault], format);
            return 1;
        }
    };
    let printed = match format {
        Format::Json => cx.print_json(&document(&findings)),
        Format::Human => cx.print(&text(&findings, cx)),
    };
    match printed {
        Ok(()) => u8::from(!findings.native),
        Err(failed) => failed.tell(cx, format),
    }
}

fn examine() -> Result<Findings, Fault> {
    let mut checks = Vec::new();
    let facts = host_facts();
    match &facts {
        Ok(facts) => checks.push(checks::kernel(facts)),
        Err(fault) => checks.push(Check::new(State::Problem, "spawner", fault.to_string())),
    }
    let facts = facts.ok();
    let scratch = Scratch::make()?;
    let (workspace, state) = (scratch.dir("project")?, scratch.dir("state")?);
    let began = std::time::Instant::now();
    let outcome = Trial {
        // The place is made for the trial and thrown away: there is nothing a copy would keep.
        mode: "in-place",
        flags: &["--quiet"],
        command: &["true"],
        workspace: &workspace,
        state: &state,
        settings: TrialSettings::Own,
        within: TRIAL_TIME,
    }
    .run()?;
    let probe = Containment::from_trial(began, &outcome);
    let native = probe.verdict == ContainmentVerdict::Enforced;
    checks.push(checks::fence(&outcome));
    checks.extend(causes::find(if native { State::Info } else { State::Problem }));
    if let Some(facts) = &facts {
        checks.push(checks::landlock(facts));
        checks.push(checks::notify(facts));
        checks.push(checks::cgroups(facts));
        checks.extend(checks::idmap(facts, &state)?);
    }
    let mut score = None;
    match Place::find(None).or_else(|_| Place::find(Some(&workspace))) {
        Ok(place) => {
            checks.extend(checks::state(&place));
            match bastle_control::load(&place, &Sources::default()) {
                Ok(loaded) => {
                    checks.extend(checks::agents(&place, &loaded.effective));
                    score = Some(bastle_policy::score(&loaded.effective, BackendKind::Native));
                }
                Err(faults) => checks.extend(faults.iter().map(|fault| {
                    Check::new(State::Problem, "policy", fault.to_string())
                        .consequence("runs in this directory fail")
                        .fix("bastle policy check FILE")
                })),
            }
        }
        Err(fault) => checks.push(Check::new(State::Problem, "place", fault.to_string())),
    }
    checks.push(checks::git());
    Ok(Findings {
        checks,
        facts,
        statement: outcome.json["statement"].clone(),
        probe,
        native,
        score,
    })
}

/// The spawner's first word; it is not asked for anything else and ends.
fn host_facts() -> Result<HostFacts, Fault> {
    let spawner = Spawner::start()?;
    let facts = spawner.facts();
    drop(spawner.close());
    facts
}

impl Findings {
    fn count(&self, state: State) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    fn verdict(&self) -> &'static str {
        if self.native {
            "the native fence works here"
        } else {
            "the native fence does NOT work here: bastle run refuses to start"
        }
    }
}

fn document(findings: &Findings) -> Value {
    json!({
        "schema": "bastle.doctor/v1",
        "native": findings.native,
        "probe": probe(&findings.probe),
        "problems": findings.count(State::Problem),
        "warnings": findings.count(State::Warning),
        "checks": findings.checks,
        "host": findings.facts,
        "statement": findings.statement,
        "score": findings.score,
    })
}

/// What the trial showed, when, and how long ago.
fn probe(probe: &Containment) -> Value {
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    json!({
        "verdict": probe.verdict,
        "probed_at_ms": probe.probed_at_ms,
        "age_ms": millis(probe.age()),
        "took_ms": millis(probe.took),
        "fence": probe.fence,
        "guarantees": probe.guarantees,
        "problem": probe.problem,
    })
}

fn text(findings: &Findings, cx: &Context) -> String {
    let style = cx.out;
    let mut lines = Vec::new();
    for Check {
        state,
        name,
        fact,
        consequence,
        fix,
    } in &findings.checks
    {
        let mark = match state {
            State::Ok => style.tick(),
            State::Warning => style.paint(Paint::Warn, "!"),
            State::Problem => style.cross(),
            State::Info => style.paint(Paint::Dim, "i"),
        };
        lines.push(format!("{mark} {name:<10} {}", clean(fact)));
        if !consequence.is_empty() {
            lines.push(format!(
                "{:13}{} {}",
                "",
                style.pick("→", "->"),
                clean(consequence)
            ));
        }
        for (index, fix) in fix.iter().enumerate() {
            let label = if index == 0 { "fix:" } else { "    " };
            lines.push(format!("{:13}{label} {}", "", clean(fix)));
        }
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let score = findings.score.as_ref().map(|score| {
        format!(
            " Score of the policy here: {}.{} {} (0 nothing reachable, 10 no fence).",
            score.tenths / 10,
            score.tenths % 10,
            score.word
        )
    });
    let tally = format!(
        "{}, {}",
        count(findings.count(State::Problem), "problem"),
        count(findings.count(State::Warning), "warning")
    );
    lines.push(String::new());
    lines.push(format!(
        "Result: {tally}; {}.{}",
        findings.verdict(),
        score.unwrap_or_default()
    ));
    lines.push(String::new());
    lines.join("\n")
}
