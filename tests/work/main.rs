//! The agent's workspace end to end, with the real binary, as root and as an ordinary user.
//!
//! | file | what must not happen |
//! |---|---|
//! | `copies` | a host tree that differs after a run; two runs in one tree; a hidden file inside; a copy that leads out |
//! | `review`, `review_kept`, `review_gate`, `review_crash`, `review_recover` | something on the host that nobody reviewed; lost work; a project between old and new |
//! | `overlay_edits` | a file that the user edits during a run, lost, taken for the agent's work or told with a false reason |
//! | `left_commits` | commits that the files do not show, unseen or removed |
//! | `forms` | a branch or a patch with other bytes than the files; something left out without a word |
//! | `modes` | an overlay or a work tree that writes the host, shows what a copy would not, or finds other work |
//! | `write_scopes` | a file or its attributes changed outside of what a run may write, in any way of making the tree |
//! | `letting_go` | work that goes unnamed with a copy; a removal that a full disk stops; work that gets into another project |
//! | `hidden_history` | a content that was committed under a hidden name, or has another name, inside |
//! | `fileops` | a change that no record names; a name that acts on a terminal; a reading claimed to be seen that is not |
//! | `sealed` | a statement that names what was not done, or that somebody changed |
//! | `caches` | a run that finds what another put into its cache; a merge that follows a link or replaces a name |
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod caches;
mod copies;
mod fileops;
mod forms;
mod hidden_history;
mod left_commits;
mod letting_go;
mod modes;
mod overlay_edits;
mod review;
mod review_crash;
mod review_gate;
mod review_guide;
mod review_kept;
mod review_recorded;
mod review_recover;
mod sealed;
mod write_scopes;
