//! Every layer of the fence is left out once, in a build made for it: the start must fail and name what is missing.
use crate::support::{Identity, Lab, Limit, Output, bastle, for_each_identity, run, text, with_hooks};
use std::collections::BTreeSet;
use std::path::Path;

/// When leaving a layer out can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Only root's runs have it.
    Root,
    /// Only runs over an overlay have it, of which a part may be written.
    Overlay,
    /// Only runs on a kernel without Landlock have it, see `ladder`.
    WithoutLandlock,
}

/// A layer, and the words of which one must be in the message: the guarantee that was not proven, or the step that failed.
const LAYERS: &[(&str, When, &[&str])] = &[
    (
        "mount-namespace",
        When::Always,
        &["private mounts", "reads-confined"],
    ),
    (
        "pid-namespace",
        When::Always,
        &["/proc of the sandbox", "processes-hidden"],
    ),
    ("net-namespace", When::Always, &["loopback", "net-confined"]),
    ("ipc-namespace", When::Always, &["ipc-isolated"]),
    ("uts-namespace", When::Always, &["host name", "uts-isolated"]),
    ("cgroup-namespace", When::Always, &["cgroup-isolated"]),
    ("host-name", When::Always, &["host name", "uts-isolated"]),
    ("host-root", When::Always, &["reads-confined"]),
    ("read-only-root", When::Always, &["writes-confined"]),
    ("read-only-binds", When::Always, &["writes-confined"]),
    ("read-only-overlays", When::Overlay, &["writes-confined"]),
    ("masks", When::Always, &["secrets-hidden", "proc-masked"]),
    ("proc-masks", When::Always, &["proc-masked"]),
    ("session", When::Always, &["own-session"]),
    ("descriptors", When::Always, &["no-inherited-descriptors"]),
    ("seccomp", When::Always, &["syscalls-filtered"]),
    ("environment", When::Always, &["environment-cleared"]),
    ("rlimits", When::Always, &["no-core-dumps"]),
    (
        "no-new-privs",
        When::Always,
        &["no-new-privs", "system-call filter", "filter of init", "Landlock"],
    ),
    ("landlock", When::Always, &["landlock-fs"]),
    ("exec-list", When::Always, &["programs-listed"]),
    ("exec-judge", When::Always, &["programs-listed"]),
    ("capabilities", When::Always, &["no-capabilities"]),
    ("unprivileged-uid", When::Root, &["unprivileged-uid"]),
    ("cgroup", When::Root, &["pids-limited", "memory-limited"]),
    ("read-only-proc", When::WithoutLandlock, &["proc-writes-by-mount"]),
    ("closed-masks", When::WithoutLandlock, &["staged-grants-by-mode"]),
    ("egress-faces", When::Always, &["net-confined"]),
    ("egress-files", When::Always, &["egress-confined"]),
    ("egress-landlock", When::Always, &["egress-confined"]),
    ("egress-filter", When::Always, &["egress-confined"]),
];

