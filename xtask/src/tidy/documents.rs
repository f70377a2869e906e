//! Rules over documents: every promise names tests that exist, and the change log is open.
use super::SourceFile;
use super::lexer::code_only;
use std::collections::BTreeSet;

/// Where each promise names its tests: `| F1 | `test_fn`, `other_fn` | file |`.
const REQUIREMENTS: &str = "docs/requirements.md";
const CHANGELOG: &str = "CHANGELOG.md";

/// Every rule of this file.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let mut findings = Vec::new();
    match text_of(REQUIREMENTS) {
        Some(text) => findings.extend(check_requirements(text, &functions(files))),
        None => findings.push(format!("{REQUIREMENTS} is missing")),
    }
    match text_of(CHANGELOG) {
        Some(text) => findings.extend(check_changelog(text)),
        None => findings.push(format!("{CHANGELOG} is missing")),
    }
    findings
}

/// Names of all functions in the tree.
fn functions(files: &[SourceFile]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let code = code_only(&file.text);
        let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let mut after_fn = false;
        for word in words.filter(|word| !word.is_empty()) {
            if after_fn {
                names.insert(word.to_owned());
            }
            after_fn = word == "fn";
        }
    }
    names
}

fn check_requirements(text: &str, functions: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rows = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [id, tests, ..] = cells.as_slice() else {
            continue;
        };
        if !line.trim_start().starts_with('|') || !is_id(id) {
            continue;
        }
        let place = format!("{REQUIREMENTS}:{}", index + 1);
        if !rows.insert(*id) {
            findings.push(format!("{place}: promise {id} has a row already"));
        }
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(format!("{place}: promise {id} names no test"));
        }
        for name in names {
            let last = name.rsplit("::").next().unwrap_or(name);
            if !functions.contains(last) {
                findings.push(format!(
                    "{place}: promise {id} names the test {name}, which does not exist"
                ));
            }
        }
    }
    if rows.is_empty() {
        findings.push(format!("{REQUIREMENTS}: no row was understood"));
    }
    findings
}

/// `F1`, `P10`, `N5+`: a group letter, a number, and `+` for what nobody else has.
fn is_id(cell: &str) -> bool {
    let cell = cell.trim_end_matches('+');
    let mut characters = cell.chars();
    characters.next().is_some_and(|c| c.is_ascii_uppercase())
        && cell.len() > 1
        && characters.all(|c| c.is_ascii_digit())
}

fn check_changelog(text: &str) -> Option<String> {
    let open = text.lines().any(|line| {
        line.starts_with("## ")
            && line[3..]
                .trim()
                .trim_matches(['[', ']'])
                .eq_ignore_ascii_case("unreleased")
    });
    (!open).then(|| format!("{CHANGELOG}: no `## Unreleased` section"))
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

    fn findings(requirements: &str, code: &str) -> Vec<String> {
        check(&[
            file(REQUIREMENTS, requirements),
            file(CHANGELOG, "# Changes\n\n## Unreleased\n"),
            file("tests/a.rs", code),
        ])
    }

    #[test]
    fn a_promise_whose_tests_exist_passes() {
        let table =
            "| id | tests | file |\n|---|---|---|\n| F1 | `escape::it_holds`, `b_holds` | tests/a.rs |\n";
        assert_eq!(
            findings(table, "fn it_holds() {}\nasync fn b_holds<T>() {}"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_promise_that_names_a_missing_test_fails_and_a_comment_does_not_count() {
        let table = "| F1 | `it_holds` | tests/a.rs |";
        let expected = ["docs/requirements.md:1: promise F1 names the test it_holds, which does not exist"];
        assert_eq!(findings(table, "fn it_holds_too() {}"), expected);
        assert_eq!(findings(table, "// fn it_holds() {}"), expected);
    }

    #[test]
    fn a_promise_with_two_rows_fails() {
        let table = "| F1 | `it_holds` | tests/a.rs |\n| F1 | `it_holds` | tests/a.rs |";
        assert_eq!(
            findings(table, "fn it_holds() {}"),
            ["docs/requirements.md:2: promise F1 has a row already"]
        );
    }

    #[test]
    fn a_promise_without_a_test_fails() {
        assert_eq!(
            findings("| N5+ | later | |", ""),
            ["docs/requirements.md:1: promise N5+ names no test"]
        );
    }

    #[test]
    fn a_table_that_is_not_understood_is_a_finding_and_not_a_pass() {
        assert_eq!(findings("- F1: `it_holds`", "fn it_holds() {}").len(), 1);
    }

    #[test]
    fn missing_documents_fail() {
        assert_eq!(
            check(&[]),
            ["docs/requirements.md is missing", "CHANGELOG.md is missing"]
        );
    }

    #[test]
    fn a_change_log_without_an_open_section_fails() {
        assert_eq!(check_changelog("# Changes\n## [Unreleased]\n"), None);
        assert!(check_changelog("# Changes\n## 0.1.0\nUnreleased\n").is_some());
    }
}
