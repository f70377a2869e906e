//! Streams: events that survive a broken connection, a run's own streams, readers that do not read.
use crate::daemon::{Daemon, Token};
use crate::http::{Socket, Stream, Word, exchange, request, tcp};
use crate::support::{Limit, eventually};
use bastle_contract::stream::{StreamKind, StreamReader, frames};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};

fn event(word: Word) -> Value {
    match word {
        Word::Text(text) => serde_json::from_str(&text).expect("an event"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_are_neither_lost_nor_doubled_over_a_broken_connection() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let names: Vec<String> = (0..3).map(|_| daemon.spawn("true")).collect();
    for name in &names {
        daemon.until(name, &["completed"]);
    }
    let mut seen: Vec<u64> = Vec::new();
    let mut since = 0;
    let number = |event: &Value| -> u64 { event["sequence"].as_str().unwrap().parse().unwrap() };
    let mut ended = 0;
    // Three events per connection; each is broken off without a word.
    while ended < names.len() {
        let mut socket = daemon
            .websocket(&viewer, &format!("/api/v1/ws?since={since}"))
            .unwrap_or_else(|refusal| panic!("{refusal:?}"));
        for _ in 0..3 {
            let event = event(socket.next());
            assert_eq!(event["specversion"], "1.0");
            since = number(&event);
            seen.push(since);
            ended += usize::from(event["type"] == "dev.bastle.run.ended.v1");
            if ended == names.len() {
                break;
            }
        }
    }
    let mut once = seen.clone();
    once.dedup();
    assert_eq!(once, seen, "none twice");
    assert!(seen.windows(2).all(|two| two[0] < two[1]), "in order");
    for name in &names {
        let listed = daemon
            .own("GET", &format!("/api/v1/runs/{name}/events?limit=1000"), None)
            .json();
        for one in listed["items"].as_array().unwrap() {
            let one = number(one);
            assert!(one > since || seen.contains(&one), "{one} of {name} was lost");
        }
    }
}

#[test]
fn server_sent_events_go_on_after_the_last_id_and_end_with_the_token() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let name = daemon.spawn("true");
    daemon.until(&name, &["completed"]);
    let bearer = format!("Bearer {}", viewer.0);
    let host = daemon.address.to_string();
    let mut stream = tcp(daemon.address);
    let head = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("last-event-id", "1"),
    ];
    let path = format!("/api/v1/events?run={name}&kind=state,ended");
    stream.write_all(&request("GET", &path, &head, b"")).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("event: ended") {
        let count = stream.read(&mut buffer).expect("events come");
        assert!(count > 0, "it ended early: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(text.contains("text/event-stream"));
    assert!(text.contains("event: state"));
    assert!(
        !text.contains("\nid: 1\n"),
        "what is known already is not told again"
    );
    assert!(!text.contains("event: net"), "only what was asked for");
    let tokens = daemon.own("GET", "/api/v1/tokens", None).json();
    let all = tokens["items"].as_array().unwrap();
    let id = all.iter().find(|one| one["role"] == "viewer").unwrap()["id"].clone();
    let path = format!("/api/v1/tokens/{}", id.as_str().unwrap());
    assert_eq!(daemon.own("DELETE", &path, None).status, 200);
    while stream
        .read(&mut buffer)
        .expect("the stream ends before the patience does")
        > 0
    {}
}

#[test]
fn what_a_run_prints_and_reads_is_carried_and_a_viewer_cannot_write() {
    let daemon = Daemon::start(&[]);
    let (viewer, operator) = (daemon.role("viewer"), daemon.role("operator"));
    let wish = json!({
        "argv": ["sh", "-c", "echo ready; read line; echo got $line"], "workspace": daemon.workspace(), "mode": "copy",
        "open_input": true,
    });
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{made:?}");
    let name = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    daemon.until(&name, &["running"]);
    let refused = daemon
        .websocket(&viewer, &format!("/api/v1/runs/{name}/attach?input=true"))
        .err();
    assert_eq!(refused.map(|answer| answer.status), Some(403));
    let mut socket = daemon
        .websocket(
            &operator,
            &format!("/api/v1/runs/{name}/attach?since=0&input=true"),
        )
        .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let mut printed = String::new();
    let mut sent = false;
    loop {
        match socket.next() {
            Word::Binary(bytes) => {
                let mut reader = StreamReader::default();
                reader.push(&bytes);
                let frame = reader.next_frame().unwrap().expect("one whole frame per message");
                match frame.kind {
                    StreamKind::Output => printed.push_str(&String::from_utf8_lossy(&frame.payload)),
                    StreamKind::Ended => break,
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?} after {printed:?}"),
        }
        if printed.contains("ready") && !sent {
            socket.send(2, &frames(StreamKind::Input, b"word\n"));
            sent = true;
        }
    }
    assert_eq!(printed, "ready\ngot word\n");
    daemon.until(&name, &["completed"]);
}

#[test]
fn a_further_command_runs_in_the_same_fence_and_a_bad_one_is_refused_in_words() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let name = daemon.spawn("echo mark > mark; sleep 600");
    daemon.until(&name, &["running"]);
    let open = || {
        daemon
            .websocket(&operator, &format!("/api/v1/runs/{name}/exec"))
            .unwrap_or_else(|refusal| panic!("{refusal:?}"))
    };
    let mut socket = open();
    socket.send(1, b"{\"argv\":[\"true\"],\"surprise\":1}");
    let Word::Text(told) = socket.next() else {
        panic!("words")
    };
    assert!(
        told.contains("surprise") && told.contains("BST-API-001"),
        "{told}"
    );
    assert_eq!(socket.next(), Word::Closed(1008));
    let mut socket = open();
    socket.send(
        1,
        br#"{"argv":["sh","-c","until test -e mark; do :; done; cat mark; exit 3"]}"#,
    );
    let mut printed = Vec::new();
    let ended = loop {
        let word = socket.next();
        let Word::Binary(bytes) = word else {
            panic!("{word:?} after {printed:?}")
        };
        let mut reader = StreamReader::default();
        reader.push(&bytes);
        let frame = reader.next_frame().unwrap().unwrap();
        match frame.kind {
            StreamKind::Output => printed.extend(frame.payload),
            StreamKind::Ended => break serde_json::from_slice::<Value>(&frame.payload).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((printed.as_slice(), &ended["code"]), (&b"mark\n"[..], &json!(3)));
}

/// The next output of a run over a WebSocket, or how it was closed.
fn printed(socket: &mut Socket) -> Result<String, u16> {
    match socket.next() {
        Word::Binary(bytes) => {
            let mut reader = StreamReader::default();
            reader.push(&bytes);
            let frame = reader.next_frame().unwrap().unwrap();
            Ok(String::from_utf8_lossy(&frame.payload).into_owned())
        }
        Word::Closed(code) => Err(code),
        Word::Text(text) => panic!("{text}"),
    }
}

#[test]
fn attach_and_exec_end_with_their_token_and_take_no_input_after_it() {
    let daemon = Daemon::start(&[]);
    let wish = json!({
        "argv": ["sh", "-c", "cat"], "workspace": daemon.workspace(), "mode": "copy", "open_input": true,
    });
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{made:?}");
    let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    daemon.until(&run, &["running"]);
    let token = |more: Value| {
        let mut wish = json!({ "role": "operator" });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        let made = daemon.own("POST", "/api/v1/tokens", Some(&wish)).json();
        let id = made["id"]
            .as_str()
            .or(made["token"]["id"].as_str())
            .unwrap()
            .to_owned();
        (Token(made["secret"].as_str().unwrap().to_owned()), id)
    };
    let open = |token: &Token, rest: &str| {
        daemon
            .websocket(token, &format!("/api/v1/runs/{run}/{rest}"))
            .unwrap_or_else(|refusal| panic!("{refusal:?}"))
    };
    let say = |socket: &mut Socket, text: &str| socket.send(2, &frames(StreamKind::Input, text.as_bytes()));
    let shell = |token: &Token| {
        let mut socket = open(token, "exec");
        socket.send(1, br#"{"argv":["sh"]}"#);
        say(&mut socket, "echo ready\n");
        assert_eq!(printed(&mut socket), Ok("ready\n".to_owned()));
        socket
    };
    let (short, _) = token(json!({ "expires_s": 10 }));
    let (mut over, mut unsaid) = (shell(&short), open(&short, "exec"));
    let ((first, id), (second, _)) = (token(json!({})), token(json!({})));
    let mut kept = shell(&second);
    let (mut typed, mut quiet) = (shell(&first), shell(&first));
    let (mut into, mut seen) = (open(&first, "attach?input=true"), open(&first, "attach"));
    say(&mut into, "hello\n");
    assert_eq!(printed(&mut into), Ok("hello\n".to_owned()));
    assert_eq!(printed(&mut seen), Ok("hello\n".to_owned()));
    let revoked = daemon.own("DELETE", &format!("/api/v1/tokens/{id}"), None);
    assert_eq!(revoked.status, 200, "{revoked:?}");
    // What is sent after it does nothing; who sends nothing is cut off all the same.
    say(&mut typed, "touch typed; echo typed\n");
    say(&mut into, "more\n");
    for socket in [&mut typed, &mut into, &mut quiet, &mut seen] {
        assert_eq!(printed(socket), Err(1008));
    }
    // Time ends them too, also before the command was said.
    assert!(eventually(Limit::HANG, || {
        daemon.with(&short, "GET", "/api/v1/whoami", None).status == 401
    }));
    say(&mut over, "touch typed; echo typed\n");
    assert_eq!(printed(&mut over), Err(1008));
    unsaid.send(1, br#"{"argv":["touch","typed"]}"#);
    let Word::Text(refused) = unsaid.next() else {
        panic!("words")
    };
    assert!(refused.contains("BST-API-002"), "{refused}");
    assert_eq!(unsaid.next(), Word::Closed(1008));
    // The control: the shell of another token goes on, and sees nothing of what was sent.
    say(&mut kept, "ls\n");
    assert_eq!(printed(&mut kept), Ok("hello.txt\n".to_owned()));
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up_and_costs_no_memory() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let bearer = format!("Bearer {}", viewer.0);
    let host = daemon.address.to_string();
    let head = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let before = daemon.status("VmRSS");
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut stream = tcp(daemon.address);
        stream
            .write_all(&request("GET", "/api/v1/events?since=0", &head, b""))
            .unwrap();
        silent.push(stream);
    }
    for _ in 0..4 {
        let name =
            daemon.spawn("i=0; while [ $i -lt 200 ]; do cat /etc/shadow 2>/dev/null; i=$((i+1)); done; true");
        daemon.until(&name, &["completed", "failed"]);
    }
    assert_eq!(daemon.with(&viewer, "GET", "/api/v1/runs", None).status, 200);
    let grown = daemon.status("VmRSS").saturating_sub(before);
    assert!(grown < 100 * 1024, "{grown} KiB more");
}

#[test]
fn the_end_of_the_daemon_ends_streams_in_words_and_leaves_runs_alive_for_the_next() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let name = daemon.spawn("sleep 600");
    daemon.until(&name, &["running"]);
    let mut socket = daemon
        .websocket(&viewer, "/api/v1/ws")
        .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    daemon.signal(Signal::TERM);
    assert_eq!(socket.next(), Word::Closed(1001));
    let (root, dir) = daemon.leave();
    let next = Daemon::start_in(root, dir, &[]);
    assert_eq!(next.until(&name, &["running"])["state"], "running");
    assert_eq!(
        next.with(&viewer, "GET", "/api/v1/runs", None).status,
        200,
        "tokens hold over a restart"
    );
}

#[test]
fn a_browser_shows_its_token_among_the_protocols_and_a_plain_request_is_no_stream() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let host = daemon.address.to_string();
    let stream: Box<dyn Stream> = Box::new(tcp(daemon.address));
    let offered = format!("bastle.v1, bastle.bearer.{}", viewer.0);
    assert!(
        Socket::open(
            stream,
            "/api/v1/ws",
            &[("host", &host), ("sec-websocket-protocol", &offered)]
        )
        .is_ok()
    );
    let stream: Box<dyn Stream> = Box::new(tcp(daemon.address));
    let evil = [
        ("host", host.as_str()),
        ("sec-websocket-protocol", &offered),
        ("origin", "https://evil.example"),
    ];
    assert_eq!(
        Socket::open(stream, "/api/v1/ws", &evil)
            .err()
            .map(|answer| answer.status),
        Some(403)
    );
    let bearer = format!("Bearer {}", viewer.0);
    let head = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let plain = exchange(
        &mut tcp(daemon.address),
        &request("GET", "/api/v1/ws", &head, b""),
    );
    assert_eq!((plain.status, plain.code().as_str()), (400, "BST-API-001"));
}
