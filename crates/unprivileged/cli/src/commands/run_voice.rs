//! What a person reads on standard error while a run lives. Text of events comes from the agent: shown escaped.
mod files;
mod help;
mod letters;
mod network;
mod unusual;
mod workspace;

use crate::render::{Paint, Style, bytes, duration_ms};
use bastle_audit::sanitize;
use bastle_contract::egress::{BudgetReached, NetDecision};
use bastle_contract::{
    CapabilityStatement, Code, DenialKind, Denied, Fault, LaunchPlan, LimitHit, LimitKind, LimitMechanism,
    ReadSight, Stdio, Verdict,
};
use bastle_control::workspaces::WorkFacts;
use bastle_control::{AfterLoss, Loaded, Place, Question, Receipt, Reply, Voice};
use bastle_policy::LayerKind;
use help::{denial_help, quoted};
use letters::fit;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Denials that are told in full; after these only their number is.
const TOLD: u64 = 20;

/// What is said and how loudly.
pub(crate) struct RunVoice<'a> {
    style: Style,
    quiet: bool,
    place: &'a Place,
    loaded: &'a Loaded,
    begun: Instant,
    raw: bool,
    run: String,
    program: String,
    /// Whether the preset was picked from the command.
    pub(crate) chosen_by_command: bool,
    denials: u64,
    /// The tree, in words.
    tree: String,
    /// Whether the reading of files is seen.
    sight: Option<ReadSight>,
    /// What the probes found; kept for the JSON receipt.
    pub(crate) statement: Option<CapabilityStatement>,
    /// Denials, for the JSON receipt: the first few.
    pub(crate) denied: Vec<(String, Denied)>,
    /// What was unusual, for the JSON receipt.
    pub(crate) findings: Vec<serde_json::Value>,
    /// Denied requests, for the JSON receipt: the first few.
    pub(crate) net_denied: Vec<NetDecision>,
}

/// How loudly a voice speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// First output, denials, receipt.
    Normal,
    /// No first output, denials or receipt; faults are printed all the same.
    Quiet,
}

impl<'a> RunVoice<'a> {
    pub(crate) fn new(style: Style, loudness: Loudness, place: &'a Place, loaded: &'a Loaded) -> Self {
        Self {
            style,
            quiet: loudness == Loudness::Quiet,
            place,
            loaded,
            begun: Instant::now(),
            raw: false,
            run: String::new(),
            program: String::new(),
            chosen_by_command: false,
            denials: 0,
            tree: String::new(),
            sight: None,
            statement: None,
            denied: Vec::new(),
            findings: Vec::new(),
            net_denied: Vec::new(),
        }
    }

    /// The tree that the agent works in.
    pub(crate) fn works_in(&mut self, work: &WorkFacts) {
        self.tree = workspace::headline(work);
    }

    /// Says lines, with the line ends the terminal needs right now.
    fn say(&self, lines: &[String]) {
        let end = if self.raw { "\r\n" } else { "\n" };
        let text: String = lines
            .iter()
            .flat_map(|line| [fit(self.style, line), end.to_owned()])
            .collect();
        // Nobody may be reading: a run does not end for that.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
    }

    /// One word that it goes on; the number stands in the receipt.
    fn say_more(&self) {
        if self.denials == TOLD + 1 {
            self.say(&[format!(
                "{} more denials follow; they are recorded, not shown: bastle audit show {}",
                self.style.cross(),
                self.run
            )]);
        }
    }

    /// The path of the run's audit log.
    fn log(&self) -> PathBuf {
        self.place.state.join("audit").join(&self.run).join("log.jsonl")
    }

    /// The last lines of a run.
    pub(crate) fn receipt(&mut self, receipt: &Receipt) {
        self.raw = false;
        // A run that never started has nothing to account for: its fault says all.
        if self.quiet || self.run.is_empty() {
            return;
        }
        let lines = receipt_lines(self.style, &self.run, receipt);
        self.say(&lines);
    }
}

