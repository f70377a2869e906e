//! Network rules: `[METHODS ]HOST[:port][/path]` or `group:NAME`, and what they ask of a request beyond its name.
//!
//! **Trust:** built from untrusted text. In an allow rule doubt is no match; in a deny or ask rule doubt is a hit.
use crate::host::{Host, HostPattern};
use crate::terms::{Operation, Operations, Terms};
use crate::urlpath::{check_path, is_ambiguous, path_matches};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One rule about requests that go out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RuleForm", into = "RuleForm")]
pub struct NetRule {
    /// Methods in canonical order; empty means every method.
    pub methods: Vec<String>,
    /// Where to.
    pub target: NetTarget,
    /// Port, if the rule names one.
    pub port: Option<u16>,
    /// Path pattern starting with `/`, if the rule names one: `*` within a segment, `**` across.
    pub path: Option<String>,
    /// What it asks beyond.
    pub terms: Terms,
}

/// A rule as it is written: a text, or an object around one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RuleForm {
    Text(String),
    Full(RuleObject),
}

/// The object form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RuleObject {
    pub(crate) rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rpc: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) graphql: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_body: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) websocket: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) opaque: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) headers: Option<Vec<String>>,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetTarget {
    /// A host or its subdomains.
    Host(HostPattern),
    /// A named group whose hosts are resolved later; until then it names nothing.
    Group(String),
}

/// The parts of a request a rule looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// `None`: any method, so only a rule without methods covers it.
    pub(crate) method: Option<&'a str>,
    pub(crate) host: &'a Host,
    pub(crate) port: u16,
    /// `None`: any path.
    pub(crate) path: Option<&'a str>,
    /// What its body asks for; `None`: not known.
    pub(crate) operation: Option<&'a Operation>,
    /// Whether it asks for a WebSocket.
    pub(crate) websocket: bool,
}

