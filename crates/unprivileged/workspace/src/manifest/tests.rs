//! Manifests against damaged and hostile bytes.
use super::*;
use proptest::prelude::*;

fn dir(path: &str) -> Entry {
    Entry {
        path: TreePath::new(path).unwrap(),
        kind: Kind::Dir,
    }
}

fn file(path: &[u8], bytes: &[u8]) -> Entry {
    Entry {
        path: TreePath::new(path).unwrap(),
        kind: Kind::File {
            digest: Content::of(bytes),
            size: bytes.len() as u64,
            mode: Mode::default(),
            attributes: (bytes == b"2").then(|| Content::of(b"set")),
        },
    }
}

fn sample() -> Manifest {
    Manifest::new(vec![
        file(b"src/a\xff", b"1"),
        dir("src"),
        file(b"src-b", b"2"),
        Entry {
            path: TreePath::new("link").unwrap(),
            kind: Kind::Symlink {
                target: LinkTarget(b"../\xfe".to_vec()),
            },
        },
        Entry {
            path: TreePath::new("sub").unwrap(),
            kind: Kind::Submodule {
                commit: "ab".repeat(20),
            },
        },
        Entry {
            path: TreePath::new("pipe").unwrap(),
            kind: Kind::Opaque { why: Opaque::Fifo },
        },
    ])
    .unwrap()
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let manifest = sample();
    assert_eq!(decode(&encode(&manifest)).unwrap(), manifest);
    let json = serde_json::to_string(manifest.entries()).unwrap();
    let back: Vec<Entry> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, manifest.entries());
}

#[test]
fn a_cut_anywhere_inside_an_entry_is_refused_and_never_yields_the_same_tree() {
    let manifest = sample();
    let bytes = encode(&manifest);
    for length in 0..bytes.len() {
        if let Ok(shorter) = decode(&bytes[..length]) {
            assert!(shorter.entries().len() < manifest.entries().len());
        }
    }
}

#[test]
fn a_file_that_is_also_a_directory_is_refused() {
    let twice = Manifest::new(vec![file(b"a", b""), file(b"a/b", b"")]);
    assert!(matches!(twice, Err(ManifestError::Orphan(_))));
    let orphan = Manifest::new(vec![file(b"a/b", b"")]);
    assert!(matches!(orphan, Err(ManifestError::Orphan(_))));
    let double = Manifest::new(vec![file(b"a", b"1"), file(b"a", b"2")]);
    assert!(matches!(double, Err(ManifestError::Order(_))));
}

#[test]
fn paths_that_climb_are_absolute_or_hold_stray_bytes_are_refused() {
    for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b"] {
        assert!(TreePath::new(bad).is_err(), "{bad:?}");
    }
    assert!(TreePath::new("a".repeat(256)).is_err());
    assert!(TreePath::new(vec!["d"; 201].join("/")).is_err());
    let deepest = TreePath::new(vec!["d"; 200].join("/")).unwrap();
    assert!(TreePath::join(Some(&deepest), b"x").is_err());
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert!(TreePath::join(None, bad).is_err());
    }
}

#[test]
fn a_name_with_terminal_escapes_or_bidirectional_marks_is_shown_as_escapes() {
    let path = TreePath::new("a\x1b[2J\u{202e}gpj.exe\n\u{200b}".as_bytes()).unwrap();
    let shown = path.to_string();
    assert!(!shown.contains('\x1b') && !shown.contains('\u{202e}') && !shown.contains('\n'));
    assert_eq!(TreePath::new(b"a\xff".to_vec()).unwrap().to_string(), "a\\xff");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic_and_what_it_accepts_is_canonical(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(manifest) = decode(&bytes) {
            prop_assert_eq!(encode(&manifest), bytes);
        }
    }

    #[test]
    fn one_flipped_bit_never_keeps_the_identity(at in 0_usize..200, bit in 0_u8..8) {
        let manifest = sample();
        let mut bytes = encode(&manifest);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(other) = decode(&bytes) {
            prop_assert_ne!(other.id(), manifest.id());
        }
    }

    #[test]
    fn base64_accepts_only_what_it_writes(text in "[A-Za-z0-9+/=]{0,12}") {
        if let Some(bytes) = crate::base64::decode(&text) {
            prop_assert_eq!(crate::base64::encode(&bytes), text);
        }
    }

    #[test]
    fn base64_reads_back_all_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(crate::base64::decode(&crate::base64::encode(&bytes)), Some(bytes));
    }
}

#[test]
fn a_tree_without_attributes_is_written_as_it_was_before_there_were_any() {
    let entry = file(b"a", b"1");
    let mut bytes = b"bastle manifest 1\nf\x01\x00a".to_vec();
    bytes.extend_from_slice(Content::of(b"1").as_bytes());
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let manifest = Manifest::new(vec![entry]).unwrap();
    assert_eq!(encode(&manifest), bytes);
    assert_eq!(decode(&bytes), Ok(manifest));
}
