//! Which Landlock the kernel has. Rules are made with the `landlock` crate.

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
