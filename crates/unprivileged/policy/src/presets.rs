//! Built-in documents: the floor and the presets, versioned data that is part of this build.
use crate::document::{Document, parse_builtin};
use crate::json::Diagnostic;
use crate::layers::{Layer, LayerKind};
use crate::text::nearest;
use bastle_contract::{Code, Fault};
use std::sync::{Arc, OnceLock};

/// One built-in document.
struct BuiltIn {
    name: &'static str,
    version: u32,
    text: &'static str,
    kind: Kind,
    parsed: OnceLock<Result<Arc<Document>, Vec<Diagnostic>>>,
}

/// What a built-in document is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Policy for any command.
    Policy,
    /// What an agent needs.
    Agent,
}

macro_rules! built_in {
    ($name:literal, $version:literal) => {
        BuiltIn {
            name: $name,
            version: $version,
            text: include_str!(concat!("../presets/", $name, ".json")),
            kind: Kind::Policy,
            parsed: OnceLock::new(),
        }
    };
}

/// The preset of one agent: its version is part of the file's name.
macro_rules! agent {
    ($name:literal, $version:literal) => {
        BuiltIn {
            name: $name,
            version: $version,
            text: include_str!(concat!("../presets/agents/", $name, "@", $version, ".json")),
            kind: Kind::Agent,
            parsed: OnceLock::new(),
        }
    };
}

static FLOOR: BuiltIn = built_in!("floor", 1);
static PRESETS: [BuiltIn; 9] = [
    built_in!("default", 1),
    built_in!("dev", 1),
    built_in!("read-only", 1),
    built_in!("safe-unrestricted", 1),
    agent!("claude", 1),
    agent!("codex", 1),
    agent!("opencode", 1),
    agent!("gemini", 1),
    agent!("aider", 1),
];

/// Groups of hosts that `extends` and `net` rules may name; their hosts are resolved by the egress proxy.
pub(crate) const GROUPS: &[&str] = &["npm", "crates", "pypi", "apt"];

/// Ends the name of a layer that holds what a preset found on this host.
pub const FOUND_HERE: &str = " on this host";

/// The words of `--sandbox`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// Nothing of the workspace can be written.
    ReadOnly,
    /// The workspace can be written.
    WorkspaceWrite,
    /// No fence.
    DangerFullAccess,
}

impl BuiltIn {
    fn layer(&'static self, kind: LayerKind) -> Result<Layer, Fault> {
        let name = format!("{}@{}", self.name, self.version);
        let parsed = self
            .parsed
            .get_or_init(|| parse_builtin(&name, self.text).map(Arc::new));
        match parsed {
            Ok(document) => Ok(Layer {
                kind,
                name,
                document: Arc::clone(document),
            }),
            Err(found) => {
                let why = found.first().map(|d| d.snippet.clone()).unwrap_or_default();
                Err(Fault::new(
                    Code::PolicySchema,
                    format!("built-in policy {name} is broken"),
                    why,
                ))
            }
        }
    }
}

/// The hard floor: credentials and bastle's own state, whatever any layer says.
pub fn floor() -> Result<Layer, Fault> {
    FLOOR.layer(LayerKind::Floor)
}

/// The names of all presets.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Whether an origin names a preset of this build, or what one of them found on this host. All others are kept by a person.
pub(crate) fn is_built_in(origin: &str) -> bool {
    let full = origin.strip_suffix(FOUND_HERE).unwrap_or(origin);
    PRESETS
        .iter()
        .chain([&FLOOR])
        .any(|preset| full == format!("{}@{}", preset.name, preset.version))
}

/// The text of a built-in preset, as it is part of this build.
#[must_use]
pub fn preset_text(layer: &Layer) -> Option<&'static str> {
    let named = |preset: &&BuiltIn| format!("{}@{}", preset.name, preset.version) == layer.name;
    PRESETS.iter().find(named).map(|preset| preset.text)
}

/// Every built-in preset that is an agent's.
pub fn agent_presets() -> Result<Vec<Layer>, Fault> {
    let agents = PRESETS.iter().filter(|preset| preset.kind == Kind::Agent);
    agents.map(|preset| preset.layer(LayerKind::Preset)).collect()
}

/// The built-in presets of agents that a command line could name; mostly none, and then nothing is read at all.
pub fn agent_presets_for(argv: &[String]) -> Result<Vec<Layer>, Fault> {
    let agents = PRESETS.iter().filter(|preset| preset.kind == Kind::Agent);
    agents
        .filter(|preset| crate::agent::may_name(preset.text, argv))
        .map(|preset| preset.layer(LayerKind::Preset))
        .collect()
}

