//! Matching of words against rules. Two readings: an allow rule must match for certain and in order; an ask or deny
//! rule matches whatever the order of options, and also where an unknown word *could* make it match.

use super::rule::{CommandRule, Tail};
use super::tables::{OPTION_TWINS, SYSTEM_DIRS};
use super::word::{Certainty, UNKNOWN, Word};

/// Whether a restriction applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    /// It does not.
    No,
    /// It may, once the shell has expanded the words.
    Maybe,
    /// It does.
    Yes,
}

/// The last step of a path.
pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The name a bare-name allow rule may stand for: plain, or below a system directory.
pub(super) fn system_name(program: &str) -> Option<&str> {
    let Some((dir, name)) = program.rsplit_once('/') else {
        return Some(program);
    };
    SYSTEM_DIRS.contains(&dir).then_some(name)
}

impl CommandRule {
    /// Whether the rule allows this command, for certain.
    pub(super) fn allows(&self, words: &[Word]) -> bool {
        self.begins(words) && (self.tail != Tail::Closed || words.len() == self.words.len() + 1)
    }

    /// Whether the command begins with the rule's words, one by one and for certain. What an ask rule lifts out of a
    /// default that denies is read like this: read as a restriction it would open more than it says.
    pub(super) fn begins(&self, words: &[Word]) -> bool {
        let Some((program, args)) = words.split_first() else {
            return false;
        };
        let Some(program) = program.known() else {
            return false;
        };
        let named = program == self.program
            || (!self.program.contains('/') && system_name(program) == Some(&self.program));
        if !named || args.len() < self.words.len() {
            return false;
        }
        let last = self.words.len().wrapping_sub(1);
        args.iter()
            .zip(&self.words)
            .enumerate()
            .all(|(i, (word, pattern))| {
                let one_word = matches!(word.certainty, Certainty::Fixed | Certainty::Unknown);
                let colon = self.tail == Tail::Colon
                    && i == last
                    && word
                        .known()
                        .and_then(|t| t.strip_prefix(pattern.as_str()))
                        .is_some_and(|t| t.starts_with(':'));
                one_word
                    && (colon
                        || (glob(pattern, &word.text) && !(pattern.contains('*') && climbs(&word.text))))
            })
    }

