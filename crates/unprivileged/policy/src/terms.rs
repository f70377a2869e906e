//! What a network rule asks of a request beyond its name: operations in its body, its size, an upgrade.
//!
//! **Trust:** operation names come from the agent. A body nobody could read satisfies no allow rule and hits every
//! deny rule that asks about operations.
use crate::names::glob;
use crate::netrule::RuleObject;
use crate::units::{show_size, size};
use std::fmt;

/// Most operations one rule names: a person wrote them.
const MAX_OPERATIONS: usize = 512;

/// Longest operation pattern; no protocol has longer names in practice, and every one is matched per request.
const MAX_OPERATION: usize = 256;

/// What a rule asks beyond method, host, port and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Terms {
    /// Operations the body may ask for.
    pub operations: Operations,
    /// Largest body, in bytes.
    pub max_body: Option<u64>,
    /// Whether a WebSocket may be opened.
    pub websocket: bool,
    /// Whether the bytes need not be TLS: nothing inside the connection is looked at.
    pub opaque: bool,
    /// Credential headers of the agent's own that pass, in lower case.
    pub headers: Vec<String>,
}

/// Headers by which a client says who it is. Where requests are read they are taken out unless a rule lets them pass.
pub const CREDENTIAL_HEADERS: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "private-token",
    "job-token",
];

/// Operations a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operations {
    /// Whatever the body says.
    #[default]
    Any,
    /// JSON-RPC methods: `tools/list`, `tools/call:get_*`.
    Rpc(Vec<String>),
    /// GraphQL operations: `query`, `query:Get*`, `mutation:CreateIssue`.
    GraphQl(Vec<String>),
}

/// What a request's body asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// JSON-RPC methods, one per call of a batch; an MCP tool call is `tools/call:NAME`.
    Rpc(Vec<String>),
    /// GraphQL operations, `query`, `mutation` or `subscription` with `:NAME` where there is one.
    GraphQl(Vec<String>),
    /// It cannot be read: too long, compressed, malformed, or a reference to a stored query.
    Unreadable,
}

impl Operations {
    /// Whether every operation is among these; doubt is no.
    pub(crate) fn allow(&self, asked: Option<&Operation>) -> bool {
        match (self, asked) {
            (Self::Any, _) => true,
            (Self::Rpc(own), Some(Operation::Rpc(names)))
            | (Self::GraphQl(own), Some(Operation::GraphQl(names))) => {
                !names.is_empty() && names.iter().all(|name| named(own, name))
            }
            (Self::Rpc(_), Some(Operation::GraphQl(_) | Operation::Unreadable) | None)
            | (Self::GraphQl(_), Some(Operation::Rpc(_) | Operation::Unreadable) | None) => false,
        }
    }

    /// Whether some operation is among these; doubt is yes.
    pub(crate) fn meet(&self, asked: Option<&Operation>) -> bool {
        match (self, asked) {
            (Self::Any, _) => true,
            (Self::Rpc(own), Some(Operation::Rpc(names)))
            | (Self::GraphQl(own), Some(Operation::GraphQl(names))) => {
                names.iter().any(|name| named(own, name))
            }
            (Self::Rpc(_), Some(Operation::GraphQl(_) | Operation::Unreadable) | None)
            | (Self::GraphQl(_), Some(Operation::Rpc(_) | Operation::Unreadable) | None) => true,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        let all = |wide: &[String], narrow: &[String]| {
            narrow
                .iter()
                .all(|n| wide.contains(n) || (!n.contains('*') && named(wide, n)))
        };
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Rpc(a), Self::Rpc(b)) | (Self::GraphQl(a), Self::GraphQl(b)) => all(a, b),
            (Self::Rpc(_), Self::Any | Self::GraphQl(_)) | (Self::GraphQl(_), Self::Any | Self::Rpc(_)) => {
                false
            }
        }
    }
}

/// Whether a pattern names this operation. One without `:` speaks about every name of its kind.
fn named(patterns: &[String], name: &str) -> bool {
    let kind = name.split_once(':').map_or(name, |(kind, _)| kind);
    patterns.iter().any(|pattern| {
        glob(pattern.as_bytes(), name.as_bytes())
            || (!pattern.contains(':') && glob(pattern.as_bytes(), kind.as_bytes()))
    })
}

