//! `bastle doctor`: what this host can enforce, found by trying, and the exact fix for what it cannot.
mod apparmor;
mod cause;
mod checks;
mod container;
mod copies;
mod delegation;
mod fix;
mod judge;
mod landlock;
mod observe;
mod repair;
mod trials;

use crate::context::{Context, Failed, Format};
use crate::render::{Paint, clean};
use bastle_contract::{BackendKind, Fault, HostFacts};
use bastle_control::containment::{Containment, ContainmentVerdict};
use bastle_control::fence_steps::FenceSteps;
use bastle_control::trial::Outcome;
use bastle_control::{Place, Sources, Spawner};
use bastle_policy::Score;
use cause::{Cause, Fix, Proof};
use fix::Attempt;
use observe::Observed;
use serde::Serialize;
use serde_json::{Value, json};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the native fence works here, 1 it does not, 2 --fix had no terminal to ask at."
)]
pub(crate) struct DoctorArgs {
    /// One JSON object (bastle.doctor/v1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the fixes that this host allows, each after a question, then look again
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: run them without a question
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
    /// Print the seccomp profile for containers in which bastle runs, for --security-opt seccomp=FILE
    #[arg(long, conflicts_with_all = ["json", "fix", "apparmor_profile"])]
    pub(crate) seccomp_profile: bool,
    /// Print the AppArmor profile that lets this program make user namespaces
    #[arg(long, conflicts_with_all = ["json", "fix"])]
    pub(crate) apparmor_profile: bool,
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
    /// Why a fence cannot be built; only where that was proven.
    pub(crate) cause: Option<Cause>,
    /// What proves it.
    pub(crate) proof: Option<String>,
    /// Whether `--fix` runs the fix.
    pub(crate) automatic: bool,
}

/// All that was found.
struct Findings {
    checks: Vec<Check>,
    facts: Option<HostFacts>,
    statement: Value,
    probe: Containment,
    native: bool,
    score: Option<Score>,
    cause: Option<Proof>,
}

impl Check {
    pub(crate) fn new(state: State, name: &'static str, fact: impl Into<String>) -> Self {
        Self {
            state,
            name,
            fact: fact.into(),
            consequence: String::new(),
            fix: Vec::new(),
            cause: None,
            proof: None,
            automatic: false,
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

    /// Names the proven cause, with its one fix.
    pub(crate) fn because(mut self, cause: &Proof) -> Self {
        self.cause = Some(cause.cause);
        self.proof = Some(cause.proof.clone());
        self.automatic = matches!(cause.fix, Fix::Command(_));
        self.fix = vec![cause.fix.text().to_owned()];
        self
    }
}

/// Looks, tells, and says with its exit code whether the native fence works.
pub(crate) fn run(args: DoctorArgs, cx: &Context) -> u8 {
    let format = if args.json { Format::Json } else { Format::Human };
    let printed = if args.seccomp_profile {
        cx.print(include_str!("../../../../../packaging/container/seccomp.json"))
            .map(|()| 0)
    } else if args.apparmor_profile {
        let binary = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/bastle".into());
        cx.print(&apparmor::profile(&binary)).map(|()| 0)
    } else if args.fix {
        repair::repair(&args, format, cx)
    } else {
        examine()
            .map_err(Into::into)
            .and_then(|findings| print(&findings, &[], format, cx).map(|()| u8::from(!findings.native)))
    };
    printed.unwrap_or_else(|failed| failed.tell(cx, format))
}

fn print(findings: &Findings, attempts: &[Attempt], format: Format, cx: &Context) -> Result<(), Failed> {
    match format {
        Format::Json => cx.print_json(&document(findings, attempts)),
        Format::Human => cx.print(&text(findings, attempts, cx)),
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
    let tried = trials::first()?;
    let probe = Containment::from_trial(tried.began, &tried.outcome);
    let native = probe.verdict == ContainmentVerdict::Enforced;
    let cause = (!native)
        .then(|| prove(&tried.outcome, facts.as_ref()))
        .transpose()?;
    checks.push(checks::fence(&tried.outcome, cause.as_ref()));
    checks.extend(tried.unmapped);
    checks.extend(checks::surroundings());
    if let Some(facts) = &facts {
        checks.push(landlock::check(facts));
        checks.push(checks::notify(facts));
        checks.push(checks::cgroups(facts));
        checks.extend(checks::idmap(facts, &tried.state)?);
    }
    let mut score = None;
    match Place::find(None).or_else(|_| Place::find(Some(&tried.workspace))) {
        Ok(place) => {
            checks.extend(checks::state(&place, probe.verdict));
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
        statement: tried.outcome.json["statement"].clone(),
        probe,
        native,
        score,
        cause,
    })
}

/// Finds the cause of a trial that failed: the steps are tried one by one, then the first that fails is explained.
fn prove(outcome: &Outcome, facts: Option<&HostFacts>) -> Result<Proof, Fault> {
    let seen = Observed::of_host(outcome.fault(), facts, FenceSteps::try_all()?);
    Ok(judge::judge(&seen, &bastle_control::newer_kernel(&seen.release)))
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

fn document(findings: &Findings, attempts: &[Attempt]) -> Value {
    json!({
        "schema": "bastle.doctor/v1",
        "native": findings.native,
        "cause": findings.cause.as_ref().map(|cause| cause.cause),
        "fixes": attempts,
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

fn text(findings: &Findings, attempts: &[Attempt], cx: &Context) -> String {
    let style = cx.out;
    let mut lines = Vec::new();
    for Check {
        state,
        name,
        fact,
        consequence,
        fix,
        cause,
        proof,
        automatic: _,
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
        if let (Some(cause), Some(proof)) = (cause, proof) {
            lines.push(format!("{:13}cause: {}: {}", "", cause.code(), clean(proof)));
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
    if attempts.is_empty() && findings.checks.iter().any(|check| check.automatic) {
        lines.push(format!("{:13}bastle doctor --fix runs it after a question", ""));
    }
    lines.push(String::new());
    lines.push(format!(
        "Result: {tally}; {}.{}",
        findings.verdict(),
        score.unwrap_or_default()
    ));
    lines.push(String::new());
    lines.join("\n")
}
