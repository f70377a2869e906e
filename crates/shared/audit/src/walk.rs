//! Following a chain record by record. What is read is untrusted; only the public key is believed.
use crate::chain::{CHECKPOINT_EVERY, Position, Thread};
use crate::event::{AuditEvent, Mark, Payload};
use crate::finding::{Defect, Finding, LogFile};
use crate::heads::Place;
use crate::key::{PublicKey, Signed};
use crate::read::{End, Lines};
use crate::record::Record;
use bastle_contract::RunId;
use std::io::{self, BufRead};

/// Follows a chain record by record.
pub(crate) struct Checker<'a> {
    run: Option<&'a RunId>,
    key: &'a PublicKey,
    pub(crate) at: Position,
    pub(crate) signed: u64,
    pub(crate) opened: Option<Place>,
    pub(crate) sealed: bool,
    trace: String,
    policy: Option<String>,
}

/// How following a chain ended.
pub(crate) struct Walk<'a> {
    pub(crate) checker: Checker<'a>,
    pub(crate) end: WalkEnd,
}

/// Where it ended.
pub(crate) enum WalkEnd {
    /// At the end of the file.
    Clean,
    /// At an incomplete last line.
    Torn { offset: u64, bytes: u64 },
    /// At something that does not fit; `last` if nothing follows it.
    Bad { finding: Finding, last: bool },
}

impl<'a> Checker<'a> {
    /// `run` is the chain's name if it is known.
    pub(crate) fn new(run: Option<&'a RunId>, key: &'a PublicKey) -> Self {
        Self {
            run,
            key,
            at: Position::start(),
            signed: 0,
            opened: None,
            sealed: false,
            trace: String::new(),
            policy: None,
        }
    }

    pub(crate) fn thread(&self) -> Thread {
        Thread {
            trace: self.trace.clone(),
            policy: self.policy.clone(),
        }
    }

    /// Judges the next record.
    pub(crate) fn next(&mut self, record: &Record) -> Result<(), Defect> {
        let expected = self.at.sequence + 1;
        if self.sealed {
            return Err(Defect::AfterSeal);
        }
        if self.run.is_some_and(|run| run.as_str() != record.chain()) {
            return Err(Defect::ForeignChain(record.chain().to_owned()));
        }
        if record.sequence() != expected {
            return Err(Defect::Order { expected });
        }
        if record.previous().fingerprint != self.at.head || record.previous().uid != self.at.uid {
            return Err(Defect::BrokenLink);
        }
        // Only these say something about the chain; the rest need not be understood to be checked.
        let payload = match record.kind() {
            "opened" | "checkpoint" | "sealed" | "run-planned" => record.payload(),
            _ => None,
        };
        let signs = self.judge_payload(record, payload.as_ref())?;
        let unsigned = if signs { 0 } else { self.at.unsigned + 1 };
        if unsigned > CHECKPOINT_EVERY {
            return Err(Defect::CheckpointMissing);
        }
        self.at = Position {
            sequence: expected,
            head: record.fingerprint().to_owned(),
            uid: record.uid().to_owned(),
            unsigned,
        };
        Ok(())
    }

    /// Whether the record is a good signature over the chain so far.
    fn judge_payload(&mut self, record: &Record, payload: Option<&Payload>) -> Result<bool, Defect> {
        let chain = record.chain();
        if self.at.sequence == 0 && !matches!(payload, Some(Payload::Mark(Mark::Opened { .. }))) {
            return Err(Defect::NotOpened);
        }
        match payload {
            Some(Payload::Mark(Mark::Opened {
                run,
                key,
                public,
                index_sequence,
                index_fingerprint,
                system: _,
            })) => {
                if self.at.sequence != 0 {
                    return Err(Defect::OpenedTwice);
                }
                if run.as_str() != chain {
                    return Err(Defect::ForeignChain(run.as_str().to_owned()));
                }
                if *key != self.key.id().as_str() || *public != self.key.hex() {
                    return Err(Defect::ForeignKey(key.clone()));
                }
                record.trace().clone_into(&mut self.trace);
                self.opened = Some(Place {
                    sequence: *index_sequence,
                    fingerprint: index_fingerprint.clone(),
                });
                Ok(false)
            }
            Some(Payload::Mark(Mark::Checkpoint {
                sequence,
                head,
                signature,
            })) => {
                let what = Signed::Checkpoint {
                    run: chain,
                    sequence: *sequence,
                    head,
                };
                self.judge_signature((*sequence, head), what, signature)
            }
            Some(Payload::Mark(Mark::Sealed {
                sequence,
                head,
                count,
                signature,
            })) => {
                if *count != record.sequence() {
                    return Err(Defect::WrongCount(*count));
                }
                let what = Signed::Seal {
                    run: chain,
                    sequence: *sequence,
                    head,
                    count: *count,
                };
                self.judge_signature((*sequence, head), what, signature)?;
                self.sealed = true;
                Ok(true)
            }
            Some(Payload::Event(AuditEvent::RunPlanned { policy, .. })) => {
                self.policy = Some(policy.as_str().to_owned());
                Ok(false)
            }
            Some(Payload::Mark(Mark::Recovered { .. }) | Payload::Event(_)) | None => Ok(false),
        }
    }

    fn judge_signature(
        &mut self,
        over: (u64, &str),
        what: Signed<'_>,
        signature: &str,
    ) -> Result<bool, Defect> {
        if over == (self.at.sequence, self.at.head.as_str()) && self.key.verifies(what, signature) {
            self.signed = self.at.sequence;
            Ok(true)
        } else {
            Err(Defect::BadSignature)
        }
    }
}

/// Follows the chain in `reader`.
pub(crate) fn walk<'a>(
    reader: impl BufRead,
    run: Option<&'a RunId>,
    key: &'a PublicKey,
) -> io::Result<Walk<'a>> {
    let mut lines = Lines::new(reader);
    let mut checker = Checker::new(run, key);
    let mut bad = None;
    while let Some(line) = lines.next_line()? {
        if let Some(finding) = bad.take() {
            let end = WalkEnd::Bad { finding, last: false };
            return Ok(Walk { checker, end });
        }
        if line.end == End::Torn {
            let offset = line.offset;
            let bytes = lines.offset() - offset;
            return Ok(Walk {
                checker,
                end: WalkEnd::Torn { offset, bytes },
            });
        }
        let judged = line.record().and_then(|record| checker.next(&record));
        bad = judged.err().map(|defect| line.finding(run, LogFile::Log, defect));
    }
    let end = match bad {
        Some(finding) => WalkEnd::Bad { finding, last: true },
        None => WalkEnd::Clean,
    };
    Ok(Walk { checker, end })
}
