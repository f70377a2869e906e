//! A ceiling as it is written: in a token's record, in `serve.json`, in a profile, in a request.
//!
//! **Trust:** none in the values. Lists are bounded, names checked, paths and hosts taken in their canonical form.
use super::{AuthorityCeiling, Backend, Bounded, WorkspaceMode, outermost, widest};
use crate::document::{Document, parse};
use crate::host::HostPattern;
use crate::net::NetMode;
use bastle_contract::{AbsPath, EnvName, LimitKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Most entries of one list.
const MOST: usize = 256;
/// Budgets by the keys of a policy document.
const BUDGETS: [(&str, Bounded); 7] = [
    ("usd", Bounded::Cost),
    ("tokens", Bounded::Tokens),
    ("turns", Bounded::Turns),
    ("bytesOut", Bounded::BytesOut),
    ("bytesIn", Bounded::BytesIn),
    ("requests", Bounded::Requests),
    ("connections", Bounded::Connections),
];

/// The fields of a ceiling as text. One that is left out is not stated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingForm {
    /// Directories that projects may lie in or below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<String>>,
    /// Profiles that may be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Presets that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presets: Option<Vec<String>>,
    /// Hosts that may be reached where the policy allows them: `NAME` or `*.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Secrets of the configuration that may be used, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
    /// The widest network mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// Workspace modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<Vec<String>>,
    /// Backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<String>>,
    /// The most of each limit or budget, as a policy document writes them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// Most runs at once, waiting ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
}

impl Bounded {
    /// The key in a policy document.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Limit(kind) => kind.name(),
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Cost => "usd",
            Self::BytesOut => "bytesOut",
            Self::BytesIn => "bytesIn",
            Self::Requests => "requests",
            Self::Connections => "connections",
        }
    }
}

impl TryFrom<CeilingForm> for AuthorityCeiling {
    type Error = String;

    fn try_from(form: CeilingForm) -> Result<Self, String> {
        let path = |text: &str| AbsPath::new(text).map_err(|error| error.to_string());
        let host = |text: &str| HostPattern::new(text).map_err(|error| error.to_string());
        let secret = |text: &str| EnvName::try_from(text.to_owned()).map_err(|error| error.to_string());
        let mode = |text: &str| WorkspaceMode::parse(text).ok_or_else(|| unknown(text));
        let backend = |text: &str| match text {
            "native" => Ok(Backend::Native),
            "host" => Ok(Backend::Host),
            other => Err(unknown(other)),
        };
        let net = |text: String| NetMode::parse(&text).ok_or_else(|| format!("net: {}", unknown(&text)));
        if form.max_runs == Some(0) {
            return Err("max_runs: at least 1; a token that starts nothing is a viewer's".to_owned());
        }
        Ok(Self {
            roots: list("roots", form.roots.as_deref(), path)?.map(outermost),
            profiles: list("profiles", form.profiles.as_deref(), name)?,
            presets: list("presets", form.presets.as_deref(), name)?,
            hosts: list("hosts", form.hosts.as_deref(), host)?.map(widest),
            secrets: list("secrets", form.secrets.as_deref(), secret)?,
            net: form.net.map(net).transpose()?,
            modes: list("modes", form.modes.as_deref(), mode)?,
            backends: list("backends", form.backends.as_deref(), backend)?,
            limits: limits(&form.limits)?,
            max_runs: form.max_runs,
        })
    }
}

fn unknown(text: &str) -> String {
    format!("{text:?} is not known")
}

fn name(text: &str) -> Result<String, String> {
    let fits = text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'));
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not [a-z0-9][a-z0-9._-]{{0,63}}, without a version"
    ))
}

