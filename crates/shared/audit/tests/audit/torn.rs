//! A crash at any moment leaves a log that can be continued and never one that looks complete.
use crate::common::*;
use bastle_audit::{
    AuditError, AuditEvent, AuditWriter, Defect, Mark, Payload, Recovery, Unsealed, Verdict, show,
};
use std::fs;

#[test]
fn a_last_record_cut_at_every_byte_is_set_aside_and_the_chain_goes_on() {
    let state = state();
    let name = run("a");
    let mut writer = AuditWriter::create(state.path(), &name).unwrap();
    writer.append(&denied("/one")).unwrap();
    writer.append(&AuditEvent::Paused).unwrap();
    drop(writer);
    let path = log_path(state.path(), &name);
    let all = lines(&path);
    let (last, before) = all.split_last().unwrap();
    let before = before.concat();
    for length in 0..last.len() {
        fs::write(&path, [&before[..], &last[..length]].concat()).unwrap();
        let cause = match length {
            0 => Unsealed::NoSeal,
            _ => Unsealed::Torn {
                bytes: u64::try_from(length).unwrap(),
            },
        };
        // Verifying is dear in a debug build: at some lengths only, resuming at all of them.
        let verifies = length % 50 == 0 || length + 2 > last.len();
        if verifies {
            assert_eq!(
                report(state.path(), &name).verdict,
                Verdict::Unsealed { last: 3, cause },
                "{length}"
            );
        }
        let (writer, recovery) = AuditWriter::resume(state.path(), &name).unwrap();
        let torn_file = (length > 0).then(|| "log.jsonl.torn-1".to_owned());
        let torn_bytes = u64::try_from(length).unwrap();
        assert_eq!(
            recovery,
            Recovery {
                records: 3,
                torn_bytes,
                torn_file: torn_file.clone()
            }
        );
        if let Some(file) = torn_file {
            let aside = path.with_file_name(file);
            assert_eq!(fs::read(&aside).unwrap(), &last[..length]);
            fs::remove_file(aside).unwrap();
        }
        drop(writer);
        let now = fs::read(&path).unwrap();
        assert!(now.starts_with(&before), "earlier records stay as they are");
        let records: Vec<_> = show(state.path(), &name).unwrap().map(Result::unwrap).collect();
        match records[3].payload().unwrap() {
            Payload::Mark(Mark::Recovered {
                torn_bytes: bytes, ..
            }) => assert_eq!(bytes, torn_bytes),
            other => panic!("{other:?}"),
        }
        let cause = Unsealed::NoSeal;
        if verifies {
            assert_eq!(
                report(state.path(), &name).verdict,
                Verdict::Unsealed { last: 5, cause }
            );
        }
    }
    // One last time, to the end.
    fs::write(&path, [&before[..], &last[..last.len() / 2]].concat()).unwrap();
    let (mut writer, _) = AuditWriter::resume(state.path(), &name).unwrap();
    writer.append(&denied("/three")).unwrap();
    writer.seal().unwrap();
    assert!(is_sealed(state.path(), &name));
}

#[test]
fn a_log_cut_at_every_byte_of_its_beginning_is_begun_again() {
    let state = state();
    let name = run("a");
    drop(AuditWriter::create(state.path(), &name).unwrap());
    let path = log_path(state.path(), &name);
    let opening = lines(&path)[0].clone();
    for length in [0, 1, opening.len() / 2, opening.len() - 1, opening.len()] {
        fs::write(&path, &opening[..length]).unwrap();
        let (writer, recovery) = AuditWriter::resume(state.path(), &name).unwrap();
        drop(writer);
        assert_eq!(recovery.records, u64::from(length == opening.len()));
        assert!(matches!(
            report(state.path(), &name).verdict,
            Verdict::Unsealed {
                cause: Unsealed::NoSeal,
                ..
            }
        ));
    }
    let (writer, _) = AuditWriter::resume(state.path(), &name).unwrap();
    writer.seal().unwrap();
    assert!(is_sealed(state.path(), &name));
}

