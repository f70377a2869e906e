//! What the daemon's settings say about the agent protocol.
//!
//! **Trust:** the operator's. Only addresses that are written here are ever told anything.
use crate::webhook::Address;
use serde::Deserialize;

/// The section `a2a` of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The profile of a worker where a message names none.
    pub(crate) profile: Option<String>,
    /// The project of a worker where a message names none: an absolute path.
    pub(crate) workspace: Option<String>,
    /// How it works on the project; default `copy`.
    pub(crate) mode: Option<String>,
    /// Where others reach the daemon, `https://HOST[:PORT]`, where that is not what they name it: behind a proxy.
    pub(crate) public_url: Option<String>,
    /// Beginnings of addresses that may be told about tasks: `https://HOST[:PORT]/PATH`. Without any, nobody is.
    pub(crate) push_targets: Vec<String>,
}

impl Settings {
    /// Whether they can be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.push_targets.len() > 64 {
            return Err("field a2a.push_targets: at most 64".to_owned());
        }
        for target in &self.push_targets {
            Address::parse(target).map_err(|why| format!("field a2a.push_targets: {why}"))?;
            if !after_host(target).is_some_and(|path| path.starts_with('/')) {
                return Err("field a2a.push_targets: a target has a path, at least /".to_owned());
            }
        }
        if let Some(url) = &self.public_url {
            Address::parse(url).map_err(|why| format!("field a2a.public_url: {why}"))?;
            if after_host(url).is_some() || url.contains(['?', '#']) {
                return Err("field a2a.public_url: an address without a path".to_owned());
            }
        }
        if self.workspace.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err("field a2a.workspace: an absolute path".to_owned());
        }
        Ok(())
    }

    /// The address, where the operator allows it. Hosts are compared as written, so no other name leads elsewhere.
    pub(crate) fn allowed(&self, url: &str) -> Option<Address> {
        let within = |target: &String| {
            let below = url.strip_prefix(target.as_str());
            below.is_some_and(|rest| target.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?']))
        };
        let path = after_host(url)?;
        let plain = !path.split(['/', '?']).any(|part| part == ".." || part == ".") && !path.contains('%');
        match plain && self.push_targets.iter().any(within) {
            true => Address::parse(url).ok(),
            false => None,
        }
    }
}

fn after_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.find('/').map(|at| &rest[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_the_operator_wrote_down_are_told() {
        let settings = Settings {
            push_targets: vec![
                "https://hooks.example/a2a/".to_owned(),
                "http://127.0.0.1:9/x".to_owned(),
            ],
            ..Settings::default()
        };
        assert!(settings.check().is_ok());
        for good in [
            "https://hooks.example/a2a/",
            "https://hooks.example/a2a/t?x=1",
            "http://127.0.0.1:9/x",
            "http://127.0.0.1:9/x/y",
        ] {
            assert!(settings.allowed(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "https://hooks.example/",
            "https://hooks.example/a2a/../admin",
            "https://hooks.example/a2a/%2e%2e/admin",
            "https://hooks.example.evil/a2a/",
            "https://hooks.example@evil/a2a/",
            "http://hooks.example/a2a/",
            "http://127.0.0.1:9/xy",
            "http://127.0.0.1:90/x",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
        ] {
            assert!(settings.allowed(bad).is_none(), "{bad}");
        }
        for (url, good) in [
            ("https://agents.example", true),
            ("https://agents.example:8443", true),
            ("https://agents.example/", false),
            ("https://agents.example?x", false),
            ("http://agents.example", false),
            ("agents.example", false),
        ] {
            let settings = Settings {
                public_url: Some(url.to_owned()),
                ..Settings::default()
            };
            assert_eq!(settings.check().is_ok(), good, "{url}");
        }
        assert!(Settings::default().allowed("https://hooks.example/").is_none());
        for bad in ["ftp://a/", "http://example.com/", "https://hooks.example"] {
            let settings = Settings {
                push_targets: vec![bad.to_owned()],
                ..Settings::default()
            };
            assert!(settings.check().is_err(), "{bad}");
        }
    }
}
