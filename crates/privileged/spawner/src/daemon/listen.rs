//! The socket: given by the system's service manager, or made here. One daemon per socket.
use super::accounts;
use super::options::{Given, Options};
use bastle_contract::{Code, Fault};
use rustix::event::Timespec;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Gid;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;
/// How often a socket is knocked at, and its lock is tried, before somebody is said to serve it; and the time between.
const ENDS_WITHIN: usize = 100;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// The first descriptor of those that a service manager gives.
const FIRST_GIVEN: i32 = 3;

/// A socket that is listened on.
pub(super) struct Listening {
    /// The socket itself, which does not block.
    pub(super) socket: OwnedFd,
    /// Its path.
    pub(super) path: PathBuf,
    /// Whether the file is this daemon's to remove.
    pub(super) made: Made,
    /// Held as long as this daemon lives.
    _lock: OwnedFd,
}

/// Who made the socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Here,
    ByTheSystem,
}

/// Takes the socket that was given, or makes one.
pub(super) fn listen(options: &Options, given: Option<Given>) -> Result<Listening, Fault> {
    let listening = match given {
        Some(Given) => take()?,
        None => make(options)?,
    };
    rustix::io::ioctl_fionbio(&listening.socket, true)
        .map_err(|error| fault(&listening.path, error.to_string()))?;
    Ok(listening)
}

fn take() -> Result<Listening, Fault> {
    let unknown = Path::new("that was handed over");
    let failed = |why: String| fault(unknown, why);
    let socket = bastle_sys::fd::inherited(FIRST_GIVEN).map_err(|error| failed(error.to_string()))?;
    let kind = rustix::net::sockopt::socket_type(&socket).map_err(|error| failed(error.to_string()))?;
    let listens = rustix::net::sockopt::socket_acceptconn(&socket);
    if kind != SocketType::SEQPACKET || !listens.is_ok_and(|listens| listens) {
        return Err(failed(
            "it is no listening socket of sequential packets".to_owned(),
        ));
    }
    let listener = UnixListener::from(socket);
    let address = listener.local_addr().map_err(|error| failed(error.to_string()))?;
    let path = address
        .as_pathname()
        .ok_or_else(|| failed("it has no path".to_owned()))?
        .to_path_buf();
    let lock = lock(&path)?;
    Ok(Listening {
        socket: listener.into(),
        path,
        made: Made::ByTheSystem,
        _lock: lock,
    })
}

fn make(options: &Options) -> Result<Listening, Fault> {
    let path = options.socket.clone();
    let failed = |error: Errno| fault(&path, error.to_string());
    if let Some(above) = path.parent()
        && !above.exists()
    {
        std::fs::create_dir_all(above)
            .and_then(|()| {
                use std::os::unix::fs::PermissionsExt;
                // The socket's own mode says who may connect.
                let open = std::fs::Permissions::from_mode(options.directory_mode());
                std::fs::set_permissions(above, open)
            })
            .map_err(|error| fault(&path, error.to_string()))?;
    }
    let group = match &options.group {
        Some(name) => Some(accounts::gid_of(name).map_err(|why| fault(&path, why))?),
        None => None,
    };
    let lock = lock(&path)?;
    let address = SocketAddrUnix::new(&path).map_err(failed)?;
    remove_dead(&path, &address)?;
    let socket = new_socket().map_err(failed)?;
    // The mask of this process lets nobody else in until the group is set.
    rustix::net::bind(&socket, &address).map_err(failed)?;
    if let Some(gid) = group {
        rustix::fs::chown(&path, None, Some(Gid::from_raw(gid))).map_err(failed)?;
    }
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    rustix::fs::chmodat(
        CWD,
        &path,
        Mode::from_raw_mode(mode),
        rustix::fs::AtFlags::empty(),
    )
    .map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok(Listening {
        socket,
        path,
        made: Made::Here,
        _lock: lock,
    })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn knock(address: &SocketAddrUnix) -> Result<(), Errno> {
    rustix::net::connect(&new_socket()?, address)
}

/// A file that nobody listens behind is removed; one that somebody serves is not.
fn remove_dead(path: &Path, address: &SocketAddrUnix) -> Result<(), Fault> {
    let failed = |error: Errno| fault(path, error.to_string());
    let mut answer = knock(address);
    // The lock is ours: what still answers may be the front of a daemon that was killed a moment ago, and ends now.
    for _ in 0..ENDS_WITHIN {
        if answer.is_err() {
            break;
        }
        rustix::event::poll(&mut [], Some(&PAUSE)).unwrap_or_default();
        answer = knock(address);
    }
    match answer {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::CONNREFUSED) => {
            let stat = rustix::fs::lstat(path).map_err(failed)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Socket {
                return Err(fault(path, "something else than a socket is there".to_owned()));
            }
            rustix::fs::unlink(path).map_err(failed)
        }
        Ok(()) | Err(Errno::PROTOTYPE) => Err(fault(path, "somebody serves there already".to_owned())),
        Err(error) => Err(failed(error)),
    }
}

/// One daemon per socket. The lock ends with the process, however it ends.
fn lock(socket: &Path) -> Result<OwnedFd, Fault> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| fault(socket, format!("{}: {error}", Path::new(&name).display())))?;
    let take = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    let mut taken = take();
    // A daemon that was killed while it made a process leaves it held for a moment, by the copy of itself that ends now.
    for _ in 0..ENDS_WITHIN {
        if taken != Err(Errno::WOULDBLOCK) {
            break;
        }
        rustix::event::poll(&mut [], Some(&PAUSE)).unwrap_or_default();
        taken = take();
    }
    match taken {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(fault(socket, "another daemon serves there".to_owned())),
        Err(error) => Err(fault(socket, error.to_string())),
    }
}

fn fault(path: &Path, why: String) -> Fault {
    Fault::new(
        Code::SpawnSocket,
        format!("cannot serve the socket {}", path.display()),
        why,
    )
    .help("systemctl status bastle-spawner")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_a_moment_later_is_taken() {
        let place = std::env::temp_dir().join(format!("bastle-lock-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a fresh place");
        let socket = place.join("spawner.sock");
        let first = lock(&socket).expect("is free");
        // Tried once while it is held: the second opens the file, and is not let in.
        let told = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).expect("can be made");
        let file = place.join("spawner.sock.lock");
        rustix::fs::inotify::add_watch(&told, &file, rustix::fs::inotify::WatchFlags::OPEN)
            .expect("can be watched");
        let second = std::thread::spawn(move || lock(&socket).is_ok());
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        rustix::fs::inotify::Reader::new(&told, &mut buffer)
            .next()
            .expect("it tries");
        rustix::event::poll(&mut [], Some(&PAUSE)).expect("can wait");
        drop(first);
        assert!(second.join().expect("ends"));
        std::fs::remove_dir_all(&place).expect("own files");
    }
}
