//! Streams: the task first, everything in order, the same to everybody, closed with the end; and readers that misbehave.
use crate::world::World;
use serde_json::{Value, json};

const WAITS: &str = "until [ -e go ]; do sleep 0.05; done; echo out; echo new > made.txt";

/// Makes a file in the worker's tree, from outside.
fn go(world: &World, task: &str) {
    let state = world.daemon.root.join("state/bastle/work").join(task);
    let tree = crate::support::eventually(crate::support::Limit::HANG, || find(&state).is_some());
    assert!(tree, "no tree below {}", state.display());
    std::fs::write(find(&state).unwrap().join("go"), "").unwrap();
}

fn find(state: &std::path::Path) -> Option<std::path::PathBuf> {
    let below = std::fs::read_dir(state).ok()?.flatten();
    let own = below.map(|entry| entry.path());
    own.flat_map(|path| [path.clone(), path.join("ws")])
        .find(|path| path.join("hello.txt").is_file())
}

fn states(events: &[Value]) -> Vec<&str> {
    let told = events
        .iter()
        .filter_map(|one| one.pointer("/statusUpdate/status/state"));
    told.map(|state| state.as_str().unwrap()).collect()
}

#[test]
fn a_stream_begins_with_the_task_tells_artifacts_before_the_end_and_closes_with_it() {
    let world = World::usual();
    let body = json!({ "message": world.starting("echo out; echo new > made.txt", &json!({})) });
    let mut events = world.stream(&world.token, "POST", "/a2a/message:stream", Some(&body));
    assert!(
        events.head.contains("content-type: text/event-stream"),
        "{}",
        events.head
    );
    let all = events.rest();
    assert!(all[0].get("task").is_some(), "{all:#?}");
    let told = states(&all);
    assert_eq!(told.last(), Some(&"TASK_STATE_COMPLETED"), "{told:?}");
    let artifacts: Vec<&str> = all
        .iter()
        .filter_map(|one| one.pointer("/artifactUpdate/artifact/artifactId")?.as_str())
        .collect();
    assert_eq!(
        artifacts[artifacts.len() - 4..],
        ["output", "diff", "files", "provenance"]
    );
    assert!(
        all.last().unwrap().get("statusUpdate").is_some(),
        "the last word is the state"
    );
    assert_eq!(
        told.iter()
            .filter(|state| **state == "TASK_STATE_COMPLETED")
            .count(),
        1
    );
    // The same over JSON-RPC: every event is an answer to the call.
    let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "SendStreamingMessage",
        "params": { "message": world.starting("exit 4", &json!({})) } });
    let mut events = world.stream(&world.token, "POST", "/a2a/jsonrpc", Some(&call));
    let mut last = Value::Null;
    while let Some(value) = events.next() {
        assert_eq!(
            (&value["jsonrpc"], &value["id"]),
            (&json!("2.0"), &json!(9)),
            "{value}"
        );
        last = value["result"].clone();
    }
    assert_eq!(
        last["statusUpdate"]["status"]["state"], "TASK_STATE_FAILED",
        "{last}"
    );
}

/// What was printed, as a reader puts it together; how many pieces, and whether the last one said so.
fn printed(begun: &Value, events: &[Value]) -> (String, usize, bool) {
    let text = |artifact: &Value| artifact["parts"][0]["text"].as_str().unwrap().to_owned();
    let mut whole = begun["task"]["artifacts"]
        .as_array()
        .and_then(|all| all.first())
        .map(text)
        .unwrap_or_default();
    let (mut pieces, mut closed) = (0, false);
    for update in events.iter().filter_map(|one| one.get("artifactUpdate")) {
        if update["artifact"]["artifactId"] != "output" {
            continue;
        }
        assert!(!closed, "a piece after the last: {update}");
        assert_eq!(update["append"], !whole.is_empty(), "{update}");
        closed = update["lastChunk"] == true;
        whole.push_str(&text(&update["artifact"]));
        pieces += 1;
    }
    (whole, pieces, closed)
}

