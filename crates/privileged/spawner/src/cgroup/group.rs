//! The groups of one run, from creation to removal.
use super::hand_down::hand_down;
use bastle_contract::{
    CgroupEvidence, CgroupFacts, CgroupFlavour, Code, Controller, Fault, LaunchPlan, LimitHit, LimitKind,
    LimitLost, LimitMechanism, LimitRule, LossSign,
};
use rustix::event::Timespec;
use std::io;
use std::path::{Path, PathBuf};

/// One directory per hierarchy that is used. Dropping it removes what is left.
pub(crate) struct Group {
    flavour: CgroupFlavour,
    directories: Vec<Directory>,
    evidence: Vec<CgroupEvidence>,
    /// Where a controller can be taken away from all groups of runs at once.
    parent_control: Option<PathBuf>,
}

struct Directory {
    path: PathBuf,
    /// `None`: the unified hierarchy.
    controller: Option<Controller>,
    limits: Vec<LimitRule>,
    values: Vec<Value>,
}

/// A file that holds a limit, and what it said after it was written.
struct Value {
    rule: LimitRule,
    path: PathBuf,
    text: String,
}

/// Length of a processor period in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;
/// Living runs' groups that are looked at while those of dead ones are looked for.
const MOST_LOOKED_AT: usize = 8;

impl Group {
    /// Makes the directories and sets the limits the plan leaves to cgroups.
    pub(crate) fn create(plan: &LaunchPlan, facts: &CgroupFacts) -> Result<Self, Fault> {
        let name = format!(
            "bastle-{}-{}",
            rustix::process::getpid().as_raw_nonzero(),
            plan.run
        );
        let mut group = Self {
            flavour: facts.flavour,
            directories: Vec::new(),
            evidence: Vec::new(),
            parent_control: None,
        };
        let by_cgroup = |rule: &LimitRule| {
            matches!(
                rule.mechanism,
                LimitMechanism::CgroupV1 | LimitMechanism::CgroupV2
            )
        };
        // Without a limit that needs one, none is made: killing needs init only, and freezing is done by init too.
        if !plan.limits.iter().any(by_cgroup) {
            return Ok(group);
        }
        hand_down(facts)?;
        if let Some(unified) = &facts.unified {
            group.make(unified.as_path(), &name, None)?;
            group.parent_control = (facts.flavour == CgroupFlavour::V2)
                .then(|| unified.as_path().join("cgroup.subtree_control"));
        }
        for rule in &plan.limits {
            let Some(controller) = controller(rule.limit) else {
                continue;
            };
            match rule.mechanism {
                LimitMechanism::CgroupV2 => group.limit(rule, None, LimitMechanism::CgroupV2)?,
                LimitMechanism::CgroupV1 => {
                    let parent = facts
                        .parent(controller)
                        .ok_or_else(|| fault("limit", rule.limit.name(), "the controller is not there"))?;
                    group.make(parent.as_path(), &name, Some(controller))?;
                    group.limit(rule, Some(controller), LimitMechanism::CgroupV1)?;
                }
                _ => {}
            }
        }
        if group.directories.iter().all(|d| d.controller.is_some())
            && let Some(parent) = facts.parent(Controller::Freezer)
        {
            group.make(parent.as_path(), &name, Some(Controller::Freezer))?;
        }
        Ok(group)
    }

    fn make(&mut self, parent: &Path, name: &str, controller: Option<Controller>) -> Result<(), Fault> {
        sweep(parent, is_spawner);
        let path = parent.join(name);
        std::fs::create_dir(&path)
            .map_err(|error| fault("make", &path.display().to_string(), &error.to_string()))?;
        self.directories.push(Directory {
            path,
            controller,
            limits: Vec::new(),
            values: Vec::new(),
        });
        Ok(())
    }

