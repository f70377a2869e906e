//! Names that the host replaced: the run stands still until they are covered again, or it ends.
use super::Relay;
use bastle_audit::AuditEvent;
use bastle_contract::grants::{Cover, MAX_COVERS};
use bastle_contract::{Code, ExitCode, Fault, MAX_FRAME, ToSpawner};
use serde_json::json;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of paths in one order, with room for what is around them.
const MOST_BYTES: usize = MAX_FRAME / 2;

/// Covers that are on their way.
#[derive(Default)]
pub(crate) struct Covering {
    /// Names in orders that the spawner has not answered, oldest first, and since when.
    open: VecDeque<(Vec<String>, Instant)>,
}

impl Relay<'_> {
    /// The host changed names in the project.
    pub(super) fn names_changed(&mut self) -> Result<(), Fault> {
        let Some(watch) = &mut self.names else {
            return Ok(());
        };
        let covers = match watch.take() {
            Ok(covers) => covers,
            Err(fault) => {
                self.uncovered(&fault);
                return Ok(());
            }
        };
        if covers.is_empty() || self.ended || !self.init_open {
            return Ok(());
        }
        // First of all: nothing runs while a name is open.
        self.standing.covering = true;
        self.stand()?;
        let now = Instant::now();
        for covers in orders(covers) {
            let names = covers.iter().map(|cover| cover.at.to_string()).collect();
            self.covering.open.push_back((names, now));
            self.tell_spawner(&ToSpawner::Cover { covers });
        }
        Ok(())
    }

    /// The spawner has covered the names of one order.
    pub(super) fn covered(&mut self, count: u32) -> Result<(), Fault> {
        if let Some((names, since)) = self.covering.open.pop_front()
            && count > 0
        {
            let waited = since.elapsed().as_millis();
            self.voice
                .happened("covered", json!({ "paths": names, "count": count }));
            for name in names {
                self.record.durable(&AuditEvent::Note {
                    topic: "names".to_owned(),
                    text: format!("{name} was changed on the host; it was covered again within {waited} ms"),
                })?;
            }
        }
        if self.covering.open.is_empty() {
            self.standing.covering = false;
            self.stand()?;
        }
        Ok(())
    }

    /// A name stays open: the run does not.
    pub(super) fn uncovered(&mut self, fault: &Fault) {
        let what = "a name that must be covered was replaced on the host, and cannot be covered again";
        let fault = Fault::new(Code::FenceLost, what, fault.to_string())
            .help("bastle run --workspace copy -- CMD works on a copy, which nobody else changes");
        self.give_up(ExitCode::Failed as u8, fault);
    }
}

/// Parts that a frame can carry.
fn orders(covers: Vec<Cover>) -> Vec<Vec<Cover>> {
    let mut orders: Vec<Vec<Cover>> = Vec::new();
    let mut bytes = 0;
    for cover in covers {
        let length = cover.at.as_str().len() + 64;
        let fits = bytes + length <= MOST_BYTES;
        match orders.last_mut() {
            Some(last) if fits && last.len() < MAX_COVERS => {
                bytes += length;
                last.push(cover);
            }
            Some(_) | None => {
                bytes = length;
                orders.push(vec![cover]);
            }
        }
    }
    orders
}
