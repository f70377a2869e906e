//! The agent's work as one archive: POSIX tar with extended headers, made so that every reader sees the same.
//!
//! **Trust:** names and contents are the agent's. Written are regular files, directories and links that stay in
//! the tree; no owner, no special bits, no device, no absolute or climbing name, no name twice.
use crate::attributes::Attributes;
use crate::blobs::Blobs;
use crate::finding::leads_out;
use crate::git::is_git_name;
use crate::manifest::{Content, Kind, Manifest};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

const BLOCK: usize = 512;
/// Most bytes and entries of one archive.
const MOST_BYTES: u64 = 64 << 30;
const MOST_ENTRIES: usize = 1_000_000;
/// The largest number that eleven octal digits hold: 8 GiB less one byte.
const MAX_OCTAL: u64 = 0o777_7777_7777;

/// What went into the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of entries.
    pub entries: usize,
    /// What was left out: git directories, what makes a directory a repository, links that lead out, special files.
    pub left_out: Vec<TreePath>,
}

/// Writes the tree to `out`.
///
/// # Errors
/// When a content cannot be read or is damaged, or writing fails.
pub fn export(manifest: &Manifest, blobs: &dyn Blobs, out: &mut dyn Write) -> Result<Exported, Fault> {
    within_limits(manifest, MOST_ENTRIES, MOST_BYTES)?;
    let repositories = repositories(manifest);
    let mut done = Exported {
        entries: 0,
        left_out: Vec::new(),
    };
    for entry in manifest.entries() {
        let fail = |error: io::Error| {
            Fault::new(
                Code::WorkspaceApply,
                format!("export {}", entry.path),
                error.to_string(),
            )
        };
        let header = match &entry.kind {
            _ if entry.path.components().any(is_git_name) => None,
            _ if is_of_repository(&entry.path, &repositories) => None,
            Kind::File {
                digest,
                size,
                mode,
                attributes,
            } => Some(Header {
                kind: b'0',
                mode: if mode.executable { 0o755 } else { 0o644 },
                size: *size,
                link: b"",
                content: Some(digest),
                attributes: match attributes {
                    Some(id) => Some(Attributes::open(blobs, id, entry.path.as_path())?),
                    None => None,
                },
            }),
            Kind::Dir => Some(Header {
                kind: b'5',
                mode: 0o755,
                size: 0,
                link: b"",
                content: None,
                attributes: None,
            }),
            Kind::Symlink { target } if !leads_out(&entry.path, &target.0) => Some(Header {
                kind: b'2',
                mode: 0o777,
                size: 0,
                link: &target.0,
                content: None,
                attributes: None,
            }),
            Kind::Symlink { .. } | Kind::Submodule { .. } | Kind::Opaque { .. } => None,
        };
        let Some(header) = header else {
            if !entry.path.in_git() {
                done.left_out.push(entry.path.clone());
            }
            continue;
        };
        header.write(entry.path.as_bytes(), out).map_err(fail)?;
        if let Some(digest) = header.content {
            copy(blobs, digest, header.size, out)?.map_err(fail)?;
        }
        done.entries += 1;
    }
    let end = |error: io::Error| Fault::new(Code::WorkspaceApply, "export", error.to_string());
    out.write_all(&[0; 2 * BLOCK]).map_err(end)?;
    out.flush().map_err(end)?;
    Ok(done)
}

/// Directories that git takes for bare repositories (gitrepository-layout(5)): `git status` in one executes what its
/// configuration names.
fn repositories(manifest: &Manifest) -> BTreeSet<Option<TreePath>> {
    let parents = |names: &[&[u8]]| -> BTreeSet<Option<TreePath>> {
        let entries = manifest.entries().iter();
        let named = entries.filter(|entry| names.contains(&entry.path.name()));
        named.map(|entry| entry.path.parent()).collect()
    };
    let heads = parents(&[b"HEAD"]);
    let others = parents(&[b"objects", b"refs", b"commondir", b"gitdir"]);
    heads.intersection(&others).cloned().collect()
}

/// Whether a path is, or is below, a name without which git does not obey the directory.
fn is_of_repository(path: &TreePath, repositories: &BTreeSet<Option<TreePath>>) -> bool {
    const OBEYED: [&[u8]; 6] = [
        b"HEAD",
        b"commondir",
        b"config",
        b"config.worktree",
        b"gitdir",
        b"hooks",
    ];
    std::iter::successors(Some(path.clone()), TreePath::parent)
        .any(|at| OBEYED.contains(&at.name()) && repositories.contains(&at.parent()))
}

