//! What must hold for any command line: no panic, the same answer twice, a denial survives any company, and the
//! judgement is quick.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use bastle_policy::command::{CommandOutcome, CommandRule, CommandRules, judge, redirect_targets};
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn rules() -> CommandRules {
    let restrictions = |list: &[&str]| {
        list.iter()
            .map(|r| CommandRule::parse_restriction(r).expect(r))
            .collect()
    };
    CommandRules {
        allow: [
            "ls *",
            "cat *",
            "grep *",
            "git status *",
            "cargo test *",
            "find *",
            "sed *",
        ]
        .iter()
        .map(|r| CommandRule::parse(r).expect(r))
        .collect(),
        ask: restrictions(&["git push *"]),
        deny: restrictions(&["sudo", "rm -rf *", "git push --force *"]),
    }
}

/// Pieces of shell syntax: random characters alone rarely form anything.
fn shellish() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "ls",
        "cat",
        "sudo",
        "git push",
        " ",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "(",
        ")",
        "{ ",
        "; }",
        "$(",
        "`",
        "<(",
        "\"",
        "'",
        "\\",
        "\\\n",
        "$'",
        "#",
        "<<EOF\n",
        "<<'EOF'\n",
        "\nEOF\n",
        "<<<",
        "> out",
        "2>&1",
        "[",
        "]",
        "[[",
        "]]",
        "((",
        "))",
        "$((",
        "${x:-",
        "}",
        "if ",
        "; then ",
        "; fi",
        "for i in a; do ",
        "; done",
        "case x in ",
        "esac",
        ";;",
        "x)",
        "x=1 ",
        "$x",
        "\"$@\"",
        "*",
        "~",
        "eval ",
        "sh -c ",
        "env ",
        "xargs ",
        "find . -exec ",
        "\\;",
        "sed s/a/b/e",
        "é",
        "\u{a0}",
        "function f ",
        "f() ",
        "time ",
        "coproc ",
        "\t",
        "!",
        "x[0]=",
        "<>",
        ">|",
        "&>",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn allowed_command() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "ls -la",
        "cat 'a b'",
        "grep -rn \"x y\" src",
        "git status",
        "cargo test 2>&1",
        "echo \"$HOME\"",
        "find . -name '*.rs'",
        "sed -n 1,5p x",
        "X=1 ls",
        "[ -f x ]",
        "cat <<'E'\nsudo is only text here\nE\nls",
    ])
}

fn denied_command() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "sudo id",
        "'su''do' id",
        "\\sudo -n id",
        "/usr/bin/sudo id",
        "rm -fr x",
        "rm x --recursive --force",
        "git -C x push -f",
        "env A=b sudo id",
        "timeout 5 sudo id",
        "sh -c 'ls; sudo id'",
        "echo \"$(sudo id)\"",
        "find . -exec sudo id \\;",
        "eval 'sudo id'",
        "$'\\x73udo' id",
    ])
}

