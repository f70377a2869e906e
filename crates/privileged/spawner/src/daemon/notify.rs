//! Words for the system's service manager, where there is one. Nothing depends on their being heard.
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a word such as `READY=1` to the socket that the service manager named.
pub(super) fn tell(socket: Option<&OsStr>, word: &str) {
    let Some(socket) = socket else {
        return;
    };
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        Some((b'/', _)) => SocketAddr::from_pathname(socket),
        Some(_) | None => return,
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &address));
    if let Err(error) = sent {
        eprintln!("bastle: the service manager was not told {word}: {error}");
    }
}
