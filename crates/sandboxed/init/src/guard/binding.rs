//! `bind`: a Unix socket with a path creates a name. All binds are carried out here, because both the descriptor and
//! the address lie where another thread can exchange them.
use super::naming::locate_path;
use super::{Call, Done, Guard, Stop};
use crate::guard::names::Reach;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{SocketAddrUnix, SocketAddrV4, SocketAddrV6};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{OwnedFd, RawFd};

/// The kernel's own bound on an address.
const LONGEST: usize = 128;

impl Guard {
    pub(super) fn bind(&mut self, call: &Call<'_>, fd: u64, address: u64, length: u64) -> Result<Done, Stop> {
        let length = usize::try_from(length as u32).unwrap_or(usize::MAX);
        if !(2..=LONGEST).contains(&length) {
            return Err(Errno::INVAL.into());
        }
        let mut bytes = [0; LONGEST];
        call.caller.read_exact(address, &mut bytes[..length])?;
        let bytes = &bytes[..length];
        let socket = call.caller.duplicate(fd as RawFd)?;
        let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        match family {
            libc::AF_UNIX if length > 2 && bytes[2] != 0 => self.bind_path(call, &socket, &bytes[2..]),
            libc::AF_UNIX => {
                call.confirm()?;
                let address = if length == 2 {
                    SocketAddrUnix::new_unnamed()
                } else {
                    SocketAddrUnix::new_abstract_name(&bytes[3..])?
                };
                done(rustix::net::bind(&socket, &address))
            }
            libc::AF_INET if length >= 16 => {
                call.confirm()?;
                let [a, b, c, d] = [bytes[4], bytes[5], bytes[6], bytes[7]];
                let address = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port(bytes));
                done(rustix::net::bind(&socket, &address))
            }
            libc::AF_INET6 if length >= 28 => {
                call.confirm()?;
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes[8..24]);
                let address = SocketAddrV6::new(
                    Ipv6Addr::from(octets),
                    port(bytes),
                    word(bytes, 4).to_be(),
                    word(bytes, 24),
                );
                done(rustix::net::bind(&socket, &address))
            }
            libc::AF_NETLINK if length >= 12 => {
                call.confirm()?;
                done(rustix::net::bind(
                    &socket,
                    &SocketAddrNetlink::new(word(bytes, 4), word(bytes, 8)),
                ))
            }
            _ => Err(Errno::AFNOSUPPORT.into()),
        }
    }

    fn bind_path(&mut self, call: &Call<'_>, socket: &OwnedFd, path: &[u8]) -> Result<Done, Stop> {
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        let place = locate_path(call, &path[..end])?;
        self.admit(&place, Reach::Itself)?;
        let mask = Mode::from_bits_retain(call.caller.umask()?);
        let address = SocketAddrUnix::new(place.spelled())?;
        call.confirm()?;
        // The kernel resolves the name from the working directory and applies the umask: both are the caller's for this call.
        rustix::process::fchdir(&place.dir)?;
        let before = rustix::process::umask(mask);
        let bound = rustix::net::bind(socket, &address);
        rustix::process::umask(before);
        rustix::process::chdir("/")?;
        self.settle(&place, bound)
    }
}

fn done(bound: Result<(), Errno>) -> Result<Done, Stop> {
    bound?;
    Ok(Done::Answer(bastle_sys::seccomp::Answer::Return(0)))
}

fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[2], bytes[3]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
