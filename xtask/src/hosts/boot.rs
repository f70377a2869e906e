//! Boots a guest with software emulation and reads what it says on its serial console.
use super::archive::{Arch, make};
use crate::sh::{self, Ended, Failed};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Every guest has to be content with this.
const MEMORY: &str = "512M";

/// A guest that takes longer hangs. Software emulation of another architecture is several times slower, and so is a machine with
/// other work.
const LIMIT: Duration = Duration::from_secs(90 * 60);

/// Without cmpxchg16b: QEMU 7.2 emulates it with wrong flags at times, and kernels whose allocator uses it die of a double
/// fault. Without the fifth level of page tables, which costs time alone.
const AMD64_PROCESSOR: &str = "max,-cx16,-la57";

/// How a boot ended.
pub(super) struct Boot {
    pub(super) console: String,
    pub(super) took: Duration,
    /// Why it did not switch itself off; what it said until then counts.
    pub(super) failed: Option<Failed>,
}

/// The emulator of an architecture, and the package that has it.
pub(super) fn emulator(arch: Arch) -> (&'static str, &'static str) {
    match arch {
        Arch::Amd64 => ("qemu-system-x86_64", "qemu-system-x86"),
        Arch::Arm64 => ("qemu-system-aarch64", "qemu-system-arm"),
    }
}

/// Boots and waits until the guest has switched itself off; what it said is kept in `log`.
pub(super) fn boot(
    arch: Arch,
    kernel: &Path,
    initrd: &Path,
    disk: &Path,
    log: &Path,
) -> Result<Boot, Failed> {
    let mut command = Command::new(emulator(arch).0);
    let (machine, console): (&[&str], &str) = match arch {
        Arch::Amd64 => (&["-M", "q35", "-cpu", AMD64_PROCESSOR], "ttyS0"),
        Arch::Arm64 => (&["-M", "virt", "-cpu", "cortex-a72"], "ttyAMA0"),
    };
    command
        .args(machine)
        .args(["-accel", "tcg", "-m", MEMORY, "-smp", "1"]);
    command.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
    command.arg("-drive").arg(format!(
        "file={},format=raw,if=none,id=disk,cache=unsafe",
        disk.display()
    ));
    command.args(["-device", "virtio-blk-pci,drive=disk"]);
    command.arg("-append").arg(format!(
        "console={console} quiet loglevel=1 panic=-1 systemd.show_status=no systemd.log_level=emerg"
    ));
    let started = Instant::now();
    let mut said = String::new();
    let ended = sh::stream(&mut command, LIMIT, |line| {
        let line = line.trim_end_matches('\r');
        let failed = line.contains("@hosts ") && line.contains(" failed ");
        if failed || line.contains("@begin ") || line.contains("@kernel ") {
            println!("  {}", line.split_once('@').map_or(line, |(_, rest)| rest));
        }
        said.push_str(line);
        said.push('\n');
    })?;
    if let Some(parent) = log.parent() {
        make(parent)?;
    }
    std::fs::write(log, &said).map_err(Failed::io(log.display()))?;
    let failed = match ended {
        Ended::Exited(status) if status.success() => None,
        Ended::Exited(status) => Some(Failed::new(emulator(arch).0, status.to_string())),
        Ended::TooLong(limit) => Some(Failed::new(
            "guest",
            format!("still working after {} s, ended", limit.as_secs()),
        )),
    };
    Ok(Boot {
        console: said,
        took: started.elapsed(),
        failed,
    })
}
