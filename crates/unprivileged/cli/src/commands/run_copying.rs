//! How far the copy of a project is, for whoever waits for it: a line that moves on a terminal, one line elsewhere.
use super::run_voice::Loudness;
use crate::render::{Style, bytes};
use bastle_control::workspaces::Progress;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A copy that is done sooner is not worth a word.
const QUIET: Duration = Duration::from_millis(300);
/// Positions of the moving mark.
const WIDTH: usize = 20;

/// What is shown.
pub(super) struct Copying {
    style: Style,
    quiet: bool,
    terminal: bool,
    begun: Instant,
    shown: usize,
}

impl Copying {
    pub(super) fn new(style: Style, loudness: Loudness) -> Self {
        Self {
            style,
            quiet: loudness == Loudness::Quiet,
            terminal: std::io::stderr().is_terminal(),
            begun: Instant::now(),
            shown: 0,
        }
    }

    /// How far it is. How much there is to copy is not known: the mark moves, the numbers grow.
    pub(super) fn show(&mut self, progress: Progress) {
        if self.quiet || self.begun.elapsed() < QUIET || (self.shown > 0 && !self.terminal) {
            return;
        }
        let text = if self.terminal {
            let (full, empty) = (self.style.pick("━", "="), self.style.pick("─", "-"));
            let at = self.shown % WIDTH;
            let bar: String = (0..WIDTH)
                .map(|place| {
                    if (place + WIDTH - at) % WIDTH < 4 {
                        full
                    } else {
                        empty
                    }
                })
                .collect();
            format!(
                "\r\x1b[K{bar} copying the workspace: {} files, {}",
                progress.files,
                bytes(progress.bytes)
            )
        } else {
            "copying the workspace ...\n".to_owned()
        };
        self.shown += 1;
        // Nobody may be reading: a run does not end for that.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
    }

    /// Nothing of it stays on the screen.
    pub(super) fn end(&self) {
        if self.shown > 0 && self.terminal {
            drop(std::io::stderr().lock().write_all(b"\r\x1b[K"));
        }
    }
}
