//! The whole environment of the agent. It starts empty: what is not named here does not cross the fence.
use super::facts::{FsFacts, PathKind};
use super::{PlanLine, mounts::shell};
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::request::LaunchRequest;
use bastle_contract::{AbsPath, EnvName, Guarantee, Mechanism};
use std::collections::BTreeMap;

pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that point at the host's proxies: they would name something that is not there, or leak where it is.
const PROXIES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "rsync_proxy",
    "socks_proxy",
];

pub(super) fn build(
    effective: &Effective,
    request: &LaunchRequest,
    fs: &FsFacts,
    listing: &mut Vec<PlanLine>,
) -> Vec<(EnvName, String)> {
    let mut env: BTreeMap<EnvName, String> = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        if let Ok(name) = EnvName::try_from(name.to_owned()) {
            env.insert(name, value);
        }
    };
    set("PATH", path(effective, fs));
    set("HOME", "/home/agent".to_owned());
    set("TMPDIR", "/tmp".to_owned());
    set("USER", "agent".to_owned());
    set("LOGNAME", "agent".to_owned());
    set("SHELL", shell(fs).to_owned());
    set("LANG", "C.UTF-8".to_owned());
    for (name, value) in &request.host_env {
        let passed = effective.env_pass.iter().any(|own| own.value.as_str() == name);
        if passed && !is_proxy(name) && !value.contains('\0') {
            set(name, value.clone());
        }
    }
    let home = &effective.surroundings.home;
    for entry in &effective.env_set {
        let (name, value) = &entry.value;
        let expanded = match value.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => value.clone(),
        };
        if !is_proxy(name.as_str()) {
            set(name.as_str(), expanded);
        }
    }
    for (name, value) in request
        .env
        .iter()
        .filter(|(name, value)| !is_proxy(name.as_str()) && !value.contains('\0'))
    {
        set(name.as_str(), value.clone());
    }
    // Last, so that nothing above can say otherwise: the guard against nesting rests on it.
    set("AGENT_IN_SANDBOX", "1".to_owned());
    set("BASTLE_SESSION", request.run.to_string());
    for (section, rule, origin) in effective
        .env_pass
        .iter()
        .map(|name| ("env.pass", name.value.as_str().to_owned(), &name.origin))
        .chain(
            effective
                .env_set
                .iter()
                .map(|entry| ("env.set", entry.value.0.as_str().to_owned(), &entry.origin)),
        )
    {
        let note = if is_proxy(&rule) {
            "never set: proxy variables do not cross the fence"
        } else {
            ""
        };
        listing.push(PlanLine {
            section: section.to_owned(),
            rule,
            origin: origin.clone(),
            mechanism: Mechanism::Namespace,
            probe: Some(Guarantee::EnvironmentCleared),
            note: note.to_owned(),
        });
    }
    env.into_iter().collect()
}

fn is_proxy(name: &str) -> bool {
    PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Directories of toolchains in the home directory that are granted. None of the workspace: a project with a directory `bin`
/// would choose what every bare name means.
pub(super) fn granted_bins(effective: &Effective) -> impl Iterator<Item = &AbsPath> {
    let surroundings = &effective.surroundings;
    let granted = effective.fs.iter().filter(|(path, reach)| {
        reach.grade > Grade::None
            && path.name() == "bin"
            && path.is_within(&surroundings.home)
            && !path.is_within(&surroundings.workspace)
            && !path.as_str().contains(':')
    });
    granted.map(|(path, _)| path)
}

/// Granted `bin` directories of toolchains first, then the system's.
fn path(effective: &Effective, fs: &FsFacts) -> String {
    let there = granted_bins(effective).filter(|path| {
        fs.paths.get(*path).is_some_and(|fact| fact.kind == PathKind::Dir)
            && effective.hidden_by(path).is_none()
    });
    let mut parts: Vec<&str> = there.map(AbsPath::as_str).collect();
    parts.push(SYSTEM_PATH);
    parts.join(":")
}
