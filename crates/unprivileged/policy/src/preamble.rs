//! The preamble: what an agent is told of its fence, made from the effective policy and put before every prompt.
//!
//! **Trust:** its lines are made here; paths, hosts and rules in them come from policies, some untrusted, and cannot begin
//! a line. The prompt comes from a client and cannot look like a preamble. It informs: nothing rests on it being heeded.
use crate::commands::CommandTier;
use crate::decide::push_rule;
use crate::document::{Mode, NetDefault, OnExceed};
use crate::effective::{Effective, NetRules, Sourced};
use crate::fsmap::Grade;
use crate::layers::LayerKind;
use crate::net::NetMode;
use crate::text::shown;
use crate::tiers::{Tier, danger_matrix};
use crate::units::{show_duration, show_size};
use bastle_contract::{AbsPath, LimitKind};

/// Longest preamble.
pub const MAX_PREAMBLE: usize = 4096;

/// Longest line; seventeen of them and the frame stay below [`MAX_PREAMBLE`].
const MAX_LINE: usize = 200;

const FIRST: &str = "===== BASTLE PREAMBLE =====";
const LAST: &str = "===== END OF BASTLE PREAMBLE =====";

/// What the policy does not say.
#[derive(Clone, Debug, Default)]
pub struct PreambleFacts {
    /// Where the agent starts; default the workspace.
    pub cwd: Option<AbsPath>,
    /// Paths below the workspace that the task is about; nothing else should be changed.
    pub scopes: Vec<String>,
    /// Whether somebody can answer questions while it runs.
    pub answered: bool,
}

/// The text; the same for the same policy and facts.
#[must_use]
pub fn preamble(effective: &Effective, facts: &PreambleFacts) -> String {
    let mut lines = vec![
        FIRST.to_owned(),
        "You run inside a fence. This text informs; the fence enforces it whatever you are told later."
            .to_owned(),
    ];
    let mut tell = |key: &str, values: Vec<String>| lines.push(line(key, &values));
    let cwd = facts.cwd.as_ref().unwrap_or(&effective.surroundings.workspace);
    tell("working directory", vec![cwd.to_string()]);
    tell("may read and write", granted(effective, Grade::Write));
    tell("may only read", granted(effective, Grade::Read));
    if !facts.scopes.is_empty() {
        tell("change only", facts.scopes.clone());
    }
    tell("most files changed", vec![limit(effective, LimitKind::Files)]);
    tell(
        "most bytes written",
        vec![limit(effective, LimitKind::BytesWritten)],
    );
    network(effective, &mut tell);
    for (what, tiers) in [("commands", &effective.exec), ("tools", &effective.tools)] {
        let allowed = allowed(tiers);
        tell(
            &format!("allowed {what}"),
            allowed.unwrap_or_else(|| vec!["all but those below".to_owned()]),
        );
        if what == "commands" && effective.lists_programs() {
            let text = "programs that no allowed command names do not execute, also not as children";
            tell("other programs", vec![text.to_owned()]);
        }
        tell(&format!("blocked {what}"), listed(tiers, |tier| &tier.deny));
        let mut asking = listed(tiers, |tier| &tier.ask);
        asking.extend(by_matrix(effective, what, tiers));
        tell(&format!("{what} that ask first"), asking);
    }
    tell("limits", limits(effective));
    tell("budget", budget(effective));
    tell("asking", vec![asking(facts)]);
    if effective.mode.value != Mode::Enforce {
        tell(
            "mode",
            vec!["what is missing is recorded; the fence stands all the same".to_owned()],
        );
    }
    lines.push(LAST.to_owned());
    lines.push(String::new());
    lines.join("\n")
}

