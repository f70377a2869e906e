//! The command line of `bastle spawner`. Parsed here: a privileged process links no command-line library.
use bastle_contract::spawner::SYSTEM_SOCKET;
use bastle_contract::{Code, Fault};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What the daemon is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) socket: PathBuf,
    /// `None`: not root, and no file was named.
    pub(super) ceiling: Option<PathBuf>,
    /// Who besides the owner may connect.
    pub(super) group: Option<String>,
    /// Workers that wait.
    pub(super) warm: usize,
    /// Where the log of its own is.
    pub(super) state: PathBuf,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Serve.
    Serve(Options),
    /// Try a ceiling file.
    Check(PathBuf),
    /// Ask the daemon on this socket which runs it serves.
    List(PathBuf),
    /// Ask it what the caller may have.
    Probe(PathBuf),
    /// Say how it is used.
    Help,
}

/// Whether the system's service manager hands a socket over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given;

/// What is taken from the environment, which is forgotten afterwards.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pub(super) given: Option<Given>,
    pub(super) notify: Option<OsString>,
    runtime: Option<PathBuf>,
    state: Option<PathBuf>,
}

/// Most workers that wait.
const MOST_WARM: usize = 64;
/// Where root's ceiling is.
const CEILING: &str = "/etc/bastle/ceiling.json";
/// Where root's log is.
const STATE: &str = "/var/lib/bastle/spawner";

/// How it is used.
pub(super) const USAGE: &str = "\
The spawner daemon: makes sandboxes for callers that its ceiling file names.

Usage: bastle spawner [OPTIONS]
       bastle spawner ls | probe [--socket PATH]
       bastle spawner check FILE

Options:
  --socket PATH    Where it listens [root: /run/bastle/spawner.sock, else $XDG_RUNTIME_DIR/bastle/spawner.sock]
  --ceiling FILE   Who may ask, and for what [root: /etc/bastle/ceiling.json, else only the own user]
  --group NAME     A group that may connect (mode 0660 instead of 0600)
  --warm N         Sandboxes begun ahead for anybody, and as many kept for callers served before [root: 2, else 0]
  --state DIR      Where its audit log is kept [root: /var/lib/bastle/spawner]

A socket handed over by the system (LISTEN_FDS) is used instead of --socket. SIGHUP reads the ceiling again.
";

impl Surroundings {
    /// Reads what matters.
    pub(super) fn take() -> Self {
        let path = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let given = number("LISTEN_PID") == Some(std::process::id()) && number("LISTEN_FDS") == Some(1);
        Self {
            given: given.then_some(Given),
            notify: std::env::var_os("NOTIFY_SOCKET"),
            runtime: path("XDG_RUNTIME_DIR"),
            state: path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state"))),
        }
    }
}

impl Options {
    /// The mode of the socket's directory, where it has to be made.
    pub(super) fn directory_mode(&self) -> u32 {
        if rustix::process::geteuid().is_root() {
            0o755
        } else {
            0o700
        }
    }

    /// The directory of the registry.
    pub(super) fn registry_of(socket: &Path) -> PathBuf {
        socket.with_extension("d")
    }
}

