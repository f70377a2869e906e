//! Cards: who may see which, what they declare, and how long they may be kept.
use crate::world::{World, holds};
use serde_json::{Value, json};

#[test]
fn the_door_tells_everybody_who_it_is_and_that_card_is_the_protocols() {
    let world = World::usual();
    let mut cards = Vec::new();
    for path in ["/.well-known/agent-card.json", "/a2a/.well-known/agent-card.json"] {
        let answer = world.daemon.net("GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.head.contains("content-type: application/json"),
            "{}",
            answer.head
        );
        assert!(
            answer.head.contains("cache-control: public, max-age="),
            "{}",
            answer.head
        );
        assert!(answer.head.contains("last-modified: "), "{}", answer.head);
        let tag = answer
            .head
            .lines()
            .find_map(|line| line.strip_prefix("etag: "))
            .unwrap()
            .to_owned();
        let again = world.daemon.net("GET", path, &[("if-none-match", &tag)], b"");
        assert_eq!((again.status, again.body.len()), (304, 0));
        let other = world
            .daemon
            .net("GET", path, &[("if-none-match", "\"other\"")], b"");
        assert_eq!(other.status, 200);
        holds("AgentCard", &answer.json());
        cards.push(answer.json());
    }
    assert_eq!(cards[0], cards[1]);
    let card = &cards[0];
    let base = format!("http://{}/a2a", world.daemon.address);
    let bindings: Vec<(&str, &str, &str)> = card["supportedInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let word = |name: &str| one[name].as_str().unwrap();
            (word("protocolBinding"), word("url"), word("protocolVersion"))
        })
        .collect();
    let rpc = format!("{base}/jsonrpc");
    assert_eq!(
        bindings,
        [
            ("JSONRPC", rpc.as_str(), "1.0"),
            ("HTTP+JSON", base.as_str(), "1.0")
        ]
    );
    assert_eq!(
        card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"],
        "Bearer"
    );
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_eq!(
        card["capabilities"]["pushNotifications"], false,
        "nobody may be told here"
    );
    assert!(
        !card.to_string().contains("profile:"),
        "profiles are for known callers"
    );
}

#[test]
fn a_worker_has_a_card_of_its_own_for_whoever_may_see_it_and_for_nobody_else() {
    let world = World::usual();
    let task = world.start("until [ -e go ]; do sleep 0.05; done", &json!({}));
    let path = format!("/a2a/workers/{task}/.well-known/agent-card.json");
    let card = world.rest("GET", &path, None);
    assert_eq!(card.status, 200, "{card:?}");
    assert!(card.head.contains("cache-control: private"), "{}", card.head);
    holds("AgentCard", &card.json());
    assert_eq!(card.json()["name"], task);
    let url = card.json()["supportedInterfaces"][1]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(url, format!("http://{}/a2a/workers/{task}", world.daemon.address));
    assert_eq!(world.daemon.net("GET", &path, &[], b"").status, 401);
    let other = world
        .daemon
        .token(json!({ "role": "operator", "prefix": "other-" }));
    let hidden = world.rest_as(&other, "GET", &path, None);
    let missing = world.rest_as(
        &other,
        "GET",
        "/a2a/workers/never-0/.well-known/agent-card.json",
        None,
    );
    assert_eq!((hidden.status, missing.status), (404, 404), "{hidden:?}");
    let mut command = std::process::Command::new(crate::support::bastle());
    command
        .args(["a2a", "card", &task])
        .env("BASTLE_HOST", format!("unix://{}", world.daemon.socket.display()));
    let printed = crate::support::run(&mut command, b"", crate::support::Limit::HANG);
    assert_eq!(printed.code, 0, "{printed:?}");
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(printed, card.json());
}

#[test]
fn the_extended_card_needs_a_token_and_names_profiles_to_whoever_may_start_them() {
    let world = World::usual();
    let path = "/a2a/extendedAgentCard";
    assert_eq!(
        world
            .daemon
            .net("GET", path, &[("a2a-version", "1.0")], b"")
            .status,
        401
    );
    let card = world.rest("GET", path, None);
    assert_eq!(card.status, 200, "{card:?}");
    holds("AgentCard", &card.json());
    assert!(
        card.json()["skills"].to_string().contains("profile:claude"),
        "{card:?}"
    );
    assert_eq!(
        world.call("GetExtendedAgentCard", &json!({})),
        card.json(),
        "both bindings tell the same"
    );
    let viewer = world.daemon.role("viewer");
    let seen = world.rest_as(&viewer, "GET", path, None);
    assert!(
        !seen.json()["skills"].to_string().contains("profile:"),
        "{seen:?}"
    );
}
