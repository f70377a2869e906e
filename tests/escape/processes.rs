//! Attacks on other processes, on PID 1, and through what a process inherits.
use crate::support::{Background, Identity, Lab, Limit, for_each_identity, run, text};
use std::path::Path;

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

/// A mark that only one test's processes carry.
fn mark(lab: &Lab) -> String {
    format!("mark-{}", text(&lab.workspace()).replace('/', "-"))
}

#[test]
fn the_agent_has_no_privilege_and_cannot_gain_one() {
    for_each_identity(|lab| {
        let output = lab.fence().sh("cat /proc/self/status");
        let value = |name: &str| {
            let line = output
                .ended
                .stdout
                .lines()
                .find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches(':').trim().to_owned())
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(
                value(set).as_deref(),
                Some("0000000000000000"),
                "{set}: {output:?}"
            );
        }
        assert_eq!(value("NoNewPrivs").as_deref(), Some("1"));
        assert_eq!(value("Seccomp:").as_deref(), Some("2"));
        assert_eq!(value("Uid").as_deref(), Some("1000\t1000\t1000\t1000"));
        assert_eq!(
            lab.fenced(&[&["become", "0"], &["become", "65534"], &["become", "1000"]]),
            ["EINVAL", "EINVAL", "OK"]
        );
        if lab.identity == Identity::Root {
            assert_eq!(
                lab.unfenced(&[&["become", "1000"]]),
                all("OK", 1),
                "control: root outside"
            );
            let groups = lab.fence().sh("id -G");
            assert_eq!(groups.said(), "1000", "no group of root's");
        }
    });
}

#[test]
fn host_processes_are_neither_seen_nor_reached() {
    for_each_identity(|lab| {
        let mark = mark(lab);
        let host = Background::start(lab.command(Path::new("/bin/sh")).args([
            "-c",
            "echo up; read forever; :",
            &mark,
        ]));
        // Its standard input is empty, so it may be gone already: a sleeper stays.
        drop(host);
        let mut sleeper = lab.command(&lab.attacker());
        let host = Background::start(sleeper.args(["tree", "0", &mark]));
        assert_eq!(host.line(), "planted");
        let pid = host.pid().to_string();
        let attacks: [&[&str]; 6] = [
            &["processes", &mark],
            &["signal", &pid, "0"],
            &["attach", &pid],
            &["vm-read", &pid],
            &["read", Box::leak(format!("/proc/{pid}/cmdline").into_boxed_str())],
            &["processes", "bastle-no-such-mark"],
        ];
        assert_eq!(
            lab.fenced(&attacks),
            ["ESRCH", "ESRCH", "ESRCH", "ESRCH", "ENOENT", "ESRCH"]
        );
        assert_eq!(
            lab.unfenced(&attacks[..2]),
            all("OK", 2),
            "control: without the fence"
        );
        let listed = lab.fence().sh("ls -d /proc/[0-9]* | wc -l");
        let count: u32 = listed.said().parse().expect("a number");
        assert!(count <= 5, "init, the shell, ls and wc: {count}");
    });
}

#[test]
fn two_runs_of_the_same_user_do_not_see_each_other() {
    for_each_identity(|lab| {
        lab.share();
        let mark = mark(lab);
        let attacker = lab.attacker();
        let mut first = Background::start(&mut lab.fence().command([text(&attacker), "tree", "2", &mark]));
        assert_eq!(first.line(), "planted");
        let pids: Vec<String> = std::fs::read_dir("/proc")
            .expect("is there")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.parse::<u32>().is_ok())
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains(&mark) && line.starts_with(text(&attacker))
            })
            .collect();
        assert!(!pids.is_empty(), "control: the host sees the first run");
        for pid in &pids {
            let attacks: [&[&str]; 5] = [
                &["processes", &mark],
                &["signal", pid, "9"],
                &["attach", pid],
                &["vm-read", pid],
                &["take-descriptor", pid],
            ];
            let seen = lab.fenced(&attacks);
            assert_eq!(seen, all("ESRCH", 5), "{pid}");
        }
        assert!(first.is_alive());
    });
}

