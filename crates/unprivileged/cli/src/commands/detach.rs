//! `bastle run -d`: the flags become a request on disk, a keeper is started for it, and this process goes.
use super::run::{Here, from_whom, sources_here};
use super::run_args::{Backend, RunArgs, usage};
use crate::context::{Context, Format};
use crate::render::clean;
use bastle_contract::runs::{Attended, LaunchSpec, RawSpec, RunFile, Tags, TtySize};
use bastle_contract::{AbsPath, Code, ExitCode, Fault, RunId, Stdio};
use bastle_control::Place;
use bastle_control::backend::NativeBackend;
use bastle_control::runs::RunDir;
use serde_json::json;
use std::collections::BTreeMap;

/// Starts the run in the background. The exit code: 0 when the agent works, else as `run` has it.
pub(super) fn run(args: &RunArgs, cx: &Context) -> Result<u8, Vec<Fault>> {
    let one = |fault| vec![fault];
    can_travel(args).map_err(one)?;
    let (place, spec, told) = request(args)?;
    let (dir, file) = NativeBackend::new(&place.state).start(&spec)?;
    if never_executed(&file) {
        let format = if args.json { Format::Json } else { Format::Human };
        cx.report(file.fault.as_slice(), format);
        return Ok(file.code.unwrap_or(ExitCode::NotFound as u8));
    }
    started(args, (&dir, &file), &told, cx)
}

/// Whether the program was not there, or could not be executed.
fn never_executed(file: &RunFile) -> bool {
    let code = file.fault.as_ref().map(|fault| fault.code);
    matches!(code, Some(Code::ExecNotFound | Code::ExecFailed))
}

fn started(
    args: &RunArgs,
    (dir, file): (&RunDir, &RunFile),
    told: &[String],
    cx: &Context,
) -> Result<u8, Vec<Fault>> {
    let name = dir.name();
    let printed = if args.json {
        cx.print_json(&json!({
            "schema": "bastle.started/v1",
            "run": name,
            "state": file.state,
            "keeper": file.keeper,
            "directory": dir.path(),
        }))
    } else {
        cx.print(&format!("{name}\n"))
    };
    if let Err(failed) = printed {
        return Ok(failed.exit(ExitCode::Failed as u8).tell(cx, Format::Human));
    }
    if !args.quiet && !args.json {
        for line in told {
            cx.note(&format!("  {}", clean(line)));
        }
        cx.note(&format!("  bastle logs -f {name}    what it prints"));
        cx.note(&format!(
            "  bastle attach {name}     type into it; ctrl-] d leaves it running"
        ));
        cx.note(&format!("  bastle stop {name}       end it"));
    }
    Ok(0)
}

/// What a run in the background cannot have is refused by name.
fn can_travel(args: &RunArgs) -> Result<(), Fault> {
    let refused = |flag: &str, why: &str| usage(format!("{flag} cannot be used with -d"), why);
    if args.chosen_backend()? == Backend::Host {
        return Err(refused(
            "--backend host",
            "nobody would see what runs without a fence",
        ));
    }
    if args.net.learn.is_some() {
        return Err(refused(
            "--learn",
            "its rules are written when run ends, and run ends at once",
        )
        .help("bastle run --learn=FILE -- CMD, without -d"));
    }
    if args.fail_on_deny {
        return Err(
            refused("--fail-on-deny", "the exit code of run -d is not the agent's")
                .help("bastle wait RUN, and the denials of bastle inspect RUN --json"),
        );
    }
    Ok(())
}

