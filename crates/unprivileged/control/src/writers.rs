//! Places that living runs write, whoever started them: two runs never write the same place.
//!
//! A run that writes outside a copy has a file with its places, which it keeps locked: the kernel lets go of the lock with
//! the process, so what a killed run had is free at once. The lock of the state directory is held while somebody looks and
//! enters, so that of two that come together one finds the other.
use bastle_contract::{Code, Fault, RunId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Below bastle's own directory.
const DIRECTORY: &str = "writers";
/// What is read of one file.
const MOST_BYTES: u64 = 1 << 20;

/// A run and the places that it writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writer {
    pub(crate) run: RunId,
    pub(crate) parent: Option<RunId>,
    /// Canonical, as [`settle`] makes them.
    pub(crate) paths: Vec<String>,
}

impl Writer {
    /// The places of both that lie in each other, unless one was started by the other: a child writes where its parent may.
    pub(crate) fn meets<'a>(&'a self, other: &'a Self) -> Option<(&'a str, &'a str)> {
        let related = self.parent.as_ref() == Some(&other.run) || other.parent.as_ref() == Some(&self.run);
        if related || self.run == other.run {
            return None;
        }
        let pairs = self
            .paths
            .iter()
            .flat_map(|own| other.paths.iter().map(move |theirs| (own, theirs)));
        let mut pairs = pairs.filter(|(own, theirs)| overlap(own, theirs));
        pairs.next().map(|(own, theirs)| (own.as_str(), theirs.as_str()))
    }
}

/// Whether one lies in the other.
pub(crate) fn overlap(a: &str, b: &str) -> bool {
    let (a, b) = (Path::new(a), Path::new(b));
    a.starts_with(b) || b.starts_with(a)
}

/// The place a path stands for: symlinks resolved as far as it exists.
pub(crate) fn settle(path: &str) -> Result<String, Fault> {
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

/// Places that are this run's until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    state: PathBuf,
    file: PathBuf,
    _locked: OwnedFd,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Without the lock, the directory could go while somebody enters. What cannot be removed is free all the same.
        if let Ok(_held) = hold(&self.state) {
            drop(std::fs::remove_file(&self.file));
            // Only the last one can.
            drop(std::fs::remove_dir(self.state.join(DIRECTORY)));
        }
    }
}

/// Whether a run starts where another one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The run is refused while another one writes there.
    Refused,
    /// A person said that it may.
    Allowed,
}

/// Takes the places for as long as the result lives; or says who has one of them.
pub(crate) fn enter(state: &Path, writer: &Writer, sharing: Sharing) -> Result<Entered, Fault> {
    let fail = |error: io::Error| {
        Fault::new(
            Code::StateDir,
            format!("cannot enter the run in {}", state.join(DIRECTORY).display()),
            error.to_string(),
        )
        .help("df -h")
    };
    let _held = hold(state).map_err(fail)?;
    for other in living(state).map_err(fail)? {
        if let Some((own, theirs)) = writer.meets(&other)
            && sharing == Sharing::Refused
        {
            return Err(conflict(own, theirs, &other.run));
        }
    }
    let directory = state.join(DIRECTORY);
    match rustix::fs::mkdir(&directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(fail(error.into())),
    }
    let file = directory.join(writer.run.as_str());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&file, flags, Mode::RUSR | Mode::WUSR).map_err(|e| fail(e.into()))?;
    rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(|e| fail(e.into()))?;
    let mut opened = File::from(opened);
    serde_json::to_vec(writer)
        .map_err(io::Error::other)
        .and_then(|bytes| opened.write_all(&bytes))
        .map_err(fail)?;
    Ok(Entered {
        state: state.to_owned(),
        file,
        _locked: opened.into(),
    })
}

/// Everybody who writes outside a copy now. For whoever enters nothing: it may be over in the next moment.
pub(crate) fn now(state: &Path) -> io::Result<Vec<Writer>> {
    if !state.join(DIRECTORY).exists() {
        return Ok(Vec::new());
    }
    let _held = hold(state)?;
    living(state)
}

/// Returns when a run writes no more.
pub(crate) fn wait_for(state: &Path, run: &RunId) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = state.join(DIRECTORY).join(run.as_str());
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => Ok(rustix::fs::flock(&file, FlockOperation::LockShared)?),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn conflict(own: &str, theirs: &str, run: &RunId) -> Fault {
    Fault::new(
        Code::RunConflict,
        format!("{own} is written by {run}"),
        format!("it has {theirs}, and two runs that live may not write the same place"),
    )
    .help(format!(
        "bastle exec {run} -- CMD runs a command beside it, in the same sandbox"
    ))
    .help("bastle run --workspace copy -- CMD works on a copy")
    .help("bastle run --share-workspace -- CMD lets both write there")
    .help(format!("bastle stop {run}"))
}

