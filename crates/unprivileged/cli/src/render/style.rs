//! Colour and letters of a stream: a handful of ANSI codes, and ASCII where UTF-8 is not to be had.
use crate::args::ColorWhen;
use std::io::IsTerminal;

/// How a stream is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: Colour,
    letters: Letters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    On,
    Off,
}

/// Which letters a stream can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    /// Any.
    Unicode,
    /// ASCII only.
    Ascii,
}

/// What a text means; colour is never the only sign of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// As it is.
    Plain,
    /// A heading.
    Bold,
    /// Of lesser weight.
    Dim,
    /// Denied or failed.
    Bad,
    /// Needs a person.
    Warn,
    /// Held, verified.
    Good,
    /// A name or a command.
    Accent,
}

/// What the stream and the environment say about colour and letters.
struct Surroundings {
    terminal: bool,
    no_color: bool,
    force: bool,
    dumb: bool,
    utf8: bool,
}

impl Style {
    /// Without colour and in ASCII.
    pub(crate) const PLAIN: Self = Self {
        colour: Colour::Off,
        letters: Letters::Unicode,
    };

    /// `--color` first, then NO_COLOR, CLICOLOR_FORCE, TERM and whether it is a terminal.
    pub(crate) fn choose(color: ColorWhen, stream: &impl IsTerminal) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let forced =
            std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
        let surroundings = Surroundings {
            terminal: stream.is_terminal(),
            no_color: set("NO_COLOR"),
            force: forced,
            dumb: std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
            utf8: utf8(),
        };
        Self::chosen(color, &surroundings)
    }

    fn chosen(color: ColorWhen, surroundings: &Surroundings) -> Self {
        let on = match color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto if surroundings.no_color => false,
            ColorWhen::Auto if surroundings.force => true,
            ColorWhen::Auto => surroundings.terminal && !surroundings.dumb,
        };
        Self {
            colour: if on { Colour::On } else { Colour::Off },
            letters: if surroundings.utf8 && !surroundings.dumb {
                Letters::Unicode
            } else {
                Letters::Ascii
            },
        }
    }

    /// Whether it has colour, and so a person for a reader even where the stream is a pipe.
    pub(crate) fn paints(self) -> bool {
        self.colour == Colour::On
    }

    /// Which letters it can show.
    pub(crate) fn letters(self) -> Letters {
        self.letters
    }

    /// The text with its colour.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Plain => return text.to_owned(),
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Bad => "1;31",
            Paint::Warn => "1;33",
            Paint::Good => "32",
            Paint::Accent => "36",
        };
        match self.colour {
            Colour::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Colour::Off => text.to_owned(),
        }
    }

    /// The mark of something that held.
    pub(crate) fn tick(self) -> String {
        self.paint(Paint::Good, self.pick("✓", "ok"))
    }

    /// The mark of something denied or broken.
    pub(crate) fn cross(self) -> String {
        self.paint(Paint::Bad, self.pick("✗", "x"))
    }

    /// The mark of something that asks.
    pub(crate) fn query(self) -> String {
        self.paint(Paint::Warn, "?")
    }

    /// A separator between facts.
    pub(crate) fn dot(self) -> &'static str {
        self.pick("·", "-")
    }

    /// The Unicode text, or its stand-in where only ASCII can be shown.
    pub(crate) fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        match self.letters {
            Letters::Unicode => unicode,
            Letters::Ascii => ascii,
        }
    }
}

/// Whether the locale speaks UTF-8. Nothing set at all is taken as UTF-8: pipes and services of today.
fn utf8() -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let Some(value) = value else { return true };
    let value = value.to_string_lossy().to_ascii_lowercase();
    value.contains("utf-8") || value.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `signs` names what holds: `terminal`, `no-color`, `force`, `dumb`.
    fn coloured(color: ColorWhen, signs: &str) -> bool {
        let has = |sign| signs.split(' ').any(|word| word == sign);
        let surroundings = Surroundings {
            terminal: has("terminal"),
            no_color: has("no-color"),
            force: has("force"),
            dumb: has("dumb"),
            utf8: true,
        };
        Style::chosen(color, &surroundings).colour == Colour::On
    }

    #[test]
    fn the_flag_beats_the_environment_and_the_environment_beats_the_terminal() {
        for signs in ["terminal", "force", "terminal force"] {
            assert!(coloured(ColorWhen::Auto, signs), "{signs}");
            assert!(!coloured(ColorWhen::Never, signs), "{signs}");
        }
        for signs in [
            "",
            "terminal no-color",
            "terminal no-color force",
            "terminal dumb",
        ] {
            assert!(!coloured(ColorWhen::Auto, signs), "{signs}");
            assert!(coloured(ColorWhen::Always, signs), "{signs}");
        }
    }
}
