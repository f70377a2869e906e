//! The proxy by itself in front of other sandboxes, and chained to a company's proxy.
use crate::support::{Background, Lab, Limit, bastle, eventually, for_each_identity, run, skip};
use crate::world::{Scripts, host, says, world};
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("is bound").port()
}

/// curl outside any fence, through a proxy.
fn curl(lab: &Lab, words: &[&str]) -> String {
    let mut command = lab.command(std::path::Path::new("/usr/bin/curl"));
    command.args(["-s", "-m", "20", "-o", "/dev/null"]).args(words);
    run(&mut command, b"", Limit::HANG).stdout
}

#[test]
fn standing_alone_it_judges_by_the_same_rules_and_keeps_its_own_log() {
    for_each_identity(|lab| {
        let (yes, seen, no) = (host("alone"), host("alone-looked-into"), host("denied"));
        let net = json!({ "allow": [format!("{yes}:{{tls}}"), format!("GET {seen}:{{plain}}/public/**"), format!("GET {seen}:{{tls}}/public/**")] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let (http, socks) = (free_port(), free_port());
        let authority = lab.home().join("authority.pem");
        let mut command = lab.command(bastle());
        command
            .args([
                "egress",
                "--listen",
                &format!("127.0.0.1:{http}"),
                "--socks",
                &format!("127.0.0.1:{socks}"),
                "--policy",
            ])
            .arg(&policy)
            .arg("--authority")
            .arg(&authority)
            .env("SSL_CERT_FILE", world().file("ca.pem"));
        let mut proxy = Background::start(&mut command);
        let up = eventually(Limit::HANG, || TcpStream::connect(("127.0.0.1", http)).is_ok());
        assert!(up && proxy.is_alive(), "it listens");
        let ca = world().file("ca.pem").to_str().expect("UTF-8").to_owned();
        let (through, socksh) = (
            format!("http://127.0.0.1:{http}"),
            format!("socks5h://127.0.0.1:{socks}"),
        );
        let url = |name: &str| world().fill(&format!("https://{name}:{{tls}}/"));
        let plain = |name: &str, path: &str| world().fill(&format!("http://{name}:{{plain}}{path}"));
        let code = ["-w", "%{http_code} %{http_connect}", "--cacert", &ca];
        let ask = |proxy: &str, url: &str| curl(lab, &[&code[..], &["-x", proxy, url]].concat());
        assert_eq!(ask(&through, &url(&yes)), "200 200");
        assert_eq!(ask(&through, &url(&no)), "000 403");
        assert_eq!(ask(&through, &plain(&seen, "/public/a")), "200 000");
        assert_eq!(ask(&through, &plain(&seen, "/private")), "403 000");
        assert!(ask(&socksh, &url(&yes)).starts_with("200"));
        assert!(ask(&socksh, &url(&no)).starts_with("000"));
        let inside = |path: &str| {
            let target = world().fill(&format!("https://{seen}:{{tls}}{path}"));
            let trusted = authority.to_str().expect("UTF-8");
            curl(
                lab,
                &["-w", "%{http_code}", "--cacert", trusted, "-x", &through, &target],
            )
        };
        assert_eq!(
            (inside("/public/a"), inside("/private")),
            ("200".to_owned(), "403".to_owned())
        );
        assert!(world().seen(&no).is_empty());
        proxy.signal(rustix::process::Signal::TERM);
        assert!(proxy.end(Limit::HANG).is_some(), "it ends when it is told to");
        let mut grep = Command::new("grep");
        grep.args(["-rlF", &no])
            .arg(lab.home().join(".local/state/bastle/audit"));
        let found = run(&mut grep, b"", Limit::HANG);
        assert_eq!(found.code, 0, "its denials are in a log of its own: {found:?}");
    });
}

#[test]
fn a_policy_it_cannot_read_keeps_the_standing_proxy_from_starting() {
    for_each_identity(|lab| {
        let policy = lab.plant(std::path::Path::new("home/broken.json"), "{ no policy");
        let mut command = lab.command(bastle());
        command
            .args([
                "egress",
                "--listen",
                &format!("127.0.0.1:{}", free_port()),
                "--policy",
            ])
            .arg(&policy);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_ne!(ended.code, 0, "{ended:?}");
        assert!(ended.stderr.contains("broken.json"), "{ended:?}");
    });
}

#[test]
fn chained_to_a_real_squid_what_is_denied_never_reaches_it() {
    let Some(squid) = world().squid else {
        return skip(
            "chained_to_a_real_squid_what_is_denied_never_reaches_it",
            "no Squid",
        );
    };
    for_each_identity(|lab| {
        let (yes, plain, theirs, no) = (
            "chained.lab.test",
            "chained-plain.lab.test",
            "refused-by-squid.lab.test",
            host("denied"),
        );
        let net = json!({
            "allow": [format!("{yes}:{{tls}}"), format!("GET {plain}:{{plain}}/public/**"), format!("{theirs}:{{tls}}"), format!("GET {yes}:{{plain}}/**")],
            "upstream": format!("http://127.0.0.1:{squid}"),
        });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let output = world().under(lab, &policy).shell(&format!(
            "curl -sS --cacert $LAB_CA https://{yes}:{{tls}}/\n\
             curl -sS --noproxy '*' --cacert $LAB_CA https://{yes}:{{tls}}/\n\
             curl -sS http://{plain}:{{plain}}/public/a\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' http://{plain}:{{plain}}/private\n\
             curl -s -o /dev/null -w '%{{http_connect}}\\n' https://{no}:{{tls}}/\n\
             curl -s -o /dev/null -w '%{{http_connect}}\\n' --cacert $LAB_CA https://{theirs}:{{tls}}/"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(
            lines[..5],
            [
                "hello from the lab",
                "hello from the lab",
                "hello from the lab",
                "403",
                "403"
            ],
            "{output:?}"
        );
        assert!(
            ["403", "502", "503"].contains(&lines[5]),
            "what the company refuses stays refused: {output:?}"
        );
        let mut log = String::new();
        let told = eventually(Limit::HANG, || {
            log = std::fs::read_to_string(world().file("squid/access.log")).unwrap_or_default();
            log.contains(yes) && log.contains(plain)
        });
        assert!(told, "control: it went through Squid: {log}");
        assert!(!log.contains(&no) && !log.contains("/private"), "{log}");
        assert!(!world().looked_up(yes), "names are left to the company's proxy");
    });
}

#[test]
fn a_company_proxy_that_is_down_denies_and_nothing_goes_directly() {
    for_each_identity(|lab| {
        let name = host("chained-down");
        let net = json!({ "allow": [format!("{name}:{{tls}}")], "upstream": format!("http://127.0.0.1:{}", free_port()) });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let output = world().under(lab, &policy).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_connect}}\\n' --cacert $LAB_CA https://{name}:{{tls}}/"
        ));
        assert!(["502", "503", "504"].contains(&output.said()), "{output:?}");
        assert!(world().seen(&name).is_empty());
        let open = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .shell(&format!("curl -sS --cacert $LAB_CA https://{name}:{{tls}}/"));
        says(&open, "hello from the lab");
    });
}

