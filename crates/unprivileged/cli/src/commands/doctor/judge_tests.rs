//! Causes proven from observations of hosts that the tests do not run on.
use super::super::apparmor::Installed;
use super::super::container::Container;
use super::*;
use bastle_control::fence_steps::{FenceSteps, StepResult};

fn step(step: &str, errno: Option<i32>) -> StepResult {
    StepResult {
        step: step.to_owned(),
        errno,
    }
}

/// An ordinary user of a new kernel on which every step works.
fn host() -> Observed {
    Observed {
        fault: "BST-FENCE-001".to_owned(),
        release: "6.12.0".to_owned(),
        landlock: Some(true),
        notify: Some(true),
        label: "unconfined".to_owned(),
        lsm: "lockdown,capability,landlock,yama,apparmor".to_owned(),
        binary: "/usr/local/bin/bastle".into(),
        mapped: true,
        may_mount: true,
        ..Observed::default()
    }
}

fn with(change: impl FnOnce(&mut Observed)) -> Proof {
    let mut seen = host();
    change(&mut seen);
    judge(&seen, "a newer kernel")
}

/// A user namespace that is refused.
fn no_userns(errno: i32) -> FenceSteps {
    FenceSteps {
        namespaces: vec![step("user", Some(errno)), step("mnt", Some(errno))],
        ..FenceSteps::default()
    }
}

fn set(seen: &mut Observed, name: &str, value: &str) {
    seen.sysctls.insert(name.to_owned(), value.to_owned());
}

#[test]
fn every_refusal_of_a_namespace_is_told_by_what_refuses_it() {
    let off = with(|seen| {
        seen.steps = no_userns(1);
        set(seen, "kernel/unprivileged_userns_clone", "0");
    });
    assert_eq!(off.cause, Cause::UserNamespacesOff);
    assert!(
        off.fix
            .text()
            .contains("sudo tee /proc/sys/kernel/unprivileged_userns_clone")
    );
    // The same value says nothing of root, whom it does not bind.
    let root = with(|seen| {
        seen.root = true;
        seen.steps = no_userns(1);
        set(seen, "kernel/unprivileged_userns_clone", "0");
    });
    assert_eq!(root.cause, Cause::Chroot);
    // Nothing else answers so: the lock on chroots is all that is left.
    assert_eq!(with(|seen| seen.steps = no_userns(1)).cause, Cause::Chroot);
    let chroot = with(|seen| {
        seen.steps = no_userns(1);
        seen.chroot = Some("the root is elsewhere".to_owned());
        set(seen, "kernel/unprivileged_userns_clone", "0");
    });
    assert_eq!(chroot.cause, Cause::Chroot, "root would be refused too");
    let unmapped = with(|seen| {
        seen.steps = no_userns(1);
        seen.mapped = false;
    });
    assert_eq!(unmapped.cause, Cause::UnmappedUser);
    let unbuilt = with(|seen| seen.steps = no_userns(22));
    assert_eq!(unbuilt.cause, Cause::NamespacesNotBuilt);
    let denied = with(|seen| seen.steps = no_userns(13));
    assert_eq!(denied.cause, Cause::LsmDenies);
}

#[test]
fn the_limit_that_is_named_is_that_of_the_namespace_that_was_refused() {
    let steps = || FenceSteps {
        namespaces: vec![step("user", None), step("net", Some(28))],
        ..FenceSteps::default()
    };
    let zero = with(|seen| {
        seen.steps = steps();
        set(seen, "user/max_user_namespaces", "1000");
        set(seen, "user/max_net_namespaces", "0");
    });
    assert_eq!(zero.cause, Cause::NamespaceLimitZero);
    let fix = zero.fix.text();
    assert!(
        fix.starts_with("echo 15000 | sudo tee /proc/sys/user/max_net_namespaces"),
        "{fix}"
    );
    let full = with(|seen| {
        seen.steps = steps();
        set(seen, "user/max_net_namespaces", "7");
    });
    assert_eq!(full.cause, Cause::NamespaceLimitReached);
    assert!(
        full.proof.contains("(7)") && full.fix.text().contains("echo 14 "),
        "{full:?}"
    );
}

