//! Tokens, roles, questions, children.
use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;

/// What a child asks for.
type Change = Box<dyn Fn(&mut RunRequest)>;

fn wish(role: Role) -> TokenWish {
    TokenWish::new(role, "test")
}

#[test]
fn a_token_that_is_revoked_expired_cut_or_changed_is_nobody() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let (token, secret) = fleet.token_create(&owner(), wish(Role::Operator)).unwrap();
    let caller = fleet.authenticate(&secret).unwrap();
    assert_eq!(
        (caller.role, caller.id.as_str()),
        (Role::Operator, format!("token:{}", token.id).as_str())
    );
    for cut in 0..secret.len() {
        assert!(fleet.authenticate(&secret[..cut]).is_none(), "{cut}");
    }
    for at in 0..secret.len() {
        let mut bytes = secret.clone().into_bytes();
        bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(fleet.authenticate(&changed).is_none(), "{at}");
    }
    for bad in [
        "",
        "bst_",
        "bst__",
        &format!("{secret} "),
        &secret.to_uppercase(),
        &"x".repeat(1 << 20),
    ] {
        assert!(fleet.authenticate(bad).is_none());
    }
    let short = TokenWish {
        lasts: Some(Duration::from_millis(1)),
        ..wish(Role::Admin)
    };
    let (_, expired) = fleet.token_create(&owner(), short).unwrap();
    until(&fleet, "it expires", |fleet| {
        fleet.authenticate(&expired).is_none()
    });
    fleet.token_revoke(&owner(), &token.id).unwrap();
    assert!(fleet.authenticate(&secret).is_none());
    // No secret is in the records.
    for entry in std::fs::read_dir(stage.state().join("daemon")).unwrap().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap();
        let secret = secret.rsplit('_').next().unwrap().as_bytes();
        assert!(
            !bytes.windows(secret.len()).any(|window| window == secret),
            "{}",
            entry.path().display()
        );
    }
    let local = std::fs::read_to_string(fleet.token_file()).unwrap();
    assert_eq!(
        fleet.token_file().metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(fleet.authenticate(local.trim()).unwrap().role, Role::Admin);
    fleet.close();
    // It stays the same after a restart.
    let again = stage.fleet();
    assert!(again.authenticate(local.trim()).is_some());
    again.close();
}

