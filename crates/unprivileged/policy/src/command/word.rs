//! A shell word after quote removal, with what could not be known. Built from verified trees only.

use tree_sitter::Node;

/// Stands for text that only the running shell knows. Lines with control bytes are refused, so it cannot be typed.
pub(super) const UNKNOWN: char = '\0';

/// How much of a word is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Exactly this text.
    Fixed,
    /// One word, with [`UNKNOWN`] where the text is not known.
    Unknown,
    /// File names matching a pattern; any number of words.
    Glob,
    /// Any number of words.
    Many,
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The text with quotes removed and [`UNKNOWN`] in place of what is computed.
    pub(super) text: String,
    /// How much of `text` is known.
    pub(super) certainty: Certainty,
    /// Whether quotes or escapes were written: a quoted reserved word is an ordinary word.
    pub(super) quoting: Quoting,
    /// The variable, when the whole word is one plain variable.
    pub(super) variable: Option<String>,
    /// The assigned values of `variable` show that the word cannot start with a dash.
    pub(super) lead: Lead,
}

/// Whether any part of a word was quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quoting {
    /// As typed.
    Bare,
    /// At least one quote or escape.
    Quoted,
}

/// What is known of the start of a word whose text is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// Nothing: it may turn out to be an option.
    Open,
    /// It is no option.
    NotAnOption,
}

impl Word {
    /// A word known in full.
    pub(super) fn fixed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            certainty: Certainty::Fixed,
            quoting: Quoting::Bare,
            variable: None,
            lead: Lead::Open,
        }
    }

    /// Any number of unknown words.
    pub(super) fn many() -> Self {
        Self {
            certainty: Certainty::Many,
            ..Self::fixed(UNKNOWN.to_string())
        }
    }

    /// One word with unknown parts.
    pub(super) fn unknown(text: String) -> Self {
        Self {
            certainty: Certainty::Unknown,
            ..Self::fixed(text)
        }
    }

    /// The text, when all of it is known.
    pub(super) fn known(&self) -> Option<&str> {
        (self.certainty == Certainty::Fixed).then_some(self.text.as_str())
    }

    /// Whether the running shell may turn this word into an option.
    pub(super) fn may_be_option(&self) -> bool {
        match self.certainty {
            Certainty::Fixed | Certainty::Glob => self.text.starts_with('-'),
            Certainty::Unknown | Certainty::Many => {
                self.text.starts_with('-') || (self.text.starts_with(UNKNOWN) && self.lead == Lead::Open)
            }
        }
    }

    /// For messages: unknown parts shown as an ellipsis.
    pub(super) fn shown(&self) -> String {
        self.text.replace(UNKNOWN, "…")
    }
}

/// Joins words for a message.
pub(super) fn shown(words: &[Word]) -> String {
    words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")
}

/// Resolves a word node. `None`: a kind that has no place in a word.
pub(super) fn resolve(node: Node<'_>, source: &str) -> Option<Word> {
    let mut builder = Builder::default();
    builder.add(node, source)?;
    Some(builder.finish(whole_variable(node, source)))
}

/// The variable when the node is `$x`, `"$x"`, `${x}` or `"${x}"`.
fn whole_variable(node: Node<'_>, source: &str) -> Option<String> {
    let mut node = node;
    if node.kind() == "string" {
        if node.named_child_count() != 1 {
            return None;
        }
        let inner = node.named_child(0)?;
        // Text the grammar skips (blanks) would make it more than the variable alone.
        if inner.start_byte() != node.start_byte() + 1 || inner.end_byte() + 1 != node.end_byte() {
            return None;
        }
        node = inner;
    }
    let text = source.get(node.byte_range())?;
    let name = match node.kind() {
        "simple_expansion" => text.strip_prefix('$')?,
        "expansion" => text.strip_prefix("${")?.strip_suffix('}')?,
        _ => return None,
    };
    let plain = !name.is_empty()
        && name
            .bytes()
            .all(|b| b == b'_' || b.is_ascii_alphanumeric() || b == b'?');
    plain.then(|| name.to_owned())
}

