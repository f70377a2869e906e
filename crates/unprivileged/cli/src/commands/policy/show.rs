//! The effective policy, rule by rule, each labelled with what holds it.
use super::Common;
use crate::context::{Context, Ended};
use crate::render::{Paint, Table, clean};
use bastle_contract::{LimitKind, Mechanism};
use bastle_control::Loaded;
use bastle_policy::{Effective, Grade, LayerKind, Origin};
use serde_json::{Value, json};

/// One rule.
struct Row {
    section: &'static str,
    rule: String,
    held: Held,
    origin: Origin,
}

/// How much of each rule is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// The rule and what holds it.
    Short,
    /// And where it stands.
    WithOrigin,
}

/// What holds a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Something outside the agent.
    Enforced(Mechanism),
    /// Both: what exists is covered, what does not exist yet cannot be made.
    CoveredAndGuarded,
    /// The program's file is covered; a copy of it is not.
    Covered,
    /// The program's file: nothing else executes. Its arguments are advice.
    Program,
    /// Nothing: it is advice to the agent.
    Advisory,
    /// Depends on what the host offers; the plan says, and refuses to start where nothing holds it.
    AtStart,
}

/// Shows it.
pub(super) fn show(common: &Common, columns: Columns, cx: &Context) -> Ended {
    let loaded = common.source.load()?;
    let rows = rows(&loaded.effective);
    if common.json {
        cx.print_json(&document(&loaded, &rows))?;
        return Ok(0);
    }
    let effective = &loaded.effective;
    let mut text = format!("{}\n", clean(&effective.headline()));
    text.push_str(&format!(
        "workspace {}   mode {}   digest {}\n",
        clean(effective.surroundings.workspace.as_str()),
        format!("{:?}", effective.mode.value).to_lowercase(),
        &effective.digest().as_str()[..16]
    ));
    let system: usize = loaded
        .layers
        .iter()
        .map(|layer| layer.document.system.len())
        .sum();
    text.push_str(&format!("{system} system paths of the built-in layers are readable where they exist; nothing else of the host is\n\n"));
    let mut table = if columns == Columns::WithOrigin {
        Table::new(&["SECTION", "RULE", "HELD", "BY", "ORIGIN"])
    } else {
        Table::new(&["SECTION", "RULE", "HELD", "BY"])
    };
    for row in &rows {
        let (word, by, paint) = row.held.words();
        let place = row.origin.to_string();
        let cells = [
            (row.section, Paint::Plain),
            (row.rule.as_str(), Paint::Bold),
            (word, paint),
            (by, Paint::Plain),
        ];
        if columns == Columns::WithOrigin {
            table.row([cells[0], cells[1], cells[2], cells[3], (&place, Paint::Dim)]);
        } else {
            table.row(cells);
        }
    }
    text.push_str(&table.render(cx.out));
    for request in &effective.not_granted {
        text.push_str(&format!(
            "requested, not granted: {} ({})\n",
            clean(&request.what),
            clean(&request.origin.to_string())
        ));
    }
    for inactive in &effective.inactive {
        text.push_str(&format!(
            "inactive: {} ({}): {}\n",
            clean(&inactive.what),
            clean(&inactive.origin.to_string()),
            clean(&inactive.reason)
        ));
    }
    cx.print(&text)?;
    Ok(0)
}

impl Held {
    fn words(self) -> (&'static str, &'static str, Paint) {
        match self {
            Self::Enforced(by) => ("enforced", by.name(), Paint::Good),
            Self::CoveredAndGuarded => ("enforced", "mount+guard", Paint::Good),
            Self::Covered => ("partly", "shim: not for copies", Paint::Warn),
            Self::Program => (
                "partly",
                "landlock+guard: the program, not its arguments or scripts",
                Paint::Warn,
            ),
            Self::Advisory => ("advisory", "", Paint::Warn),
            Self::AtStart => ("enforced", "proven at start", Paint::Good),
        }
    }
}

fn rows(effective: &Effective) -> Vec<Row> {
    let mut rows = Vec::new();
    for (section, grade) in [("fs.read", Grade::Read), ("fs.write", Grade::Write)] {
        for rule in effective.granted(grade) {
            rows.push(Row {
                section,
                rule: rule.value.to_string(),
                held: Held::Enforced(Mechanism::Mount),
                origin: rule.origin,
            });
        }
    }
    for (section, rules) in [("fs.hide", &effective.hide), ("fs.protect", &effective.protect)] {
        for rule in rules {
            rows.push(Row {
                section,
                rule: rule.value.to_string(),
                held: Held::CoveredAndGuarded,
                origin: rule.origin.clone(),
            });
        }
    }
    for open in &effective.unprotect {
        rows.push(Row {
            section: "fs.unprotect",
            rule: format!("{open} (exception)"),
            held: Held::CoveredAndGuarded,
            origin: bastle_policy::Origin::unprotect(),
        });
    }
    network(effective, &mut rows);
    commands(effective, &mut rows);
    environment(effective, &mut rows);
    for secret in &effective.secrets {
        rows.push(Row {
            section: "secrets",
            rule: secret.value.name.as_str().to_owned(),
            held: Held::Enforced(Mechanism::Proxy),
            origin: secret.origin.clone(),
        });
    }
    for (section, rule) in [
        ("git.push", &effective.git.push),
        ("git.forcePush", &effective.git.force_push),
    ] {
        if let Some(rule) = rule {
            let word = bastle_policy::Outcome::from(rule.value).name().to_owned();
            // Held on the wire, where pushes go over HTTP; the exec section lists the advice for everything else.
            rows.push(Row {
                section,
                rule: word,
                held: Held::Enforced(Mechanism::Proxy),
                origin: rule.origin.clone(),
            });
        }
    }
    for cache in &effective.caches {
        rows.push(Row {
            section: "cache",
            rule: cache.value.clone(),
            held: Held::Enforced(Mechanism::Mount),
            origin: cache.origin.clone(),
        });
    }
    limits(effective, &mut rows);
    rows
}

