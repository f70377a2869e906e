//! Files with holes in an archive: the sparse format 1.0 of GNU tar (POSIX extended headers), where the data of the entry
//! begins with a map of what follows.
//!
//! **Trust:** the holes are the file's own word for where it has zeros. Every byte, those of holes too, is hashed on the
//! way, so a file that tells others is an error and never an archive.
use crate::manifest::Content;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// Shorter holes are written out: each costs a line of the map and a look of whoever reads it.
pub(crate) const SHORTEST_HOLE: u64 = 64 * 1024;
/// Most parts with data of one file; what comes after them is written with its holes. GNU tar reads a map of any length.
const MOST_PARTS: usize = 100_000;
/// What is read and hashed at once.
const CHUNK: usize = 128 * 1024;
/// A reader that does not know the format shows the entry under this directory, as GNU tar does it.
const SHOWN_BELOW: &[u8] = b"GNUSparseFile.0/";

/// The parts of a file that are written to an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Where each begins and how long it is, in order and apart from each other.
    data: Vec<(u64, u64)>,
    /// The length of the file with its holes.
    size: u64,
}

impl Parts {
    /// The parts of a file of that size; `None` where it has no hole that is worth a map, or cannot tell.
    pub(crate) fn of(file: &File, size: u64) -> io::Result<Option<Self>> {
        let mut data = Vec::new();
        let mut at = 0;
        while at < size {
            let from = match seek(file, SeekFrom::Data(at)) {
                Ok(from) => from.min(size),
                // Nothing but a hole is left.
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL | Errno::NOTSUP | Errno::SPIPE) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if from == size {
                break;
            }
            let to = seek(file, SeekFrom::Hole(from))?.clamp(from, size);
            add(&mut data, from, to);
            at = to.max(from + 1);
        }
        rewind(file)?;
        let parts = Self { data, size };
        let saved = size.saturating_sub(parts.data_len());
        Ok((saved >= SHORTEST_HOLE).then_some(parts))
    }

    fn data_len(&self) -> u64 {
        self.data.iter().map(|(_, length)| length).sum()
    }

    /// How long the entry is in the archive: the map and the data.
    pub(crate) fn archived(&self) -> u64 {
        self.map().len() as u64 + self.data_len()
    }

    /// The records of the extended header; the name of the entry is in one of them.
    pub(crate) fn records(&self, path: &[u8]) -> [(&'static [u8], Vec<u8>); 4] {
        [
            (b"GNU.sparse.major", b"1".to_vec()),
            (b"GNU.sparse.minor", b"0".to_vec()),
            (b"GNU.sparse.name", path.to_vec()),
            (b"GNU.sparse.realsize", self.size.to_string().into_bytes()),
        ]
    }

    /// The name for readers that do not know the format; `name` is the short one.
    pub(crate) fn shown(name: &[u8]) -> Vec<u8> {
        [SHOWN_BELOW, name].concat()
    }

    /// How many parts, then offset and length of each, one number a line, filled up to a block. The last one is empty and
    /// stands at the end: it gives the file its length where it ends with a hole.
    fn map(&self) -> Vec<u8> {
        let end = (self.size, 0);
        let mut map = format!("{}\n", self.data.len() + 1).into_bytes();
        for (offset, length) in self.data.iter().chain([&end]) {
            map.extend_from_slice(format!("{offset}\n{length}\n").as_bytes());
        }
        map.resize(map.len().next_multiple_of(512), 0);
        map
    }

    /// Writes the map and the data, and hashes the whole file.
    pub(crate) fn write(&self, mut file: &File, digest: &Content, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.map())?;
        let mut hasher = blake3::Hasher::new();
        let zeros = vec![0_u8; CHUNK];
        let mut buffer = vec![0_u8; CHUNK];
        let mut at = 0;
        for (offset, length) in self.data.iter().copied().chain([(self.size, 0)]) {
            in_chunks(offset - at, |count| {
                hasher.update(&zeros[..count]);
                Ok(())
            })?;
            file.seek(io::SeekFrom::Start(offset))?;
            in_chunks(length, |count| {
                file.read_exact(&mut buffer[..count])?;
                hasher.update(&buffer[..count]);
                out.write_all(&buffer[..count])
            })?;
            at = offset + length;
        }
        if hasher.finalize().as_bytes() == digest.as_bytes() {
            Ok(())
        } else {
            Err(io::Error::other("the stored content is damaged"))
        }
    }
}

/// Adds a part, to the one before it where the hole between them is short or there are many parts.
fn add(data: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    let many = data.len() == MOST_PARTS;
    match data.last_mut() {
        Some((offset, length)) if many || from - (*offset + *length) < SHORTEST_HOLE => {
            *length = to - *offset
        }
        Some(_) | None => data.push((from, to - from)),
    }
}

