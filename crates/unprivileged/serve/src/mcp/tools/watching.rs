//! Tools that look at workers while they work.
use super::{Effect, Tool, WORKER, Way, brief, flag, list, number, object, or_null, text, worker};
use crate::mcp::schema::{At, Kind, may, must};
use serde_json::{Value, json};

pub(super) const WATCHING: &[Tool] = &[
    Tool {
        name: "list_workers",
        title: "List workers",
        about: "Workers that this token may see, newest page first by cursor.",
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
        title: "Read what a worker printed",
        about: "A part of what a worker printed, from `since` on; `next` is where the following part begins, `whole` whether that is all there is now.",
        operation: "GET /api/v1/runs/{id}/logs",
        params: &[
            WORKER,
            may(
                "since",
                Kind::Number(0, u64::MAX),
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
        ],
        gives: || {
            object(
                &[("text", text()), ("next", number()), ("whole", flag())],
                &["text", "next", "whole"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(printed),
    },
];

fn printed(value: Value) -> Value {
    let records = value["records"].as_array().into_iter().flatten();
    let text: String = records.filter_map(|record| record["text"].as_str()).collect();
    json!({ "text": text, "next": value["next"], "whole": value["whole"] })
}
