//! From what was observed to the one cause of a trial that failed: the first, in the order in which a fence meets them.
//! A cause is named only where what was observed proves it.
use super::apparmor;
use super::cause::{Cause, Fix, Proof};
use super::container::Needed;
use super::fix::sysctl;
use super::observe::Observed;
use bastle_contract::Code;
use rustix::io::Errno;

/// The kernel that has everything a fence needs.
const OLDEST: (u32, u32) = (5, 19);

/// The cause. `newer` is how this distribution gets a newer kernel.
pub(super) fn judge(seen: &Observed, newer: &str) -> Proof {
    before_the_fence(seen)
        .or_else(|| kernel(seen, newer))
        .or_else(|| service(seen))
        .or_else(|| filtered(seen))
        .or_else(|| restricted(seen))
        .or_else(|| namespace(seen))
        .or_else(|| inside(seen))
        .or_else(|| landlock(seen, newer))
        .or_else(|| after_the_fence(seen))
        .unwrap_or_else(|| unknown(seen))
}

fn proof(cause: Cause, proof: impl Into<String>, fix: Fix) -> Proof {
    Proof {
        cause,
        proof: proof.into(),
        fix,
    }
}

fn instruction(text: &str) -> Fix {
    Fix::Instruction(text.to_owned())
}

fn is(seen: &Observed, code: Code) -> bool {
    Code::parse(&seen.fault) == Some(code)
}

fn before_the_fence(seen: &Observed) -> Option<Proof> {
    let fault = seen.fault.as_str();
    if is(seen, Code::FenceNested) {
        return Some(proof(
            Cause::AlreadyFenced,
            "AGENT_IN_SANDBOX=1 is set",
            instruction("run the command without bastle: the outer fence holds for it"),
        ));
    }
    if fault.starts_with("BST-POL-") {
        return Some(proof(
            Cause::PolicyUnusable,
            "the policy of this user or of this machine is refused",
            instruction("bastle policy check FILE, with the file that the message names"),
        ));
    }
    if is(seen, Code::StateDir) || fault.starts_with("BST-AUD-") {
        return Some(proof(
            Cause::StateUnwritable,
            "the trial could not write its records",
            instruction("export TMPDIR=DIRECTORY, one that you may write"),
        ));
    }
    None
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor)) => Some((major, minor)),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => None,
    }
}

/// A kernel that is too old, by what it lacks and not by its number alone: some have newer parts.
fn kernel(seen: &Observed, newer: &str) -> Option<Proof> {
    let lacks = seen.landlock == Some(false) || seen.notify == Some(false);
    let old = version(&seen.release).is_some_and(|version| version < OLDEST);
    (lacks && old).then(|| {
        proof(
            Cause::KernelTooOld,
            format!("Linux {} lacks what Linux 5.19 has", seen.release),
            instruction(newer),
        )
    })
}

fn service(seen: &Observed) -> Option<Proof> {
    seen.service.then(|| {
        proof(
            Cause::SpawnerService,
            "BASTLE_SPAWNER names a service that builds the fence: the cause is on its side",
            instruction("journalctl -u bastle-spawner.service; without the service: env -u BASTLE_SPAWNER bastle doctor"),
        )
    })
}

/// A filter is proven by calls that fail before the kernel looks at them.
fn filtered(seen: &Observed) -> Option<Proof> {
    if seen.steps.filtered.is_empty() {
        return None;
    }
    Some(by_filter(
        seen,
        &format!(
            "a system-call filter refuses {} to this process",
            seen.steps.filtered.join(", ")
        ),
    ))
}

fn by_filter(seen: &Observed, told: &str) -> Proof {
    let fix = match seen.container {
        Some(container) => container.fix(Needed {
            seccomp: true,
            ..needed(seen)
        }),
        None => instruction(
            "start bastle outside of that filter: from a login shell, or without SystemCallFilter= and RestrictNamespaces= in its unit",
        ),
    };
    proof(Cause::SeccompFilter, told, fix)
}

