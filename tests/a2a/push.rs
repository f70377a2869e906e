//! Telling somebody elsewhere: only where the operator allows it, with the caller's credentials, until it is taken back.
use crate::forms::holds;
use crate::http::HANG;
use crate::world::{World, message};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// Takes requests and answers each; heads and bodies.
fn receiver() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook/", listener.local_addr().unwrap());
    let (sender, told) = channel();
    std::thread::spawn(move || {
        let mut first = true;
        let mut failed = None;
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_read_timeout(Some(HANG)).unwrap();
            let mut all = Vec::new();
            let mut buffer = [0; 65536];
            let (head, body) = loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                all.extend_from_slice(&buffer[..count]);
                let end = all.windows(4).position(|four| four == b"\r\n\r\n");
                if let Some(end) = end {
                    let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
                    let length = head
                        .split("content-length: ")
                        .nth(1)
                        .and_then(|rest| rest.lines().next());
                    let length: usize = length.unwrap().parse().unwrap();
                    if all.len() >= end + 4 + length {
                        break (head, all[end + 4..].to_vec());
                    }
                }
                assert!(count > 0, "it ended early");
            };
            // The first time it fails: it has to come again.
            let answer = if first { "500 No" } else { "204 OK" };
            drop(stream.write_all(format!("HTTP/1.1 {answer}\r\nconnection: close\r\n\r\n").as_bytes()));
            let body: Value = serde_json::from_slice(&body).unwrap();
            if first {
                failed = Some(body);
            } else {
                if let Some(failed) = failed.take() {
                    assert_eq!(failed, body, "what failed comes again");
                }
                if sender.send((head, body)).is_err() {
                    return;
                }
            }
            first = false;
        }
    });
    (url, told)
}

#[test]
fn a_receiver_that_the_operator_allows_is_told_everything_with_its_credentials_and_again_when_it_failed() {
    let (url, told) = receiver();
    let world = World::new(json!({ "push_targets": [url] }));
    let card = world.net("GET", "/.well-known/agent-card.json", &[], b"").json();
    assert_eq!(card["capabilities"]["pushNotifications"], true);
    let config = json!({
        "url": format!("{url}t1"), "token": "my-token", "authentication": { "scheme": "Bearer", "credentials": "s3cret" },
    });
    let sent = world.call(
        "SendMessage",
        &json!({ "message": world.starting("echo x > made", &json!({})),
            "configuration": { "taskPushNotificationConfig": config } }),
    );
    let task = sent["task"]["id"].as_str().unwrap().to_owned();
    let mut states = Vec::new();
    let mut kinds = Vec::new();
    while states.last().is_none_or(|state| state != "TASK_STATE_COMPLETED") {
        let (head, body) = told.recv_timeout(HANG).expect("it is told");
        assert!(head.starts_with("post /hook/t1 "), "{head}");
        assert!(head.contains("authorization: bearer s3cret"), "{head}");
        assert!(head.contains("x-a2a-notification-token: my-token"), "{head}");
        assert!(head.contains("content-type: application/a2a+json"), "{head}");
        holds("StreamResponse", &body);
        kinds.extend(body.as_object().unwrap().keys().cloned());
        if let Some(state) = body.pointer("/statusUpdate/status/state") {
            assert_eq!(body["statusUpdate"]["taskId"], task.as_str());
            states.push(state.as_str().unwrap().to_owned());
        }
    }
    assert!(states.contains(&"TASK_STATE_WORKING".to_owned()), "{states:?}");
    assert!(kinds.contains(&"artifactUpdate".to_owned()), "{kinds:?}");
    let listed = world.call("ListTaskPushNotificationConfigs", &json!({ "taskId": task }));
    assert!(
        !listed.to_string().contains("s3cret"),
        "a secret is told to its receiver alone: {listed}"
    );
    assert!(
        !listed.to_string().contains("my-token"),
        "nor its token: {listed}"
    );
    let id = listed["configs"][0]["id"].clone();
    let one = world.call(
        "GetTaskPushNotificationConfig",
        &json!({ "taskId": task, "id": id }),
    );
    assert_eq!(one["id"], id, "control: {one}");
    assert!(
        !one.to_string().contains("my-token") && !one.to_string().contains("s3cret"),
        "{one}"
    );
}

