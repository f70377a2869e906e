//! Cargo's helpers: found when installed, else built once into `target/tools`.
use crate::sh::{self, Ended, Failed};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The version of cargo-deny that `deny.toml` was written for.
const CARGO_DENY: &str = "0.20.2";

/// The version of cargo-nextest that `.config/nextest.toml` was written for.
const CARGO_NEXTEST: &str = "0.9.143";

/// The profile in which tools are built: what they do for us takes a second or two.
const UNOPTIMISED: &[(&str, &str)] = &[("OPT_LEVEL", "0"), ("LTO", "off"), ("DEBUG", "false")];

/// A compile of a large tool on two slow cores, with room.
const INSTALL_LIMIT: Duration = Duration::from_secs(1500);

/// Where cargo puts what it builds, absolute.
pub(crate) fn target_directory() -> Result<PathBuf, Failed> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut command = sh::cargo();
    command.args(["metadata", "--format-version=1", "--no-deps"]);
    let json = sh::stdout_of(&mut command)?;
    serde_json::from_str::<Metadata>(&json)
        .map(|metadata| metadata.target_directory)
        .map_err(|error| Failed::new("cargo metadata", error.to_string()))
}

/// cargo-deny, installed if it has to be.
pub(super) fn cargo_deny() -> Result<PathBuf, Failed> {
    installed("cargo-deny", Some(CARGO_DENY))
}

/// `tool` from PATH or `target/tools`, built there when it is in neither.
pub(crate) fn installed(tool: &str, version: Option<&str>) -> Result<PathBuf, Failed> {
    let tools = target_directory()?.join("tools");
    let ours = tools.join("bin").join(tool);
    if let Some(found) = [sh::which(tool), Some(ours.clone())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
    {
        return Ok(found);
    }
    println!("  installing {tool} into {} (once)", tools.display());
    let mut command = sh::cargo();
    command.args(["install", "--locked", "--quiet", tool]);
    if let Some(version) = version {
        command.args(["--version", version]);
    }
    // Outside our own target directory, so that its build is thrown away and only the program stays.
    command.arg("--root").arg(&tools).env_remove("CARGO_TARGET_DIR");
    // It is compiled for longer than it ever runs.
    for (setting, value) in UNOPTIMISED {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    let mut last = String::new();
    match sh::stream(&mut command, INSTALL_LIMIT, |line| line.clone_into(&mut last))? {
        Ended::Exited(status) if status.success() => Ok(ours),
        other => Err(Failed::new(
            format!("cargo install {tool}"),
            format!("{other}: {last}"),
        )),
    }
}

/// cargo-nextest, installed if it has to be: tests count on a process of their own each.
pub(super) fn cargo_nextest() -> Result<PathBuf, Failed> {
    installed("cargo-nextest", Some(CARGO_NEXTEST))
}

/// Makes sure that `target` can be compiled for; the error says why not.
pub(crate) fn ensure_target(target: &str) -> Result<(), Failed> {
    let mut sysroot = Command::new("rustc");
    sysroot.current_dir(sh::root()).args(["--print", "sysroot"]);
    let libraries = PathBuf::from(sh::stdout_of(&mut sysroot)?.trim())
        .join("lib/rustlib")
        .join(target);
    if libraries.is_dir() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.current_dir(sh::root()).args(["target", "add", target]);
    sh::stdout_of(&mut add).map(drop)
}
