//! Checking documents: syntax and schema with the place of every error, in-file tests, and lint.
use super::{Common, Standing};
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, clean, clean_lines};
use bastle_contract::{Code, Fault};
use bastle_policy::{Effective, Finding, FindingKind, TestReport, lint as find, selftest};
use serde_json::{Value, json};
use std::path::Path;

/// What came of checking one file.
struct Checked {
    file: String,
    faults: Vec<Fault>,
    notes: Vec<String>,
    tests: Vec<TestReport>,
}

/// Checks each file on top of the preset.
pub(super) fn check(
    files: &[std::path::PathBuf],
    standing: Standing,
    common: &Common,
    cx: &Context,
) -> Ended {
    let checked: Vec<Checked> = files
        .iter()
        .map(|file| check_one(file, standing, common))
        .collect();
    if common.json {
        let all: Vec<Value> = checked.iter().map(Checked::json).collect();
        cx.print_json(&json!({ "schema": "bastle.policy-check/v1", "files": all }))?;
    } else {
        for one in &checked {
            one.tell(cx)?;
        }
    }
    Ok(u8::from(checked.iter().any(|one| !one.faults.is_empty())))
}

fn check_one(file: &Path, standing: Standing, common: &Common) -> Checked {
    let mut checked = Checked {
        file: file.display().to_string(),
        faults: Vec::new(),
        notes: Vec::new(),
        tests: Vec::new(),
    };
    let effective = bastle_control::read_layer(file, standing.of(file)).and_then(|layer| {
        checked.notes = layer
            .document
            .notes
            .0
            .iter()
            .map(|note| format!("{}\n{}", note.message, note.snippet))
            .collect();
        common.source.merge(vec![layer])
    });
    match effective {
        Ok(effective) => {
            checked.tests = selftest(&effective);
            checked.faults = checked.tests.iter().filter_map(TestReport::fault).collect();
        }
        Err(faults) => checked.faults = faults,
    }
    checked
}

impl Checked {
    fn tell(&self, cx: &Context) -> Result<(), Failed> {
        for note in &self.notes {
            cx.note(&format!("note: {}", clean_lines(note)));
        }
        cx.report(&self.faults, crate::context::Format::Human);
        let file = clean(&self.file);
        if self.faults.is_empty() {
            let tests = if self.tests.is_empty() {
                "no tests in it".to_owned()
            } else {
                format!("{} tests passed", self.tests.len())
            };
            cx.print(&format!("{} {file}: ok, {tests}\n", cx.out.tick()))
        } else {
            cx.print(&format!(
                "{} {file}: {} {}\n",
                cx.out.cross(),
                self.faults.len(),
                if self.faults.len() == 1 { "error" } else { "errors" }
            ))
        }
    }

    fn json(&self) -> Value {
        let fault = |fault: &Fault| {
            let fault = fault.for_local_reader();
            let place = place(&fault);
            json!({
                "code": fault.code.info().code, "what": fault.what, "why": fault.why, "help": fault.help,
                "line": place.map(|(line, _)| line), "column": place.map(|(_, column)| column),
            })
        };
        json!({
            "file": self.file,
            "ok": self.faults.is_empty(),
            "errors": self.faults.iter().map(fault).collect::<Vec<_>>(),
            "notes": self.notes,
            "tests": tests_json(&self.tests),
        })
    }
}

/// Line and column, from the excerpt's first line: `--> FILE:LINE:COLUMN`.
fn place(fault: &Fault) -> Option<(u32, u32)> {
    let first = fault.why.lines().next()?;
    let mut parts = first.trim_start().strip_prefix("-->")?.rsplit(':');
    let column = parts.next()?.parse().ok()?;
    Some((parts.next()?.parse().ok()?, column))
}

fn tests_json(tests: &[TestReport]) -> Vec<Value> {
    let test = |test: &TestReport| {
        json!({
            "can": test.can, "expected": test.expected, "got": test.got, "passed": test.passed(), "reason": test.reason,
            "origin": test.origin,
        })
    };
    tests.iter().map(test).collect()
}

