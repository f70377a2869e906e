//! Service files and the Debian package: how much a service is exposed, whether two builds are the same bytes, and
//! what installing, removing and purging leave.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Limit, bastle, run, skip};

/// Packing a large binary with one thread on a loaded machine.
const PACK: Limit = Limit(Duration::from_secs(600));
/// The most that systemd's own rules may say of a service, in tenths.
const MOST: &str = "20";
/// The same of the one that builds sandboxes as root, without any excuse.
const MOST_OF_THE_BUILDER: &str = "34";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn unit(name: &str) -> PathBuf {
    repository().join("packaging/systemd").join(name)
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|directory| directory.join(program).is_file())
}

fn analyze(name: &str, words: &[&str]) -> support::Ended {
    let mut command = Command::new("systemd-analyze");
    command
        .env("LC_ALL", "C.UTF-8")
        .args(["security", "--no-pager", "--offline=true"])
        .args(words)
        .arg(unit(name));
    run(&mut command, b"", Limit::HANG)
}

/// What the rules of systemd find fault with in a unit, by their names.
fn faults(name: &str) -> BTreeSet<String> {
    let said = analyze(name, &["--json=short"]);
    let rows: Vec<Value> =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    rows.iter()
        .filter(|row| {
            row["exposure"]
                .as_str()
                .and_then(|text| text.parse::<f64>().ok())
                .or(row["exposure"].as_f64())
                .is_some_and(|exposure| exposure > 0.0)
        })
        .map(|row| {
            let field = if row["json_field"].is_string() {
                "json_field"
            } else {
                "name"
            };
            row[field].as_str().expect("a name").to_owned()
        })
        .collect()
}

#[test]
fn no_service_is_more_exposed_than_it_has_to_be() {
    if !has("systemd-analyze") {
        return skip(
            "no_service_is_more_exposed_than_it_has_to_be",
            "there is no systemd-analyze",
        );
    }
    let excuses = unit("spawner-exposure.json");
    let excused = format!("--security-policy={}", excuses.display());
    let threshold = |most: &str| format!("--threshold={most}");
    for (name, words) in [
        ("bastle.service", vec![threshold(MOST)]),
        ("bastle-egress@.service", vec![threshold(MOST)]),
        ("bastle-spawner-rootless.service", vec![threshold(MOST)]),
        ("bastle-spawner.service", vec![threshold(MOST_OF_THE_BUILDER)]),
        ("bastle-spawner.service", vec![threshold(MOST), excused]),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = analyze(name, &words);
        assert_eq!(said.code, 0, "{name} {words:?}: {}{}", said.stdout, said.stderr);
    }
    // The same question about a service without any of it: the tool does judge.
    let place = tempfile::tempdir().expect("a place");
    let bare = place.path().join("bare.service");
    std::fs::write(&bare, "[Service]\nExecStart=/bin/true\n").expect("can be written");
    let mut command = Command::new("systemd-analyze");
    command
        .args(["security", "--no-pager", "--offline=true", &threshold(MOST)])
        .arg(bare);
    assert_ne!(run(&mut command, b"", Limit::HANG).code, 0);
}

#[test]
fn what_the_builder_of_sandboxes_is_excused_is_what_it_lacks_and_nothing_else() {
    if !has("systemd-analyze") {
        return skip(
            "what_the_builder_of_sandboxes_is_excused_is_what_it_lacks_and_nothing_else",
            "there is no systemd-analyze",
        );
    }
    let text = std::fs::read_to_string(unit("spawner-exposure.json")).expect("is there");
    let excuses: Value = serde_json::from_str(&text).expect("is JSON");
    let lacking = faults("bastle-spawner.service");
    for (name, excuse) in excuses.as_object().expect("an object") {
        assert!(lacking.contains(name), "{name} is excused, and the unit has it");
        assert_eq!(excuse["weight"], 0, "{name}");
        let reason = excuse["description_bad"].as_str().unwrap_or_default();
        assert!(reason.starts_with("Needed: "), "{name} has no reason");
    }
}

