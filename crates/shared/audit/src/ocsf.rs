//! The one table from events to OCSF classes. Everything a record says beside its payload is decided here.
use crate::event::{AuditEvent, Exit, Mark};
use crate::{files, net, objects};
use bastle_contract::grants::FileOp;
use bastle_contract::{BackendKind, DenialKind, Denied, Digest, ExecSeen, Fault, RunId};
use serde_json::{Map, Value, json};

/// The OCSF classes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Base Event.
    Base,
    /// File System Activity.
    File,
    /// Process Activity.
    Process,
    /// Network Activity.
    Network,
    /// HTTP Activity.
    Http,
    /// DNS Activity.
    Dns,
    /// Application Lifecycle.
    Lifecycle,
    /// API Activity.
    Api,
}

/// What a record is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// The log itself.
    Mark(&'a Mark),
    /// The run.
    Event(&'a AuditEvent),
}

/// Where a record belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) class: Class,
    pub(crate) activity: u8,
    pub(crate) caption: &'static str,
    pub(crate) severity: u8,
    pub(crate) control: Control,
}

/// What bastle did about it: OCSF action and disposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Nothing was controlled.
    None,
    /// Allowed (1), Allowed (1).
    Allowed,
    /// Denied (2), Blocked (2).
    Blocked,
    /// Observed (3), Logged (17).
    Logged,
    /// Modified (4), Dropped (6).
    Dropped,
}

/// Severities.
pub(crate) const INFORMATIONAL: u8 = 1;
pub(crate) const LOW: u8 = 2;
pub(crate) const MEDIUM: u8 = 3;
pub(crate) const HIGH: u8 = 4;

/// An activity that has no number of its own in its class.
pub(crate) const OTHER: u8 = 99;

impl Class {
    /// `class_uid`.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Base => 0,
            Self::File => 1001,
            Self::Process => 1007,
            Self::Network => 4001,
            Self::Http => 4002,
            Self::Dns => 4003,
            Self::Lifecycle => 6002,
            Self::Api => 6003,
        }
    }

    fn category(self) -> u32 {
        self.uid() / 1000
    }
}