#[test]
fn a_token_is_never_given_more_than_its_maker_has() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let part = |verbs: &[Verb]| Some(verbs.iter().copied().collect());
    let maker = Caller {
        verbs: part(&[Verb::Administer, Verb::Read]),
        ..Caller::new("token:part", Role::Admin)
    };
    let refused = |maker: &Caller, wish: TokenWish| fleet.token_create(maker, wish).unwrap_err().code;
    assert_eq!(
        refused(&maker, wish(Role::Admin)),
        Code::TokenRefused,
        "all verbs"
    );
    let more = TokenWish {
        verbs: part(&[Verb::Read, Verb::Spawn]),
        ..wish(Role::Operator)
    };
    assert_eq!(refused(&maker, more), Code::TokenRefused);
    let less = TokenWish {
        verbs: part(&[Verb::Read]),
        ..wish(Role::Viewer)
    };
    fleet.token_create(&maker, less).unwrap();
    let limited = Caller {
        prefix: Some("ci-".to_owned()),
        ..Caller::new("token:ci", Role::Admin)
    };
    for prefix in [None, Some("c"), Some("other-")] {
        let wish = TokenWish {
            prefix: prefix.map(str::to_owned),
            ..wish(Role::Viewer)
        };
        assert_eq!(refused(&limited, wish), Code::TokenRefused, "{prefix:?}");
    }
    let inner = TokenWish {
        prefix: Some("ci-a".to_owned()),
        ..wish(Role::Viewer)
    };
    fleet.token_create(&limited, inner).unwrap();
    // A ceiling is the meet with the maker's, and an admin has none.
    let ceiling = |text: &str| serde_json::from_str::<AuthorityCeiling>(text).unwrap();
    let bounded = Caller {
        ceiling: ceiling(r#"{"hosts": ["a.example"], "max_runs": 2}"#),
        ..owner()
    };
    let wider = TokenWish {
        ceiling: ceiling(r#"{"hosts": ["a.example", "b.example"], "max_runs": 9}"#),
        ..wish(Role::Operator)
    };
    let (made, secret) = fleet.token_create(&bounded, wider.clone()).unwrap();
    assert_eq!(made.ceiling, bounded.ceiling);
    assert_eq!(fleet.authenticate(&secret).unwrap().ceiling, bounded.ceiling);
    for role in [Role::Admin, Role::Run] {
        let wish = TokenWish {
            role,
            ..wider.clone()
        };
        assert_eq!(refused(&owner(), wish), Code::UsageArgument);
    }
    fleet.close();
}

#[test]
fn a_default_that_is_lowered_holds_for_the_next_request_and_a_queued_run_keeps_its_bounds() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let (_, secret) = fleet.token_create(&owner(), wish(Role::Operator)).unwrap();
    let operator = fleet.authenticate(&secret).unwrap();
    let report = fleet.spawn(&operator, stage.request(1)).unwrap();
    let name = names(&report)[0].clone();
    let bounds = fleet.spec(&name).unwrap().get().bounds.clone().unwrap();
    assert_eq!(bounds.request, None);
    assert_eq!(bounds.ceiling["net"], "allowlist");
    assert!(
        fleet
            .spec(&names(&fleet.spawn(&owner(), stage.request(1)).unwrap())[0])
            .unwrap()
            .get()
            .bounds
            .is_none()
    );
    let nowhere = json!({ "roots": [stage.home.path().join("elsewhere")] });
    fleet
        .change_ceiling(serde_json::from_value(nowhere).unwrap())
        .unwrap();
    assert_eq!(
        fleet.spawn(&operator, stage.request(1)).unwrap_err()[0].code,
        Code::TokenCeiling
    );
    fleet.spawn(&owner(), stage.request(1)).unwrap();
    drop(stage.gate.take());
    until(&fleet, "all end", idle);
    fleet.close();
}

#[test]
fn what_a_role_a_prefix_or_a_list_of_verbs_does_not_cover_is_refused() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let made = |wish: TokenWish| {
        let (_, secret) = fleet.token_create(&owner(), wish).unwrap();
        fleet.authenticate(&secret).unwrap()
    };
    let viewer = made(wish(Role::Viewer));
    let operator = made(wish(Role::Operator));
    let mine = made(TokenWish {
        prefix: Some("mine-".to_owned()),
        ..wish(Role::Operator)
    });
    let reader = made(TokenWish {
        verbs: Some([Verb::Read].into()),
        ..wish(Role::Admin)
    });
    assert!(fleet.spawn(&viewer, stage.request(1)).is_err());
    assert!(fleet.spawn(&reader, stage.request(1)).is_err());
    assert!(fleet.token_create(&operator, wish(Role::Admin)).is_err());
    assert!(fleet.profile_remove(&operator, "x").is_err());
    assert_eq!(
        fleet.spawn(&mine, stage.request(1)).unwrap_err()[0].code,
        Code::TokenRefused
    );
    let own = SpawnRequest {
        prefix: Some("mine-a".to_owned()),
        ..stage.request(1)
    };
    let own = names(&fleet.spawn(&mine, own).unwrap())[0].clone();
    let other = names(&fleet.spawn(&operator, stage.request(1)).unwrap())[0].clone();
    let by_name = |name: &RunId| Which::Name(name.as_str().to_owned());
    assert_eq!(
        fleet
            .stop(&mine, &by_name(&other), StopHow::Kill)
            .unwrap_err()
            .code,
        Code::TokenRefused
    );
    assert!(fleet.pause(&mine, &other).is_err());
    assert!(fleet.remove(&mine, &other, None).is_err());
    // Of all runs only its own are touched.
    let acted = fleet.stop(&mine, &Which::All, StopHow::Kill).unwrap();
    assert_eq!(acted.iter().map(|acted| &acted.name).collect::<Vec<_>>(), [&own]);
    stage.gate = None;
    until(&fleet, "all end", idle);
    fleet.close();
}