/// All that a container must be given: a second cause would show only when the first is gone.
fn needed(seen: &Observed) -> Needed {
    Needed {
        seccomp: false,
        apparmor: confined(seen),
        proc: !seen.covers.is_empty(),
    }
}

/// Whether a profile of AppArmor is enforced on this process.
fn confined(seen: &Observed) -> bool {
    seen.label.ends_with("(enforce)")
}

fn sudo(seen: &Observed) -> &'static str {
    if seen.root { "" } else { "sudo " }
}

/// Ubuntu's restriction: the namespace is made, and its process has lost every right in it.
fn restricted(seen: &Observed) -> Option<Proof> {
    let switched_on = seen.sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some("1");
    let moved = seen.steps.label.starts_with("unprivileged_userns");
    let refused = seen
        .steps
        .refused_namespace()
        .is_some_and(|(_, errno)| errno == Errno::ACCESS.raw_os_error());
    let proven = moved || (switched_on && refused && !confined(seen));
    if !proven {
        return None;
    }
    let how = if moved {
        format!(
            "a process in a new user namespace gets the AppArmor profile {}",
            seen.steps.label
        )
    } else {
        "a new user namespace gives EACCES, and kernel.apparmor_restrict_unprivileged_userns is 1".to_owned()
    };
    let own = seen.profiles.iter().find(|profile| profile.is_for(&seen.binary));
    let binary = seen.binary.display();
    Some(match (own, seen.profiles.first()) {
        (Some(profile), _) => proof(
            Cause::ApparmorProfileNotLoaded,
            format!("{how}; {} is for {binary} and not loaded", profile.file.display()),
            apparmor::load(&profile.file, sudo(seen)),
        ),
        (None, Some(other)) => proof(
            Cause::ApparmorProfileOtherPath,
            format!("{how}; {} is not for {binary}", other.file.display()),
            apparmor::install(&seen.binary, sudo(seen)),
        ),
        (None, None) => proof(
            Cause::ApparmorRestriction,
            how,
            apparmor::install(&seen.binary, sudo(seen)),
        ),
    })
}

fn namespace(seen: &Observed) -> Option<Proof> {
    let (kind, errno) = seen.steps.refused_namespace()?;
    let told = format!("a new {kind} namespace gives {}", named(errno));
    match Errno::from_raw_os_error(errno) {
        Errno::NOSPC => Some(limit(seen, kind, &told)),
        Errno::INVAL => Some(proof(
            Cause::NamespacesNotBuilt,
            told,
            instruction(
                "use a kernel with CONFIG_NAMESPACES, CONFIG_USER_NS, CONFIG_PID_NS and CONFIG_NET_NS",
            ),
        )),
        Errno::PERM => refused(seen, &told),
        Errno::ACCESS => Some(denied(seen, &told)),
        _ => None,
    }
}

fn limit(seen: &Observed, kind: &str, told: &str) -> Proof {
    let name = format!("user/max_{kind}_namespaces");
    let key = name.replace('/', ".");
    match seen.sysctl(&name).and_then(|text| text.parse::<u64>().ok()) {
        Some(0) => proof(
            Cause::NamespaceLimitZero,
            format!("{told}, and {key} is 0"),
            sysctl(&key, "15000", sudo(seen)),
        ),
        known => {
            let most = known.map_or_else(|| "unknown".to_owned(), |most| most.to_string());
            let more = known.unwrap_or(15_000).saturating_mul(2);
            proof(
                Cause::NamespaceLimitReached,
                format!("{told}: as many exist as {key} allows ({most})"),
                sysctl(&key, &more.to_string(), sudo(seen)),
            )
        }
    }
}

