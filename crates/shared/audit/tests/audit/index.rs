//! The index finds what a log cannot know about itself.
use crate::common::*;
use bastle_audit::{
    AuditError, AuditWriter, Defect, LogFile, RunState, Verdict, list, remove, verify, verify_all,
};
use std::fs;

#[test]
fn a_log_that_was_deleted_is_missed() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    sealed(state.path(), &run("b"), 3);
    fs::remove_dir_all(state.path().join("audit/a")).unwrap();
    match report(state.path(), &run("a")).verdict {
        Verdict::Tampered(finding) => assert_eq!(finding.defect, Defect::LogGone),
        other => panic!("{other:?}"),
    }
    let all: Vec<_> = verify_all(state.path())
        .unwrap()
        .into_iter()
        .map(|r| (r.run, r.verdict))
        .collect();
    assert!(
        matches!(&all[..], [(a, Verdict::Tampered(_)), (b, Verdict::Sealed)] if *a == run("a") && *b == run("b"))
    );
}

#[test]
fn a_sealed_log_cut_back_to_an_earlier_checkpoint_is_missed_by_the_index_alone() {
    let state = state();
    sealed(state.path(), &run("a"), 100);
    let path = log_path(state.path(), &run("a"));
    let all = lines(&path);
    let checkpoint = all
        .iter()
        .rposition(|l| String::from_utf8_lossy(l).contains("\"type\":\"checkpoint\""))
        .unwrap();
    fs::write(&path, all[..=checkpoint].concat()).unwrap();
    let found = report(state.path(), &run("a"));
    let (count, last) = (
        u64::try_from(all.len()).unwrap(),
        u64::try_from(checkpoint + 1).unwrap(),
    );
    assert!(
        matches!(found.verdict, Verdict::Tampered(f) if f.defect == Defect::CutOff { count, found: last })
    );
}

#[test]
fn every_change_of_the_index_is_found() {
    let state = state();
    for name in ["a", "b", "c"] {
        sealed(state.path(), &run(name), 1);
    }
    let path = index_path(state.path());
    let original = fs::read(&path).unwrap();
    let all = lines(&path);
    for at in (0..original.len() - 1).step_by(5) {
        let mut changed = original.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        assert!(
            !is_sealed(state.path(), &run("a")) || !is_sealed(state.path(), &run("c")),
            "byte {at}"
        );
    }
    for at in 0..all.len() {
        let mut changed = all.clone();
        changed.remove(at);
        fs::write(&path, changed.concat()).unwrap();
        assert!(!is_sealed(state.path(), &run("c")), "line {at}");
    }
    fs::write(&path, &original).unwrap();
    assert_eq!(list(state.path()).unwrap().len(), 3);
    assert!(is_sealed(state.path(), &run("c")));
}

#[test]
fn an_index_cut_back_is_found_by_every_log_opened_after_the_cut() {
    let state = state();
    for name in ["a", "b", "c"] {
        sealed(state.path(), &run(name), 1);
    }
    let path = index_path(state.path());
    let all = lines(&path);
    fs::write(&path, all[..3].concat()).unwrap();
    assert!(is_sealed(state.path(), &run("a")));
    assert!(
        !is_sealed(state.path(), &run("b")),
        "its seal is gone from the index"
    );
    match report(state.path(), &run("c")).verdict {
        Verdict::Tampered(finding) => assert_eq!(
            (finding.file, finding.defect),
            (LogFile::Index, Defect::NotIndexed)
        ),
        other => panic!("{other:?}"),
    }
    fs::remove_file(&path).unwrap();
    assert!(
        matches!(self::all(state.path()), Err(Defect::RolledBack { .. })),
        "the anchor alone knows"
    );
    fs::remove_file(state.path().join("audit.anchor")).unwrap();
    assert!(
        verify_all(state.path())
            .unwrap()
            .iter()
            .all(|r| matches!(r.verdict, Verdict::Tampered(_)))
    );
}