fn in_chunks(mut left: u64, mut act: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        act(count)?;
        left -= count as u64;
    }
    Ok(())
}

fn rewind(file: &File) -> io::Result<()> {
    seek(file, SeekFrom::Start(0))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::export;
    use crate::manifest::{Entry, Kind, Manifest, Mode};
    use crate::testing::{Folder, path};
    use proptest::prelude::*;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;
    use std::process::Command;

    /// A file of that size with these bytes at these places, which are in order, in the store, and its entry. `None` where the file system
    /// has no holes.
    fn sparse(blobs: &Folder, name: &str, size: u64, data: &[(u64, &[u8])]) -> Option<Entry> {
        let at = blobs.0.join("new");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&at)
            .unwrap();
        file.set_len(size).unwrap();
        for (offset, bytes) in data {
            file.write_all_at(bytes, *offset).unwrap();
        }
        let (mut hasher, mut reached) = (blake3::Hasher::new(), 0);
        let zeros = vec![0; 1 << 20];
        for (offset, bytes) in data.iter().chain([&(size, &b""[..])]) {
            while reached < *offset {
                let count = (*offset - reached).min(1 << 20);
                hasher.update(&zeros[..usize::try_from(count).unwrap()]);
                reached += count;
            }
            hasher.update(bytes);
            reached += bytes.len() as u64;
        }
        let digest = Content::from_bytes(*hasher.finalize().as_bytes());
        std::fs::rename(&at, blobs.0.join(digest.to_string())).unwrap();
        let has_holes = size == 0 || file.metadata().unwrap().blocks() * 512 < size;
        has_holes.then(|| Entry {
            path: path(name),
            kind: Kind::File {
                digest,
                size,
                mode: Mode::default(),
                attributes: None,
            },
        })
    }

    fn skip(test: &str, reason: &str) {
        use std::io::Write as _;
        println!("{test}: skipped: {reason}");
        if let Some(list) = std::env::var_os("BASTLE_SKIPS") {
            let mut list = File::options().append(true).create(true).open(list).unwrap();
            writeln!(list, "{test}: {reason}").unwrap();
        }
    }

    fn there(program: &str) -> bool {
        Command::new(program)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    }

    fn unpack(program: &str, archive: &Path, into: &Path) {
        std::fs::create_dir(into).unwrap();
        let status = Command::new(program)
            .current_dir(into)
            .arg("-xf")
            .arg(archive)
            .status();
        assert!(status.unwrap().success(), "{program}");
    }

    #[test]
    fn a_file_of_ten_gigabytes_of_holes_makes_a_small_archive_and_comes_back_with_its_holes() {
        const TEST: &str =
            "a_file_of_ten_gigabytes_of_holes_makes_a_small_archive_and_comes_back_with_its_holes";
        let stage = tempfile::tempdir().unwrap();
        let blobs = Folder(stage.path().join("blobs"));
        std::fs::create_dir(&blobs.0).unwrap();
        let (size, middle) = (10 << 30, 6 << 30);
        let long = format!("{}é", "d".repeat(120));
        let block = [7_u8; 4096];
        let Some(big) = sparse(&blobs, "big", size, &[(middle, &block)]) else {
            return skip(TEST, "the file system of the temporary directory has no holes");
        };
        let others = [
            sparse(&blobs, "all-hole", 1 << 20, &[]),
            sparse(&blobs, "end", 1 << 20, &[(0, b"first"), ((1 << 20) - 4, b"last")]),
            sparse(&blobs, &long, 1 << 20, &[(1 << 19, b"middle")]),
        ];
        let mut entries: Vec<_> = others.into_iter().flatten().chain([big]).collect();
        let plain = Entry {
            path: path("plain"),
            kind: blobs.put(b"after the holes\n"),
        };
        entries.push(plain);
        let mut archive = Vec::new();
        export(&Manifest::new(entries).unwrap(), &blobs, &mut archive).unwrap();
        assert!(archive.len() < 64 * 1024, "{} bytes", archive.len());
        let file = stage.path().join("x.tar");
        std::fs::write(&file, &archive).unwrap();
        let mut tried = 0;
        for program in ["tar", "bsdtar"] {
            if !there(program) {
                skip(TEST, &format!("there is no {program}"));
                continue;
            }
            let out = stage.path().join(program);
            unpack(program, &file, &out);
            let big = File::open(out.join("big")).unwrap();
            let meta = big.metadata().unwrap();
            assert_eq!(meta.len(), size, "{program}");
            assert!(
                meta.blocks() * 512 < 1 << 20,
                "{program}: {} blocks",
                meta.blocks()
            );
            let mut back = [0; 4096 + 2];
            big.read_exact_at(&mut back, middle - 1).unwrap();
            assert!(
                back[1..=4096] == block && back[0] == 0 && back[4097] == 0,
                "{program}"
            );
            let read = |name: &str| std::fs::read(out.join(name)).unwrap();
            assert_eq!(read("all-hole"), vec![0; 1 << 20], "{program}");
            assert!(read("end").starts_with(b"first\0") && read("end").ends_with(b"\0last"));
            assert_eq!(
                read(&long).iter().filter(|byte| **byte != 0).count(),
                6,
                "{program}"
            );
            assert_eq!(
                read("plain"),
                b"after the holes\n",
                "{program}: what follows is found"
            );
            assert_eq!(
                std::fs::read_dir(&out).unwrap().count(),
                5,
                "{program}: no other names"
            );
            tried += 1;
        }
        assert!(tried > 0 || !there("tar"));
    }

    #[test]
    fn a_file_with_other_bytes_than_its_digest_is_refused_also_where_it_has_holes() {
        let stage = tempfile::tempdir().unwrap();
        let blobs = Folder(stage.path().to_owned());
        let Some(entry) = sparse(&blobs, "a", 1 << 20, &[(1 << 19, b"good")]) else {
            return skip(
                "a_file_with_other_bytes_than_its_digest_is_refused_also_where_it_has_holes",
                "no holes here",
            );
        };
        let Kind::File { digest, .. } = entry.kind else {
            unreachable!()
        };
        let tree = Manifest::new(vec![entry]).unwrap();
        export(&tree, &blobs, &mut Vec::new()).unwrap();
        let content = File::options()
            .write(true)
            .open(stage.path().join(digest.to_string()))
            .unwrap();
        content.write_all_at(b"evil", 1 << 19).unwrap();
        assert!(export(&tree, &blobs, &mut Vec::new()).is_err());
        content.write_all_at(b"good", 1 << 19).unwrap();
        content.write_all_at(b"x", 0).unwrap();
        assert!(
            export(&tree, &blobs, &mut Vec::new()).is_err(),
            "a byte in a hole counts"
        );
    }

    #[test]
    fn short_holes_and_those_after_very_many_parts_are_written_out() {
        let mut data = Vec::new();
        add(&mut data, 10, 20);
        add(&mut data, 20 + SHORTEST_HOLE - 1, 5 + 20 + SHORTEST_HOLE);
        add(&mut data, 10 * SHORTEST_HOLE, 11 * SHORTEST_HOLE);
        assert_eq!(
            data,
            [(10, SHORTEST_HOLE + 15), (10 * SHORTEST_HOLE, SHORTEST_HOLE)]
        );
        let mut data = Vec::new();
        let far = |number: usize| number as u64 * 4 * SHORTEST_HOLE;
        for number in 0..MOST_PARTS + 7 {
            add(&mut data, far(number), far(number) + 1);
        }
        let last = far(MOST_PARTS - 1);
        assert_eq!(data.len(), MOST_PARTS);
        assert_eq!(data.last(), Some(&(last, far(MOST_PARTS + 6) + 1 - last)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_file_with_any_holes_comes_back_as_it_was(
            size in 1..4_000_000_u64,
            places in proptest::collection::vec((0..4_000_000_u64, 1..9000_usize), 0..6),
        ) {
            let stage = tempfile::tempdir().unwrap();
            let blobs = Folder(stage.path().join("blobs"));
            std::fs::create_dir(&blobs.0).unwrap();
            let bytes = vec![9_u8; 9000];
            let mut places = places;
            places.sort_unstable();
            let mut data: Vec<(u64, &[u8])> = Vec::new();
            for (offset, count) in places {
                let reached = data.last().map_or(0, |(offset, bytes)| offset + bytes.len() as u64);
                if offset >= reached && offset + count as u64 <= size {
                    data.push((offset, &bytes[..count]));
                }
            }
            let Some(entry) = sparse(&blobs, "a", size, &data) else { return Ok(()) };
            let Kind::File { digest, .. } = entry.kind else { unreachable!() };
            let mut archive = Vec::new();
            export(&Manifest::new(vec![entry]).unwrap(), &blobs, &mut archive).unwrap();
            prop_assert!(archive.len().is_multiple_of(512));
            if there("tar") {
                std::fs::write(stage.path().join("x.tar"), &archive).unwrap();
                unpack("tar", &stage.path().join("x.tar"), &stage.path().join("out"));
                let back = std::fs::read(stage.path().join("out/a")).unwrap();
                prop_assert_eq!(Content::of(&back), digest);
            }
        }
    }
}
