//! The disk and the first memory image of a guest.
use super::archive::{Arch, make, write};
use super::kernel::Kernel;
use crate::sh::{self, Failed};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for the runs of every situation.
const DISK: u64 = 2 << 30;

/// Directories of a root that holds nothing but busybox.
const DIRECTORIES: &[&str] = &[
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/lib64",
    "proc",
    "sys",
    "dev",
    "tmp",
    "root",
    "home/ada",
    "etc",
    "var/tmp",
    "run",
    "hosts",
];

/// The numbers of system calls on architectures without a table of their own, aarch64 among them; from the package of its C
/// library.
const GENERIC_NUMBERS: &str = "/usr/aarch64-linux-gnu/include/asm-generic/unistd.h";

/// From this number on a new system call has the same one on every architecture.
const COMMON_NUMBERS: u32 = 424;

/// Programs of busybox that guests use.
const APPLETS: &[&str] = &[
    "awk", "cat", "chmod", "chown", "cp", "cut", "dd", "echo", "false", "find", "grep", "head", "id",
    "insmod", "ip", "kill", "ln", "ls", "mkdir", "mknod", "mount", "mv", "poweroff", "printf", "ps",
    "readlink", "rm", "rmdir", "rmmod", "sed", "seq", "sh", "sleep", "sort", "stat", "su", "sysctl", "tail",
    "tee", "test", "timeout", "touch", "tr", "true", "umount", "uname", "usleep", "wc", "xargs",
];

/// Files that every guest has below `/hosts`, and whether they are programs.
const GUEST: &[(&str, &str, u32)] = &[
    ("main.sh", include_str!("guest/main.sh"), 0o644),
    ("checks.sh", include_str!("guest/checks.sh"), 0o755),
    ("escapes", include_str!("guest/escapes"), 0o644),
];

/// What goes into a root besides the system.
pub(super) struct Contents<'a> {
    pub(super) bastle: &'a Path,
    pub(super) attacker: &'a Path,
    /// For the fixes that a user is told: no guest has a package with it.
    pub(super) sudo: &'a Path,
    /// The shell lines that name the situations.
    pub(super) plan: &'a str,
    pub(super) arch: Arch,
}

/// A root of busybox alone.
pub(super) fn busybox_root(root: &Path, busybox: &Path) -> Result<(), Failed> {
    for directory in DIRECTORIES {
        make(&root.join(directory))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        link(&format!("usr/{name}"), &root.join(name))?;
    }
    copy(busybox, &root.join("usr/bin/busybox"))?;
    for applet in APPLETS {
        link("busybox", &root.join("usr/bin").join(applet))?;
    }
    write(
        &root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n",
    )?;
    write(&root.join("etc/group"), "root:x:0:\nada:x:1000:\n")?;
    program(
        &root.join("usr/sbin/init"),
        include_str!("guest/busybox.sh"),
        0o755,
    )
}

/// Puts bastle, the attacker, the checks and the plan into a root.
pub(super) fn add(root: &Path, contents: &Contents) -> Result<(), Failed> {
    make(&root.join("hosts"))?;
    for (name, text, mode) in GUEST {
        program(&root.join("hosts").join(name), text, *mode)?;
    }
    write(&root.join("hosts/plan.sh"), contents.plan)?;
    let list = sh::root().join("tests/escape/data/must-deny.txt");
    let read = |path: &Path| std::fs::read_to_string(path).map_err(Failed::io(path.display()));
    let list = match contents.arch {
        Arch::Amd64 => read(&list)?,
        Arch::Arm64 => generic_calls(&read(&list)?, &read(Path::new(GENERIC_NUMBERS))?),
    };
    write(&root.join("hosts/must-deny"), &list)?;
    copy(contents.bastle, &root.join("usr/bin/bastle"))?;
    copy(contents.attacker, &root.join("usr/bin/attacker"))?;
    let sudo = root.join("usr/bin/sudo");
    copy(contents.sudo, &sudo)?;
    std::fs::set_permissions(&sudo, PermissionsExt::from_mode(0o4755)).map_err(Failed::io(sudo.display()))
}

