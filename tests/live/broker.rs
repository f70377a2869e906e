//! Single files through the broker: plain HTTP on a socket inside, every access on record, revocable at once.
use crate::agent::{Agent, shown};
use crate::support::for_each_identity;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_granted_file_is_listed_read_and_written_and_each_access_is_on_record() {
    for_each_identity(|lab| {
        let notes = lab.plant(&lab.outside().join("notes.txt"), "from outside");
        let secret = lab.plant(&lab.outside().join("secret.txt"), "SECRET");
        let agent = Agent::start(lab);
        assert_eq!(
            agent.does("request('GET', '/v1/files')[1].count(b'name')"),
            "0",
            "before"
        );
        agent.gets("grant", &["--file", &shown(&notes), "--rw"]);
        let listed = agent.does("request('GET', '/v1/files')[1].decode()");
        assert!(
            listed.contains(&shown(&notes)) && listed.contains("read-write"),
            "{listed}"
        );
        let target = format!("/v1/files{}", shown(&notes));
        assert_eq!(
            agent.does(&format!("request('GET', '{target}')")),
            "(200, b'from outside')"
        );
        assert_eq!(
            agent.does("request('GET', '/v1/files/notes.txt')"),
            "(200, b'from outside')"
        );
        assert_eq!(
            agent.does(&format!("request('PUT', '{target}', b'from inside')")),
            "(204, b'')"
        );
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "from inside");
        assert_eq!(std::fs::metadata(&notes).unwrap().uid(), lab.identity.uid());
        let other = format!("request('GET', '/v1/files{}')[0]", shown(&secret));
        assert_eq!(agent.does(&other), "404", "what is not granted is not there");
        assert_eq!(
            agent.does("request('GET', '/v1/files/outside/../notes.txt')[0]"),
            "404"
        );
        assert_eq!(
            agent.does("os.path.exists('/grants/tmp')"),
            "False",
            "nothing is mounted for it"
        );
        let accesses = agent.events("broker-access");
        let of = |op: &str| {
            accesses
                .iter()
                .filter(|event| event["op"] == op && event["refused"].is_null())
                .count()
        };
        assert_eq!((of("read"), of("write")), (2, 1), "{accesses:?}");
        let written = accesses.iter().find(|event| event["op"] == "write").unwrap();
        assert_eq!(written["name"], shown(&notes).as_str());
        assert_eq!(written["bytes"], 11);
        assert_eq!(
            written["digest"],
            blake3::hash(b"from inside").to_hex().to_string()
        );
        let refused = accesses.iter().filter(|event| event["refused"].is_string());
        let names: Vec<&str> = refused.filter_map(|event| event["name"].as_str()).collect();
        assert!(
            names.iter().any(|name| name.ends_with("notes.txt")),
            "refusals are on record too, by their whole names: {names:?}"
        );
    });
}

#[test]
fn a_file_granted_for_reading_is_not_written_and_a_revoked_one_is_not_read() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("f"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file)]);
        assert_eq!(agent.does("request('PUT', '/v1/files/f', b'x')[0]"), "403");
        assert_eq!(
            agent.does("request('GET', '/v1/files/f')"),
            "(200, b'public')",
            "control"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "public");
        agent.gets("revoke", &[&shown(&file)]);
        assert_eq!(agent.does("request('GET', '/v1/files/f')[0]"), "404");
        agent.gets("grant", &["--file", &shown(&file), "--for", "1s"]);
        assert_eq!(agent.does("request('GET', '/v1/files/f')[0]"), "200");
        let gone = || {
            agent
                .events("grant-ended")
                .iter()
                .any(|event| event["why"] == "expired")
        };
        assert!(crate::support::eventually(crate::support::Limit::HANG, gone));
        assert_eq!(
            agent.does("request('GET', '/v1/files/f')[0]"),
            "404",
            "its time is over"
        );
    });
}

#[test]
fn a_reading_that_is_under_way_ends_when_its_file_is_revoked() {
    for_each_identity(|lab| {
        let size = 8 << 20;
        let file = lab.plant(&lab.outside().join("large"), &"x".repeat(size));
        let agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file)]);
        assert_eq!(
            agent.does("len(request('GET', '/v1/files/large')[1])"),
            size.to_string(),
            "control"
        );
        assert_eq!(agent.does("held.append(knock())"), "None");
        assert_eq!(
            agent.does("held[0].sendall(b'GET /v1/files/large HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')"),
            "None"
        );
        assert_eq!(agent.does("len(held[0].recv(10)) > 0"), "True", "it has begun");
        agent.gets("revoke", &[&shown(&file)]);
        let got = agent.does("count(held[0])");
        let got: usize = got.parse().unwrap_or_else(|_| panic!("{got}"));
        assert!(got < size / 2, "{got} bytes came after all");
    });
}

#[test]
fn a_file_that_became_a_link_a_fifo_or_too_large_is_refused_and_nothing_hangs() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("f"), "public");
        let secret = lab.plant(&lab.outside().join("secret"), "SECRET");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file), "--rw"]);
        let get = "request('GET', '/v1/files/f')";
        assert_eq!(agent.does(get), "(200, b'public')", "control");
        let swap = |make: &dyn Fn()| {
            std::fs::remove_file(&file).unwrap();
            make();
        };
        swap(&|| std::os::unix::fs::symlink(&secret, &file).unwrap());
        assert_eq!(agent.does(&format!("{get}[0]")), "409");
        assert_eq!(agent.does("request('PUT', '/v1/files/f', b'x')[0]"), "409");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "SECRET");
        swap(&|| {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        });
        assert_eq!(agent.does(&format!("{get}[0]")), "409");
        swap(&|| {
            std::fs::File::create(&file)
                .unwrap()
                .set_len((16 << 20) + 1)
                .unwrap()
        });
        assert_eq!(agent.does(&format!("{get}[0]")), "413");
        swap(&|| drop(lab.plant(&file, "again")));
        assert_eq!(agent.does(get), "(200, b'again')", "control");
    });
}

