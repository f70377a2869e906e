//! What a token's kind and prefix hold it to beside its role.
use crate::daemon::Daemon;
use serde_json::json;

#[test]
fn a_program_brings_no_work_of_its_own_runs_to_the_host() {
    let daemon = Daemon::start(&[]);
    let program = daemon.token(json!({ "role": "approver", "kind": "program" }));
    let other = daemon.token(json!({ "role": "approver", "kind": "program" }));
    let wish = json!({
        "name": "own", "argv": ["sh", "-c", "echo new > made.txt"], "workspace": daemon.workspace(), "mode": "copy",
    });
    let made = daemon.with(&program, "POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{made:?}");
    daemon.until("own", &["completed"]);
    let file = daemon.root.join("ws/made.txt");
    let apply = |token, body| daemon.with(token, "POST", "/api/v1/runs/own/apply", Some(&body));
    assert_eq!(
        apply(&program, json!({ "dry_run": true })).status,
        200,
        "looking is no answer"
    );
    for body in [
        json!({}),
        json!({ "branch": "work" }),
        json!({ "paths": ["made.txt"] }),
    ] {
        let refused = apply(&program, body);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(!file.exists());
    }
    let applied = apply(&other, json!({}));
    assert_eq!(applied.status, 200, "who did not start it may: {applied:?}");
    assert!(file.exists());
    let undone = apply(&program, json!({ "undo": true, "dry_run": true }));
    assert_eq!(undone.status, 403, "{undone:?}");
    assert!(file.exists());
    let undone = daemon.own("POST", "/api/v1/runs/own/apply", Some(&json!({ "undo": true })));
    assert_eq!(undone.status, 200, "a person may: {undone:?}");
    assert!(!file.exists());
}

#[test]
fn an_admin_that_is_limited_to_some_runs_begins_with_none_of_the_others() {
    let daemon = Daemon::start(&[]);
    for name in ["mine-a", "other-b"] {
        let wish = json!({
            "name": name, "argv": ["sh", "-c", "echo private > tree.txt"], "workspace": daemon.workspace(), "mode": "copy",
        });
        assert_eq!(daemon.own("POST", "/api/v1/runs", Some(&wish)).status, 201);
        daemon.until(name, &["completed"]);
    }
    let limited = daemon.token(json!({ "role": "admin", "prefix": "mine-" }));
    let begin = |name: &str, from: &str| {
        let wish = json!({
            "name": name, "argv": ["cat", "tree.txt"], "workspace": daemon.workspace(), "mode": "copy", "from": from,
        });
        daemon.with(&limited, "POST", "/api/v1/runs", Some(&wish))
    };
    let told = |answer: crate::http::Answer, name: &str| {
        (
            answer.status,
            String::from_utf8_lossy(&answer.body).replace(name, "NAME"),
        )
    };
    let foreign = told(begin("mine-x", "other-b"), "other-b");
    assert_eq!(
        foreign,
        told(begin("mine-x", "nobody-c"), "nobody-c"),
        "it is like none"
    );
    assert_eq!(foreign.0, 404, "{}", foreign.1);
    let own = begin("mine-y", "mine-a");
    assert_eq!(own.status, 201, "{own:?}");
}