fn environment(effective: &Effective, rows: &mut Vec<Row>) {
    for name in &effective.env_pass {
        rows.push(Row {
            section: "env.pass",
            rule: name.value.as_str().to_owned(),
            held: Held::Enforced(Mechanism::Namespace),
            origin: name.origin.clone(),
        });
    }
    for entry in &effective.env_set {
        // Values may be secrets: names only.
        rows.push(Row {
            section: "env.set",
            rule: entry.value.0.as_str().to_owned(),
            held: Held::Enforced(Mechanism::Namespace),
            origin: entry.origin.clone(),
        });
    }
}

fn limits(effective: &Effective, rows: &mut Vec<Row>) {
    for (limit, value) in &effective.limits {
        let held = match limit {
            LimitKind::OpenFiles | LimitKind::CpuTime | LimitKind::FileSize => {
                Held::Enforced(Mechanism::Rlimit)
            }
            LimitKind::Inodes | LimitKind::Files | LimitKind::BytesWritten => {
                Held::Enforced(Mechanism::Guard)
            }
            LimitKind::WallTime
            | LimitKind::Cpu
            | LimitKind::Memory
            | LimitKind::Pids
            | LimitKind::Disk
            | LimitKind::Output
            | LimitKind::DiskReserve => Held::AtStart,
        };
        rows.push(Row {
            section: "limits",
            rule: format!("{limit} {}", shown(*limit, value.value)),
            held,
            origin: value.origin.clone(),
        });
    }
}

/// The namespace has no way out but the proxy, which holds the rules.
fn network(effective: &Effective, rows: &mut Vec<Row>) {
    let origin = Origin {
        layer: LayerKind::Floor,
        file: "built-in".to_owned(),
        line: 0,
    };
    rows.push(Row {
        section: "net",
        rule: "own loopback only".to_owned(),
        held: Held::Enforced(Mechanism::Netns),
        origin,
    });
    for tier in &effective.net {
        let lists = [
            ("net.allow", tier.allow.as_deref().unwrap_or_default()),
            ("net.ask", &tier.ask),
            ("net.deny", &tier.deny),
        ];
        for (section, list) in lists {
            for rule in list {
                rows.push(Row {
                    section,
                    rule: rule.value.to_string(),
                    held: Held::Enforced(Mechanism::Proxy),
                    origin: rule.origin.clone(),
                });
            }
        }
    }
}

fn commands(effective: &Effective, rows: &mut Vec<Row>) {
    let sections = [
        (["exec.allow", "exec.ask", "exec.deny"], &effective.exec),
        (["tools.allow", "tools.ask", "tools.deny"], &effective.tools),
    ];
    for (names, tiers) in sections {
        for tier in tiers {
            let lists = [tier.allow.as_deref().unwrap_or_default(), &tier.ask, &tier.deny];
            for (section, list) in names.into_iter().zip(lists) {
                for rule in list {
                    let held = match section {
                        "exec.deny" if is_program(&rule.value) => Held::Covered,
                        "exec.allow" => Held::Program,
                        _ => Held::Advisory,
                    };
                    rows.push(Row {
                        section,
                        rule: rule.value.clone(),
                        held,
                        origin: rule.origin.clone(),
                    });
                }
            }
        }
    }
}

/// Whether a rule names a program and nothing more: only then there is a file to cover.
fn is_program(rule: &str) -> bool {
    rule.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-'))
}

fn shown(limit: LimitKind, value: u64) -> String {
    match limit {
        LimitKind::WallTime => crate::render::duration_ms(value),
        LimitKind::CpuTime => crate::render::duration_ms(value.saturating_mul(1000)),
        LimitKind::Cpu => format!("{}.{:03}", value / 1000, value % 1000),
        LimitKind::Memory
        | LimitKind::Disk
        | LimitKind::BytesWritten
        | LimitKind::Output
        | LimitKind::FileSize
        | LimitKind::DiskReserve => crate::render::bytes(value),
        LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => value.to_string(),
    }
}

fn document(loaded: &Loaded, rows: &[Row]) -> Value {
    let effective = &loaded.effective;
    let rule = |row: &Row| {
        let (held, by, _) = row.held.words();
        json!({ "section": row.section, "rule": row.rule, "held": held, "by": by, "origin": row.origin })
    };
    let system: Vec<String> = loaded
        .layers
        .iter()
        .flat_map(|layer| &layer.document.system)
        .map(|path| path.value.to_string())
        .collect();
    json!({
        "schema": "bastle.policy-show/v1",
        "headline": effective.headline(),
        "workspace": effective.surroundings.workspace,
        "mode": effective.mode.value,
        "digest": effective.digest(),
        "layers": effective.layers.iter().map(|(kind, name)| json!({ "layer": kind, "name": name })).collect::<Vec<_>>(),
        "system": system,
        "rules": rows.iter().map(rule).collect::<Vec<_>>(),
        "notGranted": effective.not_granted,
        "inactive": effective.inactive,
        "summary": effective.summary,
    })
}
