//! `bastle run`: from the command line to the agent's exit code.
use super::host;
use super::launch_approval::launch_approval;
use super::run_args::{Backend, RunArgs};
use super::run_copying::Copying;
use super::run_voice::{Loudness, RunVoice, denial_code};
use crate::context::{Context, Format};
use crate::render::clean;
use bastle_contract::{Code, ExitCode, Fault, HostFacts, LaunchPlan, RunId};
use bastle_control::presets::{self, Chosen};
use bastle_control::workspaces::{self, Making, Which, WorkEnd, WorkFacts, WorkHistory, WorkWish};
use bastle_control::{
    Egress, Helpers, Launch, Loaded, Place, Receipt, Rules, Sharing, Sources, Spawner, learn, review,
};
use bastle_policy::Planned;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Runs the command; the exit code is the agent's own or one of [`ExitCode`].
pub(crate) fn run(args: RunArgs, cx: &Context) -> u8 {
    let format = if args.json { Format::Json } else { Format::Human };
    match attempt(&args, cx) {
        Ok(code) => code,
        Err(faults) => {
            cx.report(&faults, format);
            ExitCode::Failed as u8
        }
    }
}

/// Everything that a run of either backend starts from.
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) loaded: Loaded,
    pub(super) rules: Rules,
    pub(super) launch: Launch,
    /// Which preset, and who chose it.
    pub(super) chosen: Chosen,
    /// Another run's tree to begin with.
    pub(super) from: Option<(RunId, Which)>,
}

fn attempt(args: &RunArgs, cx: &Context) -> Result<u8, Vec<Fault>> {
    let one = |fault| vec![fault];
    not_nested().map_err(one)?;
    if args.detach && !args.dry_run_policy {
        return super::detach::run(args, cx);
    }
    let backend = args.chosen_backend().map_err(one)?;
    // The agent's output must not mix with the JSON object, whichever backend runs it.
    let out = if args.json && !args.dry_run_policy {
        Some(divert_output().map_err(one)?)
    } else {
        None
    };
    match backend {
        Backend::Host => host::run(args, prepare(args)?, out, cx),
        Backend::Native => {
            // First of all: it looks at the host while the policy is read here.
            let spawner = Spawner::start().map_err(one)?;
            // A dry run executes nothing, and what is offline needs none.
            let egress = if args.net.is_offline() || args.dry_run_policy {
                None
            } else {
                Some(Egress::start().map_err(one)?)
            };
            native(args, prepare(args)?, Helpers { spawner, egress }, out, cx)
        }
    }
}

fn prepare(args: &RunArgs) -> Result<Prepared, Vec<Fault>> {
    let one = |fault| vec![fault];
    let (place, from) = from_whom(args).map_err(one)?;
    let Here { sources, chosen, .. } = sources_here(args, &place)?;
    let mut loaded = bastle_control::load(&place, &sources)?;
    let rules = Rules::new(&place, &sources, &mut loaded).map_err(one)?;
    let stdio = args.stdio().map_err(one)?;
    let argv = args.argv().map_err(one)?;
    let approval = launch_approval(args, &loaded, &argv).map_err(one)?;
    let launch = Launch {
        run: args.run_id().map_err(one)?,
        argv,
        env: args.variables().map_err(one)?,
        stdio,
        waivers: args.waivers().map_err(one)?,
        debuggers: !args.no_debuggers,
        attendance: args.attendance(stdio),
        approval,
        parent: None,
        sharing: if args.share_workspace {
            Sharing::Allowed
        } else {
            Sharing::Refused
        },
    };
    Ok(Prepared {
        place,
        loaded,
        rules,
        launch,
        chosen,
        from,
    })
}

/// What flags mean in the current directory.
pub(super) struct Here {
    pub(super) directory: PathBuf,
    pub(super) sources: Sources,
    pub(super) chosen: Chosen,
}

/// The current directory, and what the flags say about policy when they are read there.
pub(super) fn sources_here(args: &RunArgs, place: &Place) -> Result<Here, Vec<Fault>> {
    let here = std::env::current_dir().map_err(|error| {
        vec![Fault::new(
            Code::WorkspaceInvalid,
            "the current directory cannot be used",
            error.to_string(),
        )]
    })?;
    let mut sources = args.sources(&here, &place.home)?;
    let argv = args.argv().map_err(|fault| vec![fault])?;
    let chosen = presets::choose(place, sources.preset.as_deref(), argv.as_slice())?;
    sources.preset = chosen.preset.clone();
    sources.argv = argv.as_slice().to_vec();
    Ok(Here {
        directory: here,
        sources,
        chosen,
    })
}

