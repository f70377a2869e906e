//! Whatever is done to a sealed log without the key, it never verifies as sealed again.
use crate::common::*;
use bastle_audit::{AuditWriter, Defect, Finding, LogFile, Verdict, verify};
use proptest::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn finding(state: &Path, name: &str) -> Finding {
    match report(state, &run(name)).verdict {
        Verdict::Tampered(finding) => finding,
        other => panic!("not found: {other:?}"),
    }
}

#[test]
fn an_untouched_log_verifies_as_sealed_with_every_record_counted() {
    let state = state();
    let seal = sealed(state.path(), &run("a"), 200);
    let found = report(state.path(), &run("a"));
    assert_eq!(found.verdict, Verdict::Sealed);
    // Opening, its checkpoint, 200 denials, a checkpoint per 64 of them, the seal.
    assert_eq!((found.records, seal.records), (2 + 200 + 3 + 1, found.records));
    assert_eq!((found.head, found.key), (seal.head, seal.key));
    assert_eq!(found.signed, found.records - 1);
}

#[test]
fn a_log_with_one_of_every_event_verifies_and_gives_the_events_back() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    let events = every_event();
    for event in &events {
        writer.append(event).unwrap();
    }
    let ids = writer.records();
    writer.seal().unwrap();
    assert!(is_sealed(state.path(), &run("a")));
    let records: Vec<_> = bastle_audit::show(state.path(), &run("a"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(u64::try_from(records.len()).unwrap(), ids + 1);
    let back: Vec<_> = records
        .iter()
        .filter_map(|r| match r.payload().unwrap() {
            bastle_audit::Payload::Event(event) => Some(event),
            bastle_audit::Payload::Mark(_) => None,
        })
        .collect();
    assert_eq!(back.len(), events.len());
    // Numbers beyond what every JSON reader holds are bounded; everything else comes back as it went in.
    let plain = |e: &&bastle_audit::AuditEvent| !format!("{e:?}").contains(&u64::MAX.to_string());
    let safe = format!("{}", (1_u64 << 53) - 1);
    let back_plain: Vec<_> = back
        .iter()
        .filter(|e| !format!("{e:?}").contains(&safe))
        .collect();
    assert_eq!(back_plain, events.iter().filter(plain).collect::<Vec<_>>());
}

#[test]
fn the_first_bad_record_is_named_with_line_offset_and_reason() {
    let state = state();
    sealed(state.path(), &run("a"), 10);
    let path = log_path(state.path(), &run("a"));
    let original = lines(&path);
    let mut changed = original.clone();
    let text = String::from_utf8(changed[6].clone())
        .unwrap()
        .replace("/etc/4", "/tmp/4");
    changed[6] = text.into_bytes();
    fs::write(&path, changed.concat()).unwrap();
    let offset = u64::try_from(original[..6].concat().len()).unwrap();
    assert_eq!(
        finding(state.path(), "a"),
        Finding {
            run: Some(run("a")),
            file: LogFile::Log,
            line: 7,
            offset,
            sequence: Some(7),
            defect: Defect::Changed
        }
    );
    assert_eq!(
        finding(state.path(), "a").to_string(),
        format!(
            "audit log of run a, log.jsonl line 7 (byte {offset}, record 7): the record was changed: its fingerprint does not fit its content"
        )
    );
    assert_eq!(report(state.path(), &run("a")).records, 6);
}

#[test]
fn removing_moving_doubling_and_inserting_a_line_are_each_found_where_they_happen() {
    let state = state();
    sealed(state.path(), &run("a"), 10);
    sealed(state.path(), &run("b"), 10);
    let path = log_path(state.path(), &run("a"));
    let original = lines(&path);
    let foreign = lines(&log_path(state.path(), &run("b")))[4].clone();
    let case = |edit: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut changed = original.clone();
        edit(&mut changed);
        fs::write(&path, changed.concat()).unwrap();
        let found = finding(state.path(), "a");
        (found.line, found.defect)
    };
    assert_eq!(case(&|l| drop(l.remove(4))), (5, Defect::Order { expected: 5 }));
    assert_eq!(case(&|l| l.swap(4, 6)), (5, Defect::Order { expected: 5 }));
    assert_eq!(
        case(&|l| l.insert(5, l[4].clone())),
        (6, Defect::Order { expected: 6 })
    );
    assert_eq!(
        case(&|l| l[4] = foreign.clone()),
        (5, Defect::ForeignChain("b".into()))
    );
    assert_eq!(case(&|l| drop(l.remove(0))), (1, Defect::Order { expected: 1 }));
    assert_eq!(case(&|l| l.insert(3, b"\n".to_vec())).0, 4);
    assert_eq!(case(&|l| l[3].insert(0, b' ')), (4, Defect::NotCanonical));
    assert_eq!(
        case(&|l| l.push(l[3].clone())),
        (u64::try_from(original.len()).unwrap() + 1, Defect::AfterSeal)
    );
    assert_eq!(case(&|l| l.push(b"x".to_vec())).1, Defect::AfterSeal);
    assert_eq!(case(&|l| l.truncate(5)).1, Defect::CutOff { count: 13, found: 5 });
    assert_eq!(case(&|l| l.truncate(2)).1, Defect::CutOff { count: 13, found: 2 });
    assert_eq!(case(&|l| l.clear()).1, Defect::CutOff { count: 13, found: 0 });
    let long = vec![b'x'; bastle_audit::MAX_LINE];
    assert_eq!(
        case(&|l| l.insert(2, [&long[..], b"\n"].concat())),
        (3, Defect::TooLong)
    );
    fs::write(&path, original.concat()).unwrap();
    assert!(is_sealed(state.path(), &run("a")));
}

