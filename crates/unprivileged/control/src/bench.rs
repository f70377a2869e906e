//! A launch by the spawner alone, for the benchmark: no policy, no record, nobody listening.
use crate::pipeline::Ready;
use crate::spawner::Spawner;
use crate::streams::Streams;
use bastle_contract::{Code, Fault, FromInit, FromSpawner, LaunchPlan, ToInit, socket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// What one launch took, in microseconds.
#[derive(Clone, Debug)]
pub struct Launched {
    /// From the frame to the end of everything.
    pub total: u64,
    /// The steps inside.
    pub steps: Vec<(String, u64)>,
}

/// Launches a prepared plan and waits for its end.
pub fn launch_once(ready: Ready) -> Result<Launched, Fault> {
    let (plan, spawner) = ready.into_parts();
    launch((&plan, None), spawner)
}

/// A prepared plan that is launched again and again, each time by a spawner that was not asked for anything yet.
pub struct Repeated {
    plan: LaunchPlan,
    /// As it is handed over.
    document: OwnedFd,
}

impl Repeated {
    /// Keeps the plan, and lets go of the spawner that waits for it.
    pub fn new(ready: Ready) -> Result<Self, Fault> {
        let plan = ready.into_parts().0;
        let document = crate::spawner::document(&plan)?;
        Ok(Self { plan, document })
    }

    /// From the first word to a spawner to the end of everything. Whoever has its plan knows the host already: it says what
    /// it wants and hands the plan over at once, and hears both answers.
    pub fn launch(&self) -> Result<Launched, Fault> {
        let asked = Instant::now();
        let spawner = Spawner::start()?;
        let connected = since(asked);
        let mut launched = launch((&self.plan, Some(&self.document)), spawner)?;
        launched.total += connected;
        launched.steps.push(("connect".to_owned(), connected));
        Ok(launched)
    }
}

fn since(instant: Instant) -> u64 {
    u64::try_from(instant.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn launch((plan, document): (&LaunchPlan, Option<&OwnedFd>), spawner: Spawner) -> Result<Launched, Fault> {
    let lost = |why: String| Fault::new(Code::FenceLost, "the launch did not come to its end", why);
    let (events, theirs) = socket::pair().map_err(|error| lost(error.to_string()))?;
    let (streams, ends) = Streams::open(plan.stdio)?;
    let started = Instant::now();
    match document {
        Some(document) => {
            spawner.launch_document(document, plan, theirs.as_fd(), &[], &ends)?;
            match spawner.receive()? {
                FromSpawner::Hello { .. } => {}
                FromSpawner::Refused(fault) => return Err(fault),
                other => return Err(lost(format!("unexpected {other:?}"))),
            }
        }
        None => spawner.launch(plan, theirs.as_fd(), &[], &ends)?,
    }
    drop((theirs, ends));
    // What tells of files is kept to the end, as by a run.
    let watched = match spawner.receive_with()? {
        (FromSpawner::Launched { .. }, watched) => watched,
        (FromSpawner::Refused(fault), _) => return Err(fault),
        (other, _) => return Err(lost(format!("unexpected {other:?}"))),
    };
    let mut steps = vec![("clone and cgroups".to_owned(), since(started))];
    loop {
        match socket::receive::<FromInit>(&events).map_err(|error| lost(error.to_string()))? {
            Some((
                FromInit::Ready {
                    statement,
                    steps: inside,
                },
                _,
            )) if statement.proves(&plan.guarantees) => {
                steps.extend(inside);
                break;
            }
            // Nobody will be granted a file here.
            Some((FromInit::Broker, _)) => {}
            Some((FromInit::Failed(fault), _)) => return Err(fault),
            other => return Err(lost(format!("unexpected {other:?}"))),
        }
    }
    let proven = Instant::now();
    socket::send(&events, &ToInit::Go, &[]).map_err(|error| lost(error.to_string()))?;
    loop {
        match spawner.receive()? {
            FromSpawner::Ended { .. } => break,
            FromSpawner::Event(_) => {}
            other => return Err(lost(format!("unexpected {other:?}"))),
        }
    }
    steps.push(("exec and teardown".to_owned(), since(proven)));
    let total = since(started);
    drop(streams);
    // As by a run, too.
    crate::fileops::leave(watched);
    spawner.close().map_err(|error| lost(error.to_string()))?;
    Ok(Launched { total, steps })
}
