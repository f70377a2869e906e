//! What the line itself assigns to variables: enough to tell that a loop variable is no option.

use super::walk::{Assign, Item};
use super::word::{Certainty, Lead, UNKNOWN, Word};
use std::collections::BTreeMap;

/// Variables the shell sets, whose values are no options.
const PLAIN: &[&str] = &[
    "HOME", "PWD", "OLDPWD", "TMPDIR", "USER", "HOSTNAME", "RANDOM", "SECONDS", "LINENO", "?",
];

/// Values by variable.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(BTreeMap<String, Lead>);

impl Values {
    /// Takes in the assignments of a line.
    pub(super) fn learn(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Assign(Assign { name, values, part }) => {
                    let plain = !part.contains("+=") && values.iter().all(starts_plainly);
                    self.note(name, if plain { Lead::NotAnOption } else { Lead::Open });
                }
                // `read x`, `printf -v x`, `mapfile x`: any value.
                Item::Command(simple) => {
                    let name = simple.words.first().and_then(Word::known).unwrap_or("");
                    if matches!(
                        name,
                        "read" | "printf" | "mapfile" | "readarray" | "getopts" | "let" | "declare" | "eval"
                    ) {
                        for word in &simple.words {
                            self.note(&word.text, Lead::Open);
                        }
                    }
                }
                Item::Redirect(_) | Item::Function { .. } | Item::Unclear { .. } => {}
            }
        }
    }

    fn note(&mut self, name: &str, lead: Lead) {
        let known = self.0.entry(name.to_owned()).or_insert(lead);
        if lead == Lead::Open {
            *known = Lead::Open;
        }
    }

    /// Marks words that are one variable with plain values.
    pub(super) fn mark(&self, words: &mut [Word]) {
        for word in words {
            if let Some(name) = &word.variable {
                let assigned = self.0.get(name).copied();
                let plain = assigned == Some(Lead::NotAnOption)
                    || (assigned.is_none() && PLAIN.contains(&name.as_str()));
                if plain {
                    word.lead = Lead::NotAnOption;
                }
            }
        }
    }
}

fn starts_plainly(word: &Word) -> bool {
    let text = word.text.as_str();
    match word.certainty {
        // Field splitting makes words of every blank: all of them must be plain.
        Certainty::Fixed => text.split_whitespace().all(|w| !w.starts_with('-')),
        Certainty::Glob => !text.starts_with('-'),
        Certainty::Unknown | Certainty::Many => {
            !text.starts_with('-') && !text.starts_with(UNKNOWN) && !text.contains(' ')
        }
    }
}
