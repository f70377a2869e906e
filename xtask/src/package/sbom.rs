//! What the binary is made of: CycloneDX 1.5 from `cargo metadata` and the checksums of `Cargo.lock`.
//!
//! Only what is linked or run at build time for the shipped binary; nothing of the tests and no time, so that the same
//! lock file gives the same bytes.
use crate::sh::{self, Failed};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
    root: Option<String>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The list, as text.
pub(super) fn make(version: &str) -> Result<String, Failed> {
    let mut command = sh::cargo();
    let target = crate::dist::host()?;
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform"]);
    command.arg(&target);
    let metadata = sh::stdout_of(&mut command)?;
    let lock = sh::root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(Failed::io(lock.display()))?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).map_err(|error| Failed::new("cargo metadata", error.to_string()))?;
    let list = list(&metadata, &checksums(&lock), version)?;
    serde_json::to_string_pretty(&list)
        .map(|text| text + "\n")
        .map_err(|error| Failed::new("CycloneDX", error.to_string()))
}

fn list(
    metadata: &Metadata,
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
) -> Result<Value, Failed> {
    let root = metadata
        .resolve
        .root
        .as_deref()
        .ok_or_else(|| Failed::new("cargo metadata", "names no root package"))?;
    let edges: BTreeMap<&str, BTreeSet<&str>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), shipped(node)))
        .collect();
    let mut reached = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        for next in edges.get(id).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    let crates: BTreeMap<&str, &Crate> = metadata
        .packages
        .iter()
        .filter(|one| reached.contains(one.id.as_str()))
        .map(|one| (one.id.as_str(), one))
        .collect();
    let name = |id: &str| crates.get(id).map(|one| reference(one));
    let mut components: Vec<(String, Value)> = crates
        .values()
        .filter(|one| one.id != root)
        .map(|one| (reference(one), component(one, checksums)))
        .collect();
    components.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut dependencies: Vec<(String, Value)> = crates
        .keys()
        .filter_map(|id| {
            let own = name(id)?;
            let mut on: Vec<String> = edges.get(id)?.iter().filter_map(|next| name(next)).collect();
            on.sort();
            Some((own.clone(), json!({ "ref": own, "dependsOn": on })))
        })
        .collect();
    dependencies.sort_by(|(a, _), (b, _)| a.cmp(b));
    let values = |pairs: Vec<(String, Value)>| pairs.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": format!("pkg:cargo/bastle@{version}"),
            "name": "bastle",
            "version": version,
            "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
        } },
        "components": values(components),
        "dependencies": values(dependencies),
    }))
}

/// What a crate links or runs at build time; what only its tests use is left out.
fn shipped(node: &Node) -> BTreeSet<&str> {
    node.deps
        .iter()
        .filter(|dependency| {
            dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind.as_deref() != Some("dev"))
        })
        .map(|dependency| dependency.pkg.as_str())
        .collect()
}

fn reference(one: &Crate) -> String {
    format!("pkg:cargo/{}@{}", one.name, one.version)
}

fn component(one: &Crate, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut value = json!({
        "type": "library",
        "bom-ref": reference(one),
        "name": one.name,
        "version": one.version,
        "scope": "required",
    });
    // Ours have no source; a reference to a registry would be wrong for them.
    if one.source.is_some() {
        value["purl"] = json!(reference(one));
    }
    if let Some(license) = &one.license {
        // An older way to write a choice.
        value["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(digest) = checksums.get(&(one.name.clone(), one.version.clone())) {
        value["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
    }
    value
}

/// (name, version) → SHA-256 of the crate's file. cargo writes the lock file, one key on a line.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        block.lines().find_map(|line| {
            let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
            rest.strip_suffix('"').map(str::to_owned)
        })
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let key = (value(block, "name")?, value(block, "version")?);
            Some((key, value(block, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        serde_json::from_value(json!({
            "packages": [
                { "id": "r", "name": "bastle", "version": "1.0.0", "license": "MIT", "source": null },
                { "id": "a", "name": "linked", "version": "2.0.0", "license": "MIT/Apache-2.0", "source": "registry" },
                { "id": "b", "name": "built", "version": "3.0.0", "license": null, "source": "registry" },
                { "id": "t", "name": "tested", "version": "4.0.0", "license": "MIT", "source": "registry" },
                { "id": "x", "name": "elsewhere", "version": "5.0.0", "license": "MIT", "source": "registry" },
            ],
            "resolve": { "root": "r", "nodes": [
                { "id": "r", "deps": [
                    { "pkg": "a", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "t", "dep_kinds": [{ "kind": "dev" }] },
                ] },
                { "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": "build" }, { "kind": "dev" }] }] },
                { "id": "b", "deps": [] },
                { "id": "t", "deps": [{ "pkg": "x", "dep_kinds": [{ "kind": null }] }] },
                { "id": "x", "deps": [] },
            ] },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_linked_or_built_is_listed_and_what_only_tests_use_is_not() {
        let sums = checksums("[[package]]\nname = \"linked\"\nversion = \"2.0.0\"\nchecksum = \"abc\"\n");
        let list = list(&metadata(), &sums, "1.0.0").unwrap();
        let names: Vec<&str> = list["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|component| component["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["built", "linked"]);
        assert_eq!(list["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(
            list["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(
            list["dependencies"][0],
            json!({ "ref": "pkg:cargo/bastle@1.0.0", "dependsOn": ["pkg:cargo/linked@2.0.0"] })
        );
    }

    #[test]
    fn a_checksum_is_taken_with_its_own_name_and_version_only() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1\"\n\n[[package]]\nname = \"b\"\nversion = \"2\"\nchecksum = \"f\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("b".to_owned(), "2".to_owned())], "f");
    }
}
