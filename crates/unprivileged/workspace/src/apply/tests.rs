//! Apply against drift, crashes and planted files.
use super::*;
use crate::audit_delta::{Scope, delta};
use crate::durable::{Durable, Observer, Step};
use crate::gate::{Approvals, Assessed, Rules, Tree, assess_all};
use crate::rooted::Root;
use crate::testing::{Folder, fingerprint, manifest, path, tag, write};
use bastle_contract::Code;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct World {
    pub(super) stage: tempfile::TempDir,
    pub(super) blobs: Folder,
    assessed: Vec<Assessed>,
}

/// Contents, base and agent trees are the same everywhere; `host` starts as the base.
pub(super) fn world(base: impl Fn(&Path), agent: impl Fn(&Path)) -> World {
    let stage = tempfile::tempdir().unwrap();
    for name in ["base", "agent", "host", "blobs"] {
        std::fs::create_dir(stage.path().join(name)).unwrap();
    }
    let blobs = Folder(stage.path().join("blobs"));
    for name in ["base", "agent", "host"] {
        base(&stage.path().join(name));
    }
    agent(&stage.path().join("agent"));
    let (old, new) = (
        manifest(&stage.path().join("base"), &blobs),
        manifest(&stage.path().join("agent"), &blobs),
    );
    let rules = Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap();
    let mut assessed = assess_all(
        &rules,
        &Tree::new(&old, &new),
        &delta(&old, &new, Scope::Work),
        &BTreeSet::new(),
        &blobs,
    )
    .unwrap();
    // These trees have short names without a kind; what is tried here is how changes are written, not which.
    for one in &mut assessed {
        one.findings.retain(|finding| {
            !matches!(
                finding.rule.as_str(),
                "unknown-kind" | "restriction" | "link-names" | "executable"
            )
        });
        if one.findings.is_empty() {
            one.findings.push(crate::gate::Finding {
                class: crate::gate::Class::Source,
                tier: crate::gate::Tier::Note,
                rule: "source".to_owned(),
                why: String::new(),
            });
        }
    }
    World {
        stage,
        blobs,
        assessed,
    }
}

impl World {
    pub(super) fn host(&self) -> PathBuf {
        self.stage.path().join("host")
    }

    pub(super) fn agent(&self) -> PathBuf {
        self.stage.path().join("agent")
    }

    pub(super) fn plan(
        &self,
        approvals: &Approvals,
        paths: &[crate::path::TreePath],
        resolve: Resolve,
    ) -> Plan {
        let selection = select(&self.assessed, approvals, paths);
        plan(
            &Root::open(&self.host()).unwrap(),
            &selection,
            resolve,
            &self.blobs,
        )
        .unwrap()
    }

