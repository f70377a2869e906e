//! The table of what the specification demands of a server, and of the tests that hold it.
use std::path::Path;

#[test]
fn every_demand_of_the_specification_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("docs/a2a-conformance.md")).unwrap();
    let mut sources = String::new();
    for directory in ["tests/a2a", "crates/unprivileged/serve/src/a2a", "tests/api"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap().flatten() {
            if entry.path().extension().is_some_and(|end| end == "rs") {
                sources.push_str(&std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| § ") && !line.contains("| demand |"))
        .collect();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let tests: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        let apart = cells[3].starts_with("not ");
        assert!(apart || !tests.is_empty(), "no test: {row}");
        for test in tests {
            assert!(
                sources.contains(&format!("fn {test}(")),
                "there is no test {test}"
            );
        }
    }
}