#[test]
fn settings_that_are_read_again_hold_for_cards_receivers_and_what_is_told() {
    let (url, told) = receiver();
    let world = World::new(json!({}));
    let settle = |a2a: Value| {
        let whole = json!({ "requests_per_second": 1000, "a2a": a2a });
        std::fs::write(world.config.path().join("serve.json"), whole.to_string()).unwrap();
        world.daemon.signal(rustix::process::Signal::HUP);
    };
    let card = || world.net("GET", "/.well-known/agent-card.json", &[], b"").json();
    let becomes = |pointer: &str, value: Value| {
        let came = crate::support::eventually(crate::support::Limit::HANG, || {
            card().pointer(pointer) == Some(&value)
        });
        assert!(came, "{pointer} does not become {value}: {}", card());
    };
    let task = world.start("until [ -e go ]; do sleep 0.05; done", &json!({}));
    // Nothing more happens to it before its end.
    world.until(&task, "TASK_STATE_WORKING");
    let create = json!({ "taskId": task, "url": format!("{url}t"), "id": "mine" });
    assert_eq!(world.refused("CreateTaskPushNotificationConfig", &create), -32003);
    settle(json!({ "push_targets": [url], "public_url": "https://agents.example" }));
    becomes("/capabilities/pushNotifications", json!(true));
    becomes("/supportedInterfaces/1/url", json!("https://agents.example/a2a"));
    assert_eq!(
        world.call("CreateTaskPushNotificationConfig", &create)["id"],
        "mine"
    );
    // What cannot be used changes nothing.
    settle(json!({ "push_targets": ["http://not.loopback.example/"] }));
    settle(json!({ "public_url": 5 }));
    settle(json!({ "push_targets": ["http://127.0.0.1:9/other/"] }));
    becomes(
        "/supportedInterfaces/1/url",
        json!(format!("http://{}/a2a", world.daemon.address)),
    );
    assert_eq!(world.refused("CreateTaskPushNotificationConfig", &create), -32602);
    // One whose address was taken out is told nothing more.
    let ended = world.call("CancelTask", &json!({ "id": task }));
    assert_eq!(ended["status"]["state"], "TASK_STATE_CANCELED");
    let last = world.daemon.own("GET", "/metrics", None);
    let failures = |answer: &crate::http::Answer| {
        String::from_utf8_lossy(&answer.body).lines().find_map(|line| {
            line.strip_prefix("bastle_webhook_failures_total ")?
                .parse::<u64>()
                .ok()
        })
    };
    let counted = crate::support::eventually(crate::support::Limit::HANG, || {
        failures(&world.daemon.own("GET", "/metrics", None)).is_some_and(|count| count > 0)
    });
    assert!(counted, "{last:?}");
    assert!(
        told.try_recv().is_err(),
        "an address that is not allowed any more was told"
    );
}

#[test]
fn receivers_are_kept_listed_and_removed_and_other_addresses_are_refused() {
    let world = World::new(json!({ "push_targets": ["http://127.0.0.1:9/hook/"] }));
    let task = world.start("while :; do sleep 1; done", &json!({}));
    let create = |url: &str| json!({ "taskId": task, "url": url });
    for bad in [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:9/other",
        "http://127.0.0.1:9/hook/../other",
        "http://127.0.0.1:99/hook/",
        "http://user@127.0.0.1:9/hook/",
        "file:///etc/passwd",
        "nonsense",
    ] {
        assert_eq!(
            world.refused("CreateTaskPushNotificationConfig", &create(bad)),
            -32602,
            "{bad}"
        );
        let mut inline = json!({ "message": message("x"), "configuration": { "taskPushNotificationConfig": { "url": bad } } });
        inline["message"]["taskId"] = json!(task);
        assert_eq!(world.refused("SendMessage", &inline), -32602, "{bad}");
    }
    let mut own = create("http://127.0.0.1:9/hook/a");
    own["id"] = json!("mine");
    let made = world.call("CreateTaskPushNotificationConfig", &own);
    assert_eq!((&made["id"], &made["taskId"]), (&json!("mine"), &json!(task)));
    let second = world.call(
        "CreateTaskPushNotificationConfig",
        &create("http://127.0.0.1:9/hook/b"),
    );
    assert!(second["id"].as_str().is_some_and(|id| !id.is_empty()));
    let listed = world.call("ListTaskPushNotificationConfigs", &json!({ "taskId": task }));
    assert_eq!(listed["configs"].as_array().unwrap().len(), 2);
    let at = format!("/a2a/tasks/{task}/pushNotificationConfigs");
    let rest = world.rest("GET", &at, None).json();
    assert_eq!(rest, listed, "both bindings tell the same");
    assert_eq!(world.rest("GET", &format!("{at}/mine"), None).json(), made);
    for _ in 0..2 {
        let gone = world.rest("DELETE", &format!("{at}/mine"), None);
        assert_eq!(
            (gone.status, gone.json()),
            (200, json!({})),
            "removing twice is removing once"
        );
    }
    assert_eq!(world.rest("GET", &format!("{at}/mine"), None).status, 404);
    assert_eq!(
        world.refused(
            "GetTaskPushNotificationConfig",
            &json!({ "taskId": task, "id": "mine" })
        ),
        -32001
    );
    assert_eq!(
        world.refused(
            "CreateTaskPushNotificationConfig",
            &json!({ "taskId": "none", "url": "x" })
        ),
        -32001
    );
    refuses_strangers_and_crowds(&world, &task, &at);
}