fn refused(seen: &Observed, told: &str) -> Option<Proof> {
    if let Some(chroot) = &seen.chroot {
        return Some(in_chroot(&format!("{told}, and {chroot}")));
    }
    if !seen.root && seen.sysctl("kernel/unprivileged_userns_clone") == Some("0") {
        return Some(proof(
            Cause::UserNamespacesOff,
            format!("{told}, and kernel.unprivileged_userns_clone is 0"),
            sysctl("kernel.unprivileged_userns_clone", "1", sudo(seen)),
        ));
    }
    if !seen.mapped {
        return Some(proof(
            Cause::UnmappedUser,
            format!("{told}, and /proc/self/uid_map has no entry for this user"),
            instruction(
                "start bastle as a user that the outer user namespace maps: podman run --userns=keep-id ...",
            ),
        ));
    }
    // clone(2) lists what gives EPERM for a user namespace: a user or group without a map, and a chroot.
    Some(in_chroot(&format!(
        "{told}; no filter, no setting of the kernel and no missing map explains it, which leaves a chroot"
    )))
}

fn in_chroot(told: &str) -> Proof {
    proof(
        Cause::Chroot,
        told,
        instruction(
            "start bastle outside the chroot, or enter that root as a container: systemd-nspawn -D ROOT",
        ),
    )
}

fn denied(seen: &Observed, told: &str) -> Proof {
    if confined(seen) {
        let fix = match seen.container {
            Some(container) => container.fix(needed(seen)),
            None => instruction(
                "let the profile have flags=(attach_disconnected) and allow userns, mount, umount and pivot_root, or start bastle outside of it",
            ),
        };
        return proof(
            Cause::ApparmorProfileDenies,
            format!("{told}, and the AppArmor profile {} is enforced", seen.label),
            fix,
        );
    }
    proof(
        Cause::LsmDenies,
        format!("{told}: a security module refuses it ({})", seen.lsm),
        instruction(
            "look for the denial in the kernel's log (dmesg, ausearch -m avc) and allow it for bastle",
        ),
    )
}

fn inside(seen: &Observed) -> Option<Proof> {
    let (step, errno) = seen.steps.refused_inside()?;
    let told = format!("{} gives {} in the new namespaces", described(step), named(errno));
    let refusal = Errno::from_raw_os_error(errno);
    if step == "read-memory" {
        let scope = seen.sysctl("kernel/yama/ptrace_scope")?;
        return matches!(scope, "2" | "3").then(|| ptrace_scope(seen, &told, scope));
    }
    if step == "proc" && refusal == Errno::PERM {
        let covered = match seen.covers.first() {
            Some(first) => format!("{} places of /proc are covered ({first})", seen.covers.len()),
            None => "no whole /proc is mounted here".to_owned(),
        };
        let fix = match seen.container {
            Some(container) => container.fix(Needed {
                proc: true,
                ..needed(seen)
            }),
            None => instruction(
                "start bastle where /proc is mounted whole: without ProtectProc=, ProtectKernelTunables= and InaccessiblePaths= below /proc in its unit",
            ),
        };
        return Some(proof(Cause::ProcCovered, format!("{told}, and {covered}"), fix));
    }
    match refusal {
        Errno::ACCESS => Some(denied(seen, &told)),
        Errno::PERM | Errno::NOSYS if confined(seen) => Some(denied(seen, &told)),
        Errno::PERM | Errno::NOSYS if seen.filter => Some(by_filter(
            seen,
            &format!("{told}, and a system-call filter is in force on this process"),
        )),
        _ => None,
    }
}

fn ptrace_scope(seen: &Observed, told: &str, scope: &str) -> Proof {
    let fix = match scope {
        // The kernel does not let it be lowered again.
        "3" => instruction(
            "start the machine without kernel.yama.ptrace_scope=3: it cannot be lowered while it runs",
        ),
        _ => sysctl("kernel.yama.ptrace_scope", "1", sudo(seen)),
    };
    proof(
        Cause::PtraceScope,
        format!("{told}, and kernel.yama.ptrace_scope is {scope}"),
        fix,
    )
}

