//! The plain addresses of a worker: what it prints as it prints it, and the files of its tree.
use crate::world::World;
use serde_json::json;

#[test]
fn what_a_worker_prints_is_streamed_from_the_first_byte_and_resumed_where_it_broke() {
    let world = World::usual();
    let task = world.start(
        "echo one; echo two >&2; printf 'data: x\\n\\nevent: y\\n'",
        &json!({}),
    );
    let at = format!("/a2a/workers/{task}/stream");
    let mut events = world.stream(&world.token, "GET", &at, None);
    let mut all = Vec::new();
    while let Some(value) = events.next() {
        all.push(value);
    }
    let text = |stream: &str| -> String {
        let own = all.iter().filter(|one| one["stream"] == stream);
        own.map(|one| one["text"].as_str().unwrap()).collect()
    };
    assert_eq!(
        text("output"),
        "one\ndata: x\n\nevent: y\n",
        "no line of it becomes one of ours"
    );
    assert_eq!(text("errors"), "two\n");
    // Past the end there is nothing, and a place that is none is an end, not a crash.
    let mut nothing = world.stream(&world.token, "GET", &format!("{at}?since=1000000"), None);
    assert_eq!(nothing.next(), None);
    assert_eq!(world.rest("GET", &format!("{at}?since=-1"), None).status, 400);
    let printed = world
        .daemon
        .own("GET", &format!("/api/v1/runs/{task}/logs"), None)
        .json();
    assert!(printed.to_string().contains("one"), "{printed}");
}

#[test]
fn files_of_a_worker_are_listed_and_read_and_no_path_leads_out_of_its_tree() {
    let world = World::usual();
    let script = "echo in > a.txt; ln -s /etc/passwd link; mkdir sub";
    let task = world.call(
        "SendMessage",
        &json!({ "message": world.starting(script, &json!({})) }),
    );
    let task = task["task"]["id"].as_str().unwrap().to_owned();
    let at = |rest: &str| format!("/a2a/workers/{task}{rest}");
    let listed = world.rest("GET", &at("/files"), None).json();
    let names: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a.txt", "hello.txt", "link", "sub"]);
    let read = world.rest("GET", &at("/files/content?path=a.txt"), None);
    assert_eq!((read.status, read.body.as_slice()), (200, &b"in\n"[..]));
    for bad in [
        "../x",
        "/etc/passwd",
        "link",
        "sub/../../x",
        "%2e%2e/x",
        "file:///etc/passwd",
    ] {
        let refused = world.rest("GET", &at(&format!("/files/content?path={bad}")), None);
        assert_eq!(refused.status, 403, "{bad}");
    }
    assert_eq!(
        world.rest("GET", &at("/files/content?path=none"), None).status,
        404
    );
}
