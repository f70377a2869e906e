//! The gate's rules as data: the catalogue of names, the allow list of plain kinds, the marks of secrets.
//!
//! **Trust:** the data is part of the program; it is checked when loaded all the same, because a rule that does
//! not parse would be a hole.
use super::catalogue::Catalogue;
use super::plain::PlainKinds;
use bastle_contract::{Code, Fault, HostExecuted};
use serde::{Deserialize, Serialize};

/// What sort of risk a change carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Text that runs only as part of the project.
    Source,
    /// Something on the host runs or obeys it without being asked.
    ExecutesOnHost,
    /// Packages would come from elsewhere.
    Redirect,
    /// Bytes that cannot be reviewed as text.
    Binary,
    /// Permission bits.
    Mode,
    /// Extended attributes.
    Attributes,
    /// A symbolic link.
    Symlink,
    /// A nested repository, or what names one.
    Submodule,
    /// Looks like a credential.
    Secret,
    /// Very large.
    Large,
    /// Text or a name that reads differently from what it is.
    Deceptive,
    /// Its kind is on no list, and it may be something that the host executes or obeys.
    Unknown,
    /// A check, a pin or a limit goes away.
    RestrictionRemoved,
    /// The project's ignore files name it.
    Ignored,
    /// Belongs to git itself, or is no file at all.
    Forbidden,
}

/// What must happen before a change is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Tier {
    /// Applied.
    Note,
    /// Applied and pointed out.
    Flag,
    /// Left out until its content is approved.
    Approve,
    /// Never applied.
    Refuse,
}

/// One reason to look at a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The class.
    pub class: Class,
    /// What it takes.
    pub tier: Tier,
    /// The rule's name.
    pub rule: String,
    /// For people; escapes neutralised.
    pub why: String,
}

/// The characters that follow a secret's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Alphabet {
    /// Letters, digits, `_`, `-`, `.`.
    Word,
    /// Upper-case letters and digits.
    Upper,
    /// Words that end with `PRIVATE KEY-----`.
    KeyHeader,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretRule {
    pub(super) id: String,
    pub(super) prefix: String,
    pub(super) then: Alphabet,
    pub(super) least: usize,
    pub(super) why: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SecretRules {
    format: u8,
    pub(super) secrets: Vec<SecretRule>,
    pub(super) secret_names: Vec<String>,
}

impl SecretRules {
    pub(super) fn builtin() -> Result<Self, String> {
        let rules: Self =
            serde_json::from_str(include_str!("rules.json")).map_err(|error| error.to_string())?;
        match rules.format {
            2 => Ok(rules),
            other => Err(format!("format {other} is unknown")),
        }
    }
}

/// All rules: the catalogue of names, the allow list of plain kinds, and the marks of secrets.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) catalogue: Catalogue,
    pub(super) plain: PlainKinds,
    pub(super) secrets: SecretRules,
}

impl Rules {
    /// The rules of this build over a catalogue of names that the host executes. The catalogue is handed in because
    /// its data is policy, which this crate does not depend on.
    ///
    /// # Errors
    /// When the catalogue is empty or the data of this build is malformed.
    pub fn new(catalogue: &'static [HostExecuted]) -> Result<Self, Fault> {
        let fail = |why: String| Fault::new(Code::WorkspaceApproval, "rules of the import gate", why);
        if catalogue.is_empty() {
            return Err(fail("the catalogue of names is empty".to_owned()));
        }
        Ok(Self {
            catalogue: Catalogue::new(catalogue),
            plain: PlainKinds::parse(include_str!("plain-kinds.json")).map_err(fail)?,
            secrets: SecretRules::builtin().map_err(fail)?,
        })
    }
}

impl TryFrom<u8> for Tier {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            1 => Ok(Self::Note),
            2 => Ok(Self::Flag),
            3 => Ok(Self::Approve),
            4 => Ok(Self::Refuse),
            _ => Err(format!("a tier is 1 to 4, not {number}")),
        }
    }
}

impl From<Tier> for u8 {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Note => 1,
            Tier::Flag => 2,
            Tier::Approve => 3,
            Tier::Refuse => 4,
        }
    }
}