#[test]
fn an_unreadable_last_line_is_set_aside_but_an_unreadable_line_before_it_is_evidence() {
    let state = state();
    let name = run("a");
    let mut writer = AuditWriter::create(state.path(), &name).unwrap();
    writer.append(&denied("/one")).unwrap();
    drop(writer);
    let path = log_path(state.path(), &name);
    let good = fs::read(&path).unwrap();
    for junk in [
        &b"\0\0\0\0\n"[..],
        b"{}\n",
        b"\n",
        b"\xff\xfe\n",
        &[b'\0'; 3_000_000],
    ] {
        fs::write(&path, [&good[..], junk].concat()).unwrap();
        let (_, recovery) = AuditWriter::resume(state.path(), &name).unwrap();
        assert_eq!(
            (recovery.records, recovery.torn_bytes),
            (3, u64::try_from(junk.len()).unwrap())
        );
        let mut broken = lines(&path);
        broken[1] = junk.to_vec();
        broken[1].push(b'\n');
        let broken = broken.concat();
        fs::write(&path, &broken).unwrap();
        assert!(
            matches!(AuditWriter::resume(state.path(), &name), Err(AuditError::Tampered(f)) if f.line == 2)
        );
        assert_eq!(fs::read(&path).unwrap(), broken, "evidence is not touched");
        fs::write(&path, &good).unwrap();
    }
}

#[test]
fn a_changed_last_record_is_evidence_and_not_a_torn_one() {
    let state = state();
    let name = run("a");
    let mut writer = AuditWriter::create(state.path(), &name).unwrap();
    writer.append(&denied("/one")).unwrap();
    drop(writer);
    let path = log_path(state.path(), &name);
    let changed = fs::read_to_string(&path).unwrap().replace("/one", "/two");
    fs::write(&path, changed).unwrap();
    match AuditWriter::resume(state.path(), &name) {
        Err(AuditError::Tampered(finding)) => {
            assert_eq!((finding.line, finding.defect), (3, Defect::Changed))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sealed_log_is_never_continued_even_when_its_seal_was_cut_off() {
    let state = state();
    let name = run("a");
    sealed(state.path(), &name, 3);
    assert!(matches!(
        AuditWriter::resume(state.path(), &name),
        Err(AuditError::Sealed { .. })
    ));
    let path = log_path(state.path(), &name);
    let mut cut = lines(&path);
    cut.pop();
    fs::write(&path, cut.concat()).unwrap();
    match AuditWriter::resume(state.path(), &name) {
        Err(AuditError::Tampered(finding)) => {
            assert_eq!(finding.defect, Defect::CutOff { count: 6, found: 5 })
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_seal_the_index_was_not_told_of_is_told_by_resuming() {
    let state = state();
    let name = run("a");
    sealed(state.path(), &name, 3);
    let index = index_path(state.path());
    fs::write(&index, lines(&index)[0].clone()).unwrap();
    let verdict = report(state.path(), &name).verdict;
    assert_eq!(
        verdict,
        Verdict::Unsealed {
            last: 6,
            cause: Unsealed::SealNotIndexed
        }
    );
    assert!(matches!(
        AuditWriter::resume(state.path(), &name),
        Err(AuditError::Sealed { .. })
    ));
    assert!(is_sealed(state.path(), &name));
}

#[test]
fn a_log_that_is_being_written_is_live_and_has_no_second_writer() {
    let state = state();
    let name = run("a");
    let mut writer = AuditWriter::create(state.path(), &name).unwrap();
    writer.sync().unwrap();
    assert_eq!(
        report(state.path(), &name).verdict,
        Verdict::Unsealed {
            last: 2,
            cause: Unsealed::Live
        }
    );
    assert!(matches!(
        AuditWriter::resume(state.path(), &name),
        Err(AuditError::Busy { .. })
    ));
    assert!(matches!(
        bastle_audit::remove(state.path(), &name),
        Err(AuditError::Busy { .. })
    ));
    assert!(matches!(
        AuditWriter::create(state.path(), &name),
        Err(AuditError::Exists { .. })
    ));
    writer.seal().unwrap();
    assert!(is_sealed(state.path(), &name));
}
