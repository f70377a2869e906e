//! What signals to bastle mean to a run: pass on, suspend, resume, and in the end kill.
use super::Relay;
use crate::signals::Wish;
use crate::streams::RawTerminal;
use bastle_contract::{Code, Fault, Stdio, ToInit, ToSpawner};
use std::time::{Duration, Instant};

/// How long an agent that was told to end may take.
const GRACE: Duration = Duration::from_secs(10);
/// The signal of ^C.
const INTERRUPT: u8 = 2;
/// The signal of a terminal that is gone, and of a request to read the rules again.
const HANG_UP: u8 = 1;

impl Relay<'_> {
    pub(super) fn obey(&mut self, wish: Wish) -> Result<(), Fault> {
        match wish {
            // A terminal that is still there did not hang up: somebody wants the rules read again.
            Wish::PassOn(HANG_UP) if self.net.is_some() && !self.hung_up() => self.reload(),
            Wish::PassOn(signal) => {
                self.insisted += 1;
                // Asked three times to end: the agent had its chance.
                if self.insisted >= 3 {
                    self.kill();
                    return Ok(());
                }
                // An interrupt is the agent's to interpret; being told to end is not.
                if signal != INTERRUPT && self.patience.is_none() {
                    self.patience = Some(Instant::now() + GRACE);
                }
                self.signal_agent(signal);
                Ok(())
            }
            Wish::Resized => self.streams.resize().map_err(|error| {
                Fault::new(
                    Code::FenceLost,
                    "cannot pass the terminal's size on",
                    error.to_string(),
                )
            }),
            Wish::Suspend => self.suspend(),
            Wish::Resume => self.resume(),
            Wish::Stop => {
                self.stop(GRACE, "signal");
                self.stand()
            }
            Wish::Reload if self.net.is_some() => self.reload(),
            Wish::Reload | Wish::Nothing => Ok(()),
        }
    }

    /// Freezes the tree, then this process; what continues it thaws the tree.
    fn suspend(&mut self) -> Result<(), Fault> {
        self.standing.suspended = true;
        self.stand()?;
        self.terminal = None;
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
            .map_err(|error| Fault::new(Code::FenceLost, "cannot suspend", error.to_string()))
    }

    fn resume(&mut self) -> Result<(), Fault> {
        self.standing.suspended = false;
        self.stand()?;
        if let Stdio::Pty { .. } = self.plan.stdio {
            self.terminal = RawTerminal::enter().ok();
        }
        Ok(())
    }

    /// Freezes the whole tree.
    pub(super) fn freeze(&mut self) {
        if self.freezes() {
            self.tell_spawner(&ToSpawner::Freeze);
        } else {
            self.tell_init(&ToInit::Freeze);
        }
    }

    /// Lets it go on.
    pub(super) fn thaw(&mut self) {
        if self.freezes() {
            self.tell_spawner(&ToSpawner::Thaw);
        } else {
            self.tell_init(&ToInit::Thaw);
        }
    }

    /// Whether the terminal this process was started at is gone.
    fn hung_up(&self) -> bool {
        self.had_terminal && !has_terminal()
    }

    /// Whether the run has a cgroup, which freezes better than signals do.
    pub(super) fn freezes(&self) -> bool {
        !self.record.cgroups.is_empty()
    }
}

/// Whether this process has a terminal.
pub(super) fn has_terminal() -> bool {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, rustix::fs::Mode::empty()).is_ok()
}
