//! The copy in the project's place, by plans and links that were made up for it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what cannot be prepared must fail the test"
)]
use super::making::branch;
use super::rebase::{Standing, rebase};
use crate::lookup::View;
use bastle_contract::{
    AbsPath, Access, Argv, BackendKind, Digest, Guard, LandlockRule, LaunchPlan, Mount, MountKind, Network,
    RunId, Stdio,
};
use std::os::unix::fs::symlink;

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn bind(at: &str, access: Access) -> Mount {
    let kind = MountKind::Bind {
        source: path(at),
        access,
        owned: true,
    };
    Mount { at: path(at), kind }
}

fn plan(mounts: Vec<Mount>) -> LaunchPlan {
    LaunchPlan {
        run: RunId::try_from("calm-otter".to_owned()).unwrap(),
        policy: Digest::try_from("0".repeat(64)).unwrap(),
        backend: BackendKind::Native,
        mounts,
        landlock: Vec::new(),
        landlock_parts: bastle_contract::LandlockParts::up_to(6),
        guard: Guard::default(),
        network: Network::None,
        limits: Vec::new(),
        env: Vec::new(),
        cwd: path("/all/project"),
        argv: Argv::try_from(vec!["true".to_owned()]).unwrap(),
        stdio: Stdio::Pipes,
        debuggers: false,
        exec: None,
        attachments: None,
        guarantees: Vec::new(),
        waivers: Vec::new(),
    }
}

fn rebased(mounts: Vec<Mount>) -> Vec<(String, String, Access)> {
    let mut plan = plan(mounts);
    let tree = path("/state/work/calm-otter/tree");
    rebase(&mut plan, &path("/all/project"), &Standing::Tree(&tree), None).unwrap();
    plan.check().unwrap();
    let shown = |mount: &Mount| match &mount.kind {
        MountKind::Bind { source, access, .. } => Some((mount.at.to_string(), source.to_string(), *access)),
        _ => None,
    };
    plan.mounts.iter().filter_map(shown).collect()
}

#[test]
fn no_bind_of_the_project_is_left_and_siblings_with_its_name_are_untouched() {
    let tree = "/state/work/calm-otter/tree";
    let found = rebased(vec![
        bind("/all/project", Access::ReadWrite),
        bind("/all/project/.git/config", Access::ReadOnly),
        bind("/all/project2", Access::ReadOnly),
        bind("/usr", Access::ReadOnly),
    ]);
    let expected = [
        ("/all/project", tree.to_owned(), Access::ReadWrite),
        (
            "/all/project/.git/config",
            format!("{tree}/.git/config"),
            Access::ReadOnly,
        ),
        ("/all/project2", "/all/project2".to_owned(), Access::ReadOnly),
        ("/usr", "/usr".to_owned(), Access::ReadOnly),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(at, from, access)| (at.to_owned(), from, access))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_directory_above_the_project_does_not_show_it() {
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let found = rebased(vec![bind("/all", access), bind("/all/other", Access::ReadOnly)]);
        let cover = found.iter().find(|(at, _, _)| at == "/all/project");
        let expected = (
            "/all/project".to_owned(),
            "/state/work/calm-otter/tree".to_owned(),
            access,
        );
        assert_eq!(cover, Some(&expected));
    }
}

#[test]
fn an_overlay_may_be_written_where_the_project_may_and_nowhere_else() {
    let (read, write) = (Access::ReadOnly, Access::ReadWrite);
    let layered = |mounts: Vec<Mount>| -> Vec<(String, &str, Access)> {
        let mut plan = plan(mounts);
        let standing = Standing::Layered {
            lower: path("/all/project"),
            layer: path("/state/work/calm-otter/layer"),
        };
        rebase(&mut plan, &path("/all/project"), &standing, None).unwrap();
        plan.check().unwrap();
        let shown = |mount: &Mount| match &mount.kind {
            MountKind::Overlay { access, .. } => (mount.at.to_string(), "overlay", *access),
            MountKind::Again { access, .. } => (mount.at.to_string(), "again", *access),
            MountKind::Bind { access, .. } => (mount.at.to_string(), "bind", *access),
            other => panic!("{other:?}"),
        };
        plan.mounts.iter().map(shown).collect()
    };
    let project = |kind, access| ("/all/project".to_owned(), kind, access);
    for access in [read, write] {
        assert_eq!(
            layered(vec![bind("/all/project", access)]),
            [project("overlay", access)]
        );
        let above = ("/all".to_owned(), "bind", access);
        assert_eq!(
            layered(vec![bind("/all", access)]),
            [above, project("overlay", access)]
        );
    }
    let part = bind("/all/project/sub", write);
    assert_eq!(
        layered(vec![bind("/all/project", read), part]),
        [
            project("overlay", read),
            ("/all/project/sub".to_owned(), "again", write)
        ]
    );
}

#[test]
fn git_objects_of_the_host_are_for_reading_only() {
    let mut plan = plan(vec![bind("/all/project", Access::ReadWrite)]);
    let (tree, objects) = (path("/state/tree"), path("/all/project/.git/objects"));
    rebase(
        &mut plan,
        &path("/all/project"),
        &Standing::Tree(&tree),
        Some(&objects),
    )
    .unwrap();
    let writable = |mount: &&Mount| matches!(&mount.kind, MountKind::Bind { source, access: Access::ReadWrite, .. } if *source == objects);
    assert!(plan.mounts.iter().all(|mount| !writable(&mount)));
    let rule = LandlockRule {
        path: path(super::making::OBJECTS_INSIDE),
        access: Access::ReadOnly,
    };
    assert!(plan.landlock.contains(&rule));
}

#[test]
fn a_link_in_the_copy_that_names_the_project_stays_in_the_copy() {
    let stage = tempfile::tempdir().unwrap();
    let root = stage.path().canonicalize().unwrap();
    let (project, tree) = (root.join("project"), root.join("tree"));
    for directory in [project.join("real"), project.join("only-host"), tree.join("real")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    symlink(project.join("real"), tree.join("whole")).unwrap();
    symlink(project.join("only-host"), tree.join("gone")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    symlink("../../../../..", tree.join("up")).unwrap();
    symlink(project.join("whole"), root.join("outside-link")).unwrap();
    let name = AbsPath::from_path(&project).unwrap();
    let view = View::Copy {
        project: &name,
        tree: &tree,
    };
    assert_eq!(view.resolve(&project.join("whole")), Some(project.join("real")));
    assert_eq!(
        view.resolve(&project.join("gone")),
        None,
        "the host has it, the copy does not"
    );
    assert_eq!(view.resolve(&project.join("loop")), None);
    assert_eq!(
        view.resolve(&project.join("up")),
        Some("/".into()),
        "told as it is; the planner refuses it"
    );
    assert_eq!(
        view.resolve(&project.join("real")),
        Some(project.join("real")),
        "control"
    );
}

#[test]
fn a_program_name_never_makes_a_branch_that_is_an_option_or_a_climb() {
    let named = |program: &str| {
        let argv = Argv::try_from(vec![program.to_owned()]).unwrap();
        branch(&argv, "x").unwrap().as_str().to_owned()
    };
    assert_eq!(named("/usr/bin/claude"), "claude/x");
    assert_eq!(named("--upload-pack"), "upload-pack/x");
    assert_eq!(named("../.."), "agent/x");
    assert_eq!(named("a b\u{202e}.lock"), "a-b--lock/x");
    assert_eq!(named("é"), "agent/x");
    assert!(branch(&Argv::try_from(vec!["a".to_owned()]).unwrap(), "../x").is_err());
}
