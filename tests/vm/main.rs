//! What this host cannot show, in a virtual machine: limits by cgroup v2, as root and delegated to an ordinary user, where
//! its controllers are bound to the old hierarchies; and the fence on a kernel that lacks parts of Landlock. Needs
//! `qemu-system-x86_64`, a static `busybox`, and kernels: in `BASTLE_VM_KERNEL` a Linux 6.12 or newer, in
//! `BASTLE_VM_OLD_KERNEL` one of 5.19 to 6.11, in `BASTLE_VM_NEW_KERNEL` a Linux 7.1 or newer; unnamed, those that
//! `cargo xtask test` has downloaded. Without them a test counts as skipped, with the reason.
#![allow(clippy::expect_used, clippy::panic)]

mod doctor;
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
    "poweroff", "sed", "rmdir", "chmod", "grep", "head", "rm", "wc", "tee", "id", "cp", "umount",
];

/// Programs of the host that the guest uses, with their libraries.
const PROGRAMS: &[&str] = &["unshare", "setfattr"];

#[test]
fn limits_are_held_by_the_unified_hierarchy_as_root_and_where_it_is_delegated() {
    let said = match boot("BASTLE_VM_KERNEL", include_str!("guest.sh")) {
        Ok(said) => said,
        Err(reason) => {
            skip(
                "limits_are_held_by_the_unified_hierarchy_as_root_and_where_it_is_delegated",
                &reason,
            );
            return;
        }
    };
    for section in ["ROOT", "DELEGATED"] {
        let part = section_of(&said, section);
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

#[test]
fn groups_that_were_given_are_used_and_all_others_are_left_alone() {
    let name = "groups_that_were_given_are_used_and_all_others_are_left_alone";
    let said = match boot("BASTLE_VM_KERNEL", include_str!("groups.sh")) {
        Ok(said) => said,
        Err(reason) => return skip(name, &reason),
    };
    let refused = ["BST-LIM-009", "run rc=125"];
    let held = ["cgroup v2", "INSIDE", "run rc=0"];
    let parts: [(&str, [&str; 2], &[&str]); 7] = [
        (
            "UNDELEGATED",
            refused,
            &[
                "/others is not writable for this user",
                "handed down in others: .",
            ],
        ),
        ("FIXED", [held[0], held[2]], &["sudo rc=0", "INSIDE"]),
        (
            "UNIT",
            refused,
            &[
                "other.service of systemd, which is not delegated",
                "systemd-run --scope -p Delegate=yes",
                "handed down in system.slice/other.service: .",
            ],
        ),
        (
            "MARKED",
            [held[0], held[2]],
            &[
                "handed down in system.slice/other.service: cpu memory pids.",
                "own group /system.slice/other.service/bastle.processes",
            ],
        ),
        (
            "LOST",
            ["BST-LIM-011", "run rc=125"],
            &["limits.cpu does not hold any more", "cpu.max is gone", "INSIDE"],
        ),
        (
            "NAMESPACE",
            [held[0], held[2]],
            &[
                "own group /bastle.processes",
                "handed down in engine: cpu memory pids.",
            ],
        ),
        ("READONLY", refused, &["/sys/fs/cgroup is mounted read-only"]),
    ];
    for (section, outcome, more) in parts {
        let part = section_of(&said, section);
        for words in outcome.iter().chain(more) {
            assert!(part.contains(words), "{section} without {words:?}: {part}");
        }
        for left in part.lines().filter(|line| line.starts_with("groups left: ")) {
            assert_eq!(left.trim_end(), "groups left: none", "{section}: {part}");
        }
    }
}

#[test]
fn on_a_kernel_that_lacks_parts_of_landlock_runs_start_and_what_replaces_them_holds() {
    let said = match boot("BASTLE_VM_OLD_KERNEL", include_str!("old.sh")) {
        Ok(said) => said,
        Err(reason) => {
            skip(
                "on_a_kernel_that_lacks_parts_of_landlock_runs_start_and_what_replaces_them_holds",
                &reason,
            );
            return;
        }
    };
    let part = section_of(&said, "USER");
    for words in [
        "signals: pid-ns",
        "abstract sockets: net-ns",
        "started",
        "wrote",
        "run rc=0",
        "doctor rc=0",
    ] {
        assert!(part.contains(words), "{words}: {part}");
    }
    assert!(
        !part.contains("SIGNALLED") && !part.contains("TRUNCATED"),
        "{part}"
    );
}

#[test]
fn on_a_kernel_with_path_sockets_in_landlock_those_of_the_host_are_refused_also_where_they_are_in_view() {
    let said = match boot("BASTLE_VM_NEW_KERNEL", include_str!("new.sh")) {
        Ok(said) => said,
        Err(reason) => {
            skip(
                "on_a_kernel_with_path_sockets_in_landlock_those_of_the_host_are_refused_also_where_they_are_in_view",
                &reason,
            );
            return;
        }
    };
    let part = section_of(&said, "USER");
    for words in [
        "unfenced: OK",
        "fenced: EACCES",
        "own: OK",
        "broker: OK",
        "run rc=0",
        "landlock-unix",
        "doctor rc=0",
    ] {
        assert!(part.contains(words), "{words}: {part}");
    }
    assert!(!part.contains("path sockets: mount-ns"), "{part}");
}

/// What a guest said between one heading and the next.
fn section_of<'a>(said: &'a str, section: &str) -> &'a str {
    let after = said.split(&format!("=== {section}")).nth(1);
    let part = after.and_then(|part| part.split("===").next());
    part.unwrap_or_else(|| panic!("the guest did not get to {section}: {said}"))
}

