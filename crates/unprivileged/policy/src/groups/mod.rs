//! Groups of hosts: where a package manager fetches from, read from its own configuration.
//!
//! **Trust:** pure; the texts are handed in. They must be the person's or the system's: a file of the workspace would
//! let a project choose the hosts that a group stands for. Malformed text names no host; it never names another.
mod expand;
mod ini;
mod toml;

use crate::host::Host;
use crate::netrule::NetRule;
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest text that is read: configuration written by people.
const MAX_TEXT: usize = 256 * 1024;

/// Most hosts of one group; beyond it a configuration is no list of registries any more.
const MAX_HOSTS: usize = 32;

/// A package manager whose hosts a group stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostGroup {
    /// npm, pnpm and yarn.
    Npm,
    /// cargo.
    Crates,
    /// pip and uv.
    Pypi,
    /// apt.
    Apt,
}

/// A place that a group stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupHost {
    /// Its host.
    pub host: Host,
    /// Its port, where the configuration names one.
    pub port: Option<u16>,
}

/// What a package manager is configured with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSources {
    /// Configuration files: name and text. Never of the workspace.
    pub files: Vec<(String, String)>,
    /// Variables of the person's environment.
    pub environment: Vec<(String, String)>,
    /// What the manager itself printed when asked for its addresses, one or more to a line.
    pub answers: Vec<String>,
}

impl HostGroup {
    /// Every group.
    pub const ALL: [Self; 4] = [Self::Npm, Self::Crates, Self::Pypi, Self::Apt];

    /// Its name in rules.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Crates => "crates",
            Self::Pypi => "pypi",
            Self::Apt => "apt",
        }
    }

    /// The group from its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Rules for one host: reading, and what the tool needs beside it. Publishing is not among them.
    fn rules(self, place: &GroupHost) -> Vec<String> {
        let reading = format!("GET,HEAD {place}");
        match self {
            // The tool sends the list of packages and gets the list of known weaknesses.
            Self::Npm => vec![reading, format!("POST {place}/-/npm/v1/security/**")],
            Self::Crates | Self::Pypi | Self::Apt => vec![reading],
        }
    }

    /// Whether a variable of the environment names addresses of this manager.
    fn is_variable(self, name: &str) -> bool {
        let name = name.to_ascii_uppercase();
        match self {
            Self::Npm => matches!(name.as_str(), "NPM_CONFIG_REGISTRY" | "YARN_NPM_REGISTRY_SERVER"),
            Self::Crates => {
                matches!(name.as_str(), "CARGO_REGISTRY_INDEX" | "CARGO_REGISTRIES_INDEX")
                    || name
                        .strip_prefix("CARGO_REGISTRIES_")
                        .is_some_and(|rest| rest.ends_with("_INDEX"))
                    || name
                        .strip_prefix("CARGO_SOURCE_")
                        .is_some_and(|rest| rest.ends_with("_REGISTRY"))
            }
            Self::Pypi => matches!(
                name.as_str(),
                "PIP_INDEX_URL"
                    | "PIP_EXTRA_INDEX_URL"
                    | "PIP_FIND_LINKS"
                    | "UV_INDEX"
                    | "UV_INDEX_URL"
                    | "UV_DEFAULT_INDEX"
                    | "UV_EXTRA_INDEX_URL"
                    | "UV_FIND_LINKS"
            ),
            Self::Apt => false,
        }
    }
}

/// The hosts a group stands for, sorted; a fault where the configuration names none.
pub fn hosts_of(group: HostGroup, sources: &GroupSources) -> Result<Vec<GroupHost>, Fault> {
    let mut addresses: Vec<String> = Vec::new();
    for (name, text) in &sources.files {
        if text.len() > MAX_TEXT {
            let why = format!("it has {} bytes; at most {MAX_TEXT} are read", text.len());
            return Err(Fault::new(
                Code::PolicyReference,
                format!("{name} is too large"),
                why,
            ));
        }
        addresses.extend(match group {
            HostGroup::Npm => ini::npm(text),
            HostGroup::Crates => toml::cargo(text),
            HostGroup::Pypi if name.ends_with(".toml") => toml::uv(text),
            HostGroup::Pypi => ini::pip(text),
            HostGroup::Apt => ini::apt(text),
        });
    }
    let variables = sources
        .environment
        .iter()
        .filter(|(name, _)| group.is_variable(name));
    for text in variables.map(|(_, value)| value).chain(&sources.answers) {
        addresses.extend(
            text.split([' ', '\t', '\n', '\r', ',', '\'', '"', '[', ']'])
                .map(str::to_owned),
        );
    }
    let mut hosts: Vec<GroupHost> = addresses.iter().filter_map(|text| place(text)).collect();
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        let what = format!("the hosts of group:{group} are not known");
        let why = if hosts.is_empty() {
            let read: Vec<&str> = sources.files.iter().map(|(name, _)| name.as_str()).collect();
            match read.as_slice() {
                [] => "no configuration of the package manager names an address".to_owned(),
                read => format!("no usable address stands in {}", read.join(", ")),
            }
        } else {
            format!(
                "its configuration names {} hosts; at most {MAX_HOSTS} are taken",
                hosts.len()
            )
        };
        return Err(Fault::new(Code::PolicyReference, what, why).help(
            "set the address in the package manager's own configuration, or name the hosts in net.allow",
        ));
    }
    Ok(hosts)
}

/// The place an address is about. Only what goes over HTTP; this machine itself never.
fn place(address: &str) -> Option<GroupHost> {
    let mut rest = address.trim();
    // `name=https://…`, as uv writes it.
    if let Some((name, url)) = rest.split_once('=') {
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        rest = if plain { url } else { rest };
    }
    for outer in ["sparse+", "registry+", "git+", "mirror+"] {
        rest = rest.strip_prefix(outer).unwrap_or(rest);
    }
    let (rest, usual) = match (rest.strip_prefix("https://"), rest.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (None, Some(rest)) => (rest, 80),
        (None, None) => (rest.strip_prefix("mirror://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?)),
        None => (authority, None),
    };
    let host = Host::new(host).ok().filter(|host| !host.is_forbidden())?;
    Some(GroupHost {
        host,
        port: port.filter(|port| *port != usual),
    })
}

/// The rules a place of a group gets.
fn rules_for(group: HostGroup, place: &GroupHost) -> Vec<NetRule> {
    let rules = group.rules(place);
    rules.iter().filter_map(|text| NetRule::new(text).ok()).collect()
}

impl fmt::Display for HostGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for GroupHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

impl From<Host> for GroupHost {
    fn from(host: Host) -> Self {
        Self { host, port: None }
    }
}
