//! Sandboxes that stand before they are asked for: only for the same fence, of the same caller, while the host shows the
//! very same files and the caller may still open them. Everything else is built anew, or refused as ever.
use crate::admission::ordinary;
use crate::client::{connect_as, launched_as, wish};
use crate::daemon::{Daemon, OTHER, Place, usual};
use crate::support::{Fence, Lab, Limit, eventually, with_hooks};
use bastle_contract::{Access, Argv, Code, EnvName, Fault, LaunchPlan, MountKind, RunId};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Requests of a test come faster than a person's.
const FAST: &str = r#", "rate": {"per_second": 1000, "burst": 1000}"#;

/// How a sandbox was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Had {
    /// It stood before it was asked for.
    Standing,
    /// It was made when it was asked for.
    Made,
}

/// A daemon that keeps sandboxes, a user whom it serves, and a plan of that user's.
struct Scene<'a> {
    daemon: Daemon<'a>,
    socket: PathBuf,
    uid: u32,
    plan: LaunchPlan,
}

fn fence<'a>(lab: &'a Lab, place: &Place) -> Fence<'a> {
    lab.fence()
        .env("BASTLE_SPAWNER", place.socket().to_str().unwrap())
        .flags(["--net", "none", "--workspace", "in-place"])
}

/// A directory of the user's, with something in it.
fn directory(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.home().join(name);
    std::fs::create_dir(&path).unwrap();
    lab.plant(&path.join("file"), name);
    lab.hand_over(&path);
    path
}

impl<'a> Scene<'a> {
    /// The plan shows `shown` beside the project.
    fn of(place: &'a Place, lab: &Lab, shown: &Path) -> Self {
        place.ceiling(&usual(lab, FAST));
        let daemon = place.start(2);
        let planned = fence(lab, place)
            .flags(["--ro", shown.to_str().unwrap(), "--dry-run-policy", "--json"])
            .run(["true"]);
        let document: serde_json::Value = serde_json::from_str(&planned.ended.stdout).unwrap();
        let plan = serde_json::from_value(document["plan"].clone()).unwrap();
        Self {
            daemon,
            socket: place.socket(),
            uid: lab.identity.uid(),
            plan,
        }
    }

    /// The sandboxes that stand while no run lives: each has a process already that will be the agent.
    fn standing(&self) -> Vec<u32> {
        let inits = children(self.daemon.pid()).into_iter().flat_map(children);
        inits.filter(|init| !children(*init).is_empty()).collect()
    }

    fn ask(&self, uid: u32, plan: &LaunchPlan) -> Result<Had, Fault> {
        let stood = self.standing();
        let connection = connect_as(&self.socket, uid).expect("can be connected to");
        wish(&connection)?;
        let pid = launched_as(&connection, plan)?;
        drop(connection);
        assert!(self.daemon.has(0));
        let had = if stood.contains(&pid) {
            Had::Standing
        } else {
            Had::Made
        };
        Ok(had)
    }

    fn again(&self) -> Result<Had, Fault> {
        self.ask(self.uid, &self.plan)
    }

    /// Asks until a sandbox stands, at most as often as there are workers to learn the plan.
    fn until_one_stands(&self) {
        for _ in 0..8 {
            self.again().expect("is served");
            if eventually(Limit(Duration::from_secs(2)), || !self.standing().is_empty()) {
                return;
            }
        }
        panic!("no sandbox stands");
    }
}

