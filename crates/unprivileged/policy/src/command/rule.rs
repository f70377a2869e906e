//! One command rule: its syntax. Rules come from policy documents, which may be untrusted; a bad one is an error.
//!
//! * `cargo test *` — the trailing ` *` stands at a word boundary: `cargo test`, `cargo test -q`, not `cargo testx`.
//! * `git status` — in allow exactly these words; in ask and deny also with more arguments, because a denial that one
//!   more argument escapes denies nothing.
//! * `sudo` — in ask and deny the program with any arguments; in allow the program with *no* arguments.
//! * `npm run test:*` — the older spelling of a prefix: `npm run test`, `npm run test -x`, `npm run test:unit`.
//! * `Bash(cargo test *)` — the same as `cargo test *`.
//! * `*` inside a word stands for any text without a `..` step; the program itself is never a pattern.

use super::width;
use std::fmt;

/// The longest rule that is read.
const MAX_RULE: usize = 1024;
/// The most words in a rule; one bit each when a rule is matched.
pub(super) const MAX_RULE_WORDS: usize = 48;

/// A rule for commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    text: String,
    pub(super) program: String,
    pub(super) words: Vec<String>,
    pub(super) tail: Tail,
}

/// What may follow the words of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing (in allow).
    Closed,
    /// Any further words.
    Open,
    /// Any further words; the last word may also go on after a colon.
    Colon,
}

/// Why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRuleError {
    /// Nothing in it.
    #[error("the command rule is empty")]
    Empty,
    /// Longer than any real rule.
    #[error("the command rule is longer than {MAX_RULE} bytes or {MAX_RULE_WORDS} words")]
    TooLong,
    /// Shell syntax where one plain command belongs.
    #[error(
        "`{rule}` holds `{found}`: a rule names one plain command, each part of a line is judged by itself"
    )]
    NotOneCommand {
        /// The rule.
        rule: String,
        /// The character that is in the way.
        found: char,
    },
    /// A pattern in place of the program.
    #[error("`{rule}` has a pattern where the program belongs: name the program")]
    PatternAsProgram {
        /// The rule.
        rule: String,
    },
    /// An allow rule that would allow everything.
    #[error("`{rule}` is too wide to allow: {why}")]
    TooWide {
        /// The rule.
        rule: String,
        /// What it lets through.
        why: String,
    },
}

impl CommandRule {
    /// Reads a rule for the allow list: one that would let anything run is refused as too wide.
    ///
    /// # Errors
    /// When the text is not one plain command, or too wide.
    pub fn parse(text: &str) -> Result<Self, CommandRuleError> {
        let rule = Self::parse_restriction(text)?;
        match width::too_wide(&rule) {
            Some(why) => Err(CommandRuleError::TooWide { rule: rule.text, why }),
            None => Ok(rule),
        }
    }

    /// Reads a rule for the ask and deny lists, where a wide rule is welcome (`sudo`, `bash -c *`).
    ///
    /// # Errors
    /// When the text is not one plain command.
    pub fn parse_restriction(text: &str) -> Result<Self, CommandRuleError> {
        let text = unwrap_tool(text.trim());
        if text.is_empty() {
            return Err(CommandRuleError::Empty);
        }
        if text.len() > MAX_RULE {
            return Err(CommandRuleError::TooLong);
        }
        let mut words = split(text)?;
        if words.len() > MAX_RULE_WORDS {
            return Err(CommandRuleError::TooLong);
        }
        let mut tail = Tail::Closed;
        if words.len() > 1 && words.last().is_some_and(|w| w == "*") {
            words.pop();
            tail = Tail::Open;
        } else if let Some(stem) = words.last().and_then(|w| w.strip_suffix(":*")).map(str::to_owned) {
            tail = if words.len() == 1 { Tail::Open } else { Tail::Colon };
            words.pop();
            words.push(stem);
        }
        let program = words.remove(0);
        if program.is_empty() || program.contains('*') {
            return Err(CommandRuleError::PatternAsProgram {
                rule: text.to_owned(),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            program,
            words,
            tail,
        })
    }
}

impl CommandRule {
    /// The program that it names.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `Bash(x)` is `x`; the tool's name is not case sensitive here, so that `bash(*)` is refused for what it means.
fn unwrap_tool(text: &str) -> &str {
    let inner = text
        .split_once('(')
        .filter(|(tool, _)| tool.eq_ignore_ascii_case("bash"))
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(text, str::trim)
}

/// Splits a rule into words: quotes and backslashes as in the shell, no other shell syntax.
fn split(text: &str) -> Result<Vec<String>, CommandRuleError> {
    let refuse = |found: char| CommandRuleError::NotOneCommand {
        rule: text.to_owned(),
        found,
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let current = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => current.extend(chars.next()),
                        Some(other) => current.push(other),
                        None => return Err(refuse(c)),
                    }
                }
            }
            '\\' => word
                .get_or_insert_default()
                .push(chars.next().ok_or_else(|| refuse('\\'))?),
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '`' | '$' => return Err(refuse(c)),
            other if other.is_control() => return Err(refuse(other)),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}
