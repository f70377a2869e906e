//! Importers: the result never allows what the source refuses, and every rule is accounted for.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_policy::{
    Became, Effective, ImportFile, ImportStanding, ImportTool, Imported, Layer, LayerKind, MergeOptions,
    Outcome, Query, decide, default_layers, import, merge, parse,
};
use common::surroundings;
use proptest::prelude::*;
use serde_json::json;

fn imported(tool: ImportTool, name: &str, text: &str) -> Imported {
    let file = ImportFile {
        name: name.to_owned(),
        standing: ImportStanding::Project,
        bytes: text.as_bytes().to_vec(),
    };
    import(tool, &[file]).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
}

fn effective(imported: &Imported) -> Effective {
    let mut layers = default_layers("default").unwrap();
    layers.push(Layer {
        kind: LayerKind::User,
        name: "import".to_owned(),
        document: parse("import", imported.text.as_bytes()).unwrap().into(),
    });
    merge(&layers, &surroundings(), &MergeOptions::default()).unwrap()
}

fn asks(policy: &Effective, question: &str) -> Outcome {
    let query = Query::parse(question, &surroundings()).unwrap_or_else(|why| panic!("{question}: {why}"));
    decide(policy, &query).outcome
}

fn line<'i>(imported: &'i Imported, rule: &str) -> &'i bastle_policy::ImportLine {
    imported
        .report
        .iter()
        .find(|line| line.rule.contains(rule))
        .unwrap_or_else(|| panic!("no line about {rule}: {:#?}", imported.report))
}

#[test]
fn claude_denials_of_files_become_the_kernels_and_of_commands_stay() {
    let settings = json!({
        "permissions": {
            "deny": ["Read(./.secrets/**)", "Read(.env.local)", "Bash(curl *)", "Bash(git push:*)", "WebFetch(domain:evil.example)", "Edit(/ci/**)"],
            "ask": ["Bash(npm publish *)"],
            "allow": ["Bash(cargo test *)", "WebFetch(domain:docs.example)", "Read(//opt/data/**)", "Write(./x)", "mcp__github__get_*"],
            "additionalDirectories": ["~/notes"]
        },
        "hooks": {}
    });
    let imported = imported(ImportTool::Claude, "settings.json", &settings.to_string());
    let policy = effective(&imported);
    for (question, is) in [
        ("read ./.secrets/key", Outcome::Deny),
        ("read ./deep/.env.local", Outcome::Deny),
        ("read ./src/main.rs", Outcome::Allow),
        ("read /opt/data/set", Outcome::Allow),
        ("read ~/notes/a", Outcome::Allow),
        ("read ~/other", Outcome::Deny),
        ("tool Bash(curl https://x.example)", Outcome::Deny),
        ("tool Bash(git push origin main)", Outcome::Deny),
        ("tool Bash(npm publish --tag x)", Outcome::Ask),
        ("tool Bash(cargo test -q)", Outcome::Allow),
        ("tool Bash(rm -rf x)", Outcome::Deny),
        ("net GET https://docs.example/", Outcome::Allow),
        ("net POST https://docs.example/", Outcome::Deny),
        ("net GET https://evil.example/", Outcome::Deny),
    ] {
        assert_eq!(asks(&policy, question), is, "{question}\n{}", imported.text);
    }
    assert_ne!(asks(&policy, "write ./ci/build.yml"), Outcome::Allow);
    assert_eq!(line(&imported, "Write(./x)").became, Became::LeftOut);
    assert_eq!(line(&imported, "additionalDirectories").became, Became::Narrowed);
    assert_eq!(line(&imported, "hooks").became, Became::LeftOut);
    assert_eq!(line(&imported, "Bash(curl *)").became, Became::Kept);
}

