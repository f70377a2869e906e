//! The remotes of a copy: where the host's repository fetches from and pushes to, as plain addresses.
//!
//! **Trust:** reads the user's configuration, which may have come with a download and may hold credentials. What is kept
//! cannot name a program, a path of the host or a password; whether it can be reached is egress's decision.
use super::Config;

/// Most remotes that are kept; more are not written by hand.
const MAX_REMOTES: usize = 32;
/// Longest address; servers accept about this much.
const MAX_ADDRESS: usize = 2_048;
/// Longest name.
const MAX_NAME: usize = 64;

/// The section of the copy's configuration about remotes.
pub(super) fn section(config: &Config) -> String {
    let mut text = String::new();
    for (name, address) in config.remotes().take(MAX_REMOTES) {
        if let Some(address) = plain(address).filter(|_| is_name(name)) {
            text.push_str(&format!(
                "[remote \"{name}\"]\n\turl = {address}\n\tfetch = +refs/heads/*:refs/remotes/{name}/*\n"
            ));
        }
    }
    text
}

/// A name that needs no quoting and is a valid part of a reference.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !name.contains("..")
        && !name.ends_with('.')
        && !name.to_ascii_lowercase().ends_with(".lock")
}

/// The address without credentials. `None`: a path of the host, a helper program, or nothing that git would take.
fn plain(address: &str) -> Option<String> {
    // No byte that ends or quotes a value of the configuration, or starts a comment in it.
    let fits = address.len() <= MAX_ADDRESS
        && address
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'#' | b';'));
    if !fits || address.starts_with('-') {
        return None;
    }
    match address.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let (_, host) = authority(rest);
            (!host.is_empty()).then(|| format!("{scheme}://{host}"))
        }
        Some(("ssh", rest)) => {
            let (user, host) = authority(rest);
            let user = user.and_then(|user| user.split(':').next());
            let valid = !host.is_empty() && !host.starts_with('-');
            valid.then(|| match user {
                Some(user) => format!("ssh://{user}@{host}"),
                None => format!("ssh://{host}"),
            })
        }
        Some(_) => None,
        None => secure_shell(address),
    }
}

/// Who, if anybody, and the rest from the host on.
fn authority(rest: &str) -> (Option<&str>, &str) {
    let end = rest.find('/').unwrap_or(rest.len());
    match rest.get(..end).and_then(|part| part.rfind('@')) {
        Some(at) => (rest.get(..at), rest.get(at + 1..).unwrap_or_default()),
        None => (None, rest),
    }
}

/// `user@host:path`: the short form of an ssh address. `helper::address` names a program.
fn secure_shell(address: &str) -> Option<String> {
    let (host, path) = address.split_once(':')?;
    let usual = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let valid = match host.split_once('@') {
        Some((user, host)) => usual(user) && usual(host),
        None => usual(host),
    };
    (valid && !path.is_empty() && !path.starts_with(':')).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_credential_a_helper_or_a_path_of_the_host_is_not_in_the_address() {
        let cases = [
            ("https://code.test/a/b.git", Some("https://code.test/a/b.git")),
            (
                "https://ada:hunter2@code.test:8443/a",
                Some("https://code.test:8443/a"),
            ),
            ("https://token@code.test/a@b", Some("https://code.test/a@b")),
            (
                "ssh://git:pw@code.test:2222/a",
                Some("ssh://git@code.test:2222/a"),
            ),
            ("ssh://code.test/a", Some("ssh://code.test/a")),
            ("git@code.test:a/b.git", Some("git@code.test:a/b.git")),
            ("code:a/b", Some("code:a/b")),
            ("/srv/git/a.git", None),
            ("../a", None),
            ("file:///srv/git", None),
            ("ext::sh -c touch% /tmp/x", None),
            ("ext::sh", None),
            ("fd::3", None),
            ("ssh://-oProxyCommand=x/a", None),
            ("-oProxyCommand=x:a", None),
            ("https://", None),
            ("https://code.test/a\"\n[core]\n\tsshCommand = x", None),
            ("https://code.test/a#b", None),
        ];
        for (address, expected) in cases {
            assert_eq!(plain(address).as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn a_name_cannot_end_its_section() {
        let text = "[remote \"origin\"]\n\turl = https://a:b@code.test/x\n\tpushurl = ext::sh\n\treceivepack = sh\n\
                    [remote \"x\\\"]\"]\n\turl = https://code.test/y\n[remote \"a..b\"]\n\turl = https://code.test/z\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            section(&config),
            "[remote \"origin\"]\n\turl = https://code.test/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_remotes_only(name in "\\PC{0,12}", address in "\\PC{0,40}") {
            let config = Config::parse(&format!("[remote \"{name}\"]\n\turl = {address}\n")).unwrap_or_default();
            let text = section(&config);
            let again = Config::parse(&text).unwrap();
            prop_assert!(again.remotes().count() <= 1);
            prop_assert_eq!(text.lines().count() % 3, 0);
            for (_, address) in again.remotes() {
                prop_assert_eq!(plain(address), Some(address.to_owned()));
            }
        }
    }
}
