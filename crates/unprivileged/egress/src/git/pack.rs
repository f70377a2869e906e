//! Whether a push only adds to history: proved from the commits in its own pack, as far as they go.
//!
//! **Trust:** reads the agent's bytes. The id of a commit is the hash of its content, so a chain of parents from the
//! new id to the old one cannot be forged: where it is found, the update is a fast-forward. Where every chain ends in
//! a first commit without meeting the old id, it is none. Otherwise nothing is known, because commits that the server
//! already has are not sent; the commands alone never tell.
use aws_lc_rs::digest;
use flate2::{Decompress, FlushDecompress, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How much of a pack is looked at. Commits come first in it, and take about 300 bytes each.
pub(crate) const MAX_PACK: usize = 8 * 1024 * 1024;
/// Most commits kept.
const MAX_COMMITS: usize = 2_000;
/// Most objects looked at.
const MAX_OBJECTS: u32 = 20_000;
/// Largest commit or delta kept; messages of more than this are not written by hand.
const MAX_KEPT: usize = 256 * 1024;
/// Most bytes inflated in all: four times the pack, which bounds the work of a bomb.
const MAX_INFLATED: usize = 4 * MAX_PACK;
/// Most bytes of commits kept at once.
const MAX_HELD: usize = MAX_PACK;

/// The parents of every commit that could be read.
#[derive(Debug, Default)]
pub(crate) struct History(BTreeMap<String, Vec<String>>);

impl History {
    /// Reads the first bytes of a pack. `id_len`, the length of an id in digits, tells which hash is used.
    pub(crate) fn read(pack: &[u8], id_len: usize) -> Self {
        let mut reader = Reader {
            pack,
            at: 12,
            inflated: 0,
            held: 0,
            commits: BTreeMap::new(),
            by_id: BTreeMap::new(),
            id_len,
        };
        let count = match (pack.get(..8), pack.get(8..12)) {
            (Some(b"PACK\0\0\0\x02" | b"PACK\0\0\0\x03"), Some(count)) => {
                count.iter().fold(0u32, |n, byte| n << 8 | u32::from(*byte))
            }
            _ => 0,
        };
        for _ in 0..count.min(MAX_OBJECTS) {
            if reader.commits.len() >= MAX_COMMITS || reader.object().is_none() {
                break;
            }
        }
        let Reader { commits, by_id, .. } = reader;
        let parents = |(id, offset)| Some((id, parents_of(commits.get(&offset)?, id_len)));
        Self(by_id.into_iter().filter_map(parents).collect())
    }

    /// The parents of a commit that was read.
    pub(super) fn parents(&self, id: &str) -> Option<&[String]> {
        self.0.get(id).map(Vec::as_slice)
    }

    /// Every commit that was read, with its parents.
    pub(super) fn into_commits(self) -> impl Iterator<Item = (String, Vec<String>)> {
        self.0.into_iter()
    }

    /// Commits as a test wants them.
    #[cfg(test)]
    pub(super) fn of(commits: BTreeMap<String, Vec<String>>) -> Self {
        Self(commits)
    }

    /// How `new` relates to `old`, as far as the commits that were read tell.
    pub(super) fn relation(&self, old: &str, new: &str) -> Relation {
        Relation::of(old, new, |id| self.parents(id))
    }
}

/// How two ids of a reference relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The new one descends from the old one.
    FastForward,
    /// It does not: its whole history was read, and the old one is not in it.
    Rewrite,
    /// What was sent does not tell.
    Unknown,
}

impl Relation {
    /// How `new` relates to `old`, as far as `parents` knows commits.
    pub(super) fn of<'a>(old: &str, new: &'a str, parents: impl Fn(&str) -> Option<&'a [String]>) -> Self {
        let mut seen = BTreeSet::new();
        let mut next = VecDeque::from([new]);
        let mut relation = Self::Rewrite;
        while let Some(id) = next.pop_front() {
            if id == old {
                return Self::FastForward;
            }
            if seen.insert(id) {
                match parents(id) {
                    Some(parents) => next.extend(parents.iter().map(String::as_str)),
                    // Its own parents are on the server, and the old id may be among them.
                    None => relation = Self::Unknown,
                }
            }
        }
        relation
    }
}

/// Whether the content of an object is of use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    Nothing,
}

