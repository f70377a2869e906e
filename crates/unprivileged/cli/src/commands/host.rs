//! `bastle run --backend host`: no fence, said so before, after and in between.
use super::run::{Prepared, Story, document, dry_run, final_code, write_object};
use super::run_args::RunArgs;
use crate::context::{Context, Format};
use crate::render::{Paint, clean, duration_ms};
use bastle_contract::{Code, ExitCode, Fault, RunId};
use bastle_control::host::{self, NotAFence};
use bastle_control::workspaces::{Which, WorkFacts, WorkMode};
use std::fs::File;

/// Runs without a fence. Even `--quiet` does not silence the banner: nobody may take this for a sandbox.
pub(super) fn run(
    args: &RunArgs,
    prepared: Prepared,
    out: Option<File>,
    cx: &Context,
) -> Result<u8, Vec<Fault>> {
    let Prepared {
        place,
        loaded,
        rules: _,
        launch,
        chosen: _,
        from,
    } = prepared;
    in_place_only(args, from.as_ref()).map_err(|fault| vec![fault])?;
    let work = WorkFacts {
        mode: WorkMode::InPlace,
        source: place.workspace.clone(),
        tree: None,
        made: None,
        notes: Vec::new(),
    };
    // The one place where consent is made: the caller has seen the flag.
    let consent = NotAFence::i_understand_this_is_not_a_fence();
    banner(cx);
    let unfenced = match host::prepare(&place, &loaded, launch, consent) {
        Ok(unfenced) => unfenced,
        Err(fault) if fault.code == Code::HostTool => {
            cx.report(&[fault], if args.json { Format::Json } else { Format::Human });
            return Ok(ExitCode::CannotInvoke as u8);
        }
        Err(fault) => return Err(vec![fault]),
    };
    if args.dry_run_policy {
        return dry_run(args, &loaded, &unfenced.planned, &work, cx);
    }
    let plan = unfenced.planned.plan.clone();
    let facts = unfenced.facts.clone();
    for waiver in &plan.waivers {
        cx.note(&format!(
            "  {} {waiver} is not held",
            cx.err.paint(Paint::Warn, "!")
        ));
    }
    let receipt = host::run(&place, unfenced, consent).map_err(|fault| vec![fault])?;
    if let Some(fault) = &receipt.fault {
        cx.report(std::slice::from_ref(fault), Format::Human);
    }
    if !args.quiet {
        let killed = receipt
            .killed
            .as_deref()
            .map(|why| format!(" {} killed: {}", cx.err.dot(), clean(why)))
            .unwrap_or_default();
        let wall = duration_ms(receipt.usage.wall_ms);
        cx.note(&format!(
            "{} finished {} in {wall}{killed} {} audit sealed ({} records)",
            plan.run,
            receipt.code,
            cx.err.dot(),
            receipt.records
        ));
    }
    banner(cx);
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
        let mut value = document(&story, None);
        value["soft_sandbox"] = true.into();
        write_object(out, &value).map_err(|fault| vec![fault])?;
    }
    Ok(code)
}

/// Without a fence nothing keeps the agent in a copy.
fn in_place_only(args: &RunArgs, from: Option<&(RunId, Which)>) -> Result<(), Fault> {
    match args.work_mode()? {
        None | Some(WorkMode::InPlace) if from.is_none() => Ok(()),
        _ => Err(super::run_args::usage(
            "--backend host works in place only",
            "nothing would keep the agent in a copy",
        )
        .help("leave --workspace, --from and --branch out")),
    }
}

fn banner(cx: &Context) {
    let stripes = cx.err.pick("▞▞▞▞▞▞▞▞", "////////");
    let text = format!(
        "{stripes} SOFT_SANDBOX=true  this is NOT a fence: nothing is enforced by the kernel {stripes}"
    );
    cx.note(&cx.err.paint(Paint::Bad, &text));
}
