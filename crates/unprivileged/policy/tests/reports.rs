//! Lint, score and diff: what they must find, and that they follow the evaluator.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Managed, Project, User};
use bastle_contract::BackendKind;
use bastle_policy::{FindingKind, LayerKind, MergeOptions, diff, lint, merge, score};
use common::{merged, path, surroundings, with_default};

#[test]
fn dead_wide_and_unenforceable_rules_are_found_where_they_stand() {
    let user = r#"{"version": 1,
      "fs": {"read": ["~/.ssh", "/etc", "/srv", "/srv/a"], "hide": ["/nowhere/x", "/usr/*/y"]},
      "net": {"allow": ["a.com", "*.b.com", "c.b.com", {"rule": "ssh.d.com:22", "opaque": true}], "deny": ["a.com"]},
      "secrets": [{"name": "GH", "from": "x", "hosts": ["e.com", "x.b.com"]}],
      "exec": {"allow": ["make *", "ls *"]}}"#;
    let policy = merged(&with_default(&[(User, user)]));
    let found = lint(&policy);
    for (kind, rule) in [
        (FindingKind::Shadowed, "fs.read /home/u/.ssh"),
        (FindingKind::TooWide, "fs.read /etc"),
        (FindingKind::Shadowed, "fs.read /srv/a"),
        (FindingKind::Unmatchable, "fs.hide /nowhere/x"),
        (FindingKind::Unenforceable, "fs.hide /usr/*/y"),
        (FindingKind::Shadowed, "net.allow a.com"),
        (FindingKind::Shadowed, "net.allow c.b.com"),
        (FindingKind::TooWide, "net.allow ssh.d.com:22 (opaque)"),
        (FindingKind::Unmatchable, "secrets GH for e.com"),
        (FindingKind::Advisory, "exec.allow ls *"),
        (FindingKind::TooWide, "exec.allow make *"),
    ] {
        assert!(
            found.iter().any(|f| f.kind == kind && f.rule == rule),
            "{kind:?} {rule} in {found:#?}"
        );
    }
    assert!(
        found.iter().all(|f| f.origin.file == "user.json"),
        "built-in layers are not remarked upon"
    );
    assert!(
        !found
            .iter()
            .any(|f| f.kind == FindingKind::Shadowed && f.rule == "net.allow *.b.com")
    );
}

#[test]
fn what_nothing_acts_on_yet_is_said_and_not_silently_accepted() {
    let user = r#"{"version": 1, "mode": "audit",
      "budget": {"usd": 5}, "approvals": {"reviewers": ["@me"]}, "audit": {"redact": ["sk-*"]}}"#;
    let found = lint(&merged(&with_default(&[(User, user)])));
    for rule in ["approvals.reviewers", "audit.redact sk-*"] {
        assert!(
            found
                .iter()
                .any(|f| f.kind == FindingKind::Unenforceable && f.rule == rule),
            "{rule} in {found:#?}"
        );
    }
    let plain = lint(&merged(&with_default(&[(User, r#"{"version": 1}"#)])));
    assert_eq!(
        plain,
        Vec::new(),
        "a policy that states none of it is not remarked upon"
    );
}

#[test]
fn what_a_lock_or_the_restrict_only_rule_silenced_is_shown() {
    let policy = merged(&with_default(&[
        (Managed, r#"{"version": 1, "lock": ["fs"]}"#),
        (User, r#"{"version": 1, "fs": {"read": ["/srv", "."]}}"#),
        (Project, r#"{"version": 1, "env": {"pass": ["TOKEN"]}}"#),
    ]));
    let silenced: Vec<String> = lint(&policy)
        .into_iter()
        .filter(|f| f.kind == FindingKind::Inactive)
        .map(|f| f.rule)
        .collect();
    assert_eq!(silenced, ["env.pass TOKEN", "fs.read /srv"]);
}

#[test]
fn more_reach_never_scores_better_and_no_fence_scores_worst() {
    let narrow = merged(&with_default(&[(
        User,
        r#"{"version": 1, "limits": {"timeout": "1m", "memory": "1G", "disk": "1G", "cpu": 1}}"#,
    )]));
    let plain = merged(&with_default(&[]));
    let wide = merged(&with_default(&[(
        User,
        r#"{"version": 1, "fs": {"write": ["/srv", "~/x"], "read": ["~/y"]}, "env": {"pass": ["GH_TOKEN"]}}"#,
    )]));
    let options = MergeOptions {
        unprotect: vec![path("/home/u/.ssh")],
        ..MergeOptions::default()
    };
    let open = merge(&with_default(&[]), &surroundings(), &options).unwrap();
    let tenths = |policy| score(policy, BackendKind::Native).tenths;
    assert!(
        tenths(&narrow) < tenths(&plain) && tenths(&plain) < tenths(&wide) && tenths(&plain) < tenths(&open)
    );
    let unfenced = score(&plain, BackendKind::Host);
    assert!(
        unfenced.tenths > tenths(&wide) && unfenced.word == "UNSAFE",
        "{unfenced:?}"
    );
    let whole = score(&wide, BackendKind::Native);
    assert_eq!(
        whole.tenths,
        whole.table.iter().map(|line| line.tenths).sum::<u32>().min(100)
    );
}

#[test]
fn a_difference_says_whether_reach_was_won_or_lost() {
    let before = merged(&with_default(&[(
        User,
        r#"{"version": 1, "limits": {"timeout": "1m"}, "exec": {"deny": ["docker"]}}"#,
    )]));
    let after = merged(&with_default(&[(
        User,
        r#"{"version": 1, "fs": {"read": ["/srv"], "hide": ["./x"]}, "limits": {"pids": 9}}"#,
    )]));
    let lines: Vec<(bool, String)> = diff(&before, &after)
        .into_iter()
        .map(|line| (line.wider, format!("{} {}", line.section, line.what)))
        .collect();
    let expected = [
        (true, "exec.deny removed docker"),
        (true, "fs /srv invisible → read"),
        (false, "fs.hide added ./x"),
        (false, "limits pids 2048 → 9"),
        (true, "limits timeout 1m → none"),
    ];
    assert_eq!(lines, expected.map(|(wider, text)| (wider, text.to_owned())));
    assert!(diff(&after, &after).is_empty());
}
