//! Extended attributes: what an agent sets is kept with its files, and what would steer the host never travels.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: what they cannot do must fail the test"
)]
mod support;

use bastle_workspace::apply::{Plan, Resolve, Target, apply, plan, select, undo};
use bastle_workspace::audit_delta::{Scope, delta};
use bastle_workspace::durable::Durable;
use bastle_workspace::export::export;
use bastle_workspace::finding::{About, Finding};
use bastle_workspace::gate::{Approvals, Rules, Tree, assess_all, set_hash};
use bastle_workspace::manifest::{Kind, Manifest};
use bastle_workspace::meta::{Reason, Which, WorkMode};
use bastle_workspace::path::TreePath;
use bastle_workspace::rollback::Quiet;
use bastle_workspace::rooted::Root;
use bastle_workspace::workspace::Workspace;
use rustix::fs::XattrFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Ground, modes, run_id};

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// All attributes of a file, of every name space that can be seen.
fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0_u8; 64 * 1024];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut all = BTreeMap::new();
    for name in names {
        let mut value = vec![0_u8; 64 * 1024];
        let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        all.insert(String::from_utf8(name.to_vec()).unwrap(), value);
    }
    all
}

fn these(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
    pairs.iter().map(pair).collect()
}

fn has_set(manifest: &Manifest, path: &str) -> bool {
    let kind = manifest.get(&TreePath::new(path).unwrap());
    matches!(
        kind,
        Some(Kind::File {
            attributes: Some(_),
            ..
        })
    )
}

fn planned(space: &Workspace) -> Plan {
    let (_, now) = space.current().unwrap();
    let base = space.base().unwrap();
    let changes = delta(&base, &now, Scope::Work);
    let rules = Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap();
    let assessed = assess_all(&rules, &Tree::new(&base, &now), &changes, &BTreeSet::new(), space).unwrap();
    // Names without a kind are held; what is tried here is what becomes of attributes.
    let mut approvals = Approvals::default();
    approvals.add(&set_hash(&assessed).to_string()).unwrap();
    let selection = select(&assessed, &approvals, &[]);
    plan(
        &Root::open(space.source()).unwrap(),
        &selection,
        Resolve::Refuse,
        space,
    )
    .unwrap()
}

#[test]
fn a_rollback_and_a_fork_bring_attributes_back_also_where_only_they_changed() {
    let ground = Ground::new();
    set(&ground.source().join("README"), "user.note", b"of the source");
    let space = ground.create("one");
    let tree = space.tree();
    assert_eq!(
        attributes(&tree.join("README")),
        these(&[("user.note", "of the source")])
    );
    set(&tree.join("run.sh"), "user.agent", b"first");
    let first = space.snapshot(None, Reason::Asked).unwrap().snapshot;
    // Only attributes change: another state of the tree all the same.
    set(&tree.join("run.sh"), "user.agent", b"second");
    rustix::fs::removexattr(tree.join("README"), "user.note").unwrap();
    set(&tree.join("src/main.rs"), "user.late", b"x");
    let second = space.snapshot(None, Reason::Asked).unwrap().snapshot;
    assert_ne!(first.manifest, second.manifest);
    space
        .rollback(&Which::Number(first.number), Quiet::Paused)
        .unwrap();
    assert_eq!(
        attributes(&tree.join("run.sh")),
        these(&[("user.agent", "first")])
    );
    assert_eq!(
        attributes(&tree.join("README")),
        these(&[("user.note", "of the source")])
    );
    assert_eq!(attributes(&tree.join("src/main.rs")), these(&[]));
    assert_eq!(fs::read(tree.join("run.sh")).unwrap(), b"#!/bin/sh\n");
    // What is looked at again is what was recorded.
    assert_eq!(space.current().unwrap().1.id(), first.manifest);
    // Collecting what nobody names leaves what a snapshot names.
    ground.create("gone").remove(None).unwrap();
    let fork = space.fork(&Which::Number(second.number), run_id("two")).unwrap();
    assert_eq!(
        attributes(&fork.tree().join("run.sh")),
        these(&[("user.agent", "second")])
    );
    assert_eq!(attributes(&fork.tree().join("README")), these(&[]));
    assert_eq!(fork.current().unwrap().1.id(), second.manifest);
}