/// The preamble and a prompt below it. A line of the prompt that looks like one of the frame's is marked as quoted, so
/// that what follows it cannot pass for a preamble.
#[must_use]
pub fn prompt_with(preamble: &str, prompt: &str) -> String {
    let mut text = String::with_capacity(preamble.len() + prompt.len() + 16);
    text.push_str(preamble);
    if !preamble.ends_with('\n') {
        text.push('\n');
    }
    text.push('\n');
    let breaks = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    for piece in prompt.split_inclusive(breaks) {
        if looks_like_frame(piece) {
            text.push_str("(quoted) ");
            // Broken up as well: a reader that looks for the words alone must not find them.
            text.extend(piece.chars().map(|c| if c == '=' { '-' } else { c }));
        } else {
            text.push_str(piece);
        }
    }
    text
}

/// Whether somebody could read `line` as the beginning or end of a preamble: its letters say so, whatever is between them.
fn looks_like_frame(line: &str) -> bool {
    let letters: String = line
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    letters.contains("bastlepreamble")
}

/// `- KEY: A, B and N more`, on one line of bounded length.
fn line(key: &str, values: &[String]) -> String {
    let mut text = format!("- {key}: ");
    if values.is_empty() {
        text.push_str("none");
    }
    for (index, value) in values.iter().enumerate() {
        let value = plain(value);
        let comma = if index == 0 { "" } else { ", " };
        // Room for the rest of the line.
        if text.len() + comma.len() + value.len() > MAX_LINE - 24 && index > 0 {
            text.push_str(&format!(" and {} more", values.len() - index));
            break;
        }
        text.push_str(comma);
        text.push_str(&value);
    }
    cut(&text, MAX_LINE)
}

/// A value that cannot begin a line nor end the frame.
fn plain(value: &str) -> String {
    let value = shown(value);
    if looks_like_frame(&value) {
        return "(a name that cannot be shown)".to_owned();
    }
    cut(&value, 120)
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub(4));
    format!("{} …", &text[..end])
}

fn granted(effective: &Effective, grade: Grade) -> Vec<String> {
    let paths = effective.granted(grade);
    paths.into_iter().map(|path| path.value.to_string()).collect()
}

fn limit(effective: &Effective, kind: LimitKind) -> String {
    effective
        .limit(kind)
        .map_or_else(|| "no limit".to_owned(), |value| amount(kind, value.value))
}

fn amount(kind: LimitKind, value: u64) -> String {
    match kind {
        LimitKind::WallTime => show_duration(value),
        LimitKind::CpuTime => format!("{value}s"),
        LimitKind::Cpu => format!("{}.{:03}", value / 1000, value % 1000),
        LimitKind::Memory
        | LimitKind::Disk
        | LimitKind::BytesWritten
        | LimitKind::Output
        | LimitKind::FileSize
        | LimitKind::DiskReserve => show_size(value),
        LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => value.to_string(),
    }
}

fn limits(effective: &Effective) -> Vec<String> {
    let told = |kind: &LimitKind| !matches!(kind, LimitKind::Files | LimitKind::BytesWritten);
    let all = effective.limits.iter().filter(|(kind, _)| told(kind));
    all.map(|(kind, value)| format!("{kind} {}", amount(*kind, value.value)))
        .collect()
}

fn network(effective: &Effective, tell: &mut dyn FnMut(&str, Vec<String>)) {
    let net = &effective.net;
    let all =
        |pick: fn(&NetRules) -> Vec<String>| -> Vec<String> { net.tiers.iter().flat_map(pick).collect() };
    let deny = all(|tier| tier.deny.iter().map(|rule| rule.value.to_string()).collect());
    let ask = all(|tier| tier.ask.iter().map(|rule| rule.value.to_string()).collect());
    match net.mode {
        NetMode::None | NetMode::Offline => {
            tell("network", vec!["none".to_owned()]);
            return;
        }
        NetMode::Open => tell("network", vec!["open but for what is blocked".to_owned()]),
        NetMode::Allowlist => {
            // The first tier grants; the others only narrow it, and a narrower list is the one to tell.
            let lists: Vec<&Vec<_>> = net.tiers.iter().filter_map(|tier| tier.allow.as_ref()).collect();
            let fewest = lists.iter().min_by_key(|list| list.len());
            let hosts: Vec<String> = fewest
                .map(|list| list.iter().map(|rule| rule.value.to_string()).collect())
                .unwrap_or_default();
            let rest = match net.default.value {
                NetDefault::Deny => "blocked",
                NetDefault::Ask => "asked about",
            };
            let mut values = vec![format!("{} rules; everything else is {rest}", hosts.len())];
            values.extend(hosts);
            tell("network", values);
        }
    }
    if !deny.is_empty() {
        tell("blocked hosts", deny);
    }
    if !ask.is_empty() {
        tell("hosts that ask first", ask);
    }
}

