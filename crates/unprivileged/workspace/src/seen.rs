//! What the kernel said of a file when its content was read, so that an unchanged file is not read again.
//!
//! **Trust:** a cache. Size, both times and the inode number must all be the same; the agent can set the
//! modification time of its files but not the change time. A damaged cache is no cache.
use crate::manifest::Content;
use rustix::fs::Stat;

const MAGIC: &[u8] = b"bastle stat 1\n";
const RECORD: usize = 33;
/// A file whose change time lies this close before the look at it may change again within the same tick of the
/// kernel's clock without showing it; the coarsest clock ticks every 10 ms.
const TICK_NS: i64 = 20_000_000;

/// The identity of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    size: u64,
    modified: i64,
    changed: i64,
    inode: u64,
    /// Read while the agent was alive. A page that it keeps mapped and dirty can be written without a new change
    /// time, so this identity is not believed once the agent has ended.
    live: bool,
}

/// Whether the agent is running while its files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alive {
    /// Its processes may write at any time.
    Yes,
    /// Nobody but bastle writes.
    No,
}

impl Seen {
    /// From `fstat` of the descriptor that is read; the looking began at `now` (nanoseconds since the epoch).
    /// `None` when the identity could hide a later change.
    #[must_use]
    pub fn of(stat: &Stat, now: i64, alive: Alive) -> Option<Self> {
        let seen = Self::exactly(stat, alive);
        (seen.changed < now.saturating_sub(TICK_NS)).then_some(seen)
    }

    /// The same without the rule about recent changes, for files that nobody writes yet.
    #[must_use]
    pub fn exactly(stat: &Stat, alive: Alive) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
            modified: nanoseconds(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: nanoseconds(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
            inode: stat.st_ino,
            live: alive == Alive::Yes,
        }
    }

    /// When its content was changed, in nanoseconds since the epoch.
    pub(crate) fn modified(&self) -> i64 {
        self.modified
    }

    /// Whether a file that looks like `stat` still holds what was read then.
    #[must_use]
    pub fn still(&self, stat: &Stat, alive: Alive) -> bool {
        let now = Self::exactly(stat, alive);
        let believed = !self.live || alive == Alive::Yes;
        believed
            && self.size == now.size
            && self.modified == now.modified
            && self.changed == now.changed
            && self.inode == now.inode
    }
}

/// Wraps for absurd times that a program may set: only equality counts, and the change time is the kernel's own.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// One [`Seen`] per entry of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenList {
    /// The manifest it belongs to.
    pub manifest: Content,
    /// In the order of the manifest's entries.
    pub seen: Vec<Option<Seen>>,
}

impl SeenList {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAGIC.len() + 64 + self.seen.len() * RECORD);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(self.manifest.as_bytes());
        for seen in &self.seen {
            let (flag, seen) = match seen {
                None => (0, [0, 0, 0, 0]),
                Some(s) => (
                    1 + u8::from(s.live),
                    [
                        s.size,
                        s.modified.cast_unsigned(),
                        s.changed.cast_unsigned(),
                        s.inode,
                    ],
                ),
            };
            out.push(flag);
            seen.iter()
                .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        let check = Content::of(&out);
        out.extend_from_slice(check.as_bytes());
        out
    }

    /// Reads stored bytes; `None` when they are not exactly what was written.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk::<32>()?;
        if Content::of(body).as_bytes() != check {
            return None;
        }
        let (manifest, records) = body.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
        let seen = records.chunks(RECORD).map(record).collect::<Option<Vec<_>>>()?;
        Some(Self {
            manifest: Content::from_bytes(*manifest),
            seen,
        })
    }
}

fn record(bytes: &[u8]) -> Option<Option<Seen>> {
    let (flag, numbers) = bytes.split_first()?;
    if numbers.len() != RECORD - 1 {
        return None;
    }
    let number = |at: usize| {
        let part = numbers.get(at * 8..at * 8 + 8)?;
        Some(u64::from_le_bytes(part.try_into().ok()?))
    };
    let seen = Seen {
        size: number(0)?,
        modified: number(1)?.cast_signed(),
        changed: number(2)?.cast_signed(),
        inode: number(3)?,
        live: *flag == 2,
    };
    match flag {
        0 if numbers.iter().all(|b| *b == 0) => Some(None),
        1 | 2 => Some(Some(seen)),
        _ => None,
    }
}

/// The kernel's clock that stamps files, in nanoseconds since the epoch.
#[must_use]
pub fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    nanoseconds(time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(size: u64, alive: Alive) -> Seen {
        Seen {
            size,
            modified: -5,
            changed: i64::MAX,
            inode: u64::MAX,
            live: alive == Alive::Yes,
        }
    }

    fn list() -> SeenList {
        SeenList {
            manifest: Content::of(b"m"),
            seen: vec![None, Some(seen(1, Alive::No)), Some(seen(u64::MAX, Alive::Yes))],
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        assert_eq!(SeenList::decode(&list().encode()), Some(list()));
    }

    #[test]
    fn a_list_with_any_flipped_bit_or_cut_off_is_no_list() {
        let bytes = list().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(SeenList::decode(&flipped), None);
            }
            assert_eq!(SeenList::decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_file_that_changed_a_moment_before_the_look_is_not_remembered() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let changed = nanoseconds(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap());
        assert_eq!(Seen::of(&stat, changed + 1, Alive::No), None);
        assert!(Seen::of(&stat, changed + 2 * TICK_NS, Alive::No).is_some());
    }

    #[test]
    fn what_was_seen_while_the_agent_lived_is_not_believed_after_its_end() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let lively = Seen::exactly(&stat, Alive::Yes);
        assert!(lively.still(&stat, Alive::Yes));
        assert!(!lively.still(&stat, Alive::No));
        assert!(Seen::exactly(&stat, Alive::No).still(&stat, Alive::Yes));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut checked = bytes.clone();
            checked.extend_from_slice(Content::of(&bytes).as_bytes());
            for input in [bytes, checked] {
                if let Some(list) = SeenList::decode(&input) {
                    prop_assert_eq!(list.encode(), input);
                }
            }
        }
    }
}