#[test]
fn nobody_is_told_any_more_once_the_token_that_asked_for_it_expired_or_was_revoked() {
    let (short_url, short_told) = receiver();
    let (gone_url, gone_told) = receiver();
    let (good_url, good_told) = receiver();
    let world = World::new(json!({ "push_targets": [short_url, gone_url, good_url] }));
    let task = world.start("while :; do sleep 0.2; done", &json!({}));
    world.until(&task, "TASK_STATE_WORKING");
    let short = world.daemon.token(json!({ "role": "approver", "expires_s": 3 }));
    let gone = world.daemon.role("approver");
    let create = |token: &crate::daemon::Token, url: &str| {
        let params = json!({ "taskId": task, "url": url, "token": "receiver-secret" });
        let made = world.rpc_as(token, "/a2a", "CreateTaskPushNotificationConfig", &params);
        assert!(made["result"]["id"].is_string(), "{made}");
        assert!(!made.to_string().contains("receiver-secret"), "{made}");
    };
    create(&short, &short_url);
    create(&gone, &gone_url);
    create(&world.token, &good_url);
    let id = gone.0.split('_').nth(1).unwrap();
    let revoked = world.daemon.own("DELETE", &format!("/api/v1/tokens/{id}"), None);
    assert_eq!(revoked.status, 200, "{revoked:?}");
    let over = crate::support::eventually(crate::support::Limit::HANG, || {
        world.daemon.with(&short, "GET", "/api/v1/whoami", None).status == 401
    });
    assert!(over, "the token expires");
    // Something that everybody would be told; the control hears the last word of it.
    world.call("CancelTask", &json!({ "id": task }));
    loop {
        let (_, body) = good_told.recv_timeout(HANG).expect("the control is told");
        if body.pointer("/statusUpdate/status/state") == Some(&json!("TASK_STATE_CANCELED")) {
            break;
        }
    }
    for (why, told) in [("expired", &short_told), ("revoked", &gone_told)] {
        let heard: Vec<(String, Value)> = told.try_iter().collect();
        let last = heard
            .iter()
            .any(|(_, body)| body.to_string().contains("TASK_STATE_CANCELED"));
        assert!(!last, "{why}: {heard:?}");
    }
}

fn refuses_strangers_and_crowds(world: &World, task: &str, at: &str) {
    let create = |url: &str| json!({ "taskId": task, "url": url });
    let other = world
        .daemon
        .token(json!({ "role": "approver", "prefix": "other-" }));
    assert_eq!(world.rest_as(&other, "GET", at, None).status, 404);
    let viewer = world.daemon.role("viewer");
    assert_eq!(
        world
            .rest_as(&viewer, "POST", at, Some(&create("http://127.0.0.1:9/hook/c")))
            .status,
        403
    );
    for count in 0..15 {
        world.call(
            "CreateTaskPushNotificationConfig",
            &create(&format!("http://127.0.0.1:9/hook/{count}")),
        );
    }
    let full = world.rpc_as(
        &world.token,
        "/a2a",
        "CreateTaskPushNotificationConfig",
        &create("http://127.0.0.1:9/hook/z"),
    );
    assert_eq!(full["error"]["data"][0]["reason"], "RATE_LIMITED", "{full}");
}
