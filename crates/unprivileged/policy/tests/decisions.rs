//! Decisions of the effective policy: what is denied, and that nothing in a workspace can widen it.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Flags, Managed, Project, User};
use Outcome::{Allow, Ask, Deny};
use bastle_contract::{Code, LimitKind};
use bastle_policy::{
    ExpansionSummary, LayerKind, MergeOptions, Mode, Outcome, Permit, decide, explain, floor, merge, names,
    permit, preset, selftest,
};
use common::{answer, ask, expanded, merged, path, surroundings, with_default};

#[test]
fn secrets_and_everything_that_is_not_granted_are_denied_by_default() {
    let policy = merged(&with_default(&[]));
    for (question, outcome) in [
        ("read ./src/main.rs", Allow),
        ("write ./src/main.rs", Allow),
        ("read /usr/bin/env", Allow),
        ("write /usr/bin/env", Deny),
        ("read ~/.ssh/id_ed25519", Deny),
        ("read ~/.SSH/id_ed25519", Deny),
        ("read ~/.aws/credentials", Deny),
        ("read ~/notes.txt", Deny),
        ("read /home/u/w-evil/x", Deny),
        ("read ./.env", Deny),
        ("read ./a/b/.Env.production", Deny),
        ("write ./.env", Deny),
        ("write ./.git/hooks/pre-commit", Ask),
        ("write ./sub/.git/config", Ask),
        ("write ./.github/workflows/ci.yml", Ask),
        ("read ./.git/config", Allow),
        ("read /etc/shadow", Deny),
        ("read /etc/passwd", Allow),
        ("write /etc/passwd", Deny),
        ("read /tmp/x", Allow),
        ("write /tmp/x", Allow),
        ("write /home/agent/x", Allow),
        ("read /", Deny),
        ("read /home/u", Deny),
        ("net https://example.com/", Deny),
        ("net http://169.254.169.254/latest", Deny),
        ("exec git push origin main", Ask),
        ("exec git push --force origin main", Deny),
        ("exec git push origin +main", Deny),
        ("exec ls -la", Allow),
        ("tool Read", Allow),
        ("tool Read(~/.ssh/id_rsa)", Deny),
        ("tool Edit(./.git/hooks/x)", Ask),
        ("tool Bash(git push -f)", Deny),
    ] {
        assert_eq!(answer(&policy, question), outcome, "{question}");
    }
}

#[test]
fn a_denial_names_its_code_its_rule_and_the_command_that_helps() {
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"hide": ["./private"]}}"#,
    )]));
    for (question, code) in [
        ("read ~/.ssh/id", Code::FsFloor),
        ("read ./private/x", Code::FsHidden),
        ("read ~/x", Code::FsRead),
        ("write /usr/x", Code::FsWrite),
        ("write ./.git/hooks/x", Code::FsProtected),
        ("exec git push -f", Code::ExecCommand),
        ("net x.com", Code::NetDenied),
    ] {
        let query = bastle_policy::Query::parse(question, &surroundings()).unwrap();
        let decision = decide(&policy, &query);
        assert_eq!(decision.code, Some(code), "{question}");
        let text = explain(&decision, &query);
        assert!(
            text.contains(&code.to_string()) && text.contains("help:"),
            "{text}"
        );
    }
    let hidden = ask(&policy, "read ./private/x");
    assert_eq!(
        hidden.rule.map(|(rule, origin)| (rule, origin.to_string())),
        Some(("fs.hide ./private".into(), "project.json:1".into()))
    );
    assert!(
        !ask(&policy, "exec git push -f").enforced,
        "command rules are advice"
    );
}

#[test]
fn text_of_the_agent_cannot_act_on_the_terminal_that_explains_a_denial() {
    let policy = merged(&with_default(&[]));
    let query = bastle_policy::Query::Exec("git push -f \x1b[2J\u{202e}".into());
    let text = explain(&decide(&policy, &query), &query);
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text:?}");
}

