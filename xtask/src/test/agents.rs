//! The agents that tests run inside the fence, as they are published: installed once into `target/agents`, by name and
//! version. A host that cannot have them counts them, and every test of theirs, as skipped.
use super::tools;
use crate::sh::{self, Ended, Failed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One agent.
struct Agent {
    package: &'static str,
    version: &'static str,
    program: &'static str,
}

/// Those whose protocols are driven. Another version is a change like any other.
const AGENTS: &[Agent] = &[
    Agent {
        package: "@anthropic-ai/claude-code",
        version: "2.1.197",
        program: "claude",
    },
    Agent {
        package: "@google/gemini-cli",
        version: "0.61.0",
        program: "gemini",
    },
    Agent {
        package: "@openai/codex",
        version: "0.166.0",
        program: "codex",
    },
    Agent {
        package: "opencode-ai",
        version: "1.18.33",
        program: "opencode",
    },
];

/// A gigabyte over a slow line, with room.
const LIMIT: Duration = Duration::from_secs(600);
/// Beside the programs once all of them are there: what was installed.
const WHOLE: &str = "whole";

/// Installs what is not there. The error says why tests will be skipped.
pub(super) fn ensure() -> Result<(), Failed> {
    let place = tools::target_directory()?.join("agents");
    let wanted = wanted(AGENTS);
    if is_whole(&place, &wanted) {
        return Ok(());
    }
    // A half of an earlier attempt, or other versions.
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(Failed::io(place.display()))?;
    }
    std::fs::create_dir_all(&place).map_err(Failed::io(place.display()))?;
    install(&place)?;
    for agent in AGENTS {
        answers(&place, agent)?;
    }
    std::fs::write(place.join(WHOLE), &wanted).map_err(Failed::io(place.display()))
}

/// The packages with their versions, one in a line.
fn wanted(agents: &[Agent]) -> String {
    let lines = agents
        .iter()
        .map(|agent| format!("{}@{}\n", agent.package, agent.version));
    lines.collect()
}

fn is_whole(place: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(place.join(WHOLE)).is_ok_and(|written| written == wanted)
}

fn install(place: &Path) -> Result<(), Failed> {
    println!("  installing agents into {} (once)", place.display());
    let npm = sh::which("npm").ok_or_else(|| Failed::new("npm", "it is not on PATH"))?;
    let mut command = Command::new(npm);
    command
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--prefix",
        ])
        .arg(place)
        .args(wanted(AGENTS).lines())
        .current_dir(place);
    let mut last = Vec::new();
    let ended = sh::stream(&mut command, LIMIT, |line| last.push(line.to_owned()))?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(()),
        other => {
            let from = last.len().saturating_sub(4);
            let why = format!("{other:?}: {}", last[from..].join("; "));
            Err(Failed::new(sh::shown(&command), why))
        }
    }
}

/// Whether the program starts and is of the version asked for. It gets a home of its own, which it may fill.
fn answers(place: &Path, agent: &Agent) -> Result<(), Failed> {
    let program: PathBuf = place.join("node_modules/.bin").join(agent.program);
    let mut command = Command::new(program);
    command
        .arg("--version")
        .current_dir(place)
        .env("HOME", place.join("home"));
    let mut said = String::new();
    sh::stream(&mut command, LIMIT, |line| said.push_str(line))?;
    match said.contains(agent.version) {
        true => Ok(()),
        false => Err(Failed::new(
            format!("{} --version", agent.program),
            format!("says {said:?}, not {}", agent.version),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_installation_or_another_version_is_not_whole() {
        let place = std::env::temp_dir().join(format!("bastle-agents-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a fresh place");
        let now = wanted(AGENTS);
        assert_eq!(now.lines().count(), AGENTS.len());
        assert!(!is_whole(&place, &now), "nothing is there");
        std::fs::write(place.join(WHOLE), "opencode-ai@0.0.1\n").expect("can be written");
        assert!(!is_whole(&place, &now), "another version is there");
        std::fs::write(place.join(WHOLE), &now).expect("can be written");
        assert!(is_whole(&place, &now));
        std::fs::remove_dir_all(&place).expect("can be removed");
    }
}
