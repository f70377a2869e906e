//! Making bastle tell something that is not so: that a fence holds which nobody builds, that nothing happened among much, that
//! records are whole which are not.
use crate::daemon::Daemon;
use crate::support::{Lab, Limit, bastle, eventually, for_each_identity, run};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A daemon whose spawner is somebody else's program, which accepts and answers this.
fn with_impostor(answer: &'static [u8]) -> Daemon {
    let dir = tempfile::Builder::new()
        .prefix("bastle-truth-")
        .tempdir()
        .expect("a fresh place");
    let root = dir.path().to_path_buf();
    for name in ["home", "state", "run", "ws"] {
        std::fs::create_dir(root.join(name)).expect("a fresh place");
    }
    let socket = root.join("spawner.sock");
    let listener = UnixListener::bind(&socket).expect("a fresh socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Whoever is lied to may have gone.
            drop(std::io::Write::write_all(&mut stream, answer));
        }
    });
    Daemon::start_with(
        root,
        Some(dir),
        &[],
        &[("BASTLE_SPAWNER", socket.to_str().expect("UTF-8"))],
    )
}

/// Ready, enforced, connected.
fn said(daemon: &Daemon) -> (bool, bool, bool) {
    let get = |path: &str| daemon.own("GET", path, None).json();
    (
        daemon.net("GET", "/readyz", &[], b"").status == 200,
        get("/api/v1/agents/containment-status")["enforced"] == true,
        get("/api/v1/agents/status")["connected"] == true,
    )
}

#[test]
fn a_program_in_the_place_of_the_spawner_makes_no_status_say_that_a_fence_holds() {
    for answer in [&b""[..], b"{\"ok\":true,\"enforced\":true}\n", b"\0\0\0\x02{}"] {
        let daemon = with_impostor(answer);
        assert_eq!(said(&daemon), (false, false, false), "{answer:?}");
        let run = daemon.spawn("echo unfenced > /tmp/x");
        let ended = daemon.until(&run, &["completed", "failed", "refused"]);
        assert_ne!(ended["state"], "completed", "{ended}");
    }
    let honest = Daemon::start(&[]);
    assert!(
        eventually(Limit::HANG, || said(&honest) == (true, true, true)),
        "control: {:?}",
        said(&honest)
    );
}

#[test]
fn an_attempt_of_another_sort_is_found_in_the_log_after_a_flood_of_one_sort() {
    for_each_identity(|lab| {
        let script = "import os\n\
            def attempt(path):\n\
            \x20   try: os.open(path, os.O_CREAT | os.O_WRONLY)\n\
            \x20   except OSError: pass\n\
            for n in range(5200): attempt(f'/usr/lib/flood-{n}')\n\
            attempt('/usr/bin/needle')\n\
            for n in range(300): attempt(f'/usr/lib/flood-{n}')\n";
        let file = lab.project("flood.py", script);
        let output = lab.fence().run(["python3", "-B", file.to_str().expect("UTF-8")]);
        let denials = output.events("denied").len();
        assert!(
            !output.denials("/usr/bin/needle").is_empty(),
            "{denials} denials are kept, and not the needle"
        );
        assert!(denials < 5500, "control: the flood is not kept whole: {denials}");
    });
}

fn state(lab: &Lab) -> PathBuf {
    lab.home().join(".local/state/bastle")
}

/// Whether all records of the state directory are taken for whole.
fn is_whole(lab: &Lab) -> bool {
    let mut command = lab.command(bastle());
    run(command.args(["audit", "verify", "--all"]), b"", Limit::HANG).code == 0
}

fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .expect("cp is there");
    assert!(done.success());
}

#[test]
fn records_that_were_removed_emptied_cut_or_set_back_are_never_taken_for_whole() {
    for_each_identity(|lab| {
        let make = || {
            let fence = lab.fence();
            let name = fence.name().to_owned();
            assert_eq!(fence.run(["true"]).ended.code, 0, "the run");
            name
        };
        make();
        let audit = state(lab).join("audit");
        let (early, good) = (lab.outside().join("early"), lab.outside().join("good"));
        copied(&audit, &early);
        let newest = make();
        assert!(is_whole(lab), "control: as bastle wrote them");
        copied(&audit, &good);
        let log = audit.join(&newest).join("log.jsonl");
        let remove = |path: &Path| std::fs::remove_dir_all(path).expect("own files");
        let attacks: [(&str, &dyn Fn()); 5] = [
            ("the newest run is removed", &|| remove(&audit.join(&newest))),
            ("its log is emptied", &|| {
                std::fs::write(&log, "").expect("own file")
            }),
            ("its last record is cut off", &|| {
                let text = std::fs::read_to_string(&log).expect("own file");
                let end = text.trim_end().rfind('\n').expect("more than one") + 1;
                std::fs::write(&log, &text[..end]).expect("own file");
            }),
            ("the directory is emptied", &|| {
                remove(&audit);
                std::fs::create_dir(&audit).expect("own place");
                lab.hand_over(&audit);
            }),
            ("the directory is set back", &|| {
                remove(&audit);
                copied(&early, &audit);
            }),
        ];
        for (what, attack) in attacks {
            attack();
            assert!(!is_whole(lab), "{what}, and it is taken for whole");
            remove(&audit);
            copied(&good, &audit);
            assert!(is_whole(lab), "control: put back after {what}");
        }
    });
}
