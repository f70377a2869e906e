//! What the own token of a run has from whoever started the run: the beginning of names, and how long it holds.
use super::*;

fn wish(role: Role) -> TokenWish {
    TokenWish::new(role, "test")
}

/// A run of this caller that asks for a token of its own, and its secret.
fn with_token(
    stage: &Stage,
    fleet: &Fleet,
    caller: &Caller,
    (name, turns): (Option<&str>, u64),
) -> (RunId, String) {
    let mut request = stage.request(1);
    request.runs[0].name = name.map(str::to_owned);
    request.runs[0].token = true;
    request.runs[0].max_turns = Some(turns);
    let report = fleet.spawn(caller, request).unwrap();
    let name = names(&report)[0].clone();
    until(fleet, "it runs", |fleet| {
        fleet.run(&name).is_ok_and(|run| run.state == RunState::Running)
    });
    (name, report.runs[0].token.clone().unwrap())
}

fn prefixed(fleet: &Fleet, prefix: &str) -> Caller {
    let wish = TokenWish {
        prefix: Some(prefix.to_owned()),
        ..wish(Role::Operator)
    };
    let (_, secret) = fleet.token_create(&owner(), wish).unwrap();
    fleet.authenticate(&secret).unwrap()
}

#[test]
fn the_own_token_of_a_run_names_children_only_as_its_starter_may() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let starter = prefixed(&fleet, "pa-");
    let (name, secret) = with_token(&stage, &fleet, &starter, (Some("pa-9"), 20));
    let own = fleet.authenticate(&secret).unwrap();
    let refused = |caller: &Caller, name: Option<&str>, prefix: Option<&str>| {
        let mut request = stage.request(1);
        request.prefix = prefix.map(str::to_owned);
        request.runs[0].name = name.map(str::to_owned);
        request.runs[0].max_turns = Some(1);
        let faults = fleet
            .spawn(caller, request)
            .map(|report| names(&report))
            .unwrap_err();
        faults[0].code
    };
    assert_eq!(refused(&own, Some("other-prod"), None), Code::TokenRefused);
    assert_eq!(refused(&own, None, Some("other")), Code::TokenRefused);
    // Whoever names nothing gets a name that is allowed; so does a child's child.
    let (child, secret) = with_token(&stage, &fleet, &own, (None, 5));
    assert!(child.as_str().starts_with("pa-"), "{child}");
    let below = fleet.authenticate(&secret).unwrap();
    assert_eq!(refused(&below, Some("other-prod"), None), Code::TokenRefused);
    with_token(&stage, &fleet, &below, (Some("pa-10"), 1));
    // A token that is made for the run later is held as well, whoever makes it.
    let manager = Caller {
        prefix: Some("pa-".to_owned()),
        ..Caller::new("token:manager", Role::Admin)
    };
    for maker in [&manager, &owner()] {
        let later = TokenWish {
            run: Some(name.clone()),
            ..wish(Role::Run)
        };
        let (made, _) = fleet.token_create(maker, later).unwrap();
        assert_eq!(made.prefix.as_deref(), Some("pa-"), "by {}", maker.id);
    }
    // A prefix that is the maker's own does not carry a token over to a run that is not.
    let (foreign, _) = with_token(&stage, &fleet, &owner(), (Some("other-1"), 20));
    let over = TokenWish {
        run: Some(foreign.clone()),
        prefix: Some("pa-".to_owned()),
        ..wish(Role::Run)
    };
    let code = fleet.token_create(&manager, over).unwrap_err().code;
    assert_eq!(code, Code::TokenRefused);
    let elsewhere = TokenWish {
        run: Some(name),
        prefix: Some("pb-".to_owned()),
        ..wish(Role::Run)
    };
    let code = fleet.token_create(&owner(), elsewhere).unwrap_err().code;
    assert_eq!(code, Code::UsageArgument);
    // The control: the run of somebody who is held to nothing names its children as it likes.
    let free = TokenWish {
        run: Some(foreign),
        ..wish(Role::Run)
    };
    let (made, secret) = fleet.token_create(&owner(), free).unwrap();
    assert_eq!(made.prefix, None);
    let free = fleet.authenticate(&secret).unwrap();
    with_token(&stage, &fleet, &free, (Some("any-name"), 1));
    stage.gate = None;
    until(&fleet, "all end", idle);
    fleet.close();
}

#[test]
fn the_own_token_of_a_run_ends_with_the_token_that_started_it() {
    let mut stage = Stage::new();
    stage.shut();
    let fleet = stage.fleet();
    let made = |lasts: Option<Duration>| {
        let wish = TokenWish {
            lasts,
            ..wish(Role::Operator)
        };
        let (token, secret) = fleet.token_create(&owner(), wish).unwrap();
        (token.id, fleet.authenticate(&secret).unwrap())
    };
    let (id, starter) = made(None);
    let (_, other) = made(None);
    let (_, own) = with_token(&stage, &fleet, &starter, (None, 20));
    let (_, below) = with_token(&stage, &fleet, &fleet.authenticate(&own).unwrap(), (None, 5));
    let (_, beside) = with_token(&stage, &fleet, &other, (None, 20));
    let (_, owners) = with_token(&stage, &fleet, &owner(), (None, 20));
    let holds = |secret: &str| fleet.authenticate(secret).is_some();
    assert!(holds(&own) && holds(&below) && holds(&beside) && holds(&owners));
    fleet.token_revoke(&owner(), &id).unwrap();
    assert!(!holds(&own), "the token of its run");
    assert!(!holds(&below), "and that of the run below it");
    assert!(holds(&beside) && holds(&owners), "nobody else's");
    let all = fleet.tokens().unwrap();
    let its = all.iter().find(|token| token.maker == starter.id).unwrap();
    assert!(!fleet.token_holds(&its.id).unwrap(), "{its:?}");
    // Time ends it as well.
    let (_, short) = made(Some(Duration::from_secs(2)));
    let (_, own) = with_token(&stage, &fleet, &short, (None, 20));
    until(&fleet, "its maker expires", |_| !holds(&own));
    stage.gate = None;
    until(&fleet, "all end", idle);
    fleet.close();
}
