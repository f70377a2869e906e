//! Rules over what cargo says of the workspace: zones, arrows, outside crates, the closure of the small zones.
use super::rules::{CRATES, CrateRule, RECORDING_CLOSURE, SMALL_CLOSURE, SMALL_CRATES};
use crate::sh::{self, Failed};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The part of `cargo metadata` the rules look at.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

/// One line of a manifest. `path` is there for our own crates, `kind` is `None` for what is linked.
#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// The members of the workspace, and what is linked into the shipped binary.
pub(super) struct Graph {
    metadata: Metadata,
    tree: String,
}

impl Graph {
    /// Asks cargo.
    pub(super) fn load() -> Result<Self, Failed> {
        let mut metadata = sh::cargo();
        metadata.args(["metadata", "--format-version=1", "--no-deps"]);
        // Not the resolved graph of `cargo metadata`: that one adds what only tests and build scripts turn on.
        let mut tree = sh::cargo();
        tree.args(["tree", "--package=bastle", "--edges=normal", "--no-dedupe"])
            .args([
                "--target=x86_64-unknown-linux-gnu",
                "--prefix=depth",
                "--format= {p}",
            ]);
        Self::parse(&sh::stdout_of(&mut metadata)?, sh::stdout_of(&mut tree)?)
    }

    fn parse(metadata: &str, tree: String) -> Result<Self, Failed> {
        let metadata = serde_json::from_str(metadata)
            .map_err(|error| Failed::new("cargo metadata", error.to_string()))?;
        Ok(Self { metadata, tree })
    }
}

/// Every rule of this file.
pub(super) fn check(graph: &Graph, root: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &graph.metadata.packages {
        let Some(rule) = rule_of(&package.name) else {
            findings.push(format!(
                "crate {} is in no zone: list it in xtask/src/tidy/rules.rs",
                package.name
            ));
            continue;
        };
        findings.extend(misplaced(package, rule, root));
        findings.extend(wrong_arrows(package, rule));
        findings.extend(outside_crates(package, rule));
        if SMALL_CRATES.contains(&rule.name) {
            findings.extend(fat_closure(&graph.tree, &package.name));
        }
    }
    findings
}

fn short(package: &str) -> &str {
    package.strip_prefix("bastle-").unwrap_or(package)
}

fn rule_of(package: &str) -> Option<&'static CrateRule> {
    CRATES.iter().find(|rule| rule.name == short(package))
}

fn misplaced(package: &Package, rule: &CrateRule, root: &str) -> Option<String> {
    let expected = if rule.folder.is_empty() {
        format!("{root}/Cargo.toml")
    } else {
        format!("{root}/{}/Cargo.toml", rule.folder)
    };
    (package.manifest_path != expected).then(|| {
        format!(
            "crate {} lives in {}, its zone is {expected}",
            package.name, package.manifest_path
        )
    })
}

fn wrong_arrows(package: &Package, rule: &CrateRule) -> Vec<String> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.path.is_some())
        .filter(|dependency| {
            let used = short(&dependency.name);
            let only_tests = dependency.kind.as_deref() == Some("dev");
            !(rule.arrows.contains(&used) || only_tests && rule.test_arrows.contains(&used))
        })
        .map(|dependency| {
            format!(
                "arrow {} → {} is not in the design",
                short(&package.name),
                short(&dependency.name)
            )
        })
        .collect()
}

fn outside_crates(package: &Package, rule: &CrateRule) -> Vec<String> {
    package
        .dependencies
        .iter()
        // What only tests use is never shipped.
        .filter(|dependency| dependency.path.is_none() && dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| !rule.outside.contains(&dependency.name.as_str()))
        .map(|dependency| {
            format!(
                "crate {} names {}, which is not on its list of outside crates",
                package.name, dependency.name
            )
        })
        .collect()
}

/// What is linked into a small crate and has no business there.
fn fat_closure(tree: &str, package: &str) -> Vec<String> {
    let closure = closure(tree, package);
    if closure.is_empty() {
        return vec![format!(
            "{package} is not in the tree of the shipped binary: its closure is unknown"
        )];
    }
    closure
        .into_iter()
        .filter(|name| !SMALL_CLOSURE.contains(name))
        .filter(|name| package != "bastle-spawner" || !RECORDING_CLOSURE.contains(name))
        .map(|name| format!("{package} links {name}, which is not in the closure allowed to root and PID 1"))
        .collect()
}

