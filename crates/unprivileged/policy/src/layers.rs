//! Layers of policy, from the built-in floor to the project's own file.
//!
//! **Trust:** the first five kinds are the operator's. A project's files come with the workspace, and a request from whoever
//! sends it: both are untrusted input.
use crate::document::Document;
use bastle_contract::AbsPath;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Where a layer comes from, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerKind {
    /// Built in: hard denies.
    Floor,
    /// Built in: a preset.
    Preset,
    /// The administrator's.
    Managed,
    /// The person's.
    User,
    /// The command line.
    Flags,
    /// `agent-permissions.json` of the workspace.
    Project,
    /// `agent-permissions.local.json` of the workspace.
    ProjectLocal,
    /// The policy in a request of somebody who is no admin.
    Request,
    /// The authority ceiling of whoever asked for the run.
    Ceiling,
}

/// One document and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its place in the order.
    pub kind: LayerKind,
    /// File path, or preset name and version.
    pub name: String,
    /// What it says. Built-in ones are shared by all who have them, also among processes that are copies of one.
    pub document: Arc<Document>,
}

/// What `~/` and `./` mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Home directory of the person who starts bastle.
    pub home: AbsPath,
    /// The workspace.
    pub workspace: AbsPath,
}

impl LayerKind {
    /// Whether the operator speaks, not the project.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        match self {
            Self::Floor | Self::Preset | Self::Managed | Self::User | Self::Flags => true,
            Self::Project | Self::ProjectLocal | Self::Request | Self::Ceiling => false,
        }
    }

    /// Whether the operator can let it grant for a run. A request and a ceiling never grant, whatever was said.
    #[must_use]
    pub fn is_expandable(self) -> bool {
        match self {
            Self::Floor | Self::Preset | Self::Managed | Self::User | Self::Flags => true,
            Self::Project | Self::ProjectLocal => true,
            Self::Request | Self::Ceiling => false,
        }
    }

    /// The name used in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Preset => "preset",
            Self::Managed => "managed",
            Self::User => "user",
            Self::Flags => "flags",
            Self::Project => "project",
            Self::ProjectLocal => "project.local",
            Self::Request => "request",
            Self::Ceiling => "ceiling",
        }
    }
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
