//! Write scopes: two runs that live never write the same place.
//!
//! Paths are compared by their parts after every symlink was resolved, so `/a/b` is not the beginning of `/a/bc`, and a
//! link is the place it leads to. A copy is nobody else's, so it has no scope.
use super::words::run_id;
use crate::store::Stop;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{Connection, params};
use std::path::{Component, Path, PathBuf};

/// Whether one lies in the other.
pub(super) fn overlap(a: &str, b: &str) -> bool {
    let (a, b) = (Path::new(a), Path::new(b));
    a.starts_with(b) || b.starts_with(a)
}

/// The place a path stands for: symlinks resolved as far as it exists.
pub(super) fn settle(path: &str) -> Result<String, Fault> {
    let bad = |why: &str| {
        Fault::new(Code::UsageArgument, format!("unusable scope {path:?}"), why)
            .help("name an absolute path without . and ..")
    };
    let given = Path::new(path);
    let plain = given
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !given.is_absolute() || !plain || path.contains('\0') || path.len() > 4096 {
        return Err(bad("it is not absolute, or has . or .. in it"));
    }
    let mut rest = PathBuf::new();
    for above in given.ancestors() {
        match above.canonicalize() {
            Ok(real) => {
                let whole = if rest.as_os_str().is_empty() {
                    real
                } else {
                    real.join(&rest)
                };
                return whole
                    .into_os_string()
                    .into_string()
                    .map_err(|_| bad("it leads to a name that is not UTF-8"));
            }
            // A link to nowhere could be led anywhere later.
            Err(_) if above.is_symlink() => return Err(bad("a symlink in it leads nowhere")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let name = above.file_name().unwrap_or_default();
                rest = if rest.as_os_str().is_empty() {
                    PathBuf::from(name)
                } else {
                    Path::new(name).join(&rest)
                };
            }
            Err(error) => return Err(bad(&error.to_string())),
        }
    }
    Err(bad("nothing of it exists"))
}

/// Every scope of a run that has not ended: name, phase, order, path.
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

/// All scopes in the order of the queue; living runs first.
pub(super) fn all(db: &Connection) -> Result<Vec<Held>, Stop> {
    let mut statement = db.prepare_cached(
        "SELECT l.run, r.phase <> 'queued', l.path, r.parent FROM locks l JOIN runs r ON r.name = l.run \
         WHERE r.phase <> 'ended' ORDER BY r.phase = 'queued', r.priority DESC, r.ord",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let parent: Option<String> = row.get(3)?;
        found.push(Held {
            run: run_id(row.get(0)?)?,
            parent: parent.map(run_id).transpose()?,
            living: row.get(1)?,
            path: row.get(2)?,
        });
    }
    Ok(found)
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
    let own = of(db, name)?;
    if own.is_empty() {
        return Ok(None);
    }
    let all = all(db)?;
    if all.iter().any(|held| held.living && held.run == *name) {
        return Ok(None);
    }
    let holder = all.into_iter().filter(|held| held.living).find(|held| {
        own.iter()
            .any(|path| held.run != *name && overlap(path, &held.path))
    });
    Ok(holder.map(|held| held.run))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_compared_by_its_parts_and_not_by_its_letters() {
        for (a, b, same) in [
            ("/a/b", "/a/bc", false),
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/b/c", true),
            ("/a/b/c", "/a/b", true),
            ("/", "/a", true),
            ("/a", "/b", false),
            ("/a/b.x", "/a/b", false),
        ] {
            assert_eq!(overlap(a, b), same, "{a} {b}");
            assert_eq!(overlap(b, a), same, "{b} {a}");
        }
    }

    #[test]
    fn a_link_is_the_place_it_leads_to_and_one_that_leads_nowhere_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("project")).unwrap();
        std::os::unix::fs::symlink(real.join("project"), real.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", real.join("dead")).unwrap();
        let settled = |name: &str| settle(real.join(name).to_str().unwrap());
        let project = real.join("project").to_str().unwrap().to_owned();
        assert_eq!(settled("link").unwrap(), project);
        assert_eq!(settled("link/not/yet").unwrap(), format!("{project}/not/yet"));
        assert!(overlap(&settled("link/x").unwrap(), &project));
        for bad in ["dead", "dead/x", "project/../link", "./project/./x/.."] {
            assert!(settled(bad).is_err(), "{bad}");
        }
        for bad in ["", "relative", "/a/../b", "/a\0b"] {
            assert!(settle(bad).is_err(), "{bad:?}");
        }
    }
}