    fn limit(
        &mut self,
        rule: &LimitRule,
        controller: Option<Controller>,
        mechanism: LimitMechanism,
    ) -> Result<(), Fault> {
        let missing = || fault("limit", rule.limit.name(), "no directory was made for it");
        let directory = self
            .directories
            .iter_mut()
            .find(|d| d.controller == controller)
            .ok_or_else(missing)?;
        let mut read_back = String::new();
        for (file, value) in settings(rule, mechanism) {
            let path = directory.path.join(file);
            let shown = path.display().to_string();
            std::fs::write(&path, &value).map_err(|error| fault("set", &shown, &error.to_string()))?;
            let now = std::fs::read_to_string(&path)
                .map_err(|error| fault("read back", &shown, &error.to_string()))?;
            let text = now.trim().to_owned();
            if !is_what_was_set(&value, &text, rule.limit) {
                let why = format!("{value} was written, and it says {text}");
                return Err(fault("limit", &shown, &why));
            }
            read_back = format!("{file}={text}");
            directory.values.push(Value {
                rule: *rule,
                path,
                text,
            });
        }
        directory.limits.push(*rule);
        let group = group_path(&directory.path).ok_or_else(missing)?;
        let controller = controller.map_or("", Controller::name).to_owned();
        self.evidence.push(CgroupEvidence {
            limit: rule.limit,
            controller,
            group,
            read_back,
        });
        Ok(())
    }

    /// What init can check from inside.
    pub(crate) fn evidence(&self) -> &[CgroupEvidence] {
        &self.evidence
    }

    /// The directories, for whoever cleans up after a spawner that was killed.
    pub(crate) fn directories(&self) -> Vec<String> {
        self.directories
            .iter()
            .map(|d| d.path.display().to_string())
            .collect()
    }

