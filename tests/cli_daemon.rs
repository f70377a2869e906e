//! The verbs of the daemon, by hand as a person would: start, spawn, look, answer, stop, start again.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // A test that cannot go on fails.
mod cli_support;

use cli_support::{Place, Said, follows_schema, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for something that happens elsewhere.
const DEADLINE: Duration = Duration::from_secs(60);

/// Before looking again.
fn moment() {
    let time = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 30_000_000,
    };
    rustix::event::poll(&mut [], Some(&time)).expect("nothing to fail");
}

/// A place with a daemon of its own. Whatever was started in it is ended with it.
struct Home {
    place: Place,
}

impl Home {
    fn new() -> Self {
        let place = Place::new();
        let home = Self { place };
        std::fs::create_dir(home.runtime()).unwrap();
        std::fs::set_permissions(home.runtime(), std::fs::Permissions::from_mode(0o700)).unwrap();
        home
    }

    fn runtime(&self) -> PathBuf {
        self.place.path().join("run")
    }

    fn command(&self) -> Command {
        let mut command = self.place.command();
        command.env("XDG_RUNTIME_DIR", self.runtime());
        command
    }

    fn say(&self, line: &str) -> Said {
        let mut command = self.command();
        command.args(line.split(' '));
        run(&mut command)
    }

    /// The JSON that a verb prints, which follows its schema.
    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let said = self.say(&format!("{line} --json")).exits(0);
        follows_schema(&said.out);
        said.json()
    }

    #[track_caller]
    fn start(&self) -> Value {
        self.json("daemon start --listen 127.0.0.1:0")
    }

    /// States of all runs, by name.
    fn states(&self) -> Vec<(String, String)> {
        let top = self.json("top --all");
        let mut states: Vec<(String, String)> = top["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| {
                let word = |key: &str| run[key].as_str().unwrap().to_owned();
                (word("run"), word("state"))
            })
            .collect();
        states.sort();
        states
    }

    /// Waits until every run has this state.
    #[track_caller]
    fn wait_for(&self, count: usize, state: &str) -> Vec<String> {
        let until = Instant::now() + DEADLINE;
        loop {
            let states = self.states();
            if states.len() == count && states.iter().all(|(_, is)| is == state) {
                return states.into_iter().map(|(name, _)| name).collect();
            }
            assert!(
                Instant::now() < until,
                "{count} runs should be {state}: {states:?}"
            );
            moment();
        }
    }

    /// Processes of keepers and daemons that are this place's.
    fn processes(&self) -> Vec<i32> {
        let own = self.place.path().display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let has = |bytes: &[u8]| bytes.windows(own.len()).any(|part| part == own.as_bytes());
            let is_ours = words
                .split(|byte| *byte == 0)
                .any(|word| word == b"serve" || word == b"__keep");
            if is_ours && (has(&words) || has(&environment)) {
                found.push(pid);
            }
        }
        found
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let log = std::fs::read_to_string(self.place.state().join("daemon/serve.log"));
        if std::thread::panicking() {
            eprintln!("serve.log: {}", log.unwrap_or_default());
        }
        // The daemon first: it would note the death of its runs, and start what waits.
        for _ in 0..2 {
            for pid in self.processes() {
                // One that ended meanwhile needs nothing.
                match Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL)) {
                    Some(Ok(()) | Err(_)) | None => {}
                }
            }
        }
    }
}

#[test]
fn without_a_daemon_a_verb_that_needs_one_names_the_command_that_starts_it() {
    let home = Home::new();
    for line in [
        "spawn --count 2 -- true",
        "stats",
        "batch ls",
        "token ls",
        "token create --role viewer",
        "profile ls",
        "profile show claude",
        "top --once",
    ] {
        let said = home.say(line).exits(1);
        assert!(
            said.err.contains("bastle daemon start") && said.out.is_empty(),
            "{line}: {said:?}"
        );
    }
    let said = home.say("stats --json").exits(1);
    follows_schema(&said.err);
    let status = home.say("daemon status --json").exits(3);
    follows_schema(&status.out);
    assert_eq!(status.json()["running"], false);
    assert_eq!(home.json("daemon stop")["stopped"], false);
    // Questions can be asked and answered without it.
    assert_eq!(home.json("approvals ls")["approvals"], Value::Array(Vec::new()));
    assert!(
        home.say("approvals approve 7")
            .exits(3)
            .err
            .contains("bastle approvals ls")
    );
}

