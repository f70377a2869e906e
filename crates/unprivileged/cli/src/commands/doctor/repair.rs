//! `bastle doctor --fix`: asks, runs the fix of the cause that was proven, and looks again.
use super::cause::{Fix, Proof};
use super::fix::{self, Attempt, AttemptResult, Consent};
use super::{DoctorArgs, Findings, examine, print};
use crate::context::{Context, Failed, Format};
use crate::render::clean;
use bastle_contract::{Code, Fault};

/// A fix can uncover the next cause; more in a row than this are not tried.
const MOST: usize = 5;

/// Fixes what can be fixed from here; the exit code is that of the last look.
pub(super) fn repair(args: &DoctorArgs, format: Format, cx: &Context) -> Result<u8, Failed> {
    let consent = match Consent::choose(args) {
        // A program that reads the object cannot answer a question.
        Consent::Ask if format == Format::Json => Consent::Unattended,
        consent => consent,
    };
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut findings = examine()?;
    while let Some((proof, line)) = next(&findings, &attempts) {
        let (cause, line) = (proof.cause.code(), line.to_owned());
        cx.note(&format!("cause: {cause}: {}", clean(&proof.proof)));
        let mut attempt = Attempt {
            cause,
            command: line.clone(),
            exit: None,
            result: AttemptResult::NotAsked,
        };
        let wanted = match consent {
            Consent::Given => {
                cx.note(&format!("running: {}", clean(&line)));
                true
            }
            Consent::Ask => fix::is_wanted(&line),
            Consent::Unattended => {
                attempts.push(attempt);
                print(&findings, &attempts, format, cx)?;
                return Err(unattended(&line).into());
            }
        };
        if !wanted {
            attempt.result = AttemptResult::Declined;
            attempts.push(attempt);
            break;
        }
        let exit = fix::run(&line).map_err(|error| {
            Fault::new(
                Code::UsageEnv,
                format!("cannot run the fix {line}"),
                error.to_string(),
            )
        })?;
        attempt.exit = exit;
        findings = examine()?;
        let gone = findings.cause.as_ref().map(|now| now.cause) != Some(proof.cause);
        attempt.result = match (gone, exit) {
            (true, _) => AttemptResult::Worked,
            (false, Some(0)) => AttemptResult::DidNotWork,
            (false, Some(_) | None) => AttemptResult::Failed,
        };
        cx.note(&told(&attempt));
        let worked = attempt.result == AttemptResult::Worked;
        attempts.push(attempt);
        if !worked {
            break;
        }
    }
    if attempts.is_empty() {
        cx.note(nothing(&findings));
    }
    print(&findings, &attempts, format, cx)?;
    Ok(u8::from(!findings.native))
}

/// The cause whose fix is a command that was not tried yet.
fn next(findings: &Findings, attempts: &[Attempt]) -> Option<(Proof, String)> {
    let proof = findings.cause.as_ref()?;
    let Fix::Command(line) = &proof.fix else {
        return None;
    };
    let tried = attempts.iter().any(|attempt| attempt.command == *line);
    (!tried && attempts.len() < MOST).then(|| (proof.clone(), line.clone()))
}

fn told(attempt: &Attempt) -> String {
    let Attempt {
        cause, exit, result, ..
    } = attempt;
    match (result, exit) {
        (AttemptResult::Worked, Some(0)) => format!("fixed: {cause}"),
        (AttemptResult::Worked, _) => {
            format!("fixed: {cause}; a part of the command failed, so it may not last")
        }
        (AttemptResult::DidNotWork, _) => {
            format!("not fixed: {cause}: the command ran, and the same trial still fails")
        }
        (_, Some(code)) => format!("not fixed: {cause}: the command ended with {code}"),
        (_, None) => format!("not fixed: {cause}: the command was ended by a signal"),
    }
}

fn nothing(findings: &Findings) -> &'static str {
    if findings.native {
        "nothing to fix: the native fence works here"
    } else {
        "no fix that can be run from here; what to do is in the line of the cause"
    }
}

fn unattended(line: &str) -> Fault {
    Fault::new(
        Code::UsageArgument,
        "no fix was run",
        format!("there is no terminal to ask at; it would run: {line}"),
    )
    .help("bastle doctor --fix --yes")
}
