//! Telling systemd where we are.
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a word such as `READY=1`; nothing where nobody listens.
pub(super) fn tell(word: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &address));
    // Whoever started us then sees no word, and says so.
    match sent {
        Ok(_) | Err(_) => {}
    }
}
