//! The egress process of one run: configured by control, serving the run's listeners, ending with control.
//!
//! **Trust:** control is trusted. When its socket closes every tunnel is cut, what is known already is told to whoever
//! still listens, and everything here ends, so nothing passes unrecorded.
use crate::accept::{Handshakes, accept_loop, near};
use crate::budget::Attendance;
use crate::cpu::CpuAccount;
use crate::dns;
use crate::limits::{DENIAL_PAUSE, FAREWELL, SWEEP};
use crate::link::{Link, is_gone, read_document};
use crate::record::Outbox;
use crate::state::State;
use crate::tls::Authority;
use crate::{proxy, socks, transparent};
use bastle_contract::egress::{EGRESS_MEMORY, Faces, FromEgress, SecretValue, ToEgress};
use bastle_contract::{Code, Fault, ProbeResult, WIRE_VERSION};
use bastle_policy::NetPolicy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;

/// Most threads that serve connections.
const MOST_WORKERS: usize = 4;

/// One processor is left to the agent, and on two processors one thread is faster than two: passing bytes happens in
/// the kernel, and waking each other would cost more than it gains.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().saturating_sub(1).clamp(1, MOST_WORKERS))
}

/// Runs the egress process on its socket to control until that closes. `probes`: what it found out about its own fence. The
/// result is the exit code.
#[must_use]
pub fn serve(control: OwnedFd, probes: Vec<ProbeResult>) -> u8 {
    raise_file_limit();
    let outcome = runtime().and_then(|runtime| {
        let outcome = runtime.block_on(run(control, probes));
        // Connections are not waited for: control is gone, so none may go on.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bastle egress: {error}");
            1
        }
    }
}

/// A tunnel has two descriptors, and two more for each direction in which bytes move: a thousand do not fit into the
/// usual soft limit. Where it cannot be raised, accepting waits until descriptors come back.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _fewer = setrlimit(Resource::Nofile, raised).is_err();
}

/// Bounds the memory of this process, before it is fenced. A backstop behind the accounts of [`crate::memory`]: beyond it the
/// process aborts, and control ends the run. Every place that holds something for the agent is bounded far below.
pub fn bound_memory() -> io::Result<()> {
    let limit = getrlimit(Resource::Data);
    let most = limit
        .maximum
        .map_or(EGRESS_MEMORY, |maximum| maximum.min(EGRESS_MEMORY));
    let bounded = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Data, bounded).map_err(io::Error::from)
}

/// Threads for work that would hold up connections; their stacks count as memory.
const MAX_BLOCKING: usize = 8;

/// The runtime of this crate.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let mut builder = match workers() {
        // Nobody to share work with: the calling thread does it, and wakes nobody.
        1 => tokio::runtime::Builder::new_current_thread(),
        several => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(several);
            builder
        }
    };
    builder
        .thread_name("egress")
        .max_blocking_threads(MAX_BLOCKING)
        .enable_io()
        .enable_time()
        .build()
}

async fn run(control: OwnedFd, probes: Vec<ProbeResult>) -> io::Result<()> {
    let link = Arc::new(Link::new(control)?);
    link.send(&FromEgress::Hello {
        version: WIRE_VERSION,
        probes,
    })
    .await?;
    let Some((state, outbox)) = configured(&link).await? else {
        return Ok(());
    };
    let ready = FromEgress::Ready {
        authority: state
            .authority
            .as_ref()
            .map(|authority| authority.pem().to_owned()),
    };
    // Control keeps the authority without looking into it: should this process die, the next one goes on with it.
    let kept = state.authority.as_ref().map(Authority::sealed).transpose()?;
    link.send_with(&ready, kept.as_ref()).await?;
    drop(kept);
    let (leave, leaving) = oneshot::channel();
    let mut writer = tokio::spawn(write_out(Arc::clone(&link), outbox, leaving));
    start_housekeeping(&state);
    tokio::select! {
        written = &mut writer => written.map_err(io::Error::other)?,
        read = follow(&link, &state) => {
            read?;
            let farewell = async {
                last_words(&state).await;
                drop(leave);
                writer.await.map_err(io::Error::other)?
            };
            tokio::time::timeout(FAREWELL, farewell).await.unwrap_or(Ok(()))
        }
    }
}

