//! A state directory with logs in it.
use bastle_audit::{AuditEvent, AuditWriter, Exit, Report, Seal, verify};
use bastle_contract::egress::{
    BudgetKind, BudgetReached, BudgetStep, Face, NetClosed, NetDecision, NetVerdict,
};
use bastle_contract::{
    AbsPath, Argv, BackendKind, CapabilityStatement, ChangeSight, ChangeSort, Code, DenialKind, Denied,
    Digest, ExecSeen, Fault, FileChange, FileSeen, FileState, FileUse, FilesTold, Guarantee, IdMapping,
    LimitHit, LimitKind, ProbeResult, ReadSight, RunId, Usage, Verdict, Waiver,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) fn run(name: &str) -> RunId {
    RunId::try_from(name.to_owned()).unwrap()
}

/// In memory where possible: some tests sync a thousand times, and what a sync is worth is not what they are about.
pub(crate) fn state() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn log_path(state: &Path, run: &RunId) -> PathBuf {
    state.join("audit").join(run.as_str()).join("log.jsonl")
}

pub(crate) fn index_path(state: &Path) -> PathBuf {
    state.join("audit/heads.jsonl")
}

pub(crate) fn denied(target: &str) -> AuditEvent {
    denied_as(DenialKind::Write, "openat", target)
}

pub(crate) fn denied_as(kind: DenialKind, operation: &str, target: &str) -> AuditEvent {
    AuditEvent::Denied(Denied {
        kind,
        operation: operation.into(),
        target: target.into(),
        rule: "read-only mount".into(),
        errno: "EROFS".into(),
        pid: 42,
        comm: "sh".into(),
    })
}

/// One of everything.
pub(crate) fn every_event() -> Vec<AuditEvent> {
    let digest = |c: &str| Digest::try_from(c.repeat(64)).unwrap();
    let mut events = vec![
        AuditEvent::RunPlanned {
            policy: digest("a"),
            plan: digest("b"),
            argv: Argv::try_from(vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()]).unwrap(),
            backend: BackendKind::Native,
            waivers: vec![Waiver::Limit(LimitKind::Memory)],
            effective: serde_json::json!({ "fs": { "write": ["."] }, "limits": { "memory": 4.5, "pids": 512 } }),
        },
        AuditEvent::Statement(CapabilityStatement {
            fence: "namespaces+landlock".into(),
            identity: IdMapping {
                inside: 1000,
                outside: 1000,
            },
            probes: vec![ProbeResult {
                guarantee: Guarantee::NetConfined,
                attempt: "connect 192.0.2.1:443".into(),
                expected: "ENETUNREACH".into(),
                observed: "ENETUNREACH".into(),
                control: "connect 127.0.0.1: ok".into(),
                verdict: Verdict::Held,
            }],
        }),
        AuditEvent::Started { pid: 4711 },
        AuditEvent::Limit(LimitHit {
            limit: LimitKind::Pids,
            value: 512,
            effect: "fork failed".into(),
        }),
        AuditEvent::Exec(ExecSeen {
            pid: 43,
            path: "/usr/bin/env".into(),
            argv: vec!["env".into(), "x y".into()],
        }),
        AuditEvent::Exec(ExecSeen {
            pid: 43,
            path: String::new(),
            argv: vec![],
        }),
        AuditEvent::LimitLost(bastle_contract::LimitLost {
            limit: bastle_contract::LimitKind::Cpu,
            value: 500,
            sign: bastle_contract::LossSign::Gone,
            file: "/sys/fs/cgroup/x/cpu.max".to_owned(),
        }),
        AuditEvent::Paused,
        AuditEvent::Resumed,
        AuditEvent::OutputTruncated { bytes: u64::MAX },
        AuditEvent::Refused(
            Fault::new(Code::FenceUserns, "no user namespace", "EPERM").help("bastle doctor"),
        ),
        AuditEvent::Note {
            topic: "approval".into(),
            text: "given by operator".into(),
        },
    ];
    endings_and_denials(&mut events);
    files(&mut events);
    network(&mut events, digest("c"));
    events
}

