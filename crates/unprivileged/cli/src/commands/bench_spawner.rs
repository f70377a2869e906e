//! The hidden verb that times launches by the spawner alone, for `cargo xtask bench`.
use crate::context::{Context, Ended};
use bastle_contract::{Argv, Code, Fault, Stdio};
use bastle_control::{Attendance, Helpers, Launch, Launched, Place, Rules, Sources, Spawner};
use serde_json::json;
use std::collections::BTreeMap;

/// Arguments of `__bench-spawner`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSpawnerArgs {
    /// How many launches
    #[arg(long, default_value_t = 1)]
    count: u32,
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
    for _ in 0..args.count {
        let launch = Launch {
            run: bastle_control::new_run_id()?,
            argv: argv.clone(),
            env: Vec::new(),
            stdio: Stdio::Pipes,
            waivers: Vec::new(),
            debuggers: true,
            attendance: Attendance::Nobody,
        };
        let helpers = Helpers {
            spawner: Spawner::start()?,
            egress: None,
        };
        let rules = Rules::new(&place, &sources, &mut loaded)?;
        let ready = bastle_control::prepare(&place, &loaded, rules, helpers, launch)?;
        let Launched { total, steps } = bastle_control::launch_once(ready)?;
        let steps: BTreeMap<String, u64> = steps.into_iter().collect();
        cx.print_json(&json!({ "total_us": total, "steps_us": steps }))?;
    }
    Ok(0)
}
