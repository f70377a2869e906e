//! Kernels that lack parts of Landlock, in a build that takes parts away: what replaces a part is proven in its place or
//! nothing starts, and below the floor the kernel is named as the cause.
use crate::support::{Fence, Lab, Limit, Output, bastle, for_each_identity, run, with_hooks};
use serde_json::Value;

/// What a kernel has, what stands in the first line for the rest, and what replaces it.
const KERNELS: &[(&str, &str, &[&str])] = &[
    (
        "2",
        "v2+seccomp",
        &[
            "path sockets: mount-ns",
            "signals: pid-ns",
            "abstract sockets: net-ns",
            "ioctl: device list",
            "truncate: mount",
        ],
    ),
    (
        "5",
        "v5+seccomp",
        &[
            "path sockets: mount-ns",
            "signals: pid-ns",
            "abstract sockets: net-ns",
        ],
    ),
    ("6", "v6+seccomp", &["path sockets: mount-ns"]),
    (
        "fs,ioctl,scopes",
        "v2+seccomp",
        &["path sockets: mount-ns", "truncate: mount"],
    ),
    (
        "fs,truncate,scopes",
        "v3+seccomp",
        &["path sockets: mount-ns", "ioctl: device list"],
    ),
];

/// A part, its guarantee and the guarantees of what replaces it.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("truncate", "landlock-truncate", &["truncate-by-mount"]),
    ("ioctl", "landlock-ioctl", &["ioctl-by-devices"]),
    (
        "scopes",
        "landlock-scopes",
        &["signals-by-pid-namespace", "abstract-sockets-by-net-namespace"],
    ),
    ("unix", "landlock-unix", &["path-sockets-by-mount-namespace"]),
];

/// A run on a kernel that has these parts alone, without a layer.
fn start(lab: &Lab, parts: &str, without: Option<&str>, flags: &[&str]) -> Output {
    let mut fence = lab
        .fence()
        .binary(with_hooks())
        .env("BASTLE_TEST_LANDLOCK", parts)
        .flags(flags);
    if let Some(layer) = without {
        fence = fence.env("BASTLE_TEST_WITHOUT", layer);
    }
    fence.sh("echo started")
}

/// Whether this host has every part up to ABI 6 itself: else there is nothing to take away.
fn is_whole(lab: &Lab) -> bool {
    let output = start(lab, "6", None, &[]);
    assert_eq!(output.said(), "started", "control: {output:?}");
    output.ended.stderr.contains("landlock v6+seccomp")
}

#[test]
fn a_part_of_landlock_that_the_kernel_lacks_is_replaced_proven_and_told_in_the_first_line() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        for (kernel, version, told) in KERNELS {
            let output = start(lab, kernel, None, &[]);
            assert_eq!(
                (output.ended.code, output.said()),
                (0, "started"),
                "{kernel}: {output:?}"
            );
            let line = output.ended.stderr.lines().next().unwrap_or_default();
            assert!(line.contains(version), "{kernel}: {line}");
            for words in [
                "path sockets:",
                "signals:",
                "abstract sockets:",
                "ioctl:",
                "truncate:",
            ] {
                let expected = told.iter().any(|one| one.starts_with(words));
                assert_eq!(line.contains(words), expected, "{kernel}: {words} {line}");
            }
            assert!(told.iter().all(|words| line.contains(words)), "{kernel}: {line}");
        }
    });
}

#[test]
fn no_part_of_landlock_is_claimed_that_was_not_tried_and_none_is_left_without_a_proof() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        for kernel in [
            "fs",
            "fs,truncate",
            "fs,truncate,ioctl",
            "fs,truncate,ioctl,scopes",
        ] {
            let output = start(lab, kernel, None, &["--json"]);
            let receipt: Value = serde_json::from_str(&output.ended.stdout).expect("one JSON object");
            let probes = receipt["statement"]["probes"].as_array().expect("a list");
            let held = |guarantee: &str| {
                let mut own = probes
                    .iter()
                    .filter(|probe| probe["guarantee"] == guarantee)
                    .peekable();
                own.peek().is_some() && own.all(|probe| probe["verdict"] == "HELD")
            };
            let named = |guarantee: &str| probes.iter().any(|probe| probe["guarantee"] == guarantee);
            assert!(held("landlock-fs"), "{kernel}");
            for (part, guarantee, replaced) in PARTS {
                let there = kernel.contains(part);
                assert_eq!(
                    (held(guarantee), named(guarantee)),
                    (there, there),
                    "{kernel}: {part}"
                );
                for stand_in in *replaced {
                    let state = (held(stand_in), named(stand_in));
                    assert_eq!(state, (!there, !there), "{kernel}: {stand_in}");
                }
            }
            let facts: Vec<&str> = receipt["host"]["landlock"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(facts.join(","), kernel);
        }
    });
}

