//! From a granted launch to a plan: what is mounted, covered, guarded and limited, and what refuses to be planned.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Flags, Project, User};
use bastle_contract::{AbsPath, Access, BackendKind, Code, Guarantee, MountKind};
use bastle_policy::{
    LaunchRequest, Layer, LayerKind, MergeOptions, PathFact, PathKind, Surroundings, Verdict, decide_launch,
    merge, needs, plan, preset,
};
use common::launch::{at, disk, grant, host, is_bind, planned, request};
use common::{layer, merged, path, surroundings, with_default};

#[test]
fn the_default_plan_shows_the_system_and_the_workspace_and_nothing_of_the_home() {
    let policy = merged(&with_default(&[]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    planned.plan.check().unwrap();
    assert!(
        is_bind(at(&planned, "/usr"), Access::ReadOnly)
            && is_bind(at(&planned, "/home/u/w"), Access::ReadWrite)
    );
    assert_eq!(
        at(&planned, "/bin"),
        Some(&MountKind::Symlink {
            target: "usr/bin".into()
        })
    );
    assert_eq!(
        at(&planned, "/workspace"),
        Some(&MountKind::Symlink {
            target: "/home/u/w".into()
        })
    );
    assert_eq!(at(&planned, "/tmp"), Some(&MountKind::Scratch { mode: 0o1777 }));
    assert_eq!(
        at(&planned, "/home/agent"),
        Some(&MountKind::Scratch { mode: 0o700 })
    );
    assert_eq!(
        (at(&planned, "/proc"), at(&planned, "/dev")),
        (Some(&MountKind::Proc), Some(&MountKind::Dev))
    );
    assert!(
        matches!(at(&planned, "/etc/passwd"), Some(MountKind::File { contents }) if contents.contains("agent:x:1000"))
    );
    let sources: Vec<&str> = planned
        .plan
        .mounts
        .iter()
        .filter_map(|m| match &m.kind {
            MountKind::Bind { source, .. } => Some(source.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(sources, ["/etc/ssl/certs", "/home/u/w", "/usr"]);
    for owned in &planned.plan.mounts {
        if let MountKind::Bind { owned: mine, .. } = owned.kind {
            assert_eq!(mine, owned.at.as_str() == "/home/u/w", "{}", owned.at);
        }
    }
}

#[test]
fn the_default_plan_grants_little_by_landlock_and_proves_the_whole_fence() {
    let policy = merged(&with_default(&[]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    assert!(planned.plan.landlock.iter().all(|rule| rule.path.as_str() != "/"));
    let writable: Vec<&str> = planned
        .plan
        .landlock
        .iter()
        .filter(|r| r.access == Access::ReadWrite)
        .map(|r| r.path.as_str())
        .collect();
    assert_eq!(
        writable,
        [
            "/dev/full",
            "/dev/null",
            "/dev/ptmx",
            "/dev/pts",
            "/dev/shm",
            "/dev/tty",
            "/dev/zero",
            "/home/agent",
            "/home/u/w",
            "/tmp",
            "/var/tmp"
        ]
    );
    for guarantee in [
        Guarantee::ReadsConfined,
        Guarantee::NetConfined,
        Guarantee::NamesGuarded,
        Guarantee::PidsLimited,
        Guarantee::OpenFilesLimited,
    ] {
        assert!(planned.plan.guarantees.contains(&guarantee), "{guarantee}");
    }
    assert!(
        !planned.plan.guarantees.contains(&Guarantee::SecretsHidden)
            && !planned.plan.guarantees.contains(&Guarantee::MemoryLimited)
    );
}

#[test]
fn every_place_is_used_once_and_parents_come_first() {
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "fs": {"read": ["./vendor", "/srv/a", "/srv"], "write": ["/srv/a/b", "./vendor/x"]}}"#,
    )]));
    let mut fs = disk(
        &policy,
        &[
            "/srv",
            "/srv/a",
            "/srv/a/b",
            "/home/u/w/vendor",
            "/home/u/w/vendor/x",
        ],
    );
    fs.hidden = vec![path("/srv/a"), path("/home/u/w/.env"), path("/home/u/w/.env")];
    fs.protected = vec![path("/home/u/w/.git/hooks"), path("/home/u/w/.env/hooks")];
    let planned = planned(&policy, &fs).unwrap();
    let places: Vec<&AbsPath> = planned.plan.mounts.iter().map(|m| &m.at).collect();
    let mut sorted = places.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(places, sorted);
    assert!(
        is_bind(at(&planned, "/home/u/w/vendor"), Access::ReadOnly)
            && is_bind(at(&planned, "/home/u/w/vendor/x"), Access::ReadWrite)
    );
    assert!(is_bind(at(&planned, "/home/u/w/.git/hooks"), Access::ReadOnly));
    assert_eq!(
        (at(&planned, "/home/u/w/.env"), at(&planned, "/srv/a")),
        (Some(&MountKind::Mask), Some(&MountKind::Mask))
    );
    assert_eq!(
        (at(&planned, "/home/u/w/.env/hooks"), at(&planned, "/srv/a/b")),
        (None, None),
        "nothing is mounted below a cover"
    );
    assert!(planned.plan.guarantees.contains(&Guarantee::SecretsHidden));
}

#[test]
fn a_hidden_name_is_covered_and_cannot_come_into_being() {
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"hide": ["./private"], "protect": ["Makefile"]}}"#,
    )]));
    let needs = needs(&policy);
    let bastle_policy::TreeNeed {
        root,
        hide,
        protect,
        live,
    } = &needs.trees[0];
    assert_eq!((needs.trees.len(), root.as_str()), (1, "/home/u/w"));
    let covers = |list: &bastle_contract::NameList, name: &str| list.covers(name.as_bytes());
    assert!(
        covers(hide, "private/x")
            && covers(hide, "a/.env.local")
            && covers(protect, "Makefile")
            && covers(protect, "x/.git/hooks/y")
    );
    let mut fs = disk(&policy, &[]);
    let in_place = planned(&policy, &fs).unwrap().plan.guard.trees[0].clone();
    fs.copied = Some(path("/home/u/w"));
    let copied = planned(&policy, &fs).unwrap().plan.guard.trees[0].clone();
    assert_eq!((&copied.hide, &copied.protect), (hide, protect));
    assert_eq!(*live, bastle_contract::BuiltInNames::Project);
    assert_eq!(in_place.protect.built_in, *live);
    assert!(!covers(&copied.protect, ".git/rebase-merge/git-rebase-todo"));
    assert_eq!(
        (in_place.pinned.patterns().count(), copied.pinned.is_empty()),
        (3, true)
    );
    assert!(covers(&in_place.protect, ".git/rebase-merge/git-rebase-todo"));
}