    /// Whether the rule spells this word out.
    pub(super) fn names(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    /// Whether the rule names this program: as written, or by its bare name wherever it lies. Nearly every rule is
    /// about another one, which its length or the end of its name tells at the least cost.
    #[inline]
    pub(super) fn is_about(&self, program: &str) -> bool {
        match program.strip_suffix(self.program.as_str()) {
            Some("") => true,
            Some(directory) => directory.ends_with('/') && !self.program.contains('/'),
            None => false,
        }
    }

    /// Whether the rule, as an ask or deny rule, applies to this command.
    pub(super) fn restricts(&self, words: &[Word]) -> Match {
        let Some((program, args)) = words.split_first() else {
            return Match::No;
        };
        let Some(program) = program.known() else {
            return Match::No;
        };
        if !self.is_about(program) {
            return Match::No;
        }
        let (options, positionals): (Vec<&String>, Vec<&String>) =
            self.words.iter().partition(|w| w.len() > 1 && w.starts_with('-'));
        let mut outcome = self.positionals_match(&positionals, args);
        for option in options {
            outcome = outcome.min(self.option_present(option, args));
        }
        outcome
    }

    /// The rule's words that are no options, in order. A word right after an option may be that option's value, so
    /// it may be passed over; any other word may not.
    fn positionals_match(&self, wanted: &[&String], args: &[Word]) -> Match {
        let done = 1u64 << wanted.len();
        let (mut sure, mut maybe) = (1u64, 1u64);
        let mut after_option = false;
        let mut only_words = false;
        for arg in args {
            if sure & done != 0 {
                return Match::Yes;
            }
            if arg.certainty == Certainty::Many {
                // Any number of any words.
                maybe |= spread(maybe, done);
                sure = 0;
                continue;
            }
            if arg.text == "--" {
                only_words = true;
                continue;
            }
            if !only_words && arg.text.starts_with('-') && arg.text.len() > 1 {
                after_option = true;
                continue;
            }
            let fixed = arg.certainty == Certainty::Fixed;
            let (mut next_sure, mut next_maybe) = if after_option { (sure, maybe) } else { (0, 0) };
            for (i, pattern) in wanted.iter().enumerate() {
                let bit = 1u64 << i;
                if sure & bit != 0 && fixed && self.step(wanted, i, &arg.text) {
                    next_sure |= bit << 1;
                }
                if maybe & bit != 0 && could_match(pattern, &arg.text) {
                    next_maybe |= bit << 1;
                }
            }
            next_maybe |= maybe & done;
            (sure, maybe) = (next_sure, next_maybe | next_sure);
            after_option = false;
        }
        if sure & done != 0 {
            Match::Yes
        } else if maybe & done != 0 {
            Match::Maybe
        } else {
            Match::No
        }
    }

    /// Whether a word matches one of the rule's plain words; the last one may go on after a colon.
    fn step(&self, wanted: &[&String], at: usize, text: &str) -> bool {
        let Some(pattern) = wanted.get(at) else {
            return false;
        };
        let goes_on = || {
            text.strip_prefix(pattern.as_str())
                .is_some_and(|t| t.starts_with(':'))
        };
        glob(pattern, text) || (self.tail == Tail::Colon && at + 1 == wanted.len() && goes_on())
    }

    fn option_present(&self, option: &str, args: &[Word]) -> Match {
        let mut best = Match::No;
        let letters: Vec<char> = cluster(option).map(|l| l.chars().collect()).unwrap_or_default();
        let mut found = vec![Match::No; letters.len().max(1)];
        for arg in args {
            if arg.may_be_option() && (arg.text.starts_with(UNKNOWN) || arg.text == format!("-{UNKNOWN}")) {
                best = Match::Maybe;
            }
            if arg.text == option || glob(option, &arg.text) {
                return Match::Yes;
            }
            if letters.len() > 1 {
                for (i, letter) in letters.iter().enumerate() {
                    found[i] = found[i].max(self.single_option(&format!("-{letter}"), arg));
                }
            } else {
                found[0] = found[0].max(self.single_option(option, arg));
            }
        }
        best.max(found.into_iter().min().unwrap_or(Match::No))
    }

    /// One option in any of its spellings: in a cluster, abbreviated, with a value, by another name.
    fn single_option(&self, option: &str, arg: &Word) -> Match {
        let twins = OPTION_TWINS
            .iter()
            .filter(|(program, names)| *program == self.program && names.contains(&option))
            .flat_map(|(_, names)| names.iter().copied());
        let mut best = Match::No;
        for name in twins.chain([option]) {
            best = best.max(spelled(name, arg));
        }
        best
    }
}

fn spelled(name: &str, arg: &Word) -> Match {
    let text = arg.text.as_str();
    if text.starts_with('-') && text.contains(UNKNOWN) && name.starts_with('-') {
        let given = text.split('=').next().unwrap_or(text);
        let short = !text.starts_with("--") && cluster(name).is_some();
        return if short || could_match(name, given) {
            Match::Maybe
        } else {
            Match::No
        };
    }
    let hit = if let Some(prefix) = name.strip_suffix('*') {
        text.starts_with(prefix)
    } else if name.starts_with("--") {
        let given = text.split('=').next().unwrap_or(text);
        given == name || (given.len() >= 4 && given.starts_with("--") && name.starts_with(given))
    } else {
        match (cluster(name), text.strip_prefix('-')) {
            (Some(letter), Some(letters)) if !letters.starts_with('-') => letters.contains(letter),
            _ => text == name,
        }
    };
    if hit { Match::Yes } else { Match::No }
}

/// The letters of a short option or a short cluster of them; longer single-dash words are names (`-delete`).
fn cluster(option: &str) -> Option<&str> {
    let letters = option.strip_prefix('-')?;
    (letters.len() <= 3 && !letters.is_empty() && letters.bytes().all(|b| b.is_ascii_alphabetic()))
        .then_some(letters)
}

/// All positions from the lowest set bit up to the end.
fn spread(mask: u64, done: u64) -> u64 {
    let mut out = mask;
    let mut bit = mask & mask.wrapping_neg();
    while bit != 0 && bit < done {
        bit <<= 1;
        out |= bit;
    }
    out
}

/// A path that steps upwards.
pub(super) fn climbs(text: &str) -> bool {
    text.split('/').any(|step| step == "..")
}

/// Whether `*` patterns match a text, where [`UNKNOWN`] is only matched by `*`.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut i, mut j) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while j < t.len() {
        if i < p.len() && p[i] == '*' {
            star = Some((i, j));
            i += 1;
        } else if i < p.len() && p[i] == t[j] {
            i += 1;
            j += 1;
        } else if let Some((si, sj)) = star {
            i = si + 1;
            j = sj + 1;
            star = Some((si, sj + 1));
        } else {
            return false;
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

/// Whether some text in place of [`UNKNOWN`] would make the pattern match.
pub(super) fn could_match(pattern: &str, text: &str) -> bool {
    if !text.contains(UNKNOWN) {
        return glob(pattern, text);
    }
    let p: Vec<char> = pattern.chars().collect();
    // reach[i]: the pattern's first i characters can match the text read so far.
    let mut reach = vec![false; p.len() + 1];
    reach[0] = true;
    close(&p, &mut reach);
    for c in text.chars() {
        let mut next = vec![false; p.len() + 1];
        for i in 0..=p.len() {
            if !reach[i] {
                continue;
            }
            if c == UNKNOWN {
                next[i..].fill(true);
                break;
            }
            if i < p.len() && p[i] == '*' {
                next[i] = true;
            } else if i < p.len() && p[i] == c {
                next[i + 1] = true;
            }
        }
        reach = next;
        close(&p, &mut reach);
    }
    reach[p.len()]
}

fn close(pattern: &[char], reach: &mut [bool]) {
    for i in 0..pattern.len() {
        if reach[i] && pattern[i] == '*' {
            reach[i + 1] = true;
        }
    }
}
