//! A write as the caller asked for it, and the copying of its bytes.
use super::Call;
use super::caller::Caller;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// Most parts of a scattered write, as the kernel has it.
const MAX_PARTS: u64 = 1024;
const RWF_APPEND: u32 = 0x10;
const RWF_NOAPPEND: u32 = 0x20;

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At the descriptor's offset, which moves.
    Offset,
    /// There.
    At(u64),
}

/// Bytes in the caller's memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    address: u64,
    length: u64,
}

/// A write as it was asked for.
#[derive(Debug)]
pub(super) struct Request {
    parts: Vec<Part>,
    pub(super) position: Position,
    flags: u32,
}

impl Request {
    /// Whether bytes go to the end of a file, given whether its descriptor says so.
    pub(super) fn appends(&self, status: OFlags) -> bool {
        self.flags & RWF_APPEND != 0 || (status.contains(OFlags::APPEND) && self.flags & RWF_NOAPPEND == 0)
    }

    pub(super) fn read(call: &Call<'_>) -> Result<Self, Errno> {
        let a = call.args;
        let one = || {
            vec![Part {
                address: a[1],
                length: a[2],
            }]
        };
        let at = |offset: u64| {
            if i64::try_from(offset).is_ok() {
                Ok(Position::At(offset))
            } else {
                Err(Errno::INVAL)
            }
        };
        let (parts, position, flags) = match call.operation {
            "write" => (one(), Position::Offset, 0),
            "pwrite64" => (one(), at(a[3])?, 0),
            "writev" => (parts(&call.caller, a[1], a[2])?, Position::Offset, 0),
            "pwritev" => (parts(&call.caller, a[1], a[2])?, at(a[3])?, 0),
            "pwritev2" if a[3] == u64::MAX => {
                (parts(&call.caller, a[1], a[2])?, Position::Offset, a[5] as u32)
            }
            "pwritev2" => (parts(&call.caller, a[1], a[2])?, at(a[3])?, a[5] as u32),
            _ => return Err(Errno::NOSYS),
        };
        if parts.iter().any(|part| i64::try_from(part.length).is_err()) {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            parts,
            position,
            flags,
        })
    }

    pub(super) fn write(&self, fd: BorrowedFd<'_>, done: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = ReadWriteFlags::from_bits_retain(self.flags);
        match self.position {
            Position::Offset if self.flags == 0 => rustix::io::write(fd, bytes),
            Position::At(offset) if self.flags == 0 => {
                rustix::io::pwrite(fd, bytes, offset.saturating_add(done))
            }
            Position::Offset => rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], u64::MAX, flags),
            Position::At(offset) => {
                rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], offset.saturating_add(done), flags)
            }
        }
    }
}

/// Copies the list of a scattered write.
fn parts(caller: &Caller, address: u64, count: u64) -> Result<Vec<Part>, Errno> {
    if count > MAX_PARTS {
        return Err(Errno::INVAL);
    }
    let mut raw = vec![0_u8; usize::try_from(count).map_err(|_| Errno::INVAL)? * 16];
    caller.read_exact(address, &mut raw)?;
    let words: Vec<u64> = raw
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    Ok(words
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[address, length]| Part {
            address: *address,
            length: *length,
        })
        .collect())
}

/// How far a write has come in the caller's memory.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: std::slice::Iter<'a, Part>,
    now: Part,
    /// No more bytes are wanted.
    pub(super) short: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        Self {
            rest: request.parts.iter(),
            now: Part {
                address: 0,
                length: 0,
            },
            short: false,
        }
    }

    /// Copies the next bytes. Unreadable memory ends the copy; it is an error when nothing came before it.
    pub(super) fn fill(&mut self, caller: &Caller, into: &mut [u8]) -> Result<usize, Errno> {
        let mut have = 0;
        while have < into.len() {
            if self.now.length == 0 {
                match self.rest.next() {
                    Some(part) => self.now = *part,
                    None => break,
                }
                continue;
            }
            let wanted = usize::try_from(self.now.length)
                .unwrap_or(usize::MAX)
                .min(into.len() - have);
            let got = match caller.read(self.now.address, &mut into[have..have + wanted]) {
                Err(Errno::FAULT) if have > 0 => 0,
                other => other?,
            };
            have += got;
            self.now.address = self.now.address.saturating_add(got as u64);
            self.now.length -= got as u64;
            if got < wanted {
                self.now.length = 0;
                self.rest = [].iter();
                break;
            }
        }
        Ok(have)
    }
}
