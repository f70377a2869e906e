//! The small languages of sed and awk: whether a script stays within text. What is not understood is refused.

use super::redirect::{Place, write_danger};
use super::word::Word;

/// Judges the arguments of sed.
pub(super) fn sed(args: &[Word], place: &Place, push: &mut impl FnMut(&str, String)) {
    let mut scripts: Vec<&Word> = Vec::new();
    let mut owned: Vec<Word> = Vec::new();
    let mut plain: Vec<&Word> = Vec::new();
    let mut in_place = false;
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        at += 1;
        let text = arg.text.as_str();
        match text {
            "-e" | "--expression" => {
                scripts.extend(args.get(at));
                at += 1;
            }
            "-n" | "-E" | "-r" | "-u" | "-z" | "-s" | "-nE" | "-nr" | "-En" | "-rn" | "--quiet"
            | "--silent" | "--regexp-extended" | "--posix" | "--sandbox" | "--debug" | "--null-data"
            | "--separate" | "--" | "-ne" | "-Ee" | "-re" | "-nEe" | "-nre" => {
                if text.ends_with('e') && !text.starts_with("--") {
                    scripts.extend(args.get(at));
                    at += 1;
                }
            }
            _ if text.starts_with("--expression=") => owned.push(Word {
                text: text[13..].to_owned(),
                ..arg.clone()
            }),
            "-i" | "-Ei" | "-ri" | "--in-place" | "-i.bak" | "-i.orig" | "-i.tmp" => in_place = true,
            _ if text.starts_with('-') && text.len() > 1 => {
                push(
                    text,
                    format!("the sed option `{}` is not understood", arg.shown()),
                );
            }
            _ => plain.push(arg),
        }
    }
    if scripts.is_empty() && owned.is_empty() && !plain.is_empty() {
        scripts.push(plain.remove(0));
    }
    for script in scripts.into_iter().chain(&owned) {
        let fine = script
            .known()
            .is_some_and(|text| SedScript::new(text).only_edits());
        if !fine {
            push(
                &script.text,
                format!("the sed script `{}` may run or write something", script.shown()),
            );
        }
    }
    if in_place {
        for file in plain {
            if let Some(reason) = write_danger(file, place) {
                push(&file.text, reason);
            }
        }
    }
}

/// Reads a sed script that only edits text.
struct SedScript<'s> {
    rest: std::iter::Peekable<std::str::Chars<'s>>,
}

impl<'s> SedScript<'s> {
    fn new(text: &'s str) -> Self {
        Self {
            rest: text.chars().peekable(),
        }
    }

    fn only_edits(mut self) -> bool {
        while self.skip(|c| matches!(c, ' ' | '\t' | '\n' | ';' | '}')) {
            if self.command().is_none() {
                return false;
            }
        }
        true
    }

    /// Skips characters; whether anything is left.
    fn skip(&mut self, what: fn(char) -> bool) -> bool {
        while self.rest.peek().is_some_and(|c| what(*c)) {
            self.rest.next();
        }
        self.rest.peek().is_some()
    }

    fn command(&mut self) -> Option<()> {
        self.address()?;
        self.skip(|c| matches!(c, ' ' | '\t' | '!'));
        match self.rest.next()? {
            '{' => Some(()),
            'p' | 'd' | 'D' | 'P' | 'g' | 'G' | 'h' | 'H' | 'x' | 'n' | 'N' | '=' | 'z' | 'F' => self.end(),
            'q' | 'Q' | 'l' => {
                self.skip(|c| c.is_ascii_digit() || c == ' ');
                self.end()
            }
            'b' | 't' | 'T' | ':' => {
                self.skip(|c| c.is_ascii_alphanumeric() || c == '_' || c == ' ');
                self.end()
            }
            'a' | 'i' | 'c' => {
                // The text goes on to the end of the line; an escaped newline continues it.
                let mut escaped = false;
                for c in self.rest.by_ref() {
                    if c == '\n' && !escaped {
                        break;
                    }
                    escaped = c == '\\' && !escaped;
                }
                Some(())
            }
            's' => self.substitute(),
            'y' => {
                let delimiter = self.delimiter()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
                self.end()
            }
            // `e`, `w`, `W`, `r`, `R`, `#` and whatever a newer sed brings.
            _ => None,
        }
    }

    fn end(&mut self) -> Option<()> {
        self.skip(|c| matches!(c, ' ' | '\t'));
        match self.rest.peek() {
            None | Some(';' | '\n' | '}') => Some(()),
            Some(_) => None,
        }
    }

    fn delimiter(&mut self) -> Option<char> {
        self.rest.next().filter(|c| *c != '\\' && *c != '\n')
    }

