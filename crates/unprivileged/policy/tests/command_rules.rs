//! Rules for commands: their syntax, their width, what they match, and what a verdict says.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use bastle_policy::command::{
    CommandOutcome, CommandRule, CommandRuleError, CommandRules, MAX_COMMANDS, MAX_DEPTH, MAX_LINE,
    RedirectDirection, blocked, judge, redirect_targets,
};

fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> CommandRules {
    let restrictions = |list: &[&str]| {
        list.iter()
            .map(|r| CommandRule::parse_restriction(r).expect(r))
            .collect()
    };
    CommandRules {
        allow: allow.iter().map(|r| CommandRule::parse(r).expect(r)).collect(),
        ask: restrictions(ask),
        deny: restrictions(deny),
    }
}

fn outcome(line: &str, rules: &CommandRules) -> CommandOutcome {
    judge(line, rules, CommandOutcome::Deny).outcome
}

#[test]
fn a_trailing_star_stands_at_a_word_boundary() {
    let rules = rules(&["cargo test *"], &[], &[]);
    assert_eq!(outcome("cargo test", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("cargo test -q --lib", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("cargo testx", &rules), CommandOutcome::Deny);
    assert_eq!(outcome("cargo", &rules), CommandOutcome::Deny);
}

#[test]
fn an_allow_rule_without_a_star_allows_exactly_its_words() {
    let rules = rules(&["git status", "id"], &[], &[]);
    assert_eq!(outcome("git status", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("git status -s", &rules), CommandOutcome::Deny);
    assert_eq!(outcome("id", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("id -u", &rules), CommandOutcome::Deny);
}

#[test]
fn a_deny_rule_is_not_escaped_by_one_more_argument() {
    let rules = rules(&["git push *", "sudo -l"], &[], &["git push", "sudo"]);
    for line in [
        "git push",
        "git push origin",
        "git -C x push",
        "git --no-pager push origin main",
        "sudo -l",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line}");
    }
}

#[test]
fn options_of_a_deny_rule_count_in_any_order_and_spelling() {
    let rules = rules(&["rm *", "git push *"], &[], &["rm -rf *", "git push --force *"]);
    for line in [
        "rm -rf x",
        "rm -fr x",
        "rm x -r -f",
        "rm --recursive --force x",
        "rm -vRf x",
        "git push -f",
        "git push origin main --force",
        "git push origin +main",
        "rm -r$X y",
        "rm $X",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line}");
    }
    for line in [
        "rm x",
        "rm -r x",
        "rm -f x",
        "git push origin main",
        "git push --force-with-lease",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Allow, "{line}");
    }
}

#[test]
fn a_word_of_a_message_is_not_mistaken_for_a_sub_command() {
    let rules = rules(&["git commit *"], &["git push *"], &["git push --force *"]);
    assert_eq!(
        outcome("git commit -m 'push --force'", &rules),
        CommandOutcome::Allow
    );
    assert_eq!(outcome("git commit -m x push", &rules), CommandOutcome::Allow);
}

#[test]
fn the_colon_form_is_a_prefix() {
    let rules = rules(&["npm run test:*", "ls:*"], &[], &[]);
    for line in [
        "npm run test",
        "npm run test:unit",
        "npm run test -- -x",
        "npm run test:unit -x",
        "ls -la",
        "ls",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Allow, "{line}");
    }
    for line in ["npm run tester", "npm run", "npm run tes"] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line}");
    }
}

#[test]
fn a_tool_wrapper_around_a_rule_is_unwrapped() {
    assert_eq!(
        CommandRule::parse("Bash(cargo test *)"),
        CommandRule::parse("cargo test *")
    );
    assert_eq!(
        CommandRule::parse("Bash(cargo test *)")
            .expect("a rule")
            .to_string(),
        "cargo test *"
    );
}

