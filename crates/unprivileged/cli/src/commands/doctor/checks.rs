//! The checks of `doctor`, one function each.
use super::cause::Proof;
use super::{Check, State, copies};
use bastle_contract::{AbsPath, CgroupFlavour, CgroupProblem, Controller, Fault, HostFacts};
use bastle_control::Place;
use bastle_control::containment::ContainmentVerdict;
use bastle_control::trial::{Outcome, TRIAL_TIME, Trial, TrialSettings};
use bastle_policy::{Effective, Query};
use std::path::{Path, PathBuf};

/// Agents people run, by the name of their program.
const AGENTS: &[&str] = &["claude", "codex", "opencode", "gemini", "aider"];

pub(super) fn kernel(facts: &HostFacts) -> Check {
    let fact = format!("{} {}", facts.kernel, facts.arch);
    match facts.arch.as_str() {
        "x86_64" | "aarch64" => Check::new(State::Ok, "kernel", fact),
        _ => Check::new(State::Warning, "kernel", fact)
            .consequence("the system-call filter was made for x86_64 and aarch64"),
    }
}

/// The proof: a real run of `true` in an empty project; where it failed, with the cause.
pub(super) fn fence(outcome: &Outcome, cause: Option<&Proof>) -> Check {
    let fence = outcome.json["statement"]["fence"].as_str().unwrap_or_default();
    if let (Some(probes), None, 0) = (outcome.probes(), outcome.fault(), outcome.code) {
        return Check::new(
            State::Ok,
            "fence",
            format!("native fence proven, {probes} probes held: {fence}"),
        );
    }
    let (fact, consequence) = match outcome.fault() {
        Some((code, what, why)) => (
            format!("{code}: {what}: {why}"),
            "bastle run refuses to start; nothing runs unfenced by itself",
        ),
        None => {
            let words = outcome.output.lines().last().unwrap_or_default();
            (
                format!("a trial run ended with {}: {words}", outcome.code),
                "bastle run cannot be trusted to work here",
            )
        }
    };
    let check = Check::new(State::Problem, "fence", fact).consequence(consequence);
    match cause {
        Some(cause) => check.because(cause),
        None => check,
    }
}

pub(super) fn notify(facts: &HostFacts) -> Check {
    if facts.seccomp_notify {
        return Check::new(State::Ok, "seccomp", "filter with user notification");
    }
    // The fix is told once, with the cause of the trial that failed.
    Check::new(State::Problem, "seccomp", "no user notification whose caller waits to the end (Linux 5.19)")
        .consequence("names cannot be guarded and writes not counted: hide and protect patterns, disk, files and bytesWritten are not held")
}

