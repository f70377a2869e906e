//! Arguments that make an allowed program start another one, load code or write elsewhere. An allow rule that spells
//! the argument out lifts the refusal; a wildcard does not.

use super::matching::base;
use super::options::{has_short, is_long};
use super::redirect::{Place, write_danger};
use super::word::{Certainty, UNKNOWN, Word};
use super::{environment, sed_awk};
use std::sync::OnceLock;

/// A dangerous argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Danger {
    /// The word an allow rule would have to name.
    pub(super) word: String,
    /// What it does.
    pub(super) reason: String,
}

/// Options of some programs that are dangerous: one line of the table.
struct Guard {
    programs: Vec<&'static str>,
    subs: &'static str,
    longs: &'static str,
    shorts: &'static str,
    words: &'static str,
    why: &'static str,
}

/// Options whose value is a place: fine when it is a plain name below the workspace.
struct PlaceOption {
    purpose: Purpose,
    programs: &'static [&'static str],
    longs: &'static [&'static str],
    shorts: &'static str,
}

/// What the place is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Code is read from there: scratch directories do not count as the workspace.
    Code,
    /// Output goes there.
    Output,
}

const RUNS: &str = "it starts another program";

/// See the head of the file for the format. Read once per process.
const GUARDS: &str = include_str!("guards.txt");

const PLACES: &[PlaceOption] = &[
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["git"],
        longs: &[],
        shorts: "C",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["make", "gmake", "ninja", "just"],
        longs: &["directory", "file", "makefile", "working-directory"],
        shorts: "Cf",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["cargo"],
        longs: &["manifest-path", "lockfile-path", "target-dir", "artifact-dir"],
        shorts: "C",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["npm", "pnpm", "yarn", "bun", "cnpm"],
        longs: &["prefix", "dir", "cwd", "modules-folder", "cache"],
        shorts: "C",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["go"],
        longs: &[],
        shorts: "C",
    },
    PlaceOption {
        purpose: Purpose::Output,
        programs: &["sort", "gsort"],
        longs: &["output"],
        shorts: "o",
    },
    PlaceOption {
        purpose: Purpose::Output,
        programs: &["curl"],
        longs: &["output"],
        shorts: "o",
    },
    PlaceOption {
        purpose: Purpose::Output,
        programs: &["wget"],
        longs: &["output-document", "output-file"],
        shorts: "Oo",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &["pytest", "py.test"],
        longs: &["rootdir", "basetemp", "junitxml"],
        shorts: "",
    },
    PlaceOption {
        purpose: Purpose::Code,
        programs: &[
            "tsc", "eslint", "prettier", "jest", "vitest", "webpack", "vite", "mocha",
        ],
        longs: &["project", "config", "outDir", "outFile", "output-file"],
        shorts: "",
    },
];

/// Programs that write to their plain arguments.
const WRITERS: &[&str] = &["tee", "sponge"];

/// Lists the dangerous arguments of a command.
pub(super) fn dangers(words: &[Word], place: &Place) -> Vec<Danger> {
    let Some((name, args)) = words.split_first().and_then(|(p, a)| Some((base(p.known()?), a))) else {
        return Vec::new();
    };
    // What `npx` starts has dangers of its own.
    if matches!(name, "npx" | "bunx" | "pnpx") {
        return dangers(args, place);
    }
    let mut found = Vec::new();
    let mut guarded = false;
    for guard in guards(name) {
        guarded = true;
        let subs = || guard.subs.split(' ').filter(|s| !s.is_empty());
        if subs().next().is_none() || args.iter().any(|a| subs().any(|s| s == a.text)) {
            guard_args(guard, args, &mut found);
        }
    }
    for option in PLACES.iter().filter(|p| p.programs.contains(&name)) {
        guarded = true;
        place_args(option, args, place, &mut found);
    }
    guarded |= special(name, args, place, &mut found);
    if guarded {
        computed_args(name, args, &mut found);
    }
    found
}

/// The lines of the table for one program.
fn guards(name: &str) -> impl Iterator<Item = &'static Guard> {
    static TABLE: OnceLock<Vec<Guard>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let lines = GUARDS.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(guard).collect()
    });
    table.iter().filter(move |guard| guard.programs.contains(&name))
}

fn guard(line: &'static str) -> Option<Guard> {
    let mut fields = line.split('|').map(str::trim);
    Some(Guard {
        programs: fields.next()?.split(' ').collect(),
        subs: fields.next()?,
        longs: fields.next()?,
        shorts: fields.next()?,
        words: fields.next()?,
        why: fields.next()?,
    })
}

