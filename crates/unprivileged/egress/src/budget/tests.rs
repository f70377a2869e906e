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

fn turns(attendance: Attendance, limits: Limits) -> (Arc<Budget>, Told) {
    let told = Told::default();
    let sink = Arc::clone(&told);
    let budget = Budget::new(limits, attendance, move |reached| {
        sink.lock()
            .unwrap()
            .push((reached.kind, reached.step, reached.used));
    });
    (Arc::new(budget), told)
}

fn limit_turns(most: u64) -> Limits {
    Limits {
        turns: Some(most),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_run_may_take_as_many_turns_as_its_limit_says_and_not_one_more() {
    let (budget, told) = turns(Attendance::Unattended, limit_turns(5));
    for _ in 0..5 {
        Reservation::take(&budget, Estimate::default(), WithTurn::One)
            .await
            .unwrap()
            .answered();
    }
    assert_eq!(
        budget.flow(),
        Flow::Go,
        "other requests go on after the last turn"
    );
    assert!(
        Reservation::take(&budget, Estimate::default(), WithTurn::One)
            .await
            .is_none()
    );
    assert_eq!(budget.flow(), Flow::Stop);
    let kind = BudgetKind::Turns;
    let expected = [(kind, BudgetStep::Warn, 4), (kind, BudgetStep::Stop, 5)];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_turn_that_came_to_nothing_is_given_back_and_no_more_than_that() {
    let (budget, _) = turns(Attendance::Attended, limit_turns(1));
    for _ in 0..10 {
        drop(
            Reservation::take(&budget, Estimate::default(), WithTurn::One)
                .await
                .unwrap(),
        );
    }
    Reservation::take(&budget, Estimate::default(), WithTurn::One)
        .await
        .unwrap()
        .answered();
    let mut waits = Box::pin(Reservation::take(&budget, Estimate::default(), WithTurn::One));
    assert!(futures_now(&mut waits).is_none());
    assert_eq!(budget.flow(), Flow::Wait);
    budget.extend();
    assert_eq!(budget.flow(), Flow::Go);
    waits.await.unwrap().answered();
    Reservation::take(&budget, Estimate::default(), WithTurn::One)
        .await
        .unwrap()
        .answered();
    let mut waits = Box::pin(Reservation::take(&budget, Estimate::default(), WithTurn::One));
    assert!(
        futures_now(&mut waits).is_none(),
        "an extension lets the one that waited and a fifth through"
    );
}

/// The value of a future that has one now.
fn futures_now<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn thirty_requests_at_once_do_not_pass_a_budget_of_three_turns() {
    let (budget, told) = turns(Attendance::Unattended, limit_turns(3));
    let mut asked: Vec<_> = (0..30)
        .map(|_| Box::pin(Reservation::take(&budget, Estimate::default(), WithTurn::One)))
        .collect();
    let passed: Vec<Reservation> = asked
        .iter_mut()
        .filter_map(|one| futures_now(one).flatten())
        .collect();
    assert_eq!(passed.len(), 3, "the others wait for what becomes of these");
    assert_eq!(budget.flow(), Flow::Go, "and nothing is used up yet");
    for mut one in passed {
        one.answered();
    }
    let later = asked
        .iter_mut()
        .skip(3)
        .filter_map(|one| futures_now(one).flatten())
        .count();
    assert_eq!(later, 0);
    assert_eq!(budget.flow(), Flow::Stop);
    assert_eq!(told.lock().unwrap().last().unwrap().1, BudgetStep::Stop);
}

#[tokio::test]
async fn estimates_keep_requests_sent_side_by_side_from_passing_the_last_of_a_budget_together() {
    let limits = Limits {
        tokens: Some(10_000),
        ..Limits::default()
    };
    let (budget, _) = turns(Attendance::Unattended, limits);
    let estimate = Estimate {
        input: 1_000,
        output: 3_000,
        cost: 0,
    };
    let mut asked: Vec<_> = (0..30)
        .map(|_| Box::pin(Reservation::take(&budget, estimate, WithTurn::One)))
        .collect();
    let mut passed: Vec<Reservation> = asked
        .iter_mut()
        .filter_map(|one| futures_now(one).flatten())
        .collect();
    assert_eq!(
        passed.len(),
        2,
        "8 000 of 10 000 are spoken for when the third comes, and it would not fit"
    );
    // One of them used little: there is room for another.
    budget.count(BudgetKind::Tokens, 100);
    drop(passed.pop());
    let more: Vec<Reservation> = asked
        .iter_mut()
        .skip(2)
        .filter_map(|one| futures_now(one).flatten())
        .collect();
    assert_eq!(more.len(), 1);
    // The others used all.
    budget.count(BudgetKind::Tokens, 9_900);
    drop((passed, more));
    let last = asked
        .iter_mut()
        .skip(3)
        .filter_map(|one| futures_now(one).flatten())
        .count();
    assert_eq!((last, budget.flow()), (0, Flow::Stop));
}

#[tokio::test]
async fn after_a_large_answer_no_small_estimate_is_believed_while_others_are_out() {
    let limits = Limits {
        tokens: Some(100_000),
        ..Limits::default()
    };
    let (budget, _) = turns(Attendance::Unattended, limits);
    let lie = Estimate {
        input: 0,
        output: 1,
        cost: 0,
    };
    drop(Reservation::take(&budget, lie, WithTurn::One).await.unwrap());
    budget.count(BudgetKind::Tokens, 40_000);
    budget.saw(40_000, 0);
    let mut asked: Vec<_> = (0..30)
        .map(|_| Box::pin(Reservation::take(&budget, lie, WithTurn::One)))
        .collect();
    let passed: Vec<Reservation> = asked
        .iter_mut()
        .filter_map(|one| futures_now(one).flatten())
        .collect();
    assert_eq!(
        passed.len(),
        1,
        "60 000 are left, and each may be as large as the one before"
    );
}

#[tokio::test]
async fn an_estimate_larger_than_a_budget_passes_alone_and_lets_nothing_pass_beside_it() {
    let limits = Limits {
        cost: Some(10),
        ..Limits::default()
    };
    let (budget, _) = turns(Attendance::Attended, limits);
    let huge = Estimate {
        input: u64::MAX,
        output: u64::MAX,
        cost: u64::MAX,
    };
    let small = Estimate {
        input: 1,
        output: 0,
        cost: 1,
    };
    let first = Reservation::take(&budget, huge, WithTurn::One).await.unwrap();
    let mut second = Box::pin(Reservation::take(&budget, small, WithTurn::One));
    assert!(futures_now(&mut second).is_none());
    drop(first);
    assert!(second.await.is_some());
}
