//! A request that egress refused, as it was recorded. Hosts, methods and paths come from the agent: shown escaped.
use super::WhyArgs;
use crate::context::{Context, Ended};
use crate::render::{Paint, ago, clean, now_ms, timestamp};
use bastle_contract::egress::{CANARY_NAME, NetDecision, NetVerdict};
use bastle_contract::{Code, RunId};
use serde_json::json;

/// A refused request.
pub(super) struct Recorded {
    pub(super) decision: NetDecision,
    pub(super) time_ms: u64,
}

/// Whether somebody's request was refused; the fence's own probe is nobody's.
pub(super) fn is_denial(decision: &NetDecision) -> bool {
    decision.verdict == NetVerdict::Denied && decision.host != CANARY_NAME
}

pub(super) fn show(args: &WhyArgs, run: &RunId, found: &Recorded, cx: &Context) -> Ended {
    let Recorded { decision, time_ms } = found;
    let code = decision.code.unwrap_or(Code::NetDenied);
    if args.json {
        let denial = json!({
            "id": decision.id, "run": run, "time": timestamp(*time_ms), "code": code.info().code, "net": decision,
            "fix": code.info().fix,
        });
        cx.print_json(&json!({ "schema": "bastle.why/v1", "denial": denial, "decisions": [] }))?;
        return Ok(0);
    }
    let style = cx.out;
    let (top, side, foot) = (
        style.pick("╭─", ",-"),
        style.pick("│", "|"),
        style.pick("╰─", "`-"),
    );
    let port = if decision.port == 0 {
        String::new()
    } else {
        format!(":{}", decision.port)
    };
    let what = decision
        .method
        .as_deref()
        .unwrap_or(if decision.port == 0 { "lookup" } else { "connect" });
    let mut text = format!(
        "{} denied net {}   {} {} {}\n",
        style.cross(),
        style.paint(Paint::Bold, &clean(&format!("{}{port}", decision.host))),
        code.info().code,
        style.dot(),
        clean(&decision.id)
    );
    text.push_str(&format!("   {top} {run}   {}\n", ago(*time_ms, now_ms())));
    let path = decision.path.as_deref().unwrap_or_default();
    let operation = decision.operation.as_deref().unwrap_or_default();
    let request = format!("{what} {}{port}{path} {operation}", decision.host);
    text.push_str(&format!("   {side}  {}\n", clean(request.trim_end())));
    if let Some(rule) = &decision.rule {
        text.push_str(&format!("   {side}  rule: {}\n", clean(rule)));
    }
    text.push_str(&format!(
        "   {foot} {}: {}\n",
        code.info().title,
        clean(&decision.reason)
    ));
    let helps = if decision.help.is_empty() {
        vec![code.info().fix.to_owned()]
    } else {
        decision.help.clone()
    };
    for (index, help) in helps.iter().enumerate() {
        let label = if index == 0 {
            style.paint(Paint::Accent, "help:")
        } else {
            "     ".to_owned()
        };
        text.push_str(&format!("  {label} {}\n", clean(help)));
    }
    cx.print(&text)?;
    Ok(0)
}
