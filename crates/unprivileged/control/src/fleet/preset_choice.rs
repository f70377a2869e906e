//! Which preset a requested run has, and whose word its command is.
//!
//! **Trust:** command and variables are whoever's who may start runs. A preset with a credential goes to its agent's own
//! program: a variable that may choose another one under that name takes it away.
use super::RunRequest;
use super::authority::Authority;
use crate::place::Place;
use crate::presets;
use bastle_contract::Fault;
use bastle_contract::runs::LaunchSpec;
use bastle_policy::Profile;

/// The preset of a run, and what of its command may be looked for on this host.
pub(super) struct Choice {
    pub(super) preset: Option<String>,
    pub(super) command: Vec<String>,
    /// Whether the command is the word of a client that is no admin.
    pub(super) of_client: bool,
    /// Why the agent that the command names gets no preset.
    pub(super) note: Option<String>,
}

/// Chooses it.
pub(super) fn chosen(
    place: &Place,
    profile: &Profile,
    run: &RunRequest,
    (parent, authority): (Option<&LaunchSpec>, &Authority),
) -> Result<Choice, Vec<Fault>> {
    let command = if run.argv.is_empty() {
        &profile.command
    } else {
        &run.argv
    };
    // A child has what its parent has: no name of a program gives it more. The agent that starts it has the credential.
    if parent.is_some() {
        return Ok(Choice {
            preset: run.preset.clone(),
            command: presets::of_child(command),
            of_client: false,
            note: None,
        });
    }
    let asked = run.preset.as_deref().or(profile.preset.as_deref());
    let found = presets::choose(place, asked, command)?;
    let mut choice = Choice {
        preset: found.preset,
        command: command.clone(),
        of_client: authority.is_held() && !run.argv.is_empty(),
        note: found.note,
    };
    if let Some(name) = choice.preset.as_deref().filter(|_| authority.is_held()) {
        let variables = run
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let Some(fault) = presets::refuse_variables(place, name, variables)? else {
            return Ok(choice);
        };
        if !found.from_command {
            return Err(vec![fault]);
        }
        choice.note = Some(format!("{}: {}", fault.what, fault.why));
        choice.preset = None;
    }
    Ok(choice)
}
