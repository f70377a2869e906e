//! Running other programs: always without standard input, so that nothing can wait for a person.
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A chore that did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    what: String,
    why: String,
}

impl Failed {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
        }
    }

    /// A failure that was already told in full: nothing may follow the last line that was printed.
    pub(crate) fn told() -> Self {
        Self::new("", "")
    }

    pub(crate) fn is_told(&self) -> bool {
        self.what.is_empty()
    }

    /// For `map_err`: an I/O error about `what`.
    pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(what.to_string(), error.to_string())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// How a streamed command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Exited(ExitStatus),
    /// Killed because it was still running at the deadline.
    TooLong(Duration),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::TooLong(limit) => write!(f, "still running after {} s, killed", limit.as_secs()),
        }
    }
}

/// The repository's root: the parent of this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// The cargo that started us, so that a `+toolchain` on the command line is kept.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A command shown as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Where `program` is found on PATH, if anywhere.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    // Administrators' tools are not on an ordinary user's PATH on Debian, yet may be run by everybody.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Standard output of a command that must succeed.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String, Failed> {
    let what = shown(command);
    let output = command.stdin(Stdio::null()).output().map_err(Failed::io(&what))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Failed::new(
            what,
            format!("{}\n{}", output.status, stderr.trim_end()),
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| Failed::new(what, error.to_string()))
}

/// Runs a command to its end and hands every line of its output, as it comes, to `line`.
///
/// A command that outlives `limit` is killed: a hanging test must fail the run, not hold it.
pub(crate) fn stream(
    command: &mut Command,
    limit: Duration,
    mut line: impl FnMut(&str),
) -> Result<Ended, Failed> {
    let what = shown(command);
    let deadline = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Failed::io(&what))?;
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        read_lines(out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        read_lines(err, sender);
    }
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().map_err(Failed::io(&what))?;
                child.wait().map_err(Failed::io(&what))?;
                return Ok(Ended::TooLong(limit));
            }
        }
    }
    child.wait().map(Ended::Exited).map_err(Failed::io(&what))
}

fn read_lines(source: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(source);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            // The receiver is gone only after a deadline; nobody wants the rest then.
            if sender.send(text).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waits_for_input_ends_instead_of_hanging() {
        let mut seen = Vec::new();
        let ended = stream(&mut Command::new("cat"), Duration::from_secs(20), |line| {
            seen.push(line.to_owned());
        });
        assert!(matches!(ended, Ok(Ended::Exited(status)) if status.success()));
        assert_eq!(seen, Vec::<String>::new());
    }

    #[test]
    fn a_command_that_never_ends_is_killed_at_the_deadline() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let ended = stream(&mut command, Duration::from_millis(50), |_| {});
        assert!(matches!(ended, Ok(Ended::TooLong(_))), "{ended:?}");
        let told = ended.map(|ended| ended.to_string());
        assert_eq!(told, Ok("still running after 0 s, killed".to_owned()));
    }

    #[test]
    fn both_output_streams_are_seen_and_the_exit_status_is_kept() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ended = stream(&mut command, Duration::from_secs(20), |line| {
            seen.push(line.to_owned())
        });
        seen.sort();
        assert_eq!(seen, ["err", "out"]);
        assert!(matches!(ended, Ok(Ended::Exited(status)) if status.code() == Some(3)));
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it_and_shows_its_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 1"]);
        let failed = stdout_of(&mut command).expect_err("must fail").to_string();
        assert!(failed.contains("sh -c") && failed.contains("because"), "{failed}");
    }
}
