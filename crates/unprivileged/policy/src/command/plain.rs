//! Reads the lines that need no grammar: plain words between blanks. Trusts nothing of the line; whatever has any
//! meaning to the shell, or may have, is left to the grammar.
//!
//! Most lines an agent runs are of this kind, and reading them with the grammar costs ten times as much as judging
//! them. That both readings agree is tested on generated lines and on the corpora.

use super::tables::RESERVED;
use super::walk::{Item, Simple, Times, Walked};
use super::word::Word;

/// First words that the grammar reads in a way of their own.
const DECLARATIONS: &[&str] = &[
    "declare", "export", "local", "readonly", "time", "typeset", "unset", "unsetenv",
];

/// What a line of plain words does, or several with `&&`, `||` and `|` between; `None`: the grammar must read it.
pub(super) fn read(line: &str) -> Option<Walked> {
    let mut walked = Walked::default();
    // Words of the command that is being read, and where it starts and ends.
    let mut words: Vec<Word> = Vec::new();
    let (mut start, mut end, mut at) = (0, 0, 0);
    for token in line.split(' ') {
        let here = at;
        at += token.len() + 1;
        match token {
            "" if here == 0 || at > line.len() => return None,
            "" => {}
            "&&" | "||" | "|" => walked.items.push(command(&mut words, line.get(start..end)?)?),
            word => {
                if !is_ordinary(word) || (words.is_empty() && !is_name(word)) {
                    return None;
                }
                if words.is_empty() {
                    start = here;
                }
                end = here + word.len();
                words.push(Word::fixed(word));
            }
        }
    }
    walked.items.push(command(&mut words, line.get(start..end)?)?);
    Some(walked)
}

/// A command of these words; `None` where there are none, which the shell refuses.
fn command(words: &mut Vec<Word>, part: &str) -> Option<Item> {
    let words = std::mem::take(words);
    (!words.is_empty()).then(|| {
        Item::Command(Simple {
            words,
            part: part.to_owned(),
            times: Times::Once,
        })
    })
}

/// A word that means itself.
fn is_ordinary(word: &str) -> bool {
    word.bytes().all(is_plain) && word.bytes().any(is_telling)
}

/// Bytes that mean themselves wherever they stand in a word: no quote, expansion, pattern, operator, assignment,
/// comment, brace, tilde or history.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b'+' | b'@' | b'%' | b',')
}

/// The grammar expects an assignment where a command may stand, and stumbles over marks there.
fn is_name(word: &str) -> bool {
    !RESERVED.contains(&word)
        && !DECLARATIONS.contains(&word)
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '/'))
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
}

/// A word of marks alone (`-`, `--`, `..`) may be a token of its own to the grammar.
fn is_telling(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandOutcome, CommandRule, CommandRules, reading, walk};
    use proptest::prelude::*;

    /// Both readings of a line that the plain one takes.
    fn both(line: &str) -> Option<(String, String)> {
        let plain = read(line)?;
        let tree = reading::read(line).map(|tree| format!("{:?}", walk::walk(tree.root_node(), line)));
        Some((format!("{plain:?}"), tree.unwrap_or_else(|why| why.0)))
    }

    fn rules() -> CommandRules {
        let restrictions = |list: &[&str]| {
            list.iter()
                .map(|rule| CommandRule::parse_restriction(rule).unwrap())
                .collect()
        };
        CommandRules {
            allow: ["ls *", "git status *", "cargo test *", "find *"]
                .map(|rule| CommandRule::parse(rule).unwrap())
                .to_vec(),
            ask: restrictions(&["git push *"]),
            deny: restrictions(&["sudo", "rm -rf *"]),
        }
    }

    #[test]
    fn a_line_with_any_meaning_to_the_shell_is_left_to_the_grammar() {
        for odd in [
            "",
            " ",
            " ls",
            "ls ",
            "a=b",
            "ls a=b",
            "ls *",
            "ls ?",
            "ls [a]",
            "ls ~",
            "ls #x",
            "a;b",
            "a&b",
            "a|b",
            "a>b",
            "a<b",
            "(a)",
            "`a`",
            "$a",
            "\"a\"",
            "'a'",
            "a\\b",
            "{a,b}",
            "!a",
            "a^b",
            "a\nb",
            "a\tb",
            "é",
            "if a",
            "export A",
            "time ls",
            "ls -",
            "ls --",
            "ls ..",
            "ls .",
            "a\0b",
            "function f",
            "coproc a",
            "local x",
        ] {
            assert!(read(odd).is_none(), "{odd:?}");
        }
        assert!(read("cargo test --workspace && git commit -m done | tee out.txt").is_some());
        assert!(read("cargo test --workspace -p a-b_c ./x/y.rs user@h:p 10% +x a,b").is_some());
    }

    #[test]
    fn both_readings_of_every_line_of_the_corpora_agree() {
        let mut taken = 0;
        for file in ["evasions.txt", "harmless.txt"] {
            let path = format!("{}/tests/data/commands/{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).unwrap();
            // Lines, and every piece of them that may be a line by itself.
            let pieces = text.lines().flat_map(|line| {
                let parts = line.split([';', '|', '&', '"', '\'', '(', ')', '=', '\t']);
                std::iter::once(line).chain(parts.map(str::trim))
            });
            for piece in pieces {
                if let Some((plain, grammar)) = both(piece) {
                    assert_eq!(plain, grammar, "{piece:?}");
                    taken += 1;
                }
            }
        }
        assert!(taken > 100, "{taken}: the corpora have plain lines");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn both_readings_of_a_plain_line_agree(line in "([-a-z0-9_./:+@%, ]{1,12}( && | \\| | \\|\\| )?){1,4}") {
            if let Some((plain, grammar)) = both(&line) {
                prop_assert_eq!(plain, grammar);
            }
        }

        #[test]
        fn both_readings_of_words_that_shells_know_agree(words in prop::collection::vec(prop::sample::select(vec![
            "ls", "git", "push", "sudo", "env", "xargs", "sh", "-c", "eval", "test", "-f", "-eq", "10", "2", "0x1f", "read", "x", "cd", "/tmp",
            "true", "echo", "-n", "a.b", "+x", "@", "%", "user@host:path", "let", "set", "alias", "trap", "exec", "return", "shift",
            "let", "printf", "mapfile", "1a", "a1", "a:", ":", "./a", "../b", "a/../b", "--flag", "-rf", "_", "__", "9.9", "then", "esac", "done", "in", "do", "fi", "function", "if", "for", "case", "select", "export", "unset", "time", "local", "&&", "&&", "||", "|", "|",
        ]), 1..9)) {
            let line = words.join(" ");
            if let Some((plain, grammar)) = both(&line) {
                prop_assert_eq!(plain, grammar);
            }
            for default in [CommandOutcome::Allow, CommandOutcome::Deny] {
                // A trailing blank sends the same line through the grammar.
                let (fast, slow) = (crate::command::judge(&line, &rules(), default), crate::command::judge(&format!("{line} "), &rules(), default));
                prop_assert_eq!((fast.outcome, fast.rule), (slow.outcome, slow.rule), "{}", line);
            }
        }
    }
}