/// The lock of the directory, which goes with the value.
fn hold(state: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(state, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Whose file is locked. What others left is removed.
fn living(state: &Path) -> io::Result<Vec<Writer>> {
    let entries = match std::fs::read_dir(state.join(DIRECTORY)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => std::fs::remove_file(&path)?,
            Err(Errno::WOULDBLOCK) => {
                let mut bytes = Vec::new();
                File::from(file).take(MOST_BYTES).read_to_end(&mut bytes)?;
                // A run that cannot be understood is not taken for one that writes nothing.
                found.push(serde_json::from_slice(&bytes).map_err(io::Error::other)?);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(run: &str, parent: Option<&str>, paths: &[&str]) -> Writer {
        let id = |name: &str| RunId::try_from(name.to_owned()).unwrap();
        Writer {
            run: id(run),
            parent: parent.map(id),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

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

    #[test]
    fn a_place_belongs_to_one_run_until_it_ends_and_nothing_is_left_then() {
        let state = tempfile::tempdir().unwrap();
        let first = enter(
            state.path(),
            &writer("first", None, &["/p/a", "/q"]),
            Sharing::Refused,
        )
        .unwrap();
        for (taken, free) in [
            ("/p/a", "/p/b"),
            ("/p", "/p/ab"),
            ("/p/a/deep", "/r"),
            ("/q", "/qq"),
        ] {
            let fault = enter(
                state.path(),
                &writer("second", None, &["/x", taken]),
                Sharing::Refused,
            )
            .unwrap_err();
            assert_eq!(fault.code, Code::RunConflict, "{taken}");
            assert!(fault.what.contains("first"), "{fault}");
            drop(enter(state.path(), &writer("second", None, &[free]), Sharing::Refused).unwrap());
        }
        let child = writer("child", Some("first"), &["/p/a"]);
        let child = enter(state.path(), &child, Sharing::Refused).unwrap();
        let fault = enter(state.path(), &writer("third", None, &["/q"]), Sharing::Refused).unwrap_err();
        assert!(fault.what.contains("first"), "{fault}");
        let third = writer("third", None, &["/q"]);
        drop(enter(state.path(), &third, Sharing::Allowed).unwrap());
        drop(first);
        let fault = enter(state.path(), &writer("third", None, &["/p"]), Sharing::Refused).unwrap_err();
        assert!(fault.what.contains("child"), "{fault}");
        drop(child);
        drop(enter(state.path(), &writer("third", None, &["/p"]), Sharing::Refused).unwrap());
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_run_left_is_free_and_removed_and_what_lives_but_says_nothing_is_not_passed_over() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(DIRECTORY);
        std::fs::create_dir(&directory).unwrap();
        let killed = writer("killed", None, &["/p"]);
        std::fs::write(directory.join("killed"), serde_json::to_vec(&killed).unwrap()).unwrap();
        assert_eq!(now(state.path()).unwrap(), []);
        assert!(!directory.join("killed").exists());
        let silent = File::create(directory.join("silent")).unwrap();
        rustix::fs::flock(&silent, FlockOperation::NonBlockingLockExclusive).unwrap();
        let fault = enter(state.path(), &writer("other", None, &["/p"]), Sharing::Refused).unwrap_err();
        assert_eq!(fault.code, Code::StateDir);
        drop(silent);
        drop(enter(state.path(), &writer("other", None, &["/p"]), Sharing::Refused).unwrap());
    }

    #[test]
    fn whoever_waits_for_a_run_is_woken_by_its_end() {
        let state = tempfile::tempdir().unwrap();
        let own = writer("first", None, &["/p"]);
        let entered = enter(state.path(), &own, Sharing::Refused).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for(state.path(), &own.run));
            drop(entered);
            waiting.join().unwrap().unwrap();
        });
        wait_for(state.path(), &own.run).unwrap();
    }

    #[test]
    fn of_many_that_come_together_for_one_place_one_gets_it() {
        let state = tempfile::tempdir().unwrap();
        let at_the_line = std::sync::Barrier::new(8);
        let got: Vec<_> = std::thread::scope(|scope| {
            let come = |number: usize| {
                let (state, line) = (state.path(), &at_the_line);
                scope.spawn(move || {
                    line.wait();
                    let entered = enter(
                        state,
                        &writer(&format!("r-{number}"), None, &["/p"]),
                        Sharing::Refused,
                    )
                    .ok();
                    line.wait();
                    entered.is_some()
                })
            };
            let coming: Vec<_> = (0..8).map(come).collect();
            coming.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(got.iter().filter(|got| **got).count(), 1);
    }
}
