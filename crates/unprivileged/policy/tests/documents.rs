//! Documents: what is read, what is refused, where the message points; and that the published schema agrees.
#![allow(clippy::unwrap_used, clippy::panic)]
use bastle_contract::Code;
use bastle_policy::{Document, SCHEMA, diagnose, parse};

/// Documents that both the schema and the parser take.
const GOOD: &[&str] = &[
    r#"{"version": 1, "cache": ["cargo", "npm"], "cacheMerge": "new-files"}"#,
    r#"{"version": 1}"#,
    r#"{"version": 1.0}"#,
    r#"{"$schema": "https://bastle.dev/schema/agent-permissions.v1.json", "version": 1}"#,
    r#"{"version": 1, "extends": ["preset:default", "preset:dev@1", "group:npm"]}"#,
    r#"{"version": 1, "mode": "audit", "lock": ["fs", "net", "exec", "tools", "git", "limits"]}"#,
    r#"{"version": 1, "fs": {"read": [".", "./a", "a/b", "~/x", "/y", "//z", "app/[id]", "a/"], "write": []}}"#,
    r#"{"version": 1, "fs": {"hide": ["**/.env*", "~/.ssh", "a/*/b", "a/**/b"], "protect": [".git/hooks"]}}"#,
    r#"{"version": 1, "fs": {"read": ["..a", "a..", "...", "a b", ".x", "ü"]}}"#,
    r#"{"version": 1, "net": {"default": "deny", "allow": ["a.com", "*.a.com", "GET,HEAD a.com/x/**", "a.com:8443", "group:npm", "A.com", "münchen.de"]}}"#,
    r#"{"version": 1, "net": {"default": "ask", "ask": ["POST a.com/**"], "deny": ["*.b.io"], "ipLiterals": false, "ports": [1, 65535], "listen": [3000]}}"#,
    r#"{"version": 1, "net": {"ipLiterals": true, "allow": ["10.0.0.1", "10.0.0.1:80/a"]}}"#,
    r#"{"version": 1, "net": {"allow": ["a.com", {"rule": "POST a.com/mcp", "rpc": ["tools/list", "tools/call:get_*"], "maxBody": "1MiB", "websocket": true}, {"rule": "a.com"}, {"rule": "ssh.a.com:22", "opaque": true}, {"rule": "b.com", "opaque": false}]}}"#,
    r#"{"version": 1, "net": {"ask": [{"rule": "a.com/graphql", "graphql": ["mutation", "query:Get*"]}], "deny": [{"rule": "group:npm"}, {"rule": "b.com", "rpc": ["*"]}]}}"#,
    r#"{"version": 1, "net": {"addresses": ["10.0.0.0/8", "127.0.0.1", "fd00::/16", "::1/128"], "resolvers": ["1.1.1.1", "127.0.0.1:5353", "::1", "[fe80::1]:53"], "upstream": "http://proxy.corp:3128"}}"#,
    r#"{"version": 1, "net": {"addresses": [], "resolvers": [], "upstream": "http://127.0.0.1:8080/"}}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "env:K", "hosts": ["a.com"], "paths": ["/v1/**", "/x"], "ports": [443, 8443], "header": "x-api-key: {}"}, {"name": "B", "from": "x", "hosts": ["a.com"], "header": "basic:x-token"}, {"name": "C", "from": "x", "hosts": ["a.com"], "header": "Authorization: token {}"}]}"#,
    r#"{"version": 1, "budget": {"bytesOut": "1GiB", "bytesIn": "10M", "requests": 100, "connections": 0}}"#,
    r#"{"version": 1, "exec": {"allow": ["cargo test *", "git status"], "ask": ["git push *"], "deny": ["sudo", "bash -c *"]}}"#,
    r#"{"version": 1, "tools": {"allow": ["Read", "Bash(cargo test *)", "mcp__github__get_*"], "deny": ["WebSearch", "Bash"]}}"#,
    r#"{"version": 1, "env": {"pass": ["LANG", "_x9"], "set": {"RUST_LOG": "info", "EMPTY": ""}}}"#,
    r#"{"version": 1, "secrets": [{"name": "GH_TOKEN", "from": "keyring:gh", "hosts": ["api.github.com", "*.x.org"], "methods": ["GET"]}]}"#,
    r#"{"version": 1, "git": {"push": "ask", "forcePush": "deny", "branches": ["agent/*"], "remotes": ["origin"]}}"#,
    r#"{"version": 1, "limits": {"timeout": "30m", "cpu": 2, "memory": "4GiB", "pids": 512, "disk": "10GiB", "files": 200, "bytesWritten": "50MiB"}}"#,
    r#"{"version": 1, "limits": {"cpuTime": "10s", "openFiles": 99, "inodes": 0, "output": "1M", "cpu": 0.5, "memory": "4G", "disk": "5Ti", "timeout": "5ms"}}"#,
    r#"{"version": 1, "limits": {"memory": "1024", "pids": 3.0}}"#,
    r#"{"version": 1, "budget": {"usd": 5, "tokens": 10, "turns": 50, "onExceed": "pause"}}"#,
    r#"{"version": 1, "budget": {"usd": 0.25, "onExceed": "stop"}}"#,
    r#"{"version": 1, "approvals": {"timeout": "15m", "onTimeout": "deny", "reviewers": ["@me"]}}"#,
    r#"{"version": 1, "audit": {"level": "full", "redact": ["sk-*"]}}"#,
    r#"{"version": 1, "audit": {"canary": false}}"#,
    r#"{"version": 1, "tests": [{"can": "net GET https://a.com/x", "is": "allow"}, {"can": "read ~/.ssh/id", "is": "deny"}, {"can": "tool Read", "is": "ask"}]}"#,
    r#"{"version": 1, "fs": {}, "net": {}, "exec": {}, "tools": {}, "env": {}, "secrets": [], "git": {}, "limits": {}, "budget": {}, "tests": []}"#,
];

