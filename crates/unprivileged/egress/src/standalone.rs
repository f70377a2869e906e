//! Egress by itself, in front of other sandboxes: listens where it is told, keeps its own audit log.
//!
//! **Trust:** one identity for everybody who reaches the listeners; whoever starts it binds them accordingly. A process
//! of its own: its parent reads policies and secrets and hears signals, this one opens its log, its listeners and its
//! authority's certificate, and then gives up every file, before it reads a byte from the network.
use crate::accept::{Handshakes, near};
use crate::budget::Attendance;
use crate::cpu::CpuAccount;
use crate::record::Outbox;
use crate::serve::{raise_file_limit, runtime, serve_http, serve_socks, start_housekeeping, tcp_listener};
use crate::state::State;
use bastle_audit::{AuditError, AuditEvent, AuditWriter, Committer, Handle as AuditHandle, sanitize};
use bastle_contract::egress::{FromEgress, NetDecision, NetVerdict, SecretValue};
use bastle_contract::{Code, Digest, Fault, RunId};
use bastle_policy::NetPolicy;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// How long connections are given to end when it is stopped.
const SHUTDOWN: Duration = Duration::from_secs(2);
/// Longest reason for its end that a parent reads: the other side reads the network.
const MAX_FAULT: u64 = 64 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// What `bastle egress` is started with.
#[derive(Serialize, Deserialize)]
pub struct Standalone {
    /// Name of its audit log.
    pub run: RunId,
    /// State directory below which the log is kept.
    pub state: PathBuf,
    /// The table.
    pub policy: NetPolicy,
    /// Values for its secrets.
    pub secrets: Vec<SecretValue>,
    /// Where the HTTP proxy listens.
    pub http: Vec<SocketAddr>,
    /// Where the SOCKS proxy listens.
    pub socks: Vec<SocketAddr>,
    /// Where the certificate of its authority is written, for clients to trust.
    pub authority: Option<PathBuf>,
    /// Whether allowed requests are printed beside denied ones.
    pub verbosity: Verbosity,
}

/// What the parent sends, one line of JSON each. The end of the lines is an order to stop.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// The first.
    Start(Box<Standalone>),
    /// Replaces the table; the digest names it in the log.
    Reload(Box<NetPolicy>, Digest),
    /// Ends it.
    Stop,
}

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verbosity {
    /// Denials only.
    Denials,
    /// Every decision.
    Everything,
}

/// What the caller wants of a running egress.
enum Command {
    Reload(Box<NetPolicy>, Digest),
    Stop,
}

/// The receiving end of [`Control`].
pub(crate) struct Commands(mpsc::Receiver<Command>);

/// Reloads and stops a running egress, from any thread.
#[derive(Clone)]
pub(crate) struct Control(mpsc::Sender<Command>);

/// Both ends.
#[must_use]
pub(crate) fn commands() -> (Control, Commands) {
    let (sender, receiver) = mpsc::channel(8);
    (Control(sender), Commands(receiver))
}

impl Control {
    /// Replaces the table; `digest` names it in the log. What came of it is printed. `false` when egress has ended.
    #[must_use]
    pub(crate) fn reload(&self, policy: NetPolicy, digest: Digest) -> bool {
        self.0
            .blocking_send(Command::Reload(Box::new(policy), digest))
            .is_ok()
    }

    /// Ends it. `false` when it has ended already.
    #[must_use]
    pub(crate) fn stop(&self) -> bool {
        self.0.blocking_send(Command::Stop).is_ok()
    }
}

impl Order {
    /// Sends it. The copy in between, which may hold secrets, is wiped.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = Zeroizing::new(serde_json::to_vec(self).map_err(io::Error::other)?);
        line.push(b'\n');
        to.write_all(&line)
    }

    /// The next one; `None` when the parent is gone.
    fn next(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = Zeroizing::new(Vec::new());
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        // The text of a JSON error quotes the line, and with it a secret.
        let unclear = |_| io::Error::other("an order is not understood");
        serde_json::from_slice(&line).map(Some).map_err(unclear)
    }
}

/// The process that serves: takes its orders, opens what it needs, calls `fence`, and serves until it is stopped or its
/// parent is gone.
pub fn stand(
    mut orders: impl BufRead + Send + 'static,
    fence: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let first = Order::next(&mut orders).map_err(|error| not_started("no orders", &error))?;
    let Some(Order::Start(config)) = first else {
        return Err(not_started("no orders", &"the parent did not say what to do"));
    };
    let (control, commands) = commands();
    standalone(*config, commands, || {
        fence()?;
        // Only now: a thread that is there before the fence would be outside it.
        std::thread::Builder::new()
            .name("orders".to_owned())
            .spawn(move || obey(&mut orders, &control))
            .map(drop)
            .map_err(|error| not_started("no threads", &error))
    })
}

