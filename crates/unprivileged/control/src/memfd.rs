//! Documents for other processes of bastle: in memory, sealed, so that nobody can change them after they were checked.
use rustix::fs::{MemfdFlags, SealFlags};
use std::io::Write;
use std::os::fd::OwnedFd;

/// A sealed file in memory that holds `bytes`, read from its beginning.
pub(crate) fn sealed(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
