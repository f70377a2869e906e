//! Refusals in the words of the agent protocol: one kind, told as JSON-RPC or as HTTP+JSON.
//!
//! **Trust:** messages are shown to the caller; what is about this host was taken out where they are no admin.
use crate::errors::{Refusal, Told, problem, status_of};
use axum::http::StatusCode;
use bastle_contract::Code;
use serde_json::{Value, json};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is no such task for this caller.
    TaskNotFound,
    /// It has ended already.
    NotCancelable,
    /// Nobody is told here.
    PushUnsupported,
    /// Not for this task, or not now.
    Unsupported,
    /// A part of a kind that is not taken.
    ContentType,
    /// Another version.
    Version,
    /// No JSON.
    Parse,
    /// No request.
    Request,
    /// No such method.
    Method,
    /// A field is wrong.
    Params,
    /// No token that holds.
    Unauthenticated,
    /// A token that does not allow it.
    Forbidden,
    /// Too large.
    TooLarge,
    /// Too often.
    Rate,
    /// Not now.
    Unavailable,
    /// The daemon failed.
    Internal,
}

/// The number in JSON-RPC, the status of HTTP, the word for that status, and the reason.
type Row = (i64, StatusCode, &'static str, &'static str);

impl Kind {
    fn row(self) -> Row {
        use StatusCode as S;
        match self {
            Self::TaskNotFound => (-32001, S::NOT_FOUND, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::NotCancelable => (
                -32002,
                S::BAD_REQUEST,
                "FAILED_PRECONDITION",
                "TASK_NOT_CANCELABLE",
            ),
            Self::PushUnsupported => (
                -32003,
                S::BAD_REQUEST,
                "FAILED_PRECONDITION",
                "PUSH_NOTIFICATION_NOT_SUPPORTED",
            ),
            Self::Unsupported => (
                -32004,
                S::BAD_REQUEST,
                "FAILED_PRECONDITION",
                "UNSUPPORTED_OPERATION",
            ),
            Self::ContentType => (
                -32005,
                S::BAD_REQUEST,
                "INVALID_ARGUMENT",
                "CONTENT_TYPE_NOT_SUPPORTED",
            ),
            Self::Version => (
                -32009,
                S::BAD_REQUEST,
                "FAILED_PRECONDITION",
                "VERSION_NOT_SUPPORTED",
            ),
            Self::Parse => (-32700, S::BAD_REQUEST, "INVALID_ARGUMENT", "PARSE_ERROR"),
            Self::Request => (-32600, S::BAD_REQUEST, "INVALID_ARGUMENT", "INVALID_REQUEST"),
            Self::Method => (-32601, S::NOT_FOUND, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
            Self::Params => (-32602, S::BAD_REQUEST, "INVALID_ARGUMENT", "INVALID_PARAMS"),
            Self::Unauthenticated => (-32600, S::UNAUTHORIZED, "UNAUTHENTICATED", "UNAUTHENTICATED"),
            Self::Forbidden => (-32600, S::FORBIDDEN, "PERMISSION_DENIED", "PERMISSION_DENIED"),
            Self::TooLarge => (-32600, S::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT", "TOO_LARGE"),
            Self::Rate => (-32603, S::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
            Self::Unavailable => (-32603, S::SERVICE_UNAVAILABLE, "UNAVAILABLE", "UNAVAILABLE"),
            Self::Internal => (-32603, S::INTERNAL_SERVER_ERROR, "INTERNAL", "INTERNAL"),
        }
    }

    /// The status of HTTP.
    pub(crate) fn status(self) -> StatusCode {
        self.row().1
    }

    /// Whether it is told by the status of HTTP even where JSON-RPC is spoken: it is about the connection, not the call.
    pub(crate) fn of_transport(self) -> bool {
        matches!(
            self,
            Self::Unauthenticated | Self::Forbidden | Self::TooLarge | Self::Rate | Self::Unavailable
        )
    }

    fn of(code: Code) -> Self {
        if code == Code::RunMissing {
            return Self::TaskNotFound;
        }
        match status_of(code) {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Self::Params,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::Params,
            StatusCode::METHOD_NOT_ALLOWED => Self::Method,
            StatusCode::CONFLICT => Self::Unsupported,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::ContentType,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::TOO_MANY_REQUESTS => Self::Rate,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) kind: Kind,
    message: String,
    /// The field, where one is wrong.
    field: Option<String>,
    /// The code of ours, where one stands behind it.
    code: Option<Code>,
    task: Option<String>,
}

impl Wrong {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            field: None,
            code: None,
            task: None,
        }
    }

    /// A field that is wrong.
    pub(crate) fn field(field: impl Into<String>, why: impl Into<String>) -> Self {
        let (field, why) = (field.into(), why.into());
        Self {
            message: format!("{field}: {why}"),
            field: Some(field),
            ..Self::new(Kind::Params, "")
        }
    }

    /// A task that is not there, for this caller.
    pub(crate) fn no_task(task: &str) -> Self {
        Self {
            task: Some(crate::dto::plain(task)),
            ..Self::new(Kind::TaskNotFound, "there is no such task")
        }
    }

    /// A refusal of ours in these words, as far as the caller may know.
    pub(crate) fn of(refusal: &Refusal, told: Told) -> Self {
        let code = refusal
            .faults
            .first()
            .map_or(Code::ApiInternal, |fault| fault.code);
        let kind = Kind::of(code);
        if kind == Kind::TaskNotFound {
            return Self::new(kind, "there is no such task");
        }
        if status_of(code).is_server_error() {
            // Whoever asked may not know why; whoever runs the daemon must.
            for fault in &refusal.faults {
                eprintln!("bastle: a2a: {}", crate::dto::plain(&fault.to_string()));
            }
        }
        let about = problem(&refusal.faults, status_of(code), told, "");
        Self {
            code: Some(code),
            ..Self::new(kind, about["detail"].as_str().unwrap_or_default())
        }
    }

    fn details(&self) -> Value {
        let (_, _, _, reason) = self.kind.row();
        let mut metadata = serde_json::Map::new();
        if let Some(code) = self.code {
            metadata.insert("code".to_owned(), json!(code));
        }
        if let Some(task) = &self.task {
            metadata.insert("taskId".to_owned(), json!(task));
        }
        let mut all = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org",
            "metadata": metadata,
        })];
        if let Some(field) = &self.field {
            all.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": self.message }],
            }));
        }
        Value::Array(all)
    }

    /// As JSON-RPC tells it.
    pub(crate) fn rpc(&self, id: &Value) -> Value {
        let (number, ..) = self.kind.row();
        json!({
            "jsonrpc": "2.0", "id": id,
            "error": { "code": number, "message": self.message, "data": self.details() },
        })
    }

    /// As HTTP+JSON tells it.
    pub(crate) fn rest(&self) -> Value {
        let (_, status, word, _) = self.kind.row();
        json!({ "error": {
            "code": status.as_u16(), "status": word, "message": self.message, "details": self.details(),
        } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_of_ours_has_a_kind_and_hides_whose_task_it_is() {
        for code in Code::ALL {
            let wrong = Wrong::of(&Refusal::new(*code, "cannot open /etc/shadow", ""), Told::Outside);
            assert!(!wrong.rest().to_string().contains("shadow"), "{code}");
            assert!(wrong.rpc(&Value::Null)["error"]["code"].as_i64().unwrap() < -32000);
            assert!(!wrong.kind.status().is_success());
        }
        let gone = Wrong::of(
            &Refusal::new(Code::RunMissing, "there is no run a", ""),
            Told::All,
        );
        assert_eq!(gone.kind, Kind::TaskNotFound);
        assert_eq!(gone.rest()["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
    }
}
