//! `bastle port`: a server inside a living run, reached at an address here.
//!
//! **Trust:** whoever can connect to the address speaks to a server of the agent's, and the agent answers what it likes:
//! both are strangers to each other and their bytes are only passed on. Loopback only, unless told.
use super::live::find;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed};
use bastle_contract::stream::{MAX_PAYLOAD, StreamKind, StreamReader, frames};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::beside;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Connections at once; more wait to be accepted.
const MOST: usize = 128;

/// Arguments of `port`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle port calm-otter 3000                          http://127.0.0.1:3000 here is port 3000 inside
  bastle port @last 3000 --listen 127.0.0.1:8080

Ends with ^C. A port of the sandbox's egress is not forwarded. With --listen on an address that is not loopback,
others on the network reach the agent's server.

Exit codes: 0 ended, 1 nothing answers inside or the address is taken, 2 usage, 3 no such run.")]
pub(crate) struct PortArgs {
    /// The run (name, unique prefix, or @last for the only one)
    run: String,
    /// The port inside
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Address here; default 127.0.0.1 and the same port. Port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Listen also while nothing answers inside yet
    #[arg(long)]
    wait: bool,
    /// Print the address as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Forwards until it is interrupted or the run is gone.
pub(crate) fn run(args: &PortArgs, cx: &Context) -> Ended {
    let state = state_dir()?;
    let run = find(&state, &args.run)?;
    if !args.wait {
        // A trial, so that a wrong port is told now and not to a browser.
        drop(beside::dial(&state, &run, args.port)?);
    }
    let wanted = args
        .listen
        .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], args.port)));
    let taken = |error: std::io::Error| {
        Fault::new(
            Code::PortRefused,
            format!("cannot listen on {wanted}"),
            error.to_string(),
        )
        .help(format!("bastle port {run} {} --listen 127.0.0.1:0", args.port))
    };
    let listener = TcpListener::bind(wanted).map_err(taken)?;
    let at = listener.local_addr().map_err(taken)?;
    if args.json {
        cx.print_json(&json!({ "schema": "bastle.port/v1", "run": run, "port": args.port, "listen": at }))?;
    } else {
        cx.print(&format!("{at}\n"))?;
        cx.note(&format!(
            "{} port {} of {run} is at {at}; ^C ends",
            cx.err.tick(),
            args.port
        ));
    }
    if !at.ip().is_loopback() {
        cx.note("  others on the network can reach it: the address is not loopback");
    }
    serve(&listener, &state, (&run, args.port), cx)
}

fn serve(listener: &TcpListener, state: &Path, (run, port): (&RunId, u16), cx: &Context) -> Ended {
    let open = Arc::new(());
    loop {
        let (client, _) = listener.accept().map_err(|error| {
            Failed::from(Fault::new(
                Code::PortRefused,
                "cannot accept connections",
                error.to_string(),
            ))
        })?;
        if Arc::strong_count(&open) > MOST {
            cx.note(&format!("  more than {MOST} connections at once: one was closed"));
            continue;
        }
        let inside = match beside::dial(state, run, port) {
            Ok(inside) => inside,
            Err(faults)
                if faults
                    .iter()
                    .any(|fault| matches!(fault.code, Code::AuditMissing | Code::RunState)) =>
            {
                return Err(faults.into());
            }
            Err(faults) => {
                cx.report(&faults, crate::context::Format::Human);
                continue;
            }
        };
        let ticket = Arc::clone(&open);
        std::thread::spawn(move || {
            // A connection that breaks is closed on both sides, which is all that can be told.
            drop(pass(client, inside));
            drop(ticket);
        });
    }
}

/// Passes bytes in both directions until both are over.
fn pass(client: TcpStream, inside: UnixStream) -> std::io::Result<()> {
    let (mut from_client, mut to_inside) = (client.try_clone()?, inside.try_clone()?);
    let inward = std::thread::spawn(move || -> std::io::Result<()> {
        let mut part = vec![0; MAX_PAYLOAD];
        loop {
            let count = from_client.read(&mut part)?;
            // An empty frame is the end of this direction; answers may still come.
            to_inside.write_all(&frames(StreamKind::Input, &part[..count]))?;
            if count == 0 {
                return Ok(());
            }
        }
    });
    let passed = outward(&client, inside);
    // Also the other direction: a client that still sends has nobody left to hear it.
    drop(client.shutdown(Shutdown::Both));
    drop(inward.join());
    passed
}

fn outward(mut client: &TcpStream, mut inside: UnixStream) -> std::io::Result<()> {
    let mut reader = StreamReader::default();
    let mut part = vec![0; MAX_PAYLOAD];
    let ended = loop {
        let count = inside.read(&mut part)?;
        if count == 0 {
            break Ok(());
        }
        reader.push(&part[..count]);
        let mut over = false;
        while let Some(frame) = reader.next_frame().map_err(std::io::Error::other)? {
            match frame.kind {
                StreamKind::Output => client.write_all(&frame.payload)?,
                StreamKind::Ended => over = true,
                StreamKind::Input
                | StreamKind::Errors
                | StreamKind::Resize
                | StreamKind::Event
                | StreamKind::Signal => {}
            }
        }
        if over {
            break Ok(());
        }
    };
    drop(inside.shutdown(Shutdown::Both));
    ended
}
