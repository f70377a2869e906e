//! What a person should know about a copy or a snapshot: names that were left out, changed or lead elsewhere.
//!
//! **Trust:** paths come from trees; they are shown through `TreePath`'s own escaping.
use crate::path::TreePath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most findings that are kept with a copy; a tree full of them is told by its first ones and their number.
pub const MAX_FINDINGS: usize = 1000;

/// One note about one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The name.
    pub path: TreePath,
    /// What about it.
    pub about: About,
}

/// What is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// Not copied: the policy hides it.
    Hidden,
    /// Not copied: a FIFO, socket or device.
    Special,
    /// Not copied or not kept: larger than bastle reads.
    TooLarge,
    /// Not copied or not kept: nested too deeply.
    TooDeep,
    /// Not copied or not kept: the kernel refused the reading.
    Unreadable,
    /// A link that points out of the tree; kept as it is, it leads nowhere inside the fence.
    LinkOutside,
    /// A file with other hard links; the copy stands alone.
    HardLink,
    /// Changed while it was read; the snapshot holds one state of it.
    Moving,
    /// The content before the agent's change is not kept any more: the source was changed as well.
    BeforeLost,
    /// Its attributes are not kept: those of a directory, or too many, too large, or the file system cannot hold them.
    Attributes,
    /// Changed in the source since the run began; the agent sees it through the overlay as it is now.
    SourceChanged,
    /// Anything else, in words.
    Note(String),
}

impl Finding {
    /// The name, when it says that the copy does not have it.
    #[must_use]
    pub fn absent(&self) -> Option<&TreePath> {
        match self.about {
            About::Hidden | About::Special | About::TooLarge | About::TooDeep | About::Unreadable => {
                Some(&self.path)
            }
            About::LinkOutside
            | About::HardLink
            | About::Moving
            | About::BeforeLost
            | About::Attributes
            | About::SourceChanged
            | About::Note(_) => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = match &self.about {
            About::Hidden => "not copied: hidden by policy",
            About::Special => "not copied: a FIFO, socket or device",
            About::TooLarge => "not kept: too large",
            About::TooDeep => "not kept: nested too deeply",
            About::Unreadable => "not kept: cannot be read",
            About::LinkOutside => "a link that points out of the tree",
            About::HardLink => "had other hard links: the copy stands alone",
            About::Moving => "changed while it was read",
            About::BeforeLost => "its earlier content is not kept: the source changed as well",
            About::Attributes => {
                "its extended attributes are not kept: a directory's, too many, too large, or no room for them"
            }
            About::SourceChanged => "changed in the source since the run began",
            About::Note(note) => note,
        };
        write!(f, "{}: {about}", self.path)
    }
}

/// Whether a link at `path` points out of its tree, by its text alone: absolute, or climbing above the root.
#[must_use]
pub fn leads_out(path: &TreePath, target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return true;
    }
    let mut depth = path.depth() - 1;
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}
