//! Names that are protected in a tree of the host by this program itself: what git executes or follows, and what programs of
//! the host execute or obey, from the catalogue that the import gate reads, too.
//!
//! A plan names the list, and does not carry it: a thousand patterns would be most of a plan, parsed by three processes at
//! every start. The list and its indexes are constants; a list of another build is refused.
use crate::name_pattern::text_matches;
use crate::pattern_index::{Part, Table};
use crate::{NamePattern, PatternIndex};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::LazyLock;

include!(concat!(env!("OUT_DIR"), "/protected_in_place.rs"));

/// Entries of the catalogue that name what git itself writes at every commit. [`GIT_NAMES`] holds a repository in detail, and the
/// planner holds the other two wherever git does not write them.
const WRITTEN_BY_GIT: [&str; 4] = ["**/.git/**", "**/*.git/HEAD", "**/HEAD", "**/packed-refs"];

macro_rules! git_names {
    ($($name:literal),* $(,)?) => {
        /// What git executes, or takes for its configuration, when a person goes on working in the project: instructions of a
        /// rebase (`exec` lines), where objects and shared directories are looked for, and the files by whose renaming a
        /// configuration is replaced.
        pub const GIT_NAMES: &[&str] = &[$($name),*];
        const IN_REPOSITORY: &[&str] = &[$(concat!("**/.git/", $name)),*];
    };
}

git_names![
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "config.lock",
    "config.worktree.lock",
    "info/grafts",
    // Old forms of a remote: an address and what is fetched from or pushed to it (gitrepository-layout(5)).
    "remotes",
    "branches",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "worktrees/**/config.worktree",
    "worktrees/**/commondir",
    "worktrees/**/gitdir",
    "modules/**/config.worktree",
    "modules/**/config.lock",
    "modules/**/info/attributes",
    "modules/**/rebase-merge",
    "modules/**/rebase-apply",
    "modules/**/sequencer",
    "modules/**/objects/info/alternates",
    "modules/**/remotes",
    "modules/**/branches",
    "modules/**/commondir",
    "modules/**/gitdir",
    "gitdir",
];

/// How many entries of the catalogue are in the list.
const OF_CATALOGUE: usize = CATALOGUE.len() - WRITTEN_BY_GIT.len();
const LENGTH: usize = OF_CATALOGUE + IN_REPOSITORY.len();

static TEXTS: [&str; LENGTH] = {
    let mut texts = [""; LENGTH];
    let (mut from, mut to) = (0, 0);
    while from < CATALOGUE.len() {
        if !is_written_by_git(CATALOGUE[from]) {
            texts[to] = directory(CATALOGUE[from]);
            to += 1;
        }
        from += 1;
    }
    assert!(
        to == OF_CATALOGUE,
        "an entry that git writes is not in the catalogue"
    );
    while to < LENGTH {
        texts[to] = IN_REPOSITORY[to - OF_CATALOGUE];
        to += 1;
    }
    texts
};

const OF_GIT: [&str; IN_REPOSITORY.len()] = {
    let mut texts = [""; IN_REPOSITORY.len()];
    let mut at = 0;
    while at < texts.len() {
        texts[at] = IN_REPOSITORY[at];
        at += 1;
    }
    texts
};