/// The layers that the sources can leave out: `enforces("…")`, and the table of namespaces.
fn layers_of_the_sources() -> BTreeSet<String> {
    fn sources(directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("the sources are there") {
            let path = entry.expect("can be listed").path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(std::fs::read_to_string(&path).expect("can be read"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut texts = Vec::new();
    for zone in ["privileged/spawner/src", "sandboxed/init/src"] {
        sources(&root.join(zone), &mut texts);
    }
    let mut layers = BTreeSet::new();
    for text in &texts {
        let named = text
            .split("enforces(\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        layers.extend(named.map(str::to_owned));
        let namespaces = text
            .lines()
            .filter(|line| line.contains("-namespace\", Namespaces::"));
        layers.extend(
            namespaces
                .filter_map(|line| line.split('"').nth(1))
                .map(str::to_owned),
        );
    }
    layers
}

/// A run whose policy needs every layer: a hidden file, a protected one, limits, a list of programs.
fn start(lab: &Lab, without: Option<&str>) -> Output {
    let mut fence = lab
        .fence()
        .binary(with_hooks())
        .flags(["--pids", "200", "--disk", "8M"]);
    let script = lab.tools().join(format!("{}.sh", fence.name()));
    let allow = format!("sh {}", script.display());
    let rules = lab.plant(
        &lab.outside().join("policy.json"),
        &serde_json::json!({ "version": 1, "exec": { "allow": [allow] } }).to_string(),
    );
    fence = fence.flags(["--policy", rules.to_str().expect("UTF-8")]);
    if let Some(layer) = without {
        fence = fence.env("BASTLE_TEST_WITHOUT", layer);
    }
    fence.sh("echo started > marker")
}

#[test]
fn the_table_names_every_layer_of_the_sources() {
    let known: BTreeSet<String> = LAYERS.iter().map(|(layer, ..)| (*layer).to_owned()).collect();
    assert_eq!(layers_of_the_sources(), known);
}

#[test]
fn a_start_without_any_one_layer_fails_and_names_it() {
    for_each_identity(|lab| {
        let whole = start(lab, None);
        assert_eq!(whole.ended.code, 0, "control: with every layer: {whole:?}");
        let marker = lab.workspace().join("marker");
        assert!(marker.exists(), "control");
        let mut wrong = Vec::new();
        for (layer, when, words) in LAYERS {
            let has = match when {
                When::Always => true,
                When::Root => lab.identity == Identity::Root,
                // Its work is not in the project: see the next test.
                When::Overlay | When::WithoutLandlock => false,
            };
            if !has {
                continue;
            }
            if marker.exists() {
                std::fs::remove_file(&marker).expect("own file");
            }
            let output = start(lab, Some(layer));
            let said = &output.ended.stderr;
            let named = said.contains("BST-FENCE-0") && words.iter().any(|word| said.contains(word));
            if output.ended.code != 125 || marker.exists() || !named {
                wrong.push(format!(
                    "{layer} as {}: exit {}, started: {}\n{said}",
                    lab.identity,
                    output.ended.code,
                    marker.exists()
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    });
}

#[test]
fn a_start_over_an_overlay_that_can_be_written_in_place_of_a_read_only_one_fails_and_names_it() {
    for_each_identity(|lab| {
        lab.project(
            "agent-permissions.json",
            r#"{"version": 1, "fs": {"write": ["./sub"]}}"#,
        );
        lab.project("sub/.idea/keep", "as it was\n");
        let opened = ["--unprotect", "sub/.idea/keep"];
        let start = |more: &[&str], without: Option<&str>| {
            let mut fence = lab.fence().binary(with_hooks());
            fence = fence.flags(["--workspace", "overlay"]).flags(more);
            if let Some(layer) = without {
                fence = fence.env("BASTLE_TEST_WITHOUT", layer);
            }
            fence.sh("echo x > sub/marker; echo x > sub/.idea/keep && echo opened; echo started")
        };
        let root = lab.workspace();
        let (root, directory) = (text(&root).to_owned(), text(&root.join("sub/.idea")).to_owned());
        // Only the overlay; and a protected directory in it as well, of which one file may be written.
        for (more, whole, places) in [
            (&[][..], "started", format!("[\"{root}\"]")),
            (
                &opened[..],
                "opened\nstarted",
                format!("[\"{root}\", \"{directory}\"]"),
            ),
        ] {
            let control = start(more, None);
            assert_eq!(control.said(), whole, "control: {control:?}");
            for (layer, _, words) in LAYERS.iter().filter(|(_, when, _)| *when == When::Overlay) {
                let output = start(more, Some(layer));
                let said = &output.ended.stderr;
                assert_eq!(
                    (output.ended.code, output.said()),
                    (125, ""),
                    "{layer}: {output:?}"
                );
                let named = said.contains("BST-FENCE-0") && words.iter().any(|word| said.contains(word));
                assert!(named && said.contains(&places), "{places}: {output:?}");
            }
        }
    });
}

#[test]
fn the_shipped_binary_cannot_leave_a_layer_out() {
    let bytes = std::fs::read(bastle()).expect("can be read");
    let variable = b"BASTLE_TEST_WITHOUT";
    assert!(!bytes.windows(variable.len()).any(|window| window == variable));
    let hooks = std::fs::read(with_hooks()).expect("can be read");
    assert!(
        hooks.windows(variable.len()).any(|window| window == variable),
        "control: the other binary has it"
    );
    for_each_identity(|lab| {
        for layer in ["seccomp", "landlock", "capabilities"] {
            let output = lab
                .fence()
                .env("BASTLE_TEST_WITHOUT", layer)
                .sh("grep -E 'Seccomp:|CapEff' /proc/self/status");
            assert_eq!(output.ended.code, 0, "{layer}: {output:?}");
            let said = output
                .ended
                .stdout
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            assert_eq!(said, "CapEff: 0000000000000000 Seccomp: 2", "{layer}");
        }
    });
}

#[test]
fn the_preflight_says_where_no_fence_can_be_built() {
    for_each_identity(|lab| {
        let healthy = run(lab.command(bastle()).args(["doctor", "--json"]), b"", Limit::HANG);
        assert_eq!(healthy.code, 0, "control: {healthy:?}");
        let fence = |text: &str| -> String {
            let report: serde_json::Value = serde_json::from_str(text).expect("is JSON");
            assert_eq!(report["schema"], "bastle.doctor/v1");
            let checks = report["checks"].as_array().expect("a list");
            let fence = checks
                .iter()
                .find(|check| check["name"] == "fence")
                .expect("is checked");
            fence["state"].as_str().expect("a word").to_owned()
        };
        assert_eq!(fence(&healthy.stdout), "ok");
        // Inside a fence there are no user namespaces to be had: a host on which nothing can be built.
        let copy = lab.tools().join("bastle");
        std::fs::copy(bastle(), &copy).expect("can be copied");
        let copy = copy.to_str().expect("UTF-8").to_owned();
        let barren = lab
            .fence()
            .run(["env", "-u", "AGENT_IN_SANDBOX", &copy, "doctor", "--json"]);
        assert_eq!(barren.ended.code, 1, "{barren:?}");
        assert_ne!(fence(&barren.ended.stdout), "ok", "{barren:?}");
    });
}

#[test]
fn what_a_broken_init_says_last_is_the_reason_that_is_shown_and_recorded() {
    for_each_identity(|lab| {
        let output = lab
            .fence()
            .binary(with_hooks())
            .env("BASTLE_TEST_PANIC", "start")
            .sh("echo started > marker");
        assert_eq!(output.ended.code, 125, "{output:?}");
        for words in [
            "BST-FENCE-008",
            "init of the sandbox failed (panic)",
            "the test wants a panic",
        ] {
            assert!(output.ended.stderr.contains(words), "{words}: {output:?}");
        }
        assert_eq!(output.events("refused").len(), 1, "{output:?}");
        assert!(!lab.workspace().join("marker").exists());
        let control = lab.fence().binary(with_hooks()).sh("echo started > marker");
        assert_eq!(control.ended.code, 0, "control: {control:?}");
    });
}
