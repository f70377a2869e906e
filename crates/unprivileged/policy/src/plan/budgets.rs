//! Budgets, each with what counts it; one that cannot be counted stops the launch unless it is waived by name.
use super::PlanLine;
use crate::effective::{Effective, Origin, Sourced};
use crate::net::{NetMode, NetPolicy};
use crate::units::show_size;
use bastle_contract::egress::BudgetKind;
use bastle_contract::{Code, Fault, Guarantee, Mechanism};

/// Refuses a table under which a model's answers would pass uncounted though a budget is set.
pub fn countable(net: &NetPolicy) -> Result<(), Fault> {
    let budget = &net.budget;
    let set = [
        (BudgetKind::Turns, budget.turns.is_some()),
        (BudgetKind::Tokens, budget.tokens.is_some()),
        (BudgetKind::Cost, budget.cost_micro_usd.is_some()),
    ];
    let held: Vec<BudgetKind> = set
        .into_iter()
        .filter(|(kind, stated)| *stated && !budget.waived.contains(kind))
        .map(|(kind, _)| kind)
        .collect();
    for uncounted in net.uncounted() {
        let concerned: Vec<BudgetKind> = held
            .iter()
            .copied()
            .filter(|kind| !uncounted.cost_only || *kind == BudgetKind::Cost)
            .collect();
        if concerned.is_empty() {
            continue;
        }
        let names: Vec<&str> = concerned.iter().map(|kind| kind.name()).collect();
        let waive: Vec<String> = names.iter().map(|name| format!("--waive {name}")).collect();
        return Err(Fault::new(
            Code::LimitUnheld,
            format!(
                "budget.{} cannot be counted with {}",
                names.join(" and budget."),
                uncounted.what
            ),
            uncounted.why,
        )
        .help(uncounted.fix)
        .help(format!("to run without it: bastle run {} ...", waive.join(" "))));
    }
    Ok(())
}

/// Hosts that rules allow and at which a budget of turns, tokens or cost counts nothing; empty without such a budget.
#[must_use]
pub fn uncounted_hosts(net: &NetPolicy) -> Vec<String> {
    match net.mode {
        NetMode::Allowlist | NetMode::Open if net.holds_models() => net.unread_hosts(),
        NetMode::Allowlist | NetMode::Open | NetMode::None | NetMode::Offline => Vec::new(),
    }
}

/// Refuses budgets that cannot be counted, and lists the others in the plan.
pub(super) fn build(effective: &Effective, listing: &mut Vec<PlanLine>) -> Result<(), Fault> {
    let net = &effective.net;
    countable(net)?;
    let open = match net.mode {
        NetMode::None | NetMode::Offline => false,
        NetMode::Allowlist | NetMode::Open => true,
    };
    for (kind, rule, origin) in stated(effective) {
        let (mechanism, note) = if !open {
            (
                Mechanism::Netns,
                "no network in this run: nothing gets out".to_owned(),
            )
        } else if net.budget.waived.contains(&kind) {
            (
                Mechanism::Advisory,
                "WAIVED: what cannot be counted passes".to_owned(),
            )
        } else {
            (Mechanism::Proxy, note(net, kind))
        };
        listing.push(PlanLine {
            section: "budget".to_owned(),
            rule,
            origin,
            mechanism,
            probe: (mechanism != Mechanism::Advisory).then_some(Guarantee::NetConfined),
            note,
        });
    }
    Ok(())
}

/// The host backend has no egress: nothing is counted, and the listing says so.
pub(super) fn unfenced(effective: &Effective, listing: &mut Vec<PlanLine>) {
    for (_, rule, origin) in stated(effective) {
        listing.push(PlanLine {
            section: "budget".to_owned(),
            rule,
            origin,
            mechanism: Mechanism::Advisory,
            probe: None,
            note: "WAIVED: the host backend has nothing that counts it".to_owned(),
        });
    }
}

fn stated(effective: &Effective) -> Vec<(BudgetKind, String, Origin)> {
    let own = &effective.budgets;
    let number = |kind: BudgetKind, value: &Option<Sourced<u64>>, show: fn(u64) -> String| {
        let value = value.as_ref()?;
        Some((
            kind,
            format!("{} {}", kind.name(), show(value.value)),
            value.origin.clone(),
        ))
    };
    let plain = |value: u64| value.to_string();
    let usd = own
        .usd
        .as_ref()
        .map(|usd| (BudgetKind::Cost, format!("usd {}", usd.value), usd.origin.clone()));
    [
        number(BudgetKind::Turns, &own.turns, plain),
        number(BudgetKind::Tokens, &own.tokens, plain),
        usd,
        number(BudgetKind::BytesOut, &own.bytes_out, show_size),
        number(BudgetKind::BytesIn, &own.bytes_in, show_size),
        number(BudgetKind::Requests, &own.requests, plain),
        number(BudgetKind::Connections, &own.connections, plain),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What is not counted, by name: a person sees here that a host was not taken for a model's.
fn note(net: &NetPolicy, kind: BudgetKind) -> String {
    match kind {
        BudgetKind::Turns | BudgetKind::Tokens | BudgetKind::Cost => {}
        BudgetKind::BytesOut | BudgetKind::BytesIn | BudgetKind::Requests | BudgetKind::Connections => {
            return String::new();
        }
    }
    let unread = net.unread_hosts();
    if unread.is_empty() {
        return "counted at every allowed host".to_owned();
    }
    format!("not counted at {}: no model endpoints", unread.join(", "))
}