#[test]
fn without_a_part_of_landlock_and_without_what_replaces_it_nothing_starts() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        let broken = [
            ("fs,ioctl,scopes", "read-only-binds", "truncate-by-mount"),
            ("fs,ioctl,scopes", "read-only-root", "truncate-by-mount"),
            ("fs,truncate,ioctl", "pid-namespace", ""),
            ("fs,truncate,ioctl", "net-namespace", ""),
            (
                "fs,truncate,ioctl,scopes",
                "host-root",
                "path-sockets-by-mount-namespace",
            ),
            ("fs,truncate,ioctl,scopes", "landlock", "landlock-scopes"),
            ("fs,truncate,ioctl,scopes", "landlock", "landlock-ioctl"),
            ("fs,truncate,ioctl,scopes", "landlock", "landlock-truncate"),
            ("fs", "landlock", "landlock-fs"),
        ];
        for (kernel, layer, named) in broken {
            let output = start(lab, kernel, Some(layer), &[]);
            let said = &output.ended.stderr;
            assert_eq!(
                (output.ended.code, output.said()),
                (125, ""),
                "{kernel} without {layer}: {output:?}"
            );
            assert!(
                said.contains("BST-FENCE-0") && said.contains(named),
                "{kernel} without {layer}: {named}: {said}"
            );
        }
    });
}

#[test]
fn below_the_floor_the_kernel_is_named_as_the_cause_and_nothing_starts() {
    for_each_identity(|lab| {
        for kernel in ["0", "1", "truncate,ioctl,scopes"] {
            let output = start(lab, kernel, None, &[]);
            let said = &output.ended.stderr;
            assert_eq!(
                (output.ended.code, output.said()),
                (125, ""),
                "{kernel}: {output:?}"
            );
            assert!(
                said.contains("BST-FENCE-003") && said.contains("Landlock ABI 2"),
                "{kernel}: {said}"
            );
            assert!(
                !said.contains("egress") && !said.contains("Broken pipe"),
                "{kernel}: {said}"
            );
        }
    });
}

/// What a person says who has no Landlock and runs all the same.
const WAIVED: &[&str] = &["--waive", "landlock"];

#[test]
fn without_landlock_a_run_starts_only_by_name_and_everything_that_replaces_it_is_proven_told_and_recorded() {
    for_each_identity(|lab| {
        let refused = start(lab, "0", None, &[]);
        let said = &refused.ended.stderr;
        assert_eq!((refused.ended.code, refused.said()), (125, ""), "{refused:?}");
        assert!(
            said.contains("--waive landlock") && said.contains("bastle doctor"),
            "{said}"
        );
        let run = start(lab, "0", None, WAIVED);
        assert_eq!((run.ended.code, run.said()), (0, "started"), "{run:?}");
        let said = &run.ended.stderr;
        let line = said.lines().next().unwrap_or_default();
        assert!(
            line.contains("WITHOUT LANDLOCK") && !line.contains("landlock v"),
            "{line}"
        );
        assert!(said.contains("waived: this kernel has no Landlock"), "{said}");
        assert_eq!(
            run.events("run-planned")[0]["waivers"][0]["layer"],
            "landlock",
            "recorded"
        );
        let flags: Vec<&str> = WAIVED.iter().copied().chain(["--json"]).collect();
        let output = start(lab, "0", None, &flags);
        let receipt: Value = serde_json::from_str(&output.ended.stdout).expect("one JSON object");
        let probes = receipt["statement"]["probes"].as_array().expect("a list");
        let replaced = PARTS.iter().flat_map(|(.., replaced)| replaced.iter().copied());
        let more = ["proc-writes-by-mount", "staged-grants-by-mode", "egress-confined"];
        for guarantee in replaced.chain(more) {
            let mut own = probes
                .iter()
                .filter(|probe| probe["guarantee"] == guarantee)
                .peekable();
            assert!(
                own.peek().is_some() && own.all(|probe| probe["verdict"] == "HELD"),
                "{guarantee}: {probes:?}"
            );
        }
        let named = |prefix: &str| {
            let mut names = probes.iter().filter_map(|probe| probe["guarantee"].as_str());
            names.any(|name| name.starts_with(prefix))
        };
        assert!(!named("landlock-"), "nothing is claimed of it");
    });
}

#[test]
fn without_landlock_and_without_what_replaces_it_nothing_starts() {
    for_each_identity(|lab| {
        for (layer, named) in [
            ("read-only-proc", "proc-writes-by-mount"),
            ("closed-masks", "staged-grants-by-mode"),
            ("egress-files", "egress-confined"),
            ("egress-filter", "egress-confined"),
            ("host-root", "path-sockets-by-mount-namespace"),
            ("read-only-binds", "truncate-by-mount"),
            ("pid-namespace", ""),
            ("net-namespace", ""),
        ] {
            let output = start(lab, "0", Some(layer), WAIVED);
            let said = &output.ended.stderr;
            assert_eq!(
                (output.ended.code, output.said()),
                (125, ""),
                "without {layer}: {output:?}"
            );
            assert!(
                said.contains("BST-FENCE-0") && said.contains(named),
                "without {layer}: {said}"
            );
        }
    });
}