#[test]
fn a_star_inside_a_word_never_climbs() {
    let rules = rules(&["cat docs/*", "make build-*"], &[], &[]);
    assert_eq!(outcome("cat docs/a.md", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("cat docs/../../secret", &rules), CommandOutcome::Deny);
    assert_eq!(outcome("make build-all", &rules), CommandOutcome::Allow);
    assert_eq!(outcome("make clean", &rules), CommandOutcome::Deny);
}

/// One per line: each would let anything run.
const TOO_WIDE: &str = "
bash
bash *
bash(*)
Bash(*)
Bash
sh
sh *
zsh
bash -c *
sh -c *
bash -lc *
bash -x *
bash -s *
env *
env -i *
env A=b *
xargs *
xargs -n 1 *
sudo *
sudo
sudo -u x=y *
doas *
eval *
eval
exec *
source *
. *
trap *
python *
python
python3 -c *
python3.12 *
python -u *
python3 -m *
node *
node -e *
node --eval *
perl -e *
perl *
ruby -e *
php -r *
deno *
vim *
timeout 5 *
nohup *
nice *
command *
ssh *
npx *
uvx *
busybox *
su *
watch *
parallel *
/bin/bash *
/usr/bin/env *
/opt/x/python3 *
pwsh *
fish -c *
";

#[test]
fn rules_that_would_allow_anything_are_refused() {
    for text in TOO_WIDE.trim().lines() {
        let refused = CommandRule::parse(text);
        assert!(
            matches!(
                refused,
                Err(CommandRuleError::TooWide { .. } | CommandRuleError::PatternAsProgram { .. })
            ),
            "{text}: {refused:?}"
        );
    }
    for text in [
        "*",
        "* *",
        "c* test",
        "",
        "  ",
        "ls; id",
        "ls && id",
        "ls | cat",
        "echo $(id)",
        "ls > x",
        "ls 'x",
    ] {
        assert!(CommandRule::parse(text).is_err(), "{text}");
        assert!(CommandRule::parse_restriction(text).is_err(), "{text}");
    }
}

#[test]
fn narrow_rules_for_interpreters_and_wrappers_are_accepted() {
    for text in [
        "bash scripts/test.sh *",
        "python scripts/x.py *",
        "python -m pytest *",
        "python3 --version",
        "node --version",
        "npx tsc *",
        "env",
        "sudo systemctl status *",
        "timeout 60 cargo test *",
        "xargs grep *",
        "./scripts/build.sh *",
    ] {
        assert!(
            CommandRule::parse(text).is_ok(),
            "{text}: {:?}",
            CommandRule::parse(text)
        );
    }
}

#[test]
fn a_wide_rule_that_reached_the_allow_list_allows_nothing() {
    let mut wide = rules(&[], &[], &[]);
    for text in ["bash *", "python3 *", "env *", "npx *"] {
        wide.allow.push(CommandRule::parse_restriction(text).expect(text));
    }
    for line in ["bash x.sh", "bash", "python3 x.py", "npx evil"] {
        assert_eq!(outcome(line, &wide), CommandOutcome::Deny, "{line}");
    }
}

#[test]
fn a_bare_name_covers_system_directories_only() {
    let rules = rules(&["ls *"], &[], &["sudo"]);
    for line in ["ls", "/bin/ls", "/usr/bin/ls -l", "/usr/local/bin/ls"] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Allow, "{line}");
    }
    for line in [
        "./ls",
        "/tmp/ls",
        "~/ls",
        "/usr/bin/../bin/ls",
        "/proc/self/root/bin/ls",
        "ls/ls",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line}");
    }
    let verdict = judge("/opt/any/where/sudo id", &rules, CommandOutcome::Allow);
    assert_eq!(
        (verdict.outcome, verdict.rule.as_deref()),
        (CommandOutcome::Deny, Some("sudo"))
    );
}

#[test]
fn a_dangerous_option_passes_only_when_the_rule_spells_it_out() {
    let wide = rules(&["find *", "git diff *", "grep *"], &[], &[]);
    assert_eq!(outcome("find . -delete", &wide), CommandOutcome::Deny);
    assert_eq!(outcome("git diff --ext-diff", &wide), CommandOutcome::Deny);
    let spelled = rules(&["find . -delete", "git diff --ext-diff *"], &[], &[]);
    assert_eq!(outcome("find . -delete", &spelled), CommandOutcome::Allow);
    assert_eq!(outcome("git diff --ext-diff x", &spelled), CommandOutcome::Allow);
    assert_eq!(
        outcome("git diff --ext-diff --output=x", &spelled),
        CommandOutcome::Deny
    );
}

