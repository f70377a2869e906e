//! Who gets the state directory, the queue, write scopes, keys, stopping.
use super::*;

/// What makes a request bad.
type Change = fn(&mut RunRequest);

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_named_the_first() {
    let stage = Stage::new();
    let first = stage.fleet();
    let fault = Fleet::open(stage.options()).err().unwrap();
    assert_eq!(fault.code, Code::StateBusy);
    assert!(fault.why.contains(&std::process::id().to_string()), "{fault}");
    let second = first.clone();
    first.close();
    // What is left of the first changes nothing any more.
    assert!(second.spawn(&owner(), stage.request(1)).is_err());
    stage.fleet().close();
}

#[test]
fn no_more_runs_live_at_once_than_may_and_the_rest_wait_for_their_turn() {
    let mut stage = Stage::new();
    stage.shut();
    let options = FleetOptions {
        max_parallel: 3,
        ..stage.options()
    };
    let fleet = Fleet::open(options).unwrap();
    let capped = SpawnRequest {
        max_parallel: Some(1),
        ..stage.request(3)
    };
    let capped = fleet.spawn(&owner(), capped).unwrap();
    let begun = names(&capped)[0].clone();
    until(&fleet, "the first runs", |fleet| {
        state_of(fleet, &begun) == RunState::Running
    });
    let urgent = SpawnRequest {
        priority: 5,
        ..stage.request(3)
    };
    let rest = fleet.spawn(&owner(), urgent).unwrap();
    let living = |fleet: &Fleet, batch: &str| {
        let states = fleet.batch(batch).unwrap().states;
        states.get(&RunState::Running).copied().unwrap_or(0)
    };
    until(&fleet, "three run", |fleet| {
        living(fleet, &capped.batch) + living(fleet, &rest.batch) == 3
    });
    assert_eq!(living(&fleet, &capped.batch), 1);
    assert_eq!(fleet.health().queued, 3);
    assert_eq!(
        capped.runs[0].name.as_ref().unwrap().as_str(),
        format!("run-{}-0", capped.batch)
    );
    stage.gate = None;
    let all: Vec<RunId> = names(&capped).into_iter().chain(names(&rest)).collect();
    until(&fleet, "all end", |fleet| all_ended(fleet, &all));
    assert_eq!(stage.begun().len(), 6);
    fleet.close();
}

#[test]
fn a_place_that_one_run_writes_is_refused_to_another_or_waited_for() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let project = stage.project();
    let at = |scope: &str, on_conflict| {
        let mut request = stage.request(1);
        request.on_conflict = on_conflict;
        request.runs[0].scopes = vec![scope.to_owned()];
        request
    };
    std::fs::create_dir(format!("{project}/a")).unwrap();
    std::fs::create_dir(format!("{project}/ab")).unwrap();
    std::os::unix::fs::symlink(format!("{project}/a"), format!("{project}/link")).unwrap();
    let first = fleet
        .spawn(&owner(), at(&format!("{project}/a"), OnConflict::Refuse))
        .unwrap();
    let holder = names(&first)[0].clone();
    for taken in ["a", "a/deeper/still", "link", "link/x", ""] {
        let scope = format!("{project}/{taken}");
        let faults = fleet
            .spawn(&owner(), at(scope.trim_end_matches('/'), OnConflict::Refuse))
            .unwrap_err();
        assert_eq!(faults[0].code, Code::RunConflict, "{taken}");
        assert!(faults[0].what.contains(holder.as_str()), "{}", faults[0]);
    }
    fleet
        .spawn(&owner(), at(&format!("{project}/ab"), OnConflict::Refuse))
        .unwrap();
    // In one request too.
    let mut twice = stage.request(2);
    twice
        .runs
        .iter_mut()
        .for_each(|run| run.mode = Some("in-place".to_owned()));
    assert_eq!(
        fleet.spawn(&owner(), twice).unwrap_err()[0].code,
        Code::RunConflict
    );
    let waits = fleet
        .spawn(&owner(), at(&format!("{project}/link"), OnConflict::Queue))
        .unwrap();
    let waiting = names(&waits)[0].clone();
    until(&fleet, "the first runs", |fleet| {
        state_of(fleet, &holder) == RunState::Running
    });
    let record = fleet.run(&waiting).unwrap();
    assert_eq!((record.state, record.waits_for), (RunState::Queued, Some(holder)));
    stage.gate = None;
    until(&fleet, "it got its turn", |fleet| {
        state_of(fleet, &waiting) == RunState::Completed
    });
    fleet.close();
}