#[test]
fn attributes_that_steer_a_file_system_or_the_kernel_pass_neither_in_nor_out() {
    let ground = Ground::new();
    let hostile = [
        "user.overlay.redirect",
        "user.overlay.opaque",
        "user.overlay.metacopy",
        "user.fuseoverlayfs.opaque",
        "user.containers.override_stat",
    ];
    let mut names: Vec<&str> = hostile.to_vec();
    if rustix::process::getuid().is_root() {
        names.extend(["trusted.overlay.redirect", "security.capability"]);
    }
    // A capability that the kernel accepts: version 2, everything permitted.
    let value = [&[1, 0, 0, 2][..], &[0xff; 16]].concat();
    let poison = |path: &Path| {
        for name in &names {
            set(path, name, &value);
        }
        set(path, "user.plain", b"goes");
    };
    poison(&ground.source().join("README"));
    let space = ground.create("one");
    assert_eq!(
        attributes(&space.tree().join("README")),
        these(&[("user.plain", "goes")])
    );
    poison(&space.tree().join("src/main.rs"));
    fs::write(space.tree().join("fresh"), "new\n").unwrap();
    poison(&space.tree().join("fresh"));
    let snapshot = space.snapshot(None, Reason::Asked).unwrap().snapshot;
    let fork = space
        .fork(&Which::Number(snapshot.number), run_id("two"))
        .unwrap();
    let durable = Durable::default();
    let target = Target {
        source: &ground.source(),
        journals: &space.path("apply"),
        durable: &durable,
    };
    apply(&target, &planned(&space), &space).unwrap();
    for root in [fork.tree(), ground.source()] {
        for name in ["src/main.rs", "fresh"] {
            assert_eq!(
                attributes(&root.join(name)),
                these(&[("user.plain", "goes")]),
                "{name}"
            );
        }
    }
    let mut archive = Vec::new();
    export(&space.current().unwrap().1, &space, &mut archive).unwrap();
    let holds = |text: &str| {
        archive
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(holds("SCHILY.xattr.user.plain=goes"));
    for name in names {
        assert!(!holds(name), "{name}");
    }
}

#[test]
fn an_apply_keeps_the_hosts_attributes_takes_the_agents_and_undo_gives_back_exactly_what_was() {
    let ground = Ground::new();
    let (source, file) = (ground.source(), ground.source().join("README"));
    set(&file, "user.old", b"1");
    set(&file, "user.both", b"base");
    let space = ground.create("one");
    let tree = space.tree();
    fs::write(tree.join("README"), "changed by the agent\n").unwrap();
    set(&tree.join("README"), "user.old", b"2");
    set(&tree.join("README"), "user.both", b"agent");
    set(&tree.join("run.sh"), "user.only", b"an attribute");
    // Meanwhile on the host: no conflict, and not lost.
    set(&file, "user.both", b"host");
    set(&file, "user.host", b"h");
    let was = attributes(&file);
    let made = planned(&space);
    assert!(made.conflicts().is_empty() && made.without_attributes().is_empty());
    let durable = Durable::default();
    let target = Target {
        source: &source,
        journals: &space.path("apply"),
        durable: &durable,
    };
    apply(&target, &made, &space).unwrap();
    let expected = these(&[("user.old", "2"), ("user.both", "host"), ("user.host", "h")]);
    assert_eq!(attributes(&file), expected);
    assert_eq!(fs::read(&file).unwrap(), b"changed by the agent\n");
    assert_eq!(
        attributes(&source.join("run.sh")),
        these(&[("user.only", "an attribute")])
    );
    // A second look finds nothing to do.
    assert!(planned(&space).operations().is_empty());
    undo(&target).unwrap();
    assert_eq!(attributes(&file), was);
    assert_eq!(fs::read(&file).unwrap(), b"read me\n");
    assert_eq!(attributes(&source.join("run.sh")), these(&[]));
}

#[test]
fn an_overlay_keeps_what_the_agent_sets_and_nothing_of_its_own_making() {
    let ground = modes::ground();
    set(&ground.source().join("plain"), "user.base", b"b");
    let make = || modes::make(&ground.place, &ground.source(), WorkMode::Overlay, "one").unwrap();
    let space = make();
    let base = space.base().unwrap();
    assert!(has_set(&base, "plain"));
    // Brought up unchanged, it is no change; marks of the overlay are no attributes of the file.
    let script = r#"touch -r plain plain; chmod u+w plain; python3 -c '
import os
os.setxattr("README", "user.agent", b"a")
for name in ("user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy"):
    for path in ("README", "src"):
        try:
            os.setxattr(path, name, b"y")
        except OSError:
            pass'"#;
    modes::inside(&ground, &space, script);
    let (_, now) = space.current().unwrap();
    let changed: Vec<String> = delta(&base, &now, Scope::Work)
        .iter()
        .map(|change| change.path.to_string())
        .collect();
    assert_eq!(changed, ["README"]);
    let fork = space.fork(&Which::Last, run_id("two")).unwrap();
    assert_eq!(
        attributes(&fork.tree().join("README")),
        these(&[("user.agent", "a")])
    );
    assert_eq!(
        attributes(&fork.tree().join("plain")),
        these(&[("user.base", "b")])
    );
    space.rollback(&Which::Number(0), Quiet::Paused).unwrap();
    assert_eq!(space.current().unwrap().1.id(), base.id());
    // The next run on the same source, which reads nothing again that did not change, knows them too.
    let next = modes::make(&ground.place, &ground.source(), WorkMode::Overlay, "three").unwrap();
    assert!(has_set(&next.base().unwrap(), "plain"));
}

#[test]
fn as_many_attributes_as_a_file_can_have_come_back_and_too_many_stop_nothing() {
    let ground = Ground::new();
    let space = ground.create("one");
    let path = space.tree().join("README");
    let mut count = 0;
    while count < 2000 {
        let (name, value) = (format!("user.{count}"), vec![b'v'; 40]);
        match rustix::fs::setxattr(&path, name.as_str(), &value, XattrFlags::empty()) {
            Ok(()) => count += 1,
            Err(_) => break,
        }
    }
    assert!(count > 0);
    let all = attributes(&path);
    let taken = space.snapshot(None, Reason::Asked).unwrap();
    let kept = taken.findings.is_empty();
    fs::write(&path, "other\n").unwrap();
    rustix::fs::removexattr(&path, "user.0").unwrap();
    space
        .rollback(&Which::Number(taken.snapshot.number), Quiet::Paused)
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"read me\n");
    // Either every one of them, or, where a file holds more than is kept, none and a note about it.
    let expected = if kept { all } else { these(&[]) };
    assert_eq!(attributes(&path), expected);
}

