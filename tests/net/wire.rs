//! Bytes on the wire: requests that two parsers could read differently are refused, and nothing of them arrives.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, host, says, world};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));

#[test]
fn a_control_byte_escape_or_delimiter_in_the_authority_is_refused() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = format!(
            r##"
name = {name:?}.encode()
bad = [name + b"%00.evil", b"%61" + name[1:], name.replace(b".", b"%2e"), name + b"\t", b" " + name, name + b"\x7f", name + b"#x",
       name + b"?x", name + b"/x", b"user@" + name, b"user:pass@" + name, name + b"\\evil", name + b"\0", b"evil\r" + name, name + b":1"]
for form in bad:
    target = form + b":{{tls}}"
    print(status(ask(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")) in (400, 403))
    target = form + b":{{plain}}"
    answer = ask(b"GET http://" + target + b"/ HTTP/1.1\r\nHost: " + target + b"\r\nConnection: close\r\n\r\n")
    print(status(answer) in (400, 403), b"lab" in answer.split(b"\r\n\r\n")[-1])
for port in (b"0", b"65536", b"-1", b"+443", b"0x1bb", b"443abc", b"", b" 443"):
    target = name + b":" + port
    print(status(ask(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")) in (400, 403))
print(status(ask(b"GET http://" + name + b":{{plain}}/ HTTP/1.1\r\nHost: " + name + b":{{plain}}\r\nConnection: close\r\n\r\n")))
"##
        );
        let rules = [format!("{name}:{{tls}}"), format!("{name}:{{plain}}")];
        let output = world()
            .fence(lab, &[rules[0].as_str(), rules[1].as_str()])
            .within(SLOW)
            .python(lab, &script);
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines.len(), 39, "{output:?}");
        assert_eq!(lines[38], "200", "control: the plain spelling: {output:?}");
        for (index, line) in lines[..38].iter().enumerate() {
            let expected = if index < 30 && index % 2 == 1 {
                "True False"
            } else {
                "True"
            };
            // A path after the host is a path, not part of the host: `name/x:port` asks for the default port.
            assert_eq!(*line, expected, "case {index}: {output:?}");
        }
        assert_eq!(world().seen(&name).len(), 1, "one request arrived, the control");
    });
}

#[test]
fn a_host_header_that_differs_from_the_target_is_refused() {
    for_each_identity(|lab| {
        let (name, other) = (host("pass"), host("other"));
        let script = format!(
            r#"
def get(host):
    return status(ask(b"GET http://{name}:{{plain}}/ HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"))
print(get(b"Host: {name}:{{plain}}\r\n"))
print(get(b"Host: {other}:{{plain}}\r\n"), get(b"Host: {name}\r\n"), get(b""), get(b"Host: {name}:{{plain}}\r\nHost: {other}\r\n"),
      get(b"Host : {name}:{{plain}}\r\n"), get(b"Host: {name}:{{plain}}\r\n "), get(b"Host: {name}:{{plain}}, {other}\r\n"))
target = b"{name}:{{tls}}"
print(status(ask(b"CONNECT " + target + b" HTTP/1.1\r\nHost: {other}:{{tls}}\r\n\r\n")))
"#
        );
        let rules = [
            format!("{name}:{{tls}}"),
            format!("{name}:{{plain}}"),
            format!("{other}:{{plain}}"),
        ];
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let output = world().fence(lab, &rules).python(lab, &script);
        says(&output, "200\n400 400 400 400 400 400 400\n400");
        assert_eq!((world().seen(&name).len(), world().seen(&other).len()), (1, 0));
    });
}

/// Framings that servers are known to read in different ways; each hides a second request.
const SMUGGLING: &str = r#"
hidden = b"GET /smuggled-{tag} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n"
chunks = b"0\r\n\r\n" + hidden
framings = [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 0x5\r\n",
    b"Content-Length: 5_0\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length : 5\r\n",
    b" Content-Length: 5\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Transfer-Encoding: \"chunked\"\r\n",
    b"X: y\r\n Transfer-Encoding: chunked\r\n",
    b"X: y\nTransfer-Encoding: chunked\r\n",
    b"X: y\rTransfer-Encoding: chunked\r\n",
    b"X\0: y\r\n",
    b"X: a\0b\r\n",
    b": empty\r\n",
    b"no colon\r\n",
    b"Transfer-Encoding: chunked\n",
]
bodies = [
    b"0x0\r\n\r\n", b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n", b"+1\r\na\r\n0\r\n\r\n", b"-1\r\n", b"1\na\n0\n\n",
    b"1;x\ny\r\na\r\n0\r\n\r\n", b"ffffffffffffffff1\r\n", b"1\r\naX0\r\n\r\n", b" 1\r\na\r\n0\r\n\r\n", b"\r\n",
]
"#;

#[test]
fn a_request_that_two_parsers_read_differently_is_refused_and_never_arrives() {
    for_each_identity(|lab| {
        let name = host("plain");
        let tag = name.split('.').next().expect("a label").to_owned();
        let lists = SMUGGLING
            .replace("{tag}", &tag)
            .replace("{name}", &name)
            .replace("{port}", "{plain}");
        let script = format!(
            r#"{lists}
start = b"POST http://{name}:{{plain}}/first HTTP/1.1\r\nHost: {name}:{{plain}}\r\n"
wrong = [status(ask(start + framing + b"\r\n" + chunks, wait=4)) for framing in framings]
print(len(wrong), set(wrong))
wrong = [status(ask(start + b"Transfer-Encoding: chunked\r\n\r\n" + body + hidden, wait=4)) for body in bodies]
print(len(wrong), set(wrong) <= {{400, 0, 502}})
print(status(ask(b"GET  http://{name}:{{plain}}/two HTTP/1.1\r\nHost: {name}:{{plain}}\r\n\r\n", wait=4)),
      status(ask(b"GET http://{name}:{{plain}}/lf HTTP/1.1\nHost: {name}:{{plain}}\n\n", wait=4)),
      status(ask(b"GET http://{name}:{{plain}}/v HTTP/1.2\r\nHost: {name}:{{plain}}\r\n\r\n", wait=4)) in (400, 505),
      status(ask(b"GET http://{name}:{{plain}}/v HTTP/0.9\r\n\r\n", wait=4)) in (400, 505),
      status(ask(b"G\x00T http://{name}:{{plain}}/v HTTP/1.1\r\nHost: {name}:{{plain}}\r\n\r\n", wait=4)))
good = start + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
print(status(ask(good)))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{plain}}")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "26 {400}\n10 True\n400 400 True True 400\n200");
        assert_eq!(
            world().seen_path(&format!("/smuggled-{tag}")),
            0,
            "a hidden request arrived"
        );
        let arrived = world().seen(&name);
        assert_eq!(
            arrived.iter().filter(|r| r["body"] == "hello").count(),
            1,
            "control: {arrived:?}"
        );
        for request in &arrived {
            assert_eq!(request["path"], "/first", "{arrived:?}");
        }
    });
}

#[test]
fn a_request_hidden_behind_another_inside_tls_never_arrives() {
    for_each_identity(|lab| {
        let name = host("looked-into");
        let tag = name.split('.').next().expect("a label").to_owned();
        let lists = SMUGGLING
            .replace("{tag}", &tag)
            .replace("{name}", &name)
            .replace("{port}", "{tls}");
        let script = format!(
            r#"{lists}
start = b"POST /first HTTP/1.1\r\nHost: {name}:{{tls}}\r\n"
def inside(raw):
    tls = secure(connect({name:?}, {{tls}})[0], {name:?})
    tls.settimeout(30)
    tls.sendall(raw)
    return status(read(tls))
wrong = [inside(start + framing + b"\r\n" + chunks) for framing in framings]
print(len(wrong), set(wrong))
print(inside(start + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
"#
        );
        let output = world()
            .fence(lab, &[&format!("POST {name}:{{tls}}/first")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "26 {400}\n200");
        assert_eq!(
            world().seen_path(&format!("/smuggled-{tag}")),
            0,
            "a hidden request arrived"
        );
        assert_eq!(world().seen(&name).len(), 1, "only the control arrived");
    });
}

#[test]
fn heads_without_end_are_refused_without_growing() {
    for_each_identity(|lab| {
        let name = host("plain");
        let script = format!(
            r#"
line = b"GET http://{name}:{{plain}}/ HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n"
print(status(ask(line + b"X: " + b"a" * 70000 + b"\r\n\r\n")) in (400, 431))
print(status(ask(line + b"".join(b"X-%d: a\r\n" % i for i in range(300)) + b"\r\n")) in (400, 431))
print(status(ask(b"GET http://{name}:{{plain}}/" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: {name}:{{plain}}\r\n\r\n")) in (400, 414, 431, 0))
print(status(ask(b"CONNECT " + b"a" * 70000 + b":443 HTTP/1.1\r\n\r\n")) in (400, 414, 431, 0))
print(status(ask(b"A" * (1 << 20))) in (400, 414, 431, 0))
print(status(ask(line + b"X: " + b"a" * 8000 + b"\r\n\r\n")))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{plain}}")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "True\nTrue\nTrue\nTrue\nTrue\n200");
        assert_eq!(world().seen(&name).len(), 1);
    });
}

#[test]
fn a_client_that_sends_its_head_byte_by_byte_is_cut_off_and_others_are_served() {
    for_each_identity(|lab| {
        let name = host("plain");
        let script = format!(
            r#"
import time
slow = [socket.create_connection(PROXY) for _ in range(100)]
for s in slow:
    s.sendall(b"G")
started = time.monotonic()
line = b"GET http://{name}:{{plain}}/ HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n"
print(status(ask(line)), time.monotonic() - started < 5)
cut = 0
while time.monotonic() - started < 25 and cut < len(slow):
    time.sleep(1)
    cut = 0
    for s in slow:
        try:
            s.setblocking(False)
            s.send(b"E")
            cut += s.recv(512) is not None
        except BlockingIOError:
            pass
        except OSError:
            cut += 1
print(cut, status(ask(line)))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{plain}}")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "200 True\n100 200");
    });
}

#[test]
fn socks_commands_other_than_connect_are_refused() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = format!(
            r#"
print([socks({name:?}, {{tls}}, command=c)[1] for c in (2, 3, 9)])
print(outcome(lambda: ask(b"\x04\x01\x01\xbb\x7f\0\0\1x\0", SOCKS, 4))[:2] in (b"", b"\0\x5b"))
print(ask(b"\x05\x01\x02", SOCKS, 4))
print(len(ask(b"\x05\x01\0\x05\x01\0\x03\0\x01\xbb", SOCKS, 4)) < 13, socks("x" * 255, 443)[1] != 0)
connection, code = socks({name:?}, {{tls}})
tls = secure(connection, {name:?}, os.environ["LAB_CA"])
tls.sendall(b"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n")
print(code, read(tls).endswith(b"hello from the lab\n"))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .python(lab, &script);
        says(&output, "[7, 7, 7]\nTrue\nb'\\x05\\xff'\nTrue True\n0 True");
    });
}

#[test]
fn questions_to_the_resolver_that_are_malformed_do_not_harm_it() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = format!(
            r#"
import random
noise = random.Random(7)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for size in list(range(0, 64)) + [512, 4096, 60000]:
    s.sendto(bytes(noise.randrange(256) for _ in range(size)), ("127.0.0.1", 53))
loop = struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\xc0\x0c" + struct.pack(">HH", 1, 1)
s.sendto(loop, ("127.0.0.1", 53))
many = struct.pack(">HHHHHH", 1, 0x100, 40, 0, 0, 0) + b"\0\0\1\0\1" * 40
s.sendto(many, ("127.0.0.1", 53))
for body in (b"", b"\0", b"\xff\xff" + b"x" * 100, b"\0\5hello"):
    ask(body, ("127.0.0.1", 53), 1)
print(look_up({name:?})[0], look_up({name:?}, 28), look_up({name:?}, 1, True)[0], look_up({name:?}, 255)[1])
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(SLOW)
            .python(lab, &script);
        assert!(output.said().starts_with("0 (0, []) 0"), "{output:?}");
        assert_eq!(output.ended.code, 0, "{output:?}");
    });
}
