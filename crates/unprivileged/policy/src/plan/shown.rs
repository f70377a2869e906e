//! What is never shown to an agent, whoever asks: one list for policies, flags and grants to a living run.
use crate::effective::{Effective, Origin};
use crate::fsmap::Grade;
use bastle_contract::grants::refuse_never;
use bastle_contract::{AbsPath, Code, Fault};

/// Refuses every rule that would show what is never shown, before anybody looks around below it.
pub fn refuse_shown(effective: &Effective) -> Result<(), Fault> {
    let shown = effective.fs.iter().filter(|(_, reach)| reach.grade > Grade::None);
    for (path, reach) in shown {
        refuse_whole((path, path), &reach.origin, &effective.surroundings.home)?;
    }
    Ok(())
}

/// Refuses a path by where it leads: the home directory, what contains it, and the one list of what is never shown.
pub(super) fn refuse_whole(
    (path, resolved): (&AbsPath, &AbsPath),
    origin: &Origin,
    home: &AbsPath,
) -> Result<(), Fault> {
    let why = if home.is_within(resolved) {
        "it is the home directory or contains it".to_owned()
    } else if let Err(error) = refuse_never(resolved) {
        error.to_string()
    } else {
        return Ok(());
    };
    let what = format!("{path} ({origin}) is never handed over whole");
    Err(Fault::new(Code::WorkspaceInvalid, what, why).help("name the directories that are needed"))
}
