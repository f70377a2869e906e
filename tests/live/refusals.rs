//! What cannot be granted, by whom it cannot, and names that change while somebody looks.
use crate::agent::{Agent, inside, shown};
use crate::support::{Identity, Lab, Limit, bastle, for_each_identity, run};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Refused with one of our own codes, recorded nowhere, nothing inside.
fn refused(agent: &Agent<'_>, words: &[&str], code: &str) {
    let ended = agent.told("grant", words);
    assert_eq!(ended.code, 1, "{words:?}: {ended:?}");
    assert!(ended.stderr.contains(code), "{words:?}: {ended:?}");
}

#[test]
fn credentials_the_state_of_runs_the_kernels_places_and_the_workspace_are_never_granted() {
    for_each_identity(|lab| {
        lab.plant(&lab.home().join(".ssh/id_ed25519"), "KEY");
        let agent = Agent::start(lab);
        let state = lab.home().join(".local/state/bastle");
        for (path, code) in [
            ("/".to_owned(), "BST-WS-020"),
            ("/proc".to_owned(), "BST-WS-020"),
            ("/proc/self".to_owned(), "BST-WS-020"),
            ("/sys/kernel".to_owned(), "BST-WS-020"),
            ("/dev/shm".to_owned(), "BST-WS-020"),
            ("/run".to_owned(), "BST-WS-020"),
            (shown(&lab.home()), "BST-"),
            (shown(&lab.home().join(".ssh")), "BST-FS-005"),
            (shown(&lab.home().join(".ssh/id_ed25519")), "BST-FS-005"),
            (shown(&state), "BST-FS-005"),
            (shown(&state.join("audit").join(agent.name())), "BST-FS-005"),
            (shown(&lab.workspace()), "BST-WS-020"),
            (shown(lab.workspace().parent().expect("has one")), "BST-"),
            (shown(&lab.workspace().join("agent.py")), "BST-WS-020"),
            (shown(&lab.outside().join("missing")), "BST-WS-020"),
        ] {
            for way in ["--ro", "--rw", "--file"] {
                refused(&agent, &[way, &path], code);
            }
        }
        assert_eq!(agent.does("os.listdir('/grants')"), "['README']");
        assert!(
            agent.events("granted").is_empty(),
            "nothing was recorded as granted"
        );
        let fine = lab.plant(&lab.outside().join("fine"), "fine");
        agent.gets("grant", &["--ro", &shown(&fine)]);
        assert_eq!(
            agent.does(&format!("read('{}')", inside(&fine))),
            "'fine'",
            "control"
        );
    });
}

#[test]
fn links_fifos_sockets_devices_and_what_overlaps_are_refused() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("d/f"), "public");
        let link = lab.outside().join("link");
        std::os::unix::fs::symlink(&data, &link).expect("own directory");
        let fifo = lab.outside().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .expect("own directory");
        let socket = lab.outside().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("own directory");
        let agent = Agent::start(lab);
        for path in [
            &link,
            &link.join("d"),
            &link.join("d/f"),
            &fifo,
            &socket,
            Path::new("/dev/null"),
        ] {
            for way in ["--ro", "--rw", "--file"] {
                refused(&agent, &[way, &shown(path)], "BST-WS-020");
            }
        }
        refused(&agent, &["--file", &shown(&data)], "BST-WS-020");
        agent.gets("grant", &["--ro", &shown(&data)]);
        for overlap in [&data, &data.join("d"), &data.join("d/f")] {
            refused(&agent, &["--rw", &shown(overlap)], "BST-WS-020");
        }
        assert_eq!(
            agent.does(&format!("read('{}/d/f')", inside(&data))),
            "'public'",
            "control"
        );
        let missing = agent.told("revoke", &[&shown(&fifo)]);
        assert_eq!(missing.code, 1, "{missing:?}");
        assert!(missing.stderr.contains("BST-WS-022"), "{missing:?}");
    });
}

#[test]
fn a_run_whose_writing_is_counted_is_granted_nothing_for_writing() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let agent = Agent::with(lab, &["--disk", "1G"]);
        refused(&agent, &["--rw", &shown(&data)], "BST-WS-020");
        agent.gets("grant", &["--ro", &shown(&data)]);
        assert_eq!(
            agent.does(&format!("read('{}/f')", inside(&data))),
            "'public'",
            "control"
        );
    });
}