#[test]
fn codex_profiles_and_literal_rules_keep_their_refusals() {
    let config = "sandbox_mode = \"read-only\"\napproval_policy = \"on-request\"\ndefault_permissions = \"mine\"\n\
        [permissions.mine.filesystem]\n\"~/data\" = \"read\"\n\"~/data/private\" = \"none\"\n\
        [permissions.mine.network.domains]\n\"api.example\" = \"allow\"\n\"*.bad.example\" = \"deny\"\n\
        [permissions.other.filesystem]\n\"/srv\" = \"write\"\n";
    let rules = "# ours\nprefix_rule(\n  pattern = [\"git\", [\"push\", \"fetch\"]],\n  decision = \"forbidden\",\n  \
        justification = \"ask a person\",\n  match = [\"git push origin\", [\"git\", \"fetch\"]],\n)\n\
        prefix_rule(pattern=['cargo', 'test'], decision=\"allow\")\n";
    let file = |name: &str, text: &str| ImportFile {
        name: name.to_owned(),
        standing: ImportStanding::Home,
        bytes: text.as_bytes().to_vec(),
    };
    let imported = import(
        ImportTool::Codex,
        &[file("config.toml", config), file("default.rules", rules)],
    )
    .unwrap();
    let policy = effective(&imported);
    for (question, is) in [
        ("read ~/data/x", Outcome::Allow),
        ("read ~/data/private/x", Outcome::Deny),
        ("read /srv/x", Outcome::Deny),
        ("net GET https://api.example/", Outcome::Allow),
        ("net GET https://a.bad.example/", Outcome::Deny),
        ("tool Bash(git push)", Outcome::Deny),
        ("tool Bash(git fetch --all)", Outcome::Deny),
        ("tool Bash(cargo test)", Outcome::Allow),
    ] {
        assert_eq!(asks(&policy, question), is, "{question}\n{}", imported.text);
    }
    assert_ne!(asks(&policy, "write ./src/main.rs"), Outcome::Allow);
    assert!(line(&imported, "git push").rule.contains("ask a person"));
    assert!(
        imported.text.contains("tool Bash(git push origin)"),
        "{}",
        imported.text
    );
}

#[test]
fn rules_that_are_programs_are_not_guessed_at() {
    let rules = "for x in [\"a\"]:\n    prefix_rule(pattern=[x], decision=\"forbidden\")\n";
    let imported = imported(ImportTool::Codex, "a.rules", rules);
    assert_eq!(asks(&effective(&imported), "tool Bash(a)"), Outcome::Ask);
    assert!(imported.report.iter().any(|line| line.why.contains("literal")));
}

#[test]
fn the_order_of_opencode_is_resolved_and_differences_are_told() {
    let settings = r#"{
        // the last match wins
        "permission": {
            "edit": "ask",
            "bash": { "rm *": "deny", "*": "ask", "git push *": "deny", "git *": "allow", "ls": "allow" },
            "read": { "*": "allow", "*.pem": "deny" },
            "external_directory": { "~/shared/**": "allow" }
        },
        "theme": "x",
    }"#;
    let imported = imported(ImportTool::Opencode, "opencode.json", settings);
    let policy = effective(&imported);
    for (question, is) in [
        ("tool Bash(git status)", Outcome::Allow),
        ("tool Bash(ls)", Outcome::Allow),
        ("read ./a/server.pem", Outcome::Deny),
        ("read ~/shared/x", Outcome::Allow),
        ("write ~/shared/x", Outcome::Deny),
    ] {
        assert_eq!(asks(&policy, question), is, "{question}\n{}", imported.text);
    }
    assert_ne!(asks(&policy, "tool Bash(make)"), Outcome::Allow);
    assert_eq!(line(&imported, "bash rm *").became, Became::LeftOut);
    // There `git *` comes last and allows pushing; here the refusal stays, and the report says so.
    assert_eq!(asks(&policy, "tool Bash(git push x)"), Outcome::Deny);
    assert_eq!(line(&imported, "bash git *").became, Became::Narrowed);
}

#[test]
fn settings_of_the_sandbox_runtime_keep_masks_and_refusals() {
    let settings = json!({
        "network": { "allowedDomains": ["api.example", "*.cdn.example", "*"], "deniedDomains": ["x.cdn.example", "10.0.0.1"], "allowLocalBinding": true },
        "filesystem": { "denyRead": ["~/.ssh", "~/work"], "allowRead": ["~/work/ok", "~/pub"], "allowWrite": [".", "/tmp/x", "src/**/gen"], "denyWrite": ["./locked"] },
        "credentials": { "envVars": [{ "name": "GH_TOKEN", "mode": "mask", "injectHosts": ["api.example"] }] }
    });
    let imported = imported(ImportTool::Srt, "srt.json", &settings.to_string());
    let policy = effective(&imported);
    for (question, is) in [
        ("net GET https://api.example/", Outcome::Allow),
        ("net GET https://a.cdn.example/", Outcome::Allow),
        ("net GET https://x.cdn.example/", Outcome::Deny),
        ("net GET https://other.example/", Outcome::Deny),
        ("read ~/pub/a", Outcome::Allow),
        ("read ~/work/ok", Outcome::Deny),
    ] {
        assert_eq!(asks(&policy, question), is, "{question}\n{}", imported.text);
    }
    assert_ne!(asks(&policy, "write ./locked/a"), Outcome::Allow);
    assert!(imported.text.contains("env:GH_TOKEN"));
    let all = imported
        .report
        .iter()
        .find(|line| line.rule == "allowedDomains *")
        .unwrap();
    assert_eq!(all.became, Became::LeftOut);
}

