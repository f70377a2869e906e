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
        landlock_parts: bastle_contract::LandlockParts::up_to(6),
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
            landlock_abi: 0,
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
    let waivers = vec![Waiver::Limit(LimitKind::Pids)];
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
        access: Access::ReadOnly,
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

#[test]
fn nothing_is_shown_again_for_writing_but_parts_of_an_overlay_and_of_what_may_be_written() {
    let path = |text: &str| AbsPath::new(text).unwrap();
    let bind = |access| MountKind::Bind {
        source: path("/srv/ws/a"),
        access,
        owned: true,
    };
    let overlay = |access| MountKind::Overlay {
        lower: path("/srv/ws/a"),
        layer: path("/srv/ws/b"),
        access,
        owned: true,
    };
    let again = |of: &str, access| MountKind::Again { of: path(of), access };
    let checked = |mounts: &[(&str, MountKind)]| {
        let mounts = mounts.iter().map(|(at, kind)| Mount {
            at: path(at),
            kind: kind.clone(),
        });
        let mounts = mounts.collect();
        LaunchPlan { mounts, ..plan() }.check().is_ok()
    };
    let (read, write) = (Access::ReadOnly, Access::ReadWrite);
    let part = || ("/x/sub", again("/x/sub", write));
    assert!(checked(&[("/x", overlay(read)), part()]));
    assert!(checked(&[("/x", overlay(write)), part()]));
    assert!(checked(&[("/x", bind(write)), part()]));
    assert!(checked(&[("/x", bind(read)), ("/x/sub", again("/x/sub", read))]));
    let within = [
        ("/x", overlay(read)),
        ("/x/.idea", again("/x/.idea", read)),
        ("/x/.idea/a", again("/x/.idea/a", write)),
    ];
    assert!(checked(&within));
    assert!(!checked(&[("/x", bind(read)), part()]));
    assert!(!checked(&[("/x", bind(read)), ("/y", again("/x/sub", write))]));
    assert!(!checked(&[
        ("/x", overlay(write)),
        ("/x/sub", bind(read)),
        ("/y", again("/x/sub/a", write))
    ]));
    assert!(!checked(&[
        ("/x", overlay(write)),
        ("/x/sub", MountKind::Mask),
        ("/y", again("/x/sub", write))
    ]));
    assert!(
        !checked(&[part(), ("/x/sub/later", overlay(write))]),
        "of nothing that is there by then"
    );
}

#[test]
fn a_plan_that_does_not_say_whether_its_overlay_may_be_written_is_no_plan() {
    let access = Access::ReadOnly;
    let overlay = MountKind::Overlay {
        lower: AbsPath::new("/srv/ws/a").unwrap(),
        layer: AbsPath::new("/srv/ws/b").unwrap(),
        access,
        owned: true,
    };
    let mut value = serde_json::to_value(&overlay).unwrap();
    let read = |value: &serde_json::Value| serde_json::from_value::<MountKind>(value.clone()).ok();
    assert_eq!(read(&value), Some(overlay), "control");
    value.as_object_mut().unwrap().remove("access");
    assert_eq!(read(&value), None);
}

#[test]
fn a_plan_that_asks_landlock_for_less_than_the_kernel_has_or_the_ceiling_wants_is_refused() {
    let asking = |abi| LaunchPlan {
        landlock_parts: LandlockParts::up_to(abi),
        ..plan()
    };
    let code = |abi, kernel| {
        whole(&asking(abi), LandlockParts::up_to(kernel))
            .err()
            .map(|fault| fault.code)
    };
    for abi in [2, 3, 5, 6] {
        assert_eq!(code(abi, abi), None, "control");
    }
    for (abi, kernel) in [(5, 6), (2, 3), (0, 6), (6, 5), (0, 0), (1, 1)] {
        assert_eq!(code(abi, kernel), Some(Code::FenceLandlock), "{abi} of {kernel}");
    }
    let within = |abi, least| {
        let mut bounds = bounds();
        bounds.allowance.landlock_abi = least;
        within(&asking(abi), &bounds).err().map(|fault| fault.code)
    };
    assert_eq!(within(6, 6), None);
    assert_eq!(within(2, 0), None);
    assert_eq!(within(5, 6), Some(Code::SpawnKind));
}

#[test]
fn landlock_is_given_up_by_name_only_where_the_kernel_has_none_and_only_within_the_ceiling() {
    let without = |waivers: &[Waiver]| LaunchPlan {
        landlock_parts: LandlockParts::NONE,
        waivers: waivers.to_vec(),
        ..plan()
    };
    let code = |waivers: &[Waiver], kernel| {
        let judged = whole(&without(waivers), LandlockParts::up_to(kernel));
        judged.err().map(|fault| fault.code)
    };
    let waived = [Waiver::LANDLOCK];
    assert_eq!(code(&waived, 0), None);
    assert_eq!(code(&waived, 1), None);
    assert_eq!(code(&waived, 2), Some(Code::FenceLandlock), "the kernel has it");
    assert_eq!(code(&[], 0), Some(Code::FenceLandlock), "not by name");
    let other = [Waiver::Limit(LimitKind::Memory)];
    assert_eq!(code(&other, 0), Some(Code::FenceLandlock), "another waiver");
    let ceiling = |unconfined| {
        let mut bounds = bounds();
        bounds.allowance.unconfined = unconfined;
        within(&without(&waived), &bounds).err().map(|fault| fault.code)
    };
    assert_eq!(ceiling(true), None);
    assert_eq!(ceiling(false), Some(Code::SpawnKind));
}
