//! The trial that everything rests on: a real run, in a directory whose file system is not what it fails by.
use super::{Check, State};
use bastle_contract::{Code, Fault};
use bastle_control::Place;
use bastle_control::trial::{Outcome, Scratch, TRIAL_TIME, Trial, TrialSettings};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A trial and where it was made. The directories are gone with this value.
pub(super) struct Tried {
    pub(super) outcome: Outcome,
    pub(super) began: Instant,
    pub(super) workspace: PathBuf,
    pub(super) state: PathBuf,
    /// A directory for temporary files that a run by root cannot use.
    pub(super) unmapped: Option<Check>,
    _scratch: Scratch,
}

/// Makes a trial below the first directory that can be written and shown to another user: a run by root needs that, and the
/// temporary directory is often a tmpfs, which kernels before 6.3 cannot map.
pub(super) fn first() -> Result<Tried, Fault> {
    let temporary = std::env::temp_dir();
    let first = make(&temporary);
    if first
        .as_ref()
        .is_ok_and(|tried| !cannot_be_mapped(&tried.outcome))
    {
        return first;
    }
    let place = Place::find(None).ok();
    let kept = place
        .as_ref()
        .and_then(|place| place.state.ancestors().find(|path| path.exists()));
    for base in [Some(Path::new("/var/tmp")), kept].into_iter().flatten() {
        // One that cannot be written says nothing of the fence.
        let Ok(mut other) = make(base) else { continue };
        if cannot_be_mapped(&other.outcome) {
            continue;
        }
        other.unmapped = first.is_ok().then(|| {
            Check::new(
                State::Info,
                "idmap",
                format!(
                    "{} has no idmapped mounts; the trial was made in {}",
                    temporary.display(),
                    base.display()
                ),
            )
            .consequence("runs by root with a project there fail")
        });
        return Ok(other);
    }
    first
}

fn cannot_be_mapped(outcome: &Outcome) -> bool {
    outcome
        .fault()
        .is_some_and(|(code, _, _)| Code::parse(&code) == Some(Code::FenceIdmap))
}

fn make(base: &Path) -> Result<Tried, Fault> {
    let scratch = Scratch::make_in(base)?;
    let (workspace, state) = (scratch.dir("project")?, scratch.dir("state")?);
    let began = Instant::now();
    let outcome = Trial {
        // The place is made for the trial and thrown away: there is nothing a copy would keep.
        mode: "in-place",
        flags: &["--quiet"],
        command: &["true"],
        workspace: &workspace,
        state: &state,
        settings: TrialSettings::Own,
        within: TRIAL_TIME,
    }
    .run()?;
    Ok(Tried {
        outcome,
        began,
        workspace,
        state,
        unmapped: None,
        _scratch: scratch,
    })
}