/// Where the run happens, and whose tree it begins with: that run's project is this run's.
pub(super) fn from_whom(args: &RunArgs) -> Result<(Place, Option<(RunId, Which)>), Fault> {
    let Some((name, which)) = args.origin()? else {
        return Place::find(args.workspace_dir.as_deref()).map(|place| (place, None));
    };
    let at = review::Whereabouts {
        state: Place::without_project()?.state,
        project: Place::find(args.workspace_dir.as_deref())
            .ok()
            .map(|place| place.workspace.as_path().to_path_buf()),
    };
    let space = review::open(&at, Some(name))?.space;
    let place = Place::find(Some(space.source()))?;
    match (&args.workspace_dir, &at.project) {
        (Some(named), Some(project)) if project != place.workspace.as_path() => Err(super::run_args::usage(
            format!(
                "--from {name} and --workspace-dir {} contradict each other",
                named.display()
            ),
            format!("run {} works on {}", space.run(), place.workspace),
        )),
        _ => Ok((place, Some((space.run().clone(), which)))),
    }
}

fn native(
    args: &RunArgs,
    prepared: Prepared,
    helpers: Helpers,
    out: Option<File>,
    cx: &Context,
) -> Result<u8, Vec<Fault>> {
    let Prepared {
        place,
        loaded,
        rules,
        launch,
        chosen,
        from,
    } = prepared;
    // Never given back piece by piece: the process ends with the run, and somebody waits for that.
    let loaded = ManuallyDrop::new(loaded);
    let loudness = if args.quiet {
        Loudness::Quiet
    } else {
        Loudness::Normal
    };
    let mut voice = RunVoice::new(cx.err, loudness, &place, &loaded);
    voice.chosen_by_command = chosen.from_command;
    if let (Some(note), Loudness::Normal) = (&chosen.note, loudness) {
        cx.note(&format!("! {}", crate::render::clean(note)));
    }
    let mut copying = Copying::new(cx.err, loudness);
    let wish = WorkWish {
        mode: args.work_mode().map_err(|fault| vec![fault])?,
        from,
        branch: args.branch.clone(),
        history: WorkHistory::from(args.hide_history),
        making: if args.dry_run_policy {
            Making::Never
        } else {
            Making::Now
        },
        progress: &mut |progress| copying.show(progress),
    };
    let ready = bastle_control::prepare_in(&place, &loaded, rules, helpers, launch, Some(wish));
    copying.end();
    let ready = ready.map_err(|fault| vec![fault])?;
    let work = ready.work();
    if args.dry_run_policy {
        return dry_run(args, &loaded, &ready.planned, &work, cx);
    }
    voice.works_in(&work);
    let plan = ready.planned.plan.clone();
    let facts = ready.facts.clone();
    let receipt = bastle_control::run(&place, ready, &mut voice).map_err(|fault| vec![fault])?;
    voice.receipt(&receipt);
    if let Some(fault) = &receipt.fault {
        cx.report(std::slice::from_ref(fault), Format::Human);
    }
    if let Some(Some(file)) = &args.net.learn {
        let run = std::slice::from_ref(&plan.run);
        let saved = learn::propose(&place.state, run, 1).and_then(|rules| learn::save(file, &rules));
        cx.note(&super::learn::saved(
            file,
            saved.map_err(|fault| vec![fault])?,
            cx,
        ));
    }
    let code = final_code(args, &receipt);
    if let Some(out) = out {
        let story = Story {
            place: &place,
            work: &work,
            plan: &plan,
            facts: &facts,
            receipt: &receipt,
            code,
        };
        write_object(out, &document(&story, Some(&voice))).map_err(|fault| vec![fault])?;
    }
    Ok(code)
}

/// Shows the plan and executes nothing: the caller drops the spawner, which was not asked for anything.
pub(super) fn dry_run(
    args: &RunArgs,
    loaded: &Loaded,
    planned: &Planned,
    work: &WorkFacts,
    cx: &Context,
) -> Result<u8, Vec<Fault>> {
    let mut rendered = bastle_policy::render_dry_run(&loaded.effective, planned, Some(&loaded.baseline));
    let mode = workspaces::word(work.mode);
    rendered.json["workspace"] = json!({ "mode": mode, "source": work.source });
    rendered
        .text
        .push_str(&format!("workspace: {mode} {}\n", clean(work.source.as_str())));
    let printed = if args.json {
        cx.print_json(&rendered.json)
    } else {
        cx.print(&rendered.text)
    };
    Ok(match printed {
        Ok(()) => 0,
        Err(failed) => failed.exit(ExitCode::Failed as u8).tell(cx, Format::Human),
    })
}

/// The receipt's code, unless denials are to fail the run. A failure of the run itself says more than they do.
pub(super) fn final_code(args: &RunArgs, receipt: &Receipt) -> u8 {
    let own = receipt.fault.is_some() || receipt.killed.is_some();
    if args.fail_on_deny && receipt.denials > 0 && !own {
        ExitCode::Denied as u8
    } else {
        receipt.code
    }
}