/// Refuses before the first byte: an archive has every byte of a file, also those of its holes, so a few names could fill
/// the disk of whoever asks for it.
fn within_limits(manifest: &Manifest, most_entries: usize, most_bytes: u64) -> Result<(), Fault> {
    let (mut names, mut bytes) = (0_usize, 0_u64);
    for entry in manifest.entries() {
        names += 1;
        if let Kind::File { size, .. } = &entry.kind {
            bytes = bytes.saturating_add(*size);
        }
    }
    let why = if names > most_entries {
        format!("it would have {names} entries, and {most_entries} are the most")
    } else if bytes > most_bytes {
        format!("it would have {bytes} bytes, holes written out, and {most_bytes} are the most")
    } else {
        return Ok(());
    };
    Err(
        Fault::new(Code::WorkspaceApply, "the work is too large for an archive", why)
            .help("bastle diff RUN --stat shows the largest files; bastle apply RUN brings the work without an archive"),
    )
}

struct Header<'a> {
    kind: u8,
    mode: u64,
    size: u64,
    link: &'a [u8],
    content: Option<&'a Content>,
    attributes: Option<Attributes>,
}

impl Header<'_> {
    /// The entry's header, after an extended one where a field does not fit or is not ASCII.
    fn write(&self, path: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let mut records = Vec::new();
        let odd = |bytes: &[u8]| bytes.len() > 100 || !bytes.is_ascii();
        if std::str::from_utf8(path).is_err() || std::str::from_utf8(self.link).is_err() {
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        if odd(path) {
            record(&mut records, b"path", path);
        }
        if odd(self.link) {
            record(&mut records, b"linkpath", self.link);
        }
        if self.size > MAX_OCTAL {
            record(&mut records, b"size", self.size.to_string().as_bytes());
        }
        for (name, value) in self.attributes.iter().flat_map(Attributes::iter) {
            record(&mut records, &attribute_key(name), value);
        }
        if !records.is_empty() {
            out.write_all(&block(b"PaxHeader", b"", b'x', 0o644, records.len() as u64))?;
            out.write_all(&records)?;
            out.write_all(&padding(records.len() as u64))?;
        }
        // Old readers see a short, plain name; all others the record above.
        let short = if odd(path) { b"long-name".as_slice() } else { path };
        let link = if odd(self.link) {
            b"long-link".as_slice()
        } else {
            self.link
        };
        out.write_all(&block(
            short,
            link,
            self.kind,
            self.mode,
            self.size.min(MAX_OCTAL),
        ))
    }
}

/// The key that tar programs agree on; the sign that ends a key is written as they write it.
fn attribute_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            other => key.push(*other),
        }
    }
    key
}