/// Plays a kept run that asks: its lock is held, its events are written here, and its socket records what it hears.
struct Asking {
    dir: RunDir,
    _lock: crate::runs::KeeperLock,
    heard: std::sync::mpsc::Receiver<serde_json::Value>,
}

impl Asking {
    fn new(stage: &Stage, name: &str) -> Self {
        let spec: bastle_contract::runs::LaunchSpec =
            serde_json::from_value(json!({"name": name, "argv": ["true"], "workspace": stage.project()}))
                .unwrap();
        let dir = RunDir::create(&stage.state(), &spec, 1).unwrap();
        let lock = dir.lock().unwrap().unwrap();
        let mut file = dir.file().unwrap();
        file.state = RunState::Running;
        file.keeper = Some(std::process::id());
        dir.put(&file).unwrap();
        let directory = crate::live::directory(&stage.state());
        std::fs::create_dir_all(&directory).unwrap();
        let listener = UnixListener::bind(directory.join(crate::live::name(dir.name()))).unwrap();
        let (tell, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                if reader.read_line(&mut line).is_ok() {
                    drop((&stream).write_all(b"{\"ok\":true,\"result\":null}\n"));
                    if tell.send(serde_json::from_str(&line).unwrap()).is_err() {
                        return;
                    }
                }
            }
        });
        Self {
            dir,
            _lock: lock,
            heard,
        }
    }

    fn ask(&self, id: &str, hash: &str) {
        let mut events = self.dir.events().unwrap();
        let data = json!({"id": id, "hash": hash, "text": "may I?", "about": {"host": "a.example"}});
        events.append("question", data).unwrap();
    }

    fn done(&self, stage: &Stage) {
        let directory = crate::live::directory(&stage.state());
        drop(std::fs::remove_file(
            directory.join(crate::live::name(self.dir.name())),
        ));
    }
}

#[test]
fn the_first_answer_wins_and_one_for_another_request_or_by_another_role_is_refused() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let run = Asking::new(&stage, &format!("asks-{}", tokens::random_word(6).unwrap()));
    run.ask("q1", "h1");
    let open = ApprovalQuery {
        state: Some(ApprovalState::Open),
        ..ApprovalQuery::default()
    };
    until(&fleet, "it asks", |fleet| {
        fleet.approvals(&open).unwrap().len() == 1
    });
    let asked = fleet.approvals(&open).unwrap().remove(0);
    assert_eq!(
        (asked.hash.as_str(), asked.text.as_str(), asked.about.as_str()),
        ("h1", "may I?", "request")
    );
    assert_eq!(
        fleet.run(run.dir.name()).unwrap().question.as_deref(),
        Some("may I?")
    );
    let say = |caller: &Caller, hash: Option<&str>| {
        fleet.answer(caller, asked.id, hash, Verdict::Approve, Scope::Once, None)
    };
    let operator = Caller {
        role: Role::Operator,
        ..owner()
    };
    assert_eq!(say(&operator, Some("h1")).unwrap_err().code, Code::TokenRefused);
    assert_eq!(say(&owner(), Some("h2")).unwrap_err().code, Code::ApprovalStale);
    assert!(run.heard.try_recv().is_err(), "a refused answer was told");
    // Many at once: exactly one is taken and told.
    let taken = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| say(&owner(), Some("h1")).is_ok()))
            .collect();
        all.into_iter()
            .filter(|_| true)
            .map(|one| one.join().unwrap())
            .filter(|ok| *ok)
            .count()
    });
    assert_eq!(taken, 1);
    let told = run.heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(
        told,
        json!({"op": "allow", "target": "q1", "scope": "once", "hash": "h1", "by": "local-person uid:0"})
    );
    assert!(run.heard.try_recv().is_err());
    let lease = fleet.approval(asked.id).unwrap();
    assert_eq!((lease.state, lease.uses), (ApprovalState::Approved, Some(1)));
    assert_eq!(lease.approver.as_deref(), Some("uid:0"));
    assert_eq!(lease.approver_kind, Some(PrincipalKind::LocalPerson));
    // Asked anew, the old one is over.
    run.ask("q2", "h3");
    until(&fleet, "it asks again", |fleet| {
        fleet.approvals(&open).unwrap().len() == 1
    });
    run.ask("q2", "h4");
    until(&fleet, "it asks something else", |fleet| {
        fleet.approvals(&open).unwrap()[0].hash == "h4"
    });
    let older = fleet.approvals(&ApprovalQuery::default()).unwrap()[1].clone();
    assert_eq!(older.state, ApprovalState::Stale);
    assert!(
        fleet
            .answer(&owner(), older.id, None, Verdict::Deny, Scope::Once, None)
            .is_err()
    );
    // When nobody listens any more, the answer is not taken as given.
    run.done(&stage);
    let last = fleet.approvals(&open).unwrap().remove(0);
    let gone = fleet.answer(
        &owner(),
        last.id,
        Some("h4"),
        Verdict::Approve,
        Scope::Session,
        None,
    );
    assert_eq!(gone.unwrap_err().code, Code::ApprovalStale);
    assert_eq!(fleet.approval(last.id).unwrap().state, ApprovalState::Stale);
    fleet.close();
}

