//! Finding and reading the policy layers. A file that is there but unusable is an error, never skipped.
use crate::place::Place;
use crate::presets::{self, AgentUse};
use bastle_contract::{AbsPath, Code, Fault};
use bastle_policy::{Document, Effective, Expansion, Layer, LayerKind, MergeOptions, Surroundings};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the command line says about policy.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--preset`, or what [`crate::presets::choose`] found; `default` when absent.
    pub preset: Option<String>,
    /// The command, where a preset of an agent is to find its program.
    pub argv: Vec<String>,
    /// `--policy FILE`, taken as the user's own word.
    pub files: Vec<PathBuf>,
    /// The other flags, as a document.
    pub flags: Option<Document>,
    /// `--allow-user-expansion`.
    pub expand: bool,
    /// `--unprotect PATH`.
    pub unprotect: Vec<AbsPath>,
    /// `--learn`: what no rule names goes out for reading and is recorded.
    pub learn: bool,
}

/// A merged policy and what it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Every layer, strongest first.
    pub layers: Vec<Layer>,
    /// The result.
    pub effective: Effective,
    /// The same without the project's files, for comparison.
    pub baseline: Effective,
    /// What was found here for the agent of the preset.
    pub agent: Option<AgentUse>,
}

/// Where administrators put policy.
const MANAGED: &str = "/etc/bastle";
/// The project's own file and its git-ignored twin.
const PROJECT: [(&str, LayerKind); 2] = [
    ("agent-permissions.json", LayerKind::Project),
    ("agent-permissions.local.json", LayerKind::ProjectLocal),
];
/// One byte more than a document may have, so that a longer one is seen to be longer.
const MOST: u64 = 64 * 1024 + 1;

/// Reads and merges all layers.
pub fn load(place: &Place, sources: &Sources) -> Result<Loaded, Vec<Fault>> {
    let one = |fault| vec![fault];
    let kept: Vec<Layer> = presets::kept(&place.config)?
        .into_iter()
        .map(|kept| kept.layer)
        .collect();
    let name = match sources.preset.as_deref() {
        None | Some(presets::NONE) => "default",
        Some(name) => name,
    };
    let preset = bastle_policy::find_preset(name, &kept).map_err(one)?;
    let mut layers = vec![bastle_policy::floor().map_err(one)?, preset.clone()];
    layers.push(own_directories(place)?);
    layers.extend(managed()?);
    let user = place.config.join("policy.json");
    layers.extend(optional(&user, LayerKind::User)?);
    for file in &sources.files {
        layers.push(required(file, LayerKind::User)?);
    }
    if let Some(document) = &sources.flags {
        layers.push(Layer {
            kind: LayerKind::Flags,
            name: "command line".to_owned(),
            document: document.clone().into(),
        });
    }
    let agent = presets::look(place, &preset, &sources.argv, &layers[2..])?;
    let agent = agent.map(|(layer, agent)| {
        layers.insert(2, layer);
        agent
    });
    let baseline = merge_with(place, sources, (&layers, &kept), Expansion::RestrictOnly)?;
    let trusted = layers.len();
    for (name, kind) in PROJECT {
        layers.extend(optional(&place.workspace.as_path().join(name), kind)?);
    }
    // Without a file of the project both are the same.
    let effective = if layers.len() == trusted {
        baseline.clone()
    } else {
        merge_layers(place, sources, &layers)?
    };
    Ok(Loaded {
        layers,
        effective,
        baseline,
        agent,
    })
}

/// Merges layers as the command line says.
pub(crate) fn merge_layers(
    place: &Place,
    sources: &Sources,
    layers: &[Layer],
) -> Result<Effective, Vec<Fault>> {
    let expansion = if sources.expand {
        Expansion::Allowed
    } else {
        Expansion::RestrictOnly
    };
    let kept: Vec<Layer> = presets::kept(&place.config)?
        .into_iter()
        .map(|kept| kept.layer)
        .collect();
    merge_with(place, sources, (layers, &kept), expansion)
}

fn merge_with(
    place: &Place,
    sources: &Sources,
    (layers, kept): (&[Layer], &[Layer]),
    expansion: Expansion,
) -> Result<Effective, Vec<Fault>> {
    let surroundings = Surroundings {
        home: place.home.clone(),
        workspace: place.workspace.clone(),
    };
    let options = MergeOptions {
        expansion,
        unprotect: sources.unprotect.clone(),
        kept: kept.to_vec(),
    };
    let mut effective = bastle_policy::merge(layers, &surroundings, &options)?;
    effective.net.learn |= sources.learn;
    Ok(effective)
}

/// bastle's own directories of this invocation, wherever the environment puts them: out of the agent's reach.
fn own_directories(place: &Place) -> Result<Layer, Vec<Fault>> {
    let name = "bastle's own directories";
    let hidden: Vec<String> = [&place.state, &place.config, &crate::live::directory(&place.state)]
        .into_iter()
        .map(|path| path.display().to_string())
        .collect();
    let text = serde_json::json!({ "version": 1, "fs": { "hide": hidden } }).to_string();
    let document = bastle_policy::parse(name, text.as_bytes())?;
    Ok(Layer {
        kind: LayerKind::Floor,
        name: name.to_owned(),
        document: document.into(),
    })
}

/// Reads one policy file that must exist.
pub fn required(path: &Path, kind: LayerKind) -> Result<Layer, Vec<Fault>> {
    match read(path)? {
        Some(bytes) => parse(path, kind, &bytes),
        None => Err(vec![unreadable(path, "it does not exist")]),
    }
}

fn optional(path: &Path, kind: LayerKind) -> Result<Option<Layer>, Vec<Fault>> {
    match read(path)? {
        Some(bytes) => parse(path, kind, &bytes).map(Some),
        None => Ok(None),
    }
}

/// `/etc/bastle/policy.json`, then `policy.d/*.json` in the order of their names.
fn managed() -> Result<Vec<Layer>, Vec<Fault>> {
    let base = Path::new(MANAGED);
    let mut layers: Vec<Layer> = optional(&base.join("policy.json"), LayerKind::Managed)?
        .into_iter()
        .collect();
    let folder = base.join("policy.d");
    let mut files = match std::fs::read_dir(&folder) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
    .map_err(|error| vec![unreadable(&folder, &error.to_string())])?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    for file in files {
        layers.push(required(&file, LayerKind::Managed)?);
    }
    Ok(layers)
}

/// The bytes of a file, or `None` when it does not exist. Anything else that keeps it from being read is an error.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Vec<Fault>> {
    // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(vec![unreadable(path, &error.to_string())]),
    };
    // A FIFO or device planted in the workspace is no policy.
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(vec![unreadable(path, "it is not a regular file")]);
    }
    let mut bytes = Vec::new();
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(|error| vec![unreadable(path, &error.to_string())])?;
    Ok(Some(bytes))
}

fn parse(path: &Path, kind: LayerKind, bytes: &[u8]) -> Result<Layer, Vec<Fault>> {
    let name = path.display().to_string();
    let document = bastle_policy::parse(&name, bytes)?;
    Ok(Layer {
        kind,
        name,
        document: document.into(),
    })
}

fn unreadable(path: &Path, why: &str) -> Fault {
    Fault::new(
        Code::PolicyUnreadable,
        format!("cannot read the policy file {}", path.display()),
        why,
    )
    .help("fix the file, or name another with --policy FILE")
}