/// Reads a preset that the operator keeps. It must be an agent's: the others are part of the fence.
pub fn read_preset(name: &str, version: u32, bytes: &[u8]) -> Result<Layer, Vec<Fault>> {
    let full = format!("{name}@{version}");
    let document = crate::document::parse_preset(&full, bytes)
        .map_err(|found| found.iter().map(Diagnostic::withheld).collect::<Vec<_>>())?;
    let fits = name.len() <= 32
        && !name.is_empty()
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let own = PRESETS.iter().find(|preset| preset.name == name);
    let why = if !fits || version == 0 {
        "a preset is called NAME@VERSION: small letters, digits and dashes, then a number"
    } else if document.agent.is_none() {
        "it has no \"agent\" section: policies without one are files for --policy"
    } else if name == FLOOR.name || own.is_some_and(|own| own.kind == Kind::Policy) {
        "policies that are no agent's are part of this build"
    } else if own.is_some_and(|own| own.version >= version) {
        "this build has that version or a newer one"
    } else if name == "none" {
        "the name says that there is no preset"
    } else {
        return Ok(Layer {
            kind: LayerKind::Preset,
            name: full,
            document: document.into(),
        });
    };
    Err(vec![Fault::new(
        Code::PolicySchema,
        format!("{full} cannot be kept"),
        why,
    )])
}

/// A preset by `NAME` or `NAME@VERSION`, among the built-in and the kept ones; without a version the newest.
pub fn find(name: &str, kept: &[Layer]) -> Result<Layer, Fault> {
    let bare = name.split('@').next().unwrap_or(name);
    let own = |layer: &&Layer| layer.name.split('@').next() == Some(bare);
    let chosen = if name == bare {
        // A kept version is always newer than the built-in one.
        kept.iter().filter(own).max_by_key(|layer| version(layer))
    } else {
        kept.iter().find(|layer| layer.name == name)
    };
    match chosen {
        Some(layer) => Ok(layer.clone()),
        None => preset(name),
    }
}

/// The version of a preset's layer.
#[must_use]
pub fn version(layer: &Layer) -> u32 {
    let digits = layer.name.split_once('@').map(|(_, digits)| digits);
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

/// A preset by `NAME` or `NAME@VERSION`.
pub fn preset(name: &str) -> Result<Layer, Fault> {
    let (bare, version) = match name.split_once('@') {
        Some((bare, version)) => (bare, Some(version)),
        None => (name, None),
    };
    let Some(found) = PRESETS.iter().find(|preset| preset.name == bare) else {
        let mut fault = Fault::new(Code::PolicyReference, format!("no preset is called {bare:?}"), "");
        if let Some(near) = nearest(bare, names()) {
            fault = fault.help(format!("did you mean {near}?"));
        }
        return Err(fault.help(format!("presets: {}", names().join(", "))));
    };
    match version {
        Some(version) if version != found.version.to_string() => Err(Fault::new(
            Code::PolicyReference,
            format!("this build has no version {version:?} of preset {bare}"),
            format!("it has {bare}@{}", found.version),
        )),
        Some(_) | None => found.layer(LayerKind::Preset),
    }
}

/// The floor and one preset: what every run starts from.
pub fn default_layers(name: &str) -> Result<Vec<Layer>, Fault> {
    Ok(vec![floor()?, preset(name)?])
}

/// The preset that a word of `--sandbox` stands for.
pub fn sandbox_preset(mode: SandboxMode) -> Result<&'static str, Fault> {
    match mode {
        SandboxMode::ReadOnly => Ok("read-only"),
        SandboxMode::WorkspaceWrite => Ok("default"),
        SandboxMode::DangerFullAccess => Err(Fault::new(
            Code::UsageArgument,
            "--sandbox danger-full-access is refused",
            "bastle has no mode that looks like a fence and is none",
        )
        .help("to run without a fence, say so: bastle run --backend host --i-understand-this-is-not-a-fence -- CMD")),
    }
}

impl SandboxMode {
    /// The mode from its word.
    pub fn parse(word: &str) -> Result<Self, Fault> {
        let words = ["read-only", "workspace-write", "danger-full-access"];
        match word {
            "read-only" => Ok(Self::ReadOnly),
            "workspace-write" => Ok(Self::WorkspaceWrite),
            "danger-full-access" => Ok(Self::DangerFullAccess),
            other => {
                let mut fault = Fault::new(
                    Code::UsageArgument,
                    format!("--sandbox {other:?} is not known"),
                    "",
                );
                if let Some(near) = nearest(other, words) {
                    fault = fault.help(format!("did you mean {near}?"));
                }
                Err(fault.help(format!("modes: {}", words.join(", "))))
            }
        }
    }
}
