//! A finished run as a signed statement: what was asked of whom, under which policy, from which state, with which result.
//!
//! The statement is in-toto's, its predicate SLSA's provenance, its envelope DSSE's; the key is that of the audit logs.
//! **Trust:** made outside the sandbox from the sealed log and from contents by digest. The agent has no hand in it.
use crate::review::library::base64;
use crate::review::library::manifest::Kind;
use crate::review::library::path::TreePath;
use crate::review::library::workspace::Workspace;
use crate::review::{End, look};
use crate::runs::RunDir;
use bastle_audit::{AuditEvent, Exit, Payload, Verdict};
use bastle_contract::{Code, Digest, Fault, RunId};
use serde_json::{Value, json};
use std::path::Path;

/// The media type of a statement.
pub const STATEMENT: &str = "application/vnd.in-toto+json";
/// Largest envelope that is read back.
pub const MAX_ENVELOPE: usize = 64 * 1024 * 1024;
const BUILD_TYPE: &str = "https://bastle.dev/agent-run/v1";
const PREDICATE: &str = "https://slsa.dev/provenance/v1";

/// A sealed run.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The envelope, one line of JSON.
    pub envelope: String,
    /// The statement inside.
    pub statement: Value,
    /// Short name of the key.
    pub key: String,
}

/// What the log tells.
#[derive(Default)]
struct Story {
    argv: Vec<String>,
    policy: Option<Digest>,
    plan: Option<Digest>,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    exit: Option<Exit>,
    denials: u64,
}

/// Seals a run whose log is complete and unchanged. `space` is its copy, where it has one.
pub fn seal(state: &Path, run: &RunId, space: Option<&Workspace>) -> Result<Sealed, Fault> {
    let report = bastle_audit::verify(state, run).map_err(|error| error.fault())?;
    if report.verdict != Verdict::Sealed {
        let fault = Fault::new(
            Code::AuditTampered,
            format!("run {run} cannot be sealed"),
            "its log has no end yet, or does not verify",
        );
        return Err(fault.help(format!("bastle audit verify {run}")));
    }
    let story = story(state, run)?;
    let (subjects, base) = match space {
        Some(space) => results(space)?,
        None => (Vec::new(), Vec::new()),
    };
    // A statement is about something: where there is no tree of its own, it is about the record.
    let record = json!({ "name": "audit.ocsf.jsonl", "digest": { "blake3": report.head } });
    let subjects = if subjects.is_empty() {
        vec![record.clone()]
    } else {
        subjects
    };
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asked(state, run, &story),
                "internalParameters": { "plan": story.plan },
                "resolvedDependencies": base,
            },
            "runDetails": {
                "builder": { "id": "https://bastle.dev/bastle", "version": { "bastle": env!("CARGO_PKG_VERSION") } },
                "metadata": {
                    "invocationId": run,
                    "startedOn": story.started_ms.map(time),
                    "finishedOn": story.ended_ms.map(time),
                },
                "byproducts": [record, { "name": "outcome", "annotations": {
                    "exit": told(story.exit), "denials": story.denials, "records": report.records } }],
            },
        },
    });
    let payload = statement.to_string();
    let signed = bastle_audit::attest(state, STATEMENT, payload.as_bytes()).map_err(|error| error.fault())?;
    let envelope = json!({
        "payloadType": STATEMENT,
        "payload": base64::encode(payload.as_bytes()),
        "signatures": [{ "keyid": signed.key.as_str(), "sig": base64::encode(&signed.signature) }],
    });
    Ok(Sealed {
        envelope: envelope.to_string(),
        statement,
        key: signed.key.to_string(),
    })
}

