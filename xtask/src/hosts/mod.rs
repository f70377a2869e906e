//! `cargo xtask test --hosts`: real kernels and systems as guests under software emulation, and in each what bastle does there.
//!
//! Trust: as `test`. Guests have no network. What they run is this tree's own; their kernels and systems are Debian's and Ubuntu's,
//! checked by apt.
pub(crate) mod archive;
mod boot;
mod guests;
mod image;
mod kernel;
mod report;
mod table;
mod userland;

use crate::dist;
use crate::sh::{self, Failed};
use crate::test::{packages, stage::Stage, tools};
use archive::Arch;
use guests::{GUESTS, Guest, Userland};
use kernel::Kernel;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    record: bool,
    list: bool,
    binaries: Vec<PathBuf>,
    name: Option<String>,
    /// Situations of that guest, with commas between; all where there is none.
    situations: Option<String>,
}

/// The programs that every guest of an architecture gets.
struct Programs {
    arch: Arch,
    bastle: PathBuf,
    attacker: PathBuf,
    sudo: PathBuf,
    busybox: PathBuf,
}

/// How a guest came out, for the closing lines.
enum Outcome {
    AsExpected,
    Otherwise,
    Skipped(String),
}

/// Boots the guests one after the other and prints their tables.
pub(crate) fn main(arguments: &[String]) -> Result<(), Failed> {
    let options = parse(arguments)?;
    let chosen: Vec<&Guest> = GUESTS
        .iter()
        .filter(|guest| options.name.as_deref().is_none_or(|name| guest.name == name))
        .collect();
    let names: Vec<&str> = GUESTS.iter().map(|guest| guest.name).collect();
    if options.list {
        for guest in GUESTS {
            let situations: Vec<&str> = guest.situations().map(|situation| situation.name).collect();
            println!("{}: {}", guest.name, situations.join(" "));
        }
        return Ok(());
    }
    let is_known = |name: &str| {
        let mut all = chosen.iter().flat_map(|guest| guest.situations());
        all.any(|situation| situation.name == name)
    };
    let mut asked = options.situations.iter().flat_map(|names| names.split(','));
    if let Some(name) = asked.find(|name| !is_known(name)) {
        return Err(Failed::new(
            name,
            "no such situation; test --hosts --list names them",
        ));
    }
    if chosen.is_empty() {
        let known = format!("no such guest; there are: {}", names.join(", "));
        return Err(Failed::new(options.name.unwrap_or_default(), known));
    }
    packages::ensure_guests()?;
    if chosen.iter().any(|guest| guest.arch == Arch::Arm64) {
        packages::ensure_aarch64_guests()?;
    }
    let mut made: Vec<Programs> = Vec::new();
    let mut recorded = Vec::new();
    let mut counts = [0; 3];
    for guest in chosen {
        println!("guest {}", guest.name);
        let (outcome, lines) = match try_guest(guest, &options, &mut made) {
            Ok((wrong, lines)) => (
                if wrong {
                    Outcome::Otherwise
                } else {
                    Outcome::AsExpected
                },
                lines,
            ),
            Err(Trouble::Missing(failed)) => (Outcome::Skipped(failed.to_string()), Vec::new()),
            Err(Trouble::Failed(failed)) => {
                println!("guest {}: FAILED: {failed}", guest.name);
                (Outcome::Otherwise, Vec::new())
            }
        };
        if !lines.is_empty() {
            recorded.push((guest.name, lines));
        }
        counts[match outcome {
            Outcome::AsExpected => 0,
            Outcome::Otherwise => 1,
            Outcome::Skipped(reason) => {
                println!("guest {}: skipped: {reason}", guest.name);
                2
            }
        }] += 1;
    }
    if options.record {
        table::record(&recorded)?;
    }
    let [good, bad, skipped] = counts;
    println!("{good} guests as expected, {bad} otherwise, {skipped} skipped");
    if bad == 0 { Ok(()) } else { Err(Failed::told()) }
}

/// Why a guest was not tried, or how trying it failed.
enum Trouble {
    Missing(Failed),
    Failed(Failed),
}

/// Boots one guest: whether anything is otherwise than expected, and its rows.
fn try_guest(
    guest: &Guest,
    options: &Options,
    made: &mut Vec<Programs>,
) -> Result<(bool, Vec<String>), Trouble> {
    let hosts = directory().map_err(Trouble::Failed)?;
    let kernel = Kernel::fetch(&hosts, guest.suite, guest.arch).map_err(Trouble::Missing)?;
    let system = match guest.userland {
        Userland::Busybox => None,
        Userland::Systemd(release) => {
            Some(userland::tree(&hosts, release, guest.arch).map_err(Trouble::Missing)?)
        }
    };
    if !made.iter().any(|programs| programs.arch == guest.arch) {
        made.push(programs(&hosts, guest.arch, options).map_err(Trouble::Missing)?);
    }
    let programs = made
        .iter()
        .find(|programs| programs.arch == guest.arch)
        .ok_or_else(|| Trouble::Failed(Failed::new(guest.name, "no programs")))?;
    let wanted = (guest, options.situations.as_deref());
    run(wanted, &hosts, &kernel, system.as_deref(), programs).map_err(Trouble::Failed)
}

