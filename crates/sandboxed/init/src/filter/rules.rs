//! Which call gets which rule. Names and counts are held by init, everything else by registers alone.
use super::FilterSpec;
use super::program::{Action, Case, Rule, Rules, Test};
use super::table::{ALLOWED, ALLOWED_HERE, TOLD};
use libc::*;

/// Calls that create or rename: init carries them out, because the path they name lies in memory that can change.
const NAMING: &[(c_long, &str)] = &[
    (SYS_mkdirat, "mkdirat"),
    (SYS_mknodat, "mknodat"),
    (SYS_renameat2, "renameat2"),
    (SYS_linkat, "linkat"),
    (SYS_symlinkat, "symlinkat"),
    (SYS_bind, "bind"),
    (RENAMEAT, "renameat"),
];

/// The same under their older numbers.
#[cfg(target_arch = "x86_64")]
const NAMING_HERE: &[(c_long, &str)] = &[
    (SYS_creat, "creat"),
    (SYS_mkdir, "mkdir"),
    (SYS_mknod, "mknod"),
    (SYS_rename, "rename"),
    (SYS_link, "link"),
    (SYS_symlink, "symlink"),
];
#[cfg(target_arch = "aarch64")]
const NAMING_HERE: &[(c_long, &str)] = &[];

#[cfg(target_arch = "x86_64")]
const RENAMEAT: c_long = SYS_renameat;
/// libc has no name for it here.
#[cfg(target_arch = "aarch64")]
const RENAMEAT: c_long = 38;

/// Calls that remove names: handed over where files are counted, and where names are judged at every change.
#[cfg(target_arch = "x86_64")]
const REMOVING: &[(c_long, &str)] = &[
    (SYS_unlinkat, "unlinkat"),
    (SYS_unlink, "unlink"),
    (SYS_rmdir, "rmdir"),
];
#[cfg(target_arch = "aarch64")]
const REMOVING: &[(c_long, &str)] = &[(SYS_unlinkat, "unlinkat")];

/// Calls that write bytes or change a size: counted only.
const WRITING: &[(c_long, &str)] = &[
    (SYS_write, "write"),
    (SYS_pwrite64, "pwrite64"),
    (SYS_writev, "writev"),
    (SYS_pwritev, "pwritev"),
    (SYS_pwritev2, "pwritev2"),
    (SYS_truncate, "truncate"),
    (SYS_ftruncate, "ftruncate"),
    (SYS_fallocate, "fallocate"),
];

/// Calls that move bytes inside the kernel or behind our back. While bytes are counted they answer `ENOSYS`, and
/// callers fall back to writing.
const MOVING: &[c_long] = &[
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_io_setup,
    SYS_io_submit,
];

/// Requests that preallocate blocks as `fallocate` does (include/linux/falloc.h): refused, so that there is one call to judge.
const PREALLOCATING: [u32; 3] = [0x4030_5828, 0x4030_582a, 0x4030_5839];

/// Requests that share blocks without writing: refused while bytes are counted. In order: clone, clone range, deduplicate.
const SHARING: [u32; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];

/// Requests that create, snapshot or remove a subvolume: a directory comes into being, or a copy of the workspace with all its
/// hidden names, without a call that names it. btrfs (include/uapi/linux/btrfs.h), in order: snapshot, create, destroy,
/// snapshot v2, create v2, destroy v2, flags, the default; then bcachefs: create, destroy.
const VOLUMES: [u32; 10] = [
    0x5000_9401,
    0x5000_940e,
    0x5000_940f,
    0x5000_9417,
    0x5000_9418,
    0x5000_943f,
    0x4008_941a,
    0x4008_9413,
    0x4020_bc10,
    0x4020_bc11,
];

/// Requests that change flags of an inode (include/uapi/linux/fs.h): a directory that folds case compares names by Unicode's
/// rules, which the patterns do not know. In order: flags, the same from 32 bits, extended flags, verity, encryption.
const FLAGS: [u32; 5] = [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4080_6685, 0x800c_6613];

