//! Sees through programs that start other programs. What cannot be seen for certain is reported as unclear.

use super::matching::base;
use super::options::{self, Found, Parsed, Spec};
use super::tables::SHELLS;
use super::word::{Certainty, UNKNOWN, Word};
use super::wrapper_tables as tables;
use super::wrapper_tables::{Own, WRAPPERS};

/// What a wrapper starts.
#[derive(Clone, Debug)]
pub(super) enum Inner {
    /// A program with arguments.
    Argv(Vec<Word>),
    /// Shell text.
    Script(String),
    /// Variables set for what is started.
    Sets(String, Word),
    /// Something that cannot be read from the line.
    Unclear(String),
}

/// A wrapper and what it starts.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Whether the wrapper itself needs a rule.
    pub(super) own: Own,
    /// What it starts.
    pub(super) inner: Vec<Inner>,
}

fn seen(own: Own, inner: Vec<Inner>) -> Option<Seen> {
    Some(Seen { own, inner })
}

fn unclear(own: Own, why: impl Into<String>) -> Option<Seen> {
    seen(own, vec![Inner::Unclear(why.into())])
}

/// Looks behind a wrapper. `None`: the program starts nothing by its arguments.
pub(super) fn see_through(words: &[Word]) -> Option<Seen> {
    let (program, args) = words.split_first()?;
    let name = base(program.known()?);
    if let Some(wrapper) = WRAPPERS.iter().find(|w| w.names.contains(&name)) {
        return plain(args, &wrapper.spec, wrapper.skip, wrapper.own);
    }
    match name {
        "env" | "genv" => env(args),
        "command" => command(args),
        "exec" => plain(args, &tables::EXEC, 0, Own::Through),
        "xargs" | "gxargs" => xargs(args),
        "find" | "gfind" => find(args),
        "eval" => eval(args),
        "trap" => trap(args),
        "busybox" | "toybox" => applet(args),
        "flock" => scripted(args, &tables::FLOCK, 1),
        "script" => scripted(args, &tables::SCRIPT, usize::MAX),
        "su" => scripted(args, &tables::SU, usize::MAX),
        "watch" => watch(args),
        "parallel" => parallel(args),
        "bwrap" | "bubblewrap" => bwrap(args),
        "ssh" => None,
        _ if SHELLS.contains(&name) => shell(name, args),
        _ if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld.so") => {
            plain(args, &tables::LOADER, 0, Own::NeedsRule)
        }
        _ => None,
    }
}

fn parse(args: &[Word], spec: &Spec) -> Result<Parsed, Inner> {
    options::parse(args, spec)
        .map_err(|word| Inner::Unclear(format!("the option `{word}` is not understood")))
}

fn plain(args: &[Word], spec: &Spec, skip: usize, own: Own) -> Option<Seen> {
    let parsed = match parse(args, spec) {
        Ok(parsed) => parsed,
        Err(inner) => return seen(own, vec![inner]),
    };
    let rest = args.get(parsed.rest..).unwrap_or(&[]);
    let (skipped, mut rest) = rest.split_at(skip.min(rest.len()));
    if let Some(word) = skipped
        .iter()
        .find(|w| matches!(w.certainty, Certainty::Many | Certainty::Glob))
    {
        return unclear(own, format!("`{}` may be more than one word", word.shown()));
    }
    // `sudo A=b cmd`, `pkexec A=b`: assignments before the command.
    let mut inner = Vec::new();
    while let Some((name, value)) = rest.first().and_then(assignment) {
        inner.push(Inner::Sets(name, value));
        rest = rest.get(1..).unwrap_or(&[]);
    }
    if rest.is_empty() && inner.is_empty() {
        // Nothing is started: the wrapper is judged as a program.
        return (own == Own::NeedsRule).then_some(Seen { own, inner });
    }
    inner.push(Inner::Argv(rest.to_vec()));
    seen(own, inner)
}

fn assignment(word: &Word) -> Option<(String, Word)> {
    let (name, value) = word.text.split_once('=')?;
    let plain = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    let value = if word.known().is_some() {
        Word::fixed(value)
    } else {
        Word::unknown(value.to_owned())
    };
    plain.then(|| (name.to_owned(), value))
}

