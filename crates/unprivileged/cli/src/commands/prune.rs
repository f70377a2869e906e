//! `bastle prune`: every copy goes that has ended, is old and holds nothing that is not elsewhere.
use super::apply::counted;
use super::review;
use super::rm::shown_all;
use crate::context::{Context, Ended, Failed};
use crate::render::clean;
use bastle_contract::{Code, Fault, RunId};
use bastle_control::review::library::retention::Prune;
use bastle_control::review::{self as control, PruneWish, PrunedAll};
use serde_json::{Value, json};
use std::time::Duration;

/// Arguments of `prune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle prune --dry-run               what would go
  bastle prune --older-than 12h
  bastle prune --now                   also empties the trash; frees room at once

Copies of living runs and copies with work that exists only there stay. What goes lies in the trash first, and leaves
it after --trash-older-than; on a full disk it goes at once.

Exit codes: 0 ok, 1 failed.")]
pub(crate) struct PruneArgs {
    /// Only list
    #[arg(long)]
    dry_run: bool,
    /// Only copies older than this: 30m, 12h, 7d, 2w
    #[arg(long, value_name = "AGE", default_value = "7d")]
    older_than: String,
    /// Empty the trash of what has been in it for longer than this
    #[arg(long, value_name = "AGE", default_value = "7d")]
    trash_older_than: String,
    /// Remove for good what would go to the trash, and empty the trash
    #[arg(long, conflicts_with = "trash_older_than")]
    now: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes or lists.
pub(crate) fn run(args: &PruneArgs, cx: &Context) -> Ended {
    let what = match (args.dry_run, args.now) {
        (true, _) => Prune::DryRun,
        (false, true) => Prune::AtOnce,
        (false, false) => Prune::Remove,
    };
    let trash_age = if args.now {
        Duration::ZERO
    } else {
        age("--trash-older-than", &args.trash_older_than)?
    };
    let wish = PruneWish {
        age: age("--older-than", &args.older_than)?,
        trash_age,
        what,
    };
    let at = review::whereabouts()?;
    let pruned = control::prune(&at, wish)?;
    review::tell(&pruned.notes, cx);
    if args.json {
        cx.print_json(&as_json(args, &pruned))?;
        return Ok(0);
    }
    tell(args, &pruned, cx)?;
    Ok(0)
}

fn kept(pruned: &PrunedAll) -> impl Iterator<Item = &(RunId, Fault)> {
    pruned.copies.kept.iter().chain(&pruned.trash.kept)
}

fn as_json(args: &PruneArgs, pruned: &PrunedAll) -> Value {
    let kept = kept(pruned).map(
        |(run, fault)| json!({ "run": run, "code": fault.code, "what": fault.what, "why": fault.why, "help": fault.help }),
    );
    let paths = pruned.copies.paths.iter().chain(&pruned.trash.paths);
    let paths: Vec<_> = paths.cloned().collect();
    json!({
        "schema": "bastle.prune/v1", "dry_run": args.dry_run, "runs": pruned.copies.runs, "paths": shown_all(&paths),
        "kept": kept.collect::<Vec<Value>>(), "emptied": pruned.trash.runs,
        "trashed": pruned.what == Prune::Remove,
    })
}

fn tell(args: &PruneArgs, pruned: &PrunedAll, cx: &Context) -> Result<(), Failed> {
    for paths in [&pruned.copies.paths, &pruned.trash.paths] {
        for path in shown_all(paths) {
            cx.print(&format!("{path}\n"))?;
        }
    }
    for (run, fault) in kept(pruned) {
        cx.note(&format!("  {run} stays: {}", clean(&fault.what)));
    }
    let verb = match (args.dry_run, pruned.what) {
        (true, _) => "would be removed",
        (false, Prune::Remove) => "moved to the trash",
        (false, Prune::AtOnce | Prune::DryRun) => "removed",
    };
    let (copies, trash) = (&pruned.copies, &pruned.trash);
    cx.note(&format!(
        "{} {} {verb}, {}",
        cx.err.tick(),
        counted(copies.runs.len(), "run"),
        counted(copies.paths.len(), "path")
    ));
    if !trash.runs.is_empty() {
        let verb = if args.dry_run { "would leave" } else { "left" };
        cx.note(&format!(
            "{} {} {verb} the trash",
            cx.err.tick(),
            counted(trash.runs.len(), "run")
        ));
    }
    if pruned.what == Prune::AtOnce && !args.now {
        cx.note("  the disk is full: what went is not in the trash");
    }
    Ok(())
}

/// A number and a unit.
fn age(flag: &str, text: &str) -> Result<Duration, Fault> {
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
        .help(format!("{flag} 7d"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_without_a_unit_or_beyond_all_clocks_is_refused() {
        assert_eq!(age("--x", "7d").unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(age("--x", "0s").unwrap(), Duration::ZERO);
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
            assert!(age("--x", bad).is_err(), "{bad}");
        }
    }
}
