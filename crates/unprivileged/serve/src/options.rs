//! How the daemon is started: what the command line says, and what `serve.json` says.
//!
//! **Trust:** both are the operator's. The file is read strictly: a setting that is not understood stops the start.
use crate::json;
use bastle_contract::{Code, Fault};
use bastle_policy::AuthorityCeiling;
use serde::Deserialize;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest settings file.
const MOST: u64 = 256 * 1024;
/// Where the system's settings are.
const SYSTEM: &str = "/etc/bastle/serve.json";

/// Everything `bastle serve` is told.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The state directory.
    pub state: PathBuf,
    /// Addresses; the local socket alone when empty.
    pub listen: Vec<SocketAddr>,
    /// The local socket.
    pub socket: PathBuf,
    /// Group that may connect to the local socket, by name; the owner alone when absent.
    pub group: Option<String>,
    /// Certificate chain and key, as PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Other names of this daemon.
    pub hosts: Vec<String>,
    /// Pages of other sites that may ask.
    pub origins: Vec<String>,
    /// Whether an address that others reach may be served in the open.
    pub in_the_open: InTheOpen,
    /// Most runs that live at once.
    pub max_parallel: Option<u32>,
    /// Collector of traces; the settings say otherwise, or nothing does.
    pub otlp: Option<String>,
    /// The settings file; the usual places when absent.
    pub config: Option<PathBuf>,
}

/// Whether tokens may travel unsealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InTheOpen {
    /// Only within this machine.
    #[default]
    Never,
    /// Somebody insisted.
    Insisted,
}

/// The settings file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Other names of this daemon.
    pub(crate) allow_hosts: Vec<String>,
    /// Pages of other sites that may ask.
    pub(crate) allow_origins: Vec<String>,
    /// Most runs that live at once.
    pub(crate) max_parallel: Option<u32>,
    /// Requests a second per token; default 100.
    pub(crate) requests_per_second: Option<u32>,
    /// Whom to tell about questions and states.
    pub(crate) webhooks: Vec<Webhook>,
    /// Whether questions are shown on this desktop; default yes.
    pub(crate) desktop: Option<bool>,
    /// A collector of traces: `https://HOST[:PORT]`, or `http://` of this machine. None when absent.
    pub(crate) otlp: Option<String>,
    /// How long what is over is kept.
    pub(crate) retention: Retention,
    /// The agent protocol.
    pub(crate) a2a: crate::a2a::Settings,
    /// The most that anybody but an admin may give to a run, where a token does not say less.
    pub(crate) ceiling: AuthorityCeiling,
}

/// How long what is over is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retention {
    /// Runs after their end, such as `30d` (the default) or `12h`; `never` keeps all. Work that was not applied stays.
    pub(crate) runs: Option<String>,
    /// Removed copies in the trash, such as `7d` (the default) or `12h`; `never` keeps all.
    pub(crate) trash: Option<String>,
}

impl Retention {
    /// The time for runs; `Duration::MAX` where nothing goes.
    pub(crate) fn runs(&self) -> Result<Option<Duration>, String> {
        lasting("retention.runs", self.runs.as_deref())
    }

    /// The time for the trash.
    pub(crate) fn trash(&self) -> Result<Option<Duration>, String> {
        lasting("retention.trash", self.trash.as_deref())
    }
}

fn lasting(field: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    match text {
        None => Ok(None),
        Some("never") => Ok(Some(Duration::MAX)),
        Some(text) => bastle_policy::parse_duration(text)
            .map(|millis| Some(Duration::from_millis(millis)))
            .ok_or_else(|| format!("field {field}: such as 30d, 12h, 90m, 10s, or never")),
    }
}

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// `https://…`, or `http://` of this machine.
    pub(crate) url: String,
    /// File with the secret that signs what is sent; its first line.
    pub(crate) secret_file: PathBuf,
    /// Kinds of events; questions and states when empty.
    #[serde(default)]
    pub(crate) kinds: Vec<String>,
}

