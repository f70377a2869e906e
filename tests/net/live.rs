//! A living run: rules that change, a proxy that dies, peers that are slow, silent or too many.
use crate::support::{Background, Fence, Lab, Limit, bastle, eventually, for_each_identity, run};
use crate::world::{Scripts, host, python_file, says, world};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const SLOW: Limit = Limit(Duration::from_secs(240));
/// A rule taken away must bite within this.
const CUT: Limit = Limit::HANG;

/// A script that keeps one tunnel busy and says every second whether it still works, and whether a new one does.
fn watcher(name: &str) -> String {
    watcher_trusting(name, "LAB_CA")
}

/// The same, trusting the authorities in the file that `variable` names.
fn watcher_trusting(name: &str, variable: &str) -> String {
    format!(
        r#"
import time
ca = os.environ[{variable:?}]
def fresh():
    return secure(connect({name:?}, {{tls}}, 5)[0], {name:?}, ca)
def talk(tls):
    tls.settimeout(5)
    tls.sendall(b"GET /x HTTP/1.1\r\nHost: {name}:{{tls}}\r\n\r\n")
    whole = b""
    while not whole.endswith(b"hello from the lab\n"):
        piece = tls.recv(65536)
        if not piece:
            return False
        whole += piece
    return True
old = fresh()
while True:
    print("old", outcome(lambda: talk(old)), "new", outcome(lambda: talk(fresh())), flush=True)
    time.sleep(0.3)
"#
    )
}

fn start(lab: &Lab, fence: &Fence<'_>, script: &str) -> Background {
    let file = python_file(lab, fence.name(), script);
    Background::start(&mut fence.command(["python3", "-B", file.as_str()]))
}

fn verb(lab: &Lab, words: &[&str]) -> crate::support::Ended {
    let mut command = lab.command(bastle());
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

fn says_within(run: &Background, limit: Limit, expected: &str) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit.0 {
        if run.line() == expected {
            return true;
        }
    }
    false
}

fn rewrite(lab: &Lab, policy: &Path, allow: &[&str]) {
    let document = world().document(&json!({ "allow": allow }), &json!({}));
    std::fs::write(policy, world().fill(&document.to_string())).expect("own file");
    lab.hand_over(policy);
}

#[test]
fn a_host_taken_out_of_the_rules_is_cut_off_and_a_bad_file_changes_nothing() {
    for_each_identity(|lab| {
        let name = host("live");
        let rule = format!("{name}:{{tls}}");
        let policy = world().policy(
            lab,
            &world().document(&json!({ "allow": [rule.clone()] }), &json!({})),
        );
        let fence = world().under(lab, &policy);
        let run_name = fence.name().to_owned();
        let mut living = start(lab, &fence, &watcher(&name));
        assert!(says_within(&living, SLOW, "old True new True"), "control");
        std::fs::write(&policy, "{ this is no policy").expect("own file");
        let refused = verb(lab, &["policy", "reload", &run_name]);
        assert_ne!(refused.code, 0, "a bad file is refused: {refused:?}");
        assert!(!refused.stderr.is_empty(), "and said so: {refused:?}");
        assert!(
            says_within(&living, CUT, "old True new True"),
            "the old rules stay"
        );
        rewrite(lab, &policy, &[&format!("{}:{{tls}}", host("another"))]);
        let reloaded = verb(lab, &["policy", "reload", &run_name]);
        assert_eq!(reloaded.code, 0, "{reloaded:?}");
        let started = Instant::now();
        let mut cut = false;
        while started.elapsed() < CUT.0 && !cut {
            let line = living.line();
            cut = !line.contains("old True") && !line.contains("new True");
        }
        assert!(cut, "the tunnel is cut and no new one is made");
        assert!(living.is_alive(), "the run itself goes on");
        rewrite(lab, &policy, &[&rule]);
        living.signal(rustix::process::Signal::HUP);
        assert!(
            eventually(Limit::HANG, || living.line().ends_with("new True")),
            "a signal reloads as well"
        );
    });
}

#[test]
fn a_host_is_allowed_and_taken_back_while_the_run_lives() {
    for_each_identity(|lab| {
        let name = host("granted");
        let fence = world().fence(lab, &[]);
        let run_name = fence.name().to_owned();
        let script = format!(
            "import time\nwhile True:\n    print(outcome(lambda: status(connect({name:?}, {{tls}}, 5)[1])), flush=True)\n    time.sleep(0.3)"
        );
        let mut living = start(lab, &fence, &script);
        assert!(says_within(&living, SLOW, "403"), "denied at first");
        let allowed = verb(
            lab,
            &[
                "allow",
                &run_name,
                "net",
                &world().fill(&format!("{name}:{{tls}}")),
                "--session",
            ],
        );
        assert_eq!(allowed.code, 0, "{allowed:?}");
        assert!(says_within(&living, CUT, "200"), "then allowed");
        let denied = verb(lab, &["deny", &run_name, "net", &name]);
        assert_eq!(denied.code, 0, "{denied:?}");
        assert!(says_within(&living, CUT, "403"), "then denied again");
        assert!(living.is_alive());
    });
}

