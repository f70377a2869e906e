//! The terminal while the fleet view is on it: raw, on its second screen, and given back whatever happens.
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, Write};

use super::screen::Size;

/// Second screen, hidden cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Visible cursor, first screen.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// A terminal that is drawn on.
pub(super) struct Terminal {
    before: Termios,
}

/// What a person pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Letter(char),
}

/// Whether there is a terminal to draw on and one to read keys from.
pub(super) fn is_there() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

impl Terminal {
    /// Takes the terminal. It is given back when this is dropped, and before a panic is told.
    pub(super) fn take() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let saved = before.clone();
        let told = std::panic::take_hook();
        // A build that aborts on panic drops nothing: the hook is the last who can.
        std::panic::set_hook(Box::new(move |info| {
            give_back(&saved);
            told(info);
        }));
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        let terminal = Self { before };
        put(ENTER)?;
        Ok(terminal)
    }

    /// How large it is.
    pub(super) fn size() -> Size {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Size {
                rows: usize::from(size.ws_row),
                cols: usize::from(size.ws_col),
            },
            Ok(_) | Err(_) => Size { rows: 24, cols: 80 },
        }
    }

    /// Draws a picture over the last one.
    pub(super) fn draw(&self, lines: &[String]) -> std::io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            // What the last picture had further right.
            text.push_str("\x1b[0m\x1b[K");
        }
        text.push_str("\x1b[J");
        put(&text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back(&self.before);
    }
}

fn give_back(before: &Termios) {
    // Nobody is left to be told that the terminal is gone.
    drop(put(LEAVE));
    match tcsetattr(std::io::stdin(), OptionalActions::Flush, before) {
        Ok(()) | Err(_) => {}
    }
}

fn put(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Keys in bytes as a terminal sends them. A sequence that nobody knows is passed over whole.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        match (first, rest) {
            (0x1b, [b'[' | b'O', tail @ ..]) => {
                let end = tail.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let (sequence, after) = tail.split_at(end.map_or(tail.len(), |end| end + 1));
                bytes = after;
                match sequence {
                    b"A" => keys.push(Key::Up),
                    b"B" => keys.push(Key::Down),
                    b"5~" => keys.push(Key::PageUp),
                    b"6~" => keys.push(Key::PageDown),
                    _ => {}
                }
            }
            (0x1b, _) => keys.push(Key::Escape),
            (b'\r' | b'\n', _) => keys.push(Key::Enter),
            // ^C: raw mode makes no signal of it.
            (0x03, _) => keys.push(Key::Letter('q')),
            (byte, _) if byte.is_ascii_graphic() => keys.push(Key::Letter(char::from(*byte))),
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_keys_and_unknown_sequences_are_not_letters() {
        assert_eq!(
            keys(b"\x1b[Aj\x1bOB\r\x1b[5~\x1b[1;5Dq"),
            [
                Key::Up,
                Key::Letter('j'),
                Key::Down,
                Key::Enter,
                Key::PageUp,
                Key::Letter('q')
            ]
        );
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x03"), [Key::Letter('q')]);
        assert!(keys(b"\x1b[200~").is_empty() && keys(b"\x1b[1;").is_empty());
        assert!(keys("é\u{0}".as_bytes()).is_empty());
    }
}