#[test]
fn a_request_that_is_sent_again_under_its_key_gets_the_first_answer_and_another_one_is_refused() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let keyed = |count| SpawnRequest {
        key: Some("k".to_owned()),
        ..stage.request(count)
    };
    let first = fleet.spawn(&owner(), keyed(2)).unwrap();
    let again = fleet.spawn(&owner(), keyed(2)).unwrap();
    assert!(again.repeated && !first.repeated);
    assert_eq!(names(&again), names(&first));
    assert_eq!(fleet.spawn(&owner(), keyed(3)).unwrap_err()[0].code, Code::RunKey);
    // The key is the caller's own.
    let other = Caller {
        kind: PrincipalKind::TokenPerson,
        id: "uid:7".to_owned(),
        ..owner()
    };
    assert_ne!(fleet.spawn(&other, keyed(3)).unwrap().batch, first.batch);
    until(&fleet, "all end", idle);
    assert_eq!(stage.begun().len(), 5);
    fleet.close();
}

#[test]
fn of_a_request_with_one_bad_run_nothing_is_started_unless_it_says_so() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let bad: Vec<(&str, Change)> = vec![
        ("no project", |run| run.workspace = "/nowhere/at/all".to_owned()),
        ("the whole machine", |run| run.workspace = "/".to_owned()),
        ("a mode that is none", |run| run.mode = Some("chroot".to_owned())),
        ("a network that is none", |run| run.net = Some("all".to_owned())),
        ("no command", |run| run.argv = Vec::new()),
        ("a profile that is none", |run| {
            run.profile = Some("nobody".to_owned())
        }),
        ("a policy with an unknown key", |run| {
            run.policy = Some(json!({"sudo": true}))
        }),
        ("a policy that is a list", |run| run.policy = Some(json!([]))),
        ("an endless timeout", |run| {
            run.timeout = Some("for ever".to_owned())
        }),
        ("no turns", |run| run.max_turns = Some(0)),
        ("a name that is none", |run| run.name = Some("../x".to_owned())),
        ("a scope that is none", |run| {
            run.scopes = vec!["relative".to_owned()]
        }),
        ("a preset that is none", |run| {
            run.preset = Some("wide-open".to_owned())
        }),
    ];
    for (what, change) in bad {
        let mut request = stage.request(3);
        change(&mut request.runs[1]);
        let faults = fleet.spawn(&owner(), request.clone()).expect_err(what);
        assert!(faults[0].what.starts_with("run 1: "), "{what}: {}", faults[0]);
        assert!(
            fleet.runs(&RunQuery::default()).unwrap().items.is_empty(),
            "{what}"
        );
        assert!(fleet.batches(None, 0).unwrap().items.is_empty(), "{what}");
    }
    let mut request = stage.request(3);
    request.partial = true;
    request.runs[1].mode = Some("chroot".to_owned());
    let report = fleet.spawn(&owner(), request).unwrap();
    assert_eq!(names(&report).len(), 2);
    assert_eq!(report.runs[1].faults.len(), 1);
    for request in [
        stage.request(0),
        stage.request(MAX_BATCH + 1),
        SpawnRequest {
            key: Some(String::new()),
            ..stage.request(1)
        },
        SpawnRequest {
            prefix: Some("-x".to_owned()),
            ..stage.request(1)
        },
    ] {
        assert!(fleet.spawn(&owner(), request).is_err());
    }
    until(&fleet, "all end", idle);
    fleet.close();
}

