//! Write scopes: two runs that live never write the same place.
//!
//! Paths are compared by their parts after every symlink was resolved, so `/a/b` is not the beginning of `/a/bc`, and a
//! link is the place it leads to. A copy is nobody else's, so it has no scope.
//! Paths are canonical: one leading slash, single ones between names, none at the end.
use super::rows;
use super::words::run_id;
use crate::store::Stop;
use crate::writers::{self, Writer, overlap};
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

/// A scope of a run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) run: RunId,
    pub(super) parent: Option<RunId>,
    pub(super) living: bool,
    pub(super) path: String,
}

/// Whether two runs may not live at once. A child writes where its parent may: that is no conflict with it.
pub(super) fn collide(own: &Held, other: &Held) -> bool {
    let related = own.parent.as_ref() == Some(&other.run) || other.parent.as_ref() == Some(&own.run);
    own.run != other.run && !related && overlap(&own.path, &other.path)
}

/// A path and everything it lies in.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    Path::new(path).ancestors().filter_map(Path::to_str)
}

/// Between these two lies, in the order of bytes, everything below a path.
fn below(path: &str) -> (String, String) {
    let path = path.trim_end_matches('/');
    // The character after the one that parts names.
    (format!("{path}/"), format!("{path}0"))
}

/// What overlaps with a path, living runs first. Looked up by path: what others hold elsewhere costs nothing.
pub(super) fn at(db: &Connection, path: &str) -> Result<Vec<Held>, Stop> {
    let mut found = Vec::new();
    let mut statement = db.prepare_cached(AT)?;
    for above in upwards(path) {
        read(&mut statement.query([above])?, &mut found)?;
    }
    let (from, until) = below(path);
    let mut statement = db.prepare_cached(BELOW)?;
    read(&mut statement.query([from, until])?, &mut found)?;
    found.sort_by_key(|held| !held.living);
    Ok(found)
}

const AT: &str = "SELECT l.run, r.phase <> 'queued', l.path, r.parent FROM locks l JOIN runs r ON r.name = l.run \
     WHERE l.path = ?1 AND r.phase <> 'ended'";
const BELOW: &str = "SELECT l.run, r.phase <> 'queued', l.path, r.parent FROM locks l JOIN runs r ON r.name = l.run \
     WHERE l.path > ?1 AND l.path < ?2 AND r.phase <> 'ended'";

fn read(rows: &mut rusqlite::Rows<'_>, into: &mut Vec<Held>) -> Result<(), Stop> {
    while let Some(row) = rows.next()? {
        let parent: Option<String> = row.get(3)?;
        into.push(Held {
            run: run_id(row.get(0)?)?,
            parent: parent.map(run_id).transpose()?,
            living: row.get(1)?,
            path: row.get(2)?,
        });
    }
    Ok(())
}

/// Scopes that were seen on the way, found by path like those in the records.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<String, Vec<Held>>);

impl Seen {
    pub(super) fn add(&mut self, held: Held) {
        self.0.entry(held.path.clone()).or_default().push(held);
    }

    /// What overlaps with a path.
    pub(super) fn at(&self, path: &str) -> impl Iterator<Item = &Held> {
        let (from, until) = below(path);
        let above = upwards(path).filter_map(|above| self.0.get(above));
        let below = self.0.range((Bound::Excluded(from), Bound::Excluded(until)));
        above.chain(below.map(|(_, held)| held)).flatten()
    }
}

