//! Review and return: what a run changed, and how it gets back to the host, is kept, or goes.
//!
//! **Trust:** runs as the invoking user. The agent's tree is reached through `bastle-workspace` only, which opens
//! nothing by a path that the agent could have bent and judges contents by their digest.
mod alive;
mod apply;
mod choose;
mod keep;
mod look;

pub use crate::afterwards::local_person;
pub use alive::{Alive, is_alive, settle_state, stay_alive};
pub use apply::{Act, Approval, Destination, Outcome, Taken as AppliedAs, Wish, carry, undo};
pub use bastle_workspace as library;
pub use choose::{Opened, Whereabouts, metas, open, repair, repair_project};
pub use keep::{
    Archived, Replace, export_stream, export_to, fork, patch_to, prune, read_origin, remove, rollback,
    snapshot,
};
pub use look::{End, Ignored, Look, Summary, look, read_end, read_which, summary};
