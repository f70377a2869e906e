//! What every connection of a run shares: the table in force, the recorder, the counters.
//!
//! **Trust:** made from control's configuration. The table is replaced as a whole or not at all.
use crate::budget::{Attendance, Budget, Limits};
use crate::canary::Canary;
use crate::cpu::CpuAccount;
use crate::denial::{Asked, Denial, Grounds, Pace};
use crate::denials::Denials;
use crate::dns::Synthetic;
use crate::git::Known;
use crate::limits::{FLOOD_DELAY, LOOKUP_DELAY, LOOP_DELAY};
use crate::memory::Memory;
use crate::record::{Lost, Outbox, Recorder, Said};
use crate::relay::Pipes;
use crate::resolve::Resolver;
use crate::secrets::Secrets;
use crate::tls::Authority;
use crate::tunnel::{Admission, Tunnel, Tunnels};
use bastle_contract::egress::{Face, FromEgress, NetClosed, NetVerdict, SecretValue};
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::{ConnectVerdict, Decision, NetPolicy, OnExceed};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// One table and its number.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Counts reloads, from 0.
    pub number: u64,
    /// The table.
    pub policy: NetPolicy,
}

/// Shared by everything that serves a run.
#[derive(Debug)]
pub(crate) struct State {
    /// Whose connections these are.
    pub run: RunId,
    /// Whether somebody can answer.
    pub attendance: Attendance,
    /// Tells control.
    pub recorder: Arc<Recorder>,
    /// Counts denials.
    pub denials: Denials,
    /// Live connections.
    pub tunnels: Arc<Tunnels>,
    /// Names behind synthetic addresses.
    pub names: Synthetic,
    /// Looks names up.
    pub resolver: Resolver,
    /// Pipes for splicing.
    pub pipes: Pipes,
    /// Counts what is spent.
    pub budget: Arc<Budget>,
    /// Bounds what is held of requests.
    pub memory: Memory,
    /// Bounds the processor time of everything that the agent causes.
    pub cpu: Arc<CpuAccount>,
    /// Credentials.
    pub secrets: Secrets,
    /// The decoy credential.
    pub canary: Canary,
    /// Commits of earlier pushes.
    pub commits: Known,
    /// The run's own certificate authority, where some rule needs to look into TLS.
    pub authority: Option<Authority>,
    current: RwLock<Arc<Generation>>,
}

/// What is added to an allowed decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// Where it is dialled.
    pub address: Option<IpAddr>,
    /// Name of the secret that is used.
    pub secret: Option<String>,
    /// Whether the effect waits for the record.
    pub held: bool,
}

impl State {
    /// Checks the table and makes everything that a run needs.
    pub(crate) fn new(
        run: RunId,
        attendance: Attendance,
        policy: NetPolicy,
        secrets: Vec<SecretValue>,
        kept: Option<Authority>,
        cpu: CpuAccount,
    ) -> Result<(Arc<Self>, Outbox), Fault> {
        check(&policy)?;
        let authority = match kept {
            Some(kept) => Some(kept),
            None if policy.needs_authority() => Some(Authority::new(&run)?),
            None => None,
        };
        let (recorder, outbox) = Recorder::new();
        let recorder = Arc::new(recorder);
        let marks = Arc::clone(&recorder);
        let counted = match policy.budget.on_exceed {
            Some(OnExceed::Stop) => Attendance::Unattended,
            Some(OnExceed::Pause) | None => attendance,
        };
        let budget = Budget::new(limits_of(&policy), counted, move |reached| {
            // A mark that control does not take any more ends with control itself, which ends this process.
            drop(marks.tell_now(FromEgress::Budget(reached)));
        });
        let state = Self {
            run,
            attendance,
            recorder,
            denials: Denials::new(crate::resolve::random_u32()),
            tunnels: Tunnels::new(),
            names: Synthetic::new(),
            resolver: Resolver::new(),
            pipes: Pipes::new(),
            budget: Arc::new(budget),
            memory: Memory::new(),
            cpu: Arc::new(cpu),
            secrets: Secrets::new(secrets),
            canary: Canary::default(),
            commits: Known::default(),
            authority,
            current: RwLock::new(Arc::new(Generation { number: 0, policy })),
        };
        Ok((Arc::new(state), outbox))
    }

