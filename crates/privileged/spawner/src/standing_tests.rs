//! Which plans a sandbox can stand for, which fences are the same, and what of the host is looked at again.
use super::*;
use bastle_contract::{Argv, EnvName, LimitKind, LimitRule, Mount, RunId};

/// Without a limit that needs a group.
fn plan() -> LaunchPlan {
    LaunchPlan {
        limits: Vec::new(),
        ..crate::admit::tests::plan()
    }
}

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn mount(at: &str, kind: MountKind) -> Mount {
    Mount { at: path(at), kind }
}

fn bind(source: &str) -> MountKind {
    MountKind::Bind {
        source: path(source),
        access: Access::ReadOnly,
        owned: false,
    }
}

#[test]
fn a_plan_that_needs_its_run_to_be_known_does_not_stand() {
    assert!(can_stand(&plan()), "control");
    let with: [fn(&mut LaunchPlan); 5] = [
        |plan| plan.stdio = Stdio::Pty { rows: 1, cols: 1 },
        |plan| plan.attachments = Some(plan.policy.clone()),
        |plan| {
            plan.network = Network::Egress(bastle_contract::egress::Faces {
                transparent: Vec::new(),
            });
        },
        |plan| {
            plan.limits = vec![LimitRule {
                limit: LimitKind::Memory,
                value: 1 << 30,
                mechanism: LimitMechanism::CgroupV1,
            }];
        },
        |plan| {
            plan.mounts.push(mount(
                "/layered",
                MountKind::Overlay {
                    lower: path("/lower"),
                    layer: path("/layer"),
                    access: Access::ReadWrite,
                    owned: true,
                },
            ));
        },
    ];
    for (number, change) in with.into_iter().enumerate() {
        let mut plan = plan();
        change(&mut plan);
        assert!(!can_stand(&plan), "change {number}");
    }
}

#[test]
fn a_fence_is_the_same_whatever_runs_in_it_and_another_with_one_rule_more() {
    let one = plan();
    let mut other = one.clone();
    other.run = RunId::try_from("another".to_owned()).unwrap();
    other.argv = Argv::try_from(vec!["other".to_owned()]).unwrap();
    other.env = vec![(EnvName::try_from("A".to_owned()).unwrap(), "b".to_owned())];
    assert!(is_same_fence(&one, &other));
    let mut claimed = one.clone();
    Claim::of(&other).put_into(&mut claimed);
    assert_eq!(claimed, other, "a claim brings all that may be another");
    other.mounts.push(mount("/more", bind("/more")));
    assert!(!is_same_fence(&one, &other));
}

#[test]
fn what_is_covered_is_looked_at_where_the_host_has_it() {
    let mut plan = plan();
    plan.mounts = vec![
        mount("/project", bind("/home/ada/project")),
        mount("/project/inner", bind("/srv/inner")),
        mount("/tmp", MountKind::Scratch { mode: 0o1777 }),
    ];
    let found = |at: &str| on_host(&plan, &path(at)).map(|found| found.to_string());
    assert_eq!(found("/project/.env").as_deref(), Some("/home/ada/project/.env"));
    assert_eq!(found("/project/inner/.env").as_deref(), Some("/srv/inner/.env"));
    assert_eq!(found("/project").as_deref(), Some("/home/ada/project"));
    assert_eq!(found("/project-too/.env"), None);
    assert_eq!(found("/tmp/.env"), None, "it is the run's own");
}
