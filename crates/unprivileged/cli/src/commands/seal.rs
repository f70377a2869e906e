//! `bastle seal`: a finished run as a signed statement, and the check of one.
use super::review;
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::render::clean;
use bastle_contract::{Code, Fault, RunId};
use bastle_control::provenance::{self, MAX_ENVELOPE};
use bastle_control::review as control;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Arguments of `seal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle seal calm-otter                            the statement on standard output
  bastle seal calm-otter -o calm-otter.intoto.jsonl
  bastle seal --verify calm-otter.intoto.jsonl      with the key of this state directory
  bastle seal --verify FILE --key alice.pub

The statement (in-toto, SLSA provenance, in a DSSE envelope) names the agent, the policy, the prompt, the state the run
began with, every file it changed and its audit log, each by digest. Keep the public key: audit/key.pub below the state
directory.

Exit codes: 0 ok, 1 not sealed or not genuine, 3 no such run.")]
pub(crate) struct SealArgs {
    /// The run (name, unique prefix, or @last of this project)
    #[arg(required_unless_present = "verify")]
    run: Option<String>,
    /// Write it here instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Check a statement instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "output"])]
    verify: Option<PathBuf>,
    /// Public key to check with (default: the one of this state directory)
    #[arg(long, value_name = "FILE", requires = "verify")]
    key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Seals, or checks.
pub(crate) fn run(args: &SealArgs, cx: &Context) -> Ended {
    match (&args.verify, &args.run) {
        (Some(file), _) => check(file, args, cx),
        (None, name) => seal(name.as_deref(), args, cx),
    }
}

fn seal(name: Option<&str>, args: &SealArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    // A run in place has no copy: then the statement is about its record.
    let space = match control::open(&at, name) {
        Ok(opened) => Some(opened.space),
        Err(fault) => match name.and_then(|name| RunId::try_from(name.to_owned()).ok()) {
            Some(_) => None,
            None => return Err(fault.into()),
        },
    };
    let run = match (&space, name) {
        (Some(space), _) => space.run().clone(),
        (None, Some(name)) => RunId::try_from(name.to_owned())
            .map_err(|error| Fault::new(Code::UsageArgument, "no such run", error.to_string()))?,
        (None, None) => return Err(Fault::new(Code::UsageArgument, "no run is named", "").into()),
    };
    let sealed = provenance::seal(&at.state, &run, space.as_ref())?;
    match &args.output {
        Some(file) => write(file, &sealed.envelope)?,
        None if !args.json => cx.print(&format!("{}\n", sealed.envelope))?,
        None => {}
    }
    let subjects = sealed.statement["subject"].as_array().map_or(0, Vec::len);
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.seal/v1", "run": run, "key": sealed.key, "statement": sealed.statement,
            "envelope": serde_json::from_str::<Value>(&sealed.envelope).unwrap_or(Value::Null),
            "file": args.output.as_ref().map(|file| file.to_string_lossy()),
        }))?;
    } else {
        let tick = cx.err.tick();
        cx.note(&format!(
            "{tick} {run} sealed: {subjects} subjects, key {}",
            sealed.key
        ));
    }
    Ok(0)
}

fn check(file: &Path, args: &SealArgs, cx: &Context) -> Ended {
    let envelope = read(file, MAX_ENVELOPE)?;
    let public = match &args.key {
        Some(key) => String::from_utf8_lossy(&read(key, 4096)?).trim().to_owned(),
        None => {
            let known = bastle_audit::public_key(&state_dir()?).map_err(|error| error.fault())?;
            known.ok_or_else(|| {
                Fault::new(
                    Code::AuditMissing,
                    "there is no key to check with",
                    "nothing was recorded here yet",
                )
                .help("bastle seal --verify FILE --key KEY.pub")
            })?
        }
    };
    let statement = provenance::open_envelope(&envelope, &public)?;
    let run = statement.pointer("/predicate/runDetails/metadata/invocationId");
    let run = run.and_then(Value::as_str).unwrap_or_default();
    if args.json {
        cx.print_json(
            &json!({ "schema": "bastle.seal-check/v1", "genuine": true, "run": run, "statement": statement }),
        )?;
    } else {
        cx.print(&format!("{} genuine: run {}\n", cx.out.tick(), clean(run)))?;
        for subject in statement["subject"].as_array().into_iter().flatten().take(1000) {
            let name = subject["name"].as_str().unwrap_or_default();
            cx.print(&format!("  {}  {}\n", subject["digest"], clean(name)))?;
        }
    }
    Ok(0)
}

fn write(file: &Path, envelope: &str) -> Result<(), Fault> {
    let fail = |error: std::io::Error| {
        Fault::new(
            Code::UsageArgument,
            format!("cannot write {}", file.display()),
            error.to_string(),
        )
        .help("name a file that does not exist yet")
    };
    let mut out = File::create_new(file).map_err(fail)?;
    writeln!(out, "{envelope}")
        .and_then(|()| out.sync_all())
        .map_err(fail)
}

fn read(file: &Path, most: usize) -> Result<Vec<u8>, Fault> {
    let fail = |why: String| {
        Fault::new(
            Code::UsageArgument,
            format!("cannot read {}", file.display()),
            why,
        )
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(file)
        .and_then(|open| open.take(limit).read_to_end(&mut bytes))
        .map_err(|error| fail(error.to_string()))?;
    if bytes.len() > most {
        return Err(fail(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}
