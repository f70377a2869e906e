//! System calls a program may make, by architecture: everything else is refused.
//!
//! The set is the unconditional part of the Moby project's default profile (Apache-2.0, 2026-08), less calls that
//! are judged by argument or by init ([`super::rules`]) and less those that reach the kernel's own configuration.
use libc::*;

/// Allowed whatever the arguments are.
#[rustfmt::skip]
pub(super) const ALLOWED: &[c_long] = &[
    SYS_accept, SYS_accept4, SYS_adjtimex, SYS_brk, SYS_capget, SYS_capset, SYS_chdir, SYS_clock_adjtime,
    SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_close_range, SYS_connect, SYS_dup,
    SYS_dup3, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2, SYS_exit,
    SYS_exit_group, SYS_faccessat, SYS_faccessat2, SYS_fadvise64, SYS_fanotify_mark, SYS_fchdir, SYS_fchmod,
    SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_fcntl, SYS_fdatasync, SYS_fgetxattr, SYS_flistxattr, SYS_flock,
    SYS_fremovexattr, SYS_fsetxattr, SYS_fstat, SYS_fstatfs, SYS_fsync, SYS_futex, SYS_futex_waitv, SYS_get_robust_list,
    SYS_getcpu, SYS_getcwd, SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getgroups, SYS_getitimer,
    SYS_getpeername, SYS_getpgid, SYS_getpid, SYS_getppid, SYS_getpriority, SYS_getrandom, SYS_getresgid, SYS_getresuid,
    SYS_getrusage, SYS_getsid, SYS_getsockname, SYS_getsockopt, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_getxattr,
    SYS_inotify_add_watch, SYS_inotify_init1, SYS_inotify_rm_watch, SYS_io_cancel, SYS_io_destroy, SYS_io_getevents,
    SYS_io_setup, SYS_io_submit, SYS_ioprio_get, SYS_ioprio_set, SYS_kill, SYS_landlock_add_rule,
    SYS_landlock_create_ruleset, SYS_landlock_restrict_self, SYS_lgetxattr, SYS_listen, SYS_listxattr, SYS_llistxattr,
    SYS_lremovexattr, SYS_lseek, SYS_lsetxattr, SYS_madvise, SYS_membarrier, SYS_memfd_create, SYS_memfd_secret,
    SYS_mincore, SYS_mlock, SYS_mlock2, SYS_mlockall, SYS_mprotect, SYS_mq_getsetattr, SYS_mq_notify, SYS_mq_open,
    SYS_mq_timedreceive, SYS_mq_timedsend, SYS_mq_unlink, SYS_mremap, SYS_mseal, SYS_msgctl, SYS_msgget, SYS_msgrcv,
    SYS_msgsnd, SYS_msync, SYS_munlock, SYS_munlockall, SYS_munmap, SYS_name_to_handle_at, SYS_nanosleep,
    SYS_newfstatat, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_pipe2, SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect,
    SYS_ppoll, SYS_prctl, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_prlimit64, SYS_process_mrelease, SYS_pselect6,
    SYS_read, SYS_readahead, SYS_readlinkat, SYS_readv, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_remap_file_pages,
    SYS_removexattr, SYS_restart_syscall, SYS_rseq, SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask,
    SYS_rt_sigqueueinfo, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_getaffinity, SYS_sched_getattr,
    SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_rr_get_interval, SYS_sched_setattr, SYS_sched_setparam,
    SYS_sched_setscheduler, SYS_sched_yield, SYS_seccomp, SYS_semctl, SYS_semget, SYS_semop, SYS_semtimedop,
    SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_set_robust_list, SYS_set_tid_address, SYS_setfsgid, SYS_setfsuid,
    SYS_setgid, SYS_setgroups, SYS_setitimer, SYS_setpgid, SYS_setpriority, SYS_setregid, SYS_setresgid, SYS_setresuid,
    SYS_setreuid, SYS_setsid, SYS_setsockopt, SYS_setuid, SYS_setxattr, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_shmget,
    SYS_shutdown, SYS_sigaltstack, SYS_signalfd4, SYS_statfs, SYS_statx, SYS_sync, SYS_syncfs, SYS_sysinfo, SYS_tee,
    SYS_tgkill, SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun, SYS_timer_gettime, SYS_timer_settime,
    SYS_timerfd_create, SYS_timerfd_gettime, SYS_timerfd_settime, SYS_times, SYS_tkill, SYS_umask, SYS_uname,
    SYS_utimensat, SYS_vmsplice, SYS_wait4, SYS_waitid,
];

/// Allowed calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const ALLOWED_HERE: &[c_long] = &[
    SYS_access, SYS_alarm, SYS_arch_prctl, SYS_chmod, SYS_chown, SYS_dup2, SYS_epoll_create, SYS_epoll_ctl_old,
    SYS_epoll_wait, SYS_epoll_wait_old, SYS_eventfd, SYS_fork, SYS_futimesat, SYS_get_thread_area, SYS_getdents,
    SYS_getpgrp, SYS_getrlimit, SYS_inotify_init, SYS_lchown, SYS_lstat, SYS_modify_ldt, SYS_pause, SYS_pipe, SYS_poll,
    SYS_readlink, SYS_select, SYS_set_thread_area, SYS_setrlimit, SYS_signalfd, SYS_stat, SYS_sync_file_range, SYS_time,
    SYS_utime, SYS_utimes, SYS_vfork,
    452, // fchmodat2
];

/// Allowed calls that only this architecture has.
#[cfg(target_arch = "aarch64")]
pub(super) const ALLOWED_HERE: &[c_long] = &[
    452, // fchmodat2
];

/// What the kernel calls this architecture in a filter's data.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
/// What the kernel calls this architecture in a filter's data.
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls that are refused and told: no program that minds its own business makes them.
#[rustfmt::skip]
pub(super) const TOLD: &[(c_long, &str)] = &[
    (SYS_mount, "mount"), (SYS_umount2, "umount2"), (SYS_pivot_root, "pivot_root"), (SYS_chroot, "chroot"),
    (SYS_move_mount, "move_mount"), (SYS_open_tree, "open_tree"), (SYS_fsopen, "fsopen"), (SYS_mount_setattr, "mount_setattr"),
    (SYS_unshare, "unshare"), (SYS_setns, "setns"), (SYS_bpf, "bpf"), (SYS_keyctl, "keyctl"), (SYS_add_key, "add_key"),
    (SYS_request_key, "request_key"), (SYS_init_module, "init_module"), (SYS_finit_module, "finit_module"),
    (SYS_delete_module, "delete_module"), (SYS_kexec_load, "kexec_load"), (SYS_reboot, "reboot"), (SYS_swapon, "swapon"),
    (SYS_open_by_handle_at, "open_by_handle_at"), (SYS_perf_event_open, "perf_event_open"), (SYS_userfaultfd, "userfaultfd"),
    (SYS_settimeofday, "settimeofday"), (SYS_clock_settime, "clock_settime"), (SYS_sethostname, "sethostname"),
    (SYS_syslog, "syslog"), (SYS_acct, "acct"), (SYS_quotactl, "quotactl"),
];
