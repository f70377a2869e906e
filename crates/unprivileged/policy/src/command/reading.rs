//! Reads a line twice: once with the shell grammar, once by checking every leaf and every gap of the tree against
//! the shell's own word rules. Trusts neither the line nor the grammar; where they disagree the line is unreadable.

use super::{heredoc, leaves};
use std::borrow::Cow;
use std::cell::RefCell;
use tree_sitter::{Node, Parser, Tree};

/// How deep a tree may nest: far beyond real lines, far below the stack.
const MAX_NESTING: usize = 120;
/// Here-documents in one line. The grammar's scanner keeps them in a fixed buffer.
const MAX_HEREDOCS: usize = 8;

thread_local! {
    // Building a parser costs more than reading a line.
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Why a line cannot be read for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) String);

/// Reads a line; the tree has been checked in full.
pub(super) fn read(source: &str) -> Result<Tree, Unreadable> {
    if let Some(bad) = source
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        return Err(Unreadable(format!(
            "the line holds the control character {}",
            bad.escape_unicode()
        )));
    }
    if source.matches("<<").count() > MAX_HEREDOCS {
        return Err(Unreadable("the line holds too many here-documents".into()));
    }
    let tree = parse(source).ok_or_else(|| Unreadable("the shell grammar could not be loaded".into()))?;
    let root = tree.root_node();
    if root.has_error() {
        return Err(Unreadable(syntax_error(root, source)));
    }
    let covered = source.get(..root.start_byte()).is_some_and(blank)
        && source.get(root.end_byte()..).is_some_and(blank);
    if root.kind() != "program" || !covered {
        return Err(Unreadable("part of the line is outside the shell grammar".into()));
    }
    check(root, source, Context::Statements, 0)?;
    Ok(tree)
}

fn parse(source: &str) -> Option<Tree> {
    PARSER.with(|slot| {
        let mut slot = slot.try_borrow_mut().ok()?;
        if slot.is_none() {
            let mut parser = Parser::new();
            parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
            *slot = Some(parser);
        }
        slot.as_mut()?.parse(&*in_ascii(source), None)
    })
}

/// The same text with an `x` for every byte of every other character. The grammar's scanner looks characters up in
/// a table without a bound, so a rare one in the wrong place reads foreign memory and ends the process. To the shell
/// they are ordinary characters of a word, as `x` is; all leaves are read a second time in the real text.
fn in_ascii(source: &str) -> Cow<'_, str> {
    if source.is_ascii() {
        return Cow::Borrowed(source);
    }
    Cow::Owned(
        source
            .bytes()
            .map(|b| if b.is_ascii() { char::from(b) } else { 'x' })
            .collect(),
    )
}

fn syntax_error(root: Node<'_>, source: &str) -> String {
    let mut node = root;
    'down: loop {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.is_error() || child.is_missing() || child.has_error() {
                node = child;
                if child.is_error() || child.is_missing() {
                    break 'down;
                }
                continue 'down;
            }
        }
        break;
    }
    let text: String = source
        .get(node.byte_range())
        .unwrap_or("")
        .chars()
        .take(40)
        .collect();
    format!(
        "the shell grammar does not understand it near `{text}` (byte {})",
        node.start_byte()
    )
}

/// What the gaps between the children of a node may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// Blanks and newlines: newlines end commands here.
    Statements,
    /// Blanks only: a newline would end the command for the shell.
    Inline,
    /// Nothing: the pieces are one word.
    Glued,
    /// Double quotes: white space the grammar skips.
    Quotes,
    /// Parameter expansion: plain characters only.
    Expansion,
    /// The text of a here-document, read by `heredoc`.
    Heredoc,
}

fn context(kind: &str, outer: Context) -> Option<Context> {
    Some(match kind {
        "program"
        | "list"
        | "pipeline"
        | "subshell"
        | "compound_statement"
        | "do_group"
        | "if_statement"
        | "elif_clause"
        | "else_clause"
        | "while_statement"
        | "for_statement"
        | "c_style_for_statement"
        | "case_statement"
        | "case_item"
        | "function_definition"
        | "command_substitution"
        | "process_substitution"
        | "array"
        | "heredoc_redirect" => Context::Statements,
        "command"
        | "command_name"
        | "declaration_command"
        | "unset_command"
        | "test_command"
        | "negated_command"
        | "redirected_statement"
        | "file_redirect"
        | "herestring_redirect"
        | "variable_assignments"
        | "binary_expression"
        | "unary_expression"
        | "ternary_expression"
        | "postfix_expression"
        | "parenthesized_expression"
        | "arithmetic_expansion" => {
            if outer == Context::Expansion {
                Context::Expansion
            } else {
                Context::Inline
            }
        }
        "variable_assignment" | "concatenation" | "simple_expansion" | "brace_expression" | "subscript" => {
            Context::Glued
        }
        "string" => Context::Quotes,
        "expansion" => Context::Expansion,
        "heredoc_body" => Context::Heredoc,
        _ => return None,
    })
}

