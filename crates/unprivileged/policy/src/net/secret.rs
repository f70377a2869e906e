//! What a credential is for and how it is sent; never its value.
use crate::effective::Origin;
use crate::host::{Host, HostPattern};
use crate::urlpath::{is_ambiguous, path_matches};
use bastle_contract::EnvName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest header line around a credential.
const MAX_HEADER: usize = 256;

/// What a credential is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretUse {
    /// Its name in the policy, and the variable that holds its placeholder inside.
    pub name: EnvName,
    /// Hosts it is for.
    pub hosts: Vec<HostPattern>,
    /// Ports it is for; empty means 443.
    pub ports: Vec<u16>,
    /// Methods it is for; empty means all.
    pub methods: Vec<String>,
    /// Paths it is for; empty means all.
    pub paths: Vec<String>,
    /// How it is sent.
    pub header: SecretHeader,
    /// Where the policy says so.
    pub origin: Origin,
}

/// How a credential is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SecretHeader {
    /// A header whose value is `before`, the credential, `after`.
    Field {
        /// Name of the header, as written.
        name: String,
        /// What stands before the credential.
        before: String,
        /// What stands after it.
        after: String,
    },
    /// `Authorization: Basic`, with this user and the credential as the password.
    Basic {
        /// The user.
        user: String,
    },
}

impl SecretUse {
    /// Whether it is for this host and port.
    #[must_use]
    pub fn is_for(&self, host: &Host, port: u16) -> bool {
        let dialled = if self.ports.is_empty() {
            port == 443
        } else {
            self.ports.contains(&port)
        };
        dialled && self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether it is for a request with this method and path. A path that two readers decode differently is not.
    #[must_use]
    pub fn covers(&self, method: &str, path: &str) -> bool {
        let methods = self.methods.is_empty() || self.methods.iter().any(|own| own == method);
        let paths = self.paths.is_empty()
            || (!is_ambiguous(path) && self.paths.iter().any(|own| path_matches(own, path)));
        methods && paths
    }
}

impl SecretHeader {
    /// Reads `NAME: TEXT{}TEXT`, or `basic:USER`.
    pub fn new(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!("{text:?} is not a header: {why}; write \"x-api-key: {{}}\" or \"basic:USER\"")
        };
        let printable = |text: &str| text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if text.len() > MAX_HEADER || !printable(text) {
            return Err(refuse("only printable ASCII"));
        }
        if let Some(user) = text.strip_prefix("basic:") {
            if user.is_empty() || user.contains([':', ' ']) {
                return Err(refuse("the user has no colon or space"));
            }
            return Ok(Self::Basic {
                user: user.to_owned(),
            });
        }
        let (name, value) = text.split_once(':').ok_or_else(|| refuse("no colon"))?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(refuse("the name is no header name"));
        }
        // These frame the request or name its destination: a credential in one would change what was judged.
        const FRAMING: &[&str] = &[
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "te",
            "trailer",
            "expect",
            "keep-alive",
            "content-type",
            "content-encoding",
        ];
        if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(refuse("this header frames the request"));
        }
        let value = value.trim();
        let (before, after) = value.split_once("{}").ok_or_else(|| refuse("no {}"))?;
        if after.contains("{}") {
            return Err(refuse("{} stands once"));
        }
        Ok(Self::Field {
            name: name.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// Name of the header that carries it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Field { name, .. } => name,
            Self::Basic { .. } => "Authorization",
        }
    }
}

impl Default for SecretHeader {
    /// `Authorization: Bearer {}`.
    fn default() -> Self {
        Self::Field {
            name: "Authorization".to_owned(),
            before: "Bearer ".to_owned(),
            after: String::new(),
        }
    }
}

impl TryFrom<String> for SecretHeader {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text)
    }
}

impl From<SecretHeader> for String {
    fn from(header: SecretHeader) -> Self {
        header.to_string()
    }
}

impl fmt::Display for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { name, before, after } => write!(f, "{name}: {before}{{}}{after}"),
            Self::Basic { user } => write!(f, "basic:{user}"),
        }
    }
}
