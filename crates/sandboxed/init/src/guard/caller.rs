//! The process that made a call: its memory, working directory, descriptors, and what `/proc` says of it.
//!
//! Trust: none of it. Everything is reached through a number that may be reused once the caller is gone, so whoever
//! acts on it asks first whether the call still waits ([`super::Call::confirm`]).
use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// The longest path the kernel takes, with its NUL.
const PATH_MAX: usize = 4096;
/// Most paths are short; a second read fetches the rest of a long one.
const FIRST_READ: usize = 256;
/// `PIDFD_THREAD`: a descriptor for one thread, whose table of files may be its own.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;
/// The largest file of `/proc/<tid>` that is read (`status`), with room.
const PROC_FILE: usize = 8192;

/// One caller, for the time of one call.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) tid: u32,
}

/// Where a relative path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The caller's working directory.
    Cwd,
    /// One of the caller's descriptors.
    Descriptor(RawFd),
}

impl Base {
    /// Reads a register: only its low half is a descriptor.
    pub(super) fn of(register: u64) -> Self {
        match register as u32 as RawFd {
            libc::AT_FDCWD => Self::Cwd,
            fd => Self::Descriptor(fd),
        }
    }
}

impl Caller {
    pub(super) fn new(tid: u32) -> Self {
        Self { tid }
    }

    /// Copies memory; fewer bytes than asked for when the rest is not there.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        if into.is_empty() {
            return Ok(0);
        }
        let copied = bastle_sys::guard::read_memory(self.tid, address, into);
        match copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(0) => Err(Errno::FAULT),
            other => other,
        }
    }

    /// Copies exactly as many bytes as asked for.
    pub(super) fn read_exact(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if self.read(address, into)? == into.len() {
            Ok(())
        } else {
            Err(Errno::FAULT)
        }
    }

    /// Copies a path.
    pub(super) fn path(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let (text, end) = self.text(address, PATH_MAX)?;
        match end {
            TextEnd::Nul => Ok(text),
            TextEnd::Fault => Err(Errno::FAULT),
            TextEnd::Limit => Err(Errno::NAMETOOLONG),
        }
    }

    /// Copies text up to its NUL or `most` bytes.
    pub(super) fn text(&self, address: u64, most: usize) -> Result<(Vec<u8>, TextEnd), Errno> {
        let mut text = vec![0; most.min(FIRST_READ)];
        let mut have = 0;
        loop {
            let wanted = text.len();
            let got = match self.read(address.wrapping_add(have as u64), &mut text[have..]) {
                Err(Errno::FAULT) if have > 0 => 0,
                other => other?,
            };
            if let Some(end) = text[have..have + got].iter().position(|byte| *byte == 0) {
                text.truncate(have + end);
                return Ok((text, TextEnd::Nul));
            }
            have += got;
            text.truncate(have);
            if have < wanted {
                return Ok((text, TextEnd::Fault));
            }
            if have >= most {
                return Ok((text, TextEnd::Limit));
            }
            text.resize(most, 0);
        }
    }

    /// Where a relative path of the caller starts.
    pub(super) fn directory(&self, base: Base) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match base {
            Base::Cwd => self.open("cwd", flags),
            Base::Descriptor(fd) if fd < 0 => Err(Errno::BADF),
            Base::Descriptor(fd) => self
                .open(&format!("fd/{fd}"), flags)
                .map_err(no_entry_is_bad_descriptor),
        }
    }

    /// A descriptor of our own that names what one of the caller's descriptors refers to.
    pub(super) fn pin(&self, fd: RawFd) -> Result<OwnedFd, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        self.open(&format!("fd/{fd}"), OFlags::PATH)
            .map_err(no_entry_is_bad_descriptor)
    }

    /// What one of the caller's descriptors refers to, without taking it.
    pub(super) fn descriptor_stat(&self, fd: RawFd) -> Result<Stat, Errno> {
        rustix::fs::stat(format!("/proc/{}/fd/{fd}", self.tid)).map_err(no_entry_is_bad_descriptor)
    }

    /// A duplicate of one of the caller's descriptors: it shares the offset and the flags.
    pub(super) fn duplicate(&self, fd: RawFd) -> Result<OwnedFd, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let pid = |raw: u32| i32::try_from(raw).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        let taken = |pidfd: OwnedFd| rustix::process::pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty());
        match rustix::process::pidfd_open(pid(self.tid)?, PidfdFlags::from_bits_retain(PIDFD_THREAD)) {
            Ok(pidfd) => taken(pidfd),
            // Kernels before 6.9 know descriptors for whole processes only.
            Err(Errno::INVAL) => {
                let process = self.process()?;
                let duplicate = taken(rustix::process::pidfd_open(pid(process)?, PidfdFlags::empty())?)?;
                // A thread can have a table of files of its own: then this number means another file there.
                let (here, there) = (rustix::fs::fstat(&duplicate)?, self.descriptor_stat(fd)?);
                let same = process == self.tid || (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
                if same { Ok(duplicate) } else { Err(Errno::BADF) }
            }
            Err(errno) => Err(errno),
        }
    }

    /// The caller's mask for permission bits.
    pub(super) fn umask(&self) -> Result<u32, Errno> {
        let status = self.read_file("status")?;
        field(&status, b"Umask:")
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .ok_or(Errno::IO)
    }

    /// The process the calling thread belongs to.
    pub(super) fn process(&self) -> Result<u32, Errno> {
        let status = self.read_file("status")?;
        field(&status, b"Tgid:")
            .and_then(|text| text.parse().ok())
            .ok_or(Errno::IO)
    }

    /// The device number of the caller's controlling terminal.
    pub(super) fn terminal(&self) -> Result<u64, Errno> {
        let stat = self.read_file("stat")?;
        // The command name is in parentheses and may contain anything; what follows the last one is numbers.
        let after = stat
            .iter()
            .rposition(|byte| *byte == b')')
            .map_or(&[][..], |at| &stat[at + 1..]);
        let number: i64 = std::str::from_utf8(after)
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(4))
            .and_then(|text| text.parse().ok())
            .ok_or(Errno::IO)?;
        if number == 0 {
            Err(Errno::NXIO)
        } else {
            Ok(u64::from(number as u32))
        }
    }

    /// The caller's command name, for reports only.
    pub(super) fn command(&self) -> String {
        let name = self.read_file("comm").unwrap_or_default();
        String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
    }

    fn open(&self, what: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(
            CWD,
            format!("/proc/{}/{what}", self.tid),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    fn read_file(&self, what: &str) -> Result<Vec<u8>, Errno> {
        let file = self.open(what, OFlags::RDONLY)?;
        let mut text = vec![0; PROC_FILE];
        let length = rustix::io::read(file.as_fd(), &mut text)?;
        text.truncate(length);
        Ok(text)
    }
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextEnd {
    /// By its NUL.
    Nul,
    /// At memory that is not there.
    Fault,
    /// At the most that was asked for.
    Limit,
}

fn no_entry_is_bad_descriptor(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::BADF } else { errno }
}

/// The first word after `name` at the start of a line. The command name is a line too, but its newlines are escaped.
fn field<'a>(status: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(line).ok().map(str::trim_ascii)
}
