//! The chain: numbers records, links each to the one before it, and signs from time to time. No I/O.
use crate::AuditError;
use crate::canonical;
use crate::event::{AuditEvent, Mark};
use crate::key::{Key, Signed};
use crate::objects::{OCSF_VERSION, product};
use crate::ocsf::{self, Content};
use crate::read::MAX_LINE;
use bastle_contract::RunId;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Records between two signatures at most, so that no more than these can be forged without the key.
pub(crate) const CHECKPOINT_EVERY: u64 = 64;

/// What stands in for the record before the first.
pub(crate) const NO_UID: &str = "genesis";

/// The fingerprint before the first.
pub(crate) const NO_HEAD: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Names a record. For a denial this is the id shown to everybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordId {
    /// Its number, from 1.
    pub sequence: u64,
    /// Short name, unique within its run: `d_8f2k` for a denial, `e_8f2k` for anything else.
    pub uid: String,
}

/// Where a chain stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the last record; 0 before the first.
    pub(crate) sequence: u64,
    /// Its fingerprint.
    pub(crate) head: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Records since the last signature.
    pub(crate) unsigned: u64,
}

/// Writes records as lines into a buffer.
#[derive(Debug)]
pub(crate) struct Scribe {
    run: RunId,
    key: Key,
    trace: String,
    policy: Option<String>,
    at: Position,
    uids: Uids,
    scratch: Vec<u8>,
}

/// Makes short names that cannot collide within a run.
#[derive(Clone, Copy, Debug)]
struct Uids {
    offset: u64,
}

/// What continues a chain that was begun earlier.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// The trace id all records carry.
    pub(crate) trace: String,
    /// Digest of the effective policy, once planned.
    pub(crate) policy: Option<String>,
}

impl Position {
    /// Before the first record.
    pub(crate) fn start() -> Self {
        Self {
            sequence: 0,
            head: NO_HEAD.to_owned(),
            uid: NO_UID.to_owned(),
            unsigned: 0,
        }
    }
}

impl Scribe {
    pub(crate) fn new(run: RunId, key: Key, thread: Thread, at: Position) -> Self {
        let uids = Uids::of(&run);
        let Thread { trace, policy } = thread;
        Self {
            run,
            key,
            trace,
            policy,
            at,
            uids,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn at(&self) -> &Position {
        &self.at
    }

    /// Adds an event, and a checkpoint when one is due.
    pub(crate) fn append(&mut self, event: &AuditEvent, out: &mut Vec<u8>) -> Result<RecordId, AuditError> {
        let id = self.record(Content::Event(event), out)?;
        if let AuditEvent::RunPlanned { policy, .. } = event {
            self.policy = Some(policy.as_str().to_owned());
        }
        if self.at.unsigned >= CHECKPOINT_EVERY {
            self.checkpoint(out)?;
        }
        Ok(id)
    }

    /// Adds the opening record and its checkpoint.
    pub(crate) fn open(&mut self, index: &crate::heads::Place, out: &mut Vec<u8>) -> Result<(), AuditError> {
        let public = self.key.public();
        let mark = Mark::Opened {
            run: self.run.clone(),
            key: public.id().as_str().to_owned(),
            public: public.hex(),
            index_sequence: index.sequence,
            index_fingerprint: index.fingerprint.clone(),
            system: Some(crate::System::of_this_host()),
        };
        self.record(Content::Mark(&mark), out)?;
        self.checkpoint(out)
    }

    /// Adds a record about a crash that was recovered from, and signs.
    pub(crate) fn recovered(
        &mut self,
        bytes: u64,
        digest: String,
        out: &mut Vec<u8>,
    ) -> Result<(), AuditError> {
        let mark = Mark::Recovered {
            torn_bytes: bytes,
            torn_digest: digest,
        };
        self.record(Content::Mark(&mark), out)?;
        self.checkpoint(out)
    }

    fn checkpoint(&mut self, out: &mut Vec<u8>) -> Result<(), AuditError> {
        let (run, sequence) = (self.run.as_str(), self.at.sequence);
        let head = self.at.head.clone();
        let signature = self.key.sign(Signed::Checkpoint {
            run,
            sequence,
            head: &head,
        });
        let mark = Mark::Checkpoint {
            sequence,
            head,
            signature,
        };
        self.record(Content::Mark(&mark), out)?;
        self.at.unsigned = 0;
        Ok(())
    }

    /// Adds the last record.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>) -> Result<(), AuditError> {
        let (run, sequence) = (self.run.as_str(), self.at.sequence);
        let (head, count) = (self.at.head.clone(), sequence + 1);
        let signature = self.key.sign(Signed::Seal {
            run,
            sequence,
            head: &head,
            count,
        });
        let mark = Mark::Sealed {
            sequence,
            head,
            count,
            signature,
        };
        self.record(Content::Mark(&mark), out).map(|_| ())
    }

    fn record(&mut self, content: Content<'_>, out: &mut Vec<u8>) -> Result<RecordId, AuditError> {
        let sequence = self.at.sequence + 1;
        let uid = self.uids.name(sequence, content);
        let object = self.object(content, sequence, &uid)?;
        self.scratch.clear();
        canonical::write_object(&object, &mut self.scratch).map_err(AuditError::Encode)?;
        let head = fingerprint(&self.scratch);
        let text = splice(&self.scratch, self.run.as_str(), &head).ok_or(AuditError::TooDeep)?;
        let begin = out.len();
        canonical::write_line(&text, out);
        out.push(b'\n');
        let bytes = out.len() - begin;
        if bytes > MAX_LINE {
            out.truncate(begin);
            return Err(AuditError::TooLarge { bytes });
        }
        self.at = Position {
            sequence,
            head,
            uid: uid.clone(),
            unsigned: self.at.unsigned + 1,
        };
        Ok(RecordId { sequence, uid })
    }

    /// The record without its fingerprint.
    fn object(
        &self,
        content: Content<'_>,
        sequence: u64,
        uid: &str,
    ) -> Result<Map<String, Value>, AuditError> {
        let mut payload = match content {
            Content::Mark(mark) => serde_json::to_value(mark),
            Content::Event(event) => serde_json::to_value(event),
        }
        .map_err(AuditError::Encode)?;
        if !canonical::tame(&mut payload, 0) {
            return Err(AuditError::TooDeep);
        }
        let (mut object, profiles) = ocsf::body(content, &self.run, self.policy.as_deref());
        object.insert(
            "metadata".into(),
            json!({
                "correlation_uid": self.run.as_str(),
                "log_name": "bastle",
                "product": product(),
                "profiles": profiles,
                "sequence": sequence,
                "uid": uid,
                "version": OCSF_VERSION,
            }),
        );
        object.insert("time".into(), now_ms().into());
        object.insert("trace".into(), json!({ "uid": self.trace }));
        object.insert("unmapped".into(), json!({ "bastle": payload }));
        let previous = json!({ "uid": self.at.uid, "fingerprint": fingerprint_object(&self.at.head) });
        object.insert(
            "attestation_list".into(),
            json!([{ "chain_uid": self.run.as_str(), "prev_event": previous }]),
        );
        Ok(object)
    }
}

impl Uids {
    fn of(run: &RunId) -> Self {
        let digest = blake3::hash(run.as_str().as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&digest.as_bytes()[..8]);
        Self {
            offset: u64::from_le_bytes(first),
        }
    }