/// Parses the words behind the verb.
pub(super) fn parse(words: &[OsString], around: &Surroundings) -> Result<Command, Fault> {
    let mut words = words.iter();
    let (mut socket, mut ceiling, mut group, mut warm, mut state) = (None, None, None, None, None);
    let mut verb: Option<&str> = None;
    let mut file = None;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| usage(word, "needs a value"));
        match (word.to_str(), verb) {
            (Some("--help" | "-h" | "help"), _) => return Ok(Command::Help),
            (Some("--socket"), _) => socket = Some(absolute(word, value()?)?),
            (Some("--ceiling"), None) => ceiling = Some(absolute(word, value()?)?),
            (Some("--state"), None) => state = Some(absolute(word, value()?)?),
            (Some("--group"), None) => {
                let name = value()?.to_str().filter(|name| !name.is_empty());
                group = Some(name.ok_or_else(|| usage(word, "needs a name"))?.to_owned());
            }
            (Some("--warm"), None) => {
                let number = value()?.to_str().and_then(|text| text.parse::<usize>().ok());
                let number = number.filter(|number| *number <= MOST_WARM);
                warm = Some(number.ok_or_else(|| usage(word, "needs a number up to 64"))?);
            }
            (Some(known @ ("ls" | "list" | "probe")), None) => verb = Some(known),
            (Some("check" | "--check"), None) => {
                verb = Some("check");
                file = Some(PathBuf::from(value()?));
            }
            _ => return Err(usage(word, "is not known here")),
        }
    }
    let socket = match socket {
        Some(socket) => socket,
        None => default_socket(around)?,
    };
    Ok(match (verb, file) {
        (Some("ls" | "list"), _) => Command::List(socket),
        (Some("probe"), _) => Command::Probe(socket),
        (Some(_), Some(file)) => Command::Check(file),
        (Some(_), None) | (None, _) => {
            let root = rustix::process::geteuid().is_root();
            Command::Serve(Options {
                socket,
                ceiling: ceiling.or_else(|| root.then(|| PathBuf::from(CEILING))),
                group,
                warm: warm.unwrap_or(if root { 2 } else { 0 }),
                state: match state {
                    Some(state) => state,
                    None => default_state(around)?,
                },
            })
        }
    })
}

fn default_socket(around: &Surroundings) -> Result<PathBuf, Fault> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM_SOCKET));
    }
    let runtime = around.runtime.as_ref();
    let missing = || {
        Fault::new(
            Code::UsageArgument,
            "where to listen is not known",
            "XDG_RUNTIME_DIR is not set",
        )
    };
    runtime
        .map(|runtime| runtime.join("bastle/spawner.sock"))
        .ok_or_else(|| missing().help("bastle spawner --socket PATH"))
}

fn default_state(around: &Surroundings) -> Result<PathBuf, Fault> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(STATE));
    }
    let state = around.state.as_ref();
    let missing = || {
        Fault::new(
            Code::StateDir,
            "where to keep the log is not known",
            "HOME is not set",
        )
    };
    state
        .map(|state| state.join("bastle"))
        .ok_or_else(|| missing().help("bastle spawner --state DIR"))
}

fn absolute(option: &OsString, value: &OsString) -> Result<PathBuf, Fault> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(usage(option, "needs an absolute path"))
    }
}

fn usage(word: &OsString, why: &str) -> Fault {
    Fault::new(
        Code::UsageArgument,
        format!("bastle spawner: {} {why}", word.to_string_lossy()),
        "",
    )
    .help("bastle spawner --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Command, Fault> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let around = Surroundings {
            runtime: Some(PathBuf::from("/run/user/7")),
            state: Some(PathBuf::from("/home/me/.local/state")),
            ..Surroundings::default()
        };
        parse(&words, &around)
    }

    #[test]
    fn an_unknown_or_incomplete_option_is_refused() {
        for bad in [
            &["--sockte", "/x"][..],
            &["--socket"],
            &["--socket", "relative"],
            &["--warm", "65"],
            &["--warm", "-1"],
            &["--group", ""],
            &["ls", "--warm", "1"],
            &["ls", "probe"],
            &["check"],
            &["extra"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_are_taken_as_given() {
        let words = [
            "--socket",
            "/s",
            "--ceiling",
            "/c",
            "--group",
            "g",
            "--warm",
            "3",
            "--state",
            "/st",
        ];
        let expected = Options {
            socket: PathBuf::from("/s"),
            ceiling: Some(PathBuf::from("/c")),
            group: Some("g".to_owned()),
            warm: 3,
            state: PathBuf::from("/st"),
        };
        assert_eq!(parsed(&words), Ok(Command::Serve(expected)));
        assert_eq!(
            parsed(&["ls", "--socket", "/s"]),
            Ok(Command::List(PathBuf::from("/s")))
        );
        assert_eq!(parsed(&["check", "f"]), Ok(Command::Check(PathBuf::from("f"))));
    }
}
