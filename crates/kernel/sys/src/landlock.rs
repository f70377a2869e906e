//! Which parts of Landlock the kernel has: found by trying each, because a distribution's kernel can claim an ABI and
//! refuse what belongs to it. Rules are made with the `landlock` crate.
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// Rights over files of ABI 1, and the right to move files between directories, which is ABI 2's.
const FILES_AND_REFER: u64 = (1 << 14) - 1;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
/// Connecting to Unix sockets by path, `LANDLOCK_ACCESS_FS_RESOLVE_UNIX` (Linux 7.1, ABI 9).
const RESOLVE_UNIX: u64 = 1 << 16;
/// Abstract sockets and signals.
const SCOPES: u64 = 0b11;

/// `struct landlock_ruleset_attr`. A kernel that knows only its beginning takes the rest as long as it is zero.
#[repr(C)]
struct Attributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// What a ruleset can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Files and directories, with moving between directories.
    pub files: bool,
    /// Truncating.
    pub truncate: bool,
    /// `ioctl` on devices.
    pub ioctl: bool,
    /// Signals and abstract sockets.
    pub scopes: bool,
    /// Unix sockets that have a path.
    pub unix: bool,
}

/// The kernel's Landlock ABI; 0 when Landlock is not there or switched off.
#[must_use]
pub fn abi() -> u32 {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel takes a null pointer and size 0 and returns a number.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(ret).unwrap_or(0)
}

/// What this kernel makes a ruleset of. Tried once in a process; its copies know the answer.
#[must_use]
pub fn features() -> Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    *FEATURES.get_or_init(|| {
        let with = |more: u64, scoped: u64| {
            creates(&Attributes {
                handled_access_fs: FILES_AND_REFER | more,
                handled_access_net: 0,
                scoped,
            })
        };
        Features {
            files: with(0, 0),
            truncate: with(TRUNCATE, 0),
            ioctl: with(IOCTL_DEVICE, 0),
            scopes: with(0, SCOPES),
            unix: with(RESOLVE_UNIX, 0),
        }
    })
}

/// Whether the kernel makes such a ruleset. It is not put in force.
fn creates(attributes: &Attributes) -> bool {
    // SAFETY: the kernel reads one structure of the size given, which outlives the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(attributes),
            size_of::<Attributes>(),
            0,
        )
    };
    let Some(fd) = RawFd::try_from(ret).ok().filter(|fd| *fd >= 0) else {
        return false;
    };
    // SAFETY: on success the kernel returns a new descriptor that nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_about_something_unknown_is_refused_and_the_abi_has_the_parts_that_belong_to_it() {
        let unknown = Attributes {
            handled_access_fs: FILES_AND_REFER | 1 << 63,
            handled_access_net: 0,
            scoped: 0,
        };
        assert!(!creates(&unknown));
        let found = features();
        for (abi, part) in [
            (2, found.files),
            (3, found.truncate),
            (5, found.ioctl),
            (6, found.scopes),
            (9, found.unix),
        ] {
            // A kernel may claim more than it takes, and never takes more than it claims.
            assert!(!part || super::abi() >= abi, "{abi}: {found:?}");
        }
        assert_eq!(
            super::abi() == 0,
            !creates(&Attributes {
                handled_access_fs: 1,
                handled_access_net: 0,
                scoped: 0
            })
        );
    }
}
