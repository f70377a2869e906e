//! What the ceiling refuses of a plan whose types are all right.
use super::*;
use crate::bounds::{Allowance, Caller, Reach};
use bastle_contract::{
    AbsPath, Access, Argv, Digest, EnvName, Guard, Mount, MountKind, Network, RunId, Stdio, Waiver,
};

pub(crate) fn plan() -> LaunchPlan {
    LaunchPlan {
        run: RunId::try_from("calm-otter".to_owned()).unwrap(),
        policy: Digest::try_from("0".repeat(64)).unwrap(),
        backend: BackendKind::Native,
        mounts: Vec::new(),
        landlock: Vec::new(),
        landlock_abi: 6,
        guard: Guard::default(),
        network: Network::None,
        limits: vec![rule(LimitKind::Memory, 1 << 30, LimitMechanism::CgroupV2)],
        env: Vec::new(),
        cwd: AbsPath::root(),
        argv: Argv::try_from(vec!["true".to_owned()]).unwrap(),
        stdio: Stdio::Pipes,
        debuggers: false,
        exec: None,
        attachments: None,
        guarantees: Vec::new(),
        waivers: Vec::new(),
    }
}

fn rule(limit: LimitKind, value: u64, mechanism: LimitMechanism) -> LimitRule {
    LimitRule {
        limit,
        value,
        mechanism,
    }
}

fn bounds() -> Bounds {
    Bounds {
        caller: Caller {
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
        },
        allowance: Allowance {
            reach: Reach::Below(vec![AbsPath::new("/srv/ws").unwrap()]),
            limits: vec![(LimitKind::Memory, 2 << 30)],
            backends: vec![BackendKind::Native],
            unconfined: false,
        },
    }
}

fn judged(plan: &LaunchPlan) -> Option<Code> {
    within(plan, &bounds()).err().map(|fault| fault.code)
}

#[test]
fn a_limit_that_is_missing_too_high_doubled_given_up_or_held_by_nothing_is_refused() {
    assert_eq!(judged(&plan()), None);
    let limits = |limits: Vec<LimitRule>| judged(&LaunchPlan { limits, ..plan() });
    let by = |mechanism| rule(LimitKind::Memory, 1 << 30, mechanism);
    let good = by(LimitMechanism::CgroupV1);
    let high = rule(LimitKind::Memory, 3 << 30, LimitMechanism::CgroupV2);
    for bad in [
        vec![],
        vec![high],
        vec![good, high],
        vec![by(LimitMechanism::Relay)],
    ] {
        assert_eq!(limits(bad.clone()), Some(Code::SpawnLimit), "{bad:?}");
    }
    assert_eq!(
        limits(vec![by(LimitMechanism::Waived)]),
        Some(Code::SpawnKind),
        "given up"
    );
    let waivers = vec![Waiver {
        limit: LimitKind::Pids,
    }];
    assert_eq!(judged(&LaunchPlan { waivers, ..plan() }), Some(Code::SpawnKind));
    assert_eq!(limits(vec![by(LimitMechanism::RlimitAndWatchdog)]), None);
}

#[test]
fn a_source_outside_the_roots_is_refused_wherever_it_hides_in_the_plan() {
    let at = |kind: MountKind| {
        let mounts = vec![Mount {
            at: AbsPath::new("/x").unwrap(),
            kind,
        }];
        judged(&LaunchPlan { mounts, ..plan() })
    };
    let path = |text: &str| AbsPath::new(text).unwrap();
    let bind = |source: &str, access| MountKind::Bind {
        source: path(source),
        access,
        owned: true,
    };
    let overlay = |lower: &str, layer: &str| MountKind::Overlay {
        lower: path(lower),
        layer: path(layer),
        owned: true,
    };
    assert_eq!(at(bind("/srv/ws/a", Access::ReadWrite)), None);
    assert_eq!(at(bind("/usr/bin", Access::ReadOnly)), None);
    assert_eq!(at(overlay("/srv/ws/a", "/srv/ws/b")), None);
    for bad in [
        bind("/usr/bin", Access::ReadWrite),
        bind("/root", Access::ReadOnly),
        bind("/srv/ws-evil", Access::ReadOnly),
        overlay("/root", "/srv/ws/b"),
        overlay("/srv/ws/a", "/usr/lib"),
        overlay("/srv/ws/a", "/var/lib"),
    ] {
        assert_eq!(at(bad.clone()), Some(Code::SpawnPath), "{bad:?}");
    }
}

#[test]
fn another_backend_and_a_flood_of_environment_are_refused() {
    let backend = BackendKind::Host;
    assert_eq!(judged(&LaunchPlan { backend, ..plan() }), Some(Code::SpawnKind));
    let name = EnvName::try_from("A".to_owned()).unwrap();
    let env = vec![(name, "x".repeat(MOST_ENVIRONMENT))];
    assert_eq!(judged(&LaunchPlan { env, ..plan() }), Some(Code::FenceStep));
}
