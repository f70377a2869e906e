//! From an admitted plan to a running init. Order matters: identity and cgroups are set while init waits for its release.
use crate::admit::Admitted;
use crate::cgroup::Group;
use crate::identity::{self, Identity};
use crate::{hooks, idmap};
use bastle_contract::{Code, Fault, Handover, HostFacts, LimitKind};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// A sandbox and everything that must be undone at its end.
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) group: Group,
    pub(crate) wall_ms: Option<u64>,
    pub(crate) started: Instant,
    /// Holds the uid of the run.
    pub(crate) _claim: Option<OwnedFd>,
}

/// Builds the sandbox. On any failure nothing is left: the child dies with its line, the group with its value.
pub(crate) fn launch(admitted: Admitted, facts: &HostFacts, init: crate::Init) -> Result<Running, Fault> {
    let started = Instant::now();
    let (plan, events, attachments, stdio) = admitted.into_parts();
    let Identity { mapping, claim } = identity::choose()?;
    let group = Group::create(&plan, &facts.cgroup)?;
    let as_root = facts.uid == 0;
    let sources = if as_root {
        idmap::open_sources(&plan, mapping)?
    } else {
        Vec::new()
    };
    let (release, released) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| fault("release line", &error.into()))?;
    let wall_ms = plan.limit(LimitKind::WallTime).map(|rule| rule.value);
    let host_namespaces = own_namespaces();
    let cgroups = group.evidence().to_vec();
    let fence = describe(facts, &group);
    let born_in = if hooks::enforces("cgroup") {
        group.unified_descriptor()?
    } else {
        None
    };
    let cloned =
        clone_into(namespaces(), born_in.as_ref().map(AsFd::as_fd)).map_err(|error| userns_fault(&error))?;
    let (pid, pidfd) = match cloned {
        Cloned::Child => {
            drop(release);
            init(Handover {
                plan,
                identity: mapping,
                fence,
                sources,
                release: released,
                events,
                attachments,
                stdio,
                cgroups,
                host_namespaces,
            })
        }
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    // Control's line and the agent's streams are init's alone from here on.
    drop((events, attachments, stdio, sources, released));
    let gid = if as_root { mapping.outside } else { facts.gid };
    let settled = identity::write_maps(pid, mapping, gid)
        .and_then(|()| {
            if hooks::enforces("cgroup") {
                group.join(pid)
            } else {
                Ok(())
            }
        })
        .and_then(|()| rustix::io::write(&release, b"!").map_err(|error| fault("release", &error.into())));
    if let Err(cause) = settled {
        // Before the group goes: its member must be dead.
        return Err(abandon(&pidfd).err().unwrap_or(cause));
    }
    Ok(Running {
        pid,
        pidfd,
        group,
        wall_ms,
        started,
        _claim: claim,
    })
}

fn abandon(pidfd: &OwnedFd) -> Result<(), Fault> {
    rustix::process::pidfd_send_signal(pidfd, Signal::KILL)
        .map_err(|error| fault("abandon", &error.into()))?;
    rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
        .map_err(|error| fault("abandon", &error.into()))?;
    Ok(())
}

fn namespaces() -> Namespaces {
    let layers = [
        ("mount-namespace", Namespaces::MOUNT),
        ("pid-namespace", Namespaces::PID),
        ("net-namespace", Namespaces::NET),
        ("ipc-namespace", Namespaces::IPC),
        ("uts-namespace", Namespaces::UTS),
    ];
    layers
        .into_iter()
        .filter(|(name, _)| hooks::enforces(name))
        .fold(Namespaces::USER, |all, (_, one)| all.and(one))
}

/// The inode numbers of this process's namespaces, for init to compare with.
fn own_namespaces() -> Vec<(&'static str, u64)> {
    ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
        .into_iter()
        .map(|name| {
            (
                name,
                std::fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino()),
            )
        })
        .collect()
}

fn describe(facts: &HostFacts, group: &Group) -> String {
    let cgroup = group.describe();
    let fence = format!("namespaces+landlock v{}+seccomp", facts.landlock_abi);
    if cgroup.is_empty() {
        fence
    } else {
        format!("{fence}+{cgroup}")
    }
}

fn userns_fault(cause: &std::io::Error) -> Fault {
    Fault::new(
        Code::FenceUserns,
        "cannot make the namespaces of the sandbox",
        cause.to_string(),
    )
    .help("bastle doctor prints the exact cause and fix")
}

fn fault(step: &str, cause: &std::io::Error) -> Fault {
    Fault::new(
        Code::FenceStep,
        format!("cannot launch the sandbox ({step})"),
        cause.to_string(),
    )
    .help("bastle doctor")
}
