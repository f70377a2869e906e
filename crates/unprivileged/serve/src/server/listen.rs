//! Where the daemon is reached: addresses, the local socket, and sockets that systemd made.
//!
//! **Trust:** the local socket appears under its name only after its rights are set. An address that others reach is not
//! served in the open.
use crate::options::{InTheOpen, ServeOptions};
use bastle_contract::{Code, Fault};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// First descriptor that systemd hands over.
const FIRST: RawFd = 3;

/// Everything that is listened on.
pub(super) struct Listeners {
    pub(super) tcp: Vec<TcpListener>,
    pub(super) unix: Vec<UnixListener>,
    /// The socket that was made here and goes with us.
    pub(super) made: Option<Made>,
}

/// A local socket under its name; removed when dropped.
pub(super) struct Made(pub(super) PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // Somebody else's who took the name meanwhile is dead or served; ours is gone either way.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Opens everything, or says what cannot be.
pub(super) fn open(options: &ServeOptions) -> Result<Listeners, Fault> {
    let mut all = Listeners {
        tcp: Vec::new(),
        unix: Vec::new(),
        made: None,
    };
    inherit(&mut all)?;
    for address in &options.listen {
        check_address(*address, options)?;
        let listener = TcpListener::bind(address).map_err(|error| {
            cannot(&address.to_string(), &error.to_string())
                .help("another one: bastle serve --listen 127.0.0.1:0")
        })?;
        all.tcp.push(listener);
    }
    for listener in &all.tcp {
        let address = listener
            .local_addr()
            .map_err(|error| cannot("an address", &error.to_string()))?;
        check_address(address, options)?;
    }
    if all.unix.is_empty() {
        let (listener, made) = local(&options.socket, options.group.as_deref())?;
        all.unix.push(listener);
        all.made = Some(made);
    }
    let calm = |error: std::io::Error| cannot("a socket", &error.to_string());
    for listener in &all.tcp {
        listener.set_nonblocking(true).map_err(calm)?;
    }
    for listener in &all.unix {
        listener.set_nonblocking(true).map_err(calm)?;
    }
    Ok(all)
}

/// An address that others reach needs TLS, or somebody who insists.
pub(super) fn check_address(address: SocketAddr, options: &ServeOptions) -> Result<(), Fault> {
    let sealed = options.tls.is_some() || options.in_the_open == InTheOpen::Insisted;
    if address.ip().is_loopback() || sealed {
        return Ok(());
    }
    Err(cannot(
        &address.to_string(),
        "others reach it, and tokens would travel in the open",
    )
    .help("bastle serve --listen ADDRESS --tls-cert FILE --tls-key FILE")
    .help("a proxy with TLS before it: bastle serve --listen 127.0.0.1:7717 --allow-host NAME")
    .help("to insist: --insecure-plain-http"))
}

fn cannot(what: &str, why: &str) -> Fault {
    Fault::new(Code::ApiListen, format!("cannot listen on {what}"), why)
}

/// Sockets that systemd made for this process.
fn inherit(all: &mut Listeners) -> Result<(), Fault> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else {
        return Ok(());
    };
    if pid != std::process::id() {
        return Ok(());
    }
    let fail = |why: String| cannot("what systemd handed over", &why);
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(|errno| fail(errno.to_string()))?;
    for at in 0..count.min(16) {
        let number = FIRST + RawFd::try_from(at).unwrap_or(0);
        // A copy through our own pidfd: the number alone proves nothing about whose it is.
        let fd: OwnedFd = rustix::process::pidfd_getfd(&own, number, PidfdGetfdFlags::empty())
            .map_err(|errno| fail(errno.to_string()))?;
        let family = rustix::net::sockopt::socket_domain(&fd).map_err(|errno| fail(errno.to_string()))?;
        if family == rustix::net::AddressFamily::UNIX {
            all.unix.push(UnixListener::from(fd));
        } else {
            all.tcp.push(TcpListener::from(fd));
        }
    }
    Ok(())
}

/// Makes the local socket: under a name of its own first, then with its rights under the real one.
fn local(path: &Path, group: Option<&str>) -> Result<(UnixListener, Made), Fault> {
    let shown = path.display().to_string();
    let fail = |error: std::io::Error| cannot(&shown, &error.to_string());
    let directory = path
        .parent()
        .ok_or_else(|| cannot(&shown, "it has no directory"))?;
    let mode = if group.is_some() { 0o755 } else { 0o700 };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
        .map_err(fail)?;
    match UnixStream::connect(path) {
        Ok(peer) if is_served(&peer) => {
            return Err(cannot(&shown, "another daemon serves it").help("bastle daemon status"));
        }
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
        Err(error) => return Err(fail(error)),
    }
    let beside = directory.join(format!(".bastle-{}", std::process::id()));
    // Left by a process that had our number; usually there is none.
    drop(std::fs::remove_file(&beside));
    let listener = UnixListener::bind(&beside).map_err(fail)?;
    let placed = place(&beside, path, group);
    if let Err(fault) = placed {
        drop(std::fs::remove_file(&beside));
        return Err(fault);
    }
    Ok((listener, Made(path.to_path_buf())))
}

/// Whether the process that listens there lives. A copy of a dead one that is about to become a keeper still has its
/// socket open for a moment, and serves nobody.
fn is_served(peer: &UnixStream) -> bool {
    match rustix::net::sockopt::socket_peercred(peer) {
        Ok(about) => rustix::process::pidfd_open(about.pid, PidfdFlags::empty()).is_ok(),
        Err(_) => true,
    }
}

fn place(beside: &Path, path: &Path, group: Option<&str>) -> Result<(), Fault> {
    let shown = path.display().to_string();
    let fail = |error: std::io::Error| cannot(&shown, &error.to_string());
    let mode = match group {
        Some(name) => {
            let gid = group_id(name).ok_or_else(|| cannot(&shown, &format!("there is no group {name}")))?;
            std::os::unix::fs::chown(beside, None, Some(gid)).map_err(fail)?;
            0o660
        }
        None => 0o600,
    };
    std::fs::set_permissions(beside, std::fs::Permissions::from_mode(mode)).map_err(fail)?;
    std::fs::rename(beside, path).map_err(fail)
}

/// The number of a group, from the local table.
fn group_id(name: &str) -> Option<u32> {
    let table = std::fs::read_to_string("/etc/group").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_is_refused_without_tls_unless_somebody_insists() {
        let mut options = ServeOptions::default();
        for others in ["0.0.0.0:7717", "[::]:7717", "192.0.2.1:7717"] {
            assert!(
                check_address(others.parse().unwrap(), &options).is_err(),
                "{others}"
            );
        }
        for here in ["127.0.0.1:7717", "127.9.9.9:1", "[::1]:7717"] {
            assert!(check_address(here.parse().unwrap(), &options).is_ok(), "{here}");
        }
        options.in_the_open = InTheOpen::Insisted;
        assert!(check_address("0.0.0.0:7717".parse().unwrap(), &options).is_ok());
    }

    #[test]
    fn a_socket_that_is_served_is_refused_and_a_dead_one_is_replaced_by_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b/bastle.sock");
        let (listener, made) = local(&path, None).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(local(&path, None).is_err());
        drop(listener);
        let (_again, _made) = local(&path, None).unwrap();
        std::mem::forget(made);
        assert!(local(&dir.path().join("c/bastle.sock"), Some("no-such-group")).is_err());
        assert!(
            std::fs::read_dir(dir.path().join("c")).unwrap().next().is_none(),
            "nothing is left"
        );
    }
}
