//! What can be said to a living run.
use serde::{Deserialize, Serialize};

/// Longest line in either direction.
pub(crate) const MOST_LINE: usize = 16 * 1024;
/// Longest rule or id.
const MOST_TARGET: usize = 2048;

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
    /// What the run does.
    Status {},
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
            Self::Allow { .. }
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
