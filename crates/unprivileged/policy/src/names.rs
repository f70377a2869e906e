//! Hidden and protected names, compiled so that one question costs microseconds. Same meaning as [`NamePattern`]:
//! ASCII case is ignored, and naming a directory names everything below it.
use bastle_contract::{AbsPath, NamePattern};
use std::collections::HashMap;

/// Patterns of one list, each with the index of the rule it came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    /// Whole paths without wildcards, lower case.
    exact: HashMap<String, Vec<usize>>,
    /// `**/NAME` without wildcards, lower case.
    anywhere: HashMap<String, Vec<usize>>,
    /// Everything else.
    globs: Vec<Glob>,
}

#[derive(Clone, Debug)]
struct Glob {
    /// Lower-case components, the anchor's included.
    parts: Vec<Part>,
    /// Whether it holds only in granted trees (`**/x`), not in the system's own.
    anywhere: bool,
    rule: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Vec<u8>),
    Wild(Vec<u8>),
    Across,
}

/// Which patterns hold for the path in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A tree granted by `fs`, whose root has this many components: every pattern, `**/` ones below that root only.
    Granted(usize),
    /// A system tree: only anchored ones; `**/.env*` is about projects, and nobody searches `/usr` for it.
    System,
}

impl NameSet {
    /// Adds a pattern below `root` (`None`: in every granted tree).
    pub(crate) fn add(&mut self, root: Option<&AbsPath>, pattern: &str, rule: usize) {
        let lower = pattern.to_ascii_lowercase();
        let wild = lower.contains(['*', '?']);
        match root {
            Some(root) if !wild => {
                let head = root.as_str().trim_end_matches('/').to_ascii_lowercase();
                self.exact
                    .entry(format!("{head}/{lower}"))
                    .or_default()
                    .push(rule);
            }
            None if !lower[3.min(lower.len())..].contains(['*', '?', '/']) => {
                let name = lower.trim_start_matches("**/").to_owned();
                self.anywhere.entry(name).or_default().push(rule);
            }
            Some(_) | None => {
                let literal = root.map(|r| r.as_str().to_ascii_lowercase()).unwrap_or_default();
                let head = literal
                    .split('/')
                    .filter(|p| !p.is_empty())
                    .map(|p| Part::Literal(p.as_bytes().to_vec()));
                let tail = lower.split('/').map(|part| match part {
                    "**" => Part::Across,
                    part if part.contains(['*', '?']) => Part::Wild(part.as_bytes().to_vec()),
                    part => Part::Literal(part.as_bytes().to_vec()),
                });
                self.globs.push(Glob {
                    parts: head.chain(tail).collect(),
                    anywhere: root.is_none(),
                    rule,
                });
            }
        }
    }

    /// The first rule (lowest index) that names `path` or a directory above it and that `counts` accepts.
    pub(crate) fn find(&self, path: &AbsPath, place: Place, counts: impl Fn(usize) -> bool) -> Option<usize> {
        let lower = path.as_str().to_ascii_lowercase();
        let mut best: Option<usize> = None;
        let mut take = |rules: &[usize]| {
            for rule in rules {
                if best.is_none_or(|b| *rule < b) && counts(*rule) {
                    best = Some(*rule);
                }
            }
        };
        let ends = lower
            .bytes()
            .enumerate()
            .skip(1)
            .filter(|(_, b)| *b == b'/')
            .map(|(i, _)| i);
        for (depth, end) in ends.chain([lower.len()]).enumerate() {
            if let Some(rules) = self.exact.get(&lower[..end]) {
                take(rules);
            }
            let name = lower[..end].rsplit('/').next().unwrap_or_default();
            if matches!(place, Place::Granted(root) if depth >= root)
                && let Some(rules) = self.anywhere.get(name)
            {
                take(rules);
            }
        }
        let parts: Vec<&[u8]> = lower.as_bytes()[1..].split(|b| *b == b'/').collect();
        for glob in &self.globs {
            let below = match (glob.anywhere, place) {
                (false, _) => &parts[..],
                (true, Place::Granted(root)) => parts.get(root..).unwrap_or_default(),
                (true, Place::System) => continue,
            };
            if covers(&glob.parts, below) {
                take(&[glob.rule]);
            }
        }
        best
    }
}

/// Whether the pattern names the path or one of its parent directories.
fn covers(pattern: &[Part], path: &[&[u8]]) -> bool {
    match pattern.split_first() {
        None => true,
        // A tail of `**` needs nothing more; before a name it may skip any number of directories.
        Some((Part::Across, rest)) => (0..=path.len()).any(|skipped| covers(rest, &path[skipped..])),
        Some((Part::Literal(name), rest)) => path
            .split_first()
            .is_some_and(|(first, below)| name == first && covers(rest, below)),
        Some((Part::Wild(name), rest)) => path
            .split_first()
            .is_some_and(|(first, below)| glob(name, first) && covers(rest, below)),
    }
}