/// A standing proxy that allows what `allow` says, by its policy file.
fn standing(lab: &Lab, policy: &std::path::Path, port: u16) -> Background {
    let mut command = lab.command(bastle());
    command
        .args(["egress", "--listen", &format!("127.0.0.1:{port}"), "--policy"])
        .arg(policy);
    let mut proxy = Background::start(&mut command);
    let up = eventually(Limit::HANG, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(up && proxy.is_alive(), "it listens");
    proxy
}

/// The process that serves, found among the children of `bastle egress`.
fn server_of(proxy: &Background) -> u32 {
    let pid = proxy.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("is there");
    let mut numbers = children.split_whitespace();
    let only = numbers
        .next()
        .and_then(|child| child.parse().ok())
        .expect("a child");
    assert_eq!(numbers.next(), None, "{children}");
    only
}

#[test]
fn the_standing_proxy_is_fenced_itself_and_still_reads_its_policy_again() {
    for_each_identity(|lab| {
        let (first, second) = (host("standing"), host("standing-later"));
        let document =
            |name: &str| world().document(&json!({ "allow": [format!("{name}:{{tls}}")] }), &json!({}));
        let policy = world().policy(lab, &document(&first));
        let port = free_port();
        let mut proxy = standing(lab, &policy, port);
        let through = format!("http://127.0.0.1:{port}");
        let ask = |name: &str| {
            let url = world().fill(&format!("https://{name}:{{tls}}/"));
            let ca = world().file("ca.pem").to_str().expect("UTF-8").to_owned();
            curl(
                lab,
                &["-w", "%{http_connect}", "--cacert", &ca, "-x", &through, &url],
            )
        };
        assert_eq!((ask(&first), ask(&second)), ("200".to_owned(), "403".to_owned()));
        let server = server_of(&proxy);
        let status = std::fs::read_to_string(format!("/proc/{server}/status")).expect("is there");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.unwrap_or_default().split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(field("NoNewPrivs:"), ["1"], "{status}");
        assert_eq!(field("Seccomp:"), ["2"], "{status}");
        assert_eq!(field("CapEff:"), ["0000000000000000"], "{status}");
        assert!(
            !field("Uid:").contains(&"0".to_owned()),
            "root's proxy is not root: {status}"
        );
        // Every thread: one that was there before the fence would be outside it.
        for thread in std::fs::read_dir(format!("/proc/{server}/task")).expect("is there") {
            let path = thread.expect("is there").path().join("status");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            assert!(text.is_empty() || text.contains("Seccomp:\t2"), "{text}");
        }
        if rustix::process::geteuid().is_root() {
            for entry in std::fs::read_dir(format!("/proc/{server}/fd")).expect("root may look") {
                let target = std::fs::read_link(entry.expect("is there").path()).unwrap_or_default();
                let shown = target.to_string_lossy().into_owned();
                let known = ["socket:", "anon_inode:", "pipe:", "/dev/null"];
                let log = shown.contains("/bastle/audit");
                let streams = shown.starts_with("/dev/") || shown.contains("/tmp/");
                assert!(
                    log || streams || known.iter().any(|begin| shown.starts_with(begin)),
                    "{shown}"
                );
            }
        }
        // Replaced as editors do it: another file takes its name.
        let other = world().policy(lab, &document(&second));
        std::fs::rename(&other, &policy).expect("own files");
        proxy.signal(rustix::process::Signal::HUP);
        assert!(
            eventually(Limit::HANG, || ask(&second) == "200"),
            "it reads the policy again"
        );
        assert_eq!(ask(&first), "403");
        proxy.signal(rustix::process::Signal::TERM);
        assert_eq!(proxy.end(Limit::HANG), Some(0));
        let mut verify = lab.command(bastle());
        verify.args(["audit", "verify"]);
        let verified = run(&mut verify, b"", Limit::HANG);
        assert_eq!(verified.code, 0, "its log is sealed and whole: {verified:?}");
        assert!(!verified.stdout.contains("unsealed"), "{verified:?}");
    });
}

#[test]
fn nothing_is_left_of_a_standing_proxy_that_is_killed() {
    for_each_identity(|lab| {
        let name = host("killed");
        let document = world().document(&json!({ "allow": [format!("{name}:{{tls}}")] }), &json!({}));
        let policy = world().policy(lab, &document);
        for victim in ["parent", "server"] {
            let port = free_port();
            let mut proxy = standing(lab, &policy, port);
            let server = server_of(&proxy);
            if victim == "parent" {
                proxy.signal(rustix::process::Signal::KILL);
            } else {
                let server = rustix::process::Pid::from_raw(i32::try_from(server).expect("a number"));
                rustix::process::kill_process(server.expect("not 0"), rustix::process::Signal::KILL)
                    .expect("it can be killed");
            }
            assert_ne!(proxy.end(Limit::HANG).expect("it ends"), 0, "{victim}");
            let line = format!("/proc/{server}/cmdline");
            let gone = || std::fs::read(&line).map_or(true, |line| line.is_empty());
            assert!(
                eventually(Limit::HANG, gone),
                "{victim}: the one that serves lives on"
            );
            let closed = || TcpStream::connect(("127.0.0.1", port)).is_err();
            assert!(
                eventually(Limit::HANG, closed),
                "{victim}: something still listens"
            );
        }
    });
}