/// The text of `$(cat <<'EOF' … EOF)`: nothing in it is computed, and agents write commit messages this way.
fn quoted_document<'s>(node: Node<'_>, source: &'s str) -> Option<&'s str> {
    if node.kind() != "command_substitution" || node.named_child_count() != 1 {
        return None;
    }
    let statement = node.named_child(0)?;
    let (command, document) = (statement.named_child(0)?, statement.named_child(1)?);
    let plain = statement.kind() == "redirected_statement"
        && statement.named_child_count() == 2
        && source.get(command.byte_range()) == Some("cat")
        && document.kind() == "heredoc_redirect"
        && document.child(0).is_some_and(|operator| operator.kind() == "<<")
        && document.named_child_count() == 3;
    let delimiter = document.named_child(0)?;
    let end = document.named_child(2)?;
    if !plain || end.kind() != "heredoc_end" || !source.get(delimiter.byte_range())?.starts_with(['\'', '"'])
    {
        return None;
    }
    let start = delimiter.end_byte() + source.get(delimiter.end_byte()..)?.find('\n')? + 1;
    Some(source.get(start..end.start_byte())?.trim_end_matches('\n'))
}

#[derive(Default)]
struct Builder {
    text: String,
    quoted: bool,
    unknown: bool,
    many: bool,
    glob: bool,
    brace_start: Option<usize>,
    brace_splits: bool,
}

impl Builder {
    fn add(&mut self, node: Node<'_>, source: &str) -> Option<()> {
        let text = source.get(node.byte_range())?;
        match node.kind() {
            "concatenation" | "command_name" => {
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    self.add(child, source)?;
                }
            }
            "word" | "variable_name" | "test_operator" => self.bare(text),
            "number" if node.child_count() == 0 => self.text.push_str(text),
            "raw_string" => {
                self.quoted = true;
                self.text.push_str(text.strip_prefix('\'')?.strip_suffix('\'')?);
            }
            "ansi_c_string" => {
                self.quoted = true;
                self.text.push_str(&super::leaves::ansi_c(text)?);
            }
            "string" => self.double_quoted(node, source)?,
            "$" => self.text.push('$'),
            "simple_expansion"
            | "expansion"
            | "arithmetic_expansion"
            | "command_substitution"
            | "brace_expression" => {
                self.many = true;
                self.text.push(UNKNOWN);
            }
            "process_substitution" => {
                self.unknown = true;
                self.text.push_str("/dev/fd/");
                self.text.push(UNKNOWN);
            }
            _ => return None,
        }
        Some(())
    }

    fn bare(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' => {
                    self.quoted = true;
                    match chars.next() {
                        // An escaped newline vanishes.
                        Some('\n') | None => {}
                        Some(other) => self.text.push(other),
                    }
                }
                '*' | '?' => {
                    self.glob = true;
                    self.text.push(UNKNOWN);
                }
                '[' => {
                    self.glob = true;
                    self.text.push(UNKNOWN);
                }
                '{' => {
                    self.brace_start.get_or_insert(self.text.len());
                    self.text.push('{');
                }
                ',' => {
                    self.brace_splits |= self.brace_start.is_some();
                    self.text.push(',');
                }
                '.' if chars.peek() == Some(&'.') => {
                    self.brace_splits |= self.brace_start.is_some();
                    self.text.push('.');
                }
                other => self.text.push(other),
            }
        }
    }

    fn double_quoted(&mut self, node: Node<'_>, source: &str) -> Option<()> {
        self.quoted = true;
        let mut at = node.start_byte() + 1;
        let end = node.end_byte().checked_sub(1)?;
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            if child.kind() == "string_content" {
                continue;
            }
            self.quoted_text(source.get(at..child.start_byte())?);
            at = child.end_byte();
            if let Some(text) = quoted_document(child, source) {
                self.text.push_str(text);
                continue;
            }
            let text = source.get(child.byte_range())?;
            // "$@" and "${x[@]}" are the quoted expansions that make more than one word.
            if text.contains('@') {
                self.many = true;
            }
            self.unknown = true;
            self.text.push(UNKNOWN);
        }
        self.quoted_text(source.get(at..end)?);
        Some(())
    }

    fn quoted_text(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '\\' {
                self.text.push(c);
                continue;
            }
            match chars.peek() {
                Some('\n') => {
                    chars.next();
                }
                Some('$' | '`' | '"' | '\\') => self.text.extend(chars.next()),
                Some(_) | None => self.text.push('\\'),
            }
        }
    }

    fn finish(mut self, variable: Option<String>) -> Word {
        if let (Some(start), true) = (self.brace_start, self.brace_splits) {
            self.text.truncate(start);
            self.text.push(UNKNOWN);
            self.many = true;
        }
        let certainty = if self.many {
            Certainty::Many
        } else if self.glob {
            Certainty::Glob
        } else if self.unknown {
            Certainty::Unknown
        } else {
            Certainty::Fixed
        };
        Word {
            text: self.text,
            certainty,
            quoting: if self.quoted {
                Quoting::Quoted
            } else {
                Quoting::Bare
            },
            variable,
            lead: Lead::Open,
        }
    }
}
