//! A process with a fleet that is killed: nothing is lost, nothing is doubled, nothing is left.
use super::*;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

/// The key under which the holder asks.
const KEY: &str = "the-one";
/// How often the holder is killed at a random moment, when `BASTLE_KILLS` does not say.
const KILLS: u32 = 60;

/// Plays a daemon: asks for four runs under one key and waits for their end. Nothing to test by itself.
#[test]
fn holder() {
    let Some(home) = std::env::var_os("BASTLE_TEST_HOLDER").map(std::path::PathBuf::from) else {
        return;
    };
    let options = FleetOptions {
        program: Some(home.join("keeper")),
        ..FleetOptions::new(home.join("state"))
    };
    // The one before may not be gone yet.
    let Ok(fleet) = Fleet::open(options) else {
        return;
    };
    let one = RunRequest {
        argv: vec!["true".to_owned()],
        workspace: home.join("project").to_str().unwrap().to_owned(),
        ..RunRequest::default()
    };
    let request = SpawnRequest {
        key: Some(std::env::var("BASTLE_TEST_KEY").unwrap()),
        runs: vec![one; 4],
        ..SpawnRequest::default()
    };
    let report = fleet.spawn(&owner(), request).unwrap();
    until(&fleet, "all runs end", |fleet| all_ended(fleet, &names(&report)));
    if let Some(first) = names(&report).first() {
        // Once removed, it is missing for every later process under the same key.
        drop(fleet.remove(&owner(), first, None));
    }
}

/// A fleet that starts nothing yet.
fn held_back(stage: &Stage) -> Fleet {
    let fleet = stage.fleet();
    fleet
        .inner
        .max_parallel
        .store(0, std::sync::atomic::Ordering::Relaxed);
    fleet
}

fn hold(stage: &Stage, key: &str, point: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "fleet::tests::crash::holder", "--nocapture"])
        .env("BASTLE_TEST_HOLDER", stage.home.path())
        .env("BASTLE_TEST_KEY", key)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(point) = point {
        command.env("BASTLE_TEST_DIE_AT", point);
    }
    command.spawn().unwrap()
}

/// The fleet, once the keepers that were under way are seen.
fn settled(stage: &Stage, key: &str) -> (Fleet, Vec<RunId>) {
    let fleet = stage.fleet();
    let request = SpawnRequest {
        key: Some(key.to_owned()),
        ..stage.request(4)
    };
    let asked = names(&fleet.spawn(&owner(), request).unwrap());
    until(&fleet, "all runs end", |fleet| {
        let there: Vec<RunId> = asked
            .iter()
            .filter(|name| fleet.run(name).is_ok())
            .cloned()
            .collect();
        all_ended(fleet, &there) && fleet.health().queued == 0
    });
    (fleet, asked)
}

fn check(stage: &Stage, fleet: &Fleet, asked: &[RunId], what: &str) {
    let begun = stage.begun();
    let once: BTreeSet<&String> = begun.iter().collect();
    assert_eq!(begun.len(), once.len(), "{what}: a run began twice");
    for name in asked {
        assert!(
            once.contains(&name.as_str().to_owned()),
            "{what}: {name} never began"
        );
        match fleet.run(name) {
            Ok(record) => assert_eq!(record.state, RunState::Completed, "{what}: {name}"),
            // Only the first is ever removed, and then all of it.
            Err(_) => {
                assert_eq!(Some(name), asked.first(), "{what}: {name} is lost");
                assert!(
                    RunDir::open(&stage.state(), name).is_err(),
                    "{what}: {name} left its directory"
                );
            }
        }
    }
    let all = RunQuery {
        limit: 1000,
        ..RunQuery::default()
    };
    let rows = fleet.runs(&all).unwrap().items.len();
    assert_eq!(
        RunDir::all(&stage.state()).len(),
        rows,
        "{what}: a directory without a row, or a row without one"
    );
    let left: i64 = fleet
        .inner
        .store
        .read(|db| Ok(db.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?))
        .unwrap();
    assert_eq!(left, 0, "{what}: something in the journal was not finished");
}

#[test]
fn a_daemon_that_is_killed_at_any_step_leaves_no_ghost_no_orphan_and_no_second_run() {
    for point in [
        "spawn-committed",
        "starting-committed",
        "directory-made",
        "keeper-started",
        "remove-committed",
    ] {
        let stage = Stage::new();
        let status = hold(&stage, KEY, Some(point)).wait().unwrap();
        assert!(!status.success(), "{point} was never reached");
        let (fleet, asked) = settled(&stage, KEY);
        until(&fleet, "the journal is empty", |fleet| {
            fleet
                .inner
                .store
                .read(|db| Ok(db.query_row("SELECT count(*) FROM journal", [], |row| row.get::<_, i64>(0))?))
                .unwrap()
                == 0
        });
        check(&stage, &fleet, &asked, point);
        assert_eq!(stage.begun().len(), 4, "{point}");
        fleet.close();
    }
}

