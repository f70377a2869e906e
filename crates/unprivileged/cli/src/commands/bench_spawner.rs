//! The hidden verb that times launches by the spawner alone, for `cargo xtask bench`.
use crate::context::{Context, Ended};
use bastle_contract::{Argv, Code, Fault, Stdio};
use bastle_control::{
    Attendance, Helpers, Launch, Launched, Place, Repeated, Rules, Sharing, Sources, Spawner,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read;

/// Arguments of `__bench-spawner`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSpawnerArgs {
    /// How many launches
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Plan once, say so, wait for a byte, and then launch that plan each time
    #[arg(long)]
    same_plan: bool,
    /// What to launch
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

/// Launches and prints one line for each.
pub(crate) fn run(args: BenchSpawnerArgs, cx: &Context) -> Ended {
    let place = Place::find(None)?;
    let sources = Sources::default();
    let mut loaded = bastle_control::load(&place, &sources)?;
    let argv = Argv::try_from(args.command)
        .map_err(|error| Fault::new(Code::UsageArgument, error.to_string(), ""))?;
    let rounds = if args.same_plan { 1 } else { args.count };
    for _ in 0..rounds {
        let launch = Launch {
            run: bastle_control::new_run_id()?,
            argv: argv.clone(),
            env: Vec::new(),
            stdio: Stdio::Pipes,
            waivers: Vec::new(),
            debuggers: true,
            approval: bastle_policy::LaunchApproval::None,
            attendance: Attendance::Nobody,
            parent: None,
            sharing: Sharing::Allowed,
        };
        let helpers = Helpers {
            spawner: Spawner::start()?,
            egress: None,
        };
        let rules = Rules::new(&place, &sources, &mut loaded)?;
        let ready = bastle_control::prepare(&place, &loaded, rules, helpers, launch)?;
        if args.same_plan {
            return repeat(&Repeated::new(ready)?, args.count, cx);
        }
        tell(bastle_control::launch_once(ready)?, cx)?;
    }
    Ok(0)
}

/// Everybody who is measured together begins together.
fn repeat(plan: &Repeated, count: u32, cx: &Context) -> Ended {
    cx.print_json(&json!({ "ready": true }))?;
    let mut word = [0];
    std::io::stdin()
        .read_exact(&mut word)
        .map_err(|error| Fault::new(Code::UsageArgument, "nobody gave the word", error.to_string()))?;
    for _ in 0..count {
        tell(plan.launch()?, cx)?;
    }
    Ok(0)
}

fn tell(launched: Launched, cx: &Context) -> Result<(), crate::context::Failed> {
    let Launched { total, steps } = launched;
    let steps: BTreeMap<String, u64> = steps.into_iter().collect();
    cx.print_json(&json!({ "total_us": total, "steps_us": steps }))
}