#[test]
fn an_archive_gives_its_attributes_to_tar() {
    let ground = Ground::new();
    let space = ground.create("one");
    set(&space.tree().join("README"), "user.a=b%", b"odd\n=");
    let mut archive = Vec::new();
    export(&space.current().unwrap().1, &space, &mut archive).unwrap();
    let (file, out) = (ground.root.path().join("x.tar"), ground.root.path().join("out"));
    fs::write(&file, archive).unwrap();
    fs::create_dir(&out).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "-xf"]).arg(&file).arg("-C").arg(&out);
    assert!(tar.status().unwrap().success());
    assert_eq!(attributes(&out.join("README")), these(&[("user.a=b%", "odd\n=")]));
}

#[test]
fn attributes_of_directories_are_never_left_behind_without_a_word() {
    for mode in [WorkMode::Copy, WorkMode::Overlay] {
        let ground = modes::ground();
        set(&ground.source().join("src"), "user.note", b"of a directory");
        fs::create_dir(ground.source().join("steered")).unwrap();
        // Steers a file system: it would not travel with a file either.
        set(&ground.source().join("steered"), "user.overlay.redirect", b"x");
        let space = modes::make(&ground.place, &ground.source(), mode, "one").unwrap();
        let told = |findings: &[Finding]| -> Vec<String> {
            findings
                .iter()
                .filter(|finding| finding.about == About::Attributes)
                .map(|finding| finding.path.to_string())
                .collect()
        };
        assert_eq!(told(&space.meta().unwrap().findings), ["src"], "{mode:?}");
    }
    let ground = Ground::new();
    let space = ground.create("one");
    set(&space.tree().join("src"), "user.agent", b"x");
    let taken = space.snapshot(None, Reason::Asked).unwrap();
    assert!(
        taken
            .findings
            .iter()
            .any(|finding| finding.about == About::Attributes),
        "{:?}",
        taken.findings
    );
}
