//! Which cgroup directories this process may use. Decided by trying, never by names of distributions.
use bastle_contract::{AbsPath, CgroupFacts, CgroupFlavour, Controller};
use rustix::fs::Access;
use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Directory inside the hierarchy that is mounted.
    root: String,
    /// Where.
    point: PathBuf,
    /// Names of its controllers; empty for the unified one.
    controllers: Vec<String>,
    unified: bool,
}

const WANTED: [(Controller, &str); 4] = [
    (Controller::Memory, "memory"),
    (Controller::Pids, "pids"),
    (Controller::Cpu, "cpu"),
    (Controller::Freezer, "freezer"),
];

/// Looks at this process's hierarchies and groups.
pub(crate) fn detect() -> CgroupFacts {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(hierarchy).collect();
    let unified = hierarchies.iter().find(|h| h.unified);
    if let Some(facts) = unified.and_then(|unified| controllers_of_unified(unified, &own)) {
        return facts;
    }
    let core = unified.and_then(|unified| {
        candidates(unified, &own)
            .into_iter()
            .find(|dir| may_make_groups(dir))
    });
    let controllers: Vec<(Controller, AbsPath)> = WANTED
        .into_iter()
        .filter_map(|(controller, name)| {
            let hierarchy = hierarchies
                .iter()
                .find(|h| !h.unified && h.controllers.iter().any(|c| c == name))?;
            let dir = candidates(hierarchy, &own)
                .into_iter()
                .find(|dir| may_make_groups(dir))?;
            Some((controller, AbsPath::from_path(&dir).ok()?))
        })
        .collect();
    let flavour = if controllers.is_empty() {
        CgroupFlavour::None
    } else {
        CgroupFlavour::V1
    };
    CgroupFacts {
        flavour,
        controllers,
        unified: core.and_then(|dir| AbsPath::from_path(&dir).ok()),
    }
}

/// The unified hierarchy with its controllers, if some directory of it hands them down to new groups.
fn controllers_of_unified(unified: &Hierarchy, own: &str) -> Option<CgroupFacts> {
    let wanted: Vec<(Controller, &str)> = WANTED
        .into_iter()
        .filter(|(c, _)| *c != Controller::Freezer)
        .collect();
    for dir in candidates(unified, own) {
        let offered = words(&dir.join("cgroup.controllers"));
        let usable: Vec<_> = wanted
            .iter()
            .filter(|(_, name)| offered.iter().any(|o| o == name))
            .collect();
        if usable.is_empty() || !may_make_groups(&dir) {
            continue;
        }
        let handed = words(&dir.join("cgroup.subtree_control"));
        let missing: Vec<String> = usable
            .iter()
            .filter(|(_, n)| !handed.iter().any(|h| h == n))
            .map(|(_, n)| format!("+{n}"))
            .collect();
        // Refused (EBUSY) where the directory has processes of its own: then a directory above may do.
        if !missing.is_empty()
            && std::fs::write(dir.join("cgroup.subtree_control"), missing.join(" ")).is_err()
        {
            continue;
        }
        let path = AbsPath::from_path(&dir).ok()?;
        let controllers = usable
            .into_iter()
            .map(|(controller, _)| (*controller, path.clone()))
            .collect();
        return Some(CgroupFacts {
            flavour: CgroupFlavour::V2,
            controllers,
            unified: Some(path),
        });
    }
    None
}

/// This process's own directory, then those above it up to the mount.
fn candidates(hierarchy: &Hierarchy, own: &str) -> Vec<PathBuf> {
    let Some(group) = own_group(own, hierarchy) else {
        return Vec::new();
    };
    let Some(relative) = group.strip_prefix(hierarchy.root.trim_end_matches('/')) else {
        return Vec::new();
    };
    // Component by component: joining an empty rest would leave a trailing slash.
    let start: PathBuf = hierarchy
        .point
        .components()
        .chain(Path::new(relative.trim_start_matches('/')).components())
        .collect();
    start
        .ancestors()
        .take_while(|dir| dir.starts_with(&hierarchy.point))
        .map(Path::to_path_buf)
        .collect()
}

fn own_group<'a>(own: &'a str, hierarchy: &Hierarchy) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, group) = (fields.next()?, fields.next()?, fields.next()?);
        let matches = if hierarchy.unified {
            names.is_empty()
        } else {
            names
                .split(',')
                .any(|name| hierarchy.controllers.iter().any(|c| c == name))
        };
        matches.then_some(group)
    })
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(3);
    let (root, point) = (head.next()?.to_owned(), PathBuf::from(head.next()?));
    let mut tail = tail.split(' ');
    let unified = match tail.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let options = tail.nth(1)?;
    let controllers = if unified {
        Vec::new()
    } else {
        options.split(',').map(str::to_owned).collect()
    };
    Some(Hierarchy {
        root,
        point,
        controllers,
        unified,
    })
}

fn may_make_groups(dir: &Path) -> bool {
    rustix::fs::access(dir, Access::WRITE_OK).is_ok()
        && rustix::fs::access(dir.join("cgroup.procs").as_path(), Access::WRITE_OK).is_ok()
}

fn words(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_hosts_give_old_hierarchies_and_an_empty_unified_one() {
        let old =
            hierarchy("36 25 0:31 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct")
                .unwrap();
        assert_eq!(
            (old.unified, old.controllers.contains(&"cpuacct".to_owned())),
            (false, true)
        );
        let new = hierarchy("37 25 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw").unwrap();
        assert!(new.unified);
        assert_eq!(hierarchy("38 25 0:33 / /proc rw - proc proc rw"), None);
        let own = "4:cpu,cpuacct:/a/b\n0::/u\n";
        assert_eq!(own_group(own, &old), Some("/a/b"));
        assert_eq!(own_group(own, &new), Some("/u"));
        let places = candidates(&old, own);
        assert_eq!(places.first().unwrap(), Path::new("/sys/fs/cgroup/cpu/a/b"));
        assert_eq!(places.last().unwrap(), Path::new("/sys/fs/cgroup/cpu"));
        let top = candidates(&old, "4:cpu,cpuacct:/\n");
        assert_eq!(top.first().unwrap().to_str(), Some("/sys/fs/cgroup/cpu"));
    }

    #[test]
    fn a_group_outside_the_mounted_part_is_not_used() {
        let part = hierarchy("36 25 0:31 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids").unwrap();
        assert_eq!(candidates(&part, "4:pids:/elsewhere\n"), Vec::<PathBuf>::new());
        assert_eq!(
            candidates(&part, "4:pids:/docker/x/y\n").first().unwrap(),
            Path::new("/sys/fs/cgroup/pids/y")
        );
    }
}