#[test]
fn a_batch_with_a_bad_line_is_refused_with_its_place_before_anything_is_sent() {
    let home = Home::new();
    home.place.write(
        "batch.jsonl",
        "{\"argv\":[\"true\"]}\n{\"argv\":[\"true\"],\"sudo\":true}\n\n{\"argv\":\n",
    );
    let said = home.say("spawn -f batch.jsonl").exits(2);
    assert!(
        said.err.contains("batch.jsonl:2:") && said.err.contains("sudo"),
        "{said:?}"
    );
    assert!(said.err.contains("batch.jsonl:4:"), "{said:?}");
    assert!(
        !said.err.contains("daemon"),
        "nothing is asked of a daemon: {said:?}"
    );
    for line in [
        "spawn -f missing.jsonl",
        "spawn --count 0 -- true",
        "spawn --count 1001 -- true",
        "spawn --count 2",
        "spawn --count 2 --tag Bad=x -- true",
        "spawn --tag a=1 --tag a=2 -- true",
        "spawn --env LD_PRELOAD=x -- true",
        "spawn --env HOME -- true",
        "spawn --timeout soon -- true",
        "spawn -f batch.jsonl --count 2",
        "token create --role owner",
        "token create --role viewer --expires never",
        "stats --by moon",
        "approvals approve",
        "--host ftp://x stats",
        "--host http://example.org:7717 stats",
        "--host unix://relative stats",
    ] {
        home.say(line).exits(2);
    }
}