    pub(super) fn with<T>(&self, durable: &Durable, act: impl FnOnce(&Target<'_>) -> T) -> T {
        act(&Target {
            source: &self.host(),
            journals: &self.stage.path().join("applied"),
            durable,
        })
    }

    pub(super) fn apply(&self, resolve: Resolve) -> Result<Applied, bastle_contract::Fault> {
        let plan = self.plan(&Approvals::default(), &[], resolve);
        self.with(&Durable::default(), |target| apply(target, &plan, &self.blobs))
    }

    pub(super) fn undo(&self) -> Result<Applied, bastle_contract::Fault> {
        self.with(&Durable::default(), undo)
    }
}

pub(super) fn tree(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let strip = |(path, mode, bytes): (PathBuf, u32, Vec<u8>)| {
        (path.strip_prefix(root).unwrap().to_owned(), mode, bytes)
    };
    fingerprint(root).into_iter().map(strip).collect()
}

pub(super) fn some_base(root: &Path) {
    write(root, "a.txt", b"1\n2\n3\n4\n5\n");
    write(root, "dir/b.txt", b"b\n");
    write(root, "dir/c.txt", b"c\n");
    for private in ["private", "private-gone"] {
        write(root, private, b"p\n");
        std::fs::set_permissions(root.join(private), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    write(root, "was-file", b"f\n");
    write(root, "was-dir/x", b"x\n");
    std::os::unix::fs::symlink("a.txt", root.join("link")).unwrap();
    for tagged in ["private", "private-gone", "dir/b.txt"] {
        tag(root, tagged, "user.host");
    }
}

pub(super) fn some_changes(root: &Path) {
    write(root, "a.txt", b"1\n2\n3\n4\nfive\n");
    write(root, "private", b"changed\n");
    std::fs::remove_file(root.join("private-gone")).unwrap();
    write(root, "new/deep/er.txt", b"new\n");
    std::fs::remove_dir_all(root.join("dir")).unwrap();
    std::fs::remove_file(root.join("was-file")).unwrap();
    write(root, "was-file/now-dir", b"d\n");
    std::fs::remove_dir_all(root.join("was-dir")).unwrap();
    write(root, "was-dir", b"now a file\n");
    std::fs::remove_file(root.join("link")).unwrap();
    std::os::unix::fs::symlink("was-dir", root.join("link")).unwrap();
    write(root, "tool", b"run\n");
    for tagged in ["private", "tool"] {
        tag(root, tagged, "user.agent");
    }
    std::fs::set_permissions(root.join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn apply_makes_the_host_tree_the_agents_and_undo_makes_it_the_old_one() {
    let world = world(some_base, some_changes);
    let before = tree(&world.host());
    world.apply(Resolve::Refuse).unwrap();
    assert_eq!(tree(&world.host()), tree(&world.agent()));
    world.with(&Durable::default(), undo).unwrap();
    assert_eq!(tree(&world.host()), before);
    let again = world.with(&Durable::default(), undo).unwrap_err();
    assert_eq!(again.code, Code::WorkspaceApply);
}

#[test]
fn changes_on_both_sides_merge_and_conflicts_write_nothing() {
    let world = world(
        |root| write(root, "a", b"1\n2\n3\n4\n5\n"),
        |root| {
            write(root, "a", b"1\n2\n3\n4\nagent\n");
            write(root, "other", b"o\n");
        },
    );
    write(&world.host(), "a", b"host\n2\n3\n4\n5\n");
    write(&world.host(), "other", b"mine\n");
    let before = tree(&world.host());
    let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
    assert_eq!(
        plan.conflicts()
            .iter()
            .map(|one| one.path.clone())
            .collect::<Vec<_>>(),
        [path("other")]
    );
    assert!(
        plan.conflicts()[0]
            .marked
            .as_ref()
            .unwrap()
            .starts_with(b"<<<<<<< host\nmine\n")
    );
    assert_eq!(
        world.apply(Resolve::Refuse).unwrap_err().code,
        Code::WorkspaceConflict
    );
    assert_eq!(tree(&world.host()), before);
    world.apply(Resolve::Ours).unwrap();
    assert_eq!(
        std::fs::read(world.host().join("a")).unwrap(),
        b"host\n2\n3\n4\nagent\n"
    );
    assert_eq!(std::fs::read(world.host().join("other")).unwrap(), b"mine\n");
    world.apply(Resolve::Theirs).unwrap();
    assert_eq!(std::fs::read(world.host().join("other")).unwrap(), b"o\n");
}

#[test]
fn what_runs_on_the_host_is_left_out_until_exactly_its_content_is_approved() {
    let world = world(
        |_| {},
        |root| {
            write(root, "src.c", b"x\n");
            write(root, "Makefile", b"all:\n");
            write(root, "sub/.git/hooks/pre-commit", b"evil\n");
        },
    );
    let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
    let reasons: Vec<(String, Reason)> = plan
        .left_out()
        .iter()
        .map(|one| (one.path.to_string(), one.reason.clone()))
        .collect();
    assert!(matches!(
        reasons.iter().find(|(name, _)| name == "Makefile"),
        Some((_, Reason::NeedsApproval { .. }))
    ));
    assert!(matches!(
        reasons
            .iter()
            .find(|(name, _)| name == "sub/.git/hooks/pre-commit"),
        Some((_, Reason::Refused))
    ));
    world.apply(Resolve::Refuse).unwrap();
    assert!(world.host().join("src.c").exists());
    assert!(!world.host().join("Makefile").exists() && !world.host().join("sub/.git").exists());
    let held = world
        .assessed
        .iter()
        .find(|one| one.change.path == path("Makefile"))
        .unwrap();
    let mut approvals = Approvals::default();
    approvals.add(&held.approval.to_string()).unwrap();
    let plan = world.plan(&approvals, &[], Resolve::Refuse);
    world
        .with(&Durable::default(), |target| apply(target, &plan, &world.blobs))
        .unwrap();
    assert!(world.host().join("Makefile").exists() && !world.host().join("sub/.git").exists());
}

#[test]
fn only_named_paths_are_taken_and_ignored_ones_only_when_named() {
    let mut world = world(
        |_| {},
        |root| {
            write(root, "a/x", b"x\n");
            write(root, "b", b"b\n");
            write(root, "out/y", b"y\n");
        },
    );
    for one in &mut world.assessed {
        one.ignored = one.change.path.starts_with(&path("out"));
    }
    let names = |plan: &Plan| {
        plan.operations()
            .iter()
            .map(|one| one.path.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&world.plan(&Approvals::default(), &[], Resolve::Refuse)),
        ["a", "a/x", "b"]
    );
    assert_eq!(
        names(&world.plan(&Approvals::default(), &[path("a/x")], Resolve::Refuse)),
        ["a", "a/x"]
    );
    assert_eq!(
        names(&world.plan(&Approvals::default(), &[path("out")], Resolve::Refuse)),
        ["out", "out/y"]
    );
}

#[test]
fn a_link_on_the_host_is_never_written_through() {
    for inside in [false, true] {
        let world = world(
            |root| write(root, "d/x/keep", b"k\n"),
            |root| write(root, "d/x/evil", b"e\n"),
        );
        let other = if inside {
            world.host().join("other")
        } else {
            world.stage.path().join("outside")
        };
        std::fs::create_dir_all(other.join("x")).unwrap();
        std::fs::remove_dir_all(world.host().join("d")).unwrap();
        let to = if inside { Path::new("other") } else { &other };
        std::os::unix::fs::symlink(to, world.host().join("d")).unwrap();
        for resolve in [Resolve::Refuse, Resolve::Theirs] {
            assert_eq!(world.apply(resolve).unwrap_err().code, Code::WorkspaceConflict);
        }
        assert_eq!(std::fs::read_dir(other.join("x")).unwrap().count(), 0);
    }
}

#[test]
fn a_host_file_edited_after_planning_is_not_overwritten() {
    let world = world(
        |root| write(root, "a", b"1\n"),
        |root| {
            write(root, "a", b"2\n");
            write(root, "b", b"b\n");
        },
    );
    let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
    write(&world.host(), "a", b"edited\n");
    let before = tree(&world.host());
    let refused = world
        .with(&Durable::default(), |target| apply(target, &plan, &world.blobs))
        .unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceConflict);
    assert_eq!(tree(&world.host()), before);
}

#[test]
fn undo_refuses_when_the_host_changed_since() {
    let world = world(some_base, some_changes);
    world.apply(Resolve::Refuse).unwrap();
    write(&world.host(), "a.txt", b"edited later\n");
    let before = tree(&world.host());
    let refused = world.with(&Durable::default(), undo).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceConflict);
    assert_eq!(tree(&world.host()), before);
}

#[test]
fn a_stored_content_that_was_changed_is_never_written_to_the_host() {
    let world = world(|_| {}, |root| write(root, "a", b"good\n"));
    let crate::manifest::Kind::File { digest, .. } = world.blobs.put(b"good\n") else {
        panic!()
    };
    std::fs::write(world.blobs.0.join(digest.to_string()), b"evil\n").unwrap();
    assert_eq!(
        world.apply(Resolve::Refuse).unwrap_err().code,
        Code::WorkspaceApply
    );
    assert_eq!(tree(&world.host()), Vec::new());
}

/// Ends the work before the n-th step, as a crash would: nothing after it happens.
struct Crash {
    at: usize,
    seen: AtomicUsize,
}

impl Observer for Crash {
    fn before(&self, _: Step<'_>) {
        if self.seen.fetch_add(1, Ordering::SeqCst) == self.at {
            std::panic::resume_unwind(Box::new("crash"));
        }
    }
}

fn until_crash(at: usize, act: impl FnOnce(&Durable)) -> bool {
    let durable = Durable::observed(Arc::new(Crash {
        at,
        seen: AtomicUsize::new(0),
    }));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&durable))).is_err()
}