#[test]
fn the_restriction_of_apparmor_is_told_apart_by_the_profile_that_is_there() {
    let restricted = |profiles: Vec<Installed>, root: bool| {
        with(|seen| {
            seen.root = root;
            seen.steps.label = "unprivileged_userns (enforce)".to_owned();
            seen.steps.inside = vec![step("uid_map", None), step("private-mounts", Some(13))];
            set(seen, "kernel/apparmor_restrict_unprivileged_userns", "1");
            seen.profiles = profiles;
        })
    };
    let of = |path: &str| Installed {
        file: "/etc/apparmor.d/bastle".into(),
        text: format!("profile bastle {path} flags=(unconfined) {{\n userns,\n}}\n"),
    };
    let none = restricted(Vec::new(), false);
    assert_eq!(none.cause, Cause::ApparmorRestriction);
    assert!(
        none.fix
            .text()
            .starts_with("/usr/local/bin/bastle doctor --apparmor-profile | sudo tee "),
        "{none:?}"
    );
    let unloaded = restricted(vec![of("/usr/local/bin/bastle")], false);
    assert_eq!(unloaded.cause, Cause::ApparmorProfileNotLoaded);
    assert_eq!(
        unloaded.fix.text(),
        "sudo apparmor_parser -r /etc/apparmor.d/bastle"
    );
    let other = restricted(vec![of("/usr/bin/bastle")], false);
    assert_eq!(other.cause, Cause::ApparmorProfileOtherPath);
    // Ubuntu 23.10 refuses the namespace itself.
    let refused = with(|seen| {
        seen.steps = no_userns(13);
        set(seen, "kernel/apparmor_restrict_unprivileged_userns", "1");
    });
    assert_eq!(refused.cause, Cause::ApparmorRestriction);
}

#[test]
fn a_filter_is_named_with_its_calls_and_with_all_that_the_container_needs() {
    let docker = with(|seen| {
        seen.container = Some(Container::Docker);
        seen.steps = no_userns(1);
        seen.steps.filtered = vec!["clone3".to_owned(), "unshare".to_owned()];
        seen.label = "docker-default (enforce)".to_owned();
        seen.covers = vec!["/proc/kcore".to_owned()];
    });
    assert_eq!(docker.cause, Cause::SeccompFilter);
    assert!(docker.proof.contains("clone3, unshare"), "{docker:?}");
    for option in [
        "seccomp=bastle-seccomp.json",
        "apparmor=unconfined",
        "systempaths=unconfined",
    ] {
        assert!(docker.fix.text().contains(option), "{option}: {docker:?}");
    }
    let service = with(|seen| {
        seen.steps = no_userns(1);
        seen.steps.filtered = vec!["unshare".to_owned()];
    });
    assert_eq!(service.cause, Cause::SeccompFilter);
    assert!(!service.fix.text().contains("docker"), "{service:?}");
}

