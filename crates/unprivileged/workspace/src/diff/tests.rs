//! Comparison and merge against git and against hostile text.
use super::lines::{matching, split};
use super::*;
use crate::audit_delta::{Change, Scope, delta};
use crate::testing::{Folder, manifest, path, user_git, write};
use proptest::prelude::*;

fn one(before: Option<&[u8]>, after: Option<&[u8]>, name: &str) -> FileDiff {
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().to_owned());
    let change = Change {
        path: path(name),
        before: before.map(|b| blobs.put(b)),
        after: after.map(|b| blobs.put(b)),
    };
    diff(&change, &blobs).unwrap()
}

#[test]
fn a_diff_shows_no_escape_sequence_of_a_name_or_a_line() {
    let diffs = [one(
        Some(b"a\n"),
        Some(b"a\x1b]0;owned\x07\n\xe2\x80\xaeevil\n"),
        "x\x1b[2J\n\u{202e}y",
    )];
    for shown in [
        unified(&diffs),
        stat(&diffs),
        name_only(&diffs),
        json(&diffs, &[], "calm-otter").to_string(),
    ] {
        assert!(
            !shown.contains('\x1b') && !shown.contains('\x07') && !shown.contains('\u{202e}'),
            "{shown:?}"
        );
    }
    assert_eq!(name_only(&diffs).lines().count(), 1);
}

#[test]
fn a_change_of_attributes_alone_is_shown_and_left_out_of_a_patch() {
    let mut changed = one(Some(b"a\n"), Some(b"a\n"), "x");
    if let Some(crate::manifest::Kind::File { attributes, .. }) = &mut changed.after {
        *attributes = Some(crate::manifest::Content::of(b"set"));
    }
    let diffs = [changed];
    assert!(unified(&diffs).contains("extended attributes change\n"));
    assert!(stat(&diffs).contains("attributes changed"));
    let made = patch(&diffs);
    assert!(made.bytes.is_empty(), "git refuses a header without a change");
    assert_eq!(
        made.left_out,
        [Lacking {
            path: path("x"),
            why: WhyLacking::Attributes
        }]
    );
}

#[test]
fn binary_and_large_contents_are_named_and_not_shown() {
    assert_eq!(one(Some(b"a"), Some(b"a\0b"), "x").body, Body::Binary);
    assert_eq!(one(Some(b"a"), Some(b"\xff\xfe"), "x").body, Body::Binary);
    assert_eq!(
        one(None, Some(&vec![b'a'; (8 << 20) + 1]), "x").body,
        Body::TooLarge
    );
}

#[test]
fn hunks_carry_three_lines_of_context_and_the_right_numbers() {
    let old: Vec<u8> = (1..=20).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let new = String::from_utf8(old.clone()).unwrap().replace("10\n", "ten\n");
    let Body::Text(hunks) = one(Some(&old), Some(new.as_bytes()), "x").body else {
        panic!()
    };
    assert_eq!(
        (hunks.len(), hunks[0].old, hunks[0].new, hunks[0].lines.len()),
        (1, (7, 7), (7, 7), 8)
    );
}

