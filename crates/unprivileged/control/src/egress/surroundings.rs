//! What the network rules need to know of this host: name servers, fixed names, the workspace's remotes.
//!
//! **Trust:** `/etc` is the host's own. The workspace's git configuration is the agent's to write: what stands there
//! names repositories that rules speak of, and never widens a rule.
use super::git_config;
use super::remotes::Found;
use crate::place::Place;
use bastle_contract::Fault;
use bastle_policy::{Host, HostPattern, NetPolicy, Remote};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Largest file that is read: resolver and hosts files of people are far smaller.
const MOST: u64 = 256 * 1024;
/// Most name servers that are used, as the C library does.
const MOST_SERVERS: usize = 3;
/// Most fixed names that are passed on.
const MOST_NAMES: usize = 1024;

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    resolvers: Vec<SocketAddr>,
    hosts: Vec<(Host, IpAddr)>,
    remotes: Vec<Remote>,
    git_hosts: Vec<HostPattern>,
    /// Why the git configuration could not be read.
    unread: Option<Fault>,
}

/// The files of git that do not belong to a project.
fn own_git_files(place: &Place) -> Vec<PathBuf> {
    let home = place.home.as_path();
    let mut files = vec![
        PathBuf::from("/etc/gitconfig"),
        home.join(".gitconfig"),
        // The variable that moves it may not be passed on to the agent, so both places count.
        home.join(".config/git/config"),
    ];
    files.extend(place.config.parent().map(|config| config.join("git/config")));
    files
}

/// Looks around.
pub(super) fn look(place: &Place) -> Known {
    let git = git_config::read(&git_config::Sources {
        workspace: place.workspace.as_path(),
        home: place.home.as_path(),
        own: own_git_files(place),
    });
    let (git, unread) = match git {
        Ok(git) => (git, None),
        Err(fault) => (Found::default(), Some(fault)),
    };
    Known {
        resolvers: name_servers(&text(Path::new("/etc/resolv.conf"))),
        hosts: fixed_names(&text(Path::new("/etc/hosts"))),
        remotes: git.remotes,
        git_hosts: git.hosts,
        unread,
    }
}

impl Known {
    /// Fills in what no layer names.
    ///
    /// # Errors
    /// Where pushes are judged and the hosts to judge them on are not known.
    pub(super) fn fill(&self, table: &mut NetPolicy) -> Result<(), Fault> {
        if let (Some(fault), true) = (&self.unread, table.judges_git()) {
            return Err(fault.clone());
        }
        if table.resolvers.is_empty() {
            table.resolvers.clone_from(&self.resolvers);
        }
        if table.hosts.is_empty() {
            table.hosts.clone_from(&self.hosts);
        }
        for pattern in &self.git_hosts {
            if !table.git_hosts.contains(pattern) {
                table.git_hosts.push(pattern.clone());
            }
        }
        for remote in &self.remotes {
            if !table.remotes.contains(remote) {
                table.remotes.push(remote.clone());
            }
        }
        Ok(())
    }
}

/// The text of a file, empty where it cannot be read: then there is nothing to fill in.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else {
        return String::new();
    };
    let file = std::fs::File::from(file);
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return String::new();
    }
    match file.take(MOST).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words
            .next()
            .filter(|word| *word == "nameserver")
            .and_then(|_| words.next())?;
        let address: IpAddr = address.split('%').next()?.parse().ok()?;
        Some(SocketAddr::new(address, 53))
    };
    text.lines().filter_map(server).take(MOST_SERVERS).collect()
}

/// Names of the hosts file. Those of this machine itself are left out: no rule opens them.
fn fixed_names(text: &str) -> Vec<(Host, IpAddr)> {
    let mut names = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        let hosts = words.filter_map(|word| Host::new(word).ok());
        names.extend(
            hosts
                .filter(|host| !host.is_forbidden())
                .map(|host| (host, address)),
        );
    }
    names.truncate(MOST_NAMES);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_names_are_read_and_nonsense_is_left_out() {
        let servers =
            name_servers("# x\nnameserver 192.0.2.1\nsearch a\nnameserver fe80::1%eth0\nnameserver x\n");
        assert_eq!(servers.len(), 2);
        let names = fixed_names("127.0.0.1 localhost\n192.0.2.9 build.example build # c\nx y\n");
        assert!(names.iter().any(|(host, _)| host.as_str() == "build.example"));
        assert!(names.iter().all(|(host, _)| host.as_str() != "localhost"));
    }
}
