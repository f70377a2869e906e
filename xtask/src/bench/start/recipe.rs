//! What the lower bound has to make: bastle's own plan and the mount table of one of its sandboxes, line by line.
//!
//! The same mounts, files and Landlock rules as the fence that it is compared with, and no other: a bound that shows
//! less would be a bound of something else.
use crate::bench::try_once;
use crate::sh::Failed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The devices and links of `/dev`.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("pts/ptmx", "dev/ptmx"),
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// Asks bastle for both. `bastle` makes a command of its arguments, in the workspace.
pub(super) fn of(bastle: &dyn Fn(&[&str]) -> Command) -> Result<String, Failed> {
    let unusable = |what: &str, why: String| Failed::new(format!("recipe of the lower bound: {what}"), why);
    let asked = [
        "run",
        "--net",
        "none",
        "--dry-run-policy",
        "--json",
        "--",
        "./true",
    ];
    let (text, _) = try_once(&mut bastle(&asked)).map_err(|why| unusable("plan", why))?;
    let shown: Value = serde_json::from_str(&text).map_err(|error| unusable("plan", error.to_string()))?;
    let asked = [
        "run",
        "--quiet",
        "--net",
        "none",
        "--",
        "cat",
        "/proc/self/mountinfo",
    ];
    let (mounts, _) = try_once(&mut bastle(&asked)).map_err(|why| unusable("mounts", why))?;
    write(&shown["plan"], &mounts, &|source| Path::new(source).is_dir()).ok_or_else(|| {
        let why = "it has an entry that is not known here".to_owned();
        unusable("plan", why)
    })
}

/// The recipe under construction.
#[derive(Default)]
struct Recipe {
    lines: Vec<String>,
    /// Directories that are there.
    made: BTreeSet<String>,
    /// Where trees of the host are: what lies below them is there already.
    hosts: Vec<String>,
}

/// `None`: an entry of the plan cannot be expressed.
fn write(plan: &Value, mounts: &str, is_directory: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut recipe = Recipe::default();
    for entry in plan["mounts"].as_array()? {
        let (at, kind) = (relative(entry["at"].as_str()?), &entry["kind"]);
        recipe.entry(at, kind, mounts, is_directory)?;
    }
    for rule in plan["landlock"].as_array()? {
        let path = relative(rule["path"].as_str()?);
        recipe.line(&["rule", access(&rule["access"])?, path]);
    }
    let mut text = recipe.lines.join("\n");
    text.push('\n');
    Some(text)
}

impl Recipe {
    fn line(&mut self, words: &[&str]) {
        self.lines.push(words.join("\t"));
    }

    fn is_host(&self, at: &str) -> bool {
        self.hosts.iter().any(|host| is_below(at, host))
    }

    /// The directory, and those above it, where they are not there yet.
    fn directory(&mut self, at: &str) {
        if at.is_empty() || self.is_host(at) || self.made.contains(at) {
            return;
        }
        self.directory(above(at));
        self.line(&["dir", at]);
        self.made.insert(at.to_owned());
    }

    fn entry(
        &mut self,
        at: &str,
        kind: &Value,
        mounts: &str,
        is_directory: &dyn Fn(&str) -> bool,
    ) -> Option<()> {
        self.directory(above(at));
        match kind["type"].as_str()? {
            "symlink" => self.line(&["link", kind["target"].as_str()?, at]),
            // One line of it: how long it is does not matter to the kernel.
            "file" => self.line(&[
                "file",
                at,
                kind["contents"].as_str()?.lines().next().unwrap_or_default(),
            ]),
            "scratch" => {
                self.directory(at);
                self.scratch(at, kind["mode"].as_u64()?);
            }
            "bind" => {
                let source = kind["source"].as_str()?;
                let mut how = access(&kind["access"])?.to_owned();
                if kind["owned"].as_bool()? {
                    how.push_str("+owned");
                }
                match (self.is_host(at), is_directory(source)) {
                    (true, _) => {}
                    (false, true) => self.directory(at),
                    (false, false) => how.push_str("+file"),
                }
                self.line(&["bind", source, at, &how]);
                self.hosts.push(at.to_owned());
            }
            "dev" => self.devices(),
            "proc" => self.processes(mounts),
            _ => return None,
        }
        Some(())
    }