/// Passes orders on until there are none, which is an order to stop.
fn obey(orders: &mut impl BufRead, control: &Control) {
    while let Ok(Some(Order::Reload(policy, digest))) = Order::next(orders) {
        if !control.reload(*policy, digest) {
            return;
        }
    }
    // Whoever has ended already need not be told.
    let _ended = !control.stop();
}

/// Tells the parent why it ended.
pub fn tell_fault(fault: &Fault, to: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(to, fault).map_err(io::Error::other)
}

/// Why it ended, as it told the parent before it was gone; nothing where it told nothing.
pub fn told_fault(from: &mut impl Read) -> Option<Fault> {
    let mut text = Vec::new();
    from.take(MAX_FAULT).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Tells the index how the log ended, and seals one whose process died. The parent does this: the process that served
/// could not open the index any more.
pub fn settle(state: &Path, run: &RunId) -> Result<(), Fault> {
    match AuditWriter::resume(state, run) {
        Ok((writer, _)) => writer.seal().map(drop).map_err(audit_fault),
        Err(AuditError::Sealed { .. } | AuditError::Missing { .. }) => Ok(()),
        Err(error) => Err(audit_fault(error)),
    }
}

fn not_started(what: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Code::NetUpstream,
        format!("egress cannot start: {what}"),
        error.to_string(),
    )
}

/// Serves until it is stopped. `fence` is called when everything is open and before any thread exists.
pub(crate) fn standalone(
    config: Standalone,
    mut commands: Commands,
    fence: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Standalone {
        run,
        state,
        policy,
        secrets,
        http,
        socks,
        authority,
        verbosity,
    } = config;
    raise_file_limit();
    let log = AuditWriter::create(&state, &run).map_err(audit_fault)?;
    let (shared, outbox) = State::new(
        run,
        Attendance::Unattended,
        policy,
        secrets,
        None,
        CpuAccount::unbounded(),
    )?;
    hand_out(&shared, authority.as_deref())?;
    let (http, socks) = (bound(&http)?, bound(&socks)?);
    fence()?;
    let audit = Committer::spawn(log).map_err(audit_fault)?;
    let runtime = runtime().map_err(|error| not_started("no threads", &error))?;
    let recording = record_in_thread(
        Arc::clone(&shared),
        outbox,
        audit.clone(),
        verbosity,
        runtime.handle(),
    )
    .map_err(|error| not_started("no threads", &error))?;
    runtime.block_on(async {
        let handshakes = Handshakes::new(Arc::clone(&shared.cpu));
        for listener in http {
            serve_http(&shared, usable(listener)?, &handshakes);
        }
        for listener in socks {
            serve_socks(&shared, usable(listener)?, &handshakes);
        }
        start_housekeeping(&shared);
        while let Some(Command::Reload(policy, digest)) = commands.0.recv().await {
            reload(&shared, &audit, *policy, digest)?;
        }
        for report in shared.denials.drain() {
            // The thread that records has said why, if it takes no more.
            drop(shared.recorder.decided(report).await);
        }
        Ok::<(), Fault>(())
    })?;
    drop(shared);
    // Everything that can still report must be gone before the log is sealed.
    runtime.shutdown_timeout(SHUTDOWN);
    if recording.join().is_err() {
        return Err(Fault::new(Code::AuditWrite, "the audit thread failed", ""));
    }
    audit.end().map_err(audit_fault)
}

/// For this runtime. Only where a listener has an address of this machine's own is everybody who can connect near.
fn usable(listener: OwnedFd) -> Result<TcpListener, Fault> {
    let listener = tcp_listener(listener).map_err(|error| not_started("a listener", &error))?;
    let here = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    Ok(if here { near(listener) } else { listener })
}

/// Listeners, made while a low port can still be had.
fn bound(addresses: &[SocketAddr]) -> Result<Vec<OwnedFd>, Fault> {
    let bind = |address: &SocketAddr| {
        let listener = std::net::TcpListener::bind(address)?;
        // As many as the runtime itself lets wait: the standard library's own number is small.
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(OwnedFd::from(listener))
    };
    addresses
        .iter()
        .map(|address| bind(address).map_err(|error: io::Error| not_started(&address.to_string(), &error)))
        .collect()
}

/// Writes the certificate where the operator wants it. Rules that look into TLS without it would only break clients.
fn hand_out(state: &State, to: Option<&Path>) -> Result<(), Fault> {
    let Some(authority) = &state.authority else {
        return Ok(());
    };
    let what = "the rules look into TLS, and clients must trust the proxy's authority";
    let Some(path) = to else {
        let why = "nobody said where its certificate should be written";
        return Err(Fault::new(Code::UsageArgument, what, why)
            .help("bastle egress --authority FILE …, and make the clients trust FILE"));
    };
    std::fs::write(path, authority.pem())
        .map_err(|error| Fault::new(Code::UsageArgument, what, format!("{}: {error}", path.display())))
}

fn audit_fault(error: AuditError) -> Fault {
    Fault::new(
        Code::AuditWrite,
        "the audit log of egress cannot be written",
        error.to_string(),
    )
}

