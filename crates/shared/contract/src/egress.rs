//! What control and the egress process say to each other, and how a run's network faces are numbered.
//!
//! **Trust:** control trusts nothing in [`FromEgress`] but its shape: hosts, methods and paths in it come from the
//! agent. Egress trusts control. Secrets never travel in a frame: they come as a sealed memfd beside it.
use crate::{Code, Fault, ProbeResult, RunId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Port of the HTTP proxy on the sandbox's own loopback.
pub const PROXY_PORT: u16 = 3128;
/// Port of the SOCKS proxy on the sandbox's own loopback.
pub const SOCKS_PORT: u16 = 1080;
/// Port of the resolver on the sandbox's own loopback.
pub const DNS_PORT: u16 = 53;
/// First address of the synthetic range (198.18.0.0/15, reserved for benchmarks: no host on the internet has one).
pub const SYNTHETIC_NET: [u8; 4] = [198, 18, 0, 0];
/// Its prefix length.
pub const SYNTHETIC_PREFIX: u8 = 15;
/// Most ports that tools ignorant of proxies can reach in one run, 443 and 80 included.
pub const MAX_TRANSPARENT: usize = 24;
/// The name under which the agent reaches egress itself: what is allowed, and how to ask for more.
pub const LOCAL_NAME: &str = "bastle.local";
/// The name that is never allowed: probes ask for it and must be refused in our own words.
pub const CANARY_NAME: &str = "canary.bastle.invalid";
/// How the reason of a refusal begins that was made because of the decoy credential; where it was seen follows.
pub const CANARY_REASON: &str = "the decoy credential of this run is in ";
/// Largest table or secret document that egress reads from a memfd.
pub const MAX_EGRESS_DOCUMENT: usize = 1024 * 1024;
/// Memory limit of the egress process of a run in bytes (`RLIMIT_DATA`).
pub const EGRESS_MEMORY: u64 = 512 << 20;
/// Sustained processor time of the egress process of a run, in thousandths of a processor. A lower `limits.cpu` of the run
/// lowers it.
pub const EGRESS_CPU: u64 = 500;
/// Processor time in seconds that egress may use beyond its sustained share at once.
pub const EGRESS_CPU_BURST: u64 = 5;

/// The faces of one run's egress inside its network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faces {
    /// Ports on which connections to synthetic addresses are taken, at most [`MAX_TRANSPARENT`].
    pub transparent: Vec<u16>,
}

/// From control to egress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToEgress {
    /// First frame. Descriptors: the table (sealed memfd, JSON of `bastle_policy::NetPolicy`), then the secrets
    /// (sealed memfd, JSON list of [`SecretValue`]). Answered by `Ready` or `Refused`.
    Configure {
        /// [`crate::WIRE_VERSION`].
        version: u32,
        /// Whose run this is.
        run: RunId,
        /// Whether somebody can answer a question; without one, asking is denying.
        attended: bool,
        /// Sustained processor time of egress in thousandths of a processor, at most [`EGRESS_CPU`].
        cpu: u64,
        /// The decoy credential; no secret, so it may travel here.
        canary: Vec<String>,
    },
    /// The run's listeners, made inside its network namespace. Descriptors, in this order: HTTP proxy, SOCKS, DNS
    /// over UDP, DNS over TCP, then one per port of [`Faces::transparent`]. They are the run's identity.
    Serve {
        /// What the last descriptors are.
        faces: Faces,
    },
    /// A new table (descriptor: sealed memfd) replaces the old one as a whole, after its self-test. Tunnels that it
    /// does not allow any more are cut. Answered by `Reloaded` or `Refused`, in which case the old one stays.
    Reload,
    /// A new value for a secret (descriptor: sealed memfd, JSON list of [`SecretValue`]).
    Secrets,
    /// The answer to [`FromEgress::Ask`].
    Answer {
        /// Which question.
        ask: u64,
        /// Whether the request may go on.
        allow: bool,
    },
    /// Every decision up to and including this one is on disk.
    Recorded {
        /// [`NetDecision::seq`].
        upto: u64,
    },
    /// A person let the run go on beyond its budget.
    Extend,
}

/// The end of a value that was revoked while the run lives: no other value takes its place.
pub const REVOKED: u64 = 0;

/// A secret for egress alone. It has no `Debug`, so that no log can show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    /// The name in the policy.
    pub name: String,
    /// What the agent sees instead.
    pub phantom: String,
    /// The real value.
    pub value: String,
    /// When it ceases to hold, in seconds since 1970; `None`: it does not.
    pub expires: Option<u64>,
}

