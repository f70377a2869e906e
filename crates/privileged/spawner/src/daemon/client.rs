//! `bastle spawner ls` and `probe`: asks a running daemon, as any caller.
use bastle_contract::spawner::{FromDaemon, ToDaemon};
use bastle_contract::{Code, Fault, WIRE_VERSION, socket};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;

/// Prints the runs.
pub(super) fn list(path: &Path) -> Result<(), Fault> {
    let answer = ask(
        path,
        &ToDaemon::List {
            version: WIRE_VERSION,
        },
    )?;
    print(path, &answer)
}

/// Prints what the caller may have.
pub(super) fn probe(path: &Path) -> Result<(), Fault> {
    let answer = ask(
        path,
        &ToDaemon::Probe {
            version: WIRE_VERSION,
        },
    )?;
    print(path, &answer)
}

fn print(path: &Path, answer: &FromDaemon) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(answer).map_err(|error| fault(path, error.to_string()))?;
    println!("{text}");
    Ok(())
}

fn ask(path: &Path, word: &ToDaemon) -> Result<FromDaemon, Fault> {
    let failed = |error: rustix::io::Errno| fault(path, error.to_string());
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    // Refused already, perhaps: its answer says why.
    drop(socket::send(&socket, word, &[]));
    match socket::receive::<FromDaemon>(&socket) {
        Ok(Some((FromDaemon::Refused(refused), _))) => Err(refused),
        Ok(Some((answer, _))) => Ok(answer),
        Ok(None) => Err(fault(path, "it closed the connection".to_owned())),
        Err(error) => Err(fault(path, error.to_string())),
    }
}

fn fault(path: &Path, why: String) -> Fault {
    Fault::new(
        Code::SpawnSocket,
        format!("no answer from the spawner at {}", path.display()),
        why,
    )
    .help("systemctl status bastle-spawner")
}