/// Ways to put a command where the shell runs it.
fn embed(command: &str, way: usize) -> String {
    match way % 10 {
        0 => command.to_owned(),
        1 => format!("( {command} )"),
        2 => format!("{{ {command}; }}"),
        3 => format!("if {command}; then ls; fi"),
        4 => format!("for i in a b; do {command}; done"),
        5 => format!("while {command}; do ls; done"),
        6 => format!("case x in x) {command};; esac"),
        7 => format!("! {command}"),
        8 => format!("x=$({command})"),
        _ => format!("cat <({command})"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_line_makes_the_judgement_panic(line in "\\PC{0,120}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for text in [line, String::from_utf8_lossy(&bytes).into_owned()] {
            for default in [CommandOutcome::Deny, CommandOutcome::Ask, CommandOutcome::Allow] {
                let _verdict = judge(&text, &rules(), default);
            }
            prop_assert!(redirect_targets(&text).is_ok() || redirect_targets(&text).is_err());
        }
    }

    #[test]
    fn the_same_line_gets_the_same_verdict(line in shellish()) {
        for default in [CommandOutcome::Deny, CommandOutcome::Allow] {
            prop_assert_eq!(judge(&line, &rules(), default), judge(&line, &rules(), default));
        }
    }

    #[test]
    fn a_stricter_default_never_gives_a_milder_verdict(line in shellish()) {
        let open = judge(&line, &rules(), CommandOutcome::Allow).outcome;
        let ask = judge(&line, &rules(), CommandOutcome::Ask).outcome;
        let closed = judge(&line, &rules(), CommandOutcome::Deny).outcome;
        prop_assert!(open <= ask && ask <= closed, "{open:?} {ask:?} {closed:?}");
    }

    #[test]
    fn a_further_restriction_never_gives_a_milder_verdict(line in shellish()) {
        let before = judge(&line, &rules(), CommandOutcome::Deny).outcome;
        let mut more = rules();
        more.deny.push(CommandRule::parse_restriction("cat").expect("a rule"));
        more.ask.push(CommandRule::parse_restriction("ls *").expect("a rule"));
        prop_assert!(judge(&line, &more, CommandOutcome::Deny).outcome >= before);
    }

    #[test]
    fn a_denied_command_in_any_place_denies_the_line(
        before in prop::collection::vec(allowed_command(), 0..3),
        denied in denied_command(),
        way in 0usize..10,
        after in prop::collection::vec(allowed_command(), 0..3),
        separator in prop::sample::select(vec![" ; ", " && ", " || ", " & ", "\n", "\n\n", " ;\n"]),
    ) {
        let mut parts: Vec<String> = before.iter().map(ToString::to_string).collect();
        parts.push(embed(denied, way));
        parts.extend(after.iter().map(ToString::to_string));
        let line = parts.join(separator);
        for default in [CommandOutcome::Deny, CommandOutcome::Allow] {
            let verdict = judge(&line, &rules(), default);
            prop_assert_eq!(verdict.outcome, CommandOutcome::Deny, "{:?} {:?}", line, verdict);
        }
    }

    #[test]
    fn allowed_commands_stay_allowed_in_company(
        parts in prop::collection::vec(allowed_command(), 1..5),
        separator in prop::sample::select(vec![" ; ", " && ", " || ", "\n"]),
    ) {
        // A here-document ends its line; a separator other than a newline would change the text.
        prop_assume!(separator == "\n" || parts.iter().all(|p| !p.contains("<<")));
        let line = parts.join(separator);
        let verdict = judge(&line, &rules(), CommandOutcome::Deny);
        prop_assert_eq!(verdict.outcome, CommandOutcome::Allow, "{:?} {:?}", line, verdict);
    }

    #[test]
    fn quoting_a_denied_program_changes_nothing(cuts in prop::collection::vec(0usize..3, 4), argument in "[a-z]{1,6}") {
        let mut program = String::new();
        for (letter, way) in "sudo".chars().zip(cuts) {
            match way {
                0 => program.push(letter),
                1 => program.push_str(&format!("\\{letter}")),
                _ => program.push_str(&format!("'{letter}'")),
            }
        }
        let verdict = judge(&format!("{program} {argument}"), &rules(), CommandOutcome::Allow);
        prop_assert_eq!(verdict.outcome, CommandOutcome::Deny);
    }

    #[test]
    fn a_rule_prints_as_it_was_written_and_reads_back(text in "[a-z]{1,8}( [a-z-]{1,8}){0,3}( \\*)?") {
        if let Ok(rule) = CommandRule::parse_restriction(&text) {
            prop_assert_eq!(CommandRule::parse_restriction(&rule.to_string()), Ok(rule));
        }
    }
}

#[test]
fn a_typical_line_is_judged_quickly() {
    let rules = rules();
    let line = "cd src && cargo test --lib 2>&1 | grep -E 'a|b'";
    // The first judgement loads the grammar.
    let _verdict = judge(line, &rules, CommandOutcome::Deny);
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            let _verdict = judge(line, &rules, CommandOutcome::Deny);
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("median {:?}, worst {:?}", times[100], times[199]);
    // Far above the goal of 50 µs in a release build: this build is not optimised and the machine is shared.
    assert!(times[100] < Duration::from_millis(5), "median {:?}", times[100]);
}

#[test]
fn hostile_lines_do_not_stall_the_judgement() {
    let rules = rules();
    for line in [
        "(".repeat(20_000),
        "$(".repeat(20_000),
        "`".repeat(20_000),
        "{ ".repeat(20_000),
        "a<<b\n".repeat(5_000),
        "\"$x".repeat(10_000),
        "case x in ".repeat(3_000),
        "[[ a && ".repeat(3_000),
        format!("rm {}", "$x ".repeat(15_000)),
        format!("ls {}", "a*".repeat(20_000)),
        "if ".repeat(10_000),
        "x=".repeat(20_000),
        "${x:-".repeat(8_000),
    ] {
        let start = Instant::now();
        let verdict = judge(&line, &rules, CommandOutcome::Deny);
        let took = start.elapsed();
        let shown: String = line.chars().take(20).collect();
        println!("{took:?} {:?} {shown}", verdict.outcome);
        assert!(took < Duration::from_secs(5), "{took:?} for {shown}");
    }
}
