//! Pushes: which references of which repositories, and what force costs.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Project, User};
use Outcome::{Allow, Ask, Deny};
use bastle_contract::Code;
use bastle_policy::{Force, GitPush, Host, LayerKind, NetPolicy, Outcome, PushKind, Remote};
use common::{merged, with_default};

fn table(git: &str) -> NetPolicy {
    let user = format!(r#"{{"version": 1, "net": {{"allow": ["github.com"]}}, "git": {git}}}"#);
    let mut net = merged(&with_default(&[(User, &user)])).net;
    net.remotes = vec![Remote {
        name: "origin".to_owned(),
        host: Host::new("github.com").unwrap(),
        path: "acme/app.git".to_owned(),
    }];
    net
}

fn push(table: &NetPolicy, repository: &str, reference: &str, kind: PushKind, force: Force) -> Outcome {
    let host = Host::new("github.com").unwrap();
    let decision = table.push(&GitPush {
        host: &host,
        port: 443,
        repository,
        reference,
        kind,
        force,
    });
    assert_eq!(decision.code, (decision.outcome != Allow).then_some(Code::NetGit));
    assert!(!decision.reason.is_empty());
    decision.outcome
}

#[test]
fn without_a_word_a_push_asks_and_force_is_denied() {
    let table = table("{}");
    for (kind, force, outcome) in [
        (PushKind::Create, Force::No, Ask),
        (PushKind::Create, Force::Unknown, Ask),
        (PushKind::Update, Force::No, Ask),
        (PushKind::Update, Force::Unknown, Ask),
        (PushKind::Update, Force::Yes, Deny),
        (PushKind::Delete, Force::No, Deny),
    ] {
        let got = push(&table, "/acme/app.git", "refs/heads/main", kind, force);
        assert_eq!(got, outcome, "{kind:?} {force:?}");
    }
    let mut silent = table;
    silent.git = bastle_policy::GitRules::default();
    assert_eq!(
        push(&silent, "/a/b", "refs/heads/main", PushKind::Create, Force::No),
        Ask
    );
    assert_eq!(
        push(&silent, "/a/b", "refs/heads/main", PushKind::Update, Force::Yes),
        Deny
    );
}

#[test]
fn what_cannot_be_known_is_asked_and_never_allowed_nor_denied_by_guess() {
    let allow = table(r#"{"push": "allow"}"#);
    assert_eq!(
        push(&allow, "/a/b", "refs/heads/x", PushKind::Update, Force::No),
        Allow
    );
    assert_eq!(
        push(&allow, "/a/b", "refs/heads/x", PushKind::Update, Force::Unknown),
        Ask
    );
    let deny = table(r#"{"push": "deny", "forcePush": "allow"}"#);
    assert_eq!(
        push(&deny, "/a/b", "refs/heads/x", PushKind::Update, Force::Unknown),
        Deny
    );
    assert_eq!(
        push(&deny, "/a/b", "refs/heads/x", PushKind::Update, Force::Yes),
        Deny
    );
    let both = table(r#"{"push": "allow", "forcePush": "allow"}"#);
    assert_eq!(
        push(&both, "/a/b", "refs/heads/x", PushKind::Update, Force::Unknown),
        Allow
    );
    assert_eq!(
        push(&both, "/a/b", "refs/heads/x", PushKind::Delete, Force::No),
        Allow
    );
    let forced = table(r#"{"push": "ask", "forcePush": "allow"}"#);
    assert_eq!(
        push(&forced, "/a/b", "refs/heads/x", PushKind::Update, Force::Yes),
        Ask
    );
}

#[test]
fn only_named_branches_are_pushed_and_tags_need_their_full_name() {
    let table = table(r#"{"push": "allow", "branches": ["agent/*", "refs/tags/v*"]}"#);
    for (reference, outcome) in [
        ("refs/heads/agent/x", Allow),
        ("refs/heads/agent/x/y", Allow),
        ("refs/tags/v1", Allow),
        ("refs/heads/main", Deny),
        ("refs/heads/agent", Deny),
        ("refs/heads/agentx", Deny),
        ("refs/tags/agent/x", Deny),
        ("refs/heads/refs/heads/agent/x", Deny),
        ("refs/heads/agent/../main", Deny),
        ("refs/heads/agent/x.lock", Deny),
        ("refs/heads/agent/", Deny),
        ("refs/heads/agent/a b", Deny),
        ("refs/heads/agent/\u{7f}", Deny),
        ("refs/heads/agent//x", Deny),
        ("agent/x", Deny),
        ("HEAD", Deny),
        ("", Deny),
    ] {
        let got = push(&table, "/acme/app", reference, PushKind::Create, Force::No);
        assert_eq!(got, outcome, "{reference:?}");
    }
}

#[test]
fn only_named_repositories_are_pushed_to() {
    for (remotes, repository, outcome) in [
        (r#"["origin"]"#, "/acme/app.git", Allow),
        (r#"["origin"]"#, "/acme/app", Allow),
        (r#"["origin"]"#, "/acme/app/", Allow),
        (r#"["origin"]"#, "/acme/other", Deny),
        (r#"["origin"]"#, "/evil/acme/app", Deny),
        (r#"["upstream"]"#, "/acme/app", Deny),
        (r#"["github.com/acme/*"]"#, "/acme/other.git", Allow),
        (r#"["github.com/acme/*"]"#, "/acmee/x", Deny),
        (r#"["gitlab.com/acme/*"]"#, "/acme/x", Deny),
        (r#"[]"#, "/acme/app", Deny),
    ] {
        let table = table(&format!(r#"{{"push": "allow", "remotes": {remotes}}}"#));
        let got = push(&table, repository, "refs/heads/x", PushKind::Create, Force::No);
        assert_eq!(got, outcome, "{remotes} {repository}");
    }
}

#[test]
fn a_project_takes_branches_away_and_adds_none() {
    let layers = with_default(&[
        (
            User,
            r#"{"version": 1, "git": {"push": "allow", "branches": ["agent/*"]}}"#,
        ),
        (
            Project,
            r#"{"version": 1, "git": {"push": "allow", "forcePush": "allow", "branches": ["agent/a", "main"]}}"#,
        ),
    ]);
    let policy = merged(&layers);
    let create = |name: &str| push(&policy.net, "/a/b", name, PushKind::Create, Force::No);
    assert_eq!(create("refs/heads/agent/a"), Allow);
    assert_eq!(create("refs/heads/agent/b"), Deny);
    assert_eq!(create("refs/heads/main"), Deny);
    assert_eq!(
        push(
            &policy.net,
            "/a/b",
            "refs/heads/agent/a",
            PushKind::Update,
            Force::Yes
        ),
        Deny
    );
    assert!(policy.not_granted.iter().any(|r| r.what == "git.branches main"));
}
