//! A daemon that is killed, doubled, reloaded or activated; runs that must not notice; and what the agent sees of it.
use crate::admission::ordinary;
use crate::client::{connect_as, refusal, wish};
use crate::daemon::{Place, usual};
use crate::support::{Background, Lab, Limit, bastle, eventually};
use bastle_contract::Code;
use rustix::process::Signal;
use std::process::Command;

/// A run that says so and then waits for a file.
fn waiting(lab: &Lab, place: &Place, name: &str) -> Background {
    let script = lab.plant(
        &lab.workspace().join(format!("{name}.sh")),
        &format!(
            "echo alive\nwhile [ ! -e {name}.go ]; do sleep 0.1; done\necho done > {name}.done\necho over\n"
        ),
    );
    let fence = lab
        .fence()
        .env("BASTLE_SPAWNER", place.socket().to_str().unwrap())
        .flags(["--net", "none", "--workspace", "in-place", "--quiet"]);
    let mut command = fence.command(["sh", script.to_str().unwrap()]);
    let background = Background::start(&mut command);
    assert_eq!(background.line(), "alive");
    background
}

#[test]
fn a_run_outlives_the_daemon_and_the_next_daemon_counts_it() {
    let Some(lab) = ordinary("a_run_outlives_the_daemon") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let first = place.start(1);
    let mut run = waiting(&lab, &place, "one");
    assert!(first.has(1));
    let before = first.list();
    first.kill();
    assert!(run.is_alive());
    // The socket file is left behind, and nobody is behind it: the next one takes its place.
    let second = place.start(1);
    assert_eq!(second.list(), before, "{}", place.said());
    let held: Vec<_> = (0..3)
        .map(|_| connect_as(&place.socket(), lab.identity.uid()).unwrap())
        .collect();
    assert!(held.iter().all(|connection| wish(connection).is_ok()));
    assert_eq!(
        refusal(&place.socket(), lab.identity.uid()),
        Some(Code::SpawnWorkers),
        "the run of the first daemon has its place among four"
    );
    drop(held);
    lab.project("one.go", "");
    assert_eq!(run.line(), "over");
    assert_eq!(run.end(Limit::HANG), Some(0));
    assert!(lab.workspace().join("one.done").exists());
    assert!(second.has(0));
    assert_eq!(second.stop(), Some(0), "{}", place.said());
    let left = std::fs::read_dir(place.path("run/spawner.d")).unwrap().count();
    assert_eq!(left, 0, "no entry is left behind");
}

#[test]
fn killing_a_worker_ends_its_run_and_no_other() {
    let Some(lab) = ordinary("killing_a_worker_ends_its_run") else {
        return;
    };
    lab.share();
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(1);
    let mut one = waiting(&lab, &place, "one");
    assert!(daemon.has(1));
    let worker = daemon.list()[0].pid;
    let mut two = waiting(&lab, &place, "two");
    let pid = rustix::process::Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(one.end(Limit::HANG), Some(125), "the run is lost, and said to be");
    assert!(two.is_alive());
    assert!(daemon.has(1));
    lab.project("two.go", "");
    assert_eq!(two.line(), "over");
    assert_eq!(two.end(Limit::HANG), Some(0));
}

#[test]
fn a_second_daemon_on_the_socket_refuses_and_the_first_goes_on() {
    let Some(lab) = ordinary("a_second_daemon_on_the_socket") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let mut first = place.start(0);
    let second = place.refuses();
    assert_eq!(second.code, Some(1), "{}", second.said);
    assert!(second.said.contains("BST-SPAWN-009"), "{}", second.said);
    assert!(first.is_alive());
    assert_eq!(refusal(&place.socket(), lab.identity.uid()), None);
    first.kill();
    // Another program's socket in its place is not taken away either.
    std::fs::remove_file(place.socket()).unwrap();
    let other = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
    let third = place.refuses();
    assert_eq!(third.code, Some(1), "{}", third.said);
    assert!(third.said.contains("somebody serves there"), "{}", third.said);
    drop(other);
    let fourth = place.start(0);
    assert_eq!(fourth.list(), []);
}

