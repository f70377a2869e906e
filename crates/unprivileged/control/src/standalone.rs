//! Egress by itself, in front of other sandboxes: what the command line asks for, made ready for the process.
use crate::egress::{Rules, table_digest};
use crate::load::{Sources, load};
use crate::place::Place;
use crate::secrets::Secrets;
use bastle_contract::egress::SecretValue;
use bastle_contract::{Code, Digest, Fault, RunId};
use bastle_policy::{NetPolicy, UpstreamProxy};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What a standalone egress is started with.
pub struct StandaloneRequest {
    /// Name of its log.
    pub run: RunId,
    /// State directory of its log.
    pub state: PathBuf,
    /// The table.
    pub table: NetPolicy,
    /// Values of its secrets.
    pub secrets: Vec<SecretValue>,
    /// HTTP listeners.
    pub http: Vec<SocketAddr>,
    /// SOCKS listeners.
    pub socks: Vec<SocketAddr>,
    /// Waits for the person's next wish; blocks.
    pub wishes: Wishes,
    /// Where the certificate of its authority is written.
    pub authority: Option<PathBuf>,
}

/// Where a standalone egress listens and what it is held to.
#[derive(Clone, Debug)]
pub struct StandaloneArgs {
    /// HTTP listeners.
    pub http: Vec<SocketAddr>,
    /// SOCKS listeners.
    pub socks: Vec<SocketAddr>,
    /// A proxy everything goes through.
    pub upstream: Option<UpstreamProxy>,
    /// Name servers.
    pub resolvers: Vec<SocketAddr>,
    /// Where the certificate of its authority is written.
    pub authority: Option<PathBuf>,
    /// The policy's sources.
    pub sources: Sources,
}

/// What a signal asks of it.
pub enum StandaloneWish {
    /// Replace the table.
    Reload(Box<NetPolicy>, Digest),
    /// The policy cannot be read again: the old table stays.
    Refused(Vec<Fault>),
    /// End.
    Stop,
}

/// Signals, turned into wishes.
pub struct Wishes {
    reload: UnixStream,
    rules: Rules,
    args: StandaloneArgs,
}

/// Reads policy and secrets and listens to signals.
pub fn standalone(place: &Place, args: StandaloneArgs) -> Result<StandaloneRequest, Vec<Fault>> {
    let one = |fault| vec![fault];
    let mut loaded = load(place, &args.sources)?;
    let mut rules = Rules::new(place, &args.sources, &mut loaded).map_err(one)?;
    let table = amended(rules.table()?, &args);
    let secrets = Secrets::fetch(&loaded.effective, place).map_err(one)?;
    let reload = signals().map_err(|error| {
        one(Fault::new(
            Code::FenceStep,
            "cannot listen to signals",
            error.to_string(),
        ))
    })?;
    Ok(StandaloneRequest {
        run: crate::new_run_id().map_err(one)?,
        state: place.state.clone(),
        table,
        secrets: secrets.values().to_vec(),
        http: args.http.clone(),
        socks: args.socks.clone(),
        authority: args.authority.clone(),
        wishes: Wishes { reload, rules, args },
    })
}

/// What the command line says beside the policy.
fn amended(mut table: NetPolicy, args: &StandaloneArgs) -> NetPolicy {
    if args.upstream.is_some() {
        table.upstream.clone_from(&args.upstream);
    }
    if !args.resolvers.is_empty() {
        table.resolvers.clone_from(&args.resolvers);
    }
    table
}

/// One byte for each signal: `h` for a hang-up, `t` for an end.
fn signals() -> std::io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let (mut heard, told) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, told)?;
        let mut pass = theirs.try_clone()?;
        let letter = if signal == SIGHUP { b"h" } else { b"t" };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let mut byte = [0; 1];
                while heard.read_exact(&mut byte).is_ok() {
                    if std::io::Write::write_all(&mut pass, letter).is_err() {
                        break;
                    }
                }
            })?;
    }
    Ok(ours)
}

impl Wishes {
    /// The next wish.
    pub fn wait(&mut self) -> StandaloneWish {
        // What was read and made ready is with the process that serves; this one may wait for weeks.
        bastle_sys::memory::give_back();
        bastle_sys::memory::let_go_of_program();
        let mut byte = [0; 1];
        if self.reload.read_exact(&mut byte).is_err() || byte != *b"h" {
            return StandaloneWish::Stop;
        }
        let table = self.rules.reread().map(|table| amended(table, &self.args));
        match table.and_then(|table| {
            table_digest(&table)
                .map(|digest| (table, digest))
                .map_err(|fault| vec![fault])
        }) {
            Ok((table, digest)) => StandaloneWish::Reload(Box::new(table), digest),
            Err(faults) => StandaloneWish::Refused(faults),
        }
    }
}
