//! Telling what was refused, without letting the agent flood the record with one and the same refusal.
use super::Call;
use super::ledger::Over;
use bastle_contract::{DenialKind, Denied, Event, LimitHit, LimitKind};
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Refusals told apart at a time; a hash and a count each.
const REMEMBERED: usize = 4096;
/// A repeated refusal is told again each time this many came together.
const EVERY: u64 = 1000;
/// Longest target in a report.
const TARGET: usize = 4096;

/// A refusal and why.
#[derive(Debug)]
pub(super) struct Denial {
    pub(super) kind: DenialKind,
    pub(super) rule: String,
    pub(super) target: Vec<u8>,
    pub(super) errno: Errno,
    pub(super) over: Option<Over>,
}

/// What was told before. Hashes are keyed at random, so that the agent cannot make two refusals collide.
#[derive(Debug, Default)]
pub(super) struct Told {
    counts: HashMap<u64, u64>,
    keys: RandomState,
    limits: Vec<LimitKind>,
}

impl Denial {
    pub(super) fn limit(over: Over, target: Vec<u8>) -> Self {
        let rule = format!("limits.{} = {}", over.limit, over.value);
        Self {
            kind: DenialKind::Limit,
            rule,
            target,
            errno: Errno::DQUOT,
            over: Some(over),
        }
    }
}

impl Told {
    /// Tells a refusal unless the same was told lately.
    pub(super) fn deny(&mut self, call: &Call<'_>, denial: Denial, tell: &mut dyn FnMut(Event)) {
        let Denial {
            kind,
            mut rule,
            target,
            errno,
            over,
        } = denial;
        let comm = call.caller.command();
        if let Some(Over { limit, value }) = over
            && !self.limits.contains(&limit)
        {
            self.limits.push(limit);
            let effect = "further writes to the workspace that need it are refused (EDQUOT)".to_owned();
            tell(Event::Limit(LimitHit { limit, value, effect }));
        }
        let count = self.count(self.keys.hash_one((kind, &target, &comm, &rule)));
        if count > 1 {
            if !count.is_multiple_of(EVERY) {
                return;
            }
            rule = format!("{rule} ({count} times)");
        }
        tell(Event::Denied(Denied {
            kind,
            operation: call.operation.to_owned(),
            target: lossy(&target),
            rule,
            errno: errno_name(errno),
            pid: call.caller.tid,
            comm,
        }));
    }

    fn count(&mut self, key: u64) -> u64 {
        if self.counts.len() >= REMEMBERED && !self.counts.contains_key(&key) {
            self.counts.clear();
        }
        let count = self.counts.entry(key).or_default();
        *count += 1;
        *count
    }
}

/// Bytes of the agent as text, cut where a report ends. Replacement marks may be longer than what they replace.
pub(super) fn lossy(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(TARGET)]).into_owned();
    text.truncate(text.floor_char_boundary(TARGET));
    text
}

fn errno_name(errno: Errno) -> String {
    match errno {
        Errno::ACCESS => "EACCES".to_owned(),
        Errno::PERM => "EPERM".to_owned(),
        Errno::ROFS => "EROFS".to_owned(),
        Errno::DQUOT => "EDQUOT".to_owned(),
        Errno::BUSY => "EBUSY".to_owned(),
        other => format!("errno {}", other.raw_os_error()),
    }
}
