//! Codex's rules files: `prefix_rule(…)` with literal arguments. Nothing is evaluated.
//!
//! There, the strictest of all matching rules wins: as here.
use super::draft::{Draft, Place};

/// Most rules that the alternatives of one pattern make.
const MOST_RULES: usize = 64;
/// Deepest nesting of lists.
const DEEPEST: usize = 4;

/// A literal.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Text(String),
    List(Vec<Literal>),
    Other(String),
}

/// Reads a rules file. What is no literal rule is reported by its line, never guessed at: it might have refused
/// something, so then no command is allowed without a question.
pub(super) fn read(text: &str, draft: &mut Draft) {
    let mut reader = Reader { text, at: 0 };
    loop {
        reader.space();
        if reader.at >= text.len() || draft.is_lost() {
            return;
        }
        let start = reader.at;
        match reader.call() {
            Some(arguments) => {
                let shown: String = text[start..reader.at].chars().take(200).collect();
                rule(&arguments, &shown, draft);
            }
            None => {
                reader.at = start;
                reader.line();
                let shown: String = text[start..reader.at].chars().take(200).collect();
                let why = "only prefix_rule(…) with literal arguments is read, so every command asks";
                draft.convert(shown.trim(), &[(Place::ToolAsk, "Bash".to_owned())], why);
            }
        }
    }
}

fn rule(arguments: &[(String, Literal)], shown: &str, draft: &mut Draft) {
    let named = |name: &str| {
        arguments
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    };
    let text = |name: &str| match named(name) {
        Some(Literal::Text(text)) => Some(text.as_str()),
        Some(Literal::List(_) | Literal::Other(_)) | None => None,
    };
    let place = match text("decision") {
        Some("prompt") => Place::ToolAsk,
        Some("forbidden") => Place::ToolDeny,
        Some("allow") => Place::ToolAllow,
        // Without a decision it allows; one that is not known is taken as the strictest.
        None if named("decision").is_none() => Place::ToolAllow,
        Some(_) | None => Place::ToolDeny,
    };
    let lines = match named("pattern") {
        Some(Literal::List(words)) => expand(words),
        Some(Literal::Text(_) | Literal::Other(_)) | None => None,
    };
    let Some(lines) = lines else {
        let why = "its pattern is no list of literal words, so every command asks";
        return draft.convert(shown, &[(Place::ToolAsk, "Bash".to_owned())], why);
    };
    let message = text("justification").unwrap_or_default();
    for line in lines {
        let source = if message.is_empty() {
            format!("prefix_rule {line}")
        } else {
            format!("prefix_rule {line} ({message})")
        };
        draft.command(&source, place, &format!("{line} *"), "");
    }
    if place == Place::ToolDeny
        && let Some(Literal::List(examples)) = named("match")
    {
        for example in examples {
            if let Some(line) = example_line(example) {
                draft.test(format!("tool Bash({line})"), "deny");
            }
        }
    }
}

/// An example of a rule: a line, or its words.
fn example_line(example: &Literal) -> Option<String> {
    let line = match example {
        Literal::Text(text) => text.clone(),
        Literal::List(words) => words
            .iter()
            .map(|word| match word {
                Literal::Text(text) => Some(text.as_str()),
                Literal::List(_) | Literal::Other(_) => None,
            })
            .collect::<Option<Vec<_>>>()?
            .join(" "),
        Literal::Other(_) => return None,
    };
    let plain = line.len() <= 200 && !line.contains(['(', ')']) && !line.chars().any(char::is_control);
    (plain && !line.trim().is_empty()).then_some(line)
}

/// Every line that a pattern with alternatives stands for; `None`: too many, or not literal.
fn expand(words: &[Literal]) -> Option<Vec<String>> {
    let mut lines = vec![String::new()];
    for word in words {
        let choices: Vec<&str> = match word {
            Literal::Text(text) => vec![text],
            Literal::List(items) => items
                .iter()
                .map(|item| match item {
                    Literal::Text(text) => Some(text.as_str()),
                    Literal::List(_) | Literal::Other(_) => None,
                })
                .collect::<Option<_>>()?,
            Literal::Other(_) => return None,
        };
        // A word with a space or nothing in it is not one word of a line here.
        if choices
            .iter()
            .any(|text| text.is_empty() || text.contains(char::is_whitespace))
        {
            return None;
        }
        let next = lines.iter().flat_map(|line| {
            choices.iter().map(move |word| {
                if line.is_empty() {
                    (*word).to_owned()
                } else {
                    format!("{line} {word}")
                }
            })
        });
        lines = next.take(MOST_RULES + 1).collect();
        if lines.len() > MOST_RULES {
            return None;
        }
    }
    (!words.is_empty() && !lines.is_empty()).then_some(lines)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        self.space();
        (self.peek()? == wanted).then(|| self.at += wanted.len_utf8())
    }

    /// White space and comments.
    fn space(&mut self) {
        while let Some(letter) = self.peek() {
            if letter == '#' {
                self.line();
            } else if letter.is_whitespace() {
                self.at += letter.len_utf8();
            } else {
                return;
            }
        }
    }

    fn line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').map_or(rest.len(), |end| end + 1);
    }

    fn word(&mut self) -> Option<String> {
        self.space();
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| rest[..end].to_owned())
    }

    fn call(&mut self) -> Option<Vec<(String, Literal)>> {
        if self.word()? != "prefix_rule" {
            return None;
        }
        self.take('(')?;
        let mut arguments = Vec::new();
        loop {
            self.space();
            if self.take(')').is_some() {
                return Some(arguments);
            }
            let name = self.word()?;
            self.take('=')?;
            arguments.push((name, self.literal(DEEPEST)?));
            self.space();
            if self.peek()? == ',' {
                self.at += 1;
            } else if self.peek()? != ')' {
                return None;
            }
        }
    }

    fn literal(&mut self, depth: usize) -> Option<Literal> {
        self.space();
        match self.peek()? {
            quote @ ('"' | '\'') => self.string(quote).map(Literal::Text),
            '[' if depth > 0 => {
                self.at += 1;
                let mut items = Vec::new();
                loop {
                    self.space();
                    if self.take(']').is_some() {
                        return Some(Literal::List(items));
                    }
                    items.push(self.literal(depth - 1)?);
                    self.space();
                    if self.peek()? == ',' {
                        self.at += 1;
                    } else if self.peek()? != ']' {
                        return None;
                    }
                }
            }
            _ => self.word().map(Literal::Other),
        }
    }

    /// A string on one line; of escapes only those that stand for themselves.
    fn string(&mut self, quote: char) -> Option<String> {
        self.at += quote.len_utf8();
        let mut text = String::new();
        loop {
            let letter = self.peek()?;
            self.at += letter.len_utf8();
            match letter {
                '\n' => return None,
                '\\' => {
                    let escaped = self.peek()?;
                    if !['\\', '"', '\''].contains(&escaped) {
                        return None;
                    }
                    self.at += escaped.len_utf8();
                    text.push(escaped);
                }
                letter if letter == quote => return Some(text),
                letter => text.push(letter),
            }
        }
    }
}
