//! Codex's `config.toml`: sandbox mode, approvals, permission profiles.
use super::Became;
use super::draft::{Draft, Place};
use super::srt::{directory, refuse_host};
use toml::{Table, Value};

pub(super) fn read(config: &Table, draft: &mut Draft) {
    match config.get("sandbox_mode").and_then(Value::as_str) {
        Some("read-only") => {
            let rules = [(Place::Protect, "**/*".to_owned())];
            let why = "every file of the workspace is protected; --sandbox read-only says the same";
            draft.convert("sandbox_mode read-only", &rules, why);
        }
        Some("workspace-write") => draft.report(
            "sandbox_mode workspace-write",
            Became::Kept,
            &[],
            "the workspace can be written by default",
        ),
        Some("danger-full-access") => draft.report(
            "sandbox_mode danger-full-access",
            Became::Narrowed,
            &[],
            "there is no mode without a fence; the workspace can be written",
        ),
        Some(other) => draft.left_out(&format!("sandbox_mode {other}"), "it is not known"),
        None => {}
    }
    if let Some(Value::Table(section)) = config.get("sandbox_workspace_write") {
        workspace_write(section, draft);
    }
    approvals(config, draft);
    permissions(config, draft);
    let known = [
        "sandbox_mode",
        "sandbox_workspace_write",
        "approval_policy",
        "permissions",
        "default_permissions",
    ];
    let others: Vec<&str> = config
        .keys()
        .map(String::as_str)
        .filter(|key| !known.contains(key))
        .collect();
    if !others.is_empty() {
        draft.left_out(&others.join(", "), "not about what is allowed");
    }
}

fn workspace_write(section: &Table, draft: &mut Draft) {
    for (key, value) in section {
        match (key.as_str(), value) {
            ("writable_roots", Value::Array(roots)) => {
                for root in roots.iter().filter_map(Value::as_str) {
                    let rules = [(Place::Write, root.to_owned())];
                    draft.convert(&format!("writable_roots {root}"), &rules, "");
                }
            }
            ("network_access", Value::Boolean(true)) => draft.left_out(
                "network_access",
                "every host: only --net open on the command line says that; name hosts in net.allow",
            ),
            ("network_access", _) => draft.report("network_access", Became::Kept, &[], "no host is allowed"),
            _ => draft.left_out(key, "every run has a temporary directory of its own"),
        }
    }
}

fn approvals(config: &Table, draft: &mut Draft) {
    match config.get("approval_policy") {
        Some(Value::String(word)) if word == "untrusted" => {
            draft.convert(
                "approval_policy untrusted",
                &[(Place::ToolAsk, "Bash".to_owned())],
                "",
            );
        }
        Some(Value::String(word)) => draft.left_out(
            &format!("approval_policy {word}"),
            "the agent's own questions become approvals of the run; whether it asks is its own setting",
        ),
        Some(_) => {
            let rules = [(Place::ToolAsk, "Bash".to_owned())];
            draft.convert("approval_policy", &rules, "it has parts, so every command asks");
        }
        None => {}
    }
}

/// The profile that is in force: the named one, or the only one.
fn permissions(config: &Table, draft: &mut Draft) {
    let Some(Value::Table(profiles)) = config.get("permissions") else {
        return;
    };
    let named = config.get("default_permissions").and_then(Value::as_str);
    for (name, profile) in profiles {
        let in_force = named.map_or(profiles.len() == 1, |named| named == name);
        let Value::Table(profile) = profile else {
            draft.left_out(&format!("permissions.{name}"), "it is not a table");
            continue;
        };
        if !in_force {
            draft.left_out(
                &format!("permissions.{name}"),
                "default_permissions names another profile",
            );
            continue;
        }
        for (key, value) in profile {
            match (key.as_str(), value) {
                ("filesystem", Value::Table(paths)) => filesystem(paths, None, draft),
                ("network", Value::Table(network)) => self::network(network, draft),
                _ => draft.left_out(&format!("permissions.{name}.{key}"), "it is not known"),
            }
        }
    }
}

fn filesystem(paths: &Table, below: Option<&str>, draft: &mut Draft) {
    for (path, access) in paths {
        if let Value::Table(inner) = access
            && below.is_none()
        {
            match path.as_str() {
                ":workspace_roots" | ":project_roots" => filesystem(inner, Some("."), draft),
                path => filesystem(inner, Some(path), draft),
            }
            continue;
        }
        let own = match below {
            Some(".") if path == "." => ".".to_owned(),
            Some(".") => format!("./{path}"),
            Some(above) if path == "." => above.to_owned(),
            Some(above) => format!("{}/{path}", above.trim_end_matches('/')),
            None => path.clone(),
        };
        let own = directory(&own);
        let word = access.as_str().unwrap_or("none");
        let source = format!("filesystem {own} = {word}");
        match word {
            // Places with a name of Codex's own: the system, temporary files, the root.
            _ if own.starts_with(':') => match word {
                "read" | "write" => {
                    draft.left_out(&source, "the system is readable and temporary files are private")
                }
                _ => draft.left_out(
                    &source,
                    "it is no path; nothing but the system and the workspace is shown",
                ),
            },
            "read" | "write" if own.contains(['*', '?']) => {
                draft.left_out(&source, "a pattern grants nothing here: name the directory");
            }
            "read" => draft.convert(&source, &[(Place::Read, own)], ""),
            "write" => draft.convert(&source, &[(Place::Write, own)], ""),
            _ => {
                let bare = below == Some(".") && own.contains("**/");
                let own = if bare {
                    own.trim_start_matches("./").to_owned()
                } else {
                    own
                };
                draft.refuse_path(&source, Place::Hide, &own, "");
            }
        }
    }
}

fn network(network: &Table, draft: &mut Draft) {
    // Switched off as a whole, its list of domains is not in force.
    let on = network.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    if !on {
        draft.report("network.enabled", Became::Kept, &[], "no host is allowed");
    }
    for (key, value) in network {
        match (key.as_str(), value) {
            ("enabled", _) => {}
            ("domains", Value::Table(domains)) => {
                for (domain, word) in domains {
                    let source = format!("domains {domain}");
                    match word.as_str() {
                        Some("allow") if on => {
                            let rules = [(Place::NetAllow, domain.to_ascii_lowercase())];
                            draft.convert(&source, &rules, "");
                        }
                        Some("allow") => draft.left_out(&source, "the network is switched off"),
                        Some(_) | None => refuse_host(&source, domain, draft),
                    }
                }
            }
            _ => draft.left_out(&format!("network.{key}"), "egress decides about that here"),
        }
    }
}
