//! Probes of what the agent inherits: descriptors and environment.
use super::{Control, Probe};
use bastle_contract::{EnvName, Guarantee, ProbeResult};
use std::os::fd::RawFd;

pub(super) fn probe(env: &[(EnvName, String)], own: RawFd, results: &mut Vec<ProbeResult>) {
    stray(own, results);
    environment(env, results);
}

/// Looks for descriptors besides the standard streams and `own`.
pub(super) fn stray(own: RawFd, results: &mut Vec<ProbeResult>) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect()
        })
        .unwrap_or_default();
    let control = Control::new("0, 1 and 2 are listed", (0..=2).all(|fd| open.contains(&fd)));
    // The listing's own descriptor is gone again; what remains above 2 besides the line to init was inherited.
    let stray: Vec<&RawFd> = open
        .iter()
        .filter(|fd| **fd > 2 && **fd != own && is_open(**fd))
        .collect();
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    results.push(
        Probe::new(
            Guarantee::NoInheritedDescriptors,
            "look for descriptors above 2",
            "none",
        )
        .judge(observed, &control),
    );
}

fn environment(env: &[(EnvName, String)], results: &mut Vec<ProbeResult>) {
    let environment = crate::agent::environment(env);
    let stray: Vec<&String> = environment
        .iter()
        .map(|(name, _)| name)
        .filter(|name| !env.iter().any(|(planned, _)| planned.as_str() == *name))
        .collect();
    let control = Control::new("PATH is set", environment.iter().any(|(name, _)| name == "PATH"));
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    results.push(
        Probe::new(
            Guarantee::EnvironmentCleared,
            "look for variables that are not planned",
            "none",
        )
        .judge(observed, &control),
    );
}

fn is_open(fd: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}