#[test]
fn what_a_run_finds_unusual_about_itself_is_told_and_counted() {
    let stage = Stage::new();
    let fleet = stage.fleet();
    let run = Asking::new(&stage, &format!("bird-{}", tokens::random_word(6).unwrap()));
    let mut events = run.dir.events().unwrap();
    events.append("note", json!({"text": "all is well"})).unwrap();
    let finding = json!({"rule": "canary", "severity": "high", "action": "pause", "text": "seen"});
    events.append("anomaly", finding).unwrap();
    let found = EventFilter {
        kinds: vec!["anomaly".to_owned()],
        ..EventFilter::default()
    };
    until(&fleet, "it is told", |fleet| {
        !fleet.events(0, &found, 10).unwrap().is_empty()
    });
    let told = fleet.events(0, &found, 10).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].run.as_ref(), Some(run.dir.name()));
    let counted = fleet.metrics().unwrap().anomalies;
    assert_eq!((counted["high"], counted["low"]), (1, 0), "{counted:?}");
    run.done(&stage);
    fleet.close();
}

/// A parent of twenty turns that runs, and the secret of its own token.
fn parent(stage: &Stage, fleet: &Fleet) -> (RunId, String) {
    let mut parent = stage.request(1);
    parent.runs[0].token = true;
    parent.runs[0].max_turns = Some(20);
    parent.runs[0].policy = Some(json!({"fs": {"hide": ["./secret"]}}));
    let report = fleet.spawn(&owner(), parent).unwrap();
    let name = names(&report)[0].clone();
    let secret = report.runs[0].token.clone().unwrap();
    until(fleet, "it runs", |fleet| {
        state_of(fleet, &name) == RunState::Running
    });
    (name, secret)
}

#[test]
fn a_run_has_the_preset_of_its_command_and_a_child_that_of_its_parent() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let spawned = |caller: &Caller, argv: &str, preset: Option<&str>| {
        let mut request = stage.request(1);
        request.runs[0].argv = vec![argv.to_owned()];
        request.runs[0].preset = preset.map(str::to_owned);
        request.runs[0].max_turns = Some(2);
        let name = names(&fleet.spawn(caller, request).unwrap()).remove(0);
        fleet.spec(&name).unwrap().get().preset.clone()
    };
    assert_eq!(spawned(&owner(), "claude", None).as_deref(), Some("claude@1"));
    assert_eq!(spawned(&owner(), "claude", Some("none")), None);
    assert_eq!(spawned(&owner(), "claude", Some("dev")).as_deref(), Some("dev"));
    assert_eq!(spawned(&owner(), "true", None), None);
    // The project's own program of that name brings nothing.
    std::fs::write(format!("{}/claude", stage.project()), "").unwrap();
    assert_eq!(spawned(&owner(), "./claude", None), None);
    let (_, secret) = parent(&stage, &fleet);
    let child = fleet.authenticate(&secret).unwrap();
    assert_eq!(
        spawned(&child, "claude", None),
        None,
        "its parent runs `true` without a preset"
    );
    stage.gate = None;
    until(&fleet, "all end", idle);
    fleet.close();
}

