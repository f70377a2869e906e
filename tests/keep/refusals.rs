//! What is refused, and what never comes to be: taken names, changed requests, a state that cannot be written, and an
//! agent that looks for the files that it is kept in.
use crate::kept::{Kept, fresh, verb};
use crate::support::{Ended, Identity, Lab, Limit, bastle, for_each_identity, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn follows(name: &str, value: &Value) {
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).expect("the schema is there");
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?} in {value}");
}

#[test]
fn a_command_that_is_not_there_is_told_at_once_with_the_code_of_a_shell() {
    for_each_identity(|lab| {
        std::fs::write(lab.workspace().join("plain"), "#!/nonexistent/interpreter\n")
            .expect("can be written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(lab.workspace().join("plain"), mode).expect("own file");
        for (program, code, words) in [
            ("nonesuch-command", 127, "not found inside the fence"),
            ("./plain", 126, "plain"),
        ] {
            let kept = Kept { lab, name: fresh() };
            let told = verb(
                lab,
                &[
                    "run",
                    "-d",
                    "--net",
                    "none",
                    "--workspace",
                    "in-place",
                    "--name",
                    &kept.name,
                    "--",
                    program,
                ],
            );
            assert_eq!(told.code, code, "{told:?}");
            assert!(told.stdout.is_empty() && told.stderr.contains(words), "{told:?}");
            assert_eq!(kept.file()["state"], "failed", "its record stays");
        }
        // One that is there and ends at once is a run like any other.
        let (kept, ended) = Kept::attempt(lab, &["--net", "none"], "exit 127\n");
        assert_eq!(
            (ended.code, ended.stdout.trim()),
            (0, kept.name.as_str()),
            "{ended:?}"
        );
        assert_eq!(kept.wait(), 127);
    });
}

#[test]
fn a_name_that_is_taken_and_flags_that_cannot_travel_are_refused_and_nothing_runs() {
    for_each_identity(|lab| {
        let kept = Kept::start(lab, &["--net", "none"], "sleep 600\n");
        let again = verb(lab, &["run", "-d", "--name", &kept.name, "--", "touch", "second"]);
        assert_eq!(again.code, 125, "{again:?}");
        assert!(again.stderr.contains("is taken"), "{again:?}");
        assert_eq!(kept.file()["state"], "running");
        for flags in [
            &["--learn"][..],
            &["--fail-on-deny"],
            &["--backend", "host", "--i-understand-this-is-not-a-fence"],
            &["--preset", "nonesuch"],
            &["--waive", "nonesuch"],
            &["--tag", "Bad Key=x"],
            &["--tag", "novalue"],
            &["--ro", "/nonexistent/path"],
            &["--workspace", "nonesuch"],
            &["--policy", "/nonexistent/policy.json"],
            &["--workspace-dir", "/etc"],
        ] {
            let (refused, ended) = Kept::attempt(lab, flags, "touch second\n");
            assert_eq!(ended.code, 125, "{flags:?}: {ended:?}");
            assert!(
                ended.stdout.is_empty() && ended.stderr.contains("error["),
                "{flags:?}: {ended:?}"
            );
            assert!(!refused.directory().exists(), "{flags:?} left something behind");
        }
        // Only with -d.
        assert_eq!(
            verb(lab, &["run", "--tag", "a=b", "--", "touch", "second"]).code,
            125
        );
        assert!(!lab.workspace().join("second").exists());
    });
}

#[test]
fn what_the_flags_say_holds_in_the_background_too() {
    for_each_identity(|lab| {
        let secret = lab.project("hidden.txt", "secret");
        let outside = lab.plant(&lab.outside().join("granted"), "granted\n");
        let outside = outside.display().to_string();
        let hidden = secret.display().to_string();
        let kept = Kept::start(
            lab,
            &[
                "--net",
                "none",
                "--ro",
                &outside,
                "--hide",
                &hidden,
                "-e",
                "WORD=passed on",
                "--pids",
                "64",
            ],
            &format!(
                "echo \"$WORD\"; cat {outside}; cat {hidden}; pwd; ls {}\n",
                lab.home().display()
            ),
        );
        assert_ne!(kept.wait(), 125);
        let logs = kept.say(&["logs"]);
        assert!(logs.stdout.starts_with("passed on\ngranted\n"), "{logs:?}");
        assert!(
            logs.stdout.contains(&format!("{}\n", lab.workspace().display())),
            "{logs:?}"
        );
        assert!(!logs.stdout.contains("secret"), "{logs:?}");
        let inspected = kept.say(&["inspect", "--json"]).stdout;
        assert!(
            !inspected.contains("passed on"),
            "the value of a variable is shown: {inspected}"
        );
    });
}

/// A request as it lies on disk.
fn plant(lab: &Lab, name: &str, spec: &str) -> PathBuf {
    let dir = lab.home().join(".local/state/bastle/runs").join(name);
    let file = json!({"name": name, "state": "queued", "created_ms": 1, "usage": {
        "wall_ms": 0, "cpu_ms": 0, "peak_memory": 0, "bytes_written": 0, "created": 0, "files": 0 }});
    lab.plant(&dir.join("run.json"), &file.to_string());
    lab.plant(&dir.join("spec.json"), spec);
    dir
}

/// What its keeper makes of it.
fn keep(lab: &Lab, dir: &Path, name: &str) -> (Ended, Value) {
    let mut command = lab.command(bastle());
    command
        .arg("__keep")
        .arg(lab.home().join(".local/state/bastle"))
        .arg(name);
    let ended = run(&mut command, b"", Limit::HANG);
    let file = std::fs::read_to_string(dir.join("run.json")).expect("is there");
    (ended, serde_json::from_str(&file).expect("is JSON"))
}

#[test]
fn a_request_with_an_unknown_field_another_name_or_too_many_bytes_is_refused_and_told() {
    for_each_identity(|lab| {
        let good = |name: &str| json!({"name": name, "argv": ["touch", "ran"], "workspace": lab.workspace(), "net": "none"});
        let changed = |name: &str, key: &str, value: Value| {
            let mut spec = good(name);
            spec[key] = value;
            spec.to_string()
        };
        let name = fresh();
        let cases = [
            changed(&name, "sudo", json!(true)),
            changed(&name, "name", json!("somebody-else")),
            changed(&name, "argv", json!([])),
            changed(&name, "net", json!("everything")),
            changed(&name, "waive", json!(["nothing"])),
            changed(&name, "mode", json!("nonesuch")),
            changed(&name, "cwd", json!("/etc")),
            changed(&name, "workspace", json!("/")),
            changed(&name, "policy", json!({"version": 1, "nonesuch": 1})),
            changed(&name, "env", json!([["LD_PRELOAD", "x"]])),
            changed(&name, "input", json!("x".repeat(2 << 20))),
            "{".to_owned(),
        ];
        for spec in cases {
            let (ended, file) = keep(lab, &plant(lab, &name, &spec), &name);
            let short: String = spec.chars().take(200).collect();
            assert_eq!(ended.code, 125, "{short}: {ended:?}");
            assert_eq!(file["state"], "refused", "{short}: {file}");
            assert!(file["fault"]["what"].is_string(), "{short}: {file}");
            std::fs::remove_dir_all(lab.home().join(".local/state/bastle/runs").join(&name))
                .expect("own files");
        }
        assert!(
            !lab.workspace().join("ran").exists(),
            "a changed request was carried out"
        );
        let (ended, file) = keep(lab, &plant(lab, &name, &good(&name).to_string()), &name);
        assert_eq!(
            (ended.code, file["state"].as_str()),
            (0, Some("completed")),
            "control: {file}"
        );
        assert!(lab.workspace().join("ran").exists(), "control");
    });
}

#[test]
fn a_state_directory_that_cannot_be_written_refuses_before_anything_runs() {
    for_each_identity(|lab| {
        let file = lab.plant(&lab.outside().join("state"), "a file");
        let mut command = lab.command(bastle());
        command.env("XDG_STATE_HOME", &file);
        command.args(["run", "-d", "--net", "none", "--", "touch", "ran"]);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 125, "{ended:?}");
        assert!(ended.stderr.contains("error["), "{ended:?}");
        assert!(!lab.workspace().join("ran").exists());
    });
}

