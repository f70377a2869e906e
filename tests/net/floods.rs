//! Floods: bodies without end held in memory, and names without end in the log.
use crate::live::{egress_of, resident_kib};
use crate::support::{Background, Limit, eventually, for_each_identity};
use crate::world::{Scripts, host, python_file, world};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(240));
/// More than the account of bodies, the windows of a thousand connections and the program itself take together.
const MOST_KIB: u64 = 300_000;

#[test]
fn a_thousand_large_bodies_that_must_be_read_do_not_grow_the_proxy() {
    for_each_identity(|lab| {
        let name = host("bodies");
        let net = json!({ "allow": [format!("{name}:{{plain}}")] });
        let git = json!({ "git": { "push": "allow", "branches": ["agent/*"] } });
        let policy = world().policy(lab, &world().document(&net, &git));
        let fence = world()
            .under(lab, &policy)
            .flags(["--open-files", "8192"])
            .within(SLOW);
        // Pushes are read up to eight megabytes before they are judged; these never end.
        let script = format!(
            r#"
import time
from concurrent.futures import ThreadPoolExecutor
head = b"POST http://{name}:{{plain}}/git/project.git/git-receive-pack HTTP/1.1\r\nHost: {name}:{{plain}}\r\nContent-Type: application/x-git-receive-pack-request\r\nContent-Length: 8000000\r\n\r\n"
line = b"0" * 40 + b" " + b"1" * 40 + b" refs/heads/agent/x\0report-status"
body = b"%04x" % (len(line) + 4) + line + b"0000PACK" + b"x" * 3000000
held = []
def one(_):
    s = socket.create_connection(PROXY, 60)
    held.append(s)
    left = memoryview(body)
    try:
        s.settimeout(20)
        s.sendall(head)
        s.settimeout(2)
        while left:
            left = left[s.send(left):]
    except OSError:
        pass
with ThreadPoolExecutor(256) as pool:
    list(pool.map(one, range(1000)))
print("poured", len(held), flush=True)
for s in held:
    s.close()
for _ in range(60):
    got = status(ask(b"GET http://{name}:{{plain}}/ok HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n"))
    if got == 200:
        break
    time.sleep(1)
print("control", got, flush=True)
time.sleep(30)
"#
        );
        let file = python_file(lab, fence.name(), &script);
        let living = Background::start(&mut fence.command(["python3", "-B", file.as_str()]));
        let (pid, over) = (living.pid(), AtomicBool::new(false));
        let (poured, most) = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                let ended = eventually(SLOW, || {
                    most = most.max(egress_of(pid).map_or(0, resident_kib));
                    over.load(Ordering::Relaxed)
                });
                assert!(ended, "the flood does not end");
                most
            });
            let poured = living.line();
            over.store(true, Ordering::Relaxed);
            (poured, watching.join().expect("it only looks"))
        });
        assert_eq!(poured, "poured 1000");
        assert!(most > 0, "the egress process was found");
        assert!(
            most < MOST_KIB,
            "{most} KiB for a thousand pushes of three megabytes"
        );
        assert_eq!(living.line(), "control 200");
    });
}

#[test]
fn a_flood_of_refused_names_is_sampled_and_counted_and_hides_no_other_kind() {
    for_each_identity(|lab| {
        let name = host("known");
        let fence = world().fence(lab, &[&format!("{name}:{{plain}}")]).within(SLOW);
        let output = fence.python(
            lab,
            r#"
from concurrent.futures import ThreadPoolExecutor
def one(n):
    return status(ask(b"CONNECT n%d.flood.test:443 HTTP/1.1\r\nHost: n%d.flood.test:443\r\n\r\n" % (n, n), wait=60))
print("first", one(0))
with ThreadPoolExecutor(64) as pool:
    got = list(pool.map(one, range(1, 4000)))
print("refused", sum(code == 403 for code in got))
print("late", status(ask(b"GET http://late.flood.test/x HTTP/1.1\r\nHost: late.flood.test\r\n\r\n", wait=60)))
"#,
        );
        assert_eq!(
            output.said(),
            "first 403\nrefused 3999\nlate 403",
            "{:?}",
            output.ended
        );
        let events = output.events("net");
        let flood: Vec<_> = events
            .iter()
            .filter(|event| event["face"] == "connect" && event["verdict"] == "denied")
            .filter(|event| {
                let host = event["host"].as_str().unwrap_or_default();
                host.ends_with(".flood.test") || host == "(others)"
            })
            .collect();
        let of = |host: &str| flood.iter().filter(|event| event["host"] == host).count();
        assert_eq!(of("n0.flood.test"), 1, "the first one is there");
        assert!(flood.len() < 1_000, "{} records", flood.len());
        let counted: u64 = flood.iter().filter_map(|event| event["count"].as_u64()).sum();
        assert_eq!(counted, 4_000, "and none is lost");
        assert!(of("(others)") > 0, "those that are not listed are counted");
        let late = events
            .iter()
            .filter(|event| event["host"] == "late.flood.test")
            .count();
        assert_eq!(late, 1, "another kind is listed after the flood");
    });
}