#[test]
fn a_bad_ceiling_changes_nothing_at_a_reload_and_serves_nobody_at_a_start() {
    let Some(lab) = ordinary("a_bad_ceiling_changes_nothing") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let mut daemon = place.start(0);
    let (socket, uid) = (place.socket(), lab.identity.uid());
    let told = |words: &str| eventually(Limit::HANG, || place.said().contains(words));
    place.ceiling("{ \"version\": 1, \"callers\": [], \"max_workers\": 1, \"typo\": 1 }");
    daemon.signal(Signal::HUP);
    assert!(told("the old ceiling stays"), "{}", place.said());
    assert!(daemon.is_alive());
    assert_eq!(refusal(&socket, uid), None);
    // One that others can write is no better, whatever it says.
    place.usual_ceiling(&lab);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(place.path("ceiling.json"), open).unwrap();
    let refused = place_of_another_socket(&place);
    assert_eq!(refused.0, Some(1), "{}", refused.1);
    assert!(refused.1.contains("BST-SPAWN-008"), "{}", refused.1);
    // A good one holds at once, and a run that lives keeps what it has.
    let connection = connect_as(&socket, uid).unwrap();
    wish(&connection).unwrap();
    place.ceiling(r#"{"version": 1, "max_workers": 5, "callers": [{"uid": 0, "roots": ["/"]}]}"#);
    daemon.signal(Signal::HUP);
    assert!(told("the ceiling was read again"), "{}", place.said());
    assert_eq!(refusal(&socket, uid), Some(Code::SpawnCaller));
    assert_eq!(daemon.list().len(), 1);
}

/// The same ceiling for a daemon elsewhere.
fn place_of_another_socket(place: &Place) -> (Option<i32>, String) {
    let output = Command::new(bastle())
        .env_clear()
        .args(["spawner", "--warm", "0", "--socket"])
        .arg(place.path("elsewhere.sock"))
        .arg("--ceiling")
        .arg(place.path("ceiling.json"))
        .arg("--state")
        .arg(place.path("elsewhere"))
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_socket_that_the_system_hands_over_is_served() {
    let Some(lab) = ordinary("a_socket_that_the_system_hands_over") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    std::fs::create_dir(place.path("run")).unwrap();
    let listener = crate::client::listen(&place.socket());
    let mut command = Command::new("sh");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 exec {} spawner --warm 0 --ceiling {} --state {} 3<&0 0</dev/null",
        bastle().display(),
        place.path("ceiling.json").display(),
        place.state().display(),
    );
    command.args(["-c", &script]).stdin(listener);
    let daemon = place.start_by(command);
    assert_eq!(refusal(&place.socket(), lab.identity.uid()), None);
    assert_eq!(daemon.stop(), Some(0), "{}", place.said());
    assert!(place.socket().exists(), "the file is the system's");
}

#[test]
fn the_agent_sees_nothing_of_the_daemon() {
    let Some(lab) = ordinary("the_agent_sees_nothing_of_the_daemon") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(1);
    let socket = place.socket();
    let shown = socket.to_str().unwrap().to_owned();
    let fence = || {
        lab.fence()
            .env("BASTLE_SPAWNER", &shown)
            .flags(["--net", "none", "--workspace", "in-place"])
    };
    let inside = fence().sh(&format!(
        "[ -e {shown} ] && echo socket; [ -e {} ] && echo state; ls /proc | grep -c '^[0-9]'; env | grep -c BASTLE_SPAWNER; \
         tr '\\0' ' ' < /proc/1/cmdline",
        place.state().display()
    ));
    let lines: Vec<&str> = inside.said().lines().collect();
    assert!(
        !inside.said().contains("socket") && !inside.said().contains("state"),
        "{inside:?}"
    );
    assert!(
        lines[0].parse::<u32>().unwrap() < 10,
        "only its own processes: {inside:?}"
    );
    assert_eq!(lines[1], "0", "{inside:?}");
    assert!(!inside.said().contains(&shown), "{inside:?}");
    // Not even when somebody wants it in: it lies below none of the roots.
    let granted = fence()
        .flags(["--ro", place.path("run").to_str().unwrap()])
        .run(["true"]);
    assert_eq!(granted.ended.code, 125, "{granted:?}");
    assert!(granted.ended.stderr.contains("BST-SPAWN-004"), "{granted:?}");
    assert!(daemon.has(0));
}

#[test]
fn sandboxes_made_ahead_are_each_used_once_and_by_one_caller() {
    let Some(lab) = ordinary("sandboxes_made_ahead_are_used_once") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let daemon = place.start(2);
    let root = Lab::new(crate::support::Identity::Root);
    let mut uids = Vec::new();
    for round in 0..6 {
        let lab = if round % 2 == 0 { &lab } else { &root };
        let output = lab
            .fence()
            .env("BASTLE_SPAWNER", place.socket().to_str().unwrap())
            .flags(["--net", "none", "--workspace", "in-place"])
            .sh("cat /proc/self/uid_map; cat /tmp/left /home/agent/left 2>&1 | grep -c mark; echo mark > /tmp/left; echo mark > left; cp left ~; echo made > made");
        assert_eq!(output.ended.code, 0, "{output:?}");
        let words: Vec<&str> = output.said().split_whitespace().collect();
        uids.push(words[1].to_owned());
        assert_eq!(words[3], "0", "nothing of the run before is there: {output:?}");
        let made = std::fs::metadata(lab.workspace().join("made")).unwrap();
        assert_eq!(
            std::os::unix::fs::MetadataExt::uid(&made),
            lab.identity.uid(),
            "round {round}"
        );
    }
    let mut different = uids.clone();
    different.sort();
    different.dedup();
    assert_eq!(
        different.len(),
        uids.len(),
        "every run has a uid of its own: {uids:?}"
    );
    assert!(daemon.has(0));
    // As many wait as before, and none of the used ones is left.
    let pid = daemon.pid();
    let count = || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_whitespace().count()
    };
    assert!(
        count() <= 5,
        "the front, two for anybody, and one each for who was served: {}",
        count()
    );
    // What waits for its caller was made within a ceiling that may be another now.
    daemon.signal(Signal::HUP);
    assert!(
        eventually(Limit::HANG, || count() == 3),
        "the front and two: {}",
        count()
    );
}