#[test]
fn a_patch_applied_by_git_gives_exactly_the_agents_tree() {
    let stage = tempfile::tempdir().unwrap();
    let (old, new, blobs) = (
        stage.path().join("old"),
        stage.path().join("new"),
        stage.path().join("blobs"),
    );
    for directory in [&old, &new, &blobs] {
        std::fs::create_dir(directory).unwrap();
    }
    let blobs = Folder(blobs);
    write(&old, "keep", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    write(&new, "keep", b"0\n1\n2\n3\n4\n5\nsix\n7\n8\n9");
    write(&old, "gone", b"bye\n");
    write(&new, "with blank/é\n\"q\"\\", b"no newline");
    write(&old, "made-executable", b"x\n");
    write(&new, "made-executable", b"x\n");
    std::os::unix::fs::symlink("keep", new.join("link")).unwrap();
    std::fs::set_permissions(
        new.join("made-executable"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let (before, after) = (manifest(&old, &blobs), manifest(&new, &blobs));
    let diffs: Vec<FileDiff> = delta(&before, &after, Scope::Work)
        .iter()
        .map(|change| diff(change, &blobs).unwrap())
        .collect();
    let made = patch(&diffs);
    assert!(made.left_out.is_empty());
    std::fs::write(stage.path().join("p"), made.bytes).unwrap();
    user_git(&old, &["apply", "../p"]);
    assert_eq!(manifest(&old, &blobs), after);
}

#[test]
fn changes_to_different_lines_merge_and_to_the_same_line_conflict() {
    let base = b"1\n2\n3\n4\n5\n";
    assert_eq!(
        merge(base, b"one\n2\n3\n4\n5\n", b"1\n2\n3\n4\nfive\n"),
        Merged::Clean(b"one\n2\n3\n4\nfive\n".to_vec())
    );
    assert_eq!(
        merge(base, b"1\nX\n3\n4\n5\n", b"1\nX\n3\n4\n5\n"),
        Merged::Clean(b"1\nX\n3\n4\n5\n".to_vec())
    );
    let Merged::Conflict { marked, count: 1 } = merge(base, b"1\nA\n3\n4\n5\n", b"1\nB\n3\n4\n5\n") else {
        panic!()
    };
    assert_eq!(
        marked,
        b"1\n<<<<<<< host\nA\n||||||| when the copy was made\n2\n=======\nB\n>>>>>>> agent\n3\n4\n5\n"
    );
    assert_eq!(merge(b"\0", b"a", b"b"), Merged::NotText);
}

#[test]
fn a_text_made_to_be_slow_ends_and_stays_correct() {
    let a: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761) % 97).into_bytes())
        .collect();
    let b: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| format!("{}\n", n.wrapping_mul(40_503) % 89).into_bytes())
        .collect();
    let (a, b) = (split(&a), split(&b));
    let pairs = matching(&a, &b);
    let mut last = None;
    for (at, pair) in pairs
        .iter()
        .enumerate()
        .filter_map(|(at, pair)| Some((at, (*pair)?)))
    {
        assert!(a[at] == b[pair] && last.is_none_or(|last| last < pair));
        last = Some(pair);
    }
}

/// Names that a patch must quote, split or order with care.
const NAMES: &[&str] = &[
    "a.txt",
    "b c.txt",
    "d",
    "d/e",
    "d/f g",
    "q\"x\\y",
    "new\nline",
    "tab\tx",
    "é/ü",
    " lead",
    "trail ",
    "-x",
    "b/b b/b",
    "z b/z",
];

