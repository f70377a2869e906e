//! Many callers: who is not named, asks too often, says nothing, or wants more than there is room for.
use crate::admission::ordinary;
use crate::client::{connect_as, hear, refusal, wish};
use crate::daemon::{Daemon, OTHER, Place, list_as, usual};
use crate::support::{Limit, eventually};
use bastle_contract::{Code, FromSpawner};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A user that no ceiling here names.
const STRANGER: u32 = 60_099;

fn held(socket: &Path, uid: u32) -> Option<OwnedFd> {
    let connection = connect_as(socket, uid).expect("can be connected to");
    wish(&connection).is_ok().then_some(connection)
}

#[test]
fn a_user_that_the_ceiling_does_not_name_is_refused_and_one_it_names_is_served() {
    let Some(lab) = ordinary("a_user_that_the_ceiling_does_not_name") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(1);
    let socket = place.socket();
    for _ in 0..3 {
        assert_eq!(refusal(&socket, STRANGER), Some(Code::SpawnCaller));
    }
    assert_eq!(daemon.list(), []);
    let connection = held(&socket, lab.identity.uid()).expect("served");
    assert!(daemon.has(1));
    assert_eq!(daemon.list()[0].uid, lab.identity.uid());
    assert_eq!(list_as(&socket, OTHER), [], "another's runs are not shown");
    // Closing the connection ends what it was for.
    drop(connection);
    assert!(daemon.has(0));
}

#[test]
fn one_callers_flood_is_refused_and_does_not_starve_another() {
    let Some(lab) = ordinary("one_callers_flood_is_refused") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1, "burst": 5}"#));
    let daemon = place.start(0);
    let socket = place.socket();
    let uid = lab.identity.uid();
    let mut refused = 0;
    for round in 0..200 {
        if refusal(&socket, uid) == Some(Code::SpawnRate) {
            refused += 1;
        }
        if round % 50 == 49 {
            assert_eq!(
                refusal(&socket, OTHER),
                None,
                "the other caller is served meanwhile"
            );
        }
    }
    // Five at once and one a second: however slow the machine is, most of two hundred are too many.
    assert!(refused >= 100, "{refused} of 200 refused");
    assert!(daemon.has(0));
}

#[test]
fn more_runs_than_there_is_room_for_are_refused_until_one_ends() {
    let Some(lab) = ordinary("more_runs_than_there_is_room_for") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(2);
    let (socket, uid) = (place.socket(), lab.identity.uid());
    let mut running: Vec<OwnedFd> = (0..4).map(|_| held(&socket, uid).expect("room")).collect();
    assert_eq!(refusal(&socket, uid), Some(Code::SpawnWorkers));
    assert_eq!(
        refusal(&socket, OTHER),
        None,
        "another caller has room of its own"
    );
    assert!(daemon.has(4));
    running.pop();
    assert!(daemon.has(3));
    assert!(held(&socket, uid).is_some());
}

#[test]
fn connections_without_a_word_are_bounded_and_closed_and_others_are_served() {
    let Some(lab) = ordinary("connections_without_a_word") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let daemon: Daemon<'_> = place.start(0);
    let (socket, uid) = (place.socket(), lab.identity.uid());
    let silent: Vec<OwnedFd> = (0..100).map(|_| connect_as(&socket, uid).unwrap()).collect();
    assert_eq!(refusal(&socket, OTHER), None, "others are served");
    let descriptors = format!("/proc/{}/fd", crate::own_fence::front_of(&daemon));
    let open = || std::fs::read_dir(&descriptors).unwrap().count();
    // Those that are refused go when their refusal is on record; long before any is closed for its silence.
    let few = eventually(Limit(std::time::Duration::from_secs(5)), || open() < 60);
    assert!(few, "{} descriptors", open());
    // Every one is told and closed, the last of them when it has said nothing for too long.
    for connection in &silent {
        match hear::<FromSpawner>(connection).expect("an answer") {
            FromSpawner::Refused(fault) => {
                assert!(
                    matches!(fault.code, Code::SpawnRate | Code::SpawnFrame),
                    "{fault}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(hear::<FromSpawner>(connection).is_err(), "it is closed");
    }
    assert_eq!(refusal(&socket, uid), None, "and then it is served again");
}
