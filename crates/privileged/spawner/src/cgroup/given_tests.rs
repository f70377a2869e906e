//! Which group counts as given, on real directories in the layout of a hierarchy. No privilege is used.
use super::*;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A hierarchy of real directories, of which some are one user's.
struct Tree {
    place: PathBuf,
    owned: RefCell<BTreeSet<PathBuf>>,
}

impl Tree {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("bastle-given-{name}-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        Self {
            place,
            owned: RefCell::default(),
        }
    }

    fn group(&self, path: &str) -> PathBuf {
        let group = self.place.join(path);
        std::fs::create_dir_all(&group).unwrap();
        for file in ["cgroup.procs", "cgroup.subtree_control"] {
            std::fs::write(group.join(file), "").unwrap();
        }
        group
    }

    /// A group that is no root of a hierarchy.
    fn inner(&self, path: &str) -> PathBuf {
        let group = self.group(path);
        std::fs::write(group.join("cgroup.type"), "domain\n").unwrap();
        group
    }

    fn own(&self, path: &str) -> PathBuf {
        let group = self.inner(path);
        self.owned.borrow_mut().insert(group.clone());
        group
    }

    fn mark(&self, group: &Path) {
        rustix::fs::setxattr(group, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    }

    fn chain(&self, path: &str) -> Vec<PathBuf> {
        let own = self.place.join(path);
        let chain = own.ancestors().take_while(|group| group.starts_with(&self.place));
        chain.map(Path::to_path_buf).collect()
    }

    fn for_user(&self, path: &str) -> Result<PathBuf, CgroupProblem> {
        let view = View {
            root: false,
            writable: &|group| self.owned.borrow().contains(group),
            marked: &is_marked,
            declared: &|uid, unit| uid == 1000 && unit == "declared.scope",
        };
        given(&self.chain(path), &view)
    }

    fn for_root(&self, path: &str) -> Result<PathBuf, CgroupProblem> {
        let view = View {
            root: true,
            writable: &|group| group.join("cgroup.procs").exists(),
            marked: &is_marked,
            declared: &|_, _| false,
        };
        given(&self.chain(path), &view)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.place).unwrap();
    }
}

/// Told to somebody with this user id.
fn not_delegated(unit: &str, manager: UnitManager, uid: u32) -> Result<PathBuf, CgroupProblem> {
    Err(CgroupProblem::NotDelegated {
        unit: unit.to_owned(),
        manager,
        root: uid == 0,
    })
}

#[test]
fn a_unit_of_a_user_manager_is_given_only_with_its_mark_and_nothing_above_it_ever() {
    let tree = Tree::new("manager");
    let manager = "user.slice/user-1000.slice/user@1000.service";
    tree.inner("user.slice");
    tree.inner("user.slice/user-1000.slice");
    // The manager itself was delegated to, and owns everything below.
    let delegated = tree.own(manager);
    tree.mark(&delegated);
    tree.own(&format!("{manager}/app.slice"));
    let scope = tree.own(&format!("{manager}/app.slice/run-1.scope"));
    let below = format!("{manager}/app.slice/run-1.scope");
    assert_eq!(
        tree.for_user(&below),
        not_delegated("run-1.scope", UnitManager::User, 1000)
    );
    tree.mark(&scope);
    assert_eq!(tree.for_user(&below), Ok(scope.clone()));
    let declared = tree.own(&format!("{manager}/app.slice/declared.scope"));
    assert_eq!(
        tree.for_user(&format!("{manager}/app.slice/declared.scope")),
        Ok(declared),
        "a user's manager marks nothing, and its unit file says so"
    );
    assert_eq!(
        tree.for_user(manager),
        not_delegated("user@1000.service", UnitManager::User, 1000),
        "that was given to the manager"
    );
    tree.own(&format!("{below}/{LEAF}"));
    assert_eq!(
        tree.for_user(&format!("{below}/{LEAF}")),
        Ok(scope),
        "a second run"
    );
}

#[test]
fn a_service_of_the_system_is_its_users_where_systemd_gave_it_away() {
    let tree = Tree::new("service");
    tree.inner("system.slice");
    tree.inner("system.slice/other.service");
    let ours = tree.own("system.slice/ours.service");
    assert_eq!(tree.for_user("system.slice/ours.service"), Ok(ours.clone()));
    tree.own("system.slice/ours.service/main");
    assert_eq!(
        tree.for_user("system.slice/ours.service/main"),
        Ok(ours),
        "DelegateSubgroup="
    );
    assert_eq!(
        tree.for_user("system.slice/other.service"),
        not_delegated("other.service", UnitManager::System, 1000)
    );
}

#[test]
fn root_is_given_a_unit_only_with_its_mark() {
    let tree = Tree::new("root");
    tree.inner("system.slice");
    let service = tree.inner("system.slice/ours.service");
    tree.inner("system.slice/ours.service/main");
    assert_eq!(
        tree.for_root("system.slice/ours.service/main"),
        not_delegated("ours.service", UnitManager::System, 0)
    );
    tree.mark(&service);
    assert_eq!(tree.for_root("system.slice/ours.service/main"), Ok(service));
}

#[test]
fn without_a_manager_a_user_has_the_topmost_group_that_is_its_own() {
    let tree = Tree::new("delegated");
    tree.group("");
    let given = tree.own("ada");
    tree.own("ada/shell");
    assert_eq!(tree.for_user("ada/shell"), Ok(given));
    let other = tree.inner("other");
    let group = AbsPath::from_path(&other).unwrap();
    assert_eq!(tree.for_user("other"), Err(CgroupProblem::NotWritable { group }));
}

#[test]
fn root_has_the_root_of_its_cgroup_namespace_and_else_its_own_group() {
    let tree = Tree::new("namespace");
    let top = tree.group("");
    let own = tree.inner("docker");
    assert_eq!(
        tree.for_root("docker"),
        Ok(own),
        "the hierarchy's root is not given"
    );
    assert_eq!(
        tree.for_root(""),
        Ok(top.clone()),
        "a process of that group itself"
    );
    tree.inner("");
    assert_eq!(tree.for_root("docker"), Ok(top), "now it is a namespace's root");
}

#[test]
fn a_threaded_group_and_one_that_is_not_shown_are_not_used() {
    let tree = Tree::new("threaded");
    let group = tree.own("ada");
    std::fs::write(group.join("cgroup.type"), "threaded\n").unwrap();
    let shown = AbsPath::from_path(&group).unwrap();
    assert_eq!(
        tree.for_user("ada"),
        Err(CgroupProblem::Threaded { group: shown })
    );
    let view = View {
        root: true,
        writable: &|_| true,
        marked: &|_| true,
        declared: &|_, _| true,
    };
    assert_eq!(given(&[], &view), Err(CgroupProblem::NotMounted));
}
