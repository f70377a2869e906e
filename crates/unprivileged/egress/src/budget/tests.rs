//! What budgets let through, and what they stop.
use super::*;
use std::sync::{Arc, Mutex};

type Told = Arc<Mutex<Vec<(BudgetKind, BudgetStep, u64)>>>;

fn budget(attendance: Attendance, requests: u64) -> (Budget, Told) {
    let told = Told::default();
    let sink = Arc::clone(&told);
    let limits = Limits {
        requests: Some(requests),
        ..Limits::default()
    };
    let budget = Budget::new(limits, attendance, move |reached| {
        sink.lock()
            .unwrap()
            .push((reached.kind, reached.step, reached.used));
    });
    (budget, told)
}

#[test]
fn nothing_new_goes_out_at_the_limit_and_each_mark_is_told_once() {
    let (budget, told) = budget(Attendance::Attended, 10);
    let flows: Vec<Flow> = (0..13).map(|_| budget.spend(BudgetKind::Requests, 1)).collect();
    assert_eq!(flows[..9], [Flow::Go; 9]);
    assert_eq!(flows[9..11], [Flow::Wait; 2]);
    assert_eq!(flows[11..], [Flow::Stop; 2]);
    let kind = BudgetKind::Requests;
    let expected = [
        (kind, BudgetStep::Warn, 8),
        (kind, BudgetStep::Pause, 10),
        (kind, BudgetStep::Stop, 12),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn with_nobody_there_the_limit_stops_the_run() {
    let (budget, _) = budget(Attendance::Unattended, 10);
    assert_eq!(budget.spend(BudgetKind::Requests, 9), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Requests, 1), Flow::Stop);
    budget.extend();
    assert_eq!(budget.flow(), Flow::Go, "an explicit extension is an answer");
}

#[test]
fn an_extension_lets_a_fifth_more_through_and_then_waits_again() {
    let (budget, told) = budget(Attendance::Attended, 10);
    assert_eq!(budget.spend(BudgetKind::Requests, 10), Flow::Wait);
    budget.extend();
    assert_eq!(budget.spend(BudgetKind::Requests, 1), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Requests, 1), Flow::Wait);
    let pauses = told
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, step, _)| *step == BudgetStep::Pause)
        .count();
    assert_eq!(pauses, 2);
}

#[test]
fn a_counter_never_wraps_and_a_kind_without_limit_never_stops() {
    let (budget, _) = budget(Attendance::Attended, 10);
    assert_eq!(budget.spend(BudgetKind::BytesIn, u64::MAX), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::BytesIn, u64::MAX), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Requests, u64::MAX), Flow::Stop);
    assert_eq!(budget.spend(BudgetKind::Requests, 5), Flow::Stop);
}

#[test]
fn a_limit_of_zero_allows_nothing() {
    let (budget, _) = budget(Attendance::Attended, 0);
    assert_eq!(budget.flow(), Flow::Wait);
    assert_eq!(budget.spend(BudgetKind::Requests, 1), Flow::Stop);
}

#[test]
fn a_reload_with_a_lower_limit_counts_what_was_already_used() {
    let (budget, _) = budget(Attendance::Attended, 100);
    assert_eq!(budget.spend(BudgetKind::Requests, 11), Flow::Go);
    budget.relimit(Limits {
        requests: Some(10),
        ..Limits::default()
    });
    assert_eq!(budget.flow(), Flow::Wait);
}

#[tokio::test]
async fn whoever_waits_goes_on_only_after_an_extension() {
    let (budget, _) = budget(Attendance::Attended, 10);
    let budget = Arc::new(budget);
    assert_eq!(budget.spend(BudgetKind::Requests, 10), Flow::Wait);
    let waiting = tokio::spawn({
        let budget = Arc::clone(&budget);
        async move { budget.clear().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    budget.extend();
    assert_eq!(waiting.await.unwrap(), Flow::Go);
}

#[test]
fn a_run_may_take_as_many_turns_as_its_limit_says_and_not_one_more() {
    let told = Told::default();
    let sink = Arc::clone(&told);
    let limits = Limits {
        turns: Some(5),
        ..Limits::default()
    };
    let budget = Budget::new(limits, Attendance::Unattended, move |reached| {
        sink.lock()
            .unwrap()
            .push((reached.kind, reached.step, reached.used));
    });
    let flows: Vec<Flow> = (0..5).map(|_| budget.spend(BudgetKind::Turns, 1)).collect();
    assert_eq!(flows, [Flow::Go; 5]);
    assert_eq!(
        budget.flow(),
        Flow::Go,
        "other requests go on after the last turn"
    );
    assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Stop);
    let kind = BudgetKind::Turns;
    let expected = [(kind, BudgetStep::Warn, 4), (kind, BudgetStep::Stop, 5)];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_turn_that_came_to_nothing_is_given_back_and_no_more_than_that() {
    let limits = Limits {
        turns: Some(1),
        ..Limits::default()
    };
    let budget = Budget::new(limits, Attendance::Attended, |_| {});
    for _ in 0..10 {
        assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Go);
        budget.refund(BudgetKind::Turns, 1);
    }
    budget.refund(BudgetKind::Turns, u64::MAX);
    assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Wait);
    budget.extend();
    assert_eq!(budget.flow(), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Go);
    assert_eq!(budget.spend(BudgetKind::Turns, 1), Flow::Wait);
}
