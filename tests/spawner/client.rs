//! A caller that speaks to the socket by itself, as any user, and says what it likes.
use bastle_contract::spawner::ToDaemon;
use bastle_contract::{
    AbsPath, Access, Argv, BackendKind, Code, Digest, Fault, FromSpawner, Guard, HostFacts, LaunchPlan,
    Mount, MountKind, Network, RunId, Stdio, ToSpawner, WIRE_VERSION, seal, socket,
};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Gid, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A connection made by another user: the kernel notes who connects, and identities belong to threads.
pub(crate) fn connect_as(path: &Path, uid: u32) -> io::Result<OwnedFd> {
    let path = path.to_path_buf();
    let thread = std::thread::spawn(move || {
        if uid != 0 {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // No answer must hang a test.
        let patience = Some(std::time::Duration::from_secs(60));
        let option = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, option, patience)?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    });
    thread.join().expect("the thread does not fail")
}

/// A listening socket, as the system makes one.
pub(crate) fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 16).unwrap();
    socket
}

/// Sends a frame and waits for the answer.
pub(crate) fn said<T: DeserializeOwned>(connection: &OwnedFd, word: &impl Serialize) -> io::Result<T> {
    // A caller that was refused already cannot send; its answer waits.
    drop(socket::send(connection, word, &[]));
    hear(connection)
}

/// The next frame.
pub(crate) fn hear<T: DeserializeOwned>(connection: &OwnedFd) -> io::Result<T> {
    let received = match socket::receive(connection) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => socket::receive(connection),
        other => other,
    };
    let (word, _) = received?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    Ok(word)
}

/// Sends bytes that are no frame of anybody's; the answer.
pub(crate) fn blurted(connection: &OwnedFd, bytes: &[u8]) -> io::Result<FromSpawner> {
    rustix::net::send(connection, bytes, SendFlags::NOSIGNAL)?;
    hear(connection)
}

/// Wants a run: facts of the host, or why not.
pub(crate) fn wish(connection: &OwnedFd) -> Result<HostFacts, Fault> {
    let hello = ToDaemon::Hello {
        version: WIRE_VERSION,
    };
    match said::<FromSpawner>(connection, &hello) {
        Ok(FromSpawner::Hello { facts, .. }) => Ok(facts),
        Ok(FromSpawner::Refused(fault)) => Err(fault),
        other => panic!("no answer: {other:?}"),
    }
}

/// The code with which a wish is refused.
pub(crate) fn refusal(path: &Path, uid: u32) -> Option<Code> {
    let connection = connect_as(path, uid).expect("can be connected to");
    wish(&connection).err().map(|fault| fault.code)
}

/// A plan that shows one path and nothing else.
pub(crate) fn showing(source: &Path, access: Access) -> LaunchPlan {
    let path = |text: &str| AbsPath::new(text).unwrap();
    LaunchPlan {
        run: RunId::try_from(format!("plan-{}", std::process::id())).unwrap(),
        policy: Digest::try_from("0".repeat(64)).unwrap(),
        backend: BackendKind::Native,
        mounts: vec![Mount {
            at: path("/shown"),
            kind: MountKind::Bind {
                source: AbsPath::from_path(source).unwrap(),
                access,
                owned: true,
            },
        }],
        landlock: Vec::new(),
        landlock_parts: bastle_contract::LandlockParts::up_to(6),
        guard: Guard::default(),
        network: Network::None,
        limits: Vec::new(),
        env: Vec::new(),
        cwd: AbsPath::root(),
        argv: Argv::try_from(vec!["/bin/true".to_owned()]).unwrap(),
        stdio: Stdio::Pipes,
        debuggers: false,
        exec: None,
        attachments: None,
        guarantees: Vec::new(),
        waivers: Vec::new(),
    }
}

/// Hands a document over as a plan: `Ok` when a sandbox was made.
pub(crate) fn launched(connection: &OwnedFd, plan: &impl Serialize) -> Result<(), Fault> {
    launched_as(connection, plan).map(|_| ())
}

/// The same; the process that the sandbox is.
pub(crate) fn launched_as(connection: &OwnedFd, plan: &impl Serialize) -> Result<u32, Fault> {
    let document = seal("plan", &serde_json::to_vec(plan).unwrap()).unwrap();
    let (events, _ours) = socket::pair().unwrap();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let parts = [
        document.as_fd(),
        events.as_fd(),
        null.as_fd(),
        null.as_fd(),
        null.as_fd(),
    ];
    let launch = ToSpawner::Launch {
        version: WIRE_VERSION,
    };
    socket::send(connection, &launch, &parts).unwrap();
    match hear::<FromSpawner>(connection) {
        Ok(FromSpawner::Launched { pid, .. }) => Ok(pid),
        Ok(FromSpawner::Refused(fault)) => Err(fault),
        other => panic!("no answer: {other:?}"),
    }
}

/// Connects, wishes, hands over.
pub(crate) fn tried(path: &Path, uid: u32, plan: &impl Serialize) -> Result<(), Fault> {
    let connection = connect_as(path, uid).expect("can be connected to");
    wish(&connection)?;
    launched(&connection, plan)
}
