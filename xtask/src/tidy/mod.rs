//! `cargo xtask tidy`: the rules of the house, each a small function over data.
//!
//! A rule takes what was read and returns findings; it never reads by itself, so that its tests can show it
//! failing. Only this file touches the disk.
mod documents;
mod graph;
mod lexer;
mod rules;
mod source;
mod text;

use crate::sh::{self, Failed};
use std::path::{Path, PathBuf};

/// One tracked file: path from the root with `/`, and its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Runs every rule and prints what breaks it.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    if let Some(argument) = arguments.first() {
        return Err(Failed::new("tidy", format!("unexpected argument {argument:?}")));
    }
    let findings = findings()?;
    for finding in &findings {
        println!("tidy: {finding}");
    }
    if findings.is_empty() {
        println!("tidy: every rule holds");
        Ok(())
    } else {
        Err(Failed::new("tidy", format!("{} findings", findings.len())))
    }
}

fn findings() -> Result<Vec<String>, Failed> {
    let root = sh::root();
    let files = read_tracked(&root)?;
    let graph = graph::Graph::load()?;
    let mut findings = Vec::new();
    findings.extend(graph::check(&graph, &root.to_string_lossy()));
    findings.extend(files.iter().flat_map(source::check));
    findings.extend(source::check_roots(&files));
    findings.extend(text::check(&files, &text::checkout_paths(&root)));
    findings.extend(documents::check(&files));
    findings.sort();
    Ok(findings)
}

/// Every text file git tracks or would track. Without git (an unpacked archive) the tree is walked.
fn read_tracked(root: &Path) -> Result<Vec<SourceFile>, Failed> {
    let mut git = std::process::Command::new("git");
    git.current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let paths = match sh::stdout_of(&mut git) {
        Ok(list) => list
            .split('\0')
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect(),
        Err(_) => walk(root)?,
    };
    let mut files = Vec::new();
    for path in paths {
        let full = root.join(&path);
        // A file deleted but not yet committed is still listed; a link is checked where it points.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(Failed::io(&path))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

/// What `.gitignore` names, for trees without git.
const NOT_OURS: &[&str] = &["target", "corpus", "artifacts", ".git", "build"];

fn walk(root: &Path) -> Result<Vec<String>, Failed> {
    let mut found = Vec::new();
    let mut pending: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let what = directory.display().to_string();
        for entry in std::fs::read_dir(&directory).map_err(Failed::io(&what))? {
            let entry = entry.map_err(Failed::io(&what))?;
            let kind = entry.file_type().map_err(Failed::io(&what))?;
            let name = entry.file_name();
            if kind.is_dir() && !NOT_OURS.iter().any(|ignored| name == *ignored) {
                pending.push(entry.path());
            } else if kind.is_file()
                && let Ok(relative) = entry.path().strip_prefix(root)
            {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walking_without_git_finds_this_file_and_no_build_output() {
        let found = walk(&sh::root()).expect("the repository can be walked");
        assert!(found.iter().any(|path| path == "xtask/src/tidy/mod.rs"));
        assert!(!found.iter().any(|path| path.starts_with("target/")));
    }

    #[test]
    fn the_tracked_files_have_paths_from_the_root() {
        let files = read_tracked(&sh::root()).expect("the repository can be read");
        assert!(files.iter().any(|file| file.path == "Cargo.toml"));
    }
}
