//! Limits, environment and the dry run of a plan.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Flags, Project, User};
use bastle_contract::{
    Access, Authority, CgroupFacts, CgroupFlavour, CgroupProblem, Code, Controller, EnvName, Guarantee,
    HostFacts, Lack, LandlockParts, LimitKind, LimitMechanism, UnitManager, Waiver,
};
use bastle_policy::{At, LaunchRequest, LayerKind, NetMode, names, plan, preset, render_dry_run};
use common::launch::{at, disk, grant, host, is_bind, planned, request};
use common::{layer, merged, path, with_default};
use std::collections::BTreeMap;

fn limited(
    text: &str,
    host: &HostFacts,
    waivers: &[LimitKind],
) -> Result<BTreeMap<LimitKind, LimitMechanism>, Code> {
    let policy = merged(&with_default(&[(User, text)]));
    let waivers = waivers.iter().map(|limit| Waiver::Limit(*limit)).collect();
    let grant = grant(
        &policy,
        LaunchRequest {
            waivers,
            ..request(&["ls"])
        },
    );
    let planned = plan(grant, host, &disk(&policy, &[])).map_err(|f| f.code)?;
    Ok(planned
        .plan
        .limits
        .iter()
        .map(|rule| (rule.limit, rule.mechanism))
        .collect())
}

#[test]
fn every_limit_has_something_that_holds_it_or_stops_the_launch() {
    let all = r#"{"version": 1, "limits": {"timeout": "1m", "cpuTime": "1m", "cpu": 2, "memory": "1G", "pids": 9, "openFiles": 99, "disk": "1G",
        "inodes": 99, "files": 9, "bytesWritten": "1M", "output": "1M"}}"#;
    let bare = limited(all, &host(), &[]).unwrap();
    assert_eq!(bare[&LimitKind::Cpu], LimitMechanism::Affinity);
    assert_eq!(bare[&LimitKind::Memory], LimitMechanism::RlimitAndWatchdog);
    assert_eq!(bare[&LimitKind::Pids], LimitMechanism::Rlimit);
    assert_eq!(bare[&LimitKind::Disk], LimitMechanism::TmpfsAndWriteGuard);
    assert_eq!(bare.len(), LimitKind::ALL.len());
    let controllers = [Controller::Cpu, Controller::Memory, Controller::Pids]
        .map(|c| (c, path("/sys/fs/cgroup/x")))
        .to_vec();
    let cgroups = HostFacts {
        cgroup: CgroupFacts {
            flavour: CgroupFlavour::V2,
            controllers,
            unified: None,
            problem: None,
        },
        ..host()
    };
    let v2 = limited(all, &cgroups, &[]).unwrap();
    for kind in [LimitKind::Cpu, LimitKind::Memory, LimitKind::Pids] {
        assert_eq!(v2[&kind], LimitMechanism::CgroupV2, "{kind}");
    }
    assert_eq!(
        limited(r#"{"version": 1}"#, &host(), &[]).unwrap()[&LimitKind::Disk],
        LimitMechanism::Tmpfs,
        "scratch is always limited"
    );
}

#[test]
fn a_limit_that_cannot_be_held_stops_the_launch_unless_it_is_waived_by_name() {
    for bad in [r#"{"cpu": 1.5}"#, r#"{"cpu": 64}"#] {
        let text = format!(r#"{{"version": 1, "limits": {bad}}}"#);
        assert_eq!(limited(&text, &host(), &[]), Err(Code::LimitUnheld), "{bad}");
        assert_eq!(
            limited(&text, &host(), &[LimitKind::Memory]),
            Err(Code::LimitUnheld),
            "another waiver does not help"
        );
        assert_eq!(
            limited(&text, &host(), &[LimitKind::Cpu]).unwrap()[&LimitKind::Cpu],
            LimitMechanism::Waived
        );
    }
    for bad in [
        r#"{"pids": 1}"#,
        r#"{"memory": "1K"}"#,
        r#"{"timeout": "0s"}"#,
        r#"{"timeout": "400d"}"#,
        r#"{"openFiles": 1}"#,
    ] {
        let text = format!(r#"{{"version": 1, "limits": {bad}}}"#);
        assert_eq!(limited(&text, &host(), &[]), Err(Code::LimitInvalid), "{bad}");
    }
}

#[test]
fn a_limit_that_no_cgroup_holds_is_refused_with_the_cause_and_what_removes_it() {
    let unit = CgroupFacts {
        problem: Some(CgroupProblem::NotDelegated {
            unit: "session-2.scope".to_owned(),
            manager: UnitManager::System,
            root: false,
        }),
        ..CgroupFacts::none()
    };
    let undelegated = HostFacts {
        cgroup: unit,
        ..host()
    };
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "limits": {"cpu": 0.5}}"#,
    )]));
    let refused = |host: &HostFacts| {
        let planned = plan(grant(&policy, request(&["ls"])), host, &disk(&policy, &[]));
        planned.map(|_| ()).unwrap_err()
    };
    let fault = refused(&undelegated);
    assert_eq!(fault.code, Code::LimitUnheld);
    assert!(fault.why.contains("session-2.scope of systemd"), "{fault:?}");
    assert_eq!(
        fault.help[0],
        "systemd-run --user --scope -p Delegate=yes bastle run -- CMD"
    );
}