#[test]
fn a_log_removed_behind_bastles_back_and_begun_anew_under_its_name_is_found() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    fs::remove_dir_all(state.path().join("audit/a")).unwrap();
    sealed(state.path(), &run("a"), 1);
    match report(state.path(), &run("a")).verdict {
        Verdict::Tampered(finding) => assert_eq!(finding.defect, Defect::IndexedTwice),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_removed_on_purpose_leaves_no_alarm_and_frees_its_name() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    sealed(state.path(), &run("b"), 3);
    remove(state.path(), &run("a")).unwrap();
    assert!(matches!(
        verify(state.path(), &run("a")),
        Err(AuditError::Missing { .. })
    ));
    assert_eq!(verify_all(state.path()).unwrap().len(), 1);
    let states: Vec<_> = list(state.path()).unwrap().into_iter().map(|e| e.state).collect();
    assert!(matches!(
        states[..],
        [RunState::Removed { .. }, RunState::Sealed { records: 6, .. }]
    ));
    sealed(state.path(), &run("a"), 1);
    assert!(is_sealed(state.path(), &run("a")));
}

#[test]
fn a_changed_log_is_evidence_and_is_not_removed() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    let path = log_path(state.path(), &run("a"));
    let mut cut = lines(&path);
    cut.pop();
    fs::write(&path, cut.concat()).unwrap();
    assert!(matches!(
        remove(state.path(), &run("a")),
        Err(AuditError::Tampered(_))
    ));
    assert!(path.exists());
}

#[test]
fn an_index_line_torn_at_every_byte_is_set_aside_by_the_next_run() {
    let state = state();
    sealed(state.path(), &run("a"), 1);
    let path = index_path(state.path());
    let all = lines(&path);
    for length in [1, all[1].len() / 2, all[1].len() - 1] {
        fs::write(&path, [&all[0][..], &all[1][..length]].concat()).unwrap();
        assert!(!is_sealed(state.path(), &run("a")));
        let name = run(&format!("n{length}"));
        sealed(state.path(), &name, 1);
        assert!(is_sealed(state.path(), &name));
        fs::remove_dir_all(state.path().join("audit").join(name.as_str())).unwrap();
    }
    assert_eq!(
        fs::read(path.with_file_name("heads.jsonl.torn-2")).unwrap(),
        &all[1][..all[1].len() / 2]
    );
}

#[test]
fn a_changed_last_line_of_the_index_stops_the_next_run() {
    let state = state();
    sealed(state.path(), &run("a"), 1);
    let path = index_path(state.path());
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace("\"count\":4", "\"count\":3");
    fs::write(&path, text).unwrap();
    assert!(matches!(
        AuditWriter::create(state.path(), &run("b")),
        Err(AuditError::Tampered(_))
    ));
}

#[test]
fn processes_that_open_and_seal_at_once_share_one_unbroken_index() {
    let state = state();
    let path = state.path();
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || sealed(path, &run(&format!("r{number}")), 5));
        }
    });
    let reports = verify_all(path).unwrap();
    assert_eq!(reports.len(), 8);
    assert!(reports.iter().all(|report| report.verdict == Verdict::Sealed));
}

/// A run as a person starts it: its opening is durable, and so anchored, before its end. What it says against the anchors.
fn opened_and_sealed(state: &std::path::Path, name: &str) -> Option<String> {
    let mut writer = AuditWriter::create(state, &run(name)).unwrap();
    writer.sync().unwrap();
    let warning = writer.take_warning();
    writer.seal().unwrap();
    warning
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn all(state: &std::path::Path) -> Result<usize, Defect> {
    match verify_all(state) {
        Ok(reports) => Ok(reports.len()),
        Err(AuditError::Tampered(finding)) => Err(finding.defect),
        Err(other) => panic!("{other}"),
    }
}

/// Removes a run with every line of the index about it and after it.
fn remove_newest(state: &std::path::Path, name: &str, lines_left: usize) {
    std::fs::remove_dir_all(state.join("audit").join(name)).unwrap();
    let text = lines(&index_path(state))[..lines_left].concat();
    std::fs::write(index_path(state), text).unwrap();
}

#[test]
fn a_newest_run_removed_with_its_lines_of_the_index_is_missed() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    sealed(state.path(), &run("b"), 3);
    assert_eq!(all(state.path()), Ok(2), "control");
    remove_newest(state.path(), "b", 2);
    assert!(
        matches!(
            all(state.path()),
            Err(Defect::RolledBack {
                expected: 4,
                found: 2,
                ..
            })
        ),
        "{:?}",
        all(state.path())
    );
    sealed(state.path(), &run("c"), 3);
    assert!(
        matches!(all(state.path()), Err(Defect::Replaced { sequence: 4, .. })),
        "later runs do not cover it up"
    );
    sealed(state.path(), &run("d"), 3);
    assert!(
        matches!(all(state.path()), Err(Defect::Replaced { sequence: 4, .. })),
        "{:?}",
        all(state.path())
    );
}