#[test]
fn after_a_crash_at_any_step_of_apply_or_undo_recovery_leaves_the_tree_old_or_new() {
    let mut outcomes = [0, 0];
    for undoing in [false, true] {
        for at in 0..2_000 {
            let world = world(some_base, some_changes);
            let (old, new) = (tree(&world.host()), tree(&world.agent()));
            if undoing {
                world.apply(Resolve::Refuse).unwrap();
            }
            let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
            let mut failed = None;
            let crashed = until_crash(at, |durable| {
                let done = world.with(durable, |target| {
                    if undoing {
                        undo(target)
                    } else {
                        apply(target, &plan, &world.blobs)
                    }
                });
                failed = done.err();
            });
            assert_eq!(failed, None);
            // A crash during recovery must not matter either.
            for again in [0, 3, 9] {
                until_crash(again, |durable| {
                    world.with(durable, |target| drop(recover(target).unwrap()))
                });
            }
            world.with(&Durable::default(), recover).unwrap();
            let now = tree(&world.host());
            assert!(
                now == old || now == new,
                "step {at} of {}",
                if undoing { "undo" } else { "apply" }
            );
            outcomes[usize::from(now == new)] += 1;
            assert!(world.with(&Durable::default(), recover).unwrap().is_empty());
            if !crashed {
                assert_eq!(now, if undoing { old } else { new });
                break;
            }
        }
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 20, "{outcomes:?}");
}

