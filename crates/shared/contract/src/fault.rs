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
    /// The same told with an excerpt of a file. Not serialised, so that it stays in the process of the file's reader.
    #[serde(skip)]
    pub local: Option<Box<LocalFault>>,
}

/// The texts of a fault for a person at the terminal who may read the file it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFault {
    /// What failed; may quote the file.
    pub what: String,
    /// Why; may hold an excerpt of the file.
    pub why: String,
    /// Remedies, each a command or a sentence; printed after the reason.
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
            local: None,
        }
    }

    /// Keeps the present texts for a local reader and tells everybody else `what` and `why`, which quote no file.
    #[must_use]
    pub fn withhold(self, what: impl Into<String>, why: impl Into<String>) -> Self {
        let local = LocalFault {
            what: self.what,
            why: self.why,
            help: self.help,
        };
        Self {
            local: Some(Box::new(local)),
            ..Self::new(self.code, what, why)
        }
    }

    /// The fault with the excerpt, for the terminal of the person who may read the file.
    #[must_use]
    pub fn for_local_reader(&self) -> Self {
        match self.local.as_deref() {
            None => self.clone(),
            Some(local) => Self {
                code: self.code,
                what: local.what.clone(),
                why: local.why.clone(),
                help: local.help.clone(),
                local: None,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withheld_is_neither_serialised_nor_displayed() {
        let fault = Fault::new(Code::PolicySyntax, "unexpected SECRET", "1 | SECRET")
            .help("remove SECRET")
            .withhold("a.json is not a valid policy file", "line 1, column 3");
        let sent = serde_json::to_string(&fault).unwrap();
        assert!(!sent.contains("SECRET"), "{sent}");
        assert!(!fault.to_string().contains("SECRET"), "{fault}");
        assert!(sent.contains("line 1, column 3"), "{sent}");
        let back: Fault = serde_json::from_str(&sent).unwrap();
        assert_eq!(back.for_local_reader(), back);
        let shown = fault.for_local_reader();
        assert_eq!(shown.what, "unexpected SECRET");
        assert_eq!((shown.why.as_str(), shown.help.len()), ("1 | SECRET", 1));
    }
}
