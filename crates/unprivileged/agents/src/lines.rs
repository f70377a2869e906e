//! Lines from bytes as they come. One that is too long is dropped, and said to be.
use crate::driver::Said;
use crate::reading;
use serde_json::Value;

/// Longest line that is read: a tool's whole output can be in one.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

/// A line, or the length of one that was dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Whole, without its end.
    Whole(Vec<u8>),
    /// Longer than any is.
    Dropped(usize),
}

/// Puts lines together. Holds at most one.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
    /// Bytes of a line that is being dropped.
    dropping: Option<usize>,
}

impl Lines {
    /// The JSON objects that became whole with these bytes, and what stands in place of a line that is none.
    pub(crate) fn messages(&mut self, bytes: &[u8]) -> Vec<Result<Value, Said>> {
        let blank =
            |line: &Line| matches!(line, Line::Whole(text) if text.iter().all(u8::is_ascii_whitespace));
        let lines = self.take(bytes).into_iter().filter(|line| !blank(line));
        lines
            .map(|line| match line {
                Line::Dropped(length) => Err(reading::dropped(length)),
                Line::Whole(line) => match serde_json::from_slice::<Value>(&line) {
                    Ok(value) if value.is_object() => Ok(value),
                    Ok(_) | Err(_) => Err(reading::noise(&line)),
                },
            })
            .collect()
    }

    /// The lines that became whole with these bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            if let Some(dropped) = &mut self.dropping {
                *dropped += text.len();
            } else if self.held.len() + text.len() > MAX_LINE {
                self.dropping = Some(self.held.len() + text.len());
                self.held = Vec::new();
            } else {
                self.held.extend_from_slice(text);
            }
            if ends {
                lines.push(match self.dropping.take() {
                    Some(length) => Line::Dropped(length),
                    None => Line::Whole(std::mem::take(&mut self.held)),
                });
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_is_dropped_without_being_held_and_the_next_is_read() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1024 * 1024];
        for _ in 0..5 {
            assert_eq!(lines.take(&chunk), []);
            assert!(lines.held.len() <= MAX_LINE);
        }
        let rest = lines.take(b"\nnext\n");
        assert_eq!(
            rest,
            [Line::Dropped(5 * 1024 * 1024), Line::Whole(b"next".to_vec())]
        );
    }
}
