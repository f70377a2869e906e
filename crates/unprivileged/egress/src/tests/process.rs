//! The process on its socket to control, and the standalone form with its log.
use crate::serve;
use crate::standalone::{Standalone, Verbosity, commands, settle, standalone};
use crate::testing::{echo, read_all, table};
use bastle_contract::egress::{EGRESS_CPU, Faces, FromEgress, NetVerdict, ToEgress};
use bastle_contract::{Code, Digest, RunId, WIRE_VERSION, socket};
use bastle_policy::NetPolicy;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

fn run() -> RunId {
    RunId::try_from("calm-otter".to_owned()).unwrap()
}

fn document(text: &str) -> OwnedFd {
    let file = rustix::fs::memfd_create("document", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::write(&file, text.as_bytes()).unwrap();
    file
}

fn sealed(text: &str) -> OwnedFd {
    let file = document(text);
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK).unwrap();
    file
}

fn json(policy: &NetPolicy) -> String {
    serde_json::to_string(policy).unwrap()
}

fn next(control: &OwnedFd) -> FromEgress {
    socket::receive(control).unwrap().expect("egress has ended").0
}

fn send(control: &OwnedFd, frame: &ToEgress, descriptors: &[&OwnedFd]) {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|d| d.as_fd()).collect();
    socket::send(control, frame, &descriptors).unwrap();
}

fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; 4_096];
    let n = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

fn connect(authority: &str) -> Vec<u8> {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes()
}

fn refused(frame: FromEgress) -> Code {
    match frame {
        FromEgress::Refused(fault) => fault.code,
        other => panic!("{other:?}"),
    }
}

fn configure_badly_then_well(control: &OwnedFd, first: &NetPolicy) {
    let configure = ToEgress::Configure {
        version: WIRE_VERSION,
        run: run(),
        attended: false,
        cpu: EGRESS_CPU,
        canary: Vec::new(),
    };
    // Not sealed, not a table, one document too few: nothing is in force yet, and egress waits on.
    send(control, &configure, &[&document(&json(first)), &sealed("[]")]);
    assert_eq!(refused(next(control)), Code::PolicyUnreadable);
    send(control, &configure, &[&sealed("{}"), &sealed("[]")]);
    assert_eq!(refused(next(control)), Code::PolicyUnreadable);
    send(control, &configure, &[&sealed(&json(first))]);
    assert_eq!(refused(next(control)), Code::PolicyUnreadable);
    send(control, &configure, &[&sealed(&json(first)), &sealed("[]")]);
    assert_eq!(next(control), FromEgress::Ready { authority: None });
}