fn guard_args(guard: &Guard, args: &[Word], found: &mut Vec<Danger>) {
    // A word right after an option may be its value or the sub-command.
    let mut position = Position::First;
    let mut after_option = false;
    for arg in args {
        let text = arg.text.as_str();
        let option = text.starts_with('-');
        let hit = guard.longs.split(' ').any(|l| is_long(text, l))
            || has_short(text, guard.shorts).is_some()
            || guard.words.split(' ').any(|w| guard_word(w, text, position));
        if hit {
            let reason = format!("`{}`: {}", arg.shown(), guard.why);
            found.push(Danger {
                word: text.to_owned(),
                reason,
            });
        }
        if !option && !after_option {
            position = Position::Later;
        }
        after_option = option;
    }
}

/// Whether a word may be the sub-command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    First,
    Later,
}

fn guard_word(wanted: &str, text: &str, position: Position) -> bool {
    match (wanted.strip_prefix('^'), wanted.strip_suffix('*')) {
        (Some(sub), _) => position == Position::First && text == sub,
        (None, Some(prefix)) => text.starts_with(prefix),
        (None, None) => !wanted.is_empty() && text == wanted,
    }
}

fn place_args(option: &PlaceOption, args: &[Word], place: &Place, found: &mut Vec<Danger>) {
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text.as_str();
        let glued = text.split_once('=').map(|(_, v)| v);
        let value = if option.longs.iter().any(|l| is_long(text, l)) {
            glued
                .map(|v| as_word(v, arg))
                .or_else(|| args.get(at + 1).cloned())
        } else if let Some(letter) = has_short(text, option.shorts) {
            let rest = text.split_once(letter).map_or("", |(_, r)| r);
            if rest.is_empty() {
                args.get(at + 1).cloned()
            } else {
                Some(as_word(rest, arg))
            }
        } else {
            continue;
        };
        let outside = value.is_none_or(|v| {
            let absolute = option.purpose == Purpose::Code && v.text.starts_with('/');
            v.text != "-" && (absolute || write_danger(&v, place).is_some())
        });
        if outside {
            found.push(Danger {
                word: text.to_owned(),
                reason: format!("`{}` leads out of the workspace", arg.shown()),
            });
        }
    }
}

fn as_word(text: &str, of: &Word) -> Word {
    if of.known().is_some() {
        Word::fixed(text)
    } else {
        Word::unknown(text.to_owned())
    }
}

/// Programs with a language of their own. Returns whether the program is one of them.
fn special(name: &str, args: &[Word], place: &Place, found: &mut Vec<Danger>) -> bool {
    let mut push = |word: &str, reason: String| {
        found.push(Danger {
            word: word.to_owned(),
            reason,
        })
    };
    match name {
        "sed" | "gsed" => sed_awk::sed(args, place, &mut push),
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => sed_awk::awk(args, &mut push),
        "git" => git(args, &mut push),
        "tar" | "gtar" | "bsdtar" => {
            // The old form: the first word is a cluster without its dash.
            if let Some(first) = args
                .first()
                .filter(|a| !a.text.starts_with('-') && a.text.contains(['I', 'F', 'P']))
            {
                push(&first.text, format!("`{}`: {RUNS}", first.shown()));
            }
        }
        "make" | "gmake" => {
            for arg in args {
                if let Some((variable, value)) = arg.text.split_once('=') {
                    let variable = variable.trim_end_matches([':', '+', '?', '!']);
                    let shell =
                        variable.starts_with('.') || variable.contains(UNKNOWN) || value.contains("$(");
                    if shell || environment::danger(variable, &[as_word(value, arg)]).is_some() {
                        push(&arg.text, format!("`{}` changes what make runs", arg.shown()));
                    }
                }
            }
        }
        "uniq" | "xxd" => {
            let plain: Vec<&Word> = args.iter().filter(|a| !a.may_be_option()).collect();
            if let Some(output) = plain.get(1)
                && let Some(reason) = write_danger(output, place)
            {
                push(&output.text, reason);
            }
        }
        "dd" => {
            for arg in args.iter().filter(|a| a.text.starts_with("of=")) {
                if let Some(reason) = write_danger(&as_word(&arg.text[3..], arg), place) {
                    push(&arg.text, reason);
                }
            }
        }
        _ if WRITERS.contains(&name) => {
            for arg in args.iter().filter(|a| !a.text.starts_with('-')) {
                if let Some(reason) = write_danger(arg, place) {
                    push(&arg.text, reason);
                }
            }
        }
        _ => return false,
    }
    true
}

