//! A state directory with logs in it.
use bastle_audit::{AuditEvent, AuditWriter, Exit, Report, Seal, verify};
use bastle_contract::{
    Argv, BackendKind, CapabilityStatement, Code, DenialKind, Denied, Digest, ExecSeen, Fault, Guarantee,
    IdMapping, LimitHit, LimitKind, ProbeResult, RunId, Usage, Verdict, Waiver,
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
            waivers: vec![Waiver {
                limit: LimitKind::Memory,
            }],
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
    events
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
