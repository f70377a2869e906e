//! Links in the host's own trees whose names are hidden or protected: what they lead to is held, too. The agent could write
//! `docs/ag.txt` where `CLAUDE.md` is a link to it, or read what a link called `.env` leads to.
//!
//! **Trust:** links are the project's. One is followed by its text, step by step, and counts only where it ends in the
//! searched tree; links on the way are held as well, so that the way cannot be changed.
use super::view::{MOST_LINKS, parts};
use super::{At, Judged, Scope, Search, View, finish, unusable, walk};
use bastle_contract::{AbsPath, Fault, NamePattern};
use bastle_policy::{Led, LedAs, TreeNeed, Ways};
use rustix::fs::{Mode, OFlags};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names that are held because of links, at most.
const MOST_LED: usize = 2048;
/// Links below what a link leads to, and so on.
const DEEPEST: usize = 8;

/// What a search remembers of links until it has seen every name.
#[derive(Debug, Default)]
pub(super) struct Links {
    found: Vec<Link>,
    ways: OnceCell<[Ways; 2]>,
    depth: usize,
}

#[derive(Debug)]
struct Link {
    at: AbsPath,
    /// How the name itself is held.
    whole: Option<LedAs>,
    /// What is held below it.
    rests: Vec<(LedAs, String)>,
}

/// Notes a link that a pattern has something to say about.
pub(super) fn note(search: &mut Search<'_>, below: &[u8], judged: Judged, scope: Scope) {
    let (true, Some(at), Ok(text)) = (search.host, search.path(below), std::str::from_utf8(below)) else {
        return;
    };
    let whole = match (judged, scope) {
        (Judged::Hidden, _) => Some(LedAs::Hidden),
        // Whatever is in a protected directory is obeyed, links included.
        (Judged::Protected, _) | (Judged::Open, Scope::Hidden) => Some(LedAs::Protected),
        (Judged::Open, Scope::All) => None,
    };
    let (tree, mut rests) = (search.tree, Vec::new());
    let [hide, protect] = search.links.ways.get_or_init(|| {
        let protect = tree.protect.patterns().chain(tree.live.patterns());
        [Ways::of(tree.hide.patterns()), Ways::of(protect)]
    });
    rests.extend(hide.below(text).into_iter().map(|rest| (LedAs::Hidden, rest)));
    if search.writable {
        rests.extend(
            protect
                .below(text)
                .into_iter()
                .map(|rest| (LedAs::Protected, rest)),
        );
    }
    let whole = whole.filter(|held| search.writable || *held == LedAs::Hidden);
    if whole.is_some() || !rests.is_empty() {
        search.links.found.push(Link { at, whole, rests });
    }
}

/// Follows what was noted.
pub(super) fn follow(search: &mut Search<'_>) -> Result<(), Fault> {
    while let Some(link) = search.links.found.pop() {
        let Some((target, way)) = resolve(link.at.as_path()) else {
            continue;
        };
        let inside = |path: &Path| {
            AbsPath::from_path(path)
                .ok()
                .filter(|path| path.is_within(&search.root))
        };
        let way: Vec<AbsPath> = way.iter().filter_map(|path| inside(path)).collect();
        let Some(target) = inside(&target) else {
            continue;
        };
        if search.writable {
            for at in way {
                add(search, &link.at, at, None, LedAs::Protected)?;
            }
        }
        if let Some(held) = link.whole {
            hold(search, &link.at, &target, held)?;
        }
        below(search, &link, &target)?;
    }
    Ok(())
}

/// Holds what a link leads to.
fn hold(search: &mut Search<'_>, link: &AbsPath, target: &AbsPath, held: LedAs) -> Result<(), Fault> {
    // A directory above the link is not held as a whole: that would be the project.
    if link.is_within(target) || is_held(search, target, held) {
        return Ok(());
    }
    add(search, link, target.clone(), None, held)?;
    let Ok(meta) = target.as_path().symlink_metadata() else {
        // It does not exist yet: the write guard keeps it from being made.
        return Ok(());
    };
    match held {
        LedAs::Hidden => search.facts.hidden.push(target.clone()),
        LedAs::Protected => search.facts.protected.push(target.clone()),
    }
    if held == LedAs::Protected && meta.is_dir() {
        let relative = target.relative_to(&search.root).unwrap_or_default();
        let relative = format!("{relative}/").into_bytes();
        if let Some(directory) = open(target) {
            let at = At {
                relative: &relative,
                depth: 0,
                scope: Scope::Hidden,
            };
            walk(search, directory, at)?;
        }
    }
    Ok(())
}

