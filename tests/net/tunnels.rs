//! Inside an allowed tunnel: one name, an allowed port, and TLS unless the rule says otherwise.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, denials, host, says, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));

#[test]
fn another_name_in_the_clienthello_is_refused() {
    for_each_identity(|lab| {
        let (name, other) = (host("pass"), host("front"));
        let rules = [format!("{name}:{{tls}}"), format!("{other}:{{tls}}")];
        // Also when the other name is allowed by itself: a tunnel is for the name it was opened for.
        let script = format!(
            r#"
ca = os.environ["LAB_CA"]
def inside(sni):
    tls = secure(connect({name:?}, {{tls}})[0], sni, ca)
    tls.sendall(b"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n")
    return read(tls)[-19:]
print(outcome(lambda: inside({name:?})))
print(outcome(lambda: inside({other:?})))
print(outcome(lambda: inside("lab.test")))
print(outcome(lambda: inside(None)))
print(outcome(lambda: inside({name:?}.upper())))
"#
        );
        let output = world()
            .fence(lab, &[&rules[0], &rules[1]])
            .within(SLOW)
            .python(lab, &script);
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], r"b'hello from the lab\n'", "control: {output:?}");
        for line in &lines[1..4] {
            assert!(line.contains("Error"), "{output:?}");
        }
        assert_eq!(lines[4], lines[0], "a name has no case: {output:?}");
        assert_eq!(world().seen(&name).len(), 2);
        assert_eq!(denials(&output, &name, "BST-NET-005"), 3, "{output:?}");
    });
}

#[test]
fn a_clienthello_with_two_names_none_or_hidden_ones_is_refused() {
    for_each_identity(|lab| {
        let (name, other) = (host("pass"), host("front"));
        // What a server answers to a hello it accepts begins with a handshake record.
        let script = format!(
            r#"
def reached(raw):
    connection, head = connect({name:?}, {{tls}})
    connection.sendall(raw)
    return read(connection, 1)[:1] == b"\x16"
hidden = (0xfe0d, b"\0" + b"\0\1\0\1" + b"\7" + b"\0\x20" + b"\5" * 32 + b"\0\x20" + b"\6" * 32)
print(reached(hello(names({name:?}))))
for raw in (hello(), hello(hidden), hello(names({other:?}), hidden), hello(names({name:?}, {other:?})), hello(names({other:?}, {name:?})),
            hello(names({name:?}), names({other:?})), hello(names({other:?}), names({name:?})), hello(names({name:?}, kind=1)),
            hello(names({name:?} + "\0.x")), hello(names("")), hello(names("127.0.0.1")), hello((0, b"")),
            b"\x16\3\1\x40\1" + b"\1" * 100, b"\x16\3\1\0\0" * 50):
    print(reached(raw))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, &format!("True\n{}", ["False"; 14].join("\n")));
    });
}

#[test]
fn another_host_inside_tls_that_is_looked_into_is_refused() {
    for_each_identity(|lab| {
        let (name, other) = (host("looked-into"), host("front"));
        let rules = [
            format!("GET {name}:{{tls}}/**"),
            format!("GET {other}:{{tls}}/**"),
        ];
        let output = world().fence(lab, &[&rules[0], &rules[1]]).shell(&format!(
            "for host in {name}:{{tls}} {other}:{{tls}} {other} {name} '' {name}:1 {name}:{{tls}}.; do\n\
             curl -s --http1.1 -H \"Host: $host\" -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/a; done\n\
             curl -s --http2 -H 'Host: {other}:{{tls}}' -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/a"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "200", "control: {output:?}");
        for line in &lines[1..] {
            assert!(["421", "400", "403"].contains(line), "{output:?}");
        }
        assert_eq!(lines.len(), 8, "{output:?}");
        assert_eq!(
            (world().seen(&name).len(), world().seen(&other).len()),
            (1, 0),
            "{output:?}"
        );
    });
}

#[test]
fn ports_that_no_rule_names_are_denied() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = format!(
            "print([status(connect({name:?}, port)[1]) for port in (22, 25, 80, 443, 6379, {{sink}}, {{tls}})])\n\
             print([socks({name:?}, port)[1] for port in (22, 25, {{sink}}, {{tls}})])"
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .python(lab, &script);
        says(&output, "[403, 403, 403, 403, 403, 403, 200]\n[2, 2, 2, 0]");
        assert!(
            codes(&output, &name).contains(&"BST-NET-004".to_owned()),
            "{output:?}"
        );
        // A rule without a port means the web's own ports, and nothing else.
        let bare = host("bare");
        let output = world().fence(lab, &[&bare]).python(
            lab,
            &format!(
                "print([status(connect({bare:?}, port)[1]) for port in (22, 25, 6379, {{sink}}, {{tls}})])"
            ),
        );
        says(&output, "[403, 403, 403, 403, 403]");
    });
}

