//! Points at which a test ends the process as a power cut would. Nothing in a shipped binary.

/// Ends the process here when a test named this point.
#[cfg(any(test, feature = "test-hooks"))]
pub(super) fn point(name: &str) {
    if std::env::var("BASTLE_TEST_DIE_AT").is_ok_and(|wanted| wanted == name) {
        let own = rustix::process::getpid();
        super::words::either_way(rustix::process::kill_process(own, rustix::process::Signal::KILL));
    }
}

/// Nothing.
#[cfg(not(any(test, feature = "test-hooks")))]
pub(super) fn point(_name: &str) {}
