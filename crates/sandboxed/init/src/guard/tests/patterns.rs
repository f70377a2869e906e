//! Patterns against the contract's own matcher and against what renames can do.
use crate::guard::names::{Match, Reach, Rule, Trees};
use bastle_contract::{
    AbsPath, DenialKind, GuardedTree, NameList, NamePattern, OpenName, OpenScope, TreeKind,
};
use proptest::prelude::*;

fn pattern(text: &str) -> NamePattern {
    NamePattern::try_from(text.to_owned()).unwrap()
}

fn find(pattern_text: &str, path: &str) -> Match {
    Rule::of(&pattern(pattern_text)).find(path.as_bytes())
}

fn below(pattern: &str, path: &str) -> bool {
    find(pattern, path).below
}

#[test]
fn a_directory_that_a_pattern_could_complete_below_is_recognised() {
    assert!(below(".github/workflows", ".github"));
    assert!(below(".github/workflows", ".GitHub"));
    assert!(below("**/.git/hooks", "x/.git"));
    assert!(below("**/.git/hooks", "a/b/.git"));
    assert!(below("a/**/z", "a/q"));
    assert!(below("a/*/z", "a/q"));
    assert!(below("**/a/**/z", "x/a/y"));
}

#[test]
fn a_directory_that_only_a_double_star_reaches_stays_free() {
    assert!(!below("**/.env", "src"));
    assert!(!below("**/.git/hooks", "x"));
    assert!(!below("**/.git/hooks", "x/.git/hooks"));
    assert!(!below(".github/workflows", "sub/.github"));
    assert!(!below(".github/workflows", ".githubx"));
    assert!(!below("a", "a"));
}

#[test]
fn the_longest_pattern_the_contract_takes_is_followed_to_its_end() {
    let deep = vec!["a"; 512].join("/");
    let almost = vec!["a"; 511].join("/");
    assert!(find(&deep, &deep).covered);
    assert_eq!(
        find(&deep, &almost),
        Match {
            covered: false,
            below: true
        }
    );
}

#[test]
fn a_path_outside_every_tree_is_not_guarded_and_a_sibling_is_outside() {
    let tree = |root: &str| GuardedTree {
        root: AbsPath::new(root).unwrap(),
        hide: vec![pattern("**/.env")].into(),
        protect: vec![pattern("ci/run")].into(),
        pinned: NameList::default(),
        kind: TreeKind::Live,
    };
    let trees = Trees::of(&[tree("/srv/ws")]);
    let kind = |path: &str| {
        trees
            .guard(path.as_bytes(), Reach::Itself)
            .map(|found| found.kind)
    };
    assert_eq!(kind("/srv/ws/a/.env"), Some(DenialKind::Hidden));
    assert_eq!(kind("/srv/ws/ci/run"), Some(DenialKind::Protected));
    assert_eq!(kind("/srv/ws-evil/.env"), None);
    assert_eq!(kind("/srv/.env"), None);
    assert_eq!(trees.guard(b"/srv/ws/ci", Reach::Itself), None);
    assert!(trees.guard(b"/srv/ws/ci", Reach::Below).is_some());
    let whole = Trees::of(&[tree("/")]);
    assert!(whole.guard(b"/x/.env", Reach::Itself).is_some());
}

/// All readings of the path by the pattern, one by one; `named` counts the components read that are no `**`.
fn oracle_below(pattern: &[&str], path: &[&str], named: usize) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, _) => false,
        (Some((&"**", rest)), Some((_, deeper))) => {
            oracle_below(rest, path, named) || oracle_below(pattern, deeper, named)
        }
        (Some((first, rest)), Some((name, deeper))) => {
            NamePattern::try_from((*first).to_owned())
                .unwrap()
                .matches(name.as_bytes())
                && oracle_below(rest, deeper, named + 1)
        }
        (Some((&"**", rest)), None) => named > 0 || oracle_below(rest, path, named),
        (Some(_), None) => named > 0,
    }
}

fn a_pattern() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "*", "?", "a*", "A", "**"]);
    prop::collection::vec(part, 1..5)
        .prop_map(|parts| parts.join("/"))
        .prop_filter("the contract takes two", |text| {
            text.split('/').filter(|part| *part == "**").count() <= 2
        })
}

