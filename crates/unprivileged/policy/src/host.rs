//! One canonical spelling of a host name, shared by rules, queries and (later) the resolver and the dialler.
//!
//! **Trust:** built from untrusted text. A [`Host`] that exists is lower case, IDNA-encoded, without a trailing dot.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// A canonical host: a DNS name or an IPv4 address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host {
    text: String,
    literal: bool,
}

/// A host or all its subdomains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// Exactly this host.
    Exact(Host),
    /// Every name below this one, not itself: `*.x.com`.
    Below(Host),
}

/// Why a host was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing, too long, or a byte that has no place in a name.
    #[error("{0:?} is not a host name")]
    Malformed(String),
    /// Something that only looks like a plain decimal address.
    #[error("{0:?} is an ambiguous IP address; write four decimal numbers")]
    AmbiguousAddress(String),
    /// `*`, `*.com`, `a*.b`.
    #[error("wildcard {0:?} is too wide or misplaced; only *.NAME.TLD is accepted, for subdomains")]
    Wildcard(String),
}

impl Host {
    /// Longest name, by DNS.
    const MAX: usize = 253;

    /// Checks `text` and takes its canonical form. One trailing dot is dropped.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let malformed = || HostError::Malformed(text.to_owned());
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() || bare.len() > 1024 || bare.chars().any(has_no_place) {
            return Err(malformed());
        }
        let ascii = if bare.is_ascii() {
            bare.to_ascii_lowercase()
        } else {
            idna::domain_to_ascii_strict(bare).map_err(|_| malformed())?
        };
        // Punycode must decode to something IDNA accepts, or two spellings of one name would differ.
        if ascii.split('.').any(|label| label.starts_with("xn--")) {
            let (_, outcome) = idna::domain_to_unicode(&ascii);
            outcome.map_err(|_| malformed())?;
        }
        let labels_fit = ascii.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
        if ascii.len() > Self::MAX || !labels_fit {
            return Err(malformed());
        }
        // A last label of digits (or 0x…) is read as an address by URL parsers: only the plain form is taken.
        let last = ascii.rsplit('.').next().unwrap_or_default();
        let numeric = last.bytes().all(|b| b.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        if !numeric {
            return Ok(Self {
                text: ascii,
                literal: false,
            });
        }
        match ascii.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self {
                text: address.to_string(),
                literal: true,
            }),
            Err(_) => Err(HostError::AmbiguousAddress(text.to_owned())),
        }
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this is an IP address.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.literal
    }

    /// Whether this names the machine itself or a cloud metadata service: never reachable, whatever a policy says.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        if let Ok(address) = self.text.parse::<Ipv4Addr>() {
            return address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast();
        }
        let name = self.text.as_str();
        let below = |suffix: &str| {
            name.strip_suffix(suffix)
                .is_some_and(|head| head.is_empty() || head.ends_with('.'))
        };
        below("localhost")
            || below("metadata.google.internal")
            || name == "metadata"
            || name == "instance-data"
    }

    fn is_below(&self, parent: &Self) -> bool {
        self.text
            .strip_suffix(&parent.text)
            .is_some_and(|head| head.ends_with('.'))
    }
}

/// Bytes that end, split or disguise a host in some reader: refused before IDNA maps any of them away.
fn has_no_place(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(
            c,
            '/' | '\\' | ':' | '@' | '%' | '#' | '?' | '*' | '[' | ']' | ',' | '_' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{ad}'
        )
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Host {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        Self::new(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.text
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        Self::new(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl HostPattern {
    /// Checks `text`: a host, or `*.` and a host of at least two labels.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let Some(parent) = text.strip_prefix("*.") else {
            if text.contains('*') {
                return Err(HostError::Wildcard(text.to_owned()));
            }
            return Host::new(text).map(Self::Exact);
        };
        if parent.contains('*') {
            return Err(HostError::Wildcard(text.to_owned()));
        }
        let parent = Host::new(parent)?;
        if parent.literal || !parent.text.contains('.') {
            return Err(HostError::Wildcard(text.to_owned()));
        }
        Ok(Self::Below(parent))
    }

    /// Whether `host` is named.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(own) => own == host,
            Self::Below(parent) => host.is_below(parent),
        }
    }

    /// Whether everything `other` names is named by this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Below(parent), Self::Below(below)) => below == parent || below.is_below(parent),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }

    /// The host it is about.
    #[must_use]
    pub fn host(&self) -> &Host {
        match self {
            Self::Exact(host) | Self::Below(host) => host,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_spelling_of_a_host_has_one_canonical_form() {
        for (spelling, canonical) in [
            ("API.Anthropic.COM.", "api.anthropic.com"),
            ("münchen.de", "xn--mnchen-3ya.de"),
            ("MÜNCHEN.de", "xn--mnchen-3ya.de"),
            ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
            ("ｅxample.com", "example.com"),
        ] {
            assert_eq!(
                Host::new(spelling).map(|h| h.to_string()),
                Ok(canonical.to_owned()),
                "{spelling}"
            );
        }
    }

    #[test]
    fn a_disguised_or_malformed_host_is_refused() {
        let long = format!("{}.com", "a".repeat(64));
        let longer = vec!["a".repeat(60); 5].join(".");
        for bad in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a\n",
            "a\0b",
            "u@h",
            "h:80",
            "h/p",
            "h%41",
            "h#f",
            "h?q",
            "h\\x",
            "-a.com",
            "a-.com",
            "_dmarc.a.com",
            "a_b.com",
            "[::1]",
            "a,b",
            "xn--a",
            "xn--zzzzzzzz99999.com",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "1.2.3.4.5",
            "256.1.1.1",
            "a.com..",
            "a\u{200b}.com",
            "a\u{202e}.com",
            long.as_str(),
            longer.as_str(),
        ] {
            assert!(Host::new(bad).is_err(), "{bad:?} became {:?}", Host::new(bad));
        }
    }

    #[test]
    fn the_machine_itself_and_metadata_services_are_forbidden() {
        for bad in [
            "localhost",
            "x.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "0.0.0.0",
            "metadata.google.internal",
        ] {
            assert!(Host::new(bad).unwrap().is_forbidden(), "{bad}");
        }
        for fine in ["notlocalhost", "example.com", "8.8.8.8"] {
            assert!(!Host::new(fine).unwrap().is_forbidden(), "{fine}");
        }
    }

    #[test]
    fn a_wildcard_names_subdomains_and_never_the_apex_or_a_look_alike() {
        let rule = HostPattern::new("*.x.com").unwrap();
        let matches = |name: &str| rule.matches(&Host::new(name).unwrap());
        assert!(matches("a.x.com") && matches("b.a.x.com"));
        assert!(!matches("x.com") && !matches("ax.com") && !matches("a.x.com.evil.org"));
        for bad in [
            "*",
            "*.",
            "*.com",
            "*.*.com",
            "a*.com",
            "a.*.com",
            "*x.com",
            "*.1.2.3.4",
        ] {
            assert!(HostPattern::new(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_a_canonical_host_stays_the_same(text in "\\PC{0,40}") {
            if let Ok(host) = Host::new(&text) {
                prop_assert_eq!(Host::new(host.as_str()), Ok(host));
            }
        }
    }
}