impl Config {
    /// Reads it. None at all is none; one that cannot be used is an error.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Fault> {
        if let Some(path) = named {
            return Self::read(path)?.ok_or_else(|| fault(path, "it is not there"));
        }
        let own = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")))
            .map(|config| config.join("bastle/serve.json"));
        for path in own.iter().map(PathBuf::as_path).chain([Path::new(SYSTEM)]) {
            if let Some(config) = Self::read(path)? {
                return Ok(config);
            }
        }
        Ok(Self::default())
    }

    fn read(path: &Path) -> Result<Option<Self>, Fault> {
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(path, &error.to_string())),
        };
        let mut bytes = Vec::new();
        file.take(MOST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fault(path, &error.to_string()))?;
        if bytes.len() > usize::try_from(MOST).unwrap_or(usize::MAX) {
            return Err(fault(path, "it is larger than 256 KiB"));
        }
        let config: Self = json::parse(&bytes).map_err(|wrong| fault(path, &wrong.to_string()))?;
        config.check().map_err(|why| fault(path, &why))?;
        Ok(Some(config))
    }

    fn check(&self) -> Result<(), String> {
        if self.webhooks.len() > 16 {
            return Err("field webhooks: at most 16".to_owned());
        }
        for hook in &self.webhooks {
            crate::webhook::Address::parse(&hook.url).map_err(|why| format!("field webhooks.url: {why}"))?;
        }
        if let Some(url) = &self.otlp {
            crate::webhook::Address::parse(url).map_err(|why| format!("field otlp: {why}"))?;
        }
        self.a2a.check()?;
        self.retention.runs()?;
        self.retention.trash()?;
        if self.requests_per_second == Some(0) || self.max_parallel == Some(0) {
            return Err("field requests_per_second, max_parallel: at least 1".to_owned());
        }
        Ok(())
    }
}

fn fault(path: &Path, why: &str) -> Fault {
    Fault::new(Code::ApiConfig, format!("{} cannot be used", path.display()), why)
}

/// The ceiling of a settings file that can be used.
pub(crate) fn fuzz(bytes: &[u8]) -> Option<AuthorityCeiling> {
    let config: Config = serde_json::from_slice(bytes).ok()?;
    drop(config.retention.runs());
    Some(config.ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_not_understood_stop_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.json");
        for bad in [
            "",
            "[]",
            "{\"webhook\":[]}",
            "{\"max_parallel\":0}",
            "{\"max_parallel\":1,\"max_parallel\":2}",
            "{\"webhooks\":[{\"url\":\"http://example.com/x\",\"secret_file\":\"/s\"}]}",
            "{\"webhooks\":[{\"url\":\"file:///etc/passwd\",\"secret_file\":\"/s\"}]}",
            "{\"webhooks\":[{\"url\":\"https://example.com/x\"}]}",
            "{\"otlp\":\"http://collector.example:4318\"}",
            "{\"otlp\":\"127.0.0.1:4318\"}",
            "{\"ceiling\":{\"root\":[\"/srv\"]}}",
            "{\"ceiling\":{\"roots\":[\"srv\"]}}",
            "{\"ceiling\":{\"hosts\":[\"*.com\"]}}",
            "{\"ceiling\":{\"net\":\"everything\"}}",
            "{\"ceiling\":{\"limits\":{\"memory\":\"much\"}}}",
            "{\"ceiling\":{\"max_runs\":0}}",
            "{\"retention\":{\"runs\":\"soon\"}}",
            "{\"retention\":{\"run\":\"1d\"}}",
            "{\"retention\":{\"trash\":\"later\"}}",
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(Config::load(Some(&path)).is_err(), "{bad}");
        }
        std::fs::write(&path, "{\"max_parallel\":3}").unwrap();
        assert_eq!(Config::load(Some(&path)).unwrap().max_parallel, Some(3));
        assert!(Config::load(Some(&dir.path().join("none"))).is_err());
    }
}