/// Nothing goes on, and what was counted is told.
async fn last_words(state: &Arc<State>) {
    state.tunnels.cut_unless(|_| false);
    for report in state.denials.drain() {
        if state.recorder.decided(report).await.is_err() {
            return;
        }
    }
    // Each tunnel tells its bytes as it ends.
    while state.tunnels.count() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        state.tunnels.cut_unless(|_| false);
    }
}

/// Waits for a configuration that can be followed.
async fn configured(link: &Link) -> io::Result<Option<(Arc<State>, Outbox)>> {
    loop {
        let Some((frame, descriptors)) = link.receive().await? else {
            return Ok(None);
        };
        let ToEgress::Configure {
            version,
            run,
            attended,
            cpu,
            canary,
        } = frame
        else {
            return Err(io::Error::other("control spoke before it configured"));
        };
        if version != WIRE_VERSION {
            return Err(io::Error::other(format!(
                "control speaks version {version}, not {WIRE_VERSION}"
            )));
        }
        let attendance = if attended {
            Attendance::Attended
        } else {
            Attendance::Unattended
        };
        let made = documents(&descriptors).and_then(|(policy, secrets, authority)| {
            let cpu = CpuAccount::of_run(cpu);
            State::new(run, attendance, policy, secrets, authority, cpu)
        });
        match made {
            Ok(made) => {
                made.0.canary.arm(&canary);
                return Ok(Some(made));
            }
            Err(fault) => link.send(&FromEgress::Refused(fault)).await?,
        }
    }
}

/// The table, the secrets, and the authority of a process that served the run before.
type Documents = (NetPolicy, Vec<SecretValue>, Option<Authority>);

fn documents(descriptors: &[OwnedFd]) -> Result<Documents, Fault> {
    let ([table, secrets], before) = descriptors
        .split_first_chunk()
        .ok_or_else(|| unreadable("table and secrets", &io::Error::other("two documents are needed")))?;
    let authority = match before {
        [] => None,
        [kept] => Some(Authority::restored(kept).map_err(|error| unreadable("authority", &error))?),
        _ => {
            let error = io::Error::other("three documents are the most");
            return Err(unreadable("documents", &error));
        }
    };
    let table = read_document(table).map_err(|error| unreadable("table", &error))?;
    let secrets = read_document(secrets).map_err(|error| unreadable("secrets", &error))?;
    Ok((table, secrets, authority))
}

fn unreadable(what: &str, error: &io::Error) -> Fault {
    // The text of a JSON error quotes the document: of secrets it would show one.
    let why = if what == "table" {
        error.to_string()
    } else {
        error.kind().to_string()
    };
    Fault::new(
        Code::PolicyUnreadable,
        format!("egress cannot read its {what}"),
        why,
    )
}

