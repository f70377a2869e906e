//! The stored form of a manifest: its canonical encoding, so that the digest of the file is its name.
//!
//! **Trust:** the decoder reads files that may be damaged or planted; it accepts exactly what the encoder writes.
//! Layout: magic, then per entry: kind (1), path length (2, little endian), path, fields of the kind.
use super::{Content, Entry, Kind, LinkTarget, MAX_ENTRIES, Manifest, Mode, Opaque};
use crate::path::{TreePath, TreePathError};

const MAGIC: &[u8] = b"bastle manifest 1\n";
/// Longest link target: the kernel stores at most `PATH_MAX`.
const MAX_TARGET: usize = 4096;
/// Longest commit name: SHA-256 in hexadecimal.
const MAX_COMMIT: usize = 64;

/// Why something is not a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes do not start as a manifest does.
    #[error("not a manifest of format 1")]
    Magic,
    /// The bytes end inside an entry.
    #[error("the manifest is cut off")]
    Short,
    /// A field has a value that the encoder never writes.
    #[error("the manifest holds an impossible value")]
    Value,
    /// More than [`MAX_ENTRIES`].
    #[error("the tree has more than {MAX_ENTRIES} entries")]
    TooMany,
    /// A path is malformed.
    #[error("{0}")]
    Path(#[from] TreePathError),
    /// Not sorted, or twice the same path.
    #[error("{0} is out of order or there twice")]
    Order(TreePath),
    /// The directory of an entry is missing or no directory.
    #[error("{0} is not in a directory of the manifest")]
    Orphan(TreePath),
}

/// Checks order and parents of a sorted list.
pub(super) fn check(entries: &[Entry]) -> Result<(), ManifestError> {
    if entries.len() > MAX_ENTRIES {
        return Err(ManifestError::TooMany);
    }
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].path >= pair[1].path) {
        return Err(ManifestError::Order(pair[1].path.clone()));
    }
    // Neighbours mostly share their directory: one lookup per run of siblings.
    let mut known: Option<TreePath> = None;
    for entry in entries {
        let Some(parent) = entry.path.parent() else {
            continue;
        };
        if known.as_ref() == Some(&parent) {
            continue;
        }
        let found = entries
            .binary_search_by(|other| other.path.cmp(&parent))
            .is_ok_and(|at| matches!(entries[at].kind, Kind::Dir));
        if !found {
            return Err(ManifestError::Orphan(entry.path.clone()));
        }
        known = Some(parent);
    }
    Ok(())
}

/// The canonical bytes.
#[must_use]
pub fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + manifest.entries.len() * 96);
    out.extend_from_slice(MAGIC);
    for entry in &manifest.entries {
        out.push(tag(&entry.kind));
        put(&mut out, entry.path.as_bytes());
        match &entry.kind {
            Kind::File {
                digest,
                size,
                mode,
                attributes,
            } => {
                out.extend_from_slice(digest.as_bytes());
                out.extend_from_slice(&size.to_le_bytes());
                out.push(u8::from(mode.executable) | u8::from(mode.special) << 1);
                out.extend(attributes.iter().flat_map(|id| id.as_bytes()));
            }
            Kind::Symlink { target } => put(&mut out, &target.0),
            Kind::Dir => {}
            Kind::Submodule { commit } => put(&mut out, commit.as_bytes()),
            Kind::Opaque { why } => out.push(opaque_tag(*why)),
        }
    }
    out
}

/// Lengths fit: paths, targets and commits are bounded far below 64 KiB where they are made.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

fn tag(kind: &Kind) -> u8 {
    match kind {
        // A tree without attributes is written as it always was, and has the same digest.
        Kind::File { attributes: None, .. } => b'f',
        Kind::File {
            attributes: Some(_), ..
        } => b'x',
        Kind::Symlink { .. } => b'l',
        Kind::Dir => b'd',
        Kind::Submodule { .. } => b's',
        Kind::Opaque { .. } => b'o',
    }
}

fn opaque_tag(why: Opaque) -> u8 {
    match why {
        Opaque::Fifo => 0,
        Opaque::Socket => 1,
        Opaque::Device => 2,
        Opaque::TooLarge => 3,
        Opaque::TooDeep => 4,
        Opaque::Unreadable => 5,
    }
}

/// Reads canonical bytes.
///
/// # Errors
/// When they are not exactly what [`encode`] writes for some manifest.
pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or(ManifestError::Magic)?;
    // Reserving by the input's length, never by a number inside it.
    let mut entries = Vec::with_capacity((rest.len() / 48).min(MAX_ENTRIES));
    while !rest.is_empty() {
        if entries.len() == MAX_ENTRIES {
            return Err(ManifestError::TooMany);
        }
        entries.push(entry(&mut rest)?);
    }
    check(&entries)?;
    Ok(Manifest { entries })
}

fn entry(rest: &mut &[u8]) -> Result<Entry, ManifestError> {
    let [tag] = fixed::<1>(rest)?;
    let path = TreePath::new(counted(rest, usize::from(u16::MAX))?)?;
    let kind = match tag {
        b'f' | b'x' => {
            let digest = Content::from_bytes(fixed(rest)?);
            let size = u64::from_le_bytes(fixed(rest)?);
            let [bits] = fixed::<1>(rest)?;
            if bits > 3 {
                return Err(ManifestError::Value);
            }
            let mode = Mode {
                executable: bits & 1 != 0,
                special: bits & 2 != 0,
            };
            let attributes = match tag {
                b'x' => Some(Content::from_bytes(fixed(rest)?)),
                _ => None,
            };
            Kind::File {
                digest,
                size,
                mode,
                attributes,
            }
        }
        b'l' => Kind::Symlink {
            target: LinkTarget(counted(rest, MAX_TARGET)?.to_vec()),
        },
        b'd' => Kind::Dir,
        b's' => Kind::Submodule {
            commit: commit(counted(rest, MAX_COMMIT)?)?,
        },
        b'o' => Kind::Opaque {
            why: opaque(fixed::<1>(rest)?[0])?,
        },
        _ => return Err(ManifestError::Value),
    };
    Ok(Entry { path, kind })
}

fn commit(bytes: &[u8]) -> Result<String, ManifestError> {
    let clean = bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Value)?;
    if clean {
        Ok(text.to_owned())
    } else {
        Err(ManifestError::Value)
    }
}

fn opaque(tag: u8) -> Result<Opaque, ManifestError> {
    match tag {
        0 => Ok(Opaque::Fifo),
        1 => Ok(Opaque::Socket),
        2 => Ok(Opaque::Device),
        3 => Ok(Opaque::TooLarge),
        4 => Ok(Opaque::TooDeep),
        5 => Ok(Opaque::Unreadable),
        _ => Err(ManifestError::Value),
    }
}

fn fixed<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ManifestError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(ManifestError::Short)?;
    *rest = tail;
    Ok(*head)
}

fn counted<'a>(rest: &mut &'a [u8], most: usize) -> Result<&'a [u8], ManifestError> {
    let length = usize::from(u16::from_le_bytes(fixed(rest)?));
    if length > most {
        return Err(ManifestError::Value);
    }
    let (head, tail) = rest.split_at_checked(length).ok_or(ManifestError::Short)?;
    *rest = tail;
    Ok(head)
}
