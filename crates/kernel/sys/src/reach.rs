//! Which system calls a filter keeps from the kernel: each is made with arguments that the kernel refuses before it looks
//! at any right, so that `EPERM` and `ENOSYS` can only come from a filter or from a kernel without the call.
use crate::probe::{Outcome, Tried, by_a_child, by_number};

/// A flag that none of these calls has.
const NO_FLAG: libc::c_long = 0x4000_0000;

/// A call by name, and how it is tried.
type Call = (&'static str, fn() -> Outcome);

/// The calls that building a fence needs, each with arguments that nothing can come of.
const CALLS: &[Call] = &[
    // Size 0: EINVAL.
    ("clone3", || by_number(libc::SYS_clone3, [0; 3])),
    // 1 is no namespace: EINVAL.
    ("unshare", || by_number(libc::SYS_unshare, [1, 0, 0])),
    // No path: EFAULT.
    ("mount", || by_number(libc::SYS_mount, [0; 3])),
    ("umount2", || by_number(libc::SYS_umount2, [0, NO_FLAG, 0])),
    ("open_tree", || by_number(libc::SYS_open_tree, [-1, 0, NO_FLAG])),
    ("mount_setattr", || {
        by_number(libc::SYS_mount_setattr, [-1, 0, NO_FLAG])
    }),
    // No descriptor: EBADF.
    ("setns", || by_number(libc::SYS_setns, [-1, 0, 0])),
    ("pidfd_getfd", || by_number(libc::SYS_pidfd_getfd, [-1, 0, 0])),
    // Process 0: EINVAL.
    ("pidfd_open", || by_number(libc::SYS_pidfd_open, [0; 3])),
    // Nothing to read from nowhere: 0 bytes.
    ("process_vm_readv", || {
        by_number(libc::SYS_process_vm_readv, [0; 3])
    }),
    // Nothing is asked for: 0. Init's probe of its own filter needs to see it work before.
    ("get_mempolicy", || by_number(libc::SYS_get_mempolicy, [0; 3])),
    // No such operation: EINVAL.
    ("seccomp", || by_number(libc::SYS_seccomp, [0xffff, 0, 0])),
];

/// The calls of these that do not reach the kernel. Each is tried in a child, because a filter may end the process.
#[must_use]
pub fn kept_from_the_kernel() -> Vec<&'static str> {
    CALLS
        .iter()
        .filter(|(_, call)| match by_a_child(*call) {
            Ok(Tried::Failed(errno)) => errno == libc::EPERM || errno == libc::ENOSYS,
            Ok(Tried::Ended(_)) => true,
            // Without a child nothing is known of the call.
            Ok(Tried::Succeeded) | Err(_) => false,
        })
        .map(|(name, _)| *name)
        .collect()
}

/// How the kernel answers the question for its Landlock ABI: 0, or the errno that tells a kernel built without it
/// (`ENOSYS`) from one started without it (`EOPNOTSUPP`).
#[must_use]
pub fn landlock_errno() -> i32 {
    const CREATE_RULESET_VERSION: libc::c_long = 1;
    by_number(libc::SYS_landlock_create_ruleset, [0, 0, CREATE_RULESET_VERSION])
        .err()
        .unwrap_or(0)
}
