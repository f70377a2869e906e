//! Who chooses a preset: the person, by the command or by name. Never the project.
use crate::installed;
use crate::support::{Limit, for_each_identity, run};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const KEY: &str = "sk-lab-71c9a3e5f7d19f3c1b7e5d2a4860bdfe";

#[test]
fn a_file_of_the_project_gets_nothing_for_being_called_like_an_agent() {
    for_each_identity(|lab| {
        let script = "#!/bin/sh\necho key: ${ANTHROPIC_API_KEY:-none} ${DISABLE_TELEMETRY:-unset}\n";
        let planted = lab.project("bin/claude", script);
        std::fs::set_permissions(&planted, Permissions::from_mode(0o755)).expect("own file");
        let path = format!("{}:/usr/bin:/bin", planted.parent().expect("has one").display());
        for command in ["./bin/claude", "claude"] {
            let fence = lab.fence().env("PATH", &path).env("ANTHROPIC_API_KEY", KEY);
            let output = fence.run([command]);
            assert!(output.ended.stderr.contains("preset: default@1"), "{output:?}");
            assert!(!output.ended.stderr.contains("claude@1"), "{output:?}");
            if command.contains('/') {
                assert_eq!(output.said(), "key: none unset", "{output:?}");
            }
        }
    });
}

#[test]
fn a_project_that_names_an_agents_preset_gets_no_more_by_it() {
    for_each_identity(|lab| {
        lab.project(
            "agent-permissions.json",
            r#"{ "version": 1, "extends": ["preset:claude"] }"#,
        );
        lab.plant("home/.claude/settings.json".as_ref(), "{}");
        let fence = lab.fence().env("ANTHROPIC_API_KEY", KEY);
        let output = fence.run([
            "sh",
            "-c",
            "echo key: ${ANTHROPIC_API_KEY:-none}; ls -d $HOME/.claude 2>&1 | grep -c 'No such'",
        ]);
        assert_eq!(output.said(), "key: none\n1", "{output:?}");
    });
}

#[test]
fn a_person_can_refuse_the_preset_that_a_command_brings() {
    for_each_identity(|lab| {
        let script = "echo key: ${ANTHROPIC_API_KEY:-none}\n";
        let fence = installed(lab, script).env("ANTHROPIC_API_KEY", KEY);
        let tools = lab.home().join("npm");
        let shown = tools.to_str().expect("UTF-8").to_owned();
        let output = fence
            .flags(["--preset", "none", "--ro", &shown])
            .run([format!("{shown}/bin/claude")]);
        assert_eq!(output.said(), "key: none", "{output:?}");
        assert!(output.ended.stderr.contains("preset: default@1"), "{output:?}");
    });
}

#[test]
fn a_run_in_the_background_has_the_preset_of_its_command() {
    for_each_identity(|lab| {
        let fence = installed(lab, "echo key: ${ANTHROPIC_API_KEY:+there}\n").env("ANTHROPIC_API_KEY", KEY);
        let name = fence.name().to_owned();
        let output = fence.flags(["-d"]).run(["claude"]);
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(
            output
                .ended
                .stderr
                .contains("preset: claude@1 (from the command)"),
            "{output:?}"
        );
        let bastle = |words: &[&str]| {
            let mut command = lab.command(crate::support::bastle());
            command.args(words);
            run(&mut command, b"", Limit::HANG)
        };
        let waited = bastle(&["wait", &name]);
        assert_eq!(waited.code, 0, "{waited:?}");
        let logs = bastle(&["logs", &name]);
        assert_eq!(logs.stdout.trim(), "key: there", "{logs:?}");
        let spec = lab
            .home()
            .join(".local/state/bastle/runs")
            .join(&name)
            .join("spec.json");
        let spec = std::fs::read_to_string(spec).expect("the request is kept");
        assert!(spec.contains("claude@1") && !spec.contains(KEY), "{spec}");
    });
}

/// Everything by which a run could have got the agent's preset or key.
fn got_nothing(what: &str, output: &crate::support::Output) {
    let told = format!("{}{}", output.ended.stdout, output.ended.stderr);
    assert!(!told.contains("preset: claude"), "{what}: {output:?}");
    assert!(!told.contains("a placeholder inside"), "{what}: {output:?}");
    assert!(!told.contains("key: bastle"), "{what}: {output:?}");
}

#[test]
fn what_the_project_may_choose_gets_neither_preset_nor_credential_and_it_is_said_why() {
    for_each_identity(|lab| {
        let script = "#!/bin/sh\necho key: ${ANTHROPIC_API_KEY:-none}\n";
        let executable = |name: &str, text: &str| {
            let file = lab.project(name, text);
            std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("own file");
            file
        };
        let shim = executable("node_modules/.bin/claude", script);
        executable("bin/env", "#!/bin/sh\nexec ./node_modules/.bin/claude\n");
        executable("bin/sh2", script);
        // A program outside whose interpreter is the project's.
        let scripted = lab.plant(
            "home/tools/claude".as_ref(),
            &format!("#!{}\n", lab.workspace().join("bin/sh2").display()),
        );
        std::fs::set_permissions(&scripted, Permissions::from_mode(0o755)).expect("own file");
        // A link outside that leads into the project.
        let link = lab
            .plant("home/links/.keep".as_ref(), "")
            .with_file_name("claude");
        std::os::unix::fs::symlink(&shim, &link).expect("a fresh link");
        let bin = shim.parent().expect("has one").display().to_string();
        let commands: Vec<Vec<String>> = [
            "npx claude",
            "npx -y @anthropic-ai/claude-code",
            "bunx claude",
            "uvx claude",
            "pnpm dlx claude",
            "yarn dlx claude",
            "npm exec claude",
            "nice claude",
            "env -S claude",
            "./bin/env claude",
            "./node_modules/.bin/claude",
        ]
        .into_iter()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .chain([
            vec![
                "env".to_owned(),
                format!("PATH={bin}:/usr/bin:/bin"),
                "claude".to_owned(),
            ],
            vec!["sh".to_owned(), "-c".to_owned(), "claude -p x".to_owned()],
            vec![scripted.display().to_string()],
            vec![link.display().to_string()],
        ])
        .collect();
        for command in commands {
            let fence =
                installed(lab, "echo key: ${ANTHROPIC_API_KEY:-none}\n").env("ANTHROPIC_API_KEY", KEY);
            let output = fence.run(&command);
            let what = command.join(" ");
            got_nothing(&what, &output);
            assert!(
                output
                    .ended
                    .stderr
                    .contains("the preset claude and its credential are not used:"),
                "{what}: {output:?}"
            );
            // Not even where the person names the preset.
            let fence = installed(lab, "").env("ANTHROPIC_API_KEY", KEY);
            let output = fence.flags(["--preset", "claude"]).run(&command);
            assert!(
                !output.ended.stderr.contains("a placeholder inside"),
                "{what}: {output:?}"
            );
            assert!(
                output.ended.stderr.contains("no credential of"),
                "{what}: {output:?}"
            );
        }
        // The program itself, outside the project, gets both.
        for command in [&["claude"][..], &["env", "TERM=dumb", "claude"]] {
            let fence =
                installed(lab, "echo key: ${ANTHROPIC_API_KEY:+there}\n").env("ANTHROPIC_API_KEY", KEY);
            let output = fence.run(command);
            assert_eq!(output.said(), "key: there", "{output:?}");
            assert!(output.ended.stderr.contains("claude@1"), "{output:?}");
        }
    });
}
