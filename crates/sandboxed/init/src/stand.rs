//! A sandbox for a plan that came before: built, confined and proven while nobody waits, then claimed by one run.
//!
//! Only what a claim brings is left for then: the line to control, the standard streams, the command and its environment.
//! What depends on these, or may have changed on the host since, is proven then.
use crate::agent::{self, ToAgent};
use crate::guard::Guard;
use crate::step::Step;
use crate::steps::Steps;
use crate::{
    Ahead, attend, build, command, confine, last_words, out_of_order, own_mask, prepare, probes, start_agent,
};
use bastle_contract::{
    Birth, CgroupEvidence, Claim, Fault, FromChild, FromInit, Handover, LaunchPlan, ToChild, socket,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Builds, says so, and becomes the run that claims it; the exit code.
pub(crate) fn stand(birth: Birth, plan: LaunchPlan, ahead: Ahead) -> u8 {
    let Birth {
        identity,
        by_root,
        line,
        host_namespaces,
        out_of_reach,
        plan: _,
    } = birth;
    let Ok(Some((fence, cgroups, sources))) = released(&line) else {
        return 125;
    };
    // Nobody listens yet, and nothing is said before somebody does.
    let Ok((events, _)) = socket::pair() else {
        return 125;
    };
    let mut handover = Handover {
        plan,
        identity,
        by_root,
        fence,
        events,
        attachments: None,
        stdio: Vec::new(),
        cgroups,
        host_namespaces,
        out_of_reach,
    };
    let carried = carry_out(&mut handover, ahead, sources, &line);
    // Before it is claimed there is nobody to tell: the spawner sees the end, and builds by order.
    let told =
        carried.or_else(|fault| socket::send(&handover.events, &FromInit::Failed(fault), &[]).map(|()| 125));
    told.unwrap_or(124)
}

/// The binds and the word. `None`: no sandbox is wanted after all.
#[expect(clippy::type_complexity, reason = "three things that are taken apart at once")]
fn released(line: &OwnedFd) -> io::Result<Option<(String, Vec<CgroupEvidence>, Vec<OwnedFd>)>> {
    let mut sources = Vec::new();
    loop {
        match socket::receive::<ToChild>(line)? {
            Some((ToChild::Sources, some)) => sources.extend(some),
            Some((ToChild::Release { fence, cgroups }, _)) => return Ok(Some((fence, cgroups, sources))),
            Some((
                ToChild::Mapped | ToChild::Plan | ToChild::Admitted | ToChild::Claim(_) | ToChild::Confirmed,
                _,
            )) => {
                return Err(out_of_order());
            }
            None => return Ok(None),
        }
    }
}

fn carry_out(
    handover: &mut Handover,
    ahead: Ahead,
    sources: Vec<OwnedFd>,
    line: &OwnedFd,
) -> Result<u8, Fault> {
    let (root, filters) = ahead?;
    let mut steps = Steps::start();
    let (mut baseline, mut outlets) = build(handover, root, sources, None, &mut steps)?;
    confine(handover, &mut baseline)?;
    let mask = own_mask();
    let mut guard = Guard::new(&handover.plan).with_programs(baseline.programs.as_ref());
    let (mut agent, (mut probes, _)) = prepare(
        handover,
        agent::Start::WhenClaimed,
        (&baseline, filters),
        &mut guard,
    )?;
    socket::send(line, &FromChild::Stands, &[]).step("standing by", "spawner")?;
    let Some(claim) = claimed(handover, line)? else {
        return Ok(0);
    };
    last_words::leave_to(&handover.events).step("last words", "dup")?;
    // What was done while nobody waited does not count.
    steps = Steps::start();
    let streams: Vec<BorrowedFd<'_>> = handover.stdio.iter().map(AsFd::as_fd).collect();
    socket::send(&agent.line, &ToAgent::Claim(claim), &streams).step("starting the agent", "claim")?;
    handover.stdio.clear();
    // Covers lie on names of the host, and it may have put others in their place.
    probes.extend(probes::of_covers(handover));
    let (found, parts) = attend(&mut agent, &mut guard)?;
    probes.extend(found);
    if !confirmed(line)? {
        return Ok(0);
    }
    outlets.hand_over(&handover.events)?;
    steps.add("claim", &parts);
    let common = command::Common {
        plan: &handover.plan,
        baseline: &baseline,
        filters,
        mask,
    };
    start_agent(handover, agent, (probes, steps.taken()), None, (guard, common))
}

/// Waits until nothing stands against it any more. `false`: something does, and the spawner builds another.
fn confirmed(line: &OwnedFd) -> Result<bool, Fault> {
    let what = "waiting for a run";
    match socket::receive::<ToChild>(line).step(what, "spawner")? {
        Some((ToChild::Confirmed, _)) => Ok(true),
        Some(_) => Err(out_of_order()).step(what, "spawner"),
        None => Ok(false),
    }
}

/// Waits for whose run it becomes. `None`: nobody's.
fn claimed(handover: &mut Handover, line: &OwnedFd) -> Result<Option<Claim>, Fault> {
    let what = "waiting for a run";
    let (claim, mut descriptors) = match socket::receive::<ToChild>(line).step(what, "spawner")? {
        Some((ToChild::Claim(claim), descriptors)) if descriptors.len() == 4 => (claim, descriptors),
        Some(_) => return Err(out_of_order()).step(what, "spawner"),
        None => return Ok(None),
    };
    handover.stdio = descriptors.split_off(1);
    if let Some(events) = descriptors.pop() {
        handover.events = events;
    }
    claim.clone().put_into(&mut handover.plan);
    Ok(Some(claim))
}