#[test]
fn egress_refuses_what_it_cannot_follow_serves_what_it_is_given_and_ends_with_control() {
    let (control, theirs) = socket::pair().unwrap();
    let process = std::thread::spawn(move || serve(theirs, Vec::new()));
    assert_eq!(
        next(&control),
        FromEgress::Hello {
            version: WIRE_VERSION,
            probes: Vec::new(),
        }
    );
    let first = table(r#"{"allow": ["a.example"]}"#, &[]);
    configure_badly_then_well(&control, &first);

    let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (http, socks, dns, transparent) = (listener(), listener(), listener(), listener());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let proxy = http.local_addr().unwrap();
    let faces: Vec<OwnedFd> = vec![
        http.into(),
        socks.into(),
        udp.into(),
        dns.into(),
        transparent.into(),
    ];
    let all: Vec<&OwnedFd> = faces.iter().collect();
    send(
        &control,
        &ToEgress::Serve {
            faces: Faces {
                transparent: vec![443, 80],
            },
        },
        &all,
    );
    assert_eq!(refused(next(&control)), Code::FenceStep, "a listener too few");
    send(
        &control,
        &ToEgress::Serve {
            faces: Faces {
                transparent: vec![443],
            },
        },
        &all,
    );

    assert!(say(proxy, &connect("b.example:443")).starts_with("HTTP/1.1 403 "));
    match next(&control) {
        FromEgress::Decided(d) => assert_eq!(
            (d.seq, d.verdict, d.host.as_str()),
            (1, NetVerdict::Denied, "b.example")
        ),
        other => panic!("{other:?}"),
    }
    send(&control, &ToEgress::Reload, &[&sealed("{\"nonsense\": 1}")]);
    assert_eq!(refused(next(&control)), Code::PolicyUnreadable);
    send(
        &control,
        &ToEgress::Reload,
        &[&sealed(&json(&table(r#"{"allow": ["b.example"]}"#, &[])))],
    );
    assert_eq!(next(&control), FromEgress::Reloaded { cut: 0 });
    assert!(
        say(proxy, &connect("b.example:443")).starts_with("HTTP/1.1 502 "),
        "allowed, and no resolver"
    );

    drop(control);
    assert_eq!(process.join().unwrap(), 0);
    drop(faces);
    // Another test may be starting a program: between its fork and its exec it holds a copy of every descriptor.
    let gone = (0..100).any(|_| {
        let pause = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        rustix::event::poll(&mut [], Some(&pause)).unwrap();
        TcpStream::connect(proxy).is_err()
    });
    assert!(gone, "nothing listens any more");
}

#[test]
fn a_frame_out_of_turn_or_of_another_version_ends_egress() {
    let configure = ToEgress::Configure {
        version: WIRE_VERSION + 1,
        run: run(),
        attended: false,
        cpu: EGRESS_CPU,
        canary: Vec::new(),
    };
    for frame in [ToEgress::Extend, configure] {
        let (control, theirs) = socket::pair().unwrap();
        let process = std::thread::spawn(move || serve(theirs, Vec::new()));
        send(&control, &frame, &[]);
        assert_eq!(process.join().unwrap(), 1);
    }
}

#[test]
fn standalone_serves_reloads_and_leaves_a_sealed_log_of_every_decision() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(echo(b"hello"));
    let port = server.address.port();
    let rules = format!(
        r#"{{"allow": [{{"rule": "a.example:{port}", "opaque": true}}], "addresses": ["127.0.0.1/32"]}}"#
    );
    let hosts = [("a.example", "127.0.0.1")];
    // A free port, given back for the moment it takes to bind it again.
    let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (control, commands) = commands();
    let config = Standalone {
        authority: None,
        run: run(),
        state: state.path().to_owned(),
        policy: table(&rules, &hosts),
        secrets: Vec::new(),
        http: vec![http],
        socks: Vec::new(),
        verbosity: Verbosity::Denials,
    };
    let process = std::thread::spawn(move || standalone(config, commands, || Ok(())));
    let started = std::time::Instant::now();
    while TcpStream::connect(http).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60) && !process.is_finished());
        std::thread::yield_now();
    }
    assert!(say(http, &connect("b.example:443")).starts_with("HTTP/1.1 403 "));
    let mut tunnel = runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(http).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &connect(&format!("a.example:{port}")))
            .await
            .unwrap();
        let mut answer = [0; 44];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut answer)
            .await
            .unwrap();
        assert!(answer.ends_with(b"hello"), "{}", String::from_utf8_lossy(&answer));
        stream
    });
    assert!(control.reload(table("{}", &[]), Digest::try_from("0".repeat(64)).unwrap()));
    assert_eq!(runtime.block_on(read_all(&mut tunnel)), "", "the reload cuts it");
    assert!(control.stop());
    process.join().unwrap().unwrap();
    settle(state.path(), &run()).unwrap();
    let report = bastle_audit::verify(state.path(), &run()).unwrap();
    let log = std::fs::read_to_string(state.path().join("audit/calm-otter/log.jsonl")).unwrap();
    assert_eq!(format!("{:?}", report.verdict), "Sealed", "{report:?}");
    for (text, times) in [("\"b.example\"", 1), ("net-closed", 1), ("net-changed", 1)] {
        assert!(
            log.lines().filter(|line| line.contains(text)).count() >= times,
            "{text}: {log}"
        );
    }
}
