//! After a revocation nothing can be changed, opened or reached through what a process kept.
use crate::agent::{Agent, inside, shown};
use crate::support::{Lab, Limit, bastle, compiled, eventually, for_each_identity, run};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

fn data(lab: &Lab) -> PathBuf {
    let data = lab.outside().join("data");
    lab.plant(&data.join("f"), "public");
    data
}

/// What is tried through a directory, by its descriptor's number.
const CHANGES: &[&str] = &[
    "os.chmod('f', 0o600, dir_fd=fd)",
    "os.utime('f', (1, 1), dir_fd=fd)",
    "os.setxattr(f'/proc/self/fd/{fd}/f', b'user.x', b'1')",
    "os.chmod(f'/proc/self/fd/{fd}', 0o700)",
    "os.rename('f', 'g', src_dir_fd=fd, dst_dir_fd=fd)",
    "os.mkdir('d', dir_fd=fd)",
    "os.unlink('f', dir_fd=fd)",
    "os.truncate(f'/proc/self/fd/{fd}/f', 0)",
    "os.close(os.open('f', os.O_RDONLY, dir_fd=fd))",
];

fn tried(change: &str, fd: &str) -> String {
    format!("(lambda fd: outcome(lambda: {change}))({fd})")
}

/// The same through a directory that is opened for it and closed again.
fn tried_once(change: &str, open: &str) -> String {
    format!("(lambda fd: (outcome(lambda: {change}), os.close(fd))[0])({open})")
}

#[test]
fn nothing_is_changed_or_opened_through_a_directory_that_was_kept_where_nobody_sees_it() {
    for_each_identity(|lab| {
        let data = data(lab);
        let agent = Agent::start(lab);
        let at = inside(&data);
        agent.gets("grant", &["--rw", &shown(&data)]);
        // Controls, in the order in which each leaves the file there for the next.
        let open = format!("os.open('{at}', os.O_RDONLY)");
        for change in [CHANGES[0], CHANGES[1], CHANGES[2], CHANGES[3], CHANGES[8]] {
            assert_eq!(
                agent.does(&tried_once(change, &open)),
                "None",
                "control: {change}"
            );
        }
        let before = std::fs::metadata(data.join("f")).expect("is there");
        assert_eq!(before.permissions().mode() & 0o777, 0o600, "control");
        assert_eq!(agent.does(&format!("stash({open})")), "None");
        let revoked = agent.gets("revoke", &[&shown(&data), "--json"]);
        assert_eq!(agent.does("held.append(unstash())"), "None");
        for change in CHANGES {
            let change = change.replace("0o600", "0o666").replace("(1, 1)", "(2, 2)");
            let answer = agent.does(&tried(&change, "held[-1]"));
            assert!(
                ["'EROFS'", "'EACCES'"].contains(&answer.as_str()),
                "{change}: {answer}"
            );
        }
        let after = std::fs::metadata(data.join("f")).expect("is still there");
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
        assert_eq!(
            std::fs::read_to_string(data.join("f")).expect("is there"),
            "public"
        );
        assert!(!data.join("g").exists() && !data.join("d").exists());
        assert!(
            revoked.stdout.contains("\"ended\":0"),
            "nobody was found: {revoked:?}"
        );
    });
}

#[test]
fn who_could_still_reach_a_socket_or_write_a_file_is_ended_and_who_only_reads_is_not() {
    for_each_identity(|lab| {
        let data = data(lab);
        let mut agent = Agent::start(lab);
        let at = inside(&data);
        agent.gets("grant", &["--rw", &shown(&data)]);
        let early = UnixListener::bind(data.join("early")).expect("own directory");
        std::fs::set_permissions(data.join("early"), std::fs::Permissions::from_mode(0o666))
            .expect("own file");
        let through = format!("connect(f\"/proc/self/fd/{{os.open('{at}', os.O_PATH)}}/early\")");
        assert_eq!(
            agent.does(&format!("child(lambda: {through}) > 0")),
            "True",
            "control: it is reached while it is granted"
        );
        drop(early);
        let reaching = [
            format!("lambda: os.open('{at}', os.O_RDONLY)"),
            format!("lambda: os.open('{at}', os.O_PATH)"),
            format!("lambda: os.open('{at}/f', os.O_PATH)"),
            format!("lambda: os.chdir('{at}')"),
            format!("lambda: open('{at}/f', 'a')"),
        ];
        for act in &reaching {
            assert_eq!(agent.does(&format!("held.append(child({act}))")), "None");
        }
        assert_eq!(
            agent.does(&format!("held.append(child(lambda: open('{at}/f')))")),
            "None"
        );
        let revoked = agent.gets("revoke", &[&shown(&data), "--json"]);
        assert!(revoked.stdout.contains("\"holders\":1"), "{revoked:?}");
        let ended = agent.does("[ended(pid) for pid in held]");
        assert_eq!(ended, "[True, True, True, True, True, False]");
        assert!(agent.is_alive(), "the agent held nothing itself");
        let told = &agent.events("grant-ended")[0]["why"];
        assert!(
            told.as_str()
                .is_some_and(|why| why.contains("were ended") && why.contains("for reading")),
            "{told}"
        );
    });
}