/// The flags as a request.
fn request(args: &RunArgs) -> Result<(Place, LaunchSpec, Vec<String>), Vec<Fault>> {
    let one = |fault| vec![fault];
    let (place, from) = from_whom(args).map_err(one)?;
    let Here {
        directory: here,
        sources,
        chosen,
    } = sources_here(args, &place)?;
    // Read here too, so that a mistake is told as `run` tells it.
    let loaded = bastle_control::load(&place, &sources)?;
    let argv = args.argv().map_err(one)?;
    let approval = super::launch_approval::launch_approval(args, &loaded, &argv).map_err(one)?;
    let approved = approval == bastle_policy::LaunchApproval::Person;
    let mut told = Vec::new();
    if let Some(preset) = chosen.preset.as_deref().filter(|_| chosen.from_command) {
        told.push(format!("preset: {preset} (from the command)"));
    }
    told.extend(chosen.note.iter().map(|note| format!("! {note}")));
    if let Some(agent) = loaded.agent {
        told.extend(agent.told);
        told.extend(agent.warnings.iter().map(|line| format!("! {line}")));
    }
    args.waivers().map_err(one)?;
    let policy = args
        .document(&here, &place.home)
        .map_err(one)?
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| one(usage("unusable flags", error.to_string())))?;
    let files = args
        .policy
        .iter()
        .map(|file| real(file))
        .collect::<Result<_, _>>()
        .map_err(one)?;
    let spec = RawSpec {
        name: args.run_id().map_err(one)?,
        argv,
        workspace: place.workspace.clone(),
        cwd: Some(place.cwd.clone()),
        mode: args.workspace.clone(),
        branch: args.branch.clone(),
        from: from.map(|(run, _)| beginning(args, &run)),
        preset: sources.preset.clone(),
        policy_files: files,
        policy,
        bounds: None,
        net: args.net.net.clone(),
        client_command: false,
        expand: args.allow_user_expansion,
        unprotect: sources.unprotect.clone(),
        hide_history: args.hide_history,
        waive: args.limits.waive.clone(),
        no_debuggers: args.no_debuggers,
        share_workspace: args.share_workspace,
        approved,
        scopes: Vec::new(),
        env: args.variables().map_err(one)?,
        tty: terminal(args).map_err(one)?,
        open_input: args.interactive,
        profile: None,
        driver: args.driver.clone(),
        model: None,
        notes: Vec::new(),
        input: args.prompt.clone(),
        tags: tags(&args.tag).map_err(one)?,
        batch: None,
        parent: None,
        attended: if args.attended || args.net.ask {
            Attended::Elsewhere
        } else {
            Attended::Nobody
        },
        trace: None,
    };
    let spec = LaunchSpec::new(spec)
        .map_err(|error| one(usage("the run cannot be asked for", error.to_string())))?;
    Ok((place, spec, told))
}

/// Whose tree the run begins with: the full name of the run, with the snapshot that was typed.
fn beginning(args: &RunArgs, run: &RunId) -> String {
    match args.from.as_deref().and_then(|text| text.rsplit_once('@')) {
        Some((named, snapshot)) if !named.is_empty() => format!("{run}@{snapshot}"),
        Some(_) | None => run.to_string(),
    }
}

/// A terminal only where it was asked for: nobody sits at this run.
fn terminal(args: &RunArgs) -> Result<Option<TtySize>, Fault> {
    if !args.tty {
        return Ok(None);
    }
    Ok(match args.stdio()? {
        Stdio::Pty { rows, cols } => Some(TtySize {
            rows: rows.min(1000),
            cols: cols.min(1000),
        }),
        Stdio::Pipes => None,
    })
}

/// `key=value` each.
pub(super) fn tags(texts: &[String]) -> Result<Tags, Fault> {
    let mut tags = BTreeMap::new();
    for text in texts {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            usage(
                format!("--tag {text:?} is not understood"),
                "a label is KEY=VALUE",
            )
            .help("--tag task=login")
        })?;
        tags.insert(key.to_owned(), value.to_owned());
    }
    Tags::try_from(tags).map_err(|error| usage("--tag cannot be used", error.to_string()))
}

fn real(file: &std::path::Path) -> Result<AbsPath, Fault> {
    let unusable = |why: String| {
        Fault::new(
            Code::PolicyUnreadable,
            format!("cannot read {}", file.display()),
            why,
        )
    };
    let real = std::fs::canonicalize(file).map_err(|error| unusable(error.to_string()))?;
    AbsPath::from_path(&real).map_err(|error| unusable(error.to_string()))
}