/// What somebody can do who may write the files and knows the format, but does not hold the key: every hash is
/// made to fit again, in the links and in what checkpoints and the seal say.
fn forge(lines: &mut [Vec<u8>], from: usize, edit: impl Fn(&mut Value)) {
    let mut previous: Option<(Value, Value)> = None;
    for (index, line) in lines.iter_mut().enumerate().skip(from) {
        let mut value: Value = serde_json::from_slice(line).unwrap();
        if index == from {
            edit(&mut value);
        }
        if let Some((uid, fingerprint)) = previous {
            if !value["unmapped"]["bastle"]["head"].is_null() {
                value["unmapped"]["bastle"]["head"] = fingerprint["value"].clone();
            }
            value["attestation_list"][0]["prev_event"] =
                serde_json::json!({ "uid": uid, "fingerprint": fingerprint });
        }
        let own = rehash(&mut value);
        previous = Some((value["metadata"]["uid"].clone(), own));
        *line = serde_json_canonicalizer::to_vec(&value).unwrap();
        line.push(b'\n');
    }
}

/// Gives a record the fingerprint that fits its content.
fn rehash(value: &mut Value) -> Value {
    let attestation = value["attestation_list"][0].as_object_mut().unwrap();
    let mut own = attestation.remove("fingerprint").unwrap();
    let canonical = serde_json_canonicalizer::to_vec(&value).unwrap();
    own["value"] = blake3::hash(&canonical).to_hex().to_string().into();
    value["attestation_list"][0]["fingerprint"] = own.clone();
    own
}

#[test]
fn a_record_changed_together_with_its_own_fingerprint_no_longer_links_to_the_next() {
    let state = state();
    sealed(state.path(), &run("a"), 10);
    let path = log_path(state.path(), &run("a"));
    let mut forged = lines(&path);
    forge(&mut forged[..5], 4, |value| value["time"] = 1.into());
    fs::write(&path, forged.concat()).unwrap();
    let found = finding(state.path(), "a");
    assert_eq!((found.line, found.defect), (6, Defect::BrokenLink));
}

#[test]
fn a_forger_without_the_key_cannot_make_a_checkpoint_of_an_unsealed_log_fit() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    for number in 0..64 {
        writer.append(&denied(&format!("/{number}"))).unwrap();
    }
    drop(writer);
    let path = log_path(state.path(), &run("a"));
    let mut forged = lines(&path);
    forge(&mut forged, 10, |value| value["time"] = 1.into());
    fs::write(&path, forged.concat()).unwrap();
    let found = finding(state.path(), "a");
    assert_eq!((found.line, found.defect), (67, Defect::BadSignature));
    assert_eq!(
        report(state.path(), &run("a")).signed,
        1,
        "only what a good signature covers counts as signed"
    );
}

#[test]
fn a_forger_who_recomputes_every_hash_but_lacks_the_key_is_found() {
    let state = state();
    sealed(state.path(), &run("a"), 100);
    let path = log_path(state.path(), &run("a"));
    let original = lines(&path);
    for from in (0..original.len()).filter(|n| n % 9 == 0 || n + 3 > original.len()) {
        let mut forged = original.clone();
        forge(&mut forged, from, |value| value["time"] = 1.into());
        fs::write(&path, forged.concat()).unwrap();
        assert!(!is_sealed(state.path(), &run("a")), "record {}", from + 1);
    }
    // Without a change the forger's tool reproduces the log: the test would notice if it forged nothing valid.
    let mut same = original.clone();
    forge(&mut same, 0, |_| {});
    assert_eq!(same, original);
}