impl Voice for RunVoice<'_> {
    fn proven(&mut self, plan: &LaunchPlan, statement: &CapabilityStatement) {
        self.run = plan.run.to_string();
        self.program = plan.argv.as_slice().join(" ");
        self.statement = Some(statement.clone());
        if !self.quiet {
            self.say(&first_lines(self, plan, statement));
        }
        self.raw = matches!(plan.stdio, Stdio::Pty { .. });
    }

    fn reads(&mut self, sight: &ReadSight) {
        self.sight = Some(sight.clone());
    }

    fn denied(&mut self, id: &str, denied: &Denied) {
        self.denials += 1;
        if self.denials <= TOLD {
            self.denied.push((id.to_owned(), denied.clone()));
        }
        if self.quiet {
            return;
        }
        if self.denials <= TOLD {
            self.say(&denial_lines(self, id, denied));
        } else {
            self.say_more();
        }
    }

    fn net_denied(&mut self, decision: &NetDecision) {
        self.tell_net_denied(decision);
    }

    fn question(&mut self, question: &Question<'_>) {
        // A question is no chatter: without it the run stands still for no visible reason.
        self.say(&network::question(self, question));
    }

    fn answered(&mut self, id: &str, answer: Reply, by: &str) {
        self.say(&[network::answered(self, id, answer.word(), by)]);
    }

    fn budget(&mut self, reached: &BudgetReached) {
        if !self.quiet {
            self.say(&network::budget(self, reached));
        }
    }

    fn changed(&mut self, change: &str, cut: u32, _by: &str) {
        if !self.quiet {
            self.tell_changed(change, cut);
        }
    }

    fn unchanged(&mut self, fault: &Fault) {
        self.tell_unchanged(fault);
    }

    fn wanted(&mut self, rule: &str, why: &str) {
        if !self.quiet {
            let mark = self.style.paint(Paint::Warn, "!");
            let run = &self.run;
            let rule = sanitize(rule);
            self.say(&[
                format!("{mark} the agent asks for {rule}: {}", sanitize(why)),
                format!("  help: bastle allow {run} net {}", quoted(&rule)),
            ]);
        }
    }

    fn audit_contradicted(&mut self, text: &str) {
        let mark = self.style.paint(Paint::Warn, "!");
        self.say(&[format!("{mark} audit: {}", sanitize(text))]);
    }

    fn happened(&mut self, kind: &str, data: serde_json::Value) {
        if kind == "anomaly" {
            self.unusual(&data);
        }
    }

    fn egress_lost(&mut self, why: &str, after: AfterLoss) {
        let word = match after {
            AfterLoss::Replaced => "nothing passes until another has taken its place",
            AfterLoss::Ended => "the run is ended",
        };
        self.say(&[format!(
            "{} the egress process is gone ({}): {word}    {}",
            self.style.cross(),
            sanitize(why),
            Code::NetLost
        )]);
    }

    fn limit(&mut self, hit: &LimitHit) {
        if self.quiet {
            return;
        }
        let code = limit_code(hit.limit);
        let first = format!(
            "{} limit {} = {} reached    {code}",
            self.style.cross(),
            hit.limit,
            amount(hit.limit, hit.value)
        );
        self.say(&[
            first,
            format!("   ╰─ {}", sanitize(&hit.effect)),
            format!("  help: {}", code.info().fix),
        ]);
    }
}

/// What is true of the fence, said once before the agent starts.
/// What an agent's preset found on this host.
fn agent_lines(voice: &RunVoice<'_>) -> Vec<String> {
    let Some(agent) = &voice.loaded.agent else {
        return Vec::new();
    };
    let warn = voice.style.paint(Paint::Warn, "!");
    let told = agent.told.iter().map(|line| format!("  {}", sanitize(line)));
    let warned = agent
        .warnings
        .iter()
        .map(|line| format!("  {warn} {}", sanitize(line)));
    told.chain(warned).collect()
}

