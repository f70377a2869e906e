//! Which allow rules are too wide: those that let any program run behind an allowed name. Data first.

use super::rule::{CommandRule, Tail};
use super::tables::{INTERPRETERS, MODULE_OPTIONS, SHELLS};

/// Programs whose arguments are another command line: a rule for one must name what it starts.
const STARTERS: &[&str] = &[
    "bubblewrap",
    "builtin",
    "busybox",
    "bwrap",
    "bunx",
    "chroot",
    "chrt",
    "command",
    "dlx",
    "doas",
    "entr",
    "env",
    "firejail",
    "flock",
    "gosu",
    "ionice",
    "nice",
    "nohup",
    "npx",
    "nsenter",
    "parallel",
    "pipx",
    "pkexec",
    "pnpx",
    "proot",
    "rlwrap",
    "runcon",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "ltrace",
    "gdb",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "torsocks",
    "toybox",
    "unbuffer",
    "unshare",
    "uvx",
    "watch",
    "xargs",
];
/// Builtins that run text: no prefix of them is narrow.
const RUN_TEXT: &[&str] = &[
    ".", "eval", "exec", "source", "trap", "alias", "coproc", "bind", "enable",
];

/// Why a rule is too wide for an allow list.
pub(super) fn too_wide(rule: &CommandRule) -> Option<String> {
    let name = super::matching::base(&rule.program).to_owned();
    let open = rule.tail != Tail::Closed;
    if SHELLS.contains(&name.as_str()) || name.eq_ignore_ascii_case("bash") {
        let script = first_plain(rule);
        let runs_text = rule.words.iter().any(|w| runs_text_option(w, "cis"));
        if script.is_none() || runs_text {
            return Some(format!(
                "`{name}` runs any command; name a script, as in `{name} scripts/test.sh *`"
            ));
        }
    }
    if RUN_TEXT.contains(&name.as_str()) {
        return Some(format!("`{name}` runs text or files as commands"));
    }
    if interpreter(&name) {
        let module = rule
            .words
            .iter()
            .position(|w| MODULE_OPTIONS.contains(&w.as_str()));
        let named_module = module
            .and_then(|at| rule.words.get(at + 1))
            .is_some_and(|w| !w.starts_with('*'));
        let evaluates = rule
            .words
            .iter()
            .take_while(|w| w.starts_with('-'))
            .any(|w| evaluates(w));
        let closed_query = !open && !rule.words.is_empty() && rule.words.iter().all(|w| w.starts_with('-'));
        if evaluates || !(named_module || closed_query || first_plain(rule).is_some()) {
            return Some(format!(
                "`{name}` runs any code; name a script, as in `{name} path/to/script *`"
            ));
        }
    }
    // `env` alone prints the environment; the others alone start a shell or read commands.
    let bare = rule.words.is_empty() && name != "env";
    if STARTERS.contains(&name.as_str()) && first_plain(rule).is_none() && (open || bare) {
        return Some(format!(
            "`{name}` starts any program; name the program it may start"
        ));
    }
    None
}

/// Whether the program runs code given to it.
pub(super) fn interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&stem) || INTERPRETERS.contains(&name)
}

/// The first word that names something: no option, no assignment, no number, no pattern at its start.
fn first_plain(rule: &CommandRule) -> Option<&str> {
    rule.words.iter().map(String::as_str).find(|w| {
        !w.starts_with('-')
            && !w.starts_with('*')
            && !w.contains('=')
            && !w.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn runs_text_option(word: &str, letters: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| !rest.starts_with('-') && rest.contains(|c| letters.contains(c)))
}

/// An option that takes code (`-c`, `-e`, `--eval`, …), also in a cluster.
fn evaluates(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        return [
            "eval", "print", "require", "import", "command", "exec", "execute", "run",
        ]
        .iter()
        .any(|name| {
            long.split('=')
                .next()
                .is_some_and(|given| name.starts_with(given) && !given.is_empty())
        });
    }
    word == "-" || runs_text_option(word, "ceEprRs")
}