#[test]
fn what_the_caller_typed_and_had_in_its_environment_is_not_in_the_processes_that_serve_the_sandbox() {
    for_each_identity(|lab| {
        let mark = mark(lab);
        let attacker = lab.attacker();
        let mut command = lab
            .fence()
            .env("MY_PASSWORD", "CANARY-VARIABLE")
            .flags(["--env", "TYPED=CANARY-ARGUMENT"])
            .command([text(&attacker), "tree", "0", &mark]);
        let mut living = Background::start(&mut command);
        assert_eq!(living.line(), "planted");
        let bytes = |pid: u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let holds =
            |pid: u32, file: &str, what: &str| String::from_utf8_lossy(&bytes(pid, file)).contains(what);
        let control = living.pid();
        assert!(
            holds(control, "environ", "CANARY-VARIABLE") && holds(control, "cmdline", "CANARY-ARGUMENT"),
            "control: bastle itself was started with both"
        );
        let mut found = Vec::new();
        for name in std::fs::read_dir("/proc").expect("is there").flatten() {
            let Some(pid) = name
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let comm = String::from_utf8_lossy(&bytes(pid, "comm")).trim().to_owned();
            if descends(pid, control) && ["bastle-spawner", "bastle-init"].contains(&comm.as_str()) {
                assert!(!holds(pid, "environ", "CANARY"), "{comm}");
                assert!(!holds(pid, "cmdline", "CANARY"), "{comm}");
                found.push(comm);
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(
            found,
            ["bastle-init", "bastle-spawner"],
            "control: both were looked at"
        );
        assert!(living.is_alive());
    });
}

/// Whether one process is below another.
fn descends(pid: u32, from: u32) -> bool {
    let parent = |pid: u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent != 0)
    };
    std::iter::successors(parent(pid), |pid| parent(*pid)).any(|above| above == from)
}