/// The policy of one file on top of the preset, or the effective policy.
fn policy(file: Option<&Path>, standing: Standing, common: &Common) -> Result<Effective, Failed> {
    match file {
        Some(file) => Ok(common
            .source
            .merge(vec![bastle_control::read_layer(file, standing.of(file))?])?),
        None => Ok(common.source.load()?.effective),
    }
}

/// Runs in-file tests.
pub(super) fn test(file: Option<&Path>, standing: Standing, common: &Common, cx: &Context) -> Ended {
    let tests = selftest(&policy(file, standing, common)?);
    let failed = tests.iter().any(|test| !test.passed());
    if common.json {
        cx.print_json(
            &json!({ "schema": "bastle.policy-test/v1", "passed": !failed, "tests": tests_json(&tests) }),
        )?;
        return Ok(u8::from(failed));
    }
    let mut table = Table::new(&["RESULT", "CAN", "EXPECTED", "GOT", "ORIGIN"]);
    for test in &tests {
        let (word, paint) = if test.passed() {
            ("ok", Paint::Good)
        } else {
            ("FAILED", Paint::Bad)
        };
        let got = test.got.map_or("no answer", bastle_policy::Outcome::name);
        table.row([
            (word, paint),
            (&test.can, Paint::Plain),
            (test.expected.name(), Paint::Plain),
            (got, Paint::Plain),
            (&test.origin.to_string(), Paint::Dim),
        ]);
    }
    if table.is_empty() {
        cx.note("no layer has tests");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    let faults: Vec<Fault> = tests.iter().filter_map(TestReport::fault).collect();
    if failed {
        let what = format!("{} of {} tests failed", faults.len(), tests.len());
        let help = faults.into_iter().flat_map(|fault| fault.help).collect();
        cx.report(
            &[Fault {
                code: Code::PolicyTest,
                what,
                why: String::new(),
                help,
                local: None,
            }],
            crate::context::Format::Human,
        );
    }
    Ok(u8::from(failed))
}

/// Lints. Advice about advisory rules alone is no failure.
pub(super) fn lint(file: Option<&Path>, standing: Standing, common: &Common, cx: &Context) -> Ended {
    let findings = find(&policy(file, standing, common)?);
    let bad = findings
        .iter()
        .any(|finding| finding.kind != FindingKind::Advisory);
    if common.json {
        let all: Vec<Value> = findings
            .iter()
            .map(|finding| json!({ "kind": finding.kind, "rule": finding.rule, "origin": finding.origin, "message": finding.message }))
            .collect();
        cx.print_json(&json!({ "schema": "bastle.policy-lint/v1", "findings": all }))?;
        return Ok(u8::from(bad));
    }
    let mut table = Table::new(&["KIND", "RULE", "ORIGIN", "REMARK"]);
    for finding in &findings {
        let paint = if finding.kind == FindingKind::Advisory {
            Paint::Dim
        } else {
            Paint::Warn
        };
        table.row([
            (kind(finding), paint),
            (&finding.rule, Paint::Bold),
            (&finding.origin.to_string(), Paint::Dim),
            (&finding.message, Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("nothing to remark; built-in layers are not looked at");
    } else {
        cx.print(&table.render(cx.out))?;
    }
    Ok(u8::from(bad))
}

fn kind(finding: &Finding) -> &'static str {
    match finding.kind {
        FindingKind::Shadowed => "shadowed",
        FindingKind::Unmatchable => "unmatchable",
        FindingKind::Unenforceable => "unenforceable",
        FindingKind::TooWide => "too-wide",
        FindingKind::Advisory => "advisory",
        FindingKind::Inactive => "inactive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_error_is_found_also_in_a_file_with_colons_in_its_name() {
        let fault = Fault::new(Code::PolicySchema, "x", " --> a:7:b.json:12:3\n  |");
        assert_eq!(place(&fault), Some((12, 3)));
        assert_eq!(place(&Fault::new(Code::PolicySchema, "x", "no place")), None);
    }
}