/// Documents that both the schema and the parser refuse.
const BAD: &[&str] = &[
    r#"{"version": 1, "cache": ["../x"]}"#,
    r#"{"version": 1, "cache": "cargo"}"#,
    r#"{"version": 1, "cacheMerge": "always"}"#,
    r#"{}"#,
    r#"[]"#,
    r#"null"#,
    r#"{"version": 2}"#,
    r#"{"version": "1"}"#,
    r#"{"version": 1, "nope": 1}"#,
    r#"{"version": 1, "system": {"read": ["/"]}}"#,
    r#"{"version": 1, "fs": []}"#,
    r#"{"version": 1, "fs": {"raed": ["."]}}"#,
    r#"{"version": 1, "fs": {"read": "."}}"#,
    r#"{"version": 1, "fs": {"read": [1]}}"#,
    r#"{"version": 1, "fs": {"read": [""]}}"#,
    r#"{"version": 1, "fs": {"read": ["../x"]}}"#,
    r#"{"version": 1, "fs": {"read": ["/a/../b"]}}"#,
    r#"{"version": 1, "fs": {"read": ["a/.."]}}"#,
    r#"{"version": 1, "fs": {"read": ["a//b"]}}"#,
    r#"{"version": 1, "fs": {"read": ["a/./b"]}}"#,
    r#"{"version": 1, "fs": {"read": ["~root/x"]}}"#,
    r#"{"version": 1, "fs": {"read": ["~"]}}"#,
    r#"{"version": 1, "fs": {"read": ["a", "a"]}}"#,
    r#"{"version": 1, "fs": {"read": ["**/x"]}}"#,
    r#"{"version": 1, "fs": {"write": ["src/*"]}}"#,
    r#"{"version": 1, "fs": {"read": ["a\u0000b"]}}"#,
    r#"{"version": 1, "fs": {"hide": ["a**b"]}}"#,
    r#"{"version": 1, "fs": {"hide": ["[a]"]}}"#,
    r#"{"version": 1, "fs": {"hide": ["."]}}"#,
    r#"{"version": 1, "fs": {"hide": ["**/**/**/a"]}}"#,
    r#"{"version": 1, "net": {"default": "allow"}}"#,
    r#"{"version": 1, "net": {"allow": ["https://a.com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["*"]}}"#,
    r#"{"version": 1, "net": {"allow": ["*.com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["get a.com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["a.com:0"]}}"#,
    r#"{"version": 1, "net": {"allow": ["u@a.com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["a_b.com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["a.com/x?y"]}}"#,
    r#"{"version": 1, "net": {"allow": ["a..com"]}}"#,
    r#"{"version": 1, "net": {"allow": ["[::1]"]}}"#,
    r#"{"version": 1, "net": {"allow": [{}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "x": 1}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "*"}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rpc": ["x"]}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "rpc": ["x"], "graphql": ["query"]}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "rpc": []}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "rpc": ["a b"]}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "rpc": ["a:b:c"]}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "rpc": "x"}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "graphql": ["Query"]}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "maxBody": 5}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "maxBody": "5X"}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "websocket": "yes"}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "opaque": true}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com:80", "opaque": true}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "GET a.com:22", "opaque": true}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com:22/x", "opaque": true}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com:22", "opaque": true, "maxBody": "1K"}]}}"#,
    r#"{"version": 1, "net": {"allow": [{"rule": "a.com", "websocket": true}, {"rule": "a.com", "websocket": true}]}}"#,
    r#"{"version": 1, "net": {"deny": [{"rule": "a.com", "maxBody": "1K"}]}}"#,
    r#"{"version": 1, "net": {"ask": [{"rule": "a.com", "websocket": true}]}}"#,
    r#"{"version": 1, "net": {"deny": [{"rule": "a.com:22", "opaque": true}]}}"#,
    r#"{"version": 1, "net": {"allow": [["a.com"]]}}"#,
    r#"{"version": 1, "net": {"addresses": "10.0.0.0/8"}}"#,
    r#"{"version": 1, "net": {"addresses": ["a.com"]}}"#,
    r#"{"version": 1, "net": {"addresses": ["10.0.0.0/"]}}"#,
    r#"{"version": 1, "net": {"resolvers": ["dns.example"]}}"#,
    r#"{"version": 1, "net": {"resolvers": ["[::1]"]}}"#,
    r#"{"version": 1, "net": {"upstream": "https://proxy:1"}}"#,
    r#"{"version": 1, "net": {"upstream": "http://proxy"}}"#,
    r#"{"version": 1, "net": {"upstream": "http://u:p@proxy:1"}}"#,
    r#"{"version": 1, "net": {"mode": "open"}}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "paths": ["v1"]}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "ports": [0]}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "x-api-key"}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "x-api-key: abc"}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "x: {}{}"}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "basic:"}]}"#,
    r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "a b: {}"}]}"#,
    r#"{"version": 1, "budget": {"bytesOut": 5}}"#,
    r#"{"version": 1, "budget": {"requests": "5"}}"#,
    r#"{"version": 1, "net": {"ports": [0]}}"#,
    r#"{"version": 1, "net": {"ports": [65536]}}"#,
    r#"{"version": 1, "net": {"ports": [1.5]}}"#,
    r#"{"version": 1, "net": {"ipLiterals": "yes"}}"#,
    r#"{"version": 1, "exec": {"allow": ["*"]}}"#,
    r#"{"version": 1, "exec": {"allow": ["bash"]}}"#,
    r#"{"version": 1, "exec": {"allow": ["bash(*)"]}}"#,
    r#"{"version": 1, "exec": {"allow": "ls"}}"#,
    r#"{"version": 1, "tools": {"allow": ["*"]}}"#,
    r#"{"version": 1, "tools": {"allow": ["Bash"]}}"#,
    r#"{"version": 1, "tools": {"allow": ["Bash(*)"]}}"#,
    r#"{"version": 1, "tools": {"deny": ["a b"]}}"#,
    r#"{"version": 1, "env": {"pass": ["LD_PRELOAD"]}}"#,
    r#"{"version": 1, "env": {"pass": ["A-B"]}}"#,
    r#"{"version": 1, "env": {"set": {"NODE_OPTIONS": "x"}}}"#,
    r#"{"version": 1, "env": {"set": {"A": 1}}}"#,
    r#"{"version": 1, "secrets": [{"name": "gh", "from": "x", "hosts": []}]}"#,
    r#"{"version": 1, "secrets": [{"name": "GH", "hosts": []}]}"#,
    r#"{"version": 1, "secrets": [{"name": "GH", "from": "x", "hosts": ["*"], "value": "hunter2"}]}"#,
    r#"{"version": 1, "git": {"push": "maybe"}}"#,
    r#"{"version": 1, "limits": {"timeout": 30}}"#,
    r#"{"version": 1, "limits": {"timeout": "30"}}"#,
    r#"{"version": 1, "limits": {"memory": "4X"}}"#,
    r#"{"version": 1, "limits": {"memory": "-4G"}}"#,
    r#"{"version": 1, "limits": {"pids": -1}}"#,
    r#"{"version": 1, "limits": {"pids": 1.5}}"#,
    r#"{"version": 1, "limits": {"cpu": 0}}"#,
    r#"{"version": 1, "budget": {"usd": -1}}"#,
    r#"{"version": 1, "approvals": {"onTimeout": "allow"}}"#,
    r#"{"version": 1, "audit": {"level": "none"}}"#,
    r#"{"version": 1, "audit": {"canary": "no"}}"#,
    r#"{"version": 1, "extends": ["default"]}"#,
    r#"{"version": 1, "extends": ["preset:Default"]}"#,
    r#"{"version": 1, "mode": "off"}"#,
    r#"{"version": 1, "lock": ["env"]}"#,
    r#"{"version": 1, "tests": [{"can": "fly x", "is": "allow"}]}"#,
    r#"{"version": 1, "tests": [{"can": "read x"}]}"#,
    r#"{"version": 1, "tests": [{"can": "read ", "is": "allow"}]}"#,
];