#[test]
fn a_name_that_is_swapped_for_a_link_while_it_is_granted_never_shows_where_the_link_leads() {
    for_each_identity(|lab| {
        let (path, trap) = (lab.outside().join("data"), lab.outside().join("trap"));
        lab.plant(&path.join("f"), "public");
        lab.plant(&lab.outside().join("elsewhere/f"), "OUTSIDE");
        std::os::unix::fs::symlink(lab.outside().join("elsewhere"), &trap).expect("own directory");
        let agent = Agent::start(lab);
        let (over, swaps) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
        let (mut came, mut stayed_out) = (0, 0);
        std::thread::scope(|scope| {
            let _stop = Stop(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(CWD, &path, CWD, &trap, RenameFlags::EXCHANGE)
                        .expect("own names");
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..60 {
                let ended = agent.told("grant", &["--ro", &shown(&path)]);
                if ended.code != 0 {
                    stayed_out += 1;
                    continue;
                }
                came += 1;
                let seen = agent.does(&format!("read('{}/f')", inside(&path)));
                assert_eq!(seen, "'public'");
                agent.gets("revoke", &[&shown(&path)]);
            }
        });
        assert!(
            swaps.load(Ordering::Relaxed) > 60,
            "the name was swapped all the time"
        );
        assert!(stayed_out > 0, "some were refused ({came} came in)");
        if !path.join("f").exists() || path.is_symlink() {
            rustix::fs::renameat_with(CWD, &path, CWD, &trap, RenameFlags::EXCHANGE).expect("own names");
        }
        agent.gets("grant", &["--ro", &shown(&path)]);
        assert_eq!(
            agent.does(&format!("read('{}/f')", inside(&path))),
            "'public'",
            "control"
        );
    });
}

/// Ends the swapping, also when an assertion fails: the scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn another_user_of_the_host_grants_nothing_and_takes_nothing_back() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            crate::support::skip(
                "another_user_of_the_host_grants_nothing",
                "needs root to become another user",
            );
            return;
        }
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--ro", &shown(&data)]);
        let one = lab.plant(&lab.outside().join("one"), "one");
        for words in [
            ["grant", "--ro", &shown(&one)],
            ["revoke", &shown(&data), "--json"],
        ] {
            let ended = as_stranger(lab, agent.name(), &words);
            assert_ne!(ended.code, 0, "{words:?}: {ended:?}");
        }
        assert_eq!(agent.does(&format!("read('{}/f')", inside(&data))), "'public'");
        assert_eq!(agent.does(&format!("read('{}')", inside(&one))), "'ENOENT'");
        agent.gets("grant", &["--ro", &shown(&one)]);
        assert_eq!(
            agent.does(&format!("read('{}')", inside(&one))),
            "'one'",
            "control: its owner can"
        );
    });
}

/// The same command by a user who has nothing to do with the run.
fn as_stranger(lab: &Lab, name: &str, words: &[&str; 3]) -> crate::support::Ended {
    let mut command = std::process::Command::new(bastle());
    command.env_clear().current_dir("/").uid(60_777).gid(60_777);
    command
        .env("HOME", lab.home())
        .env("XDG_STATE_HOME", lab.home().join(".local/state"));
    command.arg(words[0]).arg(name).args(&words[1..]);
    run(&mut command, b"", Limit::HANG)
}

#[test]
fn a_run_that_is_over_or_was_never_there_is_granted_nothing_and_that_is_not_found() {
    for_each_identity(|lab| {
        let mut command = lab.command(bastle());
        command.args(["grant", "no-such-run", "--ro", "/usr"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 3, "{ended:?}");
        for wrong in [
            &["grant", "x"][..],
            &["grant", "x", "--ro", "/a", "--rw", "/b"],
            &["grant", "x", "--ro"],
            &["grant", "x", "--ro", "/a", "--for", "soon"],
            &["grant", "x", "--file", "/a", "--rw", "/b"],
        ] {
            let mut command = lab.command(bastle());
            command.args(wrong);
            let ended = run(&mut command, b"", Limit::HANG);
            assert_eq!(ended.code, 2, "{wrong:?}: {ended:?}");
        }
    });
}
