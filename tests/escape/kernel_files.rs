//! Attacks on what the kernel shows as files: devices, /proc, control groups, mounts. The host is looked at after each.
use crate::filesystem::{all, text};
use crate::support::{Identity, Limit, for_each_identity, run};
use std::process::Command;

#[test]
fn device_nodes_cannot_be_made() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 4] = [
            &["mknod", "mem", "c", "1", "1"],
            &["mknod", "disk", "b", "8", "0"],
            &["mknod", "zero", "c", "1", "5"],
            &["mkdir", "harmless"],
        ];
        assert_eq!(lab.fenced(&attacks), ["EPERM", "EPERM", "EPERM", "OK"]);
        for name in ["mem", "disk", "zero"] {
            assert!(!lab.workspace().join(name).exists());
        }
        if lab.identity == Identity::Root {
            let seen = lab.unfenced(&attacks[2..3]);
            assert!(
                lab.workspace().join("zero").exists(),
                "control: root outside can: {seen:?}"
            );
        }
    });
}

#[test]
fn only_the_minimal_devices_exist() {
    for_each_identity(|lab| {
        let forbidden = [
            "mem",
            "kmsg",
            "vda",
            "sda",
            "fuse",
            "net/tun",
            "kvm",
            "loop-control",
            "loop0",
            "vsock",
            "userfaultfd",
            "vhost-net",
            "console",
            "tty0",
            "input",
            "dri",
            "snd",
            "mapper/control",
            "hpet",
            "port",
            "cpu_dma_latency",
            "rtc0",
            "uinput",
        ]
        .map(|name| format!("/dev/{name}"));
        let attacks: Vec<[&str; 2]> = forbidden.iter().map(|path| ["open", path.as_str()]).collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        assert_eq!(lab.fenced(&attacks), all("ENOENT", attacks.len()));
        let present: [&[&str]; 6] = [
            &["open", "/dev/null"],
            &["open", "/dev/zero"],
            &["open", "/dev/full"],
            &["open", "/dev/random"],
            &["open", "/dev/urandom"],
            &["open", "/dev/ptmx"],
        ];
        assert_eq!(lab.fenced(&present), all("OK", 6), "control");
        if lab.identity == Identity::Root {
            let outside = lab.unfenced(&attacks);
            assert!(
                outside.contains(&"OK".to_owned()),
                "control: root outside opens some: {outside:?}"
            );
        }
    });
}

#[test]
fn cgroup_files_cannot_be_reached() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 6] = [
            &["open-write", "/sys/fs/cgroup/cgroup.procs"],
            &["open-write", "/sys/fs/cgroup/memory/release_agent"],
            &["open-write", "/sys/fs/cgroup/pids/notify_on_release"],
            &["stat", "/sys"],
            &["mount", "cgroup", "x", "."],
            &["mount", "cgroup2", "x", "."],
        ];
        let expected = ["ENOENT", "ENOENT", "ENOENT", "ENOENT", "EPERM", "EPERM"];
        assert_eq!(lab.fenced(&attacks), expected);
        assert_eq!(
            lab.unfenced(&attacks[3..4]),
            all("OK", 1),
            "control: the host has /sys"
        );
    });
}

