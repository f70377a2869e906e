//! `bastle egress`: the proxy by itself, in front of other sandboxes.
use crate::context::{Context, Ended};
use bastle_contract::{Code, Fault};
use bastle_control::{Place, Sources, StandaloneArgs, StandaloneRequest};
use bastle_policy::UpstreamProxy;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Arguments of `egress`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle egress --listen 127.0.0.1:3128 --policy net.json
  bastle egress --listen 127.0.0.1:3128 --socks 127.0.0.1:1080 --policy net.json --upstream http://proxy.example:8080

Whoever reaches a listener is held to the policy: bind it where only your sandboxes are. SIGHUP reads the
policy again; SIGTERM and ^C end it. Denials go to standard error, every decision to its own audit log.
Exit codes: 0 ended, 1 failed, 2 usage.")]
pub(crate) struct EgressArgs {
    /// Where the HTTP proxy listens (repeatable)
    #[arg(long, required_unless_present = "socks", value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Where the SOCKS5 proxy listens (repeatable)
    #[arg(long, value_name = "ADDRESS:PORT")]
    socks: Vec<SocketAddr>,
    /// A proxy through which everything goes out, e.g. http://proxy.example:3128
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Name server instead of the host's (repeatable)
    #[arg(long, value_name = "IP:PORT")]
    resolver: Vec<SocketAddr>,
    /// Write the certificate of the proxy's own authority here: clients must trust it where rules look into TLS
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// Start from this built-in preset [default: default]
    #[arg(long, value_name = "NAME[@VERSION]")]
    preset: Option<String>,
    /// Policy file; your own and the managed ones hold too (repeatable)
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
}

/// Serves until it is told to end.
pub type ServeStandalone = fn(StandaloneRequest) -> Result<(), Fault>;

static SERVE: OnceLock<ServeStandalone> = OnceLock::new();

/// The binary says what serves: this crate does not link the proxy.
pub fn offer_standalone(serve: ServeStandalone) {
    // Offered once, at the start; a second offer changes nothing.
    SERVE.get_or_init(|| serve);
}

/// Starts it.
pub(crate) fn run(args: &EgressArgs, cx: &Context) -> Ended {
    let upstream = args
        .upstream
        .as_deref()
        .map(UpstreamProxy::new)
        .transpose()
        .map_err(|why| Fault::new(Code::UsageArgument, "--upstream is not understood", why))?;
    let place = Place::without_project()?;
    let sources = Sources {
        preset: args.preset.clone(),
        files: args.policy.clone(),
        ..Sources::default()
    };
    let wanted = StandaloneArgs {
        http: args.listen.clone(),
        socks: args.socks.clone(),
        upstream,
        resolvers: args.resolver.clone(),
        authority: args.authority.clone(),
        sources,
    };
    let request = bastle_control::standalone(&place, wanted)?;
    let Some(serve) = SERVE.get() else {
        return Err(Fault::new(Code::NetLost, "this build has no egress", "").into());
    };
    cx.note(&format!(
        "{} egress {} listens; ^C ends it",
        cx.err.tick(),
        request.run
    ));
    serve(request)?;
    Ok(0)
}
