//! A person who ends bastle while files are copied leaves nothing behind.
//!
//! Until the run's own handler listens, a signal does what it always does. While a copy is made it is only noted, the
//! copy ends early and is removed, and then the signal takes its usual course.
use bastle_contract::{Code, Fault};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Notes signals.
pub(super) struct Interrupt {
    hit: Arc<AtomicUsize>,
    usual: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Fault> {
        let hit = Arc::new(AtomicUsize::new(0));
        let usual = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_conditional_default(signal, usual.clone())
                .and_then(|_| signal_hook::flag::register_usize(signal, hit.clone(), number))
                .map_err(|error| {
                    Fault::new(Code::FenceStep, "cannot listen to signals", error.to_string())
                })?;
        }
        Ok(Self { hit, usual })
    }

    /// Whether a signal came.
    pub(super) fn is_hit(&self) -> bool {
        self.hit.load(Ordering::Relaxed) != 0
    }

    /// The copy is made: signals end the process again.
    pub(super) fn rest(&self) {
        self.usual.store(true, Ordering::SeqCst);
    }

    /// Somebody else listens now.
    pub(super) fn hand_over(&self) {
        self.usual.store(false, Ordering::SeqCst);
    }

    /// Lets the noted signal take its course; comes back only when there was none.
    pub(super) fn obey(&self) {
        let signal = i32::try_from(self.hit.load(Ordering::SeqCst)).unwrap_or_default();
        if signal != 0 {
            // It does not come back but for a signal that has no effect, and then the run simply goes on to its end.
            drop(signal_hook::low_level::emulate_default_handler(signal));
        }
    }
}
