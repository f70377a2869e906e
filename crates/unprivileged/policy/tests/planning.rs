//! From a granted launch to a plan: what is mounted, covered, guarded and limited, and what refuses to be planned.
mod common;

use bastle_contract::{
    AbsPath, Access, Argv, BackendKind, CgroupFacts, CgroupFlavour, Code, Controller, EnvName, Fault, Guarantee, HostFacts, LimitKind,
    LimitMechanism, MountKind, RunId, Stdio, Waiver,
};
use bastle_policy::{
    Effective, FsFacts, LaunchRequest, Layer, LayerKind, MergeOptions, PathFact, PathKind, Planned, Surroundings, Verdict, decide_launch, merge,
    needs, plan, preset, render_dry_run,
};
use common::{layer, merged, path, surroundings, with_default};
use LayerKind::{Flags, Project, User};
use std::collections::BTreeMap;

fn host() -> HostFacts {
    HostFacts {
        kernel: "6.12".into(),
        arch: "x86_64".into(),
        uid: 1000,
        gid: 1000,
        landlock_abi: 6,
        seccomp_notify: true,
        cpus: 4,
        cgroup: CgroupFacts::none(),
    }
}

fn request(argv: &[&str]) -> LaunchRequest {
    LaunchRequest {
        run: RunId::try_from("calm-otter".to_owned()).unwrap(),
        argv: Argv::try_from(argv.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap(),
        cwd: path("/home/u/w"),
        stdio: Stdio::Pipes,
        env: Vec::new(),
        host_env: Vec::new(),
        backend: BackendKind::Native,
        waivers: Vec::new(),
        debuggers: false,
    }
}

/// A disk on which these directories exist, and everything that is needed of `/usr`.
fn disk(policy: &Effective, dirs: &[&str]) -> FsFacts {
    let mut paths = BTreeMap::new();
    for wanted in needs(policy).paths {
        let exists = dirs.contains(&wanted.as_str()) || ["/usr", "/home/u/w", "/etc/ssl/certs"].contains(&wanted.as_str());
        let shell = wanted.as_str() == "/bin/sh";
        let kind = if exists { PathKind::Dir } else if shell { PathKind::File } else { PathKind::Missing };
        let mut fact = PathFact { resolved: wanted.clone(), kind };
        if ["/bin", "/lib", "/lib64", "/sbin"].contains(&wanted.as_str()) {
            fact = PathFact { resolved: path(&format!("/usr{wanted}")), kind: PathKind::Dir };
        }
        paths.insert(wanted, fact);
    }
    let root_links = vec![(path("/bin"), "usr/bin".to_owned()), (path("/lib"), "usr/lib".to_owned())];
    FsFacts { paths, root_links, ..FsFacts::default() }
}

fn grant(policy: &Effective, request: LaunchRequest) -> bastle_policy::Grant {
    match decide_launch(policy, request) {
        Verdict::Granted(grant) => grant,
        Verdict::NeedsApproval(fault) | Verdict::Denied(fault) => panic!("{fault}"),
    }
}

fn planned(policy: &Effective, fs: &FsFacts) -> Result<Planned, Fault> {
    plan(grant(policy, request(&["ls"])), &host(), fs)
}

fn at<'p>(planned: &'p Planned, place: &str) -> Option<&'p MountKind> {
    planned.plan.mounts.iter().find(|mount| mount.at.as_str() == place).map(|mount| &mount.kind)
}

fn is_bind(kind: Option<&MountKind>, wanted: Access) -> bool {
    matches!(kind, Some(MountKind::Bind { access, .. }) if *access == wanted)
}