fn shape(content: Content<'_>) -> Shape {
    let row = |class, activity, caption, severity, control| Shape {
        class,
        activity,
        caption,
        severity,
        control,
    };
    use Class::{Api, Base, Lifecycle, Process};
    use Control::{Allowed, Blocked, Dropped, Logged};
    match content {
        Content::Mark(Mark::Opened { .. }) => row(Base, OTHER, "Log Opened", INFORMATIONAL, Control::None),
        Content::Mark(Mark::Checkpoint { .. }) => {
            row(Base, OTHER, "Checkpoint", INFORMATIONAL, Control::None)
        }
        Content::Mark(Mark::Sealed { .. }) => row(Base, OTHER, "Log Sealed", INFORMATIONAL, Control::None),
        Content::Mark(Mark::Recovered { .. }) => row(Base, OTHER, "Log Recovered", MEDIUM, Control::None),
        Content::Event(event) => match event {
            AuditEvent::RunPlanned { .. } => row(Api, 1, "Create", INFORMATIONAL, Allowed),
            AuditEvent::Statement(_) => row(Lifecycle, OTHER, "Fence Probed", INFORMATIONAL, Logged),
            AuditEvent::Started { .. } => row(Lifecycle, 3, "Start", INFORMATIONAL, Allowed),
            AuditEvent::Denied(denied) => shape_of_denial(denied),
            AuditEvent::Limit(_) => row(Lifecycle, OTHER, "Limit Reached", MEDIUM, Blocked),
            AuditEvent::LimitLost(_) => row(Lifecycle, OTHER, "Limit Lost", HIGH, Blocked),
            AuditEvent::Exec(_) => row(Process, 1, "Launch", INFORMATIONAL, Logged),
            AuditEvent::Paused => row(Lifecycle, 7, "Disable", INFORMATIONAL, Control::None),
            AuditEvent::Resumed => row(Lifecycle, 6, "Enable", INFORMATIONAL, Control::None),
            AuditEvent::OutputTruncated { .. } => row(Lifecycle, OTHER, "Output Truncated", LOW, Dropped),
            AuditEvent::Ended { .. } => row(Lifecycle, 4, "Stop", INFORMATIONAL, Control::None),
            AuditEvent::Refused(_) => row(Api, 1, "Create", HIGH, Blocked),
            AuditEvent::Net(decision) => net::shape(decision),
            AuditEvent::NetClosed(_) => row(Class::Network, 6, "Traffic", INFORMATIONAL, Control::None),
            AuditEvent::NetAnswered { allow, .. } | AuditEvent::ToolAnswered { allow, .. } => {
                row(Api, 3, "Update", LOW, if *allow { Allowed } else { Blocked })
            }
            AuditEvent::NetChanged { .. } => row(Api, 3, "Update", LOW, Allowed),
            AuditEvent::NetLost { .. } => row(Lifecycle, OTHER, "Egress Lost", HIGH, Control::None),
            AuditEvent::Budget(reached) => net::shape_of_budget(reached),
            AuditEvent::Wanted { .. } => row(Api, OTHER, "Rule Requested", LOW, Logged),
            AuditEvent::File(seen) => files::shape(seen),
            AuditEvent::Files(_) => row(Lifecycle, OTHER, "File Operations", INFORMATIONAL, Logged),
            AuditEvent::CacheLent { .. } => row(Lifecycle, OTHER, "Cache Lent", INFORMATIONAL, Allowed),
            AuditEvent::CacheMerged { .. } => row(Api, 3, "Update", LOW, Allowed),
            AuditEvent::WorkspaceMade { .. } => {
                row(Lifecycle, OTHER, "Workspace Made", INFORMATIONAL, Control::None)
            }
            AuditEvent::Granted { .. } => row(Api, 3, "Update", LOW, Allowed),
            AuditEvent::GrantEnded { .. } => row(Api, 3, "Update", INFORMATIONAL, Control::None),
            AuditEvent::BrokerAccess { refused: None, .. } => row(Api, 2, "Read", INFORMATIONAL, Allowed),
            AuditEvent::BrokerAccess { .. } => row(Api, 2, "Read", MEDIUM, Blocked),
            AuditEvent::HostChanged { .. } => row(Api, 3, "Update", LOW, Allowed),
            AuditEvent::ExecRequested { .. } => row(Api, 1, "Create", LOW, Allowed),
            AuditEvent::ExecEnded { .. } => row(Api, OTHER, "Command Ended", INFORMATIONAL, Control::None),
            AuditEvent::Note { .. } => row(Base, OTHER, "Note", INFORMATIONAL, Control::None),
        },
    }
}

fn shape_of_denial(denied: &Denied) -> Shape {
    let (class, (activity, caption), severity) = match denied.kind {
        DenialKind::Write | DenialKind::Limit => (Class::File, file_activity(&denied.operation), LOW),
        DenialKind::Hidden | DenialKind::Protected => (Class::File, file_activity(&denied.operation), MEDIUM),
        DenialKind::Syscall => (Class::Api, (OTHER, "System Call"), MEDIUM),
        DenialKind::Exec => (Class::Process, (1, "Launch"), MEDIUM),
    };
    Shape {
        class,
        activity,
        caption,
        severity,
        control: Control::Blocked,
    }
}

/// The File System Activity of a refused system call. Opening is refused for the sake of writing.
fn file_activity(operation: &str) -> (u8, &'static str) {
    match operation {
        "creat" | "mkdir" | "mkdirat" | "mknod" | "mknodat" | "link" | "linkat" | "symlink" | "symlinkat" => {
            (1, "Create")
        }
        "unlink" | "unlinkat" | "rmdir" => (4, "Delete"),
        "rename" | "renameat" | "renameat2" => (5, "Rename"),
        "utime" | "utimes" | "utimensat" | "futimesat" => (6, "Set Attributes"),
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown" | "lchown" | "fchownat"
        | "setxattr" | "lsetxattr" | "fsetxattr" | "removexattr" | "lremovexattr" | "fremovexattr" => {
            (7, "Set Security")
        }
        _ => (3, "Update"),
    }
}

