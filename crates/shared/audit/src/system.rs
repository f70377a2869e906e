//! What a run is on: told in the first record of every log.
//!
//! **Trust:** the host's own files. What cannot be read is empty; nothing depends on it.
use crate::sanitize;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Most of any file that is read, and longest text kept.
const MAX_FILE: u64 = 8 * 1024;
const MAX_TEXT: usize = 256;

/// The host and the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Name and version of the distribution, from `os-release`.
    pub os: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Its build, which tells patched ones apart.
    pub build: String,
    /// The machine.
    pub machine: String,
    /// Version of bastle.
    pub bastle: String,
    /// Security modules of the kernel that are active, as it lists them.
    pub lsm: String,
    /// How control groups are mounted.
    pub cgroup: CgroupMode,
}

/// How control groups are mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupMode {
    /// Version 2 alone.
    V2,
    /// Version 1, with or without version 2 beside it.
    V1,
    /// Not at all, or not where they usually are.
    #[default]
    None,
}

impl System {
    /// This host.
    #[must_use]
    pub fn of_this_host() -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| short(&part.to_string_lossy());
        let release = first(&["/etc/os-release", "/usr/lib/os-release"]);
        Self {
            os: pretty_name(&release),
            kernel: text(uname.release()),
            build: text(uname.version()),
            machine: text(uname.machine()),
            bastle: env!("CARGO_PKG_VERSION").to_owned(),
            lsm: short(&first(&["/sys/kernel/security/lsm"])),
            cgroup: cgroup(),
        }
    }
}

fn cgroup() -> CgroupMode {
    let exists = |path: &str| std::path::Path::new(path).exists();
    if exists("/sys/fs/cgroup/cgroup.controllers") {
        CgroupMode::V2
    } else if exists("/sys/fs/cgroup/memory")
        || exists("/sys/fs/cgroup/pids")
        || exists("/sys/fs/cgroup/unified")
    {
        CgroupMode::V1
    } else {
        CgroupMode::None
    }
}

/// The first file that can be read.
fn first(paths: &[&str]) -> String {
    let read = |path: &&str| {
        let mut text = Vec::new();
        let file = std::fs::File::open(path).ok()?;
        file.take(MAX_FILE).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    paths.iter().find_map(read).unwrap_or_default()
}

fn pretty_name(release: &str) -> String {
    let value = |key: &str| {
        let line = release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim().trim_matches(['"', '\'']).to_owned())
    };
    short(&value("PRETTY_NAME").or_else(|| value("ID")).unwrap_or_default())
}

/// On one line, visible, and of bounded length.
fn short(text: &str) -> String {
    let mut clean = sanitize(text.trim());
    let cut = (0..=MAX_TEXT.min(clean.len()))
        .rev()
        .find(|at| clean.is_char_boundary(*at));
    clean.truncate(cut.unwrap_or(0));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_with_kernel_and_version() {
        let system = System::of_this_host();
        assert!(!system.kernel.is_empty() && !system.machine.is_empty());
        assert_eq!(system.bastle, env!("CARGO_PKG_VERSION"));
        assert_eq!(
            pretty_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n"),
            "Debian GNU/Linux 13 (trixie)"
        );
        assert_eq!(pretty_name("ID='arch'\n"), "arch");
        assert!(short(&"\u{e4}".repeat(1_000)).len() <= MAX_TEXT);
    }
}
