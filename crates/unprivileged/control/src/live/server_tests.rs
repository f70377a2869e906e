//! Tests of the run's end of its socket: hostile, slow and many peers, and other sockets beside it.
use super::super::words::Command;
use super::*;
use bastle_contract::stream::{StreamReader, frames};
use std::io::{Read, Write};

fn live() -> (tempfile::TempDir, Live) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calm-otter.sock");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let live = Live {
        path,
        listener,
        peers: Vec::new(),
        next: 0,
        early: Vec::new(),
    };
    (dir, live)
}

#[test]
fn no_socket_is_taken_for_a_dead_ones_while_others_are_made_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let work = |number: u32| {
        let mut held = std::collections::VecDeque::new();
        let looks_lost = |live: &Live| UnixStream::connect(&live.path).is_err();
        for turn in 0..300 {
            let run = RunId::try_from(format!("run-{number}-{turn}")).unwrap();
            held.push_back(Live::open(dir.path(), &run).unwrap());
            // Whoever sweeps may have looked long before it acts.
            if held.len() > 8 {
                let oldest = held.pop_front().unwrap();
                assert!(!looks_lost(&oldest), "{}", oldest.path.display());
            }
        }
        assert!(!held.iter().any(looks_lost));
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || work(number));
        }
    });
    let left: Vec<_> = std::fs::read_dir(dir.path()).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    // What somebody left who was killed before it had a name goes; what another is about to name stays.
    let (dead, alive) = (dir.path().join(".a-4294967295"), dir.path().join(".b-1"));
    std::fs::create_dir_all(dir.path()).unwrap();
    drop((
        UnixListener::bind(&dead).unwrap(),
        UnixListener::bind(&alive).unwrap(),
    ));
    let one = Live::open(dir.path(), &RunId::try_from("one".to_owned()).unwrap()).unwrap();
    assert!(!dead.exists() && alive.exists());
    let again = Live::open(dir.path(), &RunId::try_from("one".to_owned()).unwrap());
    assert!(
        again.is_err() && UnixStream::connect(&one.path).is_ok(),
        "a name is given once"
    );
}

#[test]
fn a_run_that_starts_beside_many_wakes_few_of_them_and_what_is_in_its_way_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let living: Vec<UnixListener> = (0..60)
        .map(|number| {
            let listener = UnixListener::bind(dir.path().join(format!("run-{number}.sock"))).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        })
        .collect();
    let own = RunId::try_from("one".to_owned()).unwrap();
    for turn in 1..=20 {
        drop(UnixListener::bind(dir.path().join("one.sock")).unwrap());
        let live = Live::open(dir.path(), &own).unwrap();
        let woken = living.iter().filter(|listener| listener.accept().is_ok()).count();
        assert!(
            (1..=MOST_WOKEN).contains(&woken),
            "{woken} were woken in turn {turn}"
        );
        drop(live);
    }
    // Dead ones that are met on the way go, however many they are, and sooner or later all are met.
    for number in 0..60 {
        drop(UnixListener::bind(dir.path().join(format!("dead-{number}.sock"))).unwrap());
    }
    let dead = || {
        (0..60)
            .filter(|number| dir.path().join(format!("dead-{number}.sock")).exists())
            .count()
    };
    let mut turns = 0;
    while turns < 1000 && dead() > 0 {
        drop(Live::open(dir.path(), &own).unwrap());
        turns += 1;
    }
    assert_eq!(dead(), 0, "after {turns} turns");
    drop(living);
    drop(Live::open(dir.path(), &own).unwrap());
    assert!(!dir.path().exists(), "nobody lived any more");
}

/// Waits until something can be done, and hears.
fn turn(live: &mut Live) -> Vec<(u64, Heard)> {
    let mut waiting: Vec<_> = live
        .waiting()
        .map(|(fd, flags)| rustix::event::PollFd::from_borrowed_fd(fd, flags))
        .collect();
    let moment = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    rustix::event::poll(&mut waiting, Some(&moment)).unwrap();
    drop(waiting);
    live.hear()
}

fn commands(told: Vec<(u64, Heard)>) -> Vec<(u64, Command)> {
    let command = |(number, heard)| match heard {
        Heard::Command(command) => Some((number, command)),
        Heard::Frame(_) | Heard::Gone => None,
    };
    told.into_iter().filter_map(command).collect()
}

