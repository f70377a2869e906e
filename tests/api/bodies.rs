//! Bodies that are not what they should be.
use crate::daemon::Daemon;
use serde_json::json;

#[test]
fn a_body_that_is_malformed_doubled_deep_or_unknown_is_refused_by_name_and_changes_nothing() {
    let daemon = Daemon::start(&[]);
    let admin = daemon.role("admin");
    let bearer = format!("Bearer {}", admin.0);
    let before = daemon.everything();
    let ws = daemon.workspace();
    let deep = format!("{{\"runs\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let good = format!("{{\"argv\":[\"true\"],\"workspace\":\"{ws}\"}}");
    let table: Vec<(Vec<u8>, &str)> = vec![
        (b"{".to_vec(), ""),
        (b"null".to_vec(), ""),
        (b"[]".to_vec(), ""),
        (b"\"x\"".to_vec(), ""),
        (deep.into_bytes(), "nested"),
        (
            format!("{{\"argv\":[\"true\"],\"argv\":[\"false\"],\"workspace\":\"{ws}\"}}").into_bytes(),
            "argv",
        ),
        (format!("{good} trailing").into_bytes(), "trailing"),
        (format!("{good}{good}").into_bytes(), "trailing"),
        ([b"\xef\xbb\xbf", good.as_bytes()].concat(), ""),
        (
            format!("{{\"max_turns\":NaN,\"workspace\":\"{ws}\"}}").into_bytes(),
            "",
        ),
        (
            format!("{{\"max_turns\":1e400,\"argv\":[\"true\"],\"workspace\":\"{ws}\"}}").into_bytes(),
            "",
        ),
        (
            format!("{{\"max_turns\":-1,\"argv\":[\"true\"],\"workspace\":\"{ws}\"}}").into_bytes(),
            "max_turns",
        ),
        (
            format!("{{\"prompt\":\"\\ud800\",\"argv\":[\"true\"],\"workspace\":\"{ws}\"}}").into_bytes(),
            "",
        ),
        (b"{\"argv\":[\"true\"]}".to_vec(), "workspace"),
        (b"{\"argv\":\"true\",\"workspace\":\"/x\"}".to_vec(), "argv"),
        (b"{\"argv\":[1],\"workspace\":\"/x\"}".to_vec(), "argv.0"),
        (
            b"{\"surprise\":1,\"argv\":[\"true\"],\"workspace\":\"/x\"}".to_vec(),
            "surprise",
        ),
        (b"{\"runs\":[{\"argv\":[\"true\"]}]}".to_vec(), "runs.0"),
        (
            b"{\"name\":\"../etc\",\"argv\":[\"true\"],\"workspace\":\"/x\"}".to_vec(),
            "",
        ),
        (b"{\"argv\":[\"a\\u0000b\"],\"workspace\":\"/x\"}".to_vec(), ""),
        (b"\xff\xfe{}".to_vec(), ""),
    ];
    for (body, field) in table {
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = daemon.net("POST", "/api/v1/runs", &headers, &body);
        assert!((400..500).contains(&answer.status), "{shown}: {answer:?}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(field), "{shown}: {detail}");
    }
    assert_eq!(daemon.everything(), before);
}

#[test]
fn a_name_with_a_newline_a_path_or_capitals_is_no_run() {
    let daemon = Daemon::start(&[]);
    for bad in [
        "..%2f..%2fetc",
        "a%0a",
        "A",
        "-x",
        "a%00",
        "%2e%2e",
        "x%20y",
        &"a".repeat(65),
    ] {
        let answer = daemon.own("GET", &format!("/api/v1/runs/{bad}"), None);
        assert_eq!(answer.status, 404, "{bad}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains(['\n', '\0']), "{text:?}");
    }
}

#[test]
fn parameters_that_are_unknown_doubled_or_out_of_range_are_refused() {
    let daemon = Daemon::start(&[]);
    for bad in [
        "/api/v1/runs?surprise=1",
        "/api/v1/runs?limit=0",
        "/api/v1/runs?limit=1001",
        "/api/v1/runs?limit=x",
        "/api/v1/runs?limit=1&limit=2",
        "/api/v1/runs?state=asleep",
        "/api/v1/events?since=-1",
        "/api/v1/events?since=99999999999999999999999",
        "/api/v1/events?kind=%0a",
        "/api/v1/approvals?after=x",
    ] {
        let answer = daemon.own("GET", bad, None);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "BST-API-001"),
            "{bad}"
        );
    }
    let wrong = daemon.own("PUT", "/api/v1/runs", Some(&json!({})));
    assert_eq!((wrong.status, wrong.code().as_str()), (405, "BST-API-009"));
    let nowhere = daemon.own("GET", "/api/v2/runs", None);
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "BST-API-008"));
}
