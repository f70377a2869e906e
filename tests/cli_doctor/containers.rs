//! Doctor and runs inside real containers: refused with the default profile, and working with exactly the options that doctor prints.
use super::follows;
use super::support::{Ended, Limit, bastle, eventually, run, skip};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A root file system with busybox and bastle, and a store for containers that is gone with it.
struct Containers {
    place: tempfile::TempDir,
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

impl Containers {
    /// Prepares it; or says what is missing.
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("containers of the tests are made by root".to_owned());
        }
        let missing = |name: &str| format!("there is no {name}");
        find("podman").ok_or_else(|| missing("podman"))?;
        find("runc").ok_or_else(|| missing("runc"))?;
        let busybox = find("busybox").ok_or_else(|| missing("busybox"))?;
        let containers = Self {
            place: tempfile::tempdir().expect("a place"),
        };
        containers.fill(&busybox);
        // Machines without a right over resource limits need smaller ones than podman asks for.
        let settings = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n\
                        [engine]\nlock_type = \"file\"\n";
        std::fs::write(containers.place.path().join("containers.conf"), settings).expect("own place");
        let control = containers.run(&[], &["true"]);
        if control.code != 0 {
            return Err(format!(
                "podman starts no container here: {}",
                control.stderr.trim()
            ));
        }
        Ok(containers)
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    fn fill(&self, busybox: &Path) {
        let root = self.root();
        for directory in [
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "proc",
            "sys",
            "dev",
            "etc",
            "tmp",
            "var/tmp",
            "home",
        ] {
            std::fs::create_dir_all(root.join(directory)).expect("own place");
        }
        for name in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.join(name)).expect("own place");
        }
        for open in ["tmp", "var/tmp", "home"] {
            std::fs::set_permissions(root.join(open), PermissionsExt::from_mode(0o1777)).expect("own place");
        }
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).expect("own place");
        std::fs::set_permissions(self.place.path(), PermissionsExt::from_mode(0o755)).expect("own place");
        std::fs::copy(busybox, root.join("usr/bin/busybox")).expect("can be copied");
        for name in ["sh", "true", "id", "cat", "mktemp"] {
            symlink("busybox", root.join("usr/bin").join(name)).expect("own place");
        }
        std::fs::copy(bastle(), root.join("usr/bin/bastle")).expect("can be copied");
        for (file, text) in [
            (
                "passwd",
                "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/home:/bin/sh\n",
            ),
            ("group", "root:x:0:\nada:x:1000:\n"),
        ] {
            std::fs::write(root.join("etc").join(file), text).expect("own place");
        }
        let listed = run(Command::new("ldd").arg(bastle()), b"", Limit::HANG);
        for library in listed
            .stdout
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            // Through the links of this root; where the host has none, the same names work.
            let target = root.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(target.parent().expect("below the root")).expect("own place");
            std::fs::copy(library, &target).expect("can be copied");
        }
    }

    /// A command in a container of its own, with options of `podman run`.
    fn run(&self, options: &[&str], words: &[&str]) -> Ended {
        let place = self.place.path();
        let mut command = Command::new("podman");
        command
            .current_dir(place)
            .env("CONTAINERS_CONF", place.join("containers.conf"))
            .arg("--root")
            .arg(place.join("store"))
            .arg("--runroot")
            .arg(place.join("state"))
            .arg("--tmpdir")
            .arg(place.join("engine"))
            .args(["--storage-driver", "vfs", "--runtime", "runc"])
            .args(["--cgroup-manager", "cgroupfs", "--log-level", "error"])
            .args(["run", "--rm", "--network", "none", "--user", "1000:1000"])
            .args(["--cgroup-parent", &format!("/{}", group())])
            .args(options)
            .arg("--rootfs")
            .arg(self.root())
            .args(words);
        run(&mut command, b"", Limit::HANG)
    }

    fn doctor(&self, options: &[&str]) -> Value {
        let ended = self.run(options, &["bastle", "doctor", "--json"]);
        let found = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        follows("doctor", &found);
        found
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        // Podman leaves the parent of its groups behind, in every hierarchy.
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
        let hierarchies = hierarchies.filter_map(Result::ok).map(|entry| entry.path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let group = hierarchy.join(group());
            // Its monitor is in a group of its own, and may live a moment longer than the container.
            let gone = || {
                let below = [group.join("conmon"), group.clone()];
                below
                    .iter()
                    .all(|group| !group.is_dir() || std::fs::remove_dir(group).is_ok())
            };
            if !eventually(Limit::HANG, gone) {
                eprintln!("{} stays behind", group.display());
            }
        }
    }
}

/// The control group of the containers of this process.
fn group() -> String {
    format!("bastle-containers-{}", std::process::id())
}

/// The options that a fix names.
fn options(found: &Value) -> Vec<String> {
    let fence = super::check(found, "fence");
    let fix = fence["fix"][0].as_str().expect("one fix");
    let words = fix
        .strip_prefix("podman run ")
        .and_then(|rest| rest.split(" ...").next());
    let words = words.unwrap_or_else(|| panic!("no options of podman: {fence}"));
    words.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_container_with_the_default_profile_is_told_the_options_and_with_them_the_fence_works() {
    let name = "a_container_with_the_default_profile_is_told_the_options_and_with_them_the_fence_works";
    let containers = match Containers::new() {
        Ok(containers) => containers,
        Err(reason) => return skip(name, &reason),
    };
    let refused = containers.doctor(&[]);
    assert_eq!(
        (refused["native"].as_bool(), refused["cause"].as_str()),
        (Some(false), Some("seccomp-filter")),
        "{refused}"
    );
    let printed = options(&refused);
    assert_eq!(printed.len(), 4, "{printed:?}");
    // The file is made as the fix says.
    let profile = containers.run(&[], &["bastle", "doctor", "--seccomp-profile"]);
    std::fs::write(
        containers.place.path().join("bastle-seccomp.json"),
        profile.stdout,
    )
    .expect("own place");
    // With one of the two, the other is asked for and nothing else.
    let filter_only = containers.doctor(&["--security-opt", "seccomp=bastle-seccomp.json"]);
    assert_eq!(filter_only["cause"], "proc-covered", "{filter_only}");
    assert_eq!(options(&filter_only), ["--security-opt", "unmask=ALL"]);
    let proc_only = containers.doctor(&["--security-opt", "unmask=ALL"]);
    assert_eq!(proc_only["cause"], "seccomp-filter", "{proc_only}");
    assert_eq!(options(&proc_only).len(), 2);
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    let works = containers.doctor(&printed);
    assert_eq!(
        (works["native"].as_bool(), works["cause"].as_str()),
        (Some(true), None),
        "{works}"
    );
    assert_eq!(
        super::check(&works, "container")["fact"],
        "this is the inside of a container (Podman)"
    );
    let ran = containers.run(
        &printed,
        &[
            "sh",
            "-c",
            "cd \"$(mktemp -d)\" && bastle run --quiet -- sh -c 'id -u; cat /proc/self/status'",
        ],
    );
    assert!(ran.stdout.starts_with("1000\n"), "{ran:?}");
}