/// One name with what stands there: nothing, or a file, or a link.
fn put(root: &std::path::Path, name: &str, what: u8, salt: u8) {
    let at = root.join(name);
    let content: Vec<u8> = match what {
        0 => return,
        1 => (0..20)
            .flat_map(|n| format!("line {}\n", if n == salt % 20 { 99 } else { n }).into_bytes())
            .collect(),
        2 => format!("no newline {salt}").into_bytes(),
        3 => vec![0, 1, salt, b'\n', 0xff, b'\r', b'\n', 0, salt],
        4 => format!("dos {salt}\r\nline\r\n").into_bytes(),
        5 => Vec::new(),
        _ => format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-- {salt}\n").into_bytes(),
    };
    // A name that is both a file and a directory of another is left to the first one.
    if std::fs::create_dir_all(at.parent().unwrap()).is_err() || at.is_dir() {
        return;
    }
    if what == 7 {
        std::os::unix::fs::symlink(format!("to {salt}"), &at).unwrap();
        return;
    }
    std::fs::write(&at, content).unwrap();
    if salt.is_multiple_of(3) {
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// Applies a patch with real git and compares names, kinds, modes and contents.
fn git_makes_it(old: &[(u8, u8)], new: &[(u8, u8)]) {
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().join("blobs"));
    let (from, to) = (stage.path().join("from"), stage.path().join("to"));
    for one in [&blobs.0, &from, &to] {
        std::fs::create_dir(one).unwrap();
    }
    for (root, tree) in [(&from, old), (&to, new)] {
        for (name, (what, salt)) in NAMES.iter().zip(tree) {
            put(root, name, *what, *salt);
        }
    }
    user_git(&from, &["init", "-q"]);
    user_git(&from, &["config", "core.autocrlf", "false"]);
    let (before, after) = (manifest(&from, &blobs), manifest(&to, &blobs));
    let diffs: Vec<FileDiff> = delta(&before, &after, Scope::Work)
        .iter()
        .map(|change| diff(change, &blobs).unwrap())
        .collect();
    let made = exact_patch(&diffs, &blobs).unwrap();
    assert_eq!(made.left_out, Vec::new());
    if made.bytes.is_empty() {
        return;
    }
    // Lines of ours before a difference are passed over.
    let bytes = [
        b"!! held: executed by make when a target is built\n".as_slice(),
        &made.bytes,
    ]
    .concat();
    std::fs::write(stage.path().join("p"), bytes).unwrap();
    user_git(&from, &["apply", "--check", "../p"]);
    user_git(&from, &["apply", "--whitespace=nowarn", "../p"]);
    let files = |manifest: &crate::manifest::Manifest| -> Vec<crate::manifest::Entry> {
        let all = manifest.entries().iter();
        all.filter(|entry| entry.kind != crate::manifest::Kind::Dir)
            .cloned()
            .collect()
    };
    assert_eq!(files(&manifest(&from, &blobs)), files(&after));
}

#[test]
fn git_applies_every_sort_of_change_and_makes_the_same_tree() {
    let all = |what: fn(usize) -> u8, salt: u8| -> Vec<(u8, u8)> {
        (0..NAMES.len())
            .map(|at| (what(at), salt + u8::try_from(at).unwrap()))
            .collect()
    };
    let nothing = all(|_| 0, 0);
    for what in 1..=7_u8 {
        let one: Vec<(u8, u8)> = nothing.iter().map(|(_, salt)| (what, *salt)).collect();
        git_makes_it(&nothing, &one);
        git_makes_it(&one, &nothing);
    }
    for shift in 0..8_usize {
        let mixed: Vec<(u8, u8)> = (0..NAMES.len())
            .map(|at| (u8::try_from((at + shift) % 8).unwrap(), 7))
            .collect();
        git_makes_it(&all(|at| u8::try_from(at % 8).unwrap(), 3), &mixed);
    }
}

#[test]
fn git_applies_names_of_any_bytes_renames_and_files_that_change_places_with_directories() {
    use std::os::unix::ffi::OsStrExt;
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().join("blobs"));
    let (from, to) = (stage.path().join("from"), stage.path().join("to"));
    for one in [&blobs.0, &from, &to] {
        std::fs::create_dir(one).unwrap();
    }
    let at = |root: &std::path::Path, name: &[u8]| root.join(std::ffi::OsStr::from_bytes(name));
    let make = |root: &std::path::Path, name: &[u8], content: &[u8]| {
        let path = at(root, name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    // Names that are not UTF-8, with control characters, and with what git escapes by a letter.
    for name in [
        &b"latin \xe9"[..],
        b"\xff\xfe",
        b"a\x01b",
        b"r\rb",
        b"bell\x07",
        b"\xc3\xa9\xe9/in \x80",
    ] {
        make(&from, name, b"old\n");
        make(&to, name, b"new");
    }
    for name in [&b"made \xe9"[..], b"empty \xe9", b"dir \xe9/\x7f"] {
        make(&to, name, if name.starts_with(b"empty") { b"" } else { b"x\n" });
    }
    make(&from, b"gone \xe9", b"x\n");
    make(&from, b"emptied", b"x\n");
    make(&to, b"emptied", b"");
    make(&from, b"before the rename", b"1\n2\n3\n");
    make(&to, b"after/the rename", b"1\n2\n3\n");
    make(&from, b"file", b"was a file\n");
    make(&to, b"file/inner/one", b"is below\n");
    make(&to, b"file/two", b"\0\x01");
    make(&from, b"dir/inner/one", b"was below\n");
    make(&from, b"dir/two", b"\0\x01");
    make(&to, b"dir", b"is a file\n");
    make(&from, b"link-dir/one", b"was below\n");
    std::os::unix::fs::symlink("dir", to.join("link-dir")).unwrap();
    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(b"to \xe9"), from.join("link-file")).unwrap();
    make(&to, b"link-file", b"is a file\n");
    user_git(&from, &["init", "-q"]);
    let (before, after) = (manifest(&from, &blobs), manifest(&to, &blobs));
    let diffs: Vec<FileDiff> = delta(&before, &after, Scope::Work)
        .iter()
        .map(|change| diff(change, &blobs).unwrap())
        .collect();
    let made = exact_patch(&diffs, &blobs).unwrap();
    assert_eq!(made.left_out, Vec::new());
    std::fs::write(stage.path().join("p"), made.bytes).unwrap();
    user_git(&from, &["apply", "--whitespace=nowarn", "../p"]);
    assert_eq!(manifest(&from, &blobs), after);
}

#[test]
fn what_is_shown_with_escapes_is_never_a_patch_that_git_applies() {
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().join("blobs"));
    let (from, to) = (stage.path().join("from"), stage.path().join("to"));
    for one in [&blobs.0, &from, &to] {
        std::fs::create_dir(one).unwrap();
    }
    user_git(&from, &["init", "-q"]);
    for (name, content, applies) in [
        ("plain.txt", &b"a\nb\n"[..], true),
        ("tabs.txt", b"a\tb\n", true),
        ("escape.txt", b"a\x1b[2J\n", false),
        ("binary.txt", b"a\0b\n", false),
        ("dos.txt", b"a\r\n", false),
        ("latin.txt", b"\xe9\n", false),
        ("name\u{1b}.txt", b"a\n", true),
    ] {
        write(&to, name, content);
        let (before, after) = (manifest(&from, &blobs), manifest(&to, &blobs));
        let text: String = delta(&before, &after, Scope::Work)
            .iter()
            .map(|change| reviewed(&diff(change, &blobs).unwrap()))
            .collect();
        assert!(!text.contains(['\u{1b}', '\0', '\r']), "{name:?}: {text:?}");
        std::fs::write(stage.path().join("p"), &text).unwrap();
        let checked = std::process::Command::new("git")
            .args(["apply", "--check", "../p"])
            .current_dir(&from)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert_eq!(checked.status.success(), applies, "{name:?}: {text} {checked:?}");
        std::fs::remove_file(to.join(name)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn git_makes_the_tree_of_any_two_states(
        old in proptest::collection::vec((0..8_u8, 0..4_u8), NAMES.len()),
        new in proptest::collection::vec((0..8_u8, 0..4_u8), NAMES.len()),
    ) {
        git_makes_it(&old, &new);
    }
}

proptest! {
    #[test]
    fn matched_lines_are_equal_and_in_order(a in "[ab\n]{0,40}", b in "[ab\n]{0,40}") {
        let (a, b) = (split(a.as_bytes()), split(b.as_bytes()));
        let pairs = matching(&a, &b);
        let mut last = None;
        for (at, pair) in pairs.iter().enumerate().filter_map(|(at, pair)| Some((at, (*pair)?))) {
            prop_assert!(a[at] == b[pair] && last.is_none_or(|last| last < pair));
            last = Some(pair);
        }
        // Shortest: as many matches as the longest common subsequence.
        let mut table = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
        for i in 0..a.len() { for j in 0..b.len() {
            table[i + 1][j + 1] = if a[i] == b[j] { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
        } }
        prop_assert_eq!(pairs.iter().flatten().count(), table[a.len()][b.len()]);
    }

    #[test]
    fn no_bytes_make_comparison_or_merge_panic(bytes: Vec<u8>) { fuzz_merge(&bytes); }

    #[test]
    fn text_like_bytes_do_not_either(text in "[abc\n]{0,90}") { fuzz_merge(text.as_bytes()); }
}