impl Scene<'_> {
    /// Whether what stands is given to this plan. More than one try: a mount of anybody on the host meanwhile, another
    /// test's say, has it built anew.
    fn is_given(&self, plan: &LaunchPlan) -> bool {
        (0..5).any(|_| {
            self.until_one_stands();
            self.ask(self.uid, plan) == Ok(Had::Standing)
        })
    }
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn what_stands_is_given_to_the_same_fence_of_the_same_caller_and_to_nobody_else() {
    let Some(lab) = ordinary("what_stands_is_given_to_the_same_fence") else {
        return;
    };
    let place = Place::new();
    let scene = Scene::of(&place, &lab, &directory(&lab, "shown"));
    assert!(scene.is_given(&scene.plan), "{}", place.said());
    // Another run, another command, another environment: the fence is the same.
    let mut other = scene.plan.clone();
    other.run = RunId::try_from("another-run".to_owned()).unwrap();
    other.argv = Argv::try_from(vec!["ls".to_owned()]).unwrap();
    other
        .env
        .push((EnvName::try_from("MORE".to_owned()).unwrap(), "1".to_owned()));
    assert!(scene.is_given(&other), "{}", place.said());
    // One rule more or less is another fence.
    let changes: [fn(&mut LaunchPlan); 5] = [
        |plan| {
            let bind = plan
                .mounts
                .iter_mut()
                .rev()
                .find_map(|mount| match &mut mount.kind {
                    MountKind::Bind {
                        access, owned: true, ..
                    } if *access == Access::ReadWrite => Some(access),
                    _ => None,
                });
            *bind.expect("the project") = Access::ReadOnly;
        },
        |plan| plan.landlock.truncate(plan.landlock.len() - 1),
        |plan| plan.debuggers = !plan.debuggers,
        |plan| plan.cwd = bastle_contract::AbsPath::root(),
        |plan| plan.guard.trees.clear(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        scene.until_one_stands();
        let mut other = scene.plan.clone();
        change(&mut other);
        assert_ne!(other, scene.plan, "change {number} changes something");
        assert_eq!(scene.ask(scene.uid, &other), Ok(Had::Made), "change {number}");
    }
    // Root may have everything, and has its own made all the same.
    scene.until_one_stands();
    assert_eq!(scene.ask(0, &scene.plan), Ok(Had::Made));
    // Who may not have it at all is refused as ever.
    let refused = scene.ask(OTHER, &scene.plan).map_err(|fault| fault.code);
    assert_eq!(refused, Err(Code::SpawnPath));
}

#[test]
fn what_stands_is_not_given_when_the_host_shows_another_file_or_the_caller_lost_its_right() {
    let Some(lab) = ordinary("what_stands_is_not_given_when_the_host_shows_another_file") else {
        return;
    };
    let place = Place::new();
    let shown = directory(&lab, "shown");
    let secret = lab.project(".env", "old");
    let scene = Scene::of(&place, &lab, &shown);
    let masked = |plan: &LaunchPlan| plan.mounts.iter().any(|mount| mount.kind == MountKind::Mask);
    assert!(masked(&scene.plan), "the secret is covered");
    assert!(scene.is_given(&scene.plan), "nothing has changed yet");
    // Another directory under the name.
    scene.until_one_stands();
    std::fs::rename(&shown, lab.home().join("before")).unwrap();
    directory(&lab, "shown");
    assert_eq!(scene.again(), Ok(Had::Made));
    // Another file in the place of a covered one: the kernel takes the cover away with the old name.
    scene.until_one_stands();
    let new = lab.project("new", "fresh");
    std::fs::rename(new, &secret).unwrap();
    assert_eq!(scene.again(), Ok(Had::Made));
    // Something that is mounted below, and is gone again.
    let inner = shown.join("inner");
    std::fs::create_dir(&inner).unwrap();
    scene.until_one_stands();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(&inner)
        .status();
    assert!(mount.is_ok_and(|status| status.success()));
    let mounted = scene.again();
    scene.until_one_stands();
    let unmount = Command::new("umount").arg(&inner).status();
    assert!(unmount.is_ok_and(|status| status.success()));
    assert_eq!((mounted, scene.again()), (Ok(Had::Made), Ok(Had::Made)));
    // A right that is gone.
    scene.until_one_stands();
    std::os::unix::fs::chown(&shown, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&shown, std::fs::Permissions::from_mode(0o700)).unwrap();
    let refused = scene.again().map_err(|fault| fault.code);
    assert_eq!(refused, Err(Code::SpawnPath));
    // And back again.
    lab.hand_over(&shown);
    assert!(scene.is_given(&scene.plan), "{}", place.said());
}

#[test]
fn what_stands_does_not_outlive_its_ceiling_or_its_daemon() {
    let Some(lab) = ordinary("what_stands_does_not_outlive_its_ceiling") else {
        return;
    };
    let place = Place::new();
    let scene = Scene::of(&place, &lab, &directory(&lab, "shown"));
    scene.until_one_stands();
    let told = || place.said().matches("the ceiling was read again").count();
    place.ceiling(r#"{"version": 1, "max_workers": 5, "callers": [{"uid": 0, "roots": ["/"]}]}"#);
    scene.daemon.signal(Signal::HUP);
    assert!(eventually(Limit::HANG, || told() == 1), "{}", place.said());
    assert!(
        eventually(Limit::HANG, || scene.standing().is_empty()),
        "{}",
        place.said()
    );
    let refused = scene.again().map_err(|fault| fault.code);
    assert_eq!(refused, Err(Code::SpawnCaller));
    place.ceiling(&usual(&lab, FAST));
    scene.daemon.signal(Signal::HUP);
    assert!(eventually(Limit::HANG, || told() == 2), "{}", place.said());
    scene.until_one_stands();
    let standing = scene.standing();
    scene.daemon.kill();
    let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
    assert!(eventually(Limit::HANG, || standing.iter().all(gone)));
}

/// Runs until one takes what stands; what it printed.
fn until_claimed(lab: &Lab, place: &Place, daemon: &Daemon<'_>, script: &str) -> String {
    for _ in 0..12 {
        let standing = children(daemon.pid()).into_iter().flat_map(children);
        let standing: Vec<u32> = standing.filter(|init| !children(*init).is_empty()).collect();
        let output = fence(lab, place).sh(script);
        assert_eq!(output.ended.code, 0, "{output:?}");
        // The one that is gone is the one that was taken.
        if standing
            .iter()
            .any(|init| !Path::new(&format!("/proc/{init}")).exists())
        {
            return output.said().to_owned();
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    panic!("no run took a sandbox that stood: {}", place.said());
}

#[test]
fn a_run_that_takes_what_stands_finds_nothing_of_another_and_has_its_own_command_streams_and_environment() {
    let Some(lab) = ordinary("a_run_that_takes_what_stands_finds_nothing") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, FAST));
    let daemon = place.start(2);
    lab.project(".env", "SECRET=1");
    let script = "cat /tmp/left ~/left 2>/dev/null | wc -l; echo mark > /tmp/left; echo mark > ~/left; \
                  cat .env 2>/dev/null; ls /proc | grep -c '^[0-9]'; readlink /proc/self/fd/3; env | grep -c ^WHICH=; \
                  echo x > .env.new 2>/dev/null; ls -A";
    let printed = until_claimed(&lab, &place, &daemon, script);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "0", "nothing of another run: {printed}");
    assert!(
        !printed.contains("SECRET") && !printed.contains(".env.new"),
        "{printed}"
    );
    // Its own command and environment, though the sandbox stood for another's.
    for number in 0..4 {
        let output = fence(&lab, &place)
            .flags(["--env", &format!("WHICH=run-{number}")])
            .input(format!("input {number}\n").as_bytes())
            .sh("read line; echo $line $WHICH; echo e >&2");
        assert_eq!(
            output.said().trim(),
            format!("input {number} run-{number}"),
            "{output:?}"
        );
        assert!(output.ended.stderr.contains("e\n"), "{output:?}");
        // What was proven is recorded for this run, before it began.
        let statements = output.events("statement");
        assert_eq!(statements.len(), 1, "{:?}", output.audit);
    }
    assert!(daemon.has(0));
}

#[test]
fn what_stands_without_one_of_its_layers_is_not_started() {
    let Some(lab) = ordinary("what_stands_without_one_of_its_layers") else {
        return;
    };
    // Those that are proven while it stands, and those that are proven when it is claimed.
    for layer in ["landlock", "seccomp", "descriptors", "environment", "session"] {
        let place = Place::new();
        place.ceiling(&usual(&lab, FAST));
        let mut command = place.command(2);
        command.env("BASTLE_TEST_WITHOUT", layer);
        let daemon = place.start_by(crate::users::with_program(&command, with_hooks()));
        let stands = || {
            let inits = children(daemon.pid()).into_iter().flat_map(children);
            inits.into_iter().any(|init| !children(init).is_empty())
        };
        // Of the same program: the plan shows it, and another one lies outside the ceiling.
        let start = || fence(&lab, &place).binary(with_hooks()).sh("echo started");
        let mut tried = 0;
        while !stands() && tried < 8 {
            let output = start();
            assert_eq!(output.ended.code, 125, "{layer}: {output:?}");
            eventually(Limit(Duration::from_secs(1)), stands);
            tried += 1;
        }
        assert!(stands(), "{layer}: {}", place.said());
        let output = start();
        assert_eq!(output.ended.code, 125, "{layer}: {output:?}");
        assert!(!output.said().contains("started"), "{layer}: {output:?}");
        assert!(
            output.ended.stderr.contains("BST-FENCE-004"),
            "{layer}: {output:?}"
        );
    }
}
