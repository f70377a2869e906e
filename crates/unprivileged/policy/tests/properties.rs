//! Properties over generated layers and questions.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_contract::LimitKind;
use bastle_policy::{
    ConnectVerdict, Effective, Host, Layer, LayerKind, MergeOptions, NetPolicy, NetRequest, Operation,
    Outcome, Query, decide, diagnose, merge, parse,
};
use common::{layer, path, surroundings};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const PATHS: &[&str] = &[
    ".",
    "./a",
    "./a/b",
    "./.env.d",
    "./.git",
    "./.git/hooks",
    "~/x",
    "~/x/y",
    "~/.ssh",
    "~/.config/t",
    "/srv",
    "/srv/a",
    "/usr",
    "/usr/local",
    "/tmp/g",
    "/tmp",
    "/",
];
const NAMES: &[&str] = &[
    "./a",
    "**/b",
    "**/.git/hooks",
    "~/x",
    "/srv/a",
    "./a/*",
    "/usr/local",
    "**/.e*",
];
const HOSTS: &[&str] = &[
    "a.com",
    "*.a.com",
    "b.a.com",
    "GET a.com/x/**",
    "a.com:8443",
    "c.org",
    "POST c.org",
    "group:npm",
    "d.org:22",
];
const RANGES: &[&str] = &[
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.168.0.0/16",
    "127.0.0.1/32",
    "fd00::/16",
];
/// Rules that ask for more than their text says.
const OBJECTS: &[&str] = &[
    r#"{"rule": "a.com", "rpc": ["tools/list"]}"#,
    r#"{"rule": "POST c.org", "rpc": ["*"]}"#,
    r#"{"rule": "c.org", "graphql": ["query"]}"#,
];
const GRANTS: &[&str] = &[
    r#"{"rule": "a.com", "maxBody": "1K", "websocket": true}"#,
    r#"{"rule": "d.org:22", "opaque": true}"#,
    r#"{"rule": "c.org", "rpc": ["tools/list"], "maxBody": "2K"}"#,
];
const COMMANDS: &[&str] = &["ls", "git status", "git push *", "cargo test *", "rm *", "sudo"];
const TOOLS: &[&str] = &[
    "Read",
    "Edit(./a/**)",
    "Bash(git status)",
    "Bash(ls *)",
    "mcp__x__*",
];
const QUESTIONS: &[&str] = &[
    "read ./a",
    "write ./a",
    "read ./a/b/c",
    "write ./a/b/c",
    "read ./.env.d/q",
    "write ./.git/hooks/x",
    "read ./.git/config",
    "write ./z",
    "read ~/x/y",
    "write ~/x",
    "read ~/.ssh/id",
    "read ~/.config/t/u",
    "read /srv/a/b",
    "write /srv/a",
    "read /usr/local/b",
    "write /usr/local/b",
    "read /",
    "write /tmp/x",
    "write /tmp/g/x",
    "read /tmp/.env",
    "read /etc/passwd",
    "net a.com",
    "net GET a.com/x/y",
    "net b.a.com",
    "net a.com:8443",
    "net POST c.org",
    "net c.org:9",
    "net 10.0.0.1",
    "exec ls",
    "exec git status",
    "exec git push",
    "exec git push -f",
    "exec cargo test -q",
    "exec sudo ls",
    "exec ls && rm x",
    "tool Read",
    "tool Read(./a)",
    "tool Edit(./a/x)",
    "tool Edit(~/.ssh/x)",
    "tool Bash(git status)",
    "tool mcp__x__y",
    "tool Other",
];

fn list(choices: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    let some = subsequence(choices, 0..=3.min(choices.len()))
        .prop_map(|items| serde_json::to_string(&items).unwrap());
    prop::option::of(some)
}

/// Rules as text and as objects in one list.
fn rules(objects: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    let some = (subsequence(HOSTS, 0..=3), subsequence(objects, 0..=2)).prop_map(|(texts, objects)| {
        let texts = texts.iter().map(|text| format!("\"{text}\""));
        let all: Vec<String> = texts.chain(objects.iter().map(|o| (*o).to_owned())).collect();
        format!("[{}]", all.join(", "))
    });
    prop::option::of(some)
}

fn section(name: &'static str, lists: Vec<(&'static str, Option<String>)>) -> String {
    let parts: Vec<String> = lists
        .into_iter()
        .filter_map(|(key, list)| Some(format!("\"{key}\": {}", list?)))
        .collect();
    format!("\"{name}\": {{{}}}", parts.join(", "))
}

