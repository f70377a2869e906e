//! Which names are guarded. Pure. Trusts the plan; the paths come from the agent.
//!
//! Renames make patterns harder than they look: a directory that is renamed brings everything below it along, so
//! its new name is refused already when a pattern could be completed by what lies below ([`Match::below`]).
use bastle_contract::{
    BuiltInNames, DenialKind, GuardedTree, NameList, NamePattern, OpenName, OpenScope, PatternIndex,
};
use std::sync::OnceLock;

/// Longest pattern in components: 1024 bytes, every second one a slash.
const WORDS: usize = 512 / 64 + 1;

/// The trees whose names are guarded.
#[derive(Debug)]
pub(super) struct Trees(Vec<Tree>);

#[derive(Debug)]
struct Tree {
    root: Vec<u8>,
    rules: Vec<(DenialKind, Held, Rule)>,
    /// The rules by their first name: a path that has none like it has nothing in common with them.
    index: PatternIndex,
    /// Protected names of this program, with exceptions.
    built_in: BuiltInNames,
    /// Names that are protected by themselves, without what is below.
    pinned: NameList,
    /// Exceptions to hidden and to protected names.
    open: [Vec<OpenName>; 2],
}

/// Whether a rule has exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Always,
    UnlessOpen,
}

/// A pattern.
#[derive(Debug)]
pub(super) struct Rule {
    pattern: NamePattern,
    /// Split when it is first asked: of a thousand patterns few ever are.
    split: OnceLock<Box<Split>>,
}

#[derive(Debug)]
struct Split {
    parts: Vec<Part>,
    /// Index of the first part that is not `**`: only past it has a path shown anything in common with the pattern.
    first_name: usize,
}

#[derive(Debug)]
enum Part {
    /// `**`.
    Any,
    /// One component, with `*` and `?`.
    Name(Vec<u8>),
}

/// How a path relates to a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The path or one of its parents is named.
    pub(super) covered: bool,
    /// Something below the path could be named, and part of the path itself would be why.
    pub(super) below: bool,
}

/// How far a new name reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// A file: only its own name counts.
    Itself,
    /// A directory with contents, or a symlink to one: names below it come into being too.
    Below,
}

/// Why a name is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guarded<'a> {
    /// Hidden or protected.
    pub(super) kind: DenialKind,
    /// The pattern that says so.
    pub(super) pattern: &'a str,
}

/// Positions in a pattern, as a set.
#[derive(Clone, Copy)]
struct Positions([u64; WORDS]);

impl Trees {
    pub(super) fn of(trees: &[GuardedTree]) -> Self {
        Self(trees.iter().map(Tree::of).collect())
    }

    /// Whether an absolute canonical path lies in a tree.
    pub(super) fn hold(&self, path: &[u8]) -> bool {
        self.0.iter().any(|tree| tree.relative(path).is_some())
    }

    /// The roots of the trees.
    pub(super) fn roots(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|tree| tree.root.as_slice())
    }

    /// The first rule that guards `path`; hidden names come before protected ones.
    pub(super) fn guard(&self, path: &[u8], reach: Reach) -> Option<Guarded<'_>> {
        self.find(path, reach, |_, found| match reach {
            Reach::Itself => found.covered,
            Reach::Below => found.covered || found.below,
        })
    }

    /// The first rule that guards `path` as a name that must stay: a directory above a protected name must, too.
    pub(super) fn guard_source(&self, path: &[u8], reach: Reach) -> Option<Guarded<'_>> {
        self.find(path, reach, |kind, found| {
            found.covered || (found.below && reach == Reach::Below && kind == DenialKind::Protected)
        })
    }

    /// The rule that hides `path`.
    pub(super) fn hidden(&self, path: &[u8]) -> Option<Guarded<'_>> {
        self.find(path, Reach::Itself, |kind, found| {
            kind == DenialKind::Hidden && found.covered
        })
    }

    fn find(
        &self,
        path: &[u8],
        reach: Reach,
        counts: impl Fn(DenialKind, Match) -> bool,
    ) -> Option<Guarded<'_>> {
        for tree in &self.0 {
            let Some(relative) = tree.relative(path) else {
                continue;
            };
            for (kind, held, rule) in tree.candidates(relative) {
                if counts(*kind, rule.find(relative)) && !tree.opens(*kind, *held, relative, reach) {
                    return Some(Guarded {
                        kind: *kind,
                        pattern: rule.pattern.as_str(),
                    });
                }
            }
            for at in tree.built_in_candidates(relative) {
                let (kind, held) = (DenialKind::Protected, Held::UnlessOpen);
                let Some(text) = tree.built_in.texts().get(at) else {
                    continue;
                };
                if counts(kind, built_in(tree.built_in.number(at), text).find(relative))
                    && !tree.opens(kind, held, relative, reach)
                {
                    return Some(Guarded { kind, pattern: text });
                }
            }
            let itself = Match {
                covered: true,
                below: false,
            };
            if let Some(pattern) = tree.pinned.named(relative)
                && counts(DenialKind::Protected, itself)
            {
                return Some(Guarded {
                    kind: DenialKind::Protected,
                    pattern: pattern.as_str(),
                });
            }
        }
        None
    }
}

