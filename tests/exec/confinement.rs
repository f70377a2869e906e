//! A further command is fenced as the agent is: the same files, processes, calls and limits.
use crate::agent::shown;
use crate::living::Living;
use crate::support::{Background, Identity, for_each_identity, with_hooks};
use std::path::Path;

/// `CLONE_NEWUSER`.
const NEW_USER: &str = "0x10000000";

#[test]
fn a_further_command_has_no_privilege_a_filter_a_session_of_its_own_and_no_stray_descriptor() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let status = living.exec(&["cat", "/proc/self/status"]);
        let value = |name: &str| {
            let line = status.stdout.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches(':').trim().to_owned())
                .unwrap_or_default()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(value(set), "0000000000000000", "{set}: {status:?}");
        }
        assert_eq!((value("NoNewPrivs"), value("Seccomp:")), ("1".into(), "2".into()));
        assert_eq!(value("Uid"), "1000\t1000\t1000\t1000");
        assert_eq!(
            value("SigBlk"),
            "0000000000000000",
            "init blocks some, it does not"
        );
        let ignored = u64::from_str_radix(&value("SigIgn"), 16).unwrap();
        assert_eq!(
            ignored & 0x7fff_ffff,
            0,
            "those that the C library keeps for itself are not ours to reset"
        );
        let session = living.sh("set -- $(cat /proc/$$/stat); echo $1 $5 $6 $$");
        let numbers: Vec<&str> = session.stdout.split_whitespace().collect();
        assert!(numbers.iter().all(|number| *number == numbers[3]), "{session:?}");
        assert_eq!(living.attack(&[&["descriptors"]]), ["EBADF"], "none above 2");
        let script = format!("exec 7</dev/null; exec {} descriptors", shown(&lab.attacker()));
        assert_eq!(living.sh(&script).code, 0, "control: one that is given is found");
        assert_eq!(
            living.attack(&[&["become", "0"], &["become", "1000"]]),
            ["EINVAL", "OK"]
        );
        // init's own permission mask is another.
        let agent = living.agent.does("os.umask(0o22)");
        assert_eq!(
            living.sh("umask").stdout.trim(),
            format!("{:04o}", agent.parse::<u32>().unwrap())
        );
    });
}

#[test]
fn a_further_command_writes_reads_and_names_only_what_the_agent_may() {
    for_each_identity(|lab| {
        let secret = lab.plant(&lab.outside().join("secret"), "SECRET");
        lab.project(".env", "SECRET");
        lab.project("old", "old");
        let living = Living::start(lab);
        let (inside, hidden) = (lab.workspace().join("made"), lab.workspace().join(".env.local"));
        let attacks: [&[&str]; 8] = [
            &["write", &shown(&inside), "x"],
            &["read", &shown(&lab.workspace().join("old"))],
            &["write", &shown(&lab.outside().join("made")), "x"],
            &["read", &shown(&secret)],
            &["read", &shown(&lab.workspace().join(".env"))],
            &["write", &shown(&hidden), "x"],
            &["rename", &shown(&lab.workspace().join("old")), &shown(&hidden)],
            &["write", "/etc/made", "x"],
        ];
        let seen = living.attack(&attacks);
        assert_eq!(seen[..2], ["OK", "OK"], "control: inside the workspace");
        assert_eq!(seen[2..6], ["ENOENT", "ENOENT", "EACCES", "EACCES"]);
        assert_eq!(seen[6], "EACCES");
        assert!(seen[7] == "EROFS" || seen[7] == "EACCES", "{seen:?}");
        assert!(inside.exists() && !hidden.exists() && !lab.outside().join("made").exists());
        let denied = living.agent.events("denied");
        assert!(
            denied.iter().any(|denial| denial["target"] == shown(&hidden)),
            "told as the agent's would be: {denied:?}"
        );
        let unfenced = lab.unfenced(&[&["read", &shown(&secret)]]);
        assert_eq!(unfenced, ["OK"], "control: without the fence");
    });
}

#[test]
fn a_further_command_makes_no_namespace_mount_or_trace_and_its_attempts_are_told() {
    for_each_identity(|lab| {
        lab.share();
        let living = Living::start(lab);
        let attacks: [&[&str]; 8] = [
            &["unshare", NEW_USER],
            &["clone", NEW_USER],
            &["clone3", NEW_USER],
            &["setns", "/proc/self/ns/mnt"],
            &["mount", "tmpfs", "/tmp", "tmpfs"],
            &["attach", "1"],
            &["vm-read", "1"],
            &["suspend-filter"],
        ];
        let from_exec = living.attack(&attacks);
        let from_agent = lab.fenced(&attacks);
        assert_eq!(from_exec, from_agent, "exactly what the agent meets");
        assert!(!from_exec.iter().any(|seen| seen == "OK"), "{from_exec:?}");
        assert_eq!(
            living.attack(&[&["debug-child"]]),
            ["OK"],
            "control: its own child"
        );
        let denied = living.agent.events("denied");
        for call in ["unshare", "setns", "mount"] {
            assert!(
                denied.iter().any(|denial| denial["operation"] == call),
                "{call} was not told: {denied:?}"
            );
        }
    });
}

