//! Shared by the planning tests: a host, a disk, a request.
use super::path;
use bastle_contract::{Access, Argv, BackendKind, CgroupFacts, Fault, HostFacts, MountKind, RunId, Stdio};
use bastle_policy::{
    Effective, FsFacts, Grant, LaunchRequest, PathFact, PathKind, Planned, Verdict, decide_launch, needs,
    plan,
};
use std::collections::BTreeMap;

pub(crate) fn host() -> HostFacts {
    HostFacts {
        kernel: "6.12".into(),
        arch: "x86_64".into(),
        uid: 1000,
        gid: 1000,
        authority: bastle_contract::Authority::User,
        landlock_abi: 6,
        landlock: bastle_contract::LandlockParts::up_to(6),
        seccomp_notify: true,
        cpus: 4,
        memory: 16 << 30,
        cgroup: CgroupFacts::none(),
    }
}

pub(crate) fn request(argv: &[&str]) -> LaunchRequest {
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
        approval: bastle_policy::LaunchApproval::None,
    }
}

/// A disk on which these directories exist, and everything that is needed of `/usr`.
pub(crate) fn disk(policy: &Effective, dirs: &[&str]) -> FsFacts {
    let mut paths = BTreeMap::new();
    for wanted in needs(policy).paths {
        let exists = dirs.contains(&wanted.as_str())
            || ["/usr", "/home/u/w", "/etc/ssl/certs"].contains(&wanted.as_str());
        let shell = wanted.as_str() == "/bin/sh";
        let kind = if exists {
            PathKind::Dir
        } else if shell {
            PathKind::File
        } else {
            PathKind::Missing
        };
        let mut fact = PathFact {
            resolved: wanted.clone(),
            kind,
        };
        if ["/bin", "/lib", "/lib64", "/sbin"].contains(&wanted.as_str()) {
            fact = PathFact {
                resolved: path(&format!("/usr{wanted}")),
                kind: PathKind::Dir,
            };
        }
        paths.insert(wanted, fact);
    }
    let root_links = vec![
        (path("/bin"), "usr/bin".to_owned()),
        (path("/lib"), "usr/lib".to_owned()),
    ];
    FsFacts {
        paths,
        root_links,
        ..FsFacts::default()
    }
}

pub(crate) fn grant(policy: &Effective, request: LaunchRequest) -> Grant {
    match decide_launch(policy, request) {
        Verdict::Granted(grant) => grant,
        Verdict::NeedsApproval(fault) | Verdict::Denied(fault) => panic!("{fault}"),
    }
}

pub(crate) fn planned(policy: &Effective, fs: &FsFacts) -> Result<Planned, Fault> {
    plan(grant(policy, request(&["ls"])), &host(), fs)
}

pub(crate) fn at<'p>(planned: &'p Planned, place: &str) -> Option<&'p MountKind> {
    planned
        .plan
        .mounts
        .iter()
        .find(|mount| mount.at.as_str() == place)
        .map(|mount| &mount.kind)
}

pub(crate) fn is_bind(kind: Option<&MountKind>, wanted: Access) -> bool {
    matches!(kind, Some(MountKind::Bind { access, .. }) if *access == wanted)
}
