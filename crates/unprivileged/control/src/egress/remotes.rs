//! Hosts and repositories that a workspace's git configuration names.
//!
//! **Trust:** the files are the agent's to write. A host found there is one on which pushes are judged, which only narrows,
//! so every address counts wherever it stands: remotes, push addresses, rewrites (`insteadOf`), submodules. Names of remotes
//! say what `git.remotes` speaks of.
use bastle_policy::{Host, HostPattern, Remote};
use std::path::{Path, PathBuf};

/// Most remotes of a workspace.
const MOST_REMOTES: usize = 64;
/// Most hosts: more than any file of this size names in earnest.
const MOST_HOSTS: usize = 4_096;
/// Schemes over which git pushes.
const SCHEMES: [&str; 8] = [
    "https",
    "http",
    "ssh",
    "git",
    "git+ssh",
    "ssh+git",
    "git+https",
    "ftps",
];

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) remotes: Vec<Remote>,
    pub(super) hosts: Vec<HostPattern>,
}

/// Reads the configuration of the repository at `workspace`, of its worktree and of its submodules' list.
pub(super) fn find(workspace: &Path, read: impl Fn(&Path) -> String) -> Found {
    let mut found = Found::default();
    let mut directories = vec![workspace.join(".git")];
    // In a worktree or submodule `.git` is a file that names the directory; the configuration is in the common one.
    if let Some(named) = read(&workspace.join(".git")).trim().strip_prefix("gitdir:") {
        let own = workspace.join(named.trim());
        let common = read(&own.join("commondir"));
        if !common.trim().is_empty() {
            directories.push(own.join(common.trim()));
        }
        directories.push(own);
    }
    let mut files: Vec<PathBuf> = vec![workspace.join(".gitmodules")];
    for directory in directories {
        files.extend(["config", "config.worktree"].map(|name| directory.join(name)));
    }
    for file in files {
        found.take(&read(&file));
    }
    found
}

impl Found {
    fn take(&mut self, config: &str) {
        let mut remote = None;
        for line in config.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[') {
                remote = remote_of(header);
                // `[url "https://other/"]` rewrites addresses to this one.
                for part in header.split('"') {
                    self.host(part);
                }
            }
            // A section and its first key may share a line.
            let Some((key, value)) = line
                .rsplit_once(']')
                .map_or(line, |(_, rest)| rest)
                .split_once('=')
            else {
                continue;
            };
            let value = value.trim().trim_matches('"');
            let value = value.split([' ', '\t', '"', '#', ';']).next().unwrap_or_default();
            self.host(value);
            let key = key.trim().to_ascii_lowercase();
            if let (Some(name), "url" | "pushurl", Some((host, path))) =
                (&remote, key.as_str(), repository(value))
                && self.remotes.len() < MOST_REMOTES
            {
                self.remotes.push(Remote {
                    name: name.clone(),
                    host,
                    path,
                });
            }
        }
    }

    /// Notes the host of an address, and that of a forge's interface beside it.
    fn host(&mut self, address: &str) {
        let Some(host) = host_of(address) else { return };
        for name in [host.to_string(), format!("api.{host}")] {
            if let Ok(pattern) = HostPattern::new(&name)
                && self.hosts.len() < MOST_HOSTS
                && !self.hosts.contains(&pattern)
            {
                self.hosts.push(pattern);
            }
        }
    }
}

/// The name in `remote "NAME"]`.
fn remote_of(header: &str) -> Option<String> {
    let (section, rest) = header.split_once('"')?;
    let name = rest.split('"').next()?;
    section
        .trim()
        .eq_ignore_ascii_case("remote")
        .then(|| name.to_owned())
}

/// Host of an address in any form that git pushes to.
fn host_of(address: &str) -> Option<Host> {
    split(address).and_then(|(host, _)| Host::new(host).ok())
}

/// Host and path of a repository's address.
fn repository(address: &str) -> Option<(Host, String)> {
    let (host, path) = split(address)?;
    let path = path.trim_matches('/');
    // A doubled suffix names another repository; rules take one off themselves.
    let short = path.strip_suffix(".git").filter(|short| !short.ends_with(".git"));
    let path = short.unwrap_or(path);
    Some((Host::new(host).ok()?, path.to_owned()))
}

fn split(address: &str) -> Option<(&str, &str)> {
    if let Some((scheme, rest)) = address.split_once("://") {
        if !SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return None;
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit('@').next()?.split(':').next()?;
        return Some((host, path));
    }
    // `[user@]host:path`; a slash before the colon makes it a path of this machine.
    let (authority, path) = address.split_once(':')?;
    let host = authority.rsplit('@').next()?;
    (!authority.contains('/') && host.contains('.')).then_some((host, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &str) -> Found {
        let mut found = Found::default();
        found.take(config);
        found
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
            "[remote \"a\"]\nurl = \"git.example:a/b\" # comment\n",
            "[remote \"a\"] url = https://git.example/x\n",
            "[remote \"a\"]\nurl = https://other.example/x\npushurl = git@git.example:x\n",
            "[url \"https://git.example/\"]\ninsteadOf = short:\n",
            "[url \"x\"]\npushInsteadOf = https://git.example/\n",
            "[submodule \"s\"]\npath = s\nurl = HTTPS://GIT.example/s\n",
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
    fn the_configuration_behind_a_worktree_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |below: &str| dir.path().join(below);
        std::fs::create_dir_all(at("main/.git/worktrees/w")).unwrap();
        std::fs::create_dir_all(at("w")).unwrap();
        std::fs::write(
            at("w/.git"),
            format!("gitdir: {}\n", at("main/.git/worktrees/w").display()),
        )
        .unwrap();
        std::fs::write(at("main/.git/worktrees/w/commondir"), "../..\n").unwrap();
        std::fs::write(
            at("main/.git/config"),
            "[remote \"o\"]\nurl = git@git.example:x\n",
        )
        .unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let hosts = find(&at("w"), read).hosts;
        assert!(
            hosts.iter().any(|pattern| pattern.to_string() == "git.example"),
            "{hosts:?}"
        );
    }
}
