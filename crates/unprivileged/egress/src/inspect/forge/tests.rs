//! What passes as a read on a git host, and what only looks like one.
use super::super::body::whole;
use super::super::canonical::Parsed;
use super::super::{Scheme, Site};
use super::*;
use crate::git;
use crate::memory::Memory;
use crate::via::Via;
use bastle_contract::egress::Face;
use bastle_policy::Host;
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;

const FETCH: &str = "application/x-git-upload-pack-request";
const LFS: &str = "application/vnd.git-lfs+json";

/// The effect of a request with this target, content type and body, as [`super::super::judge`] asks for it.
fn judged(method: &str, target: &str, kind: &str, body: &str) -> Effect {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("a.example"));
    headers.insert("content-type", HeaderValue::from_str(kind).unwrap());
    let parsed = Parsed {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        path: path.to_owned(),
        query: query.clone(),
        scheme: None,
        authority: None,
        headers,
        length: None,
        can_upgrade: false,
    };
    let site = Site {
        via: Via {
            face: Face::Https,
            host: Host::new("a.example").unwrap(),
            port: 443,
        },
        scheme: Scheme::Https,
    };
    let request = CanonicalRequest::new(&site, parsed).unwrap();
    let call = git::call(method, &request.path, query.as_deref(), Some(kind));
    let memory = Memory::new();
    let mut begun = Begun::new(whole(body.to_owned()), &memory);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime
        .block_on(async {
            let operation = match is_graphql(&request) {
                true => {
                    super::super::operation::read(bastle_policy::BodyNeed::GraphQl, &request, &mut begun)
                        .await?
                }
                false => None,
            };
            effect(&request, call.as_ref(), operation.as_ref(), &mut begun).await
        })
        .unwrap()
}

