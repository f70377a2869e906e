//! Attacks on the kernel by system call: the filter, its other entries, namespaces, terminals, socket families.
use crate::support::{Identity, for_each_identity};
use std::collections::BTreeMap;
use std::path::Path;

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

/// The result of every call of the list by `(name, entry)`.
fn table(lines: &str) -> BTreeMap<(String, String), String> {
    lines
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            Some(((words.next()?, words.next()?), words.next()?))
        })
        .collect()
}

#[test]
fn every_call_of_the_must_deny_list_is_refused_through_every_entry() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape/data/must-deny.txt");
    for_each_identity(|lab| {
        let copy = lab.tools().join("must-deny.txt");
        std::fs::copy(&list, &copy).expect("can be copied");
        let line = [lab.attacker(), "denied".into(), copy.clone()]
            .map(|word| word.to_str().expect("UTF-8").to_owned());
        let output = lab.fence().run(&line);
        let inside = table(&output.ended.stdout);
        let names = std::fs::read_to_string(&list).expect("is there");
        let names = names.lines().filter(|line| !line.starts_with('#')).count();
        assert!(
            names >= 77 && inside.len() >= 3 * names - 8,
            "{} results: {output:?}",
            inside.len()
        );
        for ((name, entry), seen) in &inside {
            // clone3 answers ENOSYS so that C libraries fall back to clone, whose flags can be judged.
            let expected = match (name.as_str(), entry.as_str()) {
                ("clone3", "native") | (_, "int80" | "x32") => "ENOSYS",
                _ => "EPERM",
            };
            // Kernels since 6.16 let no filter judge this one, and answer ENXIO or EPROTO to whoever is no probe of theirs.
            let by_kernel = name == "uprobe" && ["ENXIO", "errno-71"].contains(&seen.as_str());
            assert!(
                seen == expected || by_kernel,
                "{name} by {entry}: {seen}, not {expected}"
            );
        }
        let outside = crate::support::run(
            lab.command(&lab.attacker()).arg("denied").arg(&copy),
            b"",
            crate::support::Limit::HANG,
        );
        let outside = table(&outside.stdout);
        let native = |map: &BTreeMap<(String, String), String>| -> Vec<(String, String)> {
            let native = map.iter().filter(|((_, entry), _)| entry == "native");
            native
                .map(|((name, _), seen)| (name.clone(), seen.clone()))
                .collect()
        };
        let different = native(&inside)
            .iter()
            .zip(native(&outside))
            .filter(|(a, b)| **a != *b)
            .count();
        // An ordinary user is refused some of them by the kernel itself.
        let least = if lab.identity == Identity::Root { 60 } else { 35 };
        assert!(
            different >= least,
            "control: only {different} calls answer otherwise outside: {outside:?}"
        );
    });
}

#[test]
fn an_allowed_call_through_a_foreign_entry_is_refused() {
    for_each_identity(|lab| {
        // getpid: 20 on i386, 39 on x86_64.
        let attacks: [&[&str]; 3] = [&["int80", "20"], &["x32", "39"], &["sys", "39", "0", "0", "0"]];
        assert_eq!(lab.fenced(&attacks), ["ENOSYS", "ENOSYS", "OK"]);
        let outside = lab.unfenced(&attacks);
        assert_eq!(outside[2], "OK");
        if outside[0] != "OK" {
            crate::support::skip(
                "an_allowed_call_through_a_foreign_entry_is_refused",
                "this kernel has no i386 entry to compare with",
            );
        }
    });
}

