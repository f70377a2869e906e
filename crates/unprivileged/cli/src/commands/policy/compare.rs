//! Comparing policies, and rating one.
use super::Common;
use crate::commands::source::PolicySource;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, clean};
use bastle_contract::BackendKind;
use bastle_policy::{Effective, LayerKind};
use serde_json::json;
use std::path::Path;

/// Prints the differences; says whether there are any.
pub(super) fn diff(a: &str, b: &str, common: &Common, cx: &Context) -> Result<bool, Failed> {
    let lines = bastle_policy::diff(&named(a, &common.source)?, &named(b, &common.source)?);
    if common.json {
        cx.print_json(&json!({ "schema": "bastle.policy-diff/v1", "a": a, "b": b, "lines": lines }))?;
        return Ok(!lines.is_empty());
    }
    for line in &lines {
        let (sign, paint) = if line.wider {
            ("+", Paint::Warn)
        } else {
            ("-", Paint::Good)
        };
        let text = format!("{sign} {} {}", clean(&line.section), clean(&line.what));
        cx.print(&format!("{}\n", cx.out.paint(paint, &text)))?;
    }
    if lines.is_empty() {
        cx.note("both reach the same");
    } else {
        cx.note("+ the second reaches more, - it reaches less");
    }
    Ok(!lines.is_empty())
}

/// A preset by its name, or a file on top of the preset. What looks like a path is one.
fn named(name: &str, source: &PolicySource) -> Result<Effective, Failed> {
    let looks_like_path = name.contains('/') || name.ends_with(".json");
    if looks_like_path || (bastle_policy::preset(name).is_err() && Path::new(name).symlink_metadata().is_ok())
    {
        // Compared as the user's own word: as a project's file it could only take away.
        let layer = bastle_control::read_layer(Path::new(name), LayerKind::User)?;
        return Ok(source.merge(vec![layer])?);
    }
    let preset = PolicySource {
        preset: Some(name.to_owned()),
        ..source.clone()
    };
    Ok(preset.merge(Vec::new())?)
}

/// Rates the effective policy as the native fence would hold it.
pub(super) fn score(common: &Common, cx: &Context) -> Ended {
    let effective = common.source.load()?.effective;
    let score = bastle_policy::score(&effective, BackendKind::Native);
    if common.json {
        cx.print_json(&json!({ "schema": "bastle.policy-score/v1", "score": score }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["EXPOSURE", "WHAT", "WHY"]);
    for line in &score.table {
        let points = format!("{}.{}", line.tenths / 10, line.tenths % 10);
        let paint = if line.tenths == 0 { Paint::Dim } else { Paint::Warn };
        table.row([
            (&points, paint),
            (&line.what, Paint::Plain),
            (&line.note, Paint::Plain),
        ]);
    }
    let total = format!("{}.{} {}", score.tenths / 10, score.tenths % 10, score.word);
    cx.print(&format!(
        "{}\nexposure {} (0 none, 10 no fence)\n",
        table.render(cx.out),
        cx.out.paint(Paint::Bold, &total)
    ))?;
    Ok(0)
}