#[test]
fn bytes_that_are_not_tls_are_refused_unless_the_rule_says_so() {
    for_each_identity(|lab| {
        let (name, open) = (host("pass"), host("opaque"));
        let net = json!({ "allow": [
            format!("{name}:{{plain}}"), format!("{name}:{{sink}}"), format!("{name}:{{tls}}"),
            { "rule": format!("{open}:{{sink}}"), "opaque": true } ] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let script = format!(
            r#"
def inside(name, port, raw, wait=15):
    connection, head = connect(name, port, wait)
    if status(head) != 200:
        return status(head)
    try:
        connection.sendall(raw)
    except OSError:
        pass
    return read(connection)
print(b"lab sink" in inside({open:?}, {{sink}}, b"SSH-2.0-x\r\n"))
for raw in (b"SSH-2.0-attacker\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02", b"\0" * 600):
    answer = inside({name:?}, {{sink}}, raw)
    print(answer if isinstance(answer, int) else b"lab sink" in answer)
    answer = inside({name:?}, {{tls}}, raw)
    print(answer if isinstance(answer, int) else b"hello from" in answer)
"#
        );
        let output = world().under(lab, &policy).within(SLOW).python(lab, &script);
        says(&output, &format!("True\n{}", ["False"; 10].join("\n")));
        assert!(
            codes(&output, &name).contains(&"BST-NET-006".to_owned()),
            "{output:?}"
        );
    });
}

#[test]
fn a_plain_request_inside_a_tunnel_to_a_web_port_is_still_judged() {
    for_each_identity(|lab| {
        let name = host("plain");
        let script = format!(
            r#"
def inside(raw):
    connection, head = connect({name:?}, {{plain}})
    if status(head) != 200:
        return status(head)
    connection.settimeout(6)
    connection.sendall(raw)
    return status(read(connection))
print(inside(b"DELETE /x HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n") in (0, 403))
print(inside(b"GET /x HTTP/1.1\r\nHost: other.lab.test\r\nConnection: close\r\n\r\n") in (0, 400, 403, 421))
"#
        );
        let output = world()
            .fence(lab, &[&format!("GET {name}:{{plain}}/**")])
            .python(lab, &script);
        says(&output, "True\nTrue");
        assert!(
            world()
                .seen(&name)
                .iter()
                .all(|request| request["method"] == "GET")
        );
        assert!(world().seen("other.lab.test").is_empty());
    });
}

#[test]
fn a_tunnel_that_says_nothing_is_closed_and_a_hello_in_pieces_is_read() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = format!(
            r#"
import time
started = time.monotonic()
connection, head = connect({name:?}, {{tls}}, 40)
print(status(head), read(connection) [:1] in (b"", b"\x15"), time.monotonic() - started < 30)
class Slow:
    """Hands TLS over a byte at a time, in several segments."""
memory, out = ssl.MemoryBIO(), ssl.MemoryBIO()
context = ssl.create_default_context(cafile=os.environ["LAB_CA"])
tls = context.wrap_bio(memory, out, server_hostname={name:?})
connection, head = connect({name:?}, {{tls}})
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def step(what):
    while True:
        try:
            return what()
        except ssl.SSLWantReadError:
            data = out.read()
            for i in range(0, len(data), 37):
                connection.sendall(data[i:i + 37])
                time.sleep(0.002)
            memory.write(connection.recv(65536))
step(tls.do_handshake)
tls.write(b"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n")
print(step(lambda: tls.read(4096))[:15])
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "200 True True\nb'HTTP/1.1 200 OK'");
    });
}

#[test]
fn http_two_floods_end_the_connection_and_not_the_proxy() {
    for_each_identity(|lab| {
        let name = host("looked-into");
        let script = format!(
            r#"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
def frame(kind, flags, stream, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
HEAD = literal(b":method", b"GET") + literal(b":scheme", b"https") + literal(b":path", b"/a") + literal(b":authority", b"{name}:{{tls}}")
def inside(pieces):
    tls = secure(connect({name:?}, {{tls}})[0], {name:?}, protocols=["h2"])
    assert tls.selected_alpn_protocol() == "h2"
    tls.settimeout(10)
    try:
        tls.sendall(PREFACE + frame(4, 0, 0))
        for piece in pieces:
            tls.sendall(piece)
    except OSError:
        return "cut"
    got = read(tls, 1 << 22)
    kinds = []
    while len(got) >= 9:
        size = int.from_bytes(got[:3], "big")
        kinds.append(got[3])
        got = got[9 + size:]
    return "cut" if 7 in kinds else kinds
def resets():
    for i in range(20000):
        yield frame(1, 5, 2 * i + 1, HEAD) + frame(3, 0, 2 * i + 1, b"\0\0\0\x08")
def continuations():
    yield frame(1, 1, 1, HEAD)
    for _ in range(20000):
        yield frame(9, 0, 1, literal(b"x-a", b"b" * 100))
def pings():
    for _ in range(50000):
        yield frame(6, 0, 0, b"12345678")
def settings():
    for _ in range(50000):
        yield frame(4, 0, 0)
print(inside(resets()))
print(inside(continuations()))
print(inside([frame(1, 5, 1, b"\x80")]))
print(inside([frame(1, 5, 2, HEAD)]))
print(inside([frame(0, 0, 0, b"x")]))
for flood in (pings(), settings()):
    inside(flood)
def one(head):
    got = inside([frame(1, 5, 1, head), frame(6, 0, 0, b"12345678")])
    return "refused" if got == "cut" or 3 in got else "answered"
print(one(HEAD + literal(b"X-Upper", b"a")), one(HEAD + literal(b"x", b"a\r\nb: c")), one(HEAD + literal(b"x", b"a\0b")),
      one(HEAD + literal(b"connection", b"close")), one(HEAD + literal(b"te", b"gzip")))
"#
        );
        let output = world()
            .fence(lab, &[&format!("GET {name}:{{tls}}/**")])
            .within(SLOW)
            .python(lab, &script);
        says(
            &output,
            "cut\ncut\ncut\ncut\ncut\nrefused refused refused refused refused",
        );
        assert!(
            world().seen(&name).len() < 20_000,
            "a reset flood is not passed on"
        );
        let control = world()
            .fence(lab, &[&format!("GET {name}:{{tls}}/**")])
            .shell(&format!("curl -sS --http2 https://{name}:{{tls}}/a"));
        says(&control, "hello from the lab");
    });
}
