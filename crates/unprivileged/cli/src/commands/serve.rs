//! `bastle serve`: the daemon, in the foreground.
use crate::client::own_socket;
use crate::context::{Context, Ended};
use crate::render::Paint;
use bastle_contract::{Code, Fault};
use bastle_control::Place;
use bastle_serve::{InTheOpen, ServeOptions, Serves};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle serve                                         this machine only: 127.0.0.1:7717 and the local socket
  bastle serve --listen 127.0.0.1:0 --allow-host b.example    behind a proxy with TLS
  bastle serve --listen 0.0.0.0:7717 --tls-cert c.pem --tls-key k.pem
  bastle serve --no-listen                             the local socket alone

On the local socket your own user and root need no token; everybody else does: bastle token create --role ROLE.
SIGTERM and ^C end it in order; runs live on and are found again. SIGHUP reads the
certificate and the settings again; addresses, sockets and what the command line says stay.
Settings: $XDG_CONFIG_HOME/bastle/serve.json, else /etc/bastle/serve.json.
Exit codes: 0 ended, 1 failed, 2 usage.")]
pub(crate) struct ServeArgs {
    /// Where to listen (repeatable) [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "no_listen")]
    listen: Vec<SocketAddr>,
    /// No address: the local socket alone
    #[arg(long)]
    no_listen: bool,
    /// The local socket [default: $XDG_RUNTIME_DIR/bastle/bastle.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Group whose members may connect to the local socket; with a token
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Certificate chain as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Another name by which it is reached (repeatable)
    #[arg(long, value_name = "NAME[:PORT]")]
    allow_host: Vec<String>,
    /// A page of another site that may ask, e.g. https://ui.example (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Serve an address that others reach without TLS
    #[arg(long)]
    insecure_plain_http: bool,
    /// Most runs that live at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_parallel: Option<u32>,
    /// Collector that is sent a trace of every run (OTLP over HTTP), e.g. http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Settings file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Serves until it is told to end.
pub(crate) fn run(args: ServeArgs, cx: &Context) -> Ended {
    for origin in &args.allow_origin {
        check_origin(origin)?;
    }
    let listen = match (args.no_listen, args.listen.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => vec![SocketAddr::from(([127, 0, 0, 1], 7717))],
        (false, false) => args.listen,
    };
    let options = ServeOptions {
        state: Place::without_project()?.state,
        listen,
        socket: match args.socket {
            Some(socket) => std::path::absolute(&socket)
                .map_err(|error| Fault::new(Code::ApiListen, "the socket has no path", error.to_string()))?,
            None => own_socket()?,
        },
        group: args.group,
        tls: args.tls_cert.zip(args.tls_key),
        hosts: args.allow_host,
        origins: args.allow_origin,
        in_the_open: if args.insecure_plain_http {
            InTheOpen::Insisted
        } else {
            InTheOpen::Never
        },
        max_parallel: args.max_parallel,
        otlp: args.otlp,
        config: args.config,
    };
    bastle_serve::serve(&options, |serves| tell(serves, cx))?;
    Ok(0)
}

/// `SCHEME://HOST[:PORT]` and nothing else.
fn check_origin(origin: &str) -> Result<(), Fault> {
    let rest = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    match rest {
        Some(host) if !host.is_empty() && host.chars().all(plain) => Ok(()),
        Some(_) | None => Err(Fault::new(
            Code::UsageArgument,
            "--allow-origin is not understood",
            "an origin is a scheme, a host and a port; * is none",
        )
        .help("--allow-origin https://ui.example")),
    }
}

/// What it serves, who reaches it, and how it is turned off.
fn tell(serves: &Serves, cx: &Context) {
    let bold = |text: &str| cx.err.paint(Paint::Bold, text);
    for url in &serves.urls {
        let who = if serves.others {
            "anyone who can reach this address and has a token"
        } else {
            "this machine only, with a token"
        };
        cx.note(&format!("{} {}   {who}", cx.err.tick(), bold(url)));
    }
    if let Some(socket) = &serves.socket {
        cx.note(&format!(
            "{} {}   your own user and root, without a token",
            cx.err.tick(),
            bold(&format!("unix://{}", socket.display()))
        ));
    }
    cx.note(&format!("  token       {}", serves.token_file.display()));
    cx.note("  try it      bastle ps -a");
    cx.note("  turn it off ^C here, or: bastle daemon stop; runs live on");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_is_a_pattern_or_has_a_path_is_refused() {
        for bad in [
            "*",
            "null",
            "https://*",
            "https://a/b",
            "ui.example",
            "https://",
            "https://a b",
        ] {
            assert!(check_origin(bad).is_err(), "{bad}");
        }
        assert!(check_origin("https://ui.example:8443").is_ok());
    }
}
