//! The queue: which runs may start now, and starting them. One thread, woken when something changed.
use super::follow::Order;
use super::scopes::Held;
use super::words::{now_ms, run_id};
use super::{Inner, adopt, keepers, rows, scopes};
use crate::runs::RunDir;
use crate::store::{Stop, uint};
use bastle_contract::runs::{LaunchSpec, RunState};
use bastle_contract::{Code, Fault, RunId};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Starts runs until the fleet is closed.
pub(super) fn work(inner: &Arc<Inner>) {
    while inner.wait_for_queue() {
        loop {
            match start_some(inner) {
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
fn start_some(inner: &Arc<Inner>) -> Result<usize, Fault> {
    if inner.is_closing() {
        return Ok(0);
    }
    // Looked for beside whoever writes; only what was found is looked at again under the lock.
    let most = inner.max_parallel.load(Ordering::Relaxed);
    let any = inner.store.read(|db| choose(db, most))?;
    if any.is_empty() {
        return Ok(0);
    }
    let chosen = inner.store.write(|db| {
        let chosen = choose(db, most)?;
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
            inner.store.write(|db| {
                rows::finish_unkept(db, &name, ("refused", "not started"), Some(&fault), now_ms())
            })?;
            inner.told();
        }
    }
    Ok(count)
}

/// How many live, in all, of each batch and of each profile.
#[derive(Default)]
struct Living {
    all: u64,
    batches: BTreeMap<String, u64>,
    profiles: BTreeMap<String, u64>,
}

impl Living {
    fn count(db: &Connection) -> Result<Self, Stop> {
        let mut living = Self::default();
        let mut statement = db.prepare_cached(
            "SELECT batch, profile, count(*) FROM runs WHERE phase IN ('starting', 'kept') GROUP BY batch, profile",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            living.add(row.get(0)?, row.get(1)?, uint(row.get(2)?));
        }
        Ok(living)
    }

    fn add(&mut self, batch: Option<String>, profile: Option<String>, count: u64) {
        self.all += count;
        if let Some(batch) = batch {
            *self.batches.entry(batch).or_default() += count;
        }
        if let Some(profile) = profile {
            *self.profiles.entry(profile).or_default() += count;
        }
    }
}

/// Which runs may start now, in their order.
fn choose(db: &Connection, most: u32) -> Result<Vec<RunId>, Stop> {
    let mut living = Living::count(db)?;
    let held = scopes::all(db)?;
    let (mut taken, waiting): (Vec<_>, Vec<_>) = held.iter().partition(|held| held.living);
    let mut wanted: BTreeMap<&RunId, Vec<&Held>> = BTreeMap::new();
    for held in waiting {
        wanted.entry(&held.run).or_default().push(held);
    }
    let mut statement = db.prepare_cached(
        "SELECT r.name, r.batch, b.max_parallel, r.profile, r.at_once FROM runs r \
         LEFT JOIN batches b ON b.id = r.batch WHERE r.phase = 'queued' ORDER BY r.priority DESC, r.ord",
    )?;
    let mut rows = statement.query([])?;
    let mut chosen = Vec::new();
    while living.all < u64::from(most)
        && let Some(row) = rows.next()?
    {
        let name = run_id(row.get(0)?)?;
        let (batch, profile): (Option<String>, Option<String>) = (row.get(1)?, row.get(3)?);
        let full = |of: &BTreeMap<String, u64>, key: &Option<String>, most: Option<i64>| {
            let count = key.as_ref().and_then(|key| of.get(key)).copied().unwrap_or(0);
            most.is_some_and(|most| count >= uint(most))
        };
        let paths = wanted.get(&name).map_or(&[][..], Vec::as_slice);
        let free = !paths
            .iter()
            .any(|own| taken.iter().any(|other| scopes::collide(own, other)));
        // Also those that wait hold their place: who came later does not overtake them there.
        taken.extend(paths);
        if !free
            || full(&living.batches, &batch, row.get(2)?)
            || full(&living.profiles, &profile, row.get(4)?)
        {
            continue;
        }
        living.add(batch, profile, 1);
        chosen.push(name);
    }
    Ok(chosen)
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
