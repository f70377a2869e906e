//! Handing a log on: as it is, as plain OCSF, or as a table.
use crate::AuditError;
use crate::dir::{Dir, LOG, Open};
use crate::finding::LogFile;
use crate::ocsf::Class;
use crate::read::Lines;
use crate::record::{Record, at};
use crate::sanitize::sanitize;
use bastle_contract::RunId;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// How to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The lines as they are stored; the only form that can be verified again.
    Jsonl,
    /// One OCSF 1.8.0 object per line, without what that version does not define: our payload and the attestation.
    Ocsf,
    /// A table for spreadsheets, safe to open in one.
    Csv,
}

/// The columns of the table.
const COLUMNS: &str = "sequence,time,uid,run,class_uid,activity,severity_id,action_id,disposition_id,\
                       status_code,pid,process,target,message,fingerprint";

/// Writes the log of a run to `out`; returns the number of records. Stops at the first line that is not a record.
/// Verifies no chain: [`crate::verify`] does.
pub fn export(state: &Path, run: &RunId, format: Format, out: &mut dyn Write) -> Result<u64, AuditError> {
    let missing = || AuditError::Missing { run: run.clone() };
    let dir = Dir::open(state)?.ok_or_else(missing)?;
    let dir = dir.open_run(run)?.ok_or_else(missing)?;
    let file = dir.file(LOG, Open::Read)?.ok_or_else(missing)?;
    export_reader(BufReader::new(file), Some(run), format, out, &dir.path_of(LOG))
}

/// [`export`] over any bytes.
pub(crate) fn export_reader(
    reader: impl BufRead,
    run: Option<&RunId>,
    format: Format,
    out: &mut dyn Write,
    path: &Path,
) -> Result<u64, AuditError> {
    let failed = |e| AuditError::io("write the export of", path, e);
    let mut lines = Lines::new(reader);
    let mut count = 0;
    if format == Format::Csv {
        write!(out, "{COLUMNS}\r\n").map_err(failed)?;
    }
    while let Some(line) = lines.next_line().map_err(|e| AuditError::io("read", path, e))? {
        let record = line
            .record()
            .map_err(|defect| AuditError::Tampered(line.finding(run, LogFile::Log, defect)))?;
        match format {
            Format::Jsonl => out.write_all(line.bytes).and_then(|()| out.write_all(b"\n")),
            Format::Ocsf => out.write_all(&plain_ocsf(&record)?),
            Format::Csv => out.write_all(row(&record).as_bytes()),
        }
        .map_err(failed)?;
        count += 1;
    }
    Ok(count)
}

/// The record as OCSF 1.8.0 defines it.
fn plain_ocsf(record: &Record) -> Result<Vec<u8>, AuditError> {
    let mut value: Map<String, Value> = record.value().clone();
    let effective = at(&value, &["unmapped", "bastle", "effective"]).cloned();
    value.remove("unmapped");
    // Both came after 1.8.0, the trace for all classes but this one.
    value.remove("attestation_list");
    if record.number("class_uid") != u64::from(Class::Api.uid()) {
        value.remove("trace");
    }
    if let (Some(effective), Some(policy)) =
        (effective, value.get_mut("policy").and_then(Value::as_object_mut))
    {
        policy.insert("data".into(), effective);
    }
    let mut canonical = Vec::new();
    crate::canonical::write_object(&value, &mut canonical).map_err(AuditError::Encode)?;
    let mut line = Vec::with_capacity(canonical.len() + 1);
    crate::canonical::write_line(&String::from_utf8_lossy(&canonical), &mut line);
    line.push(b'\n');
    Ok(line)
}

fn row(record: &Record) -> String {
    let value = record.value();
    let text = |path: &[&str]| match at(value, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => String::new(),
    };
    let time = i64::try_from(record.time_ms())
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map(|time| time.to_string())
        .unwrap_or_default();
    let first = |paths: &[&[&str]]| {
        paths
            .iter()
            .map(|path| text(path))
            .find(|t| !t.is_empty())
            .unwrap_or_default()
    };
    let cells = [
        record.sequence().to_string(),
        time,
        record.uid().to_owned(),
        record.chain().to_owned(),
        text(&["class_uid"]),
        text(&["activity_name"]),
        text(&["severity_id"]),
        text(&["action_id"]),
        text(&["disposition_id"]),
        text(&["status_code"]),
        first(&[&["actor", "process", "pid"], &["process", "pid"]]),
        text(&["actor", "process", "name"]),
        first(&[
            &["file", "path"],
            &["process", "file", "path"],
            &["api", "operation"],
        ]),
        record.message().to_owned(),
        record.fingerprint().to_owned(),
    ];
    let mut line = cells.iter().map(|cell| quote(cell)).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

/// A cell that neither a terminal nor a spreadsheet acts upon. A cell that a spreadsheet would take for a formula
/// gets an apostrophe in front, behind leading spaces too, because importers trim them.
fn quote(cell: &str) -> String {
    let clean = sanitize(cell);
    let begin = clean.trim_start().chars().next();
    let formula = begin.is_some_and(|c| {
        matches!(
            c,
            '=' | '+' | '-' | '@' | '|' | '%' | '\\' | '＝' | '＋' | '－' | '＠'
        )
    });
    let clean = if formula { format!("'{clean}") } else { clean };
    if clean.contains(['"', ',', ';', '\'']) || clean.starts_with(' ') || clean.ends_with(' ') {
        format!("\"{}\"", clean.replace('"', "\"\""))
    } else {
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_begins_like_a_formula_never_reaches_a_spreadsheet_as_one() {
        for (cell, safe) in [
            ("=HYPERLINK(\"http://x\")", "\"'=HYPERLINK(\"\"http://x\"\")\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("  =1", "\"'  =1\""),
            ("\t=1", "\"'\\t=1\""),
            ("＝1", "\"'＝1\""),
            ("a=1", "a=1"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("a\r\nb", "a\\r\\nb"),
            ("", ""),
        ] {
            assert_eq!(quote(cell), safe, "{cell:?}");
        }
    }
}
