//! The queue: which runs may start now, and starting them. One thread, woken when something changed.
use super::follow::Order;
use super::scopes::{Held, Seen};
use super::words::{now_ms, run_id};
use super::{Inner, adopt, keepers, rows, scopes};
use crate::runs::RunDir;
use crate::store::{Stop, uint};
use crate::writers;
use bastle_contract::runs::{LaunchSpec, RunState};
use bastle_contract::{Code, Fault, RunId};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs beside the daemon whose end somebody waits for.
type Awaited = Arc<Mutex<BTreeSet<RunId>>>;

/// Starts runs until the fleet is closed.
pub(super) fn work(inner: &Arc<Inner>) {
    let awaited = Awaited::default();
    while inner.wait_for_queue() {
        loop {
            match start_some(inner, &awaited) {
                Ok(0) => break,
                Ok(_) => {}
                Err(fault) => {
                    inner.trouble(&fault.to_string());
                    break;
                }
            }
        }
    }
}

/// Starts what may start; how many.
fn start_some(inner: &Arc<Inner>, awaited: &Awaited) -> Result<usize, Fault> {
    if inner.is_closing() {
        return Ok(0);
    }
    // Looked for beside whoever writes; only what was found is looked at again under the lock.
    let most = inner.max_parallel.load(Ordering::Relaxed);
    let state = &inner.options.state;
    let (any, held_up) = inner.store.read(|db| choose(db, state, most))?;
    for run in held_up {
        await_end(inner, awaited, run);
    }
    if any.is_empty() {
        return Ok(0);
    }
    let chosen = inner.store.write(|db| {
        let (chosen, _) = choose(db, state, most)?;
        for name in &chosen {
            rows::set_phase(db, name, "starting")?;
        }
        let mut with_specs = Vec::with_capacity(chosen.len());
        for name in chosen {
            let spec = rows::spec(db, &name)?;
            with_specs.push((name, spec));
        }
        Ok(with_specs)
    })?;
    super::hooks::point("starting-committed");
    let count = chosen.len();
    for (name, spec) in chosen {
        if let Err(fault) = start(inner, &name, &spec) {
            inner.spawn_failures.fetch_add(1, Ordering::Relaxed);
            inner.fence_failures.fetch_add(1, Ordering::Release);
            inner.store.write(|db| {
                rows::finish_unkept(db, &name, ("refused", "not started"), Some(&fault), now_ms())
            })?;
            inner.told();
        }
    }
    Ok(count)
}

/// Has the queue woken when a run ends that the daemon does not follow: the kernel tells by its lock.
fn await_end(inner: &Arc<Inner>, awaited: &Awaited, run: RunId) {
    let known = || awaited.lock().unwrap_or_else(PoisonError::into_inner);
    if !known().insert(run.clone()) {
        return;
    }
    let (own, list, waited) = (Arc::clone(inner), Arc::clone(awaited), run.clone());
    let started = std::thread::Builder::new()
        .name("bastle-await".to_owned())
        .spawn(move || {
            if let Err(error) = writers::wait_for(&own.options.state, &waited) {
                own.trouble(&format!("cannot wait for the end of {waited}: {error}"));
            }
            list.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&waited);
            own.wake_queue();
        });
    if let Err(error) = started {
        known().remove(&run);
        inner.trouble(&format!("cannot wait for the end of {run}: {error}"));
    }
}

/// How many live, in all, and of each batch and profile that has a limit. Counted when somebody asks: most have none.
struct Living<'d> {
    db: &'d Connection,
    all: u64,
    batches: BTreeMap<String, u64>,
    profiles: BTreeMap<String, u64>,
}

const ALL: &str = "SELECT count(*) FROM runs WHERE phase IN ('starting', 'kept')";
const OF_BATCH: &str = "SELECT count(*) FROM runs WHERE phase IN ('starting', 'kept') AND batch = ?1";
const OF_PROFILE: &str = "SELECT count(*) FROM runs WHERE phase IN ('starting', 'kept') AND profile = ?1";

impl<'d> Living<'d> {
    fn count(db: &'d Connection) -> Result<Self, Stop> {
        Ok(Self {
            db,
            all: uint(db.prepare_cached(ALL)?.query_row([], |row| row.get(0))?),
            batches: BTreeMap::new(),
            profiles: BTreeMap::new(),
        })
    }

    /// Whether as many live of a batch and of a profile as may.
    fn is_full(&mut self, batch: &Limited, profile: &Limited) -> Result<bool, Stop> {
        Ok(full(self.db, OF_BATCH, &mut self.batches, batch)?
            || full(self.db, OF_PROFILE, &mut self.profiles, profile)?)
    }