#[test]
fn a_project_file_never_widens_and_what_it_asked_for_is_listed() {
    let greedy = r#"{"version": 1,
      "fs": {"read": ["/", "~/", "."], "write": ["/", "./src"]},
      "net": {"allow": ["evil.com"], "default": "ask", "ipLiterals": true, "listen": [80]},
      "exec": {"allow": ["curl *"]}, "env": {"pass": ["AWS_SECRET_ACCESS_KEY", "LANG"], "set": {"X": "1"}},
      "secrets": [{"name": "T", "from": "keyring:x", "hosts": ["evil.com"]}],
      "git": {"push": "allow"}, "mode": "learn", "limits": {"pids": 100000}}"#;
    let policy = merged(&with_default(&[(Project, greedy)]));
    for (question, outcome) in [
        ("read ~/.ssh/id", Deny),
        ("read ~/x", Deny),
        ("write /usr/x", Deny),
        ("read ./x", Allow),
        ("write ./src/x", Allow),
        ("net evil.com", Deny),
        ("exec git push", Deny),
        ("exec ls", Deny),
    ] {
        assert_eq!(answer(&policy, question), outcome, "{question}");
    }
    assert_eq!(policy.mode.value, Mode::Enforce);
    assert_eq!(policy.limit(LimitKind::Pids).unwrap().value, 2048);
    assert!(
        policy.env_set.is_empty()
            && policy.secrets.is_empty()
            && policy.listen.is_empty()
            && !policy.net.ip_literals
    );
    let passed: Vec<&str> = policy.env_pass.iter().map(|name| name.value.as_str()).collect();
    assert_eq!(passed, ["LANG"]);
    let asked: Vec<&str> = policy
        .not_granted
        .iter()
        .map(|request| request.what.as_str())
        .collect();
    for what in [
        "fs.read /",
        "fs.read ~/",
        "fs.write /",
        "net.allow evil.com",
        "net.listen 80",
        "env.set X",
        "secrets T",
        "git.push allow",
        "env.pass AWS_SECRET_ACCESS_KEY",
    ] {
        assert!(asked.contains(&what), "{what} in {asked:?}");
    }
    assert!(
        policy.headline().contains("restricted") && policy.headline().contains("not granted"),
        "{}",
        policy.headline()
    );
}

#[test]
fn reading_less_also_writes_less_and_the_system_stays() {
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"read": ["./src"]}}"#,
    )]));
    assert_eq!(answer(&policy, "write ./src/a"), Allow);
    assert_eq!(answer(&policy, "read ./other"), Deny);
    assert_eq!(answer(&policy, "write ./other"), Deny);
    assert_eq!(answer(&policy, "read /usr/bin/ls"), Allow);
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"write": ["./src"]}}"#,
    )]));
    assert_eq!(answer(&policy, "read ./other"), Allow);
    assert_eq!(answer(&policy, "write ./other"), Deny);
}

#[test]
fn a_project_cannot_unhide_a_name_by_making_it_the_root_of_a_grant() {
    for text in [
        r#"{"version": 1, "fs": {"read": ["./.env.d"], "write": ["./.env.d"]}}"#,
        r#"{"version": 1, "fs": {"read": ["./.env.d/a"]}}"#,
    ] {
        let policy = merged(&with_default(&[(Project, text)]));
        assert_eq!(answer(&policy, "read ./.env.d/a"), Deny, "{text}");
        let policy = expanded(&with_default(&[(Project, text)]));
        assert_eq!(answer(&policy, "read ./.env.d/a"), Deny, "{text}");
    }
}

