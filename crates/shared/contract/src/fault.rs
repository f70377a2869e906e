//! One shape for every error a person sees: what, where, why, and the command that helps.
use crate::Code;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An error with a stable code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Stable code; `bastle explain CODE` tells more.
    pub code: Code,
    /// What failed, on what.
    pub what: String,
    /// Why, as far as known; may be empty.
    pub why: String,
    /// What to do: exact commands or settings.
    pub help: Vec<String>,
}

impl Fault {
    /// A fault with its reason.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            why: why.into(),
            help: Vec::new(),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.what)?;
        if self.why.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.why)
        }
    }
}

impl std::error::Error for Fault {}
