//! Messages to the door: what becomes a task, what waits and what does not, which ids hold.
use crate::world::{World, message};
use serde_json::{Value, json};

fn artifact<'t>(task: &'t Value, id: &str) -> &'t Value {
    let all = task["artifacts"].as_array().unwrap_or_else(|| panic!("{task:#}"));
    let found = all.iter().find(|one| one["artifactId"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {task:#}"))
}

#[test]
fn a_message_to_the_door_becomes_a_fenced_worker_and_its_work_becomes_artifacts() {
    let world = World::usual();
    let script =
        "cat > asked.txt; echo '<testsuite/>' > junit.xml; echo done; cat /etc/shadow 2>/dev/null; true";
    let sent = world.call(
        "SendMessage",
        &json!({ "message": world.starting(script, &json!({})) }),
    );
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    let time = task["status"]["timestamp"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.len() == 24, "{time}");
    assert!(task["contextId"].as_str().is_some_and(|id| !id.is_empty()));
    let diff = artifact(task, "diff")["parts"][0]["text"].as_str().unwrap();
    assert!(
        diff.contains("+++ b/asked.txt") && diff.contains("do it"),
        "{diff}"
    );
    let files = &artifact(task, "files")["parts"][0]["data"]["files"];
    assert!(files.to_string().contains("\"digest\""), "{files}");
    assert_eq!(artifact(task, "output")["parts"][0]["text"], "done\n");
    assert_eq!(
        artifact(task, "test-report")["parts"][0]["raw"],
        "PHRlc3RzdWl0ZS8+Cg=="
    );
    let sealed = artifact(task, "provenance")["parts"][0]["text"].as_str().unwrap();
    let sealed: Value = serde_json::from_str(sealed).unwrap();
    assert_eq!(sealed["payloadType"], "application/vnd.in-toto+json");
    let about = "https://bastle.dev/a2a/artifact/v1";
    assert_eq!(
        artifact(task, "diff")["metadata"][about]["sha256"]
            .as_str()
            .map(str::len),
        Some(64)
    );
    // The same over the other binding, by id.
    let id = task["id"].as_str().unwrap();
    let again = world.rest("GET", &format!("/a2a/tasks/{id}"), None);
    assert!(
        again.head.contains("content-type: application/a2a+json"),
        "{}",
        again.head
    );
    let (mut one, mut other) = (again.json(), task.clone());
    // Each answer is signed anew.
    for task in [&mut one, &mut other] {
        let all = task["artifacts"].as_array_mut().unwrap();
        all.retain(|artifact| artifact["artifactId"] != "provenance");
    }
    assert_eq!(one, other);
    let run = world
        .daemon
        .own("GET", &format!("/api/v1/runs/{id}"), None)
        .json();
    assert_eq!(run["state"], "completed", "a task is a run");
}

#[test]
fn a_message_waits_for_the_end_unless_it_asks_not_to() {
    let world = World::usual();
    let slow = "while [ ! -e go ]; do sleep 0.05; done";
    let params = json!({ "message": world.starting(slow, &json!({})), "configuration": { "returnImmediately": true } });
    let task = world.call("SendMessage", &params)["task"].clone();
    let state = task["status"]["state"].as_str().unwrap();
    assert!(
        ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state),
        "{task}"
    );
    let failed = world.call(
        "SendMessage",
        &json!({ "message": world.starting("exit 3", &json!({})) }),
    );
    assert_eq!(failed["task"]["status"]["state"], "TASK_STATE_FAILED");
    let refused = json!({ "policy": { "version": 1, "limits": { "pids": 0 } } });
    let task = world.call(
        "SendMessage",
        &json!({ "message": world.starting("true", &refused) }),
    );
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_REJECTED", "{task:#}");
    assert!(
        task["task"]["status"]["message"]["parts"][0]["text"].is_string(),
        "and says why: {task:#}"
    );
}

#[test]
fn context_ids_are_kept_task_ids_are_ours_and_a_pair_that_does_not_match_is_refused() {
    let world = World::usual();
    let mut first = world.starting("while :; do sleep 1; done", &json!({}));
    first["contextId"] = json!("mine-1");
    let at_once = json!({ "returnImmediately": true });
    let task = world.call(
        "SendMessage",
        &json!({ "message": first, "configuration": at_once }),
    )["task"]
        .clone();
    assert_eq!(task["contextId"], "mine-1");
    let id = task["id"].as_str().unwrap().to_owned();
    // The same message again is the same task; the same id with other words is refused and starts nothing.
    let again = world.call(
        "SendMessage",
        &json!({ "message": first, "configuration": at_once }),
    );
    assert_eq!(again["task"]["id"], id.as_str());
    first["parts"][0]["text"] = json!("do something else");
    let reused = json!({ "message": first, "configuration": at_once });
    assert_eq!(world.refused("SendMessage", &reused), -32602);
    assert_eq!(
        world.call("ListTasks", &json!({}))["totalSize"],
        1,
        "and starts nothing"
    );
    first["messageId"] = json!("an-id-of-its-own");
    let other = world.call(
        "SendMessage",
        &json!({ "message": first, "configuration": at_once }),
    );
    assert_ne!(other["task"]["id"], id.as_str());
    assert_eq!(other["task"]["contextId"], "mine-1");
    let mut stray = world.starting("true", &json!({}));
    stray["taskId"] = json!("chosen-by-me");
    assert_eq!(
        world.refused("SendMessage", &json!({ "message": stray })),
        -32001,
        "a task id is never the caller's"
    );
    let mut wrong = message("and this");
    wrong["taskId"] = json!(id);
    wrong["contextId"] = json!("mine-2");
    assert_eq!(world.refused("SendMessage", &json!({ "message": wrong })), -32602);
    wrong["contextId"] = json!("no good\nid");
    assert_eq!(
        world.refused("SendMessage", &json!({ "message": wrong })),
        -32602,
        "refused, not replaced"
    );
    let listed = world.call("ListTasks", &json!({ "contextId": "mine-1" }));
    assert_eq!(listed["totalSize"], 2, "{listed}");
}

#[test]
fn history_is_as_long_as_is_asked_for_and_survives_the_daemon() {
    let world = World::usual();
    let script = "while :; do sleep 1; done";
    let mut sent = world.starting(script, &json!({}));
    sent["contextId"] = json!("kept-1");
    let at_once = json!({ "returnImmediately": true, "historyLength": 0 });
    let task = world.call(
        "SendMessage",
        &json!({ "message": sent, "configuration": at_once }),
    )["task"]
        .clone();
    assert!(task.get("history").is_none(), "{task}");
    let id = task["id"].as_str().unwrap().to_owned();
    let whole = world.call("GetTask", &json!({ "id": id }));
    assert_eq!(whole["history"][0]["messageId"], sent["messageId"]);
    assert_eq!(whole["history"][0]["taskId"], id.as_str());
    for (length, count) in [(json!(1), 1), (json!("5"), 1)] {
        let some = world.call("GetTask", &json!({ "id": id, "historyLength": length }));
        assert_eq!(some["history"].as_array().map_or(0, Vec::len), count);
    }
    assert_eq!(
        world.refused("GetTask", &json!({ "id": id, "historyLength": -1 })),
        -32602
    );
    let World {
        daemon,
        token,
        config,
    } = world;
    let file = config.path().join("serve.json");
    let (root, dir) = daemon.leave();
    let daemon = crate::daemon::Daemon::start_in(root, dir, &["--config", file.to_str().unwrap()]);
    let world = World {
        daemon,
        token,
        config,
    };
    let after = world.call("GetTask", &json!({ "id": id }));
    assert_eq!(
        (&after["contextId"], &after["history"]),
        (&json!("kept-1"), &whole["history"])
    );
    assert_eq!(
        world.call("CancelTask", &json!({ "id": id }))["status"]["state"],
        "TASK_STATE_CANCELED"
    );
}

#[test]
fn what_a_task_leaves_behind_comes_in_types_that_are_taken_and_where_there_is_none_nothing_is_started() {
    let world = World::usual();
    let script = "echo out; echo new > made.txt";
    let with = |modes: Value| {
        let configuration = json!({ "acceptedOutputModes": modes });
        json!({ "message": world.starting(script, &json!({})), "configuration": configuration })
    };
    for bad in [json!(["image/png"]), json!(["video/*", "audio/ogg"])] {
        assert_eq!(world.refused("SendMessage", &with(bad.clone())), -32005, "{bad}");
        let rest = world.rest("POST", "/a2a/message:stream", Some(&with(bad.clone())));
        assert_eq!(rest.status, 400, "{bad}");
    }
    assert_eq!(world.refused("SendMessage", &with(json!("text/plain"))), -32602);
    assert_eq!(world.call("ListTasks", &json!({}))["totalSize"], 0);
    let left = |task: &Value| -> Vec<(String, String)> {
        let all = task["artifacts"].as_array().cloned().unwrap_or_default();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        all.iter()
            .map(|one| (word(&one["artifactId"]), word(&one["parts"][0]["mediaType"])))
            .collect()
    };
    let plain = world.call("SendMessage", &with(json!(["text/plain; charset=utf-8"])));
    let found = left(&plain["task"]);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["output", "diff", "files", "provenance"]);
    assert!(found.iter().all(|(_, media)| media == "text/plain"), "{found:?}");
    let files = plain.pointer("/task/artifacts/2/parts/0/text").unwrap();
    assert!(files.as_str().unwrap().contains("made.txt"), "{files}");
    let data = world.call("SendMessage", &with(json!(["application/json"])));
    let own = [("files", "application/json"), ("provenance", "application/json")];
    assert_eq!(
        left(&data["task"]),
        own.map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    // A stream tells in the same types; whoever asks for the task later is told all of it.
    let body = with(json!(["application/json"]));
    let all = world
        .stream(&world.token, "POST", "/a2a/message:stream", Some(&body))
        .rest();
    let told: Vec<&Value> = all
        .iter()
        .filter_map(|one| one.pointer("/artifactUpdate/artifact/artifactId"))
        .collect();
    assert_eq!(told, ["files", "provenance"]);
    let id = &all[0]["task"]["id"];
    assert_eq!(left(&world.call("GetTask", &json!({ "id": id }))).len(), 4);
}

#[test]
fn parts_that_are_not_taken_are_refused_and_nothing_is_fetched_or_started() {
    let world = World::usual();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    for (part, code) in [
        (json!({ "url": url, "mediaType": "text/plain" }), -32005),
        (
            json!({ "raw": "AAAA", "mediaType": "application/x-unsupported" }),
            -32005,
        ),
        (json!({ "text": "a", "data": {} }), -32602),
        (json!({}), -32602),
        (json!({ "text": "x".repeat(300_000) }), -32602),
    ] {
        let mut sent = world.starting("true", &json!({}));
        sent["parts"] = json!([part]);
        assert_eq!(
            world.refused("SendMessage", &json!({ "message": sent })),
            code,
            "{part:.80}"
        );
    }
    assert!(listener.accept().is_err(), "an address of a message was fetched");
    assert_eq!(world.call("ListTasks", &json!({}))["totalSize"], 0);
    let mut nowhere = world.starting("true", &json!({}));
    nowhere["metadata"][crate::world::SPAWN]["workspace"].take();
    for bad in [
        json!({ "mode": "sideways" }),
        json!({ "token": true }),
        json!({ "prompt": "another" }),
        json!({ "surprise": 1 }),
        json!({ "profile": "none-such" }),
    ] {
        let code = world.refused("SendMessage", &json!({ "message": world.starting("true", &bad) }));
        assert!([-32602, -32600].contains(&code), "{bad}: {code}");
    }
    assert_eq!(
        world.refused("SendMessage", &json!({ "message": nowhere })),
        -32602
    );
    assert_eq!(
        world.call("ListTasks", &json!({}))["totalSize"],
        0,
        "nothing was started"
    );
}
