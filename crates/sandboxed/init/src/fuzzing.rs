//! What fuzz targets reach of this crate. Nothing else uses it.
use crate::guard::{decides, walks_alike};
use bastle_contract::{AbsPath, GuardedTree, NameList, NamePattern, OpenName, OpenScope, TreeKind};

/// A path as the write guard gets it, judged by patterns and an exception: lines of patterns, an empty line, the exception,
/// and the path below the tree. The guard walks a path once for all ways to read a pattern; the contract tries them one
/// after the other: the two must agree, whatever the bytes are.
pub fn guard_path(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let (Some(patterns), Some(open), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    if data.len() > 4096 {
        return;
    }
    let patterns: Vec<NamePattern> = String::from_utf8_lossy(patterns)
        .lines()
        .take(8)
        .filter_map(|line| NamePattern::try_from(line.to_owned()).ok())
        .collect();
    let scope = match open.first() {
        Some(b'+') => OpenScope::Tree,
        Some(_) | None => OpenScope::File,
    };
    let below = String::from_utf8_lossy(open)
        .trim_start_matches('+')
        .trim_matches('/')
        .to_owned();
    let hide = NameList {
        built_in: bastle_contract::BuiltInNames::None,
        always: Vec::new(),
        unless_open: patterns,
        open: vec![OpenName { below, scope }],
    };
    let Ok(root) = AbsPath::new("/w") else { return };
    let tree = GuardedTree {
        root,
        hide: hide.clone(),
        protect: NameList::default(),
        pinned: NameList::default(),
        kind: TreeKind::Live,
    };
    let whole = [b"/w/", path].concat();
    let guarded = decides(&tree, &whole);
    // What the kernel gives is canonical; anything else must do no harm, and means nothing.
    let canonical = !path.is_empty() && path.split(|byte| *byte == b'/').all(|part| !part.is_empty());
    if canonical {
        assert_eq!(
            guarded,
            hide.covers(path),
            "the guard and the contract read a pattern differently"
        );
    }
    assert!(!decides(&tree, b"/w-evil/.env"), "a sibling lies in no tree");
}

/// A path through this system's own directories and links, walked as the guard walks it for a caller. Each byte chooses one
/// component.
pub fn guard_walk(data: &[u8]) {
    const COMPONENTS: [&str; 16] = [
        "..",
        ".",
        "",
        "bin",
        "sbin",
        "lib",
        "usr",
        "etc",
        "alternatives",
        "local",
        "share",
        "sh",
        "passwd",
        "none",
        "lib64",
        "var/run",
    ];
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::open("/usr", flags, rustix::fs::Mode::empty()) else {
        return;
    };
    let parts = data
        .iter()
        .take(64)
        .map(|byte| COMPONENTS[usize::from(byte % 16)]);
    let path = parts.collect::<Vec<_>>().join("/");
    // The kernel refuses an empty path; the guard never asks for one.
    if !path.is_empty() {
        assert!(
            walks_alike(std::os::fd::AsFd::as_fd(&root), path.as_bytes()),
            "the guard and the kernel walk {path:?} differently"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{guard_path, guard_walk, walks_alike};
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    proptest! {
        #[test]
        fn the_guard_walks_this_systems_paths_as_the_kernel_does(data in proptest::collection::vec(any::<u8>(), 1..24)) {
            guard_walk(&data);
        }

        #[test]
        fn the_guard_walks_any_links_as_the_kernel_does(
            links in proptest::collection::vec((0..6usize, "(/|\\.\\./|\\./){0,2}[a-f](/[a-f]){0,2}/?"), 0..6),
            path in "(/?[a-f.]{1,2}){1,6}",
        ) {
            let stage = tempfile::tempdir().unwrap();
            let tree = stage.path().join("t");
            std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
            std::fs::create_dir_all(tree.join("b/a")).unwrap();
            std::fs::write(tree.join("a/d"), "").unwrap();
            let places = ["c", "d", "e", "f", "a/e", "b/f"];
            for (at, target) in links {
                // Links out of the tree would lead anywhere on this system.
                let target = match target.strip_prefix('/') {
                    Some(rest) => tree.join(rest.trim_start_matches('/')).to_str().unwrap().to_owned(),
                    None => target,
                };
                drop(std::os::unix::fs::symlink(target, tree.join(places[at])));
            }
            let root = std::fs::File::open(&tree).unwrap();
            let path = path.trim_start_matches('/');
            prop_assume!(!path.is_empty());
            prop_assert!(walks_alike(root.as_fd(), path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_guard_and_the_contract_agree_on_every_short_path() {
        let names = ["", ".env", ".ENV.x", "a", ".git", "hooks", "\u{17f}", ".."];
        let patterns = ["**/.env*", ".git/hooks", "**/.git/**/hooks", "?", "**", "a/*"];
        for pattern in patterns {
            for open in ["", ".env", "+a", "a/.env"] {
                for path in names
                    .iter()
                    .flat_map(|one| names.iter().map(move |two| format!("{one}/{two}")))
                    .chain(names.map(str::to_owned))
                {
                    guard_path(format!("{pattern}\0{open}\0{path}").as_bytes());
                }
            }
        }
    }
}
