//! The system-call filter of egress: sockets, memory, threads and waiting; no program, no child, no new file.
use super::program::{Action, Case, Rule, Rules, Test};
use libc::*;

/// Allowed whatever the arguments are. Opening is among them because the allocator and the runtime look for files
/// under `/proc` and `/sys`; what can be opened is Landlock's, and that is nothing but the log of a standalone proxy.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    SYS_accept4, SYS_bind, SYS_brk, SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_close_range,
    SYS_connect, SYS_dup, SYS_dup3, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
    SYS_exit, SYS_exit_group, SYS_fallocate, SYS_fcntl, SYS_fdatasync, SYS_flock, SYS_fstat, SYS_fsync, SYS_ftruncate,
    SYS_futex, SYS_getcpu, SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getpeername, SYS_getpid,
    SYS_getppid, SYS_getrandom, SYS_getrusage, SYS_getsockname, SYS_getsockopt, SYS_gettid, SYS_gettimeofday,
    SYS_getuid, SYS_listen, SYS_lseek, SYS_madvise, SYS_membarrier, SYS_memfd_create, SYS_mkdirat, SYS_mmap, SYS_mprotect, SYS_mremap,
    SYS_munmap, SYS_nanosleep, SYS_newfstatat, SYS_openat, SYS_pipe2, SYS_ppoll, SYS_prctl, SYS_pread64, SYS_pwrite64,
    SYS_read, SYS_readlinkat, SYS_readv, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_renameat2, SYS_restart_syscall,
    SYS_rseq, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield,
    SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_set_robust_list, SYS_setsockopt, SYS_shutdown, SYS_sigaltstack,
    SYS_splice, SYS_statx, SYS_sysinfo, SYS_uname, SYS_unlinkat, SYS_write, SYS_writev,
];

/// Older numbers that C libraries still use.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    SYS_access,
    SYS_epoll_wait,
    SYS_mkdir,
    SYS_open,
    SYS_poll,
    SYS_readlink,
    SYS_rename,
    SYS_stat,
    SYS_time,
    SYS_unlink,
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[c_long] = &[];

/// The rules for a process of this number.
pub(super) fn rules(own: u32) -> Rules {
    let plain = |action| Rule {
        cases: Vec::new(),
        otherwise: action,
    };
    let mut rules: Rules = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|number| (*number, plain(Action::Allow)))
        .collect();
    // ENOSYS, so that the C library falls back to the call whose flags are in registers.
    rules.insert(SYS_clone3, plain(Action::Fail(ENOSYS)));
    // To end itself with, and nobody else.
    let itself = Case {
        register: 0,
        test: Test::Equals(own),
        action: Action::Allow,
    };
    rules.insert(
        SYS_tgkill,
        Rule {
            cases: vec![itself],
            otherwise: Action::Fail(EPERM),
        },
    );
    let thread = Case {
        register: 0,
        test: Test::AnyOf(CLONE_THREAD as u32),
        action: Action::Allow,
    };
    rules.insert(
        SYS_clone,
        Rule {
            cases: vec![thread],
            otherwise: Action::Fail(EPERM),
        },
    );
    sockets(&mut rules);
    // Own limits can be read; those of others are not this process's business.
    rules.insert(
        SYS_prlimit64,
        Rule {
            cases: vec![Case {
                register: 0,
                test: Test::Equals(0),
                action: Action::Allow,
            }],
            otherwise: Action::Fail(EPERM),
        },
    );
    let known = [FIONBIO as u32, FIONREAD as u32, TCGETS as u32].map(|request| Case {
        register: 1,
        test: Test::Equals(request),
        action: Action::Allow,
    });
    rules.insert(
        SYS_ioctl,
        Rule {
            cases: known.to_vec(),
            otherwise: Action::Fail(ENOTTY),
        },
    );
    rules
}

/// Which sockets it can make.
fn sockets(rules: &mut Rules) {
    let family = |family: c_int| Case {
        register: 0,
        test: Test::Equals(family as u32),
        action: Action::Allow,
    };
    // None of its own that could be led to a socket of the host: Landlock keeps abstract names apart from ABI 6 on, and
    // those in directories from ABI 9 on.
    let families = [AF_INET, AF_INET6].map(family);
    rules.insert(
        SYS_socket,
        Rule {
            cases: families.to_vec(),
            otherwise: Action::Fail(EAFNOSUPPORT),
        },
    );
    // A pair that is connected once and for all. One for datagrams could send elsewhere; its type has a bit of its own.
    let no_datagrams = Case {
        register: 1,
        test: Test::AnyOf(SOCK_DGRAM as u32),
        action: Action::Fail(EAFNOSUPPORT),
    };
    rules.insert(
        SYS_socketpair,
        Rule {
            cases: vec![no_datagrams, family(AF_UNIX)],
            otherwise: Action::Fail(EAFNOSUPPORT),
        },
    );
}
