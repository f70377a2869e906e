//! `exec.allow` inside: no program outside the list executes, whoever starts it and by whatever way.
use crate::support::{Lab, Output, for_each_identity, text};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn policy(lab: &Lab, allow: &[&str]) -> String {
    let document = serde_json::json!({ "version": 1, "exec": { "allow": allow } });
    text(&lab.plant(&lab.outside().join("policy.json"), &document.to_string())).to_owned()
}

/// The dynamic loader of the host's programs: the `PT_INTERP` of `ls`, as `ldd` would print it.
fn loader() -> String {
    let bytes = std::fs::read("/bin/ls").expect("every host has it");
    let at = bytes
        .windows(4)
        .position(|window| window == b"/lib")
        .expect("is dynamic");
    let end = bytes[at..].iter().position(|byte| *byte == 0).expect("ends");
    String::from_utf8(bytes[at..at + end].to_vec()).expect("UTF-8")
}

fn in_path(name: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists())
}

fn refused(output: &Output, program: &str) -> bool {
    let real = std::fs::canonicalize(program).expect("is there");
    output
        .denials(text(&real))
        .iter()
        .any(|denial| denial["kind"] == "exec" && denial["errno"] == "EACCES")
}

#[test]
fn acceptance_4_a_program_outside_the_allow_list_does_not_execute_also_not_as_a_child() {
    for_each_identity(|lab| {
        let script = "whoami; id; docker --version; /usr/bin/id; env id; echo end";
        lab.project("agent.sh", script);
        let rules = policy(lab, &["ls", "git status", "sh agent.sh"]);
        let fence = || lab.fence().flags(["--policy", &rules]);
        let output = fence().run(["sh", "agent.sh"]);
        assert_eq!((output.ended.code, output.said()), (0, "end"), "{output:?}");
        assert!(refused(&output, "/usr/bin/whoami"), "{output:?}");
        assert!(refused(&output, "/usr/bin/id"), "{output:?}");
        let control = lab.fence().run(["sh", "agent.sh"]);
        assert!(
            control.said().contains("uid="),
            "control: without the list: {control:?}"
        );
        lab.project("agent.sh", "ls agent.sh");
        let allowed = fence().run(["sh", "agent.sh"]);
        assert_eq!(
            (allowed.ended.code, allowed.said()),
            (0, "agent.sh"),
            "{allowed:?}"
        );
        let direct = fence().run(["ls"]);
        assert_eq!((direct.ended.code, direct.said()), (0, "agent.sh"), "{direct:?}");
        let line = fence().run(["id"]);
        assert_eq!(
            line.ended.code, 125,
            "the launch line is judged as ever: {line:?}"
        );
        assert!(line.ended.stderr.contains("BST-EXEC-00"), "{line:?}");
    });
}

#[test]
fn acceptance_4_an_interpreter_on_the_list_cannot_start_what_is_not() {
    if in_path("node").is_none() {
        crate::support::skip(
            "an_interpreter_on_the_list_cannot_start_what_is_not",
            "there is no node",
        );
        return;
    }
    for_each_identity(|lab| {
        let script = "const { spawnSync } = require('child_process');
for (const line of [['whoami'], ['id'], ['docker', '--version'], ['ls', 'agent.js']]) {
  const done = spawnSync(line[0], line.slice(1));
  console.log(line[0], done.error ? done.error.code : done.status);
}
console.log('sh', (spawnSync('id; ls', { shell: true }).error || {}).code);";
        lab.project("agent.js", script);
        let rules = policy(lab, &["ls", "git status", "node agent.js"]);
        let output = lab.fence().flags(["--policy", &rules]).run(["node", "agent.js"]);
        let docker = if in_path("docker").is_some() {
            "EACCES"
        } else {
            "ENOENT"
        };
        let expected = format!("whoami EACCES\nid EACCES\ndocker {docker}\nls 0\nsh EACCES");
        assert_eq!(
            (output.ended.code, output.said()),
            (0, expected.as_str()),
            "{output:?}"
        );
        let control = lab.fence().run(["node", "agent.js"]);
        assert!(
            control.said().starts_with("whoami 0\nid 0\n"),
            "control: without the list: {control:?}"
        );
    });
}

