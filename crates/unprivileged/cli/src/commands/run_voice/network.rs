//! What a person reads about requests: denials, questions, budgets, and changes of the rules.
use super::{RunVoice, TOLD};
use crate::render::{Paint, bytes, duration_ms};
use bastle_audit::sanitize;
use bastle_contract::egress::{BudgetKind, BudgetReached, BudgetStep, Face, NetDecision};
use bastle_contract::{Code, Fault, LaunchPlan, Network};
use bastle_control::{About, NetTotals, Question};
use bastle_policy::{NetMode, NetPolicy, NetTarget, uncounted_hosts};
use std::collections::BTreeSet;

/// What the first line says about the network.
pub(super) fn headline(plan: &LaunchPlan, net: &NetPolicy) -> String {
    match (&plan.network, net.mode) {
        (Network::None, _) | (_, NetMode::None | NetMode::Offline) => "none".to_owned(),
        (Network::Egress(_), NetMode::Open) => "OPEN (everything that no rule denies)".to_owned(),
        (Network::Egress(_), NetMode::Allowlist) => {
            let hosts: BTreeSet<String> = net
                .tiers
                .first()
                .into_iter()
                .flat_map(|tier| tier.allow.iter().flatten())
                .map(|rule| match &rule.value.target {
                    NetTarget::Host(pattern) => pattern.to_string(),
                    NetTarget::Group(group) => format!("{group:?}"),
                })
                .collect();
            let learn = if net.learn { ", learning" } else { "" };
            format!("proxy ({} hosts{learn})", hosts.len())
        }
    }
}

/// A denied request.
pub(super) fn denied(voice: &RunVoice<'_>, decision: &NetDecision) -> Vec<String> {
    let code = decision.code.unwrap_or(Code::NetDenied);
    let (word, held) = match code {
        // Nobody here refused it: the name or the server did not answer.
        Code::NetResolve | Code::NetUpstream => ("failed", ""),
        _ => ("denied", "   enforced: netns+proxy"),
    };
    let mut lines = vec![
        format!(
            "{} {word} net {}    {code} · {}",
            voice.style.cross(),
            sanitize(&place(decision)),
            sanitize(&decision.id)
        ),
        format!("   ╭─ {} › {}", voice.run, sanitize(&request(decision))),
        format!("   ╰─ {}{held}", sanitize(&why(decision))),
    ];
    help(&mut lines, decision, &voice.run);
    lines
}

/// Help lines: what egress proposes, and what another terminal can do now.
fn help(lines: &mut Vec<String>, decision: &NetDecision, run: &str) {
    let mut words: Vec<String> = Vec::new();
    // A rule can let it through while the run lives; a malformed request no rule can.
    let rule = decision.rule.as_deref().unwrap_or_default();
    match decision.code {
        None | Some(Code::NetDenied | Code::NetPort) if rule.is_empty() => {
            words.push(format!("now      bastle allow {run} {}", sanitize(&decision.id)));
        }
        _ if rule.starts_with("net.ask") => {
            words.push("ask      bastle run --ask -- CMD, then bastle allow RUN ID".to_owned());
        }
        _ => {}
    }
    words.extend(decision.help.iter().map(|help| sanitize(help)));
    words.push(format!("why      bastle why {}", sanitize(&decision.id)));
    for (index, word) in words.iter().enumerate() {
        lines.push(format!("  {} {word}", if index == 0 { "help:" } else { "     " }));
    }
}

/// `host:port`, or the host of a lookup.
fn place(decision: &NetDecision) -> String {
    match decision.port {
        0 => decision.host.clone(),
        port => format!("{}:{port}", decision.host),
    }
}

/// The request in one line.
fn request(decision: &NetDecision) -> String {
    let path = decision.path.as_deref().unwrap_or_default();
    let operation = decision
        .operation
        .as_deref()
        .map(|operation| format!(" ({operation})"))
        .unwrap_or_default();
    match (decision.face, decision.method.as_deref()) {
        (Face::Dns, _) => format!("lookup of {}", decision.host),
        (Face::Https, Some(method)) => format!("{method} https://{}{path}{operation}", decision.host),
        (Face::Http, Some(method)) => format!("{method} http://{}{path}{operation}", decision.host),
        (_, Some(method)) => format!("{method} {}{path}{operation}", place(decision)),
        (Face::Socks, None) => format!("SOCKS {}", place(decision)),
        (Face::Connect | Face::Http | Face::Https | Face::Transparent, None) => {
            format!("connect {}", place(decision))
        }
    }
}

fn why(decision: &NetDecision) -> String {
    match &decision.rule {
        Some(rule) => format!("{rule}: {}", decision.reason),
        None => decision.reason.clone(),
    }
}

/// A question in plain words.
pub(super) fn question(voice: &RunVoice<'_>, question: &Question<'_>) -> Vec<String> {
    let mark = voice.style.paint(Paint::Warn, "?");
    let mut lines = match question.about {
        About::Request(decision) => vec![
            format!(
                "{mark} ask net {}    {}",
                sanitize(&place(decision)),
                sanitize(question.id)
            ),
            format!(
                "   ╭─ {} › {}   (the run stands still)",
                voice.run,
                sanitize(&request(decision))
            ),
            format!("   ╰─ {}", sanitize(&why(decision))),
        ],
        About::Tool(wish) => vec![
            format!(
                "{mark} ask tool {}    {}",
                sanitize(&wish.tool),
                sanitize(question.id)
            ),
            format!(
                "   ╭─ {} › {}   (the run stands still)",
                voice.run,
                sanitize(&wish.title)
            ),
            format!("   ╰─ {}", sanitize(&wish.input.to_string())),
        ],
        About::Budget(reached) => vec![
            format!(
                "{mark} ask budget {}    {}",
                spent(reached),
                sanitize(question.id)
            ),
            format!(
                "   ╰─ {} stands still until somebody lets it go on beyond its budget",
                voice.run
            ),
        ],
    };
    let (run, id) = (&voice.run, sanitize(question.id));
    if question.keyboard {
        lines.push("  press a to allow once, A to allow for this run, d to deny (then Enter)".to_owned());
    }
    lines.push(format!(
        "  or: bastle allow {run} {id} [--session]   ·   bastle deny {run} {id}"
    ));
    lines
}

