//! Built-in documents: the floor and the presets, versioned data that is part of this build.
use crate::document::{Document, parse_builtin};
use crate::json::Diagnostic;
use crate::layers::{Layer, LayerKind};
use crate::text::nearest;
use bastle_contract::{Code, Fault};
use std::sync::OnceLock;

/// One built-in document.
struct BuiltIn {
    name: &'static str,
    version: u32,
    text: &'static str,
    parsed: OnceLock<Result<Document, Vec<Diagnostic>>>,
}

macro_rules! built_in {
    ($name:literal, $version:literal) => {
        BuiltIn {
            name: $name,
            version: $version,
            text: include_str!(concat!("../presets/", $name, ".json")),
            parsed: OnceLock::new(),
        }
    };
}

static FLOOR: BuiltIn = built_in!("floor", 1);
static PRESETS: [BuiltIn; 4] = [
    built_in!("default", 1),
    built_in!("dev", 1),
    built_in!("read-only", 1),
    built_in!("safe-unrestricted", 1),
];

/// Groups of hosts that `extends` and `net` rules may name; their hosts are resolved by the egress proxy.
pub(crate) const GROUPS: &[&str] = &["npm", "crates", "pypi", "apt"];

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
        let parsed = self.parsed.get_or_init(|| parse_builtin(&name, self.text));
        match parsed {
            Ok(document) => Ok(Layer {
                kind,
                name,
                document: document.clone(),
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