fn landlock(seen: &Observed, newer: &str) -> Option<Proof> {
    if seen.landlock != Some(false) {
        return None;
    }
    let listed = seen.lsm.split(',').any(|name| name == "landlock");
    let errno = match seen.steps.landlock_errno {
        // The question was answered, with too low an ABI; 0 is no errno.
        0 => Errno::INVAL,
        errno => Errno::from_raw_os_error(errno),
    };
    Some(match errno {
        Errno::OPNOTSUPP => proof(
            Cause::LandlockOff,
            "the kernel has Landlock and was started without it",
            Fix::Instruction(format!(
                "add lsm=landlock,{} to the kernel command line (Debian, Ubuntu: GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub) and restart",
                if seen.lsm.is_empty() {
                    "lockdown,yama,apparmor,bpf"
                } else {
                    &seen.lsm
                }
            )),
        ),
        Errno::PERM => by_filter(
            seen,
            "a system-call filter refuses landlock_create_ruleset to this process",
        ),
        Errno::NOSYS if seen.filter && listed => by_filter(
            seen,
            "landlock_create_ruleset gives ENOSYS, and the kernel lists Landlock among its security modules",
        ),
        Errno::NOSYS => proof(
            Cause::LandlockNotBuilt,
            "the kernel does not know landlock_create_ruleset",
            instruction(newer),
        ),
        _ => proof(
            Cause::KernelTooOld,
            format!("Linux {} has Landlock without what a fence needs", seen.release),
            instruction(newer),
        ),
    })
}

fn after_the_fence(seen: &Observed) -> Option<Proof> {
    if seen.notify == Some(false) {
        return Some(proof(
            Cause::SeccompNotifyMissing,
            "no user notification of system calls whose caller waits to the end",
            instruction(
                "use Linux 5.19 or newer with CONFIG_SECCOMP_FILTER, and no outer filter that has a listener",
            ),
        ));
    }
    if is(seen, Code::FenceIdmap) {
        return Some(proof(
            Cause::IdmapUnsupported,
            "no directory for trials is on a file system with idmapped mounts, which a run by root needs",
            instruction("start bastle as the owner of the project; in a container: --user UID:GID"),
        ));
    }
    if seen.root && !seen.may_mount {
        let fix = match seen.container {
            Some(_) => "start the container with --user 1000:1000",
            None => "start bastle as the owner of the project instead of as root",
        };
        return Some(proof(
            Cause::RootWithoutCapabilities,
            "this is user 0 without CAP_SYS_ADMIN (CapEff in /proc/self/status)",
            instruction(fix),
        ));
    }
    // What the trial did and the single steps did not, as moving a mount that has no place yet.
    if let Some(step) = seen.denied.as_deref().filter(|_| confined(seen)) {
        return Some(denied(seen, &format!("{step} gives EACCES")));
    }
    is(seen, Code::FenceProbe).then(|| {
        proof(
            Cause::ProbeFailed,
            "every step works, and a probe in the finished fence did not hold",
            instruction("bastle explain BST-FENCE-004"),
        )
    })
}

fn unknown(seen: &Observed) -> Proof {
    let told = match seen.steps.refused_namespace().or(seen.steps.refused_inside()) {
        Some((step, errno)) => format!(
            "{} gives {}; nothing known explains it",
            described(step),
            named(errno)
        ),
        None => "every step that was tried by itself works".to_owned(),
    };
    let code = match seen.fault.as_str() {
        "" => "BST-FENCE-002",
        code => code,
    };
    proof(
        Cause::Unknown,
        told,
        Fix::Instruction(format!("bastle explain {code}")),
    )
}

fn described(step: &str) -> &str {
    match step {
        "private-mounts" => "making mounts private",
        "tmpfs" => "mounting a tmpfs",
        "proc" => "mounting /proc",
        "devpts" => "mounting devpts",
        "bind" => "binding /dev/null",
        "pivot-root" => "pivot_root",
        "read-memory" => "reading the memory of a child",
        "setgroups" | "uid_map" | "gid_map" => "mapping the user",
        "hostname" => "setting the host name",
        "user" => "a new user namespace",
        other => other,
    }
}

fn named(errno: i32) -> String {
    let name = match Errno::from_raw_os_error(errno) {
        Errno::PERM => "EPERM",
        Errno::ACCESS => "EACCES",
        Errno::NOSPC => "ENOSPC",
        Errno::INVAL => "EINVAL",
        Errno::NOSYS => "ENOSYS",
        _ => return format!("errno {errno}"),
    };
    name.to_owned()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
