//! Probes of the limits: what the kernel says is set, read back from inside.
use super::{Baseline, Control, Probe};
use bastle_contract::{Guarantee, Handover, IdMapping, LimitKind, LimitMechanism, LimitRule, ProbeResult};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(super) fn probe(handover: &Handover, baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let control = Control::new(
        "limits can be read",
        getrlimit(Resource::Stack).maximum != Some(0),
    );
    let observed = rlimit(Resource::Core);
    results.push(
        Probe::new(
            Guarantee::NoCoreDumps,
            "read the core limit",
            crate::confine::NO_CORE.to_string(),
        )
        .judge(observed, &control),
    );
    for rule in &handover.plan.limits {
        match rule.mechanism {
            LimitMechanism::CgroupV1 | LimitMechanism::CgroupV2 => cgroup(handover, baseline, rule, results),
            LimitMechanism::Rlimit | LimitMechanism::RlimitAndWatchdog => {
                by_rlimit(rule, handover.identity, &control, results);
            }
            LimitMechanism::Affinity => affinity(rule, results),
            LimitMechanism::Tmpfs => tmpfs(rule, results),
            LimitMechanism::TmpfsAndWriteGuard => {
                tmpfs(rule, results);
                counted(results);
            }
            LimitMechanism::WriteGuard => counted(results),
            LimitMechanism::Relay
            | LimitMechanism::Timer
            | LimitMechanism::Watchdog
            | LimitMechanism::FreeSpace
            | LimitMechanism::FreeSpaceShare
            | LimitMechanism::Waived => {}
        }
    }
}

fn guarantee(limit: LimitKind) -> Option<Guarantee> {
    match limit {
        LimitKind::Pids => Some(Guarantee::PidsLimited),
        LimitKind::Memory => Some(Guarantee::MemoryLimited),
        LimitKind::Cpu => Some(Guarantee::CpuLimited),
        LimitKind::OpenFiles => Some(Guarantee::OpenFilesLimited),
        LimitKind::Disk | LimitKind::Inodes => Some(Guarantee::DiskLimited),
        LimitKind::Files | LimitKind::BytesWritten => Some(Guarantee::WritesCounted),
        LimitKind::FileSize => Some(Guarantee::FileSizeLimited),
        LimitKind::WallTime | LimitKind::CpuTime | LimitKind::Output | LimitKind::DiskReserve => None,
    }
}

/// init found itself in the group before it took its own cgroup namespace; the spawner read the limit back.
fn cgroup(handover: &Handover, baseline: &Baseline, rule: &LimitRule, results: &mut Vec<ProbeResult>) {
    let Some(guarantee) = guarantee(rule.limit) else {
        return;
    };
    let evidence = handover
        .cgroups
        .iter()
        .find(|evidence| evidence.limit == rule.limit);
    let control = Control::new(
        "the limit was read back",
        evidence.is_some_and(|evidence| !evidence.read_back.is_empty()),
    );
    let expected = evidence.map_or_else(
        || "a group with the limit".to_owned(),
        |evidence| evidence.group.clone(),
    );
    let observed = evidence
        .and_then(|evidence| baseline.cgroup(&evidence.controller))
        .unwrap_or_else(|| "none".to_owned());
    let attempt = format!(
        "look for the own {} cgroup ({})",
        rule.limit,
        evidence.map_or("", |evidence| evidence.read_back.as_str())
    );
    results.push(Probe::new(guarantee, attempt, expected).judge(observed, &control));
}

