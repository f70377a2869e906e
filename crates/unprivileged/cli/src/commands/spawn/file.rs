//! A batch as a file: one run per line, each checked before anything is sent, each mistake with its place.
//!
//! **Trust:** the file is the user's, but may come from a program: every line is bounded and parsed strictly.
use bastle_contract::runs::MAX_PROMPT;
use bastle_contract::{Argv, Code, Fault, RunId};
use bastle_control::fleet::{MAX_BATCH, RunRequest};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// Largest file: what the daemon takes in one request.
const MOST: u64 = 4 * 1024 * 1024;
/// Mistakes that are told; one who made more wants to look at the first ones anyway.
const MOST_TOLD: usize = 20;

/// Reads the file; `-` is standard input. Lines without a workspace get `workspace`.
pub(super) fn read(path: &Path, workspace: &str) -> Result<Vec<RunRequest>, Vec<Fault>> {
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let fault = |why: String| {
        vec![Fault::new(
            Code::UsageArgument,
            format!("cannot read {name}"),
            why,
        )]
    };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MOST + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text))
    };
    read.map_err(|error| fault(error.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(fault(format!("it has more than {MOST} bytes")));
    }
    parse(&text, &name, workspace)
}

/// Reads the lines; all mistakes are told together.
pub(super) fn parse(text: &str, name: &str, workspace: &str) -> Result<Vec<RunRequest>, Vec<Fault>> {
    let mut runs = Vec::new();
    let mut faults = Vec::new();
    let mut names = std::collections::BTreeMap::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        if line.trim().is_empty() {
            continue;
        }
        match one(line, workspace).and_then(|run| named_once(run, number, &mut names)) {
            Ok(run) => runs.push(run),
            Err(Wrong { column, what }) => faults.push(
                Fault::new(
                    Code::UsageArgument,
                    what,
                    format!(" --> {name}:{number}:{column}"),
                )
                .help("one run per line: {\"argv\":[\"CMD\"],\"workspace\":\"/project\"}"),
            ),
        }
    }
    if faults.is_empty() && !(1..=MAX_BATCH).contains(&runs.len()) {
        faults.push(Fault::new(
            Code::UsageArgument,
            format!("{name} has {} runs", runs.len()),
            format!("a batch has 1 to {MAX_BATCH}"),
        ));
    }
    if faults.is_empty() {
        return Ok(runs);
    }
    let more = faults.len().saturating_sub(MOST_TOLD);
    faults.truncate(MOST_TOLD);
    if more > 0 {
        faults.push(Fault::new(
            Code::UsageArgument,
            format!("{more} more lines are wrong"),
            "",
        ));
    }
    Err(faults)
}

/// What is wrong with a line, and where.
struct Wrong {
    column: usize,
    what: String,
}

impl Wrong {
    fn line(what: impl Into<String>) -> Self {
        Self {
            column: 1,
            what: what.into(),
        }
    }
}

fn one(line: &str, workspace: &str) -> Result<RunRequest, Wrong> {
    let at = |error: &serde_json::Error, before: usize| {
        let text = error.to_string();
        // The place is told as one of the file, not of the line.
        let what = text.split(" at line ").next().unwrap_or_default();
        Wrong {
            column: error.column().saturating_sub(before).max(1),
            what: what.to_owned(),
        }
    };
    let value: Value = serde_json::from_str(line).map_err(|error| at(&error, 0))?;
    let Value::Object(members) = &value else {
        return Err(Wrong::line("a run is an object"));
    };
    // Read again as text, so that a member that stands there twice is seen.
    let (text, before) = if members.contains_key("workspace") {
        (line.to_owned(), 0)
    } else {
        let comma = if members.is_empty() { "" } else { "," };
        let first = format!("{{\"workspace\":{}{comma}", Value::from(workspace));
        let rest = line.trim_start().trim_start_matches('{');
        (format!("{first}{rest}"), first.len().saturating_sub(1))
    };
    let run: RunRequest = serde_json::from_str(&text).map_err(|error| at(&error, before))?;
    check(&run).map_err(Wrong::line)?;
    Ok(run)
}

