//! Requests that are looked into: methods, paths, upgrades, redirects, sizes and operations, as the rule says them.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, decisions, host, says, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));

#[test]
fn trace_and_nested_connect_are_refused() {
    for_each_identity(|lab| {
        let name = host("looked-into");
        // A path makes it one that is looked into; the method is left open.
        let rules = [format!("{name}:{{tls}}/echo"), format!("{name}:{{plain}}")];
        let output = world().fence(lab, &[&rules[0], &rules[1]]).shell(&format!(
            "for method in TRACE TRACK CONNECT; do\n\
             curl -s --http1.1 -X $method -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/echo\n\
             curl -s -X $method -o /dev/null -w '%{{http_code}}\\n' http://{name}:{{plain}}/echo; done\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/echo"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert!(
            lines[..6]
                .iter()
                .all(|line| ["405", "400", "403", "501"].contains(line)),
            "{output:?}"
        );
        assert_eq!(lines[6], "200", "control: {output:?}");
        assert_eq!(world().seen(&name).len(), 1);
    });
}

#[test]
fn a_redirect_is_handed_to_the_client_and_judged_again() {
    for_each_identity(|lab| {
        let (name, yes, no) = (host("start"), host("next"), host("denied"));
        let rules = [format!("GET {name}:{{tls}}/**"), format!("GET {yes}:{{tls}}/**")];
        let output = world().fence(lab, &[&rules[0], &rules[1]]).shell(&format!(
            "go() {{ curl -s -L -o /dev/null -w '%{{http_code}} %{{http_connect}}\\n' \"https://{name}:{{tls}}/redirect?to=$1\"; }}\n\
             go https://{yes}:{{tls}}/a\n\
             go https://{no}:{{tls}}/a\n\
             go http://169.254.169.254/latest\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' 'https://{name}:{{tls}}/redirect?to=https://{no}:{{tls}}/b'"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "200 200", "control: {output:?}");
        assert!(lines[1].ends_with("403"), "{output:?}");
        assert!(lines[2].starts_with("403"), "{output:?}");
        assert_eq!(lines[3], "302", "it is not followed by us: {output:?}");
        assert_eq!((world().seen(&yes).len(), world().seen(&no).len()), (1, 0));
    });
}

#[test]
fn a_websocket_needs_a_rule_and_its_bytes_are_counted() {
    for_each_identity(|lab| {
        let (yes, bare, no) = (host("socket"), host("no-socket"), host("denied"));
        let net = json!({ "allow": [
            { "rule": format!("GET {yes}:{{tls}}/ws"), "websocket": true },
            format!("GET {bare}:{{tls}}/ws"),
            { "rule": format!("GET {yes}:{{plain}}/ws"), "websocket": true } ] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let script = format!(
            r#"
def upgrade(name, port, what=b"websocket", tls=True):
    if tls:
        connection, head = connect(name, port)
        if status(head) != 200:
            return status(head)
        connection = secure(connection, name)
        target = b"/ws"
    else:
        connection = socket.create_connection(PROXY)
        target = b"http://" + name.encode() + b":%d/ws" % port
    connection.settimeout(10)
    connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + name.encode() + b":%d\r\nConnection: Upgrade\r\nUpgrade: " % port + what +
        b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        if not piece:
            break
        head += piece
    if status(head) != 101:
        return status(head)
    connection.sendall(b"\x81\x85\0\0\0\0hello")
    got = connection.recv(7)
    connection.close()
    return got[2:]
print(upgrade({yes:?}, {{tls}}), upgrade({yes:?}, {{plain}}, tls=False))
print([upgrade({bare:?}, {{tls}}) in (400, 403, 426), upgrade({no:?}, {{tls}}), upgrade({yes:?}, {{tls}}, b"h2c") in (400, 403, 426, 501),
       upgrade({yes:?}, {{tls}}, b"TLS/1.0") in (400, 403, 426, 501), upgrade({yes:?}, {{tls}}, b"websocket, h2c") in (400, 403, 426, 501)])
"#
        );
        let output = world().under(lab, &policy).within(SLOW).python(lab, &script);
        says(&output, "b'hello' b'hello'\n[True, 403, True, True, True]");
        assert!(
            world()
                .seen(&bare)
                .iter()
                .all(|r| !r["headers"].to_string().contains("pgrade")),
            "{output:?}"
        );
        let seq = &decisions(&output, &yes, "allowed")[0]["seq"];
        let closed: Vec<_> = output
            .events("net-closed")
            .into_iter()
            .filter(|e| e["seq"] == *seq)
            .collect();
        assert!(
            closed.iter().any(|e| e["bytes_in"].as_u64() > Some(0)),
            "{output:?}"
        );
    });
}

#[test]
fn a_path_is_judged_in_the_form_the_server_will_see() {
    for_each_identity(|lab| {
        let name = host("looked-into");
        let output = world().fence(lab, &[&format!("GET {name}:{{tls}}/public/**")]).shell(&format!(
            "for path in /public/a /public/../private /public/%2e%2e/private /public/%2E%2E%2fprivate /public/..%5cprivate //public/a /PUBLIC/a \
             /public/./../private /publicx/a /public%2f..%2fprivate '/public/;/../private' '/private?x=/public/a' '/public/a?x=../..'; do\n\
             curl -s --path-as-is -o /dev/null -w '%{{http_code}}\\n' \"https://{name}:{{tls}}$path\"; done"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!((lines[0], lines[12]), ("200", "200"), "controls: {output:?}");
        for (index, line) in lines[1..12].iter().enumerate() {
            assert!(["403", "400"].contains(line), "case {}: {output:?}", index + 1);
        }
        assert_eq!(world().seen(&name).len(), 2);
    });
}

#[test]
fn a_body_beyond_the_rules_size_is_refused_also_when_it_does_not_say_its_length() {
    for_each_identity(|lab| {
        let name = host("small");
        let net = json!({ "allow": [{ "rule": format!("POST {name}:{{tls}}/in"), "maxBody": "1KiB" }] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let output = world().under(lab, &policy).shell(&format!(
            "post() {{ head -c $1 /dev/zero | curl -s --http1.1 -o /dev/null -w '%{{http_code}}\\n' $2 --data-binary @- https://{name}:{{tls}}/in; }}\n\
             post 1000 ''; post 2000 ''; post 1000 '-HTransfer-Encoding:chunked'; post 300000 '-HTransfer-Encoding:chunked'"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "200", "{output:?}");
        assert!(["413", "403"].contains(&lines[1]), "{output:?}");
        assert_eq!(lines[2], "200", "{output:?}");
        assert!(["413", "403", "000", "502"].contains(&lines[3]), "{output:?}");
        for request in world().seen(&name) {
            assert!(request["length"].as_u64() <= Some(1024), "{request}");
        }
    });
}

/// Bodies for the two hosts, and whether the rules name what each asks for.
fn operations<'h>(rpc: &'h str, graph: &'h str) -> Vec<(&'h str, &'static str, String, bool)> {
    let call = |name: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#)
    };
    vec![
        (
            rpc,
            "mcp",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned(),
            true,
        ),
        (rpc, "mcp", call("get_issue"), true),
        (rpc, "mcp", call("delete_all"), false),
        (
            rpc,
            "mcp",
            format!("[{},{}]", call("get_issue"), call("delete_all")),
            false,
        ),
        (
            rpc,
            "mcp",
            format!("{}{}", call("get_issue"), call("delete_all")),
            false,
        ),
        (
            rpc,
            "mcp",
            r#"{"jsonrpc":"2.0","method":"tools/list","method":"tools/call"}"#.to_owned(),
            false,
        ),
        (rpc, "mcp", "not json".to_owned(), false),
        (rpc, "mcp", String::new(), false),
        (
            graph,
            "graphql",
            r#"{"query":"query Q { viewer { login } }"}"#.to_owned(),
            true,
        ),
        (
            graph,
            "graphql",
            r#"{"query":"{ viewer { login } }"}"#.to_owned(),
            true,
        ),
        (
            graph,
            "graphql",
            r#"{"query":"mutation M { removeAll }"}"#.to_owned(),
            false,
        ),
        (
            graph,
            "graphql",
            r#"{"query":"query Q { a } mutation M { b }","operationName":"M"}"#.to_owned(),
            false,
        ),
        (
            graph,
            "graphql",
            r##"{"query":"# query\nmutation { b }"}"##.to_owned(),
            false,
        ),
        (graph, "graphql", r#"{"id":"stored-1"}"#.to_owned(), false),
    ]
}

#[test]
fn a_tool_call_or_mutation_that_no_rule_names_is_refused() {
    for_each_identity(|lab| {
        let (rpc, graph) = (host("mcp"), host("graphql"));
        let net = json!({ "allow": [
            { "rule": format!("POST {rpc}:{{tls}}/mcp"), "rpc": ["tools/list", "tools/call:get_*"] },
            { "rule": format!("POST {graph}:{{tls}}/graphql"), "graphql": ["query"] } ] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let bodies = operations(&rpc, &graph);
        let mut script = String::new();
        for (host, path, body, _) in &bodies {
            script += &format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'content-type: application/json' -d '{}' https://{host}:{{tls}}/{path}\n",
                body.replace('\'', "'\\''")
            );
        }
        let output = world().under(lab, &policy).within(SLOW).shell(&script);
        let lines: Vec<&str> = output.said().lines().collect();
        for (line, (_, _, body, allowed)) in lines.iter().zip(&bodies) {
            assert_eq!(*line, if *allowed { "200" } else { "403" }, "{body}: {output:?}");
        }
        assert_eq!(
            (world().seen(&rpc).len(), world().seen(&graph).len()),
            (2, 2),
            "{output:?}"
        );
        assert!(
            codes(&output, &rpc).iter().all(|code| code == "BST-NET-015"),
            "{output:?}"
        );
    });
}

#[test]
fn an_upload_to_another_account_of_an_allowed_host_is_refused() {
    for_each_identity(|lab| {
        let name = host("hub");
        let output = world().fence(lab, &[&format!("GET,POST {name}:{{tls}}/acme/**")]).shell(&format!(
            "for path in acme/repo/upload attacker/repo/upload acme2/x 'x/../acme/y'; do\n\
             curl -s --path-as-is -o /dev/null -w '%{{http_code}}\\n' -d secret https://{name}:{{tls}}/$path; done"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..3], ["200", "403", "403"], "{output:?}");
        assert!(["403", "400"].contains(&lines[3]), "{output:?}");
        assert_eq!(world().seen(&name).len(), 1);
        assert_eq!(
            decisions(&output, &name, "denied").len(),
            3,
            "visible in the audit log: {output:?}"
        );
    });
}

#[test]
fn an_expired_or_foreign_certificate_of_the_server_is_not_accepted() {
    for_each_identity(|lab| {
        // The server's certificate is for *.lab.test and *.odd.test: one level, so not for this name.
        let name = format!("deep.{}", host("level"));
        let output = world()
            .fence(lab, &[&format!("GET {name}:{{tls}}/**")])
            .shell(&format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/a"
            ));
        assert!(["502", "503", "504"].contains(&output.said()), "{output:?}");
        assert!(world().seen(&name).is_empty());
        // And without the lab's authority no server of the lab is trusted.
        let other = host("untrusted");
        let output = world()
            .fence(lab, &[&format!("GET {other}:{{tls}}/**")])
            .env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
            .shell(&format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' https://{other}:{{tls}}/a"
            ));
        assert!(["502", "503", "504"].contains(&output.said()), "{output:?}");
        assert!(world().seen(&other).is_empty());
    });
}

#[test]
fn the_agent_can_read_what_it_may_and_ask_for_more() {
    for_each_identity(|lab| {
        let name = host("pass");
        let output = world().fence(lab, &[&format!("{name}:{{tls}}")]).shell(
            "curl -sS http://bastle.local/v1/policy\necho\n\
             curl -sS -o /dev/null -w '%{http_code}\\n' -d '{\"rule\":\"wanted.lab.test\",\"why\":\"to see\"}' http://bastle.local/v1/requests",
        );
        let lines: Vec<&str> = output.said().lines().collect();
        assert!(lines[0].contains(&name), "{output:?}");
        assert_eq!(lines.last(), Some(&"202"), "{output:?}");
        let wanted = output.events("wanted");
        assert_eq!(wanted.len(), 1, "{output:?}");
        assert_eq!(wanted[0]["rule"], "wanted.lab.test", "{output:?}");
    });
}
