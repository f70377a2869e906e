//! Finding and reading the policy layers. A file that is there but unusable is an error, never skipped.
use crate::place::Place;
use crate::presets::{self, AgentUse, Command};
use bastle_contract::egress::BudgetKind;
use bastle_contract::{AbsPath, Bounds, Code, Fault};
use bastle_policy::{
    AuthorityCeiling, Document, Effective, Expansion, Grade, Layer, LayerKind, MergeOptions, Surroundings,
};
use bastle_workspace::project::{ProjectFileError, read_project_file};
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
    /// Whether the command is the word of a client that is no admin.
    pub client_command: bool,
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
    /// `--waive turns|tokens|usd`: budgets given up where something cannot be counted.
    pub waived: Vec<BudgetKind>,
    /// Places of the workspace that alone may be written; all that the policy grants when empty.
    pub scopes: Vec<AbsPath>,
    /// The policy of a request whose sender is no admin. It only narrows.
    pub request: Option<Document>,
    /// The most that the result may reach.
    pub ceiling: Option<AuthorityCeiling>,
}

impl Sources {
    /// Holds them to the authority of whoever asked. Bounds that cannot be read are an error, never none.
    pub fn bind(&mut self, bounds: &Bounds) -> Result<(), Vec<Fault>> {
        let ceiling = serde_json::from_value(bounds.ceiling.clone()).map_err(|error| {
            vec![Fault::new(
                Code::TokenCeiling,
                "the authority ceiling of the run cannot be read",
                error.to_string(),
            )]
        })?;
        self.request = bounds
            .request
            .as_ref()
            .map(|document| bastle_policy::parse("request", document.to_string().as_bytes()))
            .transpose()?;
        self.ceiling = Some(ceiling);
        Ok(())
    }
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
/// Most bytes of a document.
const LARGEST: u64 = 64 * 1024;
/// One byte more than a document may have, so that a longer one is seen to be longer.
const MOST: u64 = LARGEST + 1;

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
    let command = Command {
        argv: &sources.argv,
        of_client: sources.client_command,
    };
    let agent = presets::look(place, &preset, command, &layers[2..])?;
    let agent = agent.map(|(layer, agent)| {
        layers.insert(2, layer);
        agent
    });
    let baseline = merge_with(place, sources, (&layers, &kept), Expansion::RestrictOnly)?;
    let trusted = layers.len();
    for (name, kind) in PROJECT {
        layers.extend(of_project(place.workspace.as_path(), Path::new(name), kind)?);
    }
    layers.extend(sources.request.as_ref().map(|document| Layer {
        kind: LayerKind::Request,
        name: "request".to_owned(),
        document: document.clone().into(),
    }));
    layers.extend(scopes(place, sources, &baseline)?);
    // Without a file of the project, a request and scopes both are the same.
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

/// The write scopes of a request as a layer that narrows: of the workspace only they may be written, and reading stays.
fn scopes(place: &Place, sources: &Sources, granted: &Effective) -> Result<Option<Layer>, Vec<Fault>> {
    if sources.scopes.is_empty()
        || sources
            .scopes
            .iter()
            .any(|scope| place.workspace.is_within(scope))
    {
        return Ok(None);
    }
    let name = "write scopes of the request";
    let outside = granted.granted(Grade::Write).into_iter().map(|path| path.value);
    let outside = outside.filter(|path| !path.is_within(&place.workspace));
    let within = sources.scopes.iter().cloned();
    let mut write: Vec<String> = Vec::new();
    for path in within
        .filter(|path| path.is_within(&place.workspace))
        .chain(outside)
    {
        write.push(path.to_string());
    }
    let text = serde_json::json!({ "version": 1, "fs": { "write": write } }).to_string();
    Ok(Some(Layer {
        // A request's layer only narrows, also where a project's may grant.
        kind: LayerKind::Request,
        name: name.to_owned(),
        document: bastle_policy::parse(name, text.as_bytes())?.into(),
    }))
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
        ceiling: sources.ceiling.clone(),
    };
    let mut effective = bastle_policy::merge(layers, &surroundings, &options)?;
    effective.net.learn |= sources.learn;
    effective.net.budget.waived.clone_from(&sources.waived);
    Ok(effective)
}

/// What `--unprotect` was given, with the links above it followed: a rule is about where a file is. A link in the last place
/// stays, and is refused when the plan is made: it would open another file than the one that was named.
#[must_use]
pub fn opened_path(typed: &AbsPath) -> AbsPath {
    let (path, suffix) = match typed.as_str().strip_suffix("/**") {
        Some(directory) => (directory, "/**"),
        None => (typed.as_str(), ""),
    };
    let real = || {
        let path = Path::new(path);
        let parent = std::fs::canonicalize(path.parent()?).ok()?;
        let text = format!("{}{suffix}", parent.join(path.file_name()?).to_str()?);
        AbsPath::new(text).ok()
    };
    real().unwrap_or_else(|| typed.clone())
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

/// Reads a policy file that the project brings. Its author is not trusted: a link would make this process read, and its
/// parse errors tell, a file that the author or the caller may not see.
fn of_project(root: &Path, name: &Path, kind: LayerKind) -> Result<Option<Layer>, Vec<Fault>> {
    let path = root.join(name);
    match read_project_file(root, name, LARGEST) {
        Ok(Some(bytes)) => parse(&path, kind, &bytes).map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(vec![unusable_in_project(&path, name, &error)]),
    }
}

/// Names the file by its name in the project: callers who may not see paths of this host still learn which one it is.
fn unusable_in_project(path: &Path, name: &Path, error: &ProjectFileError) -> Fault {
    Fault::new(
        Code::PolicyUnreadable,
        format!(
            "cannot read the project's {} at {}",
            name.display(),
            path.display()
        ),
        error.to_string(),
    )
    .help(error.fix(path))
}

/// Reads one policy file that must exist.
pub fn required(path: &Path, kind: LayerKind) -> Result<Layer, Vec<Fault>> {
    if matches!(kind, LayerKind::Project | LayerKind::ProjectLocal)
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
    {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        // The directory is the caller's word; only the name in it is the project's.
        let parent =
            std::fs::canonicalize(parent).map_err(|error| vec![unreadable(path, &error.to_string())])?;
        return of_project(&parent, Path::new(name), kind)?
            .ok_or_else(|| vec![unreadable(path, "it does not exist")]);
    }
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
    let document = bastle_policy::diagnose(&name, bytes).map_err(|found| {
        found
            .iter()
            .map(bastle_policy::Diagnostic::withheld)
            .collect::<Vec<_>>()
    })?;
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
