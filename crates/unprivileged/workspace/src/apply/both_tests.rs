//! Changes of both sides that fit together: content and right to execute each on its own, and what both sides did alike.
use super::tests::{World, world};
use super::*;
use crate::gate::Approvals;
use crate::testing::{path, write};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn plan_of(world: &World) -> Plan {
    world.plan(&Approvals::default(), &[], Resolve::Refuse)
}

fn forbid_execution(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_binary_that_one_side_edits_and_whose_mode_the_other_changes_is_no_conflict() {
    let base = |root: &Path| {
        write(root, "tool.dat", b"\0old");
        fs::set_permissions(root.join("tool.dat"), Permissions::from_mode(0o755)).unwrap();
    };
    let host_edits = world(base, |root| forbid_execution(&root.join("tool.dat")));
    write(&host_edits.host(), "tool.dat", b"\0new on the host");
    host_edits.apply(Resolve::Refuse).unwrap();
    let file = host_edits.host().join("tool.dat");
    assert_eq!(fs::read(&file).unwrap(), b"\0new on the host");
    assert_eq!(file.metadata().unwrap().mode() & 0o100, 0);

    let plain = |root: &Path| write(root, "tool.dat", b"\0old");
    let agent_edits = world(plain, |root| write(root, "tool.dat", b"\0new of the agent"));
    let file = agent_edits.host().join("tool.dat");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    agent_edits.apply(Resolve::Refuse).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"\0new of the agent");
    assert_eq!(file.metadata().unwrap().mode() & 0o100, 0o100);

    // The control: both contents changed.
    let both = world(plain, |root| write(root, "tool.dat", b"\0new of the agent"));
    write(&both.host(), "tool.dat", b"\0new on the host");
    assert_eq!(plan_of(&both).conflicts().len(), 1);
}

#[test]
fn a_file_that_has_the_agents_lines_among_its_own_is_not_written_again() {
    let world = world(
        |root| write(root, "a.txt", b"1\n2\n3\n4\n5\n"),
        |root| write(root, "a.txt", b"1\nTWO\n3\n4\n5\n"),
    );
    write(&world.host(), "a.txt", b"1\nTWO\n3\n4\nFIVE\n");
    let plan = plan_of(&world);
    assert_eq!(plan.already(), [path("a.txt")]);
    assert!(plan.operations().is_empty() && plan.merged().is_empty());
}

#[test]
fn a_directory_that_both_sides_replaced_alike_is_no_conflict() {
    for kind in ["file", "link"] {
        let replace = |root: &Path| {
            fs::remove_dir_all(root.join("d")).unwrap();
            match kind {
                "file" => write(root, "d", b"a file now\n"),
                _ => symlink("a.txt", root.join("d")).unwrap(),
            }
        };
        let world = world(|root| write(root, "d/deep/x", b"x\n"), replace);
        replace(&world.host());
        let plan = plan_of(&world);
        assert_eq!(plan.conflicts(), [], "{kind}");
        assert!(plan.operations().is_empty(), "{kind}");
        assert_eq!(plan.already().len(), 3, "{kind}");
    }
}
