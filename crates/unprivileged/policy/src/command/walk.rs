//! Walks a verified tree and lists, in the order of the text, every simple command and every redirection.
//! Trusts the tree (it has been read twice), not the words in it.

use super::reading::lost_dash;
use super::word::{self, Certainty, Word};
use tree_sitter::Node;

/// One thing a line does.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Runs a program or builtin.
    Command(Simple),
    /// Opens a file.
    Redirect(Redirect),
    /// Sets a variable, by assignment, declaration, loop or `${x:=…}`.
    Assign(Assign),
    /// Defines a function of this name.
    Function {
        /// Its name.
        name: String,
    },
    /// Something that cannot be judged.
    Unclear {
        /// The text.
        part: String,
        /// Why.
        reason: &'static str,
    },
}

/// A simple command.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    /// Program and arguments.
    pub(super) words: Vec<Word>,
    /// The source text.
    pub(super) part: String,
    /// Whether it may run more than once or later.
    pub(super) times: Times,
}

/// How often a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// Once, here.
    Once,
    /// In a loop or a function: text before it may run after it.
    Again,
}

/// A redirection.
#[derive(Clone, Debug)]
pub(super) struct Redirect {
    /// Where to.
    pub(super) target: Word,
    /// `<`, `>`, `>>`, …
    pub(super) operator: String,
}

/// An assignment.
#[derive(Clone, Debug)]
pub(super) struct Assign {
    /// The variable.
    pub(super) name: String,
    /// The value; several for arrays and loops.
    pub(super) values: Vec<Word>,
    /// The source text.
    pub(super) part: String,
}

/// Contexts in which the shell evaluates text as arithmetic, and text that would then run a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arithmetic {
    /// A variable is evaluated as a number or a name.
    pub(super) evaluated: bool,
    /// A quoted text holds a command substitution.
    pub(super) quoted_substitution: bool,
}

/// Everything a line does.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked {
    /// In the order of the text; redirections come before the command they belong to.
    pub(super) items: Vec<Item>,
    /// See [`Arithmetic`].
    pub(super) arithmetic: Arithmetic,
}

/// Lists what the tree does.
pub(super) fn walk(root: Node<'_>, source: &str) -> Walked {
    let mut walker = Walker {
        source,
        walked: Walked::default(),
        times: Times::Once,
    };
    walker.children(root);
    walker.walked
}

struct Walker<'s> {
    source: &'s str,
    walked: Walked,
    times: Times,
}

