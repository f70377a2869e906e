//! Launches per second by eight at once: clients of one daemon, each with its plan, beside eight that start bwrap. A burst,
//! which a pool of sandboxes that stand is for; and more than the pool has, so that most have to be built meanwhile.
use super::pool::Pool;
use crate::bench::sample::{measured, rounded};
use crate::sh::{self, Failed};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How many at once.
const AT_ONCE: usize = 8;
/// Rounds whose figures are thrown away: the pool learns in them what is asked for.
const WARM_UP: usize = 4;

/// How many launches of each in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Forty in all: fewer than stand.
    Burst,
    /// Two hundred: three times as many.
    Sustained,
}

impl Load {
    fn each(self) -> usize {
        match self {
            Self::Burst => 5,
            Self::Sustained => 25,
        }
    }
}

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
    (samples, load): (usize, Load),
) -> Result<Together, Failed> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let each = load.each();
    for round in 0..samples / 3 + WARM_UP {
        let ours_now = by_pool(pool, each)?;
        // Nobody's time is taken by what is built for the next round.
        pool.stand_again();
        let figures = (ours_now, by_bwrap(bwrap, each)?);
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

fn per_second(each: usize, since: Instant) -> f64 {
    (AT_ONCE * each) as f64 / since.elapsed().as_secs_f64()
}

fn by_pool(pool: &Pool<'_>, each: usize) -> Result<f64, Failed> {
    let mut clients = (0..AT_ONCE)
        .map(|_| pool.client(each))
        .collect::<Result<Vec<_>, _>>()?;
    pool.settle();
    let started = Instant::now();
    for client in &mut clients {
        client.go()?;
    }
    for client in clients {
        client.finish()?;
    }
    Ok(per_second(each, started))
}

fn by_bwrap(bwrap: &(dyn Fn() -> Command + Sync), each: usize) -> Result<f64, Failed> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let starters: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| several(bwrap, each)))
            .collect();
        starters.into_iter().try_for_each(|starter| {
            starter
                .join()
                .map_err(|_| Failed::new("bwrap", "a starter died"))?
        })
    })?;
    Ok(per_second(each, started))
}

fn several(bwrap: &(dyn Fn() -> Command + Sync), each: usize) -> Result<(), Failed> {
    for _ in 0..each {
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