/// Everything of a record but `metadata`, `trace`, the attestation and the payload.
pub(crate) fn body(
    content: Content<'_>,
    run: &RunId,
    policy: Option<&str>,
) -> (Map<String, Value>, Vec<&'static str>) {
    let shape = shape(content);
    let mut body = Map::new();
    let mut profiles = Vec::new();
    let uid = shape.class.uid();
    body.insert("activity_id".into(), shape.activity.into());
    body.insert("activity_name".into(), shape.caption.into());
    body.insert("category_uid".into(), shape.class.category().into());
    body.insert("class_uid".into(), uid.into());
    body.insert("type_uid".into(), (uid * 100 + u32::from(shape.activity)).into());
    body.insert("severity_id".into(), shape.severity.into());
    body.insert("actor".into(), objects::actor_bastle());
    match shape.class {
        // Neither class has an actor of its own; the host profile gives them one.
        Class::Base => profiles.push("host"),
        Class::Network | Class::Http | Class::Dns => {
            profiles.push("host");
            body.insert("device".into(), objects::device(run));
            body.insert("src_endpoint".into(), objects::sandbox(run));
        }
        Class::Lifecycle => {
            profiles.push("host");
            body.insert("app".into(), objects::app(run));
        }
        Class::File | Class::Process => {
            body.insert("device".into(), objects::device(run));
        }
        Class::Api => {
            profiles.push("trace");
            body.insert("src_endpoint".into(), objects::here());
            body.insert("resources".into(), objects::resources(run));
        }
    }
    let control = match shape.control {
        Control::None => None,
        Control::Allowed => Some((1, 1)),
        Control::Blocked => Some((2, 2)),
        Control::Logged => Some((3, 17)),
        Control::Dropped => Some((4, 6)),
    };
    if let Some((action, disposition)) = control {
        profiles.push("security_control");
        body.insert("action_id".into(), action.into());
        body.insert("disposition_id".into(), disposition.into());
        if let Some(digest) = policy {
            body.insert("policy".into(), json!({ "name": "effective", "uid": digest }));
        }
    }
    match content {
        Content::Mark(mark) => fill_mark(mark, &mut body),
        Content::Event(event) => fill_event(event, run, &mut body),
    }
    (body, profiles)
}

fn fill_mark(mark: &Mark, body: &mut Map<String, Value>) {
    let message = match mark {
        Mark::Opened { run, key, .. } => format!("audit log of run {run} opened, signed by key {key}"),
        Mark::Checkpoint { sequence, .. } => format!("records up to {sequence} signed"),
        Mark::Sealed { count, .. } => format!("audit log sealed with {count} records"),
        Mark::Recovered { torn_bytes, .. } => {
            format!("audit log continued after a crash, {torn_bytes} torn bytes set aside")
        }
    };
    body.insert("message".into(), message.into());
}

