//! Properties over generated layers and questions.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_contract::LimitKind;
use bastle_policy::{
    AuthorityCeiling, Bounded, CeilingForm, ConnectVerdict, Effective, Excess, Expansion, Host, Layer,
    LayerKind, MergeOptions, NetPolicy, NetRequest, Operation, Outcome, Query, beyond, decide, diagnose,
    merge, parse, reserved,
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
        unprotect: vec![path("/home/u/.config/**")],
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

/// Whether the second policy reaches nothing that the first does not.
fn never_wider(before: &Effective, after: &Effective) -> Result<(), TestCaseError> {
    for question in QUESTIONS {
        let query = Query::parse(question, &surroundings()).unwrap();
        let (old, new) = (decide(before, &query), decide(after, &query));
        prop_assert!(
            new.outcome <= old.outcome,
            "{} went from {:?} to {:?} ({})",
            question,
            old.outcome,
            new.outcome,
            new.reason
        );
    }
    for kind in LimitKind::ALL {
        let value = |policy: &Effective| policy.limit(kind).map_or(u64::MAX, |v| v.value);
        prop_assert!(value(after) <= value(before), "{}", kind);
    }
    prop_assert!(after.mode.value >= before.mode.value);
    prop_assert!(!after.net.ip_literals || before.net.ip_literals);
    prop_assert_eq!(&after.net.upstream, &before.net.upstream);
    prop_assert!(!after.net.learn || before.net.learn);
    for range in &after.net.addresses {
        prop_assert!(
            before
                .net
                .addresses
                .iter()
                .any(|own| own.value.covers(&range.value)),
            "{}",
            range.value
        );
    }
    for (name, port) in [
        ("a.com", 443),
        ("a.com", 0),
        ("b.a.com", 443),
        ("c.org", 443),
        ("c.org", 80),
        ("a.com", 8443),
        ("d.org", 22),
    ] {
        let host = Host::new(name).unwrap();
        let (old, new) = (before.net.connect(&host, port), after.net.connect(&host, port));
        prop_assert!(
            reach(&new) <= reach(&old),
            "{}:{} went from {:?} to {:?}",
            name,
            port,
            old,
            new
        );
        prop_assert!(!new.decision().opaque || old.decision().opaque);
        for request in requests(&host, port) {
            let (old, new) = (before.net.request(&request), after.net.request(&request));
            prop_assert!(
                new.outcome <= old.outcome,
                "{:?} went from {:?} to {:?}",
                request,
                old,
                new
            );
            if new.outcome == Outcome::Allow {
                prop_assert!(new.max_body.unwrap_or(u64::MAX) <= old.max_body.unwrap_or(u64::MAX));
            }
            // What a connection is refused, no request inside it is allowed.
            if port > 0 {
                let best = after.net.connect(&host, port).decision().outcome;
                prop_assert!(
                    new.outcome <= best,
                    "{:?} is allowed more than its connection: {:?}",
                    request,
                    new
                );
            }
        }
    }
    for name in &after.env_pass {
        prop_assert!(before.env_pass.iter().any(|own| own.value == name.value));
    }
    Ok(())
}

const SECRETS: &[&str] = &["TOKEN_A", "TOKEN_B"];
const CEILING_HOSTS: &[&str] = &["a.com", "*.a.com", "b.a.com", "c.org", "d.org"];
const ROOTS: &[&str] = &[
    "/",
    "/home/u",
    "/home/u/w",
    "/home/u/w2",
    "/srv",
    "/srv/a",
    "/home",
];

fn texts(choices: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<String>>> {
    let some = subsequence(choices, 0..=3.min(choices.len()))
        .prop_map(|items| items.into_iter().map(str::to_owned).collect());
    prop::option::of(some)
}

fn ceiling() -> impl Strategy<Value = AuthorityCeiling> {
    let net = prop::option::of(select(vec!["none", "offline", "allowlist", "open"]).prop_map(str::to_owned));
    let numbers = (
        prop::option::of(1u64..5000),
        prop::option::of(1u64..100),
        prop::option::of(0u32..50),
    )
        .prop_map(|(pids, turns, usd)| {
            let mut limits = serde_json::Map::new();
            limits.extend(pids.map(|n| ("pids".to_owned(), (n + 3).into())));
            limits.extend(turns.map(|n| ("turns".to_owned(), n.into())));
            limits.extend(usd.map(|n| ("usd".to_owned(), n.into())));
            limits
        });
    (
        texts(ROOTS),
        texts(&["default", "claude", "mine"]),
        texts(&["default", "dev"]),
        texts(CEILING_HOSTS),
        texts(SECRETS),
        net,
        texts(&["copy", "overlay", "in-place"]),
        texts(&["native", "host"]),
        numbers,
        prop::option::of(1u32..9),
    )
        .prop_map(
            |(roots, profiles, presets, hosts, secrets, net, modes, backends, limits, max_runs)| {
                AuthorityCeiling::try_from(CeilingForm {
                    roots,
                    profiles,
                    presets,
                    hosts,
                    secrets,
                    net,
                    modes,
                    backends,
                    limits,
                    max_runs,
                })
                .unwrap()
            },
        )
}

/// A layer of the operator that has secrets and opens the network.
fn generous() -> Layer {
    let text = r#"{"version": 1, "net": {"allow": ["a.com", "*.a.com", "c.org", "d.org:22"]}, "secrets": [
        {"name": "TOKEN_A", "from": "env:A", "hosts": ["a.com"]},
        {"name": "TOKEN_B", "from": "env:B", "hosts": ["c.org"]}]}"#;
    layer(LayerKind::Managed, text)
}

