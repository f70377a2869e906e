//! Floods: bodies without end held in memory, and names without end in the log.
use crate::live::{egress_of, resident_kib};
use crate::support::{Background, Limit, eventually, for_each_identity};
use crate::world::{Scripts, host, python_file, world};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SLOW: Limit = Limit(Duration::from_secs(240));
/// More than the account of bodies, the windows of a thousand connections and the program itself take together.
const MOST_KIB: u64 = 300_000;
/// After so long whoever takes a whole processor has used clearly more than the burst and half a processor since.
const WINDOW: Duration = Duration::from_secs(24);
/// Long enough for an answer at half the speed.
const SERVED: Duration = Duration::from_secs(2);
/// The burst of the proxy and what a look at a busy machine may be off by, in hundredths of a second.
const BURST: u64 = 500;
const SLACK: u64 = 150;

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

/// Processor time of a process in hundredths of a second: utime and stime of proc(5).
fn processor_time(pid: rustix::process::Pid) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let after = line.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        after
            .split_whitespace()
            .nth(number)
            .and_then(|text| text.parse().ok())
    };
    field(11).unwrap_or(0_u64) + field(12).unwrap_or(0)
}

/// The soft and the hard value of a limit as the kernel has it.
fn limit_of(pid: rustix::process::Pid, name: &str) -> String {
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_flood_of_requests_gets_the_proxy_its_share_of_a_processor_and_no_more() {
    let looked = AtomicBool::new(false);
    for_each_identity(|lab| {
        // The account is the same for everybody, and looking at it takes long.
        if looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let name = host("busy");
        let fence = world().fence(lab, &[&format!("{name}:{{plain}}")]).within(SLOW);
        // Requests that the proxy answers itself, many at once: it has much more to do than whoever sends them.
        let script = format!(
            r#"
import time, threading
line = b"GET http://bastle.local/ HTTP/1.1\r\nHost: bastle.local\r\n\r\n" * 64
over, served = threading.Event(), [0]
def flood():
    while not over.is_set():
        try:
            s = socket.create_connection(PROXY, 60)
            s.settimeout(60)
            while not over.is_set():
                s.sendall(line)
                got = 0
                while got < 64:
                    seen = s.recv(65536)
                    if not seen:
                        raise OSError
                    got += seen.count(b"HTTP/1.1 ")
                served[0] += got
        except OSError:
            pass
threads = [threading.Thread(target=flood, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
print("flooding", flush=True)
def asked(word):
    while not os.path.exists(__file__ + "." + word):
        time.sleep(0.05)
asked("look")
before = served[0]
asked("enough")
print("served meanwhile", served[0] > before, flush=True)
over.set()
for thread in threads:
    thread.join()
print("control", status(ask(b"GET http://{name}:{{plain}}/ok HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n", wait=60)), flush=True)
"#
        );
        let file = python_file(lab, fence.name(), &script);
        let ask = |word: &str| std::fs::write(format!("{file}.{word}"), "").expect("own directory");
        let living = Background::start(&mut fence.command(["python3", "-B", file.as_str()]));
        assert_eq!(living.line(), "flooding");
        let egress = egress_of(living.pid()).expect("the egress process is a child of the run");
        let (from, started) = (processor_time(egress), Instant::now());
        let busy = eventually(SLOW, || processor_time(egress) > BURST + SLACK);
        assert!(busy, "control: the flood keeps the proxy busy beyond its burst");
        assert!(eventually(SLOW, || started.elapsed() >= WINDOW));
        ask("look");
        let used = u128::from(processor_time(egress) - from);
        let bound = u128::from(BURST + SLACK) + started.elapsed().as_millis() / 20;
        assert!(used < bound, "{used} of at most {bound} hundredths of a second");
        assert!(eventually(SLOW, || started.elapsed() >= WINDOW + SERVED));
        ask("enough");
        assert_eq!(
            living.line(),
            "served meanwhile True",
            "what waits is served later"
        );
        assert_eq!(living.line(), "control 200");
    });
}

/// Leaves a process no memory beyond what it has. prlimit(2) lets its own identity do that, and no other one without a
/// capability.
fn lower_data_limit(pid: rustix::process::Pid) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it lives");
    let id = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next())
            .expect("in proc(5)")
            .to_owned()
    };
    let lowered = std::process::Command::new("setpriv")
        .args([
            format!("--reuid={}", id("Uid:")),
            format!("--regid={}", id("Gid:")),
        ])
        .args(["--clear-groups", "prlimit", "--data=0"])
        .arg(format!("--pid={}", pid.as_raw_nonzero()))
        .status();
    assert!(lowered.expect("util-linux is there").success());
}

#[test]
fn a_proxy_beyond_its_memory_limit_ends_the_run_and_the_record_says_why() {
    for_each_identity(|lab| {
        let name = host("memory");
        let fence = world().fence(lab, &[&format!("{name}:{{plain}}")]).within(SLOW);
        let script = format!(
            r#"
import time
get = b"GET http://{name}:{{plain}}/ok HTTP/1.1\r\nHost: {name}:{{plain}}\r\nConnection: close\r\n\r\n"
print("control", status(ask(get)), flush=True)
while not os.path.exists(__file__ + ".less"):
    time.sleep(0.05)
held = []
for n in range(200):
    try:
        s = socket.create_connection(PROXY, 5)
        s.sendall(b"POST http://{name}:{{plain}}/x HTTP/1.1\r\nHost: {name}:{{plain}}\r\nX-Long: " + b"x" * 60000)
        held.append(s)
    except OSError:
        break
time.sleep(1000)
"#
        );
        let file = python_file(lab, fence.name(), &script);
        let mut living = Background::start(&mut fence.command(["python3", "-B", file.as_str()]));
        assert_eq!(living.line(), "control 200");
        let egress = egress_of(living.pid()).expect("the egress process is a child of the run");
        assert_eq!(limit_of(egress, "Max data size"), "536870912 536870912");
        // What it has now, and nothing more: no account inside bounds it this low.
        lower_data_limit(egress);
        std::fs::write(format!("{file}.less"), "").expect("own directory");
        assert_eq!(living.end(SLOW), Some(125), "the run ends with its network");
        let mut audit = fence.audit();
        audit.retain(|event| event["type"] == "net-lost");
        let reasons: Vec<_> = audit
            .iter()
            .map(|event| event["why"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(
            reasons,
            ["it aborted: an allocation beyond its memory limit of 512 MiB, or a defect"],
            "and it is not replaced"
        );
    });
}
