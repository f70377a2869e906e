//! The sandbox runtime's settings, and the `sandbox` section of Claude's, which has the same words.
//!
//! There, reading is open by default and a narrower path wins; here nothing is open, and what is refused stays refused.
use super::Became;
use super::draft::{Draft, Place};
use crate::agent::read::plain;
use crate::json::Node;
use serde_json::{Map, Value, json};

pub(super) fn read(root: &Node, draft: &mut Draft) {
    match plain(root) {
        Value::Object(settings) => sandbox(&settings, draft),
        _ => draft.left_out("the file", "it is not an object"),
    }
}

/// The two sections, wherever they stand.
pub(super) fn sandbox(settings: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in settings {
        match (key.as_str(), value) {
            ("network", Value::Object(network)) => self::network(network, draft),
            ("filesystem", Value::Object(filesystem)) => self::filesystem(filesystem, draft),
            ("credentials", Value::Object(credentials)) => self::credentials(credentials, draft),
            ("enabled" | "autoAllowBashIfSandboxed", _) => {
                draft.left_out(key, "the fence is always on, and questions are separate from it");
            }
            ("excludedCommands" | "allowUnsandboxedCommands", _) => {
                draft.left_out(key, "nothing runs outside the fence");
            }
            _ => draft.left_out(key, "it is not about what is allowed, or not known"),
        }
    }
}

fn texts<'v>(value: &'v Value, name: &str, draft: &mut Draft) -> Vec<&'v str> {
    let Value::Array(items) = value else {
        draft.left_out(name, "it is not a list");
        return Vec::new();
    };
    items.iter().filter_map(Value::as_str).collect()
}

fn network(network: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in network {
        match key.as_str() {
            "allowedDomains" => {
                for domain in texts(value, key, draft) {
                    let why = if domain == "*" {
                        "every host: only --net open on the command line says that"
                    } else {
                        ""
                    };
                    draft.convert(
                        &format!("{key} {domain}"),
                        &[(Place::NetAllow, domain.to_ascii_lowercase())],
                        why,
                    );
                }
            }
            "deniedDomains" => {
                for domain in texts(value, key, draft) {
                    refuse_host(&format!("{key} {domain}"), domain, draft);
                }
            }
            _ => draft.left_out(
                &format!("network.{key}"),
                "the fence has no such door: sockets and ports of the host are not reachable",
            ),
        }
    }
}

/// A host that is refused. What is no host name in our words could not be allowed either, but for a wildcard.
pub(super) fn refuse_host(source: &str, domain: &str, draft: &mut Draft) {
    let domain = domain.to_ascii_lowercase();
    if domain
        .trim_matches(['[', ']'])
        .parse::<std::net::IpAddr>()
        .is_ok()
    {
        let why = "hosts are reached by name here, never by address";
        return draft.report(source, Became::Kept, &[], why);
    }
    let mut rules = vec![(Place::NetDeny, domain.clone())];
    // Some tools let `*.x` stand for x itself too; refusing it as well refuses more.
    if let Some(bare) = domain.strip_prefix("*.") {
        rules.push((Place::NetDeny, bare.to_owned()));
    }
    draft.convert(source, &rules, "");
}

fn filesystem(filesystem: &Map<String, Value>, draft: &mut Draft) {
    let list = |key: &str| -> Vec<String> {
        let items = filesystem.get(key).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    draft.report(
        "reading by default",
        Became::Narrowed,
        &[],
        "there everything can be read unless refused; here the workspace, the system and what is listed",
    );
    let denied = list("denyRead");
    for path in &denied {
        draft.refuse_path(&format!("denyRead {path}"), Place::Hide, &directory(path), "");
    }
    for path in list("denyWrite") {
        draft.refuse_path(
            &format!("denyWrite {path}"),
            Place::Protect,
            &directory(&path),
            "",
        );
    }
    for (key, place) in [("allowRead", Place::Read), ("allowWrite", Place::Write)] {
        for path in list(key) {
            let source = format!("{key} {path}");
            let own = directory(&path);
            let hidden = denied.iter().any(|denied| {
                let denied = directory(denied);
                own == denied || own.starts_with(&format!("{denied}/"))
            });
            if hidden {
                draft.left_out(
                    &source,
                    "it lies in what denyRead refuses, and here a refusal stays one",
                );
            } else if own.contains(['*', '?']) {
                draft.left_out(&source, "a pattern grants nothing here: name the directory");
            } else {
                draft.convert(&source, &[(place, own)], "");
            }
        }
    }
    for key in filesystem.keys() {
        if !["denyRead", "denyWrite", "allowRead", "allowWrite"].contains(&key.as_str()) {
            draft.left_out(&format!("filesystem.{key}"), "it is not known");
        }
    }
}

/// `x/**` is the directory.
pub(super) fn directory(path: &str) -> String {
    let path = path.strip_suffix("/**").unwrap_or(path);
    let path = path.strip_suffix("/*").unwrap_or(path);
    if path.is_empty() {
        "/".to_owned()
    } else {
        path.to_owned()
    }
}

fn credentials(credentials: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in credentials {
        for item in value.as_array().into_iter().flatten() {
            let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
            match key.as_str() {
                "files" => {
                    let path = text("path").to_owned();
                    draft.refuse_path(&format!("credentials {path}"), Place::Hide, &path, "");
                }
                "envVars" => {
                    let name = text("name").to_owned();
                    let hosts: Vec<&str> = item
                        .get("injectHosts")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .collect();
                    let source = format!("credentials {name}");
                    let plain = !name.is_empty()
                        && name
                            .bytes()
                            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
                        && !name.starts_with(|first: char| first.is_ascii_digit())
                        && hosts
                            .iter()
                            .all(|host| crate::host::HostPattern::new(host).is_ok());
                    if text("mode") == "mask" && !hosts.is_empty() && plain {
                        draft.secret(json!({ "name": name, "from": format!("env:{name}"), "hosts": hosts }));
                        draft.report(&source, Became::Kept, &[format!("secrets {name}")], "");
                    } else {
                        draft.left_out(
                            &source,
                            "no variable of the host is passed in, so there is nothing to mask",
                        );
                    }
                }
                _ => draft.left_out(&format!("credentials.{key}"), "it is not known"),
            }
        }
    }
}