impl Tree {
    fn of(tree: &GuardedTree) -> Self {
        let lists = [
            (DenialKind::Hidden, &tree.hide),
            (DenialKind::Protected, &tree.protect),
        ];
        let length = lists.iter().map(|(_, list)| list.patterns().count()).sum();
        let mut all = Vec::with_capacity(length);
        for (kind, list) in lists {
            for (held, patterns) in [
                (Held::Always, &list.always),
                (Held::UnlessOpen, &list.unless_open),
            ] {
                all.extend(patterns.iter().map(|pattern| (kind, held, Rule::of(pattern))));
            }
        }
        Self {
            root: tree.root.as_str().as_bytes().to_vec(),
            index: PatternIndex::by_first(all.iter().map(|(_, _, rule)| &rule.pattern)),
            built_in: tree.protect.built_in,
            rules: all,
            pinned: tree.pinned.clone(),
            open: [tree.hide.open.clone(), tree.protect.open.clone()],
        }
    }

    /// The rules that could say something about a path, in their order.
    fn candidates(&self, relative: &[u8]) -> impl Iterator<Item = &(DenialKind, Held, Rule)> {
        let found = candidates(&self.index, relative);
        found.into_iter().filter_map(|at| self.rules.get(at))
    }

    /// The same of the names of this program.
    fn built_in_candidates(&self, relative: &[u8]) -> Vec<usize> {
        candidates(&self.built_in.by_first(), relative)
    }

    /// Whether an exception to the rule opens the path. A directory or a link in the place of an opened file would bring
    /// other names along: it is not what was opened.
    fn opens(&self, kind: DenialKind, held: Held, relative: &[u8], reach: Reach) -> bool {
        let open = match (held, kind) {
            (Held::Always, _) => return false,
            (Held::UnlessOpen, DenialKind::Hidden) => &self.open[0],
            (Held::UnlessOpen, _) => &self.open[1],
        };
        open.iter()
            .any(|open| open.opens(relative) && (open.scope == OpenScope::Tree || reach == Reach::Itself))
    }

    /// The rest of `path` below the root, by whole components; empty for the root itself.
    fn relative<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if self.root == b"/" {
            return path.strip_prefix(b"/");
        }
        let rest = path.strip_prefix(self.root.as_slice())?;
        if rest.is_empty() {
            Some(rest)
        } else {
            rest.strip_prefix(b"/")
        }
    }
}

/// The patterns that have a component like one of the path, in their order.
fn candidates(index: &PatternIndex, relative: &[u8]) -> Vec<usize> {
    let names = relative
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    let mut found: Vec<usize> = names.flat_map(|name| index.candidates(name)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A pattern of this program by its number in the longest list, split when it is first asked.
fn built_in(number: usize, text: &str) -> &'static Split {
    static SPLITS: [OnceLock<Box<Split>>; BuiltInNames::MOST] =
        [const { OnceLock::new() }; BuiltInNames::MOST];
    SPLITS[number].get_or_init(|| Box::new(Split::of(text)))
}

impl Rule {
    pub(super) fn of(pattern: &NamePattern) -> Self {
        Self {
            pattern: pattern.clone(),
            split: OnceLock::new(),
        }
    }

    pub(super) fn find(&self, path: &[u8]) -> Match {
        self.split
            .get_or_init(|| Box::new(Split::of(self.pattern.as_str())))
            .find(path)
    }
}

impl Split {
    fn of(text: &str) -> Self {
        let part = |text: &str| {
            if text == "**" {
                Part::Any
            } else {
                Part::Name(text.as_bytes().to_vec())
            }
        };
        let parts: Vec<Part> = text.split('/').map(part).collect();
        let first_name = parts
            .iter()
            .position(|part| matches!(part, Part::Name(_)))
            .unwrap_or(parts.len());
        Self { parts, first_name }
    }

    /// Walks all ways to read `path` by the pattern at once, component by component.
    fn find(&self, path: &[u8]) -> Match {
        let end = self.parts.len();
        let mut at = Positions([0; WORDS]);
        self.reach(&mut at, 0);
        let mut covered = false;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let mut next = Positions([0; WORDS]);
            for (position, part) in self
                .parts
                .iter()
                .enumerate()
                .filter(|(position, _)| at.has(*position))
            {
                match part {
                    Part::Any => self.reach(&mut next, position),
                    Part::Name(wanted) if name_matches(wanted, name) => self.reach(&mut next, position + 1),
                    Part::Name(_) => {}
                }
            }
            at = next;
            covered |= at.has(end);
        }
        let below = (self.first_name + 1..end).any(|position| at.has(position));
        Match { covered, below }
    }

    /// Adds a position, and those behind it that `**` reaches without consuming anything.
    fn reach(&self, set: &mut Positions, mut position: usize) {
        set.add(position);
        while matches!(self.parts.get(position), Some(Part::Any)) {
            position += 1;
            set.add(position);
        }
    }
}

impl Positions {
    fn has(&self, position: usize) -> bool {
        self.0
            .get(position / 64)
            .is_some_and(|word| word & (1 << (position % 64)) != 0)
    }

    fn add(&mut self, position: usize) {
        if let Some(word) = self.0.get_mut(position / 64) {
            *word |= 1 << (position % 64);
        }
    }
}

/// Wildcard match of one component in linear time, ignoring ASCII case: on a mismatch the last `*` takes one byte more.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            Some(_) | None => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                p = star_at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