#[test]
fn a_holder_is_found_by_each_of_its_threads_also_when_its_main_thread_has_ended() {
    for_each_identity(|lab| {
        let data = data(lab);
        let holder = compiled(lab, "tests/live/holder.c");
        let mut agent = Agent::start(lab);
        let at = inside(&data);
        agent.gets("grant", &["--rw", &shown(&data)]);
        for mode in ["write", "directory", "thread"] {
            let spawned = agent.does(&format!("held.append(spawn('{holder}', '{mode}', '{at}'))"));
            assert_eq!(spawned, "None", "{mode}");
        }
        let living = agent.does("[ended(pid) for pid in held]");
        assert_eq!(living, "[False, False, False]", "control");
        agent.gets("revoke", &[&shown(&data)]);
        assert_eq!(agent.does("[ended(pid) for pid in held]"), "[True, True, True]");
        assert!(agent.is_alive(), "the agent held nothing itself");
    });
}

#[test]
fn an_agent_that_maps_a_file_for_writing_does_not_outlive_the_grant() {
    for_each_identity(|lab| {
        let data = data(lab);
        let mut agent = Agent::start(lab);
        let at = inside(&data);
        agent.gets("grant", &["--rw", &shown(&data)]);
        // The descriptor is closed again: only the mapping writes.
        let map = format!(
            "held.append((lambda f: (__import__('mmap').mmap(f.fileno(), 0), f.close())[0])(open('{at}/f', 'r+b')))"
        );
        assert_eq!(agent.does(&map), "None");
        agent.gets("revoke", &[&shown(&data)]);
        assert!(eventually(Limit::HANG, || !agent.is_alive()), "the run is over");
    });
}

#[test]
fn what_a_run_is_never_started_with_is_never_granted_to_it_either() {
    for_each_identity(|lab| {
        lab.share();
        let agent = Agent::start(lab);
        let home = shown(&lab.home());
        let never = [
            "/",
            "/tmp",
            "/var",
            "/var/tmp",
            "/home",
            "/root",
            "/run",
            "/run/user",
            "/proc",
            "/sys",
            "/dev",
            &home,
        ];
        for path in never {
            let granted = agent.told("grant", &["--ro", path]);
            assert_ne!(granted.code, 0, "{path}: {granted:?}");
            let mut command = lab.command(bastle());
            command.args(["run", "--net", "none", "--ro", path, "--", "true"]);
            let started = run(&mut command, b"", Limit::HANG);
            assert_eq!(started.code, 125, "{path}: {started:?}");
            assert!(
                started.stderr.contains("is never handed over whole"),
                "{path}: {started:?}"
            );
        }
        let data = data(lab);
        agent.gets("grant", &["--ro", &shown(&data)]);
        let mut command = lab.command(bastle());
        command.args(["run", "--net", "none", "--ro", &shown(&data), "--", "true"]);
        let started = run(&mut command, b"", Limit::HANG);
        assert_eq!(started.code, 0, "control: {started:?}");
    });
}

#[test]
fn a_writer_that_no_process_of_the_sandbox_has_ends_the_run_and_the_grant_ends_all_the_same() {
    for_each_identity(|lab| {
        let data = data(lab);
        let mut agent = Agent::start(lab);
        let at = inside(&data);
        agent.gets("grant", &["--rw", &shown(&data)]);
        // A socket of the host at which nobody accepts: what is sent there stays in its queue, and no end of a process
        // inside takes it out. So nobody is found, and ending everybody does not help.
        let early = UnixListener::bind(data.join("early")).expect("own directory");
        std::fs::set_permissions(data.join("early"), std::fs::Permissions::from_mode(0o666))
            .expect("own file");
        let sent = agent.does(&format!(
            "(lambda s, f: (s.connect('{at}/early'), socket.send_fds(s, [b'x'], [f.fileno()]), f.close(), s.close())[1])(socket.socket(socket.AF_UNIX), open('{at}/f', 'r+b'))"
        ));
        assert_eq!(sent, "1", "control: it is on its way");
        let others = agent.does("held.append(child(lambda: None))");
        assert_eq!(others, "None", "one that holds nothing");
        let revoked = agent.gets("revoke", &[&shown(&data), "--json"]);
        assert!(
            revoked.stdout.contains("\"ended\":0,\"holders\":0"),
            "no holder was found: {revoked:?}"
        );
        assert!(eventually(Limit::HANG, || !agent.is_alive()), "the run is over");
        let told = agent.events("grant-ended");
        assert_eq!(told[0]["why"], "revoked; the run ended");
        // The control: the writer was there all the time, so the mount could not be made read-only at any look.
        let writes = "import os, socket, sys\ns, _ = socket.socket(fileno=0).accept()\nprint(os.write(socket.recv_fds(s, 1, 1)[1][0], b'PUBLIC'))";
        let written = std::process::Command::new("python3")
            .args(["-c", writes])
            .stdin(std::os::fd::OwnedFd::from(early))
            .output()
            .expect("python3 can be started");
        assert_eq!(written.stdout, b"6\n", "{written:?}");
    });
}
