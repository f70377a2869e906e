//! Groups of hosts (`group:npm`), resolved from what the package manager of this host says itself.
//!
//! **Trust:** only the person's and the system's configuration counts. Nothing of the workspace is read, and the
//! managers are asked from a directory in which no project lies: otherwise a project could choose the hosts.
use crate::place::Place;
use crate::secrets::printed;
use bastle_contract::Fault;
use bastle_policy::{Effective, GroupHost, GroupSources, HostGroup, hosts_of};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest configuration file that is read; the parser refuses it then.
const MOST: u64 = 256 * 1024 + 1;
/// Most files of one directory.
const MOST_FILES: usize = 64;

/// The hosts of groups, once they are known.
pub(super) type Resolved = Vec<(HostGroup, Vec<GroupHost>)>;

/// Turns the groups of a policy into rules about hosts; asks the managers only about those not known yet. A group
/// whose hosts nobody knows is a fault: a rule that matches nothing would only surprise later.
pub(super) fn resolve(effective: &mut Effective, known: &mut Resolved, place: &Place) -> Result<(), Fault> {
    for group in effective.unresolved_groups() {
        if known.iter().all(|(other, _)| *other != group) {
            known.push((group, hosts_of(group, &sources(group, place))?));
        }
    }
    effective.resolve_groups(known);
    Ok(())
}

fn sources(group: HostGroup, place: &Place) -> GroupSources {
    let homes = Homes::of(place);
    let files = files(group, &homes).into_iter().filter_map(|path| {
        let text = read(&path)?;
        Some((path.display().to_string(), text))
    });
    let files: Vec<(String, String)> = files.collect();
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    GroupSources {
        answers: answers(group, &homes, &files, &environment),
        files,
        environment,
    }
}

/// Where the person keeps configuration.
struct Homes {
    home: PathBuf,
    cargo: PathBuf,
}

impl Homes {
    fn of(place: &Place) -> Self {
        let home = place.home.as_path().to_path_buf();
        let workspace = place.workspace.as_path();
        // A variable that leads into the workspace, also through a link, would hand the choice to the project.
        let outside = |path: &PathBuf| {
            std::fs::canonicalize(path).is_ok_and(|real| !real.starts_with(workspace))
                && !path.starts_with(workspace)
        };
        let cargo = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute() && outside(path))
            .unwrap_or_else(|| home.join(".cargo"));
        Self { home, cargo }
    }
}

/// Where a manager's configuration is.
fn files(group: HostGroup, homes: &Homes) -> Vec<PathBuf> {
    let fixed: &[&str] = match group {
        HostGroup::Npm => &["/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"],
        HostGroup::Crates => &[],
        HostGroup::Pypi => &["/etc/pip.conf", "/etc/uv/uv.toml"],
        HostGroup::Apt => &["/etc/apt/sources.list"],
    };
    let own: &[&str] = match group {
        HostGroup::Npm => &[".npmrc"],
        HostGroup::Crates => &[],
        HostGroup::Pypi => &[".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml"],
        HostGroup::Apt => &[],
    };
    let mut paths: Vec<PathBuf> = fixed.iter().map(PathBuf::from).collect();
    paths.extend(own.iter().map(|name| homes.home.join(name)));
    if group == HostGroup::Crates {
        paths.extend(["config.toml", "config"].map(|name| homes.cargo.join(name)));
    }
    if group == HostGroup::Apt {
        paths.extend(listed(Path::new("/etc/apt/sources.list.d")));
    }
    paths
}

/// What a manager says when asked. One that is not installed says nothing.
fn answers(
    group: HostGroup,
    homes: &Homes,
    files: &[(String, String)],
    environment: &[(String, String)],
) -> Vec<String> {
    let ask = |words: &[&str]| {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        printed(&argv).ok().map(|text| text.to_string())
    };
    match group {
        HostGroup::Npm => ask(&["npm", "config", "get", "registry", "--loglevel=silent"])
            .into_iter()
            .collect(),
        HostGroup::Pypi => {
            let listed = ask(&["pip", "config", "list"]).or_else(|| ask(&["pip3", "config", "list"]));
            let set = environment.iter().any(|(name, _)| name == "PIP_INDEX_URL");
            let mut answers: Vec<String> = Vec::new();
            if !set && !listed.as_deref().is_some_and(replaces_index) {
                let help = ask(&["pip", "help", "install"]).or_else(|| ask(&["pip3", "help", "install"]));
                answers.extend(pip_defaults(help));
            }
            answers.extend(listed);
            answers
        }
        HostGroup::Crates => cargo_indexes(&homes.cargo, files),
        HostGroup::Apt => Vec::new(),
    }
}

