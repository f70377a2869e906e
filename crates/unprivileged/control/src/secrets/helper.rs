//! Programs that print a secret: started without a shell, with a clock and a limit on what they may say.
use super::{Fetched, MOST_VALUE, checked};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Deserialize;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long a helper may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the keyring may take: a locked one asks the person for its password first.
pub(super) const KEYRING_PATIENCE: Duration = Duration::from_secs(60);
/// What a helper needs of the environment to find itself, its owner's files and the keyring.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "GPG_TTY",
];

/// What a helper prints when it knows when the value ends.
#[derive(Deserialize)]
struct Printed {
    value: String,
    expires: Option<u64>,
}

/// Splits a command into words: blanks divide, quotes hold together, nothing is expanded.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(format!("a quote in {line:?} is not closed"));
    }
    words.extend(word);
    if words.is_empty() {
        return Err("exec: names no program".to_owned());
    }
    Ok(words)
}

/// Runs a helper and takes the value it prints.
pub(super) fn run(argv: &[String]) -> Result<Fetched, String> {
    understand(&printed(argv)?)
}

/// Runs a program of the host and takes what it prints. It starts where no project can speak to it.
pub(crate) fn printed(argv: &[String]) -> Result<Zeroizing<String>, String> {
    printed_within(argv, PATIENCE)
}

/// The same with a clock of its own.
pub(super) fn printed_within(argv: &[String], patience: Duration) -> Result<Zeroizing<String>, String> {
    let (program, arguments) = argv.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    let printed = child
        .stdout
        .take()
        .ok_or_else(|| "it has no output".to_owned())
        .and_then(|mut output| listen(program, &mut output, patience));
    let killed = if printed.is_err() { child.kill() } else { Ok(()) };
    let status = child.wait().map_err(|error| error.to_string())?;
    let printed = printed?;
    if !status.success() || killed.is_err() {
        return Err(format!("{program} ended with {status}"));
    }
    Ok(printed)
}

/// Reads until the end, the clock or the limit.
fn listen(
    program: &str,
    output: &mut std::process::ChildStdout,
    patience: Duration,
) -> Result<Zeroizing<String>, String> {
    let until = Instant::now() + patience;
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 * MOST_VALUE));
    let mut buffer = Zeroizing::new([0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut waiting = [PollFd::new(&*output, PollFlags::IN)];
        match rustix::event::poll(&mut waiting, Some(&timeout)) {
            Ok(0) => {
                return Err(format!(
                    "{program} did not answer within {} s",
                    patience.as_secs()
                ));
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        let count = output.read(&mut buffer[..]).map_err(|error| error.to_string())?;
        if count == 0 {
            break;
        }
        if bytes.len() + count > 4 * MOST_VALUE {
            return Err(format!("{program} printed too much"));
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{program} printed what is not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// `{"value": …, "expires": SECONDS}`, or the value itself.
fn understand(printed: &str) -> Result<Fetched, String> {
    if !printed.trim_start().starts_with('{') {
        return Ok(Fetched {
            value: Zeroizing::new(checked(printed)?.to_owned()),
            expires: None,
        });
    }
    // The error would quote what was printed.
    let Printed { value, expires } = serde_json::from_str(printed)
        .map_err(|_| "it printed JSON that is not {\"value\": TEXT, \"expires\": SECONDS}".to_owned())?;
    let value = Zeroizing::new(value);
    Ok(Fetched {
        value: Zeroizing::new(checked(&value)?.to_owned()),
        expires,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(script: &str) -> Result<Fetched, String> {
        run(&["sh".to_owned(), "-c".to_owned(), script.to_owned()])
    }

    fn refusal(script: &str) -> String {
        match helper(script) {
            Ok(_) => String::new(),
            Err(why) => why,
        }
    }

    #[test]
    fn a_helper_that_fails_floods_or_says_nonsense_gives_no_value_and_its_words_are_not_repeated() {
        assert!(refusal("echo tok; exit 3").contains("ended with"));
        assert!(refusal("yes").contains("too much"));
        assert!(refusal("true").contains("empty"));
        let nonsense = refusal("echo '{\"valu\": \"s3cret\"}'");
        assert!(!nonsense.is_empty() && !nonsense.contains("s3cret"), "{nonsense}");
        assert!(refusal("printf 'a\\nb'").contains("more than one line"));
    }

    #[test]
    fn a_helper_gives_a_value_with_or_without_its_end() {
        let plain = helper("echo tok").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((plain.value.as_str(), plain.expires), ("tok", None));
        let dated =
            helper("echo '{\"value\":\"tok\",\"expires\":4000000000}'").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (dated.value.as_str(), dated.expires),
            ("tok", Some(4_000_000_000))
        );
    }

    #[test]
    fn words_are_split_without_a_shell() {
        assert_eq!(
            words("a  'b c' d\"e\" $F `g`").unwrap(),
            ["a", "b c", "de", "$F", "`g`"]
        );
        assert!(words("  ").is_err());
    }
}
