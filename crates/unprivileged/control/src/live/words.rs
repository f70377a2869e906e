//! What can be said to a living run.
use bastle_contract::grants::GrantWay;
use bastle_contract::{AbsPath, Access};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest line in either direction.
pub(crate) const MOST_LINE: usize = 16 * 1024;
/// Longest rule or id.
const MOST_TARGET: usize = 2048;
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
    },
    /// Refuse a rule's hosts, or what an id stands for.
    Deny {
        /// A rule or an id.
        target: String,
    },
    /// Take a rule back that was allowed or refused while the run lived.
    Revoke {
        /// The rule.
        target: String,
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
    },
    /// Take a granted path back.
    Withdraw {
        /// The path.
        path: AbsPath,
    },
    /// What the run does.
    Status {},
}

/// A grant that a person wishes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantWish {
    pub(crate) path: AbsPath,
    pub(crate) access: Access,
    pub(crate) way: GrantWay,
    pub(crate) lasts: Option<Duration>,
}

impl Command {
    /// Reads one line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        let command: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match &command {
            Self::Allow { target, .. } | Self::Deny { target } | Self::Revoke { target }
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
            Self::Grant { path, .. } | Self::Withdraw { path }
                if path.as_str().len() > MOST_TARGET || path.as_str().chars().any(char::is_control) =>
            {
                Err(format!(
                    "a path that is granted has at most {MOST_TARGET} bytes and no control characters"
                ))
            }
            Self::Grant { .. }
            | Self::Withdraw { .. }
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
            r#"{"op":"kill"}"#,
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
        };
        assert_eq!(
            Command::parse(br#"{"op":"allow","target":"a.example"}"#).unwrap(),
            allow
        );
    }
}