#[test]
fn a_refusal_that_cannot_be_said_withdraws_what_it_refused() {
    let settings = json!({ "network": { "allowedDomains": ["a.example"], "deniedDomains": ["*"] } });
    let all = imported(ImportTool::Srt, "srt.json", &settings.to_string());
    assert_eq!(
        asks(&effective(&all), "net GET https://a.example/"),
        Outcome::Deny
    );
    let settings = json!({ "filesystem": { "denyRead": ["~"], "allowWrite": ["~/x"] } });
    let home = imported(ImportTool::Srt, "srt.json", &settings.to_string());
    assert_eq!(asks(&effective(&home), "write ~/x/a"), Outcome::Deny);
    let settings = json!({ "permissions": { "deny": ["Bash(*sudo*)"], "allow": ["Bash(make *)"] } });
    let shell = imported(ImportTool::Claude, "settings.json", &settings.to_string());
    assert_eq!(asks(&effective(&shell), "tool Bash(make sudo)"), Outcome::Ask);
}

#[test]
fn a_file_that_is_made_to_take_long_ends_soon() {
    let lines = "x\n".repeat(100_000);
    let words = format!(
        "{{\"permissions\":{{\"deny\":[\"Bash(\u{e9} {})\"]}}}}",
        "a ".repeat(60_000)
    );
    let path = format!(
        "{{\"filesystem\":{{\"denyRead\":[\"/{}\"]}}}}",
        "a/".repeat(100_000)
    );
    for (tool, name, text) in [
        (ImportTool::Codex, "a.rules", lines.as_str()),
        (ImportTool::Claude, "settings.json", &words),
        (ImportTool::Srt, "srt.json", &path),
    ] {
        let file = ImportFile {
            name: name.to_owned(),
            standing: ImportStanding::Project,
            bytes: text.as_bytes().to_vec(),
        };
        // That it returns is what is tried: each of these is quadratic for a reader without bounds.
        drop(import(tool, &[file]));
    }
}

#[test]
fn settings_that_are_too_large_or_broken_are_refused() {
    let big = format!("{{\"x\":\"{}\"}}", "a".repeat(300 * 1024));
    for (tool, name, text) in [
        (ImportTool::Claude, "settings.json", big.as_str()),
        (ImportTool::Claude, "settings.json", "{"),
        (ImportTool::Codex, "config.toml", "= 1"),
        (ImportTool::Opencode, "opencode.json", "[1"),
    ] {
        let file = ImportFile {
            name: name.to_owned(),
            standing: ImportStanding::Project,
            bytes: text.as_bytes().to_vec(),
        };
        assert!(import(tool, &[file]).is_err(), "{name}");
    }
}

fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![Just("a"), Just("b"), Just("c.txt"), Just("d")];
    (
        prop_oneof![Just("~/"), Just("./"), Just("/srv/"), Just("")],
        prop::collection::vec(part, 1..4),
    )
        .prop_map(|(root, parts)| format!("{root}{}", parts.join("/")))
}

fn command() -> impl Strategy<Value = String> {
    let word = prop_oneof![Just("push"), Just("status"), Just("-x"), Just("origin")];
    (
        prop_oneof![Just("git"), Just("npm"), Just("make")],
        prop::collection::vec(word, 0..3),
    )
        .prop_map(|(program, words)| {
            let mut line = vec![program];
            line.extend(words);
            line.join(" ")
        })
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a.example".to_owned()),
        Just("x.a.example".to_owned()),
        Just("*.a.example".to_owned()),
        Just("b.example".to_owned())
    ]
}

