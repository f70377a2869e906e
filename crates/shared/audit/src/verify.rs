//! Verifying a log: finds every edit, removal, insertion, reordering and missing end. Trusts only the public key.
use crate::AuditError;
use crate::anchor::{Anchors, IndexPrints};
use crate::dir::{Dir, LOG, Open};
use crate::finding::{Defect, Finding, LogFile};
use crate::heads::{self, IndexEvent, IndexLine, Place};
use crate::key::{KeyId, PublicKey};
use crate::walk::{Checker, Walk, WalkEnd, walk};
use bastle_contract::RunId;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader};
use std::path::Path;

/// What verifying found.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which run.
    pub run: RunId,
    /// The judgement.
    pub verdict: Verdict,
    /// Good records, up to the first finding.
    pub records: u64,
    /// Number of the last record that a good signature covers.
    pub signed: u64,
    /// Fingerprint of the last good record. Keep it elsewhere to hold the log to it later.
    pub head: String,
    /// The key the log was checked against.
    pub key: KeyId,
}

/// The judgement on a log.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Complete and unchanged, from opening to seal.
    Sealed,
    /// Unchanged as far as it goes, but it has no end: records after `last` may have been cut off, and up to
    /// 64 records after [`Report::signed`] carry no signature.
    Unsealed {
        /// Number of the last record.
        last: u64,
        /// Why there is no end.
        cause: Unsealed,
    },
    /// Something does not fit.
    Tampered(Finding),
}

/// Why a log has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// A process is writing it.
    Live,
    /// The run died, or its end was cut off between two records.
    NoSeal,
    /// The run died while writing, or its end was cut off within a record.
    Torn {
        /// Bytes of the incomplete line.
        bytes: u64,
    },
    /// The seal is there, but the index was never told: the run died right after, or the index was cut off.
    SealNotIndexed,
}

/// What the index says about the run in question.
#[derive(Default)]
pub(crate) struct Indexed {
    opened: Option<Place>,
    sealed: Option<(String, u64)>,
    removed: bool,
    twice: Option<u64>,
}

impl Indexed {
    pub(crate) fn read(
        dir: &Dir,
        key: &PublicKey,
        run: &RunId,
    ) -> Result<(Self, Option<Finding>), AuditError> {
        let mut indexed = Self::default();
        let finding = heads::scan(dir, key, |line| {
            if line.run == *run {
                indexed.note(line);
            }
        })?;
        Ok((indexed, finding))
    }

    pub(crate) fn opened(&self) -> Option<&Place> {
        self.opened.as_ref()
    }

    pub(crate) fn knows_seal(&self) -> bool {
        self.sealed.is_some()
    }

    /// What the index says against a log that is good in itself.
    pub(crate) fn contradicts(&self, log: &Checker<'_>, run: &RunId) -> Option<Finding> {
        let last = Some(log.at.sequence);
        if self.twice.is_some() {
            return Some(about(run, LogFile::Index, self.twice, Defect::IndexedTwice));
        }
        if self.removed || (log.opened.is_some() && log.opened != self.opened) {
            return Some(about(run, LogFile::Index, None, Defect::NotIndexed));
        }
        let (head, count) = self.sealed.as_ref()?;
        if !log.sealed {
            let (count, found) = (*count, log.at.sequence);
            Some(about(run, LogFile::Log, last, Defect::CutOff { count, found }))
        } else if *head != log.at.head || *count != log.at.sequence {
            Some(about(run, LogFile::Log, last, Defect::OtherHead))
        } else {
            None
        }
    }

    fn note(&mut self, line: &IndexLine) {
        match line.event {
            IndexEvent::Opened => {
                let twice = self.opened.is_some() && !self.removed;
                *self = Self {
                    opened: line.place(),
                    twice: if twice { Some(line.sequence) } else { self.twice },
                    ..Self::default()
                };
            }
            IndexEvent::Sealed => self.sealed = Some((line.head.clone(), line.count)),
            IndexEvent::Removed => self.removed = true,
        }
    }
}

/// Verifies the log of a run against the index and the public key of the state directory.
///
/// Fails only if it cannot be read or if there is no trace of the run; everything else is in the report.
pub fn verify(state: &Path, run: &RunId) -> Result<Report, AuditError> {
    let missing = || AuditError::Missing { run: run.clone() };
    let dir = Dir::open(state)?.ok_or_else(missing)?;
    let key = PublicKey::load(&dir)?.ok_or_else(missing)?;
    verify_in(&dir, &key, run)
}

