//! Whose tasks: others' do not exist, on any address, in any list.
use crate::world::{World, message};
use serde_json::{Value, json};

#[test]
fn tasks_of_other_callers_do_not_exist_on_any_address() {
    let world = World::usual();
    let task = world.start("while :; do sleep 1; done", &json!({ "name": "secret-1" }));
    assert_eq!(task, "secret-1");
    let other = world
        .daemon
        .token(json!({ "role": "approver", "prefix": "other-" }));
    let mut words = message("x");
    words["taskId"] = json!(task);
    let send = json!({ "message": words });
    for (real, made_up, method, body) in [
        ("/a2a/tasks/secret-1", "/a2a/tasks/secret-2", "GET", None),
        (
            "/a2a/tasks/secret-1:cancel",
            "/a2a/tasks/secret-2:cancel",
            "POST",
            None,
        ),
        (
            "/a2a/tasks/secret-1:subscribe",
            "/a2a/tasks/secret-2:subscribe",
            "GET",
            None,
        ),
        (
            "/a2a/workers/secret-1/tasks",
            "/a2a/workers/secret-2/tasks",
            "GET",
            None,
        ),
        (
            "/a2a/workers/secret-1/message:send",
            "/a2a/workers/secret-2/message:send",
            "POST",
            Some(&send),
        ),
        (
            "/a2a/workers/secret-1/stream",
            "/a2a/workers/secret-2/stream",
            "GET",
            None,
        ),
        (
            "/a2a/workers/secret-1/files",
            "/a2a/workers/secret-2/files",
            "GET",
            None,
        ),
        ("/a2a/secret-1/tasks", "/a2a/secret-2/tasks", "GET", None),
    ] {
        let hidden = world.rest_as(&other, method, real, body);
        let missing = world.rest_as(&other, method, made_up, body);
        let text = |body: &[u8]| String::from_utf8_lossy(body).replace("secret-1", "secret-2");
        assert_eq!(
            (hidden.status, text(&hidden.body)),
            (missing.status, text(&missing.body)),
            "{real}"
        );
        assert!([404, 400].contains(&hidden.status), "{real}: {}", hidden.status);
    }
    let own = world.rpc_as(&other, "/a2a", "ListTasks", &json!({}));
    assert_eq!(own["result"]["totalSize"], 0, "{own}");
    let refused = world.rpc_as(&other, "/a2a", "SendMessage", &send);
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    // One that is theirs is named so that it is, and the first caller's list has both.
    let begun = world.rest_as(
        &other,
        "POST",
        "/a2a/message:send",
        Some(&json!({ "message": world.starting("true", &json!({})) })),
    );
    assert_eq!(begun.status, 200, "{begun:?}");
    let name = begun.json()["task"]["id"].as_str().unwrap().to_owned();
    assert!(name.starts_with("other-"), "{name}");
    assert_eq!(
        world.rpc_as(&other, "/a2a", "ListTasks", &json!({}))["result"]["totalSize"],
        1
    );
    assert_eq!(world.call("ListTasks", &json!({}))["totalSize"], 2);
    assert_eq!(world.until("secret-1", "TASK_STATE_WORKING")["id"], "secret-1");
}

#[test]
fn a_worker_is_spoken_to_at_its_own_address_or_as_a_tenant_and_knows_no_other_task() {
    let world = World::usual();
    let one = world.start("while :; do sleep 1; done", &json!({ "name": "one" }));
    let two = world.start("while :; do sleep 1; done", &json!({ "name": "two" }));
    let ids = |value: &Value| -> Vec<String> {
        let tasks = value["tasks"].as_array().unwrap_or_else(|| panic!("{value}"));
        tasks
            .iter()
            .map(|task| task["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let at = world.rest("GET", "/a2a/workers/one/tasks", None).json();
    assert_eq!(ids(&at), ["one"]);
    assert_eq!(
        ids(&world.rest("GET", "/a2a/two/tasks", None).json()),
        ["two"],
        "the tenant as a part of the address"
    );
    assert_eq!(
        ids(&world.call("ListTasks", &json!({ "tenant": "two" }))),
        ["two"]
    );
    let rpc = world.rpc_as(&world.token, "/a2a/workers/one", "GetTask", &json!({ "id": one }));
    assert_eq!(rpc["result"]["id"], "one");
    let rpc = world.rpc_as(&world.token, "/a2a/workers/one", "GetTask", &json!({ "id": two }));
    assert_eq!(rpc["error"]["code"], -32001, "{rpc}");
    let rpc = world.rpc_as(
        &world.token,
        "/a2a/workers/one",
        "GetTask",
        &json!({ "id": two, "tenant": "two" }),
    );
    assert_eq!(rpc["error"]["code"], -32602, "{rpc}");
    assert_eq!(
        world.refused("ListTasks", &json!({ "tenant": "none-such" })),
        -32602
    );
    // A part of a name is no name.
    assert_eq!(world.refused("GetTask", &json!({ "id": "tw" })), -32001);
}