    fn until(&mut self, delimiter: char) -> Option<()> {
        // Inside a bracket GNU sed still ends at the delimiter when it stands first; a literal reading is the
        // shorter one, so anything after it is read as flags and refused when unknown.
        loop {
            match self.rest.next()? {
                '\\' => {
                    self.rest.next()?;
                }
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }

    fn substitute(&mut self) -> Option<()> {
        let delimiter = self.delimiter()?;
        // A delimiter inside brackets ends the pattern for some seds and not for others.
        let ahead: String = self.rest.clone().collect();
        if ahead.contains('[') && bracket_holds(&ahead, delimiter) {
            return None;
        }
        self.until(delimiter)?;
        self.until(delimiter)?;
        self.skip(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | 'm' | 'M') || c.is_ascii_digit());
        self.end()
    }

    fn address(&mut self) -> Option<()> {
        loop {
            match self.rest.peek() {
                Some('0'..='9' | '$' | ',' | '~' | '+' | ' ' | '\t') => {
                    self.rest.next();
                }
                Some('/') => {
                    self.rest.next();
                    let ahead: String = self.rest.clone().collect();
                    if ahead.contains('[') && bracket_holds(&ahead, '/') {
                        return None;
                    }
                    self.until('/')?;
                    self.skip(|c| matches!(c, 'I' | 'M'));
                }
                // `\cREGEXc`: any delimiter.
                Some('\\') => return None,
                Some(_) => return Some(()),
                None => return None,
            }
        }
    }
}

/// Whether a bracket expression in the text holds the delimiter.
fn bracket_holds(text: &str, delimiter: char) -> bool {
    let mut inside = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' => {
                escaped = !escaped;
                continue;
            }
            '[' if !escaped => inside = true,
            ']' if !escaped => inside = false,
            c if c == delimiter && inside => return true,
            _ => {}
        }
        escaped = false;
    }
    false
}

/// Judges the arguments of awk.
pub(super) fn awk(args: &[Word], push: &mut impl FnMut(&str, String)) {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if !arg.may_be_option() || text == "-" {
            break;
        }
        at += 1;
        match text {
            "-F" | "-v" | "--field-separator" | "--assign" => at += 1,
            _ if text.starts_with("-F") || text.starts_with("-v") => {}
            "--posix" | "--traditional" | "--re-interval" | "--sandbox" | "-S" | "-P" | "-c" | "-b"
            | "-n" => {}
            _ => push(
                text,
                format!("the awk option `{}` is not understood", arg.shown()),
            ),
        }
    }
    if let Some(program) = args.get(at) {
        let fine = program
            .known()
            .is_some_and(|text| awk_is_plain(text) == Some(true));
        if !fine {
            push(
                &program.text,
                format!("the awk program `{}` may run or write something", program.shown()),
            );
        }
    }
}

/// Whether an awk program only reads and prints. `None` when a literal does not end.
fn awk_is_plain(text: &str) -> Option<bool> {
    let bare = without_literals(text)?;
    let word = |name: &str| {
        bare.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|w| w == name)
    };
    if word("system") || word("getline") || word("close") || word("fflush") || bare.contains(['@', '`', '\\'])
    {
        return Some(false);
    }
    if bare.replace("||", "").contains('|') {
        return Some(false);
    }
    Some(!prints_to_file(&bare))
}

/// `print … > file`: a `>` outside parentheses after `print` in the same statement.
fn prints_to_file(bare: &str) -> bool {
    for statement in bare.split([';', '}', '\n', '{']) {
        let Some(start) = statement.find("print") else {
            continue;
        };
        let mut depth = 0i32;
        for c in statement.get(start..).unwrap_or("").chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '>' if depth <= 0 => return true,
                _ => {}
            }
        }
    }
    false
}

/// Blanks out strings, regular expressions and comments.
fn without_literals(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                skip_literal(&mut chars, '"')?;
                out.push('"');
            }
            '#' => {
                if chars.by_ref().any(|c| c == '\n') {
                    out.push('\n');
                }
            }
            '/' if starts_regex(&out) => {
                skip_literal(&mut chars, '/')?;
                out.push('"');
            }
            other => out.push(other),
        }
    }
    Some(out)
}

fn skip_literal(chars: &mut std::str::Chars<'_>, end: char) -> Option<()> {
    loop {
        match chars.next()? {
            '\\' => {
                chars.next()?;
            }
            '\n' => return None,
            c if c == end => return Some(()),
            // Brackets may hide the end of a regular expression from some awks.
            '[' if end == '/' => {
                let rest: String = chars.clone().take_while(|c| *c != ']').collect();
                if rest.contains('/') {
                    return None;
                }
            }
            _ => {}
        }
    }
}

/// A slash after an operand divides; anywhere else it opens a regular expression.
fn starts_regex(before: &str) -> bool {
    let before = before.trim_end();
    match before.chars().next_back() {
        None => true,
        Some(c) if c.is_alphanumeric() || c == '_' => {
            before.ends_with("in")
                || before.ends_with("print")
                || before.ends_with("return")
                || before.ends_with("&&")
        }
        Some(')' | ']' | '"' | '$' | '+' | '-') => false,
        Some(_) => true,
    }
}