/// An answer.
pub(super) fn answered(voice: &RunVoice<'_>, id: &str, word: &str, by: &str) -> String {
    let mark = if word == "allowed" {
        voice.style.tick()
    } else {
        voice.style.cross()
    };
    format!("{mark} {word} {} (by {by})", sanitize(id))
}

/// A budget.
pub(super) fn budget(voice: &RunVoice<'_>, reached: &BudgetReached) -> Vec<String> {
    let spent = spent(reached);
    match reached.step {
        BudgetStep::Warn => vec![format!(
            "{} budget {spent}: 80 % used",
            voice.style.paint(Paint::Warn, "!")
        )],
        BudgetStep::Pause => Vec::new(),
        BudgetStep::Stop => vec![
            format!(
                "{} budget {spent} used up, the run is ended    {}",
                voice.style.cross(),
                Code::NetBudget
            ),
            format!("  help: {}", Code::NetBudget.info().fix),
        ],
    }
}

fn spent(reached: &BudgetReached) -> String {
    let BudgetReached {
        kind, used, limit, ..
    } = reached;
    match kind {
        BudgetKind::Cost => format!("{} of {}", dollars(*used), dollars(*limit)),
        BudgetKind::Tokens => format!("{used} of {limit} tokens"),
        BudgetKind::BytesOut => format!("{} of {} out", bytes(*used), bytes(*limit)),
        BudgetKind::BytesIn => format!("{} of {} in", bytes(*used), bytes(*limit)),
        BudgetKind::Requests => format!("{used} of {limit} requests"),
        BudgetKind::Connections => format!("{used} of {limit} connections"),
        BudgetKind::Turns => format!("{used} of {limit} turns"),
    }
}

/// Millionths of a dollar.
pub(super) fn dollars(micro: u64) -> String {
    let cents = micro.saturating_add(5_000) / 10_000;
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// What the receipt says about the network.
pub(super) fn receipt(net: &NetTotals) -> Vec<String> {
    let mut parts = vec![format!(
        "{} request{} to {} host{}",
        net.requests,
        if net.requests == 1 { "" } else { "s" },
        net.hosts.len(),
        if net.hosts.len() == 1 { "" } else { "s" }
    )];
    if net.bytes_out + net.bytes_in > 0 {
        parts.push(format!(
            "{} out, {} in",
            bytes(net.bytes_out),
            bytes(net.bytes_in)
        ));
    }
    if net.tokens > 0 {
        parts.push(format!("{} tokens {}", net.tokens, dollars(net.cost_micro_usd)));
    }
    if net.cpu_ms > 0 || net.peak_memory > 0 {
        parts.push(format!(
            "egress cpu {}, peak {}",
            duration_ms(net.cpu_ms),
            bytes(net.peak_memory)
        ));
    }
    parts
}

impl RunVoice<'_> {
    /// A denial, in full while there are few.
    pub(super) fn tell_net_denied(&mut self, decision: &NetDecision) {
        self.denials += 1;
        if self.denials <= TOLD {
            self.net_denied.push(decision.clone());
        }
        if self.quiet {
            return;
        }
        if self.denials <= TOLD {
            self.say(&denied(self, decision));
        } else {
            self.say_more();
        }
    }

    /// A change of the rules.
    pub(super) fn tell_changed(&self, change: &str, cut: u32) {
        let cut = match cut {
            0 => String::new(),
            1 => "; 1 connection was cut".to_owned(),
            many => format!("; {many} connections were cut"),
        };
        self.say(&[format!(
            "{} network rules: {}{cut}",
            self.style.tick(),
            sanitize(change)
        )]);
    }

    /// A change that did not happen.
    pub(super) fn tell_unchanged(&self, fault: &Fault) {
        let mut lines = vec![format!("{} {}", self.style.cross(), sanitize(&fault.to_string()))];
        lines.extend(
            fault
                .help
                .iter()
                .map(|help| format!("  help: {}", sanitize(help))),
        );
        self.say(&lines);
    }
}

/// Most hosts in the line of uncounted ones.
const MAX_UNCOUNTED: usize = 8;

/// Hosts at which a budget of turns, tokens or cost counts nothing, in one line.
pub(super) fn uncounted_line(net: &NetPolicy) -> Option<String> {
    let hosts = uncounted_hosts(net);
    let named = hosts.get(..MAX_UNCOUNTED).unwrap_or(hosts.as_slice()).join(", ");
    let more = match hosts.len().saturating_sub(MAX_UNCOUNTED) {
        0 => String::new(),
        more => format!(" and {more} more (all: --dry-run-policy)"),
    };
    (!hosts.is_empty()).then(|| format!("  budget: models are not counted at {}{more}", sanitize(&named)))
}