#[test]
fn a_peer_that_sends_half_a_line_nonsense_or_too_much_gives_no_command_and_holds_nobody_up() {
    let (_dir, mut live) = live();
    let connect = || UnixStream::connect(&live.path).unwrap();
    let (mut half, mut nonsense, mut flood, mut good) = (connect(), connect(), connect(), connect());
    half.write_all(b"{\"op\":").unwrap();
    nonsense.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    good.write_all(b"{\"op\":\"status\"}\n").unwrap();
    let writer = std::thread::spawn(move || drop(flood.write_all(&[b'x'; 200_000])));
    let mut heard = Vec::new();
    // Until the flood was turned away: only then its writer ends.
    while !writer.is_finished() || heard.is_empty() {
        heard.extend(commands(turn(&mut live)));
    }
    writer.join().unwrap();
    let [(number, Command::Status {})] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    live.answer(*number, &Ok(Value::from(1)));
    let mut text = String::new();
    good.read_to_string(&mut text).unwrap();
    assert_eq!(text, "{\"ok\":true,\"result\":1}\n");
    let mut text = String::new();
    nonsense.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"ok\":false"), "{text}");
    assert_eq!(live.peers.len(), 1, "only the half line is still waited for");
}

#[test]
fn more_peers_than_are_served_at_once_are_turned_away_and_told_so() {
    let (_dir, mut live) = live();
    let mut peers: Vec<_> = (0..MOST_PEERS + 12)
        .map(|_| UnixStream::connect(&live.path).unwrap())
        .collect();
    assert!(live.hear().is_empty());
    assert_eq!(live.peers.len(), MOST_PEERS);
    let mut text = String::new();
    peers[MOST_PEERS].read_to_string(&mut text).unwrap();
    assert!(text.contains("BST-EXEC-005"), "{text}");
}

#[test]
fn those_who_only_look_whether_the_run_lives_take_nobodys_place() {
    let (_dir, mut live) = live();
    for _ in 0..3 * MOST_PEERS {
        drop(UnixStream::connect(&live.path).unwrap());
    }
    let mut peer = UnixStream::connect(&live.path).unwrap();
    peer.write_all(b"{\"op\":\"status\"}\n").unwrap();
    let heard = commands(live.hear());
    assert_eq!((heard.len(), live.peers.len()), (1, 1), "{heard:?}");
}

/// A peer whose command became a stream.
fn streaming(live: &mut Live, line: &[u8]) -> (u64, UnixStream) {
    let mut peer = UnixStream::connect(&live.path).unwrap();
    peer.write_all(line).unwrap();
    let mut heard = Vec::new();
    while heard.is_empty() {
        heard.extend(commands(turn(live)));
    }
    let (number, _) = heard.remove(0);
    assert!(live.begin(number, &Value::Null));
    (number, peer)
}

#[test]
fn a_peer_that_does_not_read_is_held_to_a_bound_and_gets_every_byte_when_it_reads_again() {
    let (_dir, mut live) = live();
    let (number, mut peer) = streaming(&mut live, b"{\"op\":\"watch\",\"since\":0}\n");
    let mut sent = 0_usize;
    while live.send(number, StreamKind::Output, &[7; 4096]) {
        sent += 4096;
        assert!(sent < 64 << 20, "nothing bounds what is queued");
    }
    assert!(live.room(number) < 4096);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).map(|_| bytes)
    });
    while !live.send(number, StreamKind::Ended, b"{}") {
        turn(&mut live);
    }
    while !live.peers.is_empty() {
        turn(&mut live);
    }
    let bytes = reader.join().unwrap().unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut frames = StreamReader::default();
    frames.push(&bytes[line..]);
    let (mut got, mut ended) = (0, false);
    while let Some(frame) = frames.next_frame().unwrap() {
        got += if frame.kind == StreamKind::Output {
            frame.payload.len()
        } else {
            0
        };
        ended = frame.kind == StreamKind::Ended;
    }
    assert_eq!((got, ended), (sent, true));
}

#[test]
fn frames_sent_with_the_command_are_not_lost_and_bytes_that_are_none_end_the_peer() {
    let (_dir, mut live) = live();
    let mut line = b"{\"op\":\"watch\",\"since\":0}\n".to_vec();
    line.extend(frames(StreamKind::Input, b"first"));
    let (number, mut peer) = streaming(&mut live, &line);
    let mut heard = Vec::new();
    while heard.is_empty() {
        heard.extend(turn(&mut live));
    }
    let [(from, Heard::Frame(frame))] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!((*from, frame.payload.as_slice()), (number, &b"first"[..]));
    // Held back, it is not read; again listened to, it is.
    live.hold(number, Held::Back);
    peer.write_all(&frames(StreamKind::Input, b"second")).unwrap();
    assert!(turn(&mut live).is_empty());
    live.hold(number, Held::No);
    assert_eq!(turn(&mut live).len(), 1);
    peer.write_all(&[99, 0, 0, 0, 0]).unwrap();
    let told = turn(&mut live);
    assert!(matches!(told.as_slice(), [(_, Heard::Gone)]), "{told:?}");
    assert!(live.peers.is_empty());
}
