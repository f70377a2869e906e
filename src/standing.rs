//! `bastle egress`: two processes. One reads policies and secrets and hears its operator; the other, this binary under
//! a hidden verb, serves.
//!
//! **Trust:** the one that serves is fenced as the egress of a run is, so whoever takes it over finds no file and no
//! program. It ends when its standard input does, and so with its parent.
use bastle_cli::{StandaloneRequest, StandaloneWish, Wishes};
use bastle_contract::{Code, Fault};
use bastle_egress::{Order, Standalone, Verbosity};
use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The hidden verb of the process that serves.
pub(crate) const VERB: &str = "__standing";
/// Where the host's roots of trust are, if not in the usual place: all of the environment that it gets.
const TRUST: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Starts the process that serves, passes on what its operator wants, and returns when it has ended.
pub(crate) fn start(request: StandaloneRequest) -> Result<(), Fault> {
    let StandaloneRequest {
        run,
        state,
        table,
        secrets,
        http,
        socks,
        wishes,
        authority,
    } = request;
    let failed = |error: std::io::Error| {
        Fault::new(
            Code::NetLost,
            "cannot start the egress process",
            error.to_string(),
        )
    };
    let (mut child, mut stream) = spawn().map_err(failed)?;
    let first = Order::Start(Box::new(Standalone {
        run: run.clone(),
        state: state.clone(),
        policy: table,
        secrets,
        http,
        socks,
        authority,
        verbosity: Verbosity::Denials,
    }));
    let orders = first.send(&mut stream).and_then(|()| stream.try_clone());
    let orders = orders.map_err(failed)?;
    std::thread::Builder::new()
        .name("wishes".to_owned())
        .spawn(move || pass_on(wishes, orders))
        .map_err(failed)?;
    // Ends with the process, which holds the other end.
    let fault = bastle_egress::told_fault(&mut stream);
    let status = child.wait().map_err(failed)?;
    let settled = bastle_egress::settle(&state, &run);
    match fault {
        Some(fault) => Err(fault),
        None if status.success() => settled,
        None => Err(Fault::new(
            Code::NetLost,
            "lost the egress process; nothing passes any more",
            status.to_string(),
        )
        .help("start it again")),
    }
}

fn spawn() -> std::io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(VERB)
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null());
    for name in TRUST {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    // A group of its own: ^C goes to the whole group, and the log is ended in order only when the parent says so.
    command.process_group(0);
    Ok((command.spawn()?, ours))
}

/// Passes on wishes until one is to stop, or nobody listens.
fn pass_on(mut wishes: Wishes, mut orders: UnixStream) {
    loop {
        let order = match wishes.wait() {
            StandaloneWish::Reload(table, digest) => Order::Reload(table, digest),
            StandaloneWish::Refused(faults) => {
                for fault in faults {
                    eprintln!("bastle: {fault}; the old rules stay");
                }
                continue;
            }
            StandaloneWish::Stop => Order::Stop,
        };
        if order.send(&mut orders).is_err() || matches!(order, Order::Stop) {
            return;
        }
    }
}

/// The process that serves.
pub(crate) fn serve() -> ExitCode {
    let Ok(stream) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut parent = UnixStream::from(stream);
    let Ok(orders) = parent.try_clone() else {
        return ExitCode::FAILURE;
    };
    // The roots of trust are read while there is a file system.
    bastle_egress::preload_roots();
    match bastle_egress::stand(BufReader::new(orders), || bastle_init::fence_server().map(drop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            // The parent tells it in its own form.
            if bastle_egress::tell_fault(&fault, &mut parent).is_err() {
                eprintln!("bastle: {fault}");
            }
            ExitCode::FAILURE
        }
    }
}
