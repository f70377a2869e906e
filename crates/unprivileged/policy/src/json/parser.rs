//! The parser: recursive, at most [`MAX_DEPTH`] deep, duplicates refused where they stand.
use super::{Diagnostic, Member, Node, Source, Span, Value};
use bastle_contract::Code;

/// Deepest nesting; the format itself needs five.
const MAX_DEPTH: usize = 32;

/// Reads one value that must fill the whole text.
pub(crate) fn read(source: &Source<'_>) -> Result<Node, Diagnostic> {
    let mut parser = Parser {
        source,
        bytes: source.text.as_bytes(),
        at: 0,
    };
    parser.blank()?;
    let node = parser.value(0)?;
    parser.blank()?;
    if parser.at < parser.bytes.len() {
        return Err(parser.fault("unexpected text after the document"));
    }
    Ok(node)
}

struct Parser<'s> {
    source: &'s Source<'s>,
    bytes: &'s [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// A message about the character at hand.
    fn fault(&self, message: impl Into<String>) -> Diagnostic {
        let rest = self.source.text.get(self.at..).unwrap_or_default();
        let width = rest.chars().next().map_or(0, char::len_utf8);
        self.fault_at(self.at, self.at + width, message)
    }

    fn fault_at(&self, start: usize, end: usize, message: impl Into<String>) -> Diagnostic {
        self.source
            .diagnostic(Code::PolicySyntax, Span { start, end }, message)
    }

    /// Skips white space and comments.
    fn blank(&mut self) -> Result<(), Diagnostic> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'/') => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Result<(), Diagnostic> {
        let start = self.at;
        match self.bytes.get(self.at + 1) {
            Some(b'/') => {
                while self.peek().is_some_and(|b| b != b'\n') {
                    self.at += 1;
                }
                Ok(())
            }
            Some(b'*') => {
                let body = &self.bytes[start + 2..];
                match body.windows(2).position(|pair| pair == b"*/") {
                    Some(length) => {
                        self.at = start + 2 + length + 2;
                        Ok(())
                    }
                    None => Err(self.fault_at(start, start + 2, "this comment does not end")),
                }
            }
            _ => Err(self.fault("expected a value, found '/'")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Diagnostic> {
        if depth > MAX_DEPTH {
            return Err(self.fault(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(_) => return Err(self.fault("expected a value")),
            None => return Err(self.fault("expected a value, found the end of the file")),
        };
        Ok(Node {
            span: Span { start, end: self.at },
            value,
        })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Diagnostic> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.fault("expected a value"))
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Diagnostic> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blank()?;
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.blank()?;
            if !self.eat(b',') && self.peek() != Some(b']') {
                return Err(self.fault("expected ',' or ']' in this list"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Diagnostic> {
        self.at += 1;
        let mut members: Vec<Member> = Vec::new();
        // A set beside the list: a search per key would be quadratic in an untrusted file.
        let mut seen = std::collections::HashMap::new();
        loop {
            self.blank()?;
            if self.eat(b'}') {
                return Ok(Value::Object(members));
            }
            if self.peek() != Some(b'"') {
                return Err(self.fault("expected a key in double quotes or '}'"));
            }
            let start = self.at;
            let key = self.string()?;
            let key_span = Span { start, end: self.at };
            if let Some(first) = seen.insert(key.clone(), start) {
                let (line, column) = self.source.place(first);
                let message = format!("key {key:?} is given twice (first at {line}:{column})");
                return Err(self.fault_at(start, self.at, message));
            }
            self.blank()?;
            if !self.eat(b':') {
                return Err(self.fault("expected ':' after the key"));
            }
            self.blank()?;
            let value = self.value(depth + 1)?;
            members.push(Member { key, key_span, value });
            self.blank()?;
            if !self.eat(b',') && self.peek() != Some(b'}') {
                return Err(self.fault("expected ',' or '}' in this object"));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, Diagnostic> {
        let start = self.at;
        self.eat(b'-');
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut well_formed = whole == 1 || (whole > 1 && !leading_zero);
        if self.eat(b'.') {
            well_formed &= self.digits() > 0;
        }
        if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            well_formed &= self.digits() > 0;
        }
        let text = self.source.text.get(start..self.at).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(number) if well_formed && number.is_finite() => Ok(Value::Number(number)),
            Ok(_) | Err(_) => Err(self.fault_at(start, self.at, "not a finite JSON number")),
        }
    }

    fn string(&mut self) -> Result<String, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.at;
            while self.peek().is_some_and(|b| b != b'"' && b != b'\\' && b >= 0x20) {
                self.at += 1;
            }
            text.push_str(self.source.text.get(plain..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.fault("a control character must be escaped in a string")),
                None => return Err(self.fault_at(start, start + 1, "this string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let letter = self.peek();
        self.at += 1;
        match letter {
            Some(b'"') => Ok('"'),
            Some(b'\\') => Ok('\\'),
            Some(b'/') => Ok('/'),
            Some(b'b') => Ok('\u{8}'),
            Some(b'f') => Ok('\u{c}'),
            Some(b'n') => Ok('\n'),
            Some(b'r') => Ok('\r'),
            Some(b't') => Ok('\t'),
            Some(b'u') => self.unicode(start),
            _ => Err(self.fault_at(start, start + 1, "unknown escape in a string")),
        }
    }

    fn unicode(&mut self, start: usize) -> Result<char, Diagnostic> {
        let first = self.four_digits(start)?;
        let scalar = match first {
            0xD800..=0xDBFF => {
                let low = if self.eat(b'\\') && self.eat(b'u') {
                    self.four_digits(start)?
                } else {
                    0
                };
                if !(0xDC00..=0xDFFF).contains(&low) {
                    return Err(self.fault_at(start, start + 6, "a surrogate without its partner"));
                }
                0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00)
            }
            other => other,
        };
        char::from_u32(scalar)
            .ok_or_else(|| self.fault_at(start, start + 6, "a surrogate without its partner"))
    }

    fn four_digits(&mut self, start: usize) -> Result<u32, Diagnostic> {
        let digits = self.source.text.get(self.at..self.at + 4).unwrap_or_default();
        let value = u32::from_str_radix(digits, 16);
        match value {
            Ok(value) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                self.at += 4;
                Ok(value)
            }
            Ok(_) | Err(_) => Err(self.fault_at(start, start + 2, "\\u needs four hexadecimal digits")),
        }
    }
}
