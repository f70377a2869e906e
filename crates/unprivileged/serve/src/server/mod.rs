//! The daemon: opens the fleet and the listeners, serves, and ends in order. Runs live on without it.
mod accept;
mod crowd;
mod listen;
mod notify;
mod paced;
mod tls;

use crate::app::{App, Inner, Settings};
use crate::guard::{Admission, Rate, Secure, Streams};
use crate::metrics::Metrics;
use crate::options::{Config, ServeOptions};
use crate::{outward, routes};
use accept::Serving;
use bastle_contract::{Code, Fault};
use bastle_control::fleet::{Fleet, FleetOptions};
use crowd::Crowd;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Connections of all addresses together, and of the local socket.
const MOST_NETWORK: usize = 512;
const MOST_LOCAL: usize = 256;
/// How long answers under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Where a daemon that is ready can be reached.
#[derive(Clone, Debug)]
pub struct Serves {
    /// Addresses, as URLs.
    pub urls: Vec<String>,
    /// The local socket; `None` where systemd made it.
    pub socket: Option<PathBuf>,
    /// Whether somebody else than this machine reaches an address.
    pub others: bool,
    /// The file with the token of the first admin.
    pub token_file: PathBuf,
}

/// Serves until SIGTERM or SIGINT. `ready` is called once, when requests are taken.
///
/// # Errors
/// When the settings, the store or a listener cannot be used.
pub fn serve(options: &ServeOptions, ready: impl FnOnce(&Serves)) -> Result<(), Fault> {
    let config = configured(options)?;
    let tls = match &options.tls {
        Some((certificate, key)) => Some(tls::read(certificate, key)?),
        None => None,
    };
    raise_descriptors();
    let mut fleet_options = FleetOptions::new(options.state.clone());
    if let Some(most) = options.max_parallel.or(config.max_parallel) {
        fleet_options.max_parallel = most;
    }
    fleet_options.ceiling = config.ceiling.clone();
    let retention = config
        .retention
        .runs()
        .map_err(|why| Fault::new(Code::ApiConfig, "the settings cannot be used", why))?;
    if let Some(keep) = retention {
        fleet_options.keep_runs = keep;
    }
    let trash = config
        .retention
        .trash()
        .map_err(|why| Fault::new(Code::ApiConfig, "the settings cannot be used", why))?;
    if let Some(keep) = trash {
        fleet_options.keep_trash = keep;
    }
    // The state first: whoever has it may take the socket of a daemon that is dead. And nothing is begun before every
    // address is known to be ours.
    let claim = Fleet::claim(fleet_options)?;
    let listeners = listen::open(options)?;
    let fleet = Fleet::begin(claim)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(256)
        .thread_name("serve")
        .enable_all()
        .build()
        .map_err(|error| Fault::new(Code::ApiListen, "no runtime for the daemon", error.to_string()))?;
    let served = runtime.block_on(run(options, &config, tls, listeners, fleet.clone(), ready));
    runtime.shutdown_timeout(DRAIN);
    fleet.close();
    served
}

async fn run(
    options: &ServeOptions,
    config: &Config,
    tls: Option<Arc<rustls::ServerConfig>>,
    listeners: listen::Listeners,
    fleet: Fleet,
    ready: impl FnOnce(&Serves),
) -> Result<(), Fault> {
    let fail = |error: std::io::Error| Fault::new(Code::ApiListen, "cannot serve", error.to_string());
    let (close, closing) = watch::channel(false);
    let (newest, sees) = watch::channel(0);
    fleet.on_events(Box::new(move |seq| {
        newest.send_replace(seq);
    }));
    let addresses = listeners
        .tcp
        .iter()
        .map(std::net::TcpListener::local_addr)
        .collect::<Result<Vec<SocketAddr>, _>>()
        .map_err(fail)?;
    let serves = reached(options, &addresses, &listeners);
    let app = App::new(inner(
        options,
        config,
        &addresses,
        &serves,
        (fleet, sees, closing.clone()),
    )?);
    let (sealed, seals) = tls.map(watch::channel).unzip();
    let network = Serving {
        router: routes::router(app.clone())?,
        crowd: Crowd::new(MOST_NETWORK),
        tls: seals,
        closing: closing.clone(),
    };
    let local = Serving {
        crowd: Crowd::new(MOST_LOCAL),
        tls: None,
        ..network.clone()
    };
    let mut serving = tokio::task::JoinSet::new();
    for listener in listeners.tcp {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(fail)?;
        serving.spawn(accept::network(listener, network.clone()));
    }
    for listener in listeners.unix {
        let listener = tokio::net::UnixListener::from_std(listener).map_err(fail)?;
        serving.spawn(accept::local(listener, local.clone()));
    }
    serving.spawn(count(
        app.clone(),
        [Arc::clone(&network.crowd), Arc::clone(&local.crowd)],
    ));
    let mut reloading = Reloading {
        options,
        addresses: &addresses,
        outward: outward::start(&app, config, 0)?,
        config: config.clone(),
    };
    serving.spawn(crate::containment::watch(app.clone()));
    crate::a2a::resume(&app);
    let mut end = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let mut reload = signal(SignalKind::hangup()).map_err(fail)?;
    ready(&serves);
    notify::tell("READY=1");
    loop {
        tokio::select! {
            _ = end.recv() => break,
            _ = interrupt.recv() => break,
            _ = reload.recv() => again(options, sealed.as_ref(), &app, &mut reloading),
        }
    }
    notify::tell("STOPPING=1");
    close.send_replace(true);
    drop(listeners.made);
    serving.spawn(reloading.outward.end());
    drain(&app, serving, &[network.crowd, local.crowd]).await;
    Ok(())
}

