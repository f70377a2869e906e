//! Tools for what workers ask, and what a policy says.
use super::{Effect, Tool, Way, list, object, question, same, text};
use crate::mcp::schema::{At, Kind, MOST_INTEGER, Param, may, must};
use serde_json::json;

const ANSWER: &[Param] = &[
    must(
        "approval",
        Kind::Number(1, MOST_INTEGER),
        At::Path,
        "Number of the question, from list_approvals",
    ),
    must(
        "hash",
        Kind::Text(128),
        At::Body,
        "Digest of the request that you looked at; the answer holds for exactly that one",
    ),
    may(
        "scope",
        Kind::Words(&["once", "session"]),
        At::Body,
        "Once, or for the rest of the run",
    ),
    may("message", Kind::Text(4096), At::Body, "For the record"),
];

pub(super) const DECIDING: &[Tool] = &[
    Tool {
        name: "list_approvals",
        title: "List questions",
        about: "What workers ask for: each with its number, its exact text and the hash that an answer names.",
        operation: "GET /api/v1/approvals",
        params: &[
            may(
                "state",
                Kind::Words(&["open", "approved", "denied", "expired", "stale"]),
                At::Query,
                "In this state",
            ),
            may(
                "run",
                Kind::Text(64),
                At::Query,
                "Of this worker, by its whole name",
            ),
            may("limit", Kind::Number(1, 200), At::Query, "At most so many"),
        ],
        gives: || object(&[("items", list(question()))], &["items"]),
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(same),
    },
    Tool {
        name: "approve",
        title: "Say yes to a question",
        about: "Answers a worker's question with yes, for exactly the request that the hash names. Where your client can ask a person, the person sees the question first and decides. Needs a token with the role approver.",
        operation: "POST /api/v1/approvals/{id}/approve",
        params: ANSWER,
        gives: question,
        effect: Effect::Changes,
        quotes: true,
        way: Way::Approve,
    },
    Tool {
        name: "deny",
        title: "Say no to a question",
        about: "Answers a worker's question with no. Needs a token with the role approver.",
        operation: "POST /api/v1/approvals/{id}/deny",
        params: ANSWER,
        gives: question,
        effect: Effect::Changes,
        quotes: true,
        way: Way::Plain(same),
    },
    Tool {
        name: "can_i",
        title: "Ask the policy",
        about: "Whether a policy would allow a worker something, and by which rule, without starting one.",
        operation: "POST /api/v1/policies/can-i",
        params: &[
            must(
                "kind",
                Kind::Words(&["read", "write", "exec", "net", "tool"]),
                At::Body,
                "What is to be done",
            ),
            must(
                "target",
                Kind::Text(128 * 1024),
                At::Body,
                "Path, command line, URL or tool",
            ),
            may(
                "profile",
                Kind::Text(128),
                At::Body,
                "The profile whose policy is asked; not together with policy",
            ),
            may("preset", Kind::Text(128), At::Body, "Preset to start from"),
            may(
                "policy",
                Kind::Object,
                At::Body,
                "An agent-permissions document on top",
            ),
            may(
                "workspace",
                Kind::Text(4096),
                At::Body,
                "The project, an absolute path",
            ),
        ],
        gives: || {
            object(
                &[("query", text()), ("outcome", text()), ("reason", json!({}))],
                &["query", "outcome"],
            )
        },
        effect: Effect::Reads,
        quotes: false,
        way: Way::Plain(same),
    },
];