#[test]
fn units_say_nothing_that_systemd_does_not_understand() {
    if !has("systemd-analyze") {
        return skip(
            "units_say_nothing_that_systemd_does_not_understand",
            "there is no systemd-analyze",
        );
    }
    for name in [
        "bastle.service",
        "bastle-egress@.service",
        "bastle-spawner.service",
        "bastle-spawner-rootless.service",
    ] {
        let said = analyze(name, &[]);
        let complaints: Vec<&str> = said
            .stderr
            .lines()
            // Known since systemd 254; older ones pass over it, and say so.
            .filter(|line| !line.contains("DelegateSubgroup"))
            .collect();
        assert_eq!(complaints, Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn the_files_for_nix_are_understood_by_its_parser() {
    let name = "the_files_for_nix_are_understood_by_its_parser";
    if !has("nix-instantiate") {
        return skip(name, "there is no nix-instantiate");
    }
    let parse = |path: &Path| {
        let mut command = Command::new("nix-instantiate");
        command.arg("--parse").arg(path);
        run(&mut command, b"", Limit::HANG)
    };
    for file in ["module.nix", "default.nix"] {
        let said = parse(&repository().join("packaging/nixos").join(file));
        assert_eq!(said.code, 0, "{file}: {}", said.stderr);
    }
    let place = tempfile::tempdir().expect("a place");
    let broken = place.path().join("broken.nix");
    std::fs::write(&broken, "{ a = ; }").expect("can be written");
    assert_ne!(parse(&broken).code, 0);
}

/// Packs the binary under test into `out` and returns the package.
fn pack(out: &Path) -> PathBuf {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(repository())
        .args([
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--",
            "package",
            "--as-built",
            "--bin",
        ])
        .arg(bastle())
        .arg("--out")
        .arg(out);
    let said = run(&mut command, b"", PACK);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let deb = said
        .stdout
        .lines()
        .find(|line| Path::new(line).extension().is_some_and(|ending| ending == "deb"))
        .unwrap_or_else(|| panic!("no package: {}", said.stdout));
    PathBuf::from(deb)
}

#[test]
fn two_packages_of_one_binary_are_the_same_bytes_and_their_checksums_hold() {
    let name = "two_packages_of_one_binary_are_the_same_bytes_and_their_checksums_hold";
    if !has("dpkg-deb") {
        return skip(name, "there is no dpkg-deb");
    }
    let place = tempfile::tempdir().expect("a place");
    let outs = ["one", "two"].map(|out| place.path().join(out));
    let debs = outs.clone().map(|out| pack(&out));
    let read = |path: &Path| std::fs::read(path).expect("was just written");
    assert!(read(&debs[0]) == read(&debs[1]), "the packages differ");
    let sums = outs.clone().map(|out| read(&out.join("SHA256SUMS")));
    assert_eq!(sums[0], sums[1]);
    let check = |out: &Path| {
        let mut command = Command::new("sha256sum");
        command
            .current_dir(out)
            .args(["--check", "--strict", "SHA256SUMS"]);
        run(&mut command, b"", Limit::HANG).code
    };
    assert_eq!(check(&outs[0]), 0);
    let list = std::fs::read_dir(&outs[0])
        .expect("can be listed")
        .map(|entry| entry.expect("can be listed").path())
        .find(|path| path.to_string_lossy().ends_with(".cdx.json"))
        .expect("the list of parts is there");
    let parts: Value = serde_json::from_slice(&read(&list)).expect("is JSON");
    let names: Vec<&str> = parts["components"]
        .as_array()
        .expect("parts")
        .iter()
        .filter_map(|part| part["name"].as_str())
        .collect();
    assert!(
        names.contains(&"rustls") && names.contains(&"bastle-spawner"),
        "{names:?}"
    );
    assert!(
        !names.contains(&"proptest") && !names.contains(&"tempfile"),
        "{names:?}"
    );
    // One changed byte is seen.
    let mut changed = read(&list);
    changed.push(b' ');
    std::fs::write(&list, changed).expect("can be written");
    assert_ne!(check(&outs[0]), 0);
}

/// The part of the script's output that follows `=== name`.
fn section<'a>(said: &'a str, name: &str) -> Vec<&'a str> {
    said.split("=== ")
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
        .unwrap_or_else(|| panic!("the script did not get to {name}: {said}"))
        .lines()
        .collect()
}

#[test]
fn a_removed_package_leaves_configuration_and_work_and_a_purged_one_leaves_work_alone() {
    let name = "a_removed_package_leaves_configuration_and_work_and_a_purged_one_leaves_work_alone";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "installing needs root");
    }
    if let Some(missing) = ["dpkg", "unshare", "systemd-sysusers"]
        .iter()
        .find(|tool| !has(tool))
    {
        return skip(name, &format!("there is no {missing}"));
    }
    if Path::new("/usr/bin/bastle").exists() {
        return skip(name, "bastle is installed on this host");
    }
    let place = tempfile::tempdir().expect("a place");
    let deb = pack(&place.path().join("out"));
    let root = place.path().join("root");
    std::fs::create_dir(&root).expect("a fresh place");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh"])
        .arg(repository().join("tests/package/root.sh"))
        .args([&root, &deb]);
    let said = run(&mut command, b"", PACK);
    if said.stderr.contains("pivot_root") || said.stderr.contains("mount:") {
        return skip(
            name,
            &format!("this host gives no root to install into: {}", said.stderr),
        );
    }
    let at = |name: &str| section(&said.stdout, name);
    assert_eq!(at("before"), Vec::<&str>::new());
    assert_eq!(at("install"), ["installed"], "and every file is as packed");
    check_apparmor(&at);
    assert_eq!(
        at("enabled"),
        Vec::<&str>::new(),
        "nothing is started without being asked"
    );
    check_owners(&at("owners"));
    assert_eq!(
        at("users"),
        [
            "bastle:/var/lib/bastle:/usr/sbin/nologin",
            "bastle-egress:/var/lib/bastle-egress:/usr/sbin/nologin"
        ]
    );
    assert_eq!(at("version"), [concat!("bastle ", env!("CARGO_PKG_VERSION"))]);
    let smoke = at("smoke").join("\n");
    assert!(smoke.contains("inside as 1000"), "{smoke}\n{}", said.stderr);
    assert!(smoke.contains("/etc/shadow: "), "what was denied: {smoke}");
    assert_eq!(at("policy"), ["accepted"]);
    assert_eq!(
        at("reinstall"),
        ["{\"version\":1,\"limits\":{\"pids\":99}}", "2"],
        "what the administrator wrote and enabled stays"
    );
    assert_eq!(
        at("remove"),
        [
            "config-files",
            "/etc/bastle/policy.json",
            "",
            "/var/lib/bastle/work:",
            "calm-otter",
            "2"
        ]
    );
    let kept = at("purge-with-work");
    assert!(kept[0].contains("/var/lib/bastle stays"), "{kept:?}");
    assert_eq!(kept[1..], ["calm-otter"]);
    assert_eq!(at("purge"), ["none"]);
    assert_eq!(at("after"), Vec::<&str>::new());
    assert_eq!(at("end"), Vec::<&str>::new());
}

