//! The network side of a living run: decisions to the record and the person, and a new egress process where one died.
//!
//! **Trust:** of what egress says only the shape is trusted; hosts, methods and paths come from the agent.
use super::Relay;
use super::questions::{Asked, PERSON};
use crate::egress::{Egress, NetTotals, Outlet, Rules, Setup};
use crate::record::Keep;
use crate::voice::AfterLoss;
use bastle_audit::AuditEvent;
use bastle_contract::egress::{
    BudgetStep, CANARY_NAME, CANARY_REASON, FromEgress, NetDecision, NetVerdict, ToEgress,
};
use bastle_contract::{Code, ExitCode, Fault, Network};
use bastle_policy::NetPolicy;
use serde_json::json;
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often a lost egress process is replaced.
const MOST_RESTARTS: u32 = 3;
/// Frames that are taken at once and recorded with one sync.
const MOST_AT_ONCE: usize = 256;
/// Denials whose ids a person can still answer.
const MOST_RECENT: usize = 256;
/// How long egress must be silent at the end of a run before it is told: ends of connections come in bursts.
const SILENCE: Duration = Duration::from_millis(20);
/// Bytes out after which it is told again how many there were.
const TRAFFIC_STEP: u64 = 16 * 1024 * 1024;
/// Rules the agent asked for that are told.
const MOST_WANTED: u32 = 20;

/// The state of a run's network.
pub(crate) struct Net {
    pub(super) egress: Option<Egress>,
    /// The same, once it was told that the run is over.
    leaving: Option<Egress>,
    pub(super) setup: Setup,
    pub(super) rules: Rules,
    listeners: Vec<OwnedFd>,
    pub(super) questions: VecDeque<Asked>,
    /// What a person allowed for the rest of the run.
    pub(super) remembered: Vec<super::questions::Subject>,
    /// The last denials, for commands that name one by its id.
    pub(super) recent: VecDeque<NetDecision>,
    pub(super) changes: VecDeque<Change>,
    pub(super) once: Vec<Once>,
    wanted: u32,
    pub(super) totals: NetTotals,
}

/// A change of the rules on its way.
pub(super) struct Change {
    pub(super) text: String,
    pub(super) table: NetPolicy,
    /// What the rules were, should egress refuse.
    pub(super) before: Rules,
    pub(super) asker: Asker,
}

/// Who asked for a change.
pub(super) struct Asker {
    /// Who waits for the answer.
    pub(super) peer: Option<u64>,
    /// The kind of principal and its id; empty where nobody asked.
    pub(super) by: String,
}

impl Asker {
    /// A change that follows from what was decided before.
    pub(super) fn nobody() -> Self {
        Self {
            peer: None,
            by: String::new(),
        }
    }

    /// Somebody who waits at a connection; a person where no daemon says otherwise.
    pub(super) fn at(peer: u64, by: Option<String>) -> Self {
        Self {
            peer: Some(peer),
            by: by.unwrap_or_else(|| PERSON.to_owned()),
        }
    }
}

/// A rule that holds for the first thing it lets through.
pub(super) struct Once {
    pub(super) rule: String,
    pub(super) host: String,
    /// What it let through.
    pub(super) seq: Option<u64>,
}

impl Net {
    pub(crate) fn new(outlet: Outlet) -> Self {
        let Outlet { egress, setup, rules } = outlet;
        Self {
            egress: Some(egress),
            leaving: None,
            setup,
            rules,
            listeners: Vec::new(),
            questions: VecDeque::new(),
            remembered: Vec::new(),
            recent: VecDeque::new(),
            changes: VecDeque::new(),
            once: Vec::new(),
            wanted: 0,
            totals: NetTotals::default(),
        }
    }

    /// The descriptor to poll: readable when a frame has come.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.egress.as_ref().map(Egress::socket)
    }

    /// Whether nothing was asked for so far.
    fn is_unused(&self) -> bool {
        self.totals.requests + self.totals.denied == 0
    }

    /// When the oldest question's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.questions.front().and_then(|asked| asked.until)
    }

    /// One that is gone is noticed where it is heard.
    pub(super) fn tell(&self, frame: &ToEgress) {
        if let Some(egress) = &self.egress {
            drop(egress.send(frame));
        }
    }
}

