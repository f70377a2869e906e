//! The authority ceiling, as requests and answers have it.
use crate::errors::Refusal;
use bastle_policy::{AuthorityCeiling, CeilingForm};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The most that somebody may give to a run. A field that is left out is not stated: the profile's, the daemon's or the
/// built-in default holds there.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AuthorityCeiling)]
pub(crate) struct Ceiling {
    /// Directories that projects may lie in or below, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    roots: Option<Vec<String>>,
    /// Profiles that may be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    profiles: Option<Vec<String>>,
    /// Presets that may be used, without versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    presets: Option<Vec<String>>,
    /// Hosts that may be reached where the policy allows them: `NAME` or `*.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    hosts: Option<Vec<String>>,
    /// Secrets of the daemon's configuration that may be used, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    secrets: Option<Vec<String>>,
    /// The widest network mode: `none`, `offline`, `allowlist` or `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    net: Option<String>,
    /// Workspace modes: `copy`, `overlay`, `worktree`, `in-place`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modes: Option<Vec<String>>,
    /// Backends: `native`, `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backends: Option<Vec<String>>,
    /// The most of each limit and budget, in the words and units of a policy document: `{"memory": "4GiB", "turns": 50}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, Value>,
    /// Most runs at once, waiting ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    max_runs: Option<u32>,
}

impl Ceiling {
    /// Checks it.
    pub(crate) fn read(self) -> Result<AuthorityCeiling, Refusal> {
        AuthorityCeiling::try_from(CeilingForm {
            roots: self.roots,
            profiles: self.profiles,
            presets: self.presets,
            hosts: self.hosts,
            secrets: self.secrets,
            net: self.net,
            modes: self.modes,
            backends: self.backends,
            limits: self.limits.into_iter().collect(),
            max_runs: self.max_runs,
        })
        .map_err(|why| Refusal::bad(format!("ceiling.{why}")))
    }
}

impl From<AuthorityCeiling> for Ceiling {
    fn from(ceiling: AuthorityCeiling) -> Self {
        let form = CeilingForm::from(ceiling);
        Self {
            roots: form.roots,
            profiles: form.profiles,
            presets: form.presets,
            hosts: form.hosts,
            secrets: form.secrets,
            net: form.net,
            modes: form.modes,
            backends: form.backends,
            limits: form.limits.into_iter().collect(),
            max_runs: form.max_runs,
        }
    }
}