#[test]
fn a_symlink_the_agent_could_have_made_never_leads_out() {
    for (kind, text) in [
        (Project, r#"{"version": 1, "fs": {"read": ["./link"]}}"#),
        (User, r#"{"version": 1, "fs": {"read": ["./link"]}}"#),
    ] {
        let policy = merged(&with_default(&[(kind, text)]));
        let mut fs = disk(&policy, &[]);
        fs.paths.insert(
            path("/home/u/w/link"),
            PathFact {
                resolved: path("/home/u/mail"),
                kind: PathKind::Dir,
            },
        );
        let fault = planned(&policy, &fs).unwrap_err();
        assert_eq!(fault.code, Code::FsRead, "{kind}: {fault}");
        fs.paths.insert(
            path("/home/u/w/link"),
            PathFact {
                resolved: path("/home/u/.ssh"),
                kind: PathKind::Dir,
            },
        );
        match planned(&policy, &fs) {
            Ok(planned) => assert!(
                planned
                    .plan
                    .mounts
                    .iter()
                    .all(|m| !m.at.as_str().contains(".ssh"))
            ),
            Err(fault) => assert!(
                matches!(fault.code, Code::FsRead | Code::WorkspaceInvalid),
                "{fault}"
            ),
        }
    }
}

#[test]
fn a_granted_symlink_of_the_operator_is_bound_where_it_leads_and_named_where_it_was_typed() {
    let policy = merged(&with_default(&[(
        Flags,
        r#"{"version": 1, "fs": {"read": ["/srv/current"]}}"#,
    )]));
    let mut fs = disk(&policy, &[]);
    fs.paths.insert(
        path("/srv/current"),
        PathFact {
            resolved: path("/srv/v2"),
            kind: PathKind::Dir,
        },
    );
    let planned = planned(&policy, &fs).unwrap();
    assert!(is_bind(at(&planned, "/srv/v2"), Access::ReadOnly));
    assert_eq!(
        at(&planned, "/srv/current"),
        Some(&MountKind::Symlink {
            target: "/srv/v2".into()
        })
    );
}

#[test]
fn what_must_not_be_handed_over_whole_is_refused() {
    for bad in [
        "/",
        "~/",
        "/home",
        "/proc",
        "/proc/1",
        "/sys",
        "/dev",
        "/run",
        "/run/user/1000",
        "/boot",
    ] {
        let policy = merged(&with_default(&[(
            Flags,
            &format!(r#"{{"version": 1, "fs": {{"read": ["{bad}"]}}}}"#),
        )]));
        let all: Vec<String> = needs(&policy).paths.iter().map(ToString::to_string).collect();
        let dirs: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(
            planned(&policy, &disk(&policy, &dirs))
                .map(|_| ())
                .map_err(|f| f.code),
            Err(Code::WorkspaceInvalid),
            "{bad}"
        );
    }
    for workspace in [
        "/home/u",
        "/home",
        "/",
        "/etc",
        "/usr",
        "/proc/1/cwd",
        "/home/u/.ssh/x",
    ] {
        let surroundings = Surroundings {
            home: path("/home/u"),
            workspace: path(workspace),
        };
        let policy = merge(
            &[preset("default").unwrap()],
            &surroundings,
            &MergeOptions::default(),
        )
        .unwrap();
        let request = LaunchRequest {
            cwd: path(workspace),
            ..request(&["ls"])
        };
        let fault = plan(grant(&policy, request), &host(), &disk(&policy, &[workspace]))
            .map(|_| ())
            .unwrap_err();
        assert_eq!(fault.code, Code::WorkspaceInvalid, "{workspace}");
    }
    let policy = merged(&with_default(&[]));
    let mut fs = disk(&policy, &[]);
    fs.paths.insert(
        path("/home/u/w"),
        PathFact {
            resolved: path("/srv/w"),
            kind: PathKind::Dir,
        },
    );
    assert_eq!(
        planned(&policy, &fs).map(|_| ()).unwrap_err().code,
        Code::WorkspaceInvalid,
        "a workspace behind a symlink"
    );
}

#[test]
fn a_project_that_leaves_out_its_own_directory_is_told_so() {
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"read": ["/srv"]}}"#,
    )]));
    assert_eq!(
        planned(&policy, &disk(&policy, &[]))
            .map(|_| ())
            .unwrap_err()
            .code,
        Code::WorkspaceInvalid
    );
    let policy = merged(&with_default(&[(
        Project,
        r#"{"version": 1, "fs": {"read": ["./src"]}}"#,
    )]));
    let planned = planned(&policy, &disk(&policy, &["/home/u/w/src"])).unwrap();
    assert!(is_bind(at(&planned, "/home/u/w/src"), Access::ReadWrite) && at(&planned, "/home/u/w").is_none());
    assert!(
        planned
            .plan
            .landlock
            .iter()
            .any(|rule| rule.path.as_str() == "/home/u/w" && rule.access == Access::ReadOnly)
    );
}