/// A full file system of its own, taken down when dropped.
struct Full(std::path::PathBuf);

impl Full {
    fn at(place: &std::path::Path, size: &str) -> Self {
        std::fs::create_dir_all(place).expect("can be made");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "bastle-test"])
            .arg(place)
            .status()
            .expect("can be started");
        assert!(mounted.success(), "root can mount");
        Self(place.to_path_buf())
    }

    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("filler")).expect("there is room for a name");
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let done = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_refuses_a_run_before_it_begins_and_ends_one_whose_output_it_cannot_keep() {
    for_each_identity(|lab| {
        if lab.identity != Identity::Root {
            return;
        }
        let place = lab.outside().join("small");
        let disk = Full::at(&place, "size=4m");
        let say = |words: &[&str]| {
            let mut command = lab.command(bastle());
            command.env("XDG_STATE_HOME", &place).args(words);
            run(&mut command, b"", Limit::HANG)
        };
        // Not before its start was told: a keeper that can write nothing more is lost then.
        let script = "until test -e go; do sleep 0.05; done; head -c 20000000 /dev/zero";
        lab.project("fills.sh", script);
        // With a reserve the run would be paused before the file system is full.
        let rules = lab.outside().join("no-reserve.json");
        std::fs::write(&rules, r#"{"version":1,"limits":{"diskReserve":"0"}}"#).expect("can be written");
        let name = fresh();
        let started = say(&[
            "run",
            "-d",
            "--name",
            &name,
            "--net",
            "none",
            "--policy",
            rules.to_str().expect("UTF-8"),
            "--",
            "sh",
            "fills.sh",
        ]);
        assert_eq!(started.code, 0, "{started:?}");
        lab.project("go", "");
        let waited = say(&["wait", &name]);
        assert_ne!(waited.code, 0, "{waited:?}");
        let listed = say(&["ps", "-a"]);
        assert!(listed.stdout.contains("failed"), "{listed:?}");
        disk.fill();
        let refused = say(&["run", "-d", "--net", "none", "--", "touch", "ran"]);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("error["), "{refused:?}");
        assert!(!lab.workspace().join("ran").exists());
        std::fs::remove_file(place.join("filler")).expect("is there");
        let listed = say(&["ps", "-a"]);
        assert_eq!(
            listed.stdout.matches("failed").count(),
            1,
            "only the first was ever there: {listed:?}"
        );
    });
}