#[test]
fn a_write_whose_path_ends_as_a_fetch_does_is_a_write() {
    for (method, path) in [
        ("PUT", "/repos/acme/app/contents/info/refs"),
        ("PATCH", "/repos/acme/app/git/refs/heads/info/refs"),
        ("DELETE", "/acme/app.git/info/refs"),
        ("POST", "/acme/app.git/info/refs?service=git-upload-pack"),
        ("POST", "/api/v1/repos/a/b/contents/git-upload-pack"),
        ("POST", "/api/v1/repos/a/b/contents/info/lfs/objects/batch"),
        ("POST", "/api/v1/repos/a/b/contents/graphql"),
        ("POST", "/api/v1/repos/a/b/contents/api/graphql"),
        (
            "POST",
            "/api/v4/projects/1/repository/files/graphql?branch=main&content=x",
        ),
        ("POST", "/a/b/filegraphql"),
    ] {
        for (kind, body) in [
            (FETCH, ""),
            (
                "application/json",
                r#"{"operation":"download","query":"{ viewer }"}"#,
            ),
        ] {
            let effect = judged(method, path, kind, body);
            // A real fetch has this type and is below no interface.
            assert!(
                matches!(effect, Effect::Writes(WriteKind::Other, _)),
                "{method} {path} {kind}: {effect:?}"
            );
        }
    }
    for path in [
        "/a/b.git/info/lfs/objects/info/refs",
        "/a/b.git/info/lfs/git-upload-pack",
    ] {
        for method in ["PUT", "POST"] {
            let expected = Effect::Writes(WriteKind::Lfs, Some("a/b".to_owned()));
            assert_eq!(judged(method, path, FETCH, ""), expected, "{method} {path}");
        }
    }
    for (path, kind, body) in [
        ("/a/b.git/git-upload-pack", FETCH, "0000"),
        ("/graphql", "application/json", r#"{"query":"{ viewer }"}"#),
        ("/api/graphql", "application/json", r#"{"query":"{ viewer }"}"#),
        (
            "/gitlab/api/graphql",
            "application/json",
            r#"{"query":"{ viewer }"}"#,
        ),
    ] {
        assert_eq!(judged("POST", path, kind, body), Effect::Reads, "control: {path}");
    }
}

#[test]
fn a_push_that_git_would_not_send_is_judged_as_a_write_too() {
    let push = "application/x-git-receive-pack-request";
    let write = |path: &str, kind: &str| matches!(judged("POST", path, kind, "0000"), Effect::Writes(..));
    assert!(write("/api/v4/projects/1/merge_requests?source_branch=x", push));
    assert!(write("/api/v1/repos/a/b/contents/git-receive-pack", push));
    assert!(write("/a/b.git/git-receive-pack", "application/json"));
    assert!(!write("/a/b.git/git-receive-pack", push), "control");
}

#[test]
fn a_download_of_large_files_is_asked_for_in_one_way_only() {
    let path = "/a/b.git/info/lfs/objects/batch";
    let reads = |target: &str, body: &str| judged("POST", target, LFS, body) == Effect::Reads;
    for body in [
        r#"{"operation":"download","Operation":"upload"}"#,
        r#"{"Operation":"upload","operation":"download"}"#,
        r#"{"OPERATION":"download"}"#,
        r#"{"operation":"download","operation":"upload"}"#,
        r#"{"operation":"upload","operation":"download"}"#,
        r#"{"operation":"download","\u004fperation":"upload"}"#,
        r#"{"operation":"download","operat\u0131on":"upload"}"#,
        r#"{"operation":"download","operatıon":"upload"}"#,
        r#"{"operation":"download","objects":[],"Objects":[]}"#,
        r#"{"operation":"download"}{"operation":"upload"}"#,
        r#"["download"]"#,
        r#"{"operation":"Download"}"#,
        r#"{"operation":null}"#,
        r#"{"objects":[]}"#,
        "",
    ] {
        assert!(!reads(path, body), "{body}");
    }
    let plain = r#"{"operation":"download","transfers":["basic"],"ref":{"name":"refs/heads/main"},"objects":[{"oid":"a","size":1}],"hash_algo":"sha256"}"#;
    assert!(reads(path, plain), "control");
    assert!(!reads(&format!("{path}?operation=upload"), plain));
    assert!(!reads(&format!("{path}?%6fperation=upload"), plain));
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "api",
        "v1",
        "repos",
        "a",
        "b.git",
        "contents",
        "info",
        "refs",
        "lfs",
        "objects",
        "batch",
        "graphql",
        "git-upload-pack",
        "git-receive-pack",
        "_apis",
        "-",
        "%2e",
        "git%2Dupload-pack",
        "heads",
    ])
}

proptest! {
    #[test]
    fn no_method_but_get_head_and_options_is_judged_a_read_without_a_proven_fetch_body(
        method in prop::sample::select(vec!["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "MKCOL", "LOCK", "QUERY"]),
        parts in prop::collection::vec(piece(), 1..7),
        kind in prop::sample::select(vec![FETCH, LFS, "application/json", "text/plain", "application/x-git-upload-pack-request; q=1"]),
        query in prop::sample::select(vec!["", "?service=git-upload-pack", "?service=git-receive-pack"]),
        body in prop::sample::select(vec!["", "0000", "{}", r#"{"operation":"upload"}"#, r#"{"query":"mutation { x }"}"#]),
    ) {
        let path = format!("/{}", parts.join("/"));
        let reads = matches!(method, "GET" | "HEAD" | "OPTIONS");
        // What is sent is the canonical form, in which this escape is undone.
        let sent = path.replace("%2D", "-");
        // `/OWNER/api` is a repository; `/api/…` and `…/api/v1/…` are interfaces of a forge.
        let api = parts.first() == Some(&"api") || parts.windows(2).any(|pair| pair == ["api", "v1"]);
        let fetch = method == "POST" && kind == FETCH && sent.ends_with("/git-upload-pack") && !api;
        let effect = judged(method, &format!("{path}{query}"), kind, body);
        if effect == Effect::Reads {
            prop_assert!(reads || fetch, "{method} {path} {kind} {body}");
        } else {
            prop_assert!(!reads, "{method} {path} {kind} {body}");
        }
    }
}
