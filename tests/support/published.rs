//! Programs as others publish them, installed once beside what cargo builds.
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of packages from PyPI: the one that a variable names, or one of a place of its own that holds just these.
pub(crate) fn from_pypi(
    variable: &str,
    place: &str,
    packages: &[&str],
    program: &str,
) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(variable) {
        return Ok(named.into());
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(place);
    let (program, whole) = (place.join("bin").join(program), place.join("whole"));
    if whole.is_file() {
        return Ok(program);
    }
    let step = |command: &mut Command| {
        let ended = command.output().map_err(|error| error.to_string())?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        }
    };
    step(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&place),
    )?;
    step(
        Command::new(place.join("bin/pip"))
            .args(["install", "-q"])
            .args(packages),
    )?;
    std::fs::write(&whole, "").map_err(|error| error.to_string())?;
    Ok(program)
}
