//! A daemon of an ordinary user, grants to a run of a daemon, and a daemon that cannot record.
use crate::admission::ordinary;
use crate::client::{launched, refusal, showing, wish};
use crate::daemon::{Place, usual};
use crate::support::{Background, Lab, Limit, bastle, run};
use bastle_contract::{Access, Code};
use std::path::Path;
use std::process::Command;

#[test]
fn an_ordinary_users_daemon_serves_that_user_only() {
    let Some(lab) = ordinary("an_ordinary_users_daemon") else {
        return;
    };
    let place = Place::new();
    std::fs::create_dir(place.path("run")).unwrap();
    lab.hand_over(&place.path("run"));
    let mut command = lab.command(bastle());
    command.arg("spawner").arg("--socket").arg(place.socket());
    let mut daemon = place.start_by(command);
    assert_eq!(refusal(&place.socket(), 60_099), Some(Code::SpawnCaller));
    assert_eq!(
        refusal(&place.socket(), 0),
        Some(Code::SpawnCaller),
        "not even root"
    );
    let output = lab
        .fence()
        .env("BASTLE_SPAWNER", place.socket().to_str().unwrap())
        .flags(["--net", "none", "--workspace", "in-place"])
        .sh("cat /proc/self/uid_map; echo made > made");
    assert_eq!(output.ended.code, 0, "{output:?} {}", place.said());
    let outside = output.said().split_whitespace().nth(1).unwrap();
    assert_eq!(
        outside,
        lab.identity.uid().to_string(),
        "it has no other uid to give"
    );
    assert!(lab.workspace().join("made").exists());
    assert!(daemon.is_alive());
}

/// A run that does what it reads from a file, once.
fn agent(lab: &Lab, place: &Place) -> (Background, String) {
    let fence = lab
        .fence()
        .env("BASTLE_SPAWNER", place.socket().to_str().unwrap())
        .flags(["--net", "none", "--workspace", "in-place", "--quiet"]);
    let name = fence.name().to_owned();
    let script = lab.project(
        "agent.sh",
        "echo alive\nwhile [ ! -e go ]; do sleep 0.1; done\n. ./go\necho over\n",
    );
    let background = Background::start(&mut fence.command(["sh", script.to_str().unwrap()]));
    assert_eq!(background.line(), "alive");
    (background, name)
}

fn grant(lab: &Lab, name: &str, path: &Path) -> (i32, String) {
    let mut command = lab.command(bastle());
    command.args(["grant", name, "--ro"]).arg(path);
    let ended = run(&mut command, b"", Limit::HANG);
    (ended.code, format!("{}{}", ended.stdout, ended.stderr))
}

#[test]
fn a_path_outside_the_ceiling_is_not_granted_to_a_living_run_and_one_below_it_is() {
    let Some(lab) = ordinary("a_path_outside_the_ceiling_is_not_granted") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let _daemon = place.start(1);
    let data = lab.plant(&lab.home().join("data/f"), "granted");
    let other = lab.plant(&lab.outside().join("data/f"), "not granted");
    let (mut agent, name) = agent(&lab, &place);
    let (code, said) = grant(&lab, &name, other.parent().unwrap());
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("BST-SPAWN-004"), "{said}");
    let (code, said) = grant(&lab, &name, data.parent().unwrap());
    assert_eq!(code, 0, "{said}");
    let go = format!(
        "cat /grants{}\necho\n[ -e /grants{} ] && echo OUTSIDE\necho end\n",
        data.display(),
        other.display()
    );
    lab.project("half", &go);
    std::fs::rename(lab.workspace().join("half"), lab.workspace().join("go")).unwrap();
    assert_eq!(agent.line(), "granted");
    assert_eq!(agent.line(), "end");
    assert_eq!(agent.line(), "over");
    assert_eq!(agent.end(Limit::HANG), Some(0));
}

/// A file system of a few pages, taken away again.
struct Tiny<'a>(&'a Path);

impl Drop for Tiny<'_> {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{} stays mounted",
            self.0.display()
        );
    }
}

#[test]
fn nothing_is_started_when_it_cannot_be_recorded() {
    let Some(lab) = ordinary("nothing_is_started_when_it_cannot_be_recorded") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let state = place.state();
    std::fs::create_dir(&state).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
        .arg(&state)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        crate::support::skip("nothing_is_started_when_it_cannot_be_recorded", "needs mount");
        return;
    }
    let _tiny = Tiny(&state);
    let daemon = place.start(0);
    let plan = showing(&lab.workspace(), Access::ReadOnly);
    let start = || {
        let connection = crate::client::connect_as(&place.socket(), lab.identity.uid()).unwrap();
        wish(&connection).and_then(|_| launched(&connection, &plan))
    };
    assert_eq!(start(), Ok(()), "control");
    assert!(daemon.has(0));
    // Full to the last byte.
    let mut full = std::fs::File::create(state.join("full")).unwrap();
    while std::io::Write::write(&mut full, &[0; 512]).is_ok_and(|written| written > 0) {}
    let (mut refused, mut served) = (None, 1);
    // What fits into the page that is open already still fits.
    for _ in 0..50 {
        refused = start().err().map(|fault| fault.code);
        match refused {
            Some(Code::AuditWrite) => break,
            Some(_) => {}
            None => served += 1,
        }
    }
    assert_eq!(refused, Some(Code::AuditWrite));
    let recorded: usize = std::fs::read_dir(state.join("audit"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("log.jsonl"))
        .filter_map(|log| std::fs::read_to_string(log).ok())
        .map(|text| text.matches(r#"\"verdict\":\"accepted\""#).count())
        .sum();
    assert!(
        served <= recorded,
        "{served} were served, {recorded} are on record"
    );
    assert!(daemon.has(0), "and nothing is served");
}

#[test]
fn nothing_is_started_when_the_disk_says_that_a_record_is_not_on_it() {
    let Some(lab) = ordinary("nothing_is_started_when_the_disk_says") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    // Writing works all the time, and from the third time on the disk does not confirm.
    let mut command = place.command(0);
    command.env("BASTLE_TEST_SYNC_FAILS", "3");
    let daemon = place.start_by(with_program(&command, crate::support::with_hooks()));
    let plan = showing(&lab.workspace(), Access::ReadOnly);
    let mut served = 0;
    let mut refused = None;
    for _ in 0..10 {
        let connection = crate::client::connect_as(&place.socket(), lab.identity.uid()).unwrap();
        match wish(&connection).and_then(|_| launched(&connection, &plan)) {
            Ok(()) if refused.is_none() => served += 1,
            Ok(()) => panic!("started after the log was lost"),
            Err(fault) => refused = Some(fault.code),
        }
    }
    assert_eq!(refused, Some(Code::AuditWrite), "{}", place.said());
    assert!(
        (1..=2).contains(&served),
        "{served} were served, and at most two records are on the disk"
    );
    assert!(daemon.has(0), "and nothing is served");
}

/// The same command of another program.
pub(crate) fn with_program(command: &Command, program: &Path) -> Command {
    let mut other = Command::new(program);
    other.env_clear().args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            other.env(name, value);
        }
    }
    other
}
