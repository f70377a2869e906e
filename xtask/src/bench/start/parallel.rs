//! Launches per second by eight at once: clients of one daemon, each with its plan, beside eight that start bwrap.
use super::pool::Pool;
use crate::bench::sample::{measured, rounded};
use crate::sh::{self, Failed};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How many at once, and how many launches of each in one sample.
const AT_ONCE: usize = 8;
const LAUNCHES: usize = 5;
/// Rounds whose figures are thrown away.
const WARM_UP: usize = 1;

/// Median launches per second.
pub(super) struct Together {
    bastle: f64,
    bwrap: f64,
}

impl Together {
    pub(super) fn over_bwrap(&self) -> f64 {
        rounded(self.bastle / self.bwrap)
    }

    pub(super) fn figures(&self) -> BTreeMap<String, f64> {
        [("bastle", self.bastle), ("bwrap", self.bwrap)]
            .into_iter()
            .map(|(name, figure)| (name.to_owned(), rounded(figure)))
            .collect()
    }
}

/// Measures both in turn. One sample has many launches, so a third of the samples say as much.
pub(super) fn run(
    pool: &Pool<'_>,
    bwrap: &(dyn Fn() -> Command + Sync),
    samples: usize,
) -> Result<Together, Failed> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..samples / 3 + WARM_UP {
        let figures = (by_pool(pool)?, by_bwrap(bwrap)?);
        if round >= WARM_UP {
            ours.push(figures.0);
            theirs.push(figures.1);
        }
    }
    let median = |mut figures: Vec<f64>| {
        measured(&mut figures)
            .map(|measured| measured.median)
            .ok_or_else(|| Failed::new("launches at once", "nothing was measured"))
    };
    Ok(Together {
        bastle: median(ours)?,
        bwrap: median(theirs)?,
    })
}

fn per_second(since: Instant) -> f64 {
    (AT_ONCE * LAUNCHES) as f64 / since.elapsed().as_secs_f64()
}

fn by_pool(pool: &Pool<'_>) -> Result<f64, Failed> {
    let mut clients = (0..AT_ONCE)
        .map(|_| pool.client(LAUNCHES))
        .collect::<Result<Vec<_>, _>>()?;
    pool.settle();
    let started = Instant::now();
    for client in &mut clients {
        client.go()?;
    }
    for client in clients {
        client.finish()?;
    }
    Ok(per_second(started))
}

fn by_bwrap(bwrap: &(dyn Fn() -> Command + Sync)) -> Result<f64, Failed> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let starters: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| several(bwrap))).collect();
        starters.into_iter().try_for_each(|starter| {
            starter
                .join()
                .map_err(|_| Failed::new("bwrap", "a starter died"))?
        })
    })?;
    Ok(per_second(started))
}

fn several(bwrap: &(dyn Fn() -> Command + Sync)) -> Result<(), Failed> {
    for _ in 0..LAUNCHES {
        let mut command = bwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command.status().map_err(Failed::io("bwrap"))?;
        if !status.success() {
            return Err(Failed::new(sh::shown(&command), status.to_string()));
        }
    }
    Ok(())
}
