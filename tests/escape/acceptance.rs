//! The minimum acceptance tests of a secure agent, and five attack scenarios, each told from the user's side.
use crate::support::{Lab, for_each_identity, text};
use std::path::Path;

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

fn policy(lab: &Lab, document: &str) -> String {
    text(&lab.plant(&lab.outside().join("policy.json"), document)).to_owned()
}

#[test]
fn acceptance_1_the_agent_cannot_read_known_secret_paths() {
    for_each_identity(|lab| {
        let canary = format!("CANARY-{}", std::process::id());
        let secrets = [
            lab.plant(&lab.home().join(".ssh/id_rsa"), &canary),
            lab.plant(&lab.home().join(".aws/credentials"), &canary),
            lab.plant(&lab.home().join(".config/gcloud/token"), &canary),
            lab.project(".env", &canary),
            lab.project("service/.env.local", &canary),
        ];
        let list: Vec<&str> = secrets.iter().map(|path| text(path)).collect();
        let script = format!(
            "cat {} /etc/shadow; grep -r CANAR[Y]- . ~ /etc /tmp /var /home 2>/dev/null; true",
            list.join(" ")
        );
        let output = lab.fence().sh(&script);
        assert_eq!(output.said(), "", "{output:?}");
        // Not even a grant of the whole project directory by flag opens the floor.
        let widened = lab.fence().flags(["--rw", text(&lab.workspace())]).sh("cat .env");
        assert!(
            widened.ended.code != 0 && widened.said().is_empty(),
            "{widened:?}"
        );
        let opened = lab.fence().flags(["--unprotect", list[3]]).sh("cat .env");
        assert_eq!(
            opened.said(),
            canary,
            "control: only the operator's own word opens it"
        );
    });
}

#[test]
fn acceptance_2_the_agent_cannot_write_outside_its_directories() {
    for_each_identity(|lab| {
        let theirs = lab.plant(&lab.outside().join("theirs"), "theirs");
        let script = format!(
            "for p in /etc/pwned-$$ /usr/pwned-$$ /usr/bin/pwned-$$ / /pwned-$$ {0} {0}.new {1}/.bashrc /proc/sys/kernel/x /dev/pwned-$$; do echo pwned > $p && echo WROTE $p; done 2>/dev/null; echo ok > mine",
            text(&theirs),
            text(&lab.home())
        );
        let output = lab.fence().sh(&script);
        assert_eq!(output.said(), "", "{output:?}");
        assert_eq!(std::fs::read_to_string(&theirs).expect("is there"), "theirs");
        assert!(!lab.home().join(".bashrc").exists());
        assert!(
            lab.workspace().join("mine").exists(),
            "control: the workspace is writable"
        );
        let read_only = lab.fence().flags(["--sandbox", "read-only"]).sh("echo x > mine2");
        assert!(
            read_only.ended.code != 0 && !lab.workspace().join("mine2").exists(),
            "{read_only:?}"
        );
    });
}

#[test]
fn acceptance_3_network_calls_fail() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 3] = [
            &["tcp", "192.0.2.1", "443"],
            &["tcp", "192.0.2.1", "80"],
            &["own-loopback"],
        ];
        assert_eq!(lab.fenced(&attacks), ["ENETUNREACH", "ENETUNREACH", "OK"]);
        let proxied = lab
            .fence()
            .env("HTTPS_PROXY", "http://192.0.2.1:3128")
            .attack(&attacks)
            .0;
        assert_eq!(
            proxied,
            ["ENETUNREACH", "ENETUNREACH", "OK"],
            "variables are no way out"
        );
    });
}