/// Changing a mode, and the register it is in. A set-uid file the agent leaves in the workspace belongs to the
/// invoker on the host, where `nosuid` does not hold.
const MODES: &[(c_long, u8)] = &[
    (SYS_fchmod, 1),
    (SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (SYS_chmod, 1),
];

/// libc has no name for it on every architecture.
const FCHMODAT2: c_long = 452;

/// The bits of a mode that lend an identity.
const LENDING: u32 = 0o6000;

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`: such a file gets its mode here and its name later.
const TMPFILE: c_int = O_TMPFILE & !O_DIRECTORY;

const EXECUTING: &[(c_long, &str)] = &[(SYS_execve, "execve"), (SYS_execveat, "execveat")];

/// Namespaces a child must not get. `CLONE_NEWTIME` shares its bit with the exit signal and is out of clone's reach.
const NAMESPACES: u32 = (CLONE_NEWUSER
    | CLONE_NEWNS
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_NEWIPC
    | CLONE_NEWUTS
    | CLONE_NEWCGROUP) as u32;

/// A call that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarded {
    /// `open` and `openat`: flags decide.
    Open(&'static str),
    /// Creates or renames.
    Naming(&'static str),
    /// Removes a name.
    Removing(&'static str),
    /// Writes bytes.
    Writing(&'static str),
    /// Maps a file for shared writing.
    Mapping,
    /// Starts a program.
    Executing(&'static str),
}

/// What a handed-over call is about; `None` when it is one that is only refused and told.
pub(crate) fn guarded(number: c_long) -> Option<Guarded> {
    let named =
        |table: &[(c_long, &'static str)]| table.iter().find(|(n, _)| *n == number).map(|(_, name)| *name);
    #[cfg(target_arch = "x86_64")]
    if number == SYS_open {
        return Some(Guarded::Open("open"));
    }
    if number == SYS_openat {
        return Some(Guarded::Open("openat"));
    }
    if number == SYS_mmap {
        return Some(Guarded::Mapping);
    }
    named(NAMING)
        .or_else(|| named(NAMING_HERE))
        .map(Guarded::Naming)
        .or_else(|| named(REMOVING).map(Guarded::Removing))
        .or_else(|| named(WRITING).map(Guarded::Writing))
        .or_else(|| named(EXECUTING).map(Guarded::Executing))
}

/// The name of a call that is refused and told.
pub(crate) fn told(number: c_long) -> Option<&'static str> {
    TOLD.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

/// The agent's rules.
pub(super) fn for_agent(spec: FilterSpec) -> Rules {
    let mut rules = common();
    if spec.debuggers {
        allow_debuggers(&mut rules);
    }
    let mut set = |numbers: &[(c_long, &str)], rule: &Rule| {
        for (number, _) in numbers {
            rules.insert(*number, rule.clone());
        }
    };
    let hand_over = plain(Action::HandOver);
    let counted = if spec.counting {
        hand_over.clone()
    } else {
        plain(Action::Allow)
    };
    set(TOLD, &hand_over);
    set(NAMING, &hand_over);
    set(NAMING_HERE, &hand_over);
    set(EXECUTING, &hand_over);
    set(REMOVING, if spec.live { &hand_over } else { &counted });
    set(WRITING, &counted);
    // It takes gigabytes in one call: the disk reserve would be gone before anybody looks again.
    set(&[(SYS_fallocate, "fallocate")], &hand_over);
    // Writing is judged by name or, where programs are listed, by file.
    let judged = spec.live || spec.listed;
    if judged {
        set(&[(SYS_truncate, "truncate")], &hand_over);
    }
    let mut requests = PREALLOCATING.to_vec();
    if spec.counting {
        requests.extend(SHARING);
    }
    let refused = requests
        .into_iter()
        .map(|request| when(1, request, Action::Fail(EOPNOTSUPP)));
    rules
        .entry(SYS_ioctl)
        .and_modify(|rule| rule.cases.extend(refused));
    for number in MOVING {
        rules.insert(
            *number,
            plain(if spec.counting {
                Action::Fail(ENOSYS)
            } else {
                Action::Allow
            }),
        );
    }
    // Otherwise only opens that can create matter.
    let flags = if spec.counting || judged {
        O_CREAT | TMPFILE | O_TRUNC | O_WRONLY | O_RDWR
    } else {
        O_CREAT | TMPFILE
    } as u32;
    rules.insert(SYS_openat, open(2, flags));
    #[cfg(target_arch = "x86_64")]
    rules.insert(SYS_open, open(1, flags));
    if spec.counting {
        rules.insert(
            SYS_mmap,
            Rule {
                cases: vec![Case {
                    register: 3,
                    test: Test::AnyOf(MAP_SHARED as u32),
                    action: Action::HandOver,
                }],
                otherwise: Action::Allow,
            },
        );
    }
    if let Some(rule) = memory_files(spec) {
        rules.insert(SYS_memfd_create, rule);
    }
    if spec.pinned {
        rules.insert(SYS_sched_setaffinity, plain(Action::Fail(EPERM)));
    }
    rules
}

/// What becomes of memory files. ENOSYS: runtimes fall back to files in TMPDIR.
fn memory_files(spec: FilterSpec) -> Option<Rule> {
    if spec.watched {
        // Files in TMPDIR are counted.
        return Some(plain(Action::Fail(ENOSYS)));
    }
    spec.listed.then(|| Rule {
        cases: vec![Case {
            register: 1,
            test: Test::AnyOf(MFD_NOEXEC_SEAL),
            action: Action::Allow,
        }],
        otherwise: Action::Fail(ENOSYS),
    })
}

/// init's own rules: what the agent may do plus what the guard needs, without hand-over.
///
/// A command that is started beside the agent is a copy of init and has this filter below the agent's own. Of two
/// filters the stricter word counts, so nothing here may be stricter than there.
pub(super) fn for_init() -> Rules {
    let mut rules = common();
    allow_debuggers(&mut rules);
    let mut also = vec![SYS_openat, SYS_pidfd_open, SYS_pidfd_getfd, SYS_openat2];
    #[cfg(target_arch = "x86_64")]
    also.push(SYS_open);
    also.extend_from_slice(MOVING);
    let named = [NAMING, NAMING_HERE, REMOVING, WRITING, EXECUTING];
    for (number, _) in named.into_iter().flatten() {
        rules.insert(*number, plain(Action::Allow));
    }
    for number in also {
        rules.insert(number, plain(Action::Allow));
    }
    // This filter has no listener: for init these answer ENOSYS. For a copy with the agent's filter on top that one's
    // listener hears them, so that such an attempt is told as the agent's is.
    for (number, _) in TOLD {
        rules.insert(*number, plain(Action::HandOver));
    }
    rules
}

fn common() -> Rules {
    let mut rules: Rules = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|number| (*number, plain(Action::Allow)))
        .collect();
    for number in [SYS_mmap, SYS_sched_setaffinity] {
        rules.insert(number, plain(Action::Allow));
    }
    // ENOSYS, so that libraries fall back to calls whose flags are in registers.
    rules.insert(SYS_clone3, plain(Action::Fail(ENOSYS)));
    rules.insert(SYS_openat2, plain(Action::Fail(ENOSYS)));
    rules.insert(
        SYS_clone,
        Rule {
            cases: vec![Case {
                register: 0,
                test: Test::AnyOf(NAMESPACES),
                action: Action::Fail(EPERM),
            }],
            otherwise: Action::Allow,
        },
    );
    for (number, register) in MODES {
        let lends = Case {
            register: *register,
            test: Test::AnyOf(LENDING),
            action: Action::Fail(EPERM),
        };
        rules.insert(
            *number,
            Rule {
                cases: vec![lends],
                otherwise: Action::Allow,
            },
        );
    }
    // A process that hides its memory locks the guard out of its own calls. Told that it did, it goes on unhidden:
    // inside, there is nobody else to hide from. Only `prctl(PR_SET_DUMPABLE, 0)` is meant.
    let shown = Case {
        register: 1,
        test: Test::AnyOf(u32::MAX),
        action: Action::Allow,
    };
    let hides = when(0, PR_SET_DUMPABLE as u32, Action::Fail(0));
    rules.insert(
        SYS_prctl,
        Rule {
            cases: vec![shown, hides],
            otherwise: Action::Allow,
        },
    );
    // Limits of others, init's above all, are not the agent's to change; 0 is the caller itself.
    rules.insert(
        SYS_prlimit64,
        Rule {
            cases: vec![when(0, 0, Action::Allow)],
            otherwise: Action::Fail(EPERM),
        },
    );
    rules.insert(SYS_socket, sockets());
    rules.insert(
        SYS_socketpair,
        Rule {
            cases: vec![when(0, AF_UNIX as u32, Action::Allow)],
            otherwise: Action::Fail(EAFNOSUPPORT),
        },
    );
    rules.insert(SYS_ioctl, ioctls());
    let personalities = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff].map(|value| when(0, value, Action::Allow));
    rules.insert(
        SYS_personality,
        Rule {
            cases: personalities.to_vec(),
            otherwise: Action::Fail(EPERM),
        },
    );
    rules
}

/// Debugging calls between the agent's own processes; the guard needs them too.
fn allow_debuggers(rules: &mut Rules) {
    for number in [SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev] {
        rules.insert(number, plain(Action::Allow));
    }
}

/// Unix, IPv4, IPv6, and netlink for the routing table only (interface listing). The rest is attack surface.
fn sockets() -> Rule {
    let refused = Action::Fail(EAFNOSUPPORT);
    let mut cases: Vec<Case> = [AF_UNIX, AF_INET, AF_INET6]
        .map(|family| when(0, family as u32, Action::Allow))
        .to_vec();
    // Other netlink protocols first: what remains of the family is NETLINK_ROUTE.
    cases.push(Case {
        register: 2,
        test: Test::AnyOf(u32::MAX),
        action: refused,
    });
    cases.push(when(0, AF_NETLINK as u32, Action::Allow));
    Rule {
        cases,
        otherwise: refused,
    }
}

/// Requests that put bytes into a terminal's input or change its console, and those by which a file system makes or removes
/// names, or changes how names are compared: never.
fn ioctls() -> Rule {
    const TIOCLINUX: u32 = 0x541c;
    let console = [TIOCSTI as u32, TIOCLINUX, TIOCCONS as u32, TIOCSETD as u32];
    let refused = console
        .into_iter()
        .chain(VOLUMES)
        .map(|request| when(1, request, Action::Fail(EPERM)));
    let unknown = FLAGS.map(|request| when(1, request, Action::Fail(EOPNOTSUPP)));
    Rule {
        cases: refused.chain(unknown).collect(),
        otherwise: Action::Allow,
    }
}

fn open(register: u8, flags: u32) -> Rule {
    Rule {
        cases: vec![Case {
            register,
            test: Test::AnyOf(flags),
            action: Action::HandOver,
        }],
        otherwise: Action::Allow,
    }
}

fn when(register: u8, value: u32, action: Action) -> Case {
    Case {
        register,
        test: Test::Equals(value),
        action,
    }
}

fn plain(action: Action) -> Rule {
    Rule {
        cases: Vec::new(),
        otherwise: action,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(action: Action) -> bool {
        matches!(action, Action::Fail(_))
    }

    #[test]
    fn nothing_that_the_agent_may_do_is_refused_by_the_filter_that_further_commands_have_below() {
        let init = for_init();
        let flags = [false, true];
        let every = flags.into_iter().flat_map(|debuggers| {
            flags.into_iter().map(move |counting| FilterSpec {
                debuggers,
                counting,
                watched: false,
                pinned: false,
                listed: false,
                live: counting,
            })
        });
        for spec in every {
            for (number, agents) in for_agent(spec) {
                let may = !fails(agents.otherwise) || agents.cases.iter().any(|case| !fails(case.action));
                if !may {
                    continue;
                }
                let Some(own) = init.get(&number) else {
                    panic!("call {number} is refused below");
                };
                let stricter = own
                    .cases
                    .iter()
                    .any(|case| fails(case.action) && !agents.cases.contains(case));
                assert!(!stricter, "call {number} is refused below for some arguments");
                assert!(
                    !fails(own.otherwise) || fails(agents.otherwise),
                    "call {number} is refused below"
                );
            }
        }
    }

    #[test]
    fn a_call_that_is_told_is_not_allowed_to_init_itself() {
        let init = for_init();
        for (number, name) in TOLD {
            let rule = init.get(number).unwrap();
            // Without a listener this is ENOSYS: refused.
            assert_eq!(
                (rule.otherwise, rule.cases.len()),
                (Action::HandOver, 0),
                "{name}"
            );
        }
    }
}