#[test]
fn pid_1_cannot_be_inspected_killed_or_crippled() {
    for_each_identity(|lab| {
        let attacks: [&[&str]; 12] = [
            &["read", "/proc/1/environ"],
            &["read", "/proc/1/mem"],
            &["read", "/proc/1/maps"],
            &["stat", "/proc/1/fd/0"],
            &["read", "/proc/1/root/etc/passwd"],
            &["stat", "/proc/1/cwd/."],
            &["overwrite", "/proc/1/mem", "x"],
            &["attach", "1"],
            &["vm-read", "1"],
            &["take-descriptor", "1"],
            &["limit-processor-time", "1"],
            &["read", "/proc/self/environ"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        assert_eq!(seen[..7], all("EACCES", 7), "{output:?}");
        assert_eq!(seen[7..11], all("EPERM", 4), "{output:?}");
        assert_eq!(seen[11], "OK", "control: the process's own");
        let same = lab.fence().sh("grep Uid /proc/1/status");
        assert_eq!(
            same.said(),
            "Uid:\t1000\t1000\t1000\t1000",
            "PID 1 is the fence's own, of the agent's uid: {same:?}"
        );
        // The kernel takes these and drops them.
        let survives = "grep -q '^Seccomp:.*2' /proc/self/status || exit 99; for s in 1 2 3 6 9 11 15 19 20 24 25; do kill -$s 1; done; echo alive";
        let output = lab.fence().sh(survives);
        assert_eq!((output.ended.code, output.said()), (0, "alive"), "{output:?}");
        let child = lab.fence().sh("sleep 30 & kill -9 $!; wait $!; echo $?");
        assert_eq!(child.said(), "137", "control: an own child dies");
    });
}

#[test]
fn descriptors_of_the_caller_are_not_inherited() {
    for_each_identity(|lab| {
        let secret = lab.plant(&lab.outside().join("secret"), "CANARY");
        let fence = lab.fence();
        let mut inner = vec![shown_program(
            &fence.command([text(&lab.attacker()), "descriptors"]),
        )];
        let line = fence.command([text(&lab.attacker()), "descriptors"]);
        inner.extend(
            line.get_args()
                .map(|word| word.to_str().expect("UTF-8").to_owned()),
        );
        let mut shell = lab.command(Path::new("/bin/sh"));
        shell.args([
            "-c",
            "secret=$1; shift; exec 7<\"$secret\" 9<\"$secret\" 3<\"$secret\"; exec \"$@\"",
            "sh",
            text(&secret),
        ]);
        shell.args(&inner);
        let ended = run(&mut shell, b"", Limit::HANG);
        assert_eq!((ended.code, ended.stdout.trim()), (10, "EBADF"), "{ended:?}");
        assert!(!ended.stderr.contains("descriptor "), "{ended:?}");
        let mut control = lab.command(Path::new("/bin/sh"));
        control.args([
            "-c",
            "exec 7<\"$1\" 9<\"$1\"; exec \"$2\" descriptors",
            "sh",
            text(&secret),
            text(&lab.attacker()),
        ]);
        let ended = run(&mut control, b"", Limit::HANG);
        assert!(
            ended.code == 0 && ended.stderr.contains("descriptor 7"),
            "control: without the fence: {ended:?}"
        );
    });
}

fn shown_program(command: &std::process::Command) -> String {
    command.get_program().to_str().expect("UTF-8").to_owned()
}

#[test]
fn variables_of_the_caller_do_not_cross_unless_named() {
    for_each_identity(|lab| {
        let secrets = [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "ANTHROPIC_API_KEY",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "MY_PASSWORD",
            "HTTPS_PROXY",
            "http_proxy",
            "XDG_RUNTIME_DIR",
            "DISPLAY",
            "KUBECONFIG",
        ];
        // They would make the agent's programs, or bastle itself, run code of the caller's choosing.
        let loaders = [
            "BASH_ENV",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "LD_AUDIT",
            "LD_PRELOAD",
            "ENV",
            "PERL5OPT",
            "PROMPT_COMMAND",
        ];
        let mut fence = lab.fence();
        for name in secrets.iter().chain(&loaders) {
            fence = fence.env(name, "CANARY");
        }
        let output = fence
            .env("LANG", "C.UTF-8")
            .env("BASTLE_TEST_VALUE", "CANARY")
            .sh("env; tr '\\0' '\\n' < /proc/self/environ");
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(!output.ended.stdout.contains("CANARY"), "{output:?}");
        let allowed = [
            "AGENT_IN_SANDBOX",
            "BASTLE_SESSION",
            "HOME",
            "LANG",
            "LOGNAME",
            "PATH",
            "PWD",
            "OLDPWD",
            "SHELL",
            "SHLVL",
            "TMPDIR",
            "USER",
            "_",
            "TERM",
        ];
        // The way to egress, by bastle's own values: the caller's proxies have been looked for above.
        let egress = [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "NODE_USE_ENV_PROXY",
            "JAVA_TOOL_OPTIONS",
        ];
        for line in output.ended.stdout.lines() {
            let name = line.split('=').next().unwrap_or_default();
            assert!(
                allowed.contains(&name) || egress.contains(&name.to_ascii_uppercase().as_str()),
                "{name} is not one of ours"
            );
        }
        let named = lab
            .fence()
            .env("WANTED", "VALUE")
            .flags(["--env", "WANTED"])
            .sh("echo $WANTED");
        assert_eq!(named.said(), "VALUE", "control: a named variable crosses");
        let loader = lab
            .fence()
            .env("LD_PRELOAD", "/x")
            .flags(["--env", "LD_PRELOAD"])
            .sh("true");
        assert_eq!(loader.ended.code, 125, "not even when named: {loader:?}");
    });
}

#[test]
fn a_fence_inside_the_fence_is_refused_cleanly() {
    for_each_identity(|lab| {
        let copy = lab.tools().join("bastle");
        std::fs::copy(crate::support::bastle(), &copy).expect("can be copied");
        let inner = text(&copy).to_owned();
        let output = lab
            .fence()
            .run([inner.as_str(), "run", "--", "sh", "-c", "echo nested"]);
        assert_eq!(output.ended.code, 125, "{output:?}");
        assert!(
            output.ended.stderr.contains("BST-FENCE-006") && !output.ended.stdout.contains("nested"),
            "{output:?}"
        );
        // Without the guard variable the filter refuses a call that it needs.
        let output = lab.fence().run([
            "env",
            "-u",
            "AGENT_IN_SANDBOX",
            &inner,
            "run",
            "--",
            "sh",
            "-c",
            "echo nested",
        ]);
        assert_eq!(output.ended.code, 125, "{output:?}");
        assert!(
            output.ended.stderr.contains("does not run inside a sandbox")
                && !output.ended.stdout.contains("nested"),
            "{output:?}"
        );
        let unshare = lab
            .fence()
            .flags(["--approve"])
            .run(["unshare", "--user", "--mount", "true"]);
        assert_eq!(unshare.ended.code, 1, "{unshare:?}");
        assert!(
            unshare.ended.stderr.contains("Operation not permitted"),
            "{unshare:?}"
        );
        assert_eq!(
            lab.fence().run([inner.as_str(), "version"]).ended.code,
            0,
            "control: the program itself runs inside"
        );
    });
}
