//! Hosts and repositories that a workspace's git configuration names.
//!
//! **Trust:** most of it is the agent's to write. A host found there is one on which pushes are judged, which only narrows,
//! so every address counts wherever it stands: remotes, push addresses, rewrites (`insteadOf`), submodules. Names of remotes
//! say what `git.remotes` speaks of. [`super::git_config`] says which files are read.
use bastle_policy::{Host, HostPattern, Remote};

/// Most remotes of a workspace. A name stands for none of the addresses beyond them, which only narrows.
const MOST_REMOTES: usize = 64;
/// Most hosts, addresses of remotes, and rewrites: more than any configuration names in earnest.
const MOST_HOSTS: usize = 4_096;
const MOST_ADDRESSES: usize = 4_096;
const MOST_REWRITES: usize = 256;

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) remotes: Vec<Remote>,
    pub(super) hosts: Vec<HostPattern>,
    addresses: Vec<String>,
    rewrites: Vec<Rewrite>,
    overfull: bool,
}

/// `[url "BASE"] insteadOf = PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rewrite {
    base: String,
    prefix: String,
}

/// What a value of the configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// An address of a repository.
    Address,
    /// Any text. A word with a colon is an address only where the part before it has a dot.
    Text,
}

impl Found {
    /// Takes one key of a configuration file, as `section.key` or `section.subsection.key`.
    pub(super) fn take(&mut self, key: &str, value: &str) {
        let (section, rest) = key.split_once('.').unwrap_or((key, ""));
        let (subsection, name) = rest.rsplit_once('.').unwrap_or(("", rest));
        match (section, name) {
            ("remote", "url" | "pushurl") => self.remote(subsection, value),
            ("submodule", "url") | ("branch", "remote" | "pushremote") | ("remote", "pushdefault") => {
                self.address(value);
            }
            ("url", "insteadof" | "pushinsteadof") => {
                self.host(subsection, Value::Address);
                self.host(value, Value::Address);
                let rewrite = Rewrite {
                    base: subsection.to_owned(),
                    prefix: value.to_owned(),
                };
                self.overfull |= !keep(&mut self.rewrites, rewrite, MOST_REWRITES);
            }
            _ => {
                self.host(subsection, Value::Text);
                self.host(value, Value::Text);
            }
        }
    }

    /// Takes an address of a remote, also of one that a file of its own describes (`.git/remotes/NAME`).
    pub(super) fn remote(&mut self, name: &str, address: &str) {
        self.address(address);
        if let (Some((host, path)), true) = (repository(address), self.remotes.len() < MOST_REMOTES) {
            self.remotes.push(Remote {
                name: name.to_owned(),
                host,
                path,
            });
        }
    }

    /// Adds the hosts that rewritten addresses lead to; a base may hold only a part of a host. `None`: there was more
    /// than is read, so hosts may be missing.
    pub(super) fn complete(mut self) -> Option<Self> {
        let rewritten: Vec<String> = self
            .addresses
            .iter()
            .flat_map(|address| {
                self.rewrites
                    .iter()
                    .filter_map(move |rewrite| Some((rewrite, address.strip_prefix(&rewrite.prefix)?)))
            })
            .map(|(rewrite, rest)| format!("{}{rest}", rewrite.base))
            .collect();
        for address in rewritten {
            self.host(&address, Value::Address);
        }
        (!self.overfull).then_some(self)
    }

    fn address(&mut self, address: &str) {
        self.host(address, Value::Address);
        self.overfull |= !keep(&mut self.addresses, address.to_owned(), MOST_ADDRESSES);
    }

    /// Notes the host of an address, and that of a forge's interface beside it.
    fn host(&mut self, address: &str, value: Value) {
        let Some(host) = split(address, value).and_then(|(host, _)| Host::new(&host).ok()) else {
            return;
        };
        for name in [host.to_string(), format!("api.{host}")] {
            if let Ok(pattern) = HostPattern::new(&name) {
                self.overfull |= !keep(&mut self.hosts, pattern, MOST_HOSTS);
            }
        }
    }
}

/// Adds what is not there yet; `false` where there is no room for it.
fn keep<T: PartialEq>(list: &mut Vec<T>, item: T, most: usize) -> bool {
    if list.contains(&item) {
        return true;
    }
    if list.len() == most {
        return false;
    }
    list.push(item);
    true
}

/// Host and path of a repository's address.
fn repository(address: &str) -> Option<(Host, String)> {
    let (host, path) = split(address, Value::Address)?;
    let path = path.trim_matches('/');
    // A doubled suffix names another repository; rules take one off themselves.
    let short = path.strip_suffix(".git").filter(|short| !short.ends_with(".git"));
    let path = short.unwrap_or(path);
    Some((Host::new(&host).ok()?, path.to_owned()))
}

/// Host and path of an address in any form that git pushes to, whatever the scheme.
fn split(address: &str, value: Value) -> Option<(String, &str)> {
    let mut address = address;
    // `HELPER::ADDRESS` runs git-remote-HELPER, which for https takes the address as it is.
    while let Some((_, rest)) = address.split_once("::").filter(|(helper, _)| is_scheme(helper)) {
        address = rest;
    }
    if let Some((scheme, rest)) = address.split_once("://") {
        if !is_scheme(scheme) || scheme.eq_ignore_ascii_case("file") {
            return None;
        }
        // curl takes more than two slashes for two.
        let rest = rest.trim_start_matches('/');
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        return Some((host_in(authority)?, path));
    }
    // `[user@host:port]:path`.
    if let Some((authority, path)) = address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return Some((host_in(authority)?, path.trim_start_matches(':')));
    }
    // `[user@]host:path`; a slash before the colon makes it a path of this machine.
    let (authority, path) = address.split_once(':')?;
    let host = host_in(authority)?;
    let remote = !authority.contains('/') && (value == Value::Address || host.contains('.'));
    remote.then_some((host, path))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// The host of `user@host:port`, without escapes: curl undoes them.