/// Whether pip's configuration, as pip lists it, names an index in place of the default one, which is then not used.
fn replaces_index(listed: &str) -> bool {
    let keys = listed.lines().filter_map(|line| line.split_once('='));
    keys.into_iter()
        .any(|(key, _)| matches!(key.trim().rsplit('.').next(), Some("index-url" | "index_url")))
}

/// pip names its default address only in its help: `(default https://…)`.
fn pip_defaults(help: Option<String>) -> Option<String> {
    let help = help?;
    let words: Vec<&str> = help.split_whitespace().collect();
    let named = words.windows(2).filter(|pair| pair[0] == "(default");
    let addresses: Vec<&str> = named.map(|pair| pair[1].trim_end_matches([')', '.'])).collect();
    Some(addresses.join(" "))
}

/// cargo prints its default nowhere, but names the directories of its indexes after their hosts (`HOST-HASH`) and
/// keeps there what each index says about downloads. Where the configuration replaces a source, the directories of
/// hosts that it does not name are of earlier days.
fn cargo_indexes(cargo: &Path, files: &[(String, String)]) -> Vec<String> {
    let replaced = files.iter().any(|(_, text)| text.contains("replace-with"));
    let named = |host: &str| files.iter().any(|(_, text)| text.contains(host));
    let mut answers = Vec::new();
    for directory in listed(&cargo.join("registry/index")) {
        let name = directory
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let host = name.rsplit_once('-').filter(|(_, hash)| {
            // The name of a directory, as cargo makes them.
            hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit())
        });
        if replaced && !host.is_some_and(|(host, _)| named(host)) {
            continue;
        }
        // A configured index is named there with its port.
        if let Some((host, _)) = host
            && !replaced
        {
            answers.push(format!("https://{host}/"));
        }
        let config = read(&directory.join("config.json"))
            .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
        if let Some(download) = config.as_ref().and_then(|config| config["dl"].as_str()) {
            answers.push(download.to_owned());
        }
    }
    answers
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.truncate(MOST_FILES);
    paths
}

fn read(path: &Path) -> Option<String> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?);
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_from_the_managers_own_words_and_directories() {
        let help = "  -i, --index-url <url>  Base URL (default\n   https://packages.example/simple). This";
        assert_eq!(
            pip_defaults(Some(help.to_owned())).unwrap(),
            "https://packages.example/simple"
        );
        let home = tempfile::tempdir().unwrap();
        let indexes = home.path().join("registry/index");
        for (host, download) in [
            ("index.example", "files.example"),
            ("mirror.example", "store.example"),
        ] {
            let index = indexes.join(format!("{host}-1949cf8c6b5b557f"));
            std::fs::create_dir_all(&index).unwrap();
            let config = format!(r#"{{"dl":"https://{download}/crates"}}"#);
            std::fs::write(index.join("config.json"), config).unwrap();
        }
        std::fs::create_dir_all(indexes.join("evil.example")).unwrap();
        assert_eq!(
            cargo_indexes(home.path(), &[]),
            [
                "https://index.example/",
                "https://files.example/crates",
                "https://mirror.example/",
                "https://store.example/crates"
            ]
        );
        // The mirror is reached at the address in the configuration, and where its index sends to.
        let text = "[source.a]\nreplace-with = \"b\"\n[source.b]\nregistry = \"sparse+https://mirror.example:8443/\"";
        let files = [("config.toml".to_owned(), text.to_owned())];
        assert_eq!(
            cargo_indexes(home.path(), &files),
            ["https://store.example/crates"]
        );
    }

    #[test]
    fn the_default_index_of_pip_counts_only_while_no_other_is_set() {
        assert!(replaces_index(
            "global.timeout='10'\nglobal.index-url='https://mirror.example/simple'"
        ));
        assert!(!replaces_index(
            "global.extra-index-url='https://more.example/simple'"
        ));
        assert!(!replaces_index(""));
    }
}