/// Options of git before its sub-command, and settings.
fn git(args: &[Word], push: &mut impl FnMut(&str, String)) {
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|a| a.text.starts_with('-')) {
        at += 1;
        match arg.text.as_str() {
            "-C" => at += 1,
            "-P"
            | "--no-pager"
            | "--no-optional-locks"
            | "--no-replace-objects"
            | "--literal-pathspecs"
            | "--version"
            | "--help"
            | "-v"
            | "-h" => {}
            text => push(
                text,
                format!(
                    "`git {}` comes before the sub-command and may name programs",
                    arg.shown()
                ),
            ),
        }
    }
    let rest = args.get(at..).unwrap_or(&[]);
    if rest.first().is_some_and(|w| w.text == "config") {
        let reads = [
            "--get",
            "--get-all",
            "--list",
            "-l",
            "get",
            "list",
            "--get-regexp",
            "--show-origin",
        ];
        let asks = rest.get(1).is_some_and(|w| reads.contains(&w.text.as_str()));
        let identity = rest
            .iter()
            .any(|w| w.text == "user.name" || w.text == "user.email");
        let key = rest.iter().skip(1).find(|w| !w.text.starts_with('-'));
        if !asks && !identity {
            push(
                key.map_or("", |k| k.text.as_str()),
                "`git config` sets programs that git starts".into(),
            );
        }
    }
}

/// The command without options of git that change nothing a rule speaks of, so that `git status *` also covers
/// `git --no-pager status` and, below the workspace, `git -C sub status`.
pub(super) fn plain_form(words: &[Word], place: &Place) -> Vec<Word> {
    let mut out = words.to_vec();
    if words.first().and_then(Word::known).map(base) != Some("git") {
        return out;
    }
    while let Some(option) = out.get(1).and_then(Word::known) {
        match option {
            "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" => {
                out.remove(1);
            }
            "-C" if out
                .get(2)
                .is_some_and(|d| !d.text.starts_with('/') && write_danger(d, place).is_none()) =>
            {
                out.drain(1..3);
            }
            _ => break,
        }
    }
    out
}

/// Options whose next word is their value, whatever it says.
const VALUED: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "-m",
            "--message",
            "-n",
            "--author",
            "--grep",
            "--since",
            "--until",
            "--format",
            "-S",
            "-G",
        ],
    ),
    (
        "find",
        &[
            "-name",
            "-iname",
            "-path",
            "-ipath",
            "-type",
            "-maxdepth",
            "-mindepth",
            "-newer",
            "-size",
            "-mtime",
            "-user",
        ],
    ),
    ("rg", &["-e", "-g", "-t", "-T", "-A", "-B", "-C", "-m"]),
    ("make", &["-j"]),
    ("sort", &["-k", "-t"]),
    ("awk", &["-v", "-F"]),
    ("pytest", &["-k", "-m", "-n"]),
    ("npm", &["-w", "--workspace"]),
    (
        "cargo",
        &[
            "-p",
            "--package",
            "--features",
            "--bin",
            "--example",
            "--test",
            "--target",
            "-j",
        ],
    ),
];

/// A word that only the shell knows may turn out to be any of the options above.
fn computed_args(name: &str, args: &[Word], found: &mut Vec<Danger>) {
    let valued = VALUED
        .iter()
        .find(|(program, _)| *program == name)
        .map_or(&[][..], |(_, options)| *options);
    let mut only_words = false;
    let mut is_value = false;
    for arg in args {
        // One quoted word after an option that takes a value is that value; an unquoted one may be more.
        let value = std::mem::replace(&mut is_value, false);
        if value && arg.certainty != Certainty::Many {
            continue;
        }
        is_value = valued.contains(&arg.text.as_str());
        if arg.text == "--" && !matches!(name, "find" | "gfind") {
            only_words = true;
        }
        let option_name = arg.text.split('=').next().unwrap_or("");
        let open = arg.known().is_none() && arg.may_be_option() && !only_words;
        if open && (arg.text.starts_with(UNKNOWN) || option_name.contains(UNKNOWN)) {
            found.push(Danger {
                word: arg.text.clone(),
                reason: format!(
                    "`{}` may become an option that starts another program",
                    arg.shown()
                ),
            });
        }
    }
}