impl Relay<'_> {
    /// The listeners exist: they go to egress, and a copy stays for the one that may have to take its place.
    pub(super) fn faces(&mut self, listeners: Vec<OwnedFd>) -> Result<(), Fault> {
        let (Some(net), Network::Egress(faces)) = (&mut self.net, &self.plan.network) else {
            return Ok(());
        };
        if listeners.len() != 4 + faces.transparent.len() {
            let why = format!("{} descriptors came", listeners.len());
            self.give_up(
                125,
                Fault::new(
                    Code::FenceStep,
                    "the network faces are not those of the plan",
                    why,
                ),
            );
            return Ok(());
        }
        net.listeners = listeners;
        match &net.egress {
            Some(egress) => egress.serve(faces.clone(), &net.listeners),
            None => Ok(()),
        }
    }

    /// Takes what egress has to say; one sync covers everything that waits for the record.
    pub(super) fn hear_egress(&mut self) -> Result<(), Fault> {
        let mut held = None;
        let mut lost = None;
        for _ in 0..MOST_AT_ONCE {
            let Some(egress) = self.net.as_ref().and_then(|net| net.egress.as_ref()) else {
                break;
            };
            if !egress.speaks(Duration::ZERO) {
                break;
            }
            match egress.receive() {
                Ok((frame, _)) => held = held.max(self.net_frame(frame)?),
                Err(fault) => {
                    lost = Some(fault);
                    break;
                }
            }
        }
        match held {
            Some(upto) => {
                self.record.sync()?;
                self.tell_egress(&ToEgress::Recorded { upto });
            }
            None => self.record.flush()?,
        }
        match lost {
            Some(fault) => self.egress_lost(fault),
            None => Ok(()),
        }
    }

    fn tell_egress(&self, frame: &ToEgress) {
        if let Some(net) = &self.net {
            net.tell(frame);
        }
    }

    /// Nobody is left inside. A proxy that was not used is told now, so that it ends while the spawner does.
    pub(super) fn dismiss_egress(&mut self) {
        if let Some(net) = &mut self.net
            && net.is_unused()
            && net.changes.is_empty()
            && let Some(egress) = net.egress.take_if(|egress| !egress.speaks(Duration::ZERO))
        {
            egress.dismiss();
            net.leaving = Some(egress);
        }
    }

    /// The last words of egress, when the run is over.
    pub(super) fn farewell(&mut self) -> Result<Option<NetTotals>, Fault> {
        let egress = self.net.as_mut().and_then(|net| {
            net.listeners.clear();
            net.egress.take().or_else(|| net.leaving.take())
        });
        if let Some(mut egress) = egress {
            // Connections of a run that used none have no end to tell.
            let quiet = self.net.as_ref().is_none_or(Net::is_unused);
            let silence = if quiet { Duration::ZERO } else { SILENCE };
            egress.farewell(silence, |frame| self.net_frame(frame).map(|_| ()))?;
            egress.kill();
            self.ending.egress = Some(egress);
            self.record.flush()?;
        }
        Ok(self.net.take().map(|net| net.totals))
    }

    /// Takes one frame; gives back the number of a decision whose effect waits for the record.
    fn net_frame(&mut self, frame: FromEgress) -> Result<Option<u64>, Fault> {
        match frame {
            FromEgress::Decided(decision) => self.decided(decision),
            FromEgress::Ask { ask, decision } => self.ask(ask, decision).map(|()| None),
            FromEgress::Closed(closed) => {
                self.record
                    .net(&AuditEvent::NetClosed(closed.clone()), Keep::WhileFew)?;
                if let Some(net) = &mut self.net {
                    let before = net.totals.bytes_out / TRAFFIC_STEP;
                    net.totals.closed(&closed);
                    let totals = &net.totals;
                    if totals.bytes_out / TRAFFIC_STEP > before {
                        let data = json!({ "bytes_out": totals.bytes_out, "bytes_in": totals.bytes_in });
                        self.voice.happened("traffic", data.clone());
                        self.notice("traffic", data)?;
                    }
                }
                self.once_over(closed.seq);
                Ok(None)
            }
            FromEgress::Budget(reached) => {
                self.record.durable(&AuditEvent::Budget(reached.clone()))?;
                self.voice.budget(&reached);
                match reached.step {
                    BudgetStep::Warn => {}
                    BudgetStep::Pause => self.ask_budget(reached)?,
                    BudgetStep::Stop => self.out_of_budget()?,
                }
                Ok(None)
            }
            FromEgress::NeedSecret { name } => self.fetch_secret(&name).map(|()| None),
            FromEgress::Wanted { rule, why } => self.wanted(rule, why).map(|()| None),
            FromEgress::Reloaded { cut } => self.reloaded(cut).map(|()| None),
            FromEgress::Refused(fault) => self.not_reloaded(fault).map(|()| None),
            // Said once, before the run; whoever says it again says nothing.
            FromEgress::Hello { .. } | FromEgress::Ready { .. } => Ok(None),
        }
    }

    fn decided(&mut self, decision: NetDecision) -> Result<Option<u64>, Fault> {
        let held = decision.held.then_some(decision.seq);
        let keep = if decision.held {
            Keep::Always
        } else {
            Keep::WhileFew
        };
        self.record.net(&AuditEvent::Net(decision.clone()), keep)?;
        // The fence's own probe asks for this name to see that it is refused.
        if decision.host == CANARY_NAME {
            return Ok(held);
        }
        let Some(net) = &mut self.net else {
            return Ok(held);
        };
        net.totals.decided(&decision);
        let mut touched = None;
        if decision.code == Some(Code::NetCanary) {
            let place = decision.reason.strip_prefix(CANARY_REASON).unwrap_or("a request");
            let data = json!({
                "severity": "high", "where": place, "id": decision.id, "method": decision.method,
                "host": decision.host, "port": decision.port, "count": decision.count,
            });
            self.voice.happened("canary", data.clone());
            touched = Some(data);
        }
        self.voice.net_decided(&decision);
        match decision.verdict {
            NetVerdict::Denied => {
                // A server that does not answer was not refused by anybody here.
                if !matches!(decision.code, Some(Code::NetResolve | Code::NetUpstream)) {
                    self.record.denials += u64::from(decision.count.max(1));
                }
                let known = net.recent.iter().any(|denial| denial.id == decision.id);
                if !known {
                    net.recent.push_back(decision.clone());
                    if net.recent.len() > MOST_RECENT {
                        net.recent.pop_front();
                    }
                    self.voice.net_denied(&decision);
                }
            }
            NetVerdict::Allowed => {
                let spent = net.once.iter_mut();
                for once in spent
                    .filter(|once| once.seq.is_none() && once.host == decision.host && decision.port != 0)
                {
                    once.seq = Some(decision.seq);
                }
            }
            NetVerdict::Asked | NetVerdict::Learned => {}
        }
        self.notice_request(&decision)?;
        if let Some(data) = touched {
            self.notice("canary", data)?;
        }
        Ok(held)
    }

    fn wanted(&mut self, rule: String, why: String) -> Result<(), Fault> {
        self.record.net(
            &AuditEvent::Wanted {
                rule: rule.clone(),
                why: why.clone(),
            },
            Keep::WhileFew,
        )?;
        if let Some(net) = &mut self.net {
            net.wanted += 1;
            if net.wanted <= MOST_WANTED {
                self.voice.wanted(&rule, &why);
            }
        }
        Ok(())
    }

    /// A value has expired: it is fetched again from where it came.
    fn fetch_secret(&mut self, name: &str) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let fetched = net.setup.secrets.refresh(name).and_then(|()| match &net.egress {
            Some(egress) => egress.secrets(net.setup.secrets.values()),
            None => Ok(()),
        });
        match fetched {
            Ok(()) => Ok(()),
            // The request that needs it is refused by egress; the run goes on.
            Err(fault) => {
                self.voice.unchanged(&fault);
                self.record.append(&AuditEvent::Note {
                    topic: "secret".to_owned(),
                    text: fault.to_string(),
                })
            }
        }
    }

    /// Nothing more goes out. An agent that can be told is interrupted first, and ended afterwards.
    pub(super) fn out_of_budget(&mut self) -> Result<(), Fault> {
        if !self.wind_up()? {
            self.end_for_budget();
        }
        Ok(())
    }

    pub(super) fn end_for_budget(&mut self) {
        let fault = Fault::new(
            Code::NetBudget,
            "a budget of this run is used up",
            "nothing more goes out, and the run was ended",
        )
        .help("raise it in budget of a trusted policy layer, or with --max-cost, --max-tokens");
        self.give_up(ExitCode::Budget as u8, fault);
    }

    /// Nothing passes without egress: another takes its place with the same listeners, or the run ends.
    fn egress_lost(&mut self, fault: Fault) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let (fault, after) = match net.egress.take() {
            Some(egress) => {
                let (fault, after, used) = egress.lost(fault);
                net.totals.spent(used);
                (fault, after)
            }
            None => (fault, AfterLoss::Replaced),
        };
        if self.ended || self.ending.fault.is_some() {
            return Ok(());
        }
        net.totals.lost += 1;
        let restart = net.totals.lost;
        let after = match after {
            AfterLoss::Replaced if restart <= MOST_RESTARTS => AfterLoss::Replaced,
            AfterLoss::Replaced | AfterLoss::Ended => AfterLoss::Ended,
        };
        self.record.durable(&AuditEvent::NetLost {
            restart,
            why: fault.why.clone(),
        })?;
        self.forget_questions()?;
        self.voice.egress_lost(&fault.why, after);
        if after == AfterLoss::Ended {
            self.give_up(
                ExitCode::Failed as u8,
                fault.help("start the run again; bastle audit show has its last words"),
            );
            return Ok(());
        }
        if let Err(fault) = self.restart_egress() {
            self.give_up(ExitCode::Failed as u8, fault);
        }
        Ok(())
    }

    fn restart_egress(&mut self) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let egress = Egress::start()?;
        // What was spent stays spent.
        let whole = net.setup.table.budget.clone();
        net.setup.table.budget = net.totals.rest(&whole);
        let ready = net.setup.configure(&egress);
        net.setup.table.budget = whole;
        if ready?.authority != net.setup.authority {
            return Err(Fault::new(
                Code::NetLost,
                "the egress process came back with another certificate authority",
                "clients inside trust the one that is gone, so requests that are looked into would fail",
            )
            .help("start the run again"));
        }
        if !net.listeners.is_empty() {
            egress.serve(net.setup.faces.clone(), &net.listeners)?;
        }
        net.egress = Some(egress);
        for change in std::mem::take(&mut net.changes) {
            // The new process has the old table: a change that was on its way starts again.
            self.send_change(change)?;
        }
        Ok(())
    }
}
