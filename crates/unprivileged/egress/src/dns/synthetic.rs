//! Which name stands behind which synthetic address.
//!
//! **Trust:** names come from the agent, so the map is bounded. An address is not given to another name while the old
//! one may still use it: a connection never reaches a host other than the one that was looked up.
use crate::limits::{MAX_SYNTHETIC, SYNTHETIC_HOLD};
use bastle_contract::egress::{SYNTHETIC_NET, SYNTHETIC_PREFIX};
use bastle_policy::Host;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The map, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Synthetic {
    map: Mutex<Map>,
}

#[derive(Debug, Default)]
struct Map {
    by_name: HashMap<Host, u32>,
    by_offset: HashMap<u32, Entry>,
    next: u32,
}

#[derive(Debug)]
struct Entry {
    host: Host,
    used: Instant,
}

/// How many addresses are looked at for a free one: a full map answers quickly that it is full.
const MAX_LOOKS: u32 = 256;

impl Synthetic {
    /// Empty.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The address of a name, a new one if it has none; `None` while every address is in use.
    pub(crate) fn address(&self, host: &Host, now: Instant) -> Option<Ipv4Addr> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&offset) = map.by_name.get(host) {
            map.touch(offset, now);
            return Some(address_at(offset));
        }
        for _ in 0..MAX_LOOKS {
            // 0 is the network itself, 1 the sandbox's own address.
            let offset = map.next % MAX_SYNTHETIC as u32 + 2;
            map.next = map.next.wrapping_add(1) % MAX_SYNTHETIC as u32;
            if map.release(offset, now) {
                map.by_name.insert(host.clone(), offset);
                map.by_offset.insert(
                    offset,
                    Entry {
                        host: host.clone(),
                        used: now,
                    },
                );
                return Some(address_at(offset));
            }
        }
        None
    }

    /// The name behind an address.
    pub(crate) fn name(&self, address: Ipv4Addr, now: Instant) -> Option<Host> {
        let offset = offset_of(address)?;
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.touch(offset, now);
        map.by_offset.get(&offset).map(|entry| entry.host.clone())
    }
}

impl Map {
    fn touch(&mut self, offset: u32, now: Instant) {
        if let Some(entry) = self.by_offset.get_mut(&offset) {
            entry.used = now;
        }
    }

    /// Whether `offset` is free now.
    fn release(&mut self, offset: u32, now: Instant) -> bool {
        match self.by_offset.get(&offset) {
            None => true,
            Some(entry) if now.duration_since(entry.used) < SYNTHETIC_HOLD => false,
            Some(_) => {
                if let Some(entry) = self.by_offset.remove(&offset) {
                    self.by_name.remove(&entry.host);
                }
                true
            }
        }
    }
}

/// Whether an address is in the synthetic range.
pub(crate) fn is_synthetic(address: Ipv4Addr) -> bool {
    offset_of(address).is_some()
}

fn address_at(offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(SYNTHETIC_NET)) + offset)
}

fn offset_of(address: Ipv4Addr) -> Option<u32> {
    let offset = u32::from(address).checked_sub(u32::from(Ipv4Addr::from(SYNTHETIC_NET)))?;
    (offset < 1 << (32 - SYNTHETIC_PREFIX)).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn host(n: usize) -> Host {
        Host::new(&format!("h{n}.example")).unwrap()
    }

    #[test]
    fn an_address_never_changes_hands_while_its_name_may_be_in_use() {
        let names = Synthetic::new();
        let start = Instant::now();
        let first = names.address(&host(0), start).unwrap();
        for n in 1..MAX_SYNTHETIC {
            assert!(names.address(&host(n), start).is_some());
        }
        assert_eq!(names.address(&host(MAX_SYNTHETIC), start), None, "full");
        let later = start + SYNTHETIC_HOLD - Duration::from_secs(1);
        assert_eq!(names.name(first, later), Some(host(0)));
        let after = start + SYNTHETIC_HOLD + Duration::from_secs(1);
        let reused = names.address(&host(MAX_SYNTHETIC + 1), after).unwrap();
        assert_ne!(reused, first, "it was used a moment ago");
        assert_eq!(names.name(first, after), Some(host(0)));
        assert!(names.map.lock().unwrap().by_offset.len() <= MAX_SYNTHETIC);
        assert!(names.map.lock().unwrap().by_name.len() <= MAX_SYNTHETIC);
    }

    #[test]
    fn an_address_outside_the_range_or_never_given_has_no_name() {
        let names = Synthetic::new();
        let now = Instant::now();
        let given = names.address(&host(1), now).unwrap();
        assert_eq!(names.address(&host(1), now), Some(given));
        for other in [
            "198.17.255.255",
            "198.20.0.0",
            "127.0.0.1",
            "198.18.0.0",
            "198.19.255.255",
        ] {
            assert_eq!(names.name(other.parse().unwrap(), now), None, "{other}");
        }
        assert!(is_synthetic(given) && !is_synthetic(Ipv4Addr::LOCALHOST));
    }
}
