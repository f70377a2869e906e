//! Which group of the unified hierarchy this process was given. Only there may controllers be handed down and groups be
//! made: what a manager did not delegate it changes whenever it likes (systemd, CGROUP_DELEGATION).
use bastle_contract::{AbsPath, CgroupProblem, UnitManager};
use rustix::fs::{Access, StatVfsMountFlags};
use std::path::{Path, PathBuf};

/// Where the processes go that were in the given group: one with processes of its own hands no controllers down
/// (cgroups(7), "no internal processes" rule).
pub(super) const LEAF: &str = "bastle.processes";

/// What is asked about a directory. A value, so that tests can be another user.
pub(super) struct View<'a> {
    /// Whether this process has user id 0, for which no mode tells who a group was given to.
    pub(super) root: bool,
    /// Whether it may make groups in a directory and move processes there.
    pub(super) writable: &'a dyn Fn(&Path) -> bool,
    /// Whether systemd marked the directory as delegated.
    pub(super) marked: &'a dyn Fn(&Path) -> bool,
    /// Whether a unit of the user's own manager is declared as delegated.
    pub(super) declared: &'a dyn Fn(u32, &str) -> bool,
}

/// The given group among the own one and those above it, the own one first and the mount point last.
pub(super) fn given(chain: &[PathBuf], view: &View<'_>) -> Result<PathBuf, CgroupProblem> {
    // An earlier run moved this process out of the given group, into a leaf of it.
    let chain = match chain {
        [leaf, rest @ ..] if leaf.ends_with(LEAF) && !rest.is_empty() => rest,
        all => all,
    };
    let own = chain.first().ok_or(CgroupProblem::NotMounted)?;
    if is_read_only(own) {
        return Err(CgroupProblem::ReadOnly { group: shown(own)? });
    }
    let unit = chain.iter().position(|group| is_unit(group));
    // What lies above a unit is its manager's.
    let within = match unit {
        Some(index) => &chain[..=index],
        None => chain,
    };
    let found = match (
        within.iter().rev().find(|group| is_delegated(group, chain, view)),
        unit,
    ) {
        (Some(delegated), _) => delegated,
        (None, Some(index)) => below_a_unit(chain, index, view)?,
        (None, None) => without_a_manager(within, view).unwrap_or(own),
    };
    if !(view.writable)(found) {
        return Err(CgroupProblem::NotWritable { group: shown(found)? });
    }
    match std::fs::read_to_string(found.join("cgroup.type")) {
        Ok(kind) if kind.trim() != "domain" => Err(CgroupProblem::Threaded { group: shown(found)? }),
        // The root of the hierarchy has no such file.
        Ok(_) | Err(_) => Ok(found.clone()),
    }
}

/// Whether systemd delegated this very group. That of a user's manager was delegated to the manager, which is another process.
fn is_delegated(group: &Path, chain: &[PathBuf], view: &View<'_>) -> bool {
    let above = chain.iter().skip_while(|other| other.as_path() != group).skip(1);
    let declared = || {
        let uid = above.clone().find_map(|group| manager_of(group))?;
        let name = group.file_name()?.to_str()?;
        (is_unit(group) && (view.declared)(uid, name)).then_some(())
    };
    manager_of(group).is_none() && ((view.marked)(group) || declared().is_some())
}

/// The group of a unit that is not known to be delegated, or one in it. Before systemd 251 there was no mark that everybody
/// can read; then the owner tells: systemd gives the group of a delegated unit to the unit's user.
fn below_a_unit<'a>(
    chain: &'a [PathBuf],
    unit: usize,
    view: &View<'_>,
) -> Result<&'a PathBuf, CgroupProblem> {
    let given = chain[..=unit].iter().rposition(|group| (view.writable)(group));
    let name = |group: &Path| group.file_name().map(|name| name.to_string_lossy().into_owned());
    match given {
        // A user's own manager owns what lies above its units too, so there it says nothing.
        Some(index)
            if !view.root
                && manager_of(&chain[unit]).is_none()
                && !chain.get(index + 1).is_some_and(|above| (view.writable)(above)) =>
        {
            Ok(&chain[index])
        }
        Some(_) | None => Err(CgroupProblem::NotDelegated {
            unit: name(&chain[unit]).unwrap_or_default(),
            manager: match user_manager(chain) {
                Some(_) => UnitManager::User,
                None => UnitManager::System,
            },
            root: view.root,
        }),
    }
}

/// Outside of any unit: the root of a cgroup namespace belongs to the user who may write it; an ordinary user was given the
/// topmost group that it may write; root of the whole hierarchy has its own group.
fn without_a_manager<'a>(within: &'a [PathBuf], view: &View<'_>) -> Option<&'a PathBuf> {
    let top = within.last()?;
    if view.root {
        return is_namespace_root(top).then_some(top);
    }
    within.iter().rev().find(|group| (view.writable)(group))
}

/// The root of the whole hierarchy has no `cgroup.type`; that of a cgroup namespace has one (cgroups(7)).
fn is_namespace_root(top: &Path) -> bool {
    top.join("cgroup.type").exists()
}

/// Whether the name is one of a unit of systemd that has processes or other units.
fn is_unit(group: &Path) -> bool {
    let kind = group.extension().and_then(|kind| kind.to_str());
    matches!(kind, Some("service" | "scope" | "slice"))
}

/// The user whose manager a group lies below: `user@1000.service`.
pub(super) fn user_manager(chain: &[PathBuf]) -> Option<u32> {
    chain.iter().find_map(|group| manager_of(group))
}

fn manager_of(group: &Path) -> Option<u32> {
    let name = group.file_name()?.to_str()?;
    name.strip_prefix("user@")?.strip_suffix(".service")?.parse().ok()
}

fn is_read_only(group: &Path) -> bool {
    rustix::fs::statvfs(group).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn shown(group: &Path) -> Result<AbsPath, CgroupProblem> {
    AbsPath::from_path(group).map_err(|_| CgroupProblem::NotMounted)
}

/// What a delegation lets its user write: the directory and these files (cgroups(7), "Delegation").
pub(super) fn is_writable(group: &Path) -> bool {
    let may = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    may(group) && may(&group.join("cgroup.procs")) && may(&group.join("cgroup.subtree_control"))
}

/// systemd 251 and newer put `user.delegate` on groups of units with `Delegate=`; older ones `trusted.delegate`, which only
/// root can read.
pub(super) fn is_marked(group: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].into_iter().any(|name| {
        let mut value = [0_u8; 8];
        matches!(rustix::fs::getxattr(group, name, &mut value), Ok(1) if value[0] == b'1')
    })
}

#[cfg(test)]
#[path = "given_tests.rs"]
mod tests;