#[test]
fn a_further_command_sees_the_agents_processes_and_none_of_the_host() {
    for_each_identity(|lab| {
        let mark = format!("mark-{}", shown(&lab.workspace()).replace('/', "-"));
        let host = Background::start(lab.command(&lab.attacker()).args(["tree", "0", &mark]));
        assert_eq!(host.line(), "planted");
        let living = Living::start(lab);
        let pid = host.pid().to_string();
        let attacks: [&[&str]; 3] = [&["processes", &mark], &["signal", &pid, "0"], &["attach", &pid]];
        assert_eq!(living.attack(&attacks), ["ESRCH", "ESRCH", "ESRCH"]);
        assert_eq!(
            lab.unfenced(&attacks[..2]),
            ["OK", "OK"],
            "control: without the fence"
        );
        let agent = living.agent.does("os.getpid()");
        let seen = living.sh(&format!("tr '\\0' ' ' < /proc/{agent}/cmdline"));
        assert!(seen.stdout.contains("agent.py"), "control: {seen:?}");
    });
}

#[test]
fn bytes_processes_and_time_are_one_account_with_the_agents() {
    for_each_identity(|lab| {
        let living = Living::with(lab, &["--disk", "1M"]);
        let path = |name: &str| shown(&lab.workspace().join(name));
        assert_eq!(
            living
                .agent
                .does(&format!("write('{}', 'x' * 700_000)", path("first"))),
            "700000"
        );
        let fill =
            living.sh("head -c 200000 /dev/zero > small && echo fits; head -c 700000 /dev/zero > large");
        assert_eq!(fill.stdout, "fits\n", "control");
        assert_ne!(fill.code, 0, "{fill:?}");
        assert!(
            fill.stderr.contains("quota") || fill.stderr.contains("space"),
            "{fill:?}"
        );
        let size = lab
            .workspace()
            .join("large")
            .metadata()
            .map_or(0, |meta| meta.len());
        assert!(size <= 300_000, "the agent's bytes count: {size}");
    });
}

#[test]
fn a_process_limit_holds_for_the_agent_and_further_commands_together() {
    for_each_identity(|lab| {
        let living = Living::with(lab, &["--pids", "24"]);
        let bomb =
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 60 & done; echo all";
        let first = living.background(&["sh", "-c", &format!("{bomb}; wait")]);
        assert_eq!(first.line(), "all", "control: so many fit");
        let second = living.sh(bomb);
        assert!(!second.stdout.contains("all"), "{second:?}");
        drop(first);
    });
}

#[test]
fn a_further_command_that_misses_a_layer_is_not_started() {
    if !hooks_are_built() {
        crate::support::skip("exec layers", "the binary with hooks is the shipped one");
        return;
    }
    for_each_identity(|lab| {
        for (layer, word) in [
            ("seccomp", "openat2"),
            ("session", "session"),
            ("descriptors", "descriptors above 2"),
        ] {
            let fence = lab
                .fence()
                .binary(with_hooks())
                .flags(["--net", "none"])
                .env("BASTLE_TEST_WITHOUT", &format!("exec-{layer}"));
            let run = Background::start(&mut fence.command(["sh", "-c", "echo ready; exec sleep 300"]));
            assert_eq!(run.line(), "ready", "control: the agent itself has every layer");
            let mut exec = lab.command(with_hooks());
            exec.args(["exec", fence.name(), "--", "touch", "started"]);
            let ended = crate::support::run(&mut exec, b"", crate::support::Limit::HANG);
            assert_eq!(ended.code, 125, "{layer}: {ended:?}");
            assert!(
                ended.stderr.contains("BST-FENCE-004") && ended.stderr.contains(word),
                "{layer}: {ended:?}"
            );
            assert!(!lab.workspace().join("started").exists(), "{layer}");
        }
    });
}

fn hooks_are_built() -> bool {
    let bytes = std::fs::read(with_hooks()).expect("can be read");
    let variable = b"BASTLE_TEST_WITHOUT";
    bytes.windows(variable.len()).any(|window| window == variable)
}

#[test]
fn agent_and_further_command_are_one_user_and_nobody_else_is_among_them() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let other = living.background(&["sh", "-c", "echo $$; exec sleep 300"]);
        let pid = other.line();
        // Stated, not hidden: one user inside, so the agent can signal what is started beside it.
        assert_eq!(living.agent.does(&format!("os.kill({pid}, 0)")), "None");
        // And nobody outside can be reached that way: the input of the command is a pipe of its own.
        let input = living
            .agent
            .does(&format!("os.readlink('/proc/{pid}/fd/0').split(':')[0]"));
        assert_eq!(input, "'pipe'");
        assert_eq!(
            living
                .agent
                .does("outcome(lambda: os.kill(1, 9)) or os.path.exists('/proc/1')"),
            "True",
            "init is not ended from inside"
        );
        if lab.identity == Identity::Root {
            assert!(Path::new("/proc/1").exists());
        }
    });
}