impl Walker<'_> {
    fn text(&self, node: Node<'_>) -> &str {
        self.source.get(node.byte_range()).unwrap_or("")
    }

    fn unclear(&mut self, node: Node<'_>, reason: &'static str) {
        let part = self.text(node).to_owned();
        self.walked.items.push(Item::Unclear { part, reason });
    }

    fn children(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child);
        }
    }

    fn visit(&mut self, node: Node<'_>) {
        match node.kind() {
            "command" => self.command(node, node, Vec::new()),
            "redirected_statement" => self.redirected(node),
            "declaration_command" | "unset_command" => self.declaration(node),
            "variable_assignment" => self.assignment(node),
            "for_statement" => self.for_loop(node),
            "function_definition" => self.function(node),
            "while_statement" | "c_style_for_statement" => self.repeated(node),
            "file_redirect" => {
                let more = self.redirect(node);
                if !more.is_empty() {
                    self.unclear(node, "words follow a redirection that has no command");
                }
            }
            "raw_string" | "ansi_c_string" | "string_content" | "word" => self.literal(node),
            "expansion" => self.expansion(node),
            "arithmetic_expansion" | "subscript" => {
                self.walked.arithmetic.evaluated |= has_variable(node);
                self.children(node);
            }
            "compound_statement" if self.text(node).starts_with("((") => {
                self.walked.arithmetic.evaluated |= has_variable(node);
                self.children(node);
            }
            "test_command" => {
                self.walked.arithmetic.evaluated |= evaluates(node, self.source);
                self.children(node);
            }
            _ => self.children(node),
        }
    }

    fn repeated(&mut self, node: Node<'_>) {
        let outer = std::mem::replace(&mut self.times, Times::Again);
        self.children(node);
        self.times = outer;
    }

    fn literal(&mut self, node: Node<'_>) {
        let text = self.text(node);
        let holds = text.contains("$(")
            || text.contains('`')
            || (node.kind() == "ansi_c_string" && text.contains('\\'));
        self.walked.arithmetic.quoted_substitution |= holds && text.contains('[');
    }

    fn expansion(&mut self, node: Node<'_>) {
        let text = self.text(node).to_owned();
        let mut cursor = node.walk();
        let kinds: Vec<&str> = node.children(&mut cursor).map(|c| c.kind()).collect();
        if kinds.contains(&"=") || kinds.contains(&":=") {
            let name: String = text
                .trim_start_matches("${")
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            self.walked.items.push(Item::Assign(Assign {
                name,
                values: vec![Word::many()],
                part: text,
            }));
        }
        // `${!x}` and `${x:n}` evaluate the value of a variable as a name or a number.
        self.walked.arithmetic.evaluated |= kinds.iter().any(|k| matches!(*k, "!" | ":"));
        self.children(node);
    }

    fn command(&mut self, node: Node<'_>, whole: Node<'_>, more: Vec<Word>) {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => self.assignment(child),
                "file_redirect" => words.extend(self.redirect(child)),
                "herestring_redirect" => self.children(child),
                "subshell" => {
                    // Only `time (…)` is a command before a subshell; anything else is a syntax error or worse.
                    if words.first().and_then(Word::known) != Some("time") {
                        self.unclear(node, "a subshell follows a word");
                    }
                    self.visit(child);
                }
                "comment" => {}
                "=~" | "==" => words.push(Word::fixed(child.kind())),
                _ => self.word(child, &mut words),
            }
        }
        words.extend(more);
        let part = self.text(whole).to_owned();
        self.walked.items.push(Item::Command(Simple {
            words,
            part,
            times: self.times,
        }));
    }

    /// Resolves a word and walks into the substitutions it holds.
    fn word(&mut self, node: Node<'_>, words: &mut Vec<Word>) {
        match word::resolve(node, self.source) {
            Some(word) => words.push(word),
            None => self.unclear(node, "a word of a kind that is not understood"),
        }
        self.visit(node);
    }

    fn redirected(&mut self, node: Node<'_>) {
        let mut body = None;
        let mut more = Vec::new();
        let mut at = node.start_byte();
        let start = self.walked.items.len();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if self.source.get(at..child.start_byte()).is_some_and(lost_dash) {
                more.push(Word::fixed("-"));
            }
            at = child.end_byte();
            match child.kind() {
                "file_redirect" => more.extend(self.redirect(child)),
                "heredoc_redirect" => self.heredoc(child, &mut more),
                "herestring_redirect" => self.children(child),
                "comment" => {}
                _ => body = Some(child),
            }
        }
        match body {
            Some(body) if body.kind() == "command" => self.command(body, node, more),
            Some(body) => {
                if !more.is_empty() {
                    self.unclear(node, "words follow the redirection of a group");
                }
                // `cd x && ls > y`: the grammar hangs the redirection on the whole list, the shell on its last command.
                let last_only = matches!(body.kind(), "list" | "pipeline" | "negated_command");
                let redirects = if last_only {
                    self.walked.items.split_off(start)
                } else {
                    Vec::new()
                };
                self.visit(body);
                self.walked.items.extend(redirects);
            }
            // `> file sudo`: the shell takes the words after the target as the command.
            None if !more.is_empty() => {
                let part = self.text(node).to_owned();
                self.walked.items.push(Item::Command(Simple {
                    words: more,
                    part,
                    times: self.times,
                }));
            }
            None => {}
        }
    }

    /// The head of a here-document may hold more arguments, redirections and the rest of a pipeline.
    fn heredoc(&mut self, node: Node<'_>, more: &mut Vec<Word>) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_redirect" => more.extend(self.redirect(child)),
                "heredoc_start" | "heredoc_end" | "<<" | "<<-" | "file_descriptor" | "&&" | "||"
                | "comment" => {}
                "heredoc_body" | "herestring_redirect" => self.children(child),
                "pipeline" => self.children(child),
                kind if is_statement(kind) => self.visit(child),
                _ => self.word(child, more),
            }
        }
    }

    /// Records the target; returns the words after it, which belong to the command.
    fn redirect(&mut self, node: Node<'_>) -> Vec<Word> {
        let mut operator = String::new();
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_descriptor" => {}
                kind if !child.is_named() && kind != "$" => kind.clone_into(&mut operator),
                _ => self.word(child, &mut words),
            }
        }
        let closes = operator.ends_with("&-");
        if words.is_empty() || closes {
            return words;
        }
        let target = words.remove(0);
        self.walked
            .items
            .push(Item::Redirect(Redirect { target, operator }));
        words
    }

    fn declaration(&mut self, node: Node<'_>) {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => self.assignment(child),
                "comment" => {}
                kind if !child.is_named() && kind != "$" => words.push(Word::fixed(self.text(child))),
                _ => self.word(child, &mut words),
            }
        }
        let part = self.text(node).to_owned();
        self.walked.items.push(Item::Command(Simple {
            words,
            part,
            times: self.times,
        }));
    }

    fn assignment(&mut self, node: Node<'_>) {
        let name: String = self
            .text(node)
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let mut values = Vec::new();
        if let Some(value) = node.child_by_field_name("value") {
            if value.kind() == "array" {
                values.push(Word::many());
                self.children(value);
            } else {
                self.word(value, &mut values);
            }
        }
        if let Some(target) = node.child_by_field_name("name") {
            self.visit(target);
        }
        let part = self.text(node).to_owned();
        self.walked
            .items
            .push(Item::Assign(Assign { name, values, part }));
    }

    fn for_loop(&mut self, node: Node<'_>) {
        let mut values = Vec::new();
        let mut name = String::new();
        let outer = std::mem::replace(&mut self.times, Times::Again);
        let mut body = None;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_name" if name.is_empty() => self.text(child).clone_into(&mut name),
                "do_group" => body = Some(child),
                "comment" => {}
                _ if !child.is_named() => {}
                _ => self.word(child, &mut values),
            }
        }
        if values.is_empty() {
            values.push(Word::many());
        }
        let part = self.text(node).to_owned();
        self.walked
            .items
            .push(Item::Assign(Assign { name, values, part }));
        if let Some(body) = body {
            self.children(body);
        }
        self.times = outer;
    }

    fn function(&mut self, node: Node<'_>) {
        match node
            .child_by_field_name("name")
            .and_then(|n| word::resolve(n, self.source))
        {
            Some(Word {
                text: name,
                certainty: Certainty::Fixed,
                ..
            }) => {
                self.walked.items.push(Item::Function { name });
            }
            Some(_) | None => self.unclear(node, "a function without a plain name"),
        }
        self.repeated_function(node);
    }

    fn repeated_function(&mut self, node: Node<'_>) {
        let outer = std::mem::replace(&mut self.times, Times::Again);
        let name = node.child_by_field_name("name").map(|n| n.id());
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if Some(child.id()) != name {
                self.visit(child);
            }
        }
        self.times = outer;
    }
}

fn is_statement(kind: &str) -> bool {
    matches!(
        kind,
        "command"
            | "redirected_statement"
            | "variable_assignment"
            | "variable_assignments"
            | "declaration_command"
            | "unset_command"
            | "test_command"
            | "negated_command"
            | "for_statement"
            | "c_style_for_statement"
            | "while_statement"
            | "if_statement"
            | "case_statement"
            | "list"
            | "compound_statement"
            | "function_definition"
            | "subshell"
    )
}

/// Whether a variable is read anywhere below.
fn has_variable(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor).any(|child| {
        matches!(
            child.kind(),
            "variable_name" | "simple_expansion" | "expansion" | "word" | "string"
        ) || has_variable(child)
    })
}

/// `-v` names a variable, `-eq` and its kin evaluate their operands.
fn evaluates(node: Node<'_>, source: &str) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor).any(|child| {
        let text = source.get(child.byte_range()).unwrap_or("");
        (child.kind() == "test_operator"
            && matches!(text, "-v" | "-R" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"))
            || evaluates(child, source)
    })
}
