//! The test hook of the spawner's layers; see the same file in init. The shipped binary enforces by constant.
use bastle_contract::LandlockParts;

/// Whether the named layer is set up.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) const fn enforces(_layer: &str) -> bool {
    true
}

/// Whether the named layer is set up: not, when the environment of a test build says so.
#[cfg(feature = "test-hooks")]
pub(crate) fn enforces(layer: &str) -> bool {
    std::env::var("BASTLE_TEST_WITHOUT").map_or(true, |without| without != layer)
}

/// Whether making the log durable is reported to have worked.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) fn disk(_synced: u32) -> std::io::Result<()> {
    Ok(())
}

/// Fails from the named sync on, as a disk that went away does.
#[cfg(feature = "test-hooks")]
pub(crate) fn disk(synced: u32) -> std::io::Result<()> {
    let fails = std::env::var("BASTLE_TEST_SYNC_FAILS")
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    match fails {
        Some(from) if synced >= from => Err(std::io::Error::from_raw_os_error(5)),
        Some(_) | None => Ok(()),
    }
}

/// The parts of Landlock that count as there.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) const fn landlock(found: LandlockParts) -> LandlockParts {
    found
}

/// Without what the environment of a test build takes away: `BASTLE_TEST_LANDLOCK` names the ABI up to which there is any,
/// or the parts that are there, `fs,scopes`.
#[cfg(feature = "test-hooks")]
pub(crate) fn landlock(found: LandlockParts) -> LandlockParts {
    std::env::var("BASTLE_TEST_LANDLOCK").map_or(found, |word| found.and(LandlockParts::named(&word)))
}
