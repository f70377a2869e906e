//! What the shell's own commands do: harmless ones need no rule, those that change later commands are refused.

use super::environment;
use super::word::Word;

/// The judgement of a builtin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
    /// Needs no rule.
    Harmless,
    /// Changes the directory relative names start from.
    MovesTo(Option<Word>),
    /// Changes what later commands mean, or evaluates text.
    Refused(String),
    /// No builtin, or one that is judged by rules.
    Other,
}

/// Judges a builtin by its name, which must be bare: `/bin/echo` is a program.
pub(super) fn judge(words: &[Word]) -> Builtin {
    let Some((name, args)) = words.split_first().and_then(|(p, a)| Some((p.known()?, a))) else {
        return Builtin::Other;
    };
    match name {
        "true" | "false" | ":" | "pwd" | "exit" | "return" | "break" | "continue" | "shift" | "wait"
        | "jobs" | "times" | "echo" | "dirs" | "fg" | "bg" | "disown" | "type" | "umask" | "ulimit"
        | "logout" => Builtin::Harmless,
        "cd" | "pushd" | "popd" => Builtin::MovesTo(directory(name, args)),
        "test" | "[" => names_in_text(args, Builtin::Harmless),
        "command" => Builtin::Harmless,
        "printf" => printf(args),
        "unset" | "unsetenv" if args.iter().any(|a| a.may_be_option() && a.text != "-v") => {
            Builtin::Refused("`unset` of functions and references changes what names mean".into())
        }
        "read" | "getopts" | "unset" | "unsetenv" => sets_names(args),
        "export" | "readonly" | "local" | "declare" | "typeset" => declares(name, args),
        "let" => names_in_text(args, refuse_names(args)),
        "set" => set(args),
        "hash" if args.is_empty() || args.iter().all(|a| a.text == "-r") => Builtin::Harmless,
        "trap" => Builtin::Harmless,
        "source" | "." => Builtin::Refused("it runs a file in this shell".into()),
        "alias" | "unalias" | "hash" | "enable" | "bind" | "complete" | "compopt" | "shopt" => {
            Builtin::Refused(format!("`{name}` changes what later commands mean"))
        }
        "mapfile" | "readarray"
            if args
                .iter()
                .any(|a| a.may_be_option() && a.text.contains(['C', 'c', '\0'])) =>
        {
            Builtin::Refused(format!("`{name} -C` runs text"))
        }
        "mapfile" | "readarray" => sets_names(args),
        "fc" | "history" | "coproc" | "caller" | "suspend" | "compgen" => {
            Builtin::Refused(format!("`{name}` may run text that is not on this line"))
        }
        // Without a command `exec` only keeps redirections, which are judged by themselves.
        "exec" => Builtin::Harmless,
        _ => Builtin::Other,
    }
}

fn directory(name: &str, args: &[Word]) -> Option<Word> {
    if name == "popd" {
        return None;
    }
    let mut plain = args
        .iter()
        .filter(|a| !matches!(a.text.as_str(), "-P" | "-L" | "--" | "-e"));
    let target = plain.next()?;
    if plain.next().is_some() || target.may_be_option() || target.text.starts_with('+') {
        return None;
    }
    Some(target.clone())
}

/// Names may carry a subscript, which the shell evaluates: `test -v 'a[$(id)]'`.
fn names_in_text(args: &[Word], fine: Builtin) -> Builtin {
    let evaluated = args
        .iter()
        .any(|a| a.text.contains('[') && (a.text.contains("$(") || a.text.contains('`')));
    if evaluated {
        Builtin::Refused("a subscript with a command in it is run".into())
    } else {
        fine
    }
}

fn refuse_names(args: &[Word]) -> Builtin {
    for arg in args {
        let name: String = arg
            .text
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if let Some(why) = environment::danger(&name, &[Word::many()]) {
            return Builtin::Refused(why);
        }
    }
    Builtin::Harmless
}

fn printf(args: &[Word]) -> Builtin {
    match args.first() {
        Some(first) if first.may_be_option() && first.text != "--" => sets_names(args),
        Some(_) | None => Builtin::Harmless,
    }
}

/// `read x`, `printf -v x`, `unset x`: every word may be the name.
fn sets_names(args: &[Word]) -> Builtin {
    for arg in args {
        let name = arg.text.trim_start_matches("-v");
        if let Some(why) = environment::danger(name, &[Word::many()]) {
            return Builtin::Refused(why);
        }
        if arg.text.starts_with('\0') {
            return Builtin::Refused("the name of the variable is computed".into());
        }
    }
    names_in_text(args, Builtin::Harmless)
}

/// Assignments have been judged one by one; here the options and bare names remain.
fn declares(name: &str, args: &[Word]) -> Builtin {
    for arg in args {
        if arg.may_be_option() {
            // -n makes another name for a variable, -f deals with functions, -i evaluates every later value.
            if arg.known().is_none() || arg.text.contains(['n', 'f', 'i', 'F']) {
                return Builtin::Refused(format!("`{name} {}` changes what names mean", arg.shown()));
            }
            continue;
        }
        // A computed word may be an assignment to any name; so is a quoted one.
        let given = arg.text.split('=').next().unwrap_or("");
        let values = match arg.text.split_once('=') {
            Some((_, value)) if arg.known().is_some() => vec![Word::fixed(value)],
            Some(_) => vec![Word::many()],
            None => continue_if_plain(arg),
        };
        if given.contains('\0') {
            return Builtin::Refused("the name of the variable is computed".into());
        }
        if arg.text.contains('=')
            && let Some(why) = environment::danger(given.trim_end_matches('+'), &values)
        {
            return Builtin::Refused(why);
        }
    }
    names_in_text(args, Builtin::Harmless)
}

/// A bare name in a declaration keeps its value.
fn continue_if_plain(arg: &Word) -> Vec<Word> {
    if arg.known().is_some() {
        Vec::new()
    } else {
        vec![Word::many()]
    }
}

fn set(args: &[Word]) -> Builtin {
    const FINE: &[&str] = &[
        "pipefail",
        "errexit",
        "nounset",
        "xtrace",
        "verbose",
        "noglob",
        "noclobber",
        "errtrace",
        "functrace",
        "allexport",
    ];
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg.known() else {
            return Builtin::Refused("the options of `set` are computed".into());
        };
        if text == "--" || text == "-" {
            return Builtin::Harmless;
        }
        let letters = text.strip_prefix(['-', '+']);
        match letters {
            Some(letters) if letters.chars().all(|c| "euxovfCETa".contains(c)) => {
                if letters.ends_with('o') && !args.next().is_none_or(|n| FINE.contains(&n.text.as_str())) {
                    return Builtin::Refused("`set -o` with an unusual option".into());
                }
            }
            Some(_) => return Builtin::Refused(format!("`set {text}` changes how the shell reads")),
            None => return Builtin::Harmless,
        }
    }
    Builtin::Harmless
}
