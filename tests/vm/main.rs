//! Limits by cgroup v2, as root and delegated to an ordinary user, in a virtual machine: hosts whose controllers are
//! bound to the old hierarchies cannot show them. Needs `qemu-system-x86_64`, a static `busybox`, and in
//! `BASTLE_VM_KERNEL` a Linux 6.12 or newer; without them the test counts as skipped, with the reason.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Limit, bastle, run, skip};

/// Software emulation boots in a few seconds; a loaded machine may take minutes.
const BOOT: Limit = Limit(std::time::Duration::from_secs(600));

/// Programs of busybox that the guest uses.
const APPLETS: &[&str] = &[
    "sh", "ls", "cat", "mount", "mkdir", "echo", "sleep", "chown", "seq", "dd", "true", "find", "su",
    "poweroff", "sed",
];

#[test]
fn limits_are_held_by_the_unified_hierarchy_as_root_and_where_it_is_delegated() {
    let (kernel, busybox) = match parts() {
        Ok(parts) => parts,
        Err(reason) => {
            skip(
                "limits_are_held_by_the_unified_hierarchy_as_root_and_where_it_is_delegated",
                &reason,
            );
            return;
        }
    };
    let place = tempfile::tempdir().expect("a place for the guest");
    let initrd = initrd(place.path(), &busybox);
    let mut command = Command::new("qemu-system-x86_64");
    command.args([
        "-M",
        "q35",
        "-cpu",
        "max",
        "-m",
        "1024",
        "-nographic",
        "-no-reboot",
        "-net",
        "none",
    ]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
    command.args([
        "-append",
        "console=ttyS0 quiet lsm=landlock panic=-1 rdinit=/init",
    ]);
    let said = run(&mut command, b"", BOOT).stdout;
    for section in ["ROOT", "DELEGATED"] {
        let part = said
            .split(&format!("=== {section}"))
            .nth(1)
            .unwrap_or_else(|| panic!("the guest did not get to {section}: {said}"))
            .split("===")
            .next()
            .unwrap_or_default();
        assert!(part.contains("cgroup v2"), "{section}: {part}");
        assert!(part.contains("limit pids = 20 reached"), "{section}: {part}");
        assert!(part.contains("limit memory"), "{section}: {part}");
        assert!(
            part.contains("control rc=0"),
            "{section}: within the limits the same works: {part}"
        );
        assert!(part.contains("groups left: none"), "{section}: {part}");
    }
}

fn parts() -> Result<(PathBuf, PathBuf), String> {
    let kernel = std::env::var_os("BASTLE_VM_KERNEL")
        .map(PathBuf::from)
        .ok_or("BASTLE_VM_KERNEL names no kernel")?;
    let find = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
            .ok_or(format!("{name} is missing"))
    };
    find("qemu-system-x86_64")?;
    Ok((kernel, find("busybox")?))
}

/// A root file system of busybox, bastle and its libraries, packed for the kernel.
fn initrd(place: &Path, busybox: &Path) -> PathBuf {
    let root = place.join("root");
    for directory in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "proc",
        "sys",
        "dev",
        "tmp",
        "root",
        "home",
        "etc",
        "var",
    ] {
        std::fs::create_dir_all(root.join(directory)).expect("own place");
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).expect("own place");
    }
    std::fs::copy(busybox, root.join("usr/bin/busybox")).expect("busybox can be copied");
    for applet in APPLETS {
        symlink("busybox", root.join("usr/bin").join(applet)).expect("own place");
    }
    std::fs::copy(bastle(), root.join("usr/bin/bastle")).expect("bastle can be copied");
    for library in libraries() {
        let target = root.join(library.strip_prefix("/").expect("absolute"));
        let target = target
            .to_str()
            .expect("UTF-8")
            .replace("/root/lib", "/root/usr/lib");
        std::fs::create_dir_all(Path::new(&target).parent().expect("below the root")).expect("own place");
        std::fs::copy(&library, &target).expect("a library can be copied");
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n",
    )
    .expect("own place");
    std::fs::write(root.join("etc/group"), "root:x:0:\nada:x:1000:\n").expect("own place");
    for (name, text) in [
        ("init", include_str!("init.sh")),
        ("guest.sh", include_str!("guest.sh")),
    ] {
        std::fs::write(root.join(name), text).expect("own place");
        std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(0o755)).expect("own file");
    }
    let packed = place.join("initrd");
    let script = format!(
        "find . | '{}' cpio -o -H newc > '{}'",
        busybox.display(),
        packed.display()
    );
    let ended = run(
        Command::new("sh").args(["-c", &script]).current_dir(&root),
        b"",
        Limit::HANG,
    );
    assert_eq!(ended.code, 0, "{ended:?}");
    packed
}

/// What the dynamic loader would load for bastle, and the loader itself.
fn libraries() -> Vec<PathBuf> {
    let ended = run(Command::new("ldd").arg(bastle()), b"", Limit::HANG);
    let paths = ended
        .stdout
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}
