//! What a flood of one thing leaves of another.
use super::*;
use bastle_contract::DenialKind;

fn record() -> (tempfile::TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let run = RunId::try_from("flood".to_owned()).unwrap();
    let record = Record::open(dir.path(), &run).unwrap();
    (dir, record)
}

fn denied(kind: DenialKind, operation: &str, target: &str, rule: &str) -> Denied {
    Denied {
        kind,
        operation: operation.to_owned(),
        target: target.to_owned(),
        rule: rule.to_owned(),
        errno: "EACCES".to_owned(),
        pid: 2,
        comm: "sh".to_owned(),
    }
}

fn program(path: String) -> ExecSeen {
    ExecSeen {
        pid: 2,
        path,
        argv: Vec::new(),
    }
}

/// Programs and denials beyond what is kept one by one, with as many names as a table has room for.
fn flood(record: &mut Record) {
    for n in 0..=MOST_PROGRAMS {
        record.exec(program(format!("/bin/true{}", n % 2))).unwrap();
    }
    for n in 0..600 {
        record.exec(program(format!("/ws/p{n}"))).unwrap();
    }
    for n in 0..MOST_DENIALS + 1000 {
        let refused = denied(DenialKind::Hidden, "openat", &format!("/ws/.env.{n}"), "**/.env*");
        record.denied(&refused).unwrap();
    }
}

#[test]
fn names_of_programs_take_no_room_of_the_kinds_of_denials() {
    let (_dir, mut record) = record();
    flood(&mut record);
    let others = [
        denied(DenialKind::Write, "mkdirat", "/usr/evildir", "read-only mount"),
        denied(DenialKind::Hidden, "symlinkat", "/ws/.env.evillink", "**/.env*"),
        denied(DenialKind::Hidden, "openat", "/ws/id_rsa", "**/id_rsa"),
        denied(DenialKind::Hidden, "openat", "/ws/.env.production", "**/.env*"),
    ];
    for other in &others {
        assert!(record.denied(other).unwrap().is_some(), "{}", other.target);
    }
    let again = denied(DenialKind::Hidden, "openat", "/ws/.env.7777777", "**/.env*");
    assert_eq!(
        record.denied(&again).unwrap(),
        None,
        "control: more of the flood is not kept"
    );
    record.seal().unwrap();
}

#[test]
fn copies_of_a_program_under_any_number_of_names_do_not_hide_one_of_the_system() {
    let (dir, mut record) = record();
    flood(&mut record);
    let name = |n: u32| format!("/ws/{}", char::from_u32(0x4e00 + n).unwrap());
    for n in 0..2_000 {
        record.exec(program(name(n))).unwrap();
        record.exec(program(format!("/usr/bin/{n}-{}", name(n)))).unwrap();
    }
    record.exec(program("/usr/bin/env".to_owned())).unwrap();
    record.seal().unwrap();
    let mut left = vec![dir.path().to_owned()];
    let mut found = false;
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
                found |= text.contains("\"path\":\"/usr/bin/env\"");
            }
        }
    }
    assert!(found, "the one start of a program of the system is in the log");
}
