//! A named source text, and messages that point into it.
use super::Span;
use crate::text::shown;
use bastle_contract::{Code, Fault};
use serde::Serialize;

/// Widest excerpt of a line in a message; a longer line is cut around the place.
const EXCERPT: usize = 100;

/// The text of one file and the places where its lines begin.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    lines: Vec<usize>,
}

/// A message about one place of a policy file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Stable code.
    pub code: Code,
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// Remedies, each a sentence or a command.
    pub help: Vec<String>,
    /// The line with a caret under the place.
    pub snippet: String,
}

impl<'a> Source<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = [0].into_iter().chain(breaks.map(|(i, _)| i + 1)).collect();
        Self { name, text, lines }
    }

    /// Line and column of a byte, both from 1.
    pub(crate) fn place(&self, offset: usize) -> (u32, u32) {
        let line = self
            .lines
            .partition_point(|start| *start <= offset)
            .saturating_sub(1);
        let before = self.text.get(self.lines[line]..offset).unwrap_or_default();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(line + 1), count(before.chars().count() + 1))
    }

    /// A message about `span`.
    pub(crate) fn diagnostic(&self, code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        let (line, column) = self.place(span.start);
        Diagnostic {
            code,
            file: self.name.to_owned(),
            line,
            column,
            message: message.into(),
            help: Vec::new(),
            snippet: self.snippet(span, line, column),
        }
    }

    fn snippet(&self, span: Span, line: u32, column: u32) -> String {
        let index = line as usize - 1;
        let start = self.lines.get(index).copied().unwrap_or_default();
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let whole: Vec<char> = self.text.get(start..end).unwrap_or_default().chars().collect();
        let at = column as usize - 1;
        let from = at.saturating_sub(EXCERPT / 2).min(whole.len());
        let to = (from + EXCERPT).min(whole.len());
        let (mut excerpt, mut pad) = (String::new(), 0);
        for (i, c) in whole[from..to].iter().enumerate() {
            let piece = if *c == '\t' {
                " ".to_owned()
            } else {
                shown(&c.to_string())
            };
            if from + i < at {
                pad += piece.chars().count();
            }
            excerpt.push_str(&piece);
        }
        let marked = self
            .text
            .get(span.start..span.end.min(end.max(span.start)))
            .unwrap_or_default();
        let carets = marked.chars().count().clamp(1, (to.saturating_sub(at)).max(1));
        let gutter = " ".repeat(line.to_string().len());
        format!(
            "{gutter}--> {}:{line}:{column}\n{gutter} |\n{line} | {excerpt}\n{gutter} | {}{}",
            shown(self.name),
            " ".repeat(pad),
            "^".repeat(carets)
        )
    }
}

impl Diagnostic {
    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The same as a fault; the snippet is its reason.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault {
            code: self.code,
            what: self.message.clone(),
            why: self.snippet.clone(),
            help: self.help.clone(),
            local: None,
        }
    }

    /// The same for the content of a file whose text only its local reader may see: everybody else gets its place.
    #[must_use]
    pub fn withheld(&self) -> Fault {
        let (file, line, column) = (shown(&self.file), self.line, self.column);
        self.fault()
            .withhold(
                format!("{file} is not a valid policy file"),
                format!(" --> {file}:{line}:{column}"),
            )
            .help(format!(
                "bastle policy check {file} shows the line, on the machine that has the file"
            ))
    }
}