#[test]
fn runs_that_wait_are_cancelled_by_name_label_batch_and_prefix_and_never_start() {
    let mut stage = Stage::new();
    stage.shut();
    let options = FleetOptions {
        max_parallel: 1,
        ..stage.options()
    };
    let fleet = Fleet::open(options).unwrap();
    let first = fleet.spawn(&owner(), stage.request(1)).unwrap();
    until(&fleet, "the first runs", |fleet| {
        state_of(fleet, &names(&first)[0]) == RunState::Running
    });
    let mut tagged = stage.request(1);
    tagged.tags = serde_json::from_value(json!({"task": "x"})).unwrap();
    let tagged = fleet.spawn(&owner(), tagged).unwrap();
    let prefixed = SpawnRequest {
        prefix: Some("odd".to_owned()),
        ..stage.request(2)
    };
    let prefixed = fleet.spawn(&owner(), prefixed).unwrap();
    let batch = fleet.spawn(&owner(), stage.request(2)).unwrap();
    let alone = fleet.spawn(&owner(), stage.request(1)).unwrap();
    let how = StopHow::Kill;
    let begin = names(&alone)[0].as_str().to_owned();
    for (which, count) in [
        (Which::Tag("task=y".to_owned()), 0),
        (Which::Tag("task=x".to_owned()), 1),
        (Which::Prefix("odd-".to_owned()), 2),
        (Which::Batch(batch.batch.clone()), 2),
        (Which::Name(begin[..begin.len() - 1].to_owned()), 1),
    ] {
        assert_eq!(
            fleet.stop(&owner(), &which, how).unwrap().len(),
            count,
            "{which:?}"
        );
    }
    for report in [&tagged, &prefixed, &batch, &alone] {
        for name in names(report) {
            assert_eq!(state_of(&fleet, &name), RunState::Cancelled);
        }
    }
    assert!(
        fleet
            .stop(&owner(), &Which::Name("nobody".to_owned()), how)
            .is_err()
    );
    assert!(
        fleet.stop(&owner(), &Which::Name(begin), how).is_err(),
        "one that ended"
    );
    stage.gate = None;
    until(&fleet, "the first ends", |fleet| all_ended(fleet, &names(&first)));
    assert_eq!(stage.begun().len(), 1);
    fleet.close();
}

#[test]
fn of_many_one_that_told_its_end_is_not_stopped_again_while_its_keeper_leaves() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let made = fleet.spawn(&owner(), stage.request(2)).unwrap();
    let (over, goes_on) = (names(&made)[0].clone(), names(&made)[1].clone());
    until(&fleet, "both run", |fleet| {
        names(&made)
            .iter()
            .all(|name| state_of(fleet, name) == RunState::Running)
    });
    // As it is between the last word of a keeper and its end.
    let told = fleet.inner.store.write(|db| {
        db.execute(
            "UPDATE runs SET state = 'completed' WHERE name = ?1",
            [over.as_str()],
        )?;
        Ok(())
    });
    told.unwrap();
    let which = Which::Batch(made.batch.clone());
    let stopped = fleet.stop(&owner(), &which, StopHow::Kill).unwrap();
    let expected = Acted {
        name: goes_on,
        fault: None,
    };
    assert_eq!(stopped, [expected]);
    stage.gate = None;
    until(&fleet, "both end", |fleet| all_ended(fleet, &names(&made)));
    fleet.close();
}

#[test]
fn what_could_not_be_recorded_once_is_recorded_later_without_another_word_of_the_run() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let change = |sql: &str| {
        let changed = fleet.inner.store.write(|db| Ok(db.execute_batch(sql)?));
        changed.unwrap();
    };
    change(
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.data LIKE '%running%' \
         BEGIN SELECT RAISE(ABORT, 'not now'); END",
    );
    let made = fleet.spawn(&owner(), stage.request(1)).unwrap();
    let name = names(&made)[0].clone();
    until(&fleet, "it is refused", |fleet| {
        fleet
            .inner
            .last_trouble()
            .is_some_and(|trouble| trouble.contains("not now"))
    });
    assert_ne!(state_of(&fleet, &name), RunState::Running, "control");
    change("DROP TRIGGER full");
    // Its keeper says nothing more until the gate is opened.
    until(&fleet, "it is recorded", |fleet| {
        state_of(fleet, &name) == RunState::Running
    });
    stage.gate = None;
    until(&fleet, "it ends", |fleet| all_ended(fleet, &names(&made)));
    fleet.close();
}

#[test]
fn whoever_follows_a_run_leaves_what_its_keeper_is_writing_alone() {
    let stage = Stage::new();
    let spec = json!({"name": "beside", "argv": ["true"], "workspace": stage.project()});
    let spec = serde_json::from_value(spec).unwrap();
    let dir = RunDir::create(&stage.state(), &spec, 1).unwrap();
    // This process is its keeper, in the middle of a line.
    let _lock = dir.lock().unwrap().unwrap();
    let mut file = dir.file().unwrap();
    (file.state, file.keeper) = (RunState::Building, Some(std::process::id()));
    dir.put(&file).unwrap();
    let line = json!({"seq": 1, "time_ms": 1, "kind": "state", "data": {"state": "running", "reason": null}});
    let line = format!("{line}\n");
    let (half, rest) = line.split_at(line.len() / 2);
    let mut events = File::create(dir.events_path()).unwrap();
    events.write_all(half.as_bytes()).unwrap();
    let fleet = stage.fleet();
    assert_eq!(std::fs::read_to_string(dir.events_path()).unwrap(), half);
    events.write_all(rest.as_bytes()).unwrap();
    until(&fleet, "it is recorded", |fleet| {
        state_of(fleet, dir.name()) == RunState::Running
    });
    fleet.close();
}

