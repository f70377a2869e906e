//! The small verbs, and the manners of all: exit codes, streams, colour, JSON that follows its schema.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // A test that cannot go on fails.
mod cli_support;

use cli_support::{Place, Said, denied, follows_schema, run};

#[test]
fn every_json_output_follows_its_schema() {
    let place = Place::new();
    place.write("agent-permissions.json", r#"{"version":1,"fs":{"write":["./src","/etc"]},"exec":{"deny":["docker"]},"tests":[{"can":"read ./x","is":"allow"}]}"#);
    place.write("bad.json", "{\"version\":1,\"nope\":1}");
    place.write("net.json", r#"{"version":1,"net":{"allow":["example.com"],"ask":["POST example.org/**"]},"tests":[{"can":"read /x","is":"allow"}]}"#);
    let ids = place.record("calm-otter-0001", &[denied("/etc/one")]);
    drop(place.open_log("killed-0001"));
    for line in [
        "policy show --json",
        "policy show --json --policy net.json",
        "policy check --json bad.json net.json agent-permissions.json missing.json",
        "policy lint --json",
        "policy lint --json net.json",
        "policy test --json",
        "policy test --json net.json",
        "policy diff --json default dev",
        "policy score --json",
        "policy presets --json",
        "policy blocked-commands --json --preset safe-unrestricted",
        "can-i --json read /etc/shadow",
        "can-i --json write src/x",
        "can-i --json exec docker ps",
        "can-i --json net GET https://example.com/a",
        "can-i --json tool Read",
        "why --json",
        "why --json /etc",
        "audit ls --json",
        "audit show --json calm-otter-0001",
        "audit verify --all --json",
        "explain --json BST-FS-001",
        "explain --json --list",
        "version --json",
    ] {
        follows_schema(&place.say(line).out);
    }
    follows_schema(&place.bastle(["why", &ids[0], "--json"]).out);
    for line in [
        "can-i --json read x --preset nonesuch",
        "explain --json NOPE",
        "audit show --json nobody",
        "explain --json --nope",
        "policy show --json --policy bad.json",
    ] {
        let said = place.say(line);
        assert!(said.code != 0 && said.out.is_empty(), "{line}: {said:?}");
        said.err.lines().for_each(follows_schema);
    }
}

#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let failed = std::panic::catch_unwind(|| {
        follows_schema(r#"{"schema":"bastle.version/v1","version":"1","kernel":"x","arch":"y","more":1}"#)
    });
    assert!(failed.is_err());
}

#[test]
fn explain_knows_every_code_and_an_unknown_one_is_not_found_with_a_hint() {
    let place = Place::new();
    for code in bastle_contract::Code::ALL {
        let said = place.bastle(["explain", code.info().code]).exits(0);
        assert!(
            said.out.contains(code.info().meaning) && said.out.contains("fix:"),
            "{said:?}"
        );
    }
    let said = place.say("explain BST-FS-01").exits(3);
    assert!(
        said.err.contains("did you mean BST-FS-001") && said.out.is_empty(),
        "{said:?}"
    );
    place.say("explain bst-fs-001").exits(0);
    assert!(
        !place
            .bastle(["explain", "\u{1b}[2J"])
            .exits(3)
            .err
            .contains('\u{1b}')
    );
    place.say("explain").exits(2);
    assert_eq!(
        place.say("explain --list").exits(0).out.lines().count(),
        bastle_contract::Code::ALL.len() + 1
    );
}

#[test]
fn a_slip_in_a_verb_or_flag_is_a_usage_error_with_a_hint() {
    let place = Place::new();
    assert!(place.say("polcy show").exits(2).err.contains("policy"));
    assert!(place.say("policy show --orgin").exits(2).err.contains("--origin"));
    assert!(place.bastle::<&str>([]).exits(2).err.contains("Usage"));
    assert!(
        place
            .say("run --no-such-flag -- true")
            .exits(125)
            .err
            .contains("--no-such-flag")
    );
    let mut command = place.command();
    command
        .args(["can-i", "read"])
        .arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
            b"\xff",
        ));
    run(&mut command).exits(2);
}

fn coloured(said: &Said) -> bool {
    said.out.contains('\u{1b}') || said.err.contains('\u{1b}')
}

#[test]
fn piped_output_has_no_colour_unless_it_is_forced_and_a_flag_beats_the_environment() {
    let place = Place::new();
    let with = |variables: &[(&str, &str)], line: &str| {
        let mut command = place.command();
        command.envs(variables.iter().copied()).args(line.split(' '));
        coloured(&run(&mut command))
    };
    assert!(!with(&[], "policy presets"));
    assert!(with(&[("CLICOLOR_FORCE", "1")], "policy presets"));
    assert!(!with(
        &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
        "policy presets"
    ));
    assert!(with(&[("NO_COLOR", "1")], "policy presets --color always"));
    assert!(!with(&[("CLICOLOR_FORCE", "1")], "policy presets --color never"));
    assert!(!with(&[("CLICOLOR_FORCE", "1")], "--color never explain NOPE"));
}

#[test]
fn letters_beyond_ascii_are_left_out_where_the_locale_has_none() {
    let place = Place::new();
    let mut command = place.command();
    command.env("LC_ALL", "C").args(["can-i", "write", "x"]);
    assert!(run(&mut command).exits(0).out.is_ascii());
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is() {
    let place = Place::new();
    let mut command = place.command();
    let mut child = command
        .args(["explain", "--list"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut command = place.command();
    command
        .args(["explain", "--list"])
        .stdout(std::fs::File::create("/dev/full").unwrap())
        .stderr(std::process::Stdio::piped());
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("No space left"));
}

#[test]
fn completions_and_manual_pages_are_made_for_every_verb() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = place.bastle(["completions", shell]).exits(0);
        assert!(
            said.out.contains("can-i") && said.out.contains("preset"),
            "{shell}"
        );
    }
    place.say("completions tcsh").exits(2);
    assert!(place.say("man").exits(0).out.contains(".TH bastle 1"));
    place.say("man --dir pages").exits(0);
    for page in ["bastle.1", "bastle-run.1", "bastle-policy.1", "bastle-can-i.1"] {
        assert!(place.workspace().join("pages").join(page).exists(), "{page}");
    }
    place.say("man --dir /dev/null/x").exits(1);
}

#[test]
fn audit_and_explain_work_where_no_workspace_could_be() {
    let place = Place::new();
    for line in ["audit ls", "explain --list", "version", "policy check /dev/null"] {
        let mut command = place.command();
        command.current_dir("/").args(line.split(' '));
        assert!(!run(&mut command).err.contains("BST-WS"), "{line}");
    }
    let mut command = place.command();
    command.current_dir("/").args(["policy", "show"]);
    assert!(run(&mut command).exits(1).err.contains("BST-WS-001"));
}

#[test]
fn the_hidden_timer_prints_one_line_of_numbers_and_is_not_in_the_help() {
    let place = Place::new();
    let value = place.say("__bench-policy").exits(0).json();
    for key in [
        "compile_us",
        "decide_path_ns",
        "decide_host_ns",
        "decide_command_ns",
    ] {
        assert!(value[key].as_f64().is_some_and(|number| number > 0.0), "{value}");
    }
    assert!(!place.say("--help").exits(0).out.contains("__bench"));
}