/// The shortest allow list: the tiers that follow the first only narrow it.
fn allowed(tiers: &[CommandTier]) -> Option<Vec<String>> {
    let lists = tiers.iter().filter_map(|tier| tier.allow.as_ref());
    let fewest = lists.min_by_key(|list| list.len())?;
    Some(fewest.iter().map(|rule| rule.value.clone()).collect())
}

fn listed(tiers: &[CommandTier], pick: fn(&CommandTier) -> &Vec<Sourced<String>>) -> Vec<String> {
    let mut rules: Vec<&Sourced<String>> = tiers.iter().flat_map(pick).collect();
    // What a person wrote comes first: the line may be too short for all.
    rules.sort_by_key(|rule| matches!(rule.origin.layer, LayerKind::Floor | LayerKind::Preset));
    rules.into_iter().map(|rule| rule.value.clone()).collect()
}

/// What tier 3 of the danger matrix asks about, where no list of the operator names what is allowed.
fn by_matrix(effective: &Effective, what: &str, tiers: &[CommandTier]) -> Vec<String> {
    if tiers.first().is_some_and(|tier| tier.allow.is_some()) {
        return Vec::new();
    }
    let kind = if what == "tools" { "tool" } else { "exec" };
    let named: Vec<&str> = tiers
        .iter()
        .flat_map(|tier| tier.ask.iter().chain(&tier.deny))
        .map(|rule| rule.value.as_str())
        .collect();
    danger_matrix()
        .iter()
        .filter(|row| row.kind == kind && row.tier == Tier::Stops)
        .map(|row| row.name)
        .filter(|name| !named.contains(name) && !push_rule(effective).waives(name))
        .map(str::to_owned)
        .collect()
}

fn budget(effective: &Effective) -> Vec<String> {
    let own = &effective.budgets;
    let mut told = Vec::new();
    told.extend(own.turns.as_ref().map(|s| format!("{} model requests", s.value)));
    told.extend(own.usd.as_ref().map(|s| format!("{} USD", s.value)));
    told.extend(own.tokens.as_ref().map(|s| format!("{} tokens", s.value)));
    told.extend(own.requests.as_ref().map(|s| format!("{} requests", s.value)));
    told.extend(
        own.connections
            .as_ref()
            .map(|s| format!("{} connections", s.value)),
    );
    let bytes = [("out", &own.bytes_out), ("in", &own.bytes_in)];
    for (way, amount) in bytes {
        told.extend(amount.as_ref().map(|s| format!("{} {way}", show_size(s.value))));
    }
    if !told.is_empty() {
        let then = match own.on_exceed.as_ref().map(|s| s.value) {
            Some(OnExceed::Stop) => "then the run is stopped",
            Some(OnExceed::Pause) | None => "then the run pauses where somebody can answer, else it stops",
        };
        told.push(then.to_owned());
    }
    told
}

fn asking(facts: &PreambleFacts) -> String {
    let who = if facts.answered {
        "somebody may answer"
    } else {
        "nobody answers, so it is refused"
    };
    format!(
        "what asks first waits: {who}. A refused request says why (HTTP 403). Granted files: /grants, bastle-fs ls"
    )
}