fn run(
    (guest, situations): (&Guest, Option<&str>),
    hosts: &Path,
    kernel: &Kernel,
    system: Option<&Path>,
    programs: &Programs,
) -> Result<(bool, Vec<String>), Failed> {
    let stage = Stage::new("guest")?;
    let root = stage.path().join("root");
    match system {
        Some(tree) => userland::copy(tree, &root)?,
        None => image::busybox_root(&root, &programs.busybox)?,
    }
    let contents = image::Contents {
        bastle: &programs.bastle,
        attacker: &programs.attacker,
        sudo: &programs.sudo,
        plan: &guest.plan(situations),
        arch: guest.arch,
    };
    image::add(&root, &contents)?;
    let disk = stage.path().join("disk");
    image::disk(&root, &disk)?;
    let initrd = stage.path().join("initrd");
    image::initrd(kernel, &programs.busybox, &initrd)?;
    let some = situations.map_or_else(String::new, |names| format!("-{names}"));
    let log = hosts.join("logs").join(format!("{}{some}.log", guest.name));
    let boot = boot::boot(guest.arch, &kernel.image(), &initrd, &disk, &log)?;
    let report = report::Report::read(&boot.console);
    let rows = report.judge(guest, situations);
    let lines = table::lines(guest, &report, &rows);
    for line in &lines {
        println!("  {line}");
    }
    let mut otherwise = boot.failed.is_some();
    if let Some(failed) = &boot.failed {
        println!("  {failed}");
    }
    for row in &rows {
        for wrong in &row.wrong {
            otherwise = true;
            println!("  {}: {wrong}", row.situation);
        }
    }
    println!(
        "  {}: {} in {:.0} s; console: {}",
        guest.name,
        if otherwise {
            "NOT as expected"
        } else {
            "as expected"
        },
        boot.took.as_secs_f64(),
        log.display()
    );
    Ok((otherwise, lines))
}

/// Where kernels, systems and consoles are kept.
pub(crate) fn directory() -> Result<PathBuf, Failed> {
    let hosts = tools::target_directory()?.join("hosts");
    archive::make(&hosts)?;
    Ok(hosts)
}

/// The newest kernel of a suite for this machine's own processor; the error says why there is none.
pub(crate) fn kernel_image(suite: &str) -> Result<PathBuf, Failed> {
    let arch = Arch::own().ok_or_else(|| Failed::new(std::env::consts::ARCH, "has no kernels here"))?;
    Ok(Kernel::fetch(&directory()?, suite, arch)?.image())
}

fn programs(hosts: &Path, arch: Arch, options: &Options) -> Result<Programs, Failed> {
    let target = match arch {
        Arch::Amd64 => dist::Target::X86_64,
        Arch::Arm64 => dist::Target::Aarch64,
    };
    let given = options
        .binaries
        .iter()
        .find(|path| std::fs::read(path).is_ok_and(|bytes| dist::check_for(&bytes, target).is_ok()));
    let bastle = match given {
        Some(path) => path.clone(),
        None => dist::build_for(target)?,
    };
    Ok(Programs {
        arch,
        bastle,
        attacker: compile(hosts, arch, "attacker", "tests/escape/attacker")?,
        sudo: compile(hosts, arch, "sudo", "xtask/src/hosts/guest")?,
        busybox: kernel::busybox(hosts, arch)?,
    })
}

/// A static program for a guest, of every C source in a directory of this tree.
fn compile(hosts: &Path, arch: Arch, name: &str, sources: &str) -> Result<PathBuf, Failed> {
    let program = hosts.join(format!("{name}-{}", arch.debian()));
    let compiler = match arch {
        _ if Arch::own() == Some(arch) => "cc",
        Arch::Amd64 => "x86_64-linux-gnu-gcc",
        Arch::Arm64 => "aarch64-linux-gnu-gcc",
    };
    let sources = sh::root().join(sources);
    let mut command = Command::new(compiler);
    // In place at once: another guest's run may be copying it.
    let partial = program.with_extension(std::process::id().to_string());
    command
        .args(["-static", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(&partial);
    for entry in std::fs::read_dir(&sources).map_err(Failed::io(sources.display()))? {
        let path = entry.map_err(Failed::io(sources.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            command.arg(path);
        }
    }
    sh::stdout_of(&mut command)?;
    std::fs::rename(&partial, &program).map_err(Failed::io(program.display()))?;
    Ok(program)
}

fn parse(arguments: &[String]) -> Result<Options, Failed> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--record" => options.record = true,
            "--list" => options.list = true,
            "--bin" => match words.next() {
                Some(path) => options.binaries.push(PathBuf::from(path)),
                None => return Err(Failed::new("--bin", "needs a path")),
            },
            name if !name.starts_with('-') && options.name.is_none() => match name.split_once('/') {
                Some((guest, situations)) => {
                    options.name = Some(guest.to_owned());
                    options.situations = Some(situations.to_owned());
                }
                None => options.name = Some(name.to_owned()),
            },
            other => {
                return Err(Failed::new(
                    "test --hosts",
                    format!("unexpected argument {other:?}"),
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_named_once_and_binaries_as_often_as_there_are_architectures() {
        let parsed = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let options = parsed(&["--record", "--bin", "a", "6.1/root,user", "--bin", "b"]).unwrap();
        assert_eq!(
            (options.name.as_deref(), options.situations.as_deref()),
            (Some("6.1"), Some("root,user"))
        );
        assert!(options.record && options.binaries.len() == 2);
        for wrong in [&["a", "b"][..], &["--bin"], &["--all"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