impl Terms {
    /// Reads the object form.
    pub(crate) fn read(object: &RuleObject) -> Result<Self, String> {
        let operations = match (&object.rpc, &object.graphql) {
            (None, None) => Operations::Any,
            (Some(names), None) => Operations::Rpc(checked(names, check_rpc)?),
            (None, Some(names)) => Operations::GraphQl(checked(names, check_graphql)?),
            (Some(_), Some(_)) => return Err("a rule has \"rpc\" or \"graphql\", not both".to_owned()),
        };
        let max_body = match &object.max_body {
            None => None,
            Some(text) => Some(
                size(text).ok_or_else(|| format!("{text:?} is not understood; write it like \"1MiB\""))?,
            ),
        };
        Ok(Self {
            operations,
            max_body,
            websocket: object.websocket,
            opaque: object.opaque,
            headers: checked_headers(object.headers.as_deref().unwrap_or_default())?,
        })
    }

    /// The object form around `rule`.
    pub(crate) fn object(self, rule: String) -> RuleObject {
        let (rpc, graphql) = match self.operations {
            Operations::Any => (None, None),
            Operations::Rpc(names) => (Some(names), None),
            Operations::GraphQl(names) => (None, Some(names)),
        };
        RuleObject {
            rule,
            rpc,
            graphql,
            max_body: self.max_body.map(show_size),
            websocket: self.websocket,
            opaque: self.opaque,
            headers: (!self.headers.is_empty()).then_some(self.headers),
        }
    }

    /// Whether what `other` allows beyond the name is allowed by these.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let body = self
            .max_body
            .is_none_or(|most| other.max_body.is_some_and(|less| less <= most));
        self.operations.covers(&other.operations)
            && body
            && (self.websocket || !other.websocket)
            && (self.opaque || !other.opaque)
            && other.headers.iter().all(|name| self.headers.contains(name))
    }
}

/// Names of headers that are taken out otherwise; others pass anyway, and naming one would promise something.
fn checked_headers(names: &[String]) -> Result<Vec<String>, String> {
    let mut headers: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    // It speaks to the proxy, which is egress itself.
    let known = |name: &str| name != "proxy-authorization" && CREDENTIAL_HEADERS.contains(&name);
    if let Some(bad) = headers.iter().find(|name| !known(name)) {
        return Err(format!(
            "{bad:?} is not a credential header; \"headers\" names some of {}",
            CREDENTIAL_HEADERS
                .into_iter()
                .filter(|name| known(name))
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    headers.sort();
    headers.dedup();
    Ok(headers)
}

fn checked(names: &[String], check: fn(&str) -> bool) -> Result<Vec<String>, String> {
    if names.is_empty() || names.len() > MAX_OPERATIONS {
        return Err(format!("between 1 and {MAX_OPERATIONS} operations are named"));
    }
    if let Some(bad) = names
        .iter()
        .find(|name| name.len() > MAX_OPERATION || !check(name))
    {
        return Err(format!("{bad:?} is not the name of an operation"));
    }
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    Ok(names)
}

/// `METHOD` or `METHOD:NAME`, `*` for any text.
pub(crate) fn check_rpc(name: &str) -> bool {
    let part = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'$' | b'*' | b'-'))
    };
    name.split_once(':')
        .map_or_else(|| part(name), |(method, tool)| part(method) && part(tool))
}

/// `query`, `mutation` or `subscription`, with `:NAME` or not.
pub(crate) fn check_graphql(name: &str) -> bool {
    let (kind, operation) = name
        .split_once(':')
        .map_or((name, None), |(kind, operation)| (kind, Some(operation)));
    matches!(kind, "query" | "mutation" | "subscription")
        && operation.is_none_or(|text| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'*'))
        })
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match &self.operations {
            Operations::Any => {}
            Operations::Rpc(names) => parts.push(format!("rpc {}", names.join(","))),
            Operations::GraphQl(names) => parts.push(format!("graphql {}", names.join(","))),
        }
        parts.extend(self.max_body.map(|most| format!("maxBody {}", show_size(most))));
        parts.extend(self.websocket.then(|| "websocket".to_owned()));
        parts.extend(self.opaque.then(|| "opaque".to_owned()));
        if !self.headers.is_empty() {
            parts.push(format!("headers {}", self.headers.join(",")));
        }
        if parts.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", parts.join("; "))
    }
}
