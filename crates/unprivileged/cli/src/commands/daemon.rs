//! `bastle daemon`: starts, stops and shows the daemon of this user, and sets it up as a service.
mod install;
mod process;

use super::source::state_dir;
use crate::client::{Daemon, own_socket};
use crate::context::{Context, Ended, Format};
use crate::render::{bytes, clean, duration_ms, now_ms, timestamp};
use bastle_contract::{Code, Fault};
use bastle_control::fleet::Fleet;
use serde_json::{Value, json};
use std::time::Duration;

/// Arguments of `daemon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle daemon start
  bastle daemon status
  bastle daemon stop                 runs live on; the next start finds them again
  bastle daemon backup FILE          a copy of its records, while it works or not
  bastle daemon install --dry-run    the units that would be written

Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon is running.")]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    verb: DaemonVerb,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonVerb {
    /// Start it in the background and wait until it is ready
    Start {
        /// Where it listens besides its socket (serve's own default otherwise)
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<std::net::SocketAddr>,
        /// Longest time to wait until it is ready
        #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u16).range(1..=600))]
        wait: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End it; runs live on
    Stop {
        /// Longest time to wait until it is gone
        #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u16).range(1..=600))]
        wait: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show whether it runs, its runs, queue, address and records
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy its records to a new file, whether it runs or not
    Backup {
        /// The copy; a file that is there is not replaced
        file: std::path::PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set it up as a service of systemd: yours, or as root the system's
    Install {
        /// Show what would be written, write nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What `start` becomes in its own session
    #[command(name = "__detached", hide = true)]
    Detached {
        /// Arguments of serve
        #[arg(last = true)]
        words: Vec<std::ffi::OsString>,
    },
}

impl DaemonArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            DaemonVerb::Start { json, .. }
            | DaemonVerb::Stop { json, .. }
            | DaemonVerb::Status { json }
            | DaemonVerb::Backup { json, .. }
            | DaemonVerb::Install { json, .. } => *json,
            DaemonVerb::Detached { .. } => false,
        }
    }
}

/// Does it.
pub(crate) fn run(args: &DaemonArgs, cx: &Context) -> Ended {
    match &args.verb {
        DaemonVerb::Start { listen, wait, json } => start(*listen, seconds(*wait), (*json).into(), cx),
        DaemonVerb::Stop { wait, json } => stop(seconds(*wait), (*json).into(), cx),
        DaemonVerb::Status { json } => status((*json).into(), cx),
        DaemonVerb::Backup { file, json } => backup(file, (*json).into(), cx),
        DaemonVerb::Install { dry_run, json } => {
            let doing = if *dry_run {
                install::Doing::Show
            } else {
                install::Doing::Write
            };
            install::run(doing, (*json).into(), cx)
        }
        DaemonVerb::Detached { words } => Err(process::become_daemon(words).into()),
    }
}

fn backup(file: &std::path::Path, format: Format, cx: &Context) -> Ended {
    let state = state_dir()?;
    Fleet::copy_records(&state, file)?;
    let size = file.metadata().map_or(0, |about| about.len());
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.daemon-backup/v1", "file": file, "bytes": size }))?;
        return Ok(0);
    }
    let shown = clean(&file.display().to_string());
    cx.note(&format!("{} {shown}, {}", cx.err.tick(), bytes(size)));
    cx.note("  to put it back: bastle daemon stop, then install -m 600 FILE STATE/daemon/daemon.db (docs/operations.md)");
    Ok(0)
}

fn seconds(count: u16) -> Duration {
    Duration::from_secs(u64::from(count))
}

fn start(listen: Option<std::net::SocketAddr>, wait: Duration, format: Format, cx: &Context) -> Ended {
    let socket = own_socket()?;
    let again = process::listener(&socket).is_some();
    let log = state_dir()?.join("daemon").join("serve.log");
    if !again {
        process::start(&socket, listen, &log, wait)?;
    }
    let Some(pid) = process::listener(&socket) else {
        return Err(
            process::not_ready(&log, "it says it is ready, but nothing listens at its socket").into(),
        );
    };
    if format == Format::Json {
        cx.print_json(&json!({
            "schema": "bastle.daemon-start/v1", "pid": pid, "started": !again,
            "address": format!("unix://{}", socket.display()), "log": log,
        }))?;
        return Ok(0);
    }
    let word = if again { "runs already" } else { "runs" };
    cx.note(&format!(
        "{} the daemon {word}, process {pid}, at unix://{}",
        cx.err.tick(),
        clean(&socket.display().to_string())
    ));
    cx.note(&format!("  log:  {}", clean(&log.display().to_string())));
    cx.note(
        "  next: bastle spawn --count 3 -- CMD; bastle top; bastle daemon stop ends it and leaves runs alive",
    );
    Ok(0)
}

fn stop(wait: Duration, format: Format, cx: &Context) -> Ended {
    let socket = own_socket()?;
    let ended = process::stop(&socket, wait)?;
    if format == Format::Json {
        cx.print_json(
            &json!({ "schema": "bastle.daemon-stop/v1", "stopped": ended.is_some(), "pid": ended }),
        )?;
        return Ok(0);
    }
    match ended {
        Some(pid) => cx.note(&format!(
            "{} the daemon, process {pid}, has ended; runs live on",
            cx.err.tick()
        )),
        None => cx.note("no daemon is running"),
    }
    Ok(0)
}

fn status(format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let address = daemon.host().to_string();
    let found = daemon
        .get("/api/v1/health")
        .and_then(|health| Ok((health, daemon.get("/api/v1/version")?)));
    let (health, version) = match found {
        Ok(found) => found,
        Err(faults) if faults.iter().all(|fault| fault.code == Code::ApiUnreachable) => {
            if format == Format::Json {
                cx.print_json(
                    &json!({ "schema": "bastle.daemon-status/v1", "running": false, "address": address }),
                )?;
                return Ok(3);
            }
            cx.note(&format!(
                "no daemon is running at {}; bastle daemon start",
                clean(&address)
            ));
            return Ok(3);
        }
        Err(faults) => return Err(faults.into()),
    };
    if format == Format::Json {
        cx.print_json(&json!({
            "schema": "bastle.daemon-status/v1", "running": true, "address": address,
            "version": version["version"], "since": health["since_ms"].as_u64().map(timestamp),
            "living": health["living"], "queued": health["queued"], "max_parallel": health["max_parallel"],
            "store": { "good": health["store"], "problem": health["problem"], "bytes": health["store_bytes"] },
        }))?;
        return Ok(0);
    }
    cx.print(&shown(&address, &health, &version, cx))?;
    Ok(u8::from(health["store"] == Value::Bool(false)))
}

fn shown(address: &str, health: &Value, version: &Value, cx: &Context) -> String {
    let number = |key: &str| health[key].as_u64().unwrap_or(0);
    let since = number("since_ms");
    let store = match health["problem"].as_str() {
        Some(problem) => format!("{} {}", cx.out.cross(), clean(problem)),
        None => format!("{} {}", cx.out.tick(), bytes(number("store_bytes"))),
    };
    format!(
        "{} daemon {} at {}\n  runs   {} living, {} queued, at most {} at once\n  since  {} ({})\n  store  {store}\n",
        cx.out.tick(),
        clean(version["version"].as_str().unwrap_or_default()),
        clean(address),
        number("living"),
        number("queued"),
        number("max_parallel"),
        timestamp(since),
        duration_ms(now_ms().saturating_sub(since)),
    )
}

/// Nobody answers at the user's socket.
fn failed(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(Code::DaemonFailed, what, why)
}