#[test]
fn the_published_schema_and_the_parser_agree() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(GOOD.len() + BAD.len() >= 60);
    let mut wrong = Vec::new();
    for (texts, expected) in [(GOOD, true), (BAD, false)] {
        for text in texts {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            let (schema_says, parser_says) = (validator.is_valid(&value), parse("x", text.as_bytes()));
            if schema_says != expected || parser_says.is_ok() != expected {
                wrong.push(format!(
                    "{text}: expected {expected}, schema {schema_says}, parser {parser_says:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_schema_cannot_say_is_refused_by_the_parser() {
    for bad in [
        r#"{"version": 1, "net": {"allow": ["10.0.0.1"]}}"#,
        r#"{"version": 1, "net": {"allow": ["127.1"]}}"#,
        r#"{"version": 1, "net": {"allow": ["localhost"]}}"#,
        r#"{"version": 1, "net": {"ipLiterals": true, "allow": ["169.254.169.254"]}}"#,
        r#"{"version": 1, "net": {"allow": ["a.com:99999"]}}"#,
        r#"{"version": 1, "net": {"allow": ["a.com/%2e%2e/x"]}}"#,
        r#"{"version": 1, "net": {"allow": [{"rule": "10.0.0.1"}]}}"#,
        r#"{"version": 1, "net": {"allow": [{"rule": "localhost"}]}}"#,
        r#"{"version": 1, "net": {"addresses": ["10.0.0.1/8"]}}"#,
        r#"{"version": 1, "net": {"addresses": ["0.0.0.0/0"]}}"#,
        r#"{"version": 1, "net": {"addresses": ["169.254.169.254"]}}"#,
        r#"{"version": 1, "net": {"resolvers": ["0.0.0.0"]}}"#,
        r#"{"version": 1, "net": {"resolvers": ["1.1.1.1:0"]}}"#,
        r#"{"version": 1, "net": {"upstream": "http://a_b:80"}}"#,
        r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "header": "Host: {}"}]}"#,
        r#"{"version": 1, "secrets": [{"name": "K", "from": "x", "hosts": ["a.com"], "paths": ["/../x"]}]}"#,
        r#"{"version": 1, "exec": {"allow": ["sh -c *"]}}"#,
        r#"{"version": 1, "exec": {"deny": ["a; b"]}}"#,
        r#"{"version": 1, "tools": {"allow": ["Bash(sh -c *)"]}}"#,
        r#"{"version": 1, "tests": [{"can": "net ftp://x", "is": "deny"}]}"#,
    ] {
        assert!(parse("x", bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn text_that_is_not_plain_json_is_refused_where_it_goes_wrong() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let large = format!("{{\"version\": 1}}{}", " ".repeat(70_000));
    let many = format!(
        "{{\"version\": 1, \"env\": {{\"pass\": [{}]}}}}",
        vec!["\"A\""; 600].join(",")
    );
    for (bad, line, column) in [
        ("", 1, 1),
        ("{", 1, 2),
        ("{\"version\": 1}\n{}", 2, 1),
        ("{\"version\": 1,\n \"version\": 1}", 2, 2),
        ("{\"version\": 01}", 1, 13),
        ("{\"version\": 1e999}", 1, 13),
        ("{\"version\": NaN}", 1, 13),
        ("{\"a\": \"\\ud800\"}", 1, 8),
        ("{\"a\": \"\\ud800\\u0041\"}", 1, 8),
        ("{\"a\": \"\\udc00\"}", 1, 8),
        ("{\"a\": \"x\ny\"}", 1, 9),
        ("{\"a\": 'x'}", 1, 7),
        ("{version: 1}", 1, 2),
        ("{\"a\": [,]}", 1, 8),
        ("{\"a\": 1,,}", 1, 9),
        ("/* never ends", 1, 1),
        ("{\"a\": \"ü\" \"b\"}", 1, 11),
        ("\u{feff}{\"version\": 1}", 1, 1),
        (deep.as_str(), 1, 34),
        (large.as_str(), 1, 1),
        (many.as_str(), 1, 32),
    ] {
        let found = diagnose("f.json", bad.as_bytes()).unwrap_err();
        assert_eq!(
            (found[0].line, found[0].column),
            (line, column),
            "{:.60}: {}",
            bad,
            found[0].message
        );
    }
    let found = diagnose("f.json", b"{\n\"a\": \"\xff\"}").unwrap_err();
    assert_eq!(
        (found[0].code, found[0].line, found[0].column),
        (Code::PolicySyntax, 2, 7)
    );
}

#[test]
fn comments_and_trailing_commas_are_taken() {
    let text = "// a\n{ /* b */ \"version\": 1, // c\n \"fs\": {\"read\": [\".\", /* d */ ], }, }\n// end";
    let document = parse("x", text.as_bytes()).unwrap();
    assert_eq!(document.fs.read.as_ref().map(Vec::len), Some(1));
    assert_eq!(document.fs.read.as_ref().unwrap()[0].line, 3);
}

#[test]
fn a_misspelled_key_is_pointed_at_with_the_right_one() {
    let faults = parse("p.json", b"{ \"version\": 1,\n  \"fs\": { \"raed\": [\".\"] } }").unwrap_err();
    assert_eq!(
        (faults[0].code, faults[0].what.as_str()),
        (Code::PolicySchema, "unknown key \"raed\"")
    );
    assert_eq!(faults[0].help, ["did you mean \"read\"?"]);
    assert_eq!(
        faults[0].why,
        " --> p.json:2:11\n  |\n2 |   \"fs\": { \"raed\": [\".\"] } }\n  |           ^^^^^^"
    );
}

#[test]
fn every_fault_of_a_document_is_told_at_once() {
    let faults = parse("p", br#"{"version": 2, "x": 1, "fs": {"read": ["..", 1]}}"#).unwrap_err();
    assert_eq!(faults.len(), 4, "{faults:#?}");
}

#[test]
fn a_rule_that_allows_everything_has_its_own_code() {
    for wide in [
        r#"{"exec": {"allow": ["*"]}, "version": 1}"#,
        r#"{"exec": {"allow": ["bash"]}, "version": 1}"#,
        r#"{"tools": {"allow": ["Bash(*)"]}, "version": 1}"#,
    ] {
        assert_eq!(
            parse("x", wide.as_bytes()).unwrap_err()[0].code,
            Code::PolicyCommandRule,
            "{wide}"
        );
    }
}

#[test]
fn the_doubled_slash_is_noted_and_a_snippet_cannot_act_on_a_terminal() {
    let document: Document = parse("x", br#"{"version": 1, "fs": {"read": ["//srv"]}}"#).unwrap();
    assert_eq!(document.notes.0.len(), 1);
    let faults = parse("x\x1b[2J", "{\"version\": 1, \"\u{202e}\x7f\": 1}".as_bytes()).unwrap_err();
    assert!(
        !faults[0].why.contains(['\x1b', '\u{202e}', '\x7f']),
        "{:?}",
        faults[0].why
    );
}