/// Names in every subtree below `package`, itself included. Lines are `DEPTH NAME VERSION …`.
fn closure<'a>(tree: &'a str, package: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut inside_of: Option<usize> = None;
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let (Some(depth), Some(name)) = (words.next().and_then(|word| word.parse().ok()), words.next())
        else {
            continue;
        };
        if inside_of.is_some_and(|outer| depth <= outer) {
            inside_of = None;
        }
        if inside_of.is_none() && name == package {
            inside_of = Some(depth);
        }
        if inside_of.is_some() {
            names.insert(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A tree in which every small crate has one harmless dependency.
    const LEAN: &str = "\
0 bastle v0.1.0
1 bastle-init v0.1.0
2 bastle-contract v0.1.0
3 serde v1.0.0
2 bastle-sys v0.1.0
3 libc v0.2.0
1 bastle-cli v0.1.0
2 tokio v1.0.0
1 bastle-spawner v0.1.0
2 serde_json v1.0.0
";

    /// A member with its dependencies as (name, kind, ours).
    fn member(name: &str, folder: &str, dependencies: &[(&str, Option<&str>, bool)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind, ours)| json!({ "name": name, "kind": kind, "path": ours.then_some("/r/x") }))
            .collect();
        let folder = if folder.is_empty() {
            String::new()
        } else {
            format!("/{folder}")
        };
        json!({ "name": name, "manifest_path": format!("/r{folder}/Cargo.toml"), "dependencies": dependencies })
    }

    fn findings_in(members: &[Value], tree: &str) -> Vec<String> {
        let graph = Graph::parse(&json!({ "packages": members }).to_string(), tree.to_owned());
        check(&graph.expect("well-formed"), "/r")
    }

    fn findings_for(members: &[Value]) -> Vec<String> {
        findings_in(members, LEAN)
    }

    #[test]
    fn an_arrow_of_the_design_passes() {
        let policy = member(
            "bastle-policy",
            "crates/unprivileged/policy",
            &[("bastle-contract", None, true), ("serde", None, false)],
        );
        assert_eq!(findings_for(&[policy]), Vec::<String>::new());
    }

    #[test]
    fn the_spawner_may_not_link_the_policy_engine() {
        let spawner = member(
            "bastle-spawner",
            "crates/privileged/spawner",
            &[("bastle-policy", None, true)],
        );
        assert_eq!(
            findings_for(&[spawner]),
            ["arrow spawner → policy is not in the design"]
        );
    }

    #[test]
    fn a_test_arrow_does_not_permit_the_same_arrow_in_the_shipped_binary() {
        let tests_only = member("bastle", "", &[("bastle-audit", Some("dev"), true)]);
        let shipped = member("bastle", "", &[("bastle-audit", None, true)]);
        assert_eq!(findings_for(&[tests_only]), Vec::<String>::new());
        assert_eq!(
            findings_for(&[shipped]),
            ["arrow bastle → audit is not in the design"]
        );
    }

    #[test]
    fn a_crate_that_nobody_listed_fails() {
        let stranger = member("bastle-helper", "crates/shared/helper", &[]);
        assert_eq!(
            findings_for(&[stranger]),
            ["crate bastle-helper is in no zone: list it in xtask/src/tidy/rules.rs"]
        );
    }

    #[test]
    fn a_crate_outside_its_zone_folder_fails() {
        let moved = member("bastle-init", "crates/unprivileged/init", &[]);
        let findings = findings_for(&[moved]);
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].contains("its zone is /r/crates/sandboxed/init"),
            "{findings:?}"
        );
    }

    #[test]
    fn an_outside_crate_that_is_not_on_the_list_fails_unless_only_tests_use_it() {
        let with = |kind| {
            member(
                "bastle-contract",
                "crates/shared/contract",
                &[("regex", kind, false)],
            )
        };
        assert_eq!(findings_for(&[with(Some("dev"))]), Vec::<String>::new());
        assert_eq!(findings_for(&[with(None)]).len(), 1);
        assert_eq!(findings_for(&[with(Some("build"))]).len(), 1);
    }

    #[test]
    fn an_async_runtime_deep_in_the_closure_of_init_is_found_and_one_beside_it_is_not() {
        let init = [member("bastle-init", "crates/sandboxed/init", &[])];
        assert_eq!(findings_in(&init, LEAN), Vec::<String>::new());
        let fat = LEAN.replace("3 libc v0.2.0", "3 rustix v1.0.0\n4 tokio v1.0.0");
        assert_eq!(
            findings_in(&init, &fat),
            ["bastle-init links tokio, which is not in the closure allowed to root and PID 1"]
        );
    }

    #[test]
    fn the_second_place_of_a_small_crate_in_the_tree_is_looked_at_too() {
        let contract = [member("bastle-contract", "crates/shared/contract", &[])];
        let fat = format!("{LEAN}2 bastle-contract v0.1.0\n3 regex v1.0.0\n");
        assert_eq!(findings_in(&contract, &fat).len(), 1);
    }

    #[test]
    fn a_closure_that_is_unknown_is_a_finding_and_not_a_pass() {
        let spawner = [member("bastle-spawner", "crates/privileged/spawner", &[])];
        assert_eq!(findings_in(&spawner, "").len(), 1);
    }
}