fn bounded(layers: &[Layer], ceiling: &AuthorityCeiling, expansion: Expansion) -> Effective {
    let options = MergeOptions {
        ceiling: Some(ceiling.clone()),
        expansion,
        ..options()
    };
    merge(layers, &surroundings(), &options).unwrap()
}

/// Everything of a policy that a ceiling speaks about lies within it.
fn within(effective: &Effective, ceiling: &AuthorityCeiling) -> Result<(), TestCaseError> {
    for name in ["a.com", "b.a.com", "x.b.a.com", "c.org", "d.org", "e.net"] {
        let host = Host::new(name).unwrap();
        if ceiling.allows_host(&host) {
            continue;
        }
        for port in [0, 22, 80, 443, 8443] {
            let verdict = effective.net.connect(&host, port);
            prop_assert_eq!(reach(&verdict), 0, "{}:{}", name, port);
            for request in requests(&host, port) {
                prop_assert_eq!(effective.net.request(&request).outcome, Outcome::Deny);
            }
        }
    }
    for secret in &effective.secrets {
        prop_assert!(ceiling.allows_secret(&secret.value.name));
    }
    for secret in &effective.net.secrets {
        prop_assert!(ceiling.allows_secret(&secret.name));
    }
    prop_assert!(ceiling.net().is_none_or(|most| effective.net.mode <= most));
    for kind in LimitKind::ALL {
        if let Some(most) = ceiling.most(Bounded::Limit(kind)) {
            prop_assert!(
                effective.limit(kind).is_some_and(|value| value.value <= most),
                "{}",
                kind
            );
        }
    }
    if let Some(most) = ceiling.most(Bounded::Turns) {
        prop_assert!(
            effective
                .budgets
                .turns
                .as_ref()
                .is_some_and(|turns| turns.value <= most)
        );
        prop_assert!(effective.net.budget.turns.is_some_and(|turns| turns <= most));
    }
    if let Some(most) = ceiling.most(Bounded::Cost) {
        prop_assert!(
            effective
                .net
                .budget
                .cost_micro_usd
                .is_some_and(|cost| cost <= most)
        );
    }
    Ok(())
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
        never_wider(&before, &after)?;
    }

    #[test]
    fn a_request_never_widens_and_never_leaves_its_ceiling(
        base in trusted(), asked in document(), ceiling in ceiling(), other in prop::option::of(project()), expands in any::<bool>(), open in any::<bool>(),
    ) {
        let expansion = if expands { Expansion::Allowed } else { Expansion::RestrictOnly };
        let mut layers = base;
        layers.push(generous());
        layers.extend(other);
        if open {
            let mut flags = parse("flags", b"{\"version\": 1}").unwrap();
            flags.net.mode = Some(bastle_policy::At::nowhere(bastle_policy::NetMode::Open));
            layers.push(Layer { kind: LayerKind::Flags, name: "flags".to_owned(), document: flags.into() });
        }
        let without = bounded(&layers, &ceiling, expansion);
        layers.push(layer(LayerKind::Request, &asked));
        let with = bounded(&layers, &ceiling, expansion);
        never_wider(&without, &with)?;
        within(&without, &ceiling)?;
        within(&with, &ceiling)?;
        prop_assert_eq!(&with.env_set, &without.env_set);
        prop_assert_eq!(&with.secrets, &without.secrets);
        prop_assert_eq!(&with.net.resolvers, &without.net.resolvers);
    }

    #[test]
    fn what_a_request_states_is_in_force_or_told_as_beyond(base in trusted(), asked in document(), ceiling in ceiling()) {
        let mut layers = base;
        layers.push(generous());
        layers.push(layer(LayerKind::Request, &asked));
        let with = bounded(&layers, &ceiling, Expansion::RestrictOnly);
        let document = parse("request", asked.as_bytes()).unwrap();
        let told = beyond(&document, &with, &ceiling);
        for (kind, at) in &document.limits.0 {
            let got = with.limit(*kind).map_or(u64::MAX, |value| value.value);
            let named = told.iter().any(|excess| match excess {
                Excess::Number(bounded, ..) => *bounded == Bounded::Limit(*kind),
                Excess::NotGranted(what) => what.starts_with(&format!("limits.{kind} ")),
                _ => false,
            });
            prop_assert!(got >= at.value || named, "{}: asked {}, got {}, and nobody was told", kind, at.value, got);
        }
        let keys = reserved(&document);
        prop_assert_eq!(keys.contains(&Excess::Key("net.addresses")), document.net.addresses.is_some());
        prop_assert_eq!(keys.contains(&Excess::Key("net.upstream")), document.net.upstream.is_some());
        prop_assert_eq!(keys.contains(&Excess::Key("lock")), !document.lock.is_empty());
    }

    #[test]
    fn two_ceilings_meet_in_one_that_allows_what_both_allow(a in ceiling(), b in ceiling(), c in ceiling()) {
        let both = a.meet(&b);
        prop_assert_eq!(&both, &b.meet(&a));
        prop_assert_eq!(both.meet(&c), a.meet(&b.meet(&c)));
        prop_assert_eq!(a.meet(&a), a.clone());
        prop_assert_eq!(a.meet(&AuthorityCeiling::default()), a.clone());
        for root in ROOTS.iter().chain(&["/home/u/w/x", "/srvx", "/srv/a/b", "/tmp"]) {
            let root = path(root);
            prop_assert_eq!(both.allows_root(&root), a.allows_root(&root) && b.allows_root(&root), "{}", root);
        }
        for name in ["a.com", "b.a.com", "x.b.a.com", "c.org", "d.org", "e.net"] {
            let host = Host::new(name).unwrap();
            prop_assert_eq!(both.allows_host(&host), a.allows_host(&host) && b.allows_host(&host), "{}", name);
        }
        for name in ["default", "claude", "mine", "dev", "dev@1"] {
            prop_assert_eq!(both.allows_profile(name), a.allows_profile(name) && b.allows_profile(name));
            prop_assert_eq!(both.allows_preset(name), a.allows_preset(name) && b.allows_preset(name));
        }
        for mode in bastle_policy::WorkspaceMode::ALL {
            prop_assert_eq!(both.allows_mode(mode), a.allows_mode(mode) && b.allows_mode(mode));
        }
        for kind in [Bounded::Limit(LimitKind::Pids), Bounded::Turns, Bounded::Cost] {
            let most = |one: &AuthorityCeiling| one.most(kind).unwrap_or(u64::MAX);
            prop_assert_eq!(most(&both), most(&a).min(most(&b)));
        }
        prop_assert_eq!(both.max_runs().unwrap_or(u32::MAX), a.max_runs().unwrap_or(u32::MAX).min(b.max_runs().unwrap_or(u32::MAX)));
        let text = serde_json::to_string(&a).unwrap();
        prop_assert_eq!(serde_json::from_str::<AuthorityCeiling>(&text).unwrap(), a);
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
