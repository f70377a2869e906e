//! Git hosts: writes that are no push, push options, ports that cannot be read, and credential headers.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Flags, Project, User};
use Outcome::{Allow, Ask, Deny};
use bastle_policy::{
    ConnectVerdict, ForgeWrite, Host, LayerKind, NetMode, NetPolicy, NetRequest, Outcome, WriteKind,
};
use common::{layer, merged, with_default};

fn table(net: &str, git: &str) -> NetPolicy {
    let user = format!(r#"{{"version": 1, "net": {net}, "git": {git}}}"#);
    merged(&with_default(&[(User, &user)])).net
}

fn write(table: &NetPolicy, method: &str, path: &str, repository: Option<&str>, kind: WriteKind) -> Outcome {
    let host = Host::new("api.github.com").unwrap();
    let decision = table.forge_write(&ForgeWrite {
        host: &host,
        port: 443,
        method,
        path,
        operation: None,
        repository,
        kind,
    });
    decision.outcome
}

#[test]
fn a_write_that_is_no_push_never_gets_more_than_a_push_would() {
    let net = r#"{"allow": ["api.github.com"]}"#;
    let refs = "/repos/acme/app/git/refs";
    for (git, other, lfs) in [
        ("{}", Ask, Ask),
        (r#"{"push": "deny"}"#, Deny, Deny),
        (r#"{"push": "allow"}"#, Ask, Allow),
        (
            r#"{"push": "allow", "forcePush": "allow", "branches": ["agent/*"]}"#,
            Deny,
            Allow,
        ),
        (
            r#"{"push": "allow", "forcePush": "allow", "remotes": ["api.github.com/acme/app"]}"#,
            Allow,
            Allow,
        ),
        (
            r#"{"push": "allow", "forcePush": "allow", "remotes": ["api.github.com/acme/x"]}"#,
            Deny,
            Deny,
        ),
    ] {
        let table = table(net, git);
        assert_eq!(
            write(&table, "POST", refs, Some("acme/app"), WriteKind::Other),
            other,
            "{git}"
        );
        assert_eq!(
            write(&table, "POST", refs, Some("acme/app"), WriteKind::Lfs),
            lfs,
            "{git}"
        );
    }
    let remotes = table(
        net,
        r#"{"push": "allow", "forcePush": "allow", "remotes": ["origin"]}"#,
    );
    assert_eq!(
        write(&remotes, "POST", "/graphql", None, WriteKind::Other),
        Deny,
        "unknown repository"
    );
}

#[test]
fn only_a_rule_that_names_method_and_path_allows_a_write() {
    let pulls = "/repos/acme/app/pulls";
    for (rule, outcome) in [
        (r#""POST api.github.com/repos/acme/*/pulls""#, Allow),
        (r#""POST api.github.com/repos/**""#, Ask),
        (r#""api.github.com/repos/acme/app/pulls""#, Ask),
        (r#""api.github.com""#, Ask),
    ] {
        let table = table(&format!(r#"{{"allow": [{rule}]}}"#), "{}");
        assert_eq!(
            write(&table, "POST", pulls, Some("acme/app"), WriteKind::Other),
            outcome,
            "{rule}"
        );
        assert_eq!(
            write(&table, "POST", pulls, Some("acme/app"), WriteKind::Lfs),
            Ask,
            "{rule}"
        );
    }
}

#[test]
fn a_project_never_widens_the_push_options() {
    let user = r#"{"version": 1, "git": {"pushOptions": ["ci.*"]}}"#;
    let project = r#"{"version": 1, "git": {"pushOptions": ["ci.skip", "merge_request.create"]}}"#;
    let allowed = |layers: &[(LayerKind, &str)], option: &str| {
        merged(&with_default(layers)).net.push_option(option).outcome == Allow
    };
    assert!(allowed(&[(User, user)], "ci.skip"), "control");
    assert!(!allowed(&[], "ci.skip"));
    assert!(!allowed(&[(Project, project)], "ci.skip"));
    let both = [(User, user), (Project, project)];
    assert!(allowed(&both, "ci.skip"), "control");
    assert!(!allowed(&both, "ci.other") && !allowed(&both, "merge_request.create"));
}

#[test]
fn what_cannot_be_read_on_a_git_host_needs_a_rule_of_its_own() {
    let open = |user: &str| {
        let mut layers = with_default(&[(User, user)]);
        let mut flags = layer(Flags, r#"{"version": 1}"#);
        std::sync::Arc::make_mut(&mut flags.document).net.mode =
            Some(bastle_policy::At::nowhere(NetMode::Open));
        layers.push(flags);
        merged(&layers).net
    };
    let passes = |table: &NetPolicy, host: &str, port: u16| {
        matches!(
            table.connect(&Host::new(host).unwrap(), port),
            ConnectVerdict::Pass(_)
        )
    };
    let plain = open(r#"{"version": 1, "git": {"hosts": ["git.example"]}}"#);
    for port in [22, 9418] {
        assert!(
            !passes(&plain, "github.com", port) && !passes(&plain, "git.example", port),
            "{port}"
        );
        assert!(passes(&plain, "other.example", port), "control");
    }
    let named = open(r#"{"version": 1, "net": {"allow": [{"rule": "github.com:22", "opaque": true}]}}"#);
    assert!(passes(&named, "github.com", 22), "control");
    let free = open(r#"{"version": 1, "git": {"push": "allow", "forcePush": "allow"}}"#);
    assert!(passes(&free, "github.com", 22), "nothing is judged there");
}

#[test]
fn a_credential_header_passes_only_where_every_layer_with_rules_names_it() {
    let passes = |layers: &[(LayerKind, &str)], name: &str, path: &str| {
        let host = Host::new("x.example").unwrap();
        let request = NetRequest {
            method: "GET",
            host: &host,
            port: 443,
            path,
            body_len: None,
            operation: None,
            websocket: false,
        };
        merged(&with_default(layers)).net.passes_header(&request, name)
    };
    let bare = r#"{"version": 1, "net": {"allow": ["GET x.example"]}}"#;
    let with =
        r#"{"version": 1, "net": {"allow": [{"rule": "GET x.example/a/**", "headers": ["Authorization"]}]}}"#;
    assert!(passes(&[(User, with)], "authorization", "/a/b"), "control");
    assert!(!passes(&[(User, with)], "x-api-key", "/a/b"));
    assert!(!passes(&[(User, with)], "authorization", "/b"));
    assert!(!passes(&[(User, bare)], "authorization", "/a/b"));
    assert!(
        !passes(&[(User, bare), (Project, with)], "authorization", "/a/b"),
        "a project widens nothing"
    );
    assert!(!passes(&[(User, with), (Project, bare)], "authorization", "/a/b"));
    for bad in ["cookie", "host", "proxy-authorization"] {
        let text = format!(
            r#"{{"version": 1, "net": {{"allow": [{{"rule": "x.example", "headers": ["{bad}"]}}]}}}}"#
        );
        assert!(bastle_policy::parse("p", text.as_bytes()).is_err(), "{bad}");
    }
}
