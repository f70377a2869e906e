//! Rules over single source files and manifests.
use super::SourceFile;
use super::lexer::{code_only, lines_with_word};

/// The only folder where the compiler's checks may be set aside.
const KERNEL: &str = "crates/kernel/sys/";

/// Longest production file; a longer one does two things.
const MOST_LINES: usize = 500;

/// Longest file of tests: tables of attacks read best in one piece.
const MOST_TEST_LINES: usize = 800;

/// Every rule that looks at one file alone.
pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let mut findings = Vec::new();
    if file.path.ends_with(".rs") {
        findings.extend(no_header(file));
        findings.extend(too_long(file));
        findings.extend(unsafe_outside_kernel(file));
        findings.extend(ignored_without_reason(file));
    }
    // The fuzz crate is a workspace of its own and cannot inherit lints.
    if file.path.ends_with("Cargo.toml") && !file.path.starts_with("fuzz/") {
        findings.extend(lints_not_inherited(file));
    }
    findings
}

/// Every crate root but the kernel's forbids what only the kernel crate may do.
pub(super) fn check_roots(files: &[SourceFile]) -> Vec<String> {
    files
        .iter()
        .filter(|file| !file.path.starts_with(KERNEL) && is_crate_root(&file.path))
        .filter(|file| !code_only(&file.text).contains("#![forbid(unsafe_code)]"))
        .map(|file| format!("{}: no #![forbid(unsafe_code)]", file.path))
        .collect()
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("src/bin/")
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs") || path.ends_with("_tests.rs")
}

fn no_header(file: &SourceFile) -> Option<String> {
    (!file.text.starts_with("//!"))
        .then(|| format!("{}:1: opens without a //! header (purpose and trust)", file.path))
}

fn too_long(file: &SourceFile) -> Option<String> {
    let most = if is_test(&file.path) {
        MOST_TEST_LINES
    } else {
        MOST_LINES
    };
    let lines = file.text.lines().count();
    (lines > most).then(|| format!("{}: {lines} lines, at most {most}", file.path))
}

fn unsafe_outside_kernel(file: &SourceFile) -> Vec<String> {
    if file.path.starts_with(KERNEL) {
        return Vec::new();
    }
    lines_with_word(&code_only(&file.text), "unsafe")
        .into_iter()
        .map(|line| format!("{}:{line}: unsafe outside {KERNEL}", file.path))
        .collect()
}

fn ignored_without_reason(file: &SourceFile) -> Vec<String> {
    code_only(&file.text)
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("#[ignore]") || line.contains(", ignore)]"))
        .map(|(index, _)| {
            format!(
                "{}:{}: an ignored test needs a reason: #[ignore = \"…\"]",
                file.path,
                index + 1
            )
        })
        .collect()
}

fn lints_not_inherited(file: &SourceFile) -> Option<String> {
    let mut in_lints = false;
    for line in file.text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_lints = line == "[lints]";
        }
        if in_lints && line.replace(' ', "") == "workspace=true" {
            return None;
        }
    }
    Some(format!("{}: no [lints] workspace = true", file.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&file(path, text))
    }

    #[test]
    fn a_file_without_a_header_fails() {
        assert_eq!(findings("src/a.rs", "//! Why.\n"), Vec::<String>::new());
        assert_eq!(findings("src/a.rs", "\n//! Why.\n").len(), 1);
        assert_eq!(findings("src/a.rs", "/// Why.\nfn f() {}").len(), 1);
        assert_eq!(findings("src/a.rs", "").len(), 1);
    }

    #[test]
    fn production_files_end_at_500_lines_and_tests_at_800() {
        let lines = |count: usize| format!("//! x{}", "\n//".repeat(count - 1));
        assert_eq!(findings("src/a.rs", &lines(500)), Vec::<String>::new());
        assert_eq!(
            findings("src/a.rs", &lines(501)),
            ["src/a.rs: 501 lines, at most 500"]
        );
        assert_eq!(findings("tests/a.rs", &lines(800)), Vec::<String>::new());
        assert_eq!(findings("crates/x/tests/a.rs", &lines(801)).len(), 1);
        assert_eq!(findings("src/attests/a.rs", &lines(501)).len(), 1);
    }

    #[test]
    fn the_word_is_refused_everywhere_but_in_the_kernel_crate() {
        let text = "//! x\nfn f() { unsafe { g() } }";
        assert_eq!(
            findings("crates/shared/audit/src/a.rs", text),
            ["crates/shared/audit/src/a.rs:2: unsafe outside crates/kernel/sys/"]
        );
        assert_eq!(findings("crates/kernel/system/src/a.rs", text).len(), 1);
        assert_eq!(findings("crates/kernel/sys/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_crate_root_without_the_forbid_line_fails_and_a_comment_does_not_count() {
        let with = file("crates/shared/a/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n");
        let without = file(
            "crates/shared/b/src/lib.rs",
            "//! x\n// #![forbid(unsafe_code)]\n",
        );
        let inner = file("crates/shared/b/src/inner.rs", "//! x\n");
        let kernel = file("crates/kernel/sys/src/lib.rs", "//! x\n");
        assert_eq!(
            check_roots(&[with, without, inner, kernel]),
            ["crates/shared/b/src/lib.rs: no #![forbid(unsafe_code)]"]
        );
    }

    #[test]
    fn an_ignored_test_without_a_reason_fails() {
        assert_eq!(findings("tests/a.rs", "//! x\n#[ignore]\nfn f() {}").len(), 1);
        assert_eq!(
            findings("tests/a.rs", "//! x\n#[cfg_attr(miri, ignore)]\nfn f() {}").len(),
            1
        );
        let reasoned = "//! x\n#[ignore = \"needs a second machine\"]\nfn f() {}";
        assert_eq!(findings("tests/a.rs", reasoned), Vec::<String>::new());
    }

    #[test]
    fn a_manifest_that_does_not_inherit_the_lints_fails() {
        let good = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        let elsewhere = "[package]\n[dependencies]\nworkspace = true\n[lints]\n";
        assert_eq!(findings("a/Cargo.toml", good), Vec::<String>::new());
        assert_eq!(findings("a/Cargo.toml", elsewhere).len(), 1);
        assert_eq!(findings("fuzz/Cargo.toml", elsewhere), Vec::<String>::new());
    }
}