#[test]
fn a_flag_that_names_nothing_is_an_error_and_a_preset_path_is_skipped() {
    let policy = merged(&with_default(&[(
        Flags,
        r#"{"version": 1, "fs": {"read": ["/srv/nope"]}}"#,
    )]));
    assert_eq!(
        planned(&policy, &disk(&policy, &[]))
            .map(|_| ())
            .unwrap_err()
            .code,
        Code::FsRead
    );
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "fs": {"read": ["/srv/nope"]}}"#,
    )]));
    let planned = planned(&policy, &disk(&policy, &[])).unwrap();
    assert!(
        planned
            .listing
            .iter()
            .any(|line| line.rule == "/srv/nope" && line.note.contains("skipped"))
    );
}

#[test]
fn a_launch_outside_the_workspace_or_denied_by_a_rule_gets_no_grant() {
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "exec": {"deny": ["sudo"], "ask": ["make"]}}"#,
    )]));
    let verdict = |request: LaunchRequest| match decide_launch(&policy, request) {
        Verdict::Granted(_) => "granted".to_owned(),
        Verdict::NeedsApproval(fault) => format!("ask {}", fault.code),
        Verdict::Denied(fault) => fault.code.to_string(),
    };
    assert_eq!(verdict(request(&["ls", "-la"])), "granted");
    assert_eq!(verdict(request(&["sudo", "ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["/usr/bin/sudo", "ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["bash", "-c", "true; sudo ls"])), "BST-EXEC-001");
    assert_eq!(verdict(request(&["make"])), "ask BST-EXEC-004");
    assert_eq!(
        verdict(request(&["echo", "it's; sudo"])),
        "granted",
        "an argument is one word, whatever is in it"
    );
    assert_eq!(
        verdict(LaunchRequest {
            cwd: path("/home/u/w-evil"),
            ..request(&["ls"])
        }),
        "BST-WS-001"
    );
    assert_eq!(
        verdict(LaunchRequest {
            backend: BackendKind::Host,
            ..request(&["/bin/bash"])
        }),
        "BST-HOST-002"
    );
}