fn is_held(search: &Search<'_>, target: &AbsPath, held: LedAs) -> bool {
    let below = target.relative_to(&search.root).unwrap_or_default().as_bytes();
    let tree = search.tree;
    let hidden = tree.hide.covers(below);
    let named = match held {
        LedAs::Hidden => hidden,
        LedAs::Protected => hidden || tree.protect.covers(below) || tree.live.covers(below),
    };
    let mut led = search.facts.led.iter();
    named || led.any(|led| led.held == held && led.rest.is_none() && target.is_within(&led.at))
}

/// Holds names below what a link leads to, and finds those that exist.
fn below(search: &mut Search<'_>, link: &Link, target: &AbsPath) -> Result<(), Fault> {
    let mut lists: [Vec<NamePattern>; 2] = Default::default();
    for (held, rest) in &link.rests {
        let fresh = add(search, &link.at, target.clone(), Some(rest.clone()), *held)?;
        if fresh && let Ok(pattern) = NamePattern::try_from(rest.clone()) {
            lists[usize::from(*held == LedAs::Protected)].push(pattern);
        }
    }
    let [hide, protect] = lists;
    if (hide.is_empty() && protect.is_empty()) || search.links.depth >= DEEPEST {
        return Ok(());
    }
    let Some(directory) = open(target) else {
        return Ok(());
    };
    let need = TreeNeed {
        root: target.clone(),
        hide: hide.into(),
        protect: protect.into(),
        live: bastle_contract::BuiltInNames::None,
    };
    let mut inner = Search {
        tree: &need,
        view: View::Host,
        root: target.clone(),
        host: true,
        writable: search.writable,
        facts: &mut *search.facts,
        linked: BTreeMap::new(),
        held: Vec::new(),
        shared: std::collections::BTreeSet::new(),
        probe: super::folding::Probe::default(),
        links: Links {
            depth: search.links.depth + 1,
            ..Links::default()
        },
    };
    let at = At {
        relative: b"",
        depth: 0,
        scope: Scope::All,
    };
    walk(&mut inner, directory, at)?;
    follow(&mut inner)?;
    // What has links elsewhere was counted by the search of the whole tree.
    finish(inner);
    Ok(())
}

fn open(directory: &AbsPath) -> Option<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory.as_path(), flags, Mode::empty()).ok()
}

/// `true`: it was not known.
fn add(
    search: &mut Search<'_>,
    link: &AbsPath,
    at: AbsPath,
    rest: Option<String>,
    held: LedAs,
) -> Result<bool, Fault> {
    let known = search
        .facts
        .led
        .iter()
        .any(|led| led.at == at && led.rest == rest && led.held == held);
    if known {
        return Ok(false);
    }
    if search.facts.led.len() >= MOST_LED {
        let why = format!("links lead to more than {MOST_LED} names that must be held");
        return Err(unusable(search.tree.root.as_str(), &why)
            .help("bastle run --workspace copy -- CMD works on a copy, which is reviewed"));
    }
    search.facts.led.push(Led {
        link: link.clone(),
        at,
        rest,
        held,
    });
    Ok(true)
}

/// Where a link leads, also when nothing is there yet, and the other links on the way.
fn resolve(link: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let mut left = parts(link);
    let (mut done, mut way, mut count) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        let Ok(target) = std::fs::read_link(&next) else {
            done = next;
            continue;
        };
        count += 1;
        if count > MOST_LINKS {
            return None;
        }
        if next != link {
            way.push(next);
        }
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        left.extend(parts(&target));
    }
    Some((done, way))
}
