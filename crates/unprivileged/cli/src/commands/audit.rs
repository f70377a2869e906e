//! `bastle audit`: list, show, verify and export the logs. Every byte of a log is untrusted until verified.
use super::runs;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, ago, clean, duration_ms, now_ms, timestamp};
use bastle_audit::{AuditError, Format, Record, Report, RunState, Unsealed, Verdict};
use bastle_contract::{Code, Fault, RunId};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle audit ls
  bastle audit show @last
  bastle audit verify --all
  bastle audit export calm-otter-1f2e --format ocsf -o run.jsonl")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    verb: AuditVerb,
}

/// What to do with the logs.
#[derive(Debug, clap::Subcommand)]
enum AuditVerb {
    /// List recorded runs, newest first
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what happened in a run
    Show {
        /// Run name, unique prefix or @last
        #[arg(default_value = "@last", value_name = "RUN")]
        run: String,
        /// Only what became of files, one line each
        #[arg(long)]
        files: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check that a log is complete and unchanged (exit 1 if not)
    Verify {
        /// Run name, unique prefix or @last
        #[arg(default_value = "@last", value_name = "RUN")]
        run: String,
        /// Verify the index and every run
        #[arg(long, conflicts_with = "run")]
        all: bool,
        /// Accept logs without an end: of runs that were killed, and of logs whose end was cut off
        #[arg(long)]
        allow_unsealed: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a log in another form
    Export {
        /// Run name, unique prefix or @last
        #[arg(default_value = "@last", value_name = "RUN")]
        run: String,
        /// The form: jsonl is the log itself and can be verified again
        #[arg(long, value_enum)]
        format: ExportFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// What is made of logs without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endless {
    /// They are good as far as they go.
    Accepted,
    /// Their end may have been cut off.
    Suspect,
}

/// Forms of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// The stored lines
    Jsonl,
    /// OCSF 1.8.0, one object per line
    Ocsf,
    /// A table for spreadsheets
    Csv,
}

impl AuditArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            AuditVerb::Ls { json } | AuditVerb::Show { json, .. } | AuditVerb::Verify { json, .. } => *json,
            AuditVerb::Export { .. } => false,
        }
    }
}

/// Does it.
pub(crate) fn run(args: AuditArgs, cx: &Context) -> Ended {
    let state = state_dir()?;
    match args.verb {
        AuditVerb::Ls { json: true } => ls_json(&state, cx),
        AuditVerb::Ls { json: false } => ls(&state, cx),
        AuditVerb::Show { run, files, json } => {
            let run = runs::find(&state, &run)?;
            match (files, json) {
                (true, true) => super::audit_files::show_json(&state, &run, cx),
                (true, false) => super::audit_files::show(&state, &run, cx),
                (false, true) => show_json(&state, &run, cx),
                (false, false) => show(&state, &run, cx),
            }
        }
        AuditVerb::Verify {
            run,
            all,
            allow_unsealed,
            json,
        } => {
            let reports = if all {
                bastle_audit::verify_all(&state).map_err(|error| error.fault())?
            } else {
                let run = runs::find(&state, &run)?;
                vec![bastle_audit::verify(&state, &run).map_err(|error| error.fault())?]
            };
            let endless = if allow_unsealed {
                Endless::Accepted
            } else {
                Endless::Suspect
            };
            let bad = reports.iter().any(|report| !is_good(report, endless));
            if json {
                verified_json(&reports, cx)?
            } else {
                verified(&reports, cx)?
            }
            Ok(u8::from(bad))
        }
        AuditVerb::Export { run, format, output } => {
            let format = match format {
                ExportFormat::Jsonl => Format::Jsonl,
                ExportFormat::Ocsf => Format::Ocsf,
                ExportFormat::Csv => Format::Csv,
            };
            export(&state, &runs::find(&state, &run)?, format, output.as_deref(), cx)
        }
    }
}