#[test]
fn without_landlock_own_files_in_proc_staged_grants_and_files_of_others_stay_closed() {
    for_each_identity(|lab| {
        let script = format!(
            "exec 2>&1; echo x > /proc/self/comm; echo x > /proc/self/oom_score_adj; ls /.mask; \
             (: > /etc/hostname); kill -0 {}; echo end",
            std::process::id()
        );
        let fence = lab.fence().binary(with_hooks()).env("BASTLE_TEST_LANDLOCK", "0");
        let output = fence.flags(WAIVED).sh(&script);
        let said = output.said();
        assert_eq!(output.ended.code, 0, "{output:?}");
        let refused = |words: &str| said.lines().filter(|line| line.contains(words)).count();
        assert_eq!(refused("Read-only file system"), 3, "{said}");
        assert_eq!(refused("Permission denied"), 1, "{said}");
        assert_eq!(refused("No such process"), 1, "{said}");
    });
}

#[test]
fn landlock_cannot_be_given_up_where_the_kernel_has_it_or_a_site_or_a_rule_needs_it() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        let whole = start(lab, "6", None, WAIVED);
        assert_eq!((whole.ended.code, whole.said()), (0, "started"), "{whole:?}");
        assert!(
            whole.ended.stderr.contains("landlock v6") && !whole.ended.stderr.contains("WITHOUT LANDLOCK"),
            "{whole:?}"
        );
        let refused = |fence: Fence<'_>, rules: &str, words: &str| {
            let rules = lab.plant(&lab.outside().join("rules.json"), rules);
            let fence = fence
                .binary(with_hooks())
                .env("BASTLE_TEST_LANDLOCK", "0")
                .flags(WAIVED)
                .flags(["--policy", rules.to_str().expect("UTF-8")]);
            let output = fence.sh("echo started");
            let said = &output.ended.stderr;
            assert_eq!((output.ended.code, output.said()), (125, ""), "{output:?}");
            assert!(said.contains("BST-FENCE-003") && said.contains(words), "{said}");
        };
        let site = r#"{ "version": 1, "minLandlockAbi": 2 }"#;
        refused(lab.fence(), site, "minLandlockAbi");
        let fence = lab.fence();
        let script = lab.tools().join(format!("{}.sh", fence.name()));
        let allow = format!("sh {}", script.display());
        let rules = serde_json::json!({ "version": 1, "exec": { "allow": [allow] } }).to_string();
        refused(fence, &rules, "exec.allow needs Landlock");
    });
}

#[test]
fn a_site_that_demands_an_abi_has_no_run_on_a_kernel_below_it() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        let rules = lab.plant(
            &lab.outside().join("landlock.json"),
            r#"{ "version": 1, "minLandlockAbi": 6 }"#,
        );
        let flags = ["--policy", rules.to_str().expect("UTF-8")];
        let held = start(lab, "6", None, &flags);
        assert_eq!(held.said(), "started", "control: {held:?}");
        let output = start(lab, "5", None, &flags);
        assert_eq!((output.ended.code, output.said()), (125, ""), "{output:?}");
        let said = &output.ended.stderr;
        assert!(
            said.contains("BST-FENCE-003") && said.contains("minLandlockAbi"),
            "{said}"
        );
    });
}

#[test]
fn the_preflight_warns_where_parts_of_landlock_are_replaced_and_fails_below_the_floor() {
    for_each_identity(|lab| {
        if !is_whole(lab) {
            return;
        }
        let doctor = |parts: &str| {
            let mut command = lab.command(with_hooks());
            command
                .args(["doctor", "--json"])
                .env("BASTLE_TEST_LANDLOCK", parts);
            let ended = run(&mut command, b"", Limit::HANG);
            let report: Value = serde_json::from_str(&ended.stdout).expect("is JSON");
            let checks = report["checks"].as_array().expect("a list");
            let check = checks
                .iter()
                .find(|check| check["name"] == "landlock")
                .expect("is checked")
                .clone();
            // Below the floor the fix is told with the cause of the trial that failed, and only there.
            let fence = checks.iter().find(|check| check["name"] == "fence");
            let fence = fence.expect("is checked");
            let cause = fence["cause"].as_str();
            assert!(matches!(cause, None | Some("kernel-too-old")), "{fence}");
            let fixes = |check: &Value| check["fix"].as_array().map_or(0, Vec::len);
            let fixed = fixes(&check) + fixes(fence) == 1;
            (
                ended.code,
                check["state"].as_str().unwrap_or_default().to_owned(),
                fixed,
            )
        };
        assert_eq!(doctor("6"), (0, "ok".to_owned(), false));
        assert_eq!(doctor("2"), (0, "warning".to_owned(), true));
        assert_eq!(doctor("1"), (1, "problem".to_owned(), true));
    });
}

#[test]
fn the_shipped_binary_has_every_part_of_landlock_that_the_kernel_has() {
    let variable = b"BASTLE_TEST_LANDLOCK";
    let has = |program| {
        let bytes = std::fs::read(program).expect("can be read");
        bytes.windows(variable.len()).any(|window| window == variable)
    };
    assert!(!has(bastle()));
    assert!(has(with_hooks()), "control: the other binary can do without");
}