#[test]
fn steps_inside_the_namespaces_are_told_by_what_refuses_them() {
    let inside = |name: &str, errno| vec![step("uid_map", None), step(name, Some(errno))];
    let covered = with(|seen| {
        seen.container = Some(Container::Podman);
        seen.steps.inside = inside("proc", 1);
        seen.covers = vec!["/proc/acpi".to_owned()];
    });
    assert_eq!(covered.cause, Cause::ProcCovered);
    assert_eq!(covered.fix.text(), "podman run --security-opt unmask=ALL ...");
    let scope = |value: &str| {
        with(|seen| {
            seen.steps.inside = inside("read-memory", 1);
            set(seen, "kernel/yama/ptrace_scope", value);
        })
    };
    assert_eq!(scope("2").cause, Cause::PtraceScope);
    assert!(matches!(scope("2").fix, Fix::Command(_)));
    assert!(
        matches!(scope("3").fix, Fix::Instruction(_)),
        "it cannot be lowered"
    );
    assert_eq!(scope("1").cause, Cause::Unknown);
    let profile = with(|seen| {
        seen.container = Some(Container::Docker);
        seen.label = "docker-default (enforce)".to_owned();
        seen.steps.inside = inside("private-mounts", 13);
    });
    assert_eq!(profile.cause, Cause::ApparmorProfileDenies);
    assert!(profile.fix.text().contains("apparmor=unconfined"), "{profile:?}");
    let moved = with(|seen| {
        seen.label = "bastle (enforce)".to_owned();
        seen.denied = Some("cannot set up bind (/etc/alternatives)".to_owned());
    });
    assert_eq!(moved.cause, Cause::ApparmorProfileDenies);
    assert!(moved.fix.text().contains("attach_disconnected"), "{moved:?}");
    assert_eq!(
        with(|seen| seen.denied = Some("cannot set up bind (/usr)".to_owned())).cause,
        Cause::Unknown,
        "no profile is enforced"
    );
    let filter = with(|seen| {
        seen.filter = true;
        seen.steps.inside = inside("pivot-root", 1);
    });
    assert_eq!(filter.cause, Cause::SeccompFilter);
}

#[test]
fn landlock_that_is_off_not_built_and_too_old_are_three_causes() {
    let cause = |release: &str, errno, filter| {
        with(|seen| {
            seen.fault = "BST-FENCE-003".to_owned();
            seen.release = release.to_owned();
            seen.landlock = Some(false);
            seen.steps.landlock_errno = errno;
            seen.filter = filter;
        })
        .cause
    };
    assert_eq!(cause("6.12.0", 95, false), Cause::LandlockOff);
    assert_eq!(cause("6.12.0", 38, false), Cause::LandlockNotBuilt);
    assert_eq!(cause("6.12.0", 38, true), Cause::SeccompFilter);
    assert_eq!(cause("6.12.0", 0, false), Cause::KernelTooOld);
    assert_eq!(cause("5.15.0-91-generic", 0, false), Cause::KernelTooOld);
    assert_eq!(cause("5.15.0-91-generic", 95, false), Cause::KernelTooOld);
}

#[test]
fn what_is_no_refusal_of_the_kernel_is_told_as_what_it_is() {
    let cause = |fault: &str| with(|seen| seen.fault = fault.to_owned()).cause;
    assert_eq!(cause("BST-FENCE-006"), Cause::AlreadyFenced);
    assert_eq!(cause("BST-POL-002"), Cause::PolicyUnusable);
    assert_eq!(cause("BST-STA-001"), Cause::StateUnwritable);
    assert_eq!(cause("BST-FENCE-005"), Cause::IdmapUnsupported);
    assert_eq!(cause("BST-FENCE-004"), Cause::ProbeFailed);
    let root = |may_mount| {
        with(|seen| {
            seen.root = true;
            seen.may_mount = may_mount;
            seen.container = Some(Container::Docker);
        })
    };
    assert_eq!(root(false).cause, Cause::RootWithoutCapabilities);
    assert!(root(false).fix.text().contains("--user"));
    assert_eq!(root(true).cause, Cause::Unknown);
    let unknown = with(|_| ());
    assert_eq!(unknown.cause, Cause::Unknown);
    assert_eq!(unknown.fix.text(), "bastle explain BST-FENCE-001");
    let service = with(|seen| {
        seen.service = true;
        seen.steps = no_userns(1);
        set(seen, "kernel/unprivileged_userns_clone", "0");
    });
    assert_eq!(
        service.cause,
        Cause::SpawnerService,
        "what is refused here is not refused there"
    );
}