    /// Multiplying by an odd number and adding is a permutation of the numbers of a given width, so two records of
    /// a run never share a name, and names of neighbouring records do not look alike.
    fn name(self, sequence: u64, content: Content<'_>) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let letters: u32 = match sequence {
            0..0x10_0000 => 4,
            0x10_0000..0x100_0000_0000 => 8,
            0x100_0000_0000.. => 12,
        };
        let mixed = sequence
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(self.offset);
        let prefix = match content {
            Content::Event(AuditEvent::Denied(_)) => "d_",
            Content::Event(_) | Content::Mark(_) => "e_",
        };
        (0..letters).fold(prefix.to_owned(), |mut name, letter| {
            let index = usize::try_from(mixed >> (5 * letter) & 31).unwrap_or(0);
            name.push(char::from(ALPHABET[index]));
            name
        })
    }
}

/// BLAKE3 of a canonical record, hexadecimal.
pub(crate) fn fingerprint(canonical: &[u8]) -> String {
    blake3::hash(canonical).to_hex().to_string()
}

/// The OCSF fingerprint object; 99: an algorithm OCSF has no number for.
fn fingerprint_object(value: &str) -> Value {
    json!({ "algorithm": "BLAKE3", "algorithm_id": 99, "value": value })
}

/// Puts a record's fingerprint into its canonical form, where sorting would put it. Cheaper than a second pass.
///
/// `None` if the text is not UTF-8 or is not a record of `run`. Quotes inside strings are escaped, and only
/// `action_id` to `app` sort before the attestation, which hold no object with keys of others: the first match is it.
pub(crate) fn splice(canonical: &[u8], run: &str, fingerprint: &str) -> Option<String> {
    let canonical = std::str::from_utf8(canonical).ok()?;
    let before = format!("\"attestation_list\":[{{\"chain_uid\":\"{run}\",");
    let at = canonical.find(&before)? + before.len();
    let (head, tail) = canonical.split_at(at);
    Some(format!(
        "{head}\"fingerprint\":{{\"algorithm\":\"BLAKE3\",\"algorithm_id\":99,\"value\":\"{fingerprint}\"}},{tail}"
    ))
}

/// Milliseconds since 1970; a clock before that counts as 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
