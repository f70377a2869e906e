//! Built, found, suspended, counted, destroyed.
use crate::subject::{all, building, codes, command, fresh, sh};
use crate::support::{Limit, eventually};
use bastle_contract::{BackendKind, Code, RunId};
use bastle_control::backend::Operation;

#[test]
fn a_backend_without_a_fence_says_so_and_builds_nothing() {
    for subject in all() {
        let (probe, health) = (subject.backend.probe(), subject.backend.health());
        assert!(probe.available, "{}: {probe:?}", subject.shown());
        assert_eq!(
            (health.alive, health.faults),
            (0, Vec::new()),
            "{}",
            subject.shown()
        );
        let fenced = probe.fence.contains("landlock");
        assert_eq!(fenced, subject.backend.name() != BackendKind::Host, "{probe:?}");
        if !subject.builds {
            let request = subject.request(fresh().as_str(), "touch built\n");
            let refused = subject.backend.create(&request).err().expect("is refused");
            assert_eq!(codes(&refused), [Code::BackendUnsupported]);
            assert!(!subject.project().join("built").exists());
            assert_eq!(subject.backend.list().expect("can be told"), Vec::<RunId>::new());
        }
        assert!(subject.backend.get(&fresh()).is_err(), "nobody has this name");
        assert!(subject.backend.destroy_all().expect("can be told").is_empty());
    }
}

#[test]
fn a_sandbox_is_found_while_it_is_there_and_no_name_is_given_twice() {
    for subject in building() {
        let sandbox = subject.lives();
        let id = sandbox.id().clone();
        assert_eq!(
            subject.backend.list().expect("can be told"),
            std::slice::from_ref(&id)
        );
        assert_eq!(subject.backend.health().alive, 1, "{}", subject.shown());
        let taken = subject.request(id.as_str(), "touch second\n");
        assert!(subject.backend.create(&taken).is_err(), "the name is taken");
        // What cannot be built leaves nothing: a program that is not there is told by the command's end, a project that
        // is not there before.
        let mut nowhere = serde_json::to_value(subject.request(fresh().as_str(), "true\n")).expect("is JSON");
        nowhere["workspace"] = "/nowhere/at/all".into();
        let nowhere = serde_json::from_value(nowhere).expect("is a request");
        assert!(subject.backend.create(&nowhere).is_err());
        assert_eq!(
            subject.backend.list().expect("can be told"),
            std::slice::from_ref(&id)
        );
        let found = subject.backend.get(&id).expect("is there");
        assert!(found.is_alive().expect("can be told"));
        let told = found.capabilities().expect("can be told");
        let statement = told.statement.expect("it was probed before it began");
        assert!(statement.probes.len() > 10, "{statement:?}");
        let lacks: Vec<Operation> = told.lacks.iter().map(|(operation, _)| *operation).collect();
        match subject.mode {
            Some(_) => assert!(lacks.is_empty(), "{lacks:?}"),
            None => assert_eq!(lacks, [Operation::Snapshot, Operation::Restore]),
        }
        let gone = found.destroy(None).expect("holds no work");
        assert!(
            !gone.is_empty() && gone.iter().all(|path| !path.exists()),
            "{gone:?}"
        );
        assert!(!sandbox.is_alive().is_ok_and(|alive| alive));
        assert!(subject.backend.get(&id).is_err());
        assert!(found.destroy(None).is_err(), "nothing is destroyed twice");
    }
}

#[test]
fn a_sandbox_that_stands_still_does_nothing_and_one_that_is_over_cannot_be_moved() {
    for subject in building() {
        let sandbox = subject.runs("while :; do echo >> ticks; sleep 0.02; done\n");
        // One pipe, opened before: what it says of a stopped process comes from outside.
        let ticks = || std::fs::read(tick_file(&subject, sandbox.id())).map_or(0, |text| text.len());
        assert!(eventually(Limit::HANG, || ticks() > 2), "{}", subject.shown());
        sandbox.suspend().expect("lives");
        sandbox.suspend().expect("standing still twice is standing still");
        let refused = sandbox.exec(&command(&["true"])).expect_err("stands still");
        assert_eq!(codes(&refused), [Code::ExecBusy]);
        assert!(sandbox.is_alive().expect("can be told"));
        let before = ticks();
        // That nothing comes can only be seen after a while: the whole life of another one is many ticks long.
        let over = subject.runs("exit 7\n");
        assert!(eventually(Limit::HANG, || !over.is_alive().expect("can be told")));
        assert_eq!(ticks(), before, "{}", subject.shown());
        let standing = sandbox.resume().expect("lives");
        assert_eq!(standing.state, bastle_contract::runs::RunState::Running);
        assert!(
            eventually(Limit::HANG, || ticks() > before),
            "{}",
            subject.shown()
        );
        assert!(over.suspend().is_err() && over.resume().is_err());
        assert!(over.exec(&command(&["true"])).is_err());
    }
}

fn tick_file(subject: &crate::subject::Subject, id: &RunId) -> std::path::PathBuf {
    let state = subject
        .lab
        .home()
        .join(".local/state/bastle/work")
        .join(id.as_str());
    match subject.mode {
        Some("overlay") => state.join("layer/upper/ticks"),
        Some(_) => state.join("tree/ticks"),
        None => subject.project().join("ticks"),
    }
}

#[test]
fn what_a_sandbox_uses_is_told_while_it_lives_and_afterwards() {
    for subject in building() {
        let sandbox = subject.runs(
            "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read x < /dev/null; exec sleep 100000\n",
        );
        let busy = || sandbox.resource_usage().expect("can be told");
        assert!(eventually(Limit::HANG, || busy().cpu_ms > 0), "{:?}", busy());
        let now = busy();
        assert!(now.peak_memory > 0 && now.wall_ms > 0, "{now:?}");
        sh(sandbox.as_ref(), "true");
        let over = subject.runs("exit 0\n");
        assert!(eventually(Limit::HANG, || !over.is_alive().expect("can be told")));
        assert!(over.resource_usage().expect("is kept").wall_ms > 0);
    }
}