/// Verifies the index and every run that it or the directory knows and that was not removed on purpose.
pub fn verify_all(state: &Path) -> Result<Vec<Report>, AuditError> {
    // Before the index, which only grows: an anchor read later could be newer.
    let anchors = Anchors::open(state)?;
    let emptied = |anchors: Anchors| match anchors.against_nothing()? {
        Some(finding) => Err(AuditError::Tampered(finding)),
        None => Ok(Vec::new()),
    };
    let Some(dir) = Dir::open(state)? else {
        return emptied(anchors);
    };
    let names = dir.names()?;
    let mut runs: Vec<RunId> = Vec::new();
    for name in names {
        // Files of ours have a dot or an underscore in their names; run ids have neither.
        if let Ok(run) = RunId::try_from(name) {
            runs.push(run);
        }
    }
    let Some(key) = PublicKey::load(&dir)? else {
        return match runs.into_iter().next() {
            Some(_) => Err(AuditError::Untrusted {
                path: dir.path_of("key.pub"),
                why: "it is gone, although there are logs",
            }),
            None => emptied(anchors),
        };
    };
    let mut removed = Vec::new();
    let mut prints = IndexPrints::default();
    let finding = heads::scan(&dir, &key, |line| {
        prints.push(line);
        match line.event {
            IndexEvent::Removed => removed.push(line.run.clone()),
            IndexEvent::Opened => {
                removed.retain(|run| *run != line.run);
                runs.push(line.run.clone());
            }
            IndexEvent::Sealed => {}
        }
    })?;
    let finding = match finding {
        Some(finding) => Some(finding),
        None => anchors.against(&key, &prints)?,
    };
    if let Some(finding) = finding {
        return Err(AuditError::Tampered(finding));
    }
    runs.sort_unstable();
    runs.dedup();
    let mut reports = Vec::new();
    for run in runs {
        if removed.contains(&run) && dir.open_run(&run)?.is_none() {
            continue;
        }
        reports.push(verify_in(&dir, &key, &run)?);
    }
    Ok(reports)
}

fn verify_in(dir: &Dir, key: &PublicKey, run: &RunId) -> Result<Report, AuditError> {
    // The index first: a log that is sealed in between is then newer than the index, which is no contradiction.
    let (mut indexed, mut finding) = Indexed::read(dir, key, run)?;
    let file = match dir.open_run(run)? {
        Some(dir) => dir.file(LOG, Open::Read)?,
        None => None,
    };
    if indexed.opened.is_none() && file.is_some() {
        // The log may have come into being while the index was read.
        (indexed, finding) = Indexed::read(dir, key, run)?;
    }
    let Some(file) = file else {
        return without_log(key, run, &indexed, finding);
    };
    let path = dir.path_of(run.as_str()).join(LOG);
    let live = is_locked(&file).map_err(|e| AuditError::io("lock", &path, e))?;
    let walk = walk(BufReader::new(file), Some(run), key).map_err(|e| AuditError::io("read", &path, e))?;
    let verdict = match finding {
        Some(finding) => Verdict::Tampered(finding),
        None => judge(&walk, run, &indexed, live),
    };
    Ok(Report {
        run: run.clone(),
        verdict,
        records: walk.checker.at.sequence,
        signed: walk.checker.signed,
        head: walk.checker.at.head.clone(),
        key: key.id(),
    })
}

fn judge(walk: &Walk<'_>, run: &RunId, indexed: &Indexed, live: Live) -> Verdict {
    let checker = &walk.checker;
    let last = checker.at.sequence;
    let torn = match &walk.end {
        WalkEnd::Bad { finding, .. } => return Verdict::Tampered(finding.clone()),
        WalkEnd::Torn { bytes, .. } => Some(*bytes),
        WalkEnd::Clean => None,
    };
    if let Some(finding) = indexed.contradicts(checker, run) {
        return Verdict::Tampered(finding);
    }
    if checker.sealed && torn.is_some() {
        // Something was appended after the end, even if it is not a whole line.
        return Verdict::Tampered(about(run, LogFile::Log, Some(last), Defect::AfterSeal));
    }
    let cause = match (live, torn, checker.sealed) {
        (_, None, true) if indexed.knows_seal() => return Verdict::Sealed,
        (Live::Yes, _, _) => Unsealed::Live,
        (Live::No, Some(bytes), _) => Unsealed::Torn { bytes },
        (Live::No, None, true) => Unsealed::SealNotIndexed,
        (Live::No, None, false) => Unsealed::NoSeal,
    };
    Verdict::Unsealed { last, cause }
}

/// A finding about a file as a whole.
fn about(run: &RunId, file: LogFile, sequence: Option<u64>, defect: Defect) -> Finding {
    Finding {
        run: Some(run.clone()),
        file,
        line: 0,
        offset: 0,
        sequence,
        defect,
    }
}

fn without_log(
    key: &PublicKey,
    run: &RunId,
    indexed: &Indexed,
    finding: Option<Finding>,
) -> Result<Report, AuditError> {
    let gone = indexed.opened.is_some() && !indexed.removed;
    let defect = gone.then(|| about(run, LogFile::Log, None, Defect::LogGone));
    match finding.or(defect) {
        Some(finding) => Ok(Report {
            run: run.clone(),
            verdict: Verdict::Tampered(finding),
            records: 0,
            signed: 0,
            head: crate::chain::NO_HEAD.to_owned(),
            key: key.id(),
        }),
        None => Err(AuditError::Missing { run: run.clone() }),
    }
}

/// Whether a process is writing the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Live {
    Yes,
    No,
}

fn is_locked(file: &File) -> io::Result<Live> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| Live::No),
        Err(TryLockError::WouldBlock) => Ok(Live::Yes),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
