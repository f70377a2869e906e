//! The daemon's own fence, and the log of what it did.
use crate::admission::ordinary;
use crate::client::{connect_as, refusal, wish};
use crate::daemon::{Daemon, Place};
use bastle_contract::{Code, RunId};

/// The process that hears callers.
pub(crate) fn front_of(daemon: &Daemon<'_>) -> u32 {
    let pid = daemon.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children
        .split_whitespace()
        .find(|child| {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            name.trim() == "bastle-front"
        })
        .expect("the daemon has a front")
        .parse()
        .unwrap()
}

fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or_default();
    line.trim().to_owned()
}

#[test]
fn who_hears_callers_has_no_rights_and_who_has_rights_has_only_those_it_needs() {
    let Some(lab) = ordinary("who_hears_callers_has_no_rights") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(0);
    let front = front_of(&daemon);
    for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(status(front, capabilities), "0000000000000000", "{capabilities}");
    }
    assert_eq!(
        (status(front, "Seccomp:"), status(front, "NoNewPrivs:")),
        ("2".into(), "1".into())
    );
    let uid: u32 = status(front, "Uid:")
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(uid >= 0x6d00_0000, "{uid}");
    assert_eq!(status(front, "Groups:"), "");
    assert_eq!(status(front, "Threads:"), "1");
    let bound = u64::from_str_radix(&status(daemon.pid(), "CapBnd:"), 16).unwrap();
    let (admin, module, raw) = (1 << 21, 1 << 16, 1 << 17);
    assert_eq!(bound & (module | raw), 0, "no modules, no raw devices: {bound:x}");
    assert_eq!(bound & admin, admin, "control: namespaces need it");
    assert_eq!(status(daemon.pid(), "NoNewPrivs:"), "1");
    let environment = std::fs::read(format!("/proc/{}/environ", daemon.pid())).unwrap();
    assert!(
        environment.iter().all(|byte| *byte == 0),
        "its environment is forgotten"
    );
}

#[test]
fn every_verdict_is_in_a_log_that_verifies() {
    let Some(lab) = ordinary("every_verdict_is_in_a_log") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let daemon = place.start(0);
    assert_eq!(refusal(&place.socket(), 60_099), Some(Code::SpawnCaller));
    let connection = connect_as(&place.socket(), lab.identity.uid()).unwrap();
    wish(&connection).unwrap();
    drop(connection);
    assert!(daemon.has(0));
    assert_eq!(daemon.stop(), Some(0), "{}", place.said());
    let logs: Vec<_> = std::fs::read_dir(place.state().join("audit"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("spawner-"))
        .collect();
    let [log] = logs.as_slice() else {
        panic!("{logs:?}");
    };
    let run = RunId::try_from(log.clone()).unwrap();
    let report = bastle_audit::verify(&place.state(), &run).unwrap();
    assert!(
        matches!(report.verdict, bastle_audit::Verdict::Sealed),
        "{report:?}"
    );
    let text = std::fs::read_to_string(place.state().join("audit").join(log).join("log.jsonl")).unwrap();
    let uid = lab.identity.uid();
    for record in [
        r#"\"verdict\":\"started\""#.to_owned(),
        r#"\"code\":\"BST-SPAWN-001\""#.to_owned(),
        r#"\"uid\":60099"#.to_owned(),
        r#"\"verdict\":\"accepted\""#.to_owned(),
        format!(r#"\"uid\":{uid}"#),
        r#"\"verdict\":\"ended\""#.to_owned(),
        r#"\"verdict\":\"stopped\""#.to_owned(),
    ] {
        assert!(text.contains(&record), "{record}: {text}");
    }
}