/// bastle does not nest: inside a fence it could build no other, and would only pretend.
fn not_nested() -> Result<(), Fault> {
    match std::env::var_os("AGENT_IN_SANDBOX") {
        Some(value) if value == "1" => Err(Fault::new(
            Code::FenceNested,
            "already inside a fence",
            "AGENT_IN_SANDBOX=1 is set, and bastle does not nest",
        )
        .help("run the command directly: the outer fence holds for it")),
        Some(_) | None => Ok(()),
    }
}

/// Makes standard output a second standard error and gives back what it was.
fn divert_output() -> Result<File, Fault> {
    let fault = |error: rustix::io::Errno| {
        Fault::new(
            Code::UsageArgument,
            "cannot set standard output aside for --json",
            error.to_string(),
        )
    };
    let kept = rustix::io::fcntl_dupfd_cloexec(std::io::stdout().as_fd(), 3).map_err(fault)?;
    rustix::stdio::dup2_stdout(std::io::stderr()).map_err(fault)?;
    Ok(File::from(kept))
}

/// What the JSON receipt tells.
pub(super) struct Story<'a> {
    pub(super) place: &'a Place,
    pub(super) work: &'a WorkFacts,
    pub(super) plan: &'a LaunchPlan,
    pub(super) facts: &'a HostFacts,
    pub(super) receipt: &'a Receipt,
    pub(super) code: u8,
}

/// `bastle.run/v1`.
pub(super) fn document(story: &Story<'_>, voice: Option<&RunVoice<'_>>) -> Value {
    let Story {
        place,
        work,
        plan,
        facts,
        receipt,
        code,
    } = story;
    let denied: Vec<Value> = voice
        .map(|voice| voice.denied.as_slice())
        .unwrap_or_default()
        .iter()
        .map(|(id, denied)| json!({ "id": id, "code": denial_code(denied).to_string(), "event": denied }))
        .collect();
    json!({
        "schema": "bastle.run/v1",
        "run": plan.run,
        "backend": plan.backend,
        "argv": plan.argv,
        "workspace": tree(work, receipt.work.as_ref()),
        "policy": plan.policy,
        "host": { "kernel": facts.kernel, "arch": facts.arch, "landlock_abi": facts.landlock_abi, "landlock": facts.landlock, "cgroup": facts.cgroup.flavour },
        "limits": plan.limits,
        "waivers": plan.waivers,
        "exit": code,
        "agent_exit": receipt.code,
        "fault": receipt.fault,
        "killed": receipt.killed,
        "usage": receipt.usage,
        "steps_us": receipt.steps,
        "findings": voice.map(|voice| voice.findings.as_slice()).unwrap_or_default(),
        "denials": { "count": receipt.denials, "first": denied },
        "net": receipt.net,
        "files": receipt.files,
        "caches": receipt.caches,
        "net_denials": voice.map(|voice| voice.net_denied.as_slice()).unwrap_or_default(),
        "limits_hit": receipt.limits,
        "output_discarded": receipt.discarded,
        "audit": { "log": log_path(&place.state, plan.run.as_str()), "records": receipt.records, "sealed": true },
        "statement": voice.and_then(|voice| voice.statement.as_ref()),
    })
}

/// The tree that the agent worked in.
fn tree(work: &WorkFacts, end: Option<&WorkEnd>) -> Value {
    let made = work.made.as_ref();
    let changed = end.and_then(|end| end.summary.as_ref()).map(|summary| {
        json!({
            "files": summary.files,
            "added": summary.added,
            "removed": summary.removed,
            "held": summary.held,
            "refused": summary.refused,
            "ignored": summary.ignored,
        })
    });
    json!({
        "mode": workspaces::word(work.mode),
        "source": work.source,
        "tree": work.tree.as_ref().unwrap_or(&work.source),
        "branch": made.and_then(|made| made.branch.as_deref()),
        "copied": made.map(|made| json!({
            "files": made.files,
            "bytes": made.bytes,
            "seconds": made.millis as f64 / 1000.0,
            "left_out": made.left_out,
            "notes": made.notes,
        })),
        "changed": changed,
        "in_git": end.map(|end| end.in_git.as_slice()).unwrap_or_default(),
        "kept": end.is_none_or(|end| end.kept),
        "fault": end.and_then(|end| end.fault.as_ref()),
    })
}

fn log_path(state: &Path, run: &str) -> String {
    state
        .join("audit")
        .join(run)
        .join("log.jsonl")
        .display()
        .to_string()
}

/// Writes one object and a line end.
pub(super) fn write_object(mut out: File, value: &Value) -> Result<(), Fault> {
    out.write_all(format!("{value}\n").as_bytes()).map_err(|error| {
        Fault::new(
            Code::UsageArgument,
            "cannot write the JSON receipt",
            error.to_string(),
        )
    })
}