/// Whether a command begins with the words of a rule that ends in ` *`.
fn begins(command: &str, rule: &str) -> bool {
    command == rule || command.starts_with(&format!("{rule} "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_claude_denies_is_never_allowed(
        allow in prop::collection::vec(command(), 0..4), deny in prop::collection::vec(command(), 1..4),
        read in prop::collection::vec(path(), 0..4), hide in prop::collection::vec(path(), 1..4), used in command(),
    ) {
        let allowed: Vec<String> = allow.iter().map(|line| format!("Bash({line} *)"))
            .chain(read.iter().map(|path| format!("Read({path}/**)"))).collect();
        let denied: Vec<String> = deny.iter().map(|line| format!("Bash({line} *)"))
            .chain(hide.iter().map(|path| format!("Read({path}/**)"))).collect();
        let text = json!({ "permissions": { "allow": allowed, "deny": denied } }).to_string();
        let imported = imported(ImportTool::Claude, "settings.json", &text);
        let policy = effective(&imported);
        if deny.iter().any(|rule| begins(&used, rule)) {
            prop_assert_eq!(asks(&policy, &format!("tool Bash({used})")), Outcome::Deny);
        }
        for path in &hide {
            let below = if path.starts_with(['~', '.', '/']) { path.clone() } else { format!("./{path}") };
            // A rule with one leading slash is about the project there.
            let below = below.strip_prefix('/').map_or(below.clone(), |rest| format!("./{rest}"));
            for asked in [below.clone(), format!("{below}/deep/file")] {
                prop_assert_eq!(asks(&policy, &format!("read {asked}")), Outcome::Deny, "{}", asked);
            }
        }
    }

    #[test]
    fn what_opencode_refuses_last_is_never_allowed(
        rules in prop::collection::vec((command(), prop_oneof![Just("allow"), Just("ask"), Just("deny")]), 1..6),
        default in prop_oneof![Just(None), Just(Some("allow")), Just(Some("ask")), Just(Some("deny"))], used in command(),
    ) {
        let mut members: Vec<String> = default.iter().map(|word| format!("\"*\": \"{word}\"")).collect();
        let mut last = default.unwrap_or("allow");
        let mut seen = Vec::new();
        for (line, word) in &rules {
            if seen.contains(line) { continue; }
            seen.push(line.clone());
            members.push(format!("\"{line} *\": \"{word}\""));
            if begins(&used, line) { last = word; }
        }
        let text = format!("{{\"permission\": {{\"bash\": {{{}}}}}}}", members.join(", "));
        let policy = effective(&imported(ImportTool::Opencode, "opencode.json", &text));
        let ours = asks(&policy, &format!("tool Bash({used})"));
        match last {
            "deny" => prop_assert_eq!(ours, Outcome::Deny, "{}", text),
            "ask" => prop_assert_ne!(ours, Outcome::Allow, "{}", text),
            _ => {}
        }
    }

    #[test]
    fn what_srt_denies_is_never_reachable(
        allow in prop::collection::vec(host(), 0..4), deny in prop::collection::vec(host(), 1..3),
        read in prop::collection::vec(path(), 0..4), hide in prop::collection::vec(path(), 1..4),
    ) {
        let text = json!({
            "network": { "allowedDomains": allow, "deniedDomains": deny },
            "filesystem": { "denyRead": hide, "allowRead": read, "allowWrite": read },
        }).to_string();
        let policy = effective(&imported(ImportTool::Srt, "srt.json", &text));
        for host in deny.iter().map(|host| host.replace('*', "w")) {
            prop_assert_eq!(asks(&policy, &format!("net GET https://{host}/")), Outcome::Deny);
        }
        for path in &hide {
            let path = if path.starts_with(['~', '.', '/']) { path.clone() } else { format!("./{path}") };
            prop_assert_eq!(asks(&policy, &format!("read {path}/x")), Outcome::Deny, "{}", path);
        }
    }

    #[test]
    fn any_bytes_are_imported_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        bastle_policy::fuzzing::fuzz_import(&bytes);
    }
}

#[test]
fn codex_rules_that_are_no_rule_and_not_ascii_are_reported_and_nothing_is_allowed() {
    for rules in [
        "é",
        "prefix_rule(é",
        "→ prefix_rule(pattern = [\"ls\"])\n",
        "\u{feff}é\n",
    ] {
        let imported = imported(ImportTool::Codex, "a.rules", rules);
        assert_ne!(
            asks(&effective(&imported), "tool Bash(ls)"),
            Outcome::Allow,
            "{rules:?}"
        );
    }
}
