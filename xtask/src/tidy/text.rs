//! Rules over the text of every tracked file: no package registry is named, no developer's machine is named.
use super::SourceFile;
use std::path::Path;

/// Registry hosts in two halves, so that this file does not name what it forbids.
const REGISTRIES: &[(&str, &str)] = &[
    ("crates", "io"),
    ("registry.npmjs", "org"),
    ("registry.yarnpkg", "com"),
    ("pypi", "org"),
    ("files.pythonhosted", "org"),
    ("deb.debian", "org"),
    ("security.debian", "org"),
    ("archive.ubuntu", "com"),
    ("rubygems", "org"),
    ("proxy.golang", "org"),
    ("registry-1.docker", "io"),
    ("static.rust-lang", "org"),
];

/// Places that name no particular machine: a checkout there gives no path to look for.
const COMMON_PLACES: &[&str] = &[
    "/",
    "/app",
    "/build",
    "/builds",
    "/code",
    "/home",
    "/mnt",
    "/opt",
    "/project",
    "/repo",
    "/root",
    "/src",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/usr/src",
    "/var",
    "/var/tmp",
    "/workspace",
];

/// Written by cargo, which names its registry in every entry.
fn is_lock_file(path: &str) -> bool {
    path.ends_with("Cargo.lock")
}

/// This checkout and its parent: a file that names them works on this machine only.
pub(super) fn checkout_paths(root: &Path) -> Vec<String> {
    [Some(root), root.parent()]
        .into_iter()
        .flatten()
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !COMMON_PLACES.contains(&path.as_str()))
        .collect()
}

/// Every rule of this file.
pub(super) fn check(files: &[SourceFile], machine_paths: &[String]) -> Vec<String> {
    let registries: Vec<String> = REGISTRIES
        .iter()
        .map(|(name, top)| format!("{name}.{top}"))
        .collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_lock_file(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, index + 1);
            for host in registries.iter().filter(|host| stands_alone(line, host)) {
                findings.push(format!("{place}: names the package registry {host}"));
            }
            for path in machine_paths.iter().filter(|path| stands_alone(line, path)) {
                findings.push(format!("{place}: names {path}, a path of this machine"));
            }
        }
    }
    findings
}

/// Whether `needle` occurs as a whole name: `/srv/x` is not in `/srv/xy`, nor in `./srv/x`.
fn stands_alone(line: &str, needle: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        let opens = if needle.starts_with('/') {
            !before.is_some_and(|c| joins(c) || c == '.' || c == '/' || c == '~')
        } else {
            // A subdomain of a registry is the registry too.
            !before.is_some_and(joins)
        };
        opens && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check(&[file], &["/yard/bastle".to_owned(), "/yard".to_owned()])
    }

    #[test]
    fn a_registry_host_is_found_also_as_a_subdomain_but_not_in_the_lock_file() {
        let host = format!("see https://static.{}.{}/x", "crates", "io");
        assert_eq!(findings("README.md", &host).len(), 1);
        assert_eq!(findings("Cargo.lock", &host), Vec::<String>::new());
        assert_eq!(findings("README.md", "mycrates.iota"), Vec::<String>::new());
    }

    #[test]
    fn a_path_of_this_machine_is_found_and_its_lookalikes_are_not() {
        assert_eq!(findings("a.rs", "read \"/yard/notes.md\"").len(), 1);
        assert_eq!(findings("a.rs", "x\n/yard\n").len(), 1);
        assert_eq!(findings("a.rs", "/yard/bastle/x").len(), 2);
        for harmless in [
            "/yards",
            "./yard/x",
            "~/yard",
            "/home/a/yard",
            "yard/x",
            "/yard-dir",
        ] {
            assert_eq!(findings("a.rs", harmless), Vec::<String>::new(), "{harmless}");
        }
    }

    #[test]
    fn a_checkout_in_a_common_place_gives_no_path_to_look_for() {
        assert_eq!(checkout_paths(Path::new("/workspace")), Vec::<String>::new());
        assert_eq!(checkout_paths(Path::new("/tmp/bastle")), ["/tmp/bastle"]);
        assert_eq!(
            checkout_paths(Path::new("/home/kim/bastle")),
            ["/home/kim/bastle", "/home/kim"]
        );
    }
}
