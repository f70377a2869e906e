//! The catalogue of names that programs on the host system execute or obey: one data file for the import gate and
//! for the names that are protected in place.
//!
//! **Trust:** data of this binary. A file that does not parse is a fault, never an empty list: without it the gate
//! and the protect list would be open.
use bastle_contract::{Code, Fault, HostExecuted};
use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    format: u8,
    entries: Vec<HostExecuted>,
}

static CATALOGUE: LazyLock<Result<Vec<HostExecuted>, String>> =
    LazyLock::new(|| read(include_str!("../../../shared/contract/data/host-executed.json")));

fn read(text: &str) -> Result<Vec<HostExecuted>, String> {
    let catalogue: Catalogue = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if catalogue.format != 1 {
        return Err(format!("format {} is unknown", catalogue.format));
    }
    if catalogue.entries.is_empty() {
        return Err("it has no entries".to_owned());
    }
    Ok(catalogue.entries)
}

/// Every entry, parsed once.
///
/// # Errors
/// When the data of this build is malformed.
pub fn catalogue() -> Result<&'static [HostExecuted], Fault> {
    match &*CATALOGUE {
        Ok(entries) => Ok(entries),
        Err(why) => Err(Fault::new(
            Code::WorkspaceApproval,
            "catalogue of names that the host executes",
            why.clone(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::BuiltInNames;
    use std::collections::BTreeSet;

    /// The path that an entry states, or the pattern itself where it has no wildcard inside a name.
    fn example(entry: &HostExecuted) -> String {
        let plain = |pattern: &str| {
            let below = pattern.strip_prefix("**/").unwrap_or(pattern);
            below.strip_suffix("/**").map_or_else(
                || below.replace("/**/", "/x/"),
                |directory| format!("{directory}/x"),
            )
        };
        entry
            .example
            .clone()
            .unwrap_or_else(|| plain(entry.pattern.as_str()))
    }

    #[test]
    fn every_entry_says_who_executes_it_when_and_where_that_is_documented() {
        let entries = catalogue().unwrap();
        assert!(entries.len() >= 450, "{}", entries.len());
        let unique: BTreeSet<String> = entries
            .iter()
            .map(|entry| entry.pattern.as_str().to_lowercase())
            .collect();
        assert_eq!(unique.len(), entries.len(), "a pattern stands twice");
        for entry in entries {
            let pattern = &entry.pattern;
            assert!(
                ["executed", "obeyed"]
                    .iter()
                    .any(|verb| entry.reason.starts_with(verb)),
                "{pattern}: {}",
                entry.reason
            );
            assert!(
                entry.reason.len() > 30 && !entry.reason.ends_with('.'),
                "{pattern}"
            );
            assert!(entry.reference.len() > 5, "{pattern}");
        }
    }

    #[test]
    fn every_pattern_names_its_example_at_every_depth_it_claims_and_in_every_case() {
        for entry in catalogue().unwrap() {
            let example = example(entry);
            let inner = entry.pattern.as_str().replace("**/", "").replace("/**", "");
            assert_eq!(
                entry.example.is_some(),
                inner.contains('*'),
                "{}: an example is stated exactly where a name has a wildcard",
                entry.pattern
            );
            assert!(
                entry.pattern.matches(example.as_bytes()),
                "{} {example}",
                entry.pattern
            );
            let upper = example.to_uppercase();
            assert!(
                entry.pattern.matches(upper.as_bytes()),
                "{} {upper}",
                entry.pattern
            );
            let deep = format!("packages/app/{example}");
            assert_eq!(
                entry.pattern.matches(deep.as_bytes()),
                entry.pattern.as_str().starts_with("**/"),
                "{} {deep}",
                entry.pattern
            );
        }
    }

    #[test]
    fn no_pattern_names_an_obviously_harmless_neighbour() {
        const HARMLESS: &[&str] = &[
            "src/main.rs",
            "src/lib.rs",
            "lib/parser.py",
            "app/models/user.rb",
            "cmd/server/main.go",
            "internal/store/store_test.go",
            "src/components/Button.tsx",
            "src/styles/site.css",
            "include/list.h",
            "src/list.c",
            "README.md",
            "docs/guide.md",
            "LICENSE",
            "CHANGELOG.md",
            "assets/logo.png",
            "data/cities.csv",
            "locales/en.json",
            "src/config.rs",
            "src/workspace.rs",
            "src/directory.py",
            "src/inventory.py",
            "src/codegen.rs",
            "src/project/list.ts",
            "src/roles/admin.ts",
            "src/charts/Bar.tsx",
            "src/recipes/index.ts",
            "tests/parse_test.py",
            "src/moon.rs",
            "src/parcel.rs",
            "src/bootstrap.ts",
            "src/run.rs",
            "src/test.c",
        ];
        for entry in catalogue().unwrap() {
            for path in HARMLESS {
                assert!(
                    !entry.pattern.matches(path.as_bytes()),
                    "{} names {path}",
                    entry.pattern
                );
            }
            // The same name as plain text about it, and the same name with more before it, are other files.
            let stem = example(entry);
            let last = stem.rsplit('/').next().unwrap_or(&stem);
            let neighbour = format!("notes/about_{}.notes.txt", last.replace('.', "_"));
            assert!(
                !entry.pattern.matches(neighbour.as_bytes()),
                "{} names {neighbour}",
                entry.pattern
            );
        }
    }

    #[test]
    fn an_entry_is_protected_in_place_exactly_where_the_plan_names_it() {
        // What git itself writes at every commit is held elsewhere.
        let written_by_git = ["**/.git/**", "**/*.git/HEAD", "**/HEAD", "**/packed-refs"];
        let catalogue = catalogue().unwrap().iter();
        let held = catalogue
            .filter(|entry| entry.protect_in_place)
            .map(|entry| entry.pattern.as_str())
            .filter(|text| !written_by_git.contains(text))
            .map(|text| text.strip_suffix("/**").unwrap_or(text));
        let expected: BTreeSet<&str> = held
            .chain(BuiltInNames::Repository.texts().iter().copied())
            .collect();
        let list: BTreeSet<&str> = BuiltInNames::Project.texts().iter().copied().collect();
        assert_eq!(list, expected);
    }

    #[test]
    fn what_runs_without_being_asked_is_protected_in_place() {
        let covered = |path: &str| {
            catalogue()
                .unwrap()
                .iter()
                .any(|entry| entry.protect_in_place && entry.pattern.matches(path.as_bytes()))
        };
        for path in [
            ".git/hooks/pre-commit",
            "sub/.git",
            ".gitmodules",
            ".gitattributes",
            ".github/workflows/ci.yml",
            ".vscode/tasks.json",
            ".idea/workspace.xml",
            ".envrc",
            ".bashrc",
            ".claude/settings.json",
            ".mcp.json",
            "AGENTS.md",
            "agent-permissions.json",
            ".husky/pre-commit",
            ".cargo/config.toml",
            ".npmrc",
            "git-rebase-todo",
        ] {
            assert!(covered(path), "{path}");
        }
        // An agent that works in place edits these by its task.
        for path in [
            "Makefile",
            "package.json",
            "Cargo.toml",
            "build.rs",
            "src/main.rs",
        ] {
            assert!(!covered(path), "{path}");
        }
    }

    #[test]
    fn a_catalogue_that_does_not_parse_or_is_empty_is_refused() {
        for bad in [
            "",
            "{}",
            r#"{"format":2,"entries":[]}"#,
            r#"{"format":1,"entries":[]}"#,
            r#"{"format":1,"entries":[{"pattern":"/abs","kind":"ci","reason":"r","reference":"r","protect_in_place":true}]}"#,
            r#"{"format":1,"entries":[{"pattern":"a","kind":"unheard","reason":"r","reference":"r","protect_in_place":true}]}"#,
            r#"{"format":1,"entries":[{"pattern":"a","kind":"ci","reason":"r","reference":"r"}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
