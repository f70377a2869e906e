//! Lists: newest first, page by page, and only by tokens that were given.
use crate::world::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn lists_are_sorted_paged_and_filtered_and_hold_artifacts_only_when_asked() {
    let world = World::usual();
    let mut made = Vec::new();
    for count in 0..4 {
        let mut message = world.starting(if count == 3 { "exit 1" } else { "echo x > made" }, &json!({}));
        message["contextId"] = json!(if count % 2 == 0 { "even" } else { "odd" });
        let task = world.call("SendMessage", &json!({ "message": message }))["task"].clone();
        made.push(task["id"].as_str().unwrap().to_owned());
    }
    let list = |params: Value| world.call("ListTasks", &params);
    let whole = list(json!({}));
    assert_eq!(
        (&whole["totalSize"], &whole["pageSize"], &whole["nextPageToken"]),
        (&json!(4), &json!(50), &json!(""))
    );
    let times: Vec<&str> = whole["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["status"]["timestamp"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "newest first: {times:?}");
    assert!(
        whole["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|task| task.get("artifacts").is_none()),
        "{whole:#}"
    );
    let with = list(json!({ "includeArtifacts": true, "pageSize": 1 }));
    assert!(with["tasks"][0].get("artifacts").is_some(), "{with:#}");
    let without = list(json!({ "historyLength": 0 }));
    assert!(
        without["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|task| task.get("history").is_none())
    );
    // Page by page, everything once.
    let mut seen = BTreeSet::new();
    let mut token = String::new();
    loop {
        let page = list(json!({ "pageSize": 3, "pageToken": token }));
        for task in page["tasks"].as_array().unwrap() {
            assert!(seen.insert(task["id"].as_str().unwrap().to_owned()), "told twice");
        }
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        assert_eq!(page["totalSize"], 4);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, made.iter().cloned().collect());
    assert_eq!(list(json!({ "contextId": "even" }))["totalSize"], 2);
    assert_eq!(
        list(json!({ "status": "TASK_STATE_FAILED" }))["tasks"][0]["id"],
        made[3].as_str()
    );
    assert_eq!(
        list(json!({ "statusTimestampAfter": "2999-01-01T00:00:00Z" }))["totalSize"],
        0
    );
    assert_eq!(
        list(json!({ "statusTimestampAfter": times[0] }))["tasks"][0]["status"]["timestamp"],
        times[0]
    );
    let rest = world.rest(
        "GET",
        "/a2a/tasks?pageSize=1&status=TASK_STATE_COMPLETED&includeArtifacts=true",
        None,
    );
    assert_eq!(
        (rest.status, &rest.json()["totalSize"]),
        (200, &json!(3)),
        "{rest:?}"
    );
    refuses_made_up_pages(&world);
}

fn refuses_made_up_pages(world: &World) {
    let first = world.call("ListTasks", &json!({ "pageSize": 1 }));
    let token = first["nextPageToken"].as_str().unwrap();
    let bent = format!("9{token}");
    let (cut, _) = token.split_at(token.len() - 2);
    for bad in [
        json!({ "pageSize": 1, "pageToken": bent }),
        json!({ "pageSize": 1, "pageToken": cut }),
        json!({ "pageToken": "1.one.00" }),
        json!({ "pageToken": "' OR 1=1 --" }),
        json!({ "pageSize": 1, "pageToken": token, "contextId": "even" }),
        json!({ "pageSize": 0 }),
        json!({ "pageSize": 101 }),
        json!({ "pageSize": "many" }),
        json!({ "status": "working" }),
        json!({ "statusTimestampAfter": "yesterday" }),
    ] {
        assert_eq!(world.refused("ListTasks", &bad), -32602, "{bad}");
    }
    let other = world.daemon.role("approver");
    let stolen = world.rpc_as(
        &other,
        "/a2a",
        "ListTasks",
        &json!({ "pageSize": 1, "pageToken": token }),
    );
    assert_eq!(
        stolen["error"]["code"], -32602,
        "a token of a page is its caller's: {stolen}"
    );
}
