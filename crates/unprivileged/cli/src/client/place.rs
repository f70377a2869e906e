//! Addresses of daemons, and where this user's own is.
use crate::commands::source::raw_home;
use bastle_contract::{Code, Fault};
use bastle_serve::client::Target;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Host(Target);

impl Host {
    /// Reads `unix:///path`, `http://…` or `https://…`. Plain http is for this machine alone: a token would be
    /// read by everybody on the way.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let target = Target::parse(text)?;
        match &target {
            Target::Http(place) if !is_here(place) => Err(Fault::new(
                Code::UsageArgument,
                format!("{target} is refused"),
                "http is for this machine alone: elsewhere the token would go in the open",
            )
            .help(
                "https://HOST:PORT, or a forwarded socket: ssh -L /tmp/b.sock:/run/bastle/bastle.sock HOST",
            )),
            Target::Unix(_) | Target::Http(_) | Target::Https(_) => Ok(Self(target)),
        }
    }

    /// A socket of this machine.
    pub(crate) fn socket(path: PathBuf) -> Self {
        Self(Target::Unix(path))
    }

    /// For connecting.
    pub(crate) fn target(&self) -> &Target {
        &self.0
    }

    /// Whether its paths are this machine's.
    pub(crate) fn is_local(&self) -> bool {
        match &self.0 {
            Target::Unix(_) => true,
            Target::Http(place) | Target::Https(place) => is_here(place),
        }
    }
}

impl TryFrom<String> for Host {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether an authority is of this machine.
fn is_here(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Where the user's settings are.
pub(crate) fn config_dir() -> Result<PathBuf, Fault> {
    let set = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let base = match set {
        Some(base) => base,
        None => raw_home()?.join(".config"),
    };
    Ok(base.join("bastle"))
}

/// A token from a file: its first line. A file that others can read is refused: who reads it is you.
pub(crate) fn read_token(path: &Path) -> Result<String, Fault> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let fault = |why: String| {
        Fault::new(
            Code::ApiUnauthorized,
            format!("the token file {} cannot be used", path.display()),
            why,
        )
        .help(format!("chmod 600 {}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(|error| fault(error.to_string()))?;
    let about = file.metadata().map_err(|error| fault(error.to_string()))?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        return Err(fault(
            "it is no file, or others than its owner can read it".to_owned(),
        ));
    }
    let mut text = String::new();
    file.take(4096)
        .read_to_string(&mut text)
        .map_err(|error| fault(error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.~+/=".contains(c);
    if token.is_empty() || !token.chars().all(good) {
        return Err(fault("its first line is no token".to_owned()));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_would_send_the_token_in_the_open_or_is_none_is_refused() {
        for bad in [
            "",
            "lab",
            "http://lab.example:7717",
            "http://127.0.0.1.evil.example:7717",
            "http://localhost.evil.example",
            "http://[::2]:1",
            "http://me@127.0.0.1:1",
            "https://",
            "https://lab.example/path",
            "https://lab.example?x",
            "unix://relative",
            "ssh://lab",
            "https://a b",
            "https://a\nb",
        ] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
        for good in [
            "unix:///run/bastle/bastle.sock",
            "http://127.0.0.1:7717",
            "http://[::1]:7717",
            "http://localhost:7717",
            "https://lab.example:7717",
        ] {
            assert_eq!(Host::parse(good).unwrap().to_string(), good);
        }
    }
}