fn check(node: Node<'_>, source: &str, outer: Context, depth: usize) -> Result<(), Unreadable> {
    if depth > MAX_NESTING {
        return Err(Unreadable("the line nests too deeply".into()));
    }
    if node.child_count() == 0 {
        return leaf(node, source);
    }
    let Some(inner) = context(node.kind(), outer) else {
        return Err(disagreement(node, source));
    };
    special(node, source)?;
    let mut at = node.start_byte();
    let mut previous: Option<Node<'_>> = None;
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        let gap = source
            .get(at..child.start_byte())
            .ok_or_else(|| disagreement(node, source))?;
        let touching =
            previous.is_some_and(|p| ends_in_word(p.kind()) && is_word(child.kind())) && gap.is_empty();
        if !gap_agrees(gap, inner) || (touching && inner != Context::Glued && inner != Context::Quotes) {
            // The one word the grammar loses: `cmd - <<E`. The walk puts it back.
            if !(node.kind() == "redirected_statement" && lost_dash(gap)) {
                return Err(disagreement(node, source));
            }
        }
        if child.kind() == "comment" && !matches!(inner, Context::Statements | Context::Inline) {
            return Err(disagreement(child, source));
        }
        check(child, source, inner, depth + 1)?;
        at = child.end_byte();
        previous = Some(child);
    }
    let tail = source.get(at..node.end_byte()).unwrap_or("x");
    if gap_agrees(tail, inner) {
        Ok(())
    } else {
        Err(disagreement(node, source))
    }
}

/// A gap that is the word `-` alone.
pub(super) fn lost_dash(gap: &str) -> bool {
    gap.len() >= 3
        && gap.starts_with([' ', '\t'])
        && gap.ends_with([' ', '\t'])
        && gap.trim_matches([' ', '\t']) == "-"
}

/// A redirection ends in its target: a word that touches it is part of the target.
fn ends_in_word(kind: &str) -> bool {
    is_word(kind) || matches!(kind, "file_redirect" | "herestring_redirect")
}

fn is_word(kind: &str) -> bool {
    matches!(
        kind,
        "word"
            | "concatenation"
            | "string"
            | "raw_string"
            | "ansi_c_string"
            | "number"
            | "expansion"
            | "simple_expansion"
            | "command_substitution"
            | "process_substitution"
            | "arithmetic_expansion"
            | "brace_expression"
            | "variable_name"
            | "variable_assignment"
            | "command_name"
            | "$"
    )
}

fn leaf(node: Node<'_>, source: &str) -> Result<(), Unreadable> {
    if leaves::agrees(node, source) {
        Ok(())
    } else {
        Err(disagreement(node, source))
    }
}

/// Constructs whose tree the shell reads in another way altogether.
fn special(node: Node<'_>, source: &str) -> Result<(), Unreadable> {
    let text = source.get(node.byte_range()).unwrap_or("");
    let fine = match node.kind() {
        "heredoc_redirect" => heredoc::agrees(node, source),
        // The shell ends a backtick at the next backtick, whatever quotes say, and unescapes the inside first.
        "command_substitution" if text.starts_with('`') => {
            text.len() >= 2 && !text.contains('\\') && text.matches('`').count() == 2
        }
        "command_substitution" => text.starts_with("$("),
        // `[` is an ordinary command: `&&`, `|`, `<` and `>` keep their meaning inside it.
        "test_command" if !text.starts_with("[[") => !has_operator(node),
        "compound_statement" | "arithmetic_expansion" | "string" => !text.contains("$["),
        _ => true,
    };
    if fine {
        Ok(())
    } else {
        Err(disagreement(node, source))
    }
}

fn has_operator(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor).any(|child| {
        let operator = matches!(
            child.kind(),
            "&&" | "||"
                | "|"
                | "&"
                | ";"
                | "<"
                | ">"
                | "<<"
                | ">>"
                | "("
                | ")"
                | "<="
                | ">="
                | "=~"
                | "regex"
                | "extglob_pattern"
                | "redirected_statement"
                | "&="
                | "|="
                | "<<="
                | ">>="
        );
        let nested = !matches!(
            child.kind(),
            "string" | "command_substitution" | "process_substitution" | "expansion"
        );
        operator || (nested && has_operator(child))
    })
}

fn gap_agrees(gap: &str, context: Context) -> bool {
    match context {
        Context::Statements => blank(gap) && !glues(gap),
        Context::Inline => blank(gap) && !glues(gap) && !has_newline(gap),
        Context::Glued => gap.is_empty(),
        Context::Quotes => gap.chars().all(|c| matches!(c, ' ' | '\t' | '\n')),
        Context::Expansion => gap.chars().all(|c| c == ' '),
        Context::Heredoc => true,
    }
}

/// Blanks, newlines and escaped newlines.
fn blank(gap: &str) -> bool {
    let mut bytes = gap.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b' ' | b'\t' | b'\n' => {}
            b'\\' if bytes.next() == Some(b'\n') => {}
            _ => return false,
        }
    }
    true
}

/// An escaped newline with no blank beside it: the shell joins both sides into one word.
fn glues(gap: &str) -> bool {
    !gap.is_empty() && gap.replace("\\\n", "").is_empty()
}

fn has_newline(gap: &str) -> bool {
    gap.replace("\\\n", "").contains('\n')
}

fn disagreement(node: Node<'_>, source: &str) -> Unreadable {
    let text: String = source
        .get(node.byte_range())
        .unwrap_or("")
        .chars()
        .take(40)
        .collect();
    Unreadable(format!(
        "the shell may read `{text}` in another way than the grammar does"
    ))
}