/// Files that changed in every way, files that were only used, names that are no text, and what was not seen.
fn files(events: &mut Vec<AuditEvent>) {
    let state = |kind: &str| FileState {
        kind: kind.into(),
        size: Some(u64::from(u32::MAX)),
        digest: Some("a".repeat(64)),
    };
    let used = |read, written, executed| FileUse {
        read,
        written,
        executed,
        count: 3,
        process: "cat\u{1b}[2J".into(),
        pid: 7,
    };
    for (sort, before, after) in [
        (ChangeSort::Created, None, Some(state("file"))),
        (ChangeSort::Changed, Some(state("file")), Some(state("symlink"))),
        (ChangeSort::Deleted, Some(state("fifo")), None),
    ] {
        events.push(AuditEvent::File(FileSeen {
            path: "/w/a\u{202e}b\n".into(),
            raw: Some("2f77".into()),
            change: Some(FileChange { sort, before, after }),
            used: None,
        }));
    }
    for used in [
        used(true, false, false),
        used(false, true, false),
        used(false, false, true),
        used(false, false, false),
    ] {
        events.push(AuditEvent::File(FileSeen {
            path: "/w/a".into(),
            raw: None,
            change: None,
            used: Some(used),
        }));
    }
    for (changes, reads) in [
        (ChangeSight::Contents, ReadSight::Fanotify),
        (
            ChangeSight::Nothing { why: "large".into() },
            ReadSight::Nothing {
                why: "it needs root".into(),
            },
        ),
    ] {
        events.push(AuditEvent::Files(FilesTold {
            changes,
            reads,
            created: 1,
            changed: 2,
            deleted: 3,
            read: 4,
            left_out: 5,
            gaps: 6,
            recovered: true,
        }));
    }
    beside(events);
}

/// Further commands in the run, caches, and what changed on the host afterwards.
fn beside(events: &mut Vec<AuditEvent>) {
    events.push(AuditEvent::ExecRequested {
        id: 1,
        by: "socket".into(),
        argv: Argv::try_from(vec!["sh".to_owned(), "-c".to_owned(), "\u{1b}[2J".to_owned()]).unwrap(),
        env: vec!["TERM".into()],
        cwd: Some(AbsPath::try_from("/w".to_owned()).unwrap()),
        tty: true,
    });
    events.push(AuditEvent::ExecEnded {
        id: 1,
        exit: Exit::Signal(9),
        reason: Some("the run ended".into()),
    });
    events.push(AuditEvent::CacheLent {
        cache: "cargo".into(),
        files: 9,
    });
    events.push(AuditEvent::CacheMerged {
        cache: "cargo".into(),
        merged: 1,
        refused: 2,
    });
    events.push(AuditEvent::HostChanged {
        run: RunId::try_from("calm-otter".to_owned()).unwrap(),
        by: "apply".into(),
        at: "/home/ada/shop".into(),
        names: vec!["Makefile".into()],
        more: 1,
        approvals: vec!["6eb434469d01f949".into()],
        principal: "local-person uid:1000".into(),
    });
}

/// A decision about one request.
pub(crate) fn decision(face: Face, method: Option<&str>, verdict: NetVerdict) -> NetDecision {
    NetDecision {
        seq: 1,
        id: if verdict == NetVerdict::Denied {
            "d_8f2k".into()
        } else {
            String::new()
        },
        face,
        method: method.map(str::to_owned),
        host: "api.example.com".into(),
        port: if face == Face::Dns { 0 } else { 443 },
        path: method.map(|_| "/v1/x".to_owned()),
        operation: None,
        verdict,
        code: (verdict == NetVerdict::Denied).then_some(Code::NetDenied),
        rule: None,
        reason: "no rule names it".into(),
        address: (verdict == NetVerdict::Allowed).then(|| "192.0.2.7".parse().unwrap()),
        secret: None,
        count: 1,
        held: false,
        help: vec![],
    }
}