impl NetRule {
    /// Checks `text`.
    pub fn new(text: &str) -> Result<Self, String> {
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (parse_methods(methods)?, rest),
            None => (Vec::new(), text),
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => (&rest[..slash], Some(&rest[slash..])),
            None => (rest, None),
        };
        let (target, port) = parse_authority(authority)?;
        let path = match path {
            None | Some("/**") => None,
            Some(path) => Some(check_path(path)?),
        };
        Ok(Self {
            methods,
            target,
            port,
            path,
            terms: Terms::default(),
        })
    }

    /// This rule with terms, where they go together.
    pub fn with(self, terms: Terms) -> Result<Self, String> {
        let rule = Self { terms, ..self };
        if rule.terms.opaque {
            let plain = rule.methods.is_empty()
                && rule.path.is_none()
                && rule.terms.operations == Operations::Any
                && rule.terms.max_body.is_none()
                && !rule.terms.websocket
                && rule.terms.headers.is_empty();
            // Plain HTTP is parsed always; and without a port the rule would open 443 to anything at all.
            if !plain || rule.port.is_none_or(|port| port == 80) {
                return Err(
                    "\"opaque\" goes with HOST:PORT alone (not port 80): nothing inside is looked at"
                        .to_owned(),
                );
            }
        }
        Ok(rule)
    }

    /// Whether this rule allows everything that `asked` may be.
    pub(crate) fn allows(&self, asked: &Asked<'_>) -> bool {
        self.allows_but_operations(asked)
            && self.terms.operations.allow(asked.operation)
            && (self.terms.websocket || !asked.websocket)
    }

    /// [`Self::allows`] but for what its terms ask.
    pub(crate) fn allows_but_operations(&self, asked: &Asked<'_>) -> bool {
        // The host first: it rules nearly every rule out, at the least cost.
        if !self.meets_host(asked) {
            return false;
        }
        let method = self.methods.is_empty()
            || asked
                .method
                .is_some_and(|m| self.methods.iter().any(|own| own == m));
        let path = match (&self.path, asked.path) {
            (None, _) => true,
            (Some(_), None) => false,
            // A path that two readers decode differently is not what the rule meant.
            (Some(pattern), Some(path)) => !is_ambiguous(path) && path_matches(pattern, path),
        };
        method && path
    }

    /// Whether this rule speaks about anything that `asked` may be: for deny and ask, where doubt counts as a hit.
    pub(crate) fn meets(&self, asked: &Asked<'_>) -> bool {
        self.meets_but_operations(asked) && self.terms.operations.meet(asked.operation)
    }

    /// [`Self::meets`] but for what the body asks.
    pub(crate) fn meets_but_operations(&self, asked: &Asked<'_>) -> bool {
        // The host first: it rules nearly every rule out, at the least cost.
        if !self.meets_host(asked) {
            return false;
        }
        let method = self.methods.is_empty()
            || asked
                .method
                .is_none_or(|m| self.methods.iter().any(|own| own == m));
        let path = match (&self.path, asked.path) {
            (None, _) | (Some(_), None) => true,
            (Some(pattern), Some(path)) => is_ambiguous(path) || path_matches(pattern, path),
        };
        method && path
    }

    /// Whether the rule is about this host and port; port 0 asks about any.
    pub(crate) fn meets_host(&self, asked: &Asked<'_>) -> bool {
        self.names(asked.host) && (asked.port == 0 || self.port.is_none_or(|port| port == asked.port))
    }

    /// Whether the rule is about this host, on whatever port.
    pub(crate) fn names(&self, host: &Host) -> bool {
        match &self.target {
            NetTarget::Host(pattern) => pattern.matches(host),
            NetTarget::Group(_) => false,
        }
    }

    /// Whether it speaks about whole connections: nothing inside one makes a difference to it.
    pub(crate) fn is_whole(&self) -> bool {
        self.methods.is_empty()
            && self.path.is_none()
            && self.terms.operations == Operations::Any
            && self.terms.max_body.is_none()
    }

    /// Whether everything `other` allows is allowed by this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let target = match (&self.target, &other.target) {
            (NetTarget::Host(a), NetTarget::Host(b)) => a.covers(b),
            (NetTarget::Group(a), NetTarget::Group(b)) => a == b,
            (NetTarget::Host(_), NetTarget::Group(_)) | (NetTarget::Group(_), NetTarget::Host(_)) => false,
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|m| self.methods.contains(m)));
        let port = self.port.is_none() || self.port == other.port;
        let path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => a == b || (!b.contains('*') && path_matches(a, b)) || prefix_covers(a, b),
        };
        target && methods && port && path && self.terms.covers(&other.terms)
    }
}

/// `a` of the form `PREFIX/**` covers whatever starts with that prefix before its first wildcard.
fn prefix_covers(a: &str, b: &str) -> bool {
    let Some(prefix) = a.strip_suffix("**") else {
        return false;
    };
    let literal = b.find('*').map_or(b, |star| &b[..star]);
    !prefix.contains('*') && literal.starts_with(prefix)
}

fn parse_methods(text: &str) -> Result<Vec<String>, String> {
    let mut methods: Vec<String> = text.split(',').map(str::to_owned).collect();
    if methods
        .iter()
        .any(|m| m.is_empty() || m.len() > 20 || !m.bytes().all(|b| b.is_ascii_uppercase()))
    {
        return Err(format!("{text:?} is not a list of methods such as GET,HEAD"));
    }
    methods.sort();
    methods.dedup();
    Ok(methods)
}

fn parse_authority(text: &str) -> Result<(NetTarget, Option<u16>), String> {
    if let Some(group) = text.strip_prefix("group:") {
        let (name, port) = split_port(group)?;
        let fits = !name.is_empty()
            && name
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        return if fits {
            Ok((NetTarget::Group(name.to_owned()), port))
        } else {
            Err(format!("{name:?} is not a group name"))
        };
    }
    let (host, port) = split_port(text)?;
    let pattern = HostPattern::new(host).map_err(|e| e.to_string())?;
    Ok((NetTarget::Host(pattern), port))
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let Some((name, port)) = text.split_once(':') else {
        return Ok((text, None));
    };
    let plain = !port.starts_with('0') && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if plain => Ok((name, Some(number))),
        Ok(_) | Err(_) => Err(format!("{port:?} is not a port between 1 and 65535")),
    }
}