/// The statement of an envelope that was signed with the key, given hexadecimal.
pub fn open_envelope(envelope: &[u8], public: &str) -> Result<Value, Fault> {
    let fault = |why: &str| {
        Fault::new(Code::AuditTampered, "the statement does not verify", why)
            .help("bastle seal --verify FILE --key KEY.pub with the key of who sealed it")
    };
    if envelope.len() > MAX_ENVELOPE {
        return Err(fault("it is larger than any is"));
    }
    let value: Value = serde_json::from_slice(envelope).map_err(|error| fault(&error.to_string()))?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    if text("/payloadType") != Some(STATEMENT) {
        return Err(fault("it is no in-toto statement"));
    }
    let payload = text("/payload").and_then(base64::decode);
    let payload = payload.ok_or_else(|| fault("its payload is not base64"))?;
    let signatures = value.get("signatures").and_then(Value::as_array);
    let good = signatures.into_iter().flatten().take(16).any(|signature| {
        let bytes = signature
            .get("sig")
            .and_then(Value::as_str)
            .and_then(base64::decode);
        bytes.is_some_and(|bytes| bastle_audit::is_attested(public, STATEMENT, &payload, &bytes))
    });
    if !good {
        return Err(fault(
            "no signature in it was made with this key over this statement",
        ));
    }
    serde_json::from_slice(&payload).map_err(|error| fault(&error.to_string()))
}

fn story(state: &Path, run: &RunId) -> Result<Story, Fault> {
    let mut story = Story::default();
    for record in bastle_audit::show(state, run).map_err(|error| error.fault())? {
        let record = record.map_err(|error| error.fault())?;
        let Some(Payload::Event(event)) = record.payload() else {
            continue;
        };
        match event {
            AuditEvent::RunPlanned {
                policy, plan, argv, ..
            } => {
                story.policy = Some(policy);
                story.plan = Some(plan);
                story.argv = argv.as_slice().to_vec();
            }
            AuditEvent::Started { .. } => story.started_ms = Some(record.time_ms()),
            AuditEvent::Denied(_) => story.denials += 1,
            AuditEvent::Ended { exit, .. } => {
                story.exit = Some(exit);
                story.ended_ms = Some(record.time_ms());
            }
            _ => {}
        }
    }
    Ok(story)
}

/// What was asked for. Arguments can hold secrets: only the program is named, all of them by digest.
fn asked(state: &Path, run: &RunId, story: &Story) -> Value {
    let spec = RunDir::open(state, run).and_then(|dir| dir.spec()).ok();
    let digest = |text: &str| sha256(text.as_bytes());
    let prompt = spec
        .as_ref()
        .and_then(|spec| spec.get().input.as_deref())
        .map(digest);
    json!({
        "agent": story.argv.first(),
        "argv_sha256": sha256(story.argv.join("\0").as_bytes()),
        "prompt_sha256": prompt,
        "profile": spec.as_ref().and_then(|spec| spec.get().profile.clone()),
        "policy_blake3": story.policy,
    })
}

/// The result as subjects, and what it began with.
fn results(space: &Workspace) -> Result<(Vec<Value>, Vec<Value>), Fault> {
    let seen = look(space, &End::Base, &End::Now)?;
    let mut subjects = vec![json!({ "name": "tree", "digest": { "blake3": seen.digest } })];
    // What the project ignores (build results, often thousands) is in the digest of the tree and not named one by one.
    for assessed in seen.assessed.iter().filter(|assessed| !assessed.ignored) {
        let change = &assessed.change;
        if let Some(Kind::File { digest, .. }) = &change.after {
            subjects.push(json!({ "name": name(&change.path), "digest": { "blake3": digest } }));
        }
    }
    let meta = space.meta()?;
    let mut base = vec![json!({ "name": "base tree", "digest": { "blake3": seen.before.id() } })];
    if let Some(commit) = &meta.base.head {
        base.push(json!({ "name": "base commit", "digest": { "gitCommit": commit } }));
    }
    Ok((subjects, base))
}

fn name(path: &TreePath) -> String {
    path.to_string()
}

fn told(exit: Option<Exit>) -> Value {
    match exit {
        Some(Exit::Code(code)) => json!({ "code": code }),
        Some(Exit::Signal(signal)) => json!({ "signal": signal }),
        Some(Exit::Unknown) | None => Value::Null,
    }
}

fn time(ms: u64) -> Value {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or(Value::Null, |time| Value::String(time.to_string()))
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