/// The scopes of one run.
pub(super) fn of(db: &Connection, name: &RunId) -> Result<Vec<String>, Stop> {
    let mut statement = db.prepare_cached("SELECT path FROM locks WHERE run = ?1")?;
    let rows = statement.query_map([name.as_str()], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records the scopes of a run.
pub(super) fn insert(db: &Connection, name: &RunId, paths: &[String]) -> Result<(), Stop> {
    for path in paths {
        db.prepare_cached("INSERT OR IGNORE INTO locks(run, path) VALUES (?1, ?2)")?
            .execute(params![name.as_str(), path])?;
    }
    Ok(())
}

/// The living run that a waiting one waits for.
pub(super) fn waits_for(db: &Connection, name: &RunId) -> Result<Option<RunId>, Stop> {
    for path in of(db, name)? {
        let all = at(db, &path)?;
        if all.iter().any(|held| held.living && held.run == *name) {
            return Ok(None);
        }
        if let Some(holder) = all.into_iter().find(|held| held.living && held.run != *name) {
            return Ok(Some(holder.run));
        }
    }
    Ok(None)
}

/// Places of runs that the daemon does not know: those at a terminal write by the same rules.
pub(super) fn beside(db: &Connection, state: &Path) -> Result<Vec<Held>, Stop> {
    let writers = writers::now(state).map_err(|error| {
        Fault::new(
            Code::StateDir,
            "cannot see which places are written",
            error.to_string(),
        )
        .help("df -h")
    })?;
    let mut found = Vec::new();
    for Writer { run, parent, paths } in writers {
        if rows::phase(db, &run)?.is_some_and(|phase| phase != "ended") {
            continue;
        }
        found.extend(paths.into_iter().map(|path| Held {
            run: run.clone(),
            parent: parent.clone(),
            living: true,
            path,
        }));
    }
    Ok(found)
}

/// Says who has the place.
pub(super) fn conflict(path: &str, held: &Held) -> Fault {
    Fault::new(
        Code::RunConflict,
        format!("{path} is written by {}", held.run),
        format!("it has {}", held.path),
    )
    .help(format!("bastle stop {}, or --on-conflict queue", held.run))
}

/// Says that somebody has the place.
pub(super) fn conflict_unseen(path: &str) -> Fault {
    Fault::new(Code::RunConflict, format!("{path} is written by another run"), "").help("--on-conflict queue")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records with one run for each path: every third one waits, every fifth has ended.
    fn recorded(db: &Connection, paths: &[&str]) -> Result<(), Stop> {
        for (at, path) in paths.iter().enumerate() {
            let phase = match at {
                _ if at % 5 == 4 => "ended",
                _ if at % 3 == 2 => "queued",
                _ => "kept",
            };
            db.execute(
                "INSERT INTO runs(name, phase, state, spec, created_ms, agent, workspace, caller) \
                 VALUES (?1, ?2, 'running', '{}', 0, 'sh', ?3, 'me')",
                params![format!("r-{at}"), phase, path],
            )?;
            insert(db, &run_id(format!("r-{at}"))?, &[(*path).to_owned()])?;
        }
        Ok(())
    }

    #[test]
    fn what_overlaps_is_found_by_its_path_as_if_everything_had_been_compared() {
        let paths = [
            "/", "/a", "/a/b", "/a/b/c", "/a/bc", "/a/b.x", "/a/b0", "/a/b-", "/a/b/c/d", "/ab", "/b",
            "/a/b/c", "/A/b", "/a/ä", "/a/ä/é", "/a/b/%", "/a/_", "/0", "/a0", "/a/b/c0",
        ];
        let home = tempfile::tempdir().unwrap();
        let store = crate::store::Store::open(home.path()).unwrap();
        let held = store.write(|db| {
            recorded(db, &paths)?;
            paths
                .iter()
                .map(|path| at(db, path))
                .collect::<Result<Vec<_>, _>>()
        });
        let mut seen = Seen::default();
        for held in held.unwrap().into_iter().zip(paths) {
            let (found, path) = held;
            let expected = paths
                .iter()
                .enumerate()
                .filter(|(at, other)| at % 5 != 4 && overlap(path, other));
            let mut expected: Vec<String> = expected.map(|(at, _)| format!("r-{at}")).collect();
            let mut names: Vec<String> = found.iter().map(|held| held.run.as_str().to_owned()).collect();
            assert!(found.is_sorted_by_key(|held| !held.living), "{path}");
            expected.sort();
            names.sort();
            assert_eq!(names, expected, "{path}");
            let own = found.iter().find(|held| held.path == path);
            let before: Vec<&Held> = seen.at(path).collect();
            assert!(before.iter().all(|held| overlap(&held.path, path)), "{path}");
            let all = seen.0.values().flatten().filter(|held| overlap(&held.path, path));
            assert_eq!(before.len(), all.count(), "{path}");
            if let Some(own) = own {
                seen.add(own.clone());
            }
        }
    }

    #[test]
    fn a_place_is_looked_up_and_never_looked_for_among_all_runs() {
        let home = tempfile::tempdir().unwrap();
        let store = crate::store::Store::open(home.path()).unwrap();
        let plans = store.read(|db| {
            let mut plans = Vec::new();
            for (query, count) in [(AT, 1), (BELOW, 2)] {
                let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {query}"))?;
                let words = rusqlite::params_from_iter(vec!["/a"; count]);
                let steps = statement.query_map(words, |row| row.get::<_, String>(3))?;
                plans.extend(steps.collect::<Result<Vec<_>, _>>()?);
            }
            Ok(plans)
        });
        let plans = plans.unwrap();
        assert!(plans.iter().all(|step| step.starts_with("SEARCH")), "{plans:?}");
        assert_eq!(
            plans.iter().filter(|step| step.contains("locks_by_path")).count(),
            2,
            "{plans:?}"
        );
    }
}
