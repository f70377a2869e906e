//! `cargo xtask package`: a Debian package, a list of what is in the binary, and their checksums.
//!
//! The same commit and the same binary give the same bytes: every time in them is SOURCE_DATE_EPOCH, or that of the
//! commit. Nothing is downloaded and nothing of the machine gets in.
mod control;
mod sbom;
mod tree;

use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use crate::test::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    kind: Kind,
}

/// Whether the binary must be one that can be shipped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[default]
    Shipped,
    /// For tests of the package itself. Its version says so.
    AsBuilt,
}

/// What the package is made of and when.
struct Package<'a> {
    binary: &'a Path,
    version: String,
    /// Debian's name of the architecture.
    architecture: &'static str,
    /// Seconds since 1970 that every file is dated with.
    epoch: u64,
    kind: Kind,
}

/// Makes everything and says where it is.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    let options = parse(arguments)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => crate::dist::build()?,
    };
    let out = match options.out {
        Some(out) => out,
        None => tools::target_directory()?.join("package"),
    };
    std::fs::create_dir_all(&out).map_err(Failed::io(out.display()))?;
    let bytes = std::fs::read(&binary).map_err(Failed::io(binary.display()))?;
    let version = match options.kind {
        Kind::Shipped => {
            crate::dist::check(&bytes).map_err(|why| Failed::new(binary.display().to_string(), why))?;
            env!("CARGO_PKG_VERSION").to_owned()
        }
        Kind::AsBuilt => concat!(env!("CARGO_PKG_VERSION"), "+asbuilt").to_owned(),
    };
    let package = Package {
        binary: &binary,
        version,
        architecture: architecture(&bytes).map_err(|why| Failed::new(binary.display().to_string(), why))?,
        epoch: epoch()?,
        kind: options.kind,
    };
    let stage = Stage::new("package")?;
    let deb = build(&package, &stage, &out)?;
    let list = out.join(format!("bastle-{}.cdx.json", package.version));
    std::fs::write(&list, sbom::make(&package.version)?).map_err(Failed::io(list.display()))?;
    let sums = checksums(&out, &[&deb, &list])?;
    for file in [deb, list, sums] {
        println!("{}", file.display());
    }
    Ok(())
}

/// Lays out the tree and has `dpkg-deb` pack it.
fn build(package: &Package<'_>, stage: &Stage, out: &Path) -> Result<PathBuf, Failed> {
    let root = stage.path().join("root");
    tree::lay_out(package, &root)?;
    control::write(package, &root)?;
    let deb = out.join(format!("bastle_{}_{}.deb", package.version, package.architecture));
    let mut command = Command::new("dpkg-deb");
    let packing = match package.kind {
        Kind::Shipped => "-Zxz",
        // Quick: nobody downloads it.
        Kind::AsBuilt => "-Zgzip",
    };
    let pains = match package.kind {
        Kind::Shipped => "-z6",
        Kind::AsBuilt => "-z1",
    };
    // One thread: with several the compressed bytes depend on their number.
    command
        .args(["--root-owner-group", packing, pains, "--threads-max=1", "--build"])
        .args([&root, &deb])
        .env("SOURCE_DATE_EPOCH", package.epoch.to_string());
    sh::stdout_of(&mut command)?;
    Ok(deb)
}

/// Writes SHA256SUMS as `sha256sum --check` reads it.
fn checksums(out: &Path, files: &[&Path]) -> Result<PathBuf, Failed> {
    let mut command = Command::new("sha256sum");
    command.current_dir(out);
    command.args(files.iter().filter_map(|file| file.file_name()));
    let text = sh::stdout_of(&mut command)?;
    let sums = out.join("SHA256SUMS");
    std::fs::write(&sums, text).map_err(Failed::io(sums.display()))?;
    Ok(sums)
}

/// SOURCE_DATE_EPOCH where it is set, else the time of the commit.
fn epoch() -> Result<u64, Failed> {
    let (what, text) = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => ("SOURCE_DATE_EPOCH", text),
        Err(_) => {
            let mut log = Command::new("git");
            log.current_dir(sh::root()).args(["log", "-1", "--format=%ct"]);
            ("the time of the commit", sh::stdout_of(&mut log)?)
        }
    };
    text.trim()
        .parse()
        .map_err(|_| Failed::new(what, format!("{text:?} is no number of seconds")))
}

/// Debian's name for the machine an ELF file is for.
fn architecture(elf: &[u8]) -> Result<&'static str, String> {
    match elf.get(18..20) {
        Some([62, 0]) => Ok("amd64"),
        Some([183, 0]) => Ok("arm64"),
        other => Err(format!(
            "it is for a machine that bastle is not made for: {other:?}"
        )),
    }
}

fn parse(arguments: &[String]) -> Result<Options, Failed> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let slot = match word.as_str() {
            "--bin" => &mut options.binary,
            "--out" => &mut options.out,
            "--as-built" => {
                options.kind = Kind::AsBuilt;
                continue;
            }
            other => return Err(Failed::new("package", format!("unexpected argument {other:?}"))),
        };
        let value = words
            .next()
            .ok_or_else(|| Failed::new("package", format!("{word} needs a path")))?;
        // Programs are started in other directories.
        *slot = Some(std::path::absolute(value).map_err(Failed::io(value))?);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, Failed> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn unknown_words_and_options_without_a_path_are_refused() {
        assert_eq!(
            parsed(&["--bin", "/b", "--out", "/o", "--as-built"]),
            Ok(Options {
                binary: Some("/b".into()),
                out: Some("/o".into()),
                kind: Kind::AsBuilt,
            })
        );
        assert!(parsed(&["--bin"]).is_err());
        assert!(parsed(&["--force"]).is_err());
    }

    #[test]
    fn a_binary_for_an_unknown_machine_is_not_packed() {
        let mut elf = vec![0; 64];
        elf[18] = 62;
        assert_eq!(architecture(&elf), Ok("amd64"));
        elf[18] = 183;
        assert_eq!(architecture(&elf), Ok("arm64"));
        elf[18] = 40;
        assert!(architecture(&elf).is_err());
        assert!(architecture(b"").is_err());
    }
}