fn by_rlimit(rule: &LimitRule, identity: IdMapping, control: &Control, results: &mut Vec<ProbeResult>) {
    let resource = match rule.limit {
        LimitKind::Pids => Resource::Nproc,
        LimitKind::Memory => Resource::Data,
        LimitKind::OpenFiles => Resource::Nofile,
        LimitKind::FileSize => Resource::Fsize,
        _ => return,
    };
    let Some(guarantee) = guarantee(rule.limit) else {
        return;
    };
    let within = getrlimit(resource)
        .maximum
        .is_some_and(|maximum| maximum <= rule.value);
    let observed = if within { "at most the limit" } else { "more" };
    let attempt = format!("read the rlimit for {}", rule.limit);
    results.push(Probe::new(guarantee, attempt, "at most the limit").judge(observed, control));
    if rule.limit == LimitKind::Pids && identity.outside == 0 {
        let attempt = "fork with room for no process";
        results.push(Probe::new(guarantee, attempt, "EAGAIN").judge(fork_without_room(), control));
    }
}

/// Whether the rlimit binds: the kernel does not hold it against user id 0 of the host (copy_process, `INIT_USER`).
fn fork_without_room() -> String {
    let now = getrlimit(Resource::Nproc);
    let none = Rlimit {
        current: Some(0),
        maximum: now.maximum,
    };
    let tried = setrlimit(Resource::Nproc, none)
        .map_err(std::io::Error::from)
        .and_then(|()| bastle_sys::probe::by_a_child(|| Ok(0)));
    // Without its room back the run cannot fork either, which is seen.
    match (tried, setrlimit(Resource::Nproc, now)) {
        (_, Err(error)) => error.to_string(),
        (Ok(_), Ok(())) => "forked".to_owned(),
        (Err(error), Ok(())) => super::name(error.raw_os_error().unwrap_or(0)),
    }
}

fn affinity(rule: &LimitRule, results: &mut Vec<ProbeResult>) {
    let set = rustix::thread::sched_getaffinity(None);
    let control = Control::new("the affinity can be read", set.is_ok());
    let within = set.is_ok_and(|set| u64::from(set.count()) <= rule.value / 1000);
    let observed = if within { "at most the limit" } else { "more" };
    results.push(
        Probe::new(
            Guarantee::CpuLimited,
            "count the processors of the affinity",
            "at most the limit",
        )
        .judge(observed, &control),
    );
    let observed = bastle_sys::probe::by_number(libc::SYS_sched_setaffinity, [0; 3])
        .map_or_else(super::name, |_| "succeeded".to_owned());
    results.push(Probe::new(Guarantee::CpuLimited, "change the affinity", "EPERM").judge(observed, &control));
}

fn tmpfs(rule: &LimitRule, results: &mut Vec<ProbeResult>) {
    let stat = rustix::fs::statvfs("/tmp");
    let control = Control::new(
        "the file system of /tmp can be read",
        stat.as_ref().is_ok_and(|stat| stat.f_files > 0),
    );
    let within = stat.is_ok_and(|stat| match rule.limit {
        LimitKind::Disk => {
            stat.f_blocks.saturating_mul(stat.f_frsize) <= rule.value.next_multiple_of(stat.f_frsize.max(1))
        }
        _ => stat.f_files <= rule.value,
    });
    let observed = if within { "at most the limit" } else { "more" };
    let attempt = format!("read the size of /tmp for {}", rule.limit);
    results.push(Probe::new(Guarantee::DiskLimited, attempt, "at most the limit").judge(observed, &control));
}

/// While bytes are counted, calls that move bytes past the counter answer ENOSYS.
fn counted(results: &mut Vec<ProbeResult>) {
    let control = Control::new(
        "getpid",
        bastle_sys::probe::by_number(libc::SYS_getpid, [0; 3]).is_ok(),
    );
    let observed = bastle_sys::probe::by_number(libc::SYS_copy_file_range, [-1, 0, -1])
        .map_or_else(super::name, |_| "succeeded".to_owned());
    results.push(Probe::new(Guarantee::WritesCounted, "copy_file_range", "ENOSYS").judge(observed, &control));
}

fn rlimit(resource: Resource) -> String {
    getrlimit(resource)
        .maximum
        .map_or_else(|| "unlimited".to_owned(), |value| value.to_string())
}
