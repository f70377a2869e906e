//! Fixes that `doctor` carries out itself: the command that is printed is the command that runs, and afterwards the same trial
//! says whether it worked.
use super::DoctorArgs;
use super::cause::Fix;
use crate::render::clean;
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What became of one fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Attempt {
    pub(super) cause: &'static str,
    pub(super) command: String,
    /// Exit code of the command; none where it was not run, or was ended by a signal.
    pub(super) exit: Option<i32>,
    pub(super) result: AttemptResult,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AttemptResult {
    /// The cause is gone, by the same trial.
    Worked,
    /// The command ran, and the cause is still there.
    DidNotWork,
    /// The command failed.
    Failed,
    /// The answer was no.
    Declined,
    /// There was no terminal to ask at.
    NotAsked,
}

/// How consent to a fix is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// `--yes` was given.
    Given,
    /// A terminal is asked.
    Ask,
    /// There is no terminal.
    Unattended,
}

impl Consent {
    /// From the arguments and the terminal.
    pub(super) fn choose(args: &DoctorArgs) -> Self {
        if args.yes {
            Self::Given
        } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
            Self::Ask
        } else {
            Self::Unattended
        }
    }
}

/// A word for the shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,=@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Sets a value of the kernel's, now and at every start where this system has a directory for that.
pub(super) fn sysctl(key: &str, value: &str, sudo: &str) -> Fix {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    let kept = Path::new("/etc/sysctl.d").is_dir().then(|| {
        let name = key.rsplit('.').next().unwrap_or(key).replace('_', "-");
        format!(" && echo {key}={value} | {sudo}tee /etc/sysctl.d/60-bastle-{name}.conf")
    });
    Fix::Command(format!(
        "echo {value} | {sudo}tee {path}{}",
        kept.unwrap_or_default()
    ))
}

/// Runs a command line as it was printed. What it prints goes to standard error: standard output is the report's.
pub(super) fn run(line: &str) -> io::Result<Option<i32>> {
    let errors = rustix::io::dup(io::stderr())?;
    let status = Command::new("/bin/sh")
        .args(["-c", line])
        // For a password that sudo asks for.
        .stdin(Stdio::inherit())
        .stdout(Stdio::from(errors))
        .status()?;
    Ok(status.code())
}

/// Asks whether to run it. What cannot be asked or heard is a no.
pub(super) fn is_wanted(line: &str) -> bool {
    let mut terminal = io::stderr();
    let asked = terminal
        .write_all(format!("run this? {}\n[y/N] ", clean(line)).as_bytes())
        .and_then(|()| terminal.flush());
    let mut answer = String::new();
    let heard = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    heard.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_shell_cannot_end_their_quotes() {
        assert_eq!(quoted("/usr/bin/bastle"), "/usr/bin/bastle");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("it's;$(x)"), "'it'\\''s;$(x)'");
    }

    #[test]
    fn a_value_of_the_kernel_is_set_now_and_with_sudo_only_where_it_is_needed() {
        let text = |sudo| sysctl("user.max_net_namespaces", "15000", sudo).text().to_owned();
        assert!(
            text("sudo ").starts_with("echo 15000 | sudo tee /proc/sys/user/max_net_namespaces"),
            "{}",
            text("sudo ")
        );
        assert!(!text("").contains("sudo"), "{}", text(""));
    }
}
