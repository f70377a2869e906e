//! The descriptors of a launch, told apart and checked: by the spawner, which admits, and by its child, which carries out.
//! Documents between processes travel in sealed memory; here is the one way to make and to check it.
use crate::{LaunchPlan, MAX_PLAN, Stdio};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::de::DeserializeOwned;
use std::os::fd::{AsFd, OwnedFd};

/// What came with a launch frame.
#[derive(Debug)]
pub struct LaunchParts {
    /// The plan; not yet checked beyond its types.
    pub plan: LaunchPlan,
    /// Socket to control.
    pub events: OwnedFd,
    /// Files too large for the plan.
    pub attachments: Option<OwnedFd>,
    /// Standard streams, when the plan says pipes.
    pub stdio: Vec<OwnedFd>,
}

impl LaunchParts {
    /// Reads the plan behind the first descriptor and sorts the others by what it says.
    pub fn read(descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let mut descriptors = descriptors.into_iter();
        let (Some(document), Some(events)) = (descriptors.next(), descriptors.next()) else {
            return Err("the launch frame lacks its descriptors".to_owned());
        };
        let plan: LaunchPlan = read_sealed(&document, MAX_PLAN, "the plan")?;
        let attachments = match &plan.attachments {
            Some(_) => {
                let attachments = descriptors.next().ok_or("the attachments are missing")?;
                check_sealed(&attachments, "the attachments")?;
                Some(attachments)
            }
            None => None,
        };
        let stdio: Vec<OwnedFd> = descriptors.collect();
        let expected = match plan.stdio {
            Stdio::Pipes => 3,
            Stdio::Pty { .. } => 0,
        };
        if stdio.len() != expected {
            return Err(format!("{} standard streams, {expected} expected", stdio.len()));
        }
        Ok(Self {
            plan,
            events,
            attachments,
            stdio,
        })
    }
}

/// Reads a document that nobody can change any more. Several may read one descriptor: its position is not used.
pub fn read_sealed<T: DeserializeOwned>(document: &OwnedFd, most: usize, what: &str) -> Result<T, String> {
    check_sealed(document, what)?;
    let cannot = |error: rustix::io::Errno| format!("{what} cannot be read: {error}");
    let size = rustix::fs::fstat(document).map_err(cannot)?.st_size;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > most {
        return Err(format!("{what} is larger than {most} bytes"));
    }
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        match rustix::io::pread(document, &mut bytes[done..], done as u64).map_err(cannot)? {
            0 => return Err(format!("{what} is shorter than it says")),
            read => done += read,
        }
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("{what} is malformed: {error}"))
}

/// A sealed file in memory that holds `bytes`: nobody can change it after it was checked.
pub fn seal(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Checks that nobody can change a memory file any more.
pub fn check_sealed(document: impl AsFd, what: &str) -> Result<(), String> {
    let needed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let seals = rustix::fs::fcntl_get_seals(document)
        .map_err(|error| format!("{what}: no sealed memory file: {error}"))?;
    if seals.contains(needed) {
        Ok(())
    } else {
        Err(format!(
            "{what} can still be changed: the memory file is not sealed"
        ))
    }
}
