//! Refusals on the wire: one table from codes to statuses, one form (problem+json), one place that decides how much a
//! caller is told.
//!
//! **Trust:** the texts of faults may hold paths of this host. Whoever is not an admin does not see these.
use crate::dto::plain;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bastle_contract::{Code, Fault};
use serde_json::{Value, json};
use std::sync::Arc;

/// Which status a code has: the longest beginning that fits.
const STATUSES: &[(&str, StatusCode)] = &[
    ("BST-API-001", StatusCode::BAD_REQUEST),
    ("BST-API-002", StatusCode::UNAUTHORIZED),
    ("BST-API-003", StatusCode::FORBIDDEN),
    ("BST-API-004", StatusCode::FORBIDDEN),
    ("BST-API-005", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ("BST-API-006", StatusCode::PAYLOAD_TOO_LARGE),
    ("BST-API-007", StatusCode::TOO_MANY_REQUESTS),
    ("BST-API-008", StatusCode::NOT_FOUND),
    ("BST-API-009", StatusCode::METHOD_NOT_ALLOWED),
    ("BST-API-010", StatusCode::FORBIDDEN),
    ("BST-API-011", StatusCode::SERVICE_UNAVAILABLE),
    ("BST-API-012", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-API-013", StatusCode::CONFLICT),
    ("BST-API-", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-USE-", StatusCode::BAD_REQUEST),
    ("BST-POL-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-LIM-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-FS-", StatusCode::FORBIDDEN),
    ("BST-EXEC-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-SYS-", StatusCode::FORBIDDEN),
    ("BST-NET-", StatusCode::FORBIDDEN),
    ("BST-SEC-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-WS-001", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-WS-003", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-WS-004", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-WS-007", StatusCode::NOT_FOUND),
    ("BST-WS-022", StatusCode::NOT_FOUND),
    ("BST-WS-031", StatusCode::NOT_FOUND),
    ("BST-WS-", StatusCode::CONFLICT),
    ("BST-FENCE-008", StatusCode::CONFLICT),
    ("BST-FENCE-", StatusCode::SERVICE_UNAVAILABLE),
    ("BST-HOST-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-SPAWN-", StatusCode::SERVICE_UNAVAILABLE),
    ("BST-AUD-003", StatusCode::NOT_FOUND),
    ("BST-AUD-", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-STA-", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-STA-004", StatusCode::SERVICE_UNAVAILABLE),
    ("BST-RUN-001", StatusCode::NOT_FOUND),
    ("BST-RUN-005", StatusCode::FORBIDDEN),
    ("BST-RUN-006", StatusCode::TOO_MANY_REQUESTS),
    ("BST-RUN-", StatusCode::CONFLICT),
    ("BST-APR-001", StatusCode::NOT_FOUND),
    ("BST-APR-", StatusCode::CONFLICT),
    ("BST-TOK-002", StatusCode::NOT_FOUND),
    ("BST-TOK-", StatusCode::FORBIDDEN),
    ("BST-PRO-001", StatusCode::NOT_FOUND),
    ("BST-PRO-", StatusCode::UNPROCESSABLE_ENTITY),
    ("BST-DMN-", StatusCode::INTERNAL_SERVER_ERROR),
    ("BST-CTX-", StatusCode::INTERNAL_SERVER_ERROR),
];

/// The status of a code; one that nobody listed is the daemon's own failure.
pub(crate) fn status_of(code: Code) -> StatusCode {
    let text = code.info().code;
    STATUSES
        .iter()
        .filter(|(beginning, _)| text.starts_with(beginning))
        .max_by_key(|(beginning, _)| beginning.len())
        .map_or(StatusCode::INTERNAL_SERVER_ERROR, |(_, status)| *status)
}

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) faults: Vec<Fault>,
    retry_after: Option<u64>,
    status: Option<StatusCode>,
}

/// How much a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Everything.
    All,
    /// Nothing about this host.
    Outside,
}

/// Faults on the way to the place that knows who asks.
#[derive(Clone)]
pub(crate) struct Untold(Arc<Vec<Fault>>);

impl Refusal {
    /// With one fault.
    pub(crate) fn new(code: Code, what: impl Into<String>, why: impl Into<String>) -> Self {
        Fault::new(code, what, why).into()
    }

    /// Says what helps.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        if let Some(fault) = self.faults.first_mut() {
            fault.help.push(help.into());
        }
        self
    }

    /// Says when to come again.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The same with another status.
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// The request is not understood.
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::new(Code::ApiRequest, "the request is not understood", why)
    }

    /// There is no such thing.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::new(Code::ApiMissing, what, "")
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        vec![fault].into()
    }
}

