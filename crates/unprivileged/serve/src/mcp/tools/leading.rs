//! Tools that start workers, speak to them and end them.
use super::{Effect, Tool, WORKER, Way, any_object, flag, list, object, same, text};
use crate::mcp::schema::{At, Kind, Param, may, must};
use serde_json::json;

const SPAWN: &[Param] = &[
    must(
        "workspace",
        Kind::Text(4096),
        At::Body,
        "The project: an absolute path on the daemon's host",
    ),
    may(
        "prompt",
        Kind::Text(256 * 1024),
        At::Body,
        "What the agent is asked to do",
    ),
    may(
        "profile",
        Kind::Text(128),
        At::Body,
        "The profile that says which agent it is, e.g. claude, codex, opencode",
    ),
    may(
        "driver",
        Kind::Words(&["plain", "claude", "codex", "acp", "opencode", "none"]),
        At::Body,
        "How the agent is spoken to; as its profile says when left out",
    ),
    may(
        "argv",
        Kind::Texts(1024),
        At::Body,
        "The command line itself, instead of or on top of a profile",
    ),
    may(
        "name",
        Kind::Text(64),
        At::Body,
        "Its name; lower-case letters, digits and dashes",
    ),
    may(
        "mode",
        Kind::Words(&["copy", "overlay", "worktree", "in-place"]),
        At::Body,
        "How it gets the project; copy unless the policy says otherwise",
    ),
    may(
        "from",
        Kind::Text(256),
        At::Body,
        "RUN[@SNAPSHOT] whose tree it begins with",
    ),
    may("preset", Kind::Text(128), At::Body, "Policy preset to start from"),
    may(
        "policy",
        Kind::Object,
        At::Body,
        "An agent-permissions document on top; it can only narrow what the daemon's owner set",
    ),
    may(
        "net",
        Kind::Words(bastle_policy::NetMode::NAMES),
        At::Body,
        "What it may reach: nothing, what its policy lists, everything, or nothing with a reason for each refusal",
    ),
    may(
        "env",
        Kind::Labels,
        At::Body,
        "Variables for the agent; not for secrets",
    ),
    may("tags", Kind::Labels, At::Body, "Labels"),
    may("timeout", Kind::Text(32), At::Body, "Wall time, such as 15m"),
    may(
        "max_turns",
        Kind::Number(1, 1_000_000),
        At::Body,
        "Most turns with a model",
    ),
    may(
        "scopes",
        Kind::Texts(64),
        At::Body,
        "Places it writes, absolute: two workers of one scope do not overlap",
    ),
    may(
        "hide_history",
        Kind::Flag,
        At::Body,
        "Give its copy a repository of one commit without hidden names",
    ),
    may("parent", Kind::Text(64), At::Body, "The worker it is a child of"),
    may(
        "open_input",
        Kind::Flag,
        At::Body,
        "Keep its input open: a driven agent then waits for send_message when its turn ends, until terminate_worker",
    ),
    may(
        "key",
        Kind::Text(256),
        At::Here,
        "Asked again under the same key, the same request gets the first answer",
    ),
];

const SAY: &[Param] = &[
    WORKER,
    must("text", Kind::Text(256 * 1024), At::Body, "What is said"),
];

pub(super) const STARTING: &[Tool] = &[
    Tool {
        name: "spawn_worker",
        title: "Start a worker",
        about: "Starts one agent inside its fence, on its own copy of a project, and returns at once with its name. Follow it with wait, read_output and diff; nothing reaches the project before apply.",
        operation: "POST /api/v1/runs",
        params: SPAWN,
        gives: || {
            object(
                &[("worker", text()), ("batch", text()), ("repeated", flag())],
                &["worker"],
            )
        },
        effect: Effect::Adds,
        quotes: false,
        way: Way::SpawnOne,
    },
    Tool {
        name: "spawn_batch",
        title: "Start many workers",
        about: "Starts up to 1000 workers together; each entry takes what spawn_worker takes. All or none, unless partial.",
        operation: "POST /api/v1/runs",
        params: &[
            must(
                "runs",
                Kind::Objects(1000),
                At::Body,
                "What is to run; fields as in spawn_worker, without key",
            ),
            may("prefix", Kind::Text(64), At::Body, "First part of the names"),
            may(
                "key",
                Kind::Text(256),
                At::Body,
                "Asked again under the same key, the same request gets the first answer",
            ),
            may(
                "on_conflict",
                Kind::Words(&["refuse", "queue"]),
                At::Body,
                "When another worker writes the same place",
            ),
            may(
                "max_parallel",
                Kind::Number(1, 10_000),
                At::Body,
                "Most of this batch that live at once",
            ),
            may("tags", Kind::Labels, At::Body, "Labels of every worker of it"),
            may(
                "partial",
                Kind::Flag,
                At::Body,
                "Start the good ones when others are refused",
            ),
        ],
        gives: || {
            object(
                &[
                    ("batch", text()),
                    ("workers", list(any_object())),
                    ("repeated", flag()),
                ],
                &["batch", "workers"],
            )
        },
        effect: Effect::Adds,
        quotes: false,
        way: Way::Plain(
            |value| json!({ "batch": value["batch"], "workers": value["runs"], "repeated": value["repeated"] }),
        ),
    },
    Tool {
        name: "send_message",
        title: "Ask a worker something",
        about: "Gives a driven agent a message: one that waits begins a new turn, one that works sees it at its next request to the model. `how` says which.",
        operation: "POST /api/v1/runs/{id}/say",
        params: SAY,
        gives: || object(&[("run", text()), ("how", text())], &[]),
        effect: Effect::Adds,
        quotes: false,
        way: Way::Plain(same),
    },
    Tool {
        name: "steer_worker",
        title: "Steer a worker while it works",
        about: "Says something to a driven agent in the middle of its turn, e.g. to correct its course; it sees it at its next request to the model. One that waits takes it as its next prompt.",
        operation: "POST /api/v1/runs/{id}/say",
        params: SAY,
        gives: || object(&[("run", text()), ("how", text())], &[]),
        effect: Effect::Adds,
        quotes: false,
        way: Way::Plain(same),
    },
    Tool {
        name: "interrupt_worker",
        title: "Interrupt a worker",
        about: "Has a driven agent stop what it does; its run goes on and can be sent a message.",
        operation: "POST /api/v1/runs/{id}/interrupt",
        params: &[WORKER],
        gives: any_object,
        effect: Effect::Changes,
        quotes: false,
        way: Way::Plain(same),
    },
    Tool {
        name: "terminate_worker",
        title: "End a worker",
        about: "Asks a worker to end and ends it after the grace. Its copy and its record stay.",
        operation: "POST /api/v1/runs/{id}/stop",
        params: &[
            WORKER,
            may(
                "grace_ms",
                Kind::Number(0, 3_600_000),
                At::Body,
                "Time between the polite signal and the end; 10000 when left out",
            ),
        ],
        gives: || object(&[("runs", list(any_object()))], &["runs"]),
        effect: Effect::Changes,
        quotes: false,
        way: Way::Plain(same),
    },
];
