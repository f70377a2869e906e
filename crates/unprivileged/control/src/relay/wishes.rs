//! What signals to bastle mean to a run: pass on, suspend, resume, and in the end kill.
use super::Relay;
use crate::signals::Wish;
use crate::streams::RawTerminal;
use bastle_audit::AuditEvent;
use bastle_contract::{Code, Fault, Stdio, ToInit, ToSpawner};
use std::time::{Duration, Instant};

/// How long an agent that was told to end may take.
const GRACE: Duration = Duration::from_secs(10);
/// The signal of ^C.
const INTERRUPT: u8 = 2;

impl Relay<'_> {
    pub(super) fn obey(&mut self, wish: Wish) -> Result<(), Fault> {
        match wish {
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
                self.tell_init(&ToInit::Signal { signal });
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
        }
    }

    /// Freezes the tree, then this process; what continues it thaws the tree.
    fn suspend(&mut self) -> Result<(), Fault> {
        if self.freezes() {
            self.tell_spawner(&ToSpawner::Freeze);
        } else {
            self.tell_init(&ToInit::Freeze)
        }
        self.record.durable(&AuditEvent::Paused)?;
        self.terminal = None;
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
            .map_err(|error| Fault::new(Code::FenceLost, "cannot suspend", error.to_string()))
    }

    fn resume(&mut self) -> Result<(), Fault> {
        if self.freezes() {
            self.tell_spawner(&ToSpawner::Thaw);
        } else {
            self.tell_init(&ToInit::Thaw)
        }
        self.record.durable(&AuditEvent::Resumed)?;
        if let Stdio::Pty { .. } = self.plan.stdio {
            self.terminal = RawTerminal::enter().ok();
        }
        Ok(())
    }

    /// Whether the run has a cgroup, which freezes better than signals do.
    fn freezes(&self) -> bool {
        !self.record.cgroups.is_empty()
    }
}
