//! Which policy and which state directory a question is about; shared by all verbs that ask one.
use crate::context::Failed;
use bastle_contract::{AbsPath, Code, Fault};
use bastle_control::{Loaded, Place, Sources};
use bastle_policy::{Effective, Expansion, Layer, LayerKind, MergeOptions, Surroundings};
use std::path::{Component, Path, PathBuf};

/// Which policy: the same options as those of `run`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PolicySource {
    /// Start from this built-in preset [default: default]
    #[arg(
        long,
        value_name = "NAME[@VERSION]",
        env = "BASTLE_PRESET",
        hide_env_values = true
    )]
    pub(crate) preset: Option<String>,
    /// Add a policy file as your own word; may be repeated
    #[arg(long, value_name = "FILE", env = "BASTLE_POLICY", hide_env_values = true)]
    pub(crate) policy: Vec<PathBuf>,
    /// The project directory [default: the git root above the current directory]
    #[arg(
        long,
        value_name = "DIR",
        env = "BASTLE_WORKSPACE_DIR",
        hide_env_values = true
    )]
    pub(crate) workspace_dir: Option<PathBuf>,
    /// Let the project's own file grant what your layers do not
    #[arg(long)]
    pub(crate) allow_user_expansion: bool,
    /// Open one file of the hard floor, or a directory spelt 'DIR/**'
    #[arg(long, value_name = "FILE")]
    pub(crate) unprotect: Vec<PathBuf>,
}

impl PolicySource {
    /// Reads and merges the layers of this host, this user and this project.
    pub(crate) fn load(&self) -> Result<Loaded, Failed> {
        let place = Place::find(self.workspace_dir.as_deref())?;
        let sources = Sources {
            scopes: Vec::new(),
            preset: self.preset.clone(),
            argv: Vec::new(),
            files: self.policy.clone(),
            flags: None,
            expand: self.allow_user_expansion,
            unprotect: self.opened()?,
            ..Sources::default()
        };
        Ok(bastle_control::load(&place, &sources)?)
    }

    /// Merges the floor, the preset, the files of `--policy` and these layers alone, whatever else this host has.
    pub(crate) fn merge(&self, more: Vec<Layer>) -> Result<Effective, Vec<Fault>> {
        let preset = self.preset.as_deref().unwrap_or("default");
        let mut layers = bastle_policy::default_layers(preset).map_err(|fault| vec![fault])?;
        for file in &self.policy {
            layers.push(bastle_control::read_layer(file, LayerKind::User)?);
        }
        layers.extend(more);
        let expansion = if self.allow_user_expansion {
            Expansion::Allowed
        } else {
            Expansion::RestrictOnly
        };
        let unprotect = self.opened().map_err(|fault| vec![fault])?;
        let surroundings = self.surroundings().map_err(|fault| vec![fault])?;
        let options = MergeOptions {
            expansion,
            unprotect,
            ..MergeOptions::default()
        };
        bastle_policy::merge(&layers, &surroundings, &options)
    }

    fn opened(&self) -> Result<Vec<AbsPath>, Fault> {
        self.unprotect
            .iter()
            .map(|path| Ok(bastle_control::opened_path(&absolute(path)?)))
            .collect()
    }

    /// What `~/` and `./` mean. A document can be checked anywhere, also where no agent would be let in.
    fn surroundings(&self) -> Result<Surroundings, Fault> {
        match Place::find(self.workspace_dir.as_deref()) {
            Ok(place) => Ok(Surroundings {
                home: place.home,
                workspace: place.workspace,
            }),
            Err(fault) if self.workspace_dir.is_some() => Err(fault),
            Err(_) => Ok(Surroundings {
                home: absolute(Path::new("~"))?,
                workspace: absolute(Path::new("."))?,
            }),
        }
    }
}

/// The layer a file is when nobody says: the project's by its name, the user's otherwise.
pub(crate) fn kind_of(file: &Path) -> LayerKind {
    match file.file_name().and_then(|name| name.to_str()) {
        Some("agent-permissions.json") => LayerKind::Project,
        Some("agent-permissions.local.json") => LayerKind::ProjectLocal,
        Some(_) | None => LayerKind::User,
    }
}

/// A path as typed, made absolute and lexically clean. Symlinks stay: a rule is about the name that was written.
pub(crate) fn absolute(path: &Path) -> Result<AbsPath, Fault> {
    let fault = |why: String| {
        Fault::new(
            Code::UsageArgument,
            format!("path {} cannot be used", path.display()),
            why,
        )
    };
    let path = match path.strip_prefix("~") {
        Ok(rest) => home()?.join(rest),
        Err(_) => std::path::absolute(path).map_err(|error| fault(error.to_string()))?,
    };
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => clean.push(part),
        }
    }
    AbsPath::from_path(&clean).map_err(|error| fault(error.to_string()))
}

/// The user's home with symlinks resolved, as the policy's `~/` is.
fn home() -> Result<PathBuf, Fault> {
    let home = raw_home()?;
    Ok(std::fs::canonicalize(&home).unwrap_or(home))
}

pub(crate) fn raw_home() -> Result<PathBuf, Fault> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    home.ok_or_else(|| {
        Fault::new(
            Code::StateDir,
            "the home directory is unknown",
            "HOME is not set to an absolute path",
        )
    })
}

/// Where audit logs are. Needs no workspace, unlike [`Place::find`].
pub(crate) fn state_dir() -> Result<PathBuf, Fault> {
    let set = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let base = match set {
        Some(base) => base,
        None => raw_home()?.join(".local/state"),
    };
    Ok(base.join("bastle"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_path_becomes_absolute_without_dots() {
        assert_eq!(absolute(Path::new("/a/./b/../c/")).unwrap().as_str(), "/a/c");
        assert_eq!(absolute(Path::new("/../..")).unwrap().as_str(), "/");
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("x")).unwrap().as_path(), here.join("x"));
    }

    #[test]
    fn only_the_names_of_project_files_are_untrusted_by_default() {
        assert_eq!(kind_of(Path::new("a/agent-permissions.json")), LayerKind::Project);
        assert_eq!(
            kind_of(Path::new("agent-permissions.local.json")),
            LayerKind::ProjectLocal
        );
        assert_eq!(kind_of(Path::new("mine.json")), LayerKind::User);
    }
}
