//! Runs a scenario in a filtered child and the guard here.
//!
//! The test binary starts itself again for the child, because a filter cannot be taken off and a fork of a process
//! with threads cannot do much. The child sends its listener over its standard input.
use crate::filter::{self, FilterSpec};
use crate::guard::{Guard, GuardUsage};
use bastle_contract::{
    AbsPath, DenialKind, Denied, Event, GuardedTree, LaunchPlan, LimitKind, LimitMechanism, LimitRule,
    NameList, NamePattern, TreeKind,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SCENARIO: &str = "BASTLE_GUARD_SCENARIO";
const TREE: &str = "BASTLE_GUARD_TREE";
const COUNTING: &str = "BASTLE_GUARD_COUNTING";

/// A scenario: its name and what the child does in the tree.
pub(super) type Scenario = (&'static str, fn(&Path));

/// What is guarded.
#[derive(Default)]
pub(super) struct Setup {
    pub(super) hide: &'static [&'static str],
    pub(super) protect: &'static [&'static str],
    pub(super) limits: &'static [(LimitKind, u64)],
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) tree: Tree,
    pub(super) events: Vec<Event>,
    pub(super) usage: GuardUsage,
    pub(super) output: String,
}

/// A directory that goes away with the test.
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "bastle-guard-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().canonicalize().unwrap().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Outcome {
    /// The refusals of one kind: operation, target below the tree, rule.
    pub(super) fn denied(&self, kind: DenialKind) -> Vec<(String, String, String)> {
        let root = format!("{}/", self.tree.0.display());
        let below = |target: &str| target.strip_prefix(&root).unwrap_or(target).to_owned();
        let denied = self.events.iter().filter_map(|event| match event {
            Event::Denied(denied) if denied.kind == kind => Some(denied),
            _ => None,
        });
        denied
            .map(
                |Denied {
                     operation,
                     target,
                     rule,
                     ..
                 }| (operation.clone(), below(target), rule.clone()),
            )
            .collect()
    }

    /// The limits that were told as hit.
    pub(super) fn limits(&self) -> Vec<(LimitKind, u64)> {
        let hit = |event: &Event| match event {
            Event::Limit(hit) => Some((hit.limit, hit.value)),
            _ => None,
        };
        self.events.iter().filter_map(hit).collect()
    }
}

pub(super) fn plan(setup: &Setup, tree: &Path) -> LaunchPlan {
    let patterns = |list: &[&str]| {
        list.iter()
            .map(|text| NamePattern::try_from((*text).to_owned()).unwrap())
            .collect::<Vec<_>>()
    };
    let limit = |(limit, value): &(LimitKind, u64)| LimitRule {
        limit: *limit,
        value: *value,
        mechanism: LimitMechanism::WriteGuard,
    };
    let bare = serde_json::json!({
        "run": "guard-test", "policy": "0".repeat(64), "backend": "native", "mounts": [], "landlock": [],
        "landlock_parts": ["fs"], "guard": { "trees": [] }, "network": "none", "limits": [], "env": [], "cwd": "/", "argv": ["/bin/true"],
        "stdio": { "type": "pipes" }, "debuggers": false, "guarantees": [], "waivers": [],
    });
    let mut plan: LaunchPlan = serde_json::from_value(bare).unwrap();
    plan.guard.trees = vec![GuardedTree {
        root: AbsPath::from_path(tree).unwrap(),
        hide: patterns(setup.hide).into(),
        protect: patterns(setup.protect).into(),
        pinned: NameList::default(),
        kind: TreeKind::Live,
    }];
    plan.limits = setup.limits.iter().map(limit).collect();
    plan
}

/// Runs `scenario` behind a guard. Panics with the child's output when the scenario does.
pub(super) fn fenced(scenario: &str, setup: &Setup, prepare: impl FnOnce(&Path)) -> Outcome {
    let tree = Tree::new();
    prepare(tree.path());
    let plan = plan(setup, tree.path());
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let entry = format!(
        "{}::child_entry",
        module_path!()
            .rsplit_once("::")
            .unwrap()
            .0
            .split_once("::")
            .unwrap()
            .1
    );
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &entry, "--nocapture", "--test-threads=1"])
        .env(SCENARIO, scenario)
        .env(TREE, tree.path())
        .env(COUNTING, if setup.limits.is_empty() { "no" } else { "yes" })
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || read_all(&mut out));
    let err = std::thread::spawn(move || read_all(&mut err));
    let listener = receive_descriptor(&ours);
    let mut guard = Guard::new(&plan);
    let mut events = Vec::new();
    loop {
        let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        rustix::event::poll(&mut waiting, Some(&patience)).unwrap();
        if waiting[0].revents().contains(PollFlags::IN) {
            guard
                .serve(listener.as_fd(), &mut |event| events.push(event))
                .unwrap();
        } else if child.try_wait().unwrap().is_some() {
            break;
        }
    }
    let status = child.wait().unwrap();
    let output = format!("{}{}", out.join().unwrap(), err.join().unwrap());
    assert!(status.success(), "{scenario}: {status}\n{output}\n{events:#?}");
    assert!(output.contains("1 passed"), "{scenario} did not run:\n{output}");
    Outcome {
        tree,
        events,
        usage: guard.usage(),
        output,
    }
}

fn read_all(from: &mut impl Read) -> String {
    let mut text = Vec::new();
    from.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// The child's side: confines its thread as the agent is confined and does what the scenario says.
pub(super) fn become_child(scenarios: &[Scenario]) {
    let Ok(wanted) = std::env::var(SCENARIO) else {
        return;
    };
    let tree = PathBuf::from(std::env::var(TREE).unwrap());
    let counting = std::env::var(COUNTING).unwrap() == "yes";
    let (_, act) = scenarios.iter().find(|(name, _)| *name == wanted).unwrap();
    std::env::set_current_dir(&tree).unwrap();
    rustix::thread::set_no_new_privs(true).unwrap();
    // The filter of a plan that counts or does not; nothing else of the plan is asked.
    let limits: &[_] = if counting { &[(LimitKind::Files, 1)] } else { &[] };
    let spec = FilterSpec::of(&plan(
        &Setup {
            limits,
            hide: &["**/.env*"],
            ..Setup::default()
        },
        &tree,
    ));
    assert_eq!(spec.counting, counting);
    let filter = filter::for_agent(spec);
    let listener = bastle_sys::seccomp::install_with_listener(&filter).unwrap();
    send_descriptor(&std::io::stdin(), &listener);
    drop(listener);
    act(&tree);
}

fn send_descriptor(socket: &impl AsFd, fd: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    rustix::net::sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
}

fn receive_descriptor(socket: &OwnedFd) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .unwrap();
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds.next().unwrap().next().unwrap()
}

/// The errno of something that must fail.
pub(super) fn errno<T, E: Into<std::io::Error>>(result: Result<T, E>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.into().raw_os_error().unwrap(),
    }
}
