//! Presets of agents as data: what none of them may do, and who may write one.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_policy::{agent_presets, agent_presets_for, find_preset, parse, preset_version, read_preset};
use common::merged;

#[test]
fn no_preset_copies_a_login_or_a_history_and_none_keeps_a_key_in_its_copies() {
    let presets = agent_presets().unwrap();
    let names: Vec<&str> = presets.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(
        names,
        ["claude@1", "codex@1", "opencode@1", "gemini@1", "aider@1"]
    );
    for layer in &presets {
        let agent = layer.document.agent.as_ref().unwrap();
        for file in &agent.files {
            let name = file.from.rsplit('/').next().unwrap();
            for word in [
                "credential",
                "auth",
                "history",
                "oauth",
                "token",
                ".claude.json",
                ".conf.yml",
            ] {
                assert!(!name.contains(word), "{}: ~/{} is copied", layer.name, file.from);
            }
            if name.ends_with("settings.json") || name == "config.toml" || name == "opencode.json" {
                assert!(
                    file.without.iter().any(|key| key == "env"),
                    "{}: ~/{} keeps its variables",
                    layer.name,
                    file.from
                );
            }
        }
    }
}

#[test]
fn a_preset_allows_the_hosts_of_its_credentials_and_no_others() {
    for layer in agent_presets().unwrap() {
        let agent = layer.document.agent.as_ref().unwrap();
        assert!(!agent.credentials.is_empty(), "{}", layer.name);
        let hosts: Vec<String> = agent
            .credentials
            .iter()
            .flat_map(|credential| &credential.secret.hosts)
            .map(ToString::to_string)
            .collect();
        for rule in layer.document.net.allow.iter().flatten() {
            assert!(
                hosts.contains(&rule.value.to_string()),
                "{}: {}",
                layer.name,
                rule.value
            );
        }
        for credential in &agent.credentials {
            let name = credential.secret.name.as_str();
            assert_eq!(credential.from[0], format!("env:{name}"));
            assert_eq!(credential.from[1], format!("store:{name}"));
        }
        // By itself it names no secret: which one there is, is found on the host.
        assert!(layer.document.secrets.is_empty(), "{}", layer.name);
        merged(&[layer]);
    }
}

#[test]
fn only_a_preset_has_a_section_about_an_agent() {
    let agent = r#"{"version":1,"agent":{"title":"X","programs":["x"]}}"#;
    assert!(parse("agent-permissions.json", agent.as_bytes()).is_err());
    let kept = read_preset("x", 3, agent.as_bytes()).unwrap();
    assert_eq!((kept.name.as_str(), preset_version(&kept)), ("x@3", 3));
}

#[test]
fn a_preset_that_leads_out_of_the_home_or_takes_the_place_of_the_fence_is_refused() {
    let with = |more: &str| format!(r#"{{"version":1,"agent":{{"title":"X","programs":["x"],{more}}}}}"#);
    for bad in [
        r#""files":[{"from":"/etc/shadow"}]"#,
        r#""files":[{"from":"~/../x"}]"#,
        r#""files":[{"from":"~/a/*/b"}]"#,
        r#""files":[{"from":"~/*.md"}]"#,
        r#""files":[{"from":"~/a","to":"../b"}]"#,
        r#""files":[{"from":"~/a","to":"/b"}]"#,
        r#""files":[{"from":"~/a","most":"2GiB"}]"#,
        r#""make":[{"to":"a/../../b","text":"x"}]"#,
        r#""programs":["../x"]"#,
        r#""versions":{"from":"one","to":"2.0.0"}"#,
        r#""unknown":1"#,
    ] {
        assert!(read_preset("x", 1, with(bad).as_bytes()).is_err(), "{bad}");
    }
    assert!(
        read_preset(
            "x",
            1,
            with(r#""files":[{"from":"~/a/*.md","to":"b"}]"#).as_bytes()
        )
        .is_ok()
    );
    for (name, version) in [
        ("claude", 1),
        ("default", 2),
        ("dev", 2),
        ("floor", 2),
        ("none", 1),
        ("X", 1),
        ("x", 0),
        ("", 1),
    ] {
        assert!(
            read_preset(name, version, with(r#""notes":[]"#).as_bytes()).is_err(),
            "{name}@{version}"
        );
    }
}

#[test]
fn without_a_version_the_newest_is_meant_and_with_one_that_one() {
    let text = r#"{"version":1,"agent":{"title":"Claude Code","programs":["claude"]}}"#;
    let kept: Vec<_> = [2, 10, 3]
        .map(|version| read_preset("claude", version, text.as_bytes()).unwrap())
        .into();
    assert_eq!(find_preset("claude", &kept).unwrap().name, "claude@10");
    assert_eq!(find_preset("claude@3", &kept).unwrap().name, "claude@3");
    assert_eq!(find_preset("claude@1", &kept).unwrap().name, "claude@1");
    assert!(find_preset("claude@4", &kept).is_err());
    assert_eq!(find_preset("codex", &kept).unwrap().name, "codex@1");
}

#[test]
fn every_command_line_that_names_an_agent_has_its_preset_read() {
    for layer in agent_presets().unwrap() {
        let agent = layer.document.agent.clone().unwrap();
        let mut lines: Vec<Vec<String>> = Vec::new();
        for program in &agent.programs {
            lines.push(vec![program.clone(), "-p".to_owned()]);
            lines.push(vec![format!("/opt/bin/{program}")]);
            lines.push(vec!["env".to_owned(), "A=b".to_owned(), program.clone()]);
            lines.push(vec!["npx".to_owned(), "-y".to_owned(), format!("{program}@1.2")]);
        }
        for package in &agent.packages {
            lines.push(vec!["npx".to_owned(), package.clone()]);
            lines.push(vec!["uvx".to_owned(), format!("{package}@latest")]);
            lines.push(vec![
                "node".to_owned(),
                format!("/x/node_modules/{package}/cli.js"),
            ]);
            lines.push(vec![
                "bun".to_owned(),
                format!("/node_modules/a/node_modules/{package}/node_modules/b/cli.js"),
            ]);
        }
        for line in lines {
            // bun obeys the project's bunfig.toml, so it is no certain way either.
            let runner = ["npx", "uvx", "bun"].contains(&line[0].as_str());
            let picked = bastle_policy::agent::pick(&agent, &line);
            assert!(
                picked.is_some_and(|pick| (pick.way == bastle_policy::agent::Way::Own) != runner),
                "control: {line:?}"
            );
            let read = agent_presets_for(&line).unwrap();
            assert!(read.contains(&layer), "{line:?}");
        }
    }
    let plain = ["./run.sh", "--everything"].map(str::to_owned);
    assert_eq!(agent_presets_for(&plain).unwrap(), []);
}
