//! Who is at the other end of a local socket, as the kernel noted it when the connection was made.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most groups a process can have (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// The supplementary groups of the peer.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut length = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to the buffer, which is at least as long, and the number of
        // bytes it has or needs to `length`; both outlive the call.
        let ret = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        match super::check(libc::c_long::from(ret)) {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count <= MOST_GROUPS => {
                if count <= groups.len() {
                    return Err(error);
                }
                groups.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_groups_of_the_peer_are_those_of_the_process_that_made_the_connection() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        assert_eq!(groups(one.as_fd()).unwrap(), own);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(groups(file.as_fd()).is_err(), "not a socket");
    }
}