#[test]
fn two_applies_at_once_do_not_mix() {
    let world = world(|_| {}, |root| write(root, "a", b"1\n"));
    let held = Root::open(&world.host()).unwrap();
    rustix::fs::flock(held.handle(), rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(
        world.apply(Resolve::Refuse).unwrap_err().code,
        Code::WorkspaceBusy
    );
}

/// Edits a host file at the moment the apply turns to another one.
struct Meddler {
    file: PathBuf,
    at: usize,
    seen: AtomicUsize,
}

impl Observer for Meddler {
    fn before(&self, step: Step<'_>) {
        if matches!(step, Step::Tree(_)) && self.seen.fetch_add(1, Ordering::SeqCst) == self.at {
            std::fs::write(&self.file, b"edited meanwhile\n").unwrap();
        }
    }
}

#[test]
fn an_edit_in_the_middle_of_an_apply_is_kept_or_the_apply_was_over_before_it() {
    let mut refused = 0;
    for at in 0..60 {
        let world = world(some_base, some_changes);
        let (mut old, new) = (tree(&world.host()), tree(&world.agent()));
        let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
        let file = world.host().join("a.txt");
        let durable = Durable::observed(Arc::new(Meddler {
            file: file.clone(),
            at,
            seen: AtomicUsize::new(0),
        }));
        let outcome = world.with(&durable, |target| apply(target, &plan, &world.blobs));
        let now = tree(&world.host());
        match outcome {
            Err(fault) => {
                refused += 1;
                assert_eq!(fault.code, Code::WorkspaceConflict, "step {at}");
                assert_eq!(std::fs::read(&file).unwrap(), b"edited meanwhile\n", "step {at}");
                for entry in old.iter_mut().filter(|entry| entry.0 == Path::new("a.txt")) {
                    entry.2 = b"edited meanwhile\n".to_vec();
                }
                assert_eq!(now, old, "step {at}");
            }
            // The edit came after its file was done: it stands on the new tree.
            Ok(_) => {
                let rest = |tree: &[(PathBuf, u32, Vec<u8>)]| {
                    tree.iter()
                        .filter(|entry| entry.0 != Path::new("a.txt"))
                        .cloned()
                        .collect::<Vec<_>>()
                };
                assert_eq!(rest(&now), rest(&new), "step {at}");
            }
        }
    }
    assert!(refused >= 10, "{refused}");
}

#[test]
fn a_crash_followed_by_an_edit_is_undone_as_a_whole_and_the_edit_is_kept() {
    let mut undone = 0;
    for at in 0..120 {
        let world = world(some_base, some_changes);
        let mut old = tree(&world.host());
        let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
        let crashed = until_crash(at, |durable| {
            assert!(
                world
                    .with(durable, |target| apply(target, &plan, &world.blobs))
                    .is_ok()
            );
        });
        let file = world.host().join("tool");
        if !crashed || file.exists() {
            continue;
        }
        write(&world.host(), "tool", b"mine\n");
        let recovered = world.with(&Durable::default(), recover).unwrap();
        assert!(
            !matches!(recovered.as_slice(), [Recovered::Finished(_)]),
            "step {at}"
        );
        let mine = tree(&world.host())
            .into_iter()
            .find(|entry| entry.0 == Path::new("tool"))
            .unwrap();
        assert_eq!(mine.2, b"mine\n");
        old.push(mine);
        old.sort();
        assert_eq!(tree(&world.host()), old, "step {at}");
        undone += 1;
    }
    assert!(undone > 30, "{undone}");
}

/// Saves a file as editors do: written beside, renamed over.
fn save(host: &Path, name: &str, text: &str) {
    let beside = host.join(".saving");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, host.join(name)).unwrap();
}