fn ls(state: &Path, cx: &Context) -> Ended {
    let (mut table, now) = (
        Table::new(&["RUN", "STARTED", "AGE", "STATE", "RECORDS"]),
        now_ms(),
    );
    for entry in runs::newest_first(state)? {
        let (word, paint, records) = match &entry.state {
            RunState::Open => ("open", Paint::Warn, String::new()),
            RunState::Sealed { records, .. } => ("sealed", Paint::Good, records.to_string()),
            RunState::Removed { .. } => ("removed", Paint::Dim, String::new()),
        };
        let started = timestamp(entry.opened_ms);
        let cells = [entry.run.as_str(), &started, &ago(entry.opened_ms, now)];
        table.row([
            (cells[0], Paint::Bold),
            (cells[1], Paint::Plain),
            (cells[2], Paint::Plain),
            (word, paint),
            (&records, Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("no run has been recorded yet");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn ls_json(state: &Path, cx: &Context) -> Ended {
    let entry = |entry: &bastle_audit::RunEntry| {
        let (word, ended, records, head) = match &entry.state {
            RunState::Open => ("open", None, None, None),
            RunState::Sealed { at_ms, records, head } => (
                "sealed",
                Some(timestamp(*at_ms)),
                Some(*records),
                Some(head.clone()),
            ),
            RunState::Removed { at_ms } => ("removed", Some(timestamp(*at_ms)), None, None),
        };
        json!({ "run": entry.run, "opened": timestamp(entry.opened_ms), "state": word, "ended": ended, "records": records, "head": head })
    };
    let runs: Vec<Value> = runs::newest_first(state)?.iter().map(entry).collect();
    cx.print_json(&json!({ "schema": "bastle.audit-ls/v1", "runs": runs }))?;
    Ok(0)
}

/// Shows record by record, so that a long log needs no memory; a damaged line ends it.
fn show(state: &Path, run: &RunId, cx: &Context) -> Ended {
    let mut began = None;
    for record in bastle_audit::show(state, run).map_err(|error| error.fault())? {
        let record = record.map_err(|error| error.fault())?;
        let began = *began.get_or_insert(record.time_ms());
        if began == record.time_ms() && record.sequence() == 1 {
            cx.print(&format!(
                "{}  {}\n",
                cx.out.paint(Paint::Bold, run.as_str()),
                timestamp(began)
            ))?;
        }
        cx.print(&line(&record, began, cx))?;
    }
    let report = bastle_audit::verify(state, run).map_err(|error| error.fault())?;
    verified(std::slice::from_ref(&report), cx)?;
    Ok(u8::from(matches!(report.verdict, Verdict::Tampered(_))))
}

fn line(record: &Record, began: u64, cx: &Context) -> String {
    let paint = match record.kind() {
        "denied" | "refused" => Paint::Bad,
        "limit" | "output-truncated" => Paint::Warn,
        "opened" | "checkpoint" | "sealed" | "recovered" => Paint::Dim,
        _ => Paint::Plain,
    };
    let since = format!("+{}", duration_ms(record.time_ms().saturating_sub(began)));
    let kind = format!("{:<12}", clean(record.kind()));
    format!(
        "{:>4} {since:>9}  {} {:<8} {}\n",
        record.sequence(),
        cx.out.paint(paint, &kind),
        clean(record.uid()),
        clean(record.message())
    )
}

fn show_json(state: &Path, run: &RunId, cx: &Context) -> Ended {
    let records = bastle_audit::show(state, run).map_err(|error| error.fault())?;
    cx.print(&format!(
        "{{\"schema\":\"bastle.audit-show/v1\",\"run\":\"{run}\",\"records\":["
    ))?;
    let mut damaged = None;
    for (index, record) in records.enumerate() {
        match record {
            Ok(record) => {
                let comma = if index == 0 { "" } else { "," };
                let text = serde_json::to_string(record.value()).map_err(|error| {
                    Fault::new(
                        Code::AuditTampered,
                        "a record cannot be printed",
                        error.to_string(),
                    )
                })?;
                cx.print(&format!("{comma}\n{}", crate::render::escaped(&text)))?;
            }
            Err(error) => {
                damaged = Some(error.fault());
                break;
            }
        }
    }
    // The object is closed whatever happened, so that a program can read what there is and see that it is not all.
    cx.print(&format!("],\"complete\":{}}}\n", damaged.is_none()))?;
    damaged.map_or(Ok(0), |fault| Err(fault.into()))
}

/// Nothing was changed, and nothing can be missing unless the caller accepts that.
fn is_good(report: &Report, unsealed: Endless) -> bool {
    match &report.verdict {
        Verdict::Sealed
        | Verdict::Unsealed {
            cause: Unsealed::Live,
            ..
        } => true,
        Verdict::Unsealed { .. } => unsealed == Endless::Accepted,
        Verdict::Tampered(_) => false,
    }
}

fn cause(cause: Unsealed) -> (&'static str, String) {
    match cause {
        Unsealed::Live => ("live", "a process is writing it".to_owned()),
        Unsealed::NoSeal => (
            "no-seal",
            "it has no end: the run was killed, or the end was cut off".to_owned(),
        ),
        Unsealed::Torn { bytes } => (
            "torn",
            format!(
                "its last {bytes} bytes are an incomplete record: the run was killed, or the end was cut off"
            ),
        ),
        Unsealed::SealNotIndexed => (
            "seal-not-indexed",
            "the index does not know its end: the run was killed, or the index was cut off".to_owned(),
        ),
    }
}

fn verified(reports: &[Report], cx: &Context) -> Result<(), Failed> {
    if reports.is_empty() {
        cx.note("no run has been recorded yet");
    }
    for report in reports {
        let facts = format!(
            "{} records, {} signed, key {}",
            report.records, report.signed, report.key
        );
        let name = cx.out.paint(Paint::Bold, report.run.as_str());
        match &report.verdict {
            Verdict::Sealed => cx.print(&format!(
                "{} {name} sealed and unchanged: {facts}\n",
                cx.out.tick()
            ))?,
            Verdict::Unsealed { cause: why, .. } => {
                cx.print(&format!(
                    "{} {name} unchanged so far, but {}: {facts}\n",
                    cx.out.query(),
                    cause(*why).1
                ))?;
            }
            Verdict::Tampered(finding) => {
                cx.print(&format!(
                    "{} {name} was changed; good up to record {}\n",
                    cx.out.cross(),
                    report.records
                ))?;
                let fault = Fault::new(
                    Code::AuditTampered,
                    finding.to_string(),
                    format!("the records before it are good: {facts}"),
                )
                .help("keep the file as evidence");
                cx.report(&[fault], crate::context::Format::Human);
            }
        }
    }
    Ok(())
}

fn verified_json(reports: &[Report], cx: &Context) -> Result<(), Failed> {
    let report = |report: &Report| {
        let (verdict, why, finding) = match &report.verdict {
            Verdict::Sealed => ("sealed", None, None),
            Verdict::Unsealed { cause: why, .. } => ("unsealed", Some(cause(*why).0), None),
            Verdict::Tampered(finding) => ("tampered", None, Some(finding)),
        };
        let finding = finding.map(|finding| {
            json!({ "code": Code::AuditTampered.info().code, "message": finding.to_string(), "line": finding.line, "offset": finding.offset, "sequence": finding.sequence })
        });
        json!({
            "run": report.run, "verdict": verdict, "cause": why, "records": report.records, "signed": report.signed,
            "head": report.head, "key": report.key.as_str(), "finding": finding,
        })
    };
    let reports: Vec<Value> = reports.iter().map(report).collect();
    cx.print_json(&json!({ "schema": "bastle.audit-verify/v1", "runs": reports }))
}

fn export(state: &Path, run: &RunId, format: Format, output: Option<&Path>, cx: &Context) -> Ended {
    let written = match output {
        Some(path) => {
            let failed = |error: std::io::Error| {
                Fault::new(
                    Code::UsageArgument,
                    format!("cannot write {}", path.display()),
                    error.to_string(),
                )
            };
            let mut out =
                BufWriter::new(File::create(path).map_err(|error| Failed::from(failed(error)).exit(1))?);
            let written = bastle_audit::export(state, run, format, &mut out);
            out.flush().map_err(|error| Failed::from(failed(error)).exit(1))?;
            written
        }
        None => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            let written = bastle_audit::export(state, run, format, &mut out);
            match out.flush() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    return Err(Failed::from(Fault::new(
                        Code::UsageArgument,
                        "cannot write to standard output",
                        error.to_string(),
                    ))
                    .exit(1));
                }
                Ok(()) | Err(_) => written,
            }
        }
    };
    match written {
        Ok(count) => {
            cx.note(&format!(
                "{count} records of {run} exported; bastle audit verify {run} checks the log itself"
            ));
            Ok(0)
        }
        // A reader that went away wants no more.
        Err(AuditError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(error.fault().into()),
    }
}
