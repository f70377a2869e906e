//! What doctor says of kernels whose settings refuse a fence, and whether what it prints removes the cause.
use super::{boot, section_of, skip};

#[test]
fn every_setting_that_refuses_a_fence_is_named_and_the_printed_fix_removes_it() {
    let said = match boot("BASTLE_VM_OLD_KERNEL", include_str!("doctor.sh")) {
        Ok(said) => said,
        Err(reason) => {
            skip(
                "every_setting_that_refuses_a_fence_is_named_and_the_printed_fix_removes_it",
                &reason,
            );
            return;
        }
    };
    for (section, cause) in [
        ("YAMA", "ptrace-scope"),
        ("CLONE", "user-namespaces-off"),
        ("USER", "namespace-limit-zero"),
        ("NET", "namespace-limit-zero"),
        ("PID", "namespace-limit-zero"),
    ] {
        let part = section_of(&said, section);
        if part.contains("missing /proc/sys") {
            skip(
                "every_setting_that_refuses_a_fence_is_named_and_the_printed_fix_removes_it",
                &format!("{section}: {part}"),
            );
            continue;
        }
        assert!(
            part.contains(&format!("before cause={cause}: ")),
            "{section}: {part}"
        );
        assert!(
            part.contains("after rc=0 0 problems") && part.contains("the native fence works here"),
            "{section}: {part}"
        );
    }
    assert!(section_of(&said, "NET").contains("user.max_net_namespaces=15000"));
    let groups = section_of(&said, "GROUPS");
    for words in [
        "0::/bastle/shell",
        "memory: cgroup, pids: cgroup, cpu: cgroup",
        "limit pids = 20 reached",
    ] {
        assert!(groups.contains(words), "{words}: {groups}");
    }
    let root = section_of(&said, "ROOT");
    // The root of this guest is a tmpfs, which kernels before 6.3 cannot show to another user.
    assert!(
        root.contains("root rc=0") || root.contains("cause=idmap-unsupported"),
        "{root}"
    );
    for words in ["asked rc=2", "fixed: namespace-limit-zero", "15000"] {
        assert!(root.contains(words), "{words}: {root}");
    }
}
