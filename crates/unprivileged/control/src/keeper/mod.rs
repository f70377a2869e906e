//! The keeper of a run without a terminal: one process that starts it, keeps what it prints and what happens to it, and
//! listens on its socket.
//!
//! **Trust:** the request is the caller's own word, checked when it is read. What the agent prints is bytes in a file.
//! Nobody else writes the run's files while the keeper holds their lock; when it dies, the kernel ends the whole run.
mod driven;
mod ending;
mod feed;
mod front;
mod journal;
mod keep;
mod lost;
mod mother;
mod request;
mod start;
mod voice;

pub use keep::{Keeping, TELL};
pub use lost::{cancel_queued, interrupt, settle};
pub use mother::{Born, bear};
pub use start::start;

pub(crate) use driven::{After, Driven};
pub(crate) use feed::{Feed, Hands};
pub(crate) use front::{Front, Then};
pub(crate) use mother::Mother;

/// The hidden verb under which the binary keeps a run.
pub const KEEP_VERB: &str = "__keep";
/// The hidden verb under which the binary makes keepers: as long as theirs, which takes its place.
pub const MOTHER_VERB: &str = "__bear";