/// Sends what is to be told, in order, until control is gone or, at the end, everything is told.
async fn write_out(
    link: Arc<Link>,
    mut outbox: Outbox,
    mut leaving: oneshot::Receiver<()>,
) -> io::Result<()> {
    loop {
        let frame = tokio::select! {
            biased;
            frame = outbox.next() => frame,
            _ = &mut leaving => outbox.ready(),
        };
        let Some(frame) = frame else { return Ok(()) };
        match link.send(&frame).await {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Follows control until it is gone.
async fn follow(link: &Link, state: &Arc<State>) -> io::Result<()> {
    while let Some((frame, descriptors)) = link.receive().await? {
        let reply = match frame {
            ToEgress::Configure { .. } => {
                return Err(io::Error::other("control configured twice"));
            }
            ToEgress::Serve { faces } => match serve_faces(state, &faces, descriptors) {
                Ok(()) => continue,
                Err(error) => {
                    let what = "egress cannot serve the run's listeners";
                    FromEgress::Refused(Fault::new(Code::FenceStep, what, error.to_string()))
                }
            },
            ToEgress::Reload => match reload(state, &descriptors) {
                Ok(cut) => FromEgress::Reloaded { cut },
                Err(fault) => FromEgress::Refused(fault),
            },
            ToEgress::Secrets => match replace_secrets(state, &descriptors) {
                Ok(()) => continue,
                Err(fault) => FromEgress::Refused(fault),
            },
            ToEgress::Answer { ask, allow } => {
                state.recorder.answer(ask, allow.into());
                continue;
            }
            ToEgress::Recorded { upto } => {
                state.recorder.recorded(upto);
                continue;
            }
            ToEgress::Extend => {
                state.budget.extend();
                continue;
            }
        };
        state.recorder.tell_now(reply).map_err(io::Error::other)?;
    }
    Ok(())
}

fn reload(state: &State, descriptors: &[OwnedFd]) -> Result<u32, Fault> {
    let [table] = descriptors else {
        return Err(unreadable("table", &io::Error::other("one document is needed")));
    };
    state.reload(read_document(table).map_err(|error| unreadable("table", &error))?)
}

fn replace_secrets(state: &State, descriptors: &[OwnedFd]) -> Result<(), Fault> {
    let [secrets] = descriptors else {
        return Err(unreadable("secrets", &io::Error::other("one document is needed")));
    };
    state
        .secrets
        .update(read_document(secrets).map_err(|error| unreadable("secrets", &error))?);
    Ok(())
}

/// Starts serving every listener of a run, or none.
fn serve_faces(state: &Arc<State>, faces: &Faces, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    if descriptors.len() != 4 + faces.transparent.len() {
        return Err(io::Error::other("the number of listeners is wrong"));
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || {
        descriptors
            .next()
            .ok_or_else(|| io::Error::other("a listener is missing"))
    };
    let http = near(tcp_listener(next()?)?);
    let socks = near(tcp_listener(next()?)?);
    let dns_udp = udp_socket(next()?)?;
    let dns_tcp = tcp_listener(next()?)?;
    let transparent = faces
        .transparent
        .iter()
        .map(|_| tcp_listener(next()?).map(near))
        .collect::<io::Result<Vec<_>>>()?;
    let handshakes = Handshakes::new(Arc::clone(&state.cpu));
    serve_http(state, http, &handshakes);
    serve_socks(state, socks, &handshakes);
    tokio::spawn(dns::serve_udp(Arc::clone(state), dns_udp));
    let shared = Arc::clone(state);
    tokio::spawn(accept_loop(
        dns_tcp,
        handshakes.clone(),
        move |stream, handshake| dns::serve_tcp(Arc::clone(&shared), stream, handshake),
    ));
    for listener in transparent {
        let shared = Arc::clone(state);
        tokio::spawn(accept_loop(
            listener,
            handshakes.clone(),
            move |stream, handshake| transparent::serve(Arc::clone(&shared), stream, handshake),
        ));
    }
    Ok(())
}

/// Serves a listener of the HTTP proxy.
pub(crate) fn serve_http(state: &Arc<State>, listener: TcpListener, handshakes: &Handshakes) {
    let state = Arc::clone(state);
    tokio::spawn(accept_loop(
        listener,
        handshakes.clone(),
        move |stream, handshake| proxy::serve(Arc::clone(&state), stream, handshake),
    ));
}

/// Serves a listener of the SOCKS proxy.
pub(crate) fn serve_socks(state: &Arc<State>, listener: TcpListener, handshakes: &Handshakes) {
    let state = Arc::clone(state);
    tokio::spawn(accept_loop(
        listener,
        handshakes.clone(),
        move |stream, handshake| socks::serve(Arc::clone(&state), stream, handshake),
    ));
}

pub(crate) fn tcp_listener(descriptor: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(descriptor);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn udp_socket(descriptor: OwnedFd) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(descriptor);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Reports repeated denials and closes idle tunnels, for as long as the run lives.
pub(crate) fn start_housekeeping(state: &Arc<State>) {
    let shared = Arc::clone(state);
    tokio::spawn(async move {
        loop {
            shared.denials.pending.notified().await;
            while shared.denials.has_pending() {
                tokio::time::sleep(DENIAL_PAUSE).await;
                for report in shared.denials.due(Instant::now()) {
                    if shared.recorder.decided(report).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    let shared = Arc::clone(state);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            shared.tunnels.sweep();
        }
    });
}
