//! What a person can do about a denial. Text of events comes from the agent: shown escaped, never as a command of its own.
use super::denial_code;
use bastle_audit::sanitize;
use bastle_contract::{DenialKind, Denied};
use std::path::Path;

/// Directories for which no grant is ever proposed.
const NEVER_PROPOSED: &[&str] = &[
    "/", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var", "/home", "/root", "/boot", "/proc",
    "/sys", "/dev", "/run", "/tmp", "/opt",
];

/// What a person can do, as commands to paste. Nothing is proposed that would open a system directory.
pub(super) fn denial_help(denied: &Denied, id: &str, program: &str) -> Vec<String> {
    let why = format!("bastle why {id}");
    let target = quoted(&denied.target);
    match denied.kind {
        DenialKind::Write => {
            let path = Path::new(&denied.target);
            let place = if path.exists() { Some(path) } else { path.parent() };
            let fitting = place.and_then(Path::to_str).filter(|place| {
                place.starts_with('/')
                    && !NEVER_PROPOSED.contains(place)
                    && !place.starts_with("/etc/")
                    && !place.starts_with("/usr/")
            });
            match fitting {
                Some(place) => vec![
                    format!("bastle run --rw {} -- {}", quoted(place), sanitize(program)),
                    why,
                ],
                None => vec!["no grant is proposed for a system directory".to_owned(), why],
            }
        }
        DenialKind::Hidden => vec![
            format!(
                "bastle policy show --origin   (which layer hides {})",
                sanitize(&denied.rule)
            ),
            why,
        ],
        DenialKind::Protected => vec![
            "make this change yourself after the run: a program outside would execute it".to_owned(),
            format!(
                "bastle run --unprotect {target} -- {}   (opens exactly this file, if you mean it)",
                sanitize(program)
            ),
            why,
        ],
        DenialKind::Syscall => vec!["no setting opens this call".to_owned(), why],
        DenialKind::Exec => vec![
            "bastle policy show --origin   (which layer has the list; add the program to its exec.allow)"
                .to_owned(),
            why,
        ],
        DenialKind::Limit => vec![denial_code(denied).info().fix.to_owned(), why],
    }
}

/// A word as a shell reads it back, on one line.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    let clean = sanitize(word);
    if !clean.is_empty() && clean.chars().all(plain) {
        clean
    } else {
        format!("'{}'", clean.replace('\'', "'\\''"))
    }
}
