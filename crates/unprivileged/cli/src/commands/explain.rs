//! `bastle explain CODE`: what a code means and what to do about it.
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, clean};
use bastle_contract::{Code, CodeInfo, Fault};
use serde_json::json;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  bastle explain BST-FS-001\n  bastle explain --list")]
pub(crate) struct ExplainArgs {
    /// The code, e.g. BST-FS-001
    #[arg(required_unless_present = "list", value_name = "CODE")]
    code: Option<String>,
    /// List all codes
    #[arg(long, conflicts_with = "code")]
    list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Explains one code, or lists all.
pub(crate) fn run(args: ExplainArgs, cx: &Context) -> Ended {
    let codes: Vec<CodeInfo> = match &args.code {
        Some(text) => vec![find(text)?.info()],
        None => Code::ALL.iter().map(|code| code.info()).collect(),
    };
    if args.json {
        cx.print_json(&json!({ "schema": "bastle.explain/v1", "codes": codes }))?;
        return Ok(0);
    }
    match (args.code, codes.as_slice()) {
        (Some(_), [info]) => cx.print(&format!(
            "{}  {}\n\n{}\n\n{} {}\n",
            cx.out.paint(Paint::Bold, info.code),
            cx.out.paint(Paint::Bold, info.title),
            info.meaning,
            cx.out.paint(Paint::Accent, "fix:"),
            info.fix
        ))?,
        _ => {
            let mut table = Table::new(&["CODE", "MEANING"]);
            for info in &codes {
                table.row([(info.code, Paint::Bold), (info.title, Paint::Plain)]);
            }
            cx.print(&table.render(cx.out))?;
        }
    }
    Ok(0)
}

fn find(text: &str) -> Result<Code, Failed> {
    if let Some(code) = Code::parse(text) {
        return Ok(code);
    }
    let mut fault = Fault::new(
        Code::UsageArgument,
        format!("no code is called {}", clean(&short(text))),
        "",
    );
    if let Some(near) = nearest(text) {
        fault = fault.help(format!("did you mean {near}? bastle explain {near}"));
    }
    Err(Failed::from(fault.help("bastle explain --list")).exit(3))
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The code with the fewest differing letters; missing dashes and a missing prefix do not count.
fn nearest(text: &str) -> Option<&'static str> {
    let letters = |text: &str| {
        text.bytes()
            .filter(u8::is_ascii_alphanumeric)
            .map(|b| b.to_ascii_uppercase())
            .collect::<Vec<u8>>()
    };
    let wanted = letters(text);
    if wanted.len() > 32 || wanted.is_empty() {
        return None;
    }
    let distance = |code: &Code| {
        let whole = letters(code.info().code);
        differences(&wanted, &whole).min(differences(&wanted, &whole[3..]))
    };
    let (best, code) = Code::ALL
        .iter()
        .map(|code| (distance(code), code))
        .min_by_key(|(d, _)| *d)?;
    (best <= 3).then(|| code.info().code)
}

/// Letters to insert, remove or replace.
fn differences(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_code_and_nonsense_does_not() {
        assert_eq!(nearest("BST-FS-01"), Some("BST-FS-001"));
        assert_eq!(nearest("fs001"), Some("BST-FS-001"));
        assert_eq!(nearest("BST-POLL-002"), Some("BST-POL-002"));
        assert_eq!(nearest("completely-other"), None);
        assert_eq!(nearest(&"x".repeat(10_000)), None);
        assert_eq!(nearest(""), None);
    }
}
