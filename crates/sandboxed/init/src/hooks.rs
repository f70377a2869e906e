//! The test hook: a build with the `test-hooks` feature can leave one layer out, so that a test can see the
//! probes refuse the start. The shipped binary has no such path: there, every layer is enforced by constant.

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