/// Linear-time match of one component: on a mismatch, the last `*` takes one more byte.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b) if *b == b'?' || *b == name[n] => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match star {
                Some((at, taken)) => {
                    p = at + 1;
                    n = taken + 1;
                    star = Some((at, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// The patterns that a rule anchored at `root` means below `tree`; several because `**` may end inside or outside it.
/// An empty result: the rule says nothing about this tree. `None` inside: the tree itself is named.
pub(crate) fn relative_to(tree: &AbsPath, root: Option<&AbsPath>, pattern: &str) -> Vec<Option<NamePattern>> {
    let Some(root) = root else {
        return vec![named(pattern)];
    };
    if let Some(rest) = root.relative_to(tree) {
        // A literal name may hold characters that patterns cannot: `?` stands for each, which names more, not less.
        let literal: String = rest
            .chars()
            .map(|c| if "*[]{}\\".contains(c) { '?' } else { c })
            .collect();
        let whole = if literal.is_empty() {
            pattern.to_owned()
        } else {
            format!("{literal}/{pattern}")
        };
        return vec![named(&whole)];
    }
    let Some(rest) = tree.relative_to(root) else {
        return Vec::new();
    };
    let path: Vec<&str> = rest.split('/').collect();
    let parts: Vec<&str> = pattern.split('/').collect();
    let mut found = Vec::new();
    remainders(&parts, &path, &mut found);
    found.sort();
    found.dedup();
    found
        .into_iter()
        .map(|rest| if rest.is_empty() { None } else { named(&rest) })
        .collect()
}

fn named(pattern: &str) -> Option<NamePattern> {
    NamePattern::try_from(pattern.to_owned()).ok()
}

pub(crate) fn remainders(pattern: &[&str], path: &[&str], found: &mut Vec<String>) {
    let Some((name, below)) = path.split_first() else {
        found.push(pattern.join("/"));
        return;
    };
    match pattern.split_first() {
        // The pattern ended above the tree: the tree itself is named.
        None => found.push(String::new()),
        Some((&"**", rest)) => {
            remainders(rest, path, found);
            remainders(pattern, below, found);
        }
        Some((first, rest)) => {
            if glob(
                first.to_ascii_lowercase().as_bytes(),
                name.to_ascii_lowercase().as_bytes(),
            ) {
                remainders(rest, below, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn every_case_and_everything_below_a_hidden_name_is_hidden() {
        let mut set = NameSet::default();
        set.add(Some(&path("/home/u")), ".ssh", 0);
        set.add(None, "**/.env*", 1);
        set.add(None, "**/.git/hooks", 2);
        let find = |text: &str| set.find(&path(text), Place::Granted(0), |_| true);
        assert_eq!(find("/home/u/.ssh"), Some(0));
        assert_eq!(find("/home/u/.SSH/id"), Some(0));
        assert_eq!(find("/w/a/.ENV.local/x"), Some(1));
        assert_eq!(find("/w/sub/.git/hooks/pre-commit"), Some(2));
        assert_eq!(find("/home/u/.sshx"), None);
        assert_eq!(find("/w/.git"), None);
        assert_eq!(set.find(&path("/usr/.env"), Place::System, |_| true), None);
        assert_eq!(set.find(&path("/u/.envs/w/a"), Place::Granted(3), |_| true), None);
        assert_eq!(
            set.find(&path("/u/.envs/w/.env"), Place::Granted(3), |_| true),
            Some(1)
        );
    }

    #[test]
    fn a_rule_is_carried_over_to_a_tree_above_or_below_its_anchor() {
        let names = |tree: &str, root: &str, pattern: &str| -> Vec<String> {
            relative_to(&path(tree), Some(&path(root)), pattern)
                .into_iter()
                .map(|p| p.map_or("TREE".to_owned(), |p| p.to_string()))
                .collect()
        };
        assert_eq!(names("/home/u", "/home/u/w", ".git/hooks"), ["w/.git/hooks"]);
        assert_eq!(names("/home/u/w/.git", "/home/u/w", ".git/hooks"), ["hooks"]);
        assert_eq!(
            names("/home/u/w/src", "/home/u/w", ".git/hooks"),
            Vec::<String>::new()
        );
        assert_eq!(names("/home/u/w/.GIT/hooks", "/home/u/w", ".git/hooks"), ["TREE"]);
        assert_eq!(names("/etc", "/", "etc/shadow"), ["shadow"]);
        assert_eq!(names("/w/a", "/w", "**/x"), ["**/x"]);
        assert_eq!(names("/p", "/p/[a]", "x"), ["?a?/x"]);
    }

    proptest! {
        #[test]
        fn the_compiled_set_means_what_the_pattern_means(
            pattern in "(\\*\\*/)?[aB.*?]{1,3}(/[ab*]{1,2})?(/\\*\\*)?(/a)?",
            path_text in "(/[abAB.]{1,2}){1,5}",
        ) {
            let Ok(reference) = NamePattern::try_from(pattern.clone()) else { return Ok(()); };
            let Ok(at) = AbsPath::new(path_text.clone()) else { return Ok(()); };
            let mut set = NameSet::default();
            let root = AbsPath::root();
            set.add(if pattern.starts_with("**/") { None } else { Some(&root) }, &pattern, 7);
            let found = set.find(&at, Place::Granted(0), |_| true).is_some();
            let expected = reference.covers(&path_text.as_bytes()[1..]);
            prop_assert_eq!(found, expected, "{} on {}", pattern, path_text);
        }
    }
}