fn fill_event(event: &AuditEvent, run: &RunId, body: &mut Map<String, Value>) {
    let message = match event {
        AuditEvent::RunPlanned {
            argv,
            backend,
            policy,
            ..
        } => fill_plan(policy, *backend, argv.program(), body),
        AuditEvent::Statement(found) => {
            format!("fence {} probed, {} probes", found.fence, found.probes.len())
        }
        AuditEvent::Started { pid } => format!("agent started, init has process id {pid}"),
        AuditEvent::Denied(denied) => fill_denial(denied, run, body),
        AuditEvent::LimitLost(lost) => {
            format!("limit {} = {} lost: {}", lost.limit, lost.value, lost.fault().why)
        }
        AuditEvent::Limit(hit) => format!("limit {} = {} reached: {}", hit.limit, hit.value, hit.effect),
        AuditEvent::Exec(seen) => fill_exec(seen, run, body),
        AuditEvent::Paused => "run paused".to_owned(),
        AuditEvent::Resumed => "run resumed".to_owned(),
        AuditEvent::OutputTruncated { bytes } => format!("{bytes} bytes of output discarded"),
        AuditEvent::Ended { exit, reason, .. } => fill_end(*exit, reason.as_deref(), body),
        AuditEvent::Refused(fault) => fill_refusal(fault, body),
        AuditEvent::Net(decision) => net::fill(decision, run, body),
        AuditEvent::NetClosed(closed) => net::fill_closed(closed, body),
        AuditEvent::NetAnswered { id, allow, by, .. } => fill_answer("net.answer", id, (*allow, by), body),
        AuditEvent::ToolAnswered {
            id,
            used,
            allow,
            by,
            rule,
            hash: _,
        } => {
            let by = rule.as_deref().unwrap_or(by);
            fill_answer("tool.answer", &format!("{id} {used}"), (*allow, by), body)
        }
        AuditEvent::NetLost { restart, why } => format!("egress process lost ({restart}): {why}"),
        AuditEvent::Budget(reached) => net::budget_message(reached),
        AuditEvent::Wanted { rule, why } => {
            net::fill_api("net.want", format!("the agent asks for {rule}: {why}"), body)
        }
        AuditEvent::File(seen) => files::fill(seen, run, body),
        AuditEvent::Files(told) => files::message(told),
        AuditEvent::CacheLent { cache, files } => {
            format!("cache {cache} lent with {files} files, changes go to a layer of the run")
        }
        AuditEvent::CacheMerged {
            cache,
            merged,
            refused,
        } => fill_merge(cache, [*merged, *refused], body),
        AuditEvent::WorkspaceMade {
            mode,
            source,
            files,
            bytes,
            ..
        } => format!("workspace {mode} of {source}: {files} files, {bytes} bytes copied"),
        AuditEvent::BrokerAccess {
            op,
            name,
            bytes,
            refused,
            ..
        } => net::fill_api("broker", broker(*op, name, *bytes, refused.as_deref()), body),
        AuditEvent::NetChanged { .. }
        | AuditEvent::Granted { .. }
        | AuditEvent::GrantEnded { .. }
        | AuditEvent::HostChanged { .. } => fill_act(event, body),
        AuditEvent::ExecRequested { id, by, argv, .. } => fill_wish(*id, by, argv.program(), body),
        AuditEvent::ExecEnded { id, exit, reason } => fill_over(*id, *exit, reason.as_deref(), body),
        AuditEvent::Note { topic, text } => format!("{topic}: {text}"),
    };
    body.insert("message".into(), objects::text(&message).into());
}

fn fill_answer(api: &str, what: &str, (allow, by): (bool, &str), body: &mut Map<String, Value>) -> String {
    let word = if allow { "allowed" } else { "denied" };
    net::fill_api(api, format!("{word} {what} (by {by})"), body)
}

/// What a principal did to a living run, or with the work of one that ended.
fn fill_act(event: &AuditEvent, body: &mut Map<String, Value>) -> String {
    let (api, text, who) = match event {
        AuditEvent::NetChanged { change, cut, by, .. } => {
            let text = format!("network rules replaced: {change}; {cut} connections cut");
            ("net.change", text, by)
        }
        AuditEvent::Granted { path, by, .. } => ("grant", format!("{path} granted to the living run"), by),
        AuditEvent::GrantEnded { path, why, by, .. } => {
            let text = format!("{path} is not granted any more: {why}");
            ("grant.end", text, by)
        }
        AuditEvent::HostChanged {
            run,
            by,
            at,
            principal,
            ..
        } => (by.as_str(), format!("{by} of {run}: {at}"), principal),
        _ => return String::new(),
    };
    let text = match who.is_empty() {
        true => text,
        false => format!("{text} (by {who})"),
    };
    net::fill_api(api, text, body)
}