#[test]
fn a_run_that_was_only_opened_and_then_removed_is_missed() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    let mut writer = AuditWriter::create(state.path(), &run("b")).unwrap();
    writer.sync().unwrap();
    drop(writer);
    remove_newest(state.path(), "b", 2);
    assert!(matches!(
        all(state.path()),
        Err(Defect::RolledBack { expected: 3, .. })
    ));
}

#[test]
fn an_older_copy_of_the_directory_an_emptied_and_a_removed_one_are_missed() {
    for how in ["rollback", "emptied", "removed", "replaced"] {
        let state = state();
        let (audit, before) = (state.path().join("audit"), state.path().join("before"));
        sealed(state.path(), &run("a"), 3);
        copy(&audit, &before);
        sealed(state.path(), &run("b"), 3);
        assert_eq!(all(state.path()), Ok(2), "control");
        std::fs::remove_dir_all(&audit).unwrap();
        match how {
            "rollback" => std::fs::rename(&before, &audit).unwrap(),
            "emptied" => std::fs::create_dir(&audit).unwrap(),
            "replaced" => drop(sealed(state.path(), &run("z"), 3)),
            _ => {}
        }
        let found = all(state.path());
        let expected = match how {
            "rollback" => matches!(found, Err(Defect::RolledBack { .. })),
            "replaced" => matches!(found, Err(Defect::AnchorForeign { .. })),
            _ => matches!(found, Err(Defect::Emptied { .. })),
        };
        assert!(expected, "{how}: {found:?}");
    }
}

#[test]
fn a_run_removed_on_purpose_and_a_torn_or_lost_anchor_raise_no_alarm() {
    let state = state();
    sealed(state.path(), &run("a"), 3);
    sealed(state.path(), &run("b"), 3);
    remove(state.path(), &run("b")).unwrap();
    assert_eq!(all(state.path()), Ok(1));
    let anchor = state.path().join("audit.anchor");
    let whole = std::fs::read(&anchor).unwrap();
    for slot in [0, 1024] {
        let mut torn = whole.clone();
        torn[slot..slot + 200].fill(b'x');
        std::fs::write(&anchor, &torn).unwrap();
        assert_eq!(all(state.path()), Ok(1), "slot {slot}");
    }
    sealed(state.path(), &run("c"), 3);
    assert_eq!(all(state.path()), Ok(2));
    std::fs::remove_file(&anchor).unwrap();
    assert_eq!(all(state.path()), Ok(2), "logs of before there were anchors");
}

#[test]
fn a_file_elsewhere_gets_every_line_and_is_held_against_the_directory() {
    let state = state();
    let elsewhere = state.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::fs::write(
        state.path().join("audit.anchor-file"),
        format!("{}\n", elsewhere.display()),
    )
    .unwrap();
    sealed(state.path(), &run("a"), 3);
    sealed(state.path(), &run("b"), 3);
    assert_eq!(
        lines(&elsewhere).len(),
        2,
        "each seal; these logs were never durable before"
    );
    assert_eq!(all(state.path()), Ok(2), "control");
    std::fs::remove_dir_all(state.path().join("audit")).unwrap();
    std::fs::remove_file(state.path().join("audit.anchor")).unwrap();
    assert!(matches!(all(state.path()), Err(Defect::Emptied { anchor }) if anchor.ends_with("elsewhere")));
    std::fs::remove_file(&elsewhere).unwrap();
    assert!(
        AuditWriter::create(state.path(), &run("c"))
            .unwrap()
            .sync()
            .is_err(),
        "no anchor, no run"
    );
}

/// A state directory whose lines of the index also go to a file elsewhere.
fn anchored_elsewhere() -> (tempfile::TempDir, std::path::PathBuf) {
    let state = state();
    let elsewhere = state.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    let named = format!("{}\n", elsewhere.display());
    std::fs::write(state.path().join("audit.anchor-file"), named).unwrap();
    (state, elsewhere)
}