fn env(args: &[Word]) -> Option<Seen> {
    let own = Own::Through;
    let parsed = match parse(args, &tables::ENV) {
        Ok(parsed) => parsed,
        Err(inner) => return seen(own, vec![inner]),
    };
    let mut words = Vec::new();
    for Found { name, value } in &parsed.options {
        if name == "S" || name == "split-string" {
            // `env` has its own little language here; only plain words are understood.
            let Some(text) = value.as_ref().and_then(Word::known) else {
                return unclear(own, "env -S with computed text");
            };
            if text.contains(['\\', '"', '\'', '$', '#']) {
                return unclear(own, "env -S with quotes, escapes or variables");
            }
            words.extend(text.split_whitespace().map(Word::fixed));
        }
    }
    words.extend(args.get(parsed.rest..).unwrap_or(&[]).iter().cloned());
    // `env -S "-i cmd"`, `env - cmd`: options again.
    if words.first().is_some_and(|w| w.text.starts_with('-')) {
        if words.first().is_some_and(|w| w.text == "-") {
            words.remove(0);
        } else {
            return unclear(own, "options inside env -S");
        }
    }
    let mut inner = Vec::new();
    // For `env` every word with an equals sign is an assignment, whatever its name.
    while let Some((name, value)) = words.first().and_then(|w| w.text.split_once('=')) {
        let value = if value.contains(UNKNOWN) {
            Word::unknown(value.to_owned())
        } else {
            Word::fixed(value)
        };
        if name.contains(UNKNOWN) {
            return unclear(own, "the name of a variable is computed");
        }
        inner.push(Inner::Sets(name.to_owned(), value));
        words.remove(0);
    }
    if !words.is_empty() {
        inner.push(Inner::Argv(words));
    }
    if inner.is_empty() { None } else { seen(own, inner) }
}

fn command(args: &[Word]) -> Option<Seen> {
    match parse(args, &tables::COMMAND) {
        // `command -v x` only looks a name up.
        Ok(parsed) if parsed.options.iter().any(|o| o.name == "v" || o.name == "V") => None,
        Ok(_) => plain(args, &tables::COMMAND, 0, Own::Through),
        Err(inner) => seen(Own::Through, vec![inner]),
    }
}

fn xargs(args: &[Word]) -> Option<Seen> {
    let own = Own::Through;
    let parsed = match parse(args, &tables::XARGS) {
        Ok(parsed) => parsed,
        Err(inner) => return seen(own, vec![inner]),
    };
    let place = parsed.options.iter().find_map(|o| match o.name.as_str() {
        "I" => Some(o.value.as_ref().map_or("{}", |v| v.text.as_str()).to_owned()),
        "i" | "replace" => Some(o.value.as_ref().map_or("{}", |v| v.text.as_str()).to_owned()),
        _ => None,
    });
    let rest = args.get(parsed.rest..).unwrap_or(&[]);
    if rest.is_empty() {
        return seen(own, vec![Inner::Argv(vec![Word::fixed("echo"), Word::many()])]);
    }
    let mut words = rest.to_vec();
    match place {
        Some(place) if place.is_empty() || place.contains(UNKNOWN) => {
            return unclear(own, "the placeholder is not known");
        }
        Some(place) => fill(&mut words, &place, &UNKNOWN.to_string()),
        None => words.push(Word::many()),
    }
    seen(own, vec![Inner::Argv(words)])
}

/// Puts unknown text where a placeholder stands.
fn fill(words: &mut [Word], place: &str, with: &str) {
    for word in words {
        if word.text.contains(place) {
            word.text = word.text.replace(place, with);
            if word.certainty == Certainty::Fixed {
                word.certainty = Certainty::Unknown;
            }
        }
    }
}

fn find(args: &[Word]) -> Option<Seen> {
    let own = Own::NeedsRule;
    let mut inner = Vec::new();
    let mut at = 0;
    while let Some(word) = args.get(at) {
        at += 1;
        if !matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let start = at;
        while let Some(word) = args.get(at) {
            let plus = word.text == "+" && args.get(at.wrapping_sub(1)).is_some_and(|w| w.text == "{}");
            if word.text == ";" || plus {
                break;
            }
            at += 1;
        }
        if at == args.len() {
            return unclear(own, "find -exec without an end");
        }
        let mut words = args.get(start..at).unwrap_or(&[]).to_vec();
        // A found name starts with the place the search began at, never with a dash.
        let path = format!("./{UNKNOWN}");
        if words.first().is_some_and(|w| w.text.contains("{}")) {
            return unclear(own, "find starts the files it finds");
        }
        fill(&mut words, "{}", &path);
        inner.push(Inner::Argv(words));
    }
    if inner.is_empty() { None } else { seen(own, inner) }
}

/// Joins words into shell text, as `eval` and `watch` do.
fn joined(words: &[Word]) -> Inner {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    known.map_or_else(
        || Inner::Unclear("the text that is run is computed".into()),
        |known| Inner::Script(known.join(" ")),
    )
}

fn eval(args: &[Word]) -> Option<Seen> {
    let args = match args.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => args,
    };
    seen(Own::Through, vec![joined(args)])
}

fn trap(args: &[Word]) -> Option<Seen> {
    let args = match args.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => args,
    };
    match args.first() {
        None => None,
        Some(word) if matches!(word.text.as_str(), "-" | "-l" | "-p" | "") && word.known().is_some() => None,
        Some(word) => seen(Own::Through, vec![joined(std::slice::from_ref(word))]),
    }
}

fn applet(args: &[Word]) -> Option<Seen> {
    match args.first() {
        None => None,
        Some(word) if word.text.starts_with("--") => None,
        Some(_) => seen(Own::Through, vec![Inner::Argv(args.to_vec())]),
    }
}