#[test]
fn when_the_proxy_is_killed_nothing_passes_and_the_run_is_told() {
    for_each_identity(|lab| {
        let name = host("killed");
        let fence = world().fence(lab, &[&format!("{name}:{{tls}}")]);
        let mut living = start(lab, &fence, &watcher(&name));
        assert!(says_within(&living, SLOW, "old True new True"), "control");
        let victim = egress_of(living.pid()).expect("the egress process is a child of the run");
        let before = world().seen(&name).len();
        rustix::process::kill_process(victim, rustix::process::Signal::KILL).expect("it can be killed");
        let told = living.line();
        assert!(
            !told.contains("old True") || world().seen(&name).len() > before,
            "{told}"
        );
        let started = Instant::now();
        let mut end = None;
        while started.elapsed() < Limit::HANG.0 {
            if !living.is_alive() {
                end = Some("stopped");
                break;
            }
            let line = living.line();
            assert!(
                !line.contains("old True"),
                "the old tunnel passes without a proxy"
            );
            if line.ends_with("new True") {
                end = Some("came back");
                break;
            }
        }
        assert!(
            end.is_some(),
            "the proxy neither came back nor was the run stopped"
        );
        let audit = serde_json::to_string(&fence.audit()).expect("JSON");
        assert!(audit.contains("net-lost"), "and it is on record: {audit}");
    });
}

#[test]
fn a_run_that_is_looked_into_trusts_the_proxy_that_takes_the_killed_ones_place() {
    for_each_identity(|lab| {
        let name = host("reborn");
        let fence = world().fence(lab, &[&format!("GET {name}:{{tls}}/**")]);
        // The run's own authority is in SSL_CERT_FILE as it was at the start.
        let script = watcher_trusting(&name, "SSL_CERT_FILE");
        let mut living = start(lab, &fence, &script);
        assert!(says_within(&living, SLOW, "old True new True"), "control");
        let victim = egress_of(living.pid()).expect("the egress process is a child of the run");
        rustix::process::kill_process(victim, rustix::process::Signal::KILL).expect("it can be killed");
        let back = || living.line().ends_with("new True") && egress_of(living.pid()) != Some(victim);
        assert!(eventually(Limit::HANG, back), "it did not come back");
        assert!(living.is_alive());
    });
}

/// The run's egress process, found among the children of `bastle run`.
pub(crate) fn egress_of(pid: u32) -> Option<rustix::process::Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).ok()?;
        let named = line.split(|byte| *byte == 0).any(|word| word == b"__egress");
        let child = child.parse().ok()?;
        named.then(|| rustix::process::Pid::from_raw(child))?
    })
}

