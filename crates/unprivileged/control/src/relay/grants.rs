//! Grants of a living run: orders from another terminal, words of the spawner, questions of the file broker.
//!
//! **Trust:** of what the broker says only the shape is trusted; names and contents come from the agent.
use super::Relay;
use super::net::Asker;
use crate::grants::{Alias, Grants, Held, Order, OrderKind, Refusal, State, files};
use crate::live::GrantWish;
use bastle_audit::AuditEvent;
use bastle_contract::grants::{
    BrokerFile, FileOp, FromBroker, GrantWay, MAX_BROKER_FILE, MAX_BROKER_NAME, ToBroker,
};
use bastle_contract::{AbsPath, Access, Code, Digest, Fault, ToSpawner, seal};
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Refusals of the broker that are kept one by one.
const MOST_REFUSALS: u32 = 1_000;
/// Questions of the broker that are answered before others get their turn.
const MOST_AT_ONCE: usize = 16;

/// An answer to another terminal, if it is known already.
type Answer = Option<Result<Value, Vec<Fault>>>;

impl Relay<'_> {
    /// Grants a path: judged, recorded, then ordered.
    pub(super) fn grant(&mut self, peer: u64, wish: GrantWish) -> Result<Answer, Fault> {
        let Some(grants) = &mut self.grants else {
            return Ok(Some(Err(vec![no_room()])));
        };
        let GrantWish {
            path,
            access,
            way,
            lasts,
            by,
        } = wish;
        if self.ended || !self.init_open {
            return Ok(Some(Err(vec![no_room()])));
        }
        let judged = grants
            .refuse_overlap(&path)
            .and_then(|()| grants.judge.judge(&path, access, self.plan));
        let judged = match judged {
            Ok(judged) if way == GrantWay::Broker && judged.kind != FileType::RegularFile => {
                let what = format!("{path} cannot be served by the broker");
                let fault = Fault::new(Code::GrantRefused, what, "it is a directory");
                return Ok(Some(Err(vec![
                    fault.help(format!("bastle grant {} --ro {path}", self.plan.run)),
                ])));
            }
            Ok(judged) => judged,
            Err(faults) => return Ok(Some(Err(faults))),
        };
        self.record.durable(&AuditEvent::Granted {
            path: path.clone(),
            access,
            way,
            seconds: lasts.map(|lasts| lasts.as_secs()),
            by: by.clone(),
        })?;
        grants.hold(path.clone(), access, way, lasts);
        self.voice.happened(
            "grant",
            json!({ "path": path, "access": access, "way": way, "by": by }),
        );
        match way {
            GrantWay::Broker => Ok(Some(Ok(json!({ "granted": self.shown(&path) })))),
            GrantWay::Mount => {
                self.order(Order {
                    path,
                    kind: OrderKind::Bring(judged),
                    peer: Some(peer),
                });
                Ok(None)
            }
        }
    }

    fn shown(&mut self, path: &AbsPath) -> Option<Value> {
        let held = self.grants.as_mut()?.find(path)?;
        Some(held.shown())
    }

    /// Takes a grant back.
    pub(super) fn withdraw(
        &mut self,
        asker: Asker,
        path: &AbsPath,
        why: &'static str,
    ) -> Result<Answer, Fault> {
        let Some(held) = self.grants.as_mut().and_then(|grants| grants.find(path)) else {
            let fault = Fault::new(Code::GrantMissing, format!("{path} is not granted"), "");
            return Ok(Some(Err(vec![fault.help("bastle ps")])));
        };
        match (held.way, held.state) {
            (GrantWay::Broker, _) => {
                let number = held.number;
                if let Some(grants) = &mut self.grants {
                    grants.forget(path);
                    grants.broker.tell(&ToBroker::Withdrawn { grant: number }, None);
                }
                self.over(path, GrantWay::Broker, why, asker.by)?;
                Ok(Some(Ok(json!({ "revoked": path, "holders": 0, "ended": 0 }))))
            }
            (GrantWay::Mount, State::There(_)) => {
                held.state = State::Going;
                self.order(Order {
                    path: path.clone(),
                    kind: OrderKind::Take(why, asker.by),
                    peer: asker.peer,
                });
                Ok(None)
            }
            (GrantWay::Mount, State::Coming | State::Going) => {
                let what = format!("{path} is on its way in or out");
                Ok(Some(Err(vec![Fault::new(Code::GrantFailed, what, "try again")])))
            }
        }
    }

    fn over(&mut self, path: &AbsPath, way: GrantWay, why: &str, by: String) -> Result<(), Fault> {
        self.voice.happened(
            "grant",
            json!({ "path": path, "way": way, "over": why, "by": by }),
        );
        self.record.durable(&AuditEvent::GrantEnded {
            path: path.clone(),
            way,
            why: why.to_owned(),
            by,
        })
    }

    /// Queues an order; the spawner does one at a time.
    fn order(&mut self, order: Order) {
        let Some(grants) = &mut self.grants else { return };
        grants.orders.push_back(order);
        if grants.orders.len() == 1 {
            self.next_order();
        }
    }

    fn next_order(&mut self) {
        let Some(order) = self.grants.as_ref().and_then(|grants| grants.orders.front()) else {
            return;
        };
        // A spawner that is gone has ended the run already.
        let sent = match &order.kind {
            OrderKind::Bring(judged) => {
                let frame = ToSpawner::Grant {
                    order: judged.order.clone(),
                };
                self.spawner.send_with(&frame, &[judged.opened.as_fd()])
            }
            OrderKind::Take(..) => self.spawner.send(&ToSpawner::Withdraw {
                path: order.path.clone(),
            }),
        };
        drop(sent);
    }

    /// The order that the spawner speaks about.
    fn done(&mut self, path: &AbsPath) -> Option<Order> {
        let grants = self.grants.as_mut()?;
        let fits = grants.orders.front().is_some_and(|order| order.path == *path);
        let order = if fits { grants.orders.pop_front() } else { None };
        self.next_order();
        order
    }

    /// The spawner has brought a path in.
    pub(super) fn granted(&mut self, path: &AbsPath, alias: Alias) -> Result<(), Fault> {
        let order = self.done(path);
        if let Some(held) = self.grants.as_mut().and_then(|grants| grants.find(path)) {
            held.state = State::There(alias);
        }
        let shown = json!({ "granted": self.shown(path) });
        self.answer(order, Ok(shown));
        Ok(())
    }

    /// The spawner has taken a path out.
    pub(super) fn withdrawn(&mut self, path: &AbsPath, (holders, ended): (u32, u32)) -> Result<(), Fault> {
        let order = self.done(path);
        if let Some(grants) = &mut self.grants {
            grants.forget(path);
        }
        let (why, by) = match order.as_ref().map(|order| &order.kind) {
            Some(OrderKind::Take(why, by)) => (*why, by.clone()),
            Some(OrderKind::Bring(_)) | None => ("revoked", String::new()),
        };
        let mut text = why.to_owned();
        if ended > 0 {
            text.push_str(&format!(
                "; {ended} processes that could still reach it were ended"
            ));
        }
        if holders > 0 {
            text.push_str(&format!(
                "; {holders} processes still have a file of it open for reading"
            ));
        }
        self.over(path, GrantWay::Mount, &text, by)?;
        self.answer(
            order,
            Ok(json!({ "revoked": path, "holders": holders, "ended": ended })),
        );
        Ok(())
    }

    /// The run is over, and with it every grant: who waits for one to be taken back has what they wanted.
    pub(super) fn grants_ended(&mut self) -> Result<(), Fault> {
        let orders = self
            .grants
            .as_mut()
            .map(|grants| std::mem::take(&mut grants.orders));
        for order in orders.into_iter().flatten() {
            let answer = match &order.kind {
                OrderKind::Take(why, by) => {
                    let text = format!("{why}; the run ended");
                    self.over(&order.path, GrantWay::Mount, &text, by.clone())?;
                    Ok(json!({ "revoked": order.path, "holders": 0, "ended": 0 }))
                }
                OrderKind::Bring(_) => Err(vec![
                    Fault::new(Code::GrantFailed, "the run is over", "it ended meanwhile")
                        .help("bastle ps -a"),
                ]),
            };
            self.answer(Some(order), answer);
        }
        Ok(())
    }

    /// The spawner could not do it.
    pub(super) fn not_granted(&mut self, path: &AbsPath, fault: Fault) -> Result<(), Fault> {
        let order = self.done(path);
        let unattended = order.as_ref().is_none_or(|order| order.peer.is_none());
        let came = matches!(order.as_ref().map(|order| &order.kind), Some(OrderKind::Bring(_)));
        if came && let Some(grants) = &mut self.grants {
            grants.forget(path);
        } else if let Some(held) = self.grants.as_mut().and_then(|grants| grants.find(path)) {
            // Still there; whoever asked hears of it. Its time goes on, and is not asked for twice.
            held.state = State::There(Alias::No);
            if unattended {
                held.until = None;
            }
        }
        if came {
            self.over(path, GrantWay::Mount, &fault.to_string(), String::new())?;
        } else {
            self.record.durable(&AuditEvent::Note {
                topic: "grant".to_owned(),
                text: format!("{path} is still granted: {fault}"),
            })?;
        }
        self.answer(order, Err(vec![fault.clone()]));
        if !came && unattended {
            // What should have ended by itself is still inside, and nobody is there to hear of it.
            self.give_up(bastle_contract::ExitCode::Failed as u8, fault);
        }
        Ok(())
    }

    fn answer(&mut self, order: Option<Order>, answer: Result<Value, Vec<Fault>>) {
        if let (Some(peer), Some(live)) = (order.and_then(|order| order.peer), &mut self.live) {
            live.answer(peer, &answer);
        }
    }

    /// Ends what is over by the clock.
    pub(super) fn expire_grants(&mut self) -> Result<(), Fault> {
        let over = self
            .grants
            .as_ref()
            .map(|grants| grants.expired(Instant::now()))
            .unwrap_or_default();
        for path in over {
            self.withdraw(Asker::nobody(), &path, "expired")?;
        }
        Ok(())
    }

    /// Somebody inside knocks at the broker's door, and nobody is there yet.
    pub(super) fn knock(&mut self) -> Result<(), Fault> {
        let Some(grants) = &mut self.grants else {
            return Ok(());
        };
        match grants.broker.start() {
            Ok(()) => Ok(()),
            Err(fault) => self.broker_note(&fault.to_string()),
        }
    }

    fn broker_note(&mut self, text: &str) -> Result<(), Fault> {
        self.record.append(&AuditEvent::Note {
            topic: "broker".to_owned(),
            text: text.to_owned(),
        })
    }

    /// Takes what the broker has to say.
    pub(super) fn hear_broker(&mut self) -> Result<(), Fault> {
        for _ in 0..MOST_AT_ONCE {
            let Some(grants) = &mut self.grants else {
                return Ok(());
            };
            match grants.broker.receive() {
                Ok(Some((FromBroker::Ask { ask, op, name }, descriptors))) => {
                    self.asked(ask, op, name, descriptors)?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    grants.broker.end();
                    return self.broker_note(&format!("the file broker ended: {error}"));
                }
            }
        }
        Ok(())
    }

    fn asked(&mut self, ask: u64, op: FileOp, name: String, mut with: Vec<OwnedFd>) -> Result<(), Fault> {
        let done = match op {
            FileOp::List => self.list(ask),
            FileOp::Read => self.read_file(ask, &name)?,
            FileOp::Write => self.write_file(ask, &name, with.pop())?,
        };
        let Err(Refusal { status, why }) = done else {
            return Ok(());
        };
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals <= MOST_REFUSALS {
            self.record.append(&AuditEvent::BrokerAccess {
                op,
                name: name[..name.floor_char_boundary(MAX_BROKER_NAME)].to_owned(),
                bytes: 0,
                digest: None,
                refused: Some(why.clone()),
            })?;
        }
        self.tell_broker(&ToBroker::Refused { ask, status, why }, None);
        Ok(())
    }

    fn tell_broker(&mut self, frame: &ToBroker, copy: Option<&OwnedFd>) {
        if let Some(grants) = &mut self.grants {
            grants.broker.tell(frame, copy.map(AsFd::as_fd));
        }
    }

    fn list(&mut self, ask: u64) -> Result<(), Refusal> {
        let files = |grants: &Grants| {
            let served = grants.held.iter().filter(|held| held.way == GrantWay::Broker);
            served
                .map(|held| BrokerFile {
                    name: held.path.clone(),
                    access: held.access,
                    size: files::size(&held.path),
                })
                .collect()
        };
        let files = self.grants.as_ref().map(files).unwrap_or_default();
        self.tell_broker(&ToBroker::Listed { ask, files }, None);
        Ok(())
    }

    /// What the agent means, if it is granted.
    fn meant(&self, name: &str) -> Result<(AbsPath, Access, u64), Refusal> {
        let held: Option<&Held> = self.grants.as_ref().and_then(|grants| grants.file(name));
        match held {
            Some(held) => Ok((held.path.clone(), held.access, held.number)),
            None => Err(Refusal {
                status: 404,
                why: "no such file is granted".to_owned(),
            }),
        }
    }

    fn read_file(&mut self, ask: u64, name: &str) -> Result<Result<(), Refusal>, Fault> {
        let copied = self
            .meant(name)
            .and_then(|(path, _, grant)| Ok((files::read_copy(&path)?, path, grant)));
        let (bytes, path, grant) = match copied {
            Ok(copied) => copied,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // What is recorded is what is sent, whatever becomes of the file meanwhile.
        self.record_access(FileOp::Read, &path, &bytes)?;
        match seal("bastle-file", &bytes) {
            Ok(copy) => {
                self.tell_broker(&ToBroker::Read { ask, grant }, Some(&copy));
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    fn write_file(
        &mut self,
        ask: u64,
        name: &str,
        content: Option<OwnedFd>,
    ) -> Result<Result<(), Refusal>, Fault> {
        let path = match self.meant(name) {
            Ok((path, Access::ReadWrite, _)) => path,
            Ok((_, Access::ReadOnly, _)) => {
                let why = "it is granted for reading only".to_owned();
                return Ok(Err(Refusal { status: 403, why }));
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        let bytes = match content
            .ok_or_else(|| "nothing came along".to_owned())
            .and_then(|content| unsealed(&content))
        {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(Refusal { status: 413, why })),
        };
        self.record_access(FileOp::Write, &path, &bytes)?;
        match files::replace(&path, &bytes) {
            Ok(()) => {
                self.tell_broker(&ToBroker::Written { ask }, None);
                Ok(Ok(()))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    fn record_access(&mut self, op: FileOp, path: &AbsPath, bytes: &[u8]) -> Result<(), Fault> {
        let digest = blake3::hash(bytes).to_hex().to_string();
        self.record.durable(&AuditEvent::BrokerAccess {
            op,
            name: path.to_string(),
            bytes: bytes.len() as u64,
            digest: Digest::try_from(digest).ok(),
            refused: None,
        })
    }
}

/// The content of a sealed memory file of a size that is served.
fn unsealed(content: &OwnedFd) -> Result<Vec<u8>, String> {
    bastle_contract::check_sealed(content, "the new content")?;
    let size = rustix::fs::fstat(content)
        .map_err(|error| error.to_string())?
        .st_size;
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    if size > MAX_BROKER_FILE {
        return Err(format!("it has more than {MAX_BROKER_FILE} bytes"));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(content, &mut bytes[done..], done as u64) {
            Ok(0) => return Err("it is shorter than it says".to_owned()),
            Ok(count) => done += count,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(bytes)
}

fn no_room() -> Fault {
    Fault::new(
        Code::GrantRefused,
        "nothing can be granted to this run",
        "it has no room for grants, or is over",
    )
}
