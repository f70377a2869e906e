//! The ceiling: a file of root's that says who may have runs made, where, how many, how fast and how large.
//!
//! **Trust:** the file is believed only if nobody but its owner can change it, and only as a whole: an unknown key, a
//! doubled one or a value that cannot be held refuses all of it.
use super::accounts;
use super::amount::Amount;
use super::bucket::Rate;
use crate::bounds::{Allowance, Caller, Reach};
use bastle_contract::{AbsPath, BackendKind, Code, Fault, LandlockPart, LandlockParts, LimitKind};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Largest file.
pub(super) const MOST_BYTES: u64 = 64 * 1024;
/// Most entries for callers.
const MOST_CALLERS: usize = 256;
/// Most roots of one caller.
const MOST_ROOTS: usize = 64;
/// Most runs at once, whatever the file says.
const MOST_WORKERS: u32 = 100_000;
/// The version of the file's form.
const VERSION: u32 = 1;

/// What is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ceiling {
    /// In the order of the file: the first that fits a caller holds.
    pub(super) callers: Vec<Named>,
    /// Runs at once, of everybody.
    pub(super) max_workers: u32,
}

/// What one caller may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) who: Who,
    pub(super) allowance: Allowance,
    /// Runs of one user at once.
    pub(super) max_workers: u32,
    pub(super) rate: Rate,
}

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Who {
    Uid(u32),
    Gid(u32),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// For editors.
    #[serde(rename = "$schema")]
    _schema: Option<String>,
    version: u32,
    callers: Vec<Entry>,
    max_workers: u32,
    /// The lowest Landlock ABI that runs are built with.
    min_landlock_abi: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    uid: Option<u32>,
    user: Option<String>,
    group: Option<String>,
    roots: Vec<AbsPath>,
    max_workers: Option<u32>,
    rate: Option<Rate>,
    #[serde(default)]
    limits: Maxima,
    backends: Option<Vec<BackendKind>>,
    #[serde(default)]
    allow_unconfined: bool,
}

/// Fields and not a map: a doubled one is refused. What the relay holds cannot be bounded here.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Maxima {
    timeout: Option<Amount>,
    cpu_time: Option<Amount>,
    cpu: Option<Amount>,
    memory: Option<Amount>,
    pids: Option<Amount>,
    open_files: Option<Amount>,
    disk: Option<Amount>,
    inodes: Option<Amount>,
    files: Option<Amount>,
    bytes_written: Option<Amount>,
    file_size: Option<Amount>,
}

impl Ceiling {
    /// Reads the file.
    pub(super) fn load(path: &Path) -> Result<Self, Fault> {
        let refused = |why: String| {
            Fault::new(
                Code::SpawnCeiling,
                format!("the ceiling file {} is refused", path.display()),
                why,
            )
            .help("bastle spawner --check FILE tries a file; docs/spawner.md describes it")
        };
        read(path).and_then(|text| Self::parse(&text)).map_err(refused)
    }

    /// Without a file, for a daemon that is not root: its own user, with its own rights.
    pub(super) fn own() -> Self {
        let own = Named {
            who: Who::Uid(rustix::process::geteuid().as_raw()),
            allowance: Allowance {
                reach: Reach::Anywhere,
                limits: Vec::new(),
                backends: vec![BackendKind::Native],
                landlock_abi: 0,
                unconfined: true,
            },
            max_workers: 1000,
            rate: Rate {
                per_second: 100,
                burst: 200,
            },
        };
        Self {
            callers: vec![own],
            max_workers: 1000,
        }
    }

