//! Tools for what workers made, and how it comes to the project.
use super::{Effect, Tool, WORKER, Way, any_object, flag, list, number, object, same, text};
use crate::mcp::schema::{At, Kind, may, must};

pub(super) const RESULTS: &[Tool] = &[
    Tool {
        name: "list_files",
        title: "List files of a worker",
        about: "A directory of a worker's own tree.",
        operation: "GET /api/v1/runs/{id}/files",
        params: &[
            WORKER,
            may(
                "path",
                Kind::Text(4096),
                At::Query,
                "From the root of the tree; the root when left out",
            ),
        ],
        gives: || {
            object(
                &[
                    ("path", text()),
                    ("items", list(any_object())),
                    ("truncated", flag()),
                ],
                &["path", "items"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(same),
    },
    Tool {
        name: "read_file",
        title: "Read a file of a worker",
        about: "A part of a file of a worker's own tree, as text or base64. In text, bytes that are none and letters that act on a terminal are replaced, and `exact` is false then.",
        operation: "GET /api/v1/runs/{id}/files/content",
        params: &[
            WORKER,
            must("path", Kind::Text(4096), At::Query, "From the root of the tree"),
            may("offset", Kind::Number(0, 1 << 40), At::Here, "First byte"),
            may(
                "length",
                Kind::Number(1, 98_304),
                At::Here,
                "At most so many bytes; 65536 when left out",
            ),
            may(
                "encoding",
                Kind::Words(&["text", "base64"]),
                At::Here,
                "How the bytes are given; text when left out",
            ),
        ],
        gives: || {
            object(
                &[
                    ("path", text()),
                    ("content", text()),
                    ("encoding", text()),
                    ("offset", number()),
                    ("size", number()),
                    ("exact", flag()),
                ],
                &["path", "content", "encoding", "offset", "size", "exact"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::File,
    },
    Tool {
        name: "diff",
        title: "See what a worker changed",
        about: "What a worker changed in its copy, file by file with lines, and what the import gate says about each. `approval` is what apply wants for changes that need a look.",
        operation: "GET /api/v1/runs/{id}/diff",
        params: &[
            WORKER,
            may(
                "from",
                Kind::Text(128),
                At::Query,
                "Snapshot (number, name, base); base when left out",
            ),
            may(
                "to",
                Kind::Text(128),
                At::Query,
                "Snapshot (number, name, last, now); now when left out",
            ),
            may(
                "ignored",
                Kind::Flag,
                At::Query,
                "Also what the project's ignore files name",
            ),
        ],
        gives: || {
            object(
                &[("run", text()), ("changes", list(any_object()))],
                &["run", "changes"],
            )
        },
        effect: Effect::Reads,
        quotes: true,
        way: Way::Plain(same),
    },
    Tool {
        name: "apply",
        title: "Bring a worker's changes to the project",
        about: "Brings what a worker changed to the project's tree or to a new branch, through the import gate: what needs a look is left out unless its hash is approved, and what is refused stays out. Ask for dry_run first. Needs a token with the role approver; what your own workers changed, only dry_run: a person or another approver brings it over with `bastle apply`.",
        operation: "POST /api/v1/runs/{id}/apply",
        params: &[
            WORKER,
            may(
                "branch",
                Kind::Text(256),
                At::Body,
                "Commit to this new branch instead of writing to the tree",
            ),
            may("message", Kind::Text(4096), At::Body, "The message of the commit"),
            may(
                "resolve",
                Kind::Words(&["ours", "theirs"]),
                At::Body,
                "Where both sides changed the same lines; refused when left out",
            ),
            may(
                "paths",
                Kind::Texts(1000),
                At::Body,
                "Only these paths and what lies below them",
            ),
            may(
                "approve",
                Kind::Texts(1000),
                At::Body,
                "Hashes of contents that were looked at and approved",
            ),
            may("dry_run", Kind::Flag, At::Body, "Only say what would happen"),
            may("undo", Kind::Flag, At::Body, "Take the last apply back instead"),
        ],
        gives: || {
            object(
                &[("run", text()), ("to", text()), ("paths", list(text()))],
                &["run", "to", "paths"],
            )
        },
        effect: Effect::Changes,
        quotes: true,
        way: Way::Plain(same),
    },
];