fn list<T: Ord>(
    field: &str,
    texts: Option<&[String]>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<BTreeSet<T>>, String> {
    let Some(texts) = texts else { return Ok(None) };
    if texts.len() > MOST {
        return Err(format!("{field}: at most {MOST} entries"));
    }
    let all = texts.iter().map(|text| read(text));
    all.collect::<Result<_, _>>()
        .map(Some)
        .map_err(|why| format!("{field}: {why}"))
}

/// Numbers, read as a policy document reads them: units and ranges are the same.
fn limits(stated: &Map<String, Value>) -> Result<std::collections::BTreeMap<Bounded, u64>, String> {
    let (mut limits, mut budget) = (Map::new(), Map::new());
    for (key, value) in stated {
        if LimitKind::ALL.iter().any(|kind| kind.name() == key) {
            limits.insert(key.clone(), value.clone());
        } else if BUDGETS.iter().any(|(name, _)| name == key) {
            budget.insert(key.clone(), value.clone());
        } else {
            let known = LimitKind::ALL.iter().map(|kind| kind.name());
            let known: Vec<&str> = known.chain(BUDGETS.iter().map(|(name, _)| *name)).collect();
            return Err(format!(
                "limits: {}; known are {}",
                unknown(key),
                known.join(", ")
            ));
        }
    }
    let text = json!({ "version": 1, "limits": limits, "budget": budget }).to_string();
    let document = parse("ceiling", text.as_bytes()).map_err(|faults| {
        let first = faults.first().map(|fault| fault.what.clone());
        format!("limits: {}", first.unwrap_or_default())
    })?;
    Ok(numbers(&document).collect())
}

/// The numbers that a document states.
pub(super) fn numbers(document: &Document) -> impl Iterator<Item = (Bounded, u64)> {
    let limits = document.limits.0.iter();
    let limits = limits.map(|(kind, at)| (Bounded::Limit(*kind), at.value));
    let budget = &document.budget;
    let counted = [
        (Bounded::Turns, &budget.turns),
        (Bounded::Tokens, &budget.tokens),
        (Bounded::BytesOut, &budget.bytes_out),
        (Bounded::BytesIn, &budget.bytes_in),
        (Bounded::Requests, &budget.requests),
        (Bounded::Connections, &budget.connections),
    ];
    let counted = counted
        .into_iter()
        .filter_map(|(kind, at)| Some((kind, at.as_ref()?.value)));
    let cost = budget.usd.as_ref().map(|at| (Bounded::Cost, micro(at.value)));
    limits.chain(counted).chain(cost).collect::<Vec<_>>().into_iter()
}

/// Dollars in millionths; beyond what a number holds, the largest.
pub(super) fn micro(usd: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and a budget is 0 or more"
    )]
    let micro = (usd * 1e6).round() as u64;
    micro
}

impl From<AuthorityCeiling> for CeilingForm {
    fn from(ceiling: AuthorityCeiling) -> Self {
        fn texts<T: ToString>(set: &Option<BTreeSet<T>>) -> Option<Vec<String>> {
            set.as_ref().map(|set| set.iter().map(T::to_string).collect())
        }
        let words = |set: &Option<BTreeSet<WorkspaceMode>>| {
            set.as_ref()
                .map(|set| set.iter().map(|mode| mode.word().to_owned()).collect())
        };
        let backends = |set: &BTreeSet<Backend>| {
            let word = |backend: &Backend| match backend {
                Backend::Native => "native".to_owned(),
                Backend::Host => "host".to_owned(),
            };
            set.iter().map(word).collect()
        };
        // The two sections of a document have no key in common.
        let printed = ceiling.document().object();
        let section = |name: &str| printed.get(name).and_then(Value::as_object).cloned();
        let mut limits = section("limits").unwrap_or_default();
        limits.extend(section("budget").unwrap_or_default());
        Self {
            roots: texts(&ceiling.roots),
            profiles: texts(&ceiling.profiles),
            presets: texts(&ceiling.presets),
            hosts: texts(&ceiling.hosts),
            secrets: ceiling
                .secrets
                .as_ref()
                .map(|set| set.iter().map(|name| name.as_str().to_owned()).collect()),
            net: ceiling.net.map(|mode| mode.name().to_owned()),
            modes: words(&ceiling.modes),
            backends: ceiling.backends.as_ref().map(backends),
            limits,
            max_runs: ceiling.max_runs,
        }
    }
}
