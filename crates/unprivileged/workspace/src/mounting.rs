//! How the agent's tree gets into the sandbox.
//!
//! **Trust:** pure; whoever plans mounts puts this in the place of the host's tree, and nothing of that beside it.
use crate::workspace::Workspace;
use std::path::PathBuf;

/// What the sandbox gets in the place of the host's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounting {
    /// This directory.
    Tree(PathBuf),
    /// The host's tree, read-only, below a layer of the run's own.
    Layered {
        /// The host's tree.
        lower: PathBuf,
        /// Has `upper` and `work`.
        layer: PathBuf,
    },
}

impl Workspace {
    /// What the sandbox gets in the place of [`Workspace::source`].
    #[must_use]
    pub fn mounting(&self) -> Mounting {
        if self.is_layered() {
            Mounting::Layered {
                lower: self.source().to_path_buf(),
                layer: self.path(crate::layers::LAYER),
            }
        } else {
            Mounting::Tree(self.tree())
        }
    }
}