#[test]
fn the_verdict_names_the_part_and_the_rule_that_decided() {
    let rules = rules(&["ls *"], &["git push *"], &["sudo"]);
    let verdict = judge("ls && git push && ls | sudo -n id", &rules, CommandOutcome::Deny);
    assert_eq!(
        (verdict.outcome, verdict.part.as_str(), verdict.rule.as_deref()),
        (CommandOutcome::Deny, "sudo -n id", Some("sudo"))
    );
    let verdict = judge("ls -la", &rules, CommandOutcome::Deny);
    assert_eq!(
        (verdict.outcome, verdict.rule.as_deref()),
        (CommandOutcome::Allow, Some("ls *"))
    );
}

#[test]
fn ask_stands_between_allow_and_deny() {
    let rules = rules(&["git push *", "ls *"], &["git push *"], &["sudo"]);
    assert_eq!(outcome("git push", &rules), CommandOutcome::Ask);
    assert_eq!(outcome("ls; git push; ls", &rules), CommandOutcome::Ask);
    assert_eq!(outcome("git push; sudo id", &rules), CommandOutcome::Deny);
    assert!(CommandOutcome::Deny > CommandOutcome::Ask && CommandOutcome::Ask > CommandOutcome::Allow);
}

#[test]
fn beside_an_allow_list_a_rule_that_asks_opens_only_what_begins_with_its_words() {
    let rules = rules(&["ls *"], &["make -x -x *", "git push"], &[]);
    for line in "make -x -x|make -x -x all|git push|git push origin|git --no-pager push".split('|') {
        assert_eq!(outcome(line, &rules), CommandOutcome::Ask, "{line}");
    }
    // Read as restrictions, the rules would be about these as well: asking opens what is denied else.
    for line in "make -x|make all -x -x|git -c core.pager=id push|git -v push|./git push".split('|') {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line}");
    }
}

#[test]
fn without_an_allow_list_only_restrictions_count_but_the_unreadable_is_never_allowed() {
    let rules = rules(&[], &["git push *"], &["sudo"]);
    let judged = |line: &str| judge(line, &rules, CommandOutcome::Allow).outcome;
    for line in [
        "make -j8",
        "python3 x.py",
        "python3 - <<'E'\nprint(1)\nE",
        "source .venv/bin/activate",
        "PYTHONPATH=. pytest",
        "export PATH=\"$PATH:/x\"; ls",
        "find . -delete",
        "git log $X",
        "echo sudo",
        "grep -rn sudo .",
    ] {
        assert_eq!(judged(line), CommandOutcome::Allow, "{line}");
    }
    for line in [
        "$X id",
        "ls )",
        "echo \"open",
        "git push",
        "git $X",
        "a `b \\`c\\``",
    ] {
        assert_eq!(judged(line), CommandOutcome::Ask, "{line}");
    }
    for line in [
        "sudo id",
        "bash -c 'sudo id'",
        "bash <<'E'\nsudo id\nE",
        "echo sudo id | sh",
        "python3 -c 'import os; os.system(\"sudo id\")'",
        "echo \"open; sudo id",
        "X=sudo; $X id",
        "GIT_SSH_COMMAND='sudo id' git fetch",
    ] {
        assert_eq!(judged(line), CommandOutcome::Deny, "{line}");
    }
    let none = CommandRules::default();
    assert_eq!(
        judge("ls )", &none, CommandOutcome::Allow).outcome,
        CommandOutcome::Ask
    );
    assert_eq!(
        judge("sudo id", &none, CommandOutcome::Allow).outcome,
        CommandOutcome::Allow
    );
}