#[test]
fn acceptance_4_a_denied_program_does_not_run() {
    for_each_identity(|lab| {
        let rules = policy(lab, r#"{ "version": 1, "exec": { "deny": ["base64"] } }"#);
        let direct = lab
            .fence()
            .flags(["--policy", &rules])
            .run(["base64", "--version"]);
        assert!([125, 126].contains(&direct.ended.code), "{direct:?}");
        let nested = lab
            .fence()
            .flags(["--policy", &rules])
            .sh("base64 --version; /usr/bin/base64 --version");
        assert_eq!((nested.ended.code, nested.said()), (126, ""), "{nested:?}");
        assert_eq!(
            nested.ended.stderr.matches("Permission denied").count(),
            2,
            "{nested:?}"
        );
        let control = lab.fence().run(["base64", "--version"]);
        assert_eq!(control.ended.code, 0, "control: without the rule: {control:?}");
    });
}

#[test]
fn scenario_container_escape_by_every_classic_way() {
    for_each_identity(|lab| {
        let (seen, output) = lab.fence().attack(&[
            &["unix", "/var/run/docker.sock"],
            &["open-write", "/sys/fs/cgroup/release_agent"],
            &["open-write", "/proc/sys/kernel/core_pattern"],
            &["mknod", "disk", "b", "254", "0"],
            &["mount", "bind", "/", "."],
            &["setns", "/proc/1/ns/mnt"],
            &["invalid", "304"],
            &["chroot", "/proc/1/root"],
            &["attach", "1"],
            &["invalid", "175"],
        ]);
        let expected = [
            "ENOENT",
            "ENOENT",
            "EACCES",
            "EPERM",
            "EPERM",
            "CANNOT-TELL",
            "EPERM",
            "EPERM",
            "EPERM",
            "EPERM",
        ];
        assert_eq!(
            seen, expected,
            "the namespaces of PID 1 cannot even be opened: {output:?}"
        );
        assert!(
            !output.denials("mount").is_empty() && !output.denials("chroot").is_empty(),
            "{output:?}"
        );
        assert_eq!(
            lab.fenced(&[&["write", "work", "x"]]),
            all("OK", 1),
            "control: honest work goes on"
        );
    });
}

#[test]
fn scenario_the_host_file_system_is_neither_seen_nor_changed() {
    for_each_identity(|lab| {
        lab.plant(&lab.outside().join("important"), "important");
        let script = format!(
            "rm -rf {} * 2>/dev/null; ls /root /home /srv /mnt /boot /var/log 2>/dev/null | head -5; true",
            text(&lab.outside())
        );
        lab.project("victim", "x");
        let output = lab.fence().sh(&script);
        assert_eq!(
            std::fs::read_to_string(lab.outside().join("important")).expect("is there"),
            "important"
        );
        assert!(Path::new("/etc/passwd").exists() && Path::new("/usr/bin/env").exists());
        let listed: Vec<&str> = output
            .said()
            .lines()
            .filter(|line| !line.is_empty() && !line.ends_with(':'))
            .collect();
        assert!(listed.iter().all(|line| *line == "agent"), "{output:?}");
        assert!(
            !lab.workspace().join("victim").exists(),
            "control: rm did run, on what it was given"
        );
    });
}

#[test]
fn scenario_the_agent_weakens_its_own_policy() {
    for_each_identity(|lab| {
        let canary = lab.plant(&lab.outside().join("canary"), "CANARY");
        let wide = format!(
            r#"{{ "version": 1, "fs": {{ "read": [".", "{0}", "{1}"], "write": [".", "{0}"] }}, "limits": {{ "pids": 100000 }} }}"#,
            text(&lab.outside()),
            text(&lab.tools())
        );
        let read: [&[&str]; 1] = [&["read", text(&canary)]];
        // Planted beforehand: what a project asks for beyond the trusted layers is not granted.
        let planted = lab.project("agent-permissions.json", &wide);
        let (seen, output) = lab.fence().attack(&read);
        assert_eq!(seen, all("ENOENT", 1), "{output:?}");
        assert!(
            output.ended.stderr.contains("not granted"),
            "it is said: {output:?}"
        );
        let (seen, output) = lab.fence().flags(["--allow-user-expansion"]).attack(&read);
        assert_eq!(
            seen,
            all("OK", 1),
            "control: only with the operator's word: {output:?}"
        );
        // While running: neither changed nor replaced, here or in the personal file.
        let (seen, output) = lab.fence().attack(&[
            &["overwrite", "agent-permissions.json", "{}"],
            &["unlink", "agent-permissions.json"],
            &["write", "agent-permissions.local.json", "{}"],
            &["write", "notes.json", "{}"],
        ]);
        for errno in &seen[..3] {
            assert!(
                ["EROFS", "EBUSY", "EACCES"].contains(&errno.as_str()),
                "{seen:?} {output:?}"
            );
        }
        assert_eq!(seen[3], "OK", "control: another file");
        assert_eq!(std::fs::read_to_string(&planted).expect("is there"), wide);
        // A project may narrow.
        let narrow = format!(
            r#"{{ "version": 1, "fs": {{ "read": ["./src", "{}"], "write": ["./src"] }} }}"#,
            text(&lab.tools())
        );
        lab.project("agent-permissions.json", &narrow);
        lab.project("src/code", "x");
        let narrowed = lab.fenced(&[&["write", "src/code", "y"], &["overwrite", "notes.json", "y"]]);
        assert_eq!(
            narrowed,
            ["OK", "ENOENT"],
            "what the project leaves, and nothing else"
        );
        // What it cannot read stops the start; there is no default to fall back to.
        lab.project("agent-permissions.json", "{ broken");
        assert_eq!(lab.fence().sh("true").ended.code, 125);
    });
}

#[test]
fn scenario_resource_exhaustion_is_bounded_on_every_side() {
    for_each_identity(|lab| {
        let flags = [
            "--pids",
            "64",
            "--mem",
            "128M",
            "--disk",
            "4M",
            "--open-files",
            "128",
            "--timeout",
            "20s",
            "--cpu",
            "1",
        ];
        let (seen, output) = lab.fence().flags(flags).attack(&[
            &["fork-bomb", "5000"],
            &["fill", "big", "65536", "33554432"],
            &["open-many", "5000"],
            &["write", "after", "still working"],
        ]);
        assert_eq!(seen[0], "EAGAIN", "{output:?}");
        assert!(
            ["ENOSPC", "EDQUOT", "EFBIG"].contains(&seen[1].as_str()),
            "{output:?}"
        );
        assert_eq!(seen[2], "EMFILE", "{output:?}");
        // The disk is used up; the agent itself lives and can be told so.
        assert!(["ENOSPC", "EDQUOT"].contains(&seen[3].as_str()), "{output:?}");
        let hog = lab
            .fence()
            .flags(flags)
            .run([text(&lab.attacker()), "eat", "1024"]);
        assert!([137, 10].contains(&hog.ended.code), "{hog:?}");
        let modest = lab.fence().flags(flags).sh("echo fine > small; cat small");
        assert_eq!(
            modest.said(),
            "fine",
            "control: modest work under the same limits"
        );
    });
}

#[test]
fn scenario_kernel_exploits_find_little_to_attack() {
    for_each_identity(|lab| {
        // The entries that kernel exploits of the last years came through.
        let calls = [
            ("321", "bpf"),
            ("323", "userfaultfd"),
            ("425", "io_uring_setup"),
            ("298", "perf_event_open"),
            ("250", "keyctl"),
            ("272", "unshare"),
            ("308", "setns"),
            ("435", "clone3"),
            ("430", "fsopen"),
            ("165", "mount"),
            ("139", "sysfs"),
            ("246", "kexec_load"),
            ("300", "fanotify_init"),
            ("304", "open_by_handle_at"),
        ];
        let attacks: Vec<[&str; 2]> = calls.iter().map(|(number, _)| ["invalid", number]).collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let seen = lab.fenced(&attacks);
        for ((_, name), errno) in calls.iter().zip(&seen) {
            let expected = if *name == "clone3" { "ENOSYS" } else { "EPERM" };
            assert_eq!(errno, expected, "{name}");
        }
        let families: [&[&str]; 6] = [
            &["family", "17", "3", "768"], // packet
            &["family", "38", "5", "0"],   // alg
            &["family", "40", "1", "0"],   // vsock
            &["family", "44", "3", "0"],   // xdp
            &["family", "16", "3", "12"],  // netfilter
            &["family", "30", "5", "0"],   // tipc
        ];
        assert_eq!(lab.fenced(&families), all("EAFNOSUPPORT", 6));
        let kernel: [&[&str]; 3] = [
            &["read", "/proc/kallsyms"],
            &["open", "/dev/kvm"],
            &["stat", "/sys/kernel"],
        ];
        assert_eq!(lab.fenced(&kernel), ["EACCES", "ENOENT", "ENOENT"]);
        let control = lab.fenced(&[
            &["sys", "39", "0", "0", "0"],
            &["family", "1", "1", "0"],
            &["clone", "0"],
        ]);
        assert_eq!(control, all("OK", 3), "control: what programs need");
    });
}
