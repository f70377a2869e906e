//! Presets on this host: the kept ones, the one a command asks for, and what it needs of the person's machine.
//!
//! **Trust:** presets are built in or kept by the operator. What they name is looked for below the operator's home and
//! `PATH`; a program of the project is nobody's agent, whatever it is called.
mod copies;
mod kept;
mod program;

pub use kept::{Kept, keep, kept, read as read_file};
pub use program::Program;

use crate::place::Place;
use crate::secrets::has_reference;
use bastle_contract::{Argv, Code, Fault};
use bastle_policy::agent::{Agent, Credential, Take, choosing_variable};
use bastle_policy::{FOUND_HERE, GivenFile, Layer, LayerKind};
use serde_json::{Map, Value, json};

/// The word of `--preset` that refuses any for an agent.
pub const NONE: &str = "none";

/// The name that an authority ceiling knows a preset by; no preset of an agent is `default`.
pub(crate) fn plain_name(stated: Option<&str>) -> &str {
    match stated {
        None | Some(NONE) => "default",
        Some(name) => name,
    }
}

/// The preset of a run, and how it came to be that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// `NAME` or `NAME@VERSION`.
    pub preset: Option<String>,
    /// Whether the command chose it.
    pub from_command: bool,
    /// Why an agent that the command names gets no preset, for people.
    pub note: Option<String>,
}

/// What was found here for the agent of a preset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentUse {
    /// `NAME@VERSION`.
    pub preset: String,
    /// Its name for people.
    pub title: String,
    /// Its program.
    pub program: Option<Program>,
    /// Files for its home.
    pub files: Vec<GivenFile>,
    /// Names under which it and its interpreter are found inside.
    pub links: Vec<(String, bastle_contract::AbsPath)>,
    /// Variables whose value is injected, and where each is kept.
    pub credentials: Vec<(String, String)>,
    /// Its command line, and the same with its own sandbox off, where that differs.
    pub switched: Option<(Vec<String>, Vec<String>)>,
    /// What a person is told, in order.
    pub told: Vec<String>,
    /// What a person is warned of.
    pub warnings: Vec<String>,
}

/// The preset for a command: what was asked for, else the agent's that the command names.
pub fn choose(place: &Place, asked: Option<&str>, argv: &[String]) -> Result<Chosen, Vec<Fault>> {
    let said = |preset: Option<&str>| Chosen {
        preset: preset.map(str::to_owned),
        from_command: false,
        note: None,
    };
    match asked {
        Some(NONE) => return Ok(said(None)),
        Some(name) => return Ok(said(Some(name))),
        None => {}
    }
    let known = kept(&place.config)?;
    let mut note = None;
    for layer in agents(&known, argv)? {
        let Some(agent) = &layer.document.agent else {
            continue;
        };
        let Some(pick) = bastle_policy::agent::pick(agent, argv) else {
            continue;
        };
        if let Some(why) = program::refused(place, &pick, argv) {
            let name = layer.name.split('@').next().unwrap_or(&layer.name);
            note = Some(format!(
                "the preset {name} and its credential are not used: {why}; name the installed program itself, or say --preset {name}"
            ));
            continue;
        }
        return Ok(Chosen {
            preset: Some(layer.name),
            from_command: true,
            note: None,
        });
    }
    Ok(Chosen { note, ..said(None) })
}

/// The command line that a preset is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'c> {
    /// Its words.
    pub(crate) argv: &'c [String],
    /// Whether it is the word of a client that is no admin. A person who names a preset for a command means that command;
    /// a client gets the credential for the agent alone.
    pub(crate) of_client: bool,
}

/// Why a request of a client that is no admin cannot have this preset with these variables: one of them may choose what is
/// executed under the agent's name, and the preset has a credential or files of a person.
pub(crate) fn refuse_variables<'v>(
    place: &Place,
    preset: &str,
    variables: impl IntoIterator<Item = (&'v str, &'v str)>,
) -> Result<Option<Fault>, Vec<Fault>> {
    let Some(name) = choosing_variable(variables) else {
        return Ok(None);
    };
    let kept: Vec<Layer> = kept(&place.config)?.into_iter().map(|kept| kept.layer).collect();
    let layer = bastle_policy::find_preset(preset, &kept).map_err(|fault| vec![fault])?;
    Ok(layer.document.agent.as_ref().map(|_| {
        Fault::new(
            Code::TokenCeiling,
            format!("the preset {preset} does not go with the variable {name} of this request"),
            format!("{name} may choose what is executed under the agent's name, and the preset is for the agent alone"),
        )
        .help(format!("leave {name} out of \"env\", or ask with \"preset\": \"{NONE}\""))
        .help("an admin starts such a run")
    }))
}

/// What of a child's command may be looked for: its words are an agent's, so a path in them grants nothing. A bare name
/// is found where the operator's `PATH` says.
#[must_use]
pub fn of_child(argv: &[String]) -> Vec<String> {
    let first = argv.first().filter(|word| !word.contains('/'));
    first.cloned().into_iter().collect()
}

