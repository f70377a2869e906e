//! Requests that go out: one evaluator for `can-i`, `why`, in-file tests and the egress process.
//!
//! **Trust:** made by merging, so that what a project's file says only narrows. It travels to egress as JSON; reading
//! it checks every rule anew. Hosts, methods, paths and operations of the questions come from the agent.
mod address;
mod answer;
mod connect;
mod counting;
mod forge;
mod git;
mod headers;
mod models;
mod request;
mod secret;
mod selftest;

pub use address::Cidr;
pub use forge::{ForgeWrite, WriteKind};
pub use git::{Force, GitPush, PushKind, Remote};
pub(crate) use headers::UNREAD;
pub use models::{Declared, HostRole, ModelApi, ModelCall, ModelEndpoint, ModelPrice, UnlistedCall};
pub use secret::{SecretHeader, SecretUse};

use crate::decide::Decision;
use crate::document::{NetDefault, OnExceed};
use crate::effective::{GitRules, NetRules, Sourced};
use crate::host::{Host, HostPattern};
use crate::terms::Operation;
use bastle_contract::egress::BudgetKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Ports that may be dialled when no layer names any.
pub(crate) const USUAL_PORTS: [u16; 2] = [443, 80];

/// Hosts whose pushes are judged when nobody names others.
pub(crate) const GIT_HOSTS: &[&str] = &[
    "github.com",
    "api.github.com",
    "uploads.github.com",
    "gitlab.com",
    "bitbucket.org",
    "api.bitbucket.org",
    "codeberg.org",
    "dev.azure.com",
    "git.sr.ht",
];

/// How much network a run has; the stricter is the lesser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetMode {
    /// None: an empty network namespace.
    None,
    /// None, and nothing answers inside either: no proxy, no resolver.
    Offline,
    /// What rules allow.
    #[default]
    Allowlist,
    /// Everything that no rule denies. Only the command line says so.
    Open,
}

/// A proxy through which everything goes out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpstreamProxy {
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

/// What egress counts; `None`: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetBudget {
    /// Money, in millionths of a dollar.
    pub cost_micro_usd: Option<u64>,
    /// Model tokens.
    pub tokens: Option<u64>,
    /// Bytes out.
    pub bytes_out: Option<u64>,
    /// Bytes in.
    pub bytes_in: Option<u64>,
    /// Requests.
    pub requests: Option<u64>,
    /// Connections.
    pub connections: Option<u64>,
    /// Requests that a model answers.
    pub turns: Option<u64>,
    /// What follows when one is used up; `None`: pause where somebody can answer.
    pub on_exceed: Option<OnExceed>,
    /// Budgets given up by name where something cannot be counted; what can be counted still is.
    #[serde(default)]
    pub waived: Vec<BudgetKind>,
}

/// The rules about everything that goes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetPolicy {
    /// How much network there is.
    pub mode: NetMode,
    /// Whether what no rule names goes out for reading, to be learned.
    pub learn: bool,
    /// For hosts that no rule names.
    pub default: Sourced<NetDefault>,
    /// Hosts of the authority ceiling: no other one is reached, whatever a rule, a person or the mode allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Vec<HostPattern>>,
    /// Tiers; the first grants, the others only narrow.
    pub tiers: Vec<NetRules>,
    /// Whether IP addresses may be dialled.
    pub ip_literals: bool,
    /// Special addresses that allowed names may resolve to.
    pub addresses: Vec<Sourced<Cidr>>,
    /// Name servers; the host's are filled in before the run where no layer names any.
    pub resolvers: Vec<SocketAddr>,
    /// Names with fixed addresses, from the host's own table.
    pub hosts: Vec<(Host, IpAddr)>,
    /// A proxy through which everything goes out.
    pub upstream: Option<UpstreamProxy>,
    /// What each credential is for; never a value.
    pub secrets: Vec<SecretUse>,
    /// Pushing.
    pub git: GitRules,
    /// Hosts whose pushes are judged.
    pub git_hosts: Vec<HostPattern>,
    /// What the names in `git.remotes` stand for, from the workspace's own configuration.
    pub remotes: Vec<Remote>,
    /// Endpoints of models beside the built-in ones, and hosts that are none.
    pub models: Vec<ModelEndpoint>,
    /// What is counted.
    pub budget: NetBudget,
}

/// What is done with a connection, decided on its name before any lookup.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectVerdict {
    /// Refused.
    Deny(Decision),
    /// A person decides; without one attached: refused.
    Ask(Decision),
    /// Bytes pass. Unless [`Decision::opaque`] says otherwise they are TLS with the same name.
    Pass(Decision),
    /// What is inside is parsed, and every request judged by itself.
    Inspect(Decision),
}

/// One request, as it was parsed.
#[derive(Clone, Copy, Debug)]
pub struct NetRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Canonical host.
    pub host: &'a Host,
    /// Port.
    pub port: u16,
    /// Path without query.
    pub path: &'a str,
    /// Length of the body; `None`: not known.
    pub body_len: Option<u64>,
    /// What the body asks for, where it was read.
    pub operation: Option<&'a Operation>,
    /// Whether it asks for a WebSocket.
    pub websocket: bool,
}

/// What must be read of a request's body before it can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyNeed {
    /// The rules decide without the body.
    None,
    /// JSON-RPC.
    Rpc,
    /// GraphQL.
    GraphQl,
}

impl ConnectVerdict {
    /// The decision inside.
    pub fn decision(&self) -> &Decision {
        match self {
            Self::Deny(decision) | Self::Ask(decision) | Self::Pass(decision) | Self::Inspect(decision) => {
                decision
            }
        }
    }
}

impl NetPolicy {
    /// Every credential for this host and port.
    pub fn secrets_for<'p>(&'p self, host: &'p Host, port: u16) -> impl Iterator<Item = &'p SecretUse> {
        self.secrets
            .iter()
            .filter(move |secret| secret.is_for(host, port))
    }
}

impl<'p> IntoIterator for &'p NetPolicy {
    type Item = &'p NetRules;
    type IntoIter = std::slice::Iter<'p, NetRules>;

    fn into_iter(self) -> Self::IntoIter {
        self.tiers.iter()
    }
}

impl UpstreamProxy {
    /// Reads `http://HOST:PORT`.
    pub fn new(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not understood; write http://HOST:PORT");
        let rest = text.strip_prefix("http://").ok_or_else(refuse)?;
        let (host, port) = rest
            .strip_suffix('/')
            .unwrap_or(rest)
            .split_once(':')
            .ok_or_else(refuse)?;
        let plain = !port.starts_with('0') && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse::<u16>().ok().filter(|_| plain).ok_or_else(refuse)?;
        let host = Host::new(host).map_err(|e| e.to_string())?;
        Ok(Self { host, port })
    }
}

impl TryFrom<String> for UpstreamProxy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text)
    }
}

impl From<UpstreamProxy> for String {
    fn from(upstream: UpstreamProxy) -> Self {
        upstream.to_string()
    }
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl NetMode {
    /// The words of `--net`, in the order in which people are shown them.
    pub const NAMES: &[&str] = &["none", "allowlist", "open", "offline"];

    /// The word of `--net`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Offline => "offline",
            Self::Allowlist => "allowlist",
            Self::Open => "open",
        }
    }

    /// The mode from its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::None, Self::Offline, Self::Allowlist, Self::Open]
            .into_iter()
            .find(|mode| mode.name() == word)
    }
}
