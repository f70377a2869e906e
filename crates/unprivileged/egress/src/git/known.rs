//! Commits seen in earlier pushes of this run: git does not send again what the server has, so the pack of a push
//! alone often cannot tell how a branch moves.
//!
//! **Trust:** filled from the agent's bytes. An id is the hash of the commit that names its parents, so what is
//! remembered is true whoever sent it and whatever became of that push. Bounded: the oldest is forgotten first, and
//! what is forgotten is unknown again, never believed.
use super::pack::{History, Relation};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Most ids kept in all, parents included.
pub(super) const MOST_IDS: usize = 20_000;

/// What pushes of this run have shown, by repository.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Repository, then commit, then its parents.
    parents: HashMap<String, HashMap<String, Vec<String>>>,
    /// Oldest first.
    order: VecDeque<(String, String)>,
    ids: usize,
}

impl Known {
    /// How each `(old, new)` relates, by the commits of this push and of earlier ones to the same repository; then
    /// remembers the commits of this push.
    pub(crate) fn relations(
        &self,
        repository: &str,
        history: History,
        moves: &[(String, String)],
    ) -> Vec<Relation> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut relations = Vec::with_capacity(moves.len());
        for (old, new) in moves {
            let earlier = kept.parents.get(repository);
            relations.push(Relation::of(old, new, |id| {
                let earlier = earlier.and_then(|commits| commits.get(id));
                history.parents(id).or(earlier.map(Vec::as_slice))
            }));
        }
        for (id, parents) in history.into_commits() {
            kept.keep(repository, id, parents);
        }
        relations
    }
}

impl Kept {
    fn keep(&mut self, repository: &str, id: String, parents: Vec<String>) {
        let commits = self.parents.entry(repository.to_owned()).or_default();
        let size = 1 + parents.len();
        // The same id has the same parents.
        if size > MOST_IDS || commits.contains_key(&id) {
            return;
        }
        commits.insert(id.clone(), parents);
        self.order.push_back((repository.to_owned(), id));
        self.ids += size;
        while self.ids > MOST_IDS {
            let Some((repository, id)) = self.order.pop_front() else {
                return;
            };
            self.forget(&repository, &id);
        }
    }

    fn forget(&mut self, repository: &str, id: &str) {
        let Some(commits) = self.parents.get_mut(repository) else {
            return;
        };
        if let Some(parents) = commits.remove(id) {
            self.ids -= 1 + parents.len();
        }
        if commits.is_empty() {
            self.parents.remove(repository);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> String {
        format!("{number:040x}")
    }

    fn learn(known: &Known, repository: &str, commits: &[(usize, &[usize])]) {
        let commits = commits
            .iter()
            .map(|(commit, parents)| (id(*commit), parents.iter().map(|parent| id(*parent)).collect()))
            .collect();
        known.relations(repository, History::of(commits), &[]);
    }

    fn relation(known: &Known, repository: &str, old: usize, new: usize) -> Relation {
        known.relations(repository, History::default(), &[(id(old), id(new))])[0]
    }

    #[test]
    fn what_was_not_seen_in_this_repository_is_unknown_and_what_was_seen_is_told() {
        let known = Known::default();
        learn(&known, "h/a", &[(2, &[1]), (3, &[2]), (9, &[])]);
        assert_eq!(relation(&known, "h/a", 1, 3), Relation::FastForward);
        assert_eq!(relation(&known, "h/a", 3, 2), Relation::Unknown);
        assert_eq!(relation(&known, "h/a", 3, 9), Relation::Rewrite);
        assert_eq!(relation(&known, "h/b", 1, 3), Relation::Unknown);
    }

    #[test]
    fn a_flood_of_commits_is_bounded_and_what_is_forgotten_is_not_believed() {
        let known = Known::default();
        learn(&known, "h/a", &[(2, &[1])]);
        for number in 0..MOST_IDS {
            learn(&known, &format!("h/{}", number % 7), &[(100 + number, &[1])]);
        }
        let many: Vec<usize> = (0..=MOST_IDS).collect();
        learn(&known, "h/a", &[(50, &many)]);
        let kept = known.0.lock().unwrap();
        assert!(
            kept.ids <= MOST_IDS && kept.order.len() <= MOST_IDS / 2,
            "{}",
            kept.ids
        );
        let counted: usize = kept
            .parents
            .values()
            .flat_map(HashMap::values)
            .map(|parents| 1 + parents.len())
            .sum();
        assert_eq!(counted, kept.ids);
        drop(kept);
        assert_eq!(relation(&known, "h/a", 1, 2), Relation::Unknown);
        assert_eq!(relation(&known, "h/a", 1, 50), Relation::Unknown);
        let last = 100 + MOST_IDS - 1;
        let place = format!("h/{}", (MOST_IDS - 1) % 7);
        assert_eq!(
            relation(&known, &place, 1, last),
            Relation::FastForward,
            "control"
        );
    }
}