#[test]
fn what_a_worker_prints_comes_piece_by_piece_while_it_works_and_the_same_to_every_reader() {
    let world = World::usual();
    let script = "echo one; until [ -e go ]; do sleep 0.05; done; printf 'tw\\303'; sleep 0.3; printf '\\266\\n'; \
        echo not this >&2; exit 3";
    let body = json!({ "message": world.starting(script, &json!({})) });
    let mut first = world.stream(&world.token, "POST", "/a2a/message:stream", Some(&body));
    let begun = first.next().unwrap();
    let task = begun["task"]["id"].as_str().unwrap().to_owned();
    let mut early = Vec::new();
    // It still works: nobody has told it to go on.
    while printed(&begun, &early).0.is_empty() {
        early.push(first.next().expect("it is told while it works"));
    }
    assert_eq!(printed(&begun, &early).0, "one\n");
    assert!(
        !early.last().unwrap()["artifactUpdate"]["lastChunk"]
            .as_bool()
            .unwrap()
    );
    // Whoever comes later is told what there is, then the same pieces.
    let at = format!("/a2a/tasks/{task}:subscribe");
    let mut late: Vec<_> = (0..3)
        .map(|_| world.stream(&world.token, "GET", &at, None))
        .collect();
    let tasks: Vec<Value> = late.iter_mut().map(|events| events.next().unwrap()).collect();
    go(&world, &task);
    early.extend(first.rest());
    let (whole, pieces, closed) = printed(&begun, &early);
    assert_eq!((whole.as_str(), closed), ("one\ntwö\n", true), "{early:#?}");
    assert!(pieces >= 3, "{pieces}");
    assert_eq!(states(&early).last(), Some(&"TASK_STATE_FAILED"));
    let plain = |events: &[Value]| -> Vec<Value> {
        let own =
            |one: &&Value| one.pointer("/artifactUpdate/artifact/artifactId") != Some(&json!("provenance"));
        events.iter().filter(own).cloned().collect()
    };
    let others: Vec<Vec<Value>> = late.iter_mut().map(|events| plain(&events.rest())).collect();
    for (task, other) in tasks.iter().zip(&others) {
        assert_eq!(printed(task, other).0, "one\ntwö\n");
        assert_eq!(other, &others[0], "the same events in the same order");
        assert!(plain(&early).ends_with(other), "{early:#?}\n{other:#?}");
    }
    let left = world.call("GetTask", &json!({ "id": task }));
    assert_eq!(left["artifacts"][0]["parts"][0]["text"], "one\ntwö\n");
}

#[test]
fn every_reader_gets_the_same_events_and_one_that_goes_away_takes_nothing_along() {
    let world = World::usual();
    let task = world.start(WAITS, &json!({}));
    world.until(&task, "TASK_STATE_WORKING");
    let at = format!("/a2a/tasks/{task}:subscribe");
    let mut first = world.stream(&world.token, "GET", &at, None);
    let mut second = world.stream(&world.token, "POST", &at, None);
    let gone = world.stream(&world.token, "POST", &at, None);
    for events in [&mut first, &mut second] {
        let begun = events.next().unwrap();
        assert_eq!(
            begun["task"]["status"]["state"], "TASK_STATE_WORKING",
            "{begun:#}"
        );
    }
    // One leaves in the middle and comes back: the task as it is now, then what comes.
    drop(gone);
    let mut back = world.stream(&world.token, "GET", &at, None);
    assert_eq!(back.next().unwrap()["task"]["id"], task.as_str());
    go(&world, &task);
    let seen: Vec<Vec<Value>> = [&mut first, &mut second, &mut back]
        .map(|events| events.rest())
        .into();
    let plain = |events: &[Value]| -> Vec<Value> {
        // The statement is signed for each reader.
        let own =
            |one: &&Value| one.pointer("/artifactUpdate/artifact/artifactId") != Some(&json!("provenance"));
        events.iter().filter(own).cloned().collect()
    };
    assert!(!seen[0].is_empty());
    assert_eq!(plain(&seen[0]), plain(&seen[1]));
    assert_eq!(plain(&seen[0]), plain(&seen[2]));
    let late = world.rest("GET", &at, None);
    assert_eq!(
        (late.status, late.json()["error"]["code"].as_i64()),
        (400, Some(400)),
        "nothing follows an end"
    );
}

#[test]
fn a_reader_that_does_not_read_and_a_token_that_is_revoked_hold_nobody_up() {
    let world = World::usual();
    let task = world.start(WAITS, &json!({}));
    world.until(&task, "TASK_STATE_WORKING");
    let at = format!("/a2a/tasks/{task}:subscribe");
    let _slow: Vec<_> = (0..8)
        .map(|_| world.stream(&world.token, "GET", &at, None))
        .collect();
    let made = world
        .daemon
        .own("POST", "/api/v1/tokens", Some(&json!({ "role": "viewer" })))
        .json();
    let viewer = crate::daemon::Token(made["secret"].as_str().unwrap().to_owned());
    let mut held = world.stream(&viewer, "GET", &at, None);
    assert!(held.next().unwrap().get("task").is_some());
    let id = made["id"].as_str().or(made["token"]["id"].as_str()).unwrap();
    let revoked = world.daemon.own("DELETE", &format!("/api/v1/tokens/{id}"), None);
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert!(held.next().is_none(), "its stream ends without the task's end");
    assert_eq!(
        world.call("GetTask", &json!({ "id": task }))["status"]["state"],
        "TASK_STATE_WORKING"
    );
    go(&world, &task);
    world.until(&task, "TASK_STATE_COMPLETED");
}