/// The newest version of each agent's preset that could be meant.
fn agents(kept: &[Kept], argv: &[String]) -> Result<Vec<Layer>, Vec<Fault>> {
    let layers: Vec<Layer> = kept.iter().map(|kept| kept.layer.clone()).collect();
    let built_in = bastle_policy::agent_presets_for(argv).map_err(|fault| vec![fault])?;
    let mut names: Vec<String> = built_in
        .iter()
        .chain(&layers)
        .filter_map(|layer| layer.name.split('@').next().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
        .iter()
        .map(|name| bastle_policy::find_preset(name, &layers).map_err(|fault| vec![fault]))
        .collect()
}

/// Looks at the host for the agent of a preset. Gives back a further layer of the preset with what was found.
pub(crate) fn look(
    place: &Place,
    preset: &Layer,
    Command { argv, of_client }: Command<'_>,
    later: &[Layer],
) -> Result<Option<(Layer, AgentUse)>, Vec<Fault>> {
    let Some(agent) = &preset.document.agent else {
        return Ok(None);
    };
    let mut found = AgentUse {
        preset: preset.name.clone(),
        title: agent.title.clone(),
        ..AgentUse::default()
    };
    let mut document = Map::from_iter([("version".to_owned(), json!(1))]);
    program::look(place, agent, argv, &mut found);
    if let Some(program) = &found.program
        && !program.grants.is_empty()
    {
        document.insert("fs".to_owned(), json!({ "read": program.grants }));
    }
    let picked =
        bastle_policy::agent::pick(agent, argv).or_else(|| bastle_policy::agent::behind(agent, argv));
    let withheld = match picked {
        Some(pick) => program::refused(place, &pick, argv),
        None if of_client => Some("the command of this request does not name it".to_owned()),
        None => None,
    };
    let secrets = match &withheld {
        None => credentials(place, agent, later, &mut found),
        Some(why) => {
            // The person named the preset, so its rules hold; a key is not handed to what the project may choose.
            found.warnings.push(format!(
                "no credential of {} is used: {why}; name the installed program itself",
                agent.title
            ));
            Vec::new()
        }
    };
    if !secrets.is_empty() {
        document.insert("net".to_owned(), json!({ "allow": allowed(&secrets) }));
        document.insert("secrets".to_owned(), json!(secrets));
    }
    if withheld.is_none() {
        copies::look(place, agent, &mut found);
    }
    found.warnings.extend(agent.tells.iter().cloned());
    if let Some(switched) = agent.inner.switched(agent, argv) {
        found.warnings.extend(switched.told);
        found.switched = Some((argv.to_vec(), switched.argv));
    }
    let name = format!("{}{FOUND_HERE}", preset.name);
    let text = format!("{:#}", Value::Object(document));
    let document = bastle_policy::parse(&name, text.as_bytes())?;
    let kind = LayerKind::Preset;
    Ok(Some((
        Layer {
            kind,
            name,
            document: document.into(),
        },
        found,
    )))
}

impl AgentUse {
    /// What is executed for a command line: the same, or without a sandbox that cannot be built inside.
    pub fn argv(&self, typed: Argv) -> Result<Argv, Fault> {
        match &self.switched {
            Some((known, now)) if typed.as_slice() == known.as_slice() => Argv::try_from(now.clone())
                .map_err(|error| {
                    Fault::new(
                        Code::UsageArgument,
                        format!("{} makes no command line without its own sandbox", self.title),
                        error.to_string(),
                    )
                    .help("--preset none leaves the command line as it is")
                }),
            Some(_) | None => Ok(typed),
        }
    }
}

/// The hosts that secrets are for, with their ports where those are named.
fn allowed(secrets: &[Value]) -> Vec<String> {
    let texts = |secret: &Value, key: &str| -> Vec<String> {
        let list = secret.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect()
    };
    let mut rules = Vec::new();
    for secret in secrets {
        let ports = texts(secret, "ports");
        for host in texts(secret, "hosts") {
            if ports.is_empty() {
                rules.push(host);
            } else {
                rules.extend(ports.iter().map(|port| format!("{host}:{port}")));
            }
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

/// The credentials that exist here and that nobody has spoken about more precisely.
fn credentials(place: &Place, agent: &Agent, later: &[Layer], found: &mut AgentUse) -> Vec<Value> {
    let spoken = |credential: &Credential| {
        let name = &credential.secret.name;
        later
            .iter()
            .filter(|layer| layer.kind.is_trusted())
            .flat_map(|layer| &layer.document.secrets)
            .any(|own| own.value.name == *name)
    };
    let others = agent
        .credentials
        .iter()
        .filter(|credential| spoken(credential))
        .count();
    if others > 0 && agent.take == Take::First {
        return Vec::new();
    }
    let mut secrets = Vec::new();
    for credential in agent.credentials.iter().filter(|credential| !spoken(credential)) {
        let there = credential.from.iter().find(|from| has_reference(from, place));
        let Some(from) = there else { continue };
        let secret = &credential.secret;
        let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
        found
            .credentials
            .push((secret.name.as_str().to_owned(), from.clone()));
        found.told.push(format!(
            "{}: a placeholder inside; the value of {from} goes to {} alone",
            secret.name.as_str(),
            hosts.join(", ")
        ));
        let mut entry =
            json!({ "name": secret.name, "from": from, "hosts": hosts, "header": secret.header.to_string() });
        for (key, list) in [("methods", &secret.methods), ("paths", &secret.paths)] {
            if !list.is_empty() {
                entry[key] = json!(list);
            }
        }
        if !secret.ports.is_empty() {
            entry["ports"] = json!(secret.ports);
        }
        secrets.push(entry);
        if agent.take == Take::First {
            break;
        }
    }
    if secrets.is_empty()
        && others == 0
        && let Some(first) = agent.credentials.first()
    {
        let name = first.secret.name.as_str();
        found.warnings.push(format!(
            "no credential for {} was found: bastle secret set {name} --from-stdin, or export {name}",
            agent.title
        ));
    }
    secrets
}