fn a_path(most: usize) -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "ab", "c", "B"]);
    prop::collection::vec(name, 1..=most).prop_map(|names| names.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_matcher_says_what_the_contract_and_brute_force_say(text in a_pattern(), path in a_path(5)) {
        let parts: Vec<&str> = text.split('/').collect();
        let names: Vec<&str> = path.split('/').collect();
        let expected = Match { covered: pattern(&text).covers(path.as_bytes()), below: oracle_below(&parts, &names, 0) };
        prop_assert_eq!(find(&text, &path), expected);
    }

    /// The property all of this is for.
    #[test]
    fn a_rename_that_is_let_through_brings_no_guarded_name_into_being(
        text in a_pattern(), from in a_path(3), to in a_path(3), inside in a_path(3),
    ) {
        let pattern = pattern(&text);
        let (before, after) = (format!("{from}/{inside}"), format!("{to}/{inside}"));
        let verdict = find(&text, &to);
        if !verdict.covered && !verdict.below && !pattern.covers(before.as_bytes()) {
            prop_assert!(!pattern.covers(after.as_bytes()));
        }
    }

    #[test]
    fn a_single_component_matches_as_the_contract_says(
        parts in prop::collection::vec(prop::sample::select(vec!["a", "b", "B", "ab", "?", "*a", "*b", "*?"]), 1..6),
        name in "[abAB]{1,10}",
    ) {
        let text = parts.concat();
        prop_assert_eq!(find(&text, &name).covered, pattern(&text).matches(name.as_bytes()));
    }
}

#[test]
fn an_opened_file_opens_neither_its_pattern_nor_a_directory_in_its_place() {
    let open = vec![OpenName {
        below: ".env.example".to_owned(),
        scope: OpenScope::File,
    }];
    let trees = Trees::of(&[GuardedTree {
        root: AbsPath::new("/w").unwrap(),
        hide: NameList {
            built_in: bastle_contract::BuiltInNames::None,
            always: Vec::new(),
            unless_open: vec![pattern("**/.env*")],
            open,
        },
        protect: NameList::default(),
        pinned: NameList::default(),
        kind: TreeKind::Live,
    }]);
    let guarded = |path: &str, reach| trees.guard(path.as_bytes(), reach).is_some();
    assert!(!guarded("/w/.env.example", Reach::Itself));
    assert!(guarded("/w/.env.example", Reach::Below));
    for named in [
        "/w/.env",
        "/w/.env.Example",
        "/w/a/.env.example",
        "/w/.env.example/x",
    ] {
        assert!(guarded(named, Reach::Itself), "{named}");
    }
}

#[test]
fn a_pinned_name_is_guarded_and_what_is_below_it_is_not() {
    let trees = Trees::of(&[GuardedTree {
        root: AbsPath::new("/w").unwrap(),
        hide: NameList::default(),
        protect: vec![pattern("**/.git/config")].into(),
        pinned: vec![pattern("**/.git")].into(),
        kind: TreeKind::Live,
    }]);
    let guarded = |path: &str| trees.guard(path.as_bytes(), Reach::Itself).is_some();
    for named in ["/w/.git", "/w/a/b/.GIT", "/w/.git/config", "/w/.git/x/.git"] {
        assert!(guarded(named), "{named}");
    }
    for free in [
        "/w/.git/index",
        "/w/.git/objects/ab/cd",
        "/w/.gitignore",
        "/w/a.git",
    ] {
        assert!(!guarded(free), "{free}");
    }
    assert!(trees.guard_source(b"/w/.git", Reach::Below).is_some());
}

#[test]
fn a_head_is_made_in_no_directory_but_those_that_are_excepted() {
    let file = |below: &str| OpenName {
        below: below.to_owned(),
        scope: OpenScope::File,
    };
    let trees = Trees::of(&[GuardedTree {
        root: AbsPath::new("/w").unwrap(),
        hide: NameList::default(),
        protect: vec![pattern("old/config")].into(),
        pinned: NameList {
            built_in: bastle_contract::BuiltInNames::None,
            always: vec![pattern("**/.git")],
            unless_open: vec![pattern("**/HEAD")],
            open: vec![file(".git/HEAD"), file("old/HEAD")],
        },
        kind: TreeKind::Live,
    }]);
    let guarded = |path: &str| trees.guard(path.as_bytes(), Reach::Itself).is_some();
    for named in [
        "/w/HEAD",
        "/w/q/HEAD",
        "/w/q/head",
        "/w/.git/q/HEAD",
        "/w/old/config",
    ] {
        assert!(guarded(named), "{named}");
    }
    for free in ["/w/.git/HEAD", "/w/old/HEAD", "/w/q/config", "/w/HEADER"] {
        assert!(!guarded(free), "{free}");
    }
    assert!(
        trees.guard_source(b"/w/old", Reach::Below).is_some(),
        "a directory with such a name cannot be moved to where its configuration is free"
    );
}
