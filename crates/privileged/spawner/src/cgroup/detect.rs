//! Which cgroup directories this process may use. Decided by trying, never by names of distributions.
use super::declared::is_declared;
use super::given::{self, View};
use bastle_contract::{AbsPath, CgroupFacts, CgroupFlavour, CgroupProblem, Controller};
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

/// Looks at this process's hierarchies and groups. Changes nothing.
pub(crate) fn detect() -> CgroupFacts {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(hierarchy).collect();
    let unified = hierarchies.iter().find(|h| h.unified);
    let is_bound = |name: &str| {
        let old = |h: &Hierarchy| !h.unified && h.controllers.iter().any(|c| c == name);
        hierarchies.iter().any(old)
    };
    // Controllers are bound to the old hierarchies all together; the unified one has kill and freeze at most.
    if !WANTED.iter().any(|(_, name)| is_bound(name)) {
        let view = View {
            root: rustix::process::geteuid().is_root(),
            writable: &given::is_writable,
            marked: &given::is_marked,
            declared: &is_declared,
        };
        let chain = unified.map_or_else(Vec::new, |unified| candidates(unified, &own));
        return of_unified(&chain, &view);
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
        problem: None,
    }
}

/// The unified hierarchy: the given group with the controllers that were handed down to it.
fn of_unified(chain: &[PathBuf], view: &View<'_>) -> CgroupFacts {
    let none = |problem| CgroupFacts {
        problem: Some(problem),
        ..CgroupFacts::none()
    };
    let group = match given::given(chain, view) {
        Ok(group) => group,
        Err(problem) => return none(problem),
    };
    let Ok(path) = AbsPath::from_path(&group) else {
        return none(CgroupProblem::NotMounted);
    };
    let offered = words(&group.join("cgroup.controllers"));
    let limiting = WANTED.into_iter().filter(|(c, _)| *c != Controller::Freezer);
    let (usable, missing): (Vec<_>, Vec<_>) =
        limiting.partition(|(_, name)| offered.iter().any(|offered| offered == name));
    let problem = (!missing.is_empty()).then(|| CgroupProblem::NoController {
        group: path.clone(),
        missing: missing.into_iter().map(|(controller, _)| controller).collect(),
        user_manager: given::user_manager(chain),
    });
    CgroupFacts {
        flavour: if usable.is_empty() {
            CgroupFlavour::None
        } else {
            CgroupFlavour::V2
        },
        controllers: usable
            .into_iter()
            .map(|(controller, _)| (controller, path.clone()))
            .collect(),
        unified: Some(path),
        problem,
    }
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

pub(super) fn words(path: &Path) -> Vec<String> {
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
    fn a_delegated_group_without_a_controller_is_used_for_the_others_and_the_missing_one_is_named() {
        let place = std::env::temp_dir().join(format!("bastle-offered-{}", std::process::id()));
        let group = place.join("user@1000.service/app.slice/run-1.scope");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.controllers"), "memory pids\n").unwrap();
        let chain: Vec<PathBuf> = group.ancestors().take(4).map(Path::to_path_buf).collect();
        let view = View {
            root: false,
            writable: &|_| true,
            marked: &|_| false,
            declared: &|uid, unit| (uid, unit) == (1000, "run-1.scope"),
        };
        let facts = of_unified(&chain, &view);
        let path = AbsPath::from_path(&group).unwrap();
        let has = |controller| facts.parent(controller) == Some(&path);
        assert!(has(Controller::Memory) && has(Controller::Pids) && !has(Controller::Cpu));
        let problem = facts.problem.unwrap();
        assert_eq!(
            problem,
            CgroupProblem::NoController {
                group: path,
                missing: vec![Controller::Cpu],
                user_manager: Some(1000),
            }
        );
        assert!(problem.why().ends_with("was delegated without: cpu"));
        assert!(
            problem
                .fix()
                .unwrap()
                .contains("/etc/systemd/system/user@.service.d/delegate.conf")
        );
        let before = std::fs::read_dir(&group).unwrap().count();
        assert_eq!(before, 1, "looking changes nothing");
        std::fs::remove_dir_all(place).unwrap();
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
