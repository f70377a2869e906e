//! What egress used is part of what its run used.
use crate::follows;
use crate::support::for_each_identity;
use serde_json::Value;

/// Requests that the proxy answers itself: it works and the agent waits. At the end the agent's own processor time in
/// milliseconds.
const ASKED: &str = r#"
import os, resource, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
line = b"GET http://bastle.local/ HTTP/1.1\r\nHost: bastle.local\r\n\r\n" * 64
with socket.create_connection((proxy.hostname, proxy.port), 60) as s:
    for _ in range(100):
        s.sendall(line)
        got = 0
        while got < 64:
            seen = s.recv(65536)
            assert seen
            got += seen.count(b"HTTP/1.1 ")
used = resource.getrusage(resource.RUSAGE_SELF)
print("inside", int((used.ru_utime + used.ru_stime) * 1000))
"#;

#[test]
fn what_the_proxy_used_is_charged_to_its_run() {
    for_each_identity(|lab| {
        let with = ["--allow-net", "host.example"];
        let output = lab
            .fence()
            .flags(with)
            .flags(["--json"])
            .run(["python3", "-c", ASKED]);
        let said = &output.ended.stderr;
        let inside = said.lines().find_map(|line| line.strip_prefix("inside "));
        let inside: u64 = inside.and_then(|ms| ms.parse().ok()).expect(said);
        let receipt: Value = serde_json::from_str(output.said()).expect("one JSON object");
        follows("run", &receipt);
        let (net, usage) = (&receipt["net"], &receipt["usage"]);
        let proxy = net["cpu_ms"].as_u64().expect("counted");
        assert!(proxy > 20, "thousands of answers take more: {receipt}");
        assert!(net["peak_memory"].as_u64() > Some(4 << 20), "{receipt}");
        let whole = usage["cpu_ms"].as_u64().expect("counted");
        assert!(
            whole >= inside + proxy,
            "{whole} of {inside} inside and {proxy} of egress"
        );
        let ended = output.events("ended");
        assert_eq!(ended[0]["usage"]["cpu_ms"], whole, "the record says the same");
        // The receipt for people; one without a network has no proxy to tell of.
        let told = |flags: &[&str]| lab.fence().flags(flags).run(["true"]).ended.stderr;
        assert!(told(&with).contains("egress cpu "), "{}", told(&with));
        assert!(!told(&["--net", "none"]).contains("egress cpu "), "the control");
    });
}