const fn is_written_by_git(text: &str) -> bool {
    let mut at = 0;
    while at < WRITTEN_BY_GIT.len() {
        if is_same(text.as_bytes(), WRITTEN_BY_GIT[at].as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A directory is held as a whole: by itself it can be mounted on, and what is below it is covered with it.
const fn directory(text: &'static str) -> &'static str {
    match text.as_bytes() {
        [above @ .., b'/', b'*', b'*'] => text.split_at(above.len()).0,
        _ => text,
    }
}

/// Made when somebody needs them: a launch is judged by the texts.
static PATTERNS: LazyLock<Vec<NamePattern>> =
    LazyLock::new(|| TEXTS.iter().map(|text| NamePattern::constant(text)).collect());
static BY_LAST: Table<LENGTH> = Table::of(&TEXTS, Part::Last);
static BY_FIRST: Table<LENGTH> = Table::of(&TEXTS, Part::First);
static GIT_BY_LAST: Table<{ OF_GIT.len() }> = Table::of(&OF_GIT, Part::Last);
static GIT_BY_FIRST: Table<{ OF_GIT.len() }> = Table::of(&OF_GIT, Part::First);

/// FNV-1a over all patterns: the lists of two builds are the same where this is.
const DIGEST: u64 = {
    let mut digest = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < TEXTS.len() {
        let bytes = TEXTS[at].as_bytes();
        let mut byte = 0;
        while byte <= bytes.len() {
            // No pattern contains a NUL byte.
            let next = if byte == bytes.len() { 0 } else { bytes[byte] };
            digest = (digest ^ next as u64).wrapping_mul(0x0100_0000_01b3);
            byte += 1;
        }
        at += 1;
    }
    digest
};

/// Which names of the program are protected in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltInNames {
    /// None of them.
    #[default]
    None,
    /// What git executes or follows in a repository.
    Repository,
    /// The same, and what programs of the host execute or obey in a project.
    Project,
}

impl BuiltInNames {
    /// Most patterns of a list.
    pub const MOST: usize = LENGTH;

    /// Whether it names nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::None
    }

    /// The patterns.
    #[must_use]
    pub fn patterns(self) -> &'static [NamePattern] {
        match self {
            Self::None => &[],
            Self::Repository => &PATTERNS[OF_CATALOGUE..],
            Self::Project => &PATTERNS,
        }
    }

    /// The patterns as text.
    #[must_use]
    pub fn texts(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Repository => IN_REPOSITORY,
            Self::Project => &TEXTS,
        }
    }

    /// The number in [`Self::Project`] of what has the number `at` in this list.
    #[must_use]
    pub fn number(self, at: usize) -> usize {
        match self {
            Self::None | Self::Project => at,
            Self::Repository => OF_CATALOGUE + at,
        }
    }

    /// The patterns by their last component.
    #[must_use]
    pub fn by_last(self) -> PatternIndex {
        match self {
            Self::None => PatternIndex::default(),
            Self::Repository => GIT_BY_LAST.index(),
            Self::Project => BY_LAST.index(),
        }
    }

    /// The patterns by their first component that is not `**`.
    #[must_use]
    pub fn by_first(self) -> PatternIndex {
        match self {
            Self::None => PatternIndex::default(),
            Self::Repository => GIT_BY_FIRST.index(),
            Self::Project => BY_FIRST.index(),
        }
    }

    /// Whether `relative`, a path below the tree's root, is one of these names.
    #[must_use]
    pub fn matches(self, relative: &[u8]) -> bool {
        self.named(relative).is_some()
    }

    /// The number of the first pattern that names `relative` itself.
    fn named(self, relative: &[u8]) -> Option<usize> {
        let last = relative.rsplit(|byte| *byte == b'/').next().unwrap_or(relative);
        let index = self.by_last();
        let candidates = index.candidates(last);
        candidates
            .filter(|at| {
                self.texts()
                    .get(*at)
                    .is_some_and(|text| text_matches(text, relative))
            })
            .min()
    }

    /// The first pattern that names `relative` itself.
    #[must_use]
    pub fn pattern_of(self, relative: &[u8]) -> Option<&'static NamePattern> {
        self.named(relative).and_then(|at| self.patterns().get(at))
    }

    /// Whether `relative` or a directory above it is one of these names.
    #[must_use]
    pub fn covers(self, relative: &[u8]) -> bool {
        let ends = relative
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at);
        ends.chain([relative.len()])
            .any(|end| self.matches(&relative[..end]))
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Repository => "repository",
            Self::Project => "project",
        }
    }
}