#[test]
fn a_context_is_a_name_for_a_daemon_and_never_holds_a_token() {
    let home = Home::new();
    let token = home.place.write("lab.token", "bst_abc_def\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    home.say("context add lab https://lab.example:7717 --token-file lab.token")
        .exits(4);
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let listed = home.json("context add lab https://lab.example:7717 --token-file lab.token");
    assert_eq!(listed["contexts"].as_array().unwrap().len(), 2);
    home.say("context add lab https://other.example").exits(2);
    home.say("context add Bad https://other.example").exits(2);
    home.say("context add plain http://other.example").exits(2);
    assert_eq!(home.json("context use lab")["contexts"][1]["current"], true);
    let said = home.say("context use lba").exits(3);
    assert!(said.err.contains("did you mean lab?"), "{said:?}");
    let file = home.place.path().join("config/bastle/contexts.json");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(!std::fs::read_to_string(&file).unwrap().contains("bst_abc"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(home.say("context ls").exits(2).err.contains("chmod 600"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let listed = home.json("context rm lab");
    assert_eq!(listed["contexts"][0]["current"], true, "{listed}");
}

#[test]
fn the_units_of_the_service_are_shown_and_nothing_is_written() {
    let home = Home::new();
    let shown = home.json("daemon install --dry-run");
    assert_eq!(shown["written"], false);
    let files = shown["files"].as_array().unwrap();
    assert!(
        files
            .iter()
            .any(|file| file["text"].as_str().unwrap().contains(" serve\n")),
        "{shown}"
    );
    let config = home.place.path().join("config/systemd");
    assert!(!config.exists());
}

#[test]
fn runs_of_a_batch_outlive_the_daemon_and_the_next_one_finds_them_again() {
    let home = Home::new();
    let started = home.start();
    assert_eq!(started["started"], true);
    // A second start finds it there.
    assert_eq!(home.start()["started"], false);
    let status = home.json("daemon status");
    assert_eq!(
        (&status["running"], &status["living"]),
        (&Value::Bool(true), &Value::from(0))
    );

    let batch = home
        .say("spawn --count 3 --workspace copy --prefix lint --tag job=lint --key once --json -- sleep 600")
        .exits(0);
    follows_schema(&batch.out);
    let id = batch.json()["batch"].as_str().unwrap().to_owned();
    let names = home.wait_for(3, "running");
    assert!(
        names.iter().all(|name| name.starts_with(&format!("lint-{id}-"))),
        "{names:?}"
    );
    // The same request under the same key is the same batch.
    let again = home
        .say("spawn --count 3 --workspace copy --prefix lint --tag job=lint --key once --json -- sleep 600")
        .exits(0);
    assert_eq!(
        (again.json()["batch"].as_str(), again.json()["repeated"].as_bool()),
        (Some(id.as_str()), Some(true))
    );
    let other =
        home.say("spawn --count 2 --workspace copy --prefix lint --tag job=lint --key once -- sleep 600");
    assert_eq!(other.code, 1, "{other:?}");

    let top = home.json("top");
    assert!(
        top["runs"][0]["memory"].as_u64().is_some_and(|bytes| bytes > 0),
        "{top}"
    );
    let table = home.say("top --once").exits(0).out;
    assert!(
        table.contains("3 working") && names.iter().all(|name| table.contains(name.as_str())),
        "{table}"
    );
    let stats = home.json("stats --by batch");
    assert_eq!(stats["rows"][&id]["runs"], 3, "{stats}");
    assert_eq!(home.json("batch ls")["batches"][0]["size"], 3);
    assert_eq!(
        home.json(&format!("batch show {id}"))["runs"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    home.say("batch show nonesuch").exits(3);
    assert_eq!(home.json("approvals ls")["approvals"], Value::Array(Vec::new()));
    assert!(
        home.say("approvals deny 7777")
            .exits(3)
            .err
            .contains("bastle approvals ls")
    );

    // The daemon goes, the runs stay, the next daemon has them.
    let stopped = home.json("daemon stop");
    assert_eq!(stopped["pid"], started["pid"]);
    assert_eq!(home.processes().len(), 3, "a keeper per run");
    let next = home.start();
    assert_ne!(next["pid"], started["pid"]);
    assert_eq!(home.wait_for(3, "running"), names);
    // Two that write the same place are not started together, and then neither is.
    let said = home.say("spawn --count 2 --workspace in-place -- true").exits(1);
    assert!(
        said.err.contains("BST-RUN-003") && said.err.contains("--on-conflict queue"),
        "{said:?}"
    );
    assert_eq!(home.states().len(), 3);
    home.say("stop --tag job=lint").exits(0);
    home.wait_for(3, "cancelled");
    assert_eq!(
        home.json(&format!("batch stop {id}"))["runs"],
        Value::Array(Vec::new())
    );
    home.say("batch stop nonesuch").exits(3);
    home.say("daemon stop").exits(0);
    assert!(home.processes().is_empty());
}

#[test]
fn a_watched_batch_ends_with_its_runs_and_a_failure_is_seen_in_the_exit_code() {
    let home = Home::new();
    home.start();
    let said = home
        .say("spawn --count 2 --workspace copy --watch -- true")
        .exits(0);
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    assert_eq!(said.err.matches(" completed").count(), 2, "{said:?}");
    let said = home.say("spawn --watch -- false").exits(1);
    assert!(said.err.contains(" failed"), "{said:?}");
}

/// What an agent does that wants to reach a host a person must allow: by the proxy, without any tool.
const ASKS: &str = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://ask.example/ HTTP/1.1\\r\\nHost: ask.example\\r\\n\\r\\n' >&3; head -1 <&3";

#[test]
fn a_question_of_a_run_is_shown_in_words_and_an_answer_to_another_one_is_refused() {
    let home = Home::new();
    home.start();
    home.place
        .write("ask.json", r#"{"version":1,"net":{"ask":["ask.example"]}}"#);
    let mut command = home.command();
    command.args([
        "spawn", "--prefix", "asks", "--policy", "ask.json", "--", "bash", "-c", ASKS,
    ]);
    run(&mut command).exits(0);
    home.wait_for(1, "needs-input");
    let open = home.json("approvals ls");
    let question = &open["approvals"][0];
    let id = question["id"].as_str().unwrap().to_owned();
    let hash = question["hash"].as_str().unwrap().to_owned();
    assert!(
        question["text"].as_str().unwrap().contains("ask.example"),
        "{open}"
    );
    assert!(home.say("approvals ls").exits(0).out.contains(&hash[..12]));
    let shown = home.say("top --once").exits(0).out;
    assert!(
        shown.contains("1 need you") && shown.contains("ask.example"),
        "{shown}"
    );
    // Another hash than the one that is asked about: refused, and it stays open.
    home.say(&format!("approvals approve {id} --hash 0123456789abcdef"))
        .exits(1);
    assert_eq!(
        home.json("approvals ls")["approvals"].as_array().unwrap().len(),
        1
    );
    let denied = home.json(&format!("approvals deny {id} --hash {} -m mirror", &hash[..12]));
    assert_eq!(denied["verdict"], "denied");
    home.wait_for(1, "completed");
    home.say(&format!("approvals approve {id}")).exits(3);
}

#[test]
fn a_question_is_answered_without_a_daemon_over_the_runs_own_socket() {
    let home = Home::new();
    home.start();
    home.place
        .write("ask.json", r#"{"version":1,"net":{"ask":["ask.example"]}}"#);
    let mut command = home.command();
    command.args([
        "spawn", "--prefix", "asks", "--policy", "ask.json", "--", "bash", "-c", ASKS,
    ]);
    run(&mut command).exits(0);
    let name = home.wait_for(1, "needs-input").remove(0);
    home.say("daemon stop").exits(0);
    let open = home.json("approvals ls");
    let question = &open["approvals"][0];
    assert_eq!(question["run"], name.as_str());
    assert!(
        question["hash"].is_string() && question["text"].as_str().unwrap().contains("ask.example"),
        "{open}"
    );
    let id = question["id"].as_str().unwrap();
    home.say(&format!("approvals deny {id} --hash 0123456789abcdef"))
        .exits(1);
    home.json(&format!("approvals deny {id}"));
    home.start();
    home.wait_for(1, "completed");
}

#[test]
fn the_verbs_for_one_run_work_through_a_named_daemon() {
    let home = Home::new();
    home.start();
    let host = format!("unix://{}", home.runtime().join("bastle/bastle.sock").display());
    let mut command = home.command();
    command.args([
        "spawn",
        "--prefix",
        "far",
        "--",
        "sh",
        "-c",
        "echo one; echo two >&2; exec sleep 600",
    ]);
    run(&mut command).exits(0);
    let name = home.wait_for(1, "running").remove(0);
    let far = |line: &str| home.say(&format!("--host {host} {line}"));
    let listed = far("ps --json").exits(0);
    follows_schema(&listed.out);
    assert_eq!(listed.json()["runs"][0]["run"], name.as_str());
    // A run counts as running before its program has written anything.
    let until = Instant::now() + DEADLINE;
    let said = loop {
        let said = far(&format!("logs {name}")).exits(0);
        if !(said.out.is_empty() || said.err.is_empty()) || Instant::now() > until {
            break said;
        }
        moment();
    };
    assert_eq!((said.out.as_str(), said.err.as_str()), ("one\n", "two\n"));
    follows_schema(&far("inspect @last --json").exits(0).out);
    far("pause far").exits(0);
    home.wait_for(1, "suspended");
    far("resume far").exits(0);
    home.wait_for(1, "running");
    let mut command = home.command();
    command.args([
        "--host",
        &host,
        "exec",
        &name,
        "--",
        "sh",
        "-c",
        "echo inside; exit 7",
    ]);
    assert_eq!(run(&mut command).exits(7).out, "inside\n");
    let said = far("logs nonesuch").exits(3);
    assert!(said.err.contains("bastle ps -a"), "{said:?}");
    far("stop far").exits(0);
    home.wait_for(1, "cancelled");
    // A daemon that is named and not there is an error, not this machine's own files.
    let said = home.say("--host unix:///nonexistent/b.sock ps").exits(1);
    assert!(said.err.contains("/nonexistent/b.sock"), "{said:?}");
}

#[test]
fn a_token_is_told_once_alone_and_does_only_what_its_role_allows() {
    let home = Home::new();
    home.start();
    let said = home
        .say("token create --role viewer --expires 1h --note ci")
        .exits(0);
    let secret = said.out.trim();
    assert!(
        secret.starts_with("bst_") && said.out.lines().count() == 1,
        "{said:?}"
    );
    assert!(!said.err.contains(secret), "{said:?}");
    // It reads, and no more.
    let file = home.place.write("viewer.token", secret);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let viewer = |line: &str| {
        let mut command = home.command();
        command.env("BASTLE_TOKEN_FILE", &file).args(line.split(' '));
        run(&mut command)
    };
    viewer("batch ls").exits(0);
    viewer("spawn -- true").exits(4);
    viewer("token ls").exits(4);
    let made = home
        .say("token create --role operator --run-prefix ci- --json")
        .exits(0);
    follows_schema(&made.out);
    let listed = home.say("token ls --json").exits(0);
    follows_schema(&listed.out);
    assert!(!listed.out.contains(secret), "{listed:?}");
    assert!(home.say("token ls").exits(0).out.contains("viewer"));
    let id = made.json()["token"]["id"].as_str().unwrap().to_owned();
    home.json(&format!("token revoke {id}"));
    home.say("token revoke nonesuch").exits(3);
    let listed = home.json("token ls");
    let revoked = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["id"] == id.as_str());
    assert!(revoked.unwrap()["revoked"].is_string(), "{listed}");
}

#[test]
fn the_ceiling_of_a_token_is_set_by_flags_shown_and_told_to_whoever_has_it() {
    let home = Home::new();
    home.start();
    let root = home.place.path().canonicalize().unwrap();
    let flags = format!(
        "token create --role operator --root {} --allow-net *.example.com --net none --limit timeout=1h --limit turns=9 \
         --max-runs 2",
        root.display()
    );
    let said = home.say(&flags).exits(0);
    assert!(
        said.err.contains("*.example.com") && said.err.contains("turns=9"),
        "{said:?}"
    );
    assert!(!said.err.contains(said.out.trim()), "{said:?}");
    let file = home.place.write("operator.token", said.out.trim());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let operator = |line: &str| {
        let mut command = home.command();
        command.env("BASTLE_TOKEN_FILE", &file).args(line.split(' '));
        run(&mut command)
    };
    let known = operator("whoami --json").exits(0);
    follows_schema(&known.out);
    let ceiling = &known.json()["ceiling"];
    assert_eq!(ceiling["hosts"][0], "*.example.com", "{ceiling}");
    assert_eq!(
        (&ceiling["net"], &ceiling["max_runs"]),
        (&"none".into(), &2.into()),
        "{ceiling}"
    );
    assert_eq!(ceiling["limits"]["timeout"], "1h", "{ceiling}");
    assert_eq!(ceiling["roots"][0].as_str(), root.to_str(), "{ceiling}");
    assert!(operator("whoami").exits(0).out.contains("max runs  2"));
    assert_eq!(
        home.json("whoami")["ceiling"],
        Value::Null,
        "an admin is held to nothing"
    );
    let listed = home.say("token ls --json").exits(0);
    follows_schema(&listed.out);
    assert!(listed.out.contains("*.example.com"), "{listed:?}");
    let refused = operator("spawn --net open -- true").exits(4);
    assert!(refused.err.contains("BST-TOK-003"), "{refused:?}");
    for bad in [
        "--limit memory=much",
        "--allow-net *",
        "--net everything",
        "--max-runs 0",
        "--root /nonexistent",
    ] {
        assert_ne!(
            home.say(&format!("token create --role operator {bad}")).code,
            0,
            "{bad}"
        );
    }
    home.place
        .write("ceiling.json", r#"{"modes":["copy"],"max_runs":7}"#);
    let made = home.json("token create --role operator --ceiling ceiling.json --max-runs 3");
    assert_eq!(made["token"]["ceiling"]["max_runs"], 3, "{made}");
    assert_eq!(made["token"]["ceiling"]["modes"][0], "copy", "{made}");
}

#[test]
fn a_profile_is_kept_shown_with_its_preamble_and_removed() {
    let home = Home::new();
    home.start();
    let builtin = home.json("profile ls");
    let first = builtin["profiles"][0]["name"].as_str().unwrap().to_owned();
    let shown = home.json(&format!("profile show {first}"));
    let mut document = shown["profile"]["document"].clone();
    if document.get("name").is_some() {
        document["name"] = Value::from("mine");
    }
    home.place.write("mine.json", document.to_string());
    assert_eq!(home.json("profile put mine.json")["profile"]["name"], "mine");
    let said = home.say("profile show mien").exits(3);
    assert!(said.err.contains("did you mean mine?"), "{said:?}");
    home.place.write("bad.json", "{\n  nope");
    assert!(
        home.say("profile put bad.json")
            .exits(2)
            .err
            .contains("bad.json:2:3")
    );
    home.place.write("odd.json", "{\"sudo\":true}");
    assert_ne!(home.say("profile put odd.json").code, 0);
    home.json("profile rm mine");
    home.say("profile rm mine").exits(3);
    // What would be put before the prompt is shown, and nothing starts.
    let plan = home.say("spawn --dry-run --json --count 2 -- true").exits(0);
    follows_schema(&plan.out);
    assert!(!plan.json()["preamble"].as_str().unwrap().is_empty(), "{plan:?}");
    assert!(home.states().is_empty());
}

#[test]
fn a_daemon_that_cannot_start_says_why_and_a_stranger_at_its_socket_is_not_signalled() {
    let home = Home::new();
    let state = home.place.path().join("state");
    std::fs::create_dir_all(state.join("bastle")).unwrap();
    std::fs::write(state.join("bastle/daemon"), "in the way").unwrap();
    let said = home.say("daemon start --listen 127.0.0.1:0").exits(1);
    assert!(
        said.err.contains("cannot be started") || said.err.contains("did not start"),
        "{said:?}"
    );
    std::fs::remove_file(state.join("bastle/daemon")).unwrap();
    // This process listens where the daemon would.
    std::fs::create_dir_all(home.runtime().join("bastle")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(home.runtime().join("bastle/bastle.sock")).unwrap();
    let said = home.say("daemon stop").exits(1);
    assert!(said.err.contains("not a daemon of yours"), "{said:?}");
    drop(socket);
}

/// A terminal of our own, and the process on it.
struct Screen {
    child: std::process::Child,
    master: std::fs::File,
    slave: std::fs::File,
    shown: Vec<u8>,
    /// How the terminal was before.
    before: rustix::termios::LocalModes,
}

impl Screen {
    fn open(mut command: Command) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = std::fs::File::options()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        let size = rustix::termios::Winsize {
            ws_row: 30,
            ws_col: 160,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let before = rustix::termios::tcgetattr(&slave).unwrap().local_modes;
        assert!(before.contains(rustix::termios::LocalModes::ECHO));
        let child = command
            .env("TERM", "xterm")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        Self {
            child,
            master: std::fs::File::from(master),
            slave,
            shown: Vec::new(),
            before,
        }
    }

    /// How the terminal is now.
    fn modes(&self) -> rustix::termios::LocalModes {
        rustix::termios::tcgetattr(&self.slave).unwrap().local_modes
    }

    /// Reads until the text was shown.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        let mut buffer = [0; 65536];
        loop {
            match self.master.read(&mut buffer) {
                Ok(count) => self.shown.extend_from_slice(&buffer[..count]),
                Err(_) => moment(),
            }
            let shown = String::from_utf8_lossy(&self.shown);
            if shown.contains(text) {
                self.shown.clear();
                return;
            }
            assert!(Instant::now() < until, "{text:?} was not shown: {shown}");
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_fleet_view_is_steered_by_keys_and_gives_the_terminal_back_when_it_is_ended() {
    let home = Home::new();
    home.start();
    let mut command = home.command();
    command.args([
        "spawn",
        "--prefix",
        "loud",
        "--",
        "sh",
        "-c",
        "echo hello-from-inside; exec sleep 600",
    ]);
    run(&mut command).exits(0);
    home.wait_for(1, "running");
    let mut command = home.command();
    command.args(["top", "--all"]);
    let mut screen = Screen::open(command);
    screen.wait_for("loud-");
    assert_ne!(screen.modes(), screen.before);
    screen.master.write_all(b"\r").unwrap();
    screen.wait_for("hello-from-inside");
    screen.master.write_all(b"p").unwrap();
    screen.wait_for("suspended");
    screen.master.write_all(b"p").unwrap();
    screen.wait_for("running");
    screen.master.write_all(b"sn").unwrap();
    screen.wait_for("nothing was done");
    let pid = Pid::from_child(&screen.child);
    kill_process(pid, Signal::TERM).unwrap();
    screen.wait_for("\x1b[?1049l");
    assert_eq!(screen.child.wait().unwrap().code(), Some(143));
    assert_eq!(screen.modes(), screen.before);
    home.wait_for(1, "running");
}