/// What can be known without the daemon. It checks everything again.
pub(super) fn check(run: &RunRequest) -> Result<(), String> {
    if let Some(name) = &run.name {
        RunId::try_from(name.clone()).map_err(|error| format!("name: {error}"))?;
    }
    if run.argv.is_empty() && run.profile.is_none() {
        return Err("a run has argv or a profile".to_owned());
    }
    if !run.argv.is_empty() {
        Argv::try_from(run.argv.clone()).map_err(|error| format!("argv: {error}"))?;
    }
    if run
        .prompt
        .as_ref()
        .is_some_and(|prompt| prompt.len() > MAX_PROMPT)
    {
        return Err(format!("prompt: more than {MAX_PROMPT} bytes"));
    }
    for path in std::iter::once(&run.workspace).chain(&run.scopes) {
        if !Path::new(path).is_absolute() {
            return Err(format!("{path:?} is no absolute path"));
        }
    }
    let timed = |text: &String| {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        (1..=9).contains(&digits) && matches!(&text[digits..], "ms" | "s" | "m" | "h" | "d")
    };
    if !run.timeout.as_ref().is_none_or(timed) {
        return Err("timeout: a number and ms, s, m, h or d, such as 15m".to_owned());
    }
    Ok(())
}

fn named_once(
    run: RunRequest,
    number: usize,
    names: &mut std::collections::BTreeMap<String, usize>,
) -> Result<RunRequest, Wrong> {
    if let Some(name) = &run.name
        && let Some(first) = names.insert(name.clone(), number)
    {
        return Err(Wrong::line(format!("name: line {first} has it already")));
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_line_is_named_with_its_place_and_nothing_is_taken() {
        let good = r#"{"argv":["true"]}"#;
        let text = format!("{good}\n\n{{\"argv\":[\"true\"],\"sudo\":1}}\n{good}\nnonsense\n");
        let faults = parse(&text, "b.jsonl", "/w").unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].why.contains("b.jsonl:3:") && faults[0].what.contains("sudo"),
            "{faults:?}"
        );
        assert!(faults[1].why.contains("b.jsonl:5:"), "{faults:?}");
        // The place is that of the member as it was written.
        assert!(faults[0].why.ends_with("b.jsonl:3:23"), "{faults:?}");
    }

    #[test]
    fn a_line_that_no_run_can_be_made_of_is_refused() {
        for bad in [
            "[]",
            "7",
            "{}",
            r#"{"argv":[]}"#,
            r#"{"argv":["true"],"argv":["false"]}"#,
            r#"{"argv":["a\u0000b"]}"#,
            r#"{"argv":["true"],"name":"../x"}"#,
            r#"{"argv":["true"],"workspace":"here"}"#,
            r#"{"argv":["true"],"scopes":["src"]}"#,
            r#"{"argv":["true"],"timeout":"soon"}"#,
            r#"{"argv":["true"],"timeout":"é"}"#,
            r#"{"argv":["true"],"timeout":"99999999999s"}"#,
            r#"{"argv":["true"],"env":{"LD_PRELOAD":"x"}}"#,
            r#"{"argv":["true"],"tags":{"A":"x"}}"#,
            "\u{feff}{\"argv\":[\"true\"]}",
        ] {
            assert!(parse(bad, "b", "/w").is_err(), "{bad}");
        }
        let twice = "{\"argv\":[\"true\"],\"name\":\"a\"}\n".repeat(2);
        assert!(parse(&twice, "b", "/w").is_err());
        assert!(parse("", "b", "/w").is_err());
        assert!(parse(&"{\"argv\":[\"true\"]}\n".repeat(MAX_BATCH + 1), "b", "/w").is_err());
    }

    #[test]
    fn a_line_without_a_workspace_gets_the_callers_and_one_with_keeps_it() {
        let text =
            " {\"argv\":[\"true\"]}\n{\"profile\":\"claude\",\"workspace\":\"/other\",\"prompt\":\"fix\"}";
        let runs = parse(text, "b", "/w \"q\"").unwrap();
        assert_eq!(runs[0].workspace, "/w \"q\"");
        assert_eq!(
            (runs[1].workspace.as_str(), runs[1].prompt.as_deref()),
            ("/other", Some("fix"))
        );
    }

    #[test]
    fn a_flood_of_mistakes_is_told_in_part() {
        assert_eq!(
            parse(&"x\n".repeat(5000), "b", "/w").unwrap_err().len(),
            MOST_TOLD + 1
        );
    }

    #[test]
    fn no_line_makes_the_reader_fail() {
        // Cuts and changes of a good line: it is read or refused, never more.
        let line = r#"{"argv":["true","é"],"env":{"A":"b"},"tags":{"a":"b"},"timeout":"5m","tty":{"rows":2,"cols":3}}"#;
        for at in (0..line.len()).filter(|at| line.is_char_boundary(*at)) {
            for with in [
                "",
                "{",
                "}",
                "\"",
                "\\",
                "\u{0}",
                "é",
                "9999999999999999999999",
                "[[[[[",
            ] {
                let mut text = line[..at].to_owned();
                text.push_str(with);
                drop(parse(&text, "b", "/w"));
                text.push_str(&line[at..]);
                drop(parse(&text, "b", "/w"));
            }
        }
    }
}