#[test]
fn a_denied_program_is_covered_where_it_is_found() {
    let policy = merged(&with_default(&[(
        User,
        r#"{"version": 1, "exec": {"deny": ["sudo", "rm -rf *"]}}"#,
    )]));
    assert_eq!(needs(&policy).programs, ["sudo"]);
    let mut fs = disk(&policy, &[]);
    fs.programs = vec![path("/usr/bin/sudo"), path("/opt/other/sudo")];
    let planned = planned(&policy, &fs).unwrap();
    assert_eq!(at(&planned, "/usr/bin/sudo"), Some(&MountKind::Mask));
    assert_eq!(
        at(&planned, "/opt/other/sudo"),
        None,
        "what is not visible needs no cover"
    );
}

#[test]
fn unprotect_uncovers_exactly_what_it_names() {
    let layers: Vec<Layer> = with_default(&[])
        .into_iter()
        .chain([layer(Flags, r#"{"version": 1}"#)])
        .collect();
    let options = MergeOptions {
        unprotect: vec![path("/home/u/w/.env"), path("/home/u/w/.git/hooks/**")],
        ..MergeOptions::default()
    };
    let policy = merge(&layers, &surroundings(), &options).unwrap();
    let mut fs = disk(&policy, &[]);
    fs.hidden = vec![path("/home/u/w/.env"), path("/home/u/w/.env.local")];
    fs.protected = vec![path("/home/u/w/.git/hooks"), path("/home/u/w/.git/config")];
    let planned = planned(&policy, &fs).unwrap();
    assert_eq!(
        (
            at(&planned, "/home/u/w/.env"),
            at(&planned, "/home/u/w/.env.local")
        ),
        (None, Some(&MountKind::Mask))
    );
    assert_eq!(at(&planned, "/home/u/w/.git/hooks"), None);
    assert!(is_bind(at(&planned, "/home/u/w/.git/config"), Access::ReadOnly));
}

fn with_unprotect(opened: &[&str]) -> bastle_policy::Effective {
    let options = MergeOptions {
        unprotect: opened.iter().map(|text| path(text)).collect(),
        ..MergeOptions::default()
    };
    merge(&with_default(&[]), &surroundings(), &options).unwrap()
}

#[test]
fn an_opened_file_opens_no_sibling_that_the_same_pattern_hides() {
    let policy = with_unprotect(&["/home/u/w/.env.example"]);
    let needs = needs(&policy);
    let hide = &needs.trees[0].hide;
    assert!(!hide.matches(b".env.example"), "control: what was named is open");
    for name in [".env", ".env.local", "a/.env.example", ".ENV.EXAMPLE"] {
        assert!(hide.matches(name.as_bytes()), "{name}");
    }
    let mut fs = disk(&policy, &[]);
    fs.hidden = vec![path("/home/u/w/.env")];
    let planned = planned(&policy, &fs).unwrap();
    assert_eq!(at(&planned, "/home/u/w/.env"), Some(&MountKind::Mask));
    let tree = &planned.plan.guard.trees[0];
    assert!(tree.hide.matches(b".env") && !tree.hide.matches(b".env.example"));
    let line = planned
        .listing
        .iter()
        .find(|line| line.section == "fs.unprotect")
        .unwrap();
    assert_eq!(
        (line.rule.as_str(), line.origin.to_string().as_str()),
        ("/home/u/w/.env.example", "--unprotect")
    );
    assert!(
        line.note.contains("EXCEPTION") && line.note.contains("**/.env*"),
        "{}",
        line.note
    );
}

#[test]
fn a_directory_a_link_and_a_part_of_a_hidden_directory_are_not_opened_as_one_file() {
    let refused = |opened: &str, fact: Option<bastle_policy::PathFact>| {
        let policy = with_unprotect(&[opened]);
        let mut fs = disk(&policy, &[]);
        if let Some(fact) = fact {
            fs.paths.insert(path(opened), fact);
        }
        planned(&policy, &fs)
            .err()
            .map(|fault| format!("{fault} {:?}", fault.help))
    };
    let fact = |resolved: &str, kind| bastle_policy::PathFact {
        resolved: path(resolved),
        kind,
    };
    use bastle_policy::PathKind::{Dir, File};
    let said = refused("/home/u/w/.env.d", Some(fact("/home/u/w/.env.d", Dir))).unwrap();
    assert!(
        said.contains("is a directory") && said.contains("'/home/u/w/.env.d/**'"),
        "{said}"
    );
    let said = refused("/home/u/w/.env.x", Some(fact("/home/u/w/.env", File))).unwrap();
    assert!(
        said.contains("symbolic link") && said.contains("/home/u/w/.env"),
        "{said}"
    );
    let said = refused("/home/u/w/.env.d/one", None).unwrap();
    assert!(
        said.contains("as a whole") && said.contains("'/home/u/w/.env.d/**'"),
        "{said}"
    );
    assert_eq!(
        refused("/home/u/w/.env.x", Some(fact("/home/u/w/.env.x", File))),
        None,
        "control"
    );
}

#[test]
fn a_hook_is_opened_by_itself_and_the_other_hooks_stay_read_only() {
    let policy = with_unprotect(&["/home/u/w/.git/hooks/pre-commit"]);
    let mut fs = disk(&policy, &[]);
    fs.protected = vec![path("/home/u/w/.git/hooks")];
    let said = planned(&policy, &fs).unwrap_err().to_string();
    assert!(said.contains("does not exist"), "{said}");
    let fact = bastle_policy::PathFact {
        resolved: path("/home/u/w/.git/hooks/pre-commit"),
        kind: bastle_policy::PathKind::File,
    };
    fs.paths.insert(path("/home/u/w/.git/hooks/pre-commit"), fact);
    let planned = planned(&policy, &fs).unwrap();
    assert!(is_bind(at(&planned, "/home/u/w/.git/hooks"), Access::ReadOnly));
    assert!(is_bind(
        at(&planned, "/home/u/w/.git/hooks/pre-commit"),
        Access::ReadWrite
    ));
    let protect = &planned.plan.guard.trees[0].protect;
    assert!(protect.covers(b".git/hooks/post-commit") && !protect.covers(b".git/hooks/pre-commit"));
}