#[test]
fn the_default_plan_shows_the_system_and_the_workspace_and_nothing_of_the_home() {
    let policy = merged(&with_default(&[]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    planned.plan.check().unwrap();
    assert!(is_bind(at(&planned, "/usr"), Access::ReadOnly) && is_bind(at(&planned, "/home/u/w"), Access::ReadWrite));
    assert_eq!(at(&planned, "/bin"), Some(&MountKind::Symlink { target: "usr/bin".into() }));
    assert_eq!(at(&planned, "/workspace"), Some(&MountKind::Symlink { target: "/home/u/w".into() }));
    assert_eq!(at(&planned, "/tmp"), Some(&MountKind::Scratch { mode: 0o1777 }));
    assert_eq!(at(&planned, "/home/agent"), Some(&MountKind::Scratch { mode: 0o700 }));
    assert_eq!((at(&planned, "/proc"), at(&planned, "/dev")), (Some(&MountKind::Proc), Some(&MountKind::Dev)));
    assert!(matches!(at(&planned, "/etc/passwd"), Some(MountKind::File { contents }) if contents.contains("agent:x:1000")));
    let sources: Vec<&str> = planned.plan.mounts.iter().filter_map(|m| match &m.kind {
        MountKind::Bind { source, .. } => Some(source.as_str()),
        _ => None,
    }).collect();
    assert_eq!(sources, ["/etc/ssl/certs", "/home/u/w", "/usr"]);
    for owned in &planned.plan.mounts {
        if let MountKind::Bind { owned: mine, .. } = owned.kind {
            assert_eq!(mine, owned.at.as_str() == "/home/u/w", "{}", owned.at);
        }
    }
    assert!(planned.plan.landlock.iter().all(|rule| rule.path.as_str() != "/"));
    let writable: Vec<&str> = planned.plan.landlock.iter().filter(|r| r.access == Access::ReadWrite).map(|r| r.path.as_str()).collect();
    assert_eq!(writable, ["/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/tty", "/dev/zero", "/home/agent", "/home/u/w", "/tmp", "/var/tmp"]);
    for guarantee in [Guarantee::ReadsConfined, Guarantee::NetConfined, Guarantee::NamesGuarded, Guarantee::PidsLimited, Guarantee::OpenFilesLimited] {
        assert!(planned.plan.guarantees.contains(&guarantee), "{guarantee}");
    }
    assert!(!planned.plan.guarantees.contains(&Guarantee::SecretsHidden) && !planned.plan.guarantees.contains(&Guarantee::MemoryLimited));
}

#[test]
fn every_place_is_used_once_and_parents_come_first() {
    let policy = merged(&with_default(&[(User, r#"{"version": 1, "fs": {"read": ["./vendor", "/srv/a", "/srv"], "write": ["/srv/a/b", "./vendor/x"]}}"#)]));
    let mut fs = disk(&policy, &["/srv", "/srv/a", "/srv/a/b", "/home/u/w/vendor", "/home/u/w/vendor/x"]);
    fs.hidden = vec![path("/srv/a"), path("/home/u/w/.env"), path("/home/u/w/.env")];
    fs.protected = vec![path("/home/u/w/.git/hooks"), path("/home/u/w/.env/hooks")];
    let planned = planned(&policy, &fs).unwrap();
    let places: Vec<&AbsPath> = planned.plan.mounts.iter().map(|m| &m.at).collect();
    let mut sorted = places.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(places, sorted);
    assert!(is_bind(at(&planned, "/home/u/w/vendor"), Access::ReadOnly) && is_bind(at(&planned, "/home/u/w/vendor/x"), Access::ReadWrite));
    assert!(is_bind(at(&planned, "/home/u/w/.git/hooks"), Access::ReadOnly));
    assert_eq!((at(&planned, "/home/u/w/.env"), at(&planned, "/srv/a")), (Some(&MountKind::Mask), Some(&MountKind::Mask)));
    assert_eq!((at(&planned, "/home/u/w/.env/hooks"), at(&planned, "/srv/a/b")), (None, None), "nothing is mounted below a cover");
    assert!(planned.plan.guarantees.contains(&Guarantee::SecretsHidden));
}

#[test]
fn a_hidden_name_is_covered_and_cannot_come_into_being() {
    let policy = merged(&with_default(&[(Project, r#"{"version": 1, "fs": {"hide": ["./private"], "protect": ["Makefile"]}}"#)]));
    let needs = needs(&policy);
    let (root, hide, protect) = &needs.trees[0];
    assert_eq!((needs.trees.len(), root.as_str()), (1, "/home/u/w"));
    let covers = |list: &[bastle_contract::NamePattern], name: &str| list.iter().any(|p| p.covers(name.as_bytes()));
    assert!(covers(hide, "private/x") && covers(hide, "a/.env.local") && covers(protect, "Makefile") && covers(protect, "x/.git/hooks/y"));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    assert_eq!((&planned.plan.guard.trees[0].hide, &planned.plan.guard.trees[0].protect), (hide, protect));
}

#[test]
fn a_symlink_the_agent_could_have_made_never_leads_out() {
    for (kind, text) in [(Project, r#"{"version": 1, "fs": {"read": ["./link"]}}"#), (User, r#"{"version": 1, "fs": {"read": ["./link"]}}"#)] {
        let policy = merged(&with_default(&[(kind, text)]));
        let mut fs = disk(&policy, &[]);
        fs.paths.insert(path("/home/u/w/link"), PathFact { resolved: path("/home/u/mail"), kind: PathKind::Dir });
        let fault = planned(&policy, &fs).unwrap_err();
        assert_eq!(fault.code, Code::FsRead, "{kind}: {fault}");
        fs.paths.insert(path("/home/u/w/link"), PathFact { resolved: path("/home/u/.ssh"), kind: PathKind::Dir });
        match planned(&policy, &fs) {
            Ok(planned) => assert!(planned.plan.mounts.iter().all(|m| !m.at.as_str().contains(".ssh"))),
            Err(fault) => assert_eq!(fault.code, Code::FsRead),
        }
    }
}

#[test]
fn a_granted_symlink_of_the_operator_is_bound_where_it_leads_and_named_where_it_was_typed() {
    let policy = merged(&with_default(&[(Flags, r#"{"version": 1, "fs": {"read": ["/srv/current"]}}"#)]));
    let mut fs = disk(&policy, &[]);
    fs.paths.insert(path("/srv/current"), PathFact { resolved: path("/srv/v2"), kind: PathKind::Dir });
    let planned = planned(&policy, &fs).unwrap();
    assert!(is_bind(at(&planned, "/srv/v2"), Access::ReadOnly));
    assert_eq!(at(&planned, "/srv/current"), Some(&MountKind::Symlink { target: "/srv/v2".into() }));
}

#[test]
fn what_must_not_be_handed_over_whole_is_refused() {
    for bad in ["/", "~/", "/home", "/proc", "/proc/1", "/sys", "/dev", "/run", "/run/user/1000", "/boot"] {
        let policy = merged(&with_default(&[(Flags, &format!(r#"{{"version": 1, "fs": {{"read": ["{bad}"]}}}}"#))]));
        let all: Vec<String> = needs(&policy).paths.iter().map(ToString::to_string).collect();
        let dirs: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(planned(&policy, &disk(&policy, &dirs)).map(|_| ()).map_err(|f| f.code), Err(Code::WorkspaceInvalid), "{bad}");
    }
    for workspace in ["/home/u", "/home", "/", "/etc", "/usr", "/proc/1/cwd", "/home/u/.ssh/x"] {
        let surroundings = Surroundings { home: path("/home/u"), workspace: path(workspace) };
        let policy = merge(&[preset("default").unwrap()], &surroundings, &MergeOptions::default()).unwrap();
        let request = LaunchRequest { cwd: path(workspace), ..request(&["ls"]) };
        let fault = plan(grant(&policy, request), &host(), &disk(&policy, &[workspace])).map(|_| ()).unwrap_err();
        assert_eq!(fault.code, Code::WorkspaceInvalid, "{workspace}");
    }
    let policy = merged(&with_default(&[]));
    let mut fs = disk(&policy, &[]);
    fs.paths.insert(path("/home/u/w"), PathFact { resolved: path("/srv/w"), kind: PathKind::Dir });
    assert_eq!(planned(&policy, &fs).map(|_| ()).unwrap_err().code, Code::WorkspaceInvalid, "a workspace behind a symlink");
}

#[test]
fn a_project_that_leaves_out_its_own_directory_is_told_so() {
    let policy = merged(&with_default(&[(Project, r#"{"version": 1, "fs": {"read": ["/srv"]}}"#)]));
    assert_eq!(planned(&policy, &disk(&policy, &[])).map(|_| ()).unwrap_err().code, Code::WorkspaceInvalid);
    let policy = merged(&with_default(&[(Project, r#"{"version": 1, "fs": {"read": ["./src"]}}"#)]));
    let planned = planned(&policy, &disk(&policy, &["/home/u/w/src"])).unwrap();
    assert!(is_bind(at(&planned, "/home/u/w/src"), Access::ReadWrite) && at(&planned, "/home/u/w").is_none());
    assert!(planned.plan.landlock.iter().any(|rule| rule.path.as_str() == "/home/u/w" && rule.access == Access::ReadOnly));
}

#[test]
fn a_flag_that_names_nothing_is_an_error_and_a_preset_path_is_skipped() {
    let policy = merged(&with_default(&[(Flags, r#"{"version": 1, "fs": {"read": ["/srv/nope"]}}"#)]));
    assert_eq!(planned(&policy, &disk(&policy, &[])).map(|_| ()).unwrap_err().code, Code::FsRead);
    let policy = merged(&with_default(&[(User, r#"{"version": 1, "fs": {"read": ["/srv/nope"]}}"#)]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    assert!(planned.listing.iter().any(|line| line.rule == "/srv/nope" && line.note.contains("skipped")));
}

#[test]
fn a_launch_outside_the_workspace_or_denied_by_a_rule_gets_no_grant() {
    let policy = merged(&with_default(&[(User, r#"{"version": 1, "exec": {"deny": ["sudo"], "ask": ["make"]}}"#)]));
    let verdict = |request: LaunchRequest| match decide_launch(&policy, request) {
        Verdict::Granted(_) => "granted".to_owned(),
        Verdict::NeedsApproval(fault) => format!("ask {}", fault.code),
        Verdict::Denied(fault) => fault.code.to_string(),
    };
    assert_eq!(verdict(request(&["ls", "-la"])), "granted");
    assert_eq!(verdict(request(&["sudo", "ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["/usr/bin/sudo", "ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["bash", "-c", "true; sudo ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["make"])), "ask BST-EXEC-004");
    assert_eq!(verdict(request(&["echo", "it's; sudo"])), "granted", "an argument is one word, whatever is in it");
    assert_eq!(verdict(LaunchRequest { cwd: path("/home/u/w-evil"), ..request(&["ls"]) }), "BST-WS-001");
    assert_eq!(verdict(LaunchRequest { backend: BackendKind::Host, ..request(&["/bin/bash"]) }), "BST-HOST-002");
}

#[test]
fn a_denied_program_is_covered_where_it_is_found() {
    let policy = merged(&with_default(&[(User, r#"{"version": 1, "exec": {"deny": ["sudo", "rm -rf *"]}}"#)]));
    assert_eq!(needs(&policy).programs, ["sudo"]);
    let mut fs = disk(&policy, &[]);
    fs.programs = vec![path("/usr/bin/sudo"), path("/opt/other/sudo")];
    let planned = planned(&policy, &fs).unwrap();
    assert_eq!(at(&planned, "/usr/bin/sudo"), Some(&MountKind::Mask));
    assert_eq!(at(&planned, "/opt/other/sudo"), None, "what is not visible needs no cover");
}

fn limited(text: &str, host: &HostFacts, waivers: &[LimitKind]) -> Result<BTreeMap<LimitKind, LimitMechanism>, Code> {
    let policy = merged(&with_default(&[(User, text)]));
    let waivers = waivers.iter().map(|limit| Waiver { limit: *limit }).collect();
    let grant = grant(&policy, LaunchRequest { waivers, ..request(&["ls"]) });
    let planned = plan(grant, host, &disk(&policy, &[])).map_err(|f| f.code)?;
    Ok(planned.plan.limits.iter().map(|rule| (rule.limit, rule.mechanism)).collect())
}

#[test]
fn every_limit_has_something_that_holds_it_or_stops_the_launch() {
    let all = r#"{"version": 1, "limits": {"timeout": "1m", "cpuTime": "1m", "cpu": 2, "memory": "1G", "pids": 9, "openFiles": 99, "disk": "1G",
        "inodes": 99, "files": 9, "bytesWritten": "1M", "output": "1M"}}"#;
    let bare = limited(all, &host(), &[]).unwrap();
    assert_eq!(bare[&LimitKind::Cpu], LimitMechanism::Affinity);
    assert_eq!(bare[&LimitKind::Memory], LimitMechanism::RlimitAndWatchdog);
    assert_eq!(bare[&LimitKind::Pids], LimitMechanism::Rlimit);
    assert_eq!(bare[&LimitKind::Disk], LimitMechanism::TmpfsAndWriteGuard);
    assert_eq!(bare.len(), LimitKind::ALL.len());
    let controllers = [Controller::Cpu, Controller::Memory, Controller::Pids].map(|c| (c, path("/sys/fs/cgroup/x"))).to_vec();
    let cgroups = HostFacts { cgroup: CgroupFacts { flavour: CgroupFlavour::V2, controllers, unified: None }, ..host() };
    let v2 = limited(all, &cgroups, &[]).unwrap();
    for kind in [LimitKind::Cpu, LimitKind::Memory, LimitKind::Pids] {
        assert_eq!(v2[&kind], LimitMechanism::CgroupV2, "{kind}");
    }
    assert_eq!(limited(r#"{"version": 1}"#, &host(), &[]).unwrap()[&LimitKind::Disk], LimitMechanism::Tmpfs, "scratch is always limited");
}

#[test]
fn a_limit_that_cannot_be_held_stops_the_launch_unless_it_is_waived_by_name() {
    for bad in [r#"{"cpu": 1.5}"#, r#"{"cpu": 64}"#] {
        let text = format!(r#"{{"version": 1, "limits": {bad}}}"#);
        assert_eq!(limited(&text, &host(), &[]), Err(Code::LimitUnheld), "{bad}");
        assert_eq!(limited(&text, &host(), &[LimitKind::Memory]), Err(Code::LimitUnheld), "another waiver does not help");
        assert_eq!(limited(&text, &host(), &[LimitKind::Cpu]).unwrap()[&LimitKind::Cpu], LimitMechanism::Waived);
    }
    for bad in [r#"{"pids": 1}"#, r#"{"memory": "1K"}"#, r#"{"timeout": "0s"}"#, r#"{"timeout": "400d"}"#, r#"{"openFiles": 1}"#] {
        let text = format!(r#"{{"version": 1, "limits": {bad}}}"#);
        assert_eq!(limited(&text, &host(), &[]), Err(Code::LimitInvalid), "{bad}");
    }
}

#[test]
fn a_host_without_the_fences_parts_is_refused() {
    let policy = merged(&with_default(&[]));
    let fs = disk(&policy, &[]);
    let old = HostFacts { landlock_abi: 5, ..host() };
    assert_eq!(plan(grant(&policy, request(&["ls"])), &old, &fs).map(|_| ()).unwrap_err().code, Code::FenceLandlock);
    let deaf = HostFacts { seccomp_notify: false, ..host() };
    assert_eq!(plan(grant(&policy, request(&["ls"])), &deaf, &fs).map(|_| ()).unwrap_err().code, Code::FenceStep);
}

#[test]
fn only_named_variables_cross_the_fence_and_proxies_never_do() {
    let text = r#"{"version": 1, "env": {"pass": ["HTTPS_PROXY", "FOO", "AGENT_IN_SANDBOX"], "set": {"RUSTUP_HOME": "~/.rustup", "no_proxy": "x"}}}"#;
    let policy = merged(&with_default(&[(User, text)]));
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let host_env = vec![pair("HTTPS_PROXY", "p"), pair("FOO", "1"), pair("SECRET", "s"), pair("LD_PRELOAD", "x"), pair("LANG", "de"), pair("AGENT_IN_SANDBOX", "0")];
    let env = vec![(EnvName::try_from("FOO".to_owned()).unwrap(), "2".to_owned()), (EnvName::try_from("BASTLE_SESSION".to_owned()).unwrap(), "forged".to_owned())];
    let planned = plan(grant(&policy, LaunchRequest { host_env, env, ..request(&["ls"]) }), &host(), &disk(&policy, &[])).unwrap();
    let env: BTreeMap<&str, &str> = planned.plan.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let names: Vec<&str> = env.keys().copied().collect();
    assert_eq!(names, ["AGENT_IN_SANDBOX", "BASTLE_SESSION", "FOO", "HOME", "LANG", "LOGNAME", "PATH", "RUSTUP_HOME", "SHELL", "TMPDIR", "USER"]);
    assert_eq!((env["FOO"], env["LANG"], env["RUSTUP_HOME"]), ("2", "de", "/home/u/.rustup"));
    assert_eq!((env["AGENT_IN_SANDBOX"], env["BASTLE_SESSION"], env["HOME"], env["SHELL"]), ("1", "calm-otter", "/home/agent", "/bin/sh"));
}

#[test]
fn toolchains_of_the_dev_preset_come_first_in_the_path() {
    let policy = merged(&[preset("dev").unwrap()]);
    let planned = planned(&policy, &disk(&policy, &["/home/u/.cargo/bin", "/home/u/.rustup", "/home/u/go", "/home/u/go/bin"])).unwrap();
    let path = &planned.plan.env.iter().find(|(name, _)| name.as_str() == "PATH").unwrap().1;
    assert!(path.starts_with("/home/u/.cargo/bin:/home/u/go/bin:/usr/local/sbin"), "{path}");
    assert!(is_bind(at(&planned, "/home/u/.rustup"), Access::ReadOnly));
    assert_eq!(at(&planned, "/home/u/go/bin"), None, "already shown by its parent");
}

#[test]
fn a_dry_run_names_every_rule_and_shows_no_secret() {
    let text = r#"{"version": 1, "env": {"set": {"API": "hunter2"}}, "secrets": [{"name": "GH", "from": "file:/keys/gh", "hosts": ["x.com"]}], "net": {"allow": ["x.com"]}}"#;
    let policy = merged(&with_default(&[(User, text), (Project, r#"{"version": 1, "fs": {"read": [".", "/srv"]}}"#)]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    let baseline = merged(&with_default(&[]));
    let rendered = render_dry_run(&policy, &planned, Some(&baseline));
    let json = rendered.json.to_string();
    for secret in ["hunter2", "/keys/gh"] {
        assert!(!rendered.text.contains(secret) && !json.contains(secret), "{secret}");
    }
    for expected in ["fs.write", "user.json:1", "requested, not granted: fs.read /srv", "nothing gets out", "score ", "+ env.set added API"] {
        assert!(rendered.text.contains(expected), "{expected} in\n{}", rendered.text);
    }
    assert_eq!(rendered.json["schema"], "bastle.plan/v1");
    assert_eq!(rendered.json["digest"], policy.digest().as_str());
}

#[test]
fn unprotect_uncovers_exactly_what_it_names() {
    let layers: Vec<Layer> = with_default(&[]).into_iter().chain([layer(Flags, r#"{"version": 1}"#)]).collect();
    let options = MergeOptions { unprotect: vec![path("/home/u/w/.env"), path("/home/u/w/.git/hooks")], ..MergeOptions::default() };
    let policy = merge(&layers, &surroundings(), &options).unwrap();
    let mut fs = disk(&policy, &[]);
    fs.hidden = vec![path("/home/u/w/.env"), path("/home/u/w/.env.local")];
    fs.protected = vec![path("/home/u/w/.git/hooks"), path("/home/u/w/.git/config")];
    let planned = planned(&policy, &fs).unwrap();
    assert_eq!((at(&planned, "/home/u/w/.env"), at(&planned, "/home/u/w/.env.local")), (None, Some(&MountKind::Mask)));
    assert_eq!(at(&planned, "/home/u/w/.git/hooks"), None);
    assert!(is_bind(at(&planned, "/home/u/w/.git/config"), Access::ReadOnly));
}
