//! First words that are nonsense, torn, too large or of another version.
use crate::admission::ordinary;
use crate::client::{blurted, connect_as, said};
use crate::daemon::{Place, usual};
use bastle_contract::spawner::{FromDaemon, ToDaemon};
use bastle_contract::{Code, FromSpawner, MAX_FRAME, WIRE_VERSION, socket};
use std::os::fd::AsFd;

#[test]
fn nonsense_is_refused_in_words_and_the_daemon_goes_on() {
    let Some(lab) = ordinary("nonsense_is_refused_in_words") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let mut daemon = place.start(0);
    let (socket, uid) = (place.socket(), lab.identity.uid());
    let answer = |bytes: &[u8]| {
        let connection = connect_as(&socket, uid).unwrap();
        match blurted(&connection, bytes) {
            Ok(FromSpawner::Refused(fault)) => fault.code,
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
        }
    };
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for bad in [
        &b"{"[..],
        b"\0",
        b"hello",
        b"{\"type\":\"hello\"}",
        b"{\"type\":\"hello\",\"version\":1,\"uid\":0}",
        b"{\"type\":\"hello\",\"version\":1,\"version\":1}",
        b"{\"type\":\"hello\",\"version\":\"1\"}",
        b"{\"type\":\"hello\",\"version\":NaN}",
        b"{\"type\":\"launch\",\"version\":1}",
        b"{\"type\":\"kill\"}",
        b"{\"type\":\"list\",\"version\":1}{}",
        b"\xef\xbb\xbf{\"type\":\"list\",\"version\":1}",
        b"{\"type\":\"\\ud800\",\"version\":1}",
        deep.as_bytes(),
        &vec![b' '; MAX_FRAME + 1],
    ] {
        assert_eq!(
            answer(bad),
            Code::SpawnFrame,
            "{}",
            String::from_utf8_lossy(&bad[..bad.len().min(60)])
        );
    }
    let other = format!(
        "{{\"type\":\"hello\",\"version\":{},\"new\":1}}",
        WIRE_VERSION + 1
    );
    assert_eq!(answer(other.as_bytes()), Code::SpawnVersion);
    // Cut at every length: a frame is whole or it is none.
    let whole = br#"{"type":"list","version":1}"#;
    for length in 1..whole.len() {
        assert_eq!(answer(&whole[..length]), Code::SpawnFrame, "{length} bytes");
    }
    assert!(daemon.is_alive());
    let connection = connect_as(&socket, uid).unwrap();
    let listed = said::<FromDaemon>(
        &connection,
        &ToDaemon::List {
            version: WIRE_VERSION,
        },
    );
    assert!(matches!(listed, Ok(FromDaemon::Listed { .. })), "{listed:?}");
    // Descriptors that come with a first word are closed.
    let before = descriptors(&daemon);
    for _ in 0..20 {
        let connection = connect_as(&socket, uid).unwrap();
        let own = connection.as_fd();
        let word = ToDaemon::List {
            version: WIRE_VERSION,
        };
        socket::send(&connection, &word, &[own, own, own, own]).unwrap();
        assert!(crate::client::hear::<FromDaemon>(&connection).is_ok());
    }
    let settled = crate::support::eventually(crate::support::Limit::HANG, || descriptors(&daemon) <= before);
    assert!(settled, "{before} before, {} after", descriptors(&daemon));
}

fn descriptors(daemon: &crate::daemon::Daemon<'_>) -> usize {
    let front = crate::own_fence::front_of(daemon);
    std::fs::read_dir(format!("/proc/{front}/fd")).unwrap().count()
}

#[test]
fn a_caller_can_ask_what_it_may_have() {
    let Some(lab) = ordinary("a_caller_can_ask_what_it_may_have") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let _daemon = place.start(0);
    let connection = connect_as(&place.socket(), lab.identity.uid()).unwrap();
    let probe = ToDaemon::Probe {
        version: WIRE_VERSION,
    };
    let Ok(FromDaemon::Probed(probed)) = said::<FromDaemon>(&connection, &probe) else {
        panic!("no answer");
    };
    assert_eq!((probed.own, probed.own_max, probed.max_workers), (0, 4, 20));
    assert_eq!(probed.facts.uid, 0);
    let roots = probed.roots.unwrap();
    assert!(
        roots.iter().any(|root| root.as_path() == lab.workspace()),
        "{roots:?}"
    );
}