/// The container and the kind of kernel: facts, from which nothing follows where the fence works.
pub(super) fn surroundings() -> Vec<Check> {
    let mut found = Vec::new();
    if let Some(container) = super::observe::container() {
        found.push(Check::new(
            State::Info,
            "container",
            format!("this is the inside of a container ({})", container.name()),
        ));
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if release.to_ascii_lowercase().contains("microsoft") {
        found.push(Check::new(
            State::Info,
            "wsl",
            "this is WSL; programs of Windows cannot be started inside the fence",
        ));
    }
    found
}

/// Which mechanism holds each limit, and what would hold it better.
pub(super) fn cgroups(facts: &HostFacts) -> Check {
    let flavour = match facts.cgroup.flavour {
        CgroupFlavour::V2 => "cgroup v2",
        CgroupFlavour::V1 => "cgroup v1",
        CgroupFlavour::None => "no cgroup that this user may write",
    };
    let has = |controller| facts.cgroup.parent(controller).is_some();
    let frozen = facts.cgroup.unified.is_some() || has(Controller::Freezer);
    let held = [
        (
            "memory",
            has(Controller::Memory),
            "rlimit per process and a watchdog for the sum",
        ),
        ("pids", has(Controller::Pids), "rlimit"),
        ("cpu", has(Controller::Cpu), "affinity, whole processors only"),
        ("freeze", frozen, "stop signals from init"),
    ];
    let story: Vec<String> = held
        .iter()
        .map(|(name, by, other)| format!("{name}: {}", if *by { "cgroup" } else { other }))
        .collect();
    let fact = format!("{flavour}; {}", story.join(", "));
    if held.iter().all(|(_, by, _)| *by) {
        return Check::new(State::Ok, "cgroup", fact);
    }
    let check = Check::new(State::Warning, "cgroup", fact)
        .consequence("limits are held by weaker means; fractions of a processor cannot be");
    let why = facts.cgroup.problem.as_ref();
    let check = match why {
        Some(problem) => check.consequence(format!("limits are held by weaker means: {}", problem.why())),
        None => check,
    };
    let fix = match why {
        // What is missing is known; which group to take is not the question.
        Some(problem @ (CgroupProblem::NotMounted | CgroupProblem::NoController { .. })) => problem.fix(),
        Some(_) | None => super::delegation::fix(facts.uid),
    };
    match fix {
        Some(fix) => check.fix(fix),
        None => check,
    }
}

/// Started by root, the workspace is shown to the agent through an idmapped mount: tried on the project's own file system.
pub(super) fn idmap(facts: &HostFacts, state: &Path) -> Result<Option<Check>, Fault> {
    let Some(place) = Place::find(None).ok().filter(|_| facts.authority.is_root()) else {
        return Ok(None);
    };
    let trial = Trial {
        // The place is made for the trial and thrown away: there is nothing a copy would keep.
        mode: "in-place",
        flags: &["--quiet", "--sandbox", "read-only"],
        command: &["true"],
        workspace: place.workspace.as_path(),
        state,
        settings: TrialSettings::Own,
        within: TRIAL_TIME,
    };
    let outcome = trial.run()?;
    Ok(Some(match outcome.fault() {
        None if outcome.code == 0 => Check::new(
            State::Ok,
            "idmap",
            format!(
                "the workspace {} can be mapped to the agent's uid",
                place.workspace
            ),
        ),
        None => Check::new(
            State::Problem,
            "idmap",
            format!("a trial in {} ended with {}", place.workspace, outcome.code),
        ),
        Some((code, what, why)) => Check::new(State::Problem, "idmap", format!("{code}: {what}: {why}"))
            .consequence("runs in this project fail as root")
            .fix("start bastle as the owner of the workspace instead of root"),
    }))
}

/// Where audit logs go: nothing runs when they cannot be written.
pub(super) fn state(place: &Place, fence: ContainmentVerdict) -> Vec<Check> {
    let there = place
        .state
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"));
    // Tried, because permission bits say nothing of read-only and odd file systems, least of all to root.
    let trace = there.join(format!(".bastle-doctor-{}", std::process::id()));
    let writable = std::fs::create_dir(&trace)
        .and_then(|()| std::fs::remove_dir(&trace))
        .is_ok();
    if !writable {
        return vec![
            Check::new(
                State::Problem,
                "state",
                format!("{} cannot be written", there.display()),
            )
            .consequence("no record, no effect: bastle run refuses to start")
            .fix("export XDG_STATE_HOME=DIRECTORY, one that you may write"),
        ];
    }
    let key = place.state.join("audit/key.ed25519");
    let key = if key.exists() {
        "signing key present"
    } else {
        "the signing key is made with the first run"
    };
    let logs = Check::new(
        State::Ok,
        "state",
        format!("audit logs in {}; {key}", place.state.join("audit").display()),
    );
    [logs].into_iter().chain(copies::check(there, fence)).collect()
}

pub(super) fn git() -> Check {
    match on_path("git") {
        Some(path) => Check::new(State::Ok, "git", path.display().to_string()),
        None => Check::new(State::Info, "git", "not found")
            .consequence("the project is the current directory, not the git root"),
    }
}

/// Which agents are there, and whether the policy shows them inside.
pub(super) fn agents(place: &Place, effective: &Effective) -> Vec<Check> {
    let found: Vec<(&str, PathBuf)> = AGENTS
        .iter()
        .filter_map(|name| Some((*name, on_path(name)?)))
        .collect();
    if found.is_empty() {
        return vec![Check::new(
            State::Info,
            "agents",
            format!("none of {} on PATH", AGENTS.join(", ")),
        )];
    }
    let dev = bastle_control::load(
        place,
        &bastle_control::Sources {
            preset: Some("dev".to_owned()),
            ..Default::default()
        },
    )
    .ok();
    let visible = |effective: &Effective, path: &Path| {
        let real = std::fs::canonicalize(path).ok();
        // Without a rule the path is a private place of the run's own: the host's file is not behind it.
        let seen = |path: &Path| {
            AbsPath::from_path(path).is_ok_and(|path| {
                let decision = bastle_policy::decide(effective, &Query::Read(path));
                decision.outcome == bastle_policy::Outcome::Allow && decision.rule.is_some()
            })
        };
        real.is_some_and(|real| seen(&real))
    };
    let mut checks = Vec::new();
    for (name, path) in found {
        let fact = format!("{name} {}", path.display());
        let chosen = with_preset(place, name);
        let brought = chosen
            .as_ref()
            .filter(|(_, loaded)| visible(&loaded.effective, &path));
        if let Some((preset, _)) = brought {
            checks.push(Check::new(
                State::Ok,
                "agent",
                format!("{fact} (preset {preset})"),
            ));
        } else if visible(effective, &path) {
            checks.push(Check::new(State::Ok, "agent", fact));
        } else if dev.as_ref().is_some_and(|dev| visible(&dev.effective, &path)) {
            checks.push(
                Check::new(State::Info, "agent", fact)
                    .consequence("not visible inside with the default preset")
                    .fix(format!("bastle run --preset dev -- {name}")),
            );
        } else {
            let real = std::fs::canonicalize(&path).unwrap_or(path);
            let folder = real.parent().unwrap_or(Path::new("/")).display().to_string();
            checks.push(
                Check::new(State::Info, "agent", fact)
                    .consequence("not visible inside")
                    .fix(format!("bastle run --ro {folder} -- {}", real.display())),
            );
        }
    }
    checks.push(
        Check::new(
            State::Info,
            "network",
            "a run reaches only what its rules allow, through its own proxy",
        )
        .consequence(
            "an agent that calls a model needs its preset, its host in net.allow, or --allow-net HOST",
        ),
    );
    checks
}

/// The policy that a run of this program has, where its name brings a preset.
fn with_preset(place: &Place, program: &str) -> Option<(String, bastle_control::Loaded)> {
    let argv = vec![program.to_owned()];
    let preset = bastle_control::presets::choose(place, None, &argv).ok()?.preset?;
    let sources = bastle_control::Sources {
        preset: Some(preset.clone()),
        argv,
        ..Default::default()
    };
    Some((preset, bastle_control::load(place, &sources).ok()?))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs =
        |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(runs)
}