#[test]
fn the_processes_of_user_id_0_of_a_container_are_not_held_by_an_rlimit() {
    let pids = r#"{"version": 1, "limits": {"pids": 50}}"#;
    let zero = |lack| HostFacts {
        authority: Authority::UserZero { lack },
        ..host()
    };
    let container = zero(Lack::Capabilities {
        names: vec!["CAP_SYS_ADMIN".to_owned()],
    });
    assert_eq!(limited(pids, &container, &[]), Err(Code::LimitUnheld));
    let namespace = zero(Lack::UnmappedIds);
    assert_eq!(
        limited(pids, &namespace, &[]).unwrap()[&LimitKind::Pids],
        LimitMechanism::Rlimit,
        "to the kernel it is another user"
    );
    let group = HostFacts {
        cgroup: CgroupFacts {
            flavour: CgroupFlavour::V1,
            controllers: vec![(Controller::Pids, path("/sys/fs/cgroup/pids"))],
            unified: None,
            problem: None,
        },
        ..container
    };
    assert_eq!(
        limited(r#"{"version": 1}"#, &group, &[]).unwrap()[&LimitKind::Pids],
        LimitMechanism::CgroupV1,
        "that of a preset too"
    );
}

#[test]
fn a_run_that_states_no_memory_gets_four_fifths_of_the_host_and_a_stated_value_wins() {
    let memory = |text: &str, host: &HostFacts| {
        let policy = merged(&with_default(&[(User, text)]));
        let planned = plan(grant(&policy, request(&["ls"])), host, &disk(&policy, &[])).unwrap();
        planned
            .plan
            .limits
            .iter()
            .find(|rule| rule.limit == LimitKind::Memory)
            .map(|rule| (rule.value, rule.mechanism))
    };
    let none = r#"{"version": 1}"#;
    let share = (16_u64 << 30) / 5 * 4;
    assert_eq!(memory(none, &host()), Some((share, LimitMechanism::Watchdog)));
    let controllers = vec![(Controller::Memory, path("/sys/fs/cgroup/x"))];
    let with = |flavour| HostFacts {
        cgroup: CgroupFacts {
            flavour,
            controllers: controllers.clone(),
            unified: None,
            problem: None,
        },
        ..host()
    };
    assert_eq!(
        memory(none, &with(CgroupFlavour::V2)),
        Some((share, LimitMechanism::CgroupV2))
    );
    assert_eq!(
        memory(none, &with(CgroupFlavour::V1)),
        Some((share, LimitMechanism::Watchdog)),
        "joining an old-style group costs too much for a default"
    );
    let stated = r#"{"version": 1, "limits": {"memory": "64GiB"}}"#;
    assert_eq!(
        memory(stated, &with(CgroupFlavour::V1)),
        Some((64 << 30, LimitMechanism::CgroupV1)),
        "also a larger one"
    );
    let unknown = HostFacts { memory: 0, ..host() };
    assert_eq!(
        memory(none, &unknown),
        None,
        "nothing is claimed that nobody knows"
    );
}

#[test]
fn every_shipped_preset_has_every_default_limit() {
    let limits = |name: &str| -> BTreeMap<LimitKind, u64> {
        let policy = merged(&[bastle_policy::floor().unwrap(), preset(name).unwrap()]);
        let planned = plan(grant(&policy, request(&["ls"])), &host(), &disk(&policy, &[])).unwrap();
        let limits = planned.plan.limits.iter();
        limits.map(|rule| (rule.limit, rule.value)).collect()
    };
    let default = limits("default");
    for kind in [LimitKind::Pids, LimitKind::FileSize, LimitKind::DiskReserve] {
        assert!(default.contains_key(&kind), "control: {kind}");
    }
    for name in names() {
        let found = limits(name);
        for (kind, value) in &default {
            let expected = match (name, kind) {
                // It states these itself.
                ("safe-unrestricted", LimitKind::Memory) => 8 << 30,
                ("safe-unrestricted", LimitKind::Disk) => 20 << 30,
                ("safe-unrestricted", LimitKind::Output) => 256 << 20,
                _ => *value,
            };
            assert_eq!(found.get(kind), Some(&expected), "{name}: {kind}");
        }
    }
}

#[test]
fn of_two_reserves_the_larger_one_holds_and_a_preset_takes_a_share_of_a_small_disk() {
    let reserve = |layers: &[(LayerKind, &str)]| {
        let policy = merged(&with_default(layers));
        let planned = plan(grant(&policy, request(&["ls"])), &host(), &disk(&policy, &[])).unwrap();
        planned
            .plan
            .limits
            .iter()
            .find(|rule| rule.limit == LimitKind::DiskReserve)
            .map(|rule| (rule.value, rule.mechanism))
            .unwrap()
    };
    assert_eq!(reserve(&[]), (1 << 30, LimitMechanism::FreeSpaceShare));
    let user = (User, r#"{"version": 1, "limits": {"diskReserve": "2GiB"}}"#);
    assert_eq!(reserve(&[user]), (2 << 30, LimitMechanism::FreeSpace));
    let less = (Project, r#"{"version": 1, "limits": {"diskReserve": "1M"}}"#);
    assert_eq!(reserve(&[user, less]).0, 2 << 30, "a project does not lower it");
    let more = (Project, r#"{"version": 1, "limits": {"diskReserve": "3GiB"}}"#);
    assert_eq!(reserve(&[user, more]).0, 3 << 30);
    let lower = (User, r#"{"version": 1, "limits": {"diskReserve": "1M"}}"#);
    assert_eq!(
        reserve(&[lower]).0,
        1 << 20,
        "control: the person's own word does"
    );
}

#[test]
fn the_private_directories_of_a_small_host_are_a_quarter_of_its_memory() {
    let size = |memory| {
        let policy = merged(&with_default(&[]));
        let host = HostFacts { memory, ..host() };
        let planned = plan(grant(&policy, request(&["ls"])), &host, &disk(&policy, &[])).unwrap();
        let rule = planned
            .plan
            .limits
            .iter()
            .find(|rule| rule.limit == LimitKind::Disk);
        rule.map(|rule| rule.value).unwrap()
    };
    assert_eq!(size(64 << 30), 4 << 30);
    assert_eq!(size(2 << 30), 512 << 20);
}

#[test]
fn a_host_without_the_fences_parts_is_refused() {
    let policy = merged(&with_default(&[]));
    let fs = disk(&policy, &[]);
    let old = HostFacts {
        landlock_abi: 1,
        landlock: LandlockParts::up_to(1),
        ..host()
    };
    assert_eq!(
        plan(grant(&policy, request(&["ls"])), &old, &fs)
            .map(|_| ())
            .unwrap_err()
            .code,
        Code::FenceLandlock
    );
    let deaf = HostFacts {
        seccomp_notify: false,
        ..host()
    };
    assert_eq!(
        plan(grant(&policy, request(&["ls"])), &deaf, &fs)
            .map(|_| ())
            .unwrap_err()
            .code,
        Code::FenceStep
    );
}

#[test]
fn a_plan_asks_for_all_that_the_kernel_has_of_landlock_and_proves_what_replaces_the_rest() {
    let policy = merged(&with_default(&[]));
    let fs = disk(&policy, &[]);
    for abi in 2..=9 {
        let landlock = LandlockParts::up_to(abi);
        let host = HostFacts { landlock, ..host() };
        let planned = plan(grant(&policy, request(&["ls"])), &host, &fs).unwrap().plan;
        assert_eq!(planned.landlock_parts, landlock, "{abi}");
        for guarantee in landlock.guarantees() {
            assert!(planned.guarantees.contains(&guarantee), "{abi}: {guarantee}");
        }
    }
}

#[test]
fn landlock_is_given_up_by_name_and_counts_and_nothing_is_given_up_that_the_kernel_has() {
    let policy = merged(&with_default(&[]));
    let fs = disk(&policy, &[]);
    let planned = |kernel: u32, waivers: &[Waiver]| {
        let host = HostFacts {
            landlock: LandlockParts::up_to(kernel),
            ..host()
        };
        let request = LaunchRequest {
            waivers: waivers.to_vec(),
            ..request(&["ls"])
        };
        plan(grant(&policy, request), &host, &fs).map(|planned| planned.plan)
    };
    let waived = [Waiver::LANDLOCK];
    let fault = planned(0, &[]).unwrap_err();
    assert_eq!(fault.code, Code::FenceLandlock);
    let help = fault.help.join("\n");
    assert!(help.contains("--waive landlock"), "{help}");
    let without = planned(0, &waived).unwrap();
    assert!(without.is_without_landlock());
    for guarantee in LandlockParts::replacements() {
        assert!(without.guarantees.contains(&guarantee), "{guarantee}");
    }
    assert!(!without.guarantees.contains(&Guarantee::LandlockFs));
    let whole = planned(6, &waived).unwrap();
    assert_eq!(whole.landlock_parts, LandlockParts::up_to(6));
    assert!(whole.guarantees.contains(&Guarantee::LandlockFs));
    let tenths = |plan| bastle_policy::score_of(&policy, plan).tenths;
    assert!(tenths(&without) > tenths(&whole));
}

#[test]
fn the_highest_landlock_abi_that_a_layer_demands_is_held_or_the_launch_refused() {
    let asked = |least: u64| {
        let text = format!(r#"{{"version": 1, "minLandlockAbi": {least}}}"#);
        merged(&with_default(&[
            (User, &text),
            (Project, r#"{"version": 1, "minLandlockAbi": 2}"#),
        ]))
    };
    let planned = |least, kernel| {
        let policy = asked(least);
        let fs = disk(&policy, &[]);
        let host = HostFacts {
            landlock: LandlockParts::up_to(kernel),
            ..host()
        };
        plan(grant(&policy, request(&["ls"])), &host, &fs).map(|_| ())
    };
    for (least, kernel) in [(2, 2), (5, 6), (6, 6), (9, 9)] {
        assert!(planned(least, kernel).is_ok(), "{least} of {kernel}");
    }
    for (least, kernel) in [(3, 2), (6, 5), (9, 8)] {
        let fault = planned(least, kernel).unwrap_err();
        assert_eq!(fault.code, Code::FenceLandlock, "{least} of {kernel}");
        assert!(fault.what.contains("minLandlockAbi"), "{fault}");
    }
}

#[test]
fn only_named_variables_cross_the_fence_and_proxies_never_do() {
    let text = r#"{"version": 1, "env": {"pass": ["HTTPS_PROXY", "FOO", "AGENT_IN_SANDBOX"], "set": {"RUSTUP_HOME": "~/.rustup", "no_proxy": "x"}}}"#;
    let policy = merged(&with_default(&[(User, text)]));
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let host_env = vec![
        pair("HTTPS_PROXY", "p"),
        pair("FOO", "1"),
        pair("SECRET", "s"),
        pair("LD_PRELOAD", "x"),
        pair("LANG", "de"),
        pair("AGENT_IN_SANDBOX", "0"),
    ];
    let env = vec![
        (EnvName::try_from("FOO".to_owned()).unwrap(), "2".to_owned()),
        (
            EnvName::try_from("BASTLE_SESSION".to_owned()).unwrap(),
            "forged".to_owned(),
        ),
    ];
    let planned = plan(
        grant(
            &policy,
            LaunchRequest {
                host_env,
                env,
                ..request(&["ls"])
            },
        ),
        &host(),
        &disk(&policy, &[]),
    )
    .unwrap();
    let env: BTreeMap<&str, &str> = planned
        .plan
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let names: Vec<&str> = env.keys().copied().collect();
    assert_eq!(
        names,
        [
            "AGENT_IN_SANDBOX",
            "BASTLE_SESSION",
            "FOO",
            "HOME",
            "LANG",
            "LOGNAME",
            "PATH",
            "RUSTUP_HOME",
            "SHELL",
            "TMPDIR",
            "USER"
        ]
    );
    assert_eq!(
        (env["FOO"], env["LANG"], env["RUSTUP_HOME"]),
        ("2", "de", "/home/u/.rustup")
    );
    assert_eq!(
        (
            env["AGENT_IN_SANDBOX"],
            env["BASTLE_SESSION"],
            env["HOME"],
            env["SHELL"]
        ),
        ("1", "calm-otter", "/home/agent", "/bin/sh")
    );
}

#[test]
fn toolchains_of_the_dev_preset_come_first_in_the_path() {
    let policy = merged(&[preset("dev").unwrap()]);
    let planned = planned(
        &policy,
        &disk(
            &policy,
            &[
                "/home/u/.cargo/bin",
                "/home/u/.rustup",
                "/home/u/go",
                "/home/u/go/bin",
            ],
        ),
    )
    .unwrap();
    let path = &planned
        .plan
        .env
        .iter()
        .find(|(name, _)| name.as_str() == "PATH")
        .unwrap()
        .1;
    assert!(
        path.starts_with("/home/u/.cargo/bin:/home/u/go/bin:/usr/local/sbin"),
        "{path}"
    );
    assert!(is_bind(at(&planned, "/home/u/.rustup"), Access::ReadOnly));
    assert_eq!(
        at(&planned, "/home/u/go/bin"),
        None,
        "already shown by its parent"
    );
}

#[test]
fn a_dry_run_names_every_rule_and_shows_no_secret() {
    let text = r#"{"version": 1, "env": {"set": {"API": "hunter2"}}, "secrets": [{"name": "GH", "from": "file:/keys/gh", "hosts": ["x.com"]}], "net": {"allow": ["x.com"], "deny": ["y.com"], "ask": ["z.com"]}}"#;
    let policy = merged(&with_default(&[
        (User, text),
        (Project, r#"{"version": 1, "fs": {"read": [".", "/srv"]}}"#),
    ]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    let baseline = merged(&with_default(&[]));
    let rendered = render_dry_run(&policy, &planned, Some(&baseline));
    let json = rendered.json.to_string();
    for secret in ["hunter2", "/keys/gh"] {
        assert!(
            !rendered.text.contains(secret) && !json.contains(secret),
            "{secret}"
        );
    }
    for expected in [
        "fs.write",
        "user.json:1",
        "requested, not granted: fs.read /srv",
        "net.allow",
        "net.deny     y.com",
        "net.ask      z.com",
        "GH (file) for x.com",
        "git.forcePush",
        "score ",
        "+ env.set added API",
    ] {
        assert!(
            rendered.text.contains(expected),
            "{expected} in\n{}",
            rendered.text
        );
    }
    assert_eq!(rendered.json["schema"], "bastle.plan/v1");
    assert_eq!(rendered.json["digest"], policy.digest().as_str());
}

#[test]
fn the_plan_lists_the_limits_of_egress_and_a_run_with_less_gives_it_less() {
    let lines = |text: &str, mode: NetMode| {
        let mut layers = with_default(&[(User, text)]);
        let mut flags = layer(Flags, r#"{"version": 1}"#);
        std::sync::Arc::make_mut(&mut flags.document).net.mode = Some(At::nowhere(mode));
        layers.push(flags);
        let policy = merged(&layers);
        let planned = planned(&policy, &disk(&policy, &[])).unwrap();
        let mut rules: Vec<String> = planned.listing.into_iter().map(|line| line.rule).collect();
        rules.retain(|rule| rule.starts_with("egress "));
        rules
    };
    let with = |rest: &str| {
        let text = format!(r#"{{"version": 1, "net": {{"allow": ["a.example"]}}{rest}}}"#);
        lines(&text, NetMode::Allowlist)
    };
    assert_eq!(with(""), ["egress memory 512MiB", "egress cpu 0.500"]);
    // Affinity gives whole processors only, and one is more than egress has by itself.
    assert_eq!(
        with(r#", "limits": {"cpu": 1}"#),
        ["egress memory 512MiB", "egress cpu 0.500"]
    );
    let controllers = vec![(Controller::Cpu, path("/sys/fs/cgroup/x"))];
    let cgroups = HostFacts {
        cgroup: CgroupFacts {
            flavour: CgroupFlavour::V2,
            controllers,
            unified: None,
            problem: None,
        },
        ..host()
    };
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "net": {"allow": ["a.example"]}, "limits": {"cpu": 0.2}}"#,
    )]));
    let less = plan(grant(&policy, request(&["ls"])), &cgroups, &disk(&policy, &[])).unwrap();
    assert!(less.listing.iter().any(|line| line.rule == "egress cpu 0.200"));
    let none = lines(r#"{"version": 1}"#, NetMode::None);
    assert_eq!(none, Vec::<String>::new(), "control: no egress, no limits of it");
}