impl Serialize for BuiltInNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}@{DIGEST:016x}", self.name()))
    }
}

impl<'de> Deserialize<'de> for BuiltInNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (name, digest) = text.split_once('@').unwrap_or((&text, ""));
        if digest != format!("{DIGEST:016x}") {
            return Err(de::Error::custom(
                "the names are those of another build of bastle",
            ));
        }
        [Self::None, Self::Repository, Self::Project]
            .into_iter()
            .find(|list| list.name() == name)
            .ok_or_else(|| de::Error::custom("there is no such list of names"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_is_a_pattern_and_every_entry_of_the_catalogue_is_there() {
        for text in TEXTS {
            assert!(NamePattern::from_static(text).is_ok(), "{text:?}");
        }
        let all: Vec<&str> = BuiltInNames::Project
            .patterns()
            .iter()
            .map(NamePattern::as_str)
            .collect();
        for entry in CATALOGUE {
            let held = entry.strip_suffix("/**").unwrap_or(entry);
            assert!(all.contains(&held) || WRITTEN_BY_GIT.contains(&entry), "{entry}");
        }
        assert_eq!(
            all.len(),
            CATALOGUE.len() - WRITTEN_BY_GIT.len() + GIT_NAMES.len()
        );
        for name in GIT_NAMES {
            assert!(
                BuiltInNames::Repository.matches(format!("a/.git/{name}").replace("**", "x").as_bytes()),
                "{name}"
            );
        }
    }

    #[test]
    fn the_constant_indexes_leave_out_no_pattern_that_matches() {
        let names = [
            "Makefile",
            "package.json",
            ".git/config.lock",
            "a/.vscode/tasks.json",
            ".VSCODE",
            "src/main.rs",
            "x/y.py",
        ];
        let lists = [BuiltInNames::Repository, BuiltInNames::Project];
        let examples = TEXTS.map(|text| text.replace("**/", "").replace('*', "x").replace('?', "y"));
        for path in names.map(str::to_owned).iter().chain(&examples) {
            let path = path.as_bytes();
            for list in lists {
                let slow = list.patterns().iter().find(|pattern| pattern.matches(path));
                assert_eq!(
                    list.matches(path),
                    slow.is_some(),
                    "{}",
                    String::from_utf8_lossy(path)
                );
                let below = list.patterns().iter().any(|pattern| pattern.covers(path));
                assert_eq!(list.covers(path), below, "{}", String::from_utf8_lossy(path));
                let first: Vec<usize> = path
                    .split(|byte| *byte == b'/')
                    .flat_map(|name| list.by_first().candidates(name).collect::<Vec<_>>())
                    .collect();
                for (at, pattern) in list.patterns().iter().enumerate() {
                    assert!(!pattern.matches(path) || first.contains(&at), "{pattern}");
                }
            }
        }
        assert!(!BuiltInNames::Project.covers(b"src/lib/deep/file.rs"), "control");
        assert!(!BuiltInNames::None.covers(b"Makefile"), "control");
        for (at, text) in BuiltInNames::Repository.texts().iter().enumerate() {
            assert_eq!(TEXTS[BuiltInNames::Repository.number(at)], *text);
        }
    }

    #[test]
    fn a_list_of_another_build_is_refused() {
        for list in [
            BuiltInNames::None,
            BuiltInNames::Repository,
            BuiltInNames::Project,
        ] {
            let text = serde_json::to_string(&list).unwrap();
            assert_eq!(serde_json::from_str::<BuiltInNames>(&text).unwrap(), list);
            let other = text.replace(&format!("{DIGEST:016x}"), &format!("{:016x}", DIGEST ^ 1));
            assert!(serde_json::from_str::<BuiltInNames>(&other).is_err(), "{other}");
        }
        for bad in [r#""project""#, r#""""#, r#""all@""#] {
            assert!(serde_json::from_str::<BuiltInNames>(bad).is_err(), "{bad}");
        }
    }
}
