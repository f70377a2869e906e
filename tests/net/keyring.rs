//! Secrets from a real Secret Service: gnome-keyring behind a message bus of the test's own.
use crate::support::{Lab, Limit, for_each_identity, run, skip};
use crate::world::{Scripts, host, world};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));
/// Random enough to be found anywhere.
const REAL: &str = "kr-lab-5b1fe0c27d9a43f88c6e01ba7d35f942";
const BUS: &str = "/usr/bin/dbus-daemon";
const KEYRING: &str = "/usr/bin/gnome-keyring-daemon";
const TOOL: &str = "/usr/bin/secret-tool";

/// A bus of the lab, and a keyring on it while one is wanted. Both end with this.
struct Desktop<'a> {
    lab: &'a Lab,
    address: String,
    bus: Child,
    keyring: Option<Child>,
}

/// How a keyring comes up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    Unlocked,
    /// As after a login without its password.
    Locked,
}

impl<'a> Desktop<'a> {
    fn new(lab: &'a Lab) -> Self {
        let socket = lab.home().join("bus");
        // Started by whoever runs the tests, and without authentication, because a bus wants an account for every uid
        // that it knows. It has no services that start by themselves, such as a window that asks for a password.
        let configuration = lab.plant(
            Path::new("home/bus.conf"),
            &format!(
                "<busconfig><type>session</type><keep_umask/><listen>unix:path={}</listen><auth>ANONYMOUS</auth>\
                 <allow_anonymous/><policy context=\"default\"><allow user=\"*\"/><allow send_destination=\"*\"/>\
                 <allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>",
                socket.display()
            ),
        );
        let bus = Command::new(BUS)
            .args(["--nofork", "--nopidfile"])
            .arg(format!("--config-file={}", configuration.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the bus starts");
        std::fs::create_dir(lab.home().join("run")).expect("a fresh place");
        lab.hand_over(&lab.home().join("run"));
        assert!(crate::support::eventually(Limit::HANG, || socket.exists()));
        Self {
            lab,
            address: format!("unix:path={}", socket.display()),
            bus,
            keyring: None,
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.lab.command(Path::new(program));
        command
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .env("XDG_RUNTIME_DIR", self.lab.home().join("run"));
        command
    }

    fn keyring(&mut self, begin: Begin) {
        self.no_keyring();
        let mut command = self.command(KEYRING);
        command.args(["--foreground", "--components=secrets"]);
        if begin == Begin::Unlocked {
            command.arg("--unlock");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the keyring starts");
        use std::io::Write;
        let mut input = child.stdin.take().expect("is piped");
        input.write_all(b"password of the keyring").expect("is read");
        drop(input);
        self.keyring = Some(child);
        // Any answer shows that somebody serves the bus's name; nobody is an error in words.
        assert!(
            crate::support::eventually(Limit::HANG, || {
                let mut ask = self.command(TOOL);
                ask.args(["search", "--all", "service", "nobody"]);
                let answered = run(&mut ask, b"", Limit::HANG);
                answered.code == 0 && answered.stderr.is_empty()
            }),
            "the keyring does not answer"
        );
    }

    fn no_keyring(&mut self) {
        if let Some(mut child) = self.keyring.take() {
            child.kill().expect("own child");
            child.wait().expect("own child");
        }
    }

    fn store(&self, name: &str, value: &str) {
        let mut command = self.command(TOOL);
        command.args(["store", "--label=lab", "service", "bastle", "name", name]);
        let stored = run(&mut command, value.as_bytes(), Limit::HANG);
        assert_eq!(stored.code, 0, "{stored:?}");
    }
}

impl Drop for Desktop<'_> {
    fn drop(&mut self) {
        self.no_keyring();
        self.bus.kill().expect("own child");
        self.bus.wait().expect("own child");
    }
}

/// Whether this host has the programs; otherwise the test is counted as skipped.
fn usable(test: &str) -> bool {
    let missing = [BUS, KEYRING, TOOL]
        .into_iter()
        .find(|program| !Path::new(program).exists());
    if let Some(program) = missing {
        skip(test, &format!("no {program}"));
    }
    missing.is_none()
}

/// A run whose secret is kept in the keyring by `entry`.
fn fence<'a>(desktop: &Desktop<'a>, holder: &str, entry: &str) -> crate::support::Fence<'a> {
    let secret = json!({ "name": "LAB_TOKEN", "from": format!("keyring:{entry}"), "hosts": [holder],
                         "ports": [world().tls] });
    let net = json!({ "allow": [format!("GET {holder}:{{tls}}/**")] });
    let document = world().document(&net, &json!({ "secrets": [secret] }));
    let policy = world().policy(desktop.lab, &document);
    let run = desktop.lab.home().join("run");
    world()
        .under(desktop.lab, &policy)
        .env("DBUS_SESSION_BUS_ADDRESS", &desktop.address)
        .env("XDG_RUNTIME_DIR", run.to_str().expect("UTF-8"))
        .within(SLOW)
}

#[test]
fn a_secret_of_the_keyring_reaches_the_server_and_neither_it_nor_the_keyring_the_agent() {
    if !usable("a_secret_of_the_keyring_reaches_the_server_and_neither_it_nor_the_keyring_the_agent") {
        return;
    }
    for_each_identity(|lab| {
        let holder = host("keyring");
        let mut desktop = Desktop::new(lab);
        desktop.keyring(Begin::Unlocked);
        desktop.store("lab", REAL);
        let bus = lab.home().join("bus");
        let output = fence(&desktop, &holder, "lab").shell(&format!(
            "curl -sS -o /dev/null -w '%{{http_code}}\\n' -H \"Authorization: Bearer $LAB_TOKEN\" https://{holder}:{{tls}}/plain\n\
             env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'\n\
             {TOOL} lookup service bastle name lab && echo keyring answered\n\
             DBUS_SESSION_BUS_ADDRESS={} {TOOL} lookup service bastle name lab && echo keyring answered\n\
             test -e {} && echo bus seen\n\
             true",
            desktop.address,
            bus.display()
        ));
        assert!(output.said().starts_with("200\n"), "{output:?}");
        for told in ["keyring answered", "bus seen", "DBUS_SESSION_BUS_ADDRESS=", REAL] {
            assert!(!output.ended.stdout.contains(told), "{told}: {output:?}");
        }
        assert!(!output.ended.stderr.contains(REAL), "{output:?}");
        let audit = serde_json::to_string(&output.audit).expect("JSON");
        assert!(!audit.contains(REAL), "the audit log holds it");
        let seen = serde_json::to_string(&world().seen(&holder)).expect("JSON");
        assert!(
            seen.contains(&format!("Bearer {REAL}")),
            "the server got it: {seen}"
        );
        // Kept as it is: what looks like a helper's own answer is a value like any other.
        desktop.store("json", "{\"value\":\"x\"}");
        let output = fence(&desktop, &holder, "json").shell(&format!(
            "curl -sS -o /dev/null -w '%{{http_code}}\\n' -H \"Authorization: Bearer $LAB_TOKEN\" https://{holder}:{{tls}}/json"
        ));
        assert_eq!(output.said(), "200", "{output:?}");
        let seen = serde_json::to_string(&world().seen(&holder)).expect("JSON");
        assert!(seen.contains("Bearer {\\\"value\\\":\\\"x\\\"}"), "{seen}");
    });
}

#[test]
fn a_run_does_not_start_while_the_keyring_is_locked_or_absent_or_has_no_such_entry() {
    if !usable("a_run_does_not_start_while_the_keyring_is_locked_or_absent_or_has_no_such_entry") {
        return;
    }
    for_each_identity(|lab| {
        let holder = host("keyring");
        let mut desktop = Desktop::new(lab);
        desktop.keyring(Begin::Unlocked);
        desktop.store("lab", REAL);
        let refused = |desktop: &Desktop<'_>, entry: &str, case: &str| {
            let output = fence(desktop, &holder, entry).shell("echo started");
            assert_ne!(output.ended.code, 0, "{case}: {output:?}");
            assert!(!output.ended.stdout.contains("started"), "{case}: {output:?}");
            let told = &output.ended.stderr;
            assert!(
                told.contains("BST-SEC-001") && told.contains("LAB_TOKEN") && told.contains("keyring"),
                "{case}: {output:?}"
            );
            assert!(
                told.contains("secret-tool store"),
                "what to do is said, {case}: {output:?}"
            );
        };
        refused(&desktop, "another", "no such entry");
        desktop.keyring(Begin::Locked);
        refused(&desktop, "lab", "locked");
        desktop.no_keyring();
        refused(&desktop, "lab", "no keyring on the bus");
        desktop.keyring(Begin::Unlocked);
        let output = fence(&desktop, &holder, "lab").shell("echo started");
        assert_eq!(output.said(), "started", "control: {output:?}");
        desktop.bus.kill().expect("own child");
        refused(&desktop, "lab", "no bus");
    });
}