#[test]
fn files_of_the_kernel_are_masked_and_its_settings_read_only() {
    for_each_identity(|lab| {
        let masked = [
            "kcore",
            "keys",
            "key-users",
            "timer_list",
            "sched_debug",
            "kallsyms",
            "kmsg",
            "slabinfo",
            "sysrq-trigger",
        ]
        .map(|name| format!("/proc/{name}"));
        let mut attacks: Vec<[&str; 2]> = masked.iter().map(|path| ["read", path.as_str()]).collect();
        attacks.extend([
            ["read", "/sys/firmware/acpi/tables/DSDT"],
            ["read", "/sys/kernel/notes"],
            ["read", "/proc/self/status"],
        ]);
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let seen = lab.fenced(&attacks);
        for (attack, errno) in attacks.iter().zip(&seen).take(masked.len() + 2) {
            assert!(
                ["EACCES", "ENOENT"].contains(&errno.as_str()),
                "{attack:?}: {errno}"
            );
        }
        assert_eq!(
            seen.last().map(String::as_str),
            Some("OK"),
            "control: the process's own files"
        );
        let settings: [&[&str]; 4] = [
            &["open-write", "/proc/sys/kernel/hostname"],
            &["open-write", "/proc/sys/kernel/core_pattern"],
            &["open-write", "/proc/sys/vm/drop_caches"],
            &["open-write", "/proc/sysrq-trigger"],
        ];
        let seen = lab.fenced(&settings);
        assert_eq!(
            seen[..3],
            all("EACCES", 3),
            "Landlock speaks before the read-only mount"
        );
        // Some kernels have no such file.
        assert!(["EACCES", "ENOENT"].contains(&seen[3].as_str()), "{seen:?}");
        if lab.identity == Identity::Root {
            assert_eq!(
                lab.unfenced(&settings[..3]),
                all("OK", 3),
                "control: root outside"
            );
            assert_eq!(
                lab.unfenced(&[&["read", "/proc/kallsyms"]]),
                all("OK", 1),
                "control: root outside"
            );
        }
    });
}

#[test]
fn the_root_cannot_be_changed_and_nothing_can_be_mounted_or_unmounted() {
    for_each_identity(|lab| {
        let secret = lab.project(".env", "CANARY");
        lab.project("sub/file", "x");
        let attacks: [&[&str]; 7] = [
            &["chroot", "sub"],
            &["unshare-mount", "sub"],
            &["mount", "tmpfs", "x", "sub"],
            &["mount", "bind", "/usr", "sub"],
            &["mount", "proc", "x", "sub"],
            &["umount", text(&secret)],
            &["umount", "/proc/kcore"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        assert_eq!(seen, all("EPERM", 7), "{output:?}");
        for call in ["chroot", "unshare", "mount", "umount2"] {
            let told = output.denials(call);
            assert!(!told.is_empty(), "{call} is not in the audit: {output:?}");
            assert_eq!(
                (told[0]["kind"].as_str(), told[0]["errno"].as_str()),
                (Some("syscall"), Some("EPERM"))
            );
        }
        assert_eq!(
            lab.fenced(&[&["read", text(&secret)]]),
            all("EACCES", 1),
            "still covered"
        );
        if lab.identity == Identity::Root {
            let control = lab.unfenced(&[&["chroot", "sub"], &["unshare-mount", "sub"]]);
            assert_eq!(control, all("OK", 2), "control: root outside");
        }
    });
}

#[test]
fn no_mount_of_a_run_appears_on_a_host_whose_mounts_are_shared() {
    for_each_identity(|lab| {
        if lab.identity != Identity::Root {
            return; // Of an ordinary user's mounts the kernel makes slaves: nothing passes to the host.
        }
        lab.project(".env", "SECRET=1");
        lab.project(".git/HEAD", "ref: refs/heads/main");
        lab.plant(&lab.workspace().join(".git/hooks/sample"), "");
        let started = lab.fence().command(["sh", "-c", "echo ran"]);
        let workspace = text(&lab.workspace()).to_owned();
        // systemd makes every mount shared; here one is, in a mount namespace of its own.
        let script = "mount --bind \"$0\" \"$0\" && mount --make-shared \"$0\" && cd \"$0\" || exit 99\n\
                      \"$@\"\necho \"ended $?\"\ngrep \" $0\" /proc/self/mountinfo";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(&workspace)
            .arg(started.get_program())
            .args(started.get_args());
        command.env_clear();
        for (name, value) in started.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let ended = run(&mut command, b"", Limit::HANG);
        assert!(
            ended.stdout.starts_with("ran\nended 0\n"),
            "control: the run works: {ended:?}"
        );
        let mounts: Vec<&str> = ended.stdout.lines().skip(2).collect();
        assert!(
            mounts.first().is_some_and(|own| own.contains(" shared:")),
            "control: the project is on a shared mount: {ended:?}"
        );
        assert_eq!(mounts.len(), 1, "only the test's own mount: {mounts:?}");
    });
}