/// What the run may use at most, in one line.
fn limits_line(plan: &LaunchPlan) -> Option<String> {
    let held = plan
        .limits
        .iter()
        .filter(|rule| rule.mechanism != LimitMechanism::Waived)
        .map(|rule| match rule.mechanism {
            LimitMechanism::FreeSpaceShare => {
                format!("{} {} or 5 %", rule.limit, amount(rule.limit, rule.value))
            }
            _ => format!("{} {}", rule.limit, amount(rule.limit, rule.value)),
        });
    let held: Vec<String> = held.collect();
    (!held.is_empty()).then(|| format!("  limits: {}", held.join(", ")))
}

fn first_lines(voice: &RunVoice<'_>, plan: &LaunchPlan, statement: &CapabilityStatement) -> Vec<String> {
    let style = voice.style;
    let effective = &voice.loaded.effective;
    let preset = voice
        .loaded
        .layers
        .iter()
        .find(|layer| layer.kind == LayerKind::Preset)
        .map_or("-", |layer| layer.name.as_str());
    let held = statement
        .probes
        .iter()
        .filter(|probe| probe.verdict == Verdict::Held)
        .count();
    let mut lines = vec![
        format!(
            "bastle {}  fence: {}   net: {}   preset: {}{}",
            env!("CARGO_PKG_VERSION"),
            sanitize(&statement.fence),
            sanitize(&network::headline(plan, &effective.net)),
            sanitize(preset),
            if voice.chosen_by_command {
                " (from the command)"
            } else {
                ""
            }
        ),
        format!(
            "  {}   workspace: {}",
            sanitize(&effective.headline()),
            voice.tree
        ),
        format!(
            "  {} {held} probes held, fence up in {} ms   run {}   {}   audit {}",
            style.tick(),
            voice.begun.elapsed().as_millis(),
            plan.run,
            voice.reads_words(),
            sanitize(&voice.log().display().to_string())
        ),
    ];
    if plan.is_without_landlock() {
        lines.push(format!(
            "  {} waived: this kernel has no Landlock; where it is a second layer there is one",
            style.paint(Paint::Warn, "!")
        ));
    }
    lines.extend(limits_line(plan));
    lines.extend(network::uncounted_line(&effective.net));
    lines.extend(agent_lines(voice));
    for rule in plan
        .limits
        .iter()
        .filter(|rule| rule.mechanism == LimitMechanism::Waived)
    {
        lines.push(format!(
            "  {} waived: limit {} = {} is not held",
            style.paint(Paint::Warn, "!"),
            rule.limit,
            amount(rule.limit, rule.value)
        ));
    }
    for request in &effective.not_granted {
        let place = request.origin.to_string();
        lines.push(format!(
            "  {} requested, not granted: {} ({})",
            style.paint(Paint::Warn, "!"),
            sanitize(&request.what),
            sanitize(&place)
        ));
    }
    if effective.mode.value != bastle_policy::Mode::Enforce && !effective.net.learn {
        lines.push(format!(
            "  {} mode {:?} has no effect in this build: everything is enforced",
            style.paint(Paint::Warn, "!"),
            effective.mode.value
        ));
    }
    lines
}

fn denial_lines(voice: &RunVoice<'_>, id: &str, denied: &Denied) -> Vec<String> {
    let code = denial_code(denied);
    let word = match denied.kind {
        DenialKind::Write | DenialKind::Hidden | DenialKind::Protected | DenialKind::Limit => "write",
        DenialKind::Syscall => "call",
        DenialKind::Exec => "exec",
    };
    let mechanism = match denied.kind {
        DenialKind::Write => "kernel",
        DenialKind::Hidden | DenialKind::Protected | DenialKind::Limit => "write guard",
        DenialKind::Syscall => "system-call filter",
        DenialKind::Exec => "program list",
    };
    let target = if denied.target.is_empty() {
        &denied.operation
    } else {
        &denied.target
    };
    let mut lines = vec![
        format!(
            "{} denied {word} {}    {code} · {}",
            voice.style.cross(),
            sanitize(target),
            sanitize(id)
        ),
        format!(
            "   ╭─ {} › {}({})   {}",
            voice.run,
            sanitize(&denied.comm),
            denied.pid,
            sanitize(&denied.operation)
        ),
        format!(
            "   ╰─ {} → {}   enforced: {mechanism}",
            sanitize(&denied.rule),
            sanitize(&denied.errno)
        ),
    ];
    for (index, help) in denial_help(denied, id, &voice.program).into_iter().enumerate() {
        lines.push(format!("  {} {help}", if index == 0 { "help:" } else { "     " }));
    }
    lines
}