/// Programs with `-c TEXT`, or a command after `skip` words.
fn scripted(args: &[Word], spec: &Spec, skip: usize) -> Option<Seen> {
    let own = Own::NeedsRule;
    let mut inner = Vec::new();
    let mut rest = args.to_vec();
    // Options may follow plain words (`su root -c id`, `flock f -c id`): read until none is left.
    let mut plain_words = Vec::new();
    while !rest.is_empty() {
        let parsed = match parse(&rest, spec) {
            Ok(parsed) => parsed,
            Err(unclear) => return seen(own, vec![unclear]),
        };
        for Found { name, value } in parsed.options {
            if matches!(name.as_str(), "c" | "command" | "session-command") {
                inner.push(joined(value.as_slice()));
            }
        }
        rest.drain(..parsed.rest);
        if plain_words.len() >= skip {
            break;
        }
        if !rest.is_empty() {
            plain_words.push(rest.remove(0));
        }
    }
    if !rest.is_empty() {
        inner.push(Inner::Argv(rest));
    }
    seen(own, inner)
}

fn watch(args: &[Word]) -> Option<Seen> {
    let own = Own::NeedsRule;
    match parse(args, &tables::WATCH) {
        Ok(parsed) => seen(own, vec![joined(args.get(parsed.rest..).unwrap_or(&[]))]),
        Err(inner) => seen(own, vec![inner]),
    }
}

fn parallel(args: &[Word]) -> Option<Seen> {
    let own = Own::NeedsRule;
    let parsed = match parse(args, &tables::PARALLEL) {
        Ok(parsed) => parsed,
        Err(inner) => return seen(own, vec![inner]),
    };
    let rest = args.get(parsed.rest..).unwrap_or(&[]);
    let end = rest
        .iter()
        .position(|w| w.text.starts_with("::::") || w.text.starts_with(":::"))
        .unwrap_or(rest.len());
    let words = rest.get(..end).unwrap_or(&[]);
    if words.is_empty() {
        return unclear(own, "parallel runs the lines it reads");
    }
    if words
        .iter()
        .any(|w| w.text.contains([';', '|', '&', '$', '`', '>', '<', '(']))
    {
        return unclear(own, "parallel runs its words in a shell");
    }
    let mut words = words.to_vec();
    fill(&mut words, "{", &UNKNOWN.to_string());
    words.push(Word::many());
    seen(own, vec![Inner::Argv(words)])
}

fn bwrap(args: &[Word]) -> Option<Seen> {
    let own = Own::NeedsRule;
    let mut at = 0;
    while let Some(word) = args.get(at).filter(|w| w.may_be_option()) {
        if word.text == "--" {
            at += 1;
            break;
        }
        match tables::BWRAP_WORDS.iter().find(|(name, _)| *name == word.text) {
            Some((_, count)) => at += 1 + count,
            None => return unclear(own, format!("the option `{}` is not understood", word.shown())),
        }
    }
    seen(own, vec![Inner::Argv(args.get(at..).unwrap_or(&[]).to_vec())])
}

fn shell(name: &str, args: &[Word]) -> Option<Seen> {
    let own = Own::Through;
    // `+x` switches options off; treat like `-x`.
    let args: Vec<Word> = args
        .iter()
        .map(|w| match w.known().and_then(|t| t.strip_prefix('+')) {
            Some(letters) if !letters.is_empty() => Word::fixed(format!("-{letters}")),
            _ => w.clone(),
        })
        .collect();
    let parsed = match parse(&args, &tables::SHELL) {
        Ok(parsed) => parsed,
        Err(inner) => return seen(own, vec![inner]),
    };
    if let Some(text) = parsed
        .options
        .iter()
        .find(|o| o.name == "command")
        .and_then(|o| o.value.clone())
    {
        return seen(own, vec![script_in(name, &[text])]);
    }
    if parsed.options.iter().any(|o| o.name == "c") {
        return seen(
            own,
            vec![script_in(
                name,
                args.get(parsed.rest..=parsed.rest).unwrap_or(&[]),
            )],
        );
    }
    // A script file, or standard input: judged by rule, and `bash` alone is never a rule.
    None
}

/// Text for a shell whose grammar is ours; other shells read the same text in other ways.
fn script_in(name: &str, words: &[Word]) -> Inner {
    if words.is_empty() {
        return Inner::Unclear("a shell without its text".into());
    }
    if matches!(
        name,
        "sh" | "bash" | "dash" | "ash" | "rbash" | "bash-static" | "static-sh"
    ) {
        return joined(words);
    }
    // Plain words and the separators every shell shares.
    let tame = |c: char| c.is_ascii_alphanumeric() || " -_./:,'\"@%+;&|".contains(c);
    match words.first().and_then(Word::known) {
        Some(text) if text.chars().all(tame) && !text.contains("&|") && !text.contains("&!") => joined(words),
        Some(_) | None => Inner::Unclear(format!("`{name}` has a grammar of its own")),
    }
}
