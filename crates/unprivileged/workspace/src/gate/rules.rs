//! The gate's rules as data: patterns of paths with a class, a tier and a reason.
//!
//! **Trust:** the file is part of the program; it is checked when loaded all the same, because a rule that does
//! not parse would be a hole.
use bastle_contract::{Code, Fault, NamePattern};
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

/// When a path rule applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum When {
    /// On any change.
    #[default]
    Changed,
    /// When the text names hosts that it did not name before.
    NewHosts,
    /// When one of these members of a JSON object differs.
    JsonKeys(Vec<String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathRule {
    pub(super) id: String,
    pub(super) class: Class,
    pub(super) tier: Tier,
    pub(super) why: String,
    pub(super) paths: Vec<NamePattern>,
    #[serde(default)]
    pub(super) when: When,
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

/// All rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rules {
    format: u8,
    pub(super) rules: Vec<PathRule>,
    pub(super) secrets: Vec<SecretRule>,
    pub(super) secret_names: Vec<String>,
}

impl Rules {
    /// The rules of this build.
    ///
    /// # Errors
    /// When they are malformed: a defect of the build.
    pub fn builtin() -> Result<Self, Fault> {
        Self::parse(include_str!("rules.json"))
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let fail = |why: String| Fault::new(Code::WorkspaceApproval, "rules of the import gate", why);
        let rules: Self = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
        if rules.format != 1 {
            return Err(fail(format!("format {} is unknown", rules.format)));
        }
        match rules.rules.iter().find(|rule| rule.paths.is_empty()) {
            Some(rule) => Err(fail(format!("rule {} names no path", rule.id))),
            None => Ok(rules),
        }
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