#[test]
fn a_daemon_that_is_killed_at_random_moments_loses_and_doubles_nothing() {
    let stage = Stage::new();
    let wanted: u32 = std::env::var("BASTLE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let (mut kills, mut rounds) = (0, 0);
    while kills < wanted {
        let key = format!("round-{rounds}");
        for _ in 0..5 {
            let mut child = hold(&stage, &key, None);
            let wait = getrandom::u32().unwrap() % 120;
            let pid = rustix::process::Pid::from_child(&child);
            let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            let mut polled = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
            let timeout = rustix::time::Timespec::try_from(Duration::from_millis(u64::from(wait))).unwrap();
            rustix::event::poll(&mut polled, Some(&timeout)).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        let (fleet, asked) = settled(&stage, &key);
        until(&fleet, "the journal is empty", |fleet| {
            fleet
                .inner
                .store
                .read(|db| Ok(db.query_row("SELECT count(*) FROM journal", [], |row| row.get::<_, i64>(0))?))
                .unwrap()
                == 0
        });
        check(&stage, &fleet, &asked, &key);
        assert_eq!(stage.begun().len(), 4 * (rounds + 1), "{key}");
        fleet.close();
        rounds += 1;
    }
    println!("{kills} kills in {rounds} rounds");
    assert!(rounds >= 1);
}

#[test]
fn runs_that_outlived_their_daemon_are_found_again_and_one_whose_keeper_died_is_lost() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let report = fleet.spawn(&owner(), stage.request(2)).unwrap();
    let asked = names(&report);
    until(&fleet, "both run", |fleet| {
        asked
            .iter()
            .all(|name| state_of(fleet, name) == RunState::Running)
    });
    fleet.close();
    // One keeper dies while nobody looks.
    let keeper = RunDir::open(&stage.state(), &asked[1])
        .unwrap()
        .file()
        .unwrap()
        .keeper
        .unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let mut polled = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut polled, None).unwrap();

    let fleet = stage.fleet();
    assert_eq!(state_of(&fleet, &asked[0]), RunState::Running);
    let lost = fleet.run(&asked[1]).unwrap();
    assert_eq!(
        (lost.state, lost.reason.as_deref()),
        (RunState::Failed, Some("lost"))
    );
    // The other one is followed to its end, and its events are there once.
    stage.gate = None;
    until(&fleet, "the other ends", |fleet| {
        state_of(fleet, &asked[0]) == RunState::Completed
    });
    let filter = EventFilter {
        run: Some(asked[0].clone()),
        ..EventFilter::default()
    };
    let own: Vec<u64> = fleet
        .events(0, &filter, 100)
        .unwrap()
        .iter()
        .filter_map(|event| event.run_seq)
        .collect();
    assert_eq!(own, [1, 2, 3]);
    assert_eq!(stage.begun().len(), 2);
    fleet.close();
}

#[test]
fn a_run_that_was_started_beside_the_daemon_is_taken_in() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let spec: bastle_contract::runs::LaunchSpec = serde_json::from_value(
        json!({"name": "beside", "argv": ["true"], "workspace": stage.project(), "tags": {"who": "me"}}),
    )
    .unwrap();
    let dir = RunDir::create(&stage.state(), &spec, 7).unwrap();
    let keeper = Command::new(stage.home.path().join("keeper"))
        .args(["__keep".as_ref(), stage.state().as_os_str(), "beside".as_ref()])
        .stdout(Stdio::null())
        .spawn();
    until(&fleet, "it is seen to its end", |fleet| {
        fleet
            .run(dir.name())
            .is_ok_and(|record| record.state == RunState::Completed)
    });
    keeper.unwrap().wait().unwrap();
    let tagged = RunQuery {
        tag: Some("who=me".to_owned()),
        ..RunQuery::default()
    };
    assert_eq!(fleet.runs(&tagged).unwrap().items.len(), 1);
    until(&fleet, "it has ended", |fleet| fleet.health().living == 0);
    fleet.close();
}