struct Reader<'a> {
    pack: &'a [u8],
    at: usize,
    inflated: usize,
    held: usize,
    /// Content by offset, where deltas look for it.
    commits: BTreeMap<usize, Vec<u8>>,
    by_id: BTreeMap<String, usize>,
    id_len: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.pack.get(self.at).copied();
        self.at += 1;
        byte
    }

    /// Reads one object; `None` ends the reading: the pack is malformed, cut off, or beyond a limit.
    fn object(&mut self) -> Option<()> {
        let start = self.at;
        let first = self.byte()?;
        let kind = first >> 4 & 7;
        let mut size = u64::from(first & 15);
        let (mut more, mut shift) = (first & 0x80 != 0, 4);
        while more {
            let byte = self.byte()?;
            size |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            more = byte & 0x80 != 0;
        }
        let base = match kind {
            1..=4 => None,
            6 => Some(start.checked_sub(self.back_offset()?)?),
            7 => self.named_base()?,
            _ => return None,
        };
        let wanted = kind == 1 || base.is_some_and(|offset| self.commits.contains_key(&offset));
        let content = self.inflate(size, if wanted { Keep::All } else { Keep::Nothing })?;
        let content = match (wanted, base.and_then(|offset| self.commits.get(&offset))) {
            (false, _) => return Some(()),
            (true, None) => content,
            (true, Some(base)) => apply(base, &content)?,
        };
        self.held += content.len();
        if self.held > MAX_HELD {
            return None;
        }
        self.by_id.insert(commit_id(&content, self.id_len), start);
        self.commits.insert(start, content);
        Some(())
    }

    fn back_offset(&mut self) -> Option<usize> {
        let mut byte = self.byte()?;
        let mut offset = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            offset = offset.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
        }
        Some(offset)
    }

    fn named_base(&mut self) -> Option<Option<usize>> {
        let length = self.id_len / 2;
        let id = self.pack.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(self.by_id.get(&hex(id)).copied())
    }

    /// Inflates one object to find its end, and keeps the content where it is wanted.
    fn inflate(&mut self, size: u64, keep: Keep) -> Option<Vec<u8>> {
        if keep == Keep::All && size > MAX_KEPT as u64 {
            return None;
        }
        let mut inflater = Decompress::new(true);
        let mut kept = Vec::new();
        let mut buffer = [0u8; 4096];
        loop {
            let (before_in, before_out) = (inflater.total_in(), inflater.total_out());
            let input = self.pack.get(self.at..)?;
            let status = inflater
                .decompress(input, &mut buffer, FlushDecompress::None)
                .ok()?;
            self.at += usize::try_from(inflater.total_in() - before_in).ok()?;
            let out = usize::try_from(inflater.total_out() - before_out).ok()?;
            self.inflated += out;
            if self.inflated > MAX_INFLATED || inflater.total_out() > size {
                return None;
            }
            if keep == Keep::All {
                kept.extend_from_slice(buffer.get(..out)?);
            }
            match status {
                Status::StreamEnd if inflater.total_out() == size => return Some(kept),
                Status::StreamEnd => return None,
                // No progress: the pack is cut off here.
                Status::Ok | Status::BufError if out == 0 && inflater.total_in() == before_in => return None,
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

/// Applies a delta to its base.
fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = delta.iter().copied();
    let source = number(&mut bytes)?;
    let target = number(&mut bytes)?;
    if source != base.len() || target > MAX_KEPT {
        return None;
    }
    let mut out = Vec::new();
    while let Some(op) = bytes.next() {
        if op & 0x80 == 0 {
            let before = out.len();
            out.extend(bytes.by_ref().take(usize::from(op)));
            // An operation of 0 is reserved, and a short insertion is a cut-off delta.
            if op == 0 || out.len() - before != usize::from(op) {
                return None;
            }
        } else {
            let mut field = |mask: u8, shift: u32| -> Option<usize> {
                if op & mask == 0 {
                    return Some(0);
                }
                Some(usize::from(bytes.next()?) << shift)
            };
            let offset = field(1, 0)? | field(2, 8)? | field(4, 16)? | field(8, 24)?;
            let size = field(16, 0)? | field(32, 8)? | field(64, 16)?;
            let size = if size == 0 { 0x1_0000 } else { size };
            out.extend_from_slice(base.get(offset..offset.checked_add(size)?)?);
        }
        if out.len() > target {
            return None;
        }
    }
    (out.len() == target).then_some(out)
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let (mut value, mut shift) = (0usize, 0u32);
    loop {
        let byte = bytes.next()?;
        value |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        if shift > 35 {
            return None;
        }
    }
}

fn commit_id(content: &[u8], id_len: usize) -> String {
    let algorithm = if id_len == 64 {
        &digest::SHA256
    } else {
        &digest::SHA1_FOR_LEGACY_USE_ONLY
    };
    let mut context = digest::Context::new(algorithm);
    context.update(format!("commit {}\0", content.len()).as_bytes());
    context.update(content);
    hex(context.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `parent` lines directly after the `tree` line; a message that contains such lines does not count.
fn parents_of(commit: &[u8], id_len: usize) -> Vec<String> {
    let mut lines = commit.split(|byte| *byte == b'\n');
    if !lines.next().is_some_and(|line| line.starts_with(b"tree ")) {
        return Vec::new();
    }
    lines
        .map_while(|line| line.strip_prefix(b"parent "))
        .filter_map(|id| std::str::from_utf8(id).ok())
        .filter(|id| id.len() == id_len)
        .map(str::to_owned)
        .collect()
}

/// Entry for fuzzing.
pub(crate) fn fuzz_pack(bytes: &[u8]) {
    for digits in [40, 64] {
        let (old, new) = ("1".repeat(digits), "2".repeat(digits));
        // Nothing hashes to these.
        assert_eq!(
            History::read(bytes, digits).relation(&old, &new),
            Relation::Unknown
        );
    }
}