/// A transaction of one swap of each sort on one file, staged and not committed.
struct Staged {
    stage: tempfile::TempDir,
    swap: super::journal::Swap,
}

impl Staged {
    fn all() -> Vec<Self> {
        use crate::manifest::{Kind, LinkTarget};
        let link = Some(Kind::Symlink {
            target: LinkTarget(b"elsewhere".to_vec()),
        });
        let file = |blobs: &Folder, text: &str| Some(blobs.put(text.as_bytes()));
        (0..4)
            .map(|sort| {
                let stage = tempfile::tempdir().unwrap();
                for name in ["host", "area", "blobs"] {
                    std::fs::create_dir(stage.path().join(name)).unwrap();
                }
                let blobs = Folder(stage.path().join("blobs"));
                let after = match sort {
                    0 => file(&blobs, "new"),
                    1 => link.clone(),
                    2 => Some(Kind::Dir),
                    _ => None,
                };
                save(&stage.path().join("host"), "f", "old");
                let mut swap = super::journal::Swap {
                    operations: vec![super::journal::Operation::new(
                        path("f"),
                        file(&blobs, "old"),
                        after,
                    )],
                    area: 0,
                    slot: path("0"),
                    new: None,
                    old: None,
                };
                let staged = Self {
                    stage,
                    swap: swap.clone(),
                };
                let (root, area) = staged.roots();
                let source = super::stage::Source::Contents(&blobs);
                super::stage::stage(&root, &area, &swap, &source).unwrap();
                swap.new = area.inode(&swap.slot).unwrap();
                swap.old = root.inode(swap.path()).unwrap();
                Self {
                    stage: staged.stage,
                    swap,
                }
            })
            .collect()
    }

    fn host(&self) -> PathBuf {
        self.stage.path().join("host")
    }

    fn roots(&self) -> (Root, Root) {
        let area = self.stage.path().join("area");
        (Root::open(&self.host()).unwrap(), Root::open(&area).unwrap())
    }

    fn forward(&self, between: impl FnOnce()) -> Result<(), super::settle::SettleError> {
        let (root, area) = self.roots();
        let (root, area, swap) = (&root, &area, &self.swap);
        super::settle::Exchange { root, area, swap }.forward(between)
    }