#[test]
fn a_run_whose_keeper_came_late_is_followed_to_its_end_and_not_refused_as_another_one() {
    let stage = Stage::new();
    let fleet = held_back(&stage);
    let asked = names(&fleet.spawn(&owner(), stage.request(1)).unwrap());
    // What a daemon leaves that is killed right after it started a keeper: the next one finds the lock free, puts the
    // run back into the queue, and only then the keeper begins.
    let spec = fleet.inner.store.read(|db| rows::spec(db, &asked[0])).unwrap();
    RunDir::create(&stage.state(), &spec, 7).unwrap();
    let status = Command::new(stage.home.path().join("keeper"))
        .args([
            "__keep".as_ref(),
            stage.state().as_os_str(),
            asked[0].as_str().as_ref(),
        ])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    fleet
        .inner
        .max_parallel
        .store(4, std::sync::atomic::Ordering::Relaxed);
    fleet.inner.wake_queue();
    until(&fleet, "it is seen to its end", |fleet| {
        state_of(fleet, &asked[0]).is_final() && fleet.health().living == 0
    });
    let record = fleet.run(&asked[0]).unwrap();
    assert_eq!(record.state, RunState::Completed, "{:?}", record.fault);
    let filter = EventFilter {
        run: Some(asked[0].clone()),
        ..EventFilter::default()
    };
    let events = fleet.events(0, &filter, 100).unwrap();
    let own: Vec<u64> = events.iter().filter_map(|event| event.run_seq).collect();
    assert_eq!(own, [1, 2, 3]);
    assert_eq!(stage.begun().len(), 1, "it began twice");
    fleet.close();
}

#[test]
fn a_run_that_ends_because_it_was_told_to_is_not_refused_as_one_that_had_ended() {
    for how in [
        StopHow::Stop {
            grace: Duration::ZERO,
        },
        StopHow::Kill,
    ] {
        let stage = Stage::new();
        let fleet = held_back(&stage);
        let asked = names(&fleet.spawn(&owner(), stage.request(1)).unwrap()).remove(0);
        let phase = |word: &str| {
            let sql = format!("UPDATE runs SET phase = '{word}'");
            fleet.inner.store.write(|db| Ok(db.execute_batch(&sql)?)).unwrap();
            fleet.inner.told();
        };
        // A keeper that has its lock and has not yet written which process it is.
        let spec = fleet.inner.store.read(|db| rows::spec(db, &asked)).unwrap();
        let dir = RunDir::create(&stage.state(), &spec, 7).unwrap();
        let lock = keepers::kept(&dir).unwrap();
        phase("kept");
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| acting::end_one(&fleet.inner, &asked, how));
            until(&fleet, "it is told to leave", |_| {
                dir.path().join("stop").exists()
            });
            phase("ended");
            assert_eq!(stopping.join().unwrap(), Ok(()), "{how:?}");
        });
        drop(lock);
        fleet.close();
    }
}

#[test]
fn an_errand_that_fails_holds_up_no_other_and_one_that_is_in_hand_is_left_alone() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let asked = names(&fleet.spawn(&owner(), stage.request(3)).unwrap());
    until(&fleet, "all runs end", |fleet| {
        all_ended(fleet, &asked) && fleet.health().living == 0
    });
    let act = "remove ";
    let note = |name: &RunId| {
        let noted = fleet.inner.store.write(|db| {
            db.execute(
                "INSERT INTO journal(time_ms, run, act) VALUES (0, ?1, ?2)",
                [name.as_str(), act],
            )?;
            Ok(())
        });
        noted.unwrap();
    };
    let in_hand = fleet.inner.take_in_hand(&asked[1], act);
    let refuse = fleet.inner.store.write(|db| {
        Ok(db.execute_batch(&format!(
            "CREATE TRIGGER kept BEFORE DELETE ON runs WHEN OLD.name = '{}' BEGIN SELECT RAISE(ABORT, 'kept'); END",
            asked[0]
        ))?)
    });
    refuse.unwrap();
    asked.iter().for_each(note);
    let done = super::super::errands::all(&fleet.inner);
    assert!(done.is_err_and(|fault| fault.to_string().contains("kept")));
    let there = || {
        asked
            .iter()
            .map(|name| fleet.run(name).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        there(),
        [true, true, false],
        "the third was not held up, the second left alone"
    );
    drop(in_hand);
    let drop_it = fleet
        .inner
        .store
        .write(|db| Ok(db.execute_batch("DROP TRIGGER kept")?));
    drop_it.unwrap();
    super::super::errands::all(&fleet.inner).unwrap();
    assert_eq!(there(), [false, false, false]);
    fleet.close();
}