    fn scratch(&mut self, at: &str, mode: u64) {
        self.line(&["scratch", at, &format!("{mode:o}")]);
        // Empty: what was made below it before is not seen any more.
        self.made.retain(|made| made == at || !is_below(made, at));
    }

    fn devices(&mut self) {
        self.directory("dev");
        for name in NODES {
            self.line(&["node", &format!("/dev/{name}"), &format!("dev/{name}")]);
        }
        self.directory("dev/pts");
        self.line(&["pts", "dev/pts"]);
        self.directory("dev/shm");
        self.scratch("dev/shm", 0o1777);
        for (target, at) in LINKS {
            self.line(&["link", target, at]);
        }
    }

    /// What is covered there depends on the kernel: the table of a sandbox says it.
    fn processes(&mut self, mounts: &str) {
        self.directory("proc");
        self.line(&["proc", "proc"]);
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(3);
            let (Some(root), Some(at)) = (fields.next(), fields.next()) else {
                continue;
            };
            if !at.starts_with("/proc/") {
                continue;
            }
            match root {
                "/.mask/directory" => self.line(&["mask", relative(at), "dir"]),
                "/.mask/file" => self.line(&["mask", relative(at), "file"]),
                _ => self.line(&["again", relative(at)]),
            }
        }
    }
}

fn access(value: &Value) -> Option<&'static str> {
    match value.as_str()? {
        "read-only" => Some("ro"),
        "read-write" => Some("rw"),
        _ => None,
    }
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_lower_bound_makes_what_the_plan_has_and_each_directory_once() {
        let bind = |source: &str, access: &str, owned: bool| json!({ "type": "bind", "source": source, "access": access, "owned": owned });
        let plan = json!({
            "mounts": [
                { "at": "/bin", "kind": { "type": "symlink", "target": "usr/bin" } },
                { "at": "/etc/ssl/certs", "kind": bind("/etc/ssl/certs", "read-only", false) },
                { "at": "/etc/services", "kind": bind("/etc/services", "read-only", false) },
                { "at": "/proc", "kind": { "type": "proc" } },
                { "at": "/tmp", "kind": { "type": "scratch", "mode": 1023 } },
                { "at": "/tmp/p", "kind": bind("/tmp/p", "read-write", true) },
                { "at": "/tmp/p/true", "kind": bind("/tmp/p/true", "read-only", true) },
            ],
            "landlock": [{ "path": "/tmp", "access": "read-write" }],
        });
        let mounts =
            "5 4 0:1 / / ro - x\n6 5 0:1 /.mask/file /proc/keys ro - x\n7 5 0:2 /sys /proc/sys ro - x\n";
        let directories = |source: &str| source.ends_with("certs") || source.ends_with("p");
        let expected = [
            "link\tusr/bin\tbin",
            "dir\tetc",
            "dir\tetc/ssl",
            "dir\tetc/ssl/certs",
            "bind\t/etc/ssl/certs\tetc/ssl/certs\tro",
            "bind\t/etc/services\tetc/services\tro+file",
            "dir\tproc",
            "proc\tproc",
            "mask\tproc/keys\tfile",
            "again\tproc/sys",
            "dir\ttmp",
            "scratch\ttmp\t1777",
            "dir\ttmp/p",
            "bind\t/tmp/p\ttmp/p\trw+owned",
            "bind\t/tmp/p/true\ttmp/p/true\tro+owned",
            "rule\trw\ttmp",
        ];
        let written = write(&plan, mounts, &directories).expect("every kind is known");
        assert_eq!(written.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_entry_that_the_lower_bound_cannot_make_is_an_error_and_not_left_out() {
        let plan = json!({ "mounts": [{ "at": "/x", "kind": { "type": "overlay" } }], "landlock": [] });
        assert_eq!(write(&plan, "", &|_| false), None);
    }
}
