//! What an agent of a preset has: its own package, copies of its configuration, and a placeholder for its key.
use crate::installed;
use crate::support::{Lab, Limit, Output, for_each_identity};
use crate::world::{host, world};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));
/// Looks like a key of a service; random enough to be found anywhere.
const REAL: &str = "sk-lab-5d2a4860bdfe71c9a3e5f7d19f3c1b7e";

/// The configuration of a person.
fn configured(lab: &Lab) {
    lab.plant(
        "home/.claude/settings.json".as_ref(),
        r#"{ "model": "opus", "env": { "TOKEN": "s3cret-of-mine" }, "apiKeyHelper": "/bin/s3cret-of-mine" }"#,
    );
    lab.plant(
        "home/.claude/.credentials.json".as_ref(),
        &json!({ "claudeAiOauth": { "accessToken": REAL } }).to_string(),
    );
    lab.plant("home/.claude/commands/review.md".as_ref(), "review this\n");
    lab.plant("home/.claude/history.jsonl".as_ref(), "what I said\n");
}

fn nowhere(output: &Output) {
    let all = format!("{output:?}");
    assert!(!all.contains(REAL), "the key is seen: {all}");
    assert!(
        !all.contains("s3cret-of-mine"),
        "a secret of the settings is seen: {all}"
    );
}

#[test]
fn an_agent_reads_its_own_package_and_copies_and_nothing_of_the_persons_home() {
    for_each_identity(|lab| {
        configured(lab);
        let home = lab.home();
        let home = home.display();
        let script = format!(
            "echo own: $(cat {home}/npm/lib/node_modules/@anthropic-ai/claude-code/own.txt)\n\
             echo copy: $(cat $HOME/.claude/settings.json)\n\
             echo command: $(cat $HOME/.claude/commands/review.md)\n\
             for path in {home}/.claude/settings.json {home}/.claude/.credentials.json $HOME/.claude/.credentials.json \\\n\
               $HOME/.claude/history.jsonl {home}/npm/lib/node_modules/other/private.txt; do\n\
               cat $path 2>/dev/null && echo SEEN $path\ndone\n\
             echo phantom: $CLAUDE_CODE_OAUTH_TOKEN\necho telemetry: $DISABLE_TELEMETRY\n"
        );
        let output = installed(lab, &script).run(["claude", "-p", "hi"]);
        let said = output.said();
        assert!(said.contains("own: own file"), "{output:?}");
        assert!(
            said.contains("copy: { \"autoUpdates\": false, \"model\": \"opus\" }"),
            "{output:?}"
        );
        assert!(said.contains("command: review this"), "{output:?}");
        assert!(!said.contains("SEEN"), "{output:?}");
        assert!(said.contains("telemetry: 1"), "{output:?}");
        let phantom = said
            .lines()
            .find_map(|line| line.strip_prefix("phantom: "))
            .expect("the variable is there");
        assert!(!phantom.is_empty() && phantom != REAL, "{output:?}");
        let told = &output.ended.stderr;
        assert!(told.contains("preset: claude@1 (from the command)"), "{output:?}");
        assert!(
            told.contains("Claude Code 2.1.100, readable: ") && told.contains("/@anthropic-ai/claude-code"),
            "{output:?}"
        );
        assert!(told.contains("(without apiKeyHelper, env)"), "{output:?}");
        nowhere(&output);
    });
}

#[test]
fn what_an_agent_writes_to_its_configuration_does_not_reach_the_host() {
    for_each_identity(|lab| {
        configured(lab);
        let before = std::fs::read_to_string(lab.home().join(".claude/settings.json")).expect("was planted");
        let script = "echo '{\"hooks\": \"evil\"}' > $HOME/.claude/settings.json && cat $HOME/.claude/settings.json\n\
             echo more > $HOME/.claude/planted && echo more >> $HOME/.claude.json && echo written\n";
        let output = installed(lab, script).run(["claude"]);
        assert_eq!(output.said(), "{\"hooks\": \"evil\"}\nwritten", "{output:?}");
        let after = std::fs::read_to_string(lab.home().join(".claude/settings.json")).expect("is there");
        assert_eq!(after, before);
        assert!(!lab.home().join(".claude/planted").exists());
        assert!(!lab.home().join(".claude.json").exists());
    });
}

/// A preset for the lab's server, as somebody keeps one.
fn kept(holder: &str, other: &str) -> Value {
    json!({
        "version": 1,
        "extends": ["preset:default"],
        "agent": {
            "title": "Claude Code",
            "programs": ["claude"],
            "credentials": [{
                "name": "ANTHROPIC_API_KEY", "from": ["env:ABSENT_KEY", "env:ANTHROPIC_API_KEY"],
                "hosts": [holder], "ports": [world().tls], "header": "x-api-key: {}"
            }]
        },
        "net": { "allow": [format!("GET {other}:{}/**", world().tls)] }
    })
}

