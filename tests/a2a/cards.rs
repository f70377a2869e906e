//! Cards: who may see which, what they declare, and how long they may be kept.
use crate::world::World;
use serde_json::{Value, json};

#[test]
fn the_door_tells_everybody_who_it_is_and_that_card_is_the_protocols() {
    let world = World::usual();
    let mut cards = Vec::new();
    for path in ["/.well-known/agent-card.json", "/a2a/.well-known/agent-card.json"] {
        let answer = world.net("GET", path, &[], b"");
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
        let again = world.net("GET", path, &[("if-none-match", &tag)], b"");
        assert_eq!((again.status, again.body.len()), (304, 0));
        let other = world.net("GET", path, &[("if-none-match", "\"other\"")], b"");
        assert_eq!(other.status, 200);
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
fn every_card_is_signed_with_the_key_that_is_published_and_a_restarted_daemon_has_the_same() {
    let world = World::usual();
    let task = world.start("until [ -e go ]; do sleep 0.05; done", &json!({}));
    let keys = world.net("GET", "/.well-known/jwks.json", &[], b"");
    assert_eq!(keys.status, 200, "{keys:?}");
    let key = keys.json()["keys"][0].clone();
    assert_eq!((&key["kty"], &key["alg"]), (&json!("EC"), &json!("ES256")));
    assert!(key.get("d").is_none(), "the private half stays: {key}");
    let signed = |world: &World| -> Vec<Value> {
        let worker = format!("/a2a/workers/{task}/.well-known/agent-card.json");
        let paths = ["/.well-known/agent-card.json", &worker, "/a2a/extendedAgentCard"];
        let cards = paths.map(|path| world.rest("GET", path, None).json());
        cards.map(|card| card["signatures"][0].clone()).into()
    };
    let first = signed(&world);
    for seal in &first {
        let head = seal["protected"].as_str().expect("a signature");
        assert!(!head.is_empty() && seal["signature"].is_string(), "{seal}");
    }
    assert_ne!(first[0]["signature"], first[1]["signature"]);
    assert_eq!(signed(&world), first, "the same card has the same signature");
    let file = world.daemon.root.join("state/bastle/daemon/a2a-card.key");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let World {
        daemon,
        token,
        config,
    } = world;
    let (root, dir) = daemon.leave();
    let settings = config.path().join("serve.json");
    let daemon = crate::daemon::Daemon::start_in(root, dir, &["--config", settings.to_str().unwrap()]);
    let world = World {
        daemon,
        token,
        config,
    };
    let again = world.net("GET", "/.well-known/jwks.json", &[], b"").json();
    assert_eq!(again["keys"][0], key);
    world.call("CancelTask", &json!({ "id": task }));
}

#[test]
fn a_worker_has_a_card_of_its_own_for_whoever_may_see_it_and_for_nobody_else() {
    let world = World::usual();
    let task = world.start("until [ -e go ]; do sleep 0.05; done", &json!({}));
    let path = format!("/a2a/workers/{task}/.well-known/agent-card.json");
    let card = world.rest("GET", &path, None);
    assert_eq!(card.status, 200, "{card:?}");
    assert!(card.head.contains("cache-control: private"), "{}", card.head);
    assert_eq!(card.json()["name"], task);
    let url = card.json()["supportedInterfaces"][1]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(url, format!("http://{}/a2a/workers/{task}", world.daemon.address));
    assert_eq!(world.net("GET", &path, &[], b"").status, 401);
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
    assert_eq!(world.net("GET", path, &[("a2a-version", "1.0")], b"").status, 401);
    let card = world.rest("GET", path, None);
    assert_eq!(card.status, 200, "{card:?}");
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