/// The profile is loaded where this AppArmor knows its rule, and gone after the removal.
fn check_apparmor<'a>(at: &impl Fn(&str) -> Vec<&'a str>) {
    let profile = "/etc/apparmor.d/bastle";
    assert_eq!(at("apparmor-3"), Vec::<&str>::new());
    assert_eq!(
        at("apparmor-4"),
        ["--replace --write-cache /etc/apparmor.d/bastle", profile]
    );
    assert_eq!(at("apparmor-removed"), ["--remove /etc/apparmor.d/bastle"]);
}

/// A control group of its own, so that a booted systemd manages nothing but itself. Removed when dropped.
struct OwnGroup(PathBuf);

impl OwnGroup {
    fn make() -> Result<Self, String> {
        let mounts = std::fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
        let unified = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&"cgroup2"))
            .and_then(|fields| fields.get(1).map(PathBuf::from))
            .ok_or("there is no unified hierarchy of control groups")?;
        let own = unified.join(format!("bastle-boot-{}", std::process::id()));
        std::fs::create_dir(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        Ok(Self(own))
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // The innermost first; everything in it has ended with its PID 1.
        let mut groups = vec![self.0.clone()];
        let mut next = 0;
        while let Some(group) = groups.get(next).cloned() {
            next += 1;
            let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
            groups.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        for group in groups.iter().rev() {
            if !support::eventually(Limit::HANG, || std::fs::remove_dir(group).is_ok()) {
                eprintln!("{} stays behind", group.display());
            }
        }
    }
}

#[test]
fn services_work_as_they_are_fenced_and_runs_outlive_the_restart_of_both() {
    let name = "services_work_as_they_are_fenced_and_runs_outlive_the_restart_of_both";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "booting needs root");
    }
    if !Path::new("/lib/systemd/systemd").exists() || Path::new("/usr/bin/bastle").exists() {
        return skip(
            name,
            "there is no systemd to boot, or bastle is installed on this host",
        );
    }
    let group = match OwnGroup::make() {
        Ok(group) => group,
        Err(reason) => return skip(name, &reason),
    };
    let place = tempfile::tempdir().expect("a place");
    let (root, out) = (place.path().join("root"), place.path().join("said"));
    for directory in [&root, &out] {
        std::fs::create_dir(directory).expect("a fresh place");
    }
    let deb = pack(&place.path().join("out"));
    let scripts = repository().join("tests/package");
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$1/cgroup.procs\"; shift; exec \"$@\"", "sh"])
        .arg(&group.0)
        .args([
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--uts",
            "--ipc",
        ])
        .args(["--cgroup", "--net", "sh"])
        .arg(scripts.join("boot.sh"))
        .args([&root, &deb, &scripts.join("inside.sh"), &out]);
    let booted = run(&mut command, b"", PACK);
    let read = |file: &str| std::fs::read_to_string(out.join(file)).unwrap_or_default();
    let said = read("said");
    if said.is_empty() {
        return skip(name, &format!("systemd does not boot here: {}", booted.stderr));
    }
    let told = || {
        [
            "errors",
            "bastle.log",
            "bastle-spawner.log",
            "bastle-spawner-rootless.log",
        ]
        .map(read)
        .join("\n")
    };
    let at = |name: &str| section(&said, name);
    check_root(&at, &told());
    check_rootless(&at, &told());
    assert_eq!(at("end"), Vec::<&str>::new());
}