#[test]
fn a_line_beyond_the_limits_is_denied_whatever_the_rules() {
    let allow_all = CommandRules::default();
    let judged = |line: &str| judge(line, &allow_all, CommandOutcome::Allow);
    let long = format!("echo {}", "x".repeat(MAX_LINE));
    assert_eq!(judged(&long).outcome, CommandOutcome::Deny);
    let most = vec!["ls"; MAX_COMMANDS].join(";");
    assert_eq!(judged(&most).outcome, CommandOutcome::Allow);
    assert_eq!(judged(&format!("{most};ls")).outcome, CommandOutcome::Deny);
    let nested = |depth: usize| format!("{}ls", "nice ".repeat(depth));
    assert_eq!(judged(&nested(MAX_DEPTH)).outcome, CommandOutcome::Allow);
    assert_eq!(judged(&nested(MAX_DEPTH + 1)).outcome, CommandOutcome::Deny);
    let evals = |depth: usize| format!("{}ls", "eval ".repeat(depth));
    assert_eq!(judged(&evals(MAX_DEPTH)).outcome, CommandOutcome::Allow);
    assert_eq!(judged(&evals(MAX_DEPTH + 1)).outcome, CommandOutcome::Deny);
    assert_ne!(judged(&"(".repeat(5000)).outcome, CommandOutcome::Allow);
    let deep = format!("{}ls{}", "(".repeat(500), ")".repeat(500));
    assert_ne!(judged(&deep).outcome, CommandOutcome::Allow);
}

#[test]
fn control_characters_make_a_line_unreadable() {
    let rules = rules(&["ls *"], &[], &[]);
    for line in [
        "ls\0",
        "ls\r",
        "ls \u{1b}[0m",
        "ls \u{7f}",
        "ls\u{85}sudo",
        "ls\u{b}x",
    ] {
        assert_eq!(outcome(line, &rules), CommandOutcome::Deny, "{line:?}");
    }
}

#[test]
fn redirections_are_listed_with_their_direction() {
    let targets = redirect_targets("sort < in.txt > \"out $X\" 2>&1 | cat >> log").expect("readable");
    let listed: Vec<_> = targets
        .iter()
        .map(|t| (t.path.as_str(), t.direction, t.known))
        .collect();
    assert_eq!(
        listed,
        [
            ("in.txt", RedirectDirection::Read, true),
            ("out …", RedirectDirection::Write, false),
            ("log", RedirectDirection::Write, true),
        ]
    );
    assert!(redirect_targets("ls >").is_err());
}

#[test]
fn every_example_of_a_blocked_command_is_blocked() {
    let rules = rules(
        &["rm *"],
        &["git push *", "npm run deploy:*"],
        &[
            "sudo",
            "rm -rf *",
            "curl * evil",
            "git push --force *",
            "echo 'a b'",
            "make x*y",
        ],
    );
    let listed = blocked(&rules);
    assert_eq!(listed.len(), 8);
    for entry in listed {
        for default in [CommandOutcome::Deny, CommandOutcome::Allow] {
            let verdict = judge(&entry.example, &rules, default);
            assert!(verdict.outcome >= entry.kind, "{entry:?} {verdict:?}");
            assert!(verdict.rule.is_some(), "{entry:?} {verdict:?}");
        }
    }
}

/// The scanner of the grammar reads foreign memory when such a character follows a brace: this test would not fail
/// but end the process.
#[test]
fn a_rare_character_after_a_brace_is_only_a_character() {
    let rules = rules(&["ls *"], &[], &[]);
    for rare in ['\u{10ffff}', '\u{1f600}', '\u{3000}', 'é', '\u{a0}'] {
        for form in [
            "ls {X}",
            "ls {1..X}",
            "ls ${X",
            "{X",
            "ls a{X,b}",
            "for i in {X..3}; do ls; done",
        ] {
            let line = form.replace('X', &rare.to_string());
            let verdict = judge(&line, &rules, CommandOutcome::Deny);
            assert!(!verdict.reason.is_empty(), "{line}");
        }
        assert_eq!(
            outcome(&format!("ls '{rare}' {rare}.txt"), &rules),
            CommandOutcome::Allow,
            "{rare:?}"
        );
        assert_eq!(
            outcome(&format!("ls{rare}; ls"), &rules),
            CommandOutcome::Deny,
            "{rare:?}"
        );
    }
}
