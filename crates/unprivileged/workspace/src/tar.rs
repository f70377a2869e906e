//! Headers of POSIX tar entries (pax(1), ustar): a plain one, after an extended one where a field does not fit.
//!
//! **Trust:** names, targets and attributes are the agent's bytes; none is cut or read again.
use crate::attributes::Attributes;
use crate::manifest::Content;
use crate::sparse::Parts;
use std::io::{self, Write};

/// Entries begin at multiples of it.
pub(crate) const BLOCK: usize = 512;
/// The largest number that eleven octal digits hold: 8 GiB less one byte.
const MAX_OCTAL: u64 = 0o777_7777_7777;

/// An entry of an archive.
pub(crate) struct Header<'a> {
    pub(crate) kind: u8,
    pub(crate) mode: u64,
    pub(crate) size: u64,
    pub(crate) link: &'a [u8],
    pub(crate) content: Option<&'a Content>,
    pub(crate) attributes: Option<Attributes>,
}

impl Header<'_> {
    /// The entry's header, after an extended one where a field does not fit or is not ASCII.
    pub(crate) fn write(&self, path: &[u8], parts: Option<&Parts>, out: &mut dyn Write) -> io::Result<()> {
        let mut records = Vec::new();
        let odd = |bytes: &[u8]| bytes.len() > 100 || !bytes.is_ascii();
        if std::str::from_utf8(path).is_err() || std::str::from_utf8(self.link).is_err() {
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        for (name, value) in parts.iter().flat_map(|parts| parts.records(path)) {
            record(&mut records, name, &value);
        }
        // The name of a file with holes is one of its own records.
        if odd(path) && parts.is_none() {
            record(&mut records, b"path", path);
        }
        if odd(self.link) {
            record(&mut records, b"linkpath", self.link);
        }
        let size = parts.map_or(self.size, Parts::archived);
        if size > MAX_OCTAL {
            record(&mut records, b"size", size.to_string().as_bytes());
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
        let short = match parts {
            // The fields of the name and of what stands before it are one hundred bytes, as for any other.
            Some(_) if short.len() <= 80 => Parts::shown(short),
            Some(_) => Parts::shown(b"long-name"),
            None => short.to_vec(),
        };
        let link = if odd(self.link) {
            b"long-link".as_slice()
        } else {
            self.link
        };
        out.write_all(&block(&short, link, self.kind, self.mode, size.min(MAX_OCTAL)))
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

/// What fills up the last block.
pub(crate) fn padding(size: u64) -> Vec<u8> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    vec![0; (BLOCK - over) % BLOCK]
}