/// A random document over small alphabets, so that layers meet.
fn document() -> impl Strategy<Value = String> {
    let fs = (list(PATHS), list(PATHS), list(NAMES), list(NAMES))
        .prop_map(|(r, w, h, p)| section("fs", vec![("read", r), ("write", w), ("hide", h), ("protect", p)]));
    let ports = prop::option::of(select(vec!["[443]", "[443, 9]", "[]"]).prop_map(str::to_owned));
    let default = prop::option::of(select(vec!["\"deny\"", "\"ask\""]).prop_map(str::to_owned));
    let literal = prop::option::of(select(vec!["true", "false"]).prop_map(str::to_owned));
    let upstream = prop::option::of(Just("\"http://p.corp:80\"".to_owned()));
    let net = (
        rules(GRANTS),
        rules(OBJECTS),
        rules(OBJECTS),
        ports,
        default,
        literal,
        list(RANGES),
        upstream,
    )
        .prop_map(|(a, k, d, p, f, i, r, u)| {
            section(
                "net",
                vec![
                    ("allow", a),
                    ("ask", k),
                    ("deny", d),
                    ("ports", p),
                    ("default", f),
                    ("ipLiterals", i),
                    ("addresses", r),
                    ("upstream", u),
                ],
            )
        });
    let exec = (list(&COMMANDS[..4]), list(COMMANDS), list(COMMANDS))
        .prop_map(|(a, k, d)| section("exec", vec![("allow", a), ("ask", k), ("deny", d)]));
    let tools = (list(TOOLS), list(TOOLS), list(TOOLS))
        .prop_map(|(a, k, d)| section("tools", vec![("allow", a), ("ask", k), ("deny", d)]));
    let env = list(&["LANG", "A", "B"]).prop_map(|p| section("env", vec![("pass", p)]));
    let decision =
        || prop::option::of(select(vec!["\"allow\"", "\"ask\"", "\"deny\""]).prop_map(str::to_owned));
    let git = (decision(), decision()).prop_map(|(p, f)| section("git", vec![("push", p), ("forcePush", f)]));
    let number = || prop::option::of((1u64..5000).prop_map(|n| n.to_string()));
    let limits =
        (number(), number()).prop_map(|(p, o)| section("limits", vec![("pids", p), ("openFiles", o)]));
    let lock = prop::option::of(subsequence(
        vec![
            "\"fs\"",
            "\"net\"",
            "\"exec\"",
            "\"limits\"",
            "\"git\"",
            "\"tools\"",
        ],
        0..2,
    ))
    .prop_map(|l| format!("\"lock\": [{}]", l.unwrap_or_default().join(", ")));
    let mode = select(vec![
        "\"mode\": \"enforce\"",
        "\"mode\": \"learn\"",
        "\"mode\": \"audit\"",
    ])
    .prop_map(str::to_owned);
    let extends = select(vec![
        "\"extends\": []",
        "\"extends\": [\"preset:default\"]",
        "\"extends\": [\"preset:read-only\", \"group:npm\"]",
    ])
    .prop_map(str::to_owned);
    (fs, net, exec, tools, env, git, limits, lock, mode, extends).prop_map(
        |(a, b, c, d, e, f, g, h, i, j)| {
            format!(
                "{{\"version\": 1, {}}}",
                [a, b, c, d, e, f, g, h, i, j].join(", ")
            )
        },
    )
}

fn trusted() -> impl Strategy<Value = Vec<Layer>> {
    let kinds = select(vec![
        LayerKind::Preset,
        LayerKind::Managed,
        LayerKind::User,
        LayerKind::Flags,
    ]);
    let some = (kinds, document()).prop_map(|(kind, text)| layer(kind, &text));
    prop::collection::vec(some, 0..4)
}

fn project() -> impl Strategy<Value = Layer> {
    (
        select(vec![LayerKind::Project, LayerKind::ProjectLocal]),
        document(),
    )
        .prop_map(|(kind, text)| layer(kind, &text))
}

fn options() -> MergeOptions {
    MergeOptions {
        unprotect: vec![path("/home/u/.config")],
        ..MergeOptions::default()
    }
}

fn effective(layers: &[Layer]) -> Effective {
    merge(layers, &surroundings(), &options()).unwrap()
}

/// How far a connection gets: bytes that pass unseen are more than bytes that are looked at.
fn reach(verdict: &ConnectVerdict) -> u8 {
    match verdict {
        ConnectVerdict::Deny(_) => 0,
        ConnectVerdict::Ask(_) => 1,
        ConnectVerdict::Inspect(_) => 2,
        ConnectVerdict::Pass(_) => 3,
    }
}