    /// One more lives.
    fn add(&mut self, batch: &Limited, profile: &Limited) {
        self.all += 1;
        for (counts, (name, _)) in [(&mut self.batches, batch), (&mut self.profiles, profile)] {
            if let Some(count) = name.as_ref().and_then(|name| counts.get_mut(name)) {
                *count += 1;
            }
        }
    }
}

/// The name of a batch or a profile, and how many of it may live at once.
type Limited = (Option<String>, Option<i64>);

fn full(
    db: &Connection,
    query: &str,
    counts: &mut BTreeMap<String, u64>,
    (name, most): &Limited,
) -> Result<bool, Stop> {
    let (Some(name), Some(most)) = (name, most) else {
        return Ok(false);
    };
    let count = match counts.get(name) {
        Some(count) => *count,
        None => {
            let count = uint(db.prepare_cached(query)?.query_row([name], |row| row.get(0))?);
            counts.insert(name.clone(), count);
            count
        }
    };
    Ok(count >= uint(*most))
}

/// Which runs may start now, in their order; and which runs beside the daemon hold others up.
fn choose(db: &Connection, state: &Path, most: u32) -> Result<(Vec<RunId>, BTreeSet<RunId>), Stop> {
    let mut statement = db.prepare_cached(
        "SELECT r.name, r.parent, r.batch, b.max_parallel, r.profile, r.at_once FROM runs r \
         LEFT JOIN batches b ON b.id = r.batch WHERE r.phase = 'queued' ORDER BY r.priority DESC, r.ord",
    )?;
    let mut rows = statement.query([])?;
    let mut living = Living::count(db)?;
    let mut before = Seen::default();
    let beside = scopes::beside(db, state)?;
    let (mut chosen, mut held_up) = (Vec::new(), BTreeSet::new());
    while living.all < u64::from(most)
        && let Some(row) = rows.next()?
    {
        let name = run_id(row.get(0)?)?;
        let parent: Option<String> = row.get(1)?;
        let parent = parent.map(run_id).transpose()?;
        let (batch, profile) = ((row.get(2)?, row.get(3)?), (row.get(4)?, row.get(5)?));
        let mut free = true;
        for path in scopes::of(db, &name)? {
            let own = Held {
                run: name.clone(),
                parent: parent.clone(),
                living: false,
                path,
            };
            free &= !before.at(&own.path).any(|other| scopes::collide(&own, other));
            free &= !scopes::at(db, &own.path)?
                .iter()
                .any(|other| other.living && scopes::collide(&own, other));
            for other in beside.iter().filter(|other| scopes::collide(&own, other)) {
                free = false;
                held_up.insert(other.run.clone());
            }
            // Also those that wait hold their place: who came later does not overtake them there.
            before.add(own);
        }
        if !free || living.is_full(&batch, &profile)? {
            continue;
        }
        living.add(&batch, &profile);
        chosen.push(name);
    }
    Ok((chosen, held_up))
}

/// Makes the directory of a run and starts its keeper. The row says already that this may have happened.
fn start(inner: &Arc<Inner>, name: &RunId, spec: &LaunchSpec) -> Result<(), Fault> {
    match make_directory(inner, name, spec)? {
        Directory::Waits => {}
        Directory::Begun => {
            // There is a keeper, or was: the follower finds out.
            inner.order(Order::Follow(name.clone(), None));
            return Ok(());
        }
    }
    super::hooks::point("directory-made");
    let child = keepers::start(inner, name).map_err(|error| {
        Fault::new(
            Code::FenceLost,
            format!("the keeper of {name} cannot be started"),
            error.to_string(),
        )
        .help("bastle doctor")
    })?;
    super::hooks::point("keeper-started");
    inner.order(Order::Follow(name.clone(), Some(child)));
    Ok(())
}

/// What became of a run's directory.
enum Directory {
    /// It waits for a keeper.
    Waits,
    /// A keeper that an earlier daemon started took its lock after this one had looked.
    Begun,
}

fn make_directory(inner: &Inner, name: &RunId, spec: &LaunchSpec) -> Result<Directory, Fault> {
    match RunDir::open(&inner.options.state, name) {
        // Made before a crash: it is ours if it says the same.
        Ok(dir) if dir.spec()? == *spec => {
            return Ok(match dir.file()?.state {
                RunState::Queued => Directory::Waits,
                _ => Directory::Begun,
            });
        }
        Ok(_) => {
            return Err(Fault::new(
                Code::UsageArgument,
                format!("the name {name} is taken"),
                "another run of that name was started beside the daemon",
            )
            .help("choose another name"));
        }
        Err(_) => adopt::clear_half_made(inner, name)?,
    }
    RunDir::create(&inner.options.state, spec, now_ms()).map(|_| Directory::Waits)
}
