//! The command line and the environment handed to the agent.
use serde::{Deserialize, Serialize};

/// The name of an environment variable: `[A-Za-z_][A-Za-z0-9_]*`, at most 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EnvName(String);

/// Why a variable name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable name {0:?} must match [A-Za-z_][A-Za-z0-9_]* and not be one that loads code ({1})"
)]
pub struct EnvNameError(String, &'static str);

/// Variables that make a program load or run code of the caller's choosing before its own first line.
/// They are never carried across the fence from the host's environment.
const LOADS_CODE: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
    "PERL5OPT",
    "RUBYOPT",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "PROMPT_COMMAND",
    "GCONV_PATH",
];

/// What to execute: 1–4096 arguments without NUL, together at most 128 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Argv(Vec<String>);

/// Why a command line was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgvError {
    /// No program.
    #[error("no command given; usage: bastle run -- COMMAND [ARGUMENT]...")]
    Empty,
    /// A NUL byte in an argument.
    #[error("argument {0} contains a NUL byte")]
    Nul(usize),
    /// Too many or too long.
    #[error(
        "the command line has {arguments} arguments and {bytes} bytes; at most 4096 and 131072 are accepted"
    )]
    TooLong {
        /// How many arguments.
        arguments: usize,
        /// How many bytes in all.
        bytes: usize,
    },
}

impl EnvName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for EnvName {
    type Error = EnvNameError;

    fn try_from(text: String) -> Result<Self, EnvNameError> {
        let mut bytes = text.bytes();
        let well_formed = text.len() <= 256
            && bytes.next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
            && bytes.all(|b| b == b'_' || b.is_ascii_alphanumeric());
        if !well_formed {
            return Err(EnvNameError(text, "malformed"));
        }
        if LOADS_CODE.contains(&text.as_str()) || text.starts_with("BASH_FUNC_") || text.starts_with("LD_") {
            return Err(EnvNameError(text, "loads code"));
        }
        Ok(Self(text))
    }
}

impl From<EnvName> for String {
    fn from(name: EnvName) -> Self {
        name.0
    }
}

impl Argv {
    /// The program and its arguments; never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// The program as typed.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.0[0]
    }
}

impl TryFrom<Vec<String>> for Argv {
    type Error = ArgvError;

    fn try_from(arguments: Vec<String>) -> Result<Self, ArgvError> {
        if arguments.first().is_none_or(String::is_empty) {
            return Err(ArgvError::Empty);
        }
        if let Some(index) = arguments.iter().position(|a| a.contains('\0')) {
            return Err(ArgvError::Nul(index));
        }
        let bytes = arguments.iter().map(String::len).sum();
        if arguments.len() > 4096 || bytes > 131_072 {
            return Err(ArgvError::TooLong {
                arguments: arguments.len(),
                bytes,
            });
        }
        Ok(Self(arguments))
    }
}

impl From<Argv> for Vec<String> {
    fn from(argv: Argv) -> Self {
        argv.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_loads_code_or_is_malformed_is_refused() {
        for bad in [
            "",
            "1A",
            "A-B",
            "A=B",
            "A\n",
            "LD_PRELOAD",
            "LD_DEBUG",
            "BASH_ENV",
            "NODE_OPTIONS",
            "BASH_FUNC_x",
            "É",
        ] {
            assert!(EnvName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(EnvName::try_from("RUST_LOG".to_owned()).is_ok());
    }

    #[test]
    fn an_empty_or_nul_command_is_refused() {
        assert_eq!(Argv::try_from(vec![]), Err(ArgvError::Empty));
        assert_eq!(Argv::try_from(vec![String::new()]), Err(ArgvError::Empty));
        assert_eq!(
            Argv::try_from(vec!["a".into(), "b\0".into()]),
            Err(ArgvError::Nul(1))
        );
        assert!(matches!(
            Argv::try_from(vec!["a".to_owned(); 5000]),
            Err(ArgvError::TooLong { .. })
        ));
    }
}
