//! One shape for every error: what, where, why, the command that helps, and where to read more.
use super::{Paint, Style, clean, clean_lines};
use bastle_contract::Fault;
use serde_json::{Value, json};

/// A fault for people, without a line end.
pub(crate) fn fault(fault: &Fault, style: Style) -> String {
    // The terminal belongs to whoever started this process, which read the file with that person's rights.
    let fault = &fault.for_local_reader();
    let code = fault.code.info().code;
    let head = style.paint(Paint::Bad, &format!("error[{code}]"));
    let mut lines = vec![format!(
        "{head}: {}",
        style.paint(Paint::Bold, &clean(&fault.what))
    )];
    let why = fault.why.trim_end();
    if why.trim_start().starts_with("-->") {
        // A place in a file: the excerpt with its caret stands as it is, with a column to spare on the left.
        lines.extend(clean_lines(why).lines().map(|line| format!(" {line}")));
    } else if !why.is_empty() {
        lines.push(labelled("note:", why, style));
    }
    for (index, help) in fault.help.iter().enumerate() {
        let label = if index == 0 { "help:" } else { "     " };
        lines.push(labelled(label, help, style));
    }
    let more = format!("bastle explain {code}");
    lines.push(format!("  {} {more}", style.paint(Paint::Dim, "more:")));
    lines.join("\n")
}

/// A label and a text; further lines of the text are indented below the first.
fn labelled(label: &str, text: &str, style: Style) -> String {
    let indent = format!("\n{}", " ".repeat(label.len() + 3));
    let text = clean_lines(text).replace('\n', &indent);
    format!("  {} {text}", style.paint(Paint::Accent, label))
}

/// A fault for programs.
pub(crate) fn fault_json(fault: &Fault) -> Value {
    let fault = fault.for_local_reader();
    json!({
        "schema": "bastle.error/v1",
        "code": fault.code.info().code,
        "what": fault.what,
        "why": fault.why,
        "help": fault.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::Code;

    #[test]
    fn a_fault_names_code_cause_help_and_where_to_read_more() {
        let shown = fault(
            &Fault::new(Code::LimitUnheld, "limit memory cannot be held", "no cgroup")
                .help("bastle doctor")
                .help("--waive memory"),
            Style::PLAIN,
        );
        let expected = "error[BST-LIM-009]: limit memory cannot be held\n  note: no cgroup\n  help: bastle doctor\n        --waive memory\n  more: bastle explain BST-LIM-009";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_place_in_a_file_is_shown_as_an_excerpt_with_its_caret() {
        let shown = fault(
            &Fault::new(
                Code::PolicySchema,
                "unknown key",
                " --> a.json:1:3\n  |\n1 | {\"x\n  |   ^\n",
            ),
            Style::PLAIN,
        );
        assert!(
            shown.contains("\n  --> a.json:1:3\n   |\n 1 | {\"x\n   |   ^\n"),
            "{shown}"
        );
    }

    #[test]
    fn escape_sequences_in_a_fault_never_reach_the_terminal() {
        let hostile = Fault::new(Code::FsWrite, "x\x1b[2J\u{202e}", "y\x1b]0;t\x07\nz").help("\x1b[31m");
        let shown = fault(&hostile, Style::PLAIN);
        assert!(
            !shown
                .chars()
                .any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')),
            "{shown:?}"
        );
    }
}
