//! What can be said to a living run.
use bastle_contract::grants::GrantWay;
use bastle_contract::runs::TtySize;
use bastle_contract::{AbsPath, Access, Argv, EnvName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest line: a command line of 128 KiB with every byte escaped is longer than what anybody executes.
pub(crate) const MOST_LINE: usize = 256 * 1024;
/// Longest time between being asked to end and being ended: an hour.
const MOST_GRACE: u64 = 3600 * 1000;
/// Most variables of one further command.
const MOST_VARIABLES: usize = 256;
/// Longest rule or id.
const MOST_TARGET: usize = 2048;
/// Longest name of who answers.
const MOST_BY: usize = 128;
/// Longest time of a grant: thirty days.
const MOST_SECONDS: u64 = 30 * 24 * 3600;

/// How long an answer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// For the first request it lets through.
    Once,
    /// Until the run ends.
    #[default]
    Session,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op", deny_unknown_fields)]
pub enum Command {
    /// Read the policy's sources again.
    Reload {},
    /// Allow a rule, or what an id stands for.
    Allow {
        /// A rule such as `GET api.example.com/v1/**`, or the id of a question or denial.
        target: String,
        /// How long.
        #[serde(default)]
        scope: Scope,
        /// What was asked, as it was shown: an answer to another question is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
        /// Who answers, as a daemon recognised them: the kind of principal and its id. A person when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Refuse a rule's hosts, or what an id stands for.
    Deny {
        /// A rule or an id.
        target: String,
        /// As for `allow`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
        /// As for `allow`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Take a rule back that was allowed or refused while the run lived.
    Revoke {
        /// The rule.
        target: String,
        /// As for `allow`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A value was removed from bastle's own store: secrets that come from it are used no more.
    RevokeSecret {
        /// Its name in the store.
        stored: String,
    },
    /// Show the run a path of the host.
    Grant {
        /// The path.
        path: AbsPath,
        /// Reading or also writing.
        access: Access,
        /// Mounted, or one file through the broker.
        way: GrantWay,
        /// After how long it ends by itself.
        #[serde(default)]
        seconds: Option<u64>,
        /// As for `allow`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Take a granted path back.
    Withdraw {
        /// The path.
        path: AbsPath,
        /// As for `allow`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// What the run does.
    Status {},
    /// Show what it prints, from a place in its output on; then both sides speak frames.
    Attach {
        /// Where to begin, as a record's place told; 0: with the first byte; without: only what comes.
        #[serde(default)]
        since: Option<u64>,
        /// Whether what is sent goes to its input.
        #[serde(default)]
        input: bool,
    },
    /// Tell what happens, from an event on; then frames.
    Watch {
        /// The last number that is known already.
        #[serde(default)]
        since: u64,
        /// Whether the run is for this watcher alone: when it goes, the agent is let go.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hold: bool,
    },
    /// A driven agent is asked nothing more: an idle one ends by itself, a working one is stopped.
    Finish {},
    /// Start a further command beside the agent, in the same fence; then both sides speak frames.
    Exec {
        /// What to run.
        argv: Argv,
        /// Variables beside those of the agent.
        #[serde(default)]
        env: Vec<(EnvName, String)>,
        /// Where; else where the agent started.
        #[serde(default)]
        cwd: Option<AbsPath>,
        /// A terminal of its own.
        #[serde(default)]
        tty: Option<TtySize>,
    },
    /// Connect to a port inside; then both sides speak frames.
    Dial {
        /// The port.
        port: u16,
    },
    /// Ask the agent to end; after the grace everything is killed.
    Stop {
        /// How long it may take, in milliseconds.
        grace_ms: u64,
    },
    /// End everything now.
    Kill {},
    /// Ask a driven agent something, or say something to it while it works.
    Say {
        /// What.
        text: String,
    },
    /// Have a driven agent stop what it does.
    Interrupt {},
    /// Make everything stand still.
    Pause {},
    /// Let it go on.
    Resume {
        /// Also where a file system has less left than the reserve.
        #[serde(default)]
        force: bool,
    },
}

/// A grant that a person wishes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantWish {
    pub(crate) path: AbsPath,
    pub(crate) access: Access,
    pub(crate) way: GrantWay,
    pub(crate) lasts: Option<Duration>,
    pub(crate) by: String,
}

impl Command {
    /// Reads one line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        let command: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match &command {
            Self::Allow { target, .. }
            | Self::Deny { target, .. }
            | Self::Revoke { target, .. }
            | Self::RevokeSecret { stored: target }
                if target.len() > MOST_TARGET || target.chars().any(char::is_control) =>
            {
                Err(format!(
                    "a target has at most {MOST_TARGET} bytes and no control characters"
                ))
            }
            Self::Grant { seconds, .. }
                if seconds.is_some_and(|seconds| !(1..=MOST_SECONDS).contains(&seconds)) =>
            {
                Err(format!("a grant lasts between one second and {MOST_SECONDS}"))
            }
            Self::Grant { path, .. } | Self::Withdraw { path, .. }
                if path.as_str().len() > MOST_TARGET || path.as_str().chars().any(char::is_control) =>
            {
                Err(format!(
                    "a path that is granted has at most {MOST_TARGET} bytes and no control characters"
                ))
            }
            Self::Allow { hash: Some(hash), .. } | Self::Deny { hash: Some(hash), .. }
                if hash.is_empty()
                    || hash.len() > 64
                    || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                Err("a hash has at most 64 hexadecimal digits".to_owned())
            }
            Self::Allow { by: Some(by), .. }
            | Self::Deny { by: Some(by), .. }
            | Self::Revoke { by: Some(by), .. }
            | Self::Grant { by: Some(by), .. }
            | Self::Withdraw { by: Some(by), .. }
                if by.is_empty() || by.len() > MOST_BY || by.chars().any(char::is_control) =>
            {
                Err(format!(
                    "who answers has 1 to {MOST_BY} bytes and no control characters"
                ))
            }
            Self::Stop { grace_ms } if *grace_ms > MOST_GRACE => {
                Err(format!("a grace has at most {MOST_GRACE} milliseconds"))
            }
            Self::Exec { env, .. } if env.len() > MOST_VARIABLES => Err(format!(
                "a command has at most {MOST_VARIABLES} variables of its own"
            )),
            Self::Exec { env, .. } if env.iter().any(|(_, value)| value.contains('\0')) => {
                Err("the value of a variable has no NUL byte".to_owned())
            }
            Self::Say { text } if text.is_empty() || text.contains('\0') => {
                Err("nothing is said, or a NUL byte".to_owned())
            }
            Self::Dial { port: 0 } => Err("a port is 1 to 65535".to_owned()),
            Self::Grant { .. }
            | Self::RevokeSecret { .. }
            | Self::Withdraw { .. }
            | Self::Attach { .. }
            | Self::Watch { .. }
            | Self::Finish {}
            | Self::Exec { .. }
            | Self::Dial { .. }
            | Self::Stop { .. }
            | Self::Kill {}
            | Self::Say { .. }
            | Self::Interrupt {}
            | Self::Pause {}
            | Self::Resume { .. }
            | Self::Allow { .. }
            | Self::Deny { .. }
            | Self::Revoke { .. }
            | Self::Reload {}
            | Self::Status {} => Ok(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_field_or_an_endless_target_is_refused() {
        let long = format!(r#"{{"op":"deny","target":"{}"}}"#, "a".repeat(4000));
        for bad in [
            "",
            "{}",
            r#"{"op":"end"}"#,
            r#"{"op":"stop"}"#,
            r#"{"op":"stop","grace_ms":99999999999}"#,
            r#"{"op":"attach","since":-1}"#,
            r#"{"op":"attach","since":0,"input":"yes"}"#,
            r#"{"op":"exec","argv":[]}"#,
            r#"{"op":"exec","argv":["a"],"env":[["A=B","x"]]}"#,
            r#"{"op":"exec","argv":["a"],"cwd":"x"}"#,
            r#"{"op":"dial","port":0}"#,
            r#"{"op":"allow","target":"q_1","hash":"zz"}"#,
            r#"{"op":"deny","target":"q_1","hash":""}"#,
            r#"{"op":"deny","target":"q_1","by":""}"#,
            r#"{"op":"allow","target":"q_1","by":"a\nb"}"#,
            r#"{"op":"reload","x":1}"#,
            r#"{"op":"allow"}"#,
            r#"{"op":"deny","target":"a\nb"}"#,
            r#"{"op":"grant","path":"/a/../etc","access":"read-only","way":"mount"}"#,
            r#"{"op":"grant","path":"relative","access":"read-only","way":"mount"}"#,
            r#"{"op":"grant","path":"/a","access":"all","way":"mount"}"#,
            r#"{"op":"grant","path":"/a","access":"read-only","way":"mount","seconds":0}"#,
            r#"{"op":"grant","path":"/a\nb","access":"read-only","way":"mount"}"#,
            r#"{"op":"withdraw","path":"a"}"#,
            &long,
        ] {
            assert!(Command::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let allow = Command::Allow {
            target: "a.example".into(),
            scope: Scope::Session,
            hash: None,
            by: None,
        };
        assert_eq!(
            Command::parse(br#"{"op":"allow","target":"a.example"}"#).unwrap(),
            allow
        );
    }
}
