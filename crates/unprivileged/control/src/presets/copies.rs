//! Copies of an agent's configuration for its fresh home.
//!
//! **Trust:** the files are the operator's own, but other programs write there too: they are opened below the home
//! without following a link, must belong to the operator or to root, and have a largest size.
use super::AgentUse;
use crate::place::Place;
use bastle_policy::GivenFile;
use bastle_policy::agent::{Agent, CopiedFile, Filtered, filtered};
use bastle_workspace::beneath::Dir;
use bastle_workspace::path::TreePath;
use std::io::{ErrorKind, Read};

/// Most files that one rule with a star copies.
const MOST_FILES: usize = 64;
/// Most bytes of all copies together.
const MOST_BYTES: usize = 4 << 20;

/// Reads what the preset lists.
pub(super) fn look(place: &Place, agent: &Agent, found: &mut AgentUse) {
    let Ok(home) = Dir::open(place.home.as_path()) else {
        return;
    };
    let mut copied = Vec::new();
    for rule in &agent.files {
        for (from, to) in names(&home, rule, found) {
            let total: usize = found.files.iter().map(|file| file.bytes.len()).sum();
            match copy(&home, rule, &from) {
                Ok(Some(Filtered { bytes, left_out })) if total + bytes.len() <= MOST_BYTES => {
                    copied.push(if left_out.is_empty() {
                        format!("~/{from}")
                    } else {
                        format!("~/{from} (without {})", left_out.join(", "))
                    });
                    found.files.push(GivenFile {
                        to,
                        bytes,
                        note: format!("a copy of ~/{from}"),
                    });
                }
                Ok(Some(_)) => found.warnings.push(format!(
                    "~/{from} is not copied: the copies would have more than {MOST_BYTES} bytes"
                )),
                Ok(None) => {}
                Err(why) => found.warnings.push(format!("~/{from} is not copied: {why}")),
            }
        }
    }
    for made in &agent.make {
        if !found.files.iter().any(|file| file.to == made.to) {
            found.files.push(GivenFile {
                to: made.to.clone(),
                bytes: made.text.clone().into_bytes(),
                note: "made by the preset".to_owned(),
            });
        }
    }
    if !copied.is_empty() {
        found.told.push(format!("copied: {}", copied.join(", ")));
    }
}

/// The files that a rule names, and where each goes.
fn names(home: &Dir, rule: &CopiedFile, found: &mut AgentUse) -> Vec<(String, String)> {
    let Some((above, ending)) = rule.from.rsplit_once("/*") else {
        return vec![(rule.from.clone(), rule.to.clone())];
    };
    let listed = TreePath::new(above.as_bytes())
        .ok()
        .and_then(|path| home.beneath(Some(&path)).ok())
        .and_then(|directory| directory.list().ok());
    let mut names: Vec<String> = listed
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| String::from_utf8(entry.name).ok())
        .filter(|name| name.ends_with(ending) && !name.starts_with('.') && is_plain(name))
        .collect();
    names.sort();
    if names.len() > MOST_FILES {
        found.warnings.push(format!(
            "~/{above} has {} such files; the first {MOST_FILES} are copied",
            names.len()
        ));
        names.truncate(MOST_FILES);
    }
    names
        .into_iter()
        .map(|name| (format!("{above}/{name}"), format!("{}/{name}", rule.to)))
        .collect()
}

fn is_plain(name: &str) -> bool {
    name.len() <= 128
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._- ".contains(&byte))
}

/// One file: its bytes and the keys that were left out; `None` where there is none.
fn copy(home: &Dir, rule: &CopiedFile, from: &str) -> Result<Option<Filtered>, String> {
    let path = TreePath::new(from.as_bytes()).map_err(|error| error.to_string())?;
    let parent = match path.parent() {
        Some(parent) => home.beneath(Some(&parent)),
        None => home.beneath(None),
    };
    let opened = parent.and_then(|directory| directory.open_regular(path.name()));
    let (file, stat) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err("it is a symlink or lies behind one".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let own = rustix::process::getuid().as_raw();
    if stat.st_uid != own && stat.st_uid != 0 {
        return Err(format!("it belongs to another user ({})", stat.st_uid));
    }
    let mut bytes = Vec::new();
    file.take(rule.most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > rule.most {
        return Err(format!("it is larger than {} bytes", rule.most));
    }
    let name = from.rsplit('/').next().unwrap_or(from);
    filtered(rule, name, &bytes).map(Some)
}