#[test]
fn a_body_that_is_too_large_or_a_request_that_is_not_understood_is_refused() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("f"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file), "--rw"]);
        let most = 16 << 20;
        assert_eq!(
            agent.does(&format!("request('PUT', '/v1/files/f', b'x' * {})[0]", most + 1)),
            "413"
        );
        assert_eq!(
            agent.does("request('PUT', '/v1/files/f', None, 20, 'Content-Length: 99999999999999\\r\\n')[0]"),
            "413"
        );
        assert_eq!(
            agent.does("request('PUT', '/v1/files/f', None, 20, 'Transfer-Encoding: chunked\\r\\n')[0]"),
            "411"
        );
        assert_eq!(agent.does("request('DELETE', '/v1/files/f')[0]"), "405");
        assert_eq!(agent.does("request('GET', '/v1/files/f%0a')[0]"), "400");
        assert_eq!(agent.does("request('GET', '/etc/passwd')[0]"), "404");
        assert_eq!(
            agent.does(
                "request('GET', '/v1/files/f', None, 20, 'Content-Length: 1\\r\\nContent-Length: 2\\r\\n')[0]"
            ),
            "400"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "public");
        assert_eq!(
            agent.does(&format!("request('PUT', '/v1/files/f', b'y' * {most})[0]")),
            "204",
            "control"
        );
        assert_eq!(std::fs::metadata(&file).unwrap().len(), most);
    });
}

#[test]
fn thousands_of_connections_and_slow_requests_are_bounded_and_others_are_served_again() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("f"), "public");
        let mut agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file)]);
        assert_eq!(agent.does("request('GET', '/v1/files/f')[0]"), "200", "control");
        // Each sends half a head. Those that the kernel does not queue are refused at once.
        let flood = r"
[held.append(s) for s in [socket.socket(socket.AF_UNIX) for _ in range(400)]
 if [s.setblocking(False)] and outcome(lambda: s.connect('/run/bastle/fs.sock')) is None
 and outcome(lambda: s.send(b'GET /v1/f'))] and len(held)";
        let opened: usize = agent.does(flood.trim_start()).parse().expect("a number");
        assert!((1..400).contains(&opened), "{opened} of 400 were taken or queued");
        let many = "sum([s.setblocking(False), outcome(lambda: s.connect('/run/bastle/fs.sock')) is None, s.close()][1] for s in (socket.socket(socket.AF_UNIX) for _ in range(10000)))";
        let queued: usize = agent.does(many).parse().expect("a number");
        assert!(queued <= 10_000);
        assert_eq!(
            agent.does("request('GET', '/v1/files/f', None, 50)[0]"),
            "200",
            "after their time is over"
        );
        assert!(agent.is_alive());
    });
}

#[test]
fn the_client_inside_lists_prints_and_replaces_and_curl_does_the_same() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("a b.txt"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--file", &shown(&file), "--rw"]);
        let sh = |line: &str| {
            agent.does(&format!(
                "(lambda p: (p.returncode, p.stdout + p.stderr))(__import__('subprocess').run(['sh', '-c', \"{line}\"], capture_output=True, text=True))"
            ))
        };
        let listed = sh("bastle-fs ls");
        assert!(
            listed.starts_with("(0,") && listed.contains("rw") && listed.contains("a b.txt"),
            "{listed}"
        );
        assert_eq!(sh("bastle-fs cat 'a b.txt'"), "(0, 'public')");
        assert_eq!(sh("printf changed | bastle-fs put 'a b.txt'"), "(0, '')");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "changed");
        assert!(sh("bastle-fs cat nothing").starts_with("(3,"));
        assert!(sh("bastle-fs").starts_with("(2,"));
        let curl = "curl -sf --unix-socket /run/bastle/fs.sock http://local/v1/files/a%20b.txt";
        assert_eq!(sh(curl), "(0, 'changed')");
        assert_eq!(
            sh(&format!(
                "printf again | {curl} -T -  -H 'Content-Length: 5' -H 'Transfer-Encoding:'"
            )),
            "(0, '')"
        );
        agent.gets("revoke", &[&shown(&file)]);
        assert!(sh("bastle-fs cat 'a b.txt'").starts_with("(3,"));
    });
}

#[test]
fn a_broker_serves_its_own_run_only() {
    for_each_identity(|lab| {
        lab.share();
        let file = lab.plant(&lab.outside().join("f"), "public");
        let (first, second) = (Agent::start(lab), Agent::start(lab));
        first.gets("grant", &["--file", &shown(&file)]);
        assert_eq!(
            first.does("request('GET', '/v1/files/f')"),
            "(200, b'public')",
            "control"
        );
        assert_eq!(second.does("request('GET', '/v1/files/f')[0]"), "404");
        assert_eq!(second.does("request('GET', '/v1/files')[1].count(b'name')"), "0");
        // The door itself cannot be replaced, moved or bound again.
        for attempt in [
            "os.remove('/run/bastle/fs.sock')",
            "os.rename('/run/bastle/fs.sock', '/run/bastle/x')",
            "socket.socket(socket.AF_UNIX).bind('/run/bastle/fs2.sock')",
        ] {
            let result = second.does(&format!("outcome(lambda: {attempt})"));
            assert!(
                ["'EROFS'", "'EACCES'"].contains(&result.as_str()),
                "{attempt}: {result}"
            );
        }
    });
}
