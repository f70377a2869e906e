//! What fuzz targets reach of this crate. Nothing else uses it.
use crate::guard::decides;
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

#[cfg(test)]
mod tests {
    use super::guard_path;

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