/// The code under which a denial is explained.
pub(crate) fn denial_code(denied: &Denied) -> Code {
    match denied.kind {
        DenialKind::Write => Code::FsWrite,
        DenialKind::Hidden => Code::FsHidden,
        DenialKind::Protected => Code::FsProtected,
        DenialKind::Syscall => Code::SysDenied,
        DenialKind::Exec => Code::ExecDenied,
        DenialKind::Limit => {
            let named = |kind: &&LimitKind| denied.rule.starts_with(&format!("limits.{} ", kind.name()));
            LimitKind::ALL
                .iter()
                .find(named)
                .map_or(Code::LimitDisk, |kind| limit_code(*kind))
        }
    }
}

fn limit_code(limit: LimitKind) -> Code {
    match limit {
        LimitKind::WallTime | LimitKind::CpuTime | LimitKind::Cpu => Code::LimitTime,
        LimitKind::Memory => Code::LimitMemory,
        LimitKind::Pids => Code::LimitPids,
        LimitKind::Disk | LimitKind::FileSize | LimitKind::DiskReserve => Code::LimitDisk,
        LimitKind::Inodes | LimitKind::Files => Code::LimitFiles,
        LimitKind::BytesWritten => Code::LimitBytes,
        LimitKind::Output => Code::LimitOutput,
        LimitKind::OpenFiles => Code::LimitOpenFiles,
    }
}

/// The receipt in lines.
fn receipt_lines(style: Style, run: &str, receipt: &Receipt) -> Vec<String> {
    let Receipt {
        code,
        fault: _,
        killed,
        usage,
        denials,
        limits,
        discarded,
        records,
        steps: _,
        net,
        work,
        files: _,
        caches,
    } = receipt;
    let mut parts = vec![
        format!("{run} finished {code} in {}", duration_ms(usage.wall_ms)),
        format!("cpu {}", duration_ms(usage.cpu_ms)),
    ];
    if usage.peak_memory > 0 {
        parts.push(format!("peak {}", bytes(usage.peak_memory)));
    }
    parts.push(count(usage.created, "file created", "files created"));
    parts.extend(net.iter().flat_map(network::receipt));
    parts.push(format!("{denials} denied"));
    parts.push(count(limits.len() as u64, "limit", "limits"));
    if *discarded > 0 {
        parts.push(format!("{} of output discarded", bytes(*discarded)));
    }
    if let Some(why) = killed {
        parts.push(format!("killed: {}", sanitize(why)));
    }
    parts.push(format!("audit {} sealed ({records} records)", style.tick()));
    let mut lines = vec![parts.join(" · ")];
    lines.extend(work.iter().flat_map(|work| workspace::receipt(run, work)));
    lines.extend(files::cache_lines(run, caches));
    if *denials > 0 {
        lines.push("  note: reads outside the policy are not reported: the kernel answers ENOENT".to_owned());
        lines.push("  next: bastle why   ·   bastle audit show @last".to_owned());
    }
    lines
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A limit's value as people write it.
pub(crate) fn amount(limit: LimitKind, value: u64) -> String {
    match limit {
        LimitKind::WallTime => duration_ms(value),
        LimitKind::CpuTime => format!("{value}s"),
        LimitKind::Cpu => format!("{}.{:03}", value / 1000, value % 1000),
        LimitKind::Memory
        | LimitKind::Disk
        | LimitKind::BytesWritten
        | LimitKind::Output
        | LimitKind::FileSize
        | LimitKind::DiskReserve => bytes(value),
        LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => value.to_string(),
    }
}