#[test]
fn a_narrower_reading_rule_of_the_operator_cannot_be_written_by_the_project() {
    let layers = with_default(&[
        (Flags, r#"{"version": 1, "fs": {"read": ["./vendor"]}}"#),
        (
            Project,
            r#"{"version": 1, "fs": {"read": ["."], "write": [".", "./vendor", "./vendor/x"]}}"#,
        ),
    ]);
    let policy = merged(&layers);
    assert_eq!(answer(&policy, "write ./vendor/x"), Deny);
    assert_eq!(answer(&policy, "write ./src/x"), Allow);
}

#[test]
fn expansion_works_only_when_the_operator_says_so_and_never_reaches_secrets_or_the_floor() {
    let text =
        r#"{"version": 1, "fs": {"write": ["/srv/cache"], "read": ["~/.ssh"]}, "env": {"set": {"A": "b"}}}"#;
    let layers = with_default(&[(Project, text)]);
    assert_eq!(answer(&merged(&layers), "write /srv/cache/x"), Deny);
    let policy = expanded(&layers);
    assert_eq!(answer(&policy, "write /srv/cache/x"), Allow);
    assert_eq!(answer(&policy, "read ~/.ssh/id"), Deny);
    assert!(policy.env_set.is_empty());
    assert!(
        matches!(policy.summary, ExpansionSummary::Expanded { .. }),
        "{:?}",
        policy.summary
    );
    assert!(policy.headline().contains("EXPANDED"));
}

#[test]
fn only_unprotect_opens_the_floor_and_only_at_that_path() {
    let layers = with_default(&[(
        User,
        r#"{"version": 1, "fs": {"read": ["~/.ssh", "~/.config/tool"]}}"#,
    )]);
    assert_eq!(answer(&merged(&layers), "read ~/.ssh/config"), Deny);
    let open = MergeOptions {
        unprotect: vec![path("/home/u/.ssh/config")],
        ..MergeOptions::default()
    };
    let policy = merge(&layers, &surroundings(), &open).unwrap();
    assert_eq!(answer(&policy, "read ~/.ssh/config"), Allow);
    assert_eq!(answer(&policy, "read ~/.ssh/id_ed25519"), Deny);
    assert_eq!(answer(&policy, "read ~/.config/tool/x"), Deny);
    // A project that hides it too keeps it hidden.
    let mut layers = layers;
    layers.push(common::layer(
        Project,
        r#"{"version": 1, "fs": {"hide": ["~/.ssh"]}}"#,
    ));
    assert_eq!(
        answer(
            &merge(&layers, &surroundings(), &open).unwrap(),
            "read ~/.ssh/config"
        ),
        Deny
    );
}

#[test]
fn a_lock_turns_lower_layers_into_restrictions_and_shows_what_became_inactive() {
    let layers = with_default(&[
        (
            Managed,
            r#"{"version": 1, "lock": ["fs", "net", "limits"], "net": {"allow": ["a.com"]}, "limits": {"pids": 50}}"#,
        ),
        (
            User,
            r#"{"version": 1, "fs": {"read": ["/srv"], "write": ["./src"]}, "net": {"allow": ["b.com", "a.com"]}, "limits": {"pids": 90}}"#,
        ),
    ]);
    let mut options = MergeOptions::default();
    options.unprotect.push(path("/home/u/.ssh"));
    let policy = merge(&layers, &surroundings(), &options).unwrap();
    assert_eq!(answer(&policy, "read /srv/x"), Deny);
    assert_eq!(answer(&policy, "net a.com"), Allow);
    assert_eq!(answer(&policy, "net b.com"), Deny);
    assert_eq!(policy.limit(LimitKind::Pids).unwrap().value, 50);
    assert!(policy.unprotect.is_empty());
    let inactive: Vec<&str> = policy.inactive.iter().map(|rule| rule.what.as_str()).collect();
    assert_eq!(
        inactive,
        ["--unprotect /home/u/.ssh", "fs.read /srv", "net.allow b.com"]
    );
    assert!(
        policy
            .inactive
            .iter()
            .all(|rule| rule.reason.contains("locked by managed.json"))
    );
}

#[test]
fn the_operator_replaces_a_presets_number_and_among_his_layers_the_least_wins() {
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "limits": {"pids": 9000}, "git": {"push": "allow"}}"#,
    )]));
    assert_eq!(policy.limit(LimitKind::Pids).unwrap().value, 9000);
    assert_eq!(answer(&policy, "exec git push"), Allow);
    let policy = merged(&with_default(&[
        (User, r#"{"version": 1, "limits": {"pids": 9000}}"#),
        (Flags, r#"{"version": 1, "limits": {"pids": 9500}}"#),
        (
            Project,
            r#"{"version": 1, "limits": {"pids": 700, "timeout": "1m"}}"#,
        ),
    ]));
    assert_eq!(policy.limit(LimitKind::Pids).unwrap().value, 700);
    assert_eq!(policy.limit(LimitKind::WallTime).unwrap().value, 60_000);
}

#[test]
fn an_ask_rule_of_a_project_never_lifts_a_denial() {
    let text = r#"{"version": 1, "net": {"ask": ["evil.com", "a.com"]}, "exec": {"ask": ["sudo", "ls"]}}"#;
    let layers = with_default(&[
        (
            User,
            r#"{"version": 1, "net": {"allow": ["a.com"]}, "exec": {"deny": ["sudo"]}}"#,
        ),
        (Project, text),
    ]);
    let policy = merged(&layers);
    assert_eq!(answer(&policy, "net evil.com"), Deny);
    assert_eq!(answer(&policy, "net a.com"), Ask);
    assert_eq!(answer(&policy, "exec sudo ls"), Deny);
    assert_eq!(answer(&policy, "exec ls"), Ask);
}

#[test]
fn a_projects_word_on_pushing_never_lifts_a_denial() {
    let layers = with_default(&[
        (
            User,
            r#"{"version": 1, "exec": {"allow": ["ls"]}, "git": {"push": "allow"}}"#,
        ),
        (Project, r#"{"version": 1, "git": {"push": "ask"}}"#),
    ]);
    assert_eq!(answer(&merged(&layers[..3]), "exec git push"), Deny);
    assert_eq!(answer(&merged(&layers), "exec git push"), Deny);
}

#[test]
fn hosts_are_matched_by_their_canonical_name_port_method_and_path() {
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "net": {"allow": ["*.x.com", "GET api.github.com/repos/acme/**", "y.com:8443"], "deny": ["bad.x.com"]}}"#,
    )]));
    for (question, outcome) in [
        ("net https://a.x.com/", Allow),
        ("net https://A.X.COM./", Allow),
        ("net https://x.com/", Deny),
        ("net https://bad.x.com/", Deny),
        ("net https://a.x.com.evil.org/", Deny),
        ("net a.x.com:8080", Deny),
        ("net y.com:8443", Allow),
        ("net y.com", Deny),
        ("net GET https://api.github.com/repos/acme/x", Allow),
        ("net POST https://api.github.com/repos/acme/x", Deny),
        ("net https://api.github.com/repos/acme/x", Deny),
        ("net GET https://api.github.com/repos/acme/../evil", Deny),
        ("net GET https://api.github.com/", Deny),
    ] {
        assert_eq!(answer(&policy, question), outcome, "{question}");
    }
    assert_eq!(
        ask(&policy, "net https://a.x.com/").mechanism,
        bastle_contract::Mechanism::Proxy
    );
}

