//! Tools that look at workers while they work.
use super::{Effect, Tool, WORKER, Way, brief, flag, list, number, object, or_null, text, worker};
use crate::mcp::schema::{At, Kind, MOST_INTEGER, may, must};
use serde_json::{Value, json};

pub(super) const WATCHING: &[Tool] = &[
    Tool {
        name: "list_workers",
        title: "List workers",
        about: "Workers that this token may see, newest first.",
        operation: "GET /api/v1/runs",
        params: &[
            may(
                "state",
                Kind::Text(256),
                At::Query,
                "States, separated by commas: queued, building, running, needs-input, needs-credential, suspended, completed, failed, cancelled, refused",
            ),
            may("tag", Kind::Text(256), At::Query, "A label: key or key=value"),
            may("prefix", Kind::Text(64), At::Query, "Names that begin so"),
            may("batch", Kind::Text(64), At::Query, "Of this batch"),
            may("parent", Kind::Text(64), At::Query, "Children of this worker"),
            may("cursor", Kind::Text(256), At::Query, "`next` of the page before"),
            may("limit", Kind::Number(1, 200), At::Query, "At most so many"),
        ],
        gives: || {
            object(
                &[("workers", list(worker())), ("next", or_null("string"))],
                &["workers"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(|value| {
            let workers: Vec<Value> = value["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(brief)
                .collect();
            json!({ "workers": workers, "next": value["next"] })
        }),
    },
    Tool {
        name: "list_profiles",
        title: "List profiles",
        about: "Agents that spawn_worker can start by name, with their model and limits.",
        operation: "GET /api/v1/profiles",
        params: &[],
        gives: || {
            let profile = object(
                &[
                    ("name", text()),
                    ("builtin", flag()),
                    ("version", number()),
                    ("description", or_null("string")),
                    ("model", or_null("string")),
                ],
                &["name", "builtin"],
            );
            object(&[("profiles", list(profile))], &["profiles"])
        },
        effect: Effect::Reads,
        quotes: false,
        way: Way::Plain(profiles),
    },
    Tool {
        name: "get_worker",
        title: "Look at a worker",
        about: "State, exit code, open question, use and denials of one worker.",
        operation: "GET /api/v1/runs/{id}",
        params: &[WORKER],
        gives: worker,
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(|value| brief(&value)),
    },
    Tool {
        name: "wait",
        title: "Wait for workers",
        about: "Waits until all (or any) of the workers ended, one of them asks something, or the time is over; tells progress meanwhile. `why` says which.",
        operation: "GET /api/v1/runs/{id}",
        params: &[
            must("workers", Kind::Texts(32), At::Here, "Names of the workers"),
            may(
                "until",
                Kind::Words(&["all", "any"]),
                At::Here,
                "All ended (the default), or any of them",
            ),
            may(
                "timeout_s",
                Kind::Number(0, 600),
                At::Here,
                "Longest time in seconds; 60 when left out",
            ),
        ],
        gives: || {
            let why = json!({ "type": "string", "enum": ["ended", "question", "timeout"] });
            object(&[("why", why), ("workers", list(worker()))], &["why", "workers"])
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Wait,
    },
    Tool {
        name: "read_output",
        title: "Read what a worker said or printed",
        about: "A part of what a worker said (a driven agent) or printed (any other), from `since` on; `next` is where the following part begins, `whole` whether that is all there is now.",
        operation: "GET /api/v1/runs/{id}/logs",
        params: &[
            WORKER,
            may(
                "since",
                Kind::Number(0, MOST_INTEGER),
                At::Query,
                "`next` of the part before; the beginning when left out",
            ),
            may(
                "limit",
                Kind::Number(1, 65_536),
                At::Query,
                "At most about so many bytes; 65536 when left out",
            ),
            may(
                "stream",
                Kind::Words(&["output", "errors"]),
                At::Query,
                "One stream only",
            ),
            may(
                "view",
                Kind::Words(&["agent", "raw"]),
                At::Here,
                "agent, when left out: what a driven agent said. raw: what the program printed, for a driven agent the frames of its protocol",
            ),
        ],
        gives: || {
            object(
                &[("text", text()), ("next", number()), ("whole", flag())],
                &["text", "next", "whole"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Output,
    },
];

/// Profiles by what somebody needs who chooses one; the whole documents stay with the API.
fn profiles(value: Value) -> Value {
    let items = value["items"].as_array().into_iter().flatten();
    let profiles: Vec<Value> = items
        .map(|item| {
            let document = &item["document"];
            json!({
                "name": item["name"], "builtin": item["builtin"], "version": item["version"],
                "description": document["description"], "model": document["model"],
            })
        })
        .collect();
    json!({ "profiles": profiles })
}

/// The text of a page of output.
pub(in crate::mcp) fn printed(value: Value) -> Value {
    let records = value["records"].as_array().into_iter().flatten();
    let text: String = records.filter_map(|record| record["text"].as_str()).collect();
    json!({ "text": text, "next": value["next"], "whole": value["whole"] })
}