#[test]
fn events_have_one_order_for_all_and_are_read_on_from_any_number() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let (tell, told) = std::sync::mpsc::channel();
    fleet.on_events(Box::new(move |newest| {
        assert!(tell.send(newest).is_ok());
    }));
    let report = fleet.spawn(&owner(), stage.request(3)).unwrap();
    until(&fleet, "all end", |fleet| all_ended(fleet, &names(&report)));
    let newest = fleet.newest_event().unwrap();
    while told.recv_timeout(PATIENCE).unwrap() < newest {}
    let all = fleet.events(0, &EventFilter::default(), 1000).unwrap();
    let mut paged = Vec::new();
    while let Some(page) = Some(
        fleet
            .events(
                paged.last().map_or(0, |e: &StoredEvent| e.seq),
                &EventFilter::default(),
                2,
            )
            .unwrap(),
    ) && !page.is_empty()
    {
        paged.extend(page);
    }
    assert_eq!(all, paged);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let states = EventFilter {
        batch: Some(report.batch.clone()),
        kinds: vec!["state".to_owned()],
        ..EventFilter::default()
    };
    // Queued by the fleet; building, running and completed by the keeper.
    assert_eq!(fleet.events(0, &states, 1000).unwrap().len(), 12);
    assert_eq!(fleet.stats().unwrap().total.runs, 3);
    assert_eq!(fleet.metrics().unwrap().runs[&RunState::Completed], 3);
    fleet.close();
}

#[test]
fn a_million_events_are_opened_and_read_without_being_held_in_memory() {
    let stage = Stage::new();
    stage.fleet().close();
    let store = crate::store::Store::open(&stage.state().join("daemon")).unwrap();
    store
        .write(|db| {
            db.execute_batch(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) \
                 INSERT INTO events(run, run_seq, time_ms, kind, data) SELECT 'old', i, i, 'note', '{}' FROM n",
            )?;
            Ok(())
        })
        .unwrap();
    drop(store);
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let fleet = stage.fleet();
    let newest = fleet.newest_event().unwrap();
    assert!(newest > 1_000_000);
    let last = fleet.events(newest - 10, &EventFilter::default(), 100).unwrap();
    assert_eq!(last.len(), 10);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    fleet.close();
}

#[test]
fn whoever_sets_the_clock_lets_nothing_expire_and_removes_nothing() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let request = SpawnRequest {
        key: Some("once".to_owned()),
        ..stage.request(1)
    };
    let report = fleet.spawn(&owner(), request.clone()).unwrap();
    let name = names(&report)[0].clone();
    until(&fleet, "it ends", |fleet| {
        all_ended(fleet, std::slice::from_ref(&name))
    });
    let wish = TokenWish {
        lasts: Some(Duration::from_secs(3600)),
        ..TokenWish::new(Role::Viewer, "")
    };
    let (_, secret) = fleet.token_create(&owner(), wish).unwrap();
    let year = 365 * 24 * 3600 * 1000;
    for jump in [year, -year] {
        words::JUMP.set(jump);
        assert!(
            words::now_ms().abs_diff(words::steady_ms()) > 300 * 24 * 3600 * 1000,
            "control"
        );
        housekeeping::tidy_up(&fleet.inner);
        let keep = fleet.inner.options.keep_runs;
        assert_eq!(fleet.prune(&owner(), keep).unwrap(), []);
        assert!(fleet.run(&name).is_ok(), "{jump}");
        assert!(
            fleet.authenticate(&secret).is_some(),
            "{jump}: its hour is not over"
        );
        let again = fleet.spawn(&owner(), request.clone()).unwrap();
        assert!(again.repeated, "{jump}: the key is forgotten");
    }
    words::JUMP.set(0);
    fleet.close();
}