#[test]
fn every_preset_reads_and_keeps_the_floor() {
    for name in names() {
        let policy = merged(&[preset(name).unwrap()]);
        assert_eq!(answer(&policy, "read ~/.ssh/id"), Deny, "{name}");
        assert_eq!(answer(&policy, "read ./x"), Allow, "{name}");
        let writable = if name == "read-only" { Deny } else { Allow };
        assert_eq!(answer(&policy, "write ./x"), writable, "{name}");
    }
    let dev = merged(&[preset("dev").unwrap()]);
    assert_eq!(answer(&dev, "read ~/.cargo/bin/cargo"), Allow);
    assert_eq!(answer(&dev, "write ~/.cargo/bin/cargo"), Deny);
    assert_eq!(answer(&dev, "read ~/.cargo/credentials.toml"), Deny);
    let free = merged(&[preset("safe-unrestricted").unwrap()]);
    for (line, outcome) in [
        ("rm -rf target", Allow),
        ("npm install left-pad", Allow),
        ("git push", Ask),
        ("cargo publish", Ask),
        ("sudo ls", Deny),
        ("git push -f", Deny),
    ] {
        assert_eq!(answer(&free, &format!("exec {line}")), outcome, "{line}");
    }
}

#[test]
fn an_unknown_preset_or_group_is_refused_with_the_nearest_name() {
    assert_eq!(preset("defualt").unwrap_err().help[0], "did you mean default?");
    assert_eq!(preset("default@9").unwrap_err().code, Code::PolicyReference);
    assert!(preset("default@1").is_ok());
    for bad in [
        r#"{"version": 1, "extends": ["preset:nope"]}"#,
        r#"{"version": 1, "extends": ["group:nmp"]}"#,
        r#"{"version": 1, "net": {"allow": ["group:nope"]}}"#,
    ] {
        let faults = merge(
            &with_default(&[(User, bad)]),
            &surroundings(),
            &MergeOptions::default(),
        )
        .unwrap_err();
        assert_eq!(faults[0].code, Code::PolicyReference, "{bad}");
    }
}

#[test]
fn a_project_that_extends_a_preset_only_narrows_to_it() {
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "extends": ["preset:read-only"]}"#,
    )]));
    assert_eq!(
        answer(&policy, "write ./x"),
        Allow,
        "read-only states reading only, which leaves writing where is read"
    );
    let policy = merged(&[
        preset("read-only").unwrap(),
        common::layer(Project, r#"{"version": 1, "extends": ["preset:default"]}"#),
    ]);
    assert_eq!(answer(&policy, "write ./x"), Deny);
}