fn network(events: &mut Vec<AuditEvent>, table: Digest) {
    let faces = [
        Face::Connect,
        Face::Http,
        Face::Https,
        Face::Socks,
        Face::Transparent,
        Face::Dns,
    ];
    let verdicts = [
        NetVerdict::Allowed,
        NetVerdict::Denied,
        NetVerdict::Asked,
        NetVerdict::Learned,
    ];
    for face in faces {
        for verdict in verdicts {
            events.push(AuditEvent::Net(decision(face, None, verdict)));
        }
    }
    for method in [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "push", "fetch",
        "BREW",
    ] {
        events.push(AuditEvent::Net(decision(
            Face::Https,
            Some(method),
            NetVerdict::Allowed,
        )));
    }
    events.push(AuditEvent::NetClosed(NetClosed {
        seq: 1,
        bytes_out: 1,
        bytes_in: u64::MAX,
        status: Some(200),
        model: None,
    }));
    for allow in [true, false] {
        events.push(AuditEvent::NetAnswered {
            seq: 1,
            id: "d_8f2k".into(),
            allow,
            by: "person".into(),
        });
    }
    events.push(AuditEvent::ToolAnswered {
        id: "p_1".into(),
        used: "Bash(ls)".into(),
        allow: true,
        by: "rule".into(),
        rule: Some("tools Bash(ls *)".into()),
        hash: Some("0".repeat(64)),
    });
    events.push(AuditEvent::NetChanged {
        change: "reload".into(),
        table,
        cut: 3,
        by: "program agent:mcp".into(),
    });
    for step in [BudgetStep::Warn, BudgetStep::Pause, BudgetStep::Stop] {
        events.push(AuditEvent::Budget(BudgetReached {
            kind: BudgetKind::Cost,
            step,
            used: 1,
            limit: 2,
        }));
    }
    events.push(AuditEvent::NetLost {
        restart: 1,
        why: "it closed its socket".into(),
    });
    events.push(AuditEvent::Wanted {
        rule: "api.example.com".into(),
        why: "tests".into(),
    });
}

fn endings_and_denials(events: &mut Vec<AuditEvent>) {
    for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(9), Exit::Unknown] {
        let reason = matches!(exit, Exit::Signal(_)).then(|| "timeout".to_owned());
        events.push(AuditEvent::Ended {
            exit,
            usage: Usage {
                bytes_written: u64::MAX,
                ..Usage::default()
            },
            reason,
        });
    }
    for operation in [
        "openat",
        "mkdirat",
        "unlinkat",
        "renameat2",
        "fchmodat",
        "utimensat",
        "anything",
    ] {
        events.push(denied_as(DenialKind::Write, operation, "/etc/x"));
    }
    for kind in [
        DenialKind::Hidden,
        DenialKind::Protected,
        DenialKind::Syscall,
        DenialKind::Exec,
        DenialKind::Limit,
    ] {
        events.push(denied_as(kind, "mount", ""));
        events.push(denied_as(kind, "mount", "/a/b/"));
    }
}

/// A sealed log of `count` denials.
pub(crate) fn sealed(state: &Path, run: &RunId, count: usize) -> Seal {
    let mut writer = AuditWriter::create(state, run).unwrap();
    for number in 0..count {
        writer.append(&denied(&format!("/etc/{number}"))).unwrap();
    }
    writer.seal().unwrap()
}

pub(crate) fn report(state: &Path, run: &RunId) -> Report {
    verify(state, run).unwrap()
}

pub(crate) fn is_sealed(state: &Path, run: &RunId) -> bool {
    verify(state, run).is_ok_and(|report| report.verdict == bastle_audit::Verdict::Sealed)
}

/// The file's lines, each with its line end.
pub(crate) fn lines(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    bytes
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}