fn requests(host: &Host, port: u16) -> Vec<NetRequest<'_>> {
    static OPERATIONS: std::sync::OnceLock<Vec<Option<Operation>>> = std::sync::OnceLock::new();
    let operations = OPERATIONS.get_or_init(|| {
        vec![
            None,
            Some(Operation::Rpc(vec!["tools/list".to_owned()])),
            Some(Operation::GraphQl(vec!["query:A".to_owned()])),
            Some(Operation::Unreadable),
        ]
    });
    let mut all = Vec::new();
    for operation in operations {
        for (method, path, body_len, websocket) in [
            ("GET", "/x/y", None, false),
            ("POST", "/", Some(1500), false),
            ("GET", "/", None, true),
        ] {
            all.push(NetRequest {
                method,
                host,
                port,
                path,
                body_len,
                operation: operation.as_ref(),
                websocket,
            });
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn adding_an_untrusted_layer_never_widens(base in trusted(), extra in project(), other in prop::option::of(project())) {
        let mut layers = base;
        layers.extend(other);
        let before = effective(&layers);
        layers.push(extra);
        let after = effective(&layers);
        for question in QUESTIONS {
            let query = Query::parse(question, &surroundings()).unwrap();
            let (old, new) = (decide(&before, &query), decide(&after, &query));
            prop_assert!(new.outcome <= old.outcome, "{} went from {:?} to {:?} ({})", question, old.outcome, new.outcome, new.reason);
        }
        for kind in LimitKind::ALL {
            let value = |policy: &Effective| policy.limit(kind).map_or(u64::MAX, |v| v.value);
            prop_assert!(value(&after) <= value(&before), "{}", kind);
        }
        prop_assert!(after.mode.value >= before.mode.value);
        prop_assert!(!after.net.ip_literals || before.net.ip_literals);
        prop_assert_eq!(&after.net.upstream, &before.net.upstream);
        prop_assert!(!after.net.learn || before.net.learn);
        for range in &after.net.addresses {
            prop_assert!(before.net.addresses.iter().any(|own| own.value.covers(&range.value)), "{}", range.value);
        }
        for (name, port) in [("a.com", 443), ("a.com", 0), ("b.a.com", 443), ("c.org", 443), ("c.org", 80), ("a.com", 8443), ("d.org", 22)] {
            let host = Host::new(name).unwrap();
            let (old, new) = (before.net.connect(&host, port), after.net.connect(&host, port));
            prop_assert!(reach(&new) <= reach(&old), "{}:{} went from {:?} to {:?}", name, port, old, new);
            prop_assert!(!new.decision().opaque || old.decision().opaque);
            for request in requests(&host, port) {
                let (old, new) = (before.net.request(&request), after.net.request(&request));
                prop_assert!(new.outcome <= old.outcome, "{:?} went from {:?} to {:?}", request, old, new);
                if new.outcome == Outcome::Allow {
                    prop_assert!(new.max_body.unwrap_or(u64::MAX) <= old.max_body.unwrap_or(u64::MAX));
                }
                // What a connection is refused, no request inside it is allowed.
                if port > 0 {
                    let best = after.net.connect(&host, port).decision().outcome;
                    prop_assert!(new.outcome <= best, "{:?} is allowed more than its connection: {:?}", request, new);
                }
            }
        }
        for name in &after.env_pass {
            prop_assert!(before.env_pass.iter().any(|own| own.value == name.value));
        }
    }

    #[test]
    fn the_order_in_which_layers_are_passed_does_not_matter(layers in trusted(), extra in prop::collection::vec(project(), 0..3), seed in any::<u64>()) {
        let mut layers = layers;
        layers.extend(extra);
        let mut shuffled = layers.clone();
        let count = shuffled.len().max(1);
        for index in 0..shuffled.len() {
            shuffled.swap(index, usize::try_from(seed.rotate_left(u32::try_from(index).unwrap() * 7) % 97).unwrap() % count);
        }
        let (a, b) = (effective(&layers), effective(&shuffled));
        prop_assert_eq!(a.canonical(), b.canonical());
        prop_assert_eq!(&a.not_granted, &b.not_granted);
        for question in QUESTIONS {
            let query = Query::parse(question, &surroundings()).unwrap();
            prop_assert_eq!(decide(&a, &query), decide(&b, &query), "{}", question);
        }
    }

    #[test]
    fn a_table_reads_back_and_answers_the_same(layers in trusted(), extra in prop::option::of(project())) {
        let mut layers = layers;
        layers.extend(extra);
        let table = effective(&layers).net;
        let again: NetPolicy = serde_json::from_str(&serde_json::to_string(&table).unwrap()).unwrap();
        prop_assert_eq!(&again, &table);
        prop_assert_eq!(again.selftest(), Ok(()));
    }

    #[test]
    fn deciding_is_total_and_gives_the_same_answer_twice(layers in trusted(), text in "\\PC{0,60}", verb in select(vec!["read", "write", "exec", "net", "tool"])) {
        let policy = effective(&layers);
        if let Ok(query) = Query::parse(&format!("{verb} {text}"), &surroundings()) {
            prop_assert_eq!(decide(&policy, &query), decide(&policy, &query));
        }
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same_document(text in document()) {
        let document = parse("a", text.as_bytes()).unwrap();
        let again = parse("b", document.to_json().as_bytes()).unwrap_or_else(|f| panic!("{}: {f:#?}", document.to_json()));
        prop_assert_eq!(document, again);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(parse("x", &bytes).is_err() || !bytes.is_empty());
    }

    #[test]
    fn a_document_with_one_byte_changed_is_read_or_refused_at_a_place_inside_it(text in document(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        if let Err(found) = diagnose("x", &bytes) {
            prop_assert!(!found.is_empty());
            let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
            for diagnostic in found {
                prop_assert!(diagnostic.line >= 1 && diagnostic.line as usize <= lines && diagnostic.column >= 1);
                prop_assert!(diagnostic.snippet.contains('^'));
            }
        }
    }
}
