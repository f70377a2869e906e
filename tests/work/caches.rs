//! Caches between runs: what one run puts into its own copy reaches no other before a person merges it.
use crate::support::{Lab, Output, bastle, for_each_identity};
use serde_json::Value;

const CRATES: &str = "$CARGO_HOME/registry/cache/mirror";
const GOOD: &str = ".cargo/registry/cache/mirror/good-1.0.0.crate";

fn run(lab: &Lab, script: &str) -> (String, Output) {
    let fence = lab.fence().flags(["--cache", "cargo"]);
    let name = fence.name().to_owned();
    (name, fence.sh(script))
}

fn cache(lab: &Lab, words: &[&str]) -> (i32, Value, String) {
    let mut command = lab.command(bastle());
    let done = command
        .arg("cache")
        .args(words)
        .arg("--json")
        .output()
        .expect("bastle runs");
    let value = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code().unwrap_or(-1), value, text)
}

/// Fails where a printed object is not what its published schema says.
pub(crate) fn conforms(name: &str, value: &Value) {
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let schema = std::fs::read_to_string(path).expect("a schema");
    let schema = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| error.to_string())
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?} in {value}");
}

fn fate(told: &Value, path: &str) -> Value {
    let names = told["caches"][0]["names"].as_array().expect("a list");
    let found = names.iter().find(|name| name["path"] == path);
    found.map_or(Value::Null, |name| name["fate"].clone())
}

#[test]
fn a_poisoned_entry_of_one_run_is_not_seen_by_the_next_and_an_honest_one_is_after_its_merge() {
    for_each_identity(|lab| {
        let put = format!("mkdir -p {CRATES} && printf honest > {CRATES}/good-1.0.0.crate");
        let (one, output) = run(lab, &put);
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert_eq!(output.events("cache-lent").len(), 1, "{output:?}");
        assert!(
            output.ended.stderr.contains(&format!("bastle cache merge {one}")),
            "{output:?}"
        );
        let look = format!("cat {CRATES}/good-1.0.0.crate 2>/dev/null || echo absent");
        let (_, output) = run(lab, &look);
        assert_eq!(output.said(), "absent", "{output:?}");
        let (code, told, text) = cache(lab, &["merge", &one]);
        assert_eq!(
            (code, fate(&told, GOOD)),
            (0, Value::from("new")),
            "{told} {text}"
        );
        let (_, output) = run(lab, &look);
        assert_eq!(output.said(), "honest", "{output:?}");
        // The next one poisons its own copy only, before and after a merge of it.
        let poison = format!("printf poison > {CRATES}/good-1.0.0.crate && cat {CRATES}/good-1.0.0.crate");
        let (bad, output) = run(lab, &poison);
        assert_eq!(output.said(), "poison", "its own copy is writable: {output:?}");
        let (_, output) = run(lab, &look);
        assert_eq!(output.said(), "honest", "{output:?}");
        cache(lab, &["merge", &bad]);
        let (_, output) = run(lab, &look);
        assert_eq!(output.said(), "honest", "{output:?}");
    });
}

#[test]
fn a_link_to_the_users_keys_is_not_followed_by_a_merge() {
    for_each_identity(|lab| {
        let key = lab.plant(&lab.home().join(".ssh/id_ed25519"), "PRIVATE KEY OF THE USER");
        let script = format!(
            "mkdir -p {CRATES} && ln -s {} {CRATES}/key-1.0.0.crate && ln -s {} {CRATES}/dir && \
             printf ok > {CRATES}/good-1.0.0.crate && printf t > $CARGO_HOME/registry/credentials.toml",
            key.display(),
            lab.home().join(".ssh").display()
        );
        let (name, output) = run(lab, &script);
        assert_eq!(output.ended.code, 0, "{output:?}");
        let (code, told, text) = cache(lab, &["merge", &name]);
        assert_eq!(code, 0, "{text}");
        let linked = ".cargo/registry/cache/mirror/key-1.0.0.crate";
        conforms("cache-merge", &told);
        assert_eq!(fate(&told, linked), "symlink", "{told}");
        assert_eq!(
            fate(&told, ".cargo/registry/credentials.toml"),
            "secret",
            "{told}"
        );
        assert_eq!(fate(&told, GOOD), "new", "{told}");
        let (_, output) = run(lab, &format!("ls -a {CRATES}; cat {CRATES}/key* 2>/dev/null"));
        assert!(!output.said().contains("PRIVATE"), "{output:?}");
        assert!(
            output.said().contains("good-1.0.0.crate") && !output.said().contains("key"),
            "{output:?}"
        );
    });
}

#[test]
fn the_shared_cache_itself_cannot_be_reached_from_inside() {
    for_each_identity(|lab| {
        let (one, _) = run(
            lab,
            &format!("mkdir -p {CRATES} && printf x > {CRATES}/good-1.0.0.crate"),
        );
        cache(lab, &["merge", &one]);
        let state = lab
            .home()
            .join(".local/state/bastle/cache/cargo")
            .display()
            .to_string();
        let script = format!("ls {state} 2>&1; ls $CARGO_HOME/registry/../../../../cache 2>&1; ls {CRATES}");
        let (_, output) = run(lab, &script);
        assert!(output.said().ends_with("good-1.0.0.crate"), "{output:?}");
        assert!(!output.said().contains("current"), "{output:?}");
    });
}