/// The builder that is root: it serves, its runs outlive a restart, and it has four rights.
fn check_root<'s>(at: &dyn Fn(&str) -> Vec<&'s str>, told: &str) {
    assert_eq!(
        at("start"),
        ["active", "active", env!("CARGO_PKG_VERSION")],
        "{}",
        told
    );
    let short = at("short").join("\n");
    assert!(short.starts_with("completed"), "{short}\n{}", told);
    assert!(
        short.contains("uid 1000") && short.contains("bastle /srv/short/made"),
        "{short}"
    );
    assert!(
        // A program may write its message in pieces, and each is a record.
        short.contains("admin.token") && short.contains("No such file") && !short.contains("spawner.sock"),
        "the daemon's own is not seen inside: {short}"
    );
    assert_eq!(at("long"), ["running"], "{}", told);
    assert_eq!(
        at("restart"),
        ["active", "active", "running", "same process"],
        "{}",
        told
    );
    assert_eq!(at("another"), ["completed"], "{}", told);
    assert_eq!(at("stop"), ["cancelled"], "{}", told);
    assert_eq!(at("left"), ["0"], "{}", told);
    check_grant(&at("grant"), told);
    assert_eq!(
        at("fence"),
        // SETGID, SETUID, SETPCAP and SYS_ADMIN.
        fence("00000000002001c0"),
        "{}",
        told
    );
}

/// A directory that was granted is read inside, what is secret in it is covered, and nothing is written to it.
fn check_grant(lines: &[&str], told: &str) {
    assert_eq!(lines.first(), Some(&"to be read"), "{lines:?}\n{told}");
    let rest = lines[1..].join("\n");
    assert!(
        rest.contains(".env: Permission denied") && rest.contains("/srv/granted/new"),
        "{rest}"
    );
    assert!(!rest.contains("KEY=1"), "{rest}");
}

/// What the script shows of a process that builds sandboxes.
fn fence(capabilities: &str) -> Vec<String> {
    [
        &format!("CapEff {capabilities}"),
        &format!("CapBnd {capabilities}"),
        "NoNewPrivs 1",
        "Seccomp 2",
        "own network",
        "sh: 1: cannot create /proc/sys/kernel/domainname: Read-only file system",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The service that builds without root does the same work, with no capability and without the daemon's secrets.
fn check_rootless<'a>(at: &impl Fn(&str) -> Vec<&'a str>, told: &str) {
    let short = at("rootless").join("\n");
    assert!(short.starts_with("active\ncompleted"), "{short}\n{told}");
    for wanted in [
        "uid 1000",
        // A program may write its message in pieces, and each is a record.
        "admin.token",
        "No such file",
        "policy_denied",
        "bastle /srv/short/unrooted",
        "bastle /srv/short/d/f",
    ] {
        assert!(short.contains(wanted), "{wanted}: {short}");
    }
    assert_eq!(at("rootless-long"), ["running"], "{told}");
    check_grant(&at("rootless-grant"), told);
    let shown = at("rootless-fence");
    let (common, own) = shown.split_at(shown.len().min(6));
    assert_eq!(common, fence("0000000000000000"), "{told}");
    assert_eq!(own.first(), Some(&"bastle"), "{own:?}");
    assert!(
        own.len() == 3 && own[1..].iter().all(|line| line.contains("Permission denied")),
        "{own:?}"
    );
    assert_eq!(
        at("rootless-restart"),
        ["active", "active", "running", "same process", "cancelled"],
        "{told}"
    );
    assert_eq!(at("rootless-left"), ["0"], "{told}");
}

/// What an agent's or a service's user could change of the launcher: nothing.
fn check_owners(lines: &[&str]) {
    let mut seen = BTreeSet::new();
    for line in lines {
        let [owner, mode, path] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        seen.insert(path);
        let (wanted, most) = match path {
            "/etc/bastle/serve.json" => ("root:bastle", "640"),
            "/usr/bin/bastle" => ("root:root", "755"),
            _ => ("root:root", "644"),
        };
        assert_eq!((owner, mode), (wanted, most), "{path}");
    }
    for path in [
        "/etc/bastle/ceiling.json",
        "/etc/bastle/policy.json",
        "/lib/systemd/system/bastle.service",
        "/lib/systemd/system/bastle-spawner.socket",
        "/usr/lib/sysusers.d/bastle.conf",
        "/usr/share/bash-completion/completions/bastle",
        "/usr/share/doc/bastle/copyright",
        "/usr/share/man/man1/bastle.1.gz",
        "/usr/share/man/man1/bastle-run.1.gz",
    ] {
        assert!(seen.contains(path), "{path} is not in the package");
    }
}
