//! What the agent protocol keeps beside runs: bounded, found again, and gone with the run.
use super::*;
use crate::fleet::{MessageClaim, Receiver, TaskQuery};
use bastle_contract::RunId;
use serde_json::json;

#[test]
fn messages_and_receivers_of_a_run_are_bounded_kept_over_a_restart_and_go_with_it() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let made = fleet.spawn(&owner(), stage.request(1)).unwrap();
    let run = names(&made)[0].clone();
    fleet.conversation_begin(&run, "first").unwrap();
    fleet.conversation_begin(&run, "second").unwrap();
    for count in 0..120 {
        fleet.message_add(&run, count, &json!({ "n": count })).unwrap();
    }
    let kept = fleet.messages(&run).unwrap();
    assert_eq!(
        (kept.len(), &kept[99].1),
        (100, &json!({ "n": 119 })),
        "the newest stay"
    );
    for _ in 0..3 {
        fleet
            .message_add(&run, 1_000, &json!({ "text": "x".repeat(600_000) }))
            .unwrap();
    }
    assert_eq!(fleet.messages(&run).unwrap().len(), 1, "by their bytes too");
    let receiver = |id: usize| Receiver {
        run: run.clone(),
        id: id.to_string(),
        caller: "uid:0".to_owned(),
        config: json!({ "url": "https://a.example/" }),
        since: 3,
    };
    for id in 0..16 {
        fleet.receiver_put(&receiver(id)).unwrap();
    }
    assert_eq!(
        fleet.receiver_put(&receiver(16)).unwrap_err().code,
        Code::RunCrowd
    );
    fleet.receiver_put(&receiver(15)).unwrap();
    fleet.receiver_told(&run, "0", 9).unwrap();
    fleet.receiver_told(&run, "0", 5).unwrap();
    until(&fleet, "it ends", |fleet| {
        all_ended(fleet, std::slice::from_ref(&run))
    });
    fleet.close();
    let fleet = stage.fleet();
    assert_eq!(fleet.conversation(&run).unwrap(), "first", "the first word holds");
    assert_eq!(fleet.receivers(Some(&run)).unwrap()[0].since, 9, "never back");
    fleet.remove(&owner(), &run, None).unwrap();
    assert!(fleet.receivers(None).unwrap().is_empty());
    assert!(fleet.messages(&run).unwrap().is_empty());
    fleet.close();
}

#[test]
fn a_list_by_the_last_change_gives_everything_once_and_nothing_that_is_not_asked_for() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let all = names(&fleet.spawn(&owner(), stage.request(5)).unwrap());
    until(&fleet, "they end", |fleet| all_ended(fleet, &all));
    fleet.conversation_begin(&all[2], "mine").unwrap();
    let mut query = TaskQuery {
        limit: 2,
        ..TaskQuery::default()
    };
    let mut seen = Vec::new();
    loop {
        let (rows, total) = fleet.tasks(&query).unwrap();
        assert_eq!(total, 5);
        let Some(last) = rows.last() else {
            break;
        };
        query.after = Some((last.changed_ms, last.name.clone()));
        seen.extend(rows);
    }
    assert!(seen.is_sorted_by(|a, b| a.changed_ms >= b.changed_ms), "{seen:?}");
    let mut found: Vec<RunId> = seen.into_iter().map(|row| row.name).collect();
    found.sort();
    let mut wanted = all.clone();
    wanted.sort();
    assert_eq!(found, wanted);
    let count = |query: TaskQuery| fleet.tasks(&TaskQuery { limit: 9, ..query }).unwrap().0.len();
    let of = |context: &str| TaskQuery {
        context: Some(context.to_owned()),
        ..TaskQuery::default()
    };
    assert_eq!(count(of("mine")), 1);
    assert_eq!(
        count(of(&format!("run-{}", all[0]))),
        1,
        "one that nobody began is its own"
    );
    assert_eq!(count(of("' OR 1=1 --")), 0);
    let prefix = Some("other-".to_owned());
    assert_eq!(
        count(TaskQuery {
            prefix,
            ..TaskQuery::default()
        }),
        0
    );
    let states = vec![RunState::Queued];
    assert_eq!(
        count(TaskQuery {
            states,
            ..TaskQuery::default()
        }),
        0
    );
    fleet.close();
}

#[test]
fn a_message_id_belongs_to_one_content_of_one_caller_until_it_is_known_that_it_reached_nothing() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let (run, digest, other) = (RunId::try_from("a".to_owned()).unwrap(), [1; 32], [2; 32]);
    let claim = |caller: &str, digest| fleet.message_claim(caller, "m", digest);
    assert_eq!(claim("token:a", &digest).unwrap(), MessageClaim::New);
    assert_eq!(claim("token:a", &digest).unwrap(), MessageClaim::InFlight);
    assert_eq!(claim("token:a", &other).unwrap_err().code, Code::RunKey);
    assert_eq!(
        claim("token:b", &other).unwrap(),
        MessageClaim::New,
        "ids are a caller's own"
    );
    fleet.message_settle("token:a", "m", Some(&run)).unwrap();
    assert_eq!(claim("token:a", &digest).unwrap(), MessageClaim::Delivered(run));
    assert_eq!(claim("token:a", &other).unwrap_err().code, Code::RunKey);
    fleet.message_settle("token:b", "m", None).unwrap();
    assert_eq!(claim("token:b", &digest).unwrap(), MessageClaim::New);
}