    /// `cgroup v1` or `cgroup v2` where a limit is held, for the statement.
    pub(crate) fn describe(&self) -> &'static str {
        match (self.evidence.is_empty(), self.flavour) {
            (true, _) | (false, CgroupFlavour::None) => "",
            (false, CgroupFlavour::V1) => "cgroup v1",
            (false, CgroupFlavour::V2) => "cgroup v2",
        }
    }

    fn unified(&self) -> Option<&Directory> {
        self.directories.iter().find(|d| d.controller.is_none())
    }

    /// Puts a process into every directory.
    pub(crate) fn join(&self, pid: u32) -> Result<(), Fault> {
        for directory in &self.directories {
            let path = directory.path.join("cgroup.procs");
            std::fs::write(&path, pid.to_string())
                .map_err(|error| fault("join", &path.display().to_string(), &error.to_string()))?;
        }
        Ok(())
    }

    /// Kills every member at once where the kernel can. Not the only way: init's death ends its PID namespace too.
    pub(crate) fn kill(&self) {
        if let Some(directory) = self.unified() {
            // Absent before Linux 5.14; the caller kills init in any case.
            drop(std::fs::write(directory.path.join("cgroup.kill"), "1"));
        }
    }

    /// Freezes every member.
    pub(crate) fn freeze(&self) -> Result<(), Fault> {
        self.set_frozen("1", "FROZEN")
    }

    /// Lets every member go on.
    pub(crate) fn thaw(&self) -> Result<(), Fault> {
        self.set_frozen("0", "THAWED")
    }

    fn set_frozen(&self, unified: &str, old: &str) -> Result<(), Fault> {
        let (path, value) = match (
            self.unified(),
            self.directories
                .iter()
                .find(|d| d.controller == Some(Controller::Freezer)),
        ) {
            (Some(directory), _) => (directory.path.join("cgroup.freeze"), unified),
            (None, Some(directory)) => (directory.path.join("freezer.state"), old),
            (None, None) => return Err(fault("freeze", "run", "no cgroup of this run can freeze")),
        };
        std::fs::write(&path, value)
            .map_err(|error| fault("freeze", &path.display().to_string(), &error.to_string()))
    }

    /// What inotify has to watch: the files that hold limits, and where their controllers are handed down.
    pub(crate) fn watched_files(&self) -> Vec<&Path> {
        let values = self.directories.iter().flat_map(|directory| &directory.values);
        let files: Vec<&Path> = values.map(|value| value.path.as_path()).collect();
        match &self.parent_control {
            Some(control) if !files.is_empty() => files.into_iter().chain([control.as_path()]).collect(),
            Some(_) | None => files,
        }
    }

    /// The first limit that no longer holds for the process and what it starts. The caller knows that the process is alive.
    pub(crate) fn lost(&self, pid: u32) -> Option<LimitLost> {
        // Not shown to an ordinary user where /proc is mounted with hidepid=2 (proc(5)).
        let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
        self.directories.iter().find_map(|directory| {
            let is_member = match &own {
                // Then the probe inside has to notice that init was never moved in.
                _ if !crate::hooks::enforces("cgroup") => true,
                Some(own) => self.is_shown_in(own, directory),
                None => has_member(&directory.path, pid),
            };
            directory.values.iter().find_map(|value| {
                let sign = sign(value).or((!is_member).then_some(LossSign::Moved))?;
                Some(LimitLost {
                    limit: value.rule.limit,
                    value: value.rule.value,
                    sign,
                    file: value.path.display().to_string(),
                })
            })
        })
    }

    /// Whether a process's `/proc/PID/cgroup` names the directory.
    fn is_shown_in(&self, own: &str, directory: &Directory) -> bool {
        let controller = directory.controller.map_or("", Controller::name);
        let of_directory = |evidence: &&CgroupEvidence| evidence.controller == controller;
        let Some(evidence) = self.evidence.iter().find(of_directory) else {
            // It holds no limit.
            return true;
        };
        own.lines().any(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (names, group) = (fields.next().unwrap_or(""), fields.next());
            names.split(',').any(|name| name == controller) && group == Some(evidence.group.as_str())
        })
    }

    /// Limits that were hit, and the peak of memory, as the kernel counted them.
    pub(crate) fn readings(&self) -> (Vec<LimitHit>, Option<u64>) {
        let mut hits = Vec::new();
        let mut peak = None;
        for directory in &self.directories {
            for rule in &directory.limits {
                let counter = |file: &str, key: &str| counter(&directory.path.join(file), key);
                match rule.limit {
                    LimitKind::Memory => {
                        peak = number(&directory.path.join("memory.peak"))
                            .or_else(|| number(&directory.path.join("memory.max_usage_in_bytes")));
                        let kills = counter("memory.events", "oom_kill")
                            .max(counter("memory.oom_control", "oom_kill"));
                        if kills > 0 {
                            hits.push(hit(
                                rule,
                                format!("the kernel killed {kills} process(es) of the run"),
                            ));
                        }
                    }
                    LimitKind::Pids => {
                        let refused = counter("pids.events", "max");
                        if refused > 0 {
                            hits.push(hit(rule, format!("{refused} fork(s) failed with EAGAIN")));
                        }
                    }
                    _ => {}
                }
            }
        }
        (hits, peak)
    }

    /// Removes the directories once their members are gone.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        let mut result = Ok(());
        for directory in self.directories.drain(..) {
            if let Err(error) = remove(&directory.path) {
                result = Err(error);
            }
        }
        result
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in self.directories.drain(..) {
            // Nobody is left to tell: the launch has failed already with its own reason.
            drop(remove(&directory.path));
        }
    }
}

/// Removes groups of spawners that were killed before they could do it themselves; one with members is busy and stays. Begins
/// anywhere and stops after a few that live: a start must not take the longer the more runs there are.
fn sweep(parent: &Path, lives: impl Fn(&str) -> bool) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    let owned = |name: &str| Some(name.strip_prefix("bastle-")?.split('-').next()?.to_owned());
    let mut groups: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((owned(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    let mut seed = [0; 4];
    // Without a random number the same ones are looked at again, which is only less thorough.
    match rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) | Err(_) => {}
    }
    let start = u32::from_ne_bytes(seed) as usize;
    let middle = start.checked_rem(groups.len()).unwrap_or(0);
    groups.rotate_left(middle);
    let mut living = 0;
    for (owner, path) in groups {
        if lives(&owner) {
            living += 1;
            if living == MOST_LOOKED_AT {
                return;
            }
        } else {
            // Somebody else may be sweeping too, and a leftover that cannot go is no reason not to start.
            drop(std::fs::remove_dir(path));
        }
    }
}

