//! How denials are counted.
use super::*;
use std::time::Duration;

fn asked(host: &str) -> Asked {
    Asked::raw(Face::Connect, host, 443)
}

fn grounds() -> Grounds {
    Grounds::own(Code::NetDenied, "no rule")
}

#[test]
fn the_first_denial_is_reported_at_once_and_repetitions_are_counted_exactly() {
    let denials = Denials::new(7);
    let start = Instant::now();
    let first = denials.note(&asked("a.example"), &grounds(), start);
    assert_eq!(
        (first.reports.len(), first.reports[0].count, first.pace),
        (1, 1, Pace::Usual)
    );
    for _ in 0..9 {
        let again = denials.note(&asked("a.example"), &grounds(), start);
        assert_eq!((again.reports.len(), &again.decision.id), (0, &first.decision.id));
    }
    assert!(denials.due(start + Duration::from_millis(900)).is_empty());
    let due = denials.due(start + Duration::from_secs(1));
    assert_eq!(due.iter().map(|d| d.count).collect::<Vec<_>>(), [9]);
    assert!(denials.drain().is_empty());
}

#[test]
fn more_than_twenty_identical_denials_in_a_minute_are_a_loop_and_others_are_not() {
    let denials = Denials::new(0);
    let start = Instant::now();
    let paces: Vec<Pace> = (0..25)
        .map(|_| denials.note(&asked("a.example"), &grounds(), start).pace)
        .collect();
    assert_eq!(paces.iter().position(|pace| *pace == Pace::Looping), Some(20));
    for (host, later) in [("b.example", 0), ("a.example", 61)] {
        let noted = denials.note(&asked(host), &grounds(), start + Duration::from_secs(later));
        assert_eq!(noted.pace, Pace::Usual, "{host}");
    }
}

#[test]
fn a_flood_of_different_denials_does_not_grow_the_table_and_loses_no_count() {
    let denials = Denials::new(0);
    let now = Instant::now();
    let mut counted = 0;
    for round in 0..3_000 {
        for _ in 0..2 {
            let noted = denials.note(&asked(&format!("h{round}.example")), &grounds(), now);
            counted += noted.reports.iter().map(|d| d.count).sum::<u32>();
        }
    }
    assert!(denials.table.lock().unwrap().entries.len() <= MAX_DENIALS);
    counted += denials.drain().iter().map(|d| d.count).sum::<u32>();
    assert_eq!(counted, 6_000);
}

#[test]
fn two_listed_denials_never_share_a_name() {
    let denials = Denials::new(u32::MAX - 5);
    let start = Instant::now();
    let listed: Vec<String> = (0..20_000u64)
        .map(|n| {
            denials.note(
                &asked(&format!("h{n}.example")),
                &grounds(),
                start + Duration::from_secs(n),
            )
        })
        .filter(|noted| noted.pace == Pace::Usual)
        .map(|noted| noted.decision.id)
        .collect();
    let distinct: std::collections::HashSet<&String> = listed.iter().collect();
    assert!(listed.len() > 5_000, "{}", listed.len());
    assert_eq!(distinct.len(), listed.len());
}

#[test]
fn a_flood_is_sampled_by_kind_and_the_first_of_each_kind_and_every_count_are_there() {
    let denials = Denials::new(0);
    let now = Instant::now();
    let mut reports = Vec::new();
    for round in 0..100_000 {
        reports.extend(
            denials
                .note(&asked(&format!("h{round}.example")), &grounds(), now)
                .reports,
        );
    }
    let late = Asked::raw(Face::Dns, "late.example", 0);
    let first = denials.note(&late, &Grounds::own(Code::NetPort, "no"), now);
    assert_eq!(
        (first.pace, first.reports.len()),
        (Pace::Usual, 1),
        "the first of another kind is listed after any flood"
    );
    reports.extend(first.reports);
    assert!(reports.len() < 1_000, "{}", reports.len());
    assert_eq!(reports[0].host, "h0.example");
    assert!(denials.has_pending());
    reports.extend(denials.due(now + Duration::from_secs(11)));
    assert!(denials.drain().is_empty());
    assert_eq!(
        reports.iter().map(|report| u64::from(report.count)).sum::<u64>(),
        100_001
    );
    let sum = reports
        .iter()
        .find(|report| report.count > 1_000)
        .expect("the rest is counted");
    assert!(
        sum.host == "(others)" && sum.reason.contains("not listed one by one"),
        "{sum:?}"
    );
}