#[test]
fn a_child_that_could_reach_further_than_its_parent_is_refused() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let (name, secret) = parent(&stage, &fleet);
    let caller = fleet.authenticate(&secret).unwrap();
    assert_eq!((caller.role, caller.run.as_ref()), (Role::Run, Some(&name)));
    assert!(!caller.may_on(Verb::Control, &name) && caller.may_on(Verb::Read, &name));
    let child = |change: &dyn Fn(&mut RunRequest)| {
        let mut request = stage.request(1);
        request.runs[0].max_turns = Some(5);
        change(&mut request.runs[0]);
        fleet.spawn(&caller, request)
    };
    let elsewhere = stage.home.path().join("other");
    std::fs::create_dir_all(elsewhere.join(".git")).unwrap();
    let elsewhere = elsewhere.to_str().unwrap().to_owned();
    let wider: Vec<(&str, Change)> = vec![
        (
            "another project",
            Box::new(move |run| run.workspace.clone_from(&elsewhere)),
        ),
        (
            "the project itself",
            Box::new(|run| run.mode = Some("in-place".to_owned())),
        ),
        (
            "the whole network",
            Box::new(|run| run.net = Some("open".to_owned())),
        ),
        (
            "another preset",
            Box::new(|run| run.preset = Some("dev".to_owned())),
        ),
        (
            "another parent",
            Box::new(|run| run.parent = Some(RunId::try_from("x".to_owned()).unwrap())),
        ),
        ("another's tree", Box::new(|run| run.from = Some("x".to_owned()))),
        (
            "a path to read",
            Box::new(|run| run.policy = Some(json!({"fs": {"read": ["/etc/ssl"]}}))),
        ),
        (
            "a host",
            Box::new(|run| run.policy = Some(json!({"net": {"allow": ["a.example"]}}))),
        ),
        (
            "a variable",
            Box::new(|run| run.policy = Some(json!({"env": {"pass": ["TERM"]}}))),
        ),
        ("more time", Box::new(|run| run.timeout = Some("16m".to_owned()))),
        ("more turns", Box::new(|run| run.max_turns = Some(21))),
    ];
    for (what, change) in &wider {
        let refused = child(change.as_ref());
        assert!(refused.is_err(), "{what} was granted");
    }
    let narrower = child(&|run| {
        run.timeout = Some("1m".to_owned());
        run.policy = Some(json!({"fs": {"hide": ["./more"]}, "net": {"deny": ["a.example"]}}));
    });
    let first = names(&narrower.unwrap())[0].clone();
    let spec = fleet.spec(&first).unwrap();
    let policy = spec.get().policy.clone().unwrap();
    assert_eq!(policy["fs"]["hide"], json!(["./secret", "./more"]));
    assert_eq!(spec.get().parent.as_ref(), Some(&name));
    // Twenty turns are the parent's: five and fourteen fit, one more does not.
    assert!(child(&|run| run.max_turns = Some(16)).is_err());
    child(&|run| run.max_turns = Some(14)).unwrap();
    child(&|run| run.max_turns = Some(1)).unwrap();
    assert!(child(&|run| run.max_turns = Some(1)).is_err());
    // When the parent ends, its token and its children do.
    stage.gate = None;
    until(&fleet, "all end", idle);
    assert!(fleet.authenticate(&secret).is_none());
    fleet.close();
}

/// What is recorded when a keeper tells that so much of a budget is used.
fn uses(fleet: &Fleet, run: &RunId, kind: &str, used: u64) {
    let event = bastle_contract::runs::RunEvent {
        seq: 1000,
        time_ms: 1,
        kind: "budget".to_owned(),
        data: json!({"kind": kind, "step": "warn", "used": used, "limit": used * 2}),
    };
    let recorded = fleet.inner.store.write(|db| {
        let at: i64 = db.query_row(
            "SELECT events_at FROM runs WHERE name = ?1",
            [run.as_str()],
            |row| row.get(0),
        )?;
        let fresh = ingest::Fresh {
            run,
            events: &[event],
            at: crate::store::uint(at),
        };
        ingest::take(db, &fresh, 1)
    });
    recorded.unwrap();
}