/// Whether that number is a living spawner's, and not a zombie's or one that was used again.
fn is_spawner(pid: &str) -> bool {
    let named = std::fs::read(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.trim_ascii_end() == crate::NAME.to_bytes());
    // A zombie keeps its name and has no memory.
    named && std::fs::read(format!("/proc/{pid}/statm")).is_ok_and(|pages| !pages.starts_with(b"0 "))
}

/// `rmdir`, again while members that are already dead still count: at most two seconds, normally not once.
fn remove(path: &Path) -> io::Result<()> {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 2_000_000,
    };
    for _ in 0..1000 {
        match std::fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                rustix::event::poll(&mut [], Some(&pause))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(io::Error::other(format!("{} is still busy", path.display())))
}

fn controller(limit: LimitKind) -> Option<Controller> {
    match limit {
        LimitKind::Memory => Some(Controller::Memory),
        LimitKind::Pids => Some(Controller::Pids),
        LimitKind::Cpu => Some(Controller::Cpu),
        _ => None,
    }
}

/// Files to write, in order; the last one is read back as evidence.
fn settings(rule: &LimitRule, mechanism: LimitMechanism) -> Vec<(&'static str, String)> {
    let value = rule.value;
    let quota = value * PERIOD / 1000;
    match (rule.limit, mechanism) {
        (LimitKind::Pids, _) => vec![("pids.max", value.to_string())],
        (LimitKind::Memory, LimitMechanism::CgroupV2) => vec![
            ("memory.swap.max", "0".to_owned()),
            ("memory.max", value.to_string()),
        ],
        (LimitKind::Memory, _) => vec![("memory.limit_in_bytes", value.to_string())],
        (LimitKind::Cpu, LimitMechanism::CgroupV2) => vec![("cpu.max", format!("{quota} {PERIOD}"))],
        (LimitKind::Cpu, _) => vec![
            ("cpu.cfs_period_us", PERIOD.to_string()),
            ("cpu.cfs_quota_us", quota.to_string()),
        ],
        _ => Vec::new(),
    }
}

/// What in its file shows that a value does not hold any more.
fn sign(value: &Value) -> Option<LossSign> {
    let Ok(now) = std::fs::read_to_string(&value.path) else {
        return Some(LossSign::Gone);
    };
    let found = now.trim();
    (found != value.text).then(|| LossSign::Changed {
        set: value.text.clone(),
        found: found.to_owned(),
    })
}

fn has_member(directory: &Path, pid: u32) -> bool {
    let members = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    members.lines().any(|member| member.parse() == Ok(pid))
}

/// Whether a file says what was written to it. Memory is rounded down to whole pages.
fn is_what_was_set(written: &str, found: &str, limit: LimitKind) -> bool {
    if written == found {
        return true;
    }
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
    match (limit, written.parse::<u64>(), found.parse::<u64>()) {
        (LimitKind::Memory, Ok(written), Ok(found)) => found == written - written % page,
        _ => false,
    }
}

/// The path of a directory as `/proc/self/cgroup` will show it: below the hierarchy's mount, after what that mounts as its root.
fn group_path(path: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (point, root) = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4).zip(line.split(' ').nth(3)))
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())?;
    let below = path.strip_prefix(point).ok()?.to_str()?;
    Some(format!("{}/{below}", root.trim_end_matches('/')))
}

fn counter(path: &Path, key: &str) -> u64 {
    let table = std::fs::read_to_string(path).unwrap_or_default();
    table
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        .unwrap_or(0)
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn hit(rule: &LimitRule, effect: String) -> LimitHit {
    LimitHit {
        limit: rule.limit,
        value: rule.value,
        effect,
    }
}

fn fault(step: &str, object: &str, why: &str) -> Fault {
    Fault::new(
        Code::FenceStep,
        format!("cannot {step} the cgroup of the run ({object})"),
        why,
    )
    .help("bastle doctor")
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
