//! Connections to servers inside: init connects, and the connection's bytes go over the peer's stream.
use super::Relay;
use super::channel::What;
use super::exec::{MOST_CONNECTIONS, busy};
use crate::live::Live;
use bastle_audit::AuditEvent;
use bastle_contract::{Fault, ToInit};
use rustix::event::{PollFd, Timespec};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::time::Duration;

impl Relay<'_> {
    /// Asks init for a connection to a port inside. The first to each port is recorded.
    pub(super) fn dial(&mut self, peer: u64, port: u16) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        if let Some(fault) = self.not_now() {
            return Ok(Some(Err(vec![fault])));
        }
        if self.beside.connections() >= MOST_CONNECTIONS {
            let why = format!("{MOST_CONNECTIONS} connections into this run are open");
            return Ok(Some(Err(vec![busy(&why, "close some of them")])));
        }
        if self.beside.is_first(port) {
            self.record.durable(&AuditEvent::Note {
                topic: "port".to_owned(),
                text: format!("port {port} inside is forwarded (by socket)"),
            })?;
            self.voice.happened(
                "note",
                json!({ "text": format!("port {port} inside is forwarded") }),
            );
        }
        self.beside.add(peer, What::Connection(port));
        let id = self.beside.last_id();
        self.tell_init(&ToInit::Dial { id, port });
        Ok(None)
    }

    pub(super) fn dialed(&mut self, id: u32, connection: Option<OwnedFd>) -> Result<(), Fault> {
        let (Some(channel), Some(live)) = (self.beside.find(id), &mut self.live) else {
            return Ok(());
        };
        let (Some(peer), Some(connection)) = (channel.peer, connection) else {
            self.beside.forget(id);
            return Ok(());
        };
        channel.attach(connection)?;
        channel.begun = live.begin(peer, &json!({ "dialed": id }));
        if !channel.begun {
            self.beside.forget(id);
        }
        Ok(())
    }

    /// It could not be made, or is over with the run.
    pub(super) fn not_dialed(&mut self, id: u32, fault: Fault) {
        if let Some(channel) = self.beside.find(id)
            && channel.begun
        {
            channel.over = Some(json!({ "code": 0 }));
            return;
        }
        let Some(channel) = self.beside.forget(id) else {
            return;
        };
        if let (Some(peer), Some(live)) = (channel.peer, &mut self.live) {
            live.answer(peer, &Err(vec![fault]));
        }
    }
}

/// Waits until a peer reads or speaks, at most so long.
pub(super) fn wait_for_peers(live: &Live, most: Duration) {
    let mut waiting: Vec<PollFd<'_>> = live
        .waiting()
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
        .collect();
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // Whatever it says: the caller looks again, and has its own clock.
    match rustix::event::poll(&mut waiting, Some(&most)) {
        Ok(_) | Err(_) => {}
    }
}
