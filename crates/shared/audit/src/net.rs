//! How network decisions look in OCSF: network (4001), HTTP (4002) and DNS (4003) activity. Hosts, methods and
//! paths come from the agent; egress has cut them and taken query strings and credentials out.
use crate::objects;
use crate::ocsf::{Class, Control, INFORMATIONAL, LOW, MEDIUM, OTHER, Shape};
use bastle_contract::RunId;
use bastle_contract::egress::{
    BudgetKind, BudgetReached, BudgetStep, Face, NetClosed, NetDecision, NetVerdict,
};
use serde_json::{Map, Value, json};

/// DNS answer code of a refused lookup: no such name, which resolver libraries do not ask again.
const NO_SUCH_NAME: u8 = 3;

/// Where a decision belongs.
pub(crate) fn shape(decision: &NetDecision) -> Shape {
    let denied = decision.verdict == NetVerdict::Denied;
    let class = class(decision);
    let (activity, caption) = match class {
        Class::Dns => (1, "Query"),
        Class::Http => http_activity(decision.method.as_deref().unwrap_or_default()),
        _ if denied => (5, "Refuse"),
        _ => (1, "Open"),
    };
    let (severity, control) = match decision.verdict {
        NetVerdict::Allowed => (INFORMATIONAL, Control::Allowed),
        NetVerdict::Denied => (MEDIUM, Control::Blocked),
        NetVerdict::Asked | NetVerdict::Learned => (LOW, Control::Logged),
    };
    Shape {
        class,
        activity,
        caption,
        severity,
        control,
    }
}

/// A request has a method; everything else is a lookup or a connection.
fn class(decision: &NetDecision) -> Class {
    match (decision.face, &decision.method) {
        (Face::Dns, _) => Class::Dns,
        (Face::Connect, _) | (_, Some(_)) => Class::Http,
        (Face::Http | Face::Https | Face::Socks | Face::Transparent, None) => Class::Network,
    }
}

/// The HTTP Activity of a method; git has words of its own.
fn http_activity(method: &str) -> (u8, &'static str) {
    match method {
        "CONNECT" | "" => (1, "Connect"),
        "DELETE" => (2, "Delete"),
        "GET" | "fetch" => (3, "Get"),
        "HEAD" => (4, "Head"),
        "OPTIONS" => (5, "Options"),
        "POST" | "push" => (6, "Post"),
        "PUT" => (7, "Put"),
        "TRACE" => (8, "Trace"),
        "PATCH" => (9, "Patch"),
        _ => (OTHER, "Other"),
    }
}

/// Fills the attributes of a decision; returns its message.
pub(crate) fn fill(decision: &NetDecision, run: &RunId, body: &mut Map<String, Value>) -> String {
    let denied = decision.verdict == NetVerdict::Denied;
    body.insert("actor".into(), objects::actor_run(run));
    body.insert("count".into(), decision.count.into());
    body.insert(
        "dst_endpoint".into(),
        objects::peer(&decision.host, decision.address, decision.port),
    );
    body.insert("status_id".into(), if denied { 2 } else { 1 }.into());
    if let Some(code) = decision.code {
        body.insert("status_code".into(), code.to_string().into());
    }
    body.insert("status_detail".into(), objects::text(&decision.reason).into());
    match class(decision) {
        Class::Dns => {
            body.insert(
                "query".into(),
                json!({ "hostname": objects::text(&decision.host) }),
            );
            body.insert("rcode_id".into(), if denied { NO_SUCH_NAME } else { 0 }.into());
        }
        Class::Http => {
            let method = decision.method.as_deref().unwrap_or("CONNECT");
            body.insert(
                "http_request".into(),
                json!({ "http_method": objects::text(method), "url": url(decision) }),
            );
        }
        Class::Base | Class::File | Class::Process | Class::Lifecycle | Class::Api | Class::Network => {}
    }
    message(decision)
}

/// The URL without its query.
fn url(decision: &NetDecision) -> Value {
    let path = decision.path.as_deref().unwrap_or("/");
    let mut url = json!({ "hostname": objects::text(&decision.host), "path": objects::text(path) });
    if let Some(object) = url.as_object_mut().filter(|_| decision.port != 0) {
        object.insert("port".into(), decision.port.into());
    }
    url
}

fn message(decision: &NetDecision) -> String {
    let verdict = match decision.verdict {
        NetVerdict::Allowed => "allowed",
        NetVerdict::Denied => "denied",
        NetVerdict::Asked => "asked about",
        NetVerdict::Learned => "let through to learn",
    };
    let what = match (decision.face, decision.method.as_deref()) {
        (Face::Dns, _) => "lookup of".to_owned(),
        (Face::Socks | Face::Transparent | Face::Connect, None) => "connection to".to_owned(),
        (_, Some(method)) => method.to_owned(),
        (Face::Http | Face::Https, None) => "request to".to_owned(),
    };
    let port = if decision.port == 0 {
        String::new()
    } else {
        format!(":{}", decision.port)
    };
    let path = decision.path.as_deref().unwrap_or_default();
    let id = if decision.id.is_empty() {
        String::new()
    } else {
        format!(" ({})", decision.id)
    };
    format!("{verdict} {what} {}{port}{path}{id}", decision.host)
}

/// Fills the attributes of an end; returns its message.
pub(crate) fn fill_closed(closed: &NetClosed, body: &mut Map<String, Value>) -> String {
    // The canonical form knows no larger integers; the payload has the number itself.
    let exact = |bytes: u64| bytes.min((1 << 52) - 1);
    let (out, back) = (exact(closed.bytes_out), exact(closed.bytes_in));
    body.insert(
        "traffic".into(),
        json!({ "bytes": out + back, "bytes_in": back, "bytes_out": out }),
    );
    let status = closed
        .status
        .map(|status| format!(", status {status}"))
        .unwrap_or_default();
    format!(
        "request {} over: {out} bytes out, {back} bytes in{status}",
        closed.seq
    )
}

/// Fills what a change by somebody has; gives the message back.
pub(crate) fn fill_api(operation: &str, message: String, body: &mut Map<String, Value>) -> String {
    body.insert("api".into(), objects::api("bastle", operation));
    body.insert("status_id".into(), 1.into());
    message
}

/// Where a budget belongs.
pub(crate) fn shape_of_budget(reached: &BudgetReached) -> Shape {
    let (severity, control) = match reached.step {
        BudgetStep::Warn => (LOW, Control::Logged),
        BudgetStep::Pause | BudgetStep::Stop => (MEDIUM, Control::Blocked),
    };
    Shape {
        class: Class::Lifecycle,
        activity: OTHER,
        caption: "Budget Reached",
        severity,
        control,
    }
}

/// The message of a budget.
pub(crate) fn budget_message(reached: &BudgetReached) -> String {
    let what = match reached.kind {
        BudgetKind::Cost => "cost (millionths of a dollar)",
        BudgetKind::Tokens => "tokens",
        BudgetKind::BytesOut => "bytes out",
        BudgetKind::BytesIn => "bytes in",
        BudgetKind::Requests => "requests",
        BudgetKind::Connections => "connections",
        BudgetKind::Turns => "turns",
    };
    let step = match reached.step {
        BudgetStep::Warn => "warning",
        BudgetStep::Pause => "paused",
        BudgetStep::Stop => "stopped",
    };
    format!(
        "budget {what}: {} of {} used, {step}",
        reached.used, reached.limit
    )
}
