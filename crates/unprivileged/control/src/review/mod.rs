//! Review and return: what a run changed, and how it gets back to the host, is kept, or goes.
//!
//! **Trust:** runs as the invoking user. The agent's tree is reached through `bastle-workspace` only, which opens
//! nothing by a path that the agent could have bent and judges contents by their digest.
mod alive;
mod apply;
mod apply_lock;
mod choose;
mod keep;
mod letting_go;
mod look;
mod recover;

pub use crate::afterwards::local_person;
pub use alive::{Alive, is_alive, settle_state, stay_alive};
pub use apply::{Act, Approval, Destination, Outcome, Taken as AppliedAs, Wish, carry, undo};
pub use bastle_workspace as library;
pub use bastle_workspace::apply::{Direction, Recovered};
pub use choose::{Opened, Whereabouts, metas, open, open_to_remove, repair};
pub use keep::{
    Archived, Forked, Replace, export_stream, export_to, fork, patch_to, read_origin, rollback, snapshot,
};
pub use letting_go::{
    Fate, PruneWish, PrunedAll, Restored, TRASH_AGE, prune, remove, remove_record, restore,
};
pub use look::{
    End, Ignored, Look, Summary, look, look_at_ref, object_format, read_end, read_which, summary,
};
pub use recover::{Repaired, abandon, extract, recover, repair_marked, repair_project};