#[test]
fn no_other_way_to_start_a_program_leads_past_the_list() {
    for_each_identity(|lab| {
        let id = "/usr/bin/id";
        let (loader, attacker) = (loader(), lab.attacker());
        let attacker = text(&attacker);
        lab.project("script", "#!/usr/bin/echo\n");
        lab.project("listed-script", "#!/bin/sh\nexit 0\n");
        for name in ["script", "listed-script"] {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(lab.workspace().join(name), mode).expect("own file");
        }
        std::os::unix::fs::symlink(id, lab.workspace().join("link")).expect("own directory");
        let attacks: [&[&str]; 14] = [
            &["execute", id],
            &["execute", "./link"],
            &["execute", "./script"],
            &["execute", "/proc/self/root/usr/bin/id"],
            &["execute-as", id, "ls"],
            &["execute-with-loader", &loader, id],
            &["execute", "/bin/sh"],
            &["execute-descriptor", id],
            &["execute-proc-fd", id],
            &["execute-memory", id, "0"],
            &["execute-memory", id, "0x10"],
            &["execute-copy", id, "./copy"],
            &["execute-copy", id, "/tmp/copy"],
            &["execute-copy", id, "/dev/shm/copy"],
        ];
        let unfenced = lab.fence().attack(&attacks).0;
        // A shell without input and a loader with a program end well, as everything else.
        assert_eq!(unfenced, vec!["OK"; attacks.len()], "control: without the list");
        let allow = format!("{attacker} *");
        let rules = policy(lab, &[&allow, "ls", "./listed-script"]);
        let fence = || lab.fence().flags(["--policy", &rules]);
        let (seen, output) = fence().attack(&attacks);
        let mut expected = vec!["EACCES"; attacks.len()];
        // Memory files that could be executed are not even made.
        (expected[9], expected[10]) = ("ENOSYS", "ENOSYS");
        assert_eq!(seen, expected, "{output:?}");
        let controls: [&[&str]; 6] = [
            &["execute", "/bin/ls"],
            &["execute-as", "/bin/ls", "anything"],
            &["execute-descriptor", "/bin/ls"],
            &["execute-proc-fd", "/usr/bin/ls"],
            &["execute", "./listed-script"],
            &["execute", "/proc/self/exe"],
        ];
        let (seen, output) = fence().attack(&controls);
        // The attacker without words exits with 20, which is how it shows that it ran.
        assert_eq!(seen[..5], ["OK"; 5], "{output:?}");
        assert_eq!(seen[5], "ENOTDIR", "{output:?}");
    });
}

#[test]
fn a_listed_program_of_the_workspace_cannot_be_changed_into_another() {
    for_each_identity(|lab| {
        let tool = lab.project("tool", "#!/bin/sh\necho the listed one\n");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("own file");
        lab.project(
            "agent.sh",
            "echo '#!/usr/bin/id' > tool; mv tool other; cp agent.sh tool; ln -f agent.sh tool; ./tool; echo x > new && ls new",
        );
        let rules = policy(lab, &["sh agent.sh", "./tool", "ls *", "mv *", "cp *", "ln *"]);
        let output = lab.fence().flags(["--policy", &rules]).run(["sh", "agent.sh"]);
        assert_eq!(output.said(), "the listed one\nnew", "{output:?}");
        let control = lab.fence().run(["sh", "agent.sh"]);
        assert_ne!(control.said(), "the listed one\nnew", "control: {control:?}");
    });
}