#[test]
fn a_forged_seal_on_a_shortened_log_is_found() {
    let state = state();
    sealed(state.path(), &run("a"), 10);
    let path = log_path(state.path(), &run("a"));
    let mut forged = lines(&path);
    let seal = forged.pop().unwrap();
    forged.truncate(6);
    forged.push(seal);
    forge(&mut forged, 5, |_| {});
    fs::write(&path, forged.concat()).unwrap();
    assert!(matches!(
        finding(state.path(), "a").defect,
        Defect::Order { .. } | Defect::BadSignature
    ));
    forge(&mut forged, 6, |value| {
        value["metadata"]["sequence"] = 7.into();
        value["unmapped"]["bastle"]["count"] = 7.into();
        value["unmapped"]["bastle"]["sequence"] = 6.into();
    });
    fs::write(&path, forged.concat()).unwrap();
    assert!(!is_sealed(state.path(), &run("a")));
}

#[test]
fn more_unsigned_records_than_a_writer_leaves_are_found() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    for number in 0..64 {
        writer.append(&denied(&format!("/{number}"))).unwrap();
    }
    drop(writer);
    let path = log_path(state.path(), &run("a"));
    let mut forged = lines(&path);
    // The checkpoint becomes an ordinary record.
    let last = forged.len() - 1;
    forge(&mut forged, last, |v| {
        v["unmapped"]["bastle"] = serde_json::json!({ "type": "paused" })
    });
    fs::write(&path, forged.concat()).unwrap();
    assert_eq!(finding(state.path(), "a").defect, Defect::CheckpointMissing);
}

#[test]
fn a_log_signed_with_another_key_is_not_this_directorys_log() {
    let (ours, theirs) = (state(), state());
    sealed(ours.path(), &run("a"), 3);
    sealed(theirs.path(), &run("a"), 3);
    fs::copy(
        log_path(theirs.path(), &run("a")),
        log_path(ours.path(), &run("a")),
    )
    .unwrap();
    assert!(matches!(finding(ours.path(), "a").defect, Defect::ForeignKey(_)));
    fs::copy(index_path(theirs.path()), index_path(ours.path())).unwrap();
    assert_eq!(finding(ours.path(), "a").defect, Defect::BadSignature);
}

#[test]
fn every_part_of_a_short_sealed_log_matters() {
    let state = state();
    sealed(state.path(), &run("a"), 1);
    let path = log_path(state.path(), &run("a"));
    let original = fs::read(&path).unwrap();
    // Every eleventh byte, with every bit in turn: keys, values and punctuation of each record are among them.
    for at in (0..original.len()).step_by(11) {
        let mut changed = original.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        assert!(!is_sealed(state.path(), &run("a")), "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_flip_removal_swap_or_cut_of_a_random_log_verifies_as_sealed(
        targets in prop::collection::vec(any::<String>(), 0..90),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8_u8), 12),
    ) {
        let state = state();
        let mut writer = AuditWriter::create(state.path(), &run("p")).unwrap();
        for target in &targets {
            writer.append(&denied(target)).unwrap();
        }
        writer.seal().unwrap();
        prop_assert!(is_sealed(state.path(), &run("p")));
        let path = log_path(state.path(), &run("p"));
        let original = fs::read(&path).unwrap();
        let all = lines(&path);
        for (number, (one, two, bit)) in picks.iter().enumerate() {
            let changed = match number % 4 {
                0 => {
                    let mut bytes = original.clone();
                    bytes[one.index(original.len())] ^= 1 << bit;
                    bytes
                }
                1 => original[..one.index(original.len())].to_vec(),
                2 => {
                    let mut kept = all.clone();
                    kept.remove(one.index(all.len()));
                    kept.concat()
                }
                _ => {
                    let mut moved = all.clone();
                    moved.swap(one.index(all.len()), two.index(all.len()));
                    moved.concat()
                }
            };
            if changed != original {
                fs::write(&path, &changed).unwrap();
                prop_assert!(!is_sealed(state.path(), &run("p")));
            }
        }
    }
}

#[test]
fn a_run_without_any_trace_has_no_log_rather_than_a_good_one() {
    let state = state();
    assert!(matches!(
        verify(state.path(), &run("a")),
        Err(bastle_audit::AuditError::Missing { .. })
    ));
    sealed(state.path(), &run("b"), 1);
    assert!(matches!(
        verify(state.path(), &run("a")),
        Err(bastle_audit::AuditError::Missing { .. })
    ));
}