/// A bad table keeps the old one and says so; only a failing record stops everything.
fn reload(state: &State, audit: &AuditHandle, policy: NetPolicy, table: Digest) -> Result<(), Fault> {
    let event = match state.reload(policy) {
        Ok(cut) => {
            eprintln!("bastle egress: the new rules are in force, {cut} connections cut");
            AuditEvent::NetChanged {
                change: "reload".to_owned(),
                table,
                cut,
                by: String::new(),
            }
        }
        Err(fault) => {
            eprintln!("bastle egress: the old rules stay: {fault}");
            AuditEvent::Refused(fault)
        }
    };
    audit.append(&event).map(drop).map_err(audit_fault)
}

/// A thread of its own: waiting for the disk must not hold up those who serve connections.
fn record_in_thread(
    state: Arc<State>,
    mut outbox: Outbox,
    audit: AuditHandle,
    verbosity: Verbosity,
    runtime: &tokio::runtime::Handle,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = runtime.clone();
    // The thread must not keep the recorder alive, or the outbox would never end.
    let recorder = Arc::downgrade(&state.recorder);
    drop(state);
    std::thread::Builder::new()
        .name("records".to_owned())
        .spawn(move || {
            while let Some(frame) = runtime.block_on(outbox.next()) {
                let mut frames = vec![frame];
                outbox.gather();
                frames.extend(std::iter::from_fn(|| outbox.ready()).take(256));
                match record(&audit, &frames, verbosity) {
                    Ok(upto) => {
                        if let (Some(recorder), Some(upto)) = (recorder.upgrade(), upto) {
                            recorder.recorded(upto);
                        }
                    }
                    Err(error) => {
                        // Dropping the outbox refuses everything from now on: no record, no effect.
                        eprintln!("bastle egress: nothing passes any more: {error}");
                        return;
                    }
                }
            }
        })
}

/// Writes a batch; the number up to which decisions are on disk, if somebody waits for one of them.
fn record(
    audit: &AuditHandle,
    frames: &[FromEgress],
    verbosity: Verbosity,
) -> Result<Option<u64>, AuditError> {
    let mut held = None;
    for frame in frames {
        let event = match frame {
            FromEgress::Decided(decision) | FromEgress::Ask { decision, .. } => {
                print(decision, verbosity);
                if decision.held {
                    held = Some(decision.seq);
                }
                AuditEvent::Net(decision.clone())
            }
            FromEgress::Closed(closed) => AuditEvent::NetClosed(closed.clone()),
            FromEgress::Budget(reached) => AuditEvent::Budget(reached.clone()),
            FromEgress::Wanted { rule, why } => AuditEvent::Wanted {
                rule: rule.clone(),
                why: why.clone(),
            },
            FromEgress::NeedSecret { name } => {
                eprintln!(
                    "bastle egress: the secret {} is missing or has expired",
                    sanitize(name)
                );
                continue;
            }
            FromEgress::Hello { .. } | FromEgress::Ready { .. } | FromEgress::Reloaded { .. } => continue,
            FromEgress::Refused(fault) => AuditEvent::Refused(fault.clone()),
        };
        audit.append(&event)?;
    }
    if held.is_some() {
        audit.commit()?;
    }
    Ok(held)
}

fn print(decision: &NetDecision, verbosity: Verbosity) {
    let NetDecision {
        id,
        method,
        host,
        port,
        path,
        reason,
        count,
        ..
    } = decision;
    let what = format!(
        "{}{host}:{port}{}",
        method
            .as_ref()
            .map(|method| format!("{method} "))
            .unwrap_or_default(),
        path.as_deref().unwrap_or_default(),
    );
    match (decision.verdict, verbosity) {
        (NetVerdict::Denied, _) => {
            let code = decision.code.map(|code| code.to_string()).unwrap_or_default();
            let times = if *count > 1 {
                format!(" ×{count}")
            } else {
                String::new()
            };
            eprintln!("✗ denied net  {what}{times}  {code} · {id}\n   ╰─ {reason}");
            for help in &decision.help {
                eprintln!("  help: {help}");
            }
        }
        (NetVerdict::Allowed | NetVerdict::Learned | NetVerdict::Asked, Verbosity::Everything) => {
            eprintln!("✓ net  {what}");
        }
        (NetVerdict::Allowed | NetVerdict::Learned | NetVerdict::Asked, Verbosity::Denials) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NEAR_BUFFER;

    #[tokio::test]
    async fn only_clients_of_this_machines_own_addresses_get_the_small_buffer() {
        let buffer = |address: &str| {
            let listener = bound(&[address.parse().unwrap()]).unwrap().remove(0);
            rustix::net::sockopt::socket_send_buffer_size(usable(listener).unwrap()).unwrap()
        };
        assert_eq!(buffer("127.0.0.1:0"), 2 * NEAR_BUFFER);
        assert_ne!(buffer("0.0.0.0:0"), 2 * NEAR_BUFFER);
    }
}