    fn back(&self) -> Result<(), super::settle::SettleError> {
        let (root, area) = self.roots();
        let (root, area, swap) = (&root, &area, &self.swap);
        super::settle::Exchange { root, area, swap }.back()
    }
}

#[test]
fn what_is_saved_between_the_look_and_the_change_is_neither_lost_nor_covered() {
    let drift = |result: &Result<(), super::settle::SettleError>| {
        matches!(result, Err(super::settle::SettleError::Drift))
    };
    for staged in Staged::all() {
        let swapped = staged.forward(|| save(&staged.host(), "f", "saved"));
        assert!(drift(&swapped), "{:?}: {swapped:?}", staged.swap);
        assert_eq!(std::fs::read_to_string(staged.host().join("f")).unwrap(), "saved");
    }
    for staged in Staged::all() {
        // Removed instead of replaced: the removal is not undone either.
        let gone = staged.forward(|| std::fs::remove_file(staged.host().join("f")).unwrap());
        assert!(drift(&gone), "{gone:?}");
        assert!(!staged.host().join("f").exists());
    }
    for staged in Staged::all() {
        // And without anybody in between it works, can be repeated, and taken back.
        let root = staged.roots().0;
        staged.forward(|| {}).unwrap();
        staged.forward(|| {}).unwrap();
        assert_eq!(root.kind(&path("f")).unwrap(), staged.swap.top().after);
        staged.back().unwrap();
        staged.back().unwrap();
        assert_eq!(std::fs::read_to_string(staged.host().join("f")).unwrap(), "old");
        assert_eq!(root.inode(&path("f")).unwrap(), staged.swap.old);
        assert_eq!(std::fs::read_dir(staged.host()).unwrap().count(), 1);
    }
}

#[test]
fn what_a_crash_left_exchanged_but_not_looked_at_is_put_back() {
    for staged in Staged::all() {
        save(&staged.host(), "f", "saved");
        let (host, slot) = (staged.host().join("f"), staged.stage.path().join("area/0"));
        // As the kernel leaves it when the process is killed right after the change of names.
        let aside = staged.host().join(".aside");
        std::fs::rename(&host, &aside).unwrap();
        if staged.swap.top().after.is_some() {
            std::fs::rename(&slot, &host).unwrap();
        }
        std::fs::rename(aside, slot).unwrap();
        let settled = staged.forward(|| panic!("it was exchanged already"));
        assert!(
            matches!(settled, Err(super::settle::SettleError::Drift)),
            "{settled:?}"
        );
        assert_eq!(std::fs::read_to_string(host).unwrap(), "saved");
    }
}

#[test]
fn where_names_cannot_be_exchanged_both_objects_exist_at_every_moment() {
    for staged in Staged::all().into_iter().take(3) {
        let (root, area) = staged.roots();
        let exchange = super::settle::Exchange {
            root: &root,
            area: &area,
            swap: &staged.swap,
        };
        let (place, slot) = (root.handle(), area.handle());
        let ways = || exchange.exchange_by_moves((slot, b"0"), (place, b"f"));
        ways().unwrap();
        assert_eq!(root.kind(&path("f")).unwrap(), staged.swap.top().after);
        ways().unwrap();
        // Killed after the first move: the old object goes back. After the second: it goes to the slot.
        let (host, spare) = (staged.host().join("f"), staged.stage.path().join("area/0.old"));
        std::fs::rename(&host, &spare).unwrap();
        staged.back().unwrap();
        assert_eq!(std::fs::read_to_string(&host).unwrap(), "old");
        std::fs::rename(&host, &spare).unwrap();
        std::fs::rename(staged.stage.path().join("area/0"), &host).unwrap();
        staged.forward(|| panic!("it was exchanged already")).unwrap();
        assert_eq!(root.kind(&path("f")).unwrap(), staged.swap.top().after);
        assert!(!spare.exists());
    }
}