#[test]
fn dangerous_calls_are_refused_and_told() {
    for_each_identity(|lab| {
        let attacks: [(&str, &str, &str); 14] = [
            ("425", "io_uring_setup", "EPERM"),
            ("323", "userfaultfd", "EPERM"),
            ("250", "keyctl", "EPERM"),
            ("248", "add_key", "EPERM"),
            ("249", "request_key", "EPERM"),
            ("321", "bpf", "EPERM"),
            ("298", "perf_event_open", "EPERM"),
            ("246", "kexec_load", "EPERM"),
            ("175", "init_module", "EPERM"),
            ("103", "syslog", "EPERM"),
            ("172", "iopl", "EPERM"),
            ("173", "ioperm", "EPERM"),
            ("304", "open_by_handle_at", "EPERM"),
            ("438", "pidfd_getfd", "EPERM"),
        ];
        let lines: Vec<[&str; 2]> = attacks.iter().map(|(number, ..)| ["invalid", number]).collect();
        let lines: Vec<&[&str]> = lines.iter().map(|line| &line[..]).collect();
        let (seen, output) = lab.fence().attack(&lines);
        let expected: Vec<&str> = attacks.iter().map(|(.., errno)| *errno).collect();
        assert_eq!(seen, expected, "{output:?}");
        for call in [
            "userfaultfd",
            "keyctl",
            "bpf",
            "perf_event_open",
            "kexec_load",
            "init_module",
            "syslog",
        ] {
            assert_eq!(output.denials(call).len(), 1, "{call}: {output:?}");
        }
        let outside = lab.unfenced(&lines);
        assert_ne!(
            outside[0], "EPERM",
            "control: io_uring outside is judged by its arguments"
        );
        assert_ne!(outside[2], "EPERM", "control: keyrings outside work");
    });
}

#[test]
fn only_harmless_personalities_are_allowed() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 4] = [
            &["sys", "135", "0x0040000", "0", "0"], // ADDR_NO_RANDOMIZE
            &["sys", "135", "0x0400000", "0", "0"], // READ_IMPLIES_EXEC
            &["sys", "135", "0x0100000", "0", "0"], // MMAP_PAGE_ZERO
            &["sys", "135", "0", "0", "0"],
        ];
        assert_eq!(lab.fenced(&attacks), ["EPERM", "EPERM", "EPERM", "OK"]);
        assert_eq!(lab.unfenced(&attacks), all("OK", 4), "control: without the fence");
    });
}

#[test]
fn no_namespace_can_be_made_or_entered() {
    for_each_identity(|lab| {
        let flags = [
            "0x10000000", // user
            "0x00020000", // mount
            "0x20000000", // pid
            "0x40000000", // net
            "0x08000000", // ipc
            "0x04000000", // uts
            "0x02000000", // cgroup
        ];
        let calls = |call: &'static str| flags.map(|flag| vec![call, flag]);
        let mut attacks: Vec<Vec<&str>> = calls("unshare").to_vec();
        attacks.extend(calls("clone"));
        attacks.push(vec!["unshare", "0x80"]); // time
        for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            attacks.push(vec![
                "setns",
                Box::leak(format!("/proc/self/ns/{name}").into_boxed_str()),
            ]);
        }
        let refused = attacks.len();
        attacks.extend(calls("clone3"));
        attacks.push(vec!["clone", "0"]);
        let attacks: Vec<&[&str]> = attacks.iter().map(Vec::as_slice).collect();
        let seen = lab.fenced(&attacks);
        assert_eq!(seen[..refused], all("EPERM", refused));
        assert_eq!(seen[refused..refused + 7], all("ENOSYS", 7), "clone3");
        assert_eq!(seen[refused + 7], "OK", "control: a plain child");
        if lab.identity == Identity::Root {
            assert_eq!(lab.unfenced(&attacks[..7]), all("OK", 7), "control: root outside");
            assert_eq!(
                lab.unfenced(&attacks[refused..refused + 7]),
                all("OK", 7),
                "control: root outside, clone3"
            );
        }
    });
}

#[test]
fn mounts_cannot_be_made_with_the_newer_calls_either() {
    for_each_identity(|lab| {
        let calls = ["155", "428", "429", "430", "431", "432", "433", "442", "467"];
        let attacks: Vec<[&str; 2]> = calls.iter().map(|number| ["invalid", number]).collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        assert_eq!(lab.fenced(&attacks), all("EPERM", attacks.len()));
        if lab.identity == Identity::Root {
            let outside = lab.unfenced(&attacks[..7]);
            assert!(
                !outside.contains(&"EPERM".to_owned()),
                "control: root outside is judged by arguments: {outside:?}"
            );
        }
    });
}

