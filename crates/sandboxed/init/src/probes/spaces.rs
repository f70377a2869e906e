//! Probes of the namespaces: inode numbers must differ from the spawner's, and nothing of the host may show.
use super::{Control, Probe, outcome};
use bastle_contract::{Guarantee, Handover, ProbeResult};
use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

pub(super) fn of_place(handover: &Handover, results: &mut Vec<ProbeResult>) {
    let of = |name: &str| match name {
        "net" => Guarantee::NetConfined,
        "pid" => Guarantee::ProcessesHidden,
        "ipc" => Guarantee::IpcIsolated,
        "uts" => Guarantee::UtsIsolated,
        "cgroup" => Guarantee::CgroupIsolated,
        "mnt" => Guarantee::ReadsConfined,
        _ => Guarantee::UnprivilegedUid,
    };
    for (name, host) in &handover.host_namespaces {
        let path = format!("/proc/self/ns/{name}");
        let own = std::fs::metadata(&path).map(|meta| meta.ino());
        let control = Control::new("both can be read", own.is_ok() && *host != 0);
        let observed = if own.is_ok_and(|own| own == *host) {
            "the same"
        } else {
            "another"
        };
        results.push(
            Probe::new(
                of(name),
                format!("compare the {name} namespace with the host's"),
                "another",
            )
            .judge(observed, &control),
        );
    }
    network(results);
    processes(results);
    cgroup_root(results);
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let control = Control::new("the host name can be read", !name.is_empty());
    results.push(
        Probe::new(Guarantee::UtsIsolated, "read the host name", crate::HOST_NAME).judge(name, &control),
    );
}

fn network(results: &mut Vec<ProbeResult>) {
    let connect = |address: Ipv4Addr| {
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrV4::new(address, 9))
    };
    let control = Control::new(
        "a datagram socket to 127.0.0.1",
        connect(Ipv4Addr::LOCALHOST).is_ok(),
    );
    // TEST-NET-1: never a real host.
    let result = connect(Ipv4Addr::new(192, 0, 2, 1));
    results.push(
        Probe::new(Guarantee::NetConfined, "route to 192.0.2.1", "ENETUNREACH")
            .judge(outcome(result), &control),
    );
    let table = super::text_of("/proc/self/net/dev");
    let interfaces: Vec<&str> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    let control = Control::new("lo is listed", interfaces.contains(&"lo"));
    let stray: Vec<&&str> = interfaces
        .iter()
        .filter(|name| **name != "lo" && !is_kernel_template(name))
        .collect();
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    results.push(
        Probe::new(Guarantee::NetConfined, "look for interfaces besides lo", "none")
            .judge(observed, &control),
    );
}

/// Tunnel devices that some kernels put, down and without address, into every new network namespace.
fn is_kernel_template(name: &str) -> bool {
    [
        "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0",
    ]
    .contains(&name)
}

fn processes(results: &mut Vec<ProbeResult>) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let pids: Vec<i32> = std::fs::read_dir("/proc")
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect()
        })
        .unwrap_or_default();
    let control = Control::new("this process is listed", pids.contains(&own));
    // The only other one so far is init.
    let stray: Vec<&i32> = pids.iter().filter(|pid| **pid != own && **pid != 1).collect();
    let observed = if stray.is_empty() {
        "none".to_owned()
    } else {
        format!("{stray:?}")
    };
    results.push(
        Probe::new(
            Guarantee::ProcessesHidden,
            "look for other processes in /proc",
            "none",
        )
        .judge(observed, &control),
    );
}

pub(super) fn identity(handover: &Handover, results: &mut Vec<ProbeResult>) {
    let identity = handover.identity;
    let map = super::text_of("/proc/self/uid_map");
    let map = map.split_whitespace().collect::<Vec<_>>().join(" ");
    let control = Control::new("the map can be read", !map.is_empty());
    let expected = format!("{} {} 1", identity.inside, identity.outside);
    results.push(
        Probe::new(Guarantee::UnprivilegedUid, "read the map of user ids", expected).judge(map, &control),
    );
    // Root gives every run another uid. Where user id 0 is an ordinary user all the same, its capabilities are what counts.
    let (outside, wanted) = match (identity.outside, handover.by_root) {
        (0, false) if has_no_capability() => ("user 0 without capabilities", "user 0 without capabilities"),
        (0, false) => ("user 0 with capabilities", "user 0 without capabilities"),
        (0, true) => ("root", "not root"),
        (_, _) => ("not root", "not root"),
    };
    let observed = format!(
        "{} inside, {outside} outside",
        rustix::process::geteuid().as_raw()
    );
    let expected = format!("{} inside, {wanted} outside", identity.inside);
    results.push(
        Probe::new(Guarantee::UnprivilegedUid, "look at the own user id", expected).judge(observed, &control),
    );
}

fn has_no_capability() -> bool {
    let status = super::text_of("/proc/self/status");
    ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"]
        .iter()
        .all(|set| {
            let value = status.lines().find_map(|line| line.strip_prefix(set));
            value.is_some_and(|value| value.trim().bytes().all(|digit| digit == b'0'))
        })
}

fn cgroup_root(results: &mut Vec<ProbeResult>) {
    let table = super::text_of("/proc/self/cgroup");
    let outside: Vec<&str> = table.lines().filter(|line| line.contains("/..")).collect();
    let observed = if outside.is_empty() {
        "none".to_owned()
    } else {
        format!("{outside:?}")
    };
    let control = Control::new("the list can be read", !table.is_empty());
    results.push(
        Probe::new(
            Guarantee::CgroupIsolated,
            "look for cgroups above the own root",
            "none",
        )
        .judge(observed, &control),
    );
}