#[test]
fn a_rollback_is_found_by_the_file_elsewhere_however_many_runs_follow() {
    for further in 0..=5 {
        let (state, elsewhere) = anchored_elsewhere();
        let (audit, before) = (state.path().join("audit"), state.path().join("before"));
        for name in ["a", "b", "c"] {
            opened_and_sealed(state.path(), name);
        }
        copy(&audit, &before);
        opened_and_sealed(state.path(), "evil");
        assert_eq!(lines(&elsewhere).len(), 8, "each opening and each seal");
        assert_eq!(all(state.path()), Ok(4), "control");
        std::fs::remove_dir_all(&audit).unwrap();
        std::fs::rename(&before, &audit).unwrap();
        std::fs::remove_file(state.path().join("audit.anchor")).unwrap();
        let told: Vec<bool> = (0..further)
            .map(|number| opened_and_sealed(state.path(), &format!("later-{number}")).is_some())
            .collect();
        let found = all(state.path());
        let expected = match further {
            0 => matches!(
                found,
                Err(Defect::RolledBack {
                    expected: 7,
                    found: 6,
                    ..
                })
            ),
            _ => matches!(found, Err(Defect::Replaced { sequence: 7, .. })),
        };
        assert!(expected, "{further}: {found:?}");
        let first: Vec<bool> = (0..further).map(|number| number == 0).collect();
        assert_eq!(told, first, "the first run after it says so");
    }
}

#[test]
fn lines_elsewhere_of_a_directory_that_was_replaced_are_found_after_any_number_of_runs() {
    let (state, _) = anchored_elsewhere();
    opened_and_sealed(state.path(), "evil");
    std::fs::remove_dir_all(state.path().join("audit")).unwrap();
    std::fs::remove_file(state.path().join("audit.anchor")).unwrap();
    for number in 0..6 {
        opened_and_sealed(state.path(), &format!("later-{number}"));
    }
    assert!(matches!(all(state.path()), Err(Defect::AnchorForeign { .. })));
}

#[test]
fn lines_elsewhere_in_another_order_between_torn_ones_and_rubbish_raise_no_alarm() {
    let (state, elsewhere) = anchored_elsewhere();
    for name in ["a", "b", "c"] {
        opened_and_sealed(state.path(), name);
    }
    // Runs that begin at once append in any order, and a crash tears a line.
    let mut other = lines(&elsewhere);
    other.swap(1, 2);
    other.insert(2, b"\n".to_vec());
    other.insert(3, vec![b'x'; 3 * bastle_audit::MAX_LINE]);
    other.insert(4, b"\n".to_vec());
    let half = other[0].len() / 2;
    other.push(other[0][..half].to_vec());
    std::fs::write(&elsewhere, other.concat()).unwrap();
    assert_eq!(all(state.path()), Ok(3));
    // The next line begins on a line of its own: a torn one before it must not hide it.
    assert_eq!(opened_and_sealed(state.path(), "d"), None);
    let (opened, sealed) = (&lines(&elsewhere)[9], &lines(&elsewhere)[10]);
    assert!(opened.starts_with(b"{") && sealed.starts_with(b"{"));
    remove_newest(state.path(), "d", 6);
    std::fs::remove_file(state.path().join("audit.anchor")).unwrap();
    assert!(matches!(
        all(state.path()),
        Err(Defect::RolledBack { expected: 7, .. })
    ));
}

#[test]
fn the_first_record_of_every_log_tells_what_it_ran_on() {
    let state = state();
    sealed(state.path(), &run("a"), 1);
    let first: serde_json::Value =
        serde_json::from_slice(&lines(&log_path(state.path(), &run("a")))[0]).unwrap();
    let text = first.to_string();
    for key in ["\"kernel\"", "\"os\"", "\"lsm\"", "\"cgroup\"", "\"bastle\""] {
        assert!(text.contains(key), "{key} in {text}");
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(text.contains(release.trim()), "{text}");
}

#[test]
fn an_anchor_that_fell_behind_is_found_in_a_long_index_and_catches_up() {
    let state = state();
    let anchor = state.path().join("audit.anchor");
    let older: Vec<_> = (0..40)
        .map(|number| {
            sealed(state.path(), &run(&format!("r{number}")), 1);
            std::fs::read(&anchor).unwrap()
        })
        .collect();
    for (number, old) in older.iter().rev().enumerate() {
        std::fs::write(&anchor, old).unwrap();
        sealed(state.path(), &run(&format!("s{number}")), 1);
        let new = String::from_utf8(std::fs::read(&anchor).unwrap()).unwrap();
        assert!(new.contains(&format!("\"s{number}\"")), "{number}: {new}");
    }
    assert_eq!(all(state.path()), Ok(80));
}