    /// The entry that holds for a caller.
    pub(super) fn find(&self, caller: &Caller) -> Option<&Named> {
        self.callers.iter().find(|named| match named.who {
            Who::Uid(uid) => caller.uid == uid,
            Who::Gid(gid) => caller.has_group(gid),
        })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document.version != VERSION {
            return Err(format!("version {} is not {VERSION}", document.version));
        }
        if document.callers.len() > MOST_CALLERS {
            return Err(format!("more than {MOST_CALLERS} callers"));
        }
        let least = least_abi(document.min_landlock_abi)?;
        let numbered = document.callers.into_iter().enumerate();
        let callers = numbered
            .map(|(index, entry)| {
                entry
                    .resolve(least)
                    .map_err(|why| format!("callers[{index}]: {why}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            callers,
            max_workers: workers(document.max_workers)?,
        })
    }
}

impl Entry {
    fn resolve(self, least: u32) -> Result<Named, String> {
        let who = match (self.uid, self.user, self.group) {
            (Some(uid), None, None) => Who::Uid(uid),
            (None, Some(user), None) => Who::Uid(accounts::uid_of(&user)?),
            (None, None, Some(group)) => Who::Gid(accounts::gid_of(&group)?),
            _ => return Err("exactly one of uid, user and group is needed".to_owned()),
        };
        if self.roots.len() > MOST_ROOTS {
            return Err(format!("more than {MOST_ROOTS} roots"));
        }
        for root in &self.roots {
            exact(root)?;
        }
        let rate = self.rate.unwrap_or(Rate {
            per_second: 20,
            burst: 40,
        });
        if rate.per_second == 0 || rate.burst == 0 {
            return Err("rate must not be zero".to_owned());
        }
        Ok(Named {
            who,
            allowance: Allowance {
                reach: Reach::Below(self.roots),
                limits: self.limits.resolve()?,
                backends: self.backends.unwrap_or_else(|| vec![BackendKind::Native]),
                landlock_abi: least,
                unconfined: self.allow_unconfined,
            },
            max_workers: workers(self.max_workers.unwrap_or(16))?,
            rate,
        })
    }
}

impl Maxima {
    fn resolve(self) -> Result<Vec<(LimitKind, u64)>, String> {
        let all = [
            (LimitKind::WallTime, self.timeout),
            (LimitKind::CpuTime, self.cpu_time),
            (LimitKind::Cpu, self.cpu),
            (LimitKind::Memory, self.memory),
            (LimitKind::Pids, self.pids),
            (LimitKind::OpenFiles, self.open_files),
            (LimitKind::Disk, self.disk),
            (LimitKind::Inodes, self.inodes),
            (LimitKind::Files, self.files),
            (LimitKind::BytesWritten, self.bytes_written),
            (LimitKind::FileSize, self.file_size),
        ];
        all.into_iter()
            .filter_map(|(limit, amount)| Some(amount?.of(limit).map(|most| (limit, most))))
            .collect()
    }
}

fn workers(count: u32) -> Result<u32, String> {
    if (1..=MOST_WORKERS).contains(&count) {
        Ok(count)
    } else {
        Err(format!("max_workers must lie between 1 and {MOST_WORKERS}"))
    }
}

/// One that no part belongs to would be a promise about nothing.
fn least_abi(stated: Option<u32>) -> Result<u32, String> {
    let known = LandlockPart::ALL.map(LandlockPart::abi);
    let most = known.into_iter().max().unwrap_or(0);
    match stated {
        None => Ok(0),
        Some(abi) if (LandlockParts::FLOOR..=most).contains(&abi) => Ok(abi),
        Some(abi) => Err(format!(
            "min_landlock_abi {abi} must lie between {} and {most}",
            LandlockParts::FLOOR
        )),
    }
}

/// A root that leads through a link would cover nothing: paths of plans have none.
fn exact(root: &AbsPath) -> Result<(), String> {
    match std::fs::canonicalize(root.as_path()) {
        Ok(real) if real != root.as_path() => Err(format!(
            "root {root} leads through a symlink: write {}",
            real.display()
        )),
        // One that is not there yet may come.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The file's text, if only its owner can have written it.
fn read(path: &Path) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?;
    let stat = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is no regular file".to_owned());
    }
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != 0 && stat.st_uid != own {
        return Err(format!("it belongs to uid {}, not to root", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(format!(
            "others can write it (mode {:04o})",
            stat.st_mode & 0o7777
        ));
    }
    let mut text = String::new();
    std::fs::File::from(file)
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {MOST_BYTES} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
#[path = "ceiling_tests.rs"]
mod tests;