pub(crate) fn resident_kib(pid: rustix::process::Pid) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[test]
fn a_thousand_tunnels_are_held_and_more_are_refused_in_words() {
    for_each_identity(|lab| {
        let name = host("many");
        let net = json!({ "allow": [{ "rule": format!("{name}:{{sink}}"), "opaque": true }, format!("{name}:{{tls}}")] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let fence = world()
            .under(lab, &policy)
            .flags(["--open-files", "8192"])
            .within(SLOW);
        let script = format!(
            r#"
import time, threading
ca = os.environ["LAB_CA"]
context = ssl.create_default_context(cafile=ca)
held, failed = [], []
def one(_):
    try:
        connection, head = connect({name:?}, {{tls}}, 60)
        if status(head) != 200:
            failed.append(status(head))
            return
        held.append(context.wrap_socket(connection, server_hostname={name:?}))
    except Exception as error:
        failed.append(repr(error))
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as pool:
    list(pool.map(one, range(1000)))
print("held", len(held), failed[:3], flush=True)
def talk(tls):
    tls.settimeout(20)
    tls.sendall(b"GET /x HTTP/1.1\r\nHost: {name}\r\n\r\n")
    return b"200 OK" in tls.recv(65536)
print("alive", sum(talk(tls) for tls in held[::50]), flush=True)
more = []
for _ in range(300):
    connection, head = connect({name:?}, {{tls}}, 60)
    more.append((status(head), connection))
print("refused", {{code for code, _ in more}} <= {{200, 503, 403, 429}}, any(code != 200 for code, _ in more), flush=True)
time.sleep(60)
"#
        );
        let mut living = start(lab, &fence, &script);
        let egress = {
            let mut found = None;
            assert!(eventually(Limit::HANG, || {
                found = egress_of(living.pid());
                found.is_some()
            }));
            found.expect("just found")
        };
        assert_eq!(living.line(), "held 1000 []");
        let full = resident_kib(egress);
        assert!(full < 200_000, "{full} KiB for 1000 tunnels");
        assert_eq!(living.line(), "alive 20");
        assert_eq!(living.line(), "refused True True");
        assert!(living.is_alive());
    });
}

#[test]
fn slow_silent_and_flooding_peers_do_not_grow_the_proxy() {
    for_each_identity(|lab| {
        let (name, seen) = (host("flood"), host("looked-into"));
        let fence = world()
            .fence(
                lab,
                &[
                    &format!("{name}:{{plain}}"),
                    &format!("GET,POST {seen}:{{tls}}/**"),
                ],
            )
            .within(SLOW);
        // Readers that never read, writers that never stop, heads that never end: through both pipelines.
        let script = format!(
            r#"
import time
line = b"GET http://{name}:{{plain}}/flood HTTP/1.1\r\nHost: {name}:{{plain}}\r\n\r\n"
stuck = []
for _ in range(40):
    s = socket.create_connection(PROXY)
    s.sendall(line)
    stuck.append(s)
for _ in range(20):
    tls = secure(connect({seen:?}, {{tls}})[0], {seen:?})
    tls.sendall(b"GET /flood HTTP/1.1\r\nHost: {seen}:{{tls}}\r\n\r\n")
    stuck.append(tls)
print("open", flush=True)
def pour(s, data):
    try:
        s.settimeout(2)
        while True:
            s.sendall(data)
    except Exception:
        pass
up = socket.create_connection(PROXY)
pour(up, b"X" * 65536)
up = socket.create_connection(PROXY)
up.sendall(b"POST http://{name}:{{plain}}/x HTTP/1.1\r\nHost: {name}:{{plain}}\r\nTransfer-Encoding: chunked\r\n\r\n")
pour(up, b"10000\r\n" + b"X" * 65536 + b"\r\n")
time.sleep(3)
print("poured", status(ask(b"GET http://{name}:{{plain}}/ok HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n")), flush=True)
time.sleep(60)
"#
        );
        let mut living = start(lab, &fence, &script);
        assert_eq!(living.line(), "open");
        let egress = egress_of(living.pid()).expect("the egress process is a child of the run");
        let mut most = 0;
        let grown = eventually(Limit(Duration::from_secs(4)), || {
            most = most.max(resident_kib(egress));
            most > 150_000
        });
        assert!(!grown, "{most} KiB for sixty peers that do not read");
        assert_eq!(living.line(), "poured 200");
        assert!(resident_kib(egress) < 150_000, "{} KiB", resident_kib(egress));
        assert!(living.is_alive());
    });
}

#[test]
fn nothing_is_left_of_a_run_and_its_proxy() {
    for_each_identity(|lab| {
        let name = host("gone");
        let fence = world().fence(lab, &[&format!("{name}:{{tls}}")]);
        let mut living = start(lab, &fence, &watcher(&name));
        assert!(says_within(&living, SLOW, "old True new True"), "control");
        let egress = egress_of(living.pid()).expect("the egress process is a child of the run");
        living.signal(rustix::process::Signal::KILL);
        assert_eq!(living.end(Limit::HANG), Some(137));
        let process = format!("/proc/{}/cmdline", egress.as_raw_nonzero());
        let gone = || std::fs::read(&process).map_or(true, |line| line.is_empty());
        assert!(eventually(Limit::HANG, gone), "the proxy outlives its run");
    });
}

#[test]
fn the_proxy_itself_is_fenced() {
    for_each_identity(|lab| {
        let name = host("inside");
        let fence = world().fence(lab, &[&format!("{name}:{{tls}}")]);
        let living = start(lab, &fence, &watcher(&name));
        assert!(says_within(&living, SLOW, "old True new True"), "control");
        let egress = egress_of(living.pid()).expect("the egress process is a child of the run");
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", egress.as_raw_nonzero())).expect("is there");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default()
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            (field("NoNewPrivs:"), field("Seccomp:")),
            ("1".to_owned(), "2".to_owned()),
            "{status}"
        );
        assert_eq!(field("CapEff:").trim_start_matches('0'), "", "{status}");
        assert_ne!(field("Uid:"), "0", "root's proxy is not root: {status}");
        if rustix::process::geteuid().is_root() {
            let stands = std::fs::read_link(format!("/proc/{}/cwd", egress.as_raw_nonzero()));
            assert_eq!(
                stands.expect("root may look"),
                Path::new("/"),
                "not in the project"
            );
        }
    });
}

#[test]
fn only_a_rule_that_must_look_inside_makes_an_authority() {
    for_each_identity(|lab| {
        let name = host("pass");
        let count = "grep -c BEGIN.CERTIFICATE $SSL_CERT_FILE\n";
        let plain = world().fence(lab, &[&format!("{name}:{{tls}}")]).shell(&format!(
            "{count}curl -sS --cacert $LAB_CA https://{name}:{{tls}}/"
        ));
        says(&plain, "1\nhello from the lab");
        let inside = world().fence(lab, &[&format!("GET {name}:{{tls}}/**")]).shell(&format!(
            "{count}curl -s --cacert $LAB_CA https://{name}:{{tls}}/; echo $?\ncurl -sS https://{name}:{{tls}}/"
        ));
        // 60: who trusts the server's authority alone sees that somebody stands in between.
        says(&inside, "2\n60\nhello from the lab");
    });
}
