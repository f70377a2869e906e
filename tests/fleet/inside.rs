//! What an agent can see of the daemon that started it: nothing.
use crate::daemon::Daemon;
use crate::killed::{place, printed};
use serde_json::json;

#[test]
fn the_daemons_records_tokens_and_sockets_are_not_there_for_an_agent() {
    let (root, dir) = place();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let at = |name: &str| root.join(name).display().to_string();
    let script = format!(
        "for f in {} {} {} {}; do if [ -e $f ]; then echo REACHED $f; fi; done; \
         cat hello.txt; env | grep -c bst_; echo tried",
        at("state/bastle/daemon/admin.token"),
        at("state/bastle/daemon/daemon.db"),
        at("state/bastle/runs"),
        at("run/bastle.sock"),
    );
    let wish =
        json!({"argv": ["sh", "-c", script], "workspace": daemon.workspace(), "mode": "copy", "token": true});
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    daemon.until(&run, &["completed"]);
    let text = printed(&root, &run);
    assert!(text.contains("hello") && text.contains("tried"), "{text}");
    assert!(!text.contains("REACHED"), "{text}");
    assert!(text.contains("0\n"), "a token is in its environment: {text}");
}
