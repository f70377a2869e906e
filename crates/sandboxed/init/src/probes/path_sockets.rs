//! Probes of Unix sockets that have a path: what Landlock refuses, or what the constructed root keeps out of reach in its
//! place.
use super::{Control, Probe, landlock, outcome};
use bastle_contract::{Guarantee, ProbeResult};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Made before the domain of Landlock, where the agent may write.
const EARLIER: &str = "/tmp/.bastle-probe-earlier";
/// Made in it.
const OWN: &str = "/tmp/.bastle-probe-own";
/// The name of the socket in the tree that is left behind.
const LEFT_BEHIND: &str = "outside";

/// A listening socket that has a path.
fn listen(path: &str) -> rustix::io::Result<OwnedFd> {
    let socket = landlock::stream()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

fn connect(path: &str) -> rustix::io::Result<()> {
    landlock::connect(&SocketAddrUnix::new(path)?)
}

/// A socket that was made outside of the domain, and that could be reached then.
pub(super) struct Earlier {
    held: Option<OwnedFd>,
    reached: bool,
}

impl Earlier {
    /// Makes it, and tries it.
    pub(super) fn make() -> Self {
        let held = listen(EARLIER).ok();
        let reached = held.is_some() && connect(EARLIER).is_ok();
        Self { held, reached }
    }

    /// Tries it once more from inside the domain, beside one that belongs to it.
    pub(super) fn again(self, results: &mut Vec<ProbeResult>) {
        let observed = outcome(connect(EARLIER));
        let inside = listen(OWN).and_then(|_held| connect(OWN));
        let control = Control::new(
            "the same before Landlock, and a socket of its own",
            self.reached && inside.is_ok(),
        );
        let attempt = Probe::new(
            Guarantee::LandlockUnix,
            "connect to a path socket made outside the domain",
            "EACCES",
        );
        results.push(attempt.judge(observed, &control));
        drop(self.held);
        for path in [EARLIER, OWN] {
            if let Err(error) = rustix::fs::unlink(path) {
                let attempt = Probe::new(Guarantee::LandlockUnix, format!("remove {path}"), "removed");
                results.push(attempt.judge(outcome::<()>(Err(error)), &control));
            }
        }
    }
}

/// A socket with a path in the host's tree as this sandbox sees it before its root replaces that. On a file system of the
/// sandbox's own: nothing is made on the host's.
pub(crate) struct Outside {
    held: Option<OwnedFd>,
    path: String,
    reached: bool,
}

impl Outside {
    /// Makes it in the directory at `anchor`, and tries it. By way of `/..`, which leads to the host's tree as long as that is
    /// mounted at all.
    pub(crate) fn make(anchor: &str) -> Self {
        let path = format!("/..{anchor}/{LEFT_BEHIND}");
        let held = listen(&path).ok();
        let reached = held.is_some() && connect(&path).is_ok();
        Self { held, path, reached }
    }

    /// Tries it once more after the root was replaced. `directory` is the one at the anchor, which has no path any more.
    pub(crate) fn again(self, directory: BorrowedFd<'_>) -> ProbeResult {
        let Self { held, path, reached } = self;
        let attempt = Probe::new(
            Guarantee::PathSocketsByMountNamespace,
            "connect to a path socket of the tree outside",
            "ENOENT",
        );
        let control = Control::new("the same before the root was replaced", reached);
        let result = attempt.judge(outcome(connect(&path)), &control);
        drop(held);
        // It counts as a file of the run's. One that is left there is no hole.
        let removed = rustix::fs::unlinkat(directory, LEFT_BEHIND, AtFlags::empty());
        match removed {
            Ok(()) | Err(Errno::NOENT) => result,
            Err(error) => {
                let attempt = Probe::new(Guarantee::PathSocketsByMountNamespace, "remove it", "removed");
                attempt.judge(outcome::<()>(Err(error)), &control)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::Verdict;
    use std::os::fd::AsFd;

    #[test]
    fn a_path_socket_that_is_still_in_reach_is_broken_and_one_that_never_was_proves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let anchor = place.path().to_str().unwrap();
        let directory = std::fs::File::open(anchor).unwrap();
        let result = Outside::make(anchor).again(directory.as_fd());
        assert_eq!(
            (result.verdict, result.observed.as_str()),
            (Verdict::Broken, "succeeded")
        );
        assert_eq!(std::fs::read_dir(anchor).unwrap().count(), 0, "nothing is left");
        let nowhere = Outside::make(&format!("{anchor}/missing")).again(directory.as_fd());
        assert_eq!(nowhere.verdict, Verdict::Inconclusive);
    }
}