/// Streams say that they end, and answers under way are finished; whoever takes longer is cut off.
async fn drain(app: &App, mut serving: tokio::task::JoinSet<()>, crowds: &[Arc<Crowd>]) {
    let drained = tokio::time::timeout(DRAIN, async {
        while serving.join_next().await.is_some() {}
        while app.streams.count() > 0 || crowds.iter().any(|crowd| crowd.count() > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    if drained.await.is_err() {
        serving.abort_all();
    }
}

/// What a reload needs to know.
struct Reloading<'s> {
    options: &'s ServeOptions,
    addresses: &'s [SocketAddr],
    outward: outward::Outward,
    config: Config,
}

/// SIGHUP: a new certificate holds for new connections, new settings for new requests; one that cannot be read leaves the old
/// one.
fn again(
    options: &ServeOptions,
    sealed: Option<&watch::Sender<Arc<rustls::ServerConfig>>>,
    app: &App,
    reloading: &mut Reloading<'_>,
) {
    notify::tell("RELOADING=1");
    match resettle(app, reloading) {
        Ok(()) => eprintln!("bastle: the settings were read again"),
        Err(fault) => eprintln!("bastle: {fault}; the old settings stay"),
    }
    if let (Some((certificate, key)), Some(sealed)) = (&options.tls, sealed) {
        match tls::read(certificate, key) {
            Ok(tls) => {
                sealed.send_replace(tls);
            }
            Err(fault) => eprintln!("bastle: {fault}"),
        }
    }
    notify::tell("READY=1");
}

/// Takes other settings: all of them, or none.
fn resettle(app: &App, reloading: &mut Reloading<'_>) -> Result<(), Fault> {
    let options = reloading.options;
    let config = configured(options)?;
    if config == reloading.config {
        return Ok(());
    }
    // What can fail comes first, and a ceiling that is lower must not wait for anything else. Nobody is told twice who was not told before: the old ones say how far they were.
    outward::check(&config)?;
    app.fleet.change_ceiling(config.ceiling.clone())?;
    let empty = outward::start(
        app,
        &Config {
            desktop: Some(false),
            ..Config::default()
        },
        0,
    )?;
    let since = std::mem::replace(&mut reloading.outward, empty).stop();
    reloading.outward = outward::start(app, &config, since)?;
    app.change(settings(options, &config, reloading.addresses));
    app.a2a.change(config.a2a.clone());
    let usual = FleetOptions::new(options.state.clone()).max_parallel;
    app.fleet
        .allow_at_once(options.max_parallel.or(config.max_parallel).unwrap_or(usual));
    reloading.config = config;
    Ok(())
}

/// The settings file, under what the command line says.
fn configured(options: &ServeOptions) -> Result<Config, Fault> {
    let mut config = Config::load(options.config.as_deref())?;
    if options.otlp.is_some() {
        config.otlp.clone_from(&options.otlp);
    }
    Ok(config)
}

/// Whom it serves, and how often.
fn settings(options: &ServeOptions, config: &Config, addresses: &[SocketAddr]) -> Settings {
    let secure = match options.tls {
        Some(_) => Secure::Tls,
        None => Secure::Plain,
    };
    let hosts = [options.hosts.clone(), config.allow_hosts.clone()].concat();
    let origins = [options.origins.clone(), config.allow_origins.clone()].concat();
    Settings {
        admission: Admission::new(addresses, secure, &hosts, &origins),
        rate: Rate::new(config.requests_per_second.unwrap_or(200), 20),
    }
}

fn inner(
    options: &ServeOptions,
    config: &Config,
    addresses: &[SocketAddr],
    serves: &Serves,
    (fleet, newest, closing): (Fleet, watch::Receiver<u64>, watch::Receiver<bool>),
) -> Result<Inner, Fault> {
    let ws_url = serves.urls.first().map_or_else(
        || "ws+unix:///api/v1/ws".to_owned(),
        |url| format!("{}/api/v1/ws", url.replacen("http", "ws", 1)),
    );
    Ok(Inner {
        state: fleet.state().to_path_buf(),
        settings: std::sync::RwLock::new(Arc::new(settings(options, config, addresses))),
        streams: Streams::default(),
        metrics: Metrics::default(),
        containment: Arc::default(),
        probing: tokio::sync::Mutex::default(),
        newest,
        closing,
        ws_url,
        a2a: crate::a2a::Face::new(config.a2a.clone(), fleet.state())?,
        fleet,
    })
}

fn reached(options: &ServeOptions, addresses: &[SocketAddr], listeners: &listen::Listeners) -> Serves {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    Serves {
        urls: addresses
            .iter()
            .map(|address| format!("{scheme}://{address}"))
            .collect(),
        socket: listeners.made.as_ref().map(|made| made.0.clone()),
        others: addresses.iter().any(|address| !address.ip().is_loopback()),
        token_file: options.state.join("daemon/admin.token"),
    }
}

/// Keeps the numbers of connections where they are asked for.
async fn count(app: App, crowds: [Arc<Crowd>; 2]) {
    use std::sync::atomic::Ordering;
    let mut closing = app.closing.clone();
    loop {
        let open: usize = crowds.iter().map(|crowd| crowd.count()).sum();
        let displaced = crowds
            .iter()
            .map(|crowd| crowd.displaced.load(Ordering::Relaxed))
            .sum();
        app.metrics
            .connections
            .store(u64::try_from(open).unwrap_or(u64::MAX), Ordering::Relaxed);
        app.metrics.displaced.store(displaced, Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// As many descriptors as the system grants: each run that is watched and each peer takes one.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it cannot be raised, fewer are served.
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) | Err(_) => {}
    }
}