#[test]
fn a_run_that_waits_for_its_turn_is_cancelled_without_a_keeper_and_never_begins() {
    for_each_identity(|lab| {
        let name = fresh();
        let spec =
            json!({"name": name, "argv": ["touch", "ran"], "workspace": lab.workspace(), "net": "none"});
        let dir = plant(lab, &name, &spec.to_string());
        let stopped = verb(lab, &["stop", &name]);
        assert_eq!(stopped.code, 0, "{stopped:?}");
        let (ended, file) = keep(lab, &dir, &name);
        assert_ne!(ended.code, 0);
        assert_eq!(file["state"], "cancelled", "{file}");
        assert!(!lab.workspace().join("ran").exists());
    });
}

#[test]
fn the_agent_finds_neither_the_files_it_is_kept_in_nor_the_socket_of_its_keeper() {
    for_each_identity(|lab| {
        let state = lab.home().join(".local/state/bastle");
        let name = fresh();
        let socket = state.join("live").join(format!("{name}.sock"));
        let run = state.join("runs").join(&name);
        let attacks = format!(
            "import os, socket\n\
             def tried(f):\n    try:\n        f(); return 'OK'\n    except OSError as e:\n        return e.strerror\n\
             print('list', tried(lambda: os.listdir({run:?})))\n\
             print('read', tried(lambda: open({run:?} + '/spec.json').read()))\n\
             print('write', tried(lambda: open({run:?} + '/stop', 'w')))\n\
             s = socket.socket(socket.AF_UNIX)\n\
             print('connect', tried(lambda: s.connect({socket:?})))\n\
             print('own', tried(lambda: open('mine', 'w')))\n"
        );
        let program = lab.tools().join(format!("{name}.py"));
        std::fs::write(&program, attacks).expect("can be written");
        let tools = lab.tools().display().to_string();
        let program = program.display().to_string();
        let started = verb(
            lab,
            &[
                "run", "-d", "--name", &name, "--net", "none", "--ro", &tools, "--", "python3", "-B",
                &program,
            ],
        );
        let kept = Kept {
            lab,
            name: name.clone(),
        };
        assert_eq!(started.code, 0, "{started:?}");
        assert_eq!(kept.wait(), 0, "{:?}", kept.say(&["logs"]));
        let logs = kept.say(&["logs"]).stdout;
        let results: Vec<&str> = logs.lines().collect();
        let [list, read, write, connect, own] = results.as_slice() else {
            panic!("{logs}");
        };
        for denied in [list, read, write, connect] {
            assert!(!denied.ends_with("OK"), "{logs}");
        }
        assert_eq!(*own, "own OK", "control");
        assert!(
            run.join("spec.json").is_file() && !run.join("stop").exists(),
            "control"
        );
    });
}

#[test]
fn what_is_printed_for_programs_follows_its_schema() {
    for_each_identity(|lab| {
        let (kept, started) = Kept::attempt(lab, &["--json", "--tag", "a=b"], "echo up; sleep 600\n");
        let json = |ended: &Ended| {
            serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
        };
        follows("started", &json(&started));
        let ps = json(&verb(lab, &["ps", "--json"]));
        follows("ps", &ps);
        assert_eq!(ps["runs"][0]["state"], "running");
        follows("inspect", &json(&kept.say(&["inspect", "--json"])));
        follows("paused", &json(&kept.say(&["pause", "--json"])));
        follows("paused", &json(&kept.say(&["resume", "--json"])));
        follows("ended", &json(&kept.say(&["stop", "--json", "--grace", "100ms"])));
        follows("wait", &json(&kept.say(&["wait", "--json"])));
        follows("inspect", &json(&kept.say(&["inspect", "--json"])));
        let all = json(&verb(lab, &["ps", "-a", "--json"]));
        follows("ps", &all);
        assert_eq!(all["runs"][0]["tags"]["a"], "b");
        for words in [
            &["logs", "nobody"][..],
            &["wait", "nobody"],
            &["attach", "nobody"],
            &["stop", "nobody"],
            &["inspect", "nobody"],
        ] {
            let missing = verb(lab, words);
            assert_eq!(missing.code, 3, "{words:?}: {missing:?}");
        }
    });
}
