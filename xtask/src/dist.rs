//! `cargo xtask dist`: the binary as it is shipped, for this machine's processor or by a cross compiler for another.
//!
//! Linked statically, and still at a random address: it starts without a dynamic loader, which took a
//! tenth of a short run, and one file runs on every distribution. The names of hosts
//! are resolved by egress itself, so the C library's loadable modules are not missed.
use crate::sh::{self, Failed};
use crate::test::tools;
use std::path::{Path, PathBuf};

/// A processor that the binary is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    X86_64,
    Aarch64,
}

impl Target {
    const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// As rustc names the processor.
    fn arch(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The processor's number in an ELF file (`e_machine`).
    fn machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.arch())
    }

    fn is_own(self) -> bool {
        std::env::consts::ARCH == self.arch()
    }

    /// The compiler that links for it, by the name of Debian's package `gcc-…`.
    fn linker(self) -> String {
        format!("{}-linux-gnu-gcc", self.arch())
    }

    /// A processor by its name or by the name of its target.
    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|target| name == target.arch() || name == target.triple())
    }
}

/// Builds it, checks it and says where it is.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let binary = match words[..] {
        [] => build()?,
        ["--target", name] => {
            let target =
                Target::named(name).ok_or_else(|| Failed::new("dist --target", "one of: x86_64, aarch64"))?;
            build_for(target)?
        }
        _ => {
            return Err(Failed::new(
                "dist",
                format!("unexpected arguments: {}", words.join(" ")),
            ));
        }
    };
    println!("{}", binary.display());
    Ok(())
}

/// Static; and with its own addresses, which it has to correct at every start, as a short list instead of one of a megabyte.
const FLAGS: &str = "-Ctarget-feature=+crt-static -Clink-arg=-Wl,-z,pack-relative-relocs";

/// Builds it for this machine and checks that it is what it is said to be.
pub(crate) fn build() -> Result<PathBuf, Failed> {
    let binary = compile(&host()?, None)?;
    let bytes = std::fs::read(&binary).map_err(Failed::io(binary.display()))?;
    check(&bytes).map_err(|why| Failed::new(binary.display().to_string(), why))?;
    runs(&binary)?;
    Ok(binary)
}

/// Builds it for a processor, by a cross compiler where it is not this machine's own. What cannot be run here is only read.
pub(crate) fn build_for(target: Target) -> Result<PathBuf, Failed> {
    if target.is_own() {
        return build();
    }
    let linker = target.linker();
    if sh::which(&linker).is_none() {
        let arch = target.arch().replace('_', "-");
        return Err(Failed::new(
            linker,
            format!("is missing; run: apt-get install gcc-{arch}-linux-gnu"),
        ));
    }
    tools::ensure_target(&target.triple())?;
    let binary = compile(&target.triple(), Some(&linker))?;
    let bytes = std::fs::read(&binary).map_err(Failed::io(binary.display()))?;
    check_for(&bytes, target).map_err(|why| Failed::new(binary.display().to_string(), why))?;
    Ok(binary)
}

fn compile(target: &str, linker: Option<&str>) -> Result<PathBuf, Failed> {
    println!("building bastle as it is shipped (profile dist, static, {target})");
    let mut command = sh::cargo();
    // With a target named, the flags are for what is shipped alone: macros that run in the compiler cannot be static.
    command
        .args(["build", "--profile", "dist", "--quiet", "--package", "bastle"])
        .args(["--target", target])
        .env("RUSTFLAGS", FLAGS);
    if let Some(linker) = linker {
        let name = target.replace('-', "_");
        command
            .env(
                format!("CARGO_TARGET_{}_LINKER", name.to_ascii_uppercase()),
                linker,
            )
            .env(format!("CC_{name}"), linker);
    }
    sh::stdout_of(&mut command)?;
    Ok(tools::target_directory()?.join(target).join("dist/bastle"))
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

/// How an ELF file of 64 bits and little-endian words begins.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// A program header that names a dynamic loader.
const INTERPRETER: u32 = 3;
/// The type of a file that is loaded at any address.
const ANYWHERE: u16 = 3;

/// The same of a file for a processor.
pub(crate) fn check_for(elf: &[u8], target: Target) -> Result<(), String> {
    let machine = elf.get(18..20).and_then(|bytes| bytes.try_into().ok());
    if machine.map(u16::from_le_bytes) != Some(target.machine()) {
        return Err(format!("it is not for {}", target.arch()));
    }
    match target {
        Target::X86_64 => check(elf),
        // rustc 1.95 links no static program for aarch64 at a random address: this one has a fixed one.
        Target::Aarch64 => needs_no_loader(elf),
    }
}

/// Whether an ELF file is independent of a loader and of its address.
pub(crate) fn check(elf: &[u8]) -> Result<(), String> {
    let kind = elf.get(16..18).and_then(|bytes| bytes.try_into().ok());
    if elf.starts_with(MAGIC) && kind.map(u16::from_le_bytes) != Some(ANYWHERE) {
        return Err(
            "it can be loaded at one address only: the kernel cannot make it hard to find".to_owned(),
        );
    }
    needs_no_loader(elf)
}

fn needs_no_loader(elf: &[u8]) -> Result<(), String> {
    let at = |from: usize, length: usize| elf.get(from..from + length).unwrap_or_default();
    let short = |from| u16::from_le_bytes(at(from, 2).try_into().unwrap_or_default());
    let word = |from| u32::from_le_bytes(at(from, 4).try_into().unwrap_or_default());
    if !elf.starts_with(MAGIC) {
        return Err("it is no ELF file of 64 bits".to_owned());
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
    use super::{Target, check, check_for};

    #[test]
    fn a_binary_for_one_processor_is_not_taken_for_one_of_another() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let [own, other] = match Target::ALL {
            [first, second] if first.is_own() => [first, second],
            [first, second] => [second, first],
        };
        assert_eq!(check_for(&this, own).unwrap_err(), "it needs a dynamic loader");
        assert!(check_for(&this, other).unwrap_err().contains("not for"));
        assert_eq!(Target::named("aarch64"), Some(Target::Aarch64));
        assert_eq!(Target::named("aarch64-unknown-linux-gnu"), Some(Target::Aarch64));
        assert_eq!(Target::named("riscv64"), None);
    }

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