fn host_in(authority: &str) -> Option<String> {
    let host = authority.rsplit('@').next()?.trim_start_matches('[');
    let host = host.split([':', ']']).next()?;
    let mut bytes = Vec::with_capacity(host.len());
    let mut rest = host.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        let (byte, after) = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => (
                u8::try_from(high * 16 + low).ok()?,
                after.get(2..).unwrap_or_default(),
            ),
            _ => (first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok().filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_workspace::git::Config;
    use proptest::prelude::*;

    fn found(config: &str) -> Found {
        let mut found = Found::default();
        for (key, value) in Config::parse(config).unwrap().entries() {
            found.take(key, value);
        }
        found.complete().unwrap()
    }

    fn judged(config: &str, host: &str) -> bool {
        let host = Host::new(host).unwrap();
        found(config).hosts.iter().any(|pattern| pattern.matches(&host))
    }

    #[test]
    fn a_host_is_found_in_every_form_in_which_git_pushes_to_it() {
        for config in [
            "[remote \"a\"]\nurl = https://user:pw@git.example:8443/a/b.git\n",
            "[remote \"a\"]\n\turl=http://git.example/a\n",
            "[REMOTE \"a\"]\nURL = ssh://git@git.example:22/a\n",
            "[remote \"a\"]\nurl = git://git.example/a\n",
            "[remote \"a\"]\nurl = git@git.example:a/b.git\n",
            "[remote \"a\"]\nurl = [git@git.example:22]:a/b.git\n",
            "[remote \"a\"]\nurl = \"git.example:a/b\" # comment\n",
            "[remote \"a\"] url = https://git.example/x\n",
            "[remote \"a\"]\nurl = https://other.example/x\npushurl = git@git.example:x\n",
            "[url \"https://git.example/\"]\ninsteadOf = short:\n",
            "[url \"x\"]\npushInsteadOf = https://git.example/\n",
            "[submodule \"s\"]\npath = s\nurl = HTTPS://GIT.example/s\n",
            "[remote \"a\"]\nurl = \"https://\"git.example/x\n",
            "[remote \"a\"]\nurl = https://gi\\\nt.example/x\n",
            "[remote \"a\"]\nurl = https://git%2Eexample/x\n",
            "[remote \"a\"]\nurl = https:///git.example/x\n",
            "[remote \"a\"]\nurl = https://git.example?x\n",
            "[remote \"a\"]\nurl = https::https://git.example/x\n",
            "[remote \"a\"]\nurl = codecommit://git.example/x\n",
            "[remote.a]\nurl = https://git.example/x\n",
            "[a][remote \"a\"]url=https://git.example/x\n",
            "[branch \"main\"]\npushRemote = https://git.example/x\n",
            "[lfs]\nurl = https://git.example/x\n",
            "[url \"https://git.\"]\ninsteadOf = corp:\n[remote \"a\"]\nurl = corp:example/a\n",
        ] {
            assert!(judged(config, "git.example"), "{config}");
            assert!(judged(config, "api.git.example"), "{config}");
        }
        for config in [
            "[remote \"a\"]\nurl = /srv/git.example/x\n",
            "[remote \"a\"]\nurl = ../git.example:x\n",
            "[remote \"a\"]\nurl = file:///git.example/x\n",
            "",
        ] {
            assert!(!judged(config, "git.example"), "{config}");
        }
    }

    #[test]
    fn a_host_of_one_label_is_a_remote_and_a_word_with_a_colon_is_not() {
        for config in [
            "[remote \"a\"]\nurl = git@gitserver:team/app\n",
            "[remote \"a\"]\nurl = gitserver:team/app\n",
            "[url \"git@gitserver:\"]\ninsteadOf = https://short/\n",
            "[http]\nproxy = http://gitserver/\n",
        ] {
            assert!(judged(config, "gitserver"), "{config}");
        }
        assert!(!judged("[format]\npretty = gitserver:%h\n", "gitserver"));
    }

    #[test]
    fn a_name_in_git_remotes_stands_for_every_address_of_that_remote() {
        let text = "[core]\n url = https://no.example/x\n[remote \"origin\"]\n\turl = https://u@git.example/a/b.git\n\tpushurl = git@push.example:c/d\n";
        let found = found(text);
        let shown: Vec<_> = found
            .remotes
            .iter()
            .map(|remote| (remote.name.as_str(), remote.host.as_str(), remote.path.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("origin", "git.example", "a/b"),
                ("origin", "push.example", "c/d")
            ]
        );
    }

    #[test]
    fn more_hosts_than_are_read_is_an_answer_of_its_own() {
        let mut found = Found::default();
        for number in 0..MOST_HOSTS / 2 {
            found.take("remote.a.url", &format!("https://h{number}.example/x"));
        }
        assert!(found.clone().complete().is_some(), "control");
        found.take("remote.a.url", "https://one.more.example/x");
        assert!(found.complete().is_none());
    }

    proptest! {
        #[test]
        fn no_address_makes_it_panic(key in "[a-z.]{0,20}", value in "\\PC{0,40}", more in "[a:/@%0-9\\[\\]?#]{0,24}") {
            let mut found = Found::default();
            found.take(&key, &value);
            for key in ["remote.a.url", "url.x.insteadof", &format!("url.{value}.insteadof")] {
                found.take(key, &value);
                found.take(key, &more);
            }
            found.complete().unwrap();
        }
    }
}