/// A record of an extended header: its own length in decimal, a name, a value.
fn record(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rest = name.len() + value.len() + 3;
    let mut total = rest + 1;
    // The length counts its own digits; two steps reach the fixed point for any name.
    for _ in 0..2 {
        total = rest + total.to_string().len();
    }
    out.extend_from_slice(format!("{total} ").as_bytes());
    out.extend_from_slice(name);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn block(name: &[u8], link: &[u8], kind: u8, mode: u64, size: u64) -> [u8; BLOCK] {
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn padding(size: u64) -> Vec<u8> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    vec![0; (BLOCK - over) % BLOCK]
}

/// Exactly the promised bytes, and those of the digest: a header must never lie about what follows it.
fn copy(
    blobs: &dyn Blobs,
    digest: &Content,
    size: u64,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Fault> {
    let file = blobs.open(digest)?;
    Ok(copy_exactly(file, digest, size, out).and_then(|()| out.write_all(&padding(size))))
}

fn copy_exactly(file: std::fs::File, digest: &Content, size: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut hasher = blake3::Hasher::new();
    let copied = io::copy(
        &mut file.take(size),
        &mut Tee {
            hasher: &mut hasher,
            out,
        },
    )?;
    if copied == size && hasher.finalize().as_bytes() == digest.as_bytes() {
        Ok(())
    } else {
        Err(io::Error::other("the stored content is damaged"))
    }
}

struct Tee<'a> {
    hasher: &'a mut blake3::Hasher,
    out: &'a mut dyn Write,
}

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, manifest, path, write};
    use std::process::Command;

    #[test]
    fn the_archive_unpacks_to_the_same_tree_without_git_and_outward_links() {
        let stage = tempfile::tempdir().unwrap();
        let (tree, out, blobs) = (
            stage.path().join("tree"),
            stage.path().join("out"),
            stage.path().join("blobs"),
        );
        for directory in [&tree, &out, &blobs] {
            std::fs::create_dir(directory).unwrap();
        }
        let blobs = Folder(blobs);
        write(&tree, "a", b"a\n");
        write(
            &tree,
            &format!("{}/{}", "d".repeat(90), "f".repeat(200)),
            &vec![7; 1000],
        );
        write(&tree, "é\n-rf", b"");
        std::os::unix::fs::symlink("a", tree.join("in")).unwrap();
        let expected = manifest(&tree, &blobs);
        std::os::unix::fs::symlink("/etc/passwd", tree.join("abs")).unwrap();
        std::os::unix::fs::symlink("../x", tree.join("up")).unwrap();
        write(&tree, "sub/.git/config", b"evil");
        let mut bytes = Vec::new();
        let done = export(&manifest(&tree, &blobs), &blobs, &mut bytes).unwrap();
        assert_eq!(
            done.left_out,
            [path("abs"), path("sub/.git"), path("sub/.git/config"), path("up")]
        );
        assert!(bytes.len().is_multiple_of(512));
        std::fs::write(stage.path().join("x.tar"), &bytes).unwrap();
        assert!(
            Command::new("tar")
                .current_dir(&out)
                .args(["xf", "../x.tar"])
                .status()
                .unwrap()
                .success()
        );
        std::fs::remove_dir(out.join("sub")).unwrap();
        assert_eq!(manifest(&out, &blobs), expected);
    }

    #[test]
    fn what_makes_a_directory_a_repository_stays_out_and_a_directory_of_such_names_alone_does_not() {
        let stage = tempfile::tempdir().unwrap();
        let (tree, blobs) = (stage.path().join("tree"), Folder(stage.path().join("blobs")));
        for directory in [&tree, &blobs.0] {
            std::fs::create_dir(directory).unwrap();
        }
        for name in [
            "HEAD",
            "config",
            "hooks/post-checkout",
            "refs/heads/main",
            "objects/x",
            "readme",
        ] {
            write(&tree, &format!("bare/{name}"), b"x");
            write(&tree, name, b"x");
        }
        for name in ["config", "hooks/useHook.ts", "refs/r", "objects/o"] {
            write(&tree, &format!("source/{name}"), b"x");
        }
        let done = export(&manifest(&tree, &blobs), &blobs, &mut Vec::new()).unwrap();
        let names = ["HEAD", "config", "hooks", "hooks/post-checkout"];
        let mut expected: Vec<_> = names
            .iter()
            .flat_map(|name| [path(name), path(&format!("bare/{name}"))])
            .collect();
        expected.sort();
        let mut left_out = done.left_out;
        left_out.sort();
        assert_eq!(left_out, expected);
    }

    #[test]
    fn an_archive_beyond_its_limits_is_refused_before_its_first_byte() {
        let entry = |name: &str, size| crate::manifest::Entry {
            path: path(name),
            kind: Kind::File {
                digest: Content::of(b""),
                size,
                mode: crate::manifest::Mode::from_bits(0o644),
                attributes: None,
            },
        };
        let tree = Manifest::new(vec![entry("a", 600), entry("b", 400)]).unwrap();
        assert!(within_limits(&tree, 2, 1000).is_ok(), "control");
        let names = within_limits(&tree, 1, 1000).unwrap_err();
        assert!(names.why.contains("2 entries"), "{names:?}");
        let bytes = within_limits(&tree, 2, 999).unwrap_err();
        assert!(bytes.why.contains("1000 bytes"), "{bytes:?}");
    }

    #[test]
    fn a_content_shorter_or_other_than_promised_is_refused() {
        let stage = tempfile::tempdir().unwrap();
        let blobs = Folder(stage.path().to_owned());
        let kind = blobs.put(b"good");
        let entry = crate::manifest::Entry {
            path: path("a"),
            kind,
        };
        let tree = Manifest::new(vec![entry]).unwrap();
        for evil in [&b"evil"[..], b"goo", b"good and more"] {
            std::fs::write(stage.path().join(Content::of(b"good").to_string()), evil).unwrap();
            let outcome = export(&tree, &blobs, &mut Vec::new());
            assert!(outcome.is_err() || evil.starts_with(b"good"), "{evil:?}");
        }
    }
}