/// From egress to control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromEgress {
    /// It is confined and waits for its configuration.
    Hello {
        /// [`crate::WIRE_VERSION`].
        version: u32,
        /// What it found out about its own fence.
        probes: Vec<ProbeResult>,
    },
    /// Configured.
    Ready {
        /// Certificate (PEM) of the run's own authority, where some rule needs to look into TLS.
        authority: Option<String>,
    },
    /// A configuration, reload or request that cannot be followed. What was in force stays.
    Refused(Fault),
    /// The new table is in force.
    Reloaded {
        /// Tunnels that were cut because it does not allow them.
        cut: u32,
    },
    /// A decision. Where `held` is set nothing happens until [`ToEgress::Recorded`] covers it.
    Decided(NetDecision),
    /// A request waits for a person.
    Ask {
        /// Number of the question.
        ask: u64,
        /// What is asked.
        decision: NetDecision,
    },
    /// A secret is missing or has expired and is needed now.
    NeedSecret {
        /// The name under which policy refers to the secret.
        name: String,
    },
    /// A connection or request is over.
    Closed(NetClosed),
    /// A share of a budget was reached.
    Budget(BudgetReached),
    /// The agent asked for a rule (POST to [`LOCAL_NAME`]).
    Wanted {
        /// The rule it wants, untrusted text, at most 1 KiB.
        rule: String,
        /// Why, untrusted text, at most 4 KiB.
        why: String,
    },
}

/// Through which face a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Face {
    /// `CONNECT`.
    Connect,
    /// A plain request to the proxy.
    Http,
    /// A request inside a TLS connection that was terminated.
    Https,
    /// SOCKS.
    Socks,
    /// A connection to a synthetic address.
    Transparent,
    /// A name that was looked up.
    Dns,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetVerdict {
    /// It went out.
    Allowed,
    /// It was refused.
    Denied,
    /// A person is asked.
    Asked,
    /// Learn or audit mode: it went out though no rule allows it.
    Learned,
}

/// One decision about a request, without query string and without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetDecision {
    /// Number within the run, from 1.
    pub seq: u64,
    /// Short name of a denial, the same wherever it is shown: `d_` and four to eight characters; empty otherwise.
    pub id: String,
    /// Through which face.
    pub face: Face,
    /// Method, where there is one; for git `push`, `fetch`.
    pub method: Option<String>,
    /// Canonical host, or for a malformed one what was asked, cleaned and cut to 256 bytes.
    pub host: String,
    /// Port; 0 for a name that was looked up.
    pub port: u16,
    /// Path without query, cut to 1 KiB.
    pub path: Option<String>,
    /// What was done inside: a JSON-RPC method, a GraphQL operation, a git reference.
    pub operation: Option<String>,
    /// The verdict.
    pub verdict: NetVerdict,
    /// Code of a refusal.
    pub code: Option<Code>,
    /// The rule that decided, and where it stands.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// Where it was dialled.
    pub address: Option<IpAddr>,
    /// Name of the secret that was used.
    pub secret: Option<String>,
    /// How many identical ones this stands for.
    pub count: u32,
    /// Whether the effect waits for the record.
    pub held: bool,
    /// What would allow it, as commands.
    pub help: Vec<String>,
}

/// The end of what a decision allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetClosed {
    /// [`NetDecision::seq`].
    pub seq: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Status of the response, where there was one.
    pub status: Option<u16>,
    /// What a model charged.
    pub model: Option<ModelUse>,
}

/// What one model response used, read from its own usage fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelUse {
    /// Name of the model, cleaned and cut to 128 bytes.
    pub model: String,
    /// Tokens in.
    pub input: u64,
    /// Tokens out.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to a cache.
    pub cache_write: u64,
    /// Cost in millionths of a dollar; `None`: no price is known.
    pub cost_micro_usd: Option<u64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "UsageBasis::is_reported")]
    pub basis: UsageBasis,
}

/// Where the numbers of a [`ModelUse`] come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageBasis {
    /// The response's own usage fields.
    #[default]
    Reported,
    /// Lengths and counts of events, because the response told nothing or was cut off.
    Estimated,
}

impl UsageBasis {
    fn is_reported(&self) -> bool {
        *self == Self::Reported
    }
}

/// Which budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetKind {
    /// Money, in millionths of a dollar.
    Cost,
    /// Model tokens.
    Tokens,
    /// Bytes out.
    BytesOut,
    /// Bytes in.
    BytesIn,
    /// Requests.
    Requests,
    /// Connections.
    Connections,
    /// Requests to models.
    Turns,
}

impl BudgetKind {
    /// Those that count what models do; they can be waived by name.
    pub const OF_MODELS: [Self; 3] = [Self::Turns, Self::Tokens, Self::Cost];

    /// The key in a policy, and the name behind `--waive`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cost => "usd",
            Self::Tokens => "tokens",
            Self::BytesOut => "bytesOut",
            Self::BytesIn => "bytesIn",
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Turns => "turns",
        }
    }

    /// A budget that can be waived, from its name.
    #[must_use]
    pub fn waivable(name: &str) -> Option<Self> {
        let name = name.strip_prefix("budget.").unwrap_or(name);
        Self::OF_MODELS
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// What follows from a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetStep {
    /// 80 %.
    Warn,
    /// 100 %: nothing new goes out until a person lets it.
    Pause,
    /// 120 %, or 100 % with nobody there: the run ends.
    Stop,
}

/// A share of a budget was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetReached {
    /// Which.
    pub kind: BudgetKind,
    /// What follows.
    pub step: BudgetStep,
    /// Used so far.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}
