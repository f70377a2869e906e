//! The second reading of here-documents: where the shell ends them and what it expands in them. Trusts nothing of
//! the tree: the grammar ends a document at a prefix of its delimiter and does not see backticks in one.

use super::leaves::has_unescaped;
use std::ops::Range;
use tree_sitter::Node;

/// Whether the shell sees this here-document as the grammar does.
pub(super) fn agrees(node: Node<'_>, source: &str) -> bool {
    check(node, source).unwrap_or(false)
}

fn check(node: Node<'_>, source: &str) -> Option<bool> {
    let operator = child(node, &["<<", "<<-"])?;
    let start = child(node, &["heredoc_start"])?;
    let body = child(node, &["heredoc_body"])?;
    let end = child(node, &["heredoc_end"])?;
    let (delimiter, expands) = delimiter(source.get(start.byte_range())?)?;
    // `<<-` drops leading tabs.
    let indent: &[char] = if operator.kind() == "<<-" { &['\t'] } else { &[] };
    let line_end = operator.end_byte() + source.get(operator.end_byte()..)?.find('\n')?;
    // Bodies of two documents opened on one line follow each other; the grammar nests them.
    let line_start = source
        .get(..operator.start_byte())?
        .rfind('\n')
        .map_or(0, |at| at + 1);
    let line = source.get(line_start..line_end)?;
    if line.matches("<<").count() != 1 {
        return Some(false);
    }
    let extent = extent(source, line_end + 1, delimiter, indent)?;
    if end.byte_range() != extent.delimiter {
        return Some(false);
    }
    if body.start_byte() < extent.text.start || body.end_byte() > extent.delimiter.start {
        return Some(false);
    }
    Some(!expands || expansions_are_seen(body, source, extent.text))
}

fn child<'t>(node: Node<'t>, kinds: &[&str]) -> Option<Node<'t>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).find(|c| kinds.contains(&c.kind()))
}

/// The delimiter without quotes, and whether the document is expanded. Only plain names are understood.
fn delimiter(text: &str) -> Option<(&str, bool)> {
    let unquoted = text
        .strip_prefix('\'')
        .and_then(|t| t.strip_suffix('\''))
        .or_else(|| text.strip_prefix('"').and_then(|t| t.strip_suffix('"')))
        .or_else(|| text.strip_prefix('\\'));
    let name = unquoted.unwrap_or(text);
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain.then_some((name, unquoted.is_none()))
}

/// Where a document lies.
struct Extent {
    text: Range<usize>,
    delimiter: Range<usize>,
}

/// Where the text and the closing delimiter lie: the first line that is exactly the delimiter.
fn extent(source: &str, from: usize, delimiter: &str, indent: &[char]) -> Option<Extent> {
    let mut at = from;
    loop {
        let rest = source.get(at..)?;
        let line = rest.split('\n').next()?;
        let bare = line.trim_start_matches(indent);
        if bare == delimiter {
            let start = at + (line.len() - bare.len());
            return Some(Extent {
                text: from..at,
                delimiter: start..at + line.len(),
            });
        }
        at += line.len() + 1;
        if at > source.len() {
            return None;
        }
    }
}

/// Every expansion the shell makes in the text must be a node of the tree, where it is walked and judged.
fn expansions_are_seen(body: Node<'_>, source: &str, text: Range<usize>) -> bool {
    let mut at = text.start;
    let mut cursor = body.walk();
    for expansion in body.named_children(&mut cursor) {
        if expansion.kind() == "heredoc_content" {
            continue;
        }
        let Some(between) = source.get(at..expansion.start_byte()) else {
            return false;
        };
        if !literal(between) {
            return false;
        }
        at = expansion.end_byte();
    }
    source.get(at..text.end).is_some_and(literal)
}

/// No substitution in this text: `$` may stand alone (prices, anchors), a backtick or `$(`, `${`, `$[` may not.
fn literal(text: &str) -> bool {
    if has_unescaped(text, &['`']) {
        return false;
    }
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '$' if matches!(chars.peek(), Some('(' | '{' | '[')) => return false,
            _ => {}
        }
    }
    true
}
