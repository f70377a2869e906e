//! Random system calls: the host and other runs must be the same before and after.
use crate::support::{Background, Limit, for_each_identity};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Settings of the host that a stray call could change. Counters and clocks are left out.
const SETTINGS: &[&str] = &[
    "kernel/hostname",
    "kernel/domainname",
    "kernel/core_pattern",
    "kernel/modprobe",
    "kernel/panic",
    "kernel/pid_max",
    "kernel/sched_rt_runtime_us",
    "kernel/threads-max",
    "kernel/sysrq",
    "kernel/yama/ptrace_scope",
    "kernel/keys/maxkeys",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/max_map_count",
    "fs/file-max",
    "fs/suid_dumpable",
    "fs/mqueue/msg_max",
    "user/max_user_namespaces",
    "net/ipv4/ip_forward",
    "net/ipv4/ip_local_port_range",
    "net/core/somaxconn",
];

#[derive(Debug, PartialEq)]
struct Host {
    settings: BTreeMap<&'static str, Option<String>>,
    mounts: Vec<String>,
    swaps: String,
    modules: usize,
    limits: String,
    interfaces: Vec<String>,
}

impl Host {
    fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let setting =
            |name: &&'static str| (*name, std::fs::read_to_string(format!("/proc/sys/{name}")).ok());
        let interfaces = read("/proc/net/dev");
        Self {
            settings: SETTINGS.iter().map(setting).collect(),
            // What other tests mount in their own places comes and goes with them.
            mounts: read("/proc/self/mountinfo")
                .lines()
                .filter(|line| !line.contains("/bastle-"))
                .map(str::to_owned)
                .collect(),
            swaps: read("/proc/swaps"),
            modules: read("/proc/modules").lines().count(),
            limits: read("/proc/self/limits"),
            interfaces: interfaces
                .lines()
                .filter_map(|line| line.split(':').next().map(str::to_owned))
                .collect(),
        }
    }
}

#[test]
fn twenty_thousand_random_calls_change_neither_the_host_nor_another_run() {
    for_each_identity(|lab| {
        lab.share();
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let attacker = text(&lab.attacker());
        let witness = lab.plant(&lab.outside().join("witness"), "unchanged");
        let mut other =
            Background::start(&mut lab.fence().command([attacker.as_str(), "tree", "2", "bystander"]));
        assert_eq!(other.line(), "planted");
        let before = Host::look();
        let (wall, steady) = (SystemTime::now(), Instant::now());
        // Fewer processes than the fuzzer's parent forks in a row: what slips out of its hands must not fill the host.
        let fence = lab
            .fence()
            .flags(["--pids", "64", "--disk", "16M", "--quiet"])
            .within(Limit(Duration::from_secs(110)));
        let output = fence.run([attacker.as_str(), "fuzz", "20261115", "20000"]);
        let said: Vec<&str> = output.said().split_whitespace().collect();
        let number = |at: usize| {
            said.get(at)
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0)
        };
        assert!(output.ended.code == 0 && number(1) >= 20_000, "{output:?}");
        assert!(
            number(3) >= 500,
            "control: calls that are allowed do something: {output:?}"
        );
        assert_eq!(Host::look(), before);
        let drift = wall.elapsed().unwrap_or_default().abs_diff(steady.elapsed());
        assert!(drift < Duration::from_secs(1), "the clock was set: {drift:?}");
        assert_eq!(std::fs::read_to_string(witness).expect("is there"), "unchanged");
        assert!(other.is_alive(), "another run ended");
        assert!(
            !output.events("denied").is_empty(),
            "control: the refused ones are told"
        );
    });
}
