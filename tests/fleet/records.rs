//! The daemon's records: copied while it works, and put back after they were lost.
use crate::daemon::Daemon;
use crate::killed::place;
use crate::support::{Ended, Limit, bastle, run};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn backup(root: &Path, to: &Path) -> Ended {
    let mut command = Command::new(bastle());
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root.join("home"))
        .env("XDG_STATE_HOME", root.join("state"))
        .env("XDG_RUNTIME_DIR", root.join("run"))
        .args(["daemon", "backup", "--json"])
        .arg(to);
    run(&mut command, b"", Limit::HANG)
}

#[test]
fn a_copy_of_the_records_that_was_made_while_the_daemon_worked_brings_everything_back() {
    let (root, dir) = place();
    let none = backup(&root, &root.join("copy.db"));
    assert_ne!(none.code, 0, "there is nothing to copy: {none:?}");
    let daemon = Daemon::start_in(root.clone(), None, &[]);
    let before = daemon.spawn("echo before");
    daemon.until(&before, &["completed"]);
    let token = daemon.role("viewer");
    let made = backup(&root, &root.join("copy.db"));
    assert_eq!(made.code, 0, "{made:?}");
    let told: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(told["schema"], "bastle.daemon-backup/v1");
    let mode = root.join("copy.db").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "tokens are in it");
    let again = backup(&root, &root.join("copy.db"));
    assert_ne!(again.code, 0, "a file was replaced: {again:?}");
    assert!(!root.join("copy.db.part").exists());
    // Lost with everything beside it, after more was recorded.
    let after = daemon.spawn("echo after");
    daemon.until(&after, &["completed"]);
    daemon.leave();
    let records = root.join("state/bastle/daemon");
    for name in ["daemon.db", "daemon.db-wal", "daemon.db-shm"] {
        drop(std::fs::remove_file(records.join(name)));
    }
    // As the page on operations says.
    let put = Command::new("install")
        .args(["-m", "600"])
        .arg(root.join("copy.db"))
        .arg(records.join("daemon.db"))
        .status();
    assert!(put.unwrap().success());
    let daemon = Daemon::start_in(root, Some(dir), &[]);
    assert_eq!(daemon.until(&before, &["completed"])["state"], "completed");
    assert_eq!(
        daemon.with(&token, "GET", "/api/v1/runs", None).status,
        200,
        "its tokens hold"
    );
    // What came after the copy is found again by its own files.
    daemon.until(&after, &["completed"]);
}