#[test]
fn a_project_cannot_ask_for_a_cache_and_an_unknown_one_is_refused_by_name() {
    for_each_identity(|lab| {
        lab.project(
            "agent-permissions.json",
            r#"{"version": 1, "cache": ["npm"], "cacheMerge": "new-files"}"#,
        );
        let output = lab.fence().sh("echo ${npm_config_cache:-none}");
        assert_eq!(output.said(), "none", "{output:?}");
        assert!(!lab.home().join(".local/state/bastle/cache").exists());
        let output = lab.fence().flags(["--cache", "carg"]).sh("true");
        assert_eq!(output.ended.code, 125, "{output:?}");
        assert!(output.ended.stderr.contains("cargo"), "{output:?}");
    });
}

#[test]
fn a_dry_run_makes_no_layer_and_a_policy_of_the_person_merges_new_files_by_itself() {
    for_each_identity(|lab| {
        let output = lab
            .fence()
            .flags(["--cache", "npm", "--dry-run-policy"])
            .sh("true");
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(
            output.ended.stdout.contains("npm at /home/agent/.npm"),
            "{output:?}"
        );
        assert!(!lab.home().join(".local/state/bastle/cache").exists());
        lab.plant(
            &lab.home().join(".config/bastle/policy.json"),
            r#"{"version": 1, "cache": ["npm"], "cacheMerge": "new-files"}"#,
        );
        let index = "$npm_config_cache/_cacache/index-v5";
        let output = lab.fence().sh(&format!(
            "mkdir -p {index}/aa && printf entry > {index}/aa/bb && ln -s / {index}/root"
        ));
        assert_eq!(output.events("cache-merged")[0]["merged"], 1, "{output:?}");
        let output = lab.fence().sh(&format!("cat {index}/aa/bb; ls {index}"));
        assert_eq!(output.said(), "entryaa", "{output:?}");
        let (code, told, _) = cache(lab, &["ls"]);
        assert_eq!(
            (code, &told["caches"][0]["files"]),
            (0, &Value::from(1)),
            "{told}"
        );
        assert_eq!(cache(lab, &["merge", "nobody"]).0, 3);
        assert_eq!(cache(lab, &["rm", "cargo"]).0, 3);
        conforms("cache-ls", &told);
        let (code, told, _) = cache(lab, &["rm", "npm"]);
        assert_eq!(code, 0, "{told}");
        conforms("cache-rm", &told);
        assert!(!lab.home().join(".local/state/bastle/cache/npm").exists());
    });
}

#[test]
fn a_large_cache_costs_a_run_its_changes_alone_and_a_removed_entry_is_gone_for_that_run_only() {
    for_each_identity(|lab| {
        let fill = format!(
            "mkdir -p {CRATES} && printf honest > {CRATES}/good-1.0.0.crate && \
             head -c 3000000 /dev/zero > {CRATES}/large-1.0.0.crate"
        );
        let (one, _) = run(lab, &fill);
        let (code, told, text) = cache(lab, &["merge", &one]);
        assert_eq!(code, 0, "{told} {text}");
        let change = format!(
            "rm {CRATES}/large-1.0.0.crate && printf new > {CRATES}/new-1.0.0.crate && \
             mv {CRATES}/good-1.0.0.crate {CRATES}/moved-1.0.0.crate && ls {CRATES}"
        );
        let (two, output) = run(lab, &change);
        assert_eq!(output.said(), "moved-1.0.0.crate\nnew-1.0.0.crate", "{output:?}");
        let how = output
            .events("note")
            .into_iter()
            .find(|note| note["topic"] == "cache cargo");
        let how = how.expect("how it has the cache is on record")["text"].to_string();
        // Where the kernel tells what is read, a run has a copy, so that what is told is all.
        let layered = lab.identity.uid() != 0;
        assert_eq!(how.contains("below a layer"), layered, "{how}");
        let left = lab.home().join(".local/state/bastle/cache/cargo/runs").join(&two);
        let bytes = walk(&left);
        assert!(bytes < 1_000_000, "{bytes} bytes are left of a change of a few");
        let (_, output) = run(lab, &format!("cat {CRATES}/good-1.0.0.crate; ls {CRATES}"));
        assert_eq!(
            output.said(),
            "honestgood-1.0.0.crate\nlarge-1.0.0.crate",
            "{output:?}"
        );
        let (_, told, _) = cache(lab, &["merge", &two]);
        let path = |name: &str| format!(".cargo/registry/cache/mirror/{name}-1.0.0.crate");
        assert_eq!(fate(&told, &path("new")), "new", "{told}");
        assert_eq!(fate(&told, &path("moved")), "new", "{told}");
        let (_, output) = run(lab, &format!("ls {CRATES}"));
        assert_eq!(
            output.said().lines().count(),
            4,
            "nothing shared was taken away: {output:?}"
        );
    });
}

fn walk(path: &std::path::Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else {
        return 0;
    };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = std::fs::read_dir(path).expect("own directory").flatten();
    entries.map(|entry| walk(&entry.path())).sum()
}
