//! `cargo xtask dist`: the binary as it is shipped.
//!
//! Linked statically, and still at a random address: it starts without a dynamic loader, which took a
//! tenth of a short run, and one file runs on every distribution. The names of hosts
//! are resolved by egress itself, so the C library's loadable modules are not missed.
use crate::sh::{self, Failed};
use crate::test::tools;
use std::path::{Path, PathBuf};

/// Builds it, checks it and says where it is.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    if let Some(word) = arguments.first() {
        return Err(Failed::new("dist", format!("unexpected argument {word:?}")));
    }
    let binary = build()?;
    println!("{}", binary.display());
    Ok(())
}

/// Static; and with its own addresses, which it has to correct at every start, as a short list instead of one of a megabyte.
const FLAGS: &str = "-Ctarget-feature=+crt-static -Clink-arg=-Wl,-z,pack-relative-relocs";

/// Builds it and checks that it is what it is said to be.
pub(crate) fn build() -> Result<PathBuf, Failed> {
    let target = host()?;
    println!("building bastle as it is shipped (profile dist, static, {target})");
    let mut command = sh::cargo();
    // With a target named, the flags are for what is shipped alone: macros that run in the compiler cannot be static.
    command
        .args(["build", "--profile", "dist", "--quiet", "--package", "bastle"])
        .args(["--target", &target])
        .env("RUSTFLAGS", FLAGS);
    sh::stdout_of(&mut command)?;
    let binary = tools::target_directory()?.join(&target).join("dist/bastle");
    let bytes = std::fs::read(&binary).map_err(Failed::io(binary.display()))?;
    check(&bytes).map_err(|why| Failed::new(binary.display().to_string(), why))?;
    runs(&binary)?;
    Ok(binary)
}

/// The target that rustc compiles for by default.
pub(crate) fn host() -> Result<String, Failed> {
    let text = sh::stdout_of(std::process::Command::new("rustc").arg("-vV"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Failed::new("rustc -vV", "does not name its host"))
}

fn runs(binary: &Path) -> Result<(), Failed> {
    sh::stdout_of(std::process::Command::new(binary).arg("version")).map(|_| ())
}

/// A program header that names a dynamic loader.
const INTERPRETER: u32 = 3;
/// The type of a file that is loaded at any address.
const ANYWHERE: u16 = 3;

/// Whether an ELF file is independent of a loader and of its address.
pub(crate) fn check(elf: &[u8]) -> Result<(), String> {
    let at = |from: usize, length: usize| elf.get(from..from + length).unwrap_or_default();
    let short = |from| u16::from_le_bytes(at(from, 2).try_into().unwrap_or_default());
    let word = |from| u32::from_le_bytes(at(from, 4).try_into().unwrap_or_default());
    if at(0, 6) != b"\x7fELF\x02\x01" {
        return Err("it is no ELF file of 64 bits".to_owned());
    }
    if short(16) != ANYWHERE {
        return Err(
            "it can be loaded at one address only: the kernel cannot make it hard to find".to_owned(),
        );
    }
    let headers = word(32) as usize;
    let (size, count) = (usize::from(short(54)), usize::from(short(56)));
    if (0..count).any(|index| word(headers + index * size) == INTERPRETER) {
        return Err("it needs a dynamic loader".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_binary_that_needs_a_loader_is_not_taken_for_a_static_one() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(check(&this).unwrap_err(), "it needs a dynamic loader");
        // The same without that header: nothing else is wrong with it.
        let mut without = this.clone();
        let headers = usize::try_from(u32::from_le_bytes(this[32..36].try_into().unwrap())).unwrap();
        let size = usize::from(u16::from_le_bytes(this[54..56].try_into().unwrap()));
        let count = usize::from(u16::from_le_bytes(this[56..58].try_into().unwrap()));
        for index in 0..count {
            let at = headers + index * size;
            if without[at..at + 4] == 3u32.to_le_bytes() {
                without[at..at + 4].copy_from_slice(&0u32.to_le_bytes());
            }
        }
        assert_eq!(check(&without), Ok(()));
        without[16] = 2;
        assert!(check(&without).unwrap_err().contains("one address"));
        assert!(check(b"#!/bin/sh").is_err());
    }
}