#[test]
fn no_more_than_a_fair_share_of_the_processor_can_be_had() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 3] = [
            &["schedule", "fifo"],
            &["schedule", "deadline"],
            &["schedule", "nice"],
        ];
        let seen = lab.fenced(&attacks);
        assert_eq!(seen, ["EPERM", "EPERM", "EACCES"]);
        if lab.identity == Identity::Root {
            let outside = lab.unfenced(&attacks);
            assert!(
                outside.contains(&"OK".to_owned()),
                "control: root outside: {outside:?}"
            );
        }
        assert_eq!(
            lab.fence().run(["nice", "-n", "5", "true"]).ended.code,
            0,
            "control: being nice is allowed"
        );
    });
}

#[test]
fn bytes_cannot_be_pushed_into_a_terminal() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 4] = [
            &["terminal", "sti"],
            &["terminal", "linux"],
            &["terminal", "cons"],
            &["terminal", "size"],
        ];
        assert_eq!(lab.fenced(&attacks), ["EPERM", "EPERM", "EPERM", "OK"]);
        if lab.identity == Identity::Root {
            assert_eq!(lab.unfenced(&attacks[..1]), all("OK", 1), "control: root outside");
        }
    });
}

#[test]
fn only_four_socket_families_exist() {
    for_each_identity(|lab| {
        let numbers: Vec<String> = (0..=45).map(|family| family.to_string()).collect();
        let mut attacks: Vec<Vec<&str>> = Vec::new();
        for family in &numbers {
            for kind in ["1", "2", "3", "5"] {
                attacks.push(vec!["family", family, kind, "0"]);
            }
        }
        let attacks: Vec<&[&str]> = attacks.iter().map(Vec::as_slice).collect();
        let seen = lab.fenced(&attacks);
        for (attack, result) in attacks.iter().zip(&seen) {
            let allowed = ["1", "2", "10", "16"].contains(&attack[1]);
            assert!(allowed || result == "EAFNOSUPPORT", "{attack:?}: {result}");
        }
        let netlink: Vec<String> = (1..=22).map(|protocol| protocol.to_string()).collect();
        let attacks: Vec<Vec<&str>> = netlink
            .iter()
            .map(|protocol| vec!["family", "16", "3", protocol])
            .collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(Vec::as_slice).collect();
        assert_eq!(
            lab.fenced(&attacks),
            all("EAFNOSUPPORT", 22),
            "netlink but for routes"
        );
        let outside = lab.unfenced(&attacks);
        assert!(
            outside.contains(&"OK".to_owned()),
            "control: without the fence: {outside:?}"
        );
        let allowed: [&[&str]; 4] = [
            &["family", "1", "1", "0"],
            &["family", "2", "1", "0"],
            &["family", "10", "2", "0"],
            &["family", "16", "3", "0"],
        ];
        assert_eq!(lab.fenced(&allowed), all("OK", 4), "control: what programs need");
    });
}

#[test]
fn a_debugger_cannot_switch_the_filter_off() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 2] = [&["suspend-filter"], &["debug-child"]];
        assert_eq!(lab.fenced(&attacks), ["EPERM", "OK"]);
        assert_eq!(
            lab.fence()
                .flags(["--no-debuggers"])
                .attack(&[&["debug-child"]])
                .0,
            all("EPERM", 1),
            "without debuggers not even that"
        );
    });
}

#[test]
fn the_clock_and_the_host_name_cannot_be_set() {
    for_each_identity(|lab| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("can be read");
        let attacks: [&[&str]; 4] = [
            &["invalid", "170"], // sethostname
            &["invalid", "171"], // setdomainname
            &["invalid", "227"], // clock_settime
            &["invalid", "164"], // settimeofday
        ];
        assert_eq!(lab.fenced(&attacks), all("EPERM", 4));
        let output = lab
            .fence()
            .sh("hostname 2>/dev/null || cat /proc/sys/kernel/hostname");
        assert_eq!(
            output.said(),
            "bastle",
            "control: the sandbox has a name of its own"
        );
        let after = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("can be read");
        assert_eq!(name, after, "the host keeps its name");
        if lab.identity == Identity::Root {
            assert_eq!(
                lab.unfenced(&attacks[..1]),
                all("EINVAL", 1),
                "control: root outside is judged by arguments"
            );
        }
    });
}