impl From<Vec<Fault>> for Refusal {
    fn from(faults: Vec<Fault>) -> Self {
        Self {
            faults,
            retry_after: None,
            status: None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let first = self.faults.first().map(|fault| status_of(fault.code));
        let status = self.status.or(first).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"bastle\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response.extensions_mut().insert(Untold(Arc::new(self.faults)));
        response
    }
}

/// The faults of a refusal whose body was not written yet.
pub(crate) fn untold(response: &Response) -> Option<Vec<Fault>> {
    response
        .extensions()
        .get::<Untold>()
        .map(|Untold(faults)| faults.to_vec())
}

/// Writes the body of a refusal, as far as the caller may know.
pub(crate) fn tell(response: Response, told: Told, instance: &str) -> Response {
    let Some(Untold(faults)) = response.extensions().get::<Untold>().cloned() else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    if parts.status.is_server_error() {
        // Whoever asked may not know why; whoever runs the daemon must.
        for fault in faults.iter() {
            eprintln!("bastle: {}: {}", plain(instance), plain(&fault.to_string()));
        }
    }
    let body = problem(&faults, parts.status, told, instance);
    let kind = HeaderValue::from_static("application/problem+json");
    parts.headers.insert(header::CONTENT_TYPE, kind);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body.to_string()))
}

/// The problem document.
pub(crate) fn problem(faults: &[Fault], status: StatusCode, told: Told, instance: &str) -> Value {
    let faults: Vec<Fault> = faults.iter().map(|fault| shown(fault, status, told)).collect();
    let first = faults.first();
    let code = first.map_or(Code::ApiInternal, |fault| fault.code);
    let detail = first.map_or_else(String::new, |fault| match fault.why.as_str() {
        "" => fault.what.clone(),
        why => format!("{}: {why}", fault.what),
    });
    json!({
        "type": format!("urn:bastle:error:{code}"),
        "title": code.info().title,
        "status": status.as_u16(),
        "detail": detail,
        "instance": instance,
        "code": code,
        "help": first.map(|fault| fault.help.clone()).unwrap_or_default(),
        "faults": faults,
    })
}

/// A fault for this caller: what went wrong inside stays inside.
fn shown(fault: &Fault, status: StatusCode, told: Told) -> Fault {
    match told {
        Told::All => fault.clone(),
        Told::Outside if status.is_server_error() => {
            Fault::new(fault.code, fault.code.info().title, "").help(fault.code.info().fix)
        }
        Told::Outside => Fault {
            code: fault.code,
            what: without_paths(&fault.what),
            why: without_paths(&fault.why),
            help: fault.help.iter().map(|help| without_paths(help)).collect(),
            local: None,
        },
    }
}

/// The text with every absolute path of the host replaced. Addresses of the API and names of fields stay.
pub(crate) fn without_paths(text: &str) -> String {
    let border = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;=:".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut at_border = true;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let own = ["/api/v1/", "/grants/", "/workspace"]
            .iter()
            .any(|own| rest.starts_with(own));
        let path = at_border && c == '/' && rest.len() > 1 && !own && !rest.starts_with("//");
        if path {
            let end = rest.find(border).unwrap_or(rest.len());
            out.push_str("(path)");
            rest = &rest[end..];
            at_border = false;
            continue;
        }
        out.push(c);
        at_border = border(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_that_somebody_chose() {
        for code in Code::ALL {
            let text = code.info().code;
            let listed = STATUSES.iter().any(|(beginning, _)| text.starts_with(beginning));
            assert!(listed, "{text} has no row in STATUSES");
            assert!(!status_of(*code).is_success(), "{text}");
        }
    }

    #[test]
    fn a_caller_who_is_no_admin_sees_no_path_of_this_host() {
        let fault = Fault::new(
            Code::WorkspaceInvalid,
            "cannot use /home/alice/secret project",
            "\"/var/lib/bastle/daemon/x\" (/etc/shadow): denied; see GET /api/v1/runs",
        )
        .help("ls -l /root");
        let text = problem(
            std::slice::from_ref(&fault),
            StatusCode::CONFLICT,
            Told::Outside,
            "/x",
        )
        .to_string();
        for secret in ["alice", "/var/lib", "shadow", "/root"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("GET /api/v1/runs"), "{text}");
        let text = problem(
            std::slice::from_ref(&fault),
            StatusCode::CONFLICT,
            Told::All,
            "/x",
        )
        .to_string();
        assert!(text.contains("/etc/shadow"));
        let inside = problem(
            &[Fault::new(Code::StateDir, "cannot open sqlite", "disk I/O error")],
            StatusCode::INTERNAL_SERVER_ERROR,
            Told::Outside,
            "/x",
        );
        assert!(!inside.to_string().contains("sqlite"));
    }
}