#[test]
fn a_program_that_may_execute_is_not_written_under_any_of_its_names_nor_is_its_interpreter() {
    for_each_identity(|lab| {
        let executable = |name: &str, text: &str| {
            let path = lab.project(name, text);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("own file");
            path
        };
        let tool = executable("tool", "#!/bin/sh\necho the listed one\n");
        std::fs::hard_link(&tool, lab.workspace().join("alias")).expect("same file system");
        let interpreter = executable("interpreter", "");
        std::fs::copy("/bin/sh", &interpreter).expect("own file");
        executable(
            "listed-script",
            &format!("#!{}\necho the listed script\n", interpreter.display()),
        );
        lab.project(
            "agent.sh",
            "cp /usr/bin/id alias; ./tool; cp /usr/bin/id interpreter; truncate -s 1 interpreter; ./listed-script; echo x > new && ls new",
        );
        let rules = policy(
            lab,
            &[
                "sh agent.sh",
                "./tool",
                "./listed-script",
                "ls *",
                "cp *",
                "truncate *",
            ],
        );
        let output = lab.fence().flags(["--policy", &rules]).run(["sh", "agent.sh"]);
        assert_eq!(
            output.said(),
            "the listed one\nthe listed script\nnew",
            "{output:?}"
        );
        let told = output.events("denied");
        let told = told.iter().filter(|event| event["kind"] == "protected").count();
        assert!(told >= 2, "{output:?}");
        let control = lab.fence().run(["sh", "agent.sh"]);
        assert!(control.said().contains("uid="), "control: {control:?}");
    });
}

#[test]
fn a_project_does_not_choose_what_a_bare_name_of_the_list_means() {
    for_each_identity(|lab| {
        let own = lab.project("bin/listed-name", "");
        std::fs::copy("/usr/bin/id", &own).expect("own file");
        std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755)).expect("own file");
        lab.project(
            "agent-permissions.json",
            r#"{ "version": 1, "fs": { "read": ["."], "write": ["./bin", "."] } }"#,
        );
        lab.project("agent.sh", "./bin/listed-name; echo end");
        let home = lab.workspace().parent().expect("below the lab").to_owned();
        let run = |allow: &[&str]| {
            let rules = policy(lab, allow);
            let state = lab.home().join(".local/state");
            let fence = lab.fence().env("HOME", text(&home));
            let fence = fence.env("XDG_STATE_HOME", text(&state));
            fence.flags(["--policy", &rules]).run(["sh", "agent.sh"])
        };
        let output = run(&["sh agent.sh", "listed-name *"]);
        assert_eq!(output.said(), "end", "{output:?}");
        let named = run(&["sh agent.sh", "./bin/listed-name"]);
        assert!(
            named.said().contains("uid="),
            "control: named by its path: {named:?}"
        );
    });
}

#[test]
fn a_further_command_is_held_to_the_list_too() {
    for_each_identity(|lab| {
        lab.project("agent.sh", "sleep 300");
        let rules = policy(lab, &["sh agent.sh", "ls", "sleep 300"]);
        let fence = lab.fence().flags(["--policy", &rules, "-d"]);
        let name = fence.name().to_owned();
        let started = fence.run(["sh", "agent.sh"]);
        assert_eq!(started.ended.code, 0, "{started:?}");
        let exec = |program: &str| {
            let mut command = lab.command(crate::support::bastle());
            command.args(["exec", &name, "--", program]);
            crate::support::run(&mut command, b"", crate::support::Limit::HANG)
        };
        let (denied, allowed) = (exec("id"), exec("ls"));
        let stopped = crate::support::run(
            lab.command(crate::support::bastle()).args(["stop", &name]),
            b"",
            crate::support::Limit::HANG,
        );
        assert_eq!(stopped.code, 0, "{stopped:?}");
        assert!(
            denied.code != 0 && denied.stdout.is_empty() && denied.stderr.contains("exec.allow"),
            "{denied:?}"
        );
        assert_eq!(
            (allowed.code, allowed.stdout.trim()),
            (0, "agent.sh"),
            "control: {allowed:?}"
        );
    });
}
