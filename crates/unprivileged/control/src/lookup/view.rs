//! Where a path that the agent will see is on disk: at the same place, in a copy, or below a layer.
//!
//! **Trust:** links in a copy are the project's; one that names the project by its whole path is followed into the copy.
use bastle_contract::AbsPath;
use bastle_workspace::manifest::Manifest;
use std::path::{Component, Path, PathBuf};

/// Symlinks followed on one way, as by the kernel.
pub(super) const MOST_LINKS: usize = 40;

/// How a path that the agent will see is found on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View<'a> {
    /// At the same path.
    Host,
    /// The project's paths in a copy of it, which will stand in the project's place.
    Copy {
        /// The project.
        project: &'a AbsPath,
        /// The copy.
        tree: &'a Path,
    },
    /// The project below a layer. Its names were all looked at when the layer was made: they are not looked at again.
    Layered {
        /// The project.
        project: &'a AbsPath,
        /// What the overlay shows.
        shown: &'a Manifest,
    },
}

impl View<'_> {
    /// The project, where another tree stands in its place.
    pub(super) fn project(&self) -> Option<&AbsPath> {
        match self {
            Self::Host => None,
            Self::Copy { project, .. } | Self::Layered { project, .. } => Some(project),
        }
    }

    /// Where `path` is on disk.
    pub(super) fn on_disk(&self, path: &Path) -> PathBuf {
        match self {
            Self::Host | Self::Layered { .. } => path.to_path_buf(),
            Self::Copy { project, tree } => match path.strip_prefix(project.as_path()) {
                Ok(below) if below.as_os_str().is_empty() => tree.to_path_buf(),
                Ok(below) => tree.join(below),
                Err(_) => path.to_path_buf(),
            },
        }
    }

    /// `path` with its symlinks followed as they will be inside. A link in a copy that names the project by its whole
    /// path stays in the copy: the kernel, asked on the host, would follow it into the project.
    pub(crate) fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let Self::Copy { project, .. } = self else {
            return std::fs::canonicalize(path).ok();
        };
        if !path.starts_with(project.as_path()) {
            let real = std::fs::canonicalize(path).ok()?;
            if !real.starts_with(project.as_path()) {
                return Some(real);
            }
        }
        let mut left: Vec<PathBuf> = parts(path);
        let (mut done, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop() {
            if part.as_os_str() == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            let at = self.on_disk(&next);
            if !at.symlink_metadata().ok()?.is_symlink() {
                done = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            let target = std::fs::read_link(&at).ok()?;
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            left.extend(parts(&target));
        }
        Some(done)
    }
}

/// The components of a path, last first.
pub(super) fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}
