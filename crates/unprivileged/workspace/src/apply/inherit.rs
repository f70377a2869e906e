//! What a new object gets from the directory it will be in: group, default ACL, security label.
//!
//! **Trust:** read from the host's own directories. Objects are made in a staging area and moved, so that what the
//! kernel passes on when an object is made in place has to be passed on by hand.
use super::settle::SettleError;
use crate::rooted::Root;
use rustix::fs::{Gid, Mode, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Largest value that is passed on; the kernel's own bound is 64 KiB.
const MAX_VALUE: usize = 64 << 10;
const DEFAULT_ACL: &str = "system.posix_acl_default";
const ACCESS_ACL: &str = "system.posix_acl_access";
const LABEL: &str = "security.selinux";
const SET_GROUP: u32 = 0o2000;

/// What a directory passes on to what is made in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inherited {
    /// The group, where the directory has the set-group-ID bit.
    group: Option<u32>,
    acl: Option<Vec<u8>>,
    label: Option<Vec<u8>>,
}

impl Inherited {
    pub(super) fn of(directory: impl AsFd) -> Result<Self, SettleError> {
        let stat = rustix::fs::fstat(&directory)?;
        Ok(Self {
            group: (stat.st_mode & SET_GROUP != 0).then_some(stat.st_gid),
            acl: value(&directory, DEFAULT_ACL)?,
            label: value(&directory, LABEL)?,
        })
    }

    /// The group of what is made in it, where it is not its maker's.
    pub(super) fn group(&self) -> Option<u32> {
        self.group
    }

    /// Makes a staging directory pass on the same. Its own bits stay the owner's alone.
    pub(super) fn pass_on(&self, staging: &Root) -> Result<(), SettleError> {
        let directory = staging.handle();
        if let Some(acl) = &self.acl {
            rustix::fs::fsetxattr(directory, DEFAULT_ACL, acl, XattrFlags::empty())?;
        }
        if let Some(label) = &self.label {
            match rustix::fs::fsetxattr(directory, LABEL, label, XattrFlags::empty()) {
                // A security policy that forbids it has decided.
                Ok(()) | Err(_) => {}
            }
        }
        let Some(group) = self.group else { return Ok(()) };
        match rustix::fs::fchown(directory, None, Some(Gid::from_raw(group))) {
            Ok(()) => {}
            // The kernel would give the group all the same; a user who is not in it cannot.
            Err(Errno::PERM) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        Ok(rustix::fs::fchmod(
            directory,
            Mode::from_raw_mode(0o700 | SET_GROUP),
        )?)
    }
}

/// Gives a new file the access ACL and the label of the file whose place it takes.
pub(super) fn take_from_old(old: &File, new: &File) -> Result<(), SettleError> {
    for name in [ACCESS_ACL, LABEL] {
        let Some(set) = value(old, name)? else { continue };
        match rustix::fs::fsetxattr(new, name, &set, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) if name == LABEL => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn value(file: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    // Most have none: asking for the size first costs one call where a buffer would have to be cleared.
    let mut none = [0_u8; 0];
    let size = match rustix::fs::fgetxattr(&file, name, &mut none[..]) {
        Ok(size) => size.min(MAX_VALUE),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::INVAL | Errno::PERM | Errno::ACCESS) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut value = vec![0_u8; size];
    let size = rustix::fs::fgetxattr(&file, name, &mut value[..])?;
    value.truncate(size);
    Ok(Some(value))
}