#[test]
fn the_real_key_reaches_its_own_host_alone_and_the_placeholder_is_another() {
    for_each_identity(|lab| {
        let (holder, other) = (host("model"), host("other"));
        lab.plant(
            "home/.config/bastle/presets/claude@2.json".as_ref(),
            &kept(&holder, &other).to_string(),
        );
        let tls = world().tls;
        let policy = world().policy(lab, &world().document(&json!({}), &json!({})));
        let script = format!(
            "echo phantom: $ANTHROPIC_API_KEY\n\
             for host in {holder} {other}; do\n\
               curl -sS -o /dev/null -w '%{{http_code}}\\n' -H \"x-api-key: $ANTHROPIC_API_KEY\" https://$host:{tls}/plain\ndone\n\
             env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'\n"
        );
        let fence = world().under(lab, &policy).within(SLOW);
        drop(installed(lab, &script));
        let path = format!("{}/npm/bin:/usr/bin:/bin", lab.home().display());
        let output = fence
            .env("PATH", &path)
            .env("ANTHROPIC_API_KEY", REAL)
            .run(["claude"]);
        assert!(
            output
                .ended
                .stderr
                .contains("preset: claude@2 (from the command)"),
            "{output:?}"
        );
        let phantom = output
            .said()
            .lines()
            .find_map(|line| line.strip_prefix("phantom: "))
            .expect("the variable is there")
            .to_owned();
        assert!(!phantom.is_empty() && phantom != REAL, "{output:?}");
        assert_eq!(sent(&holder), [REAL], "{output:?}");
        assert!(sent(&other).iter().all(|value| value != REAL), "{output:?}");
        assert!(
            output.said().contains("200"),
            "the allowed request works: {output:?}"
        );
        nowhere(&output);
    });
}

fn sent(host: &str) -> Vec<String> {
    let requests = world().seen(host);
    let headers = requests
        .iter()
        .filter_map(|request| request["headers"].as_array());
    headers
        .flatten()
        .filter(|pair| {
            pair[0]
                .as_str()
                .is_some_and(|name| name.eq_ignore_ascii_case("x-api-key"))
        })
        .map(|pair| pair[1].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn configuration_behind_a_link_is_not_copied() {
    for_each_identity(|lab| {
        let elsewhere = lab.plant("outside/settings.json".as_ref(), "{ \"model\": \"elsewhere\" }");
        let directory = lab.plant("home/.claude/.keep".as_ref(), "");
        std::os::unix::fs::symlink(&elsewhere, directory.with_file_name("settings.json")).expect("fresh");
        let output = installed(lab, "ls -A $HOME/.claude 2>&1; echo done\n").run(["claude"]);
        assert!(!output.said().contains("settings.json"), "{output:?}");
        assert!(output.said().contains("done"), "{output:?}");
        assert!(
            output
                .ended
                .stderr
                .contains("~/.claude/settings.json is not copied: it is a symlink"),
            "{output:?}"
        );
    });
}

#[test]
fn a_file_that_holds_the_key_itself_stops_the_start() {
    for_each_identity(|lab| {
        lab.plant("home/.claude/CLAUDE.md".as_ref(), &format!("the key is {REAL}\n"));
        let fence = installed(lab, "echo started\n").env("ANTHROPIC_API_KEY", REAL);
        let output = fence.run(["claude"]);
        assert_eq!(output.ended.code, 125, "{output:?}");
        assert!(output.said().is_empty(), "{output:?}");
        let told = &output.ended.stderr;
        assert!(
            told.contains("the value of ANTHROPIC_API_KEY would be readable inside"),
            "{output:?}"
        );
        assert!(told.contains("bastle secret set ANTHROPIC_API_KEY"), "{output:?}");
        // The control: the same file without the key is copied.
        lab.plant("home/.claude/CLAUDE.md".as_ref(), "no key\n");
        let fence = lab.fence().env("ANTHROPIC_API_KEY", REAL);
        let path = format!("{}/npm/bin:/usr/bin:/bin", lab.home().display());
        let output = fence.env("PATH", &path).run(["claude"]);
        assert_eq!(output.said(), "started", "{output:?}");
    });
}

#[test]
fn a_missing_key_is_told_with_the_command_that_helps() {
    for_each_identity(|lab| {
        let output = installed(lab, "echo ${ANTHROPIC_API_KEY:-none}\n").run(["claude"]);
        assert_eq!(output.said(), "none", "{output:?}");
        assert!(
            output
                .ended
                .stderr
                .contains("bastle secret set ANTHROPIC_API_KEY --from-stdin"),
            "{output:?}"
        );
        assert!(Path::new(&lab.home()).exists());
    });
}

#[test]
fn an_agent_is_told_of_a_fence_and_loses_its_own_sandbox_only_where_there_is_one() {
    for_each_identity(|lab| {
        let script = "echo told: ${IS_SANDBOX:-nothing}\necho words: $*\n";
        let inside = installed(lab, script).run(["claude", "-p", "hi"]);
        assert!(inside.said().contains("told: 1"), "{inside:?}");
        assert!(
            inside
                .said()
                .contains(r#"words: --settings {"sandbox":{"enabled":false}} -p hi"#),
            "{inside:?}"
        );
        let told = "its own sandbox is switched off inside";
        assert!(inside.ended.stderr.contains(told), "{inside:?}");
        // Without a fence programs of the home are not found: here it is the project's, and its preset is named.
        let program = lab.project("claude", &format!("#!/bin/sh\n{script}"));
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("own file");
        let bare = lab
            .fence()
            .flags(["--backend", "host", "--i-understand-this-is-not-a-fence"])
            .flags(["--preset", "claude"])
            .run(["./claude", "-p", "hi"]);
        assert_eq!(bare.said(), "told: nothing\nwords: -p hi", "{bare:?}");
        assert!(!bare.ended.stderr.contains(told), "{bare:?}");
    });
}