fn fill_merge(cache: &str, [merged, refused]: [u64; 2], body: &mut Map<String, Value>) -> String {
    let text = format!("{merged} files merged into cache {cache}, {refused} left out");
    net::fill_api("cache.merge", text, body)
}

fn fill_wish(id: u32, by: &str, program: &str, body: &mut Map<String, Value>) -> String {
    let text = format!("further command {id} asked for (by {by}): {program}");
    net::fill_api("exec.request", text, body)
}

fn fill_over(id: u32, exit: Exit, reason: Option<&str>, body: &mut Map<String, Value>) -> String {
    let how = match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::Unknown => "it did not run, or nobody could tell".to_owned(),
    };
    let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    net::fill_api(
        "exec.end",
        format!("further command {id} ended: {how}{why}"),
        body,
    )
}

fn fill_plan(policy: &Digest, backend: BackendKind, program: &str, body: &mut Map<String, Value>) -> String {
    body.insert("api".into(), objects::api("bastle", "run.plan"));
    body.insert("status_id".into(), 1.into());
    body.insert(
        "policy".into(),
        json!({ "name": "effective", "uid": policy.as_str() }),
    );
    let backend = match backend {
        BackendKind::Native => "native",
        BackendKind::Host => "host",
    };
    format!("run planned on backend {backend}: {program}")
}

fn fill_exec(seen: &ExecSeen, run: &RunId, body: &mut Map<String, Value>) -> String {
    body.insert("actor".into(), objects::actor_agent(run, seen.pid, ""));
    body.insert(
        "process".into(),
        objects::process(seen.pid, &seen.path, &seen.argv),
    );
    format!("executed {}", seen.path)
}

fn fill_refusal(fault: &Fault, body: &mut Map<String, Value>) -> String {
    body.insert("api".into(), objects::api("bastle", "run.refuse"));
    body.insert("status_id".into(), 2.into());
    body.insert("status_code".into(), fault.code.to_string().into());
    body.insert("status_detail".into(), objects::text(&fault.why).into());
    fault.what.clone()
}

fn broker(op: FileOp, name: &str, bytes: u64, refused: Option<&str>) -> String {
    let word = match op {
        FileOp::List => "list",
        FileOp::Read => "read",
        FileOp::Write => "write",
    };
    match refused {
        None => format!("{word} {name}, {bytes} bytes"),
        Some(why) => format!("{word} {name} refused: {why}"),
    }
}

fn fill_end(exit: Exit, reason: Option<&str>, body: &mut Map<String, Value>) -> String {
    let (status, code, how) = match exit {
        Exit::Code(code) => (
            if code == 0 { 1 } else { 2 },
            code.to_string(),
            format!("exit code {code}"),
        ),
        Exit::Signal(signal) => (2, format!("signal {signal}"), format!("signal {signal}")),
        Exit::Unknown => (0, "unknown".to_owned(), "unknown end".to_owned()),
    };
    body.insert("status_id".into(), status.into());
    body.insert("status_code".into(), code.into());
    match reason {
        Some(reason) => format!("run ended: {how}, {reason}"),
        None => format!("run ended: {how}"),
    }
}

fn fill_denial(denied: &Denied, run: &RunId, body: &mut Map<String, Value>) -> String {
    body.insert(
        "actor".into(),
        objects::actor_agent(run, denied.pid, &denied.comm),
    );
    body.insert("status_id".into(), 2.into());
    body.insert("status_code".into(), objects::text(&denied.errno).into());
    body.insert("status_detail".into(), objects::text(&denied.rule).into());
    match denied.kind {
        DenialKind::Write | DenialKind::Hidden | DenialKind::Protected | DenialKind::Limit => {
            body.insert("file".into(), objects::file(&denied.target));
        }
        DenialKind::Syscall => {
            body.insert("api".into(), objects::api("kernel", &denied.operation));
        }
        DenialKind::Exec => {
            body.insert(
                "process".into(),
                objects::process(denied.pid, &denied.target, &[]),
            );
        }
    }
    format!("denied {} {}", denied.operation, denied.target)
}
