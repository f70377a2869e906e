//! `bastle prune`: every copy goes that has ended, is old and holds nothing that is not elsewhere.
use super::review;
use super::rm::shown_all;
use crate::context::{Context, Ended};
use crate::render::clean;
use bastle_contract::{Code, Fault};
use bastle_control::review as control;
use bastle_control::review::library::retention::Prune;
use serde_json::{Value, json};
use std::time::Duration;

/// Arguments of `prune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle prune --dry-run               what would go
  bastle prune --older-than 12h

Copies of living runs and copies with work that was neither applied nor exported stay.

Exit codes: 0 ok, 1 failed.")]
pub(crate) struct PruneArgs {
    /// Only list
    #[arg(long)]
    dry_run: bool,
    /// Only copies older than this: 30m, 12h, 7d, 2w
    #[arg(long, value_name = "AGE", default_value = "7d")]
    older_than: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes or lists.
pub(crate) fn run(args: &PruneArgs, cx: &Context) -> Ended {
    let age = age(&args.older_than)?;
    let at = review::whereabouts()?;
    let what = if args.dry_run {
        Prune::DryRun
    } else {
        Prune::Remove
    };
    let (pruned, notes) = control::prune(&at, age, what)?;
    review::tell(&notes, cx);
    let paths = shown_all(&pruned.paths);
    if args.json {
        let kept = pruned.kept.iter().map(
            |(run, fault)| json!({ "run": run, "code": fault.code, "what": fault.what, "why": fault.why }),
        );
        cx.print_json(&json!({
            "schema": "bastle.prune/v1", "dry_run": args.dry_run, "runs": pruned.runs, "paths": paths,
            "kept": kept.collect::<Vec<Value>>(),
        }))?;
        return Ok(0);
    }
    for path in &paths {
        cx.print(&format!("{path}\n"))?;
    }
    for (run, fault) in &pruned.kept {
        cx.note(&format!("  {run} stays: {}", clean(&fault.what)));
    }
    let verb = if args.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    cx.note(&format!(
        "{} {} runs {verb}, {} paths",
        cx.err.tick(),
        pruned.runs.len(),
        paths.len()
    ));
    Ok(0)
}

/// A number and a unit.
fn age(text: &str) -> Result<Duration, Fault> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => 0,
    };
    let total = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds));
    match total {
        Some(total) if seconds > 0 => Ok(Duration::from_secs(total)),
        Some(_) | None => Err(Fault::new(
            Code::UsageArgument,
            format!("{} is no age", clean(text)),
            "an age is a number and s, m, h, d or w",
        )
        .help("--older-than 7d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_without_a_unit_or_beyond_all_clocks_is_refused() {
        assert_eq!(age("7d").unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(age("0s").unwrap(), Duration::ZERO);
        for bad in [
            "",
            "7",
            "d",
            "-1d",
            "7 d",
            "99999999999999999999d",
            "18446744073709551615w",
            "7D",
        ] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
