//! The test hook: a build with the `test-hooks` feature can leave one layer out, so that a test can see the
//! probes refuse the start. The shipped binary has no such path: there, every layer is enforced by constant.
use bastle_contract::LandlockParts;

/// Whether the named layer is set up.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) const fn enforces(_layer: &str) -> bool {
    true
}

/// Whether the named layer is set up for a further command.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) const fn enforces_beside(_layer: &str) -> bool {
    true
}

/// The same, for further commands alone.
#[cfg(feature = "test-hooks")]
pub(crate) fn enforces_beside(layer: &str) -> bool {
    std::env::var("BASTLE_TEST_WITHOUT").map_or(true, |without| without != format!("exec-{layer}"))
}

/// Whether the named layer is set up: not, when the environment of a test build says so.
#[cfg(feature = "test-hooks")]
pub(crate) fn enforces(layer: &str) -> bool {
    std::env::var("BASTLE_TEST_WITHOUT").map_or(true, |without| without != layer)
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

/// Fails by a panic at the named step.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) const fn panic_at(_step: &str) {}

/// Fails by a panic at the named step, when the environment of a test build says so.
#[cfg(feature = "test-hooks")]
pub(crate) fn panic_at(step: &str) {
    let wanted = std::env::var("BASTLE_TEST_PANIC").unwrap_or_default();
    assert_ne!(wanted, step, "the test wants a panic");
}
