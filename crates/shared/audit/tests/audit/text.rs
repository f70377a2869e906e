//! Text of the agent inside records: one event, one line, the same text back.
use crate::common::*;
use bastle_audit::{
    AuditEvent, AuditWriter, Format, Payload, export, fuzz_index, fuzz_reader, sanitize, show,
};
use proptest::prelude::*;
use std::fs;

const NASTY: &str = "a\nb\r\n\0\x1b]0;x\x07\u{7f}\u{85}\u{9b}31m\u{2028}\u{2029}\u{202e}\u{feff}\u{e0041}\"},{\"x\":1}\\\u{10ffff}é";

#[test]
fn a_hostile_text_is_one_line_for_every_tool_and_comes_back_unchanged() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    let id = writer.append(&denied(NASTY)).unwrap();
    writer.seal().unwrap();
    let stored = fs::read_to_string(log_path(state.path(), &run("a"))).unwrap();
    assert_eq!(stored.lines().count(), 4);
    let breaks = [
        '\u{b}', '\u{c}', '\u{1c}', '\u{85}', '\u{2028}', '\u{2029}', '\u{1b}', '\u{202e}', '\u{7f}', '\0',
        '\r',
    ];
    assert!(
        !stored.contains(breaks),
        "no tool sees a line end or an escape in it"
    );
    let record = show(state.path(), &run("a"))
        .unwrap()
        .map(Result::unwrap)
        .find(|r| r.uid() == id.uid)
        .unwrap();
    match record.payload() {
        Some(Payload::Event(AuditEvent::Denied(denied))) => assert_eq!(denied.target, NASTY),
        other => panic!("{other:?}"),
    }
    assert!(!sanitize(record.message()).chars().any(char::is_control));
    assert!(is_sealed(state.path(), &run("a")));
}

#[test]
fn exports_of_hostile_text_have_one_line_per_record_and_no_formula() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    for target in [NASTY, "=cmd|' /C calc'!A0", "+x", "-x", "@x", "\t=x"] {
        writer.append(&denied(target)).unwrap();
    }
    writer.seal().unwrap();
    for (format, head) in [(Format::Jsonl, 0), (Format::Ocsf, 0), (Format::Csv, 1)] {
        let mut out = Vec::new();
        assert_eq!(export(state.path(), &run("a"), format, &mut out).unwrap(), 9);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 9 + head, "{format:?}");
        assert!(
            !out.contains(['\0', '\u{1b}', '\u{85}', '\u{2028}', '\u{202e}']),
            "{format:?}"
        );
        if format == Format::Csv {
            for cell in out.lines().flat_map(|l| l.split(',')) {
                assert!(
                    !cell
                        .trim_start_matches(['"', ' '])
                        .starts_with(['=', '+', '@', '-']),
                    "{cell}"
                );
            }
        }
        if format == Format::Jsonl {
            assert_eq!(
                out.into_bytes(),
                fs::read(log_path(state.path(), &run("a"))).unwrap()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_survives_a_round_trip_through_a_verified_log(target in any::<String>(), comm in any::<String>()) {
        let state = state();
        let mut event = denied(&target);
        if let AuditEvent::Denied(denied) = &mut event {
            denied.comm = comm;
        }
        let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
        let id = writer.append(&event).unwrap();
        writer.seal().unwrap();
        prop_assert!(is_sealed(state.path(), &run("a")));
        let record = show(state.path(), &run("a")).unwrap().map(Result::unwrap).find(|r| r.uid() == id.uid).unwrap();
        prop_assert_eq!(record.payload(), Some(Payload::Event(event)));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(fuzz_reader(&bytes), 0);
        prop_assert_eq!(fuzz_index(&bytes), 0);
    }
}

#[test]
fn damaged_real_logs_do_not_make_the_reader_panic() {
    let state = state();
    sealed(state.path(), &run("a"), 2);
    let log = fs::read(log_path(state.path(), &run("a"))).unwrap();
    assert_eq!(fuzz_reader(&log), 5);
    let index = fs::read(index_path(state.path())).unwrap();
    assert_eq!(fuzz_index(&index), 2);
    for at in (0..log.len()).step_by(7) {
        let mut changed = log.clone();
        changed[at] = b'"';
        assert!(fuzz_reader(&changed) <= 5);
        assert!(fuzz_reader(&log[at..]) <= 5);
    }
}