#[test]
fn every_budget_of_a_parent_is_charged_with_what_it_and_all_below_it_use() {
    for (key, kind, scale) in [
        ("tokens", "tokens", 1),
        ("requests", "requests", 1),
        ("bytesOut", "bytes-out", 1024),
        ("bytesIn", "bytes-in", 1024),
        ("connections", "connections", 1),
        ("usd", "cost", 1_000_000),
    ] {
        let mut stage = Stage::new();
        stage.shut();
        let fleet = stage.fleet();
        let ask = |caller: &Caller, amount: Option<u64>, turns: u64| {
            let mut request = stage.request(1);
            request.runs[0].token = true;
            request.runs[0].max_turns = Some(turns);
            request.runs[0].policy = amount.map(|amount| {
                let amount = match scale {
                    1024 => json!(format!("{amount}KiB")),
                    _ => json!(amount),
                };
                json!({"budget": {key: amount}})
            });
            fleet.spawn(caller, request).map(|report| {
                let name = names(&report)[0].clone();
                until(&fleet, "it runs", |fleet| {
                    state_of(fleet, &name) == RunState::Running
                });
                (name, report.runs[0].token.clone().unwrap())
            })
        };
        let (parent, secret) = ask(&owner(), Some(1000), 50).unwrap();
        let caller = fleet.authenticate(&secret).unwrap();
        // Its own use counts.
        uses(&fleet, &parent, kind, 300 * scale);
        let refused = ask(&caller, Some(701), 1).unwrap_err();
        assert_eq!(refused[0].code, Code::RunChild, "{key}: {refused:?}");
        // Who names none would have all of the parent's.
        assert!(ask(&caller, None, 1).is_err(), "{key}");
        // What was promised counts, also below the child.
        let (child, secret) = ask(&caller, Some(400), 5).unwrap();
        let below = fleet.authenticate(&secret).unwrap();
        assert!(ask(&caller, Some(301), 1).is_err(), "{key}: 300 are left");
        assert!(
            ask(&below, Some(401), 1).is_err(),
            "{key}: more than its own parent has"
        );
        // It has to fit into what every ancestor has left, not only into its own parent's.
        assert!(ask(&below, Some(301), 1).is_err(), "{key}: 300 are left above");
        let (grandchild, _) = ask(&below, Some(300), 1).unwrap();
        uses(&fleet, &child, kind, 400 * scale);
        // The child used all of its own, and may have handed on as much again: both are the parent's.
        uses(&fleet, &grandchild, kind, 200 * scale);
        assert!(
            ask(&caller, Some(101), 1).is_err(),
            "{key}: 300, 400 and 200 are used, 300 are promised"
        );
        stage.gate = None;
        until(&fleet, "all end", idle);
        // On record or not, what was used was used.
        let left = |fleet: &Fleet| {
            fleet
                .inner
                .store
                .read(|db| {
                    let wanted = |amount| children::Amounts::from([(kind_of(kind), amount), ("turns", 1)]);
                    let fits = |amount| children::left(db, &parent, &wanted(amount)).is_ok();
                    Ok((fits(100 * scale), fits(100 * scale + 1)))
                })
                .unwrap()
        };
        assert_eq!(left(&fleet), (true, false), "{key}: 900 are used");
        fleet.remove(&owner(), &grandchild, None).unwrap();
        fleet.remove(&owner(), &child, None).unwrap();
        until(&fleet, "they are gone", |fleet| fleet.run(&child).is_err());
        assert_eq!(left(&fleet), (true, false), "{key}: still");
        fleet.close();
    }
}

/// The name that the books have for it.
fn kind_of(kind: &str) -> &'static str {
    children::KINDS.into_iter().find(|known| *known == kind).unwrap()
}