impl fmt::Display for NetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        match &self.target {
            NetTarget::Host(pattern) => write!(f, "{pattern}")?,
            NetTarget::Group(name) => write!(f, "group:{name}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.path.as_deref().unwrap_or_default())?;
        self.terms.fmt(f)
    }
}

impl TryFrom<RuleForm> for NetRule {
    type Error = String;

    fn try_from(form: RuleForm) -> Result<Self, String> {
        match form {
            RuleForm::Text(text) => Self::new(&text),
            RuleForm::Full(object) => Self::new(&object.rule)?.with(Terms::read(&object)?),
        }
    }
}

impl From<NetRule> for RuleForm {
    fn from(rule: NetRule) -> Self {
        let terms = rule.terms.clone();
        let text = NetRule {
            terms: Terms::default(),
            ..rule
        }
        .to_string();
        if terms == Terms::default() {
            return Self::Text(text);
        }
        Self::Full(terms.object(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> NetRule {
        NetRule::new(text).unwrap()
    }

    fn ask(rule: &NetRule, method: &str, host: &str, path: &str) -> bool {
        let host = Host::new(host).unwrap();
        rule.allows(&Asked {
            method: Some(method),
            host: &host,
            port: 443,
            path: Some(path),
            operation: None,
            websocket: false,
        })
    }

    #[test]
    fn a_rule_with_methods_and_a_path_allows_nothing_else() {
        let narrow = rule("GET,HEAD api.github.com/repos/acme/**");
        assert!(ask(&narrow, "GET", "api.github.com", "/repos/acme/x/y"));
        for (method, host, path) in [
            ("POST", "api.github.com", "/repos/acme/x"),
            ("GET", "github.com", "/repos/acme/x"),
            ("GET", "api.github.com", "/repos/acme-evil/x"),
            ("GET", "api.github.com", "/repos/acme/../evil"),
            ("GET", "api.github.com", "/repos/acme/%2e%2e/evil"),
            ("GET", "api.github.com", "/repos/acme/..%2fevil"),
            ("GET", "api.github.com", "/repos//acme/x"),
        ] {
            assert!(!ask(&narrow, method, host, path), "{method} {host}{path}");
        }
    }

    #[test]
    fn in_doubt_a_deny_rule_hits_and_an_allow_rule_does_not() {
        let host = Host::new("x.com").unwrap();
        let open = Asked {
            method: None,
            host: &host,
            port: 443,
            path: None,
            operation: None,
            websocket: false,
        };
        let narrow = rule("POST x.com/a");
        assert!(narrow.meets(&open) && !narrow.allows(&open));
    }

    #[test]
    fn a_malformed_rule_is_refused() {
        for bad in [
            "",
            " ",
            "get x.com",
            "GET,, x.com",
            "x.com:0",
            "x.com:99999",
            "x.com:080",
            "https://x.com",
            "x.com/a?b",
            "x.com/a b",
            "*",
            "*.com",
            "GET ",
            "x.com:",
            "group:",
            "group:A",
            "x.com/../a",
            "x.com/a**",
            "user@x.com",
        ] {
            assert!(NetRule::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_rule_covers_only_what_it_allows_in_full() {
        for (wide, narrow) in [
            ("*.x.com", "a.x.com"),
            ("x.com", "GET x.com:443/a"),
            ("GET,POST x.com", "GET x.com"),
            ("x.com/a/**", "x.com/a/b/*"),
        ] {
            assert!(rule(wide).covers(&rule(narrow)), "{wide} ⊇ {narrow}");
            assert!(!rule(narrow).covers(&rule(wide)), "{narrow} ⊉ {wide}");
        }
    }
}