    /// The table in force. Whoever judges keeps it until the end of that judgement.
    pub(crate) fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table and cuts what it does not allow any more. A table that fails its self-test changes nothing.
    pub(crate) fn reload(&self, policy: NetPolicy) -> Result<u32, Fault> {
        check(&policy)?;
        if policy.needs_authority() && self.authority.is_none() {
            let why = "some rule of the new table needs to look into TLS, and the run was started without its own authority";
            return Err(Fault::new(
                Code::PolicySchema,
                "the new rules cannot be used by this run",
                why,
            )
            .help("start the run again"));
        }
        self.budget.relimit(limits_of(&policy));
        let generation = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            let number = current.number + 1;
            *current = Arc::new(Generation { number, policy });
            Arc::clone(&current)
        };
        // After the swap: whoever is listed later sees the new table, whoever was listed before is seen here.
        Ok(self
            .tunnels
            .cut_unless(|tunnel| still_allowed(&generation.policy, tunnel)))
    }

    /// Ends a tunnel that was judged by an older table and listed after that table was replaced.
    pub(crate) fn recheck(&self, judged: u64, tunnel: &Tunnel) {
        let now = self.generation();
        if now.number != judged && !still_allowed(&now.policy, tunnel) {
            tunnel.cut();
        }
    }

    /// Counts and reports a refusal and gives the answer; slows down whoever tries in a loop.
    pub(crate) async fn deny(&self, asked: &Asked, grounds: &Grounds) -> Denial {
        let noted = self.denials.note(asked, grounds, Instant::now());
        for report in noted.reports {
            // Without a recorder the refusal stands all the same.
            drop(self.recorder.decided(report).await);
        }
        match noted.pace {
            Pace::Usual => {}
            Pace::Looping => {
                if let Ok(_place) = self.denials.delayed.try_acquire() {
                    tokio::time::sleep(LOOP_DELAY).await;
                }
            }
            // Whoever floods waits for its turn: some hundred answers a second cost little, and the connections that
            // wait are bounded.
            Pace::Flooding if asked.face() == Face::Dns => {
                // Lookups are answered one after the other, and an allowed one must not wait for long behind a flood.
                tokio::time::sleep(LOOKUP_DELAY).await;
            }
            Pace::Flooding => {
                let _place = self.denials.delayed.acquire().await;
                tokio::time::sleep(FLOOD_DELAY).await;
            }
        }
        Denial::new(noted.decision, noted.pace)
    }

    /// The same for refusals of our own.
    pub(crate) async fn refuse(&self, asked: &Asked, code: Code, reason: impl Into<String>) -> Denial {
        self.deny(asked, &Grounds::own(code, reason)).await
    }

    /// Records what is allowed; where it is held, returns only when the record is on disk.
    pub(crate) async fn allow(&self, asked: &Asked, decision: &Decision, terms: Terms) -> Result<u64, Lost> {
        let verdict = if decision.learned {
            NetVerdict::Learned
        } else {
            NetVerdict::Allowed
        };
        let mut record = asked.decision(
            verdict,
            &Grounds {
                code: None,
                help: Vec::new(),
                ..decision.into()
            },
        );
        let Terms {
            address,
            secret,
            held,
        } = terms;
        (record.address, record.secret, record.held) = (address, secret, held);
        self.recorder.decided(record).await
    }

    /// Asks a person; without one, asking is denying. The caller records what follows from a yes.
    pub(crate) async fn ask(&self, asked: &Asked, decision: &Decision) -> Result<(), Denial> {
        let grounds = Grounds::from(decision);
        if self.attendance == Attendance::Attended {
            let question = asked.decision(NetVerdict::Asked, &grounds);
            match self.recorder.ask(question).await {
                Ok(Said::Yes) => return Ok(()),
                Ok(Said::No) => {
                    let reason = format!("a person was asked and did not allow it: {}", grounds.reason);
                    return Err(self.deny(asked, &Grounds { reason, ..grounds }).await);
                }
                Err(Lost) => return Err(self.refuse(asked, Code::NetLost, Lost.to_string()).await),
            }
        }
        let reason = format!("it needs a person and none is attached: {}", grounds.reason);
        Err(self.deny(asked, &Grounds { reason, ..grounds }).await)
    }

    /// Reports the end of what was allowed.
    pub(crate) async fn closed(&self, closed: NetClosed) {
        // Only the count is lost with the recorder; there is nothing left to stop.
        drop(self.recorder.tell(FromEgress::Closed(closed)).await);
    }
}

fn check(policy: &NetPolicy) -> Result<(), Fault> {
    policy
        .selftest()
        .map_err(|why| Fault::new(Code::PolicyTest, "the network rules failed their self-test", why))
}

fn limits_of(policy: &NetPolicy) -> Limits {
    let budget = &policy.budget;
    Limits {
        cost: budget.cost_micro_usd,
        tokens: budget.tokens,
        bytes_out: budget.bytes_out,
        bytes_in: budget.bytes_in,
        requests: budget.requests,
        connections: budget.connections,
        turns: budget.turns,
    }
}

/// Whether a live tunnel would be admitted by this table in the same way.
fn still_allowed(policy: &NetPolicy, tunnel: &Tunnel) -> bool {
    let address_fits = tunnel
        .address
        .is_none_or(|address| policy.address(address).is_ok());
    let verdict_fits = match (
        policy.connect(&tunnel.via.host, tunnel.via.port),
        tunnel.admission,
    ) {
        (ConnectVerdict::Deny(_), _) => false,
        (ConnectVerdict::Pass(_), _) => true,
        (ConnectVerdict::Inspect(_), Admission::Inspect) => true,
        // What must be looked into now went unseen until now.
        (ConnectVerdict::Inspect(_), Admission::Pass | Admission::Approved) => false,
        (ConnectVerdict::Ask(_), Admission::Approved | Admission::Inspect) => true,
        (ConnectVerdict::Ask(_), Admission::Pass) => false,
    };
    address_fits && verdict_fits
}
