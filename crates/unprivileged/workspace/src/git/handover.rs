//! A checked pack on its way into the host's object directory: whole and durable there, or nothing of it.
//!
//! **Trust:** pack and index were made and checked by bastle's own git in a repository of bastle's own. The host's object
//! directory is the user's; in it git reads a pack only once its index has its name.
use super::{ObjectId, unusable};
use bastle_contract::Fault;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Brings `PACK.pack` and the index beside it into `objects/pack` under the name of the pack.
///
/// # Errors
/// The kernel's; what was written is removed again, so that a full disk is not made fuller.
pub(super) fn pack(pack: &Path, name: &ObjectId, objects: &Path) -> Result<(), Fault> {
    let directory = objects.join("pack");
    let mut fresh = Fresh(Vec::new());
    bring(pack, name, &directory, &mut fresh).map_err(|error| unusable(&directory, error.to_string()))?;
    fresh.0.clear();
    Ok(())
}

fn bring(pack: &Path, name: &ObjectId, directory: &Path, fresh: &mut Fresh) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if let Some(objects) = directory.parent() {
        File::open(objects)?.sync_all()?;
    }
    let at = |kind: &str| directory.join(format!("pack-{}.{kind}", name.as_str()));
    if at("idx").exists() && at("pack").exists() {
        // The same objects are there already, perhaps of a process that was killed before it synced their names.
        return File::open(directory)?.sync_all();
    }
    let mut filled = Vec::new();
    for kind in ["pack", "idx"] {
        // What begins so git removes from its directories of packs when it tidies up.
        let own = format!("tmp_bastle-{}-{}.{kind}", std::process::id(), name.as_str());
        let beside = directory.join(own);
        let mut part = Part::make(directory, beside, fresh)?;
        io::copy(&mut File::open(pack.with_extension(kind))?, &mut part.file)?;
        part.file.sync_all()?;
        filled.push((part, at(kind)));
    }
    // The index last, and only once the name of the pack is durable: with it the pack begins to be read.
    for (part, named) in filled {
        part.give(&named)?;
        fresh.0.push(named);
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// A file that is being filled, without a name where the file system can: then a kill leaves nothing.
struct Part {
    file: File,
    beside: Option<PathBuf>,
}

impl Part {
    fn make(directory: &Path, beside: PathBuf, fresh: &mut Fresh) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(directory, flags, Mode::from_raw_mode(0o444)) {
            let file = file.into();
            return Ok(Self { file, beside: None });
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o444);
        let file = options.open(&beside)?;
        fresh.0.push(beside.clone());
        let beside = Some(beside);
        Ok(Self { file, beside })
    }

    /// Gives the whole file its name. One that is there has no index yet: it is of a process that was killed.
    fn give(&self, named: &Path) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            return std::fs::rename(beside, named);
        }
        let through = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link = || rustix::fs::linkat(CWD, &through, CWD, named, AtFlags::SYMLINK_FOLLOW);
        match link() {
            Err(Errno::EXIST) => {
                std::fs::remove_file(named)?;
                Ok(link()?)
            }
            linked => Ok(linked?),
        }
    }
}

/// Files that go unless everything succeeded.
struct Fresh(Vec<PathBuf>);

impl Drop for Fresh {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            match std::fs::remove_file(path) {
                // Renamed, or in a directory that is gone; what cannot be removed is read by nobody without its index.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(stage: &Path) -> (PathBuf, ObjectId, PathBuf) {
        let pack = stage.join("out.pack");
        std::fs::write(&pack, "the pack").unwrap();
        let objects = stage.join("objects");
        std::fs::create_dir_all(objects.join("pack")).unwrap();
        (pack, ObjectId::parse(&"0".repeat(40)).unwrap(), objects)
    }

    #[test]
    fn an_index_whose_pack_is_lost_does_not_stand_for_the_pack() {
        let stage = tempfile::tempdir().unwrap();
        let (out, name, objects) = made(stage.path());
        std::fs::write(out.with_extension("idx"), "the index").unwrap();
        pack(&out, &name, &objects).unwrap();
        let lost = objects.join(format!("pack/pack-{}.pack", name.as_str()));
        std::fs::remove_file(&lost).unwrap();
        pack(&out, &name, &objects).unwrap();
        assert_eq!(std::fs::read(lost).unwrap(), b"the pack");
    }

    #[test]
    fn a_pack_that_cannot_be_brought_whole_leaves_nothing_behind() {
        let stage = tempfile::tempdir().unwrap();
        let (out, name, objects) = made(stage.path());
        // Its index is missing: as if the disk were full after the pack itself was written.
        assert!(pack(&out, &name, &objects).is_err());
        assert_eq!(std::fs::read_dir(objects.join("pack")).unwrap().count(), 0);
        std::fs::write(out.with_extension("idx"), "the index").unwrap();
        pack(&out, &name, &objects).unwrap();
        assert_eq!(
            std::fs::read_dir(objects.join("pack")).unwrap().count(),
            2,
            "control"
        );
        pack(&out, &name, &objects).unwrap();
    }
}