#[test]
fn the_floor_is_there_even_when_nobody_passes_it() {
    let policy = merged(&[common::layer(
        User,
        r#"{"version": 1, "fs": {"read": ["~/.ssh"]}}"#,
    )]);
    assert_eq!(answer(&policy, "read ~/.ssh/id"), Deny);
    assert_eq!(
        policy.digest(),
        merged(&[
            floor().unwrap(),
            common::layer(User, r#"{"version": 1, "fs": {"read": ["~/.ssh"]}}"#)
        ])
        .digest()
    );
}

#[test]
fn in_file_tests_are_asked_against_the_effective_policy() {
    let text = r#"{"version": 1, "tests": [
      {"can": "read ./a", "is": "allow"}, {"can": "write ~/.ssh/id", "is": "allow"}, {"can": "exec git push", "is": "ask"}]}"#;
    let reports = selftest(&merged(&with_default(&[(Project, text)])));
    let passed: Vec<bool> = reports.iter().map(bastle_policy::TestReport::passed).collect();
    assert_eq!(passed, [true, false, true]);
    let fault = reports[1].fault().unwrap();
    assert_eq!(fault.code, Code::PolicyTest);
    assert!(fault.what.contains("project.json:2"), "{}", fault.what);
}

#[test]
fn an_agents_question_is_answered_by_your_own_rules_and_by_no_list_of_the_project() {
    let rules = r#"{"version": 1, "tools": {"allow": ["Read", "Edit(./src/**)", "Bash(cargo test *)"], "deny": ["WebFetch"]}}"#;
    let policy = merged(&with_default(&[(User, rules)]));
    for yes in ["Read(./src/a.rs)", "Edit(./src/a.rs)", "Bash(cargo test -q)"] {
        assert!(matches!(permit(&policy, yes), Permit::Allowed { .. }), "{yes}");
    }
    for no in ["WebFetch", "WebFetch(domain:example.com)"] {
        assert!(matches!(permit(&policy, no), Permit::Denied { .. }), "{no}");
    }
    for asked in [
        "Bash",
        "Bash(rm x)",
        "Bash(cargo test -q; rm x)",
        "Bash(cargo test $(rm x))",
        "Edit(./tests/a.rs)",
        "Edit(./src/../.git/config)",
        "Edit",
        "Write(./src/a.rs)",
        "not a tool",
        "",
    ] {
        assert_eq!(permit(&policy, asked), Permit::Ask, "{asked}");
    }
    // What nobody speaks about is allowed by the policy, which is no yes to a question.
    let silent = merged(&with_default(&[]));
    assert_eq!(permit(&silent, "Bash(rm x)"), Permit::Ask);
    let project = r#"{"version": 1, "tools": {"allow": ["Bash(rm *)"]}}"#;
    let policy = merged(&with_default(&[(Project, project)]));
    assert_eq!(permit(&policy, "Bash(rm x)"), Permit::Ask, "a project narrows");
}

#[test]
fn the_advice_about_a_hidden_file_opens_that_file_alone() {
    let policy = merged(&with_default(&[]));
    let help = |question: &str| {
        let question = bastle_policy::Query::parse(question, &surroundings()).unwrap();
        bastle_policy::decide(&policy, &question).help.join("\n")
    };
    let file = help("read ./.env.example");
    assert!(
        file.contains("--unprotect /home/u/w/.env.example -- CMD"),
        "{file}"
    );
    let inner = help("read ./.env.d/one");
    assert!(
        inner.contains("--unprotect '/home/u/w/.env.d/**'") && inner.contains("opens all of"),
        "{inner}"
    );
    let elsewhere = help("read ~/.aws/credentials");
    assert!(
        elsewhere.contains("--ro /home/u/.aws/credentials --unprotect /home/u/.aws/credentials"),
        "{elsewhere}"
    );
    for pattern in ["/w/.env*", "/w/*/x", "/**"] {
        let options = MergeOptions {
            unprotect: vec![path(pattern)],
            ..MergeOptions::default()
        };
        let faults = merge(&with_default(&[]), &surroundings(), &options).unwrap_err();
        assert!(
            faults[0].to_string().contains("cannot be used"),
            "{pattern}: {faults:?}"
        );
    }
}