/// The list of calls that must be refused, which has the numbers of x86_64, with the numbers of a header. Calls that the
/// architecture does not have are left out.
fn generic_calls(list: &str, header: &str) -> String {
    let number = |name: &str| {
        let start = format!("#define __NR_{name} ");
        let found = header.lines().find_map(|line| line.strip_prefix(&start));
        found.and_then(|text| text.trim().parse::<u32>().ok())
    };
    let calls = list.lines().filter(|line| !line.starts_with('#'));
    let lines = calls.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, native) = (words.next()?, words.next()?.parse::<u32>().ok()?);
        // One that is newer than the header.
        let number = number(name).or(Some(native).filter(|native| *native >= COMMON_NUMBERS))?;
        Some(format!("{name} {number} -\n"))
    });
    lines.collect()
}

/// Packs a root into an ext4 file system.
pub(super) fn disk(root: &Path, image: &Path) -> Result<(), Failed> {
    let file = std::fs::File::create(image).map_err(Failed::io(image.display()))?;
    file.set_len(DISK).map_err(Failed::io(image.display()))?;
    let mkfs = sh::which("mkfs.ext4").unwrap_or_else(|| PathBuf::from("mkfs.ext4"));
    let mut command = Command::new(mkfs);
    command.args(["-q", "-F", "-d"]).args([root, image]);
    sh::stdout_of(&mut command).map(drop)
}

/// The program that loads modules and goes on to the disk, and what it loads, as the kernel unpacks it.
pub(super) fn initrd(kernel: &Kernel, busybox: &Path, to: &Path) -> Result<(), Failed> {
    let mut archive = Cpio::default();
    for directory in ["bin", "modules", "dev", "proc", "sys", "new"] {
        archive.add(directory, 0o040_755, &[]);
    }
    let read = |path: &Path| std::fs::read(path).map_err(Failed::io(path.display()));
    archive.add("init", 0o100_755, include_bytes!("guest/initrd.sh"));
    archive.add("bin/busybox", 0o100_755, &read(busybox)?);
    for module in kernel.modules()? {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("modules/{name}"), 0o100_644, &read(&module)?);
    }
    let mut file = std::fs::File::create(to).map_err(Failed::io(to.display()))?;
    file.write_all(&archive.finish())
        .map_err(Failed::io(to.display()))
}

/// An archive in the format `newc`, as cpio(5) describes it.
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        self.entry(name, mode, contents);
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        let size = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, links, time, size, four device numbers, length of the name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Failed> {
    std::fs::copy(from, to)
        .map(drop)
        .map_err(Failed::io(format!("{} to {}", from.display(), to.display())))
}

pub(super) fn program(path: &Path, text: &str, mode: u32) -> Result<(), Failed> {
    write(path, text)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(Failed::io(path.display()))
}

pub(super) fn link(target: &str, path: &Path) -> Result<(), Failed> {
    symlink(target, path).map_err(Failed::io(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_numbers_of_the_header_and_those_it_does_not_have_are_left_out() {
        let list = "# name x86_64 i386\nkeyctl 250 288\nafs_syscall 183 137\nlistns 470 470\nreboot 169 88\n";
        let header = "#define __NR_keyctl 219\n#define __NR_reboot 142\n#define __NR_rebooted 1\n";
        assert_eq!(
            generic_calls(list, header),
            "keyctl 219 -\nlistns 470 -\nreboot 142 -\n"
        );
    }

    #[test]
    fn an_archive_has_headers_of_110_bytes_and_everything_at_multiples_of_four() {
        let mut archive = Cpio::default();
        archive.add("init", 0o100_755, b"#!/x\n");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        // 110 bytes of header and `init` with its zero are 115: the contents begin at 116 and end at 121.
        assert_eq!(&bytes[116..121], b"#!/x\n");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(bytes.len().is_multiple_of(4));
        assert!(String::from_utf8_lossy(&bytes).contains("TRAILER!!!"));
    }
}