/// Boots the kernel that the variable names, with a script as its first program; what it said, or what is missing.
fn boot(variable: &str, guest: &str) -> Result<String, String> {
    let (kernel, busybox) = parts(variable)?;
    let place = tempfile::tempdir().expect("a place for the guest");
    let initrd = initrd(place.path(), &busybox, guest);
    let mut command = Command::new("qemu-system-x86_64");
    // QEMU 7.2 spoils the flags of an emulated cmpxchg16b now and then, and the guest ends with a double fault.
    command.args([
        "-M",
        "q35",
        "-cpu",
        // QEMU 7.2 emulates cmpxchg16b with wrong flags at times: kernels that use it die of a double fault.
        "max,-cx16,-la57",
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
        "console=ttyS0 quiet lsm=landlock,yama panic=-1 rdinit=/init",
    ]);
    Ok(run(&mut command, b"", BOOT).stdout)
}

/// The kernel that the step `kernels` of `cargo xtask test` keeps for this variable.
fn downloaded(variable: &str) -> Option<PathBuf> {
    let suite = match variable {
        "BASTLE_VM_KERNEL" => "trixie",
        "BASTLE_VM_OLD_KERNEL" => "bookworm",
        // No suite has one yet that is newer than both.
        _ => return None,
    };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let kernel = target.join(format!("hosts/kernels/{suite}-amd64/vmlinuz"));
    kernel.is_file().then_some(kernel)
}

fn parts(variable: &str) -> Result<(PathBuf, PathBuf), String> {
    let kernel = std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| downloaded(variable))
        .ok_or(format!(
            "{variable} names no kernel, and cargo xtask test has downloaded none"
        ))?;
    for program in ["qemu-system-x86_64"].iter().chain(PROGRAMS) {
        on_path(program)?;
    }
    Ok((kernel, on_path("busybox")?))
}

fn on_path(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .ok_or(format!("{name} is missing"))
}

/// A root file system of busybox, bastle and its libraries, packed for the kernel.
fn initrd(place: &Path, busybox: &Path, guest: &str) -> PathBuf {
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
    std::fs::copy(support::attacker(), root.join("usr/bin/attacker")).expect("the attacker can be copied");
    let programs: Vec<PathBuf> = PROGRAMS.iter().filter_map(|name| on_path(name).ok()).collect();
    for program in &programs {
        let name = program.file_name().expect("is a program");
        std::fs::copy(program, root.join("usr/bin").join(name)).expect("a program can be copied");
    }
    let needed = programs.iter().map(PathBuf::as_path).chain([bastle()]);
    for library in needed.flat_map(libraries) {
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
    for (name, text) in [("init", include_str!("init.sh")), ("guest.sh", guest)] {
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

/// What the dynamic loader would load for a program, and the loader itself.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let ended = run(Command::new("ldd").arg(program), b"", Limit::HANG);
    let paths = ended
        .stdout
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}
