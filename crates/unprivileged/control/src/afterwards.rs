//! The record of what a person does with a run's work after its log was closed. No record, no effect: it is on disk
//! before the host changes.
use crate::fleet::PrincipalKind;
use crate::naming::new_run_id;
use crate::record::Record;
use bastle_audit::AuditEvent;
use bastle_contract::{Code, Fault, RunId};
use bastle_workspace::reserve;
use std::path::Path;

/// How the names of such logs begin; no run can be called so.
pub const AFTERWARDS: &str = "after-";
/// Names that are listed one by one: about 100 KiB. The others are counted.
const MOST_NAMES: usize = 1_000;

/// What is about to change on the host.
pub(crate) struct Change<'a> {
    pub(crate) run: &'a RunId,
    /// `apply`, `apply-branch`, `undo`, `rm`, `restore`, `cache-merge`.
    pub(crate) by: &'static str,
    /// What it is done to.
    pub(crate) at: String,
    pub(crate) names: Vec<String>,
    /// Hashes of held changes that were approved, as they were given.
    pub(crate) approvals: Vec<String>,
    /// Who does it: the kind of principal and its id.
    pub(crate) principal: &'a str,
}

impl Change<'_> {
    /// Records the change, makes it, and records what came of it.
    pub(crate) fn make<T>(self, state: &Path, effect: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let record = self.begin(state)?;
        finish(record, self.by, effect)
    }

    /// The same for what frees room: on a full disk it is recorded in the room that was set aside.
    pub(crate) fn make_freeing<T>(
        self,
        state: &Path,
        effect: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let record = match self.begin(state) {
            Err(fault) if fault.code == Code::AuditWrite && reserve::give_up(state) => self.begin(state)?,
            begun => begun?,
        };
        finish(record, self.by, effect)
    }

    fn begin(&self, state: &Path) -> Result<Record, Fault> {
        let mut record = Record::open(state, &name()?)?;
        record.durable(&AuditEvent::HostChanged {
            run: self.run.clone(),
            by: self.by.to_owned(),
            at: self.at.clone(),
            names: self.names.iter().take(MOST_NAMES).cloned().collect(),
            more: self.names.len().saturating_sub(MOST_NAMES) as u64,
            approvals: self.approvals.clone(),
            principal: self.principal.to_owned(),
        })?;
        Ok(record)
    }
}

fn finish<T>(mut record: Record, by: &str, effect: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let made = effect();
    let told = match &made {
        Ok(_) => record.append(&AuditEvent::Note {
            topic: by.to_owned(),
            text: "done".to_owned(),
        }),
        Err(fault) => record.append(&AuditEvent::Refused(fault.clone())),
    };
    let sealed = told.and_then(|()| record.seal());
    let made = made?;
    sealed
        .map_err(|fault| fault.help("what was asked for is done; only the end of its record is missing"))?;
    Ok(made)
}

/// The person who runs this program, as records name them.
#[must_use]
pub fn local_person() -> String {
    let uid = rustix::process::getuid().as_raw();
    format!("{} uid:{uid}", PrincipalKind::LocalPerson.word())
}

fn name() -> Result<RunId, Fault> {
    let unusable = |why: String| Fault::new(Code::StateDir, "cannot name the record", why);
    RunId::try_from(format!("{AFTERWARDS}{}", new_run_id()?)).map_err(|error| unusable(error.to_string()))
}
